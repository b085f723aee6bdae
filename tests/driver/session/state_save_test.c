/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions that are saved and restored: to files and memory, on other targets, threads and chunks,
 * and over a socket, with the bits of a session that was never interrupted; how many steps that
 * takes; and that a refused restore leaves the session as it was.
 */
#include "driver/session/session.h"
#include "loader/base/hash.h"
#include "tests/support/model_bundle.h"
#include "tests/support/random_model.h"
#include "tests/support/saved_sequence.h"
#include "tests/support/socket_device.h"
#include "tests/support/test.h"
#include "tilewright/state.h"

#include <fcntl.h>
#include <unistd.h>

enum { N = 200, VOCAB = 1000, N_CTX = 300 };

static uint32_t ids[N + 1];
static char path[] = "/tmp/tw-session-state-XXXXXX";

static int make_path(void **state) {
    uint64_t seed = 5;
    (void)state;
    for (uint32_t i = 0; i < N + 1; i++) {
        ids[i] = random_below(&seed, VOCAB);
    }
    int fd = mkstemp(path); /* empty: may be replaced */
    if (fd >= 0) {
        close(fd);
    }
    return fd < 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

/* ---- sessions ---- */

static tw_session *make_session(struct rig *r, uint32_t chunk, uint32_t n_threads) {
    struct tw_session_options o = {
        .size = sizeof o, .n_ctx = N_CTX, .chunk = chunk, .n_threads = n_threads};
    tw_session *s = NULL;
    if (tw_session_create(r->deployment, &o, &s, &r->err) != 0) {
        fail_msg("%s", r->err.message);
    }
    return s;
}

static void feed(struct rig *r, tw_session *s, uint32_t from, uint32_t to) {
    if (from < to && tw_session_feed(s, ids + from, to - from, &r->err) != 0) {
        fail_msg("%s", r->err.message);
    }
}

static void save(struct rig *r, tw_session *s) {
    if (tw_session_save(s, path, NULL, &r->err) != 0) {
        fail_msg("%s", r->err.message);
    }
}

static void restore(struct rig *r, tw_session *s, uint32_t expected) {
    uint32_t n = 0;
    if (tw_session_restore(s, path, &n, &r->err) != 0) {
        fail_msg("%s", r->err.message);
    }
    assert_int_equal(n, expected);
    assert_int_equal(tw_session_position(s), expected);
    assert_null(tw_session_logits(s));
}

static uint64_t steps_of(struct rig *r, const tw_session *s) {
    struct tw_session_info info = {.size = sizeof info};
    assert_int_equal(tw_session_get_info(s, &info, &r->err), 0);
    return info.steps;
}

/* The logits after all N + 1 tokens of a session that is never interrupted. */
static const float *expected_logits(void) {
    static float logits[VOCAB + 100];
    static bool known;
    struct rig r;
    if (!known) {
        rig_open(&r, "host", 1, NULL);
        feed(&r, r.session, 0, N + 1);
        assert_true(r.session->n_vocab <= VOCAB + 100);
        memcpy(logits, tw_session_logits(r.session), r.session->n_vocab * sizeof *logits);
        rig_close(&r);
        known = true;
    }
    return logits;
}

/* Feeds what follows after `from`, in one step if that is one token, and compares the bits. */
static void continues(struct rig *r, tw_session *s, uint32_t from) {
    feed(r, s, from, N + 1);
    if (memcmp(tw_session_logits(s), expected_logits(), s->n_vocab * sizeof(float)) != 0) {
        fail_msg("other bits after a restore at position %u", from);
    }
}

/* ---- the same bits ---- */

static void a_restored_session_goes_on_with_the_same_bits(void **state) {
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "quad2x2"};
    static const uint32_t splits[] = {1, 63, 64, 65, 150, N};
    (void)state;
    for (uint32_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct rig from, to;
        rig_open(&from, targets[i % 4], 1 + i % 2, NULL);
        rig_open(&to, targets[(i + 1 + i / 4) % 4], 2 - i % 2, NULL);
        tw_session *a = make_session(&from, i % 3 * 7, 1 + i % 2);
        tw_session *b = make_session(&to, i % 2 * 5, 2 - i % 2);
        feed(&from, a, 0, splits[i]);
        unlink(path);
        save(&from, a);
        restore(&to, b, splits[i]);
        uint64_t steps = steps_of(&to, b);
        feed(&to, b, splits[i], splits[i] + 1);
        assert_int_equal(steps_of(&to, b), steps + 1); /* of what is new, and nothing else */
        continues(&to, b, splits[i] + 1);
        tw_session_destroy(a);
        tw_session_destroy(b);
        rig_close(&from);
        rig_close(&to);
    }
}

