/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the round trip to a PCIe device against the bare path: doorbell, eventfd, process,
 * eventfd, interrupt.
 *   pcie_bench echo SOCKET
 *       runs outside the guest: an ivshmem peer that answers each doorbell at once and counts it in
 *       BAR2
 *   pcie_bench BDF ECHO-BDF
 *       runs in the guest: measures the device (emulate --ivshmem) and the echo
 * tests/bench/pcie.sh boots a guest with both.
 */
#include "driver/device/device.h"
#include "driver/transport/link/link_client.h"
#include "driver/transport/pcie/vfio.h"
#include "firmware/link/packet.h"
#include "firmware/pcie/ivshmem.h"
#include "loader/base/clock.h"
#include "loader/base/event.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM 200
#define TIMES 3000

static double now_us(void) {
    return 1e-3 * (double)tw_clock_ns();
}

static int fail(const tw_error *err) {
    fprintf(stderr, "pcie_bench: %s\n", err->message);
    return 1;
}

/* ---- the echo ---- */

static int serve_echo(const char *path) {
    tw_error err = {0};
    struct tw_pcie_access a;
    const struct tw_ivshmem_options o = {.path = path};
    if (tw_ivshmem_open(&o, &a, &err)) {
        return fail(&err);
    }
    uint32_t *count = (uint32_t *)(void *)a.bar2;
    struct pollfd p = {.fd = a.doorbell, .events = POLLIN};
    while (poll(&p, 1, -1) > 0) {
        if (tw_event_clear(a.doorbell)) {
            tw_pcie_store(count, *count + 1);
            a.interrupt(a.ctx);
        }
    }
    a.close(a.ctx);
    return 0;
}

/* ---- in the guest ---- */

struct path {
    struct tw_vfio echo;
    tw_device *device;
    bool poll;
};

static bool echo_once(struct path *w) {
    const uint32_t *count = (const uint32_t *)(const void *)w->echo.bar[2].mapped;
    uint32_t before = tw_pcie_load(count);
    tw_vfio_write32(&w->echo, 0, 12, 1u << 16);
    if (w->poll) {
        while (tw_pcie_load(count) == before) {
        }
        return true;
    }
    struct pollfd p = {.fd = w->echo.interrupt, .events = POLLIN};
    return poll(&p, 1, 5000) > 0 && tw_event_clear(p.fd);
}

static bool ping_once(struct path *w) {
    struct tw_link *l = (struct tw_link *)w->device->transport;
    struct tw_link_header h = {
        .kind = TW_LINK_PING, .generation = l->conn.generation, .ack = l->conn.answered};
    const struct tw_packet_data none = {NULL, NULL, 0};
    uint8_t packet[TW_LINK_HEADER_BYTES], *bytes;
    size_t n = tw_packet_build(&h, &none, l->wiring.pipe->chunk, packet);
    if (l->wiring.pipe->ops->send(l->wiring.pipe, packet, n) != TW_PACKET_OK) {
        return false;
    }
    enum tw_packet_result r;
    while ((r = l->wiring.pipe->ops->take(l->wiring.pipe, &bytes, &n)) == TW_PACKET_AGAIN) {
        if (!l->wiring.pipe->ops->wait(l->wiring.pipe, false, 5000)) {
            return false;
        }
    }
    return r == TW_PACKET_OK && tw_packet_good(bytes, n, &h) && h.kind == TW_LINK_PROGRESS;
}

static bool heartbeat_once(struct path *w) {
    struct tw_device_call call = {.opcode = TW_WIRE_HEARTBEAT};
    return tw_device_call(w->device, &call, NULL) == 0;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints and returns the median; prints its ratio to `bare`, the bare path's, unless that is 0. */
static double measure(const char *what, bool (*once)(struct path *), struct path *w, double bare) {
    static double took[TIMES];
    for (int i = -WARM; i < TIMES; i++) {
        double begin = now_us();
        if (!once(w)) {
            printf("%-28s no answer\n", what);
            return 0;
        }
        took[i < 0 ? 0 : i] = now_us() - begin;
    }
    qsort(took, TIMES, sizeof took[0], by_value);
    printf("%-28s %8.1f us median %8.1f us minimum %8.1f us 90th percentile", what, took[TIMES / 2],
           took[0], took[TIMES * 9 / 10]);
    printf(bare > 0 ? "   %.2f times the bare path\n" : "\n", took[TIMES / 2] / bare);
    fflush(stdout);
    return took[TIMES / 2];
}

static int measure_device(const char *bdf, struct path *w, double bare, tw_error *err) {
    char selector[64];
    snprintf(selector, sizeof selector, "pcie:%s%s", bdf, w->poll ? "?wait=poll" : "");
    int code = tw_device_open(selector, NULL, &w->device, err);
    if (code) {
        return code;
    }
    measure(w->poll ? "PING, polled" : "PING, interrupt", ping_once, w, bare);
    measure(w->poll ? "HEARTBEAT, polled" : "HEARTBEAT, interrupt", heartbeat_once, w, bare);
    tw_device_close(w->device);
    return 0;
}

int main(int argc, char **argv) {
    tw_error err = {0};
    struct path w = {.device = NULL};
    if (argc != 3) {
        fprintf(stderr, "usage: pcie_bench echo SOCKET | pcie_bench BDF ECHO-BDF\n");
        return 2;
    }
    if (strcmp(argv[1], "echo") == 0) {
        return serve_echo(argv[2]);
    }
    int code = tw_vfio_open(&w.echo, "echo", argv[2], &err);
    code = code ? code : tw_vfio_map_bar(&w.echo, 0, &err);
    code = code ? code : tw_vfio_map_bar(&w.echo, 2, &err);
    code = code ? code : tw_vfio_listen(&w.echo, &err);
    for (int poll = 0; !code && poll < 2; poll++) {
        w.poll = poll;
        double bare = measure(poll ? "bare, polled" : "bare, interrupt", echo_once, &w, 0);
        code = measure_device(argv[1], &w, bare, &err);
    }
    tw_vfio_close(&w.echo);
    return code ? fail(&err) : 0;
}
