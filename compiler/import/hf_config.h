/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers of config.json share: hf_config.c reads what all architectures have, hf_extra.c
 * what some have.
 */
#ifndef TW_COMPILER_IMPORT_HF_CONFIG_H
#define TW_COMPILER_IMPORT_HF_CONFIG_H

#include "compiler/import/hf.h"
#include "compiler/import/json_read.h"

struct tw_hf_config {
    struct tw_hf *hf;
    const char *path;
    const json_t *json, *rope; /* rope: rope_scaling or rope_parameters, or NULL */
    const json_t *outer;       /* what `json` is the text_config of, or the same */
    uint32_t n_positions;
    float rope_theta;
    tw_error *err;
};

/* Reads what the architecture has besides. Errors: as tw_hf_read_config. */
int tw_hf_read_extra(struct tw_hf_config *c);

/* Reads the factors of a rope_scaling of rope_type longrope, which become tensors. */
int tw_hf_read_longrope(struct tw_hf_config *c);

#endif
