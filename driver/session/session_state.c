/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and restoring a sequence (tilewright/state.h): between the pages that it holds on the
 * device and a saved state (driver/state/).
 */
#include "tilewright/state.h"

#include "driver/session/session.h"
#include "driver/state/state_file.h"
#include "loader/base/hash.h"
#include "loader/base/sized.h"

#include <stdlib.h>

TW_STATIC_ASSERT(TW_SAVED_HASH_BYTES == TW_HASH_BYTES, "identity");

/* ---- what must be equal ---- */

/* The tensor's record in a program; the pool has it from one. */
static const struct tw_tensor *record_of(const struct tw_bundle *b,
                                         const struct tw_pool_tensor *x) {
    for (uint32_t p = 0; p < b->n_programs; p++) {
        for (uint32_t t = 0; t < b->programs[p].n_tensors; t++) {
            const struct tw_tensor *tensor = &b->programs[p].tensors[t];
            if (tensor->role == TW_ROLE_STATE && tensor->bind_first == x->bind_first) {
                return tensor;
            }
        }
    }
    return NULL;
}

/* A tensor of the pool as the saved state has it. */
struct paged {
    const struct tw_pool_tensor *in_pool;
    const struct tw_tensor *record;
    uint8_t *mapped; /* NULL: the device does not share its memory */
};

/* Between a session and a saved state. */
struct transfer {
    const struct tw_session *s;
    const uint32_t *pages; /* of the slots */
    uint32_t n_slots;      /* that are restored; what the file has after them is not wanted */
    struct tw_saved_schema schema;
    struct paged tensor[TW_SAVED_MAX_TENSORS]; /* in the order of the schema */
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct paged *)a)->in_pool->name,
                  ((const struct paged *)b)->in_pool->name);
}

/* Sorted by name: programs for different targets have them in different orders. */
static int find_tensors(struct transfer *x, tw_error *err) {
    struct tw_deployment *d = x->s->deployment;
    const struct tw_state_pool *pool = &d->pool;
    if (pool->n_tensors == 0 || pool->n_tensors > TW_SAVED_MAX_TENSORS || !x->s->executor->shared) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: its state is not in pages, so that it cannot be saved or restored; "
                       "compile the model again",
                       d->decoder->bundle.path);
    }
    for (uint32_t i = 0; i < pool->n_tensors; i++) {
        const struct tw_pool_tensor *t = &pool->tensors[i];
        x->tensor[i] = (struct paged){
            .in_pool = t,
            .record = record_of(&d->decoder->bundle, t),
            .mapped = tw_device_map(d->device, t->address, t->stride * t->instances)};
    }
    qsort(x->tensor, pool->n_tensors, sizeof *x->tensor, by_name);
    return 0;
}

static void fill_tensor(const struct paged *x, struct tw_saved_tensor *out) {
    const struct tw_tensor *t = x->record;
    snprintf(out->name, sizeof out->name, "%s", x->in_pool->name);
    out->kind = TW_SAVED_PAGED;
    out->dtype = t->dtype;
    out->packing = t->packing;
    out->head_dim = t->head_dim;
    out->kv_heads = t->head_dim ? t->cols / t->head_dim : 0;
    out->instances = x->in_pool->instances;
    out->page_bytes = x->in_pool->page_bytes;
}

/* A bundle of a compiler that did not note what it computes is only equal to itself. */
static void fill_schema(struct transfer *x) {
    const struct tw_bundle *b = &x->s->deployment->decoder->bundle;
    struct tw_saved_schema *out = &x->schema;
    const char *name = b->note->model[0] ? b->note->model : "without a name";
    memcpy(out->identity, b->identity ? b->identity : b->note->content_hash, sizeof out->identity);
    snprintf(out->model, sizeof out->model, "%.63s", name);
    snprintf(out->policy, sizeof out->policy, "absolute");
    out->kv_dtype = x->tensor[0].record->dtype;
    out->page_positions = TW_KV_BLOCK;
    out->n_vocab = x->s->n_vocab;
    out->n_tensors = x->s->deployment->pool.n_tensors;
    for (uint32_t i = 0; i < out->n_tensors; i++) {
        fill_tensor(&x->tensor[i], &out->tensors[i]);
    }
}

static int begin(struct transfer *x, const struct tw_session *s, tw_error *err) {
    memset(x, 0, sizeof *x);
    x->s = s;
    x->pages = s->pages.page;
    int code = tw_session_check_usable(s, err);
    code = code ? code : find_tensors(x, err);
    if (!code) {
        fill_schema(x);
    }
    return code;
}

/* ---- pages ---- */

static uint64_t offset_of(const struct transfer *x, uint32_t slot, uint32_t tensor,
                          uint32_t instance) {
    const struct tw_pool_tensor *t = x->tensor[tensor].in_pool;
    return instance * t->stride + x->pages[slot] * t->page_bytes;
}

static uint64_t address_of(const struct transfer *x, uint32_t slot, uint32_t tensor,
                           uint32_t instance) {
    return x->tensor[tensor].in_pool->address + offset_of(x, slot, tensor, instance);
}

