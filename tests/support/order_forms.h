/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program uses of the machine: each op on each engine that may run it, and each form of
 * address, count, weight, flag and buffer. Tests that claim to cover the machine count these.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_FORMS_H
#define TW_TESTS_SUPPORT_ORDER_FORMS_H

#include "tilewright/opcode.h"

/* X(id, name): forms besides ops. */
#define ORDER_FORMS(X)                                                  \
    X(PAGED_READ, "read out of a page of a table")                      \
    X(PAGED_WRITE, "write into a page of a table")                      \
    X(PAGED_KEYS, "keys into pages of a table")                         \
    X(PAGED_VALUES, "values into pages of a table")                     \
    X(PAGED_FROM, "dram_copy out of a page of a table")                 \
    X(PAGED_TO, "dram_copy into a page of a table")                     \
    X(ELEMENT_OF_LOOP, "element of a table that a loop variable moves") \
    X(INSTANCE_OF_LOOP, "instance that a loop variable moves")          \
    X(TRIP_ROWS, "rows of a trip")                                      \
    X(TRIP_LOOP, "iterations of a trip")                                \
    X(TRIP_POSITION, "position of a trip")                              \
    X(TRIP_ELEMENT, "trip of an element after the first")               \
    X(TRIP_NEGATIVE, "trip that subtracts")                             \
    X(TRIP_ADD, "trip that adds")                                       \
    X(TRIP_DIV, "trip that divides")                                    \
    X(TRIP_CLAMP, "trip that is clamped")                               \
    X(TRIP_EXACT, "trip that is not clamped")                           \
    X(PARAM_WHOLE, "whole param in SRAM")                               \
    X(PARAM_WINDOW, "window of a param in SRAM")                        \
    X(STATE_WINDOW, "window of a state in SRAM")                        \
    X(STATE_WRITTEN, "state in SRAM that an op writes")                 \
    X(CLASS_1, "memory class 1")                                        \
    X(CLASS_2, "memory class 2")                                        \
    X(CHIPS, "two chips")                                               \
    X(SEND_CHIP, "send to another chip")                                \
    X(SEND_LOOP, "send in a loop")                                      \
    X(SEND_PART, "send between unlike windows")                         \
    X(MCAST_OTHERS, "multicast to sites that do not hold the sender")   \
    X(FLAG_LOOP, "wait in a loop for a threshold that moves with it")   \
    X(CREDIT, "semaphore with credit")                                  \
    X(REPEAT, "repeated section")                                       \
    X(SECTIONS, "two sections")                                         \
    X(MATMUL_ADD, "product that is added")                              \
    X(MATMUL_STRIDE, "product of a window of wider panels")             \
    X(MATMUL_PANELS, "product of two panels")                           \
    X(STEP_F32, "attention over f32")                                   \
    X(STEP_F16, "attention over f16")                                   \
    X(SEGMENTS, "attention in two segments")                            \
    X(LATER_SEGMENT, "attention from a later segment on")               \
    X(TOPK_BASE, "topk with a base")                                    \
    X(TOPK_BASE_OF_LOOP, "topk with a base that a loop variable moves") \
    X(GATHER_PANELS, "gather out of panels of blocks")                  \
    X(IN_PLACE, "topk_merge in place")

enum order_form {
#define TW_X(id, name) ORDER_FORM_##id,
    ORDER_FORMS(TW_X)
#undef TW_X
        ORDER_N_PLAIN_FORMS
};

/* Then the ops by engine, and products by type of the weights. */
enum {
    ORDER_FORM_OPS = ORDER_N_PLAIN_FORMS,
    ORDER_FORM_WEIGHTS = ORDER_FORM_OPS + 64 * TW_ENGINE_COUNT,
    ORDER_N_FORMS = ORDER_FORM_WEIGHTS + TW_DT_COUNT
};

/* Returns the name, in static storage, or NULL for a number that stands for nothing (an op that the
 * engine may not run, a type that is none of weights). */
const char *order_form_name(uint32_t form);

/* Adds to counts[form] how often the program has it: in its ops (each counted once, however often
 * it runs) or records. */
void order_forms_count(const struct tw_program *p, uint32_t counts[ORDER_N_FORMS]);

#endif
