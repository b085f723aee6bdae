/* SPDX-License-Identifier: Apache-2.0
 *
 * How composition unifies equal names, and each of its refusals: hand-written sections of a few ops
 * on one site, and a model's sections.
 */
#include "compiler/spatial/report.h"
#include "compiler/spatial/unify.h"
#include "loader/target/target_open.h"
#include "tests/compiler/program_kit.h"
#include "tilewright/requirements.h"

struct kit {
    struct tw_cmem mem;
    struct tw_strpool strings;
    struct tw_target target;
};

static void kit_open(struct kit *k) {
    memset(k, 0, sizeof *k);
    k->strings.mem = &k->mem;
    assert_int_equal(tw_cmem_init(&k->mem, NULL), 0);
    assert_int_equal(tw_target_open("host", 1, &k->target, NULL), 0);
}

static void kit_close(struct kit *k) {
    tw_cmem_finish(&k->mem);
}

/* Starts a section with one stage and one buffer of its own. */
static void section(struct kit *k, struct tw_builder *u, const char *name) {
    tw_builder_init(u, &k->mem, &k->strings, &k->target, name, 1);
    tw_builder_all_sites(u);
    *TW_VEC_PUSH(&k->mem, u->stages) =
        (struct tw_stage){.kind = TW_STAGE_COMPUTE, .engine = TW_ENGINE_MATH};
    struct tw_buffer *b = TW_VEC_PUSH(&k->mem, u->buffers);
    *b = (struct tw_buffer){.kind = TW_BUF_SCRATCH,
                            .name = tw_strpool_add(&k->strings, "own"),
                            .pages = 1,
                            .page_bytes = 256,
                            .sibling_base = TW_NONE,
                            .tensor = TW_NONE};
    tw_builder_copy(u, 0, TW_ENGINE_MATH, 0, tw_in_buffer(0, tw_affine_const(0)), 64,
                    tw_in_buffer(0, tw_affine_const(128)), 64, 64, tw_count_const(1));
}

static struct tw_tensor *tensor(struct tw_builder *u, const char *name, enum tw_role role,
                                enum tw_dtype dtype) {
    struct tw_tensor t = {.rows = 1, .cols = 32, .dtype = (uint8_t)dtype, .role = (uint8_t)role};
    t.bind_count = role != TW_ROLE_ACTIVATION;
    t.bytes = tw_row_bytes(dtype, 32);
    uint32_t id = tw_builder_add_tensor(u, name, &t, 7);
    struct tw_buffer *b = TW_VEC_PUSH(u->mem, u->buffers);
    *b = (struct tw_buffer){.kind = TW_BUF_RESIDENT,
                            .name = tw_strpool_add(u->strings, name),
                            .dtype = (uint8_t)dtype,
                            .pages = 1,
                            .page_bytes = 128,
                            .offset = 256,
                            .sibling_base = TW_NONE,
                            .tensor = role == TW_ROLE_ACTIVATION ? id : TW_NONE};
    return &u->tensors.items[id];
}

static uint32_t last(const struct tw_builder *u) {
    return u->tensors.n - 1;
}

/* The tensor added last is used: in DRAM by LOAD or STORE, in SRAM by MATH. */
static void reads(struct tw_builder *u) {
    if (u->tensors.items[last(u)].bind_count) {
        tw_builder_read(u, 0, TW_ENGINE_LOAD, 0,
                        tw_in_tensor(last(u), tw_affine_const(0), tw_affine_const(0)),
                        tw_in_buffer(0, tw_affine_const(0)), 1, 32, 32, 32);
    } else {
        tw_builder_copy(u, 0, TW_ENGINE_MATH, 0, tw_in_buffer(u->buffers.n - 1, tw_affine_const(0)),
                        64, tw_in_buffer(0, tw_affine_const(0)), 64, 64, tw_count_const(1));
    }
}

static void writes(struct tw_builder *u) {
    if (u->tensors.items[last(u)].bind_count) {
        tw_builder_write(u, 0, TW_ENGINE_STORE, 0, tw_in_buffer(0, tw_affine_const(0)), 32,
                         tw_in_tensor(last(u), tw_affine_const(0), tw_affine_const(0)), 32, 32,
                         tw_count_const(1));
    } else {
        tw_builder_copy(u, 0, TW_ENGINE_MATH, 0, tw_in_buffer(0, tw_affine_const(0)), 64,
                        tw_in_buffer(u->buffers.n - 1, tw_affine_const(0)), 64, 64,
                        tw_count_const(1));
    }
}

