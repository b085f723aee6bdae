/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport to devices on USB, by libusb over a mock of the kernel's usbfs: what is listed and
 * why, who may open, and a whole device at the endpoints.
 */
#include "tests/support/test.h"

#if __has_include(<umockdev.h>)
#include "driver/transport/usb/usb_find.h"
#include "firmware/serve/device_server.h"
#include "loader/base/clock.h"
#include "loader/base/event.h"
#include "tests/support/usb_mock.h"
#include "tilewright/tilewright.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATIENCE_MS 20000
#define NOBODY 65534

/* The mock has no memory for DMA; libusb would map its plain file. */
unsigned char *libusb_dev_mem_alloc(libusb_device_handle *handle, size_t length) {
    (void)handle;
    (void)length;
    return NULL;
}

/* ---- a device at the mock's endpoints ---- */

struct medium {
    struct tw_pipe base;
    struct usb_mock *mock;
    struct mock_packet *first, **end, *view; /* the mock's lock guards them */
};

static void from_host(void *ctx, const uint8_t *bytes, size_t n) {
    struct medium *m = ctx;
    struct mock_packet *p = calloc(1, sizeof *p);
    p->bytes = malloc(n);
    p->n = n;
    memcpy(p->bytes, bytes, n);
    *m->end = p;
    m->end = &p->next;
    tw_event_signal(m->base.fd);
}

static enum tw_packet_result send_to_host(struct tw_pipe *p, const uint8_t *bytes, size_t n) {
    usb_mock_send(((struct medium *)p)->mock, bytes, n);
    return TW_PACKET_OK;
}

static void drop_packet(struct mock_packet *p) {
    if (p) {
        free(p->bytes);
        free(p);
    }
}

static enum tw_packet_result take_from_host(struct tw_pipe *p, uint8_t **bytes, size_t *n) {
    struct medium *m = (struct medium *)p;
    drop_packet(m->view);
    pthread_mutex_lock(&m->mock->lock);
    m->view = m->first;
    if (m->view) {
        m->first = m->view->next;
        m->end = m->first ? m->end : &m->first;
        *bytes = m->view->bytes;
        *n = m->view->n;
    } else {
        tw_event_clear(m->base.fd);
    }
    pthread_mutex_unlock(&m->mock->lock);
    return m->view ? TW_PACKET_OK : TW_PACKET_AGAIN;
}

static bool wait_never(struct tw_pipe *p, bool write, int ms) {
    (void)p;
    (void)ms;
    return write;
}

static void hang_up_never(struct tw_pipe *p) {
    (void)p;
}

static void close_medium(struct tw_pipe *p) {
    struct medium *m = (struct medium *)p;
    pthread_mutex_lock(&m->mock->lock);
    m->mock->on_packet = NULL;
    pthread_mutex_unlock(&m->mock->lock);
    drop_packet(m->view);
    for (struct mock_packet *q; (q = m->first);) {
        m->first = q->next;
        drop_packet(q);
    }
    close(m->base.fd);
    free(m);
}

static const struct tw_pipe_ops medium_ops = {.send = send_to_host,
                                              .take = take_from_host,
                                              .wait = wait_never,
                                              .hang_up = hang_up_never,
                                              .close = close_medium};

struct bed {
    struct usb_mock mock;
    struct tw_device_server *device;
    pthread_t thread;
    char locks[64];
};

static void *serve(void *device) {
    tw_device_server_run(device, NULL);
    return NULL;
}

static void start_device(struct bed *b) {
    struct medium *m = calloc(1, sizeof *m);
    struct tw_device_server_options o = {.emu = {.n_threads = 1, .memory_bytes = 64u << 20}};
    m->base = (struct tw_pipe){.ops = &medium_ops, .chunk = TW_LINK_CHUNK, .fd = tw_event_create()};
    m->mock = &b->mock;
    m->end = &m->first;
    assert_int_equal(tw_device_server_create(&o, &b->device, NULL), 0);
    assert_int_equal(tw_device_server_add_medium(b->device, tw_medium_create(&m->base), NULL), 0);
    b->mock.on_packet = from_host;
    b->mock.ctx = m;
    assert_int_equal(pthread_create(&b->thread, NULL, serve, b->device), 0);
}

