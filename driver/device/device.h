/* SPDX-License-Identifier: Apache-2.0
 *
 * An open device: a transport, who it said it is, and one lock that keeps a request and its answer
 * together.
 */
#ifndef TW_DRIVER_DEVICE_DEVICE_H
#define TW_DRIVER_DEVICE_DEVICE_H

#include "driver/status/status.h"
#include "driver/transport/transport.h"
#include "loader/target/target_open.h"
#include "tilewright/tilewright.h"

#include <pthread.h>
#include <stdatomic.h>

struct tw_device {
    struct tw_transport *transport;
    _Atomic uint32_t users;  /* besides the caller: deployments */
    _Atomic uint32_t resets; /* what was made before the last one is not there any more */
    pthread_mutex_t lock;
    uint32_t sequence;
    uint64_t sent_bytes; /* payloads of requests: what placing weights costs */
    /* 0, or why every call fails from now on: DEVICE_LOST, TIMEOUT, PROTOCOL, VERSION */
    int lost;
    char cause[200];
    struct tw_wire_identity identity;
    /* The machine that it is, where it describes itself in full; else "" and zeros. */
    char target_text[TW_TARGET_TEXT_BYTES];
    uint8_t target_hash[TW_HASH_BYTES];
    struct tw_status status;
    char selector[128];
};

/* One more user of an open device; each ends with tw_device_close. */
void tw_device_retain(struct tw_device *device);
/* USAGE: the device has been reset since `resets` was read. */
int tw_device_check_reset(const struct tw_device *device, uint32_t resets, tw_error *err);

/* An entry of the list. */
struct tw_device_info tw_device_describe(const struct tw_transport_info *t, uint32_t index);

/* One request. The answer's payload is copied to out (out_bytes, exactly what the opcode answers
 * with), its address to
 * *out_address (may be NULL). A refusal fills *failure (may be NULL) and gives its code. Errors:
 * what the device answered; DEVICE_LOST, TIMEOUT, PROTOCOL (the answer does not fit the
 * request). */
struct tw_device_call {
    enum tw_wire_opcode opcode;
    uint64_t address;
    const void *payload; /* 8-byte aligned */
    uint32_t bytes;
    void *out;
    uint32_t out_bytes;
    uint32_t *out_length; /* not NULL: the answer may be shorter, and this is how long it was */
    uint64_t *out_address;
    struct tw_wire_failure *failure;
};
int tw_device_call(struct tw_device *device, const struct tw_device_call *call, tw_error *err);
/* True after a TIMEOUT in the middle of a step: the op that has not ended, and one that waits for
 * it. */
bool tw_device_is_stuck(struct tw_device *device, struct tw_link_progress *out);
/* n requests, as many in flight as the device takes, at most TW_DEVICE_IN_FLIGHT; answered in
 * order. The first error counts: *n_good (may be NULL) requests before it were answered well, and
 * what comes behind it may have been done. fill(ctx, i, call) makes the i-th; payload and out stay
 * the call's until its answer, or the end. */
#define TW_DEVICE_IN_FLIGHT TW_LINK_CREDITS
int tw_device_call_many(struct tw_device *device, uint64_t n,
                        void (*fill)(void *ctx, uint64_t i, struct tw_device_call *call), void *ctx,
                        uint64_t *n_good, tw_error *err);

/* Device memory. alloc: zeroed if `zero`. free never fails: what cannot be freed is the device's
 * until its reset. */
int tw_device_alloc(struct tw_device *device, uint64_t bytes, uint32_t align, bool zero,
                    uint64_t *address, tw_error *err);
void tw_device_free(struct tw_device *device, uint64_t address);
/* Any size; cut into messages. */
int tw_device_write(struct tw_device *device, uint64_t address, const void *bytes, uint64_t size,
                    tw_error *err);
int tw_device_read(struct tw_device *device, uint64_t address, void *bytes, uint64_t size,
                   tw_error *err);
/* A read as requests among others of tw_device_call_many: how many it takes, and the i-th of
 * them. */
struct tw_device_read {
    const struct tw_device *device;
    uint64_t address, size;
    uint8_t *bytes;
    struct tw_wire_range range[2]; /* of a full message, and of the last one */
};
uint64_t tw_device_read_begin(struct tw_device_read *r, const struct tw_device *device,
                              uint64_t address, void *bytes, uint64_t size);
void tw_device_read_fill(const struct tw_device_read *r, uint64_t i, struct tw_device_call *call);
/* Constant host bytes on the device: in place where the device sees them, as the device has them
 * where it kept the same content, else a copy. */
int tw_device_place(struct tw_device *device, const void *bytes, uint64_t size, uint32_t align,
                    uint64_t *address, tw_error *err);
/* Host pointer to device memory, or NULL where the device does not share its memory. */
void *tw_device_map(struct tw_device *device, uint64_t address, uint64_t bytes);

#endif