static void turns_are_appended(void **state) {
    struct rig r;
    struct tw_session_saved saved = {.size = sizeof saved};
    (void)state;
    rig_open(&r, "host", 1, NULL);
    unlink(path);
    feed(&r, r.session, 0, 100);
    save(&r, r.session);
    tw_session *other = make_session(&r, 0, 1);
    restore(&r, other, 100);
    feed(&r, other, 100, 150);
    assert_int_equal(tw_session_save(other, path, &saved, &r.err), 0);
    assert_int_equal(saved.appended, 1);
    assert_int_equal(saved.n_tokens, 150);
    uint64_t page = r.deployment->pool.page_bytes;
    assert_in_range(saved.written_bytes, 2 * page, 2 * page + page / 50 + 1024);
    assert_int_equal(tw_session_save(other, path, &saved, &r.err), 0);
    assert_int_equal(saved.written_bytes, 0);
    restore(&r, r.session, 150);
    continues(&r, r.session, 150);
    tw_session_destroy(other);
    rig_close(&r);
}

/* Tokens that a greedy run chose on the device are part of the sequence, the last one is not. */
static void tokens_are_those_that_were_fed(void **state) {
    struct rig r;
    uint32_t chosen[8], n_chosen, got[N], n = 0;
    struct tw_greedy_options o = {.size = sizeof o, .n = 8};
    enum tw_stop_reason reason;
    (void)state;
    rig_open(&r, "host", 1, NULL);
    unlink(path);
    feed(&r, r.session, 0, 20);
    assert_int_equal(
        tw_session_run_greedy(r.session, ids[20], &o, chosen, &n_chosen, &reason, &r.err), 0);
    assert_int_equal(n_chosen, 8);
    assert_int_equal(tw_session_tokens(r.session, got, N), 28);
    assert_memory_equal(got, ids, 21 * sizeof *ids);
    assert_memory_equal(got + 21, chosen, 7 * sizeof *chosen);
    save(&r, r.session);
    tw_session *fork;
    assert_int_equal(tw_session_fork(r.session, &fork, &r.err), 0);
    assert_int_equal(tw_session_rewind(r.session, 5, &r.err), 0);
    assert_int_equal(tw_session_tokens(r.session, NULL, 0), 5);
    assert_int_equal(tw_session_restore(r.session, path, &n, &r.err), 0);
    memset(got, 0, sizeof got);
    assert_int_equal(tw_session_tokens(r.session, got, 24), 28);
    assert_memory_equal(got + 21, chosen, 3 * sizeof *chosen);
    assert_int_equal(got[24], 0);
    assert_int_equal(tw_session_tokens(fork, got, N), 28);
    assert_memory_equal(got + 21, chosen, 7 * sizeof *chosen);
    assert_int_equal(tw_session_tokens(NULL, NULL, 0), 0);
    tw_session_destroy(fork);
    rig_close(&r);
}

/* ---- memory, and what is in it ---- */

static uint8_t *in_memory(struct rig *r, const tw_session *s, size_t *n) {
    size_t again;
    assert_int_equal(tw_session_save_memory(s, NULL, 0, n, &r->err), 0);
    uint8_t *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(tw_session_save_memory(s, bytes, *n, &again, &r->err), 0);
    assert_int_equal(again, *n);
    return bytes;
}