/* Clears the positions of a page from `from` on: they may be what another sequence left there. */
static void clear_rest(const struct tw_tensor *t, uint32_t from, uint8_t *page) {
    uint32_t element = tw_dtype_block_bytes(t->dtype), next;
    uint64_t head_bytes = tw_cache_head_bytes(t);
    for (uint32_t head = 0; head < t->cols / t->head_dim; head++) {
        for (uint32_t position = from; position < TW_KV_BLOCK; position++) {
            uint8_t *at = page + head * head_bytes + tw_cache_element(t, position, &next) * element;
            for (uint32_t i = 0; i < t->head_dim; i++) {
                memset(at + (uint64_t)i * next * element, 0, element);
            }
        }
    }
}

static const void *read_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance,
                             void *scratch, tw_error *err) {
    const struct transfer *x = ctx;
    const struct paged *p = &x->tensor[tensor];
    uint32_t used = x->s->position - slot * TW_KV_BLOCK;
    if (tw_session_stopped(x->s)) {
        tw_error_set(err, TW_E_INTERRUPTED, "session: interrupted while its state was saved");
        return NULL;
    }
    if (p->mapped && used >= TW_KV_BLOCK) {
        return p->mapped + offset_of(x, slot, tensor, instance);
    }
    if (p->mapped) {
        memcpy(scratch, p->mapped + offset_of(x, slot, tensor, instance), p->in_pool->page_bytes);
    } else if (tw_device_read(x->s->deployment->device, address_of(x, slot, tensor, instance),
                              scratch, p->in_pool->page_bytes, err) != 0) {
        return NULL;
    }
    if (used < TW_KV_BLOCK) {
        clear_rest(p->record, used, scratch);
    }
    return scratch;
}

static void *place_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance) {
    const struct transfer *x = ctx;
    uint8_t *mapped = slot < x->n_slots ? x->tensor[tensor].mapped : NULL;
    return mapped ? mapped + offset_of(x, slot, tensor, instance) : NULL;
}

static int write_page(void *ctx, uint32_t slot, uint32_t tensor, uint32_t instance,
                      const void *bytes, tw_error *err) {
    const struct transfer *x = ctx;
    const struct paged *p = &x->tensor[tensor];
    if (tw_session_stopped(x->s)) {
        return tw_fail(err, TW_E_INTERRUPTED, "session: interrupted while a state was restored");
    }
    return p->mapped || slot >= x->n_slots
               ? 0
               : tw_device_write(x->s->deployment->device, address_of(x, slot, tensor, instance),
                                 bytes, p->in_pool->page_bytes, err);
}

/* ---- saving ---- */

static int begin_save(struct transfer *x, const struct tw_session *s, tw_error *err) {
    int code = begin(x, s, err);
    if (!code && s->position == 0) {
        return tw_fail(err, TW_E_USAGE, "session: it has no tokens that could be saved");
    }
    if (!code && s->pages.n != tw_saved_slots(&x->schema, s->position)) {
        return tw_fail(
            err, TW_E_USAGE,
            "session: feeding its tokens again was interrupted, so that its state is not "
            "complete; feed a token first");
    }
    return code;
}

int tw_session_save(const tw_session *session, const char *path, struct tw_session_saved *saved,
                    tw_error *err) {
    struct transfer x;
    struct tw_saved_source source = {read_page, &x};
    struct tw_saved_result r;
    int code = TW_NEED_2(err, session, path);
    code = code || !saved ? code : tw_sized_check(__func__, saved, err);
    code = code ? code : begin_save(&x, session, err);
    code = code ? code
                : tw_saved_write(path, &x.schema, session->ids, session->position, &source, NULL,
                                 &r, err);
    if (!code && saved) {
        struct tw_session_saved out = {.n_tokens = session->position,
                                       .appended = r.appended,
                                       .written_bytes = r.written_bytes,
                                       .file_bytes = r.file_bytes};
        tw_sized_write(saved, &out, sizeof out);
    }
    return code;
}

int tw_session_save_memory(const tw_session *session, void *bytes, size_t capacity, size_t *size,
                           tw_error *err) {
    struct transfer x;
    struct tw_saved_source source = {read_page, &x};
    uint64_t need;
    int code = TW_NEED_2(err, session, size);
    code = code || !capacity ? code : TW_NEED(err, bytes);
    code = code ? code : begin_save(&x, session, err);
    code = code ? code
                : tw_saved_write_memory(&x.schema, session->ids, session->position, &source, bytes,
                                        capacity, &need, err);
    if (!code) {
        *size = (size_t)need;
    }
    return code;
}

/* ---- restoring ---- */

