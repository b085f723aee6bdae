/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright diff: what differs between two bundles, and the delta that makes one of the other.
 */
#include "tilewright/delta.h"

#include "loader/base/temporary.h"
#include "tools/cmd.h"
#include "tools/delta_report.h"
#include "tools/output_path.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>

struct diff_args {
    const char *out;
    bool json;
};

#define AT(field) offsetof(struct diff_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 'o', "output", "DELTA", AT(out), 0, 0,
     "write what makes NEW of OLD to this file, for tilewright patch"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "diff",  "OLD NEW",
    2,       "Show what differs between two bundles; write a delta.",
    options, "Tensors and sections that are the same in both are not listed."};

/* ---- text ---- */

static int print_part(void *ctx, const struct tw_bundle_part *p) {
    char a[32], b[32];
    (void)ctx;
    printf("%-8s %-40s ", p->role, text_clean(p->name).text);
    if (!p->old_bytes || !p->new_bytes) {
        printf("only in %s: %s\n", p->old_bytes ? "OLD" : "NEW",
               ui_bytes(p->old_bytes ? p->old_bytes : p->new_bytes, a));
        return 0;
    }
    if (p->old_bytes != p->new_bytes) {
        printf("%s, was %s", ui_bytes(p->new_bytes, a), ui_bytes(p->old_bytes, b));
    } else {
        printf("%s", ui_bytes(p->new_bytes, a));
    }
    if (p->old_bytes == p->new_bytes && !p->changed_bytes) {
        printf(", another role or element type");
    }
    if (p->changed_bytes) {
        printf(", %llu byte%s differ", (unsigned long long)p->changed_bytes,
               text_s(p->changed_bytes));
    }
    printf("\n");
    return 0;
}

static void print_sum(const struct tw_bundle_difference *d) {
    char changed[32], all[32];
    if (d->same_content) {
        printf("the bundles are the same\n");
        return;
    }
    printf("weights  %u of %u tensors differ: %s of %s, in %llu chunks of 64 KiB\n",
           d->n_changed_params, d->n_params, ui_bytes(d->changed_param_bytes, changed),
           ui_bytes(d->param_bytes, all), (unsigned long long)d->changed_param_chunks);
    printf("results  %s\n", d->same_function
                                ? "the same: both compute the same, bit for bit"
                                : "may differ: they are not known to compute the same");
    printf("state    %s\n", d->same_state ? "the same tensors" : "other tensors or sizes");
}

/* ---- JSON ---- */

static int collect_part(void *ctx, const struct tw_bundle_part *p) {
    json_array_append_new(ctx, json_pack("{s:s, s:o, s:I, s:I, s:I, s:I}", "role", p->role, "name",
                                         text_json(p->name), "old_bytes", (json_int_t)p->old_bytes,
                                         "new_bytes", (json_int_t)p->new_bytes, "changed_bytes",
                                         (json_int_t)p->changed_bytes, "changed_chunks",
                                         (json_int_t)p->changed_chunks));
    return 0;
}

static json_t *sum_json(const struct tw_bundle_difference *d, json_t *parts) {
    char old[65], now[65];
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:i, s:i, s:I, s:I, s:I, s:o}", "old",
                     text_hex(d->old_hash, sizeof d->old_hash, old), "new",
                     text_hex(d->new_hash, sizeof d->new_hash, now), "same", (int)d->same_content,
                     "same_results", (int)d->same_function, "same_state", (int)d->same_state,
                     "params", (int)d->n_params, "changed_params", (int)d->n_changed_params,
                     "param_bytes", (json_int_t)d->param_bytes, "changed_param_bytes",
                     (json_int_t)d->changed_param_bytes, "changed_param_chunks",
                     (json_int_t)d->changed_param_chunks, "parts", parts);
}

/* ---- the verb ---- */

static int diff(const char *old, const char *now, const struct diff_args *a, tw_error *err) {
    struct tw_bundle_difference d = {.size = sizeof d};
    struct tw_delta_info info = {.size = sizeof info};
    json_t *parts = a->json ? json_array() : NULL;
    const char *const inputs[] = {old, now};
    int code = a->out ? output_check(a->out, "delta", inputs, 2, err) : 0;
    code = code ? code
                : tw_bundle_compare(old, now, a->json ? collect_part : print_part, parts, &d, err);
    if (!code && a->out) {
        char *temporary = tw_temporary_path(a->out);
        ui_guard(temporary, NULL, NULL);
        code = tw_delta_make(old, now, a->out, &info, err);
        ui_guard(NULL, NULL, NULL);
        free(temporary);
    }
    if (code) {
        json_decref(parts);
        return code;
    }
    if (a->json) {
        json_t *o = sum_json(&d, parts);
        if (a->out) {
            json_object_set_new(o, "delta", delta_json(&info, a->out));
        }
        return ui_print_json(o, err);
    }
    print_sum(&d);
    if (a->out) {
        delta_print(&info, a->out);
    }
    return ui_flush(err);
}

static int run(int argc, char **argv, tw_error *err) {
    struct diff_args a = {0};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    return diff(result.operand[0], result.operand[1], &a, err);
}

const struct cmd cmd_diff = {&verb, run};
