/* SPDX-License-Identifier: Apache-2.0
 *
 * A target: the shape of a tiled accelerator and the constants of its cost model, read from a JSON
 * file. A hash of the canonical JSON (sorted keys, no blanks) is part of each bundle.
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
    uint32_t n_chips, width, height; /* sites: width * height per chip; programs span all chips */
    uint64_t sram_bytes;             /* per site */
    uint32_t n_banks;                /* DRAM banks per chip */
    /* Rates and costs of the cost model, in cycles of the clock. */
    double clock_hz;
    double dram_bytes_per_cycle;      /* all banks of one chip together */
    double site_load_bytes_per_cycle; /* maximum rate of one site's LOAD engine */
    double fma_per_cycle;             /* fp32 multiply-adds of one site */
    double int8_mac_per_cycle;
    double vector_per_cycle;     /* elementwise operations of one site */
    double link_bytes_per_cycle; /* multicast, one link */
    double sync_cycles;          /* one flag from site to site */
    double call_cycles;          /* fixed cost of one compute call */
    /* Links between chips: rate at which each chip can send and at which it can receive; 0: the
     * target has no links, and no program can span its chips. */
    double chip_link_bytes_per_cycle;
    double chip_link_cycles; /* latency */
    uint8_t hash[TW_HASH_BYTES];
};

/* Returns 1 if the target's chips are linked, which a program that spans several chips needs. */
static inline int tw_target_has_links(const struct tw_target *t) {
    return t->chip_link_bytes_per_cycle > 0;
}

/* Returns the number of sites on all chips. */
static inline uint32_t tw_target_sites(const struct tw_target *t) {
    return t->n_chips * t->width * t->height;
}

#ifdef __cplusplus
}
#endif
#endif
