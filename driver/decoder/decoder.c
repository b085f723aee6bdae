/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders: a bundle that the loader has checked, its tokenizer, and its description.
 */
#include "driver/decoder/decoder.h"

#include "loader/base/sized.h"
#include "loader/base/text_filter.h"
#include "loader/verify/verify.h"
#include "tilewright/op_schema.h"

#include <stdlib.h>

static int open_tokenizer(struct tw_decoder *d, tw_error *err) {
    if (!d->bundle.vocab) {
        return 0;
    }
    int code = tw_vocab_open(d->bundle.vocab, d->bundle.vocab_bytes, &d->vocab, err);
    code = code ? code : tw_tokenizer_create(&d->vocab, &d->tokenizer, err);
    if (code) {
        tw_error_prefix(err, d->bundle.path);
    }
    return code;
}

int tw_decoder_open(const char *path, unsigned flags, tw_decoder **out, tw_error *err) {
    int code = TW_NEED_2(err, path, out);
    code = code ? code
                : tw_known_flags(__func__, flags, TW_DECODER_CHECK_HASH | TW_DECODER_NO_RULES, err);
    if (code) {
        return code;
    }
    struct tw_decoder *d = calloc(1, sizeof *d);
    if (!d) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", path);
    }
    unsigned f = (flags & TW_DECODER_CHECK_HASH ? TW_BUNDLE_CHECK_HASH : 0u) |
                 (flags & TW_DECODER_NO_RULES ? TW_BUNDLE_NO_RULES : 0u);
    code = tw_bundle_open(path, f, &d->bundle, err);
    if (code) {
        free(d);
        return code;
    }
    d->verified = !(flags & TW_DECODER_NO_RULES);
    code = open_tokenizer(d, err);
    if (code) {
        tw_decoder_close(d);
        return code;
    }
    *out = d;
    return 0;
}

struct tw_decoder *tw_decoder_retain(const tw_decoder *decoder) {
    struct tw_decoder *d = (struct tw_decoder *)(uintptr_t)decoder;
    atomic_fetch_add(&d->users, 1);
    return d;
}

void tw_decoder_close(tw_decoder *decoder) {
    if (decoder && atomic_fetch_sub(&decoder->users, 1) == 0) {
        tw_tokenizer_destroy(decoder->tokenizer);
        tw_bundle_close(&decoder->bundle);
        free(decoder);
    }
}

/* ---- description ---- */

/* Marks the Param tensors that the stream reads as a whole. Returns the bytes of the single rows
 * that it gathers from tables. */
static uint64_t mark_reads(const struct tw_program *p, const struct tw_stream *stream,
                           uint8_t *read) {
    uint64_t gathered = 0;
    struct tw_op op;
    for (uint32_t at = 0; tw_op_decode(stream->words, stream->n_words, at, &op); at += op.n_words) {
        const struct tw_operand *t = op.code == TW_OP_READ     ? &op.operand[TW_READ_source]
                                     : op.code == TW_OP_GATHER ? &op.operand[TW_GATHER_table]
                                                               : NULL;
        if (!t || t->id >= p->n_tensors || p->tensors[t->id].role != TW_ROLE_PARAM) {
            continue;
        }
        const struct tw_tensor *tensor = &p->tensors[t->id];
        if (op.code == TW_OP_GATHER) {
            gathered += tensor->rows ? tensor->bytes / tensor->rows : 0;
        } else {
            read[t->id] = 1;
        }
    }
    return gathered;
}

static uint64_t bytes_per_token(const struct tw_bundle *b) {
    const struct tw_program *p = tw_bundle_program(b, "decode");
    uint8_t *read = p ? calloc(p->n_tensors + 1, 1) : NULL;
    if (!read) {
        return 0;
    }
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        bytes += mark_reads(p, &p->streams[s], read);
    }
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        bytes += read[t] ? p->tensors[t].bytes * p->tensors[t].bind_count : 0;
    }
    free(read);
    return bytes;
}

static void add_end(const tw_decoder *decoder, uint32_t id, uint32_t end[TW_ENDS_MAX],
                    uint32_t *n) {
    bool wanted = *n < TW_ENDS_MAX && tw_tokenizer_is_end(decoder->tokenizer, id);
    for (uint32_t i = 0; i < *n; i++) {
        wanted = wanted && end[i] != id;
    }
    if (wanted) {
        end[(*n)++] = id;
    }
}

uint32_t tw_decoder_ends(const tw_decoder *decoder, uint32_t end[TW_ENDS_MAX]) {
    uint32_t n = 0;
    if (decoder->tokenizer) {
        add_end(decoder, decoder->vocab.header.eos, end, &n);
        add_end(decoder, decoder->vocab.header.bos, end, &n);
        for (uint32_t i = 0; i < decoder->vocab.extra.n_ends; i++) {
            add_end(decoder, decoder->vocab.ends[i], end, &n);
        }
    }
    return n;
}

