/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the verifier's rules: each is the small program, different in one place, and the rule
 * and words of its refusal.
 */
#ifndef TW_TESTS_SUPPORT_VERIFY_KIT_H
#define TW_TESTS_SUPPORT_VERIFY_KIT_H

#include "loader/verify/verify.h"
#include "tests/support/named_ids.h"
#include "tests/support/small_program.h"
#include "tests/support/test.h"

/* One way to break the program. */
struct breakage {
    const char *name;
    enum tw_rule rule;
    const char
        *says; /* a part of the message, with numbers of the program by name: pb_with_ids() */
    void (*apply)(struct pb *b);
};

#define LOAD TW_ENGINE_LOAD
#define MATH TW_ENGINE_MATH
#define STORE TW_ENGINE_STORE

/* Changes the nth op of a kind on site 0. */
#define CHANGE(b, engine, NAME, nth, ...)                                                        \
    do {                                                                                         \
        struct tw_op op;                                                                         \
        uint32_t at_ = pb_find((b), 0, (engine), TW_OP_##NAME, (nth), &op), words_ = op.n_words; \
        __VA_ARGS__;                                                                             \
        pb_splice((b), 0, (engine), at_, words_, &op);                                           \
    } while (0)
#define REMOVE(b, site, engine, NAME, nth)                                       \
    do {                                                                         \
        struct tw_op op;                                                         \
        uint32_t at_ = pb_find((b), (site), (engine), TW_OP_##NAME, (nth), &op); \
        pb_splice((b), (site), (engine), at_, op.n_words, NULL);                 \
    } while (0)
/* Puts an op before the nth of a kind on site 0. */
#define INSERT(b, engine, NAME, nth, NEW, ...)                                        \
    do {                                                                              \
        struct tw_op op;                                                              \
        const struct tw_operand o_[] = {__VA_ARGS__};                                 \
        uint32_t at_ = pb_find((b), 0, (engine), TW_OP_##NAME, (nth), &op);           \
        op = pb_make(TW_NONE, TW_OP_##NEW, o_, (uint32_t)(sizeof o_ / sizeof o_[0])); \
        pb_splice((b), 0, (engine), at_, 0, &op);                                     \
    } while (0)
#define BREAK(name) static void name(struct pb *b)
#define ROW(rule, name, says) \
    { #name, TW_RULE_##rule, says, name }

static inline void is_refused_by_its_rule(void **state) {
    const struct breakage *x = *state;
    struct pb *b = small_program();
    struct tw_verify_report report;
    tw_error err = {0};
    char begins[16], says[256];
    pb_with_ids(b, x->says, says, sizeof says);
    x->apply(b);
    int rc = tw_verify_program(&b->p, &report, &err);
    pb_free(b);
    snprintf(begins, sizeof begins, "rule %d ", (int)x->rule);
    if (rc != TW_E_VERIFY || report.failed_rule != (int)x->rule ||
        strncmp(err.message, begins, strlen(begins)) != 0 || !strstr(err.message, says)) {
        fail_msg("expected \"%s... %s\", got %d \"%s\"", begins, says, rc, err.message);
    }
}

#define RUN_BREAKAGES(group, table)                                                       \
    do {                                                                                  \
        enum { N_ROWS = sizeof(table) / sizeof(table)[0] };                               \
        static struct CMUnitTest tests_[N_ROWS];                                          \
        for (size_t i_ = 0; i_ < N_ROWS; i_++) {                                          \
            struct CMUnitTest t_ = {(table)[i_].name, is_refused_by_its_rule, NULL, NULL, \
                                    (void *)(uintptr_t) & (table)[i_]};                   \
            tests_[i_] = t_;                                                              \
        }                                                                                 \
        return cmocka_run_group_tests_name(group, tests_, NULL, NULL);                    \
    } while (0)

#endif
