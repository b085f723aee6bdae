/* SPDX-License-Identifier: Apache-2.0
 *
 * A Tilewright device on PCIe. BAR2 is memory: one page of registers, then a window. Packets of
 * tilewright/link.h are exchanged through a mailbox, which the host places in its own memory
 * (reached by DMA) or in the window. A doorbell notifies the device, MSI-X vector 0 notifies the
 * host of progress. Registers are plain little-endian memory, so a read has no side effect, and
 * each word has one writer. All counters run freely modulo 2^32. Freestanding.
 *
 * Start: the device fills its part and writes `magic` last. The host writes its part, then start =
 * start + 1 (never 0), and rings the doorbell. The device takes over the mailbox, sets its counters
 * there to those of the host (done = to_device, to_host = taken: no packet is in flight), sets
 * started = start and interrupts; if it could not, `fault` says why. So the host's counters
 * continue from start to start, and from host to host. A start while the link is running drops the
 * packets in flight and nothing else: the link resends them, and a different host identifies itself
 * by its OPEN.
 *
 * End: mailbox_kind NONE and a start; the previous host is then gone, and from started = start on
 * the device no longer accesses the mailbox.
 *
 * Reset: the host writes reset = reset + 1 and rings the doorbell; the device drops its host, frees
 * that host's resources and sets was_reset = reset.
 *
 * `magic` is 0 once the device has stopped, and all ones if there is no device on the bus.
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
#define TW_PCIE_CHUNK (64u << 10) /* maximum number of data bytes of a packet in a slot */

enum tw_pcie_mailbox_kind { TW_PCIE_NONE = 0, TW_PCIE_IN_WINDOW = 1, TW_PCIE_IN_HOST = 2 };
enum tw_pcie_state { TW_PCIE_RUNS = 1, TW_PCIE_RECOVERY = 2 };
/* What the host wants to be interrupted for. Changes of state, fault, started and was_reset
 * interrupt if any of them is set. */
enum tw_pcie_armed { TW_PCIE_ARM_PACKET = 1, TW_PCIE_ARM_ROOM = 2 };

struct tw_pcie_registers {
    /* Written by the device. */
    uint32_t magic, version;
    uint32_t state;                       /* tw_pcie_state */
    uint32_t firmware_version;            /* major << 16 | minor << 8 | patch */
    uint32_t max_slots;                   /* per direction */
    uint32_t dma_bits;                    /* the device reaches host addresses below 2^dma_bits */
    uint64_t window_offset, window_bytes; /* in BAR2 */
    uint32_t started, was_reset;
    uint32_t generation; /* of the current open; 0: no host has the device open */
    /* Since the last start: 0, or why the device has released the mailbox, as a TW_E_* code, and at
     * which address. RANGE: it could not reach the mailbox; PROTOCOL: the mailbox is inconsistent;
     * IO: an emulator without access to this machine's memory. */
    int32_t fault;
    uint64_t fault_address;
    /* the same as the answer to a PING; at most 50 ms old while the link is started */
    struct tw_link_progress progress;
    char reason[120]; /* RECOVERY: the reason, NUL-terminated */
    /* changes whenever `progress` has been written, even if it is the same */
    uint32_t alive;

    /* Written by the host; offset 1024. */
    uint8_t reserved[780];
    uint32_t start, reset;
    uint32_t mailbox_kind; /* tw_pcie_mailbox_kind */
    uint32_t n_slots;      /* per direction; a power of two, at most max_slots */
    uint64_t mailbox;      /* offset in the window, or DMA address; a multiple of 4096 */
    /* a multiple of 4096, from TW_LINK_HEADER_BYTES + TW_PCIE_CHUNK to 1 MiB */
    uint32_t slot_bytes;
    uint32_t armed;     /* tw_pcie_armed bits; 0: the host polls */
    uint32_t to_device; /* number of packets that the host has put in */
    uint32_t taken;     /* number of packets that the host has taken out */
};
TW_STATIC_ASSERT(offsetof(struct tw_pcie_registers, start) == 1024, "pcie registers");

/* The mailbox: a page of counters and lengths, then n_slots slots to the device, then n_slots slots
 * to the host. Packet number k is in slot k % n_slots. */
#define TW_PCIE_MAX_SLOTS 64u
struct tw_pcie_mailbox {
    /* Written by the device. */
    /* number of packets that the device has put in; written after the packet and its length */
    uint32_t to_host;
    uint32_t done; /* number of packets that the device has taken out */
    /* 1: the device waits for a slot, so ring the doorbell after advancing `taken` */
    uint32_t wants_room;
    uint32_t reserved[13];
    uint32_t to_host_bytes[TW_PCIE_MAX_SLOTS];
    /* Written by the host. */
    uint32_t to_device_bytes[TW_PCIE_MAX_SLOTS];
};
#define TW_PCIE_MAILBOX_HEAD 4096u
TW_STATIC_ASSERT(sizeof(struct tw_pcie_mailbox) <= TW_PCIE_MAILBOX_HEAD, "pcie mailbox");

/* Returns the bytes of a mailbox. */
static inline uint64_t tw_pcie_mailbox_bytes(uint32_t n_slots, uint32_t slot_bytes) {
    return TW_PCIE_MAILBOX_HEAD + 2ull * n_slots * slot_bytes;
}

/* Access to words that the other side reads or writes concurrently: later accesses stay after the
 * load (acquire), earlier ones before the store (release). */
static inline uint32_t tw_pcie_load(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void tw_pcie_store(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
/* Orders a store that the other side may be waiting for before the load that tells whether it
 * is. */
static inline void tw_pcie_fence(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#ifdef __cplusplus
}
#endif
#endif
