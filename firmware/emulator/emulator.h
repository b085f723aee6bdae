/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator port: the firmware inside the driver's own process. Device memory is host memory and
 * a device address is the pointer's value, so weights that the host has mapped are used in place.
 * A fast step is the replay of a plan on a few host threads.
 */
#ifndef TW_FIRMWARE_EMULATOR_EMULATOR_H
#define TW_FIRMWARE_EMULATOR_EMULATOR_H

#include "firmware/core/server/server.h"
#include "tilewright/error.h"
#include "tilewright/link.h"

#define TW_EMU_MAX_THREADS 256u

struct tw_emu; /* opaque */

struct tw_emu_options {
    const char *target; /* name of the machine; "" or NULL: that of any bundle */
    /* that machine's canonical JSON, copied; NULL: DESCRIBE is refused */
    const char *description;
    /* maximum number of threads of fast mode; 0: the processors that this process may use */
    uint32_t n_threads;
    uint64_t memory_bytes;                 /* of the device; 0: what the host has */
    uint32_t max_payload;                  /* of a message; 0: TW_WIRE_MAX_PAYLOAD */
    bool can_cancel;                       /* as in struct tw_server_port */
    const struct tw_kernel_table *kernels; /* NULL: the fastest for this processor */
    const struct tw_requirements *limits;  /* as in struct tw_server_port */
    /* Checks programs at LOAD, without a context; NULL: the host has checked them, as a driver in
     * this process does when it opens a bundle. */
    tw_server_verifier *verify;
    struct tw_interrupt interrupt; /* as in struct tw_server_port */
};

/* Creates a device. Its worker threads, n_threads - 1 at most, start when a program that needs them
 * is loaded; they spin for a moment after each step and then sleep. Errors: NOMEM. */
int tw_emu_create(const struct tw_emu_options *options, struct tw_emu **out, tw_error *err);
/* Resets the device and ends the workers. NULL is legal. */
void tw_emu_destroy(struct tw_emu *emu);

/* Handles one request, as tw_server_handle (firmware/core/server/server.h). One caller at a time;
 * the caller's thread is worker 0. */
void tw_emu_handle(struct tw_emu *emu, const uint8_t *header, const void *payload,
                   uint64_t payload_bytes, struct tw_server_answer *answer);

/* Makes a range of host memory a read-only allocation without copying it; the caller keeps it
 * mapped and unchanged until it is freed by FREE. *address is the pointer's value. Errors: NOMEM
 * (table full), RANGE (empty, wraps around, or overlaps another allocation). */
int tw_emu_adopt(struct tw_emu *emu, const void *bytes, uint64_t size, uint64_t *address);

/* Returns the host pointer to [address, address + bytes) of device memory, or NULL if the range is
 * not inside one allocation. */
void *tw_emu_map(struct tw_emu *emu, uint64_t address, uint64_t bytes);

/* Returns the emulator's command server, for the link server. */
struct tw_server *tw_emu_server(struct tw_emu *emu);

/* Fills in the progress counter (`counter`), which changes whenever the device makes progress, also
 * within a step, and the ops at which a running step is. Legal from any thread. */
void tw_emu_progress(struct tw_emu *emu, struct tw_link_progress *out);

/* Returns the number of processors that this process may run on. */
uint32_t tw_emu_processors(void);

#endif