/* Reads the state into pages that nobody has yet, and only then gives them to the session. */
static int read_into(struct transfer *x, struct tw_session *s, tw_saved *file, uint32_t *pages,
                     uint32_t n_slots, tw_error *err) {
    struct tw_saved_sink sink = {write_page, x, place_page};
    struct tw_state_pool *pool = &s->deployment->pool;
    int code = tw_state_pool_take(pool, &s->pages.holder, pages, n_slots, err);
    if (code) {
        return code;
    }
    x->pages = pages;
    x->n_slots = n_slots;
    code = tw_saved_read(file, &sink, err);
    if (code) {
        tw_state_pool_drop(pool, &s->pages.holder, pages, n_slots);
        return code;
    }
    tw_session_leave_prefix(s, false);
    tw_session_replace_pages(s, pages, n_slots);
    return 0;
}

/* The first tokens of the file, `most` at most; foreign: it is not of the cache. */
static int restore(struct transfer *x, struct tw_session *s, tw_saved *file, uint32_t most,
                   bool foreign, uint32_t *n_tokens, tw_error *err) {
    uint32_t n;
    const uint32_t *ids = tw_saved_tokens(file, &n);
    n = n < most ? n : most;
    if (n > s->n_ctx) {
        return tw_fail(err, TW_E_CONTEXT_FULL,
                       "the saved state has %u tokens, more than the session's context of %u; use "
                       "a larger context (-c)",
                       n, s->n_ctx);
    }
    uint32_t n_slots = tw_saved_slots(&x->schema, n), *pages = malloc(n_slots * sizeof *pages);
    int code = pages ? read_into(x, s, file, pages, n_slots, err)
                     : tw_fail(err, TW_E_NOMEM, "session: out of memory");
    free(pages);
    if (code) {
        return code;
    }
    memcpy(s->ids, ids, n * sizeof *ids);
    s->position = n;
    s->foreign = foreign;
    s->window_lost = s->window.room > 0; /* only the states of all positions are saved */
    s->logits = NULL;
    memset(&s->text, 0, sizeof s->text);
    if (n_tokens) {
        *n_tokens = n;
    }
    return 0;
}

int tw_session_restore(tw_session *session, const char *path, uint32_t *n_tokens, tw_error *err) {
    struct transfer x;
    tw_saved *file = NULL;
    int code = TW_NEED_2(err, session, path);
    code = code ? code : begin(&x, session, err);
    code = code ? code : tw_saved_open(path, &x.schema, TW_SAVED_WHOLE, &file, err);
    code = code ? code : restore(&x, session, file, UINT32_MAX, true, n_tokens, err);
    tw_saved_close(file);
    return code;
}

int tw_session_restore_memory(tw_session *session, const void *bytes, size_t size,
                              uint32_t *n_tokens, tw_error *err) {
    struct transfer x;
    tw_saved *file = NULL;
    int code = TW_NEED_2(err, session, bytes);
    code = code ? code : begin(&x, session, err);
    code = code ? code : tw_saved_open_memory(bytes, size, &x.schema, TW_SAVED_WHOLE, &file, err);
    code = code ? code : restore(&x, session, file, UINT32_MAX, true, n_tokens, err);
    tw_saved_close(file);
    return code;
}

/* ---- prefixes ---- */

/* The cache may be lost with the power: what is damaged then is noticed. */
static int do_not_wait(int fd) {
    (void)fd;
    return 0;
}

/* Only the same weights, and sessions of the same salt, find it. */
static void name_root(struct transfer *x) {
    memcpy(x->schema.identity, x->s->prefix_root, sizeof x->schema.identity);
}

int tw_session_save_prefix(const struct tw_session *s, const char *path, uint64_t *written_bytes,
                           tw_error *err) {
    const struct tw_saved_calls calls = {.sync = do_not_wait};
    struct transfer x;
    struct tw_saved_source source = {read_page, &x};
    struct tw_saved_result r;
    int code = begin_save(&x, s, err);
    if (code) {
        return code;
    }
    name_root(&x);
    code = tw_saved_write(path, &x.schema, s->ids, s->position, &source, &calls, &r, err);
    *written_bytes = code ? 0 : r.written_bytes;
    return code;
}

int tw_session_open_prefix(const struct tw_session *s, const char *path, struct tw_saved **out,
                           tw_error *err) {
    struct transfer x;
    int code = begin(&x, s, err);
    if (!code) {
        name_root(&x);
        code = tw_saved_open(path, &x.schema, TW_SAVED_INDEX, out, err);
    }
    return code;
}

int tw_session_restore_prefix(struct tw_session *s, struct tw_saved *file, uint32_t n,
                              tw_error *err) {
    struct transfer x;
    int code = begin(&x, s, err);
    return code ? code : restore(&x, s, file, n, false, NULL, err);
}

uint64_t tw_session_prefix_bytes(const struct tw_session *s, uint32_t n) {
    uint64_t slots = tw_state_pages(n);
    return slots * s->deployment->pool.page_bytes;
}

size_t tw_session_tokens(const tw_session *session, uint32_t *ids, size_t capacity) {
    size_t n = session ? session->position : 0;
    for (size_t i = 0; i < n && i < capacity; i++) {
        ids[i] = session->ids[i];
    }
    return n;
}
