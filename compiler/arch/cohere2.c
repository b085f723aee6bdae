/* SPDX-License-Identifier: Apache-2.0
 *
 * Command R7B (Cohere 2): as Command R; three layers of four have a window, the others do not
 * rotate.
 */
#include "compiler/arch/arch.h"

int tw_arch_cohere2(struct tw_arch_source *s) {
    int rc = tw_arch_command_r(s);
    return rc ? rc : tw_arch_windows(s, 4096, 4, TW_LAYER_ROPE_MODEL, TW_LAYER_ROPE_NONE);
}
