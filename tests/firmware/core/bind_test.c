/* SPDX-License-Identifier: Apache-2.0
 *
 * The copies of Inputs that a step works on: each instance by itself, aligned as tensors in device
 * memory are, because kernels may read weights from them in place.
 */
#include "firmware/core/pages.h"
#include "tests/support/test.h"
#include "tilewright/wire.h"

enum { INSTANCES = 3, BYTES = 20 };

static _Alignas(64) uint8_t memory[2 * INSTANCES][64];
static uint64_t rows[2 * INSTANCES];

static void *map(void *ctx, uint64_t address, uint64_t size) {
    (void)ctx;
    (void)size;
    return (void *)(uintptr_t)address;
}

static void copies_of_inputs_are_aligned_as_tensors_are(void **state) {
    (void)state;
    const struct tw_tensor tensors[] = {{.role = TW_ROLE_INPUT,
                                         .dtype = TW_DT_I32,
                                         .rows = 1,
                                         .cols = BYTES / 4,
                                         .bind_count = INSTANCES,
                                         .bytes = BYTES},
                                        {.role = TW_ROLE_INPUT,
                                         .dtype = TW_DT_F16,
                                         .rows = 1,
                                         .cols = 3,
                                         .bind_first = INSTANCES,
                                         .bind_count = INSTANCES,
                                         .bytes = 6}};
    const struct tw_program p = {.n_tensors = 2, .tensors = tensors};
    const struct tw_machine_config config = {
        .program = &p, .bind = rows, .n_bind = 2 * INSTANCES, .map = map};
    static _Alignas(64) uint8_t bytes[4096];
    struct tw_arena arena = {bytes, sizeof bytes, 8};
    struct tw_fault fault = {0};
    struct tw_pages none = {.n = 0};
    for (uint32_t i = 0; i < 2 * INSTANCES; i++) {
        rows[i] = (uintptr_t)memory[i];
        memset(memory[i], (int)i + 1, sizeof memory[i]);
    }
    uint8_t **inputs = tw_bind_take_inputs(&p, &arena);
    assert_non_null(inputs);
    assert_int_equal(tw_bind_trips(&config, inputs, NULL, NULL, &none, &fault), 0);
    for (uint32_t i = 0; i < 2 * INSTANCES; i++) {
        uint32_t t = i / INSTANCES;
        uint8_t *copy = tw_bind_input(&config, inputs, t, memory[i]);
        assert_ptr_not_equal(copy, memory[i]);
        assert_int_equal((uintptr_t)copy % TW_WIRE_BIND_ALIGN, 0);
        assert_memory_equal(copy, memory[i], tensors[t].bytes);
        assert_ptr_equal(tw_bind_input(&config, inputs, t, memory[i] + 4), copy + 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_inputs_are_aligned_as_tensors_are),
    };
    return cmocka_run_group_tests_name("bind", tests, NULL, NULL);
}
