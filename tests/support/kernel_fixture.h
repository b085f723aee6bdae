/* SPDX-License-Identifier: Apache-2.0
 *
 * Random buffers and comparisons for the kernel tests.
 */
#ifndef TW_TESTS_SUPPORT_KERNEL_FIXTURE_H
#define TW_TESTS_SUPPORT_KERNEL_FIXTURE_H

#include "firmware/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

/* A fixed sequence for a seed; `next` is uniform in 32 bits, `below` in [0, n), `unit` in [-1,
 * 1). */
struct fixture_random {
    uint64_t state;
};
uint32_t fixture_next(struct fixture_random *r);
uint32_t fixture_below(struct fixture_random *r, uint32_t n);
float fixture_unit(struct fixture_random *r);

/* Returns memory aligned to 64 bytes and of the exact size (a sanitizer sees an access past the
 * end), never NULL: a test that is out of memory aborts. To be freed. */
void *fixture_alloc(size_t bytes);
float *fixture_floats(struct fixture_random *r, size_t n);
uint8_t *fixture_bytes(struct fixture_random *r, size_t n);

/* Rows of random activations of F32, Q8S or Q8K (cols a multiple of the block), which the scalar
 * definition quantised. */
void *fixture_activations(struct fixture_random *r, unsigned dtype, uint32_t rows, uint32_t cols);

/* Panels with ordinary values: finite floats or halves; random quants with small scales. */
uint8_t *fixture_panels(struct fixture_random *r, unsigned dtype, uint32_t k, uint32_t panels);

enum fixture_kind { FIXTURE_FLOATS, FIXTURE_EXACT };

/* Runs the op with every instruction set of this processor, each time from the same content of
 * p[out], which is `bytes` long. Returns true, and describes the first difference in `message`, if
 * a result differs from the scalar kernel's (FIXTURE_FLOATS: all NaNs are equal). Leaves the scalar
 * result in p[out]. `what` names the case. */
#define FIXTURE_MESSAGE 240
bool fixture_differs(uint32_t op, const struct tw_kargs *args, unsigned out, size_t bytes,
                     enum fixture_kind kind, const char *what, char message[FIXTURE_MESSAGE]);

/* Runs the scalar kernel. */
void fixture_scalar(uint32_t op, const struct tw_kargs *args);

#endif
