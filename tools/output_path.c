/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the file that a verb writes (tools/output_path.h).
 */
#include "tools/output_path.h"

#include <errno.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_folder(const char *out, tw_error *err) {
    char *copy = strdup(out);
    if (!copy) {
        return tw_fail(err, TW_E_NOMEM, "out of memory");
    }
    struct stat st;
    int e = stat(out, &st) && errno != ENOENT ? errno : 0; /* a name that is too long, ... */
    e = e || access(dirname(copy), W_OK | X_OK) == 0 ? e : errno;
    free(copy);
    return e ? tw_fail(err, TW_E_IO, "%s: cannot write: %s", out, strerror(e)) : 0;
}

int output_check(const char *out, const char *what, const char *const inputs[], size_t n_inputs,
                 tw_error *err) {
    if (!out || !*out) {
        return tw_fail(err, TW_E_USAGE, "option --output (-o) is missing: name the %s to write",
                       what);
    }
    if (strcmp(out, "-") == 0) {
        return tw_fail(err, TW_E_USAGE,
                       "option --output: a %s cannot be written to standard output; name a file "
                       "(./- for a file named -)",
                       what);
    }
    for (size_t i = 0; i < n_inputs; i++) {
        if (inputs[i] && same_file(inputs[i], out)) {
            return tw_fail(err, TW_E_USAGE,
                           "option --output: the %s would overwrite %s, which it is made from",
                           what, inputs[i]);
        }
    }
    return check_folder(out, err);
}
