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
    {"sram_bytes", BYTES, offsetof(struct tw_target, class_bytes[0]), 16384, 4294967296.0, false},
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

/* ---- memory classes and State ---- */

static const char *const holds[TW_HOLDS_COUNT] = {
#define TW_X(id, text) text,
    TW_HOLDS(TW_X)
#undef TW_X
};

/* Names appear in bundles, lists and error lines: printable ASCII without blanks. */
static bool name_ok(const char *name, size_t room) {
    return name && tw_text_is_ascii(name, room - 1) && !strchr(name, ' ');
}

/* Assigns the kinds of content in the list to class `c`. `taken`: those that a class has. */
static int read_holds(const char *path, const json_t *list, uint32_t c, struct tw_target *t,
                      uint32_t *taken, tw_error *err) {
    if (!json_is_array(list)) {
        return tw_fail(err, TW_E_FORMAT, "%s: key \"holds\" of memory class %u must be an array",
                       path, c);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        uint32_t k = 0;
        while (k < TW_HOLDS_COUNT && (!word || strcmp(word, holds[k]) != 0)) {
            k++;
        }
        if (k == TW_HOLDS_COUNT || (*taken >> k & 1)) {
            return tw_fail(err, TW_E_FORMAT,
                           "%s: memory class %u holds \"%.32s\", expected params, state, "
                           "activations or private, each in one class",
                           path, c, word ? word : "");
        }
        *taken |= 1u << k;
        t->class_of[k] = (uint8_t)c;
    }
    return 0;
}

static int read_class(const char *path, const json_t *o, uint32_t c, struct tw_target *t,
                      uint32_t *taken, tw_error *err) {
    const char *name = json_string_value(json_object_get(o, "name"));
    const json_t *bytes = json_object_get(o, "bytes");
    double n = json_number_value(bytes);
    if (!json_is_object(o) || json_object_size(o) != 3 || !name_ok(name, TW_CLASS_NAME_BYTES)) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: memory class %u must have the keys \"name\" (1 to %u printable "
                       "characters without blanks), \"bytes\" and \"holds\"",
                       path, c, TW_CLASS_NAME_BYTES - 1);
    }
    if (!json_is_integer(bytes) || n < 64 || n > 4294967296.0) {
        return tw_fail(err, TW_E_RANGE, "%s: memory class %u has %g bytes, expected 64 to %g", path,
                       c, n, 4294967296.0);
    }
    for (uint32_t k = 0; k < c; k++) {
        if (!strcmp(t->class_name[k], name)) {
            return tw_fail(err, TW_E_FORMAT, "%s: memory classes %u and %u are both \"%s\"", path,
                           k, c, name);
        }
    }
    strcpy(t->class_name[c], name);
    t->class_bytes[c] = (uint64_t)n / 64 * 64;
    t->n_classes = c + 1;
    return read_holds(path, json_object_get(o, "holds"), c, t, taken, err);
}

static int read_classes(const char *path, const json_t *root, struct tw_target *t, tw_error *err) {
    const json_t *list = json_object_get(root, "sram_classes");
    uint32_t taken = 0;
    strcpy(t->class_name[0], "plain");
    t->n_classes = 1;
    if (list && (!json_is_array(list) || json_array_size(list) == 0 ||
                 json_array_size(list) > TW_MEM_CLASSES - 1)) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: key \"sram_classes\" must be an array of 1 to %u memory classes "
                       "besides the plain one",
                       path, TW_MEM_CLASSES - 1);
    }
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        rc = read_class(path, json_array_get(list, i), (uint32_t)i + 1, t, &taken, err);
    }
    return rc;
}

static int read_state(const char *path, const json_t *root, struct tw_target *t, tw_error *err) {
    const json_t *state = json_object_get(root, "state");
    const char *where = json_string_value(state);
    if (state && (!where || (strcmp(where, "dram") != 0 && strcmp(where, "sram") != 0))) {
        return tw_fail(err, TW_E_FORMAT, "%s: key \"state\" must be \"dram\" or \"sram\"", path);
    }
    t->state_in_sram = where && !strcmp(where, "sram");
    return 0;
}

/* Adds the keys that only targets with several classes or with State in SRAM have, so that the hash
 * of the others is that of their older files. */
static int print_classes(json_t *root, const struct tw_target *t) {
    int failed = t->state_in_sram ? json_object_set_new(root, "state", json_string("sram")) : 0;
    json_t *list = json_array();
    for (uint32_t c = 1; c < t->n_classes; c++) {
        json_t *kinds = json_array();
        for (uint32_t k = 0; k < TW_HOLDS_COUNT; k++) {
            failed |= t->class_of[k] == c ? json_array_append_new(kinds, json_string(holds[k])) : 0;
        }
        failed |= json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "name", t->class_name[c],
                                                        "bytes", (json_int_t)t->class_bytes[c],
                                                        "holds", kinds));
    }
    if (t->n_classes > 1) {
        return failed | json_object_set_new(root, "sram_classes", list);
    }
    json_decref(list);
    return failed;
}

static int check_keys(const char *path, json_t *root, tw_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        bool known = !strcmp(key, "name") || !strcmp(key, "sram_classes") || !strcmp(key, "state");
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
    failed |= print_classes(root, t);
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
    rc = rc ? rc : read_classes(path, root, t, err);
    rc = rc ? rc : read_state(path, root, t, err);
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