/* ---- set-up ---- */

static int set_up(void **state) {
    struct bed *b = calloc(1, sizeof *b);
    strcpy(b->locks, "/tmp/tw-usb-XXXXXX");
    assert_non_null(mkdtemp(b->locks));
    setenv("TW_LOCK_FOLDER", b->locks, 1);
    usb_mock_init(&b->mock);
    *state = b;
    return 0;
}

static int set_up_device(void **state) {
    set_up(state);
    struct bed *b = *state;
    usb_mock_add(&b->mock, 1, &mock_good);
    start_device(b);
    return 0;
}

static int tear_down(void **state) {
    struct bed *b = *state;
    if (b->device) {
        tw_device_server_stop(b->device);
        pthread_join(b->thread, NULL);
        tw_device_server_destroy(b->device);
    }
    assert_int_equal(usb_mock_flying(&b->mock), 0);
    usb_mock_finish(&b->mock);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", b->locks);
    assert_int_equal(system(command), 0);
    free(b);
    return 0;
}

/* ---- what is listed ---- */

struct listing {
    struct tw_device_info device[16];
    size_t n;
};

static bool record_usb(void *ctx, const struct tw_device_info *info) {
    struct listing *l = ctx;
    if (strncmp(info->selector, "usb", 3) == 0) {
        l->device[l->n++] = *info;
    }
    return true;
}

static struct listing list_usb(void) {
    struct listing l = {.n = 0};
    tw_device_list(record_usb, &l, NULL);
    return l;
}

static void expect_entry(const struct tw_device_info *d, const char *selector, const char *state,
                         const char *detail) {
    assert_string_equal(d->selector, selector);
    assert_string_equal(d->state, state);
    if (!strstr(d->detail, detail)) {
        fail_msg("'%s' does not contain '%s'", d->detail, detail);
    }
}

static void refuses(const char *selector, int code, const char *text) {
    tw_device *device;
    tw_error err = {0};
    assert_int_equal(tw_device_open(selector, NULL, &device, &err), code);
    if (!strstr(err.message, text)) {
        fail_msg("'%s' does not contain '%s'", err.message, text);
    }
}

static void without_usb_there_are_no_devices_and_that_is_no_error(void **state) {
    (void)state;
    assert_int_equal(list_usb().n, 0);
    refuses("usb", TW_E_NO_DEVICE, "no device on USB");
    refuses("usb:1-2", TW_E_NO_DEVICE, "no device on USB");
}

