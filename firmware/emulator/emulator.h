/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator port: the firmware inside the driver's own process. Device memory is host memory and
 * a device address is the pointer's value, so weights that the host has mapped are used in place
 * and a fast step is a replay on a few host threads.
 */
#ifndef TW_FIRMWARE_EMULATOR_EMULATOR_H
#define TW_FIRMWARE_EMULATOR_EMULATOR_H

#include "firmware/core/server/server.h"
#include "tilewright/error.h"
#include "tilewright/link.h"

#define TW_EMU_MAX_THREADS 256u

struct tw_emu; /* opaque */

struct tw_emu_options {
    const char *target; /* the machine that it is; "" or NULL: any bundle's */
    /* that machine's canonical JSON, copied; NULL: only the name is told */
    const char *description;
    /* of fast mode at most; 0: the processors this process may use */
    uint32_t n_threads;
    uint64_t memory_bytes;                 /* of the device; 0: what the host has */
    uint32_t max_payload;                  /* of a message; 0: TW_WIRE_MAX_PAYLOAD */
    const struct tw_kernel_table *kernels; /* NULL: the fastest of this processor */
};

/* Starts n_threads - 1 worker threads lazily, with the first fast step that needs them. They spin
 * for a moment after each step and then sleep. Errors: NOMEM. */
int tw_emu_create(const struct tw_emu_options *options, struct tw_emu **out, tw_error *err);
/* Resets the device, ends the workers. NULL is legal. */
void tw_emu_destroy(struct tw_emu *emu);

/* One request, one answer (firmware/core/server/server.h). One caller at a time; the caller's
 * thread is worker 0. */
void tw_emu_handle(struct tw_emu *emu, const uint8_t *header, const void *payload,
                   uint64_t payload_bytes, struct tw_server_answer *answer);

/* Makes a range of host memory that stays mapped and unchanged a read-only allocation, without a
 * copy; FREE forgets it. Its device address is the pointer. 0, NOMEM or RANGE. */
int tw_emu_adopt(struct tw_emu *emu, const void *bytes, uint64_t size, uint64_t *address);

/* Host pointer to [address, address + bytes) of device memory, or NULL if it is not inside one
 * allocation. */
void *tw_emu_map(struct tw_emu *emu, uint64_t address, uint64_t bytes);

/* Its command server, for ports that serve it to others. */
struct tw_server *tw_emu_server(struct tw_emu *emu);

/* Legal from any thread: fills in the beat, which changes whenever the device gets on, also within
 * a step, and the ops of a step at work. */
void tw_emu_progress(struct tw_emu *emu, struct tw_link_progress *out);

/* Processors that this process may run on. */
uint32_t tw_emu_processors(void);

#endif
