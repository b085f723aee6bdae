/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory as the driver uses it: allocations, transfers cut into messages, and constant bytes
 * placed without a copy where the device sees the host's memory.
 */
#include "driver/device/device.h"
#include "firmware/link/packet.h"
#include "tilewright/range.h"

#include <sodium/crypto_generichash.h>

int tw_device_alloc(struct tw_device *device, uint64_t bytes, uint32_t align, bool zero,
                    uint64_t *address, tw_error *err) {
    struct tw_wire_alloc q = {
        .bytes = bytes ? bytes : 1, .align = align, .flags = zero ? TW_WIRE_ALLOC_ZERO : 0};
    struct tw_device_call call = {
        .opcode = TW_WIRE_ALLOC, .payload = &q, .bytes = sizeof q, .out_address = address};
    int code = tw_device_call(device, &call, err);
    uint64_t end;
    if (!code &&
        (*address == 0 || (*address & (align - 1)) || !tw_add_u64(*address, q.bytes, &end))) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: ALLOC of %llu bytes aligned to %u returned invalid address %llu",
                       device->selector, (unsigned long long)q.bytes, align,
                       (unsigned long long)*address);
    }
    return code;
}

void tw_device_free(struct tw_device *device, uint64_t address) {
    struct tw_device_call call = {.opcode = TW_WIRE_FREE, .address = address};
    if (address) {
        tw_device_call(device, &call, NULL);
    }
}

/* Returns how many bytes of a transfer go into the next message if `left` are left to transfer. */
static uint32_t message_bytes(const struct tw_device *device, uint64_t left) {
    uint32_t max = device->identity.max_payload & ~UINT32_C(63);
    max = max ? max : 64;
    return left < max ? (uint32_t)left : max;
}

struct write {
    const struct tw_device *device;
    uint64_t address, size;
    const uint8_t *bytes;
};

static void fill_write(void *ctx, uint64_t i, struct tw_device_call *call) {
    const struct write *w = ctx;
    uint64_t at = i * message_bytes(w->device, UINT64_MAX);
    *call = (struct tw_device_call){.opcode = TW_WIRE_WRITE,
                                    .address = w->address + at,
                                    .payload = w->bytes + at,
                                    .bytes = message_bytes(w->device, w->size - at)};
}

int tw_device_write(struct tw_device *device, uint64_t address, const void *bytes, uint64_t size,
                    tw_error *err) {
    struct write w = {device, address, size, bytes};
    uint32_t max = message_bytes(device, UINT64_MAX);
    return tw_device_call_many(device, size / max + (size % max != 0), fill_write, &w, NULL, err);
}

uint64_t tw_device_read_begin(struct tw_device_read *r, const struct tw_device *device,
                              uint64_t address, void *bytes, uint64_t size) {
    uint64_t max = message_bytes(device, UINT64_MAX), rest = size % max;
    *r = (struct tw_device_read){device, address, size, bytes, {{.bytes = max}, {.bytes = rest}}};
    return size / max + (rest != 0);
}

void tw_device_read_fill(const struct tw_device_read *r, uint64_t i, struct tw_device_call *call) {
    uint64_t at = i * r->range[0].bytes;
    const struct tw_wire_range *range = &r->range[r->size - at < r->range[0].bytes];
    *call = (struct tw_device_call){.opcode = TW_WIRE_READ,
                                    .address = r->address + at,
                                    .payload = range,
                                    .bytes = sizeof *range,
                                    .out = r->bytes + at,
                                    .out_bytes = (uint32_t)range->bytes};
}

static void fill_read(void *ctx, uint64_t i, struct tw_device_call *call) {
    tw_device_read_fill(ctx, i, call);
}

int tw_device_read(struct tw_device *device, uint64_t address, void *bytes, uint64_t size,
                   tw_error *err) {
    struct tw_device_read r;
    uint64_t n = tw_device_read_begin(&r, device, address, bytes, size);
    return tw_device_call_many(device, n, fill_read, &r, NULL, err);
}

static int place_copy(struct tw_device *device, const void *bytes, uint64_t size, uint32_t align,
                      uint64_t *address, tw_error *err) {
    uint64_t at;
    int code = tw_device_alloc(device, size, align, false, &at, err);
    if (code) {
        return code;
    }
    code = tw_device_write(device, at, bytes, size, err);
    if (code) {
        tw_device_free(device, at);
        return code;
    }
    *address = at;
    return 0;
}

