/* SPDX-License-Identifier: Apache-2.0
 *
 * A target: the shape of a tiled accelerator and the constants of its price function, read from a
 * JSON file. The canonical JSON (sorted keys, no blanks) is hashed into each bundle.
 * loader/target/target_open.h reads it.
 */
#ifndef TILEWRIGHT_TARGET_H
#define TILEWRIGHT_TARGET_H

#include "tilewright/bundle.h"
#include "tilewright/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_TARGET_MAX_SITES 4096u
#define TW_MAX_TARGET_BYTES 65536u /* of a target file */

struct tw_target {
    char name[64];
    uint32_t n_chips, width, height; /* sites: width * height a chip; programs span all chips */
    uint64_t sram_bytes;             /* a site */
    uint32_t n_banks;                /* DRAM banks a chip */
    /* Prices, in cycles of the clock. */
    double clock_hz;
    double dram_bytes_per_cycle;      /* all banks of a chip together */
    double site_load_bytes_per_cycle; /* what one site's LOAD engine takes at most */
    double fma_per_cycle;             /* fp32 multiply-adds of one site */
    double int8_mac_per_cycle;
    double vector_per_cycle;     /* elementwise elements of one site */
    double link_bytes_per_cycle; /* multicast, one link */
    double sync_cycles;          /* one flag from site to site */
    double call_cycles;          /* fixed cost of one compute call */
    /* Links between chips: each chip sends and takes so much at a time; 0: it has none, and no
     * program spans its chips. */
    double chip_link_bytes_per_cycle;
    double chip_link_cycles; /* latency */
    uint8_t hash[TW_HASH_BYTES];
};

/* Whether its chips are linked, which a program that spans several needs. */
static inline int tw_target_has_links(const struct tw_target *t) {
    return t->chip_link_bytes_per_cycle > 0;
}

static inline uint32_t tw_target_sites(const struct tw_target *t) {
    return t->n_chips * t->width * t->height;
}

#ifdef __cplusplus
}
#endif
#endif
