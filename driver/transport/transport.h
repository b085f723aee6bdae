/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport: how messages of tilewright/wire.h reach a device and come back. A backend is one
 * vtable and must pass tests/driver/transport/transport_conformance_test.c. null.c is the smallest
 * one and the template for a new backend. An open transport is used by one thread at a time.
 */
#ifndef TW_DRIVER_TRANSPORT_TRANSPORT_H
#define TW_DRIVER_TRANSPORT_TRANSPORT_H

#include "tilewright/error.h"
#include "tilewright/link.h"

#include <signal.h>
#include <stdbool.h>

struct tw_transport_options {
    uint32_t n_threads;    /* of a device that runs in this process; 0: its choice */
    const char *isa;       /* instruction set of such a device, as tw_isa_name; NULL: the fastest */
    uint64_t memory_bytes; /* of such a device; 0: its choice */
    /* maximum milliseconds without progress; 0: the backend's choice */
    uint32_t deadline_ms;
};

/* What discovery reports about one device. */
struct tw_transport_info {
    char selector[80]; /* accepted by open */
    char target[64];   /* name of its target; "": accepts bundles for any target */
    char state[32];    /* "ready", or a reason: "busy", "no permission", ... */
    char detail[160];  /* one line */
    /* changes if the device was unplugged and plugged in again; 0: not applicable */
    uint32_t instance;
    /* speed of its link now, and on the best link; 0: unknown */
    uint32_t link_mbits, link_best_mbits;
};

#define TW_STOP_WORDS 2u
#define TW_STOP_GRACE_MS 40u

struct tw_transport; /* a backend's own structure, which begins with this */

struct tw_transport_ops {
    const char *name; /* the first word of its selectors: "emu", "null" */

    /* Calls found() for each device present, in a stable order, until it returns false. Never
     * fails: a device that cannot be used is reported with the reason as its state. Takes no device
     * from its holder. Any thread. */
    void (*discover)(bool (*found)(void *ctx, const struct tw_transport_info *info), void *ctx);

    /* Opens the device that `rest` names: the selector after "name:", or "" for the plain name.
     * Exclusive if the device is outside this process. *out is the caller's: close. Any thread.
     * Errors: NO_DEVICE (lists the devices present), DEVICE_BUSY (names the holder), USAGE (an
     * option that this backend does not support), NOMEM. */
    int (*open)(const char *rest, const struct tw_transport_options *options,
                struct tw_transport **out, tw_error *err);

    /* After DEVICE_LOST or TIMEOUT the handle is dead: submit and receive then fail with
     * DEVICE_LOST and the first cause without touching the device.
     *
     * Sends a request: a header and header.length bytes of payload (8-byte aligned; the caller must
     * not change them until the answer has arrived). At most `credits` requests may be unanswered.
     * Errors: DEVICE_LOST, TIMEOUT, USAGE (no credit left). */
    int (*submit)(struct tw_transport *t, const uint8_t header[TW_WIRE_HEADER_BYTES],
                  const void *payload, uint32_t payload_bytes, tw_error *err);

    /* Waits for the answer to the oldest unanswered request; answers come in the order of their
     * requests. *payload is valid until the next submit or receive. Does not interpret the message.
     * Errors: DEVICE_LOST, TIMEOUT, USAGE (nothing is unanswered). */
    int (*receive)(struct tw_transport *t, uint8_t header[TW_WIRE_HEADER_BYTES],
                   const void **payload, uint32_t *payload_bytes, tw_error *err);

    /* Optional; NULL if the device cannot access host memory. Makes host memory, which must stay
     * mapped and unchanged, a read-only allocation of the device without copying it; FREE ends
     * that. Errors: NOMEM, RANGE. */
    int (*adopt)(struct tw_transport *t, const void *bytes, uint64_t size, uint64_t *address,
                 tw_error *err);

    /* Optional; NULL if the device does not share its memory. Returns a host pointer to device
     * memory, or NULL if the range is not inside one allocation. */
    void *(*map)(struct tw_transport *t, uint64_t address, uint64_t bytes);

    /* Optional. Returns whether the handle ended by a TIMEOUT in the middle of a program's step;
     * *out then has the op that has not ended, and one that waits for it. */
    bool (*stuck)(struct tw_transport *t, struct tw_link_progress *out);

    /* Releases the device and frees the transport. Legal at any time; unanswered requests are
     * dropped. */
    void (*close)(struct tw_transport *t);
};

/* Transmission errors that were recovered; zeros if the transport has none. */
struct tw_transport_count {
    uint64_t resent;  /* retransmissions, in either direction */
    uint64_t damaged; /* packets received damaged */
};

struct tw_transport {
    const struct tw_transport_ops *ops;
    uint32_t credits;                     /* >= 1 */
    uint32_t link_mbits, link_best_mbits; /* as in tw_transport_info */
    struct tw_transport_count count;
    /* recovery steps that open had to take, in words; NULL or "": none */
    const char *recovered;
    /* Set by the owner for the requests that it submits and receives: words that a signal handler
     * or another thread may set (loader/base/stop.h); each may be NULL. When one of them is set,
     * the backend lets what is executing go on for TW_STOP_GRACE_MS, so that an ordinary step
     * completes, then ends it: the device refuses it with INTERRUPTED. A device that does not end
     * it in time, or cannot (can_cancel), is let go of: receive fails with INTERRUPTED, and the
     * handle is dead. */
    const volatile sig_atomic_t *stop[TW_STOP_WORDS];
    bool can_cancel; /* set by the owner: TW_WIRE_CAN_CANCEL of the device's identity */
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
