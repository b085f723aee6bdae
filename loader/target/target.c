/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a target file: jansson parses it, one table checks every key, and the canonical form is
 * hashed.
 */
#include "loader/target/target_open.h"

#include "loader/base/text_filter.h"
#include "loader/target/builtin.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { COUNT, BYTES, RATE };

static const struct field {
    const char *key;
    enum kind kind;
    size_t offset;
    double min, max;
    bool link; /* key of the links between chips: all of these or none */
} fields[] = {
    {"chips", COUNT, offsetof(struct tw_target, n_chips), 1, 64, false},
    {"width", COUNT, offsetof(struct tw_target, width), 1, TW_TARGET_MAX_SITES, false},
    {"height", COUNT, offsetof(struct tw_target, height), 1, TW_TARGET_MAX_SITES, false},
    {"sram_bytes", BYTES, offsetof(struct tw_target, sram_bytes), 16384, 4294967296.0, false},
    {"banks", COUNT, offsetof(struct tw_target, n_banks), 1, TW_MAX_BANKS, false},
    {"clock_hz", RATE, offsetof(struct tw_target, clock_hz), 1e3, 1e12, false},
    {"dram_bytes_per_cycle", RATE, offsetof(struct tw_target, dram_bytes_per_cycle), 1e-3, 1e9,
     false},
    {"site_load_bytes_per_cycle", RATE, offsetof(struct tw_target, site_load_bytes_per_cycle), 1e-3,
     1e9, false},
    {"fma_per_cycle", RATE, offsetof(struct tw_target, fma_per_cycle), 1e-3, 1e9, false},
    {"int8_mac_per_cycle", RATE, offsetof(struct tw_target, int8_mac_per_cycle), 1e-3, 1e9, false},
    {"vector_per_cycle", RATE, offsetof(struct tw_target, vector_per_cycle), 1e-3, 1e9, false},
    {"link_bytes_per_cycle", RATE, offsetof(struct tw_target, link_bytes_per_cycle), 1e-3, 1e9,
     false},
    {"sync_cycles", RATE, offsetof(struct tw_target, sync_cycles), 0, 1e9, false},
    {"call_cycles", RATE, offsetof(struct tw_target, call_cycles), 0, 1e9, false},
    {"chip_link_bytes_per_cycle", RATE, offsetof(struct tw_target, chip_link_bytes_per_cycle), 1e-3,
     1e9, true},
    {"chip_link_cycles", RATE, offsetof(struct tw_target, chip_link_cycles), 0, 1e9, true},
};
#define N_FIELDS (sizeof fields / sizeof *fields)

static int read_field(const char *path, const json_t *root, const struct field *f,
                      struct tw_target *t, tw_error *err) {
    const json_t *v = json_object_get(root, f->key);
    if (!v) {
        return tw_fail(err, TW_E_MISSING, "%s: key \"%s\" is missing", path, f->key);
    }
    if (f->kind == RATE ? !json_is_number(v) : !json_is_integer(v)) {
        return tw_fail(err, TW_E_FORMAT, "%s: key \"%s\" must be a%s number", path, f->key,
                       f->kind == RATE ? "" : "n integer");
    }
    double x = json_number_value(v);
    if (!(x >= f->min && x <= f->max)) {
        return tw_fail(err, TW_E_RANGE, "%s: key \"%s\" is %g, expected %g to %g", path, f->key, x,
                       f->min, f->max);
    }
    char *at = (char *)t + f->offset;
    if (f->kind == COUNT) {
        *(uint32_t *)(void *)at = (uint32_t)x;
    } else if (f->kind == BYTES) {
        *(uint64_t *)(void *)at = (uint64_t)x / 64 * 64;
    } else {
        *(double *)(void *)at = x;
    }
    return 0;
}

static bool has_links(const json_t *root) {
    bool any = false;
    for (size_t i = 0; i < N_FIELDS; i++) {
        any |= fields[i].link && json_object_get(root, fields[i].key);
    }
    return any;
}

static int check_keys(const char *path, json_t *root, tw_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        bool known = !strcmp(key, "name");
        for (size_t i = 0; i < N_FIELDS && !known; i++) {
            known = !strcmp(key, fields[i].key);
        }
        if (!known) {
            return tw_fail(err, TW_E_FORMAT, "%s: unknown key \"%.64s\"", path, key);
        }
    }
    return 0;
}

/* Returns the checked values as JSON, so that two spellings of one target (2e9 and 2000000000) have
 * one hash. */
