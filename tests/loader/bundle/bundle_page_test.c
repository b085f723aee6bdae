/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual page tilewright-bundle(5) against the headers: every section with type, flags and
 * whether it is required, every record with its fields, offsets and size, every constant, the
 * tables of a program blob; and that no structure or constant of the headers is left out.
 */
#include "loader/order/certificate.h"
#include "tests/support/man_page.h"
#include "tests/support/test.h"
#include "tilewright/bundle.h"
#include "tilewright/delta.h"
#include "tilewright/progblob.h"
#include "tilewright/vocab.h"

static int open_page(void **state) {
    (void)state;
    return man_page_open("tools/man/tilewright-bundle.5");
}

static int close_page(void **state) {
    (void)state;
    man_page_close();
    return 0;
}

/* ---- sections and tables ---- */

/* Returns "SHF_ALLOC | SHF_WRITE" in the form of the page: "ALLOC WRITE". */
static const char *short_names(const char *constants) {
    static char out[64];
    size_t n = 0;
    for (const char *c = constants; *c; c++) {
        if (strncmp(c, "SHT_", 4) == 0 || strncmp(c, "SHF_", 4) == 0) {
            c += 4;
        } else if (strncmp(c, "| ", 2) == 0) {
            c += 2;
            c += strncmp(c, "SHF_", 4) == 0 ? 4 : 0;
        }
        out[n++] = *c;
    }
    out[n] = 0;
    return out;
}

static void check_described(const char *name) {
    char heading[64];
    snprintf(heading, sizeof heading, "\n.TP\n.B %s\n", name);
    if (!strstr(man_page_text(), heading)) {
        fail_msg("the page does not say what %s holds", name);
    }
}

