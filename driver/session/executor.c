/* SPDX-License-Identifier: Apache-2.0
 *
 * Executors: the memory that programs are bound to, besides weights and pages of state, and the
 * programs loaded with it. Sessions of a deployment with pages differ in their inputs only, so that
 * those of one mode share an executor; creating another session then loads nothing.
 */
#include "driver/session/session.h"

#include <stdio.h>
#include <stdlib.h>

static const struct session_output logits = {"logits", false, false};

/* Returns whether a segment has bytes that the executor must provide. */
static bool is_needed(const struct tw_deployment *d, uint32_t segment) {
    const struct tw_bundle *b = &d->decoder->bundle;
    if (b->segments[segment].kind != TW_SEG_STATE) {
        return b->segments[segment].kind != TW_SEG_PARAM;
    }
    for (uint64_t row = 0; row < b->n_bind_rows; row++) {
        if (b->bind[row].segment == segment && !tw_state_pool_has_row(&d->pool, row) &&
            !tw_state_pool_has_row(&d->window_pool, row)) {
            return true;
        }
    }
    return false;
}

/* Stores in *own_state whether it has State of its own, so that it serves one sequence only. */
static int make_segments(struct tw_executor *x, bool *own_state, tw_error *err) {
    const struct tw_deployment *d = x->deployment;
    const struct tw_bundle *b = &d->decoder->bundle;
    *own_state = d->pool.n_tensors + d->window_pool.n_tensors == 0;
    for (uint32_t i = 0; i < b->n_segments; i++) {
        x->segment_address[i] = d->segment_address[i];
        if (!is_needed(d, i)) {
            continue;
        }
        *own_state = *own_state || b->segments[i].kind == TW_SEG_STATE;
        int code =
            tw_device_alloc(d->device, b->segments[i].size, 64, true, &x->segment_address[i], err);
        if (code) {
            return code;
        }
    }
    return 0;
}

static int make_bindings(struct tw_executor *x, tw_error *err) {
    const struct tw_bundle *b = &x->deployment->decoder->bundle;
    struct tw_device *device = x->deployment->device;
    uint64_t bytes = b->n_bind_rows * sizeof *x->bind;
    tw_bundle_relocate(b, x->segment_address, x->bind);
    tw_state_pool_bind(&x->deployment->pool, x->bind);
    tw_state_pool_bind(&x->deployment->window_pool, x->bind);
    int code = tw_device_alloc(device, bytes, 64, false, &x->bind_address, err);
    return code ? code : tw_device_write(device, x->bind_address, x->bind, bytes, err);
}

/* ---- words that end greedy runs ---- */

#define WORDS 4096u
#define NO_WORD WORDS

static int make_words(struct tw_executor *x, tw_error *err) {
    struct tw_device *device = x->deployment->device;
    x->free_word = NO_WORD;
    if (!tw_device_map(device, x->bind_address, 8)) {
        return 0;
    }
    x->next_word = malloc(WORDS * sizeof *x->next_word);
    if (!x->next_word) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    int code = tw_device_alloc(device, WORDS * sizeof *x->words, 64, true, &x->words_address, err);
    x->words = code ? NULL : tw_device_map(device, x->words_address, WORDS * sizeof *x->words);
    for (uint32_t i = 0; i < WORDS; i++) {
        x->next_word[i] = (uint16_t)(i + 1);
    }
    x->free_word = 0;
    return code;
}

/* Under the deployment's lock, as put_word. */
static int take_word(struct tw_session *s, tw_error *err) {
    struct tw_executor *x = s->executor;
    s->interrupt = &s->own_interrupt;
    if (!x->words) {
        return 0;
    }
    if (x->free_word == NO_WORD) {
        return tw_fail(err, TW_E_NOMEM, "session: there are %u already; destroy one", WORDS);
    }
    uint16_t i = x->free_word;
    x->free_word = x->next_word[i];
    s->interrupt = &x->words[i];
    s->interrupt_address = x->words_address + i * sizeof *x->words;
    atomic_store(s->interrupt, 0);
    return 0;
}

static void put_word(struct tw_session *s) {
    struct tw_executor *x = s->executor;
    if (s->interrupt_address) {
        uint16_t i = (uint16_t)(s->interrupt - x->words);
        x->next_word[i] = x->free_word;
        x->free_word = i;
    }
}

static void destroy(struct tw_executor *x) {
    const struct tw_deployment *d = x->deployment;
    const struct tw_bundle *b = &d->decoder->bundle;
    bool on_device = !tw_device_check_reset(d->device, d->resets, NULL);
    for (uint32_t i = 0; i < TW_BATCH_PROGRAMS; i++) {
        tw_session_unload_program(x, &x->batch[i]);
    }
    tw_session_unload_program(x, &x->score);
    tw_session_unload_program(x, &x->prefill);
    tw_session_unload_program(x, &x->decode);
    if (on_device) { /* after a reset the addresses may be others' */
        tw_device_free(d->device, x->bind_address);
        tw_device_free(d->device, x->words_address);
    }
    for (uint32_t i = 0; x->segment_address && on_device && i < b->n_segments; i++) {
        if (b->segments[i].kind != TW_SEG_PARAM) {
            tw_device_free(d->device, x->segment_address[i]);
        }
    }
    pthread_mutex_destroy(&x->lock);
    free(x->segment_address);
    free(x->bind);
    free(x->next_word);
    free(x);
}

