/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright inspect --map: buffers by address with the sections that use them, totals for each
 * memory class, banks with their segments.
 */
#include "tools/cmd/inspect_map.h"

#include "loader/base/text_filter.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <string.h>

#define MAX_CLASSES 256u /* a class is a byte */

/* The buffers seen so far: bytes of all, and the highest end. Buffers of different sections share
 * bytes, so the first may exceed the second. */
struct totals {
    uint32_t n[MAX_CLASSES];
    uint64_t bytes[MAX_CLASSES], end[MAX_CLASSES];
    json_t *buffers; /* NULL: print */
    const tw_decoder *decoder;
    bool state; /* one of them keeps a State */
};

static bool is_state(const tw_decoder *decoder, const char *tensor) {
    struct tw_symbol_info s = {.size = sizeof s};
    for (uint32_t i = 0; tensor && tw_decoder_get_symbol(decoder, i, &s, NULL) == 0; i++) {
        if (strcmp(s.name, tensor) == 0) {
            return strcmp(s.role, "state") == 0;
        }
    }
    return false;
}

static void count(struct totals *t, const struct tw_map_info *b) {
    uint32_t c = b->mem_class % MAX_CLASSES;
    uint64_t end = b->offset + b->bytes;
    t->n[c]++;
    t->state = t->state || is_state(t->decoder, b->tensor);
    t->bytes[c] += b->bytes;
    t->end[c] = end > t->end[c] ? end : t->end[c];
}

static uint64_t class_bytes(const struct tw_program_info *p, uint32_t mem_class) {
    return mem_class < TW_CLASSES_MAX ? p->class_bytes[mem_class] : 0;
}

/* "layer", "embed..head", "-" */
static void describe_lifetime(const struct tw_map_info *b, char text[80]) {
    if (!b->first_name) {
        snprintf(text, 80, "-");
    } else if (b->first_section == b->last_section) {
        snprintf(text, 80, "%.70s", b->first_name);
    } else {
        snprintf(text, 80, "%.35s..%.35s", b->first_name, b->last_name);
    }
    tw_clean_text(text);
}

static bool stop_at_first(void *ctx, const struct tw_map_info *b) {
    (void)ctx;
    (void)b;
    return false;
}

int inspect_check_site(const tw_decoder *decoder, uint32_t site, tw_error *err) {
    struct tw_program_info p = {.size = sizeof p};
    int code = 0;
    for (uint32_t i = 0; !code && tw_decoder_get_program(decoder, i, &p, NULL) == 0; i++) {
        code = tw_decoder_map(decoder, i, site, stop_at_first, NULL, err);
    }
    return code;
}

/* ---- text ---- */

static bool print_buffer(void *ctx, const struct tw_map_info *b) {
    char sections[80];
    count(ctx, b);
    describe_lifetime(b, sections);
    printf("          %10llu %10llu  class %u %-8s %3u x %-5s %-16s %s%s%s",
           (unsigned long long)b->offset, (unsigned long long)b->bytes, b->mem_class, b->kind,
           b->pages, b->dtype, sections, text_clean(b->name).text, b->tensor ? " = " : "",
           text_clean(b->tensor).text);
    if (b->window_rows) {
        printf(" [%llu + %u x %llu, every %llu]", (unsigned long long)b->window_first,
               b->window_rows, (unsigned long long)b->window_row_bytes,
               (unsigned long long)(b->window_rows > 1 ? b->window_stride : b->window_row_bytes));
    }
    printf("\n");
    return true;
}

static void print_totals(const struct totals *t, const struct tw_program_info *p) {
    for (uint32_t c = 0; c < MAX_CLASSES; c++) {
        if (t->n[c]) {
            char used[32], all[32], sum[32];
            printf("          class %u: %s of %s used; %u buffers of %s\n", c,
                   ui_bytes(t->end[c], used), ui_bytes(class_bytes(p, c), all), t->n[c],
                   ui_bytes(t->bytes[c], sum));
        }
    }
}

