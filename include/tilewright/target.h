/* SPDX-License-Identifier: Apache-2.0
 *
 * A target: the shape of a tiled accelerator and the constants of its price function, read from a
 * JSON file. The canonical JSON (sorted keys, no blanks) is hashed into each bundle.
 */
#ifndef TILEWRIGHT_TARGET_H
#define TILEWRIGHT_TARGET_H

#include "tilewright/bundle.h"
#include "tilewright/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_MAX_SITES 4096u
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

/* Opens a built-in target by name ("host", "sim4x4", "grid8x8", "sim4x4x2", "quad2x2"), or a JSON
 * file by path (a name with '/' or ".json"). host_sites: sites of "host", at most 256; 0: the
 * processors online. Errors: USAGE (no such target; names those there are), IO, and those of
 * tw_target_parse. */
int tw_target_open(const char *name, uint32_t host_sites, struct tw_target *out, tw_error *err);

/* Reads the JSON text of a target file; `name` is for messages. Errors, all with the key: FORMAT
 * (no JSON, an unknown key, another type), MISSING, RANGE. The keys of the links between chips are
 * left out together where there are none. */
int tw_target_parse(const char *name, const char *text, size_t size, struct tw_target *out,
                    tw_error *err);

/* Names of the built-in targets, NULL-terminated. */
const char *const *tw_target_names(void);

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
