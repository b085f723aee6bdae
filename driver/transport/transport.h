/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport: how messages of tilewright/wire.h reach a device and come back. One vtable; each
 * backend is one file and passes tests/driver/transport/transport_conformance_test.c. null.c is the
 * smallest legal one and the skeleton to copy.
 */
#ifndef TW_DRIVER_TRANSPORT_TRANSPORT_H
#define TW_DRIVER_TRANSPORT_TRANSPORT_H

#include "tilewright/error.h"
#include "tilewright/link.h"

#include <stdbool.h>

struct tw_transport_options {
    uint32_t n_threads;    /* of a device that runs in this process; 0: its choice */
    const char *isa;       /* instruction set of such a device, as tw_isa_name; NULL: the fastest */
    uint64_t memory_bytes; /* of such a device; 0: its choice */
    /* without progress, after which a device is given up; 0: the backend's choice */
    uint32_t deadline_ms;
};

/* What discovery tells about one device. */
struct tw_transport_info {
    char selector[80]; /* accepted by open */
    char target[64];   /* the machine it is; "" takes any bundle's */
    char state[32];    /* "ready", or a reason: "busy", "no permission", ... */
    char detail[160];  /* one line */
    /* changes when the device went and came back meanwhile; 0: it cannot */
    uint32_t instance;
    /* of its link now, and of the best it could have; 0: not known */
    uint32_t link_mbits, link_best_mbits;
};

struct tw_transport; /* a backend's own structure, which begins with this */

struct tw_transport_ops {
    const char *name; /* the first word of its selectors: "emu", "null" */

    /* Calls found() for each device there is, in a stable order, until it returns false. Never
     * fails as a whole: what cannot be used is reported with its reason as state. Opens nothing. */
    void (*discover)(bool (*found)(void *ctx, const struct tw_transport_info *info), void *ctx);

    /* Opens the device that `rest` names: the selector after "name:", or "" for the plain name.
     * Exclusive where the device is a thing outside of this process. Errors: NO_DEVICE (names those
     * there are), DEVICE_BUSY (names the holder), USAGE (an option that this backend cannot
     * honour), NOMEM. */
    int (*open)(const char *rest, const struct tw_transport_options *options,
                struct tw_transport **out, tw_error *err);

    /* After DEVICE_LOST or TIMEOUT the handle is dead: submit and receive say DEVICE_LOST with the
     * cause and touch nothing.
     *
     * Sends a request: a whole header and header.length bytes of payload (8-byte aligned; the
     * caller keeps them unchanged until the answer has come). At most `credits` requests may be
     * unanswered. Errors: DEVICE_LOST, TIMEOUT, USAGE (no credit left). */
    int (*submit)(struct tw_transport *t, const uint8_t header[TW_WIRE_HEADER_BYTES],
                  const void *payload, uint32_t payload_bytes, tw_error *err);

    /* Waits for the answer to the oldest unanswered request; answers come in the order of their
     * requests. *payload is valid until the next submit or receive. Errors: DEVICE_LOST, TIMEOUT,
     * USAGE (nothing is unanswered). Does not look into the message. */
    int (*receive)(struct tw_transport *t, uint8_t header[TW_WIRE_HEADER_BYTES],
                   const void **payload, uint32_t *payload_bytes, tw_error *err);

    /* Optional. Makes host memory that stays mapped and unchanged a read-only allocation of the
     * device without a copy; FREE forgets it. Errors: NOMEM, RANGE. NULL: the device does not see
     * host memory. */
    int (*adopt)(struct tw_transport *t, const void *bytes, uint64_t size, uint64_t *address,
                 tw_error *err);

    /* Optional. Host pointer to device memory, or NULL where the range is not inside one
     * allocation. NULL: not shared.
     */
    void *(*map)(struct tw_transport *t, uint64_t address, uint64_t bytes);

    /* Optional. True after a TIMEOUT in the middle of a program's step: the op that has not ended,
     * and one that waits. */
    bool (*stuck)(struct tw_transport *t, struct tw_link_progress *out);

    /* Gives the device back. Legal at any time; unanswered requests are dropped. */
    void (*close)(struct tw_transport *t);
};

/* What went wrong on the way and was mended; zeros where nothing can. */
struct tw_transport_count {
    uint64_t resent;  /* times that one side had to send something again */
    uint64_t damaged; /* packets */
};

struct tw_transport {
    const struct tw_transport_ops *ops;
    uint32_t credits;                     /* >= 1 */
    uint32_t link_mbits, link_best_mbits; /* as discovery tells */
    struct tw_transport_count count;
    /* what open did to make the device answer, in words; NULL or "": nothing */
    const char *recovered;
    /* Set by the owner, or NULL: called inside submit and receive when the device makes progress
     * while they wait. */
    void (*on_progress)(void *ctx);
    void *progress_ctx;
};

/* The backends, in the order in which discovery lists them; NULL-terminated. */
extern const struct tw_transport_ops *const tw_transports[];

extern const struct tw_transport_ops tw_transport_emu;
extern const struct tw_transport_ops tw_transport_null;
extern const struct tw_transport_ops tw_transport_socket;
extern const struct tw_transport_ops tw_transport_usb;
extern const struct tw_transport_ops tw_transport_pcie;

#endif
