/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement in SRAM: buffers that are live at the same time never share bytes, others may, and
 * sharing does not change results.
 */
#include "compiler/spatial/residency.h"
#include "compiler/spatial/retarget.h"
#include "loader/order/buffer_lifetimes.h"
#include "tests/compiler/program_run.h"

static const struct random_shape shapes[2] = {
    {.dim = 32,
     .hidden = 64,
     .n_layers = 2,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 8,
     .n_vocab = 40,
     .n_ctx = 64,
     .dtype = TW_DT_Q8_0,
     .seed = 3},
    {.dim = 48,
     .hidden = 80,
     .n_layers = 3,
     .n_heads = 3,
     .n_kv_heads = 3,
     .head_dim = 16,
     .n_vocab = 33,
     .n_ctx = 64,
     .seed = 8},
};
static const char *const prefix[2] = {"a.", "b."};

/* Two models, and all their sections, one model after the other. */
struct queue {
    struct random_model model[2];
    struct pipeline p[2];
    struct pipeline_program program[2];
    struct run_side sides[2];
    struct tw_builder sections[6], *list[6];
};

static void open_queue(struct queue *q, uint32_t rows) {
    tw_error err = {0};
    for (uint32_t i = 0; i < 2; i++) {
        struct random_shape shape = shapes[i];
        assert_true(random_model_init(&q->model[i], &shape));
        assert_int_equal(pipeline_init(&q->p[i], &q->model[i].model, "sim4x4", 0, &err), 0);
        assert_int_equal(pipeline_program(&q->p[i], rows, 0, &q->program[i], &err), 0);
        q->sides[i] = (struct run_side){prefix[i], &q->p[i].graph};
        for (uint32_t k = 0; k < 3; k++) {
            struct tw_retarget how = {.target = &q->p[0].target, .prefix = prefix[i]};
            struct tw_builder *u = &q->sections[3 * i + k];
            assert_int_equal(tw_section_retarget(q->program[i].sections[k], &how, &q->p[0].mem,
                                                 &q->p[0].strings, u, &err),
                             0);
            q->list[3 * i + k] = u;
        }
    }
}

static void close_queue(struct queue *q) {
    for (uint32_t i = 0; i < 2; i++) {
        pipeline_finish(&q->p[i]);
        random_model_finish(&q->model[i]);
    }
}

static void compose_queue(struct queue *q, bool colour, struct tw_builder *out) {
    struct tw_composition c = {.name = "queue", .sections = q->list, .n = 6, .colour = colour};
    tw_error err = {0};
    if (tw_compose_program(&c, out, &err)) {
        fail_msg("%s", err.message);
    }
}

static bool overlap(const struct tw_buffer *a, const struct tw_buffer *b) {
    return a->site == b->site && a->offset < b->offset + b->pages * b->page_bytes &&
           b->offset < a->offset + a->pages * a->page_bytes;
}

/* Counts pairs of buffers, at least one of them an activation, that share bytes, and checks that
 * the two are never live at the same time. */
static uint32_t shared_pairs(struct tw_builder *u) {
    struct tw_program p = tw_builder_program(u);
    struct tw_life *lifetimes = calloc(p.n_buffers + 1, sizeof *lifetimes);
    uint32_t n = 0;
    assert_non_null(lifetimes);
    tw_buffer_lifetimes(&p, lifetimes);
    for (uint32_t i = 0; i < p.n_buffers; i++) {
        for (uint32_t k = i + 1; k < p.n_buffers; k++) {
            const struct tw_buffer *a = &p.buffers[i], *b = &p.buffers[k];
            bool activation = a->tensor != TW_NONE || b->tensor != TW_NONE;
            if (!activation || !overlap(a, b)) {
                continue;
            }
            n++;
            if (lifetimes[i].first != TW_NONE && lifetimes[k].first != TW_NONE) {
                assert_true(lifetimes[i].last < lifetimes[k].first ||
                            lifetimes[k].last < lifetimes[i].first);
            }
        }
    }
    free(lifetimes);
    return n;
}