/* Bytes of a bank, and whether it holds a segment. False if neither it nor a later bank does. */
static bool bank_bytes(const tw_decoder *decoder, uint32_t bank, uint64_t *bytes, bool *any) {
    struct tw_segment_info s = {.size = sizeof s};
    bool more = false;
    *bytes = 0;
    *any = false;
    for (uint32_t i = 0; tw_decoder_get_segment(decoder, i, &s, NULL) == 0; i++) {
        more = more || s.bank >= bank;
        *any = *any || s.bank == bank;
        *bytes += s.bank == bank ? s.bytes : 0;
    }
    return more;
}

static void print_banks(const tw_decoder *decoder) {
    uint64_t bytes;
    bool any;
    for (uint32_t bank = 0; bank_bytes(decoder, bank, &bytes, &any); bank++) {
        char text[32];
        struct tw_segment_info s = {.size = sizeof s};
        if (any) {
            printf("map       DRAM bank %u: %s\n", bank, ui_bytes(bytes, text));
        }
        for (uint32_t i = 0; tw_decoder_get_segment(decoder, i, &s, NULL) == 0; i++) {
            if (s.bank == bank) {
                printf("          %10s %10llu  segment %u\n", s.kind, (unsigned long long)s.bytes,
                       i);
            }
        }
    }
}

/* Why State stays out of SRAM (compiler/spatial/README.md): each session has its own, and there is
 * no room for it. */
struct state_bytes {
    uint64_t all, a_site; /* of a session */
    uint64_t sram_left;   /* on the fullest site, by the largest program */
};

static struct state_bytes state_bytes(const tw_decoder *decoder) {
    struct state_bytes state = {.sram_left = UINT64_MAX};
    struct tw_program_info p = {.size = sizeof p};
    struct tw_segment_info s = {.size = sizeof s};
    for (uint32_t i = 0; tw_decoder_get_segment(decoder, i, &s, NULL) == 0; i++) {
        state.all += strcmp(s.kind, "state") == 0 ? s.bytes : 0;
    }
    for (uint32_t i = 0; tw_decoder_get_program(decoder, i, &p, NULL) == 0; i++) {
        uint64_t left = p.sram_bytes - p.sram_used;
        state.a_site = (state.all + p.n_sites - 1) / p.n_sites;
        state.sram_left = left < state.sram_left ? left : state.sram_left;
    }
    return state;
}

static void print_state(const tw_decoder *decoder, bool in_sram) {
    char all[32], a_site[32], left[32];
    struct state_bytes s = state_bytes(decoder);
    if (in_sram) {
        printf("map       state lives in SRAM: %s, %s per site; each session has its own, kept in "
               "DRAM while another one runs\n",
               ui_bytes(s.all, all), ui_bytes(s.a_site, a_site));
        return;
    }
    printf("map       state stays in DRAM, since each session has its own: %s, %s per site; %s of "
           "SRAM "
           "left on the fullest site\n",
           ui_bytes(s.all, all), ui_bytes(s.a_site, a_site), ui_bytes(s.sram_left, left));
}

int inspect_print_map(const tw_decoder *decoder, uint32_t site, tw_error *err) {
    struct tw_program_info p = {.size = sizeof p};
    bool state = false;
    for (uint32_t i = 0; tw_decoder_get_program(decoder, i, &p, NULL) == 0; i++) {
        struct totals t = {.decoder = decoder};
        printf("map       %s, SRAM of site %u: offset, bytes, kind, sections that use it, buffer\n",
               text_clean(p.name).text, site);
        int code = tw_decoder_map(decoder, i, site, print_buffer, &t, err);
        if (code) {
            return code;
        }
        print_totals(&t, &p);
        state = state || t.state;
    }
    print_banks(decoder);
    print_state(decoder, state);
    return 0;
}

