/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in targets, as the JSON text that a user's target file would have.
 */
#include "loader/target/builtin.h"

#include "loader/target/target_open.h"

#include <stddef.h>

/* host: one site per core (tw_target_open sets the width). SRAM is as large as a few L2 caches, so
 * that the activations of a prefill chunk fit; rates of a 3 GHz core with 256-bit vectors, all
 * cores sharing 20 GB/s of DRAM. */
static const char host[] =
    "{\"name\":\"host\",\"chips\":1,\"width\":1,\"height\":1,\"sram_bytes\":16777216,\"banks\":1,"
    "\"clock_hz\":3e9,\"dram_bytes_per_cycle\":7.0,\"site_load_bytes_per_cycle\":4.0,"
    "\"fma_per_cycle\":16.0,\"int8_mac_per_cycle\":48.0,\"vector_per_cycle\":8.0,"
    "\"link_bytes_per_cycle\":8.0,\"sync_cycles\":300.0,\"call_cycles\":60.0}";

/* sim4x4: small memories; most tests use it. */
static const char sim4x4[] =
    "{\"name\":\"sim4x4\",\"chips\":1,\"width\":4,\"height\":4,\"sram_bytes\":524288,\"banks\":2,"
    "\"clock_hz\":1e9,\"dram_bytes_per_cycle\":64.0,\"site_load_bytes_per_cycle\":16.0,"
    "\"fma_per_cycle\":64.0,\"int8_mac_per_cycle\":256.0,\"vector_per_cycle\":16.0,"
    "\"link_bytes_per_cycle\":32.0,\"sync_cycles\":50.0,\"call_cycles\":20.0}";

/* grid8x8: 64 sites of 1.5 MiB, 12 banks of DRAM. */
static const char grid8x8[] =
    "{\"name\":\"grid8x8\",\"chips\":1,\"width\":8,\"height\":8,\"sram_bytes\":1572864,\"banks\":"
    "12,"
    "\"clock_hz\":1e9,\"dram_bytes_per_cycle\":256.0,\"site_load_bytes_per_cycle\":32.0,"
    "\"fma_per_cycle\":256.0,\"int8_mac_per_cycle\":1024.0,\"vector_per_cycle\":32.0,"
    "\"link_bytes_per_cycle\":32.0,\"sync_cycles\":100.0,\"call_cycles\":30.0}";

/* sim4x4x2: two chips of sim4x4; a link between them has a quarter of the bandwidth of a link
 * between sites, and the latency of twelve flags. */
static const char sim4x4x2[] =
    "{\"name\":\"sim4x4x2\",\"chips\":2,\"width\":4,\"height\":4,\"sram_bytes\":524288,\"banks\":2,"
    "\"clock_hz\":1e9,\"dram_bytes_per_cycle\":64.0,\"site_load_bytes_per_cycle\":16.0,"
    "\"fma_per_cycle\":64.0,\"int8_mac_per_cycle\":256.0,\"vector_per_cycle\":16.0,"
    "\"link_bytes_per_cycle\":32.0,\"sync_cycles\":50.0,\"call_cycles\":20.0,"
    "\"chip_link_bytes_per_cycle\":8.0,\"chip_link_cycles\":600.0}";

/* quad2x2: four chips of four sites with more memory each, one bank per chip. */
static const char quad2x2[] =
    "{\"name\":\"quad2x2\",\"chips\":4,\"width\":2,\"height\":2,\"sram_bytes\":1048576,\"banks\":1,"
    "\"clock_hz\":1e9,\"dram_bytes_per_cycle\":32.0,\"site_load_bytes_per_cycle\":16.0,"
    "\"fma_per_cycle\":128.0,\"int8_mac_per_cycle\":512.0,\"vector_per_cycle\":32.0,"
    "\"link_bytes_per_cycle\":32.0,\"sync_cycles\":50.0,\"call_cycles\":20.0,"
    "\"chip_link_bytes_per_cycle\":16.0,\"chip_link_cycles\":400.0}";

const char *const *tw_target_names(void) {
    static const char *const names[] = {"host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2", NULL};
    return names;
}

const char *tw_target_builtin(unsigned index) {
    static const char *const text[] = {host, sim4x4, grid8x8, sim4x4x2, quad2x2};
    return index < sizeof text / sizeof *text ? text[index] : NULL;
}