static void every_device_is_listed_with_its_state_and_reason(void **state) {
    struct bed *b = *state;
    struct mock_shape s = mock_good;
    usb_mock_add(&b->mock, 1, &mock_good);
    s.serial = "TW0002";
    s.product = 0x1234; /* another product id, our class */
    usb_mock_add(&b->mock, 2, &s);
    s.interface_class = 0x03; /* neither id nor class: not ours */
    usb_mock_add(&b->mock, 3, &s);
    s = mock_good;
    s.serial = NULL;
    s.endpoints = 0;
    usb_mock_add(&b->mock, 4, &s);
    s.endpoints = 2; /* no bulk IN */
    usb_mock_add(&b->mock, 5, &s);
    s.endpoints = 3;
    s.packet = 0;
    usb_mock_add(&b->mock, 6, &s);
    s.packet = 513;
    usb_mock_add(&b->mock, 7, &s);
    s = mock_good;
    s.serial = NULL;
    s.interface_class = 0xFE; /* our id, another class */
    usb_mock_add(&b->mock, 8, &s);
    s = mock_good;
    s.serial = "TW\033[31m"; /* cannot be typed, and must not reach a terminal */
    s.product = TW_USB_PRODUCT_RECOVERY;
    b->mock.reason = "its firmware's checksum is wrong\033[31m";
    usb_mock_add(&b->mock, 9, &s);
    usb_mock_add(&b->mock, 10, &mock_good);
    usb_mock_claimed(&b->mock, 10);
    struct listing l = list_usb();
    assert_int_equal(l.n, 9);
    /* by path: 1-10 has the same serial */
    expect_entry(&l.device[0], "usb:1-1", "ready", "480 Mbit/s");
    assert_int_equal(l.device[0].link_mbits, 480);
    expect_entry(&l.device[0], "usb:1-1", "ready", "firmware 1.1.2");
    expect_entry(&l.device[1], "usb:TW0002", "ready", "a mock at 1-2");
    expect_entry(&l.device[2], "usb:1-4", "unusable", "no usable pair of bulk endpoints");
    expect_entry(&l.device[3], "usb:1-5", "unusable", "no usable pair of bulk endpoints");
    expect_entry(&l.device[4], "usb:1-6", "unusable", "no usable pair of bulk endpoints");
    expect_entry(&l.device[5], "usb:1-7", "unusable", "no usable pair of bulk endpoints");
    expect_entry(&l.device[6], "usb:1-8", "unusable", "no Tilewright interface");
    expect_entry(&l.device[7], "usb:1-9", "recovery", "checksum is wrong?[31m");
    expect_entry(&l.device[8], "usb:1-10", "busy", "is using it");
    refuses("usb:1-9", TW_E_NO_DEVICE, "in recovery: its firmware's checksum");
    refuses("usb:1-10", TW_E_DEVICE_BUSY, "is using it");
    refuses("usb:1-6", TW_E_NO_DEVICE, "bulk endpoints");
    refuses("usb:nobody", TW_E_NO_DEVICE, "there are usb:1-1, usb:TW0002");
}

static void become(uid_t user) {
    assert_int_equal(setresgid(user, user, 0), 0);
    assert_int_equal(setresuid(user, user, 0), 0);
}

static void without_permission_the_rule_and_the_command_are_shown(void **state) {
    struct bed *b = *state;
    char command[400], *root = umockdev_testbed_get_root_dir(b->mock.bed);
    if (getuid() != 0) {
        skip();
    }
    usb_mock_add(&b->mock, 1, &mock_good);
    snprintf(command, sizeof command, "chmod -R a+rwX %s && chmod 600 %s/dev/bus/usb/001/002", root,
             root);
    assert_int_equal(system(command), 0);
    become(NOBODY);
    struct listing l = list_usb();
    tw_error err = {0};
    tw_device *device;
    int code = tw_device_open("usb", NULL, &device, &err);
    become(0);
    g_free(root);
    assert_int_equal(l.n, 1);
    expect_entry(&l.device[0], "usb:TW0001", "no permission", "60-tilewright.rules");
    expect_entry(&l.device[0], "usb:TW0001", "no permission", "udevadm trigger");
    assert_int_equal(code, TW_E_NO_DEVICE);
    assert_non_null(strstr(err.message, "60-tilewright.rules"));
}

static void out_of_descriptors_is_one_line(void **state) {
    (void)state;
    struct rlimit before, now;
    list_usb(); /* what the libraries keep open, they open once */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)dup(0); /* the lowest that is free */
    close((int)now.rlim_cur);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    struct listing l = list_usb();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(l.n, 1);
    expect_entry(&l.device[0], "usb", "unusable", "ulimit -n");
}

/* ---- a device ---- */

