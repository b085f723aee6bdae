#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An op made with a wrong type or count of operands does not compile
# (include/tilewright/op_schema.h). CC: the compiler.
set -u
count=0

# compiles EXPRESSION: whether it does, as C11 with only op_schema.h included
compiles() {
    printf '#include "tilewright/op_schema.h"
struct tw_op make(struct tw_buffer_at a, struct tw_tensor_at t, struct tw_count n, struct tw_affine x);
struct tw_op make(struct tw_buffer_at a, struct tw_tensor_at t, struct tw_count n, struct tw_affine x) {
    (void)a, (void)t, (void)n, (void)x;
    return %s;
}\n' "$1" | ${CC:-gcc} -std=c11 -Iinclude -x c -fsyntax-only - 2>/dev/null
}

# expect yes|no TEXT EXPRESSION
expect() {
    count=$((count + 1))
    if compiles "$3"; then found=yes; else found=no; fi
    if [ "$found" = "$1" ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        echo "# compiles: $found: $3"
    fi
}

expect yes 'a copy' 'tw_make_copy(0, a, 64, a, 64, 64, n)'
expect no 'an operand too few' 'tw_make_copy(0, a, 64, a, 64, n)'
expect no 'an operand too many' 'tw_make_copy(0, a, 64, a, 64, 64, n, n)'
expect no 'a number where a count is expected' 'tw_make_copy(0, a, 64, a, 64, 64, 1)'
expect no 'a tensor where a buffer is expected' 'tw_make_copy(0, t, 64, a, 64, 64, n)'
expect no 'an id where a region is expected' 'tw_make_copy(0, 3, 64, a, 64, 64, n)'
expect no 'a region where a number is expected' 'tw_make_copy(0, a, a, 64, 64, 64, n)'
expect yes 'a read' 'tw_make_read(0, t, a, 1, 64, 64, 64)'
expect no 'a buffer where a tensor is expected' 'tw_make_read(0, a, t, 1, 64, 64, 64)'
expect yes 'a wait' 'tw_make_sem_wait(0, 1, x)'
expect no 'a number where an affine one is expected' 'tw_make_sem_wait(0, 1, 2)'
expect yes 'an end' 'tw_make_end(0)'
expect no 'an op that does not exist' 'tw_make_fly(0)'
echo "1..$count"