static void every_section_is_described_as_in_the_header(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(id, name, type, flags, required) \
    man_page_add("\\&%s|", name);             \
    man_page_add("%s|", short_names(#type));  \
    man_page_add("%s|%s\n", short_names(#flags), (required) ? "yes" : "no");
    TW_BUNDLE_SECTIONS(TW_X)
#undef TW_X
    man_page_check_rows("sections");
#define TW_X(id, name, type, flags, required) check_described(name);
    TW_BUNDLE_SECTIONS(TW_X)
#undef TW_X
}

static void the_tables_of_a_blob_are_in_order(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(id, field, count, type)              \
    man_page_add("%s|%d|", #id, (int)TW_PB_##id); \
    man_page_add_text(&#type[sizeof "struct"]);
    TW_PROGBLOB_TABLES(TW_X)
#undef TW_X
    man_page_add("STREAMS|%d|", (int)TW_PB_STREAMS);
    man_page_add_text("tw_progblob_stream");
    man_page_add("WORDS|%d|", (int)TW_PB_WORDS);
    man_page_add_text("words of all streams, 4 bytes each");
    man_page_add("STRINGS|%d|", (int)TW_PB_STRINGS);
    man_page_add_text("bytes of the string table");
    man_page_check_rows("tables");
}

/* ---- records ---- */

#define W(field) MAN_FIELD(tw_bundle_note, field)
MAN_FIELDS(tw_bundle_note, W(bundle_major), W(bundle_minor), W(abi_major), W(abi_min_minor),
           W(n_programs), W(n_vocab), W(n_ctx), W(n_layers), W(n_banks), W(flags), W(n_params),
           W(meta_bytes), W(target_hash), W(content_hash), W(target), W(model), W(arch), W(license),
           W(tool));
#undef W
#define W(field) MAN_FIELD(tw_symbol_type, field)
MAN_FIELDS(tw_symbol_type, W(role), W(dtype), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_bank_record, field)
MAN_FIELDS(tw_bank_record, W(bytes), W(hash));
#undef W
#define W(field) MAN_FIELD(tw_programs_header, field)
MAN_FIELDS(tw_programs_header, W(magic), W(n_programs), W(n_bind_rows));
#undef W
#define W(field) MAN_FIELD(tw_program_record, field)
MAN_FIELDS(tw_program_record, W(offset), W(bytes));
#undef W
#define W(field) MAN_FIELD(tw_progblob_header, field)
MAN_FIELDS(tw_progblob_header, W(magic), W(bytes), W(name), W(rows), W(n_sites), W(mesh_width),
           W(mesh_height), W(n_chips), W(with_streams), W(sram_bytes), W(needs), W(table));
#undef W
#define W(field) MAN_FIELD(tw_requirements, field)
MAN_FIELDS(tw_requirements, W(ops), W(dtypes), W(packings), W(features), W(rows), W(chips),
           W(sites), W(words), W(trips), W(sram_bytes));
#undef W
#define W(field) MAN_FIELD(tw_progblob_stream, field)
MAN_FIELDS(tw_progblob_stream, W(site), W(engine), W(first_word), W(n_words));
#undef W
#define W(field) MAN_FIELD(tw_tensor, field)
MAN_FIELDS(tw_tensor, W(name), W(rows), W(cols), W(dtype), W(packing), W(role), W(init),
           W(bind_first), W(bind_count), W(head_dim), W(page_rows), W(bytes));
#undef W
#define W(field) MAN_FIELD(tw_buffer, field)
MAN_FIELDS(tw_buffer, W(name), W(site), W(kind), W(dtype), W(mem_class), W(producer), W(consumer),
           W(pad), W(group), W(pages), {"padding", 20, 4}, W(page_bytes), W(offset),
           W(sibling_base), W(tensor), W(window_first), W(window_stride), W(window_rows),
           W(window_row_bytes));
#undef W
#define W(field) MAN_FIELD(tw_semaphore, field)
MAN_FIELDS(tw_semaphore, W(name), W(group), W(role), W(initial));
#undef W
#define W(field) MAN_FIELD(tw_group, field)
MAN_FIELDS(tw_group, W(chip), W(x0), W(y0), W(x1), W(y1), W(chips));
#undef W
#define W(field) MAN_FIELD(tw_trip, field)
MAN_FIELDS(tw_trip, W(name), W(input), W(element), W(add), W(div), W(max), W(clamp));
#undef W
#define W(field) MAN_FIELD(tw_stage, field)
MAN_FIELDS(tw_stage, W(kind), W(site), W(engine), W(section), W(origin), W(first_col), W(n_cols),
           W(k));
#undef W
#define W(field) MAN_FIELD(tw_section, field)
MAN_FIELDS(tw_section, W(name), W(repeat), W(first_buffer), W(n_buffers), W(first_semaphore),
           W(n_semaphores), W(first_stage), W(n_stages), W(local), W(gather), W(release),
           W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_sites_header, field)
MAN_FIELDS(tw_sites_header, W(magic), W(n_images), W(n_streams), W(n_patches), W(n_args),
           W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_image_record, field)
MAN_FIELDS(tw_image_record, W(n_words), W(first_patch), W(n_patches), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_stream_record, field)
MAN_FIELDS(tw_stream_record, W(program), W(site), W(engine), W(image), W(first_arg), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_cert_header, field)
MAN_FIELDS(tw_cert_header, W(magic), W(n_programs), W(bindings_hash));
#undef W
#define W(field) MAN_FIELD(tw_cert_entry, field)
MAN_FIELDS(tw_cert_entry, W(program_hash), W(first_word), W(n_words), W(step_ops));
#undef W
#define W(field) MAN_FIELD(tw_cert_header_1, field)
MAN_FIELDS(tw_cert_header_1, W(magic), W(n_programs));
#undef W
#define W(field) MAN_FIELD(tw_cert_entry_1, field)
MAN_FIELDS(tw_cert_entry_1, W(program_hash), W(first_word), W(n_words));
#undef W
#define W(field) MAN_FIELD(tw_vocab_header, field)
MAN_FIELDS(tw_vocab_header, W(magic), W(kind), W(n_tokens), W(flags), W(bos), W(eos), W(unk),
           W(pad), W(bytes_size), W(n_ends), W(end));
#undef W
#define W(field) MAN_FIELD(tw_vocab_extra, field)
MAN_FIELDS(tw_vocab_extra, W(pre), W(n_scores), W(n_merges), W(n_ends), W(charsmap_bytes),
           W(special), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_vocab_merge, field)
MAN_FIELDS(tw_vocab_merge, W(left), W(right), W(merged));
#undef W

#define W(field) MAN_FIELD(tw_delta_header, field)
MAN_FIELDS(tw_delta_header, W(magic), W(version), W(reserved), W(base_bytes), W(target_bytes),
           W(record_bytes), W(base_hash), W(target_hash), W(file_hash), W(hash));
#undef W

static const struct man_layout layouts[] = {
    MAN_LAYOUT(tw_bundle_note),    MAN_LAYOUT(tw_symbol_type),
    MAN_LAYOUT(tw_bank_record),    MAN_LAYOUT(tw_programs_header),
    MAN_LAYOUT(tw_program_record), MAN_LAYOUT(tw_progblob_header),
    MAN_LAYOUT(tw_requirements),   MAN_LAYOUT(tw_progblob_stream),
    MAN_LAYOUT(tw_tensor),         MAN_LAYOUT(tw_buffer),
    MAN_LAYOUT(tw_semaphore),      MAN_LAYOUT(tw_group),
    MAN_LAYOUT(tw_trip),           MAN_LAYOUT(tw_stage),
    MAN_LAYOUT(tw_section),        MAN_LAYOUT(tw_sites_header),
    MAN_LAYOUT(tw_image_record),   MAN_LAYOUT(tw_stream_record),
    MAN_LAYOUT(tw_cert_header),    MAN_LAYOUT(tw_cert_entry),
    MAN_LAYOUT(tw_cert_header_1),  MAN_LAYOUT(tw_cert_entry_1),
    MAN_LAYOUT(tw_vocab_header),   MAN_LAYOUT(tw_vocab_extra),
    MAN_LAYOUT(tw_vocab_merge),    MAN_LAYOUT(tw_delta_header),
};
#define N_LAYOUTS (sizeof layouts / sizeof layouts[0])

static void every_record_has_its_table(void **state) {
    (void)state;
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        man_page_check_layout(&layouts[i]);
    }
}

/* ---- constants ---- */

#define C(name) \
    { #name, name }
static const struct man_constant constants[] = {
    C(TW_BUNDLE_MAJOR),
    C(TW_BUNDLE_MINOR),
    C(TW_NOTE_OFFSET),
    C(TW_NOTE_BYTES),
    C(TW_HEADER_OFFSET),
    C(TW_NOTE_TYPE),
    C(TW_HASH_BYTES),
    C(TW_R_64),
    C(TW_SHF_REQUIRED),
    C(TW_PARAM_ALIGN),
    C(TW_SYMBOL_ALIGN),
    C(TW_MAX_BANKS),
    C(TW_MAX_IMAGES),
    C(TW_PROGRAMS_MAGIC),
    C(TW_SITES_MAGIC),
    C(TW_PROGBLOB_MAGIC),
    C(TW_CERT_MAGIC),
    C(TW_CERT_MAGIC_1),
    C(TW_VOCAB_MAX_ENDS),
    C(TW_VOCAB_MAGIC),
    C(TW_PROGRAM_NAME_BYTES),
    C(TW_VOCAB_NONE),
    C(TW_VOCAB_SPM_BPE),
    C(TW_TOKEN_NORMAL),
    C(TW_TOKEN_UNKNOWN),
    C(TW_TOKEN_CONTROL),
    C(TW_TOKEN_UNUSED),
    C(TW_TOKEN_BYTE),
    C(TW_TOKEN_USER_DEFINED),
    C(TW_VOCAB_ADD_BOS),
    C(TW_VOCAB_ADD_EOS),
    C(TW_VOCAB_SPACE_PREFIX),
    C(TW_VOCAB_STOP_AT_BOS),
    C(TW_VOCAB_MAGIC_1),
    C(TW_VOCAB_MAX_EXTRA_ENDS),
    C(TW_VOCAB_MAX_CHARSMAP_BYTES),
    C(TW_PRE_NAME_BYTES),
    C(TW_VOCAB_BYTE_BPE),
    C(TW_VOCAB_UNIGRAM),
    C(TW_VOCAB_MERGE_BPE),
    C(TW_TOKEN_TYPE_MASK),
    C(TW_TOKEN_LSTRIP),
    C(TW_TOKEN_RSTRIP),
    C(TW_VOCAB_IGNORE_MERGES),
    C(TW_VOCAB_SQUEEZE),
    C(TW_VOCAB_PLAIN_SPACES),
    C(TW_VOCAB_SPACE_SUFFIX),
    C(TW_VOCAB_PREFIX_AT_START),
    C(TW_VOCAB_PREFIX_IF_NONE),
    C(TW_SPECIAL_EOT),
    C(TW_SPECIAL_EOM),
    C(TW_SPECIAL_SEP),
    C(TW_SPECIAL_NEWLINE),
    C(TW_SPECIAL_MASK),
    C(TW_SPECIAL_FIM_PREFIX),
    C(TW_SPECIAL_FIM_SUFFIX),
    C(TW_SPECIAL_FIM_MIDDLE),
    C(TW_SPECIAL_FIM_PAD),
    C(TW_SPECIAL_FIM_REPO),
    C(TW_SPECIAL_FIM_SEP),
    C(TW_SPECIALS),
};
#define N_CONSTANTS (sizeof constants / sizeof constants[0])

static void every_constant_has_its_value(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        man_page_check_constant(&constants[i]);
    }
}

static void the_page_documents_everything_in_the_headers(void **state) {
    static const char *const headers[] = {
        "include/tilewright/bundle.h", "include/tilewright/progblob.h",
        "include/tilewright/vocab.h", "include/tilewright/machine.h"};
    /* not in a bundle: a block of activations, a place in a running program, views in memory, what
     * the table of block types says (machine_page_test) */
    static const char *const structures[] = {"tw_q8s",        "tw_q8k",   "tw_top",   "tw_stream",
                                             "tw_program",    "tw_vocab", "tw_place", "tw_window",
                                             "tw_block_type", NULL};
    static const char *const others[] = {"TW_NOTE_NAME", "TW_MAX_SITES", NULL};
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        man_page_check_structures(headers[i], layouts, N_LAYOUTS, structures);
    }
    for (size_t i = 0; i < 3; i++) { /* machine.h: machine_page_test */
        man_page_check_constants(headers[i], constants, N_CONSTANTS, others);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_section_is_described_as_in_the_header),
        cmocka_unit_test(the_tables_of_a_blob_are_in_order),
        cmocka_unit_test(every_record_has_its_table),
        cmocka_unit_test(every_constant_has_its_value),
        cmocka_unit_test(the_page_documents_everything_in_the_headers),
    };
    return cmocka_run_group_tests_name("bundle_page", tests, open_page, close_page);
}
