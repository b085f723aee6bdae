/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator in this process with a seeded fault plan (firmware/faults/faults.h).
 */
#ifndef TW_DRIVER_TRANSPORT_EMU_EMU_FAULTS_H
#define TW_DRIVER_TRANSPORT_EMU_EMU_FAULTS_H

#include "driver/transport/transport.h"
#include "firmware/emulator/emulator.h"

/* Opens an emulator that injects the faults of `text`, "PLAN" or "PLAN,SEED". deadline_ms as in
 * tw_transport_options; *out is the caller's. Errors: NO_DEVICE (not of that form), USAGE (no such
 * plan; lists them), NOMEM, and those that the plan causes: DEVICE_LOST, TIMEOUT. */
int tw_emu_faults_open(const char *text, const struct tw_emu_options *emu, uint32_t deadline_ms,
                       struct tw_transport **out, tw_error *err);

#endif
