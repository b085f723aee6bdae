/* SPDX-License-Identifier: Apache-2.0
 *
 * ERNIE 4.5 (dense): the plain decoder.
 */
#include "compiler/arch/arch.h"

int tw_arch_ernie4_5(struct tw_arch_source *s) {
    s->h->rope_pairing = TW_ROPE_INTERLEAVED;
    return 0;
}
