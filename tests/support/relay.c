/* SPDX-License-Identifier: Apache-2.0
 *
 * The relay (tests/support/relay.h): one connection at a time; a packet that finds no room waits.
 */
#include "tests/support/relay.h"

#include "firmware/link/pipe.h"
#include "loader/base/private_path.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct relay {
    int listener, stop[2];
    char device_path[108], path[108];
    pthread_t thread;
    _Atomic uint64_t data, others;
};

static void die(const char *what) {
    perror(what);
    abort();
}

static struct sockaddr_un address_of(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    return a;
}

static struct tw_pipe *connect_device(const struct relay *r) {
    struct sockaddr_un a = address_of(r->device_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a)) {
        die("relay: the device");
    }
    return tw_pipe_socket(fd);
}

/* Forwards all packets that are available. Returns false if one side has gone. */
static bool move(struct relay *r, struct tw_pipe *from, struct tw_pipe *to) {
    for (;;) {
        uint8_t *bytes;
        size_t n;
        enum tw_packet_result result = from->ops->take(from, &bytes, &n);
        if (result != TW_PACKET_OK) {
            return result == TW_PACKET_AGAIN;
        }
        bool data = n > TW_LINK_HEADER_BYTES && bytes[TW_LINK_AT_kind] == TW_LINK_DATA;
        atomic_fetch_add(data ? &r->data : &r->others, n);
        while ((result = to->ops->send(to, bytes, n)) == TW_PACKET_AGAIN) {
            to->ops->wait(to, true, 100);
        }
        if (result == TW_PACKET_GONE) {
            return false;
        }
    }
}

/* Serves one connection. Returns true if the relay has to end. */
static bool serve(struct relay *r, struct tw_pipe *host, struct tw_pipe *device) {
    for (;;) {
        struct pollfd p[] = {{.fd = host->fd, .events = POLLIN},
                             {.fd = device->fd, .events = POLLIN},
                             {.fd = r->stop[0], .events = POLLIN}};
        poll(p, 3, -1);
        if (!move(r, host, device) || !move(r, device, host) || p[2].revents) {
            return p[2].revents != 0;
        }
    }
}

static void *run(void *arg) {
    struct relay *r = arg;
    for (bool end = false; !end;) {
        struct pollfd p[] = {{.fd = r->listener, .events = POLLIN},
                             {.fd = r->stop[0], .events = POLLIN}};
        poll(p, 2, -1);
        end = p[1].revents != 0;
        int fd = end ? -1 : accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            struct tw_pipe *host = tw_pipe_socket(fd), *device = connect_device(r);
            end = serve(r, host, device);
            host->ops->close(host);
            device->ops->close(device);
        }
    }
    return NULL;
}

struct relay *relay_start(const char *name, const char *device_path) {
    struct relay *r = calloc(1, sizeof *r);
    if (!r || tw_runtime_socket(name, true, r->path, NULL) || pipe(r->stop)) {
        die("relay");
    }
    snprintf(r->device_path, sizeof r->device_path, "%s", device_path);
    struct sockaddr_un a = address_of(r->path);
    r->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (r->listener < 0 || bind(r->listener, (const struct sockaddr *)&a, sizeof a) ||
        listen(r->listener, 4) || pthread_create(&r->thread, NULL, run, r)) {
        die("relay");
    }
    return r;
}

void relay_end(struct relay *r) {
    if (write(r->stop[1], "", 1) != 1) {
        die("relay");
    }
    pthread_join(r->thread, NULL);
    close(r->listener);
    close(r->stop[0]);
    close(r->stop[1]);
    unlink(r->path);
    free(r);
}

struct relay_count relay_take_count(struct relay *r) {
    return (struct relay_count){atomic_exchange(&r->data, 0), atomic_exchange(&r->others, 0)};
}
