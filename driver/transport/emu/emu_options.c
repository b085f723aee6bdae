/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of targets and instruction sets, looked up for an emulator.
 */
#include "driver/transport/emu/emu_options.h"

#include <stdio.h>

/* Lists the instruction sets that this processor and build support: "scalar, avx2". */
static const char *known_isas(char text[80]) {
    size_t n = 0;
    text[0] = 0;
    for (unsigned i = 0; i < TW_ISA_COUNT; i++) {
        const char *name = tw_isa_name((enum tw_isa)i);
        if (tw_kernel_table((enum tw_isa)i) && n + strlen(name) + 3 <= 80) {
            n += (size_t)snprintf(text + n, 80 - n, "%s%s", n ? ", " : "", name);
        }
    }
    return text;
}

static int find_kernels(const char *isa, const struct tw_kernel_table **out, tw_error *err) {
    char known[80];
    *out = NULL;
    if (!isa || !*isa) {
        return 0;
    }
    for (unsigned i = 0; i < TW_ISA_COUNT; i++) {
        if (strcmp(isa, tw_isa_name((enum tw_isa)i)) == 0) {
            *out = tw_kernel_table((enum tw_isa)i);
            return *out ? 0
                        : tw_fail(err, TW_E_UNSUPPORTED,
                                  "instruction set %s: this processor or build does not support "
                                  "it; use one of: %s",
                                  isa, known_isas(known));
        }
    }
    return tw_fail(err, TW_E_USAGE,
                   "instruction set '%.40s': no such instruction set; this processor has %s", isa,
                   known_isas(known));
}

static int resolve_target(const char *name, struct tw_emu_target *out, tw_error *err) {
    struct tw_target t;
    out->name[0] = out->text[0] = 0;
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
        return tw_fail(err, TW_E_NO_DEVICE, "device emu:%s: no such target; there are %s", name,
                       known);
    }
    if (!code) {
        memcpy(out->name, t.name, sizeof out->name);
        code = tw_target_print(&t, out->text, sizeof out->text, err);
    }
    return code;
}

int tw_emu_options_fill(struct tw_emu_options *o, const char *target, const char *isa,
                        struct tw_emu_target *storage, tw_error *err) {
    int code = resolve_target(target, storage, err);
    o->target = storage->name;
    o->description = storage->text[0] ? storage->text : NULL;
    return code ? code : find_kernels(isa, &o->kernels, err);
}