static unsigned count_descriptors(void) {
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

/* The count once it is at most `most`, or after 10 s: umockdev's thread closes its end of a
 * connection some time after ours is closed, in this same process. */
static unsigned settled_descriptors(unsigned most) {
    const double until = tw_clock_s() + 10;
    unsigned n = count_descriptors();
    while (n > most && tw_clock_s() < until) {
        usleep(1000);
        n = count_descriptors();
    }
    return n;
}

static void a_device_opens_by_each_of_its_names_and_works(void **state) {
    struct bed *b = *state;
    const char *const names[] = {"usb", "usb:TW0001", "usb:1-1"};
    for (size_t i = 0; i < 3; i++) {
        tw_device *device;
        tw_error err = {0};
        struct tw_device_info info = {.size = sizeof info};
        if (tw_device_open(names[i], NULL, &device, &err)) {
            fail_msg("%s", err.message);
        }
        tw_device_get_info(device, &info, NULL);
        assert_int_equal(info.link_mbits, 480);
        assert_int_equal(tw_device_selftest(device, NULL, NULL, &err), 0);
        assert_int_equal(tw_device_reset(device, &err), 0);
        tw_device_close(device);
    }
    assert_int_equal(b->mock.resets, 0); /* an ordinary open resets and clears nothing */
    assert_int_equal(b->mock.host_resets + b->mock.clears, 0);
    assert_int_equal(b->mock.claims, 3);
}

static void a_second_open_is_refused_with_the_holders_name(void **state) {
    struct bed *b = *state;
    char who[64];
    tw_device *device;
    snprintf(who, sizeof who, "process %d (usb_test", (int)getpid());
    assert_int_equal(tw_device_open("usb", NULL, &device, NULL), 0);
    refuses("usb", TW_E_DEVICE_BUSY, who);
    usb_mock_claimed(&b->mock, 1); /* as the kernel shows it */
    struct listing l = list_usb();
    expect_entry(&l.device[0], "usb:TW0001", "busy", who);
    refuses("usb:1-1", TW_E_DEVICE_BUSY, who);
    tw_device_close(device);
}

static void a_program_that_does_not_lock_is_noticed_by_its_claim(void **state) {
    struct bed *b = *state;
    b->mock.refuse_claim = EBUSY;
    b->mock.claims_refused = 1000;
    refuses("usb", TW_E_DEVICE_BUSY, "is using it");
    assert_int_equal(b->mock.claims_refused, 999); /* it does not retry */
}

static void without_a_lock_folder_the_claim_alone_decides(void **state) {
    (void)state;
    tw_device *device;
    setenv("TW_LOCK_FOLDER", "/nowhere/at/all", 1);
    assert_int_equal(tw_device_open("usb", NULL, &device, NULL), 0);
    tw_device_close(device);
}

static void a_device_that_settles_is_waited_for(void **state) {
    struct bed *b = *state;
    tw_device *device;
    b->mock.refuse_claim = EIO;
    b->mock.claims_refused = 3;
    assert_int_equal(tw_device_open("usb", NULL, &device, NULL), 0);
    tw_device_close(device);
    b->mock.claims_refused = 100000;
    refuses("usb", TW_E_NO_DEVICE, "cannot open it");
}

static void *vanish_soon(void *mock) {
    usleep(100000);
    usb_mock_vanish(mock);
    return NULL;
}

static void a_device_that_vanishes_is_lost_for_good(void **state) {
    struct bed *b = *state;
    tw_device *device;
    tw_error err = {0};
    pthread_t thread;
    assert_int_equal(tw_device_open("usb", NULL, &device, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, vanish_soon, &b->mock), 0);
    int code = 0;
    for (int i = 0; !code && i < 100000; i++) {
        code = tw_device_reset(device, &err);
    }
    pthread_join(thread, NULL);
    assert_int_equal(code, TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "usb"));
    assert_non_null(strstr(err.message, "unplugged"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tw_device_reset(device, &err), TW_E_DEVICE_LOST);
        assert_non_null(strstr(err.message, "unplugged"));
    }
    tw_device_close(device);
}

static void a_silent_device_is_recovered_or_lost(void **state) {
    struct bed *b = *state;
    tw_device *device;
    const struct tw_device_options o = {.size = sizeof o, .deadline_ms = 300};
    usb_mock_set_out(&b->mock, MOCK_HOLD);
    tw_error err = {0};
    assert_int_equal(tw_device_open("usb", &o, &device, &err), TW_E_DEVICE_LOST);
    assert_non_null(strstr(err.message, "endpoints were cleared"));
    assert_non_null(strstr(err.message, "reset by its port"));
    assert_int_equal(b->mock.host_resets, 1);
    assert_int_equal(b->mock.resets, 1);
    usb_mock_set_out(&b->mock, MOCK_TAKE);
    assert_int_equal(tw_device_open("usb", NULL, &device, &err), 0);
    tw_device_close(device);
}

