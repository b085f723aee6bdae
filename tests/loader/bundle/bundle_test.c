/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles opened again after they were written: content, placement, hashes, and files that are not
 * bundles.
 */
#include "tests/support/bundle_kit.h"

#include <elf.h>
#include <sodium/crypto_generichash.h>
#include <sys/stat.h>

static void assert_same_program(const struct tw_program *a, const struct tw_program *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->strings_bytes, b->strings_bytes);
    assert_memory_equal(a->strings, b->strings, a->strings_bytes);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->n_sites, b->n_sites);
    assert_int_equal(a->mesh_width, b->mesh_width);
    assert_int_equal(a->mesh_height, b->mesh_height);
    assert_int_equal(a->n_chips, b->n_chips);
    assert_true(!memcmp(a->sram_bytes, b->sram_bytes, sizeof a->sram_bytes));
    assert_int_equal(a->n_tensors, b->n_tensors);
    assert_memory_equal(a->tensors, b->tensors, a->n_tensors * sizeof *a->tensors);
    assert_int_equal(a->n_buffers, b->n_buffers);
    assert_memory_equal(a->buffers, b->buffers, a->n_buffers * sizeof *a->buffers);
    assert_int_equal(a->n_groups, b->n_groups);
    assert_memory_equal(a->groups, b->groups, a->n_groups * sizeof *a->groups);
    assert_int_equal(a->n_trips, b->n_trips);
    assert_memory_equal(a->trips, b->trips, a->n_trips * sizeof *a->trips);
    assert_int_equal(a->n_stages, b->n_stages);
    assert_memory_equal(a->stages, b->stages, a->n_stages * sizeof *a->stages);
    assert_int_equal(b->n_semaphores + b->n_sections, 0);
    for (uint32_t i = 0; i < a->n_sites * TW_ENGINE_COUNT; i++) {
        assert_int_equal(a->streams[i].site, b->streams[i].site);
        assert_int_equal(a->streams[i].engine, b->streams[i].engine);
        assert_int_equal(a->streams[i].n_words, b->streams[i].n_words);
        if (a->streams[i].n_words) {
            assert_memory_equal(a->streams[i].words, b->streams[i].words,
                                (size_t)a->streams[i].n_words * 4);
        }
    }
}

static void programs_and_streams_read_back_as_written(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    write_bundle(w);
    assert_ok(w, open_bundle(w, TW_BUNDLE_CHECK_HASH, &b));
    assert_int_equal(b.n_programs, FIXTURE_PROGRAMS);
    for (uint32_t i = 0; i < FIXTURE_PROGRAMS; i++) {
        assert_same_program(&w->f.programs[i], &b.programs[i]);
        assert_ptr_equal(tw_bundle_program(&b, w->f.programs[i].name), &b.programs[i]);
    }
    assert_null(tw_bundle_program(&b, "prefill.5"));
    tw_bundle_close(&b);
    tw_bundle_close(&b);
    tw_bundle_close(NULL);
}

static void texts_vocabulary_and_header_read_back_as_written(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    write_bundle(w);
    assert_ok(w, open_bundle(w, 0, &b));
    assert_string_equal(b.plan, w->f.spec.plan);
    assert_string_equal(b.origin, w->f.spec.origin);
    assert_int_equal(b.vocab_bytes, w->f.spec.vocab_bytes);
    assert_memory_equal(b.vocab, w->f.vocab, sizeof w->f.vocab);
    assert_string_equal(b.note->model, "fixture");
    assert_string_equal(b.note->target, "sim4x4");
    assert_int_equal(b.note->n_programs, FIXTURE_PROGRAMS);
    assert_memory_equal(b.note->target_hash, w->f.spec.note.target_hash, TW_HASH_BYTES);
    assert_string_equal(b.path, w->path);
    tw_bundle_close(&b);
    w->f.spec.plan = w->f.spec.origin = NULL;
    w->f.spec.vocab_bytes = 0;
    write_bundle(w);
    assert_ok(w, open_bundle(w, 0, &b));
    assert_null(b.plan);
    assert_null(b.origin);
    assert_null(b.vocab);
    tw_bundle_close(&b);
}

