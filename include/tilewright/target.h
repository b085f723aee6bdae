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
#include "tilewright/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_TARGET_MAX_SITES 4096u
#define TW_MAX_TARGET_BYTES 65536u /* of a target file */

/* X(id, text): the kinds of content that a target can give to a memory class of its own. */
#define TW_HOLDS(X)                                                \
    X(PARAMS, "params")           /* Params that stay in SRAM */   \
    X(STATE, "state")             /* State that lives in SRAM */   \
    X(ACTIVATIONS, "activations") /* values that cross sections */ \
    X(PRIVATE, "private")         /* all that one section uses: streams, work */

enum tw_holds {
#define TW_X(id, text) TW_HOLDS_##id,
    TW_HOLDS(TW_X)
#undef TW_X
        TW_HOLDS_COUNT
};

#define TW_CLASS_NAME_BYTES 16u

struct tw_target {
    char name[64];
    uint32_t n_chips, width, height; /* sites: width * height per chip; programs span all chips */
    /* Memory classes of a site's SRAM: class 0, "plain", has what sram_bytes states, the others are
     * in sram_classes. 0 bytes: no such class. class_of: where each kind of content goes. */
    uint32_t n_classes;
    uint64_t class_bytes[TW_MEM_CLASSES];
    char class_name[TW_MEM_CLASSES][TW_CLASS_NAME_BYTES];
    uint8_t class_of[TW_HOLDS_COUNT];
    uint8_t state_in_sram; /* 1: State lives in SRAM, there is no DRAM for it */
    uint32_t n_banks;      /* DRAM banks per chip */
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

/* Returns the bytes of a site's SRAM, all classes together. */
static inline uint64_t tw_target_sram(const struct tw_target *t) {
    uint64_t bytes = 0;
    for (unsigned c = 0; c < TW_MEM_CLASSES; c++) {
        bytes += t->class_bytes[c];
    }
    return bytes;
}

/* Returns the number of sites on all chips. */
static inline uint32_t tw_target_sites(const struct tw_target *t) {
    return t->n_chips * t->width * t->height;
}

#ifdef __cplusplus
}
#endif
#endif
