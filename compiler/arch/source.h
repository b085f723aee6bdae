/* SPDX-License-Identifier: Apache-2.0
 *
 * What the file of an architecture reads (arch.h): the keys "ARCH.name" of a model, and which
 * tensors it has. Every container presents itself in this form (compiler/import/gguf.h).
 */
#ifndef TW_COMPILER_ARCH_SOURCE_H
#define TW_COMPILER_ARCH_SOURCE_H

#include "compiler/import/gguf.h"
#include "compiler/import/model.h"

struct tw_arch_source {
    const struct tw_gguf *gguf;
    const char *arch;
    struct tw_hparams *h;    /* sizes and numbers that all architectures have are in it */
    struct tw_layer *layers; /* h->layers, to be written */
    uint64_t read;           /* the keys of source.c's table that were read, by their index */
    tw_error *err;
};

#define TW_ARCH_KEY_BYTES 128

/* Writes "ARCH.name" into buffer and returns it. */
const char *tw_arch_key(const struct tw_arch_source *s, const char *name,
                        char buffer[TW_ARCH_KEY_BYTES]);

/* Each reads the key "ARCH.name"; if it is absent and not needed, *out stays as it is. Errors:
 * MISSING, FORMAT (the value has another type), RANGE. */
int tw_arch_uint(struct tw_arch_source *s, const char *name, bool needed, uint32_t min,
                 uint32_t max, uint32_t *out);
int tw_arch_float(struct tw_arch_source *s, const char *name, bool needed, float *out);
int tw_arch_bool(struct tw_arch_source *s, const char *name, bool *out);
/* A number above 0. */
int tw_arch_positive(struct tw_arch_source *s, const char *name, bool needed, float *out);

bool tw_arch_has_tensor(const struct tw_arch_source *s, const char *name);

/* Gives all layers but the last of each `period` the window of the key attention.sliding_window.
 * The key attention.sliding_window_pattern takes the place of `period`: a number, or for each
 * layer whether it has a window. Layers with a window take `windowed` as their rotation, the
 * others `whole`. Without the first key the window is `window`; if it is 0, nothing is changed.
 * Errors: as above. */
int tw_arch_windows(struct tw_arch_source *s, uint32_t window, uint32_t period,
                    enum tw_layer_rope windowed, enum tw_layer_rope whole);

/* Refuses a key that would change the result and that nobody has read, unless its value changes
 * nothing. Errors: UNSUPPORTED. */
int tw_arch_check_unread(const struct tw_arch_source *s);

#endif