/* The tensor added last is the table of a GATHER. */
static void gathers(struct tw_builder *u) {
    uint32_t table = last(u);
    tensor(u, "ids", TW_ROLE_INPUT, TW_DT_I32);
    tw_builder_gather(u, 0, TW_ENGINE_LOAD, 0,
                      tw_in_tensor(table, tw_affine_const(0), tw_affine_const(0)),
                      tw_in_tensor(last(u), tw_affine_const(0), tw_affine_const(0)),
                      tw_in_buffer(0, tw_affine_const(0)), 128, 32, tw_count_const(1));
}

static int compose(struct tw_builder *sections, uint32_t n, bool part, struct tw_builder *out,
                   tw_error *err) {
    struct tw_builder *list[8];
    for (uint32_t i = 0; i < n; i++) {
        list[i] = &sections[i];
    }
    struct tw_composition c = {.name = "p", .sections = list, .n = n, .part = part};
    return tw_compose_program(&c, out, err);
}

static void expect_refusal(struct tw_builder *sections, uint32_t n, bool part, int code,
                           const char *name, const char *text) {
    struct tw_builder out;
    tw_error err = {0};
    char begin[64];
    snprintf(begin, sizeof begin, "compose: %s: ", name);
    int rc = compose(sections, n, part, &out, &err);
    if (rc != code || strncmp(err.message, begin, strlen(begin)) != 0 ||
        !strstr(err.message, text)) {
        fail_msg("%d, \"%s\"; expected %d, \"%s...%s\"", rc, err.message, code, begin, text);
    }
}

/* ---- types ---- */

enum how { READS, WRITES, BOTH, GATHERS };

static void use(struct tw_builder *u, enum how how) {
    if (how == GATHERS) {
        gathers(u);
    }
    if (how == READS || how == BOTH) {
        reads(u);
    }
    if (how == WRITES || how == BOTH) {
        writes(u);
    }
}

struct dtype_case {
    enum tw_role role;
    enum tw_dtype a, b;
    enum how use_a, use_b;
    int becomes; /* the unified type; -1: refused */
    const char *why;
};

static const struct dtype_case dtype_cases[] = {
    /* the writer decides */
    {TW_ROLE_ACTIVATION, TW_DT_F32, TW_DT_F32, WRITES, READS, TW_DT_F32, ""},
    {TW_ROLE_ACTIVATION, TW_DT_F32, TW_DT_F16, WRITES, READS, -1,
     "the machine cannot convert when reading"},
    {TW_ROLE_ACTIVATION, TW_DT_F16, TW_DT_F32, WRITES, READS, -1,
     "the machine cannot convert when reading"},
    {TW_ROLE_ACTIVATION, TW_DT_F32, TW_DT_Q8S, WRITES, READS, -1,
     "the machine cannot convert when reading"},
    {TW_ROLE_STATE, TW_DT_F16, TW_DT_F32, WRITES, GATHERS, TW_DT_F16, ""},
    {TW_ROLE_STATE, TW_DT_F32, TW_DT_Q8_0, WRITES, GATHERS, TW_DT_F32, ""},
    /* two writers */
    {TW_ROLE_ACTIVATION, TW_DT_F32, TW_DT_F16, WRITES, BOTH, -1, "both write it"},
    {TW_ROLE_STATE, TW_DT_F32, TW_DT_F16, BOTH, WRITES, -1, "both write it"},
    /* integers */
    {TW_ROLE_ACTIVATION, TW_DT_F32, TW_DT_I32, WRITES, READS, -1,
     "one is an integer, the other a float"},
    {TW_ROLE_PARAM, TW_DT_F32, TW_DT_U8, GATHERS, GATHERS, -1,
     "one is an integer, the other a float"},
    {TW_ROLE_PARAM, TW_DT_I32, TW_DT_U8, READS, READS, -1, "one is an integer, the other a float"},
    /* among readers, the wider float wins */
    {TW_ROLE_PARAM, TW_DT_F16, TW_DT_F32, GATHERS, READS, TW_DT_F32, ""},
    {TW_ROLE_PARAM, TW_DT_BF16, TW_DT_F32, GATHERS, GATHERS, TW_DT_F32, ""},
    {TW_ROLE_PARAM, TW_DT_Q4_0, TW_DT_Q8_0, GATHERS, READS, TW_DT_Q8_0, ""},
    {TW_ROLE_PARAM, TW_DT_Q8_0, TW_DT_F16, GATHERS, GATHERS, TW_DT_F16, ""},
    {TW_ROLE_PARAM, TW_DT_F16, TW_DT_F32, READS, GATHERS, -1,
     "the machine cannot convert when reading"},
    {TW_ROLE_PARAM, TW_DT_F16, TW_DT_BF16, GATHERS, GATHERS, -1,
     "neither can represent all values of the other"},
    {TW_ROLE_PARAM, TW_DT_F16, TW_DT_F32, READS, READS, -1,
     "the machine cannot convert when reading"},
};

