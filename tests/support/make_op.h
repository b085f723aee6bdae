/* SPDX-License-Identifier: Apache-2.0
 *
 * tw_make_* under the upper-case names of ops: make_MATMUL(stage, operands...), for macros that are
 * given such a name. As there, a wrong type or count of operands does not compile.
 */
#ifndef TW_TESTS_SUPPORT_MAKE_OP_H
#define TW_TESTS_SUPPORT_MAKE_OP_H

#include "tilewright/op_schema.h"

#define TW_OP(NAME, number, name, engines, part)                                    \
    static inline struct tw_op make_##NAME(                                         \
        uint32_t stage TW_OPERANDS_##NAME(TW_OPERAND_PARAMETER, NAME)) {            \
        return tw_make_##name(stage TW_OPERANDS_##NAME(TW_OPERAND_ARGUMENT, NAME)); \
    }
#include "tilewright/ops.def"
#undef TW_OP

#endif