static int hash_on_device(struct tw_device *device, uint64_t address, uint64_t n, uint32_t *crc,
                          tw_error *err) {
    struct tw_wire_range q = {.bytes = n};
    struct tw_wire_hash h = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_HASH,
                                  .address = address,
                                  .payload = &q,
                                  .bytes = sizeof q,
                                  .out = &h,
                                  .out_bytes = sizeof h};
    int code = tw_device_call(device, &call, err);
    *crc = h.crc32c;
    return code;
}

/* Compares samples of the kept content by hash, spread from the first byte to the last: a device
 * whose copy differs from what it claims to have kept would silently produce wrong tokens. */
static int check_kept(struct tw_device *device, const uint8_t *bytes, uint64_t size,
                      uint64_t address, tw_error *err) {
    const uint64_t piece_bytes = 64u << 10, pieces = 16;
    uint64_t n = size < piece_bytes ? size : piece_bytes;
    uint64_t step = size <= piece_bytes * pieces ? piece_bytes : (size - n) / (pieces - 1);
    for (uint64_t at = 0; at < size; at += step) {
        uint64_t some = size - at < n ? size - at : n;
        uint32_t crc = 0;
        int code = hash_on_device(device, address + at, some, &crc, err);
        if (code) {
            return code;
        }
        if (crc != tw_packet_crc32c(0, bytes + at, some)) {
            return tw_fail(err, TW_E_PROTOCOL,
                           "device %s: its kept copy of %llu bytes differs from the bundle at "
                           "offset %llu; clear it with: tilewright reset --device %s",
                           device->selector, (unsigned long long)size, (unsigned long long)at,
                           device->selector);
        }
    }
    return 0;
}

/* Reuses what the device kept from an earlier open, found by the hash of the bytes; otherwise sends
 * them and has the device keep them. */
static int place_kept(struct tw_device *device, const void *bytes, uint64_t size, uint32_t align,
                      uint64_t *address, tw_error *err) {
    struct tw_wire_content c = {.bytes = size};
    uint64_t at = 0;
    crypto_generichash(c.hash, sizeof c.hash, bytes, size, NULL, 0);
    struct tw_device_call find = {
        .opcode = TW_WIRE_FIND, .payload = &c, .bytes = sizeof c, .out_address = &at};
    int code = tw_device_call(device, &find, err);
    if (code) {
        return code;
    }
    uint64_t end;
    if (at && (at & (align - 1)) == 0 && tw_add_u64(at, size, &end)) {
        *address = at;
        code = check_kept(device, bytes, size, at, err);
        if (code) {
            tw_device_free(device, at);
        }
        return code;
    }
    tw_device_free(device, at); /* 0: there is none */
    code = place_copy(device, bytes, size, align, &at, err);
    if (code) {
        return code;
    }
    struct tw_device_call keep = {
        .opcode = TW_WIRE_KEEP, .address = at, .payload = &c, .bytes = sizeof c};
    code = tw_device_call(device, &keep, err);
    if (code) {
        tw_device_free(device, at);
        return code;
    }
    *address = at;
    return 0;
}

int tw_device_place(struct tw_device *device, const void *bytes, uint64_t size, uint32_t align,
                    uint64_t *address, tw_error *err) {
    const struct tw_transport_ops *ops = device->transport->ops;
    if (ops->adopt && size) {
        pthread_mutex_lock(&device->lock);
        int code = ops->adopt(device->transport, bytes, size, address, err);
        pthread_mutex_unlock(&device->lock);
        return code;
    }
    bool keeps = device->identity.capabilities & TW_WIRE_CAN_KEEP;
    return keeps && size ? place_kept(device, bytes, size, align, address, err)
                         : place_copy(device, bytes, size, align, address, err);
}

void *tw_device_map(struct tw_device *device, uint64_t address, uint64_t bytes) {
    const struct tw_transport_ops *ops = device->transport->ops;
    if (!ops->map) {
        return NULL;
    }
    pthread_mutex_lock(&device->lock);
    void *p = ops->map(device->transport, address, bytes);
    pthread_mutex_unlock(&device->lock);
    return p;
}