static void check_dtype(const struct dtype_case *d, bool swap) {
    struct kit k;
    struct tw_builder u[2], out;
    kit_open(&k);
    for (uint32_t i = 0; i < 2; i++) {
        bool first = (i == 0) != swap;
        section(&k, &u[i], i ? "two" : "one");
        tensor(&u[i], "t", d->role, first ? d->a : d->b);
        use(&u[i], first ? d->use_a : d->use_b);
    }
    if (d->becomes < 0) {
        expect_refusal(u, 2, true, TW_E_INTERNAL, "dtype_conflict", d->why);
    } else {
        tw_error err = {0};
        if (compose(u, 2, true, &out, &err)) {
            fail_msg("%s", err.message);
        }
        const struct tw_tensor *t = &out.tensors.items[tw_builder_tensor(&out, "t")];
        assert_int_equal(t->dtype, d->becomes);
        assert_int_equal(t->bytes, tw_row_bytes((unsigned)d->becomes, 32));
    }
    kit_close(&k);
}

static void types_follow_writers_then_the_wider_reader_in_any_order(void **state) {
    (void)state;
    for (uint32_t i = 0; i < sizeof dtype_cases / sizeof *dtype_cases; i++) {
        check_dtype(&dtype_cases[i], false);
        check_dtype(&dtype_cases[i], true);
    }
}

/* ---- shapes ---- */

static void two_shapes_of_one_name_are_refused(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        struct kit k;
        struct tw_builder u[2];
        kit_open(&k);
        section(&k, &u[0], "one");
        tensor(&u[0], "t", TW_ROLE_ACTIVATION, TW_DT_F32);
        writes(&u[0]);
        section(&k, &u[1], "two");
        struct tw_tensor *t = tensor(&u[1], "t", TW_ROLE_ACTIVATION, TW_DT_F32);
        reads(&u[1]);
        t->rows += i == 0;
        t->cols += i == 1;
        t->packing = (uint8_t)(i == 2);
        t->bind_count += i == 3;
        t->head_dim += i == 4;
        u[1].buffers.items[1].page_bytes += i == 5 ? 64 : 0;
        u[1].buffers.items[1].sibling_base = i == 6 ? 1 : TW_NONE;
        expect_refusal(
            u, 2, true, TW_E_INTERNAL, "shape_conflict",
            i == 5   ? "activation t: section two"
            : i == 6 ? "activation t: section two and an earlier section have it on different sites"
                     : "tensor t of section two");
        kit_close(&k);
    }
}

static void two_meanings_of_one_trip_name_are_refused(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct kit k;
        struct tw_builder u[2], out;
        kit_open(&k);
        for (uint32_t s = 0; s < 2; s++) {
            section(&k, &u[s], s ? "two" : "one");
            tw_builder_trip(&u[s], "blocks", s && i == 1 ? "pos" : "end", s && i == 2 ? 32 : 64,
                            s && i == 3 ? 9 : 8);
        }
        if (i == 0) {
            assert_int_equal(compose(u, 2, true, &out, NULL), 0);
            assert_int_equal(out.trips.n, 1);
        } else {
            expect_refusal(u, 2, true, TW_E_INTERNAL, "shape_conflict",
                           "trip blocks of section two");
        }
        kit_close(&k);
    }
}

/* ---- roles ---- */

struct role_case {
    enum tw_role declared;
    enum how one, two;
    bool part;
    const char *refusal, *text; /* NULL: accepted */
};