static void symbols_lie_in_their_segments_with_their_bytes(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    write_bundle(w);
    assert_ok(w, open_bundle(w, 0, &b));
    assert_int_equal(b.n_symbols, FIXTURE_SYMBOLS);
    assert_int_equal(b.n_segments, 4);
    for (uint32_t i = 0; i < b.n_symbols; i++) {
        const struct tw_emit_symbol *want = &w->f.symbols[i];
        const struct tw_symbol *got = &b.symbols[i];
        uint32_t segment = want->role == TW_ROLE_PARAM   ? want->bank
                           : want->role == TW_ROLE_STATE ? 2
                                                         : 3;
        assert_string_equal(got->name, want->name);
        assert_int_equal(got->role, want->role);
        assert_int_equal(got->dtype, want->dtype);
        assert_int_equal(got->segment, segment);
        assert_true(got->size == want->bytes);
        assert_true(got->offset % TW_SYMBOL_ALIGN == 0);
        for (uint64_t k = 0; want->role == TW_ROLE_PARAM && k < got->size; k++) {
            assert_int_equal(b.segments[segment].bytes[got->offset + k], bundle_fixture_byte(i, k));
        }
    }
    assert_int_equal(w->f.disorder, 0);
    tw_bundle_close(&b);
}

static void weights_are_used_in_place_on_64_kib_boundaries(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    write_bundle(w);
    assert_ok(w, open_bundle(w, 0, &b));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(b.segments[i].kind, TW_SEG_PARAM);
        assert_int_equal(b.segments[i].bank, i);
        assert_int_equal((uintptr_t)b.segments[i].bytes % TW_PARAM_ALIGN, 0);
        assert_in_range((uintptr_t)b.segments[i].bytes, (uintptr_t)b.note,
                        (uintptr_t)b.note + 3 * TW_PARAM_ALIGN);
    }
    assert_int_equal(b.segments[2].kind, TW_SEG_STATE);
    assert_true(b.segments[2].size == 64 && b.segments[2].bytes == NULL);
    assert_int_equal(b.segments[3].kind, TW_SEG_SCRATCH);
    assert_true(b.segments[3].size == 192 && b.segments[3].bytes == NULL);
    tw_bundle_close(&b);
}

static void binding_rows_become_addresses_of_their_symbols(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    uint64_t rows[FIXTURE_ROWS], address[4] = {0x100000, 0x200000, 0x300000, 0x400000};
    write_bundle(w);
    assert_ok(w, open_bundle(w, 0, &b));
    assert_true(b.n_bind_rows == FIXTURE_ROWS);
    tw_bundle_relocate(&b, address, rows);
    const uint64_t want[FIXTURE_ROWS] = {0x400000, 0x100000, 0x200000,
                                         0x100400, 0x300000, 0x400040};
    assert_memory_equal(rows, want, sizeof want);
    assert_true(b.bind[2].size == 1100);
    tw_bundle_close(&b);
}

static void note_and_header_are_in_the_first_4_kib_at_fixed_offsets(void **state) {
    struct world *w = *state;
    size_t size = 0;
    write_bundle(w);
    uint8_t *bytes = bundle_fixture_read(w->path, &size);
    assert_non_null(bytes);
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)bytes;
    const Elf64_Phdr *first = (const Elf64_Phdr *)(const void *)(bytes + h->e_phoff);
    assert_int_equal(first->p_type, PT_NOTE);
    assert_true(first->p_offset == TW_NOTE_OFFSET && first->p_filesz == TW_NOTE_BYTES);
    assert_string_equal((const char *)bytes + TW_NOTE_OFFSET + sizeof(Elf64_Nhdr), TW_NOTE_NAME);
    const struct tw_bundle_note *note =
        (const struct tw_bundle_note *)(const void *)(bytes + TW_HEADER_OFFSET);
    assert_string_equal(note->model, "fixture");
    assert_true(TW_HEADER_OFFSET + sizeof *note <= 4096);
    free(bytes);
}

/* Computed here with libsodium alone, from the definition in tilewright/bundle.h. */
static void the_content_hash_is_blake2b_of_the_metadata(void **state) {
    struct world *w = *state;
    size_t size = 0;
    uint8_t want[TW_HASH_BYTES], got[TW_HASH_BYTES];
    write_bundle(w);
    uint8_t *bytes = bundle_fixture_read(w->path, &size);
    assert_non_null(bytes);
    struct tw_bundle_note *note = (struct tw_bundle_note *)(void *)(bytes + TW_HEADER_OFFSET);
    memcpy(got, note->content_hash, sizeof got);
    memset(note->content_hash, 0, sizeof note->content_hash);
    crypto_generichash(want, sizeof want, bytes, note->meta_bytes, NULL, 0);
    assert_memory_equal(got, want, sizeof want);
    free(bytes);
}

