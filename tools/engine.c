/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens device, decoder, deployment and session in this order, so that a wrong device is reported
 * before a long compilation.
 */
#include "tools/engine.h"

#include "loader/base/clock.h"
#include "loader/target/target_open.h"
#include "tools/cache_folder.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>

struct tw_compile_options engine_compile_options(const struct engine_options *o,
                                                 const char *device_target) {
    struct tw_compile_options c = {.size = sizeof c,
                                   .n_ctx = (uint32_t)o->ctx,
                                   .prefill_rows = (uint32_t)o->rows,
                                   .batch_rows = (uint32_t)(o->batch ? o->batch : o->batch_wanted),
                                   .host_sites = (uint32_t)o->sites,
                                   .target = o->target,
                                   .tokenizer = o->tokenizer,
                                   .all_logits = o->logits && strcmp(o->logits, "all") == 0,
                                   .kv = o->kv,
                                   .top_k = (uint32_t)o->lists,
                                   .quant = o->quant,
                                   .activations = o->activations};
    if (!c.target && device_target[0]) {
        c.target = device_target;
    }
    return c;
}

/* ---- options without effect ---- */

int engine_check_bundle(const struct engine_options *o, const char *path, tw_error *err) {
    const char *name = o->rows          ? "rows"
                       : o->batch       ? "batch"
                       : o->sites       ? "sites"
                       : o->kv          ? "kv"
                       : o->quant       ? "quant"
                       : o->activations ? "activations"
                       : o->fresh       ? "fresh"
                       : o->tokenizer   ? "tokenizer"
                                        : NULL;
    if (!name) {
        return 0;
    }
    return tw_fail(err, TW_E_USAGE, "option --%s is for models, but %s is compiled already", name,
                   path);
}

int engine_check_model(const struct engine_options *o, const char *target, tw_error *err) {
    if (!o->sites || !target || strcmp(target, "host") == 0) {
        return 0;
    }
    return tw_fail(err, TW_E_USAGE,
                   "option --sites is for target host; target %s has a fixed number of sites",
                   target);
}

/* Notes options that the device or the bundle does not follow. */
static void note_effects(const struct engine *e, const struct engine_options *o) {
    const char *name = e->session_info.device;
    bool emulator = strncmp(name, "emu", 3) == 0;
    if (!emulator && (o->threads || o->isa)) {
        ui_note("option --%s has no effect: it is for the emulator, and the device is %s",
                o->threads ? "threads" : "isa", name);
    } else if (o->threads > e->session_info.n_threads) {
        ui_note("option --threads: %lld requested, using %u: at most one for each site",
                (long long)o->threads, e->session_info.n_threads);
    }
}

static int parse_mode(const char *text, enum tw_mode *mode, tw_error *err) {
    *mode = TW_MODE_FAST;
    if (!text || strcmp(text, "fast") == 0) {
        return 0;
    }
    *mode = TW_MODE_STRICT;
    return strcmp(text, "strict") == 0
               ? 0
               : tw_fail(err, TW_E_USAGE, "option --mode: '%.60s' is neither fast nor strict",
                         text);
}

static int open_device(struct engine *e, const struct engine_options *o,
                       struct tw_device_info *info, tw_error *err) {
    const char *isa = o->isa ? o->isa : getenv("TILEWRIGHT_ISA");
    e->isa = isa && *isa ? isa : "auto";
    struct tw_device_options d = {.size = sizeof d, .n_threads = (uint32_t)o->threads, .isa = isa};
    int code = tw_device_open(o->device, &d, &e->device, err);
    if (code) {
        return code;
    }
    info->size = sizeof *info;
    tw_device_get_info(e->device, info, NULL);
    struct tw_target target;
    code = o->target ? tw_target_open(o->target, (uint32_t)o->sites, &target, err) : 0;
    if (!code && o->target && info->target[0] && strcmp(info->target, target.name) != 0) {
        return tw_fail(err, TW_E_TARGET, "device %s is a %s, not a %s (--target)", info->selector,
                       info->target, target.name);
    }
    return code;
}

/* ---- the prefix cache ---- */

/* Finds the folder of saved prefixes, and makes it ready. */
static int use_prompt_cache(const struct engine_options *o, struct tw_deploy_options *d,
                            char path[CACHE_PATH_BYTES], tw_error *err) {
    if (!o->prompt_cache) {
        return o->prompt_cache_salt
                   ? tw_fail(err, TW_E_USAGE, "option --prompt-cache-salt goes with --prompt-cache")
                   : 0;
    }
    if (!text_bytes(o->prompt_cache, &d->prefix_bytes) || d->prefix_bytes == 0) {
        return tw_fail(err, TW_E_USAGE,
                       "option --prompt-cache: '%.60s' is not a size such as 512M or 2G (to keep "
                       "one sequence in a file, use run --save-state and --load-state)",
                       o->prompt_cache);
    }
    int failed = cache_folder(path, true);
    if (failed) {
        return tw_fail(err, TW_E_IO, "option --prompt-cache: no cache folder: %s%s%s", path,
                       path[0] ? ": " : "",
                       path[0] ? strerror(failed) : "set XDG_CACHE_HOME or HOME");
    }
    strcat(path, "/prefix"); /* it leaves room for longer names */
    d->prefix_folder = path;
    return 0;
}