/* Checks the arguments of the tw_decoder_get_...() functions. */
static int check_entry(const char *function, const tw_decoder *decoder, const void *info,
                       tw_error *err) {
    int code = decoder ? 0 : tw_fail(err, TW_E_USAGE, "%s: decoder is NULL", function);
    return code ? code : tw_sized_check(function, info, err);
}

static int no_entry(const tw_decoder *decoder, const char *table, uint32_t index, uint32_t n,
                    tw_error *err) {
    return tw_fail(err, TW_E_USAGE, "%s: there is no %s %u; it has %u", decoder->bundle.path, table,
                   index, n);
}

/* Returns the element type of the key caches, or NULL if there are none. */
static const char *cache_dtype(const struct tw_bundle *b) {
    for (uint32_t p = 0; p < b->n_programs; p++) {
        for (uint32_t i = 0; i < b->programs[p].n_tensors; i++) {
            const struct tw_tensor *t = &b->programs[p].tensors[i];
            if (t->packing == TW_PACK_KEYS) {
                return tw_dtype_name(t->dtype);
            }
        }
    }
    return NULL;
}

int tw_decoder_get_info(const tw_decoder *decoder, struct tw_decoder_info *info, tw_error *err) {
    int code = check_entry(__func__, decoder, info, err);
    if (code) {
        return code;
    }
    const struct tw_bundle *b = &decoder->bundle;
    const struct tw_bundle_note *n = b->note;
    struct tw_decoder_info i = {.size = sizeof i,
                                .bundle_major = n->bundle_major,
                                .bundle_minor = n->bundle_minor,
                                .abi_major = n->abi_major,
                                .abi_minor = n->abi_min_minor,
                                .n_vocab = n->n_vocab,
                                .n_ctx = n->n_ctx,
                                .n_layers = n->n_layers,
                                .n_programs = b->n_programs,
                                .n_segments = b->n_segments,
                                .n_symbols = b->n_symbols,
                                .has_tokenizer = decoder->tokenizer != NULL,
                                .bos = decoder->tokenizer ? decoder->vocab.header.bos : TW_NONE,
                                .eos = decoder->tokenizer ? decoder->vocab.header.eos : TW_NONE,
                                .n_params = n->n_params,
                                .n_bind_rows = b->n_bind_rows,
                                .path = b->path,
                                .plan = b->plan,
                                .origin = b->origin,
                                .kv = cache_dtype(b),
                                .chat_template = b->chat,
                                .bytes_per_token = bytes_per_token(b)};
    for (uint32_t s = 0; s < b->n_segments; s++) {
        switch (b->segments[s].kind) {
        case TW_SEG_PARAM:
            i.param_bytes += b->segments[s].size;
            break;
        case TW_SEG_STATE:
            i.state_bytes += b->segments[s].size;
            break;
        case TW_SEG_SCRATCH:
            i.scratch_bytes += b->segments[s].size;
            break;
        }
    }
    memcpy(i.content_hash, n->content_hash, sizeof i.content_hash);
    memcpy(i.target_hash, n->target_hash, sizeof i.target_hash);
    /* The note's texts are NUL-padded and untrusted. */
    tw_text_copy(i.target, sizeof i.target, n->target, sizeof n->target);
    tw_text_copy(i.model, sizeof i.model, n->model, sizeof n->model);
    tw_text_copy(i.arch, sizeof i.arch, n->arch, sizeof n->arch);
    tw_text_copy(i.license, sizeof i.license, n->license, sizeof n->license);
    tw_text_copy(i.tool, sizeof i.tool, n->tool, sizeof n->tool);
    i.n_ends = tw_decoder_ends(decoder, i.end);
    tw_sized_write(info, &i, sizeof i);
    return 0;
}

static void count_ops(const struct tw_program *p, struct tw_program_info *i) {
    for (uint32_t s = 0; s < p->n_sites * TW_ENGINE_COUNT; s++) {
        const struct tw_stream *stream = &p->streams[s];
        i->n_words += stream->n_words;
        for (uint32_t at = 0; at < stream->n_words; at += stream->words[at] >> 16) {
            if (stream->words[at] >> 16 == 0) {
                break; /* possible only in a program that was not verified */
            }
            i->n_ops++;
        }
    }
}

/* Adds the SRAM of a site, and what the fullest one of each memory class uses. */
static void count_sram(const struct tw_program *p, struct tw_program_info *i) {
    uint64_t used[TW_MEM_CLASSES] = {0};
    for (uint32_t b = 0; b < p->n_buffers; b++) {
        uint64_t end = p->buffers[b].offset + p->buffers[b].pages * p->buffers[b].page_bytes;
        uint64_t *top = &used[p->buffers[b].mem_class];
        *top = end > *top ? end : *top;
    }
    for (uint32_t c = 0; c < TW_MEM_CLASSES; c++) {
        i->class_bytes[c] = p->sram_bytes[c];
        i->class_used[c] = used[c];
        i->sram_bytes += p->sram_bytes[c];
        i->sram_used += used[c];
    }
}

