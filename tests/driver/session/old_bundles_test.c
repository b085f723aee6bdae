/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles that past releases wrote, kept in tests/data/bundles: this release opens and verifies
 * them, makes the same ids of a text, and generates the same tokens from the same bits of logits
 * (tilewright-bundle(5), COMPATIBILITY). A kept bundle must never be replaced, so its content hash
 * is compared as well. To keep another one, add it to the folder and here.
 */
#include "loader/base/hash.h"
#include "tests/support/test.h"
#include "tilewright/tilewright.h"

#define MAX_IDS 32u

struct kept {
    const char *path, *content_hash;
    const char *target, *tool;
    uint16_t bundle_minor, abi_minor;
    const char *prompt;
    uint32_t prompt_ids[MAX_IDS], n_prompt;
    uint32_t ids[MAX_IDS], n_ids; /* generated greedily */
    const char *logits_hash;      /* of the rows that they were chosen from */
};

#define PROMPT_OF_0_1_0           \
    .prompt = "the hen in a den", \
    .prompt_ids = {1, 312, 267, 290, 299, 268, 299, 260, 263, 290, 299}, .n_prompt = 11
#define IDS_OF_0_1_0                                                                           \
    {                                                                                          \
        150, 150, 33, 205, 315, 219, 227, 215, 223, 312, 205, 296, 38, 129, 129, 285, 86, 134, \
            203, 85, 205, 206, 194, 37                                                         \
    }
#define LOGITS_OF_0_1_0 "543bd4a58badc02220b91b1b93d7bd7054d4a9e162bf1b762c77360be22443a1"

/* tests/data/bundles/README.md says how each was made. */
static const struct kept kept[] = {
    {.path = "tests/data/bundles/0.1.0-host.twb",
     .content_hash = "71c3d4ba1819914b2176b367a8b0ee4a1c5e5000d4587211a3a4602e33f9e2d2",
     .target = "host",
     .tool = "tilewright 0.1.0",
     PROMPT_OF_0_1_0,
     .ids = IDS_OF_0_1_0,
     .n_ids = 24,
     .logits_hash = LOGITS_OF_0_1_0},
    {.path = "tests/data/bundles/0.1.0-sim4x4.twb",
     .content_hash = "7b84c6fa58b7956cb943abcf2da1f58b985f89b0e857b302744e1048ac809f81",
     .target = "sim4x4",
     .tool = "tilewright 0.1.0",
     PROMPT_OF_0_1_0,
     .ids = IDS_OF_0_1_0,
     .n_ids = 24,
     .logits_hash = LOGITS_OF_0_1_0},
    {.path = "tests/data/bundles/0.1.0-sim4x4-all.twb",
     .content_hash = "225d52a512a66e9931aff7230715143cebbfd445c600190d5db7675a9082e833",
     .target = "sim4x4",
     .tool = "tilewright 0.1.0",
     PROMPT_OF_0_1_0,
     .ids = {150, 150, 33,  205, 305, 121, 261, 2,   32,  306, 281, 126,
             298, 85,  270, 68,  85,  281, 181, 281, 141, 52,  24,  33},
     .n_ids = 24,
     .logits_hash = "8d7ba0525a88a8a47ac7f67480ebaf5254861a75163bd77daa7e49b7185c7c13"},
    {.path = NULL},
};

/* Bundles of format 1, from before the first release. */
static const char *const refused[] = {
    "tests/data/bundles/format-1-host.twb",
    "tests/data/bundles/format-1-sim4x4.twb",
};