static void activations_share_bytes_only_on_request_and_never_while_both_are_live(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7, 32};
    for (uint32_t i = 0; i < 3; i++) {
        struct queue q;
        struct tw_builder plain, coloured;
        open_queue(&q, rows[i]);
        compose_queue(&q, false, &plain);
        compose_queue(&q, true, &coloured);
        assert_int_equal(shared_pairs(&plain), 0);
        assert_true(shared_pairs(&coloured) > 0);
        uint64_t a = q.program[0].program.shared_bytes, b = q.program[1].program.shared_bytes;
        assert_int_equal(plain.shared_bytes, a + b);
        assert_int_equal(coloured.shared_bytes, a > b ? a : b);
        must_verify(&(struct grid_world){.p = q.p[0]}, &coloured);
        close_queue(&q);
    }
}

static void sharing_does_not_change_results(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 7};
    for (uint32_t i = 0; i < 2; i++) {
        struct queue q;
        struct tw_builder plain, coloured;
        struct program_run r;
        static struct run_trace expected, got;
        open_queue(&q, rows[i]);
        compose_queue(&q, false, &plain);
        compose_queue(&q, true, &coloured);
        must_prove(&plain);
        must_prove(&coloured);
        run_open(&r, &plain, q.sides, 2);
        run_strict(&r, TW_SCHED_CANONICAL, 0, &expected);
        run_close(&r);
        run_open(&r, &coloured, q.sides, 2);
        for (uint32_t seed = 0; seed < 3; seed++) {
            run_strict(&r, TW_SCHED_RANDOM, seed * 10, &got);
            must_agree(&expected, "", &got);
        }
        run_fast(&r, &got);
        must_agree(&expected, "", &got);
        run_close(&r);
        close_queue(&q);
    }
}

/* A section after an activation's last reader may use its bytes, so it fits where it did not
 * without colouring. */
static void dead_activations_make_room(void **state) {
    (void)state;
    struct queue q;
    struct tw_builder out;
    open_queue(&q, 32);
    compose_queue(&q, true, &out);
    q.p[0].target.class_bytes[0] = out.shared_bytes + out.private_bytes;
    compose_queue(&q, true, &out);
    struct tw_composition c = {.name = "queue", .sections = q.list, .n = 6};
    tw_error err = {0};
    assert_int_equal(tw_compose_program(&c, &out, &err), TW_E_PLACEMENT);
    assert_non_null(strstr(err.message, "compose: residency_overflow: program queue: section "));
    close_queue(&q);
}

/* ---- lifetimes ---- */

static void a_buffer_is_live_in_the_sections_that_touch_it(void **state) {
    (void)state;
    struct queue q;
    open_queue(&q, 7);
    struct tw_program p = tw_builder_program(&q.program[1].program);
    struct tw_life *lifetimes = calloc(p.n_buffers + 1, sizeof *lifetimes);
    assert_non_null(lifetimes);
    tw_buffer_lifetimes(&p, lifetimes);
    uint32_t untouched = 0;
    for (uint32_t i = 0; i < p.n_buffers; i++) {
        const struct tw_buffer *b = &p.buffers[i];
        uint32_t section = 0;
        while (i - p.sections[section].first_buffer >= p.sections[section].n_buffers) {
            section++;
        }
        if (b->tensor != TW_NONE && strcmp(tw_program_string(&p, b->name), "x") == 0) {
            assert_int_equal(lifetimes[i].first, 0);
            assert_int_equal(lifetimes[i].last, 2);
        } else if (lifetimes[i].first == TW_NONE) {
            assert_int_equal(lifetimes[i].last, TW_NONE);
            untouched++;
        } else {
            assert_int_equal(lifetimes[i].first, section);
            assert_true(lifetimes[i].last == section || b->tensor != TW_NONE);
        }
    }
    assert_true(untouched < p.n_buffers / 2);
    free(lifetimes);
    close_queue(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_share_bytes_only_on_request_and_never_while_both_are_live),
        cmocka_unit_test(sharing_does_not_change_results),
        cmocka_unit_test(dead_activations_make_room),
        cmocka_unit_test(a_buffer_is_live_in_the_sections_that_touch_it),
    };
    return cmocka_run_group_tests_name("residency", tests, NULL, NULL);
}
