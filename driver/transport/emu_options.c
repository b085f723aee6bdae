/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of targets and instruction sets, looked up for an emulator.
 */
#include "driver/transport/emu_options.h"

#include "tilewright/target.h"

#include <stdio.h>

static int find_kernels(const char *isa, const struct tw_kernel_table **out, tw_error *err) {
    static const char *const name[TW_ISA_COUNT] = {"scalar", "avx2", "avx512"};
    *out = NULL;
    if (!isa || !*isa) {
        return 0;
    }
    for (unsigned i = 0; i < TW_ISA_COUNT; i++) {
        if (strcmp(isa, name[i]) == 0) {
            *out = tw_kernel_table((enum tw_isa)i);
            return *out ? 0
                        : tw_fail(err, TW_E_UNSUPPORTED, "instruction set %s: this processor or build lacks it", isa);
        }
    }
    return tw_fail(err, TW_E_USAGE, "instruction set '%s': there are scalar, avx2 and avx512", isa);
}

static int resolve_target(const char *name, char target[64], tw_error *err) {
    struct tw_target t;
    target[0] = 0;
    if (!*name) {
        return 0;
    }
    int code = tw_target_open(name, 0, &t, err);
    if (code == TW_E_USAGE) {
        char known[160] = "";
        for (const char *const *k = tw_target_names(); *k; k++) {
            size_t n = strlen(known);
            snprintf(known + n, sizeof known - n, "%semu:%s", n ? ", " : "", *k);
        }
        return tw_fail(err, TW_E_NO_DEVICE, "device emu:%s: no such target; there are %s", name, known);
    }
    memcpy(target, t.name, 64);
    target[63] = 0;
    return code;
}

int tw_emu_options_fill(struct tw_emu_options *o, const char *target, const char *isa, char storage[64],
                        tw_error *err) {
    int code = resolve_target(target, storage, err);
    o->target = storage;
    return code ? code : find_kernels(isa, &o->kernels, err);
}
