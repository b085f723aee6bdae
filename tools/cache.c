/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of compiled models: one file a key (content, options, version), made beside its place
 * and renamed, so that two processes that compile the same model at once both end with a whole
 * file.
 */
#include "tools/cache.h"

#include "loader/base/clock.h"
#include "loader/target/target_open.h"
#include "tools/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096
/* Cached bundles up to this size are checked against their hash each time; larger ones would cost
 * the start too much.
 */
#define HASH_ALWAYS (UINT64_C(8) << 20)

bool cache_is_bundle(const char *path) {
    char magic[4];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool elf = fd >= 0 && read(fd, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return elf;
}

/* Makes the directory and those above it; 0 or errno. */
static int make_directories(char *path) {
    for (char *p = path + 1; *p; p++) {
        if (*p == '/') {
            *p = 0;
            int failed = mkdir(path, 0755) && errno != EEXIST;
            *p = '/';
            if (failed) {
                return errno;
            }
        }
    }
    return mkdir(path, 0700) && errno != EEXIST ? errno : 0;
}

/* The cache's folder, made if need be. 0 or errno. */
static int cache_folder(char folder[PATH_BYTES]) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (xdg && xdg[0] == '/') { /* a relative one is to be ignored, says the XDG specification */
        n = snprintf(folder, PATH_BYTES, "%s/tilewright", xdg);
    } else if (home && home[0]) {
        n = snprintf(folder, PATH_BYTES, "%s/.cache/tilewright", home);
    }
    if (n < 0 || n >= PATH_BYTES - 128) {
        folder[0] = 0;
        return ENOENT;
    }
    int e = make_directories(folder);
    return e ? e : access(folder, W_OK | X_OK) ? errno : 0;
}

/* `folder`: one that holds nothing but the bundle, or NULL. A signal removes both until the caller
 * ends the guard. */
static int compile(const char *model, const char *bundle, const char *folder,
                   const struct tw_compile_options *options, struct cache_result *out,
                   tw_error *err) {
    char temporary[PATH_BYTES + 64];
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", bundle, (long)getpid());
    struct tw_compile_options o = *options;
    o.progress = ui_progress;
    double start = tw_clock_s();
    ui_guard(temporary, folder ? bundle : NULL, folder);
    int code = tw_compile_file(model, bundle, &o, NULL, err);
    ui_guard(folder ? bundle : NULL, NULL, folder);
    ui_progress_end();
    out->compiled = true;
    out->compile_s = tw_clock_s() - start;
    return code;
}

static int open_decoder(const char *path, unsigned flags, struct cache_result *out, tw_error *err) {
    double start = tw_clock_s();
    int code = tw_decoder_open(path, flags, &out->decoder, err);
    out->open_s = tw_clock_s() - start;
    return code;
}

/* Without a cache: compile into a temporary file that disappears when it is closed. */
static int open_temporary(const char *model, const struct tw_compile_options *options,
                          struct cache_result *out, tw_error *err) {
    const char *tmp = getenv("TMPDIR");
    char folder[PATH_BYTES], path[PATH_BYTES + 64];
    int n = snprintf(folder, sizeof folder, "%s/tilewright-XXXXXX",
                     tmp && tmp[0] == '/' ? tmp : "/tmp");
    if (n < 0 || n >= PATH_BYTES || !mkdtemp(folder)) {
        return tw_fail(err, TW_E_NOSPACE, "%.200s: no temporary folder can be made there: %s",
                       folder, strerror(errno));
    }
    snprintf(path, sizeof path, "%s/model.twb", folder);
    int code = compile(model, path, folder, options, out, err);
    code = code ? code : open_decoder(path, 0, out, err);
    unlink(path);
    rmdir(folder);
    ui_guard(NULL, NULL, NULL);
    return code;
}

static bool damaged(int code) {
    enum tw_error_class c = tw_error_class_of(code);
    return c == TW_CLASS_INPUT || c == TW_CLASS_VERIFY || code == TW_E_VERSION ||
           code == TW_E_UNSUPPORTED;
}

static int open_cached(const char *model, const char *bundle,
                       const struct tw_compile_options *options, bool fresh,
                       struct cache_result *out, tw_error *err) {
    struct stat st;
    bool there = !fresh && stat(bundle, &st) == 0;
    if (there) {
        unsigned flags = (uint64_t)st.st_size <= HASH_ALWAYS ? TW_DECODER_CHECK_HASH : 0;
        int code = open_decoder(bundle, flags, out, err);
        if (!code || !damaged(code)) {
            return code;
        }
        ui_note("the cached bundle is damaged and is made again: %s", err->message);
    }
    int code = compile(model, bundle, NULL, options, out, err);
    return code ? code : open_decoder(bundle, 0, out, err);
}

static int open_model(const char *path, const struct tw_compile_options *options, bool fresh,
                      struct cache_result *out, tw_error *err) {
    char key[65], bundle[PATH_BYTES];
    int code = tw_compile_key(path, options, key, err);
    if (code) {
        return code;
    }
    int e = cache_folder(bundle);
    if (e) {
        ui_note("the cache %s cannot be used (%s): compiling into a temporary file",
                bundle[0] ? bundle : "in XDG_CACHE_HOME or HOME", strerror(e));
        return open_temporary(path, options, out, err);
    }
    size_t n = strlen(bundle);
    snprintf(bundle + n, sizeof bundle - n, "/%s.twb", key);
    code = open_cached(path, bundle, options, fresh, out, err);
    if (code == TW_E_NOSPACE) {
        ui_note("%s: compiling into a temporary file", err->message);
        return open_temporary(path, options, out, err);
    }
    return code;
}

static int check_bundle_options(const char *path, const struct tw_compile_options *o,
                                const tw_decoder *decoder, tw_error *err) {
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder_get_info(decoder, &info, NULL);
    if (o->tokenizer) {
        return tw_fail(err, TW_E_USAGE, "%s: --tokenizer is for models; a bundle holds its own",
                       path);
    }
    struct tw_target target;
    int code = o->target ? tw_target_open(o->target, o->host_sites, &target, err) : 0;
    if (code || !o->target || strcmp(target.name, info.target) == 0) {
        return code;
    }
    return tw_fail(err, TW_E_TARGET, "%s: it is for target %s, not for %s", path, info.target,
                   target.name);
}

int cache_open(const char *path, const struct tw_compile_options *options, bool fresh,
               struct cache_result *out, tw_error *err) {
    memset(out, 0, sizeof *out);
    if (!cache_is_bundle(path)) {
        return open_model(path, options, fresh, out, err);
    }
    out->is_bundle = true;
    int code = open_decoder(path, 0, out, err);
    code = code ? code : check_bundle_options(path, options, out->decoder, err);
    if (code) {
        tw_decoder_close(out->decoder);
        out->decoder = NULL;
    }
    return code;
}
