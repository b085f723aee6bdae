/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens device, decoder, deployment and session in this order, so that a wrong device is reported
 * before a long compilation.
 */
#include "tools/engine.h"

#include "loader/base/clock.h"
#include "loader/target/target_open.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>

struct tw_compile_options engine_compile_options(const struct engine_options *o,
                                                 const char *device_target) {
    struct tw_compile_options c = {.size = sizeof c,
                                   .n_ctx = (uint32_t)o->ctx,
                                   .prefill_rows = (uint32_t)o->rows,
                                   .batch_rows = (uint32_t)o->batch,
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

/* ---- opening ---- */

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

static int open_session(struct engine *e, const struct engine_options *o, enum tw_mode mode,
                        tw_error *err) {
    struct tw_session_options s = {.size = sizeof s,
                                   .n_ctx = (uint32_t)o->ctx,
                                   .mode = mode,
                                   .n_threads = (uint32_t)o->threads,
                                   .chunk = (uint32_t)o->chunk,
                                   .stop = o->whole_steps ? NULL : &ui_stop};
    struct tw_deploy_options d = {.size = sizeof d, .state_positions = (uint64_t)o->ctx};
    double start = tw_clock_s();
    int code = tw_deploy_with(e->device, e->source.decoder, &d, &e->deployment, err);
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

int engine_open(struct engine *e, const char *path, const struct engine_options *o, tw_error *err) {
    memset(e, 0, sizeof *e);
    enum tw_mode mode;
    struct tw_device_info device;
    int code = parse_mode(o->mode, &mode, err);
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
