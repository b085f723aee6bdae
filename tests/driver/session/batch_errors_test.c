/* SPDX-License-Identifier: Apache-2.0
 *
 * tw_step() when something is wrong with some of its sessions: each entry has its own result, and
 * the others have the bits of single steps.
 */
#include "tests/driver/session/batch_kit.h"
#include "tests/support/socket_device.h"

#include <signal.h>

enum { GOOD = 4 };

/* Sessions that nothing is wrong with, at different positions. */
struct others {
    struct kit kit;
    tw_session *session[GOOD];
    struct tw_step_entry entry[GOOD + 1];
    tw_error err;
};

static void begin_on(struct others *o, const char *device, uint32_t pages) {
    kit_open(&o->kit, device, "host", strcmp(device, "emu") == 0, pages);
    for (uint32_t i = 0; i < GOOD; i++) {
        o->session[i] = kit_create(&o->kit, NULL);
        assert_int_equal(
            tw_session_feed(o->session[i], kit_tokens(i), 3 + 7 * (size_t)i, &o->kit.err), 0);
    }
}

static void begin(struct others *o, uint32_t pages) {
    begin_on(o, "emu", pages);
}

static void end(struct others *o) {
    for (uint32_t i = 0; i < GOOD; i++) {
        tw_session_destroy(o->session[i]);
    }
    kit_close(&o->kit);
}

/* Steps the others together with one more entry, in the middle of the list, which must get that
 * error. */
static void step_with(struct others *o, struct tw_step_entry bad, int code, const char *part) {
    tw_error first = {0};
    memset(&o->err, 0, sizeof o->err);
    bad.err = &o->err;
    for (uint32_t i = 0, at = 0; i < GOOD; i++, at++) {
        if (i == GOOD / 2) {
            o->entry[at++] = bad;
        }
        o->entry[at] = kit_entry(o->session[i], i, 1 + i % 2, NULL);
    }
    int found = tw_step(o->entry, GOOD + 1, &first);
    if (found != code || o->entry[GOOD / 2].code != code || o->err.code != code ||
        !strstr(o->err.message, part)) {
        fail_msg("%d, %d: \"%s\", expected %d and \"%s\"", found, o->entry[GOOD / 2].code,
                 o->err.message, code, part);
    }
    assert_string_equal(first.message, o->err.message);
    for (uint32_t i = 0; i < GOOD; i++) {
        kit_check(o->session[i], i);
    }
}

static void refused_entries_do_not_disturb_the_others(void **state) {
    (void)state;
    static struct others o;
    const uint32_t wrong = KIT_VOCAB + 1000, right = 1;
    begin(&o, 0);
    struct tw_session_options options = {.size = sizeof options, .n_ctx = 5};
    tw_session *s = kit_create(&o.kit, NULL), *full = kit_create(&o.kit, &options);
    step_with(&o, (struct tw_step_entry){.session = s, .ids = &wrong, .n = 1}, TW_E_RANGE, "2000");
    step_with(&o, (struct tw_step_entry){.session = NULL, .ids = &right, .n = 1}, TW_E_USAGE,
              "session is NULL");
    step_with(&o, (struct tw_step_entry){.session = s, .ids = NULL, .n = 1}, TW_E_USAGE,
              "ids is NULL");
    step_with(&o, (struct tw_step_entry){.session = s, .ids = &right, .n = 1, .flags = 8},
              TW_E_USAGE, "flag");
    step_with(&o, (struct tw_step_entry){.session = o.session[0], .ids = &right, .n = 1},
              TW_E_USAGE, "in the list twice");
    step_with(&o, kit_entry(full, 9, 6, NULL), TW_E_CONTEXT_FULL, "5");
    assert_int_equal(tw_session_feed(s, kit_tokens(7), 5, &o.kit.err), 0); /* it is as it was */
    kit_check(s, 7);
    tw_session_destroy(s);
    tw_session_destroy(full);
    end(&o);
}

static void out_of_pages_is_one_sessions_error(void **state) {
    (void)state;
    static struct others o;
    begin(&o, GOOD + 1);
    tw_session *s = kit_create(&o.kit, NULL);
    assert_int_equal(tw_session_feed(s, kit_tokens(8), 64, &o.kit.err), 0);
    step_with(&o, kit_entry(s, 8, 1, NULL), TW_E_NOMEM, "page");
    tw_session_destroy(o.session[GOOD - 1]);
    o.session[GOOD - 1] = kit_create(&o.kit, NULL);
    assert_int_equal(tw_session_feed(s, kit_tokens(8) + 64, 1, &o.kit.err), 0);
    kit_check(s, 8);
    tw_session_destroy(s);
    end(&o);
}

static void an_interrupted_session_goes_on_later(void **state) {
    (void)state;
    static struct others o;
    static volatile sig_atomic_t stop;
    struct tw_session_options options = {.size = sizeof options, .stop = &stop};
    begin(&o, 0);
    tw_session *s = kit_create(&o.kit, &options);
    stop = 1;
    step_with(&o, kit_entry(s, 5, 1, NULL), TW_E_INTERRUPTED, "interrupted at position 0");
    stop = 0;
    assert_int_equal(tw_session_feed(s, kit_tokens(5), 1, &o.kit.err), 0);
    kit_check(s, 5);
    tw_session_destroy(s);
    end(&o);
}

