/* SPDX-License-Identifier: Apache-2.0
 *
 * Output files that appear only when they are complete.
 */
#include "tools/logits_file.h"

#include "loader/base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *path, int e, tw_error *err) {
    return tw_fail(err, e == ENOSPC || e == EDQUOT || e == EFBIG ? TW_E_NOSPACE : TW_E_IO, "%s: %s",
                   path, e ? strerror(e) : "write failed");
}

/* Creates a new file in a folder that others may write to as well: an existing file of that name is
 * not written to. NULL with errno set. */
static FILE *create(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (fd >= 0 && !file) {
        int why = errno;
        close(fd);
        unlink(path);
        errno = why;
    }
    return file;
}

int logits_file_open(struct logits_file *f, const char *path, tw_error *err) {
    struct stat st;
    memset(f, 0, sizeof *f);
    bool exists = stat(path, &st) == 0;
    if (!exists && errno != ENOENT) { /* report it for this path, not for the temporary file */
        return fail(path, errno, err);
    }
    bool in_place = exists && !S_ISREG(st.st_mode);
    f->path = strdup(path);
    f->temporary = in_place ? NULL : tw_temporary_path(path);
    if (!f->path || (!in_place && !f->temporary)) {
        logits_file_close(f, false, NULL);
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", path);
    }
    f->file = in_place ? fopen(path, "wbe") : create(f->temporary);
    if (!f->file) {
        int code = fail(path, errno, err);
        logits_file_close(f, false, NULL);
        return code;
    }
    return 0;
}

int logits_file_write(struct logits_file *f, const void *bytes, size_t n, tw_error *err) {
    errno = 0;
    return fwrite(bytes, 1, n, f->file) == n ? 0 : fail(f->path, errno, err);
}

int logits_file_close(struct logits_file *f, bool keep, tw_error *err) {
    int code = 0;
    errno = 0;
    if (f->file) {
        int bad = ferror(f->file);
        if (fclose(f->file) || bad) {
            code = fail(f->path, errno, err);
        }
        if (f->temporary && keep && !code && rename(f->temporary, f->path)) {
            code = fail(f->path, errno, err);
        }
        if (f->temporary && (!keep || code)) {
            unlink(f->temporary);
        }
    }
    free(f->path);
    free(f->temporary);
    memset(f, 0, sizeof *f);
    return code;
}
