/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator of this process behind a seeded fault plan (firmware/faults/faults.h).
 */
#ifndef TW_DRIVER_TRANSPORT_EMU_EMU_FAULTS_H
#define TW_DRIVER_TRANSPORT_EMU_EMU_FAULTS_H

#include "driver/transport/transport.h"
#include "firmware/emulator/emulator.h"

/* text: "PLAN" or "PLAN,SEED". Errors: NO_DEVICE (not of that form), USAGE (no such plan; names
 * them), and those that the plan causes: DEVICE_LOST, TIMEOUT. */
int tw_emu_faults_open(const char *text, const struct tw_emu_options *emu, uint32_t deadline_ms,
                       struct tw_transport **out, tw_error *err);

#endif