/* Nothing of the sequences that had the pages before, and nothing of the target. */
static void a_state_depends_on_its_tokens_only(void **state) {
    static const char *const targets[] = {"host", "sim4x4", "grid8x8", "quad2x2"};
    uint8_t *first = NULL;
    size_t n_first = 0, n;
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct rig r;
        rig_open(&r, targets[i], 2, NULL);
        feed(&r, r.session, 0, i * 66);
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        feed(&r, r.session, 60, 60 + i * 10);
        assert_int_equal(tw_session_rewind(r.session, 0, &r.err), 0);
        feed(&r, r.session, 0, 70);
        uint8_t *bytes = in_memory(&r, r.session, &n);
        assert_int_equal(tw_session_rewind(r.session, 3, &r.err), 0);
        uint32_t n_tokens;
        assert_int_equal(tw_session_restore_memory(r.session, bytes, n, &n_tokens, &r.err), 0);
        assert_int_equal(n_tokens, 70);
        continues(&r, r.session, 70);
        first = first ? first : bytes;
        n_first = n_first ? n_first : n;
        assert_int_equal(n, n_first);
        assert_memory_equal(bytes + 1024, first + 1024, n - 1024); /* the commits have the time */
        if (bytes != first) {
            free(bytes);
        }
        rig_close(&r);
    }
    free(first);
}

static void a_device_elsewhere_restores_the_same(void **state) {
    struct socket_device d;
    struct rig here, there;
    size_t n, n_there;
    (void)state;
    memset(&there, 0, sizeof there);
    socket_device_start(&d, "state", NULL, 0);
    rig_open(&here, "host", 1, NULL);
    feed(&here, here.session, 0, 100);
    uint8_t *bytes = in_memory(&here, here.session, &n);
    assert_int_equal(socket_open(d.selector, 0, &there.device, &there.err), 0);
    assert_int_equal(tw_deploy(there.device, here.decoder, &there.deployment, &there.err), 0);
    assert_int_equal(tw_session_create(there.deployment, NULL, &there.session, &there.err), 0);
    assert_int_equal(tw_session_restore_memory(there.session, bytes, n, NULL, &there.err), 0);
    uint8_t *again = in_memory(&there, there.session, &n_there);
    assert_int_equal(n_there, n);
    assert_memory_equal(again + 1024, bytes + 1024, n - 1024);
    continues(&there, there.session, 100);
    free(again);
    free(bytes);
    tw_session_destroy(there.session);
    tw_deployment_destroy(there.deployment);
    tw_device_close(there.device);
    assert_int_equal(socket_device_end(&d), 0);
    rig_close(&here);
}

/* ---- refusals ---- */

/* A hash of all that the pool has on the device. */
static void hash_pool(const struct rig *r, uint8_t hash[32]) {
    const struct tw_state_pool *pool = &r->deployment->pool;
    struct tw_hash h;
    tw_hash_init(&h);
    for (uint32_t i = 0; i < pool->n_tensors; i++) {
        const struct tw_pool_tensor *t = &pool->tensors[i];
        const void *bytes = tw_device_map(r->device, t->address, t->stride * t->instances);
        assert_non_null(bytes);
        tw_hash_update(&h, bytes, t->stride * t->instances);
    }
    tw_hash_final(&h, hash);
}

/* Restores what is at the path, which is refused, and nothing has changed. */
static void refused(struct rig *r, tw_session *s, int code, const char *word) {
    uint8_t before[32], after[32];
    uint32_t n = 77, position = tw_session_position(s), n_free = r->deployment->pool.n_free;
    const float *logits = tw_session_logits(s);
    hash_pool(r, before);
    assert_int_equal(tw_session_restore(s, path, &n, &r->err), code);
    if (!strstr(r->err.message, word)) {
        fail_msg("\"%s\" does not contain \"%s\"", r->err.message, word);
    }
    hash_pool(r, after);
    assert_memory_equal(before, after, 32); /* not a byte of the device */
    assert_int_equal(n, 77);
    assert_int_equal(tw_session_position(s), position);
    assert_ptr_equal(tw_session_logits(s), logits);
    assert_int_equal(r->deployment->pool.n_free, n_free);
}

