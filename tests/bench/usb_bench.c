/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the cost of the link on USB: MB/s of WRITE requests of 1 MiB, as for weights, against a
 * bare libusb loop that submits the same bytes to the same endpoint as fast as transfers complete:
 * from the program's own memory, which the kernel copies, and from memory for DMA, which nothing
 * touches. Prints the median of several rounds. Usage: usb_bench [NAME [MIB [ROUNDS]]], NAME as
 * after "usb:".
 */
#include "driver/transport/transport.h"
#include "driver/transport/usb/usb_find.h"
#include "loader/base/clock.h"
#include "tilewright/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 8
#define MIB (1u << 20)

static void die(const char *what, const char *why) {
    fprintf(stderr, "usb_bench: %s: %s\n", what, why);
    exit(1);
}

/* ---- the bare loop ---- */

struct bare {
    libusb_device_handle *handle;
    size_t left; /* bytes not yet submitted */
    unsigned in_flight;
};

static void submit(struct bare *b, struct libusb_transfer *t, size_t max) {
    size_t n = b->left < max ? b->left : max;
    t->length = (int)n;
    b->left -= n;
    int code = libusb_submit_transfer(t);
    if (code) {
        die("bare loop", libusb_strerror(code));
    }
    b->in_flight++;
}

static void LIBUSB_CALL on_done(struct libusb_transfer *t) {
    struct bare *b = t->user_data;
    b->in_flight--;
    if (t->status != LIBUSB_TRANSFER_COMPLETED) {
        die("bare loop", "a transfer failed");
    }
    if (b->left) {
        submit(b, t, (size_t)t->length);
    }
}

/* dma: use memory that the kernel does not have to copy; returns whether it was available. */
static bool fill(struct libusb_transfer *t, struct bare *b, const struct tw_usb_place *place,
                 size_t bytes, bool dma) {
    unsigned char *buffer = dma ? libusb_dev_mem_alloc(b->handle, bytes) : NULL;
    bool mapped = buffer != NULL;
    buffer = mapped ? buffer : malloc(bytes);
    if (!buffer) {
        die("bare loop", "out of memory");
    }
    memset(buffer, 0xA5, bytes);
    libusb_fill_bulk_transfer(t, b->handle, place->out, buffer, 0, on_done, b, 10000);
    t->flags = LIBUSB_TRANSFER_ADD_ZERO_PACKET;
    return mapped;
}

static void empty(struct libusb_transfer *t, struct bare *b, bool mapped, size_t bytes) {
    if (mapped) {
        libusb_dev_mem_free(b->handle, t->buffer, bytes);
    } else {
        free(t->buffer);
    }
    libusb_free_transfer(t);
}

/* Returns the seconds for `total` bytes in transfers of `bytes`. */
static double run_bare(libusb_context *context, const struct tw_usb_found *d, size_t total,
                       size_t bytes, bool dma) {
    struct bare b = {.left = total};
    struct libusb_transfer *t[DEPTH];
    bool mapped[DEPTH];
    if (libusb_open(d->device, &b.handle) || libusb_claim_interface(b.handle, d->place.interface)) {
        die("bare loop", "the device cannot be opened");
    }
    for (int i = 0; i < DEPTH; i++) {
        t[i] = libusb_alloc_transfer(0);
        mapped[i] = fill(t[i], &b, &d->place, bytes, dma);
    }
    double begin = tw_clock_s();
    for (int i = 0; i < DEPTH && b.left; i++) {
        submit(&b, t[i], bytes);
    }
    while (b.in_flight) {
        libusb_handle_events(context);
    }
    double s = tw_clock_s() - begin;
    for (int i = 0; i < DEPTH; i++) {
        empty(t[i], &b, mapped[i], bytes);
    }
    libusb_release_interface(b.handle, d->place.interface);
    libusb_close(b.handle);
    return s;
}

/* Returns the MB/s of the bare loop. */
static double bare_rate(const char *name, size_t total, size_t bytes, bool dma) {
    struct tw_usb_list list;
    tw_error err = {0};
    if (tw_usb_find(&list, &err) || list.n == 0) {
        die("no device", err.message);
    }
    const struct tw_usb_found *d = &list.device[0];
    for (size_t i = 0; i < list.n; i++) {
        d = strcmp(list.device[i].name, name) == 0 ? &list.device[i] : d;
    }
    double s = run_bare(list.context, d, total, bytes, dma);
    tw_usb_find_end(&list);
    return 1e-6 * (double)total / s;
}

/* ---- the link ---- */

static struct tw_transport *link_open(const char *name) {
    const struct tw_transport_options o = {.deadline_ms = 30000};
    struct tw_transport *t;
    tw_error err = {0};
    if (tw_transport_usb.open(name, &o, &t, &err)) {
        die("open", err.message);
    }
    return t;
}

