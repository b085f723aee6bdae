/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema of the operations: the rows of ops.def are consistent, agree with the encoder and the
 * extents, and the verifier enforces their demands.
 */
#include "tests/support/verify_kit.h"
#include "tilewright/footprint.h"

/* Calls body for each operand `o` (index `i`) of each op `code`. */
#define EACH_OPERAND(code, o, i)                                      \
    for (uint32_t code = 0, i = 0; code < TW_OP_LIMIT; code++, i = 0) \
        for (const struct tw_operand_info *o = tw_op_operands(code); o->name; o++, i++)

static bool is_region(const struct tw_operand_info *o) {
    return tw_letter_in("RWMDTU", o->kind);
}

/* tw_demand_text() says only "number" of a demand that is not for numbers. */
static bool is_number_demand(uint32_t demand) {
    return strcmp(tw_demand_text(demand), "number") != 0;
}

static bool is_region_demand(uint32_t demand) {
    return demand == TW_DEMAND_ANY || demand == TW_DEMAND_IDS ||
           !tw_demand_dtype(demand, TW_DT_I32, TW_DT_F32);
}

/* ---- names ---- */

/* A label in front of an operand in the text form; an arrow between operands is not one. */
static bool is_label(const char *text) {
    return *text && strcmp(text, "-> ") != 0;
}

static void names_and_texts_of_an_op_differ(void **state) {
    (void)state;
    EACH_OPERAND(code, o, i) {
        const struct tw_operand_info *first = o - i;
        for (const struct tw_operand_info *other = first; other < o; other++) {
            if (strcmp(o->name, other->name) == 0) {
                fail_msg("%s has two operands %s", tw_op_info(code).name, o->name);
            }
            /* strides follow their regions, so all of them are "s=" */
            if (o->demand != TW_DEMAND_STRIDE && o->demand != TW_DEMAND_W_STRIDE &&
                is_label(o->text) && strcmp(o->text, other->text) == 0) {
                fail_msg("%s: %s and %s are both \"%s\"", tw_op_info(code).name, other->name,
                         o->name, o->text);
            }
        }
    }
}

static void an_unknown_number_has_no_operands(void **state) {
    (void)state;
    assert_null(tw_op_operands(0)->name);
    assert_null(tw_op_operands(TW_OP_LIMIT)->name);
    assert_null(tw_op_operands(UINT32_MAX)->name);
    assert_false(tw_op_is_data(TW_OP_LIMIT));
    assert_false(tw_op_is_data(UINT32_MAX));
}

/* ---- the encoder and the makers ---- */

/* One value of each kind; the same for all operands of the kind. */
#define VALUE_READ tw_in_buffer(3, tw_affine_plus(tw_affine_const(8), 2, 64))
#define VALUE_WRITE VALUE_READ
#define VALUE_UPDATE VALUE_READ
#define VALUE_REMOTE VALUE_READ
#define VALUE_TENSOR_READ tw_in_tensor(5, tw_affine_const(1), tw_affine_const(64))
#define VALUE_TENSOR_WRITE \
    tw_in_page(VALUE_TENSOR_READ, 9, tw_affine_plus(tw_affine_const(6), 1, 2))
#define VALUE_FIFO 3
#define VALUE_SEMAPHORE 4
#define VALUE_GROUP 6
#define VALUE_SITE 7
#define VALUE_VARIABLE 1
#define VALUE_COUNT tw_count_of(2, 9)
#define VALUE_AFFINE tw_affine_plus(tw_affine_const(8), 2, 64)
#define VALUE_IMMEDIATE 64
#define VALUE_FLOAT 0.5f
#define VALUE(OP, KIND, name, DEMAND, text) , VALUE_##KIND

static struct tw_op make_any(uint32_t code) {
    switch (code) {
#define TW_OP(NAME, number, name, engines, part) \
    case number:                                 \
        return tw_make_##name(11 TW_OPERANDS_##NAME(VALUE, NAME));
#include "tilewright/ops.def"
#undef TW_OP
    default:
        return tw_make_end(11);
    }
}