void engine_keep_prefix(struct engine *e, const struct engine_options *o) {
    tw_error why = {0};
    if (o->prompt_cache && tw_session_keep_prefix(e->session, NULL, &why)) {
        ui_note("option --prompt-cache: %s", why.message);
    }
}

void engine_note_context(const struct tw_generate_result *r) {
    if (r->n_reused) {
        ui_note("%u token%s of the prompt from the cache", r->n_reused, text_s(r->n_reused));
    }
    if (r->n_windows) {
        ui_note("the context was full %u time%s; %u tokens were dropped", r->n_windows,
                text_s(r->n_windows), r->n_dropped);
    }
}

void engine_json_context(json_t *json, const struct engine_options *o,
                         const struct tw_generate_result *r) {
    if (json && o->prompt_cache) {
        json_object_set_new(json, "reused", json_integer(r->n_reused));
    }
    if (json && engine_goes_on(o)) {
        json_object_set_new(json, "windows", json_integer(r->n_windows));
        json_object_set_new(json, "dropped", json_integer(r->n_dropped));
    }
}

/* ---- a full context ---- */

bool engine_goes_on(const struct engine_options *o) {
    return o->on_full && strcmp(o->on_full, "stop") != 0;
}

int engine_on_full(const struct engine_options *o, struct tw_generate_options *g, tw_error *err) {
    static const char *const how[] = {"stop", "slide", "sink"};
    uint32_t i = 0;
    while (o->on_full && i < 3 && strcmp(o->on_full, how[i]) != 0) {
        i++;
    }
    if (i == 3) {
        return tw_fail(err, TW_E_USAGE, "option --on-full: '%.60s' is neither stop, slide nor sink",
                       o->on_full);
    }
    if (o->sink && i != TW_FULL_SINK) {
        return tw_fail(err, TW_E_USAGE, "option --sink goes with --on-full sink");
    }
    g->on_full = i;
    g->n_sink = (uint32_t)o->sink;
    return 0;
}

/* ---- opening ---- */

static int open_session(struct engine *e, const struct engine_options *o, enum tw_mode mode,
                        tw_error *err) {
    struct tw_session_options s = {.size = sizeof s,
                                   .n_ctx = (uint32_t)o->ctx,
                                   .mode = mode,
                                   .n_threads = (uint32_t)o->threads,
                                   .chunk = (uint32_t)o->chunk,
                                   .stop = o->whole_steps ? NULL : &ui_stop,
                                   .prefix_cache = o->caches || o->prompt_cache,
                                   .prefix_salt = o->prompt_cache_salt};
    struct tw_deploy_options d = {.size = sizeof d,
                                  .state_positions =
                                      (uint64_t)(o->positions > o->ctx ? o->positions : o->ctx)};
    char folder[CACHE_PATH_BYTES];
    double start = tw_clock_s();
    int code = use_prompt_cache(o, &d, folder, err);
    code = code ? code : tw_deploy_with(e->device, e->source.decoder, &d, &e->deployment, err);
    code = code ? code : tw_session_create(e->deployment, &s, &e->session, err);
    e->load_s = e->source.open_s + tw_clock_s() - start;
    if (code) {
        return code;
    }
    e->info.size = sizeof e->info;
    tw_decoder_get_info(e->source.decoder, &e->info, NULL);
    e->session_info.size = sizeof e->session_info;
    tw_session_get_info(e->session, &e->session_info, NULL);
    return 0;
}

/* What else is wrong is said before a model is compiled. */
static int check_context(const struct engine_options *o, tw_error *err) {
    struct tw_generate_options g = {.size = sizeof g};
    struct tw_deploy_options d = {.size = sizeof d};
    char folder[CACHE_PATH_BYTES];
    int code = engine_on_full(o, &g, err);
    return code ? code : use_prompt_cache(o, &d, folder, err);
}

int engine_open(struct engine *e, const char *path, const struct engine_options *o, tw_error *err) {
    memset(e, 0, sizeof *e);
    enum tw_mode mode;
    struct tw_device_info device;
    int code = parse_mode(o->mode, &mode, err);
    code = code ? code : check_context(o, err);
    code = code ? code : open_device(e, o, &device, err);
    if (!code) {
        /* A bundle has its own target; tw_deploy checks whether the device is of that target. */
        bool bundle = cache_is_bundle(path);
        const char *machine = tw_device_target(e->device);
        const char *target = bundle ? "" : machine[0] ? machine : device.target;
        struct cache_request r = {
            .options = engine_compile_options(o, target), .fresh = o->fresh, .text = o->text};
        code = bundle ? engine_check_bundle(o, path, err)
                      : engine_check_model(o, r.options.target, err);
        code = code ? code : cache_open(path, &r, &e->source, err);
    }
    code = code ? code : open_session(e, o, mode, err);
    if (code) {
        engine_close(e);
    } else {
        note_effects(e, o);
    }
    return code;
}

void engine_close(struct engine *e) {
    tw_session_destroy(e->session);
    tw_deployment_destroy(e->deployment);
    tw_decoder_close(e->source.decoder);
    tw_device_close(e->device);
    memset(e, 0, sizeof *e);
}
