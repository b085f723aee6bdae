/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport to the emulator in this process: submit handles the request on the caller's thread
 * and keeps the answer in place. Selectors: "emu" accepts bundles for any target, "emu:TARGET" only
 * for that target; "emu:TARGET?faults=PLAN,SEED" (TARGET may be empty) injects faults, for tests.
 */
#include "driver/transport/emu/emu_faults.h"
#include "driver/transport/emu/emu_options.h"
#include "driver/transport/grace.h"
#include "firmware/emulator/emulator.h"

#include <stdio.h>
#include <stdlib.h>

struct emu_transport {
    struct tw_transport base;
    struct tw_emu *emu;
    bool answer_pending; /* `answer` has not been received yet */
    struct tw_grace grace;
    struct tw_server_answer answer;
};

static void discover(bool (*found)(void *ctx, const struct tw_transport_info *info), void *ctx) {
    struct tw_transport_info info = {.selector = "emu", .state = "ready"};
    snprintf(info.detail, sizeof info.detail, "emulator in this process, %u processors; any target",
             tw_emu_processors());
    bool more = found(ctx, &info);
    for (const char *const *name = tw_target_names(); more && *name; name++) {
        snprintf(info.selector, sizeof info.selector, "emu:%s", *name);
        snprintf(info.target, sizeof info.target, "%s", *name);
        struct tw_target target;
        tw_error err = {0};
        if (tw_target_open(*name, 0, &target, &err)) {
            snprintf(info.state, sizeof info.state, "unusable");
            snprintf(info.detail, sizeof info.detail, "%.*s", (int)sizeof info.detail - 1,
                     err.message);
        } else {
            snprintf(info.state, sizeof info.state, "ready");
            snprintf(info.detail, sizeof info.detail, "emulator of %u sites with %llu KiB each",
                     tw_target_sites(&target),
                     (unsigned long long)(tw_target_sram(&target) / 1024));
        }
        more = found(ctx, &info);
    }
}

static bool is_stopped(void *ctx) {
    struct emu_transport *t = ctx;
    return tw_grace_is_over(&t->grace, &t->base);
}

static int open_emu(const char *rest, const struct tw_transport_options *options,
                    struct tw_transport **out, tw_error *err) {
    struct tw_emu_target target;
    char name[64];
    const char *faults = strstr(rest, "?faults=");
    size_t n = faults ? (size_t)(faults - rest) : strlen(rest);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), rest);
    struct tw_emu_options o = {.n_threads = options->n_threads,
                               .memory_bytes = options->memory_bytes};
    int code = tw_emu_options_fill(&o, name, options->isa, &target, err);
    if (code) {
        return code;
    }
    if (faults) {
        return tw_emu_faults_open(faults + strlen("?faults="), &o, options->deadline_ms, out, err);
    }
    struct emu_transport *t = calloc(1, sizeof *t);
    if (!t) {
        return tw_fail(err, TW_E_NOMEM, "device emu: out of memory");
    }
    t->base.ops = &tw_transport_emu;
    t->base.credits = 1;
    o.interrupt = (struct tw_interrupt){is_stopped, t};
    code = tw_emu_create(&o, &t->emu, err);
    if (code) {
        free(t);
        return code;
    }
    *out = &t->base;
    return 0;
}

static int submit(struct tw_transport *base, const uint8_t *header, const void *payload,
                  uint32_t payload_bytes, tw_error *err) {
    struct emu_transport *t = (struct emu_transport *)base;
    if (t->answer_pending) {
        return tw_fail(err, TW_E_USAGE, "device emu: a request is still unanswered");
    }
    tw_emu_handle(t->emu, header, payload, payload_bytes, &t->answer);
    t->answer_pending = true;
    return 0;
}

static int receive(struct tw_transport *base, uint8_t *header, const void **payload,
                   uint32_t *payload_bytes, tw_error *err) {
    struct emu_transport *t = (struct emu_transport *)base;
    if (!t->answer_pending) {
        return tw_fail(err, TW_E_USAGE, "device emu: no request is unanswered");
    }
    t->answer_pending = false;
    memcpy(header, t->answer.header, TW_WIRE_HEADER_BYTES);
    *payload = t->answer.payload;
    *payload_bytes = t->answer.length;
    return 0;
}

static int adopt(struct tw_transport *base, const void *bytes, uint64_t size, uint64_t *address,
                 tw_error *err) {
    int code = tw_emu_adopt(((struct emu_transport *)base)->emu, bytes, size, address);
    return code ? tw_fail(err, code, "device emu: %s",
                          code == TW_E_NOMEM ? "its allocation table is full"
                                             : "the memory already belongs to an allocation")
                : 0;
}

static void *map(struct tw_transport *base, uint64_t address, uint64_t bytes) {
    return tw_emu_map(((struct emu_transport *)base)->emu, address, bytes);
}

static void close_emu(struct tw_transport *base) {
    struct emu_transport *t = (struct emu_transport *)base;
    tw_emu_destroy(t->emu);
    free(t);
}

const struct tw_transport_ops tw_transport_emu = {
    .name = "emu",
    .discover = discover,
    .open = open_emu,
    .submit = submit,
    .receive = receive,
    .adopt = adopt,
    .map = map,
    .close = close_emu,
};
