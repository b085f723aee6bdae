/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets in the words of the public API.
 */
#include "loader/base/sized.h"
#include "loader/target/target_open.h"
#include "tilewright/compile.h"

#include <string.h>

const char *tw_target_name(uint32_t index) {
    const char *const *name = tw_target_names();
    while (*name && index > 0) {
        name++;
        index--;
    }
    return *name;
}

int tw_target_get_info(const char *target, uint32_t host_sites, struct tw_target_info *info,
                       tw_error *err) {
    struct tw_target t;
    int rc = TW_NEED(err, target);
    rc = rc ? rc : tw_sized_check(__func__, info, err);
    rc = rc ? rc : tw_target_open(target, host_sites, &t, err);
    if (rc) {
        return rc;
    }
    struct tw_target_info i = {.size = sizeof i,
                               .n_chips = t.n_chips,
                               .width = t.width,
                               .height = t.height,
                               .n_banks = t.n_banks,
                               .sram_bytes = tw_target_sram(&t),
                               .clock_hz = t.clock_hz};
    memcpy(i.hash, t.hash, sizeof i.hash);
    memcpy(i.name, t.name, sizeof i.name);
    tw_sized_write(info, &i, sizeof i);
    return 0;
}
