/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the device's side of a PCIe mailbox: a host that writes anything anywhere in the registers
 * and the mailbox, takes its memory away, and starts again. Input: records of
 *   action u8, at u16, value u32
 * At most one packet of each size class goes back. The device may only access BAR2 and the host's
 * memory.
 */
#include "firmware/pcie/pcie_device.h"
#include "loader/base/event.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOT (17u * 4096u)
#define BAR2 (4096u * 2 + 4 * SLOT)
#define MEMORY (4096u + 4 * SLOT)
#define MEMORY_AT 0x40000000u

enum action {
    REGISTER,
    HOST_WORD,
    MAILBOX_WORD,
    START_HOST,
    START_WINDOW,
    RING,
    TAKE,
    SEND,
    MAP,
    STRAY,
    LIMIT
};

static struct {
    uint8_t *bar2, *memory;
    bool mapped, read_only;
    struct tw_pipe *pipe;
} f;

static uint8_t *reach(void *ctx, uint64_t address, uint64_t *bytes, bool write) {
    (void)ctx;
    uint64_t at = address - MEMORY_AT;
    if (!f.mapped || (write && f.read_only) || at >= MEMORY) {
        return NULL;
    }
    *bytes = 4096 - at % 4096;
    return f.memory + at;
}

static void interrupt(void *ctx) {
    (void)ctx;
}

static void put(uint8_t *memory, uint32_t limit, uint32_t at, uint32_t value) {
    __atomic_store_n((uint32_t *)(void *)(memory + at % (limit / 4) * 4), value, __ATOMIC_RELEASE);
}

static void start(uint32_t kind, uint32_t value) {
    struct tw_pcie_registers *r = (void *)f.bar2;
    r->mailbox_kind = kind;
    r->mailbox = kind == TW_PCIE_IN_HOST ? MEMORY_AT : 0;
    r->n_slots = 2;
    r->slot_bytes = SLOT;
    r->to_device = value;
    tw_pcie_store(&r->start, r->start + 1);
}

/* Takes all packets. Their number is limited by the slots; a device that returns more might never
 * stop. */
static void take_all(void) {
    uint8_t *bytes;
    size_t n;
    for (int i = 0; f.pipe->ops->take(f.pipe, &bytes, &n) == TW_PACKET_OK; i++) {
        if (n > TW_PACKET_BYTES || i > 8) {
            abort();
        }
        for (size_t k = 0; k < n; k++) {
            bytes[k] ^= 1;
        }
    }
}

static void act(uint8_t action, uint16_t at, uint32_t value) {
    static uint8_t packet[SLOT];
    switch ((enum action)(action % LIMIT)) {
    case REGISTER:
        put(f.bar2, 4096, at, value);
        break;
    case HOST_WORD:
        put(f.bar2 + offsetof(struct tw_pcie_registers, start), 48, at, value);
        break;
    case MAILBOX_WORD:
        put(at & 0x8000 ? f.memory : f.bar2 + 4096, 1024, at, value);
        break;
    case START_HOST:
    case START_WINDOW:
        start(action % LIMIT == START_HOST ? TW_PCIE_IN_HOST : TW_PCIE_IN_WINDOW, value);
        break;
    case RING:
        tw_event_signal(f.pipe->fd);
        break;
    case TAKE:
        take_all();
        break;
    case SEND:
        f.pipe->ops->send(f.pipe, packet, 1 + value % (TW_LINK_HEADER_BYTES + TW_PCIE_CHUNK));
        break;
    case MAP:
        f.mapped = at & 1;
        f.read_only = at & 2;
        break;
    case STRAY:
        f.pipe->ops->wait(f.pipe, at & 1, 0);
        break;
    case LIMIT:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int doorbell = tw_event_create();
    f.bar2 = aligned_alloc(4096, BAR2);
    f.memory = aligned_alloc(4096, MEMORY);
    f.mapped = true;
    f.read_only = false;
    memset(f.bar2, 0, BAR2);
    memset(f.memory, 0, MEMORY);
    const struct tw_pcie_device_options o = {.access = {.bar2 = f.bar2,
                                                        .bar2_bytes = BAR2,
                                                        .doorbell = doorbell,
                                                        .reach = reach,
                                                        .interrupt = interrupt},
                                             .dma_bits = 48};
    if (doorbell < 0 || tw_pcie_device_create(&o, &f.pipe, NULL)) {
        abort();
    }
    for (; size >= 7; data += 7, size -= 7) {
        act(data[0], (uint16_t)tw_wire_get(data + 1, 2), (uint32_t)tw_wire_get(data + 3, 4));
    }
    take_all();
    f.pipe->ops->close(f.pipe);
    close(doorbell);
    free(f.bar2);
    free(f.memory);
    return 0;
}