static const struct role_case role_cases[] = {
    {TW_ROLE_PARAM, READS, READS, false, NULL, NULL},
    {TW_ROLE_INPUT, READS, READS, false, NULL, NULL},
    {TW_ROLE_OUTPUT, WRITES, WRITES, false, NULL, NULL},
    {TW_ROLE_STATE, BOTH, READS, false, NULL, NULL},
    {TW_ROLE_ACTIVATION, WRITES, READS, false, NULL, NULL},
    {TW_ROLE_ACTIVATION, READS, READS, true, NULL, NULL},
    {TW_ROLE_ACTIVATION, WRITES, WRITES, true, NULL, NULL},
    {TW_ROLE_PARAM, READS, WRITES, true, "role_conflict",
     "declared param, but it is written and read, which makes it activation"},
    {TW_ROLE_INPUT, WRITES, READS, true, "role_conflict",
     "declared input, but it is written and read"},
    {TW_ROLE_PARAM, WRITES, WRITES, false, "role_conflict",
     "declared param, but it is only written, which makes it output"},
    {TW_ROLE_OUTPUT, READS, READS, false, "role_conflict", "declared output, but it is only read"},
    {TW_ROLE_OUTPUT, WRITES, READS, false, "role_conflict",
     "declared output, but it is written and read"},
    {TW_ROLE_ACTIVATION, WRITES, WRITES, false, "role_conflict",
     "declared activation, but it is only written"},
    {TW_ROLE_ACTIVATION, READS, WRITES, false, "not_scheduled", "section one reads activation t"},
    {TW_ROLE_ACTIVATION, READS, READS, false, "not_scheduled", "section one reads activation t"},
};

static void roles_come_from_use(void **state) {
    (void)state;
    for (uint32_t i = 0; i < sizeof role_cases / sizeof *role_cases; i++) {
        const struct role_case *r = &role_cases[i];
        struct kit k;
        struct tw_builder u[2];
        struct tw_unified n;
        struct tw_builder *list[2] = {&u[0], &u[1]};
        struct tw_composition c = {.name = "p", .sections = list, .n = 2, .part = r->part};
        tw_error err = {0};
        kit_open(&k);
        section(&k, &u[0], "one");
        tensor(&u[0], "t", r->declared, TW_DT_F32);
        use(&u[0], r->one);
        section(&k, &u[1], "two");
        tensor(&u[1], "t", r->declared, TW_DT_F32);
        use(&u[1], r->two);
        int rc = tw_unify(&c, &n, &err);
        if (r->refusal) {
            expect_refusal(u, 2, r->part, TW_E_INTERNAL, r->refusal, r->text);
        } else if (rc || n.tensors.items[0].record.role != r->declared) {
            fail_msg("case %u: %s", i, err.message);
        }
        kit_close(&k);
    }
}

static void an_input_that_only_a_trip_names_is_read(void **state) {
    (void)state;
    struct kit k;
    struct tw_builder u[1];
    struct tw_use *uses;
    kit_open(&k);
    section(&k, &u[0], "one");
    tw_builder_trip(&u[0], "blocks", "end", 64, 8);
    assert_int_equal(tw_builder_tensor_uses(&u[0], &uses, NULL), 0);
    assert_true(uses[0].reads && !uses[0].writes);
    u[0].tensors.items[0].role = TW_ROLE_OUTPUT;
    expect_refusal(u, 1, false, TW_E_INTERNAL, "role_conflict",
                   "tensor end of section one is declared output, but it is only read");
    kit_close(&k);
}