static void assert_same_affine(const struct tw_affine *a, const struct tw_affine *b) {
    assert_int_equal(a->base, b->base);
    assert_int_equal(a->n_terms, b->n_terms);
    for (uint32_t i = 0; i < a->n_terms; i++) {
        assert_int_equal(a->term[i].var, b->term[i].var);
        assert_int_equal(a->term[i].step, b->term[i].step);
    }
}

static void a_made_op_is_encoded_and_decoded_with_all_its_operands(void **state) {
    (void)state;
    for (uint32_t code = 0; code < TW_OP_LIMIT; code++) {
        uint32_t words[TW_MAX_OP_WORDS];
        if (!tw_op_info(code).name) {
            continue;
        }
        struct tw_op op = make_any(code), back;
        uint32_t n = tw_op_encode(&op, words);
        assert_true(tw_op_decode(words, n, 0, &back));
        assert_int_equal(back.code, code);
        assert_int_equal(back.stage, 11);
        assert_int_equal(back.n_words, n);
        assert_int_equal(back.n_operands, op.n_operands);
        assert_int_equal(op.n_operands, strlen(tw_op_info(code).operands));
        for (uint32_t i = 0; i < op.n_operands; i++) {
            const struct tw_operand_info *info = &tw_op_operands(code)[i];
            assert_int_equal(info->kind, op.operand[i].kind);
            assert_int_equal(info->kind, tw_op_info(code).operands[i]);
            assert_int_equal(back.operand[i].kind, info->kind);
            assert_int_equal(back.operand[i].id, op.operand[i].id);
            assert_int_equal(back.operand[i].max, op.operand[i].max);
            assert_same_affine(&back.operand[i].offset, &op.operand[i].offset);
            assert_same_affine(&back.operand[i].instance, &op.operand[i].instance);
            assert_int_equal(back.operand[i].paged, info->kind == 'U');
            assert_int_equal(back.operand[i].table, info->kind == 'U' ? 9 : TW_NONE);
            assert_same_affine(&back.operand[i].element, &op.operand[i].element);
        }
        assert_null(tw_op_operands(code)[op.n_operands].name);
    }
}

static void each_operand_lies_where_its_name_says(void **state) {
    struct tw_op op = tw_make_matmul(
        1, tw_in_buffer(10, tw_affine_const(100)), 11, tw_in_buffer(12, tw_affine_const(120)), 13,
        TW_DT_Q4_0, 64, 3, tw_in_buffer(16, tw_affine_const(160)), 17, 1, tw_count_of(18, 19));
    (void)state;
    assert_int_equal(op.operand[TW_MATMUL_x].id, 10);
    assert_int_equal(op.operand[TW_MATMUL_x_stride].id, 11);
    assert_int_equal(op.operand[TW_MATMUL_w].offset.base, 120);
    assert_int_equal(op.operand[TW_MATMUL_w_stride].id, 13);
    assert_int_equal(op.operand[TW_MATMUL_k].id, 64);
    assert_int_equal(op.operand[TW_MATMUL_rows].max, 19);
    assert_int_equal(tw_numbers_matmul(&op).panels, 3);
    assert_int_equal(tw_numbers_matmul(&op).y_stride, 17);
    assert_ptr_equal(tw_op_region(&op, TW_MATMUL_REGION_y), &op.operand[TW_MATMUL_y]);
    assert_int_equal(TW_MATMUL_REGION_COUNT, 3);
    assert_int_equal(TW_MATMUL_IMM_COUNT, 7);
    assert_int_equal(tw_op_object(&op), TW_NONE);
    op = tw_make_mcast_set(1, 5, 6);
    assert_int_equal(tw_op_object(&op), 5);
    op = tw_make_pop(1, 7, 1);
    assert_int_equal(tw_op_object(&op), 7);
}

/* ---- demands ---- */

static bool demand_fits_kind(uint32_t code, const struct tw_operand_info *o) {
    bool own = o->demand == TW_DEMAND_OWN;
    switch (o->kind) {
    case 'R':
    case 'W':
    case 'M':
    case 'D':
        return is_region_demand(o->demand);
    case 'T':
    case 'U': /* a table, ids, a cache: checked together */
        return is_region_demand(o->demand) || own;
    case 'I': /* FIFO, semaphores and loops have rules of their own */
        return is_number_demand(o->demand) || (own && !tw_op_is_data(code));
    case 'X':
        return tw_op_is_data(code) ? o->demand == TW_DEMAND_ROWS || o->demand == TW_DEMAND_POSITION
                                   : o->demand == TW_DEMAND_TIMES;
    case 'E':
        return o->demand == TW_DEMAND_FINITE;
    case 'A':
        return own;
    default:
        return o->demand == TW_DEMAND_ID;
    }
}