/* Makes all values of the session's first page infinite or NaN. */
static void spoil(struct others *o, const tw_session *s) {
    const struct tw_state_pool *pool = &o->kit.deployment->pool;
    for (uint32_t t = 0; t < pool->n_tensors; t++) {
        const struct tw_pool_tensor *x = &pool->tensors[t];
        uint8_t *bytes = malloc(x->page_bytes);
        memset(bytes, 0xFF, x->page_bytes);
        assert_int_equal(tw_device_write(o->kit.device,
                                         x->address + (uint64_t)s->pages.page[0] * x->page_bytes,
                                         bytes, x->page_bytes, &o->kit.err),
                         0);
        free(bytes);
    }
}

static void logits_that_are_no_numbers_are_one_sessions_fault(void **state) {
    (void)state;
    static struct others o;
    begin(&o, 0);
    tw_session *s = kit_create(&o.kit, NULL);
    assert_int_equal(tw_session_feed(s, kit_tokens(6), 4, &o.kit.err), 0);
    spoil(&o, s);
    step_with(&o, kit_entry(s, 6, 1, NULL), TW_E_FAULT, "infinite or not a number");
    step_with(&o, kit_entry(s, 6, 1, NULL), TW_E_FAULT, "earlier step");
    tw_session_destroy(s);
    tw_session *next = kit_create(&o.kit, NULL); /* which may get the page */
    assert_int_equal(tw_session_feed(next, kit_tokens(6), 4, &o.kit.err), 0);
    kit_check(next, 6);
    tw_session_destroy(next);
    end(&o);
}

/* The device repeats the driver's checks: here the driver's are bypassed, so that the shared step
 * faults, and more often than a program may that is at fault itself. */
static void a_fault_of_the_device_is_one_sessions(void **state) {
    (void)state;
    static struct others o;
    const uint32_t wrong = KIT_VOCAB + 1000;
    begin(&o, 0);
    for (uint32_t i = 0; i < 4; i++) {
        tw_session *s = kit_create(&o.kit, NULL);
        uint32_t n_vocab = s->n_vocab;
        s->n_vocab = 1u << 30;
        step_with(&o, (struct tw_step_entry){.session = s, .ids = &wrong, .n = 1}, TW_E_FAULT,
                  "IdOutOfRange");
        s->n_vocab = n_vocab;
        step_with(&o, kit_entry(s, 5, 1, NULL), TW_E_FAULT, "earlier step");
        tw_session_destroy(s);
    }
    struct tw_session_info info = {.size = sizeof info};
    assert_int_equal(tw_session_get_info(o.session[0], &info, &o.err), 0);
    assert_int_equal(info.batch, MODEL_BATCH); /* the program was never at fault */
    end(&o);
}

/* Steps all sessions, which must all get that error, and a message with that part. */
static void all_fail(struct others *o, int code, const char *part) {
    tw_error err[GOOD] = {{0}};
    for (uint32_t i = 0; i < GOOD; i++) {
        o->entry[i] = kit_entry(o->session[i], i, 1, &err[i]);
    }
    int found = tw_step(o->entry, GOOD, &o->err);
    for (uint32_t i = 0; i < GOOD; i++) {
        if (found != code || o->entry[i].code != code || !strstr(err[i].message, part)) {
            fail_msg("%d, %d: \"%s\", expected %d", found, o->entry[i].code, err[i].message, code);
        }
    }
}

static void a_reset_ends_all_sessions(void **state) {
    (void)state;
    static struct others o;
    begin(&o, 0);
    assert_int_equal(tw_device_reset(o.kit.device, &o.err), 0);
    all_fail(&o, TW_E_USAGE, "reset");
    end(&o);
}

static void a_lost_device_ends_all_sessions(void **state) {
    (void)state;
    static struct others o;
    struct socket_device d;
    socket_folder_make();
    socket_device_start(&d, "batch-errors", NULL, 0);
    begin_on(&o, d.selector, 0);
    socket_device_kill(&d);
    all_fail(&o, TW_E_DEVICE_LOST, "");
    all_fail(&o, TW_E_DEVICE_LOST, "");
    end(&o);
    socket_folder_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_entries_do_not_disturb_the_others),
        cmocka_unit_test(out_of_pages_is_one_sessions_error),
        cmocka_unit_test(an_interrupted_session_goes_on_later),
        cmocka_unit_test(logits_that_are_no_numbers_are_one_sessions_fault),
        cmocka_unit_test(a_fault_of_the_device_is_one_sessions),
        cmocka_unit_test(a_reset_ends_all_sessions),
        cmocka_unit_test(a_lost_device_ends_all_sessions),
    };
    return cmocka_run_group_tests_name("steps of several sessions: errors", tests, NULL, kit_end);
}
