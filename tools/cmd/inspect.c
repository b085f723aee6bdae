/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright inspect: shows what a bundle holds: its note, programs, memory, and on request every
 * tensor.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/cmd/inspect_map.h"
#include "tools/text.h"
#include "tools/ui.h"

struct inspect_args {
    bool json, symbols, plan, map;
    int64_t site;
};

#define AT(field) offsetof(struct inspect_args, field)
static const struct opt options[] = {
    {OPT_FLAG, 0, "symbols", NULL, AT(symbols), 0, 0,
     "list every tensor: segment, offset, size, role, type, name"},
    {OPT_FLAG, 0, "plan", NULL, AT(plan), 0, 0, "print the chosen plan and its estimated costs"},
    {OPT_FLAG, 0, "map", NULL, AT(map), 0, 0,
     "print the SRAM layout of a site and the contents of each DRAM bank"},
    {OPT_I64, 0, "site", "S", AT(site), 0, 4095, "the site of --map (0)"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON (with all tensors)"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "inspect", "BUNDLE",
    1,         "Show what a bundle holds.",
    options,   "A bundle is an ELF file: readelf, nm and objdump can read it, too."};

/* ---- text ---- */

static void print_note(const struct tw_decoder_info *i) {
    char hash[65];
    text_hex(i->content_hash, 32, hash);
    printf("model     %s (%s, %s)\n", i->model[0] ? i->model : "-", i->arch,
           i->license[0] ? i->license : "no licence stated");
    printf("          %llu weights, %u layer%s, %u tokens of vocabulary%s, context %u%s%s\n",
           (unsigned long long)i->n_params, i->n_layers, text_s(i->n_layers), i->n_vocab,
           i->has_tokenizer ? "" : " (no tokenizer)", i->n_ctx, i->kv ? ", cache of " : "",
           i->kv ? i->kv : "");
    printf("target    %s\n", i->target);
    printf("format    bundle %u.%u, machine ABI %u.%u, made by %s\n", i->bundle_major,
           i->bundle_minor, i->abi_major, i->abi_minor, i->tool);
    printf("content   %s\n", hash);
}

static void print_programs(const tw_decoder *decoder) {
    struct tw_program_info p = {.size = sizeof p};
    for (uint32_t i = 0; tw_decoder_get_program(decoder, i, &p, NULL) == 0; i++) {
        char used[32], sram[32];
        printf("program   %-12s %3u token%s, %u site%s (%u x %u, %u chip%s), %u section%s, %u "
               "stages, %llu ops\n",
               text_clean(p.name).text, p.rows, text_s(p.rows), p.n_sites, text_s(p.n_sites),
               p.mesh_width, p.mesh_height, p.n_chips, text_s(p.n_chips), p.n_sections,
               text_s(p.n_sections), p.n_stages, (unsigned long long)p.n_ops);
        printf("          %-12s %u buffers, %u semaphores, %u multicast groups; SRAM %s of %s\n",
               "", p.n_buffers, p.n_semaphores, p.n_groups, ui_bytes(p.sram_used, used),
               ui_bytes(p.sram_bytes, sram));
    }
}

static void print_memory(const tw_decoder *decoder, const struct tw_decoder_info *i) {
    struct tw_segment_info s = {.size = sizeof s};
    char text[32];
    for (uint32_t n = 0; tw_decoder_get_segment(decoder, n, &s, NULL) == 0; n++) {
        printf("memory    %-8s bank %-3u %12s\n", s.kind, s.bank, ui_bytes(s.bytes, text));
    }
    printf("          %u tensors, %llu binding rows; %s of weights read per token\n", i->n_symbols,
           (unsigned long long)i->n_bind_rows, ui_bytes(i->bytes_per_token, text));
}

static void print_symbols(const tw_decoder *decoder) {
    struct tw_symbol_info s = {.size = sizeof s};
    for (uint32_t n = 0; tw_decoder_get_symbol(decoder, n, &s, NULL) == 0; n++) {
        printf("%3u %12llx %12llu %-8s %-5s %s\n", s.segment, (unsigned long long)s.offset,
               (unsigned long long)s.bytes, s.role, s.dtype, text_clean(s.name).text);
    }
}

static int print_text(const tw_decoder *decoder, const struct tw_decoder_info *info,
                      const struct inspect_args *a, tw_error *err) {
    print_note(info);
    print_programs(decoder);
    print_memory(decoder, info);
    if (a->symbols) {
        print_symbols(decoder);
    }
    if (a->plan) {
        text_print_lines(info->plan ? info->plan : "the bundle has no plan", stdout);
    }
    int code = a->map ? inspect_print_map(decoder, (uint32_t)a->site, err) : 0;
    return code ? code : ui_flush(err);
}

/* ---- JSON ---- */

static json_t *programs_json(const tw_decoder *decoder) {
    json_t *array = json_array();
    struct tw_program_info p = {.size = sizeof p};
    for (uint32_t i = 0; tw_decoder_get_program(decoder, i, &p, NULL) == 0; i++) {
        json_array_append_new(
            array,
            json_pack("{s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I}",
                      "name", text_json(p.name), "rows", (int)p.rows, "sites", (int)p.n_sites,
                      "width", (int)p.mesh_width, "height", (int)p.mesh_height, "chips",
                      (int)p.n_chips, "sections", (int)p.n_sections, "stages", (int)p.n_stages,
                      "buffers", (int)p.n_buffers, "semaphores", (int)p.n_semaphores, "groups",
                      (int)p.n_groups, "ops", (json_int_t)p.n_ops, "sram_bytes",
                      (json_int_t)p.sram_bytes, "sram_used", (json_int_t)p.sram_used));
    }
    return array;
}

static json_t *segments_json(const tw_decoder *decoder) {
    json_t *array = json_array();
    struct tw_segment_info s = {.size = sizeof s};
    for (uint32_t i = 0; tw_decoder_get_segment(decoder, i, &s, NULL) == 0; i++) {
        json_array_append_new(array, json_pack("{s:s, s:i, s:I}", "kind", s.kind, "bank",
                                               (int)s.bank, "bytes", (json_int_t)s.bytes));
    }
    return array;
}

static json_t *symbols_json(const tw_decoder *decoder) {
    json_t *array = json_array();
    struct tw_symbol_info s = {.size = sizeof s};
    for (uint32_t i = 0; tw_decoder_get_symbol(decoder, i, &s, NULL) == 0; i++) {
        json_array_append_new(
            array, json_pack("{s:o, s:i, s:I, s:I, s:s, s:s}", "name", text_json(s.name), "segment",
                             (int)s.segment, "offset", (json_int_t)s.offset, "bytes",
                             (json_int_t)s.bytes, "role", s.role, "dtype", s.dtype));
    }
    return array;
}

static int print_json(const tw_decoder *decoder, const struct tw_decoder_info *i,
                      const struct inspect_args *a, tw_error *err) {
    char content[65], target[65];
    json_t *map = NULL;
    int code = a->map ? inspect_map_json(decoder, (uint32_t)a->site, &map, err) : 0;
    if (code) {
        return code;
    }
    text_hex(i->content_hash, 32, content);
    text_hex(i->target_hash, 32, target);
    json_t *version = json_pack("[i, i]", (int)i->bundle_major, (int)i->bundle_minor);
    json_t *abi = json_pack("[i, i]", (int)i->abi_major, (int)i->abi_minor);
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:i, s:i, s:i, s:b, s:s?, s:I, "
        "s:I, s:o, s:o, s:o}",
        "model", i->model, "arch", i->arch, "license", i->license, "target", i->target, "tool",
        i->tool, "content_hash", content, "target_hash", target, "bundle_version", version, "abi",
        abi, "n_params", (json_int_t)i->n_params, "n_layers", (int)i->n_layers, "n_vocab",
        (int)i->n_vocab, "n_ctx", (int)i->n_ctx, "tokenizer", (int)i->has_tokenizer, "kv", i->kv,
        "bind_rows", (json_int_t)i->n_bind_rows, "bytes_per_token", (json_int_t)i->bytes_per_token,
        "programs", programs_json(decoder), "segments", segments_json(decoder), "tensors",
        symbols_json(decoder));
    if (map) {
        json_object_set_new(o, "map", map);
    }
    return ui_print_json(o, err);
}

static int run(int argc, char **argv, tw_error *err) {
    struct inspect_args a = {0};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    if (a.site && !a.map) {
        return tw_fail(err, TW_E_USAGE, "option --site is for --map");
    }
    tw_decoder *decoder;
    code = tw_decoder_open(result.operand[0], TW_DECODER_NO_RULES, &decoder, err);
    if (code) {
        return code;
    }
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder_get_info(decoder, &info, NULL);
    code = a.map ? inspect_check_site(decoder, (uint32_t)a.site, err) : 0;
    if (!code) {
        code = a.json ? print_json(decoder, &info, &a, err) : print_text(decoder, &info, &a, err);
    }
    tw_decoder_close(decoder);
    return code;
}

const struct cmd cmd_inspect = {&verb, run};
