/* SPDX-License-Identifier: Apache-2.0
 *
 * The content cache: kept content is found again under its hash, is read-only, outlives its host,
 * and is evicted when memory is needed.
 */
#include "tests/support/server_client.h"
#include "tests/support/test.h"

#define MEMORY (1u << 20)

static int set_up(void **state) {
    static struct client c;
    client_init(&c, MEMORY);
    *state = &c;
    return 0;
}

static int tear_down(void **state) {
    struct client *c = *state;
    client_finish(c);
    return c->live != 0;
}

/* `hash`: the byte that its hash consists of. */
static struct tw_wire_content content(uint64_t bytes, uint8_t hash) {
    struct tw_wire_content q = {.bytes = bytes};
    memset(q.hash, hash, sizeof q.hash);
    return q;
}

static int keep(struct client *c, uint64_t at, uint64_t bytes, uint8_t hash) {
    struct tw_wire_content q = content(bytes, hash);
    return client_call(c, TW_WIRE_KEEP, at, &q, sizeof q);
}

static uint64_t find(struct client *c, uint64_t bytes, uint8_t hash) {
    struct tw_wire_content q = content(bytes, hash);
    assert_int_equal(client_call(c, TW_WIRE_FIND, 0, &q, sizeof q), 0);
    return c->header.address;
}

static int release(struct client *c, uint64_t at) {
    return client_call(c, TW_WIRE_FREE, at, NULL, 0);
}

static void kept_content_is_found_by_hash_and_size(void **state) {
    struct client *c = *state;
    uint64_t at = client_alloc(c, 1000);
    assert_int_equal(find(c, 1000, 7), 0);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, at, "abcdefgh", 8), 0);
    assert_int_equal(keep(c, at, 1000, 7), 0);
    assert_int_equal(find(c, 1000, 7), at);
    assert_int_equal(find(c, 999, 7), 0);
    assert_int_equal(find(c, 1000, 8), 0);
    /* read-only now */
    assert_int_equal(client_call(c, TW_WIRE_WRITE, at, "abcdefgh", 8), TW_E_RANGE);
}

/* A hash that a test can write down: the first byte, over and over. */
static void first_byte(void *ctx, const void *bytes, uint64_t n, uint8_t out[32]) {
    (void)ctx, (void)n;
    memset(out, *(const uint8_t *)bytes, 32);
}

static void content_with_another_hash_is_not_kept_where_the_port_can_tell(void **state) {
    struct client *c = *state;
    uint64_t at = client_alloc(c, 1000);
    c->server.port.hash = first_byte;
    assert_int_equal(client_call(c, TW_WIRE_WRITE, at, "\7bcdefgh", 8), 0);
    assert_int_equal(keep(c, at, 1000, 8), TW_E_HASH);
    assert_int_equal(find(c, 1000, 8), 0);
    assert_int_equal(client_call(c, TW_WIRE_WRITE, at, "\7bcdefgi", 8), 0); /* not read-only */
    assert_int_equal(keep(c, at, 1000, 7), 0);
    assert_int_equal(find(c, 1000, 7), at);
}

static void only_whole_allocations_are_kept_and_once(void **state) {
    struct client *c = *state;
    uint64_t at = client_alloc(c, 1000);
    assert_int_equal(keep(c, at, 999, 7), TW_E_RANGE);
    assert_int_equal(keep(c, at + 8, 992, 7), TW_E_RANGE);
    assert_int_equal(keep(c, at, 1000, 7), 0);
    assert_int_equal(keep(c, at, 1000, 7), TW_E_RANGE);
}

static void content_stays_after_every_user_has_freed_it(void **state) {
    struct client *c = *state;
    uint64_t at = client_alloc(c, 1000);
    assert_int_equal(keep(c, at, 1000, 7), 0);
    assert_int_equal(find(c, 1000, 7), at);
    assert_int_equal(release(c, at), 0);
    assert_int_equal(release(c, at), 0);
    assert_int_equal(release(c, at), TW_E_RANGE); /* nobody uses it */
    assert_int_equal(c->server.counters.memory_used, 1000);
    assert_int_equal(find(c, 1000, 7), at);
}

static void a_closing_host_leaves_only_kept_content(void **state) {
    struct client *c = *state;
    uint64_t at = client_alloc(c, 1000);
    client_alloc(c, 5000);
    client_alloc(c, 6000);
    assert_int_equal(keep(c, at, 1000, 7), 0);
    tw_server_release(&c->server);
    assert_int_equal(c->server.counters.memory_used, 1000);
    assert_int_equal(release(c, at), TW_E_RANGE);
    assert_int_equal(find(c, 1000, 7), at);
    assert_int_equal(client_call(c, TW_WIRE_RESET, 0, NULL, 0), 0);
    assert_int_equal(c->server.counters.memory_used, 0);
    assert_int_equal(find(c, 1000, 7), 0);
}

static void unused_content_is_evicted_and_used_content_is_not(void **state) {
    struct client *c = *state;
    uint64_t used = client_alloc(c, MEMORY / 4), unused = client_alloc(c, MEMORY / 4);
    assert_int_equal(keep(c, used, MEMORY / 4, 1), 0);
    assert_int_equal(keep(c, unused, MEMORY / 4, 2), 0);
    assert_int_equal(release(c, unused), 0);
    assert_int_equal(client_alloc(c, MEMORY), 0);
    assert_true(client_alloc(c, MEMORY * 3 / 4) != 0);
    assert_int_equal(find(c, MEMORY / 4, 1), used);
    assert_int_equal(find(c, MEMORY / 4, 2), 0);
}

static void a_full_table_evicts_unused_content(void **state) {
    struct client *c = *state;
    for (uint32_t i = 0; i < TW_SERVER_ALLOCATIONS; i++) {
        uint64_t at = client_alloc(c, 64);
        assert_int_equal(keep(c, at, 64, (uint8_t)i), 0);
    }
    assert_int_equal(client_alloc(c, 64), 0);
    assert_int_equal(release(c, find(c, 64, 9)), 0);
    assert_int_equal(release(c, find(c, 64, 10)), 0);
    assert_int_equal(release(c, c->header.address), TW_E_RANGE);
    struct tw_server_allocation *a = &c->server.allocations[3];
    a->kept = 1;
    assert_true(client_alloc(c, 64) != 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(kept_content_is_found_by_hash_and_size),
        TEST(content_with_another_hash_is_not_kept_where_the_port_can_tell),
        TEST(only_whole_allocations_are_kept_and_once),
        TEST(content_stays_after_every_user_has_freed_it),
        TEST(a_closing_host_leaves_only_kept_content),
        TEST(unused_content_is_evicted_and_used_content_is_not),
        TEST(a_full_table_evicts_unused_content),
    };
    return cmocka_run_group_tests_name("content_cache", tests, NULL, NULL);
}
