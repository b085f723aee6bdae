/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of tw_step(): a device with the shipped model, sequences of tokens, and the logits
 * that single steps give after each of them.
 */
#ifndef TW_TESTS_DRIVER_SESSION_BATCH_KIT_H
#define TW_TESTS_DRIVER_SESSION_BATCH_KIT_H

#include "driver/session/session.h"
#include "tests/support/model_bundle.h"
#include "tests/support/random_model.h"
#include "tests/support/test.h"

enum { KIT_SEQUENCES = 20, KIT_LENGTH = 150, KIT_VOCAB = 1000 };

struct kit {
    tw_device *device;
    tw_decoder *decoder;
    tw_deployment *deployment;
    tw_error err;
};

/* Pages 0: the default. */
__attribute__((unused)) static void kit_open(struct kit *k, const char *device, const char *target,
                                             uint32_t n_threads, uint32_t pages) {
    struct tw_device_options d = {.size = sizeof d, .n_threads = n_threads};
    struct tw_deploy_options o = {.size = sizeof o, .state_positions = pages * TW_PAGE_POSITIONS};
    memset(k, 0, sizeof *k);
    if (tw_device_open(device, &d, &k->device, &k->err) ||
        tw_decoder_open(model_bundle_batch(target), 0, &k->decoder, &k->err) ||
        tw_deploy_with(k->device, k->decoder, &o, &k->deployment, &k->err)) {
        fail_msg("%s: %s", target, k->err.message);
    }
}

__attribute__((unused)) static void kit_close(struct kit *k) {
    tw_deployment_destroy(k->deployment);
    tw_decoder_close(k->decoder);
    tw_device_close(k->device);
}

__attribute__((unused)) static tw_session *kit_create(struct kit *k,
                                                      const struct tw_session_options *o) {
    tw_session *s = NULL;
    if (tw_session_create(k->deployment, o, &s, &k->err)) {
        fail_msg("%s", k->err.message);
    }
    return s;
}

/* Token number `at` of a sequence; sequences 2i and 2i + 1 begin alike. */
__attribute__((unused)) static const uint32_t *kit_tokens(uint32_t sequence) {
    static uint32_t ids[KIT_SEQUENCES][KIT_LENGTH];
    for (uint32_t i = 0; i < KIT_LENGTH && ids[sequence][KIT_LENGTH - 1] == 0; i++) {
        uint64_t seed = (i < 66 ? sequence / 2 : sequence + 100) * 1000 + i;
        ids[sequence][i] = 1 + random_below(&seed, KIT_VOCAB - 1);
    }
    return ids[sequence];
}

/* The logits after the first n tokens of a sequence, n not 0: fed one by one, on the host. */
__attribute__((unused)) static const float *kit_expected(uint32_t sequence, uint32_t n) {
    static float logits[KIT_SEQUENCES][KIT_LENGTH][KIT_VOCAB];
    static uint32_t known[KIT_SEQUENCES];
    if (n > known[sequence]) {
        uint32_t more = n + 20 < KIT_LENGTH ? n + 20 : KIT_LENGTH;
        struct kit k;
        kit_open(&k, "emu", "host", 1, 0);
        tw_session *s = kit_create(&k, NULL);
        for (uint32_t i = 0; i < more; i++) {
            assert_int_equal(tw_session_feed(s, kit_tokens(sequence) + i, 1, &k.err), 0);
            memcpy(logits[sequence][i], tw_session_logits(s), sizeof logits[0][0]);
        }
        known[sequence] = more;
        tw_session_destroy(s);
        kit_close(&k);
    }
    return logits[sequence][n - 1];
}

/* Fails unless the session has the logits of the sequence at its position. */
__attribute__((unused)) static void kit_check(const tw_session *s, uint32_t sequence) {
    uint32_t n = tw_session_position(s);
    assert_non_null(tw_session_logits(s));
    if (memcmp(tw_session_logits(s), kit_expected(sequence, n), KIT_VOCAB * sizeof(float)) != 0) {
        fail_msg("sequence %u has other bits after %u tokens", sequence, n);
    }
}

/* An entry with the next n tokens of a sequence. */
__attribute__((unused)) static struct tw_step_entry kit_entry(tw_session *s, uint32_t sequence,
                                                              size_t n, tw_error *err) {
    return (struct tw_step_entry){.session = s,
                                  .ids = kit_tokens(sequence) + tw_session_position(s),
                                  .n = n,
                                  .code = 1,
                                  .err = err};
}

__attribute__((unused)) static int kit_end(void **state) {
    (void)state;
    model_bundle_cleanup();
    return 0;
}

#endif