static void a_state_is_bound_to_one_initial_value(void **state) {
    (void)state;
    static const struct {
        enum tw_init a, b;
        uint32_t value_b;
        int becomes;
    } cases[] = {{TW_INIT_ZERO, TW_INIT_ZERO, 7, TW_INIT_ZERO},
                 {TW_INIT_ZERO, TW_INIT_NONE, 7, TW_INIT_ZERO},
                 {TW_INIT_NONE, TW_INIT_BLOB, 7, TW_INIT_BLOB},
                 {TW_INIT_BLOB, TW_INIT_BLOB, 7, TW_INIT_BLOB},
                 {TW_INIT_BLOB, TW_INIT_BLOB, 8, -1},
                 {TW_INIT_ZERO, TW_INIT_BLOB, 7, -1},
                 {TW_INIT_BLOB, TW_INIT_ZERO, 7, -1}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kit k;
        struct tw_builder u[2], out;
        kit_open(&k);
        for (uint32_t s = 0; s < 2; s++) {
            section(&k, &u[s], s ? "two" : "one");
            tensor(&u[s], "t", TW_ROLE_STATE, TW_DT_F32)->init =
                (uint8_t)(s ? cases[i].b : cases[i].a);
            use(&u[s], BOTH);
        }
        u[1].tensor_value.items[0] = cases[i].value_b;
        if (cases[i].becomes < 0) {
            expect_refusal(u, 2, true, TW_E_INTERNAL, "initial_conflict", "tensor t is bound to");
        } else {
            assert_int_equal(compose(u, 2, true, &out, NULL), 0);
            assert_int_equal(out.tensors.items[0].init, cases[i].becomes);
        }
        kit_close(&k);
    }
}

/* ---- the other refusals ---- */

static void a_composition_without_sections_is_refused(void **state) {
    (void)state;
    expect_refusal(NULL, 0, true, TW_E_INTERNAL, "no_sections", "program p has no sections");
}

static void a_section_without_code_is_refused(void **state) {
    (void)state;
    struct kit k;
    struct tw_builder u[2];
    kit_open(&k);
    section(&k, &u[0], "one");
    tw_builder_init(&u[1], &k.mem, &k.strings, &k.target, "two", 1);
    expect_refusal(u, 2, true, TW_E_INTERNAL, "not_scheduled", "section two has no code");
    kit_close(&k);
}

static void sections_of_different_targets_or_rows_are_refused(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct kit k;
        struct tw_builder u[2];
        struct tw_target other;
        struct tw_strpool names = {.mem = &k.mem};
        kit_open(&k);
        section(&k, &u[0], "one");
        section(&k, &u[1], "two");
        other = k.target;
        other.class_bytes[0] += i == 1 ? 64 : 0;
        other.hash[3] ^= i == 2;
        u[1].target = &other;
        u[1].rows += i == 0;
        u[1].strings = i == 3 ? &names : u[1].strings;
        expect_refusal(u, 2, true, TW_E_INTERNAL, "target_mismatch", "section two is for");
        kit_close(&k);
    }
}

static char *report(struct tw_builder *u) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_int_equal(tw_builder_print_report(u, f, NULL), 0);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void chips_without_links_are_refused(void **state) {
    (void)state;
    struct kit k;
    struct tw_builder u[1], out;
    tw_error err = {0};
    kit_open(&k);
    k.target.n_chips = 2;
    section(&k, &u[0], "one");
    expect_refusal(u, 1, true, TW_E_UNSUPPORTED, "no_chip_links",
                   "program p spans the 2 chips of target ");
    k.target.chip_link_bytes_per_cycle = 1;
    assert_int_equal(compose(u, 1, true, &out, &err), 0);
    char *text = report(&out);
    assert_non_null(strstr(text, "; links between 2 chips\n"));
    free(text);
    kit_close(&k);
}

static void more_arrivals_than_a_word_counts_are_refused(void **state) {
    (void)state;
    struct kit k;
    struct tw_builder u[1], out;
    kit_open(&k);
    section(&k, &u[0], "one");
    u[0].repeat = 0x7FFFFFFF;
    assert_int_equal(compose(u, 1, true, &out, NULL), 0);
    u[0].repeat++;
    expect_refusal(u, 1, true, TW_E_PLACEMENT, "participant_limit",
                   "1 sites arrive 2147483648 times");
    kit_close(&k);
}

static void sections_that_do_not_fit_a_site_are_refused(void **state) {
    (void)state;
    struct kit k;
    struct tw_builder u[1];
    kit_open(&k);
    section(&k, &u[0], "one");
    tensor(&u[0], "t", TW_ROLE_ACTIVATION, TW_DT_F32);
    writes(&u[0]);
    u[0].buffers.items[0].offset = k.target.class_bytes[0] - 256;
    expect_refusal(u, 1, true, TW_E_PLACEMENT, "residency_overflow",
                   "section one needs 16777216 bytes of SRAM and activations need 128, but a site "
                   "of target host has 16777216");
    kit_close(&k);
}

