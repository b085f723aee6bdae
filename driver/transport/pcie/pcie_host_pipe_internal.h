/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by pcie_host_pipe.c (packets, waiting) and pcie_start.c (identification; start, reset,
 * end): the host's side of a mailbox.
 */
#ifndef TW_DRIVER_TRANSPORT_PCIE_PCIE_HOST_PIPE_INTERNAL_H
#define TW_DRIVER_TRANSPORT_PCIE_PCIE_HOST_PIPE_INTERNAL_H

#include "driver/transport/pcie/pcie_host_pipe.h"
#include "loader/base/compiler.h"

#include <pthread.h>
#include <stdatomic.h>

struct host {
    struct tw_pipe pipe;
    struct tw_pcie_side side;
    char name[96];
    struct tw_pcie_registers *regs;
    uint8_t *box; /* the mailbox: host memory, or in the window */
    uint32_t start, reset;
    int wake; /* rung when the pipe is gone */

    pthread_mutex_t lock; /* for sending */
    uint32_t to_device;
    bool room_out; /* room() has lent the next slot */

    /* blamed: a thread has begun to write `cause`; gone: `cause` is complete, the pipe is dead */
    _Atomic bool blamed, gone;
    char cause[200];
    uint32_t taken; /* packets; used by the thread that takes */
    union {
        uint8_t bytes[TW_PCIE_SLOT_BYTES];
        uint64_t words[TW_PCIE_SLOT_BYTES / 8];
    } in;
};

static inline struct tw_pcie_mailbox *tw_pcie_head(const struct host *h) {
    return (struct tw_pcie_mailbox *)(void *)h->box;
}

static inline void tw_pcie_ring(const struct host *h) {
    h->side.ring(h->side.ctx);
}

/* ---- pcie_host_pipe.c; any thread ---- */

/* Marks the pipe as gone; the first cause is kept. */
void tw_pcie_fail_pipe(struct host *h, const char *format, ...) TW_PRINTF(2, 3);
/* Returns the fault that the device found with the mailbox of this start: 0 or a TW_E_* code. */
int32_t tw_pcie_fault(const struct host *h);
/* Checks that the device is still present and has found no fault; else marks the pipe as gone. */
void tw_pcie_probe(struct host *h);

/* Implement tw_pipe_ops. */
enum tw_packet_result tw_pcie_send(struct tw_pipe *p, const uint8_t *bytes, size_t n);
enum tw_packet_result tw_pcie_take(struct tw_pipe *p, uint8_t **bytes, size_t *n);
bool tw_pcie_wait(struct tw_pipe *p, bool write, int ms);
uint8_t *tw_pcie_room(struct tw_pipe *p);

#endif
