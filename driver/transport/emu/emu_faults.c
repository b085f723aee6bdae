/* SPDX-License-Identifier: Apache-2.0
 *
 * "emu:TARGET?faults=PLAN,SEED": an emulator in this process that injects faults. It is served on a
 * thread of its own over a link, like a remote device, so that errors and recovery take the real
 * code paths.
 */
#include "driver/transport/emu/emu_faults.h"

#include "driver/transport/link/link_client.h"
#include "firmware/serve/device_server.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct faulty {
    struct tw_device_server *device;
    pthread_t thread;
};

static void *serve(void *arg) {
    tw_device_server_run(((struct faulty *)arg)->device, NULL);
    return NULL;
}

static void end(void *owner) {
    struct faulty *l = owner;
    tw_device_server_stop(l->device);
    pthread_join(l->thread, NULL);
    tw_device_server_destroy(l->device);
    free(l);
}

/* "PLAN" or "PLAN,SEED" */
static int parse(const char *text, char plan[32], uint64_t *seed, tw_error *err) {
    size_t n = strcspn(text, ",");
    const char *number = text[n] ? text + n + 1 : "1";
    size_t digits = strspn(number, "0123456789");
    if (n >= 32 || digits == 0 || digits > 19 || number[digits]) {
        return tw_fail(err, TW_E_NO_DEVICE, "device emu: '?faults=%.60s', expected PLAN,SEED",
                       text);
    }
    memcpy(plan, text, n);
    plan[n] = 0;
    *seed = strtoull(number, NULL, 10);
    return 0;
}

static const struct tw_transport_ops ops = {.name = "emu",
                                            .submit = tw_link_submit,
                                            .receive = tw_link_receive,
                                            .stuck = tw_link_is_stuck,
                                            .close = tw_link_close};

static int start(struct faulty *l, const struct tw_device_server_options *o, int *fd,
                 tw_error *err) {
    int code = tw_device_server_create(o, &l->device, err);
    if (code) {
        return code;
    }
    *fd = tw_device_server_pair(l->device);
    if (*fd < 0 || pthread_create(&l->thread, NULL, serve, l)) {
        if (*fd >= 0) {
            close(*fd);
        }
        tw_device_server_destroy(l->device);
        return tw_fail(err, TW_E_INTERNAL,
                       "device emu: cannot create a socket or thread for the fault plan");
    }
    return 0;
}

int tw_emu_faults_open(const char *text, const struct tw_emu_options *emu, uint32_t deadline_ms,
                       struct tw_transport **out, tw_error *err) {
    char plan[32], name[96];
    struct tw_device_server_options o = {.emu = *emu, .faults = plan};
    int code = parse(text, plan, &o.seed, err);
    if (code) {
        return code;
    }
    struct faulty *l = calloc(1, sizeof *l);
    if (!l) {
        return tw_fail(err, TW_E_NOMEM, "device emu: out of memory");
    }
    int fd = -1;
    code = start(l, &o, &fd, err);
    if (code) {
        free(l);
        return code;
    }
    struct tw_link *link;
    snprintf(name, sizeof name, "emu?faults=%s,%llu", plan, (unsigned long long)o.seed);
    code = tw_link_open(name, tw_pipe_socket(fd), deadline_ms, &link, err);
    if (code) {
        end(l);
        return code;
    }
    link->base.ops = &ops;
    link->wiring.closed = end;
    link->wiring.owner = l;
    *out = &link->base;
    return 0;
}
