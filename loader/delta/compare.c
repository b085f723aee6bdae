/* SPDX-License-Identifier: Apache-2.0
 *
 * What two bundles do not have in common, tensor by tensor and section by section.
 */
#include "loader/base/sized.h"
#include "loader/delta/delta.h"

#include <stdlib.h>
#include <string.h>

struct comparison {
    const struct tw_bundle *old, *now;
    int (*part)(void *ctx, const struct tw_bundle_part *part);
    void *ctx;
    struct tw_bundle_difference sum;
};

static const char *role_of(const struct tw_delta_part *p) {
    static const char *const names[TW_ROLE_COUNT] = {
#define TW_X(name, value, text) [TW_ROLE_##name] = text,
        TW_ROLES(TW_X)
#undef TW_X
    };
    const struct tw_symbol *s = p->symbol ? p->symbol : p->old_symbol;
    return s ? names[s->role] : "section";
}

/* In one of the bundles or both. */
static bool has_role(const struct tw_delta_part *p, uint32_t role) {
    return (p->symbol && p->symbol->role == role) || (p->old_symbol && p->old_symbol->role == role);
}

static bool same_kind(const struct tw_delta_part *p) {
    const struct tw_symbol *a = p->old_symbol, *b = p->symbol;
    return p->bytes == p->old_bytes && (!a || !b || (a->role == b->role && a->dtype == b->dtype));
}

static struct tw_bundle_part describe(const struct comparison *c, const struct tw_delta_part *p) {
    struct tw_bundle_part out = {.size = sizeof out,
                                 .name = p->name,
                                 .role = role_of(p),
                                 .old_bytes = p->old_bytes,
                                 .new_bytes = p->bytes};
    uint64_t n = p->bytes < p->old_bytes ? p->bytes : p->old_bytes;
    if (n && p->at != TW_NOT_IN_FILE && p->old_at != TW_NOT_IN_FILE) {
        out.changed_bytes = tw_delta_count(tw_bundle_bytes(c->old) + p->old_at,
                                           tw_bundle_bytes(c->now) + p->at, n, &out.changed_chunks);
    }
    return out;
}

static void add_param(struct tw_bundle_difference *sum, const struct tw_bundle_part *part,
                      bool differs) {
    uint64_t more = part->new_bytes > part->old_bytes ? part->new_bytes - part->old_bytes : 0;
    sum->n_params++;
    sum->n_changed_params += differs;
    sum->param_bytes += part->new_bytes;
    sum->changed_param_bytes += part->changed_bytes + more;
    sum->changed_param_chunks +=
        part->changed_chunks + (more + TW_CHUNK_BYTES - 1) / TW_CHUNK_BYTES;
}

static int compare_part(struct comparison *c, const struct tw_delta_part *p) {
    struct tw_bundle_part part = describe(c, p);
    bool differs = !same_kind(p) || part.changed_bytes;
    if (has_role(p, TW_ROLE_PARAM)) {
        add_param(&c->sum, &part, differs);
    }
    if (has_role(p, TW_ROLE_STATE) && differs) {
        c->sum.same_state = 0;
    }
    return differs && c->part ? c->part(c->ctx, &part) : 0;
}

static int compare(struct comparison *c, tw_error *err) {
    const struct tw_bundle *old = c->old, *now = c->now;
    struct tw_delta_parts parts;
    int code = tw_delta_list_parts(old, now, &parts, err);
    if (code) {
        return code;
    }
    c->sum = (struct tw_bundle_difference){.size = sizeof c->sum, .same_state = 1};
    memcpy(c->sum.old_hash, old->note->content_hash, TW_HASH_BYTES);
    memcpy(c->sum.new_hash, now->note->content_hash, TW_HASH_BYTES);
    c->sum.same_content = memcmp(c->sum.old_hash, c->sum.new_hash, TW_HASH_BYTES) == 0;
    c->sum.same_function =
        old->identity && now->identity && memcmp(old->identity, now->identity, TW_HASH_BYTES) == 0;
    for (size_t i = 0; i < parts.n && code == 0; i++) {
        code = compare_part(c, &parts.items[i]);
    }
    free(parts.items);
    code = code ? code : tw_bundle_intact(old, err);
    return code ? code : tw_bundle_intact(now, err);
}

int tw_bundle_compare(const char *old_path, const char *new_path,
                      int (*part)(void *ctx, const struct tw_bundle_part *part), void *ctx,
                      struct tw_bundle_difference *difference, tw_error *err) {
    struct tw_bundle old = {.path = NULL}, now = {.path = NULL};
    struct comparison c = {.old = &old, .now = &now, .part = part, .ctx = ctx};
    int code = TW_NEED_3(err, old_path, new_path, difference);
    code = code ? code : tw_sized_check(__func__, difference, err);
    code = code ? code : tw_bundle_open(old_path, TW_BUNDLE_NO_RULES, &old, err);
    code = code ? code : tw_bundle_open(new_path, TW_BUNDLE_NO_RULES, &now, err);
    code = code ? code : compare(&c, err);
    if (code == 0) {
        tw_sized_write(difference, &c.sum, sizeof c.sum);
    }
    tw_bundle_close(&old);
    tw_bundle_close(&now);
    return code;
}
