/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright cache: lists the compiled models in the cache, or removes the least recently used ones
 * until the rest is small enough.
 */
#include "loader/base/grow.h"
#include "tools/cache_folder.h"
#include "tools/cmd.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cache_args {
    const char *max_size;
    bool json;
};

#define AT(field) offsetof(struct cache_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 0, "max-size", "SIZE", AT(max_size), 0, 0,
     "for prune: keep at most SIZE bytes, or with a suffix: 500M, 2G; 0 removes all"},
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "cache",
    "list|prune",
    1,
    "List the compiled models in the cache, or remove the least recently used ones.",
    options,
    "Entries are named MODEL-TARGET-HASH. They may be removed at any time: a model that is not "
    "there "
    "is compiled again."};

/* ---- the entries, the most recently used first ---- */

struct entries {
    char folder[CACHE_PATH_BYTES];
    struct cache_entry *items;
    size_t n, room;
    uint64_t bytes;
    bool no_memory;
};

static bool add(void *ctx, const struct cache_entry *e) {
    struct entries *list = ctx;
    if (!e->is_file) {
        return true;
    }
    if (!tw_grow(&list->items, &list->room, list->n + 1, sizeof *list->items)) {
        list->no_memory = true;
        return false;
    }
    list->items[list->n++] = *e;
    list->bytes += e->bytes;
    return true;
}

static int by_use(const void *a, const void *b) {
    const struct cache_entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? 1 : -1;
    }
    if (x->used.tv_nsec != y->used.tv_nsec) {
        return x->used.tv_nsec < y->used.tv_nsec ? 1 : -1;
    }
    return strcmp(x->name, y->name);
}

/* A folder that does not exist is an empty one. */
static int read_entries(struct entries *list, tw_error *err) {
    int e = cache_folder(list->folder, false);
    if (e && (e != ENOENT || !list->folder[0])) {
        return tw_fail(err, e == ENOENT ? TW_E_USAGE : TW_E_IO, "cannot use the cache %s: %s",
                       list->folder[0] ? list->folder : "in XDG_CACHE_HOME or HOME", strerror(e));
    }
    cache_each(list->folder, add, list);
    if (list->no_memory) {
        return tw_fail(err, TW_E_NOMEM, "out of memory for the list of cached models");
    }
    if (list->n) {
        qsort(list->items, list->n, sizeof *list->items, by_use);
    }
    return 0;
}

/* ---- printing ---- */

static json_t *entry_json(const struct cache_entry *e) {
    return json_pack("{s:o, s:I, s:I}", "name", text_json(e->name), "bytes", (json_int_t)e->bytes,
                     "used", (json_int_t)e->used.tv_sec);
}

static void print_entry(const struct cache_entry *e) {
    char bytes[32], when[32] = "?";
    struct tm local;
    if (localtime_r(&e->used.tv_sec, &local)) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    }
    printf("%10s  %s  %s\n", ui_bytes(e->bytes, bytes), when, text_clean(e->name).text);
}

static int list(const struct entries *all, bool json, tw_error *err) {
    if (json) {
        json_t *entries = json_array();
        for (size_t i = 0; i < all->n; i++) {
            json_array_append_new(entries, entry_json(&all->items[i]));
        }
        return ui_print_json(json_pack("{s:o, s:I, s:o}", "folder", text_json(all->folder), "bytes",
                                       (json_int_t)all->bytes, "entries", entries),
                             err);
    }
    char bytes[32];
    for (size_t i = 0; i < all->n; i++) {
        print_entry(&all->items[i]);
    }
    printf("%10s  in %zu bundle%s: %s\n", ui_bytes(all->bytes, bytes), all->n, text_s(all->n),
           text_clean(all->folder).text);
    return ui_flush(err);
}

/* ---- removing ---- */

static int parse_size(const char *text, uint64_t *out, tw_error *err) {
    return text_bytes(text, out)
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "option --max-size: '%.60s' is not a size such as 500M, 2G or 0", text);
}

static int print_pruned(const struct entries *all, json_t *removed, size_t n, uint64_t bytes,
                        bool json, tw_error *err) {
    if (json) {
        return ui_print_json(json_pack("{s:o, s:I, s:O, s:I}", "folder", text_json(all->folder),
                                       "removed_bytes", (json_int_t)bytes, "removed", removed,
                                       "bytes", (json_int_t)(all->bytes - bytes)),
                             err);
    }
    char freed[32], left[32];
    printf("removed %zu bundle%s, %s; %zu left, %s\n", n, text_s(n), ui_bytes(bytes, freed),
           all->n - n, ui_bytes(all->bytes - bytes, left));
    return ui_flush(err);
}

/* Removes entries, the least recently used first. A process that has one open can go on using
 * it. */
static int prune(const struct entries *all, uint64_t max, bool json, tw_error *err) {
    char path[CACHE_PATH_BYTES + CACHE_NAME_BYTES];
    json_t *removed = json_array();
    uint64_t bytes = 0;
    size_t n = 0;
    int code = 0;
    while (!code && n < all->n && (max == 0 || all->bytes - bytes > max)) {
        const struct cache_entry *e = &all->items[all->n - 1 - n];
        snprintf(path, sizeof path, "%s/%s", all->folder, e->name);
        if (unlink(path) && errno != ENOENT) {
            code = tw_fail(err, TW_E_IO, "cannot remove %s: %s", path, strerror(errno));
            break;
        }
        json_array_append_new(removed, entry_json(e));
        bytes += e->bytes;
        n++;
    }
    code = code ? code : print_pruned(all, removed, n, bytes, json, err);
    json_decref(removed);
    return code;
}

static int check(const struct cache_args *a, const char *what, uint64_t *max, tw_error *err) {
    bool prunes = strcmp(what, "prune") == 0;
    if (!prunes && strcmp(what, "list") != 0) {
        return tw_fail(err, TW_E_USAGE, "cache: '%.60s' is neither list nor prune", what);
    }
    if (prunes != (a->max_size != NULL)) {
        return tw_fail(err, TW_E_USAGE,
                       prunes ? "cache prune: option --max-size is missing: give the size to keep"
                              : "option --max-size is for cache prune");
    }
    return prunes ? parse_size(a->max_size, max, err) : 0;
}

static int run(int argc, char **argv, tw_error *err) {
    struct cache_args a = {0};
    struct opt_result result;
    uint64_t max = UINT64_MAX;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    struct entries all = {.n = 0};
    code = check(&a, result.operand[0], &max, err);
    code = code ? code : read_entries(&all, err);
    if (!code) {
        code = a.max_size ? prune(&all, max, a.json, err) : list(&all, a.json, err);
    }
    free(all.items);
    return code;
}

const struct cmd cmd_cache = {&verb, run};
