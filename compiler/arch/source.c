/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of an architecture (source.h). A table lists the keys that change the result: one that the
 * architecture's file has not read must have the value that changes nothing.
 */
#include "compiler/arch/source.h"

#include <stdio.h>
#include <string.h>

enum kind { UINT, FLOAT, BOOL };

static const struct {
    const char *name;
    enum kind kind;
    float neutral, neutral_too;
} known[] = {
    {"attention.scale", FLOAT, 0, 0},
    {"attention.clamp_kqv", FLOAT, 0, 0},
    {"attention.max_alibi_bias", FLOAT, 0, 0},
    {"attention.temperature_scale", FLOAT, 0, 0},
    {"attn_logit_softcapping", FLOAT, 0, 0},
    {"final_logit_softcapping", FLOAT, 0, 0},
    {"logit_scale", FLOAT, 1, 0},
    {"residual_scale", FLOAT, 1, 0},
    {"embedding_scale", FLOAT, 1, 0},
    {"rope.scaling.alpha", FLOAT, 0, 1},
    {"rope.freq_base_swa", FLOAT, 0, 0},
    {"attention.causal", BOOL, 1, 1},
    {"use_parallel_residual", BOOL, 0, 0},
    {"expert_count", UINT, 0, 0},
    {"attention.sliding_window", UINT, 0, 0},
    {"attention.shared_kv_layers", UINT, 0, 0},
    {"nextn_predict_layers", UINT, 0, 0},
    {"attention.key_length_swa", UINT, 0, 0},
    {"attention.q_lora_rank", UINT, 0, 0},
    {"attention.kv_lora_rank", UINT, 0, 0},
    {"embedding_length_per_layer_input", UINT, 0, 0},
    {"ssm.inner_size", UINT, 0, 0},
};
#define KNOWN (sizeof known / sizeof known[0])
_Static_assert(KNOWN <= 64, "tw_arch_source.read has a bit for each");

const char *tw_arch_key(const struct tw_arch_source *s, const char *name,
                        char buffer[TW_ARCH_KEY_BYTES]) {
    snprintf(buffer, TW_ARCH_KEY_BYTES, "%.48s.%s", s->arch, name);
    return buffer;
}

static void note_read(struct tw_arch_source *s, const char *name) {
    for (size_t i = 0; i < KNOWN; i++) {
        if (strcmp(known[i].name, name) == 0) {
            s->read |= (uint64_t)1 << i;
        }
    }
}

int tw_arch_uint(struct tw_arch_source *s, const char *name, bool needed, uint32_t min,
                 uint32_t max, uint32_t *out) {
    char key[TW_ARCH_KEY_BYTES];
    uint64_t value = *out;
    note_read(s, name);
    int rc = tw_gguf_uint(s->gguf, tw_arch_key(s, name, key), needed, min, max, &value, s->err);
    *out = (uint32_t)value;
    return rc;
}

int tw_arch_float(struct tw_arch_source *s, const char *name, bool needed, float *out) {
    char key[TW_ARCH_KEY_BYTES];
    note_read(s, name);
    return tw_gguf_float(s->gguf, tw_arch_key(s, name, key), needed, out, s->err);
}

int tw_arch_bool(struct tw_arch_source *s, const char *name, bool *out) {
    char key[TW_ARCH_KEY_BYTES];
    note_read(s, name);
    return tw_gguf_bool(s->gguf, tw_arch_key(s, name, key), out, s->err);
}

int tw_arch_positive(struct tw_arch_source *s, const char *name, bool needed, float *out) {
    char key[TW_ARCH_KEY_BYTES];
    float value = 1.0f;
    bool there = tw_gguf_find(s->gguf, tw_arch_key(s, name, key)) != NULL;
    int rc = tw_arch_float(s, name, needed, &value);
    if (rc == 0 && !(value > 0.0f)) {
        return tw_fail(s->err, TW_E_RANGE, "%s: key %s is %g, expected a number above 0",
                       s->gguf->path, key, (double)value);
    }
    *out = rc == 0 && there ? value : *out;
    return rc;
}

