/* SPDX-License-Identifier: Apache-2.0
 *
 * An open device: a transport, the identity that the device reported, and a lock that keeps a
 * request and its answer together. Every function may be called from any thread.
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
    _Atomic uint32_t users;  /* references besides the caller's: deployments */
    _Atomic uint32_t resets; /* device memory allocated before the last one is gone */
    pthread_mutex_t lock;
    uint32_t sequence;
    uint64_t sent_bytes; /* payloads of all requests */
    /* 0, or the code for which every call fails from now on: DEVICE_LOST, TIMEOUT, PROTOCOL,
     * VERSION, INTERRUPTED */
    int lost;
    char cause[200];
    struct tw_wire_identity identity;
    /* what programs may need at most; of a device that does not say (no TW_WIRE_CAN_LIMITS)
     * anything */
    struct tw_requirements limits;
    /* The device's target, if it describes it in full; else "" and zeros. */
    char target_text[TW_TARGET_TEXT_BYTES];
    uint8_t target_hash[TW_HASH_BYTES];
    struct tw_status status;
    char selector[128];
};

/* Adds a reference to an open device, which tw_device_close() drops. */
void tw_device_retain(struct tw_device *device);
/* Returns USAGE if the device has been reset since `resets` was read. */
int tw_device_check_reset(const struct tw_device *device, uint32_t resets, tw_error *err);

/* Makes entry `index` of the list of what discovery reports; its texts are made printable. */
struct tw_device_info tw_device_describe(const struct tw_transport_info *t, uint32_t index);

/* One request and where its answer goes. */
struct tw_device_call {
    enum tw_wire_opcode opcode;
    uint64_t address;
    const void *payload; /* 8-byte aligned; must not change until the answer */
    uint32_t bytes;      /* of the payload */
    void *out;           /* receives the answer's payload, which has exactly out_bytes */
    uint32_t out_bytes;
    uint32_t *out_length;            /* or NULL; else the answer may be shorter: its length */
    uint64_t *out_address;           /* or NULL; the answer's address */
    struct tw_wire_failure *failure; /* or NULL; filled when the device refuses the request */
    /* or NULL; the TW_STOP_WORDS words that end the request: tw_transport.stop */
    const volatile sig_atomic_t *const *stop;
};
/* Sends a request and waits for its answer. Errors: the code with which the device refused;
 * DEVICE_LOST, TIMEOUT, PROTOCOL (the answer does not match the request); INTERRUPTED (a stop
 * word). */
int tw_device_call(struct tw_device *device, const struct tw_device_call *call, tw_error *err);
/* Returns whether the device was lost by a TIMEOUT in the middle of a step; *out then names the op
 * that has not ended, and one that waits for it. */
bool tw_device_is_stuck(struct tw_device *device, struct tw_link_progress *out);
/* Sends n requests, with as many in flight as the device allows, at most TW_DEVICE_IN_FLIGHT;
 * fill(ctx, i, call) fills in the i-th. Answers come in order. Returns the first error; *n_good
 * (may be NULL) requests before it succeeded, and later ones may have been executed. A call's
 * payload and out must stay valid until its answer or this function's return. Errors: those of
 * tw_device_call(). */
#define TW_DEVICE_IN_FLIGHT TW_LINK_CREDITS
int tw_device_call_many(struct tw_device *device, uint64_t n,
                        void (*fill)(void *ctx, uint64_t i, struct tw_device_call *call), void *ctx,
                        uint64_t *n_good, tw_error *err);

/* Allocates device memory, zeroed if `zero`; `align` is a power of two. *address is the caller's:
 * tw_device_free(). Errors: NOMEM and those of tw_device_call(). */
int tw_device_alloc(struct tw_device *device, uint64_t bytes, uint32_t align, bool zero,
                    uint64_t *address, tw_error *err);
/* Frees device memory; address 0 is legal. Errors are ignored: what cannot be freed stays allocated
 * until the device is reset. */
void tw_device_free(struct tw_device *device, uint64_t address);
/* Copy to and from device memory, `size` bytes split into messages. Errors: those of
 * tw_device_call(). */
int tw_device_write(struct tw_device *device, uint64_t address, const void *bytes, uint64_t size,
                    tw_error *err);
int tw_device_read(struct tw_device *device, uint64_t address, void *bytes, uint64_t size,
                   tw_error *err);
/* A read as part of a tw_device_call_many(). */
struct tw_device_read {
    const struct tw_device *device;
    uint64_t address, size;
    uint8_t *bytes;
    struct tw_wire_range range[2]; /* of a full message, and of the last one */
};
/* Prepares a read and returns how many requests it takes. */
uint64_t tw_device_read_begin(struct tw_device_read *r, const struct tw_device *device,
                              uint64_t address, void *bytes, uint64_t size);
/* Fills in the i-th request of the read. */
void tw_device_read_fill(const struct tw_device_read *r, uint64_t i, struct tw_device_call *call);
/* Makes constant host bytes available on the device: in place if the device can access host memory,
 * as an existing copy if the device kept the same content, else as a new copy. `bytes` must stay
 * valid and unchanged until tw_device_free(*address). Errors: those of tw_device_call(), NOMEM,
 * PROTOCOL (the kept content differs). */
int tw_device_place(struct tw_device *device, const void *bytes, uint64_t size, uint32_t align,
                    uint64_t *address, tw_error *err);
/* Returns a host pointer to device memory; NULL if the device does not share its memory. */
void *tw_device_map(struct tw_device *device, uint64_t address, uint64_t bytes);

#endif
