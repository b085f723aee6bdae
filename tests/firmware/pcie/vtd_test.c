/* SPDX-License-Identifier: Apache-2.0
 *
 * DMA goes where the guest's IOMMU tables say, and nowhere else, whatever these tables hold.
 */
#include "firmware/pcie/vtd.h"
#include "tests/support/test.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define RAM (4u << 20)
#define R 1u
#define W 2u
#define LARGE 0x80u

/* Where the tables of a test lie. */
#define ROOT 0x1000u
#define CONTEXT 0x2000u
#define TABLE(level) (0x10000u + (level)*0x1000u)
#define REQUESTER 0x0310u /* bus 3, device 2 */

static struct tw_vtd v;

static void put(uint64_t at, uint64_t value) {
    memcpy(v.ram + at, &value, 8);
}

static int make(void **state) {
    (void)state;
    v = (struct tw_vtd){
        .ram = calloc(1, RAM), .ram_bytes = RAM, .on = true, .root = ROOT, .requester = REQUESTER};
    put(ROOT + 3 * 16, CONTEXT | 1);
    return 0;
}

static int drop(void **state) {
    (void)state;
    free(v.ram);
    return 0;
}

static void set_context(uint32_t levels, uint32_t kind) {
    put(CONTEXT + 0x10 * 16, TABLE(levels) | kind << 2 | 1);
    put(CONTEXT + 0x10 * 16 + 8, levels - 2);
}

/* Tables from `levels` down to `last`, where the entry is `leaf`; the others allow everything. */
static void map(uint32_t levels, uint32_t last, uint64_t address, uint64_t leaf) {
    set_context(levels, 0);
    for (uint32_t level = levels; level >= last; level--) {
        uint64_t at = TABLE(level) + ((address >> (12 + 9 * (level - 1))) & 511) * 8;
        put(at, level == last ? leaf : TABLE(level - 1) | R | W);
    }
}

static uint64_t translate(uint64_t address, bool write, uint64_t *bytes) {
    const uint8_t *p = tw_vtd_translate(&v, address, bytes, write);
    return p ? (uint64_t)(p - v.ram) : UINT64_MAX;
}

static void assert_reaches(uint64_t address, bool write, uint64_t to, uint64_t left) {
    uint64_t bytes = 0;
    assert_int_equal(translate(address, write, &bytes), to);
    assert_int_equal(bytes, left);
}

static void assert_stopped(uint64_t address, bool write) {
    uint64_t bytes;
    assert_int_equal(translate(address, write, &bytes), UINT64_MAX);
}

static void pages_are_found_through_three_to_five_levels(void **state) {
    (void)state;
    for (uint32_t levels = 3; levels <= 5; levels++) {
        uint64_t address = (UINT64_C(1) << (12 + 9 * levels - 1)) | 0x345000;
        map(levels, 1, address, 0x80000 | R | W);
        assert_reaches(address, false, 0x80000, 4096);
        assert_reaches(address + 0x123, true, 0x80123, 4096 - 0x123);
        assert_stopped(address + 4096, false);
        /* wider than the tables */
        assert_stopped(address | UINT64_C(1) << (12 + 9 * levels), false);
        assert_stopped(UINT64_MAX, false);
    }
}

static void large_pages_end_the_walk_early(void **state) {
    (void)state;
    map(4, 2, 0x40000000, 0x200000 | LARGE | R | W);
    assert_reaches(0x40000000 + 0x1234, true, 0x201234, 0x200000 - 0x1234);
    map(4, 3, 0x80000000, 0 | LARGE | R);
    /* as much of the GiB as there is */
    assert_reaches(0x80000000 + 0x5000, false, 0x5000, RAM - 0x5000);
    assert_stopped(0x80000000 + 0x5000, true);
    assert_stopped(0x80000000 + RAM, false);
    map(4, 4, 0, LARGE | R | W);
    assert_stopped(0, false); /* 512 GiB: there is no such page */
    map(4, 2, 0, 0x3ff000 | LARGE | R | W);
    /* the low bits of a large page's address do not count */
    assert_reaches(0, false, 0x200000, 0x200000);
}