bool tw_arch_has_tensor(const struct tw_arch_source *s, const char *name) {
    return tw_gguf_find_tensor(s->gguf, name) != NULL;
}

/* The pattern, if it is a flag for each layer: in the file, a byte each; else NULL. */
static const uint8_t *window_flags(const struct tw_arch_source *s) {
    char key[TW_ARCH_KEY_BYTES];
    const struct tw_gguf_kv *kv =
        tw_gguf_find(s->gguf, tw_arch_key(s, "attention.sliding_window_pattern", key));
    bool flags = kv && kv->type == TW_GGUF_ARRAY && kv->elem_type == TW_GGUF_BOOL &&
                 kv->count == s->h->n_layers;
    return flags ? kv->value : NULL;
}

int tw_arch_windows(struct tw_arch_source *s, uint32_t window, uint32_t period,
                    enum tw_layer_rope windowed, enum tw_layer_rope whole) {
    const uint8_t *flags = window_flags(s);
    int rc = tw_arch_uint(s, "attention.sliding_window", false, 0, INT32_MAX, &window);
    if (rc == 0 && !flags) {
        rc = tw_arch_uint(s, "attention.sliding_window_pattern", false, 1, UINT32_MAX, &period);
    }
    for (uint32_t i = 0; rc == 0 && window && i < s->h->n_layers; i++) {
        bool all = flags ? !flags[i] : i % period == period - 1;
        s->layers[i].window = all ? 0 : window;
        s->layers[i].rope = all ? whole : windowed;
    }
    return rc;
}

/* ---- keys that nobody has read ---- */

static int refuse(const struct tw_arch_source *s, const char *key, const char *value,
                  const char *expected) {
    return tw_fail(s->err, TW_E_UNSUPPORTED,
                   "%s: key %s is %s, which is not supported for this architecture (expected %s)",
                   s->gguf->path, key, value, expected);
}

static int check_neutral(const struct tw_arch_source *s, size_t i) {
    char key[TW_ARCH_KEY_BYTES], value[32], expected[32];
    float number = known[i].neutral;
    uint64_t integer = (uint64_t)known[i].neutral;
    bool flag = known[i].neutral != 0.0f;
    int rc = 0;
    tw_arch_key(s, known[i].name, key);
    switch (known[i].kind) {
    case UINT:
        rc = tw_gguf_uint(s->gguf, key, false, 0, UINT64_MAX, &integer, s->err);
        snprintf(value, sizeof value, "%llu", (unsigned long long)integer);
        snprintf(expected, sizeof expected, "%g", (double)known[i].neutral);
        number = integer ? 1.0f : 0.0f;
        break;
    case FLOAT:
        rc = tw_gguf_float(s->gguf, key, false, &number, s->err);
        snprintf(value, sizeof value, "%g", (double)number);
        snprintf(expected, sizeof expected, "%g", (double)known[i].neutral);
        break;
    case BOOL:
        rc = tw_gguf_bool(s->gguf, key, &flag, s->err);
        snprintf(value, sizeof value, "%s", flag ? "true" : "false");
        snprintf(expected, sizeof expected, "%s", flag ? "false" : "true");
        number = flag ? 1.0f : 0.0f;
        break;
    }
    bool neutral = number == known[i].neutral || number == known[i].neutral_too;
    return rc || neutral ? rc : refuse(s, key, value, expected);
}

/* A window as long as the context changes nothing. */
static bool wide_window(const struct tw_arch_source *s, size_t i) {
    char key[TW_ARCH_KEY_BYTES];
    uint64_t window = 0;
    return strcmp(known[i].name, "attention.sliding_window") == 0 &&
           tw_gguf_uint(s->gguf, tw_arch_key(s, known[i].name, key), false, 0, UINT64_MAX, &window,
                        s->err) == 0 &&
           window >= s->h->n_ctx_train;
}

int tw_arch_check_unread(const struct tw_arch_source *s) {
    int rc = 0;
    for (size_t i = 0; i < KNOWN && rc == 0; i++) {
        if (!(s->read >> i & 1u) && !wide_window(s, i)) {
            rc = check_neutral(s, i);
        }
    }
    return rc;
}
