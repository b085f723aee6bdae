/* SPDX-License-Identifier: Apache-2.0
 *
 * What a bundle's programs need is stored with them and held against what a device has before
 * anything is uploaded.
 */
#include "driver/device/deploy.h"
#include "loader/bundle/loader.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/model_bundle.h"
#include "tests/support/test.h"
#include "tilewright/progblob.h"

#include <stdlib.h>

static int end(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

struct try {
    tw_device *device;
    tw_decoder *decoder;
    uint64_t used; /* device memory before the deployment */
};

static uint64_t memory_used(tw_device *device) {
    struct tw_wire_counters n = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_COUNTERS, .out = &n, .out_bytes = sizeof n};
    assert_int_equal(tw_device_call(device, &call, NULL), 0);
    return n.memory_used;
}

static struct try open_try(void) {
    struct try t = {NULL, NULL, 0};
    tw_error err = {0};
    if (tw_device_open("emu", NULL, &t.device, &err) ||
        tw_decoder_open(model_bundle("host"), 0, &t.decoder, &err)) {
        fail_msg("%s", err.message);
    }
    t.used = memory_used(t.device);
    return t;
}

static void close_try(struct try *t) {
    tw_decoder_close(t->decoder);
    tw_device_close(t->device);
}

static void expect(struct try *t, const char *words) {
    tw_error err = {0};
    tw_deployment *d = NULL;
    assert_int_equal(tw_deploy(t->device, t->decoder, &d, &err), TW_E_UNSUPPORTED);
    if (!strstr(err.message, words) || !strstr(err.message, "program decode")) {
        fail_msg("expected \"%s\", found \"%s\"", words, err.message);
    }
    assert_true(memory_used(t->device) == t->used); /* nothing has been sent */
}

static void a_device_that_lacks_something_is_refused_before_the_upload(void **state) {
    (void)state;
    struct try t = open_try();
    struct tw_requirements all = t.device->limits, *l = &t.device->limits;
    l->ops[TW_OP_MATMUL / 32] &= ~(1u << TW_OP_MATMUL % 32);
    expect(&t, "needs the op matmul (number 34), which device emu does not have");
    *l = all;
    l->dtypes &= ~(1u << TW_DT_Q8_0);
    expect(&t, "needs the element type q8_0 (number 4)");
    *l = all;
    l->packings &= ~(1u << TW_PACK_KEYS);
    expect(&t, "needs the packing keys (number 2)");
    *l = all;
    l->rows = 0;
    expect(&t, "needs 1 rows in a step, device emu has 0");
    *l = all;
    l->sites = 1;
    expect(&t, "needs 2 sites, device emu has 1");
    *l = all;
    l->sram_bytes[0] = 4096;
    expect(&t, "bytes of SRAM on a site, device emu has 4096");
    *l = all;
    tw_deployment *d = NULL;
    assert_int_equal(tw_deploy(t.device, t.decoder, &d, NULL), 0);
    tw_deployment_destroy(d);
    close_try(&t);
}

/* A device from before LIMITS says nothing: it is taken to have all. */
static void a_device_that_says_nothing_is_asked_at_load(void **state) {
    (void)state;
    struct try t = open_try();
    struct tw_requirements unknown;
    memset(&unknown, 0xFF, sizeof unknown);
    t.device->limits = unknown;
    tw_deployment *d = NULL;
    assert_int_equal(tw_deploy(t.device, t.decoder, &d, NULL), 0);
    tw_deployment_destroy(d);
    close_try(&t);
}

/* Returns the header of the bundle's first program. */
static struct tw_progblob_header *first_program(uint8_t *bytes, size_t size) {
    for (size_t at = 0; at + sizeof(struct tw_progblob_header) <= size; at += 8) {
        struct tw_progblob_header *h = (struct tw_progblob_header *)(void *)(bytes + at);
        if (h->magic == TW_PROGBLOB_MAGIC && !strcmp(h->name, "decode")) {
            return h;
        }
    }
    return NULL;
}

static void requirements_are_stored_and_are_the_programs_own(void **state) {
    (void)state;
    size_t size = 0;
    uint8_t *bytes = bundle_fixture_read(model_bundle("host"), &size);
    struct tw_bundle b;
    tw_error err = {0};
    assert_non_null(bytes);
    struct tw_progblob_header *h = first_program(bytes, size);
    assert_non_null(h);
    assert_true(h->needs.ops[TW_OP_MATMUL / 32] >> TW_OP_MATMUL % 32 & 1);
    assert_true(h->needs.dtypes >> TW_DT_Q8_0 & 1);
    assert_int_equal(tw_bundle_open_memory("b", bytes, size, 0, &b, &err), 0);
    tw_bundle_close(&b);
    for (int i = 0; i < 3; i++) { /* less, more, something else */
        struct tw_requirements good = h->needs;
        h->needs.ops[TW_OP_MATMUL / 32] ^= i == 0 ? 1u << TW_OP_MATMUL % 32 : 0;
        h->needs.features ^= i == 1 ? TW_FEATURE_CHIP_LINKS : 0;
        h->needs.sram_bytes[0] -= i == 2 ? 64 : 0;
        bundle_fixture_seal(bytes, size);
        assert_int_equal(tw_bundle_open_memory("b", bytes, size, 0, &b, &err), TW_E_FORMAT);
        assert_non_null(strstr(err.message, "requirements"));
        h->needs = good;
    }
    free(bytes);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_lacks_something_is_refused_before_the_upload),
        cmocka_unit_test(a_device_that_says_nothing_is_asked_at_load),
        cmocka_unit_test(requirements_are_stored_and_are_the_programs_own),
    };
    return cmocka_run_group_tests_name("requirements", tests, NULL, end);
}
