/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulator's options by name: target and instruction set.
 */
#ifndef TW_DRIVER_TRANSPORT_EMU_EMU_OPTIONS_H
#define TW_DRIVER_TRANSPORT_EMU_EMU_OPTIONS_H

#include "firmware/emulator/emulator.h"
#include "loader/target/target_open.h"

struct tw_emu_target {
    char name[64];
    char text[TW_TARGET_TEXT_BYTES]; /* the canonical JSON */
};

/* Sets o->target and o->description (which point into *storage) and o->kernels. target "": any
 * target; isa NULL or "": the fastest. Errors: NO_DEVICE (no such target; lists them), USAGE and
 * UNSUPPORTED (the instruction set), and those of tw_target_open(). */
int tw_emu_options_fill(struct tw_emu_options *o, const char *target, const char *isa,
                        struct tw_emu_target *storage, tw_error *err);

#endif
