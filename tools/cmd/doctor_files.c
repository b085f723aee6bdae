/* SPDX-License-Identifier: Apache-2.0
 *
 * What the doctor's parts share: reporting, and reading files below a root.
 */
#include "tools/cmd/doctor.h"

#include "loader/base/text_filter.h"
#include "tools/text.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_ROOM 512

void doctor_report(struct doctor *d, enum doctor_verdict v, const char *what, const char *remedy,
                   const char *format, ...) {
    static const char *const word[] = {"ok", "note", "missing", "broken"};
    char found[400];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    tw_clean_text(found);
    remedy = v == DOCTOR_GOOD ? NULL : remedy;
    d->broken = d->broken || v == DOCTOR_BROKEN;
    d->n_missing += v == DOCTOR_MISSING;
    if (d->list) {
        json_array_append_new(d->list, json_pack("{s:s, s:s, s:s, s:o*}", "check", what, "state",
                                                 word[v], "found", found, "remedy",
                                                 remedy ? text_json(remedy) : NULL));
        return;
    }
    printf("%-7s  %-14s  %s\n", word[v], what, found);
    if (remedy) {
        printf("%25s%s\n", "", text_clean(remedy).text);
    }
}

static void make_path(const struct doctor *d, char path[PATH_ROOM], const char *format,
                      va_list args) {
    int n = snprintf(path, PATH_ROOM, "%.200s", d->root);
    vsnprintf(path + n, (size_t)(PATH_ROOM - n), format, args);
}

#define MAKE_PATH(path)               \
    char path[PATH_ROOM];             \
    va_list args;                     \
    va_start(args, format);           \
    make_path(d, path, format, args); \
    va_end(args)

bool doctor_can(const struct doctor *d, int mode, const char *format, ...) {
    MAKE_PATH(path);
    return access(path, mode) == 0;
}

static bool read_line(const char *path, char line[128]) {
    FILE *f = fopen(path, "r");
    bool got = f && fgets(line, 128, f);
    if (f) {
        fclose(f);
    }
    if (!got) {
        line[0] = 0;
        return false;
    }
    size_t skip = strspn(line, " \t"), n = strlen(line);
    while (n > skip && strchr(" \t\n", line[n - 1])) {
        n--;
    }
    memmove(line, line + skip, n - skip);
    line[n - skip] = 0;
    return true;
}

bool doctor_read_line(const struct doctor *d, char line[128], const char *format, ...) {
    MAKE_PATH(path);
    return read_line(path, line);
}

bool doctor_read_number(const struct doctor *d, long *out, const char *format, ...) {
    MAKE_PATH(path);
    char line[128], *end;
    if (!read_line(path, line)) {
        return false;
    }
    *out = strtol(line, &end, 0);
    return end != line;
}

bool doctor_read_link(const struct doctor *d, char name[128], const char *format, ...) {
    MAKE_PATH(path);
    char target[PATH_ROOM];
    ssize_t n = readlink(path, target, sizeof target - 1);
    name[0] = 0;
    if (n <= 0) {
        return false;
    }
    target[n] = 0;
    const char *slash = strrchr(target, '/');
    snprintf(name, 128, "%.127s", slash ? slash + 1 : target);
    return true;
}

int doctor_each(struct doctor *d, const char *folder,
                void (*use)(struct doctor *d, const char *name, void *ctx), void *ctx) {
    char path[PATH_ROOM];
    struct dirent **entry = NULL;
    int found = 0;
    snprintf(path, sizeof path, "%.200s%s", d->root, folder);
    int n = scandir(path, &entry, NULL, versionsort);
    for (int i = 0; i < n; i++) {
        if (entry[i]->d_name[0] != '.') {
            found++;
            if (use) {
                use(d, entry[i]->d_name, ctx);
            }
        }
        free(entry[i]);
    }
    free(entry);
    return found;
}