static void a_result_that_breaks_a_rule_is_refused_with_rule_and_op(void **state) {
    (void)state;
    struct grid_world w;
    struct tw_builder out;
    tw_error err = {0};
    open_shape(&w, known_shapes[0], "sim4x4", 0);
    assert_true(build(&w, 1, 0));
    struct tw_composition c = {.name = "p", .sections = w.program.sections, .n = 3};
    assert_int_equal(tw_compose_program(&c, &out, &err), 0);
    struct tw_builder *head = w.program.sections[2];
    for (uint32_t i = 0; i < head->buffers.n; i++) {
        head->buffers.items[i].page_bytes /= head->buffers.items[i].kind == TW_BUF_FIFO ? 2 : 1;
    }
    assert_int_equal(tw_compose_program(&c, &out, &err), TW_E_VERIFY);
    assert_non_null(strstr(err.message, "compose: invalid: rule 7 region_in_buffer: p site "));
    assert_non_null(strstr(err.message, " op "));
    close_world(&w);
}

/* ---- reports ---- */

static void outputs_claims_and_requirements_are_joined(void **state) {
    (void)state;
    struct grid_world w;
    struct tw_builder out;
    struct tw_requirements parts[3], whole;
    open_shape(&w, known_shapes[1], "sim4x4", 0);
    assert_true(build(&w, 7, 0));
    struct tw_composition c = {.name = "p", .sections = w.program.sections, .n = 3};
    assert_int_equal(tw_compose_program(&c, &out, NULL), 0);
    assert_int_equal(out.outputs.n, 1);
    assert_string_equal(out.strings->bytes.items + out.tensors.items[out.outputs.items[0]].name,
                        "logits");
    assert_null(out.approx);
    struct tw_program p = tw_builder_program(&out);
    assert_true(tw_requirements_of(&p, &whole));
    uint32_t ops[TW_REQ_OP_WORDS] = {1u << TW_OP_LOOP | 1u << TW_OP_END | 1u << TW_OP_SEM_INC |
                                     1u << TW_OP_SEM_WAIT};
    for (uint32_t i = 0; i < 3; i++) {
        p = tw_builder_program(w.program.sections[i]);
        assert_true(tw_requirements_of(&p, &parts[i]));
        for (uint32_t k = 0; k < TW_REQ_OP_WORDS; k++) {
            ops[k] |= parts[i].ops[k];
        }
    }
    assert_memory_equal(whole.ops, ops, sizeof ops);
    assert_true(whole.dtypes >> TW_DT_Q8_0 & 1 && whole.dtypes >> TW_DT_Q8S & 1 &&
                !(whole.dtypes >> TW_DT_F16 & 1));
    assert_int_equal(whole.sram_bytes[0], out.private_bytes + out.shared_bytes);
    char *text = report(&out);
    assert_non_null(strstr(text, "outputs      logits\n"));
    assert_non_null(strstr(text, "claims       exact"));
    assert_non_null(strstr(text, " matmul "));
    free(text);
    w.program.sections[0]->approx = "spills in f16";
    w.program.sections[2]->approx = "sums in any order";
    assert_int_equal(tw_compose_program(&c, &out, NULL), 0);
    text = report(&out);
    assert_non_null(
        strstr(text, "claims       approximate: embed: spills in f16; head: sums in any order\n"));
    free(text);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_follow_writers_then_the_wider_reader_in_any_order),
        cmocka_unit_test(two_shapes_of_one_name_are_refused),
        cmocka_unit_test(two_meanings_of_one_trip_name_are_refused),
        cmocka_unit_test(roles_come_from_use),
        cmocka_unit_test(an_input_that_only_a_trip_names_is_read),
        cmocka_unit_test(a_state_is_bound_to_one_initial_value),
        cmocka_unit_test(a_composition_without_sections_is_refused),
        cmocka_unit_test(a_section_without_code_is_refused),
        cmocka_unit_test(sections_of_different_targets_or_rows_are_refused),
        cmocka_unit_test(chips_without_links_are_refused),
        cmocka_unit_test(more_arrivals_than_a_word_counts_are_refused),
        cmocka_unit_test(sections_that_do_not_fit_a_site_are_refused),
        cmocka_unit_test(a_result_that_breaks_a_rule_is_refused_with_rule_and_op),
        cmocka_unit_test(outputs_claims_and_requirements_are_joined),
    };
    return cmocka_run_group_tests_name("compose_rules", tests, NULL, NULL);
}