int tw_decoder_get_program(const tw_decoder *decoder, uint32_t index, struct tw_program_info *info,
                           tw_error *err) {
    int code = check_entry(__func__, decoder, info, err);
    if (code || index >= decoder->bundle.n_programs) {
        return code ? code : no_entry(decoder, "program", index, decoder->bundle.n_programs, err);
    }
    const struct tw_program *p = &decoder->bundle.programs[index];
    struct tw_program_info i = {.size = sizeof i,
                                .rows = p->rows,
                                .n_sites = p->n_sites,
                                .mesh_width = p->mesh_width,
                                .mesh_height = p->mesh_height,
                                .n_chips = p->n_chips,
                                .n_tensors = p->n_tensors,
                                .n_buffers = p->n_buffers,
                                .n_semaphores = p->n_semaphores,
                                .n_groups = p->n_groups,
                                .n_trips = p->n_trips,
                                .n_stages = p->n_stages,
                                .n_sections = p->n_sections,
                                .name = p->name};
    count_ops(p, &i);
    count_sram(p, &i);
    tw_sized_write(info, &i, sizeof i);
    return 0;
}

int tw_decoder_get_segment(const tw_decoder *decoder, uint32_t index, struct tw_segment_info *info,
                           tw_error *err) {
    int code = check_entry(__func__, decoder, info, err);
    static const char *const kind[] = {
        [TW_SEG_PARAM] = "param", [TW_SEG_STATE] = "state", [TW_SEG_SCRATCH] = "scratch"};
    if (code || index >= decoder->bundle.n_segments) {
        return code ? code : no_entry(decoder, "segment", index, decoder->bundle.n_segments, err);
    }
    const struct tw_segment *s = &decoder->bundle.segments[index];
    struct tw_segment_info i = {
        .size = sizeof i, .bank = s->bank, .bytes = s->size, .kind = kind[s->kind]};
    tw_sized_write(info, &i, sizeof i);
    return 0;
}

static const char *role_name(uint32_t role) {
    static const char *const name[TW_ROLE_COUNT] = {
#define TW_X(id, number, text) [number] = text,
        TW_ROLES(TW_X)
#undef TW_X
    };
    return role < TW_ROLE_COUNT ? name[role] : "?";
}

int tw_decoder_get_symbol(const tw_decoder *decoder, uint32_t index, struct tw_symbol_info *info,
                          tw_error *err) {
    int code = check_entry(__func__, decoder, info, err);
    if (code || index >= decoder->bundle.n_symbols) {
        return code ? code : no_entry(decoder, "symbol", index, decoder->bundle.n_symbols, err);
    }
    const struct tw_symbol *s = &decoder->bundle.symbols[index];
    struct tw_symbol_info i = {.size = sizeof i,
                               .segment = s->segment,
                               .offset = s->offset,
                               .bytes = s->size,
                               .name = s->name,
                               .role = role_name(s->role),
                               .dtype = tw_dtype_name(s->dtype)};
    tw_sized_write(info, &i, sizeof i);
    return 0;
}

/* ---- rules ---- */

static const struct {
    const char *name, *text;
} rules[] = {{"", ""},
#define TW_X(number, name, text) {#name, text},
             TW_RULES(TW_X) TW_ORDER_RULES(TW_X)
#undef TW_X
};
#define N_RULES ((uint32_t)(sizeof rules / sizeof rules[0]) - 1)

const char *tw_rule_name(uint32_t rule) {
    return rule >= 1 && rule <= N_RULES ? rules[rule].name : NULL;
}

const char *tw_rule_text(uint32_t rule) {
    return rule >= 1 && rule <= N_RULES ? rules[rule].text : NULL;
}

int tw_decoder_verify(tw_decoder *decoder, struct tw_rules_info *info, tw_error *err) {
    struct tw_rules_info i = {.size = sizeof i, .n_rules = N_RULES};
    struct tw_verify_report report = {.failed_rule = 0};
    int code = TW_NEED(err, decoder);
    code = code || !info ? code : tw_sized_check(__func__, info, err);
    if (code) {
        return code;
    }
    code = tw_bundle_check_rules(&decoder->bundle, &report, err);
    for (uint32_t r = 1; r <= N_RULES; r++) {
        i.checked[r] = report.checked[r];
    }
    i.failed_rule = (uint32_t)report.failed_rule;
    if (info) {
        tw_sized_write(info, &i, sizeof i);
    }
    return code;
}