static void many_opens_leak_nothing(void **state) {
    (void)state;
    unsigned before = 0;
    const int opens = getenv("TW_LONG") ? 1000 : 100;
    for (int i = 0; i < opens; i++) {
        tw_device *device;
        tw_error err = {0};
        if (tw_device_open("usb", NULL, &device, &err)) {
            fail_msg("open %d: %s", i, err.message);
        }
        tw_device_close(device);
        before = i == 10 ? count_descriptors() : before;
    }
    assert_in_range(settled_descriptors(before), 0, before);
}

/* ---- events ---- */

struct events {
    struct bed *bed;
    unsigned n;
    int stop;
};

static bool play(void *ctx, enum tw_device_event event, const struct tw_device_info *info) {
    struct events *e = ctx;
    if (strncmp(info->selector, "usb", 3) != 0) {
        return true;
    }
    e->n++;
    if (e->n == 1) {
        assert_int_equal(event, TW_DEVICE_ARRIVED);
        assert_string_equal(info->selector, "usb:TW0001");
        struct mock_shape s = mock_good;
        s.serial = "second";
        usb_mock_add(&e->bed->mock, 2, &s);
    } else if (e->n == 2) {
        assert_int_equal(event, TW_DEVICE_ARRIVED);
        assert_string_equal(info->selector, "usb:second");
        usb_mock_claimed(&e->bed->mock, 2);
    } else if (e->n == 3) {
        assert_int_equal(event, TW_DEVICE_CHANGED);
        assert_string_equal(info->state, "busy");
        usb_mock_remove(&e->bed->mock, 2);
    } else {
        assert_int_equal(event, TW_DEVICE_LEFT);
        assert_string_equal(info->selector, "usb:second");
        e->stop = 1;
    }
    return true;
}

static void arrivals_and_departures_are_reported(void **state) {
    struct events e = {.bed = *state};
    usb_mock_add(&e.bed->mock, 1, &mock_good);
    assert_int_equal(tw_device_watch(play, &e, &e.stop, NULL), 0);
    assert_int_equal(e.n, 4);
}

static bool stop_at_once(void *ctx, enum tw_device_event event, const struct tw_device_info *info) {
    (void)event;
    (void)info;
    ++*(unsigned *)ctx;
    return false;
}

static void a_watcher_may_stop_it(void **state) {
    (void)state;
    unsigned n = 0;
    assert_int_equal(tw_device_watch(stop_at_once, &n, NULL, NULL), 0);
    assert_int_equal(n, 1);
}

#define TEST(name, set) cmocka_unit_test_setup_teardown(name, set, tear_down)

int main(int argc, char **argv) {
    (void)argc;
    usb_mock_enter(argv);
    const struct CMUnitTest tests[] = {
        TEST(without_usb_there_are_no_devices_and_that_is_no_error, set_up),
        TEST(every_device_is_listed_with_its_state_and_reason, set_up),
        TEST(without_permission_the_rule_and_the_command_are_shown, set_up),
        TEST(out_of_descriptors_is_one_line, set_up),
        TEST(a_device_opens_by_each_of_its_names_and_works, set_up_device),
        TEST(a_second_open_is_refused_with_the_holders_name, set_up_device),
        TEST(a_program_that_does_not_lock_is_noticed_by_its_claim, set_up_device),
        TEST(without_a_lock_folder_the_claim_alone_decides, set_up_device),
        TEST(a_device_that_settles_is_waited_for, set_up_device),
        TEST(a_device_that_vanishes_is_lost_for_good, set_up_device),
        TEST(a_silent_device_is_recovered_or_lost, set_up_device),
        TEST(many_opens_leak_nothing, set_up_device),
        TEST(arrivals_and_departures_are_reported, set_up),
        TEST(a_watcher_may_stop_it, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    puts("skip devices on USB: libumockdev-dev is not installed");
    return 0;
}
#endif