/* ---- programs of several sequences ---- */

static void batch_name(uint32_t i, char name[16]) {
    snprintf(name, 16, "decode.%u", 2u << i);
}

/* Returns the rows of the largest program whose rows are of several sequences; 1: none. */
static uint32_t find_batch_rows(const struct tw_executor *x) {
    char name[16];
    for (uint32_t i = x->shared ? TW_BATCH_PROGRAMS : 0; i-- > 0;) {
        batch_name(i, name);
        if (tw_session_find_program(&x->deployment->decoder->bundle, name) >= 0) {
            return 2u << i;
        }
    }
    return 1;
}

int tw_executor_batch(struct tw_executor *x, uint32_t rows, struct session_program **out,
                      tw_error *err) {
    static const struct session_output all_logits = {"logits", true, true};
    char name[16];
    for (uint32_t i = 0; i < TW_BATCH_PROGRAMS; i++) {
        struct session_program *p = &x->batch[i];
        batch_name(i, name);
        if (2u << i < rows) {
            continue;
        }
        int code = tw_session_load_program(x, name, &all_logits, p, err);
        if (!code && p->program && p->rows != 2u << i) {
            code = tw_fail(err, TW_E_FORMAT, "%s: program %s takes %u rows, expected %u",
                           x->deployment->decoder->bundle.path, name, p->rows, 2u << i);
            tw_session_unload_program(x, p);
        }
        if (code || p->program) {
            *out = p;
            return code;
        }
    }
    return tw_fail(err, TW_E_INTERNAL, "session: no program for %u sequences", rows);
}

static int create(struct tw_deployment *d, enum tw_mode mode, uint32_t n_threads,
                  struct tw_executor **out, tw_error *err) {
    const struct tw_bundle *b = &d->decoder->bundle;
    struct tw_executor *x = calloc(1, sizeof *x);
    bool own_state = true;
    if (!x) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    *x = (struct tw_executor){.deployment = d,
                              .mode = mode,
                              .wanted_threads = n_threads,
                              .segment_address = calloc(b->n_segments + 1, sizeof(uint64_t)),
                              .bind = calloc((size_t)b->n_bind_rows + 1, sizeof(uint64_t))};
    pthread_mutex_init(&x->lock, NULL);
    int code = x->segment_address && x->bind ? make_segments(x, &own_state, err)
                                             : tw_fail(err, TW_E_NOMEM, "session: out of memory");
    code = code ? code : make_bindings(x, err);
    code = code ? code : make_words(x, err);
    code = code ? code : tw_session_load_program(x, "decode", &logits, &x->decode, err);
    if (!code && !x->decode.program) {
        code = tw_fail(err, TW_E_FORMAT, "%s: it has no program \"decode\"", b->path);
    }
    if (code) {
        destroy(x);
        return code;
    }
    x->shared = !own_state;
    x->batch_rows = find_batch_rows(x);
    *out = x;
    return 0;
}

/* Finds one of the deployment that the session can share, or creates one. */
static int find_or_create(struct tw_session *s, struct tw_executor **out, tw_error *err) {
    struct tw_deployment *d = s->deployment;
    for (struct tw_executor *x = d->executors; x; x = x->next) {
        if (x->mode == s->mode && x->wanted_threads == s->options.n_threads) {
            *out = x;
            return 0;
        }
    }
    int code = create(d, s->mode, s->options.n_threads, out, err);
    if (!code && (*out)->shared) {
        (*out)->next = d->executors;
        d->executors = *out;
    }
    return code;
}

int tw_executor_get(struct tw_session *s, tw_error *err) {
    struct tw_executor *x = NULL;
    pthread_mutex_lock(&s->deployment->lock);
    int code = find_or_create(s, &x, err);
    if (!code) {
        x->users++;
        s->executor = x;
        code = take_word(s, err);
    }
    pthread_mutex_unlock(&s->deployment->lock);
    if (code || s->options.chunk == 1) {
        s->chunk = 1;
        return code;
    }
    pthread_mutex_lock(&x->lock);
    code = tw_session_load_program(x, "prefill", &logits, &x->prefill, err);
    uint32_t most = x->prefill.program ? x->prefill.rows : 1;
    pthread_mutex_unlock(&x->lock);
    s->chunk = s->options.chunk && s->options.chunk < most ? s->options.chunk : most;
    return code;
}

void tw_executor_put(struct tw_session *s) {
    struct tw_executor *x = s->executor;
    if (!x) {
        return;
    }
    pthread_mutex_lock(&x->lock);
    for (uint32_t i = 0; i < x->n_tables; i++) {
        x->table[i].owner = x->table[i].owner == s ? NULL : x->table[i].owner;
    }
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_lock(&s->deployment->lock);
    put_word(s);
    bool last = --x->users == 0;
    struct tw_executor **at = &s->deployment->executors;
    while (last && *at && *at != x) {
        at = &(*at)->next;
    }
    if (last && *at) {
        *at = x->next;
    }
    pthread_mutex_unlock(&s->deployment->lock);
    if (last) {
        destroy(x);
    }
    s->executor = NULL;
}
