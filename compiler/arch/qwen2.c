/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen 2 and 2.5: biases on q, k and v (found by their tensors), rotation by halves.
 */
#include "compiler/arch/arch.h"

int tw_arch_qwen2(struct tw_arch_source *s) {
    s->h->rope_pairing = TW_ROPE_HALVES;
    return 0;
}
