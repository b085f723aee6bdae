/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder in miniature that uses every op of the machine once or more: two sites, two layers in a
 * loop, an attention loop over a trip, a multicast with its flag, two sections with their
 * rendezvous. It obeys every rule of loader/verify/verify.h.
 */
#ifndef TW_TESTS_SUPPORT_SMALL_PROGRAM_H
#define TW_TESTS_SUPPORT_SMALL_PROGRAM_H

#include "tests/support/hand_program.h"

/* Tensors, in order. */
enum {
    SMALL_IDS,
    SMALL_N,
    SMALL_POS,
    SMALL_EMBED,
    SMALL_NORM,
    SMALL_W,
    SMALL_WG,
    SMALL_FREQ,
    SMALL_KEYS,
    SMALL_VALUES,
    SMALL_LOGITS,
    SMALL_ACT,
    SMALL_KEPT
};
/* Sets of sibling buffers, in order: the id on site s is SMALL_BUF(set, s). */
enum {
    SMALL_X,  /* resident f32[4, 32] */
    SMALL_XF, /* the embedding, load -> math */
    SMALL_NF, /* norm weights */
    SMALL_WF, /* q8_0 weights */
    SMALL_GF, /* f32 weights */
    SMALL_CF, /* frequencies */
    SMALL_KF, /* key blocks */
    SMALL_VF, /* value blocks */
    SMALL_XN, /* scratch f32[4, 32] */
    SMALL_XQ, /* scratch q8s[4, 32] */
    SMALL_Q,  /* scratch f32[4, 16] */
    SMALL_CS, /* scratch f32[4, 16] */
    SMALL_ST, /* scratch: state of one head for 4 rows, and one that it is merged into */
    SMALL_Y,  /* scratch f32[4, 16] */
    SMALL_H,  /* scratch f32[4, 16] */
    SMALL_XK, /* scratch q8k[1, 256] */
    SMALL_OF, /* f32[4, 16], math -> store */
    SMALL_LF, /* f32[1, 16], math -> store */
    SMALL_RX, /* resident f32[1, 16] of the other site */
    SMALL_TL, /* scratch: lists of 2 for 4 rows */
    SMALL_TM  /* scratch: lists of 2 for 4 rows */
};
#define SMALL_SITES 2u
#define SMALL_BUF(set, site) ((uint32_t)(set)*SMALL_SITES + (site))
enum { SMALL_ROWS, SMALL_AT, SMALL_BLOCKS }; /* trips */
enum { SMALL_ALL };                          /* groups */
/* Semaphores; SMALL_LAYERS and SMALL_HEAD are each the first of a section's three. */
enum {
    SMALL_KV,
    SMALL_VALID,
    SMALL_LAYERS,
    SMALL_HEAD = SMALL_LAYERS + 3,
    SMALL_SENT = SMALL_HEAD + 3
};

/* The caller frees it with pb_free. */
struct pb *small_program(void);

#endif