static void each_level_may_deny_access(void **state) {
    (void)state;
    const uint64_t address = 0x12345000;
    for (uint32_t level = 1; level <= 4; level++) {
        uint64_t at = TABLE(level) + ((address >> (12 + 9 * (level - 1))) & 511) * 8, entry;
        map(4, 1, address, 0x80000 | R | W);
        memcpy(&entry, v.ram + at, 8);
        put(at, entry & ~(uint64_t)W);
        assert_reaches(address, false, 0x80000, 4096);
        assert_stopped(address, true);
        put(at, entry & ~(uint64_t)R);
        assert_stopped(address, false);
        assert_reaches(address, true, 0x80000, 4096);
        put(at, 0);
        assert_stopped(address, false);
        assert_stopped(address, true);
    }
}

static void unmapped_pages_are_unreachable_at_once(void **state) {
    (void)state;
    map(4, 1, 0x5000, 0x80000 | R | W);
    assert_reaches(0x5000, true, 0x80000, 4096);
    put(TABLE(1) + 5 * 8, 0);
    assert_stopped(0x5000, true);
}

static void only_the_requesters_own_context_counts(void **state) {
    (void)state;
    map(4, 1, 0x5000, 0x80000 | R | W);
    const uint16_t others[] = {0x0311, 0x0210, 0x0410, 0x0000, 0xFFFF};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        v.requester = others[i];
        assert_stopped(0x5000, false);
    }
}

static void contexts_pass_through_or_are_refused(void **state) {
    (void)state;
    map(4, 1, 0x5000, 0x80000 | R | W);
    set_context(4, 2);
    assert_reaches(0x5000, true, 0x5000, 4096);
    assert_stopped(RAM, true);
    set_context(4, 1);
    assert_reaches(0x5000, true, 0x80000, 4096);
    set_context(4, 3);
    assert_stopped(0x5000, true);
    set_context(6, 0);
    assert_stopped(0x5000, true);
    set_context(4, 0);
    v.root |= 0x400; /* scalable mode */
    assert_stopped(0x5000, true);
    v.on = false;
    assert_reaches(0x5000, true, 0x5000, 4096);
    assert_stopped(RAM, false);
    assert_stopped(UINT64_MAX - 5, false);
}

static void tables_outside_memory_end_the_walk(void **state) {
    (void)state;
    const uint64_t bad[] = {RAM, RAM - 8, UINT64_C(0x000ffffffffff000), UINT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (uint32_t level = 2; level <= 4; level++) {
            map(4, 1, 0x5000, 0x80000 | R | W);
            put(TABLE(level), (bad[i] & ~UINT64_C(0xfff) & ~(uint64_t)LARGE) | R | W);
            uint64_t bytes, to = translate(0x5000, false, &bytes);
            assert_true(to == UINT64_MAX || to < RAM);
        }
        map(4, 1, 0x5000, (bad[i] & ~UINT64_C(0xfff)) | R | W);
        uint64_t bytes = 0, to = translate(0x5000, true, &bytes);
        assert_true(to == UINT64_MAX || (to < RAM && bytes <= RAM - to));
        v.root = bad[i] & ~UINT64_C(0xc00);
        assert_stopped(0x5000, false);
        v.root = ROOT;
        put(ROOT + 3 * 16, bad[i] | 1);
        assert_stopped(0x5000, false);
        put(ROOT + 3 * 16, CONTEXT | 1);
    }
}

static void tables_that_contain_themselves_end_the_walk(void **state) {
    (void)state;
    set_context(5, 0);
    for (uint32_t i = 0; i < 512; i++) {
        put(TABLE(5) + i * 8, TABLE(5) | R | W);
    }
    assert_reaches(0x1000, false, TABLE(5), 4096);
}