static void each_operand_has_a_demand_of_its_kind(void **state) {
    (void)state;
    EACH_OPERAND(code, o, i) {
        if (!demand_fits_kind(code, o)) {
            fail_msg("%s: %s demands %u", tw_op_info(code).name, o->name, o->demand);
        }
    }
}

static uint32_t count_of(uint32_t code, uint32_t demand) {
    uint32_t n = 0;
    for (const struct tw_operand_info *o = tw_op_operands(code); o->name; o++) {
        n += o->demand == demand;
    }
    return n;
}

/* tw_op_position() relies on it: the position is the operand before the rows. */
static void demands_of_an_op_are_consistent(void **state) {
    (void)state;
    EACH_OPERAND(code, o, i) {
        if (o->demand == TW_DEMAND_WEIGHTS) {
            assert_int_equal(count_of(code, TW_DEMAND_WEIGHT_DTYPE), 1);
        }
        if (o->demand == TW_DEMAND_CACHE) {
            assert_int_equal(count_of(code, TW_DEMAND_CACHE_DTYPE), 1);
        }
        if (o->demand == TW_DEMAND_POSITION) {
            assert_int_equal(count_of(code, TW_DEMAND_POSITION), 1);
            assert_string_equal(o[1].name, "rows");
            assert_int_equal(o[1].kind, 'X');
        }
    }
}

