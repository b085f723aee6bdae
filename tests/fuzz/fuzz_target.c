/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes target files: any text. An accepted target is a machine that the compiler can use.
 */
#include "loader/target/target_open.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok) {
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_target t;
    tw_error err = {0};
    char *text = malloc(size ? size : 1); /* of exact size */
    check(text != NULL);
    if (size) {
        memcpy(text, data, size);
    }
    int rc = tw_target_parse("t.json", text, size, &t, &err);
    if (rc == 0) {
        check(t.name[0] && memchr(t.name, '\0', sizeof t.name) != NULL);
        check(t.n_chips && t.n_chips <= 64 && t.width && t.height &&
              tw_target_sites(&t) <= TW_TARGET_MAX_SITES);
        check(t.class_bytes[0] >= 16384 && t.class_bytes[0] % 64 == 0 && t.n_banks &&
              t.n_chips * t.n_banks <= TW_MAX_BANKS);
        check(t.clock_hz > 0 && t.dram_bytes_per_cycle > 0 && t.site_load_bytes_per_cycle > 0 &&
              t.fma_per_cycle > 0);
        check(t.int8_mac_per_cycle > 0 && t.vector_per_cycle > 0 && t.link_bytes_per_cycle > 0);
        check(t.chip_link_bytes_per_cycle >= 0 && t.chip_link_cycles >= 0);
        check(tw_target_has_links(&t) || t.chip_link_cycles == 0);
    } else {
        check(err.code == rc && err.message[0]);
    }
    free(text);
    return 0;
}