static void a_refused_restore_changes_nothing(void **state) {
    static struct saved_sequence other;
    struct rig r;
    struct tw_session_options small = {.size = sizeof small, .n_ctx = 100};
    tw_session *tiny;
    char byte;
    (void)state;
    unlink(path);
    rig_open(&r, "host", 1, NULL);
    tw_session *s = make_session(&r, 0, 1);
    assert_int_equal(tw_session_save(s, path, NULL, &r.err), TW_E_USAGE); /* no tokens */
    feed(&r, s, 0, 90);
    refused(&r, s, TW_E_IO, "No such file");
    feed(&r, r.session, 0, 150);
    save(&r, r.session);
    assert_int_equal(tw_session_create(r.deployment, &small, &tiny, &r.err), 0);
    feed(&r, tiny, 0, 1);
    refused(&r, tiny, TW_E_CONTEXT_FULL, "150 tokens");
    tw_session_destroy(tiny);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, 200000), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, 200000), 1);
    refused(&r, s, TW_E_HASH, "damaged");
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, 200000), 1);
    off_t size = lseek(fd, 0, SEEK_END);
    assert_int_equal(ftruncate(fd, size - 1), 0);
    close(fd);
    refused(&r, s, TW_E_TRUNCATED, "expected");
    unlink(path);
    saved_sequence_init(&other, 8, 64 * 64 * 4);
    saved_sequence_feed(&other, 0, 10, 1);
    struct tw_saved_source source = saved_sequence_source(&other);
    struct tw_saved_result result;
    assert_int_equal(
        tw_saved_write(path, &other.schema, other.tokens, other.n, &source, NULL, &result, &r.err),
        0);
    refused(&r, s, TW_E_UNSUPPORTED, "was saved with model fairytale (hash 03142536)");
    continues(&r, s, 90);
    tw_session_destroy(s);
    rig_close(&r);
}

static void without_pages_nothing_is_restored(void **state) {
    struct rig r;
    struct tw_deploy_options o = {.size = sizeof o, .state_positions = 5 * TW_PAGE_POSITIONS};
    (void)state;
    rig_open(&r, "host", 1, NULL);
    unlink(path);
    feed(&r, r.session, 0, 150);
    save(&r, r.session);
    tw_session_destroy(r.session);
    tw_deployment_destroy(r.deployment);
    assert_int_equal(tw_deploy_with(r.device, r.decoder, &o, &r.deployment, &r.err), 0);
    r.session = make_session(&r, 0, 1);
    tw_session *s = make_session(&r, 0, 1);
    feed(&r, r.session, 0, 130); /* 3 of 5 pages */
    feed(&r, s, 0, 20);
    refused(&r, s, TW_E_NOMEM, "have 1 of 5, need 3");
    feed(&r, s, 20, 21);
    tw_session_destroy(r.session);
    r.session = s;
    restore(&r, s, 150);
    assert_int_equal(r.deployment->pool.n_free, 2);
    continues(&r, s, 150);
    rig_close(&r);
}

static int set_up(void **state) {
    return make_path(state) || socket_folder_set_up(state);
}

static int tear_down(void **state) {
    model_bundle_cleanup();
    return remove_path(state) || socket_folder_tear_down(state);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restored_session_goes_on_with_the_same_bits),
        cmocka_unit_test(turns_are_appended),
        cmocka_unit_test(tokens_are_those_that_were_fed),
        cmocka_unit_test(a_state_depends_on_its_tokens_only),
        cmocka_unit_test(a_device_elsewhere_restores_the_same),
        cmocka_unit_test(a_refused_restore_changes_nothing),
        cmocka_unit_test(without_pages_nothing_is_restored),
    };
    return cmocka_run_group_tests_name("state_save", tests, set_up, tear_down);
}
