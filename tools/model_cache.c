/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of compiled models: one file for each key (content, options, version), written under
 * another name and renamed, so that two processes that compile the same model at once both end up
 * with a complete file.
 */
#include "tools/model_cache.h"

#include "loader/base/clock.h"
#include "loader/base/private_path.h"
#include "loader/base/temporary.h"
#include "loader/target/target_open.h"
#include "tools/cache_folder.h"
#include "tools/model.h"
#include "tools/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES (CACHE_PATH_BYTES + CACHE_NAME_BYTES)
/* Cached bundles up to this size are checked against their hash each time; for larger ones that
 * would slow the start too much. */
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

/* ---- compiling ---- */

/* Reports before the compilation starts that there is no tokenizer for the requested text, or that
 * the context is longer than what the model was trained for. */
static int check_model(const char *model, const struct cache_request *r, tw_error *err) {
    struct tw_model_info facts = {.size = sizeof facts};
    int code = tw_model_get_info(model, r->options.tokenizer, &facts, err);
    if (!code && r->options.n_ctx > facts.n_ctx_train) {
        ui_note("option --ctx: %u positions, but the model was trained for %u: text beyond those "
                "may make no sense",
                r->options.n_ctx, facts.n_ctx_train);
    }
    return code || !r->text ? code : model_need_tokenizer(model, &facts, err);
}

/* `folder`: a folder that holds nothing but the bundle, or NULL. A signal removes both until the
 * caller ends the guard. */