static void ask(struct tw_transport *t, enum tw_wire_opcode opcode, uint64_t address,
                const void *payload, uint32_t bytes) {
    static uint32_t sequence;
    uint8_t header[TW_WIRE_HEADER_BYTES];
    struct tw_wire_header h = {.version = 1,
                               .opcode = (uint8_t)opcode,
                               .sequence = ++sequence,
                               .address = address,
                               .length = bytes};
    tw_error err = {0};
    tw_wire_encode(&h, header);
    if (t->ops->submit(t, header, payload, bytes, &err)) {
        die(tw_wire_opcode_name(opcode), err.message);
    }
}

static uint64_t await(struct tw_transport *t) {
    uint8_t header[TW_WIRE_HEADER_BYTES];
    const void *payload;
    uint32_t bytes;
    struct tw_wire_header h;
    const char *why = "refused";
    tw_error err = {0};
    if (t->ops->receive(t, header, &payload, &bytes, &err)) {
        die("answer", err.message);
    }
    if (tw_wire_decode(header, &h, &why) || h.status) {
        die("answer", why);
    }
    return h.address;
}

/* Sends n requests, as many at once as the device takes. Returns the seconds. */
static double run_link(struct tw_transport *t, enum tw_wire_opcode opcode, uint64_t address,
                       const void *payload, uint32_t bytes, unsigned n) {
    double begin = tw_clock_s();
    unsigned sent = 0;
    for (unsigned answered = 0; answered < n; answered++) {
        for (; sent < n && sent - answered < t->credits; sent++) {
            ask(t, opcode, address, payload, bytes);
        }
        await(t);
    }
    return tw_clock_s() - begin;
}

/* Measures the MB/s of WRITE and READ. */
static void link_rates(const char *name, unsigned mib, double *write, double *read) {
    struct tw_transport *t = link_open(name);
    const struct tw_wire_alloc q = {.bytes = MIB, .align = 64};
    const struct tw_wire_range range = {.bytes = MIB};
    uint64_t *payload = calloc(1, MIB);
    if (!payload) {
        die("link", "out of memory");
    }
    ask(t, TW_WIRE_ALLOC, 0, &q, sizeof q);
    uint64_t address = await(t);
    *write = 1e-6 * mib * (double)MIB / run_link(t, TW_WIRE_WRITE, address, payload, MIB, mib);
    *read =
        1e-6 * mib * (double)MIB / run_link(t, TW_WIRE_READ, address, &range, sizeof range, mib);
    t->ops->close(t);
    free(payload);
}

/* ---- rounds ---- */

/* Each round measures all contenders one after the other, so that other load on the machine affects
 * all of them alike. */

enum contender { DMA, SAME, SMALL, MIDDLE, LARGE, LARGEST, WRITE, READ, CONTENDERS };
#define PACKET_BYTES (TW_LINK_HEADER_BYTES + TW_LINK_CHUNK)
#define MAX_ROUNDS 99

static const struct {
    const char *what;
    size_t bytes; /* of a bare transfer; 0: the link */
} contenders[CONTENDERS] = {
    [DMA] = {"bare, the link's transfers, bytes not touched", PACKET_BYTES},
    [SAME] = {"bare, the link's transfers", PACKET_BYTES},
    [SMALL] = {"bare, 64 KiB transfers", 64u << 10},
    [MIDDLE] = {"bare, 256 KiB transfers", 256u << 10},
    [LARGE] = {"bare, 512 KiB transfers", 512u << 10},
    [LARGEST] = {"bare, 1 MiB transfers", MIB},
    [WRITE] = {"link, WRITE of 1 MiB", 0},
    [READ] = {"link, READ of 1 MiB", 0},
};

static void run_round(const char *name, unsigned mib, double rate[CONTENDERS]) {
    for (int c = 0; c < WRITE; c++) {
        rate[c] = bare_rate(name, (size_t)mib * MIB, contenders[c].bytes, c == DMA);
    }
    link_rates(name, mib, &rate[WRITE], &rate[READ]);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median of a contender's rate, or of WRITE's share of it in percent. */
static double median(double rate[][CONTENDERS], int rounds, enum contender c, bool share) {
    double value[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        value[i] = share ? 100 * rate[i][WRITE] / rate[i][c] : rate[i][c];
    }
    qsort(value, (size_t)rounds, sizeof *value, by_value);
    return value[rounds / 2];
}

int main(int argc, char **argv) {
    static double rate[MAX_ROUNDS][CONTENDERS];
    const char *name = argc > 1 ? argv[1] : "";
    unsigned mib = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 64;
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    for (int i = 0; i < rounds; i++) {
        run_round(name, mib, rate[i]);
    }
    printf("medians of %d rounds, %u MiB each, %d transfers in flight\n", rounds, mib, DEPTH);
    for (int c = 0; c < CONTENDERS; c++) {
        printf("%-46s %7.1f MB/s; WRITE is %3.0f %% of it\n", contenders[c].what,
               median(rate, rounds, (enum contender)c, false),
               median(rate, rounds, (enum contender)c, true));
    }
    return 0;
}