static json_t *canonical(const struct tw_target *t) {
    json_t *root = json_object();
    int failed = json_object_set_new(root, "name", json_string(t->name));
    for (size_t i = 0; i < N_FIELDS; i++) {
        const void *at = (const char *)t + fields[i].offset;
        if (fields[i].link && !tw_target_has_links(t)) {
            continue;
        }
        json_t *v = fields[i].kind == COUNT   ? json_integer(*(const uint32_t *)at)
                    : fields[i].kind == BYTES ? json_integer((json_int_t) * (const uint64_t *)at)
                                              : json_real(*(const double *)at);
        failed |= json_object_set_new(root, fields[i].key, v);
    }
    if (failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

static char *canonical_text(const struct tw_target *t) {
    json_t *root = canonical(t);
    char *text =
        root ? json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(root);
    return text;
}

int tw_target_print(const struct tw_target *target, char *text, size_t room, tw_error *err) {
    char *all = canonical_text(target);
    size_t n = all ? strlen(all) : 0;
    int rc = !all        ? tw_fail(err, TW_E_NOMEM, "target: out of memory to print it")
             : n >= room ? tw_fail(err, TW_E_NOSPACE, "target %s: %zu bytes of text, room for %zu",
                                   target->name, n, room - 1)
                         : 0;
    if (rc == 0) {
        memcpy(text, all, n + 1);
    }
    free(all);
    return rc;
}

static int hash_target(struct tw_target *t, tw_error *err) {
    char *text = canonical_text(t);
    if (!text || sodium_init() < 0) {
        free(text);
        return tw_fail(err, TW_E_NOMEM, "target: out of memory to hash it");
    }
    crypto_generichash(t->hash, sizeof t->hash, (const unsigned char *)text, strlen(text), NULL, 0);
    free(text);
    return 0;
}

/* Names appear in bundles, lists and error lines: printable ASCII without blanks. */
static bool name_ok(const char *name, size_t room) {
    return name && tw_text_is_ascii(name, room - 1) && !strchr(name, ' ');
}

static int read_target(const char *path, json_t *root, struct tw_target *t, tw_error *err) {
    if (!json_is_object(root)) {
        return tw_fail(err, TW_E_FORMAT, "%s: expected a JSON object", path);
    }
    const char *name = json_string_value(json_object_get(root, "name"));
    if (!name_ok(name, sizeof t->name)) {
        return tw_fail(
            err, TW_E_FORMAT,
            "%s: key \"name\" must be a string of 1 to %zu printable characters without blanks",
            path, sizeof t->name - 1);
    }
    strcpy(t->name, name);
    int rc = check_keys(path, root, err);
    for (size_t i = 0; i < N_FIELDS && rc == 0; i++) {
        rc = fields[i].link && !has_links(root) ? 0 : read_field(path, root, &fields[i], t, err);
    }
    if (rc == 0 && (uint64_t)t->n_chips * t->width * t->height > TW_TARGET_MAX_SITES) {
        rc = tw_fail(err, TW_E_RANGE, "%s: %u chips of %u x %u sites; the maximum is %u sites",
                     path, t->n_chips, t->width, t->height, TW_TARGET_MAX_SITES);
    }
    if (rc == 0 && t->n_chips * t->n_banks > TW_MAX_BANKS) {
        rc = tw_fail(err, TW_E_RANGE, "%s: %u chips with %u banks each; the maximum is %u banks",
                     path, t->n_chips, t->n_banks, TW_MAX_BANKS);
    }
    return rc ? rc : hash_target(t, err);
}

static int no_such_target(const char *name, tw_error *err) {
    char list[256] = "";
    for (const char *const *n = tw_target_names(); *n; n++) {
        strcat(strcat(list, n == tw_target_names() ? "" : ", "), *n);
    }
    return tw_fail(err, TW_E_USAGE,
                   "no target \"%.64s\"; there are %s, or give the path of a .json file", name,
                   list);
}

int tw_target_parse(const char *name, const char *text, size_t size, struct tw_target *out,
                    tw_error *err) {
    json_error_t e;
    memset(out, 0, sizeof *out);
    if (size > TW_MAX_TARGET_BYTES) {
        return tw_fail(err, TW_E_RANGE, "%s: longer than %u bytes, the maximum of a target file",
                       name, TW_MAX_TARGET_BYTES);
    }
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
    if (!root) {
        return tw_fail(err, TW_E_FORMAT, "%s:%d: not JSON: %s", name, e.line, e.text);
    }
    int rc = read_target(name, root, out, err);
    json_decref(root);
    return rc;
}

static int open_file(const char *path, struct tw_target *out, tw_error *err) {
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(TW_MAX_TARGET_BYTES + 1) : NULL;
    if (!text) {
        int rc = f ? tw_fail(err, TW_E_NOMEM, "%s: out of memory to read it", path)
                   : tw_fail(err, TW_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (f) {
            fclose(f);
        }
        return rc;
    }
    size_t n = fread(text, 1, TW_MAX_TARGET_BYTES + 1, f);
    int rc = ferror(f) ? tw_fail(err, TW_E_IO, "%s: cannot read: %s", path, strerror(errno))
                       : tw_target_parse(path, text, n, out, err);
    free(text);
    fclose(f);
    return rc;
}

int tw_target_open(const char *name, uint32_t host_sites, struct tw_target *out, tw_error *err) {
    size_t len = strlen(name);
    memset(out, 0, sizeof *out);
    if (name[0] == '{') {
        return tw_target_parse("target", name, len, out, err);
    }
    if (strchr(name, '/') || (len > 5 && !strcmp(name + len - 5, ".json"))) {
        return open_file(name, out, err);
    }
    unsigned i = 0;
    while (tw_target_names()[i] && strcmp(tw_target_names()[i], name)) {
        i++;
    }
    const char *text = tw_target_builtin(i);
    int rc = text ? tw_target_parse(name, text, strlen(text), out, err) : no_such_target(name, err);
    if (rc == 0 && !strcmp(name, "host")) {
        long cores = host_sites ? (long)host_sites : sysconf(_SC_NPROCESSORS_ONLN);
        out->width = (uint32_t)(cores < 1 ? 1 : cores > 256 ? 256 : cores);
        rc = hash_target(out, err);
    }
    return rc;
}