static int compile(const char *model, const char *bundle, const char *folder,
                   const struct cache_request *r, struct cache_result *out, tw_error *err) {
    char *temporary = tw_temporary_path(bundle);
    if (!temporary) {
        return tw_fail(err, TW_E_NOMEM, "%.200s: out of memory", model);
    }
    struct tw_compile_options o = r->options;
    o.progress = ui_progress;
    double start = tw_clock_s();
    ui_guard(temporary, bundle, folder);
    int code = tw_compile_file(model, bundle, &o, NULL, err);
    ui_guard(bundle, NULL, folder);
    ui_progress_end();
    free(temporary);
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

/* Without a cache: compiles into a temporary file that disappears when it is closed. */
static int open_temporary(const char *model, const struct cache_request *r,
                          struct cache_result *out, tw_error *err) {
    const char *tmp = getenv("TMPDIR");
    char folder[CACHE_PATH_BYTES], path[PATH_BYTES] = "";
    int n = snprintf(folder, sizeof folder, "%s/tilewright-XXXXXX",
                     tmp && tmp[0] == '/' ? tmp : "/tmp");
    ui_guard(path, NULL, folder); /* before there is a folder that a signal could leave behind */
    if (n < 0 || (size_t)n >= sizeof folder || !mkdtemp(folder)) {
        int code = tw_fail(err, TW_E_NOSPACE, "cannot create the temporary folder %.200s: %s",
                           folder, strerror(errno));
        ui_guard(NULL, NULL, NULL);
        return code;
    }
    snprintf(path, sizeof path, "%s/model.twb", folder);
    int code = compile(model, path, folder, r, out, err);
    code = code ? code : open_decoder(path, 0, out, err);
    unlink(path);
    rmdir(folder);
    ui_guard(NULL, NULL, NULL);
    return code;
}

/* ---- the cache ---- */

/* An entry that is looked up or created. */
struct slot {
    const char *model, *key;
    char folder[CACHE_PATH_BYTES], path[PATH_BYTES];
};

static bool is_damaged(int code) {
    enum tw_error_class c = tw_error_class_of(code);
    return c == TW_CLASS_INPUT || c == TW_CLASS_VERIFY || code == TW_E_VERSION ||
           code == TW_E_UNSUPPORTED;
}

/* Opens the entry with that key. Sets *miss if there is none that can be used. */
static int open_entry(struct slot *p, struct cache_result *out, bool *miss, tw_error *err) {
    struct cache_entry e;
    struct tw_decoder_info info = {.size = sizeof info};
    *miss = !cache_find(p->folder, p->key, &e);
    if (*miss) {
        return 0;
    }
    int fd;
    snprintf(p->path, sizeof p->path, "%s/%s", p->folder, e.name);
    if (tw_private_file_open(p->path, &fd, err)) {
        ui_note("%s; it is not used", err->message);
        *miss = true;
        return 0;
    }
    close(fd);
    int code = open_decoder(p->path, e.bytes <= HASH_ALWAYS ? TW_DECODER_CHECK_HASH : 0, out, err);
    if (code) {
        *miss = is_damaged(code);
        if (*miss) {
            ui_note("the cached bundle is damaged; compiling it again: %s", err->message);
        }
        return *miss ? 0 : code;
    }
    tw_decoder_get_info(out->decoder, &info, NULL);
    if (!cache_is_whole(&e, &info)) {
        ui_note("the cached bundle %s is not the one that was stored there; compiling it again",
                p->path);
        tw_decoder_close(out->decoder);
        out->decoder = NULL;
        unlink(p->path); /* the new bundle may get another name */
        *miss = true;
        return 0;
    }
    cache_touch(p->path);
    return 0;
}

/* Renames the file to the name that its content gives. Returns 0 or errno. */
static int store(struct slot *p, const char *file, const struct tw_decoder_info *info) {
    char name[CACHE_NAME_BYTES];
    cache_name(name, info, p->model, p->key);
    snprintf(p->path, sizeof p->path, "%s/%s", p->folder, name);
    return rename(file, p->path) ? errno : 0;
}

/* Stores and opens a new bundle. One that cannot be stored is used nevertheless. */
static int open_compiled(struct slot *p, const char *file, struct cache_result *out,
                         tw_error *err) {
    struct tw_decoder_info info = {.size = sizeof info};
    int code = open_decoder(file, 0, out, err);
    if (code) {
        return code;
    }
    tw_decoder_get_info(out->decoder, &info, NULL);
    int e = store(p, file, &info);
    if (e) {
        ui_note("cannot store the bundle in the cache: %s: %s", p->path, strerror(e));
        return 0;
    }
    tw_decoder_close(out->decoder); /* opened again under the name that other programs are shown */
    out->decoder = NULL;
    return open_decoder(p->path, 0, out, err);
}

static int make_entry(struct slot *p, const struct cache_request *r, struct cache_result *out,
                      tw_error *err) {
    char file[PATH_BYTES];
    snprintf(file, sizeof file, "%s/new-%ld.twb", p->folder, (long)getpid());
    int code = compile(p->model, file, NULL, r, out, err);
    code = code ? code : open_compiled(p, file, out, err);
    unlink(file);
    ui_guard(NULL, NULL, NULL);
    return code;
}

static int open_model(const char *path, const struct cache_request *r, struct cache_result *out,
                      tw_error *err) {
    char key[65];
    struct slot p = {.model = path, .key = key};
    bool miss = true;
    int code = tw_compile_key(path, &r->options, key, err);
    if (code) {
        return code;
    }
    int e = cache_folder(p.folder, true);
    if (!e && !r->fresh) {
        code = open_entry(&p, out, &miss, err);
    }
    if (!code && (miss || r->options.n_ctx)) {
        code = check_model(path, r, err);
    }
    if (code || !miss) {
        return code;
    }
    if (e) {
        ui_note("cannot use the cache %s (%s); compiling into a temporary file",
                p.folder[0] ? p.folder : "in XDG_CACHE_HOME or HOME", strerror(e));
        return open_temporary(path, r, out, err);
    }
    code = make_entry(&p, r, out, err);
    if (code == TW_E_NOSPACE) {
        ui_note("%s; compiling into a temporary file", err->message);
        return open_temporary(path, r, out, err);
    }
    return code;
}

/* ---- bundles ---- */

static int check_target(const char *path, const struct tw_compile_options *o,
                        const tw_decoder *decoder, tw_error *err) {
    struct tw_decoder_info info = {.size = sizeof info};
    tw_decoder_get_info(decoder, &info, NULL);
    struct tw_target target;
    int code = o->target ? tw_target_open(o->target, o->host_sites, &target, err) : 0;
    if (code || !o->target || strcmp(target.name, info.target) == 0) {
        return code;
    }
    return tw_fail(err, TW_E_TARGET, "%s: compiled for target %s, not for %s", path, info.target,
                   target.name);
}

int cache_open(const char *path, const struct cache_request *request, struct cache_result *out,
               tw_error *err) {
    memset(out, 0, sizeof *out);
    out->is_bundle = cache_is_bundle(path);
    int code = 0;
    if (out->is_bundle) {
        code = open_decoder(path, 0, out, err);
        code = code ? code : check_target(path, &request->options, out->decoder, err);
    } else {
        code = open_model(path, request, out, err);
    }
    if (code) {
        tw_decoder_close(out->decoder);
        out->decoder = NULL;
    }
    return code;
}