static void a_damaged_weight_is_found_when_hashes_are_checked(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    size_t size = 0;
    write_bundle(w);
    uint8_t *bytes = bundle_fixture_read(w->path, &size);
    assert_non_null(bytes);
    bytes[size - 1] ^= 1; /* the last byte of weight.1, in bank 1 */
    assert_int_equal(bundle_fixture_save(w->path, bytes, size), 0);
    assert_ok(w, open_bundle(w, 0, &b));
    assert_ok(w, tw_segment_hash(&b, 0, &w->err));
    assert_int_equal(tw_segment_hash(&b, 1, &w->err), TW_E_HASH);
    assert_int_equal(tw_segment_hash(&b, 2, &w->err), TW_E_USAGE);
    assert_int_equal(tw_segment_hash(&b, 99, &w->err), TW_E_USAGE);
    tw_bundle_close(&b);
    assert_int_equal(open_bundle(w, TW_BUNDLE_CHECK_HASH, &b), TW_E_HASH);
    assert_non_null(strstr(w->err.message, ".tw.param.1"));
    free(bytes);
}

static void every_damaged_byte_of_a_bundle_is_found_when_hashes_are_checked(void **state) {
    struct world *w = *state;
    size_t size = 0;
    write_bundle(w);
    uint8_t *bytes = bundle_fixture_read(w->path, &size);
    assert_non_null(bytes);
    for (size_t at = 0; at < size; at += at < 8192 ? 1 : 61) {
        struct tw_bundle b;
        bytes[at] ^= 0x40;
        int rc = tw_bundle_open_memory("damaged", bytes, size,
                                       TW_BUNDLE_NO_RULES | TW_BUNDLE_CHECK_HASH, &b, &w->err);
        if (rc == 0) {
            fail_msg("a change of byte %zu was not detected", at);
        }
        bytes[at] ^= 0x40;
    }
    free(bytes);
}

static void a_file_that_is_not_a_bundle_is_refused_with_one_line(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    char pipe_path[4300], text_path[4300], empty_path[4300];
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", w->folder);
    snprintf(text_path, sizeof text_path, "%s/text", w->folder);
    snprintf(empty_path, sizeof empty_path, "%s/empty", w->folder);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    char text[200];
    memset(text, 'x', sizeof text);
    assert_int_equal(bundle_fixture_save(text_path, (const uint8_t *)text, sizeof text), 0);
    assert_int_equal(bundle_fixture_save(empty_path, NULL, 0), 0);
    assert_int_equal(tw_bundle_open(pipe_path, 0, &b, &w->err), TW_E_IO);
    assert_int_equal(tw_bundle_open(w->folder, 0, &b, &w->err), TW_E_IO);
    assert_int_equal(tw_bundle_open("/dev/zero", 0, &b, &w->err), TW_E_IO);
    assert_int_equal(tw_bundle_open(w->path, 0, &b, &w->err), TW_E_IO);
    assert_non_null(strstr(w->err.message, w->path));
    assert_int_equal(tw_bundle_open(empty_path, 0, &b, &w->err), TW_E_TRUNCATED);
    assert_int_equal(tw_bundle_open(text_path, 0, &b, &w->err), TW_E_FORMAT);
    assert_null(strchr(w->err.message, '\n'));
    assert_int_equal(tw_bundle_open("/proc/self/exe", 0, &b, &w->err) == 0, 0);
    assert_int_equal(tw_bundle_open_memory("odd", text + 1, 100, 0, &b, &w->err) == 0, 0);
}

static void a_program_that_breaks_a_rule_is_refused_unless_only_parsed(void **state) {
    struct world *w = *state;
    struct tw_bundle b;
    write_bundle(w);
    assert_int_equal(tw_bundle_open(w->path, 0, &b, &w->err), TW_E_VERIFY);
    assert_non_null(strstr(w->err.message, w->path));
    assert_ok(w, tw_bundle_open(w->path, TW_BUNDLE_NO_RULES, &b, &w->err));
    tw_bundle_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(programs_and_streams_read_back_as_written),
        T(texts_vocabulary_and_header_read_back_as_written),
        T(symbols_lie_in_their_segments_with_their_bytes),
        T(weights_are_used_in_place_on_64_kib_boundaries),
        T(binding_rows_become_addresses_of_their_symbols),
        T(note_and_header_are_in_the_first_4_kib_at_fixed_offsets),
        T(the_content_hash_is_blake2b_of_the_metadata),
        T(a_damaged_weight_is_found_when_hashes_are_checked),
        T(every_damaged_byte_of_a_bundle_is_found_when_hashes_are_checked),
        T(a_file_that_is_not_a_bundle_is_refused_with_one_line),
        T(a_program_that_breaks_a_rule_is_refused_unless_only_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