#define must(call, err)                                            \
    do {                                                           \
        if ((call) != 0) {                                         \
            fail_msg("%s: %s: %s", k->path, #call, (err).message); \
        }                                                          \
    } while (0)

static void check_hash(const struct kept *k, const char *what, const uint8_t *found,
                       const char *expected) {
    char text[2 * TW_HASH_BYTES + 1];
    for (uint32_t i = 0; i < TW_HASH_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", found[i]);
    }
    if (strcmp(text, expected) != 0) {
        fail_msg("%s: %s: hash %s, expected %s", k->path, what, text, expected);
    }
}

static tw_decoder *open_kept(const struct kept *k) {
    tw_decoder *decoder = NULL;
    tw_error err = {0};
    must(tw_decoder_open(k->path, TW_DECODER_CHECK_HASH, &decoder, &err), err);
    return decoder;
}

/* ---- the file ---- */

static void every_kept_bundle_obeys_the_rules(void **state) {
    (void)state;
    for (const struct kept *k = kept; k->path; k++) {
        tw_decoder *decoder = open_kept(k);
        struct tw_decoder_info info = {.size = sizeof info};
        struct tw_rules_info rules = {.size = sizeof rules};
        tw_error err = {0};
        tw_decoder_get_info(decoder, &info, NULL);
        check_hash(k, "content", info.content_hash, k->content_hash);
        assert_string_equal(info.target, k->target);
        assert_string_equal(info.tool, k->tool);
        assert_int_equal(info.bundle_minor, k->bundle_minor);
        assert_int_equal(info.abi_minor, k->abi_minor);
        must(tw_decoder_verify(decoder, &rules, &err), err);
        assert_int_equal(rules.failed_rule, 0);
        tw_decoder_close(decoder);
    }
}

static void every_kept_tokenizer_gives_the_same_ids(void **state) {
    (void)state;
    for (const struct kept *k = kept; k->path; k++) {
        tw_decoder *decoder = open_kept(k);
        uint32_t ids[MAX_IDS];
        size_t n = 0;
        tw_error err = {0};
        must(tw_tokenize(decoder, k->prompt, strlen(k->prompt), 0, ids, MAX_IDS, &n, &err), err);
        assert_int_equal(n, k->n_prompt);
        assert_memory_equal(ids, k->prompt_ids, n * sizeof ids[0]);
        tw_decoder_close(decoder);
    }
}

static void bundles_of_format_1_are_refused_by_version(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        tw_decoder *decoder = NULL;
        tw_error err = {0};
        assert_int_equal(tw_decoder_open(refused[i], 0, &decoder, &err), TW_E_UNSUPPORTED);
        assert_null(decoder);
        assert_non_null(strstr(err.message, "bundle format 1.0, this program reads 2.x: "
                                            "recompile the model"));
    }
}

/* ---- a run ---- */

struct run {
    uint32_t ids[MAX_IDS], n, n_vocab;
    struct tw_hash logits;
};

static int on_token(void *ctx, uint32_t id, const float *logits) {
    struct run *r = ctx;
    r->ids[r->n++] = id;
    tw_hash_update(&r->logits, logits, r->n_vocab * sizeof *logits);
    return r->n == MAX_IDS;
}

static void generate(const struct kept *k, tw_session *session) {
    struct tw_session_info info = {.size = sizeof info};
    uint8_t hash[TW_HASH_BYTES];
    tw_error err = {0};
    tw_session_get_info(session, &info, NULL);
    struct run r = {.n_vocab = info.n_vocab};
    struct tw_generate_options o = {.size = sizeof o,
                                    .n_predict = k->n_ids,
                                    .flags = TW_GENERATE_IGNORE_EOS,
                                    .on_token = on_token,
                                    .ctx = &r};
    tw_hash_init(&r.logits);
    must(tw_generate(session, k->prompt_ids, k->n_prompt, &o, NULL, &err), err);
    assert_int_equal(r.n, k->n_ids);
    assert_memory_equal(r.ids, k->ids, r.n * sizeof r.ids[0]);
    tw_hash_final(&r.logits, hash);
    check_hash(k, "logits", hash, k->logits_hash);
}

static void run_kept(const struct kept *k, const struct tw_session_options *options) {
    char selector[80];
    tw_device *device = NULL;
    tw_decoder *decoder = open_kept(k);
    tw_deployment *deployment = NULL;
    tw_session *session = NULL;
    tw_error err = {0};
    /* `host` has a site per processor: no emulated device has the bundle's number of sites */
    snprintf(selector, sizeof selector, "emu%s%s", strcmp(k->target, "host") == 0 ? "" : ":",
             strcmp(k->target, "host") == 0 ? "" : k->target);
    must(tw_device_open(selector, NULL, &device, &err), err);
    must(tw_deploy(device, decoder, &deployment, &err), err);
    must(tw_session_create(deployment, options, &session, &err), err);
    generate(k, session);
    tw_session_destroy(session);
    tw_deployment_destroy(deployment);
    tw_decoder_close(decoder);
    tw_device_close(device);
}

static void every_kept_bundle_runs_with_the_same_bits(void **state) {
    const struct tw_session_options fast = {.size = sizeof fast},
                                    single = {.size = sizeof single, .n_threads = 1, .chunk = 1};
    (void)state;
    for (const struct kept *k = kept; k->path; k++) {
        run_kept(k, &fast);
        run_kept(k, &single);
    }
}

static void every_kept_bundle_runs_strictly_with_the_same_bits(void **state) {
    const struct tw_session_options strict = {.size = sizeof strict, .mode = TW_MODE_STRICT};
    (void)state;
    for (const struct kept *k = kept; k->path; k++) {
        run_kept(k, &strict);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kept_bundle_obeys_the_rules),
        cmocka_unit_test(bundles_of_format_1_are_refused_by_version),
        cmocka_unit_test(every_kept_tokenizer_gives_the_same_ids),
        cmocka_unit_test(every_kept_bundle_runs_with_the_same_bits),
        cmocka_unit_test(every_kept_bundle_runs_strictly_with_the_same_bits),
    };
    return cmocka_run_group_tests_name("old_bundles", tests, NULL, NULL);
}
