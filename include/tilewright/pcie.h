/* SPDX-License-Identifier: Apache-2.0
 *
 * A Tilewright device on PCIe. BAR2 is memory: one page of registers, then a window. Packets of
 * tilewright/link.h lie in a mailbox, which the host places in its own memory (reached by DMA) or
 * in the window. A doorbell tells the device, MSI-X vector 0 tells the host that something moved.
 * Registers are plain little-endian memory, so a read has no effect, and each word has one writer.
 * All counters run freely modulo 2^32. Freestanding.
 *
 * To start: the device fills its part and writes `magic` last. The host writes its part, then start
 * = start + 1 (never 0), and rings. The device takes the mailbox over, where it sets its counters
 * to those of the host (done = to_device, to_host = taken: nothing is on its way), sets started =
 * start and interrupts; `fault` tells why it could not. So the host's counters run on from start to
 * start, and from host to host. A start while it runs drops the packets on their way and nothing
 * else: the link sends them again, and another host shows itself by its OPEN. To end: mailbox_kind
 * NONE and a start; the host of before has gone, and when started = start the device touches the
 * mailbox no more. RESET: the host writes reset = reset + 1 and rings; the device drops its host,
 * frees what that had and sets was_reset = reset. `magic` is 0 once the device has ended, and all
 * ones where no device is behind the bus.
 */
#ifndef TILEWRIGHT_PCIE_H
#define TILEWRIGHT_PCIE_H

#include "tilewright/link.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_PCIE_MAGIC 0x43505754u /* "TWPC" */
#define TW_PCIE_VERSION 1u
#define TW_PCIE_REGISTER_BYTES 4096u
#define TW_PCIE_CHUNK (64u << 10) /* data bytes of a packet in a slot, at most */

enum tw_pcie_mailbox_kind { TW_PCIE_NONE = 0, TW_PCIE_IN_WINDOW = 1, TW_PCIE_IN_HOST = 2 };
enum tw_pcie_state { TW_PCIE_RUNS = 1, TW_PCIE_RECOVERY = 2 };
/* What the host wants to be interrupted for. State, fault, started and was_reset interrupt with any
 * of them. */
enum tw_pcie_armed { TW_PCIE_ARM_PACKET = 1, TW_PCIE_ARM_ROOM = 2 };

struct tw_pcie_registers {
    /* Written by the device. */
    uint32_t magic, version;
    uint32_t state;                       /* tw_pcie_state */
    uint32_t firmware_version;            /* major << 16 | minor << 8 | patch */
    uint32_t max_slots;                   /* of each direction */
    uint32_t dma_bits;                    /* it reaches host addresses below 2^dma_bits */
    uint64_t window_offset, window_bytes; /* in BAR2 */
    uint32_t started, was_reset;
    uint32_t generation; /* of the present open; 0: nobody has it */
    /* Since the last start: 0, or why the device has let the mailbox go, a TW_E_* code as is, and
     * where. RANGE: it could not reach it; PROTOCOL: what it found there makes no sense; IO: an
     * emulator that has no access to this machine. */
    int32_t fault;
    uint64_t fault_address;
    /* as if a PING had come; at most 50 ms old while it is started */
    struct tw_link_progress progress;
    char reason[120]; /* RECOVERY: why; terminated */
    /* changes whenever `progress` has been written, even to the same */
    uint32_t alive;

    /* Written by the host; offset 1024. */
    uint8_t reserved[780];
    uint32_t start, reset;
    uint32_t mailbox_kind; /* tw_pcie_mailbox_kind */
    uint32_t n_slots;      /* of each direction; a power of two, at most max_slots */
    uint64_t mailbox;      /* offset in the window, or DMA address; a multiple of 4096 */
    /* a multiple of 4096, at least TW_LINK_HEADER_BYTES + TW_PCIE_CHUNK, at most 1 MiB */
    uint32_t slot_bytes;
    uint32_t armed;     /* tw_pcie_armed bits; 0: the host looks by itself */
    uint32_t to_device; /* packets that the host has put in */
    uint32_t taken;     /* packets that the host has taken out */
};
TW_STATIC_ASSERT(offsetof(struct tw_pcie_registers, start) == 1024, "pcie registers");

/* The mailbox: a page of counters and lengths, then n_slots slots to the device, then n_slots slots
 * to the host. The packet number k lies in slot k % n_slots. */
#define TW_PCIE_MAX_SLOTS 64u
struct tw_pcie_mailbox {
    /* Written by the device. */
    /* packets that the device has put in; written after the packet and its length */
    uint32_t to_host;
    uint32_t done;       /* packets that the device has taken out */
    uint32_t wants_room; /* 1: it waits for a slot, so ring after `taken` has moved */
    uint32_t reserved[13];
    uint32_t to_host_bytes[TW_PCIE_MAX_SLOTS];
    /* Written by the host. */
    uint32_t to_device_bytes[TW_PCIE_MAX_SLOTS];
};
#define TW_PCIE_MAILBOX_HEAD 4096u
TW_STATIC_ASSERT(sizeof(struct tw_pcie_mailbox) <= TW_PCIE_MAILBOX_HEAD, "pcie mailbox");

/* Bytes of a mailbox. */
static inline uint64_t tw_pcie_mailbox_bytes(uint32_t n_slots, uint32_t slot_bytes) {
    return TW_PCIE_MAILBOX_HEAD + 2ull * n_slots * slot_bytes;
}

/* Words that the other side writes or reads meanwhile: a load orders what follows behind it, a
 * store what came before it. */
static inline uint32_t tw_pcie_load(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void tw_pcie_store(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
/* Between a store that the other side may wait for and the load that tells whether it does. */
static inline void tw_pcie_fence(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#ifdef __cplusplus
}
#endif
#endif
