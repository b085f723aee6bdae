/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences to save (saved_sequence.h).
 */
#include "tests/support/saved_sequence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

void saved_sequence_init(struct saved_sequence *s, uint32_t layers, uint32_t page_bytes) {
    static const char *const names[] = {"keys", "values"};
    tw_error err = {0};
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < sizeof s->schema.identity; i++) {
        s->schema.identity[i] = (uint8_t)(17 * i + 3);
    }
    strcpy(s->schema.model, "fairytale");
    strcpy(s->schema.policy, "absolute");
    s->schema.kv_dtype = TW_DT_F16;
    s->schema.page_positions = 64;
    s->schema.n_vocab = 512;
    s->schema.n_tensors = 2;
    for (uint32_t t = 0; t < 2; t++) {
        struct tw_saved_tensor *x = &s->schema.tensors[t];
        strcpy(x->name, names[t]);
        x->dtype = TW_DT_F16;
        x->head_dim = 8;
        x->kv_heads = 1;
        x->instances = layers;
        x->page_bytes = page_bytes;
    }
    if (tw_saved_sizes_of(&s->schema, &s->sizes, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
}

void saved_sequence_feed(struct saved_sequence *s, uint32_t from, uint32_t n, uint32_t seed) {
    uint64_t h = mix(seed, 1);
    for (uint32_t i = from; i < n; i++) {
        h = mix(h, i);
        s->tokens[i] = (uint32_t)(h >> 20) % s->schema.n_vocab;
    }
    s->n = n;
}

void saved_sequence_page(const struct saved_sequence *s, uint32_t slot, uint32_t tensor,
                         uint32_t instance, uint8_t *to) {
    uint32_t end = (slot + 1) * s->schema.page_positions;
    uint64_t h = mix(mix(slot, tensor), instance);
    for (uint32_t i = 0; i < s->n && i < end; i++) {
        h = mix(h, s->tokens[i]);
    }
    for (uint64_t i = 0; i < s->schema.tensors[tensor].page_bytes; i++) {
        h = i % 8 ? h >> 8 : mix(h, i);
        to[i] = (uint8_t)h;
    }
}

static const void *page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance, void *scratch,
                        tw_error *err) {
    struct saved_sequence *s = ctx;
    if (++s->pages_read == s->fail_at) {
        tw_error_set(err, TW_E_DEVICE_LOST, "the device was lost");
        return NULL;
    }
    if (s->in_place) {
        return s->in_place;
    }
    saved_sequence_page(s, slot, tensor, instance, scratch);
    return scratch;
}

struct tw_saved_source saved_sequence_source(struct saved_sequence *s) {
    return (struct tw_saved_source){page, s};
}

/* ---- comparing ---- */

struct compare {
    const struct saved_sequence *s;
    uint8_t *expected;
    uint32_t pages;
    bool is_other;
};

static int compare_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance,
                        const void *bytes, tw_error *err) {
    struct compare *c = ctx;
    (void)err;
    c->pages++;
    if (!c->s->in_place) {
        saved_sequence_page(c->s, slot, tensor, instance, c->expected);
        c->is_other |= memcmp(bytes, c->expected, c->s->schema.tensors[tensor].page_bytes) != 0;
    }
    return 0;
}

bool saved_sequence_equal(const struct saved_sequence *s, tw_saved *file) {
    struct compare c = {.s = s, .expected = malloc(s->sizes.pages_bytes)};
    struct tw_saved_sink sink = {compare_page, &c, NULL};
    tw_error err = {0};
    uint32_t n;
    const uint32_t *tokens = tw_saved_tokens(file, &n);
    bool equal = c.expected && n == s->n && memcmp(tokens, s->tokens, n * sizeof *tokens) == 0 &&
                 tw_saved_read(file, &sink, &err) == 0 && !c.is_other &&
                 c.pages == tw_saved_slots(&s->schema, n) * s->sizes.cell_pages;
    free(c.expected);
    return equal;
}

bool saved_sequence_is_at(const struct saved_sequence *s, const char *path) {
    tw_saved *file;
    tw_error err = {0};
    if (tw_saved_open(path, &s->schema, TW_SAVED_WHOLE, &file, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return false;
    }
    bool equal = saved_sequence_equal(s, file);
    tw_saved_close(file);
    return equal;
}