static void a_number_demand_holds_from_its_minimum_to_its_maximum(void **state) {
    (void)state;
#define TW_X(name, min, max, multiple, text)                                    \
    if (TW_DEMAND_##name != TW_DEMAND_WEIGHT_DTYPE) {                           \
        const uint32_t low = min, high = max, step = multiple;                  \
        assert_true(tw_demand_number(TW_DEMAND_##name, low));                   \
        assert_true(tw_demand_number(TW_DEMAND_##name, low + step));            \
        assert_true(tw_demand_number(TW_DEMAND_##name, high));                  \
        assert_false(tw_demand_number(TW_DEMAND_##name, high + 1));             \
        assert_true(low == 0 || !tw_demand_number(TW_DEMAND_##name, low - 1));  \
        assert_true(step == 1 || !tw_demand_number(TW_DEMAND_##name, low + 1)); \
    }
    TW_NUMBER_DEMANDS(TW_X)
#undef TW_X
    for (uint32_t dtype = 0; dtype < 40; dtype++) {
        bool weight = dtype < TW_DT_COUNT && dtype != TW_DT_I32 && dtype != TW_DT_U8 &&
                      dtype != TW_DT_Q8S && dtype != TW_DT_Q8K;
        assert_int_equal(tw_demand_number(TW_DEMAND_WEIGHT_DTYPE, dtype), weight);
        assert_int_equal(tw_demand_number(TW_DEMAND_CACHE_DTYPE, dtype),
                         dtype == TW_DT_F32 || dtype == TW_DT_F16);
    }
}

static void a_region_demand_names_its_dtypes(void **state) {
    (void)state;
    for (uint32_t dtype = 0; dtype < TW_DT_COUNT; dtype++) {
        bool f32 = dtype == TW_DT_F32, u8 = dtype == TW_DT_U8, q8s = dtype == TW_DT_Q8S,
             q8k = dtype == TW_DT_Q8K;
        assert_true(tw_demand_dtype(TW_DEMAND_ANY, dtype, 0));
        assert_true(tw_demand_dtype(TW_DEMAND_OWN, dtype, 0));
        assert_int_equal(tw_demand_dtype(TW_DEMAND_F32, dtype, 0), f32);
        assert_int_equal(tw_demand_dtype(TW_DEMAND_F32_PAGE, dtype, 0), f32 || u8);
        assert_int_equal(tw_demand_dtype(TW_DEMAND_Q8S, dtype, 0), q8s);
        assert_int_equal(tw_demand_dtype(TW_DEMAND_Q8K, dtype, 0), q8k);
        assert_int_equal(tw_demand_dtype(TW_DEMAND_FACTOR, dtype, 0), f32 || q8s || q8k);
        assert_int_equal(tw_demand_dtype(TW_DEMAND_WEIGHTS, dtype, TW_DT_Q4_0),
                         dtype == TW_DT_Q4_0 || u8);
        assert_int_equal(tw_demand_dtype(TW_DEMAND_CACHE, dtype, TW_DT_F16),
                         dtype == TW_DT_F16 || u8);
    }
    assert_false(tw_demand_dtype(TW_DEMAND_F32, 77, 77));
}

/* ---- what the verifier does with them ---- */

static uint32_t bad_number(uint32_t demand) {
    static const uint32_t candidate[] = {0, 1, 1u << 16, UINT32_MAX};
    for (uint32_t i = 0; i < sizeof candidate / sizeof candidate[0]; i++) {
        if (!tw_demand_number(demand, candidate[i])) {
            return candidate[i];
        }
    }
    return 0;
}

/* A buffer of site 0 that the demand refuses. */
static uint32_t bad_buffer(struct pb *b, uint32_t demand) {
    const uint32_t sets[] = {SMALL_XQ, SMALL_X};
    for (uint32_t i = 0; i < 2; i++) {
        if (!tw_demand_dtype(demand, b->buffers[SMALL_BUF(sets[i], 0)].dtype, TW_DT_F32)) {
            return SMALL_BUF(sets[i], 0);
        }
    }
    for (uint32_t site = 0; site < SMALL_SITES; site++) { /* used by the last ops only */
        b->buffers[SMALL_BUF(SMALL_LF, site)].dtype = TW_DT_I32;
    }
    return SMALL_BUF(SMALL_LF, 0);
}

/* Changes operand i of op `at` of a stream of the small program so that it violates its demand; the
 * program must be refused for that. Returns false if the operand has no demand that can be
 * violated. */
static bool is_refused(uint32_t engine, uint32_t at, uint32_t i) {
    struct pb *b = small_program();
    const struct tw_stream *s = pb_stream(b, 0, engine);
    struct tw_op op;
    char says[80];
    tw_error err = {0};
    assert_true(tw_op_decode(s->words, s->n_words, at, &op));
    const struct tw_operand_info *info = &tw_op_operands(op.code)[i];
    uint32_t n_words = op.n_words;
    bool number = info->kind == 'I' && is_number_demand(info->demand),
         region = tw_letter_in("RWMD", info->kind) && info->demand != TW_DEMAND_ANY;
    if (number) {
        op.operand[i].id = bad_number(info->demand);
        snprintf(says, sizeof says, "%s, is %u", tw_demand_text(info->demand), op.operand[i].id);
    } else if (region) {
        op.operand[i].id = bad_buffer(b, info->demand);
        snprintf(says, sizeof says, "%s is in a %s buffer", info->name,
                 tw_dtype_name(b->buffers[op.operand[i].id].dtype));
    } else {
        pb_free(b);
        return false;
    }
    pb_splice(b, 0, engine, at, n_words, &op);
    assert_int_equal(tw_verify_program(&b->p, NULL, &err), TW_E_VERIFY);
    if (!strstr(err.message, says)) {
        fail_msg("%s %s: \"%s\" does not say \"%s\"", tw_op_info(op.code).name, info->name,
                 err.message, says);
    }
    pb_free(b);
    return true;
}

/* The small program contains every data op. */
static void the_verifier_enforces_every_demand(void **state) {
    struct pb *b = small_program();
    uint64_t seen = 0;
    (void)state;
    for (uint32_t e = 0; e < TW_ENGINE_COUNT; e++) {
        const struct tw_stream *s = pb_stream(b, 0, e);
        struct tw_op op;
        for (uint32_t at = 0; at < s->n_words; at += op.n_words) {
            assert_true(tw_op_decode(s->words, s->n_words, at, &op));
            if (seen >> op.code & 1u) {
                continue;
            }
            seen |= UINT64_C(1) << op.code;
            uint32_t broken = 0;
            for (uint32_t i = 0; i < op.n_operands; i++) {
                broken += is_refused(e, at, i);
            }
            assert_true(broken > 0 || !tw_op_is_data(op.code));
        }
    }
    for (uint32_t code = 0; code < TW_OP_LIMIT; code++) {
        if (tw_op_is_data(code) && !(seen >> code & 1u)) {
            fail_msg("the small program has no %s", tw_op_info(code).name);
        }
    }
    pb_free(b);
}

/* ---- extents ---- */

static void each_region_of_a_data_op_has_an_extent(void **state) {
    const struct tw_tensor tensor = {.bytes = 4096};
    uint32_t region = 0;
    (void)state;
    EACH_OPERAND(code, o, i) {
        struct tw_op op = make_any(code);
        region = i == 0 ? 0 : region;
        if (!is_region(o)) {
            continue;
        }
        if (code == TW_OP_MATMUL) {
            op.operand[TW_MATMUL_dtype].id = TW_DT_F32;
        } else if (code == TW_OP_QUANT_K) {
            op.operand[TW_QUANT_K_cols].id = 256; /* a block */
        }
        assert_true(tw_op_is_data(code));
        assert_ptr_equal(tw_op_region(&op, region), &op.operand[i]);
        struct tw_extent e = tw_op_extent(&op, region++, 3, TW_DT_F32, &tensor);
        if (e.rows == 0 || e.row_bytes == 0) {
            fail_msg("%s: %s has no extent", tw_op_info(code).name, o->name);
        }
    }
}

static void control_ops_touch_no_bytes(void **state) {
    (void)state;
    for (uint32_t code = 0; code < TW_OP_LIMIT; code++) {
        struct tw_op op = make_any(code);
        if (tw_op_info(code).name && !tw_op_is_data(code)) {
            assert_null(tw_op_region(&op, 0));
            assert_int_equal(tw_op_extent(&op, 0, 3, TW_DT_F32, NULL).rows, 0);
        }
    }
}

/* The forms of an op may have come later than the op. */
static void each_op_has_the_minor_version_that_brought_it(void **state) {
    (void)state;
    static const struct {
        enum tw_dtype x, weights;
        uint32_t minor;
    } products[] = {{TW_DT_F32, TW_DT_F32, 0},   {TW_DT_F32, TW_DT_F16, 0},
                    {TW_DT_Q8_0, TW_DT_Q8_0, 0}, {TW_DT_Q8_0, TW_DT_Q4_0, 0},
                    {TW_DT_F32, TW_DT_Q8_0, 1},  {TW_DT_F32, TW_DT_Q4_K, 1}};
    struct tw_buffer buffer = {.dtype = 0};
    struct tw_op op = {.code = TW_OP_MATMUL};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        buffer.dtype = (uint8_t)products[i].x;
        op.operand[TW_MATMUL_dtype].id = products[i].weights;
        assert_int_equal(tw_op_abi_minor(&op, &buffer), products[i].minor);
    }
    op.code = TW_OP_RMS_NORM;
    assert_int_equal(tw_op_abi_minor(&op, &buffer), 0);
    op.code = TW_OP_LAYER_NORM;
    assert_int_equal(tw_op_abi_minor(&op, &buffer), 1);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_texts_of_an_op_differ),
        cmocka_unit_test(an_unknown_number_has_no_operands),
        cmocka_unit_test(a_made_op_is_encoded_and_decoded_with_all_its_operands),
        cmocka_unit_test(each_operand_lies_where_its_name_says),
        cmocka_unit_test(each_operand_has_a_demand_of_its_kind),
        cmocka_unit_test(demands_of_an_op_are_consistent),
        cmocka_unit_test(a_number_demand_holds_from_its_minimum_to_its_maximum),
        cmocka_unit_test(a_region_demand_names_its_dtypes),
        cmocka_unit_test(the_verifier_enforces_every_demand),
        cmocka_unit_test(each_region_of_a_data_op_has_an_extent),
        cmocka_unit_test(control_ops_touch_no_bytes),
        cmocka_unit_test(each_op_has_the_minor_version_that_brought_it),
    };
    return cmocka_run_group_tests_name("op_schema", tests, NULL, NULL);
}