/* Memory full of noise that often looks like tables: the address sanitizer watches. */
static void random_tables_never_lead_outside_memory(void **state) {
    (void)state;
    uint64_t seed = 99, found = 0;
    for (int turn = 0; turn < 10; turn++) {
        for (uint64_t at = 0; at < RAM; at += 8) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            uint64_t wide = turn % 2 ? UINT64_C(0x000ffffffffff0ff) : RAM - 1;
            put(at, (seed >> 11 & wide & ~UINT64_C(0xf00)) | (seed >> 62));
        }
        for (int i = 0; i < 2000; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            v.requester = (uint16_t)(seed >> 48);
            uint64_t bytes = 0, to = translate(seed >> (16 + seed % 40), seed & 1, &bytes);
            if (to != UINT64_MAX) {
                assert_true(to < RAM && bytes >= 1 && bytes <= RAM - to);
                v.ram[to + bytes - 1] ^= 1;
                found++;
            }
        }
    }
    assert_true(found > 0);
}

/* ---- the monitor ---- */

/* Starts a monitor in a child process: it sends a greeting, then `answer` to any request. */
static pid_t start_monitor(const char *path, const char *answer) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(l, 1), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char text[64];
        alarm(60);
        int fd = accept(l, NULL, NULL);
        if (write(fd, "QEMU 7.2.22 monitor\r\n(qemu) ", 28) < 0 ||
            read(fd, text, sizeof text) <= 0) {
            _exit(1);
        }
        for (const char *p = answer; *p; p++) { /* byte by byte: answers come in pieces */
            if (write(fd, p, 1) < 0) {
                _exit(1);
            }
        }
        if (!*answer) {
            pause();
        }
        _exit(0);
    }
    close(l);
    return pid;
}

static int ask(const char *answer) {
    char path[] = "/tmp/tw-vtd-XXXXXX";
    tw_error err = {0};
    assert_non_null(mkdtemp(path));
    char file[64];
    snprintf(file, sizeof file, "%s/mon", path);
    pid_t pid = start_monitor(file, answer);
    int code = tw_vtd_read_registers(&v, file, &err);
    assert_int_equal(err.code, code);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(file);
    rmdir(path);
    return code;
}

static void the_monitor_returns_the_registers(void **state) {
    (void)state;
    v.on = false;
    assert_int_equal(ask("xp /2gx 0xfed90018\r\n00000000fed90018: 0xc700000000000000 "
                         "0x0000000012345000\r\n(qemu) "),
                     0);
    assert_true(v.on);
    assert_int_equal(v.root, 0x12345000);
    assert_int_equal(ask("00000000fed90018: 0x0000000000000000 0x0000000000000000\r\n(qemu) "), 0);
    assert_false(v.on);
}

static void invalid_answers_of_the_monitor_are_refused(void **state) {
    (void)state;
    assert_int_equal(ask("Cannot access memory\r\n(qemu) "), TW_E_IO);
    assert_int_equal(ask("00000000fed90018: 0x0000000000000000"), TW_E_IO);
    assert_int_equal(ask(""), TW_E_IO);
    assert_int_equal(tw_vtd_read_registers(&v, "/tmp/there/is/none", NULL), TW_E_IO);
    char path[300];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_int_equal(tw_vtd_read_registers(&v, path, NULL), TW_E_IO);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(pages_are_found_through_three_to_five_levels),
        TEST(large_pages_end_the_walk_early),
        TEST(each_level_may_deny_access),
        TEST(unmapped_pages_are_unreachable_at_once),
        TEST(only_the_requesters_own_context_counts),
        TEST(contexts_pass_through_or_are_refused),
        TEST(tables_outside_memory_end_the_walk),
        TEST(tables_that_contain_themselves_end_the_walk),
        TEST(random_tables_never_lead_outside_memory),
        TEST(the_monitor_returns_the_registers),
        TEST(invalid_answers_of_the_monitor_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
