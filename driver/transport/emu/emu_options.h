/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulator's options by name: target and instruction set.
 */
#ifndef TW_DRIVER_TRANSPORT_EMU_EMU_OPTIONS_H
#define TW_DRIVER_TRANSPORT_EMU_EMU_OPTIONS_H

#include "firmware/emulator/emulator.h"

/* Sets o->target (the full name, in `storage`) and o->kernels. target ""; isa NULL or "": the
 * emulator's choice. Errors: NO_DEVICE (no such target; names them), USAGE and UNSUPPORTED (the
 * instruction set). */
int tw_emu_options_fill(struct tw_emu_options *o, const char *target, const char *isa,
                        char storage[64], tw_error *err);

#endif