/* ---- JSON ---- */

static bool add_buffer(void *ctx, const struct tw_map_info *b) {
    struct totals *t = ctx;
    count(t, b);
    json_t *o = json_pack("{s:i, s:o, s:o, s:s, s:s, s:i, s:i, s:I, s:I, s:o, s:o}", "buffer",
                          (int)b->buffer, "name", text_json(b->name), "tensor",
                          text_json(b->tensor), "kind", b->kind, "dtype", b->dtype, "class",
                          (int)b->mem_class, "pages", (int)b->pages, "offset",
                          (json_int_t)b->offset, "bytes", (json_int_t)b->bytes, "first_section",
                          text_json(b->first_name), "last_section", text_json(b->last_name));
    if (b->window_rows) {
        json_object_set_new(o, "window",
                            json_pack("{s:I, s:i, s:I, s:I}", "first", (json_int_t)b->window_first,
                                      "rows", (int)b->window_rows, "row_bytes",
                                      (json_int_t)b->window_row_bytes, "stride",
                                      (json_int_t)b->window_stride));
    }
    return json_array_append_new(t->buffers, o) == 0;
}

static json_t *classes_json(const struct totals *t, const struct tw_program_info *p) {
    json_t *array = json_array();
    for (uint32_t c = 0; c < MAX_CLASSES; c++) {
        if (t->n[c]) {
            json_array_append_new(
                array, json_pack("{s:i, s:i, s:I, s:I, s:I}", "class", (int)c, "buffers",
                                 (int)t->n[c], "buffer_bytes", (json_int_t)t->bytes[c], "used",
                                 (json_int_t)t->end[c], "size", (json_int_t)class_bytes(p, c)));
        }
    }
    return array;
}

static json_t *banks_json(const tw_decoder *decoder) {
    json_t *array = json_array();
    uint64_t bytes;
    bool any;
    for (uint32_t bank = 0; bank_bytes(decoder, bank, &bytes, &any); bank++) {
        json_t *segments = json_array();
        struct tw_segment_info s = {.size = sizeof s};
        for (uint32_t i = 0; tw_decoder_get_segment(decoder, i, &s, NULL) == 0; i++) {
            if (s.bank == bank) {
                json_array_append_new(segments,
                                      json_pack("{s:i, s:s, s:I}", "segment", (int)i, "kind",
                                                s.kind, "bytes", (json_int_t)s.bytes));
            }
        }
        json_array_append_new(array, json_pack("{s:i, s:I, s:o}", "bank", (int)bank, "bytes",
                                               (json_int_t)bytes, "segments", segments));
    }
    return array;
}

int inspect_map_json(const tw_decoder *decoder, uint32_t site, json_t **out, tw_error *err) {
    struct tw_program_info p = {.size = sizeof p};
    json_t *sram = json_array();
    for (uint32_t i = 0; tw_decoder_get_program(decoder, i, &p, NULL) == 0; i++) {
        struct totals t = {.buffers = json_array(), .decoder = decoder};
        int code = tw_decoder_map(decoder, i, site, add_buffer, &t, err);
        if (code) {
            json_decref(t.buffers);
            json_decref(sram);
            return code;
        }
        json_array_append_new(sram,
                              json_pack("{s:o, s:o, s:o}", "program", text_json(p.name), "classes",
                                        classes_json(&t, &p), "buffers", t.buffers));
    }
    struct state_bytes state = state_bytes(decoder);
    *out = json_pack("{s:i, s:o, s:o, s:{s:I, s:I, s:I}}", "site", (int)site, "sram", sram, "dram",
                     banks_json(decoder), "state", "bytes", (json_int_t)state.all, "bytes_a_site",
                     (json_int_t)state.a_site, "sram_left", (json_int_t)state.sram_left);
    return *out ? 0 : tw_fail(err, TW_E_NOMEM, "out of memory for the map");
}
