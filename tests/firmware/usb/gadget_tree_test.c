/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gadget's daemon writes to a board's configfs, and how it reports what a board is
 * missing, on folders that look like /sys. That the kernel accepts it is tested in QEMU.
 */
#include "firmware/usb/gadget_tree.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define GADGET "/sys/kernel/config/usb_gadget/tilewright-b.usb"

static char root[64];
static struct tw_usb_device device;

static const char *at(const char *rest) {
    static char path[4][400];
    static unsigned next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s%s", root, rest);
    return p;
}

static void folder(const char *rest) {
    char path[400];
    snprintf(path, sizeof path, "%s", at(rest));
    for (char *p = path + strlen(root) + 1; *p; p++) {
        if (*p == '/') {
            *p = 0;
            mkdir(path, 0755);
            *p = '/';
        }
    }
    assert_int_equal(mkdir(path, 0755), 0);
}

static void file(const char *rest, const char *text) {
    FILE *f = fopen(at(rest), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void holds(const char *rest, const char *text) {
    char got[200] = "";
    FILE *f = fopen(at(rest), "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    assert_string_equal(got, text);
}

static int set_up(void **state) {
    (void)state;
    const struct tw_usb_options o = {.serial = "BOARD-9", .firmware_version = 0x000102};
    strcpy(root, "/tmp/tw-gadget-XXXXXX");
    return mkdtemp(root) && tw_usb_device_init(&device, &o, NULL) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static int tear_down(void **state) {
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int make(const char *udc, tw_error *err) {
    struct tw_gadget_tree t;
    int code = tw_gadget_tree_make(&t, root, udc, &device, err);
    assert_int_not_equal(code, 0); /* no kernel is behind these folders */
    assert_true(t.lock < 0 && t.gadgets < 0 && t.files < 0);
    return code;
}

static void a_board_without_a_controller_is_reported(void **state) {
    (void)state;
    tw_error err = {0};
    assert_int_equal(make(NULL, &err), TW_E_NO_DEVICE);
    assert_non_null(strstr(err.message, "/sys/class/udc"));
    folder("/sys/class/udc");
    assert_int_equal(make(NULL, &err), TW_E_NO_DEVICE);
    assert_int_equal(make("b.usb", &err), TW_E_NO_DEVICE);
}

static void an_unknown_controller_is_refused_with_the_available_ones(void **state) {
    (void)state;
    tw_error err = {0};
    folder("/sys/class/udc/b.usb");
    folder("/sys/class/udc/c.usb");
    assert_int_equal(make("a.usb", &err), TW_E_NO_DEVICE);
    assert_non_null(strstr(err.message, "'a.usb'"));
    assert_non_null(strstr(err.message, "b.usb, c.usb"));
}

static void a_kernel_without_gadgets_reports_the_module(void **state) {
    (void)state;
    tw_error err = {0};
    folder("/sys/class/udc/b.usb");
    assert_int_equal(make(NULL, &err), TW_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "gadget on b.usb"));
    assert_non_null(strstr(err.message, "modprobe libcomposite"));
}

static void a_controller_is_used_by_one_process(void **state) {
    (void)state;
    tw_error err = {0};
    folder("/sys/class/udc/b.usb");
    int fd = open(at("/sys/class/udc/b.usb"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(make(NULL, &err), TW_E_DEVICE_BUSY);
    assert_non_null(strstr(err.message, "b.usb"));
    close(fd);
    assert_int_equal(make(NULL, &err), TW_E_UNSUPPORTED); /* the lock has been released */
}

/* The attributes that the kernel makes with the folders. */
static void make_attributes(void) {
    static const char *const files[] = {"/idVendor",
                                        "/idProduct",
                                        "/bcdDevice",
                                        "/UDC",
                                        "/strings/0x409/manufacturer",
                                        "/strings/0x409/product",
                                        "/strings/0x409/serialnumber",
                                        "/configs/c.1/MaxPower"};
    folder("/sys/class/udc/b.usb");
    folder(GADGET "/strings/0x409");
    folder(GADGET "/configs/c.1");
    folder(GADGET "/functions");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[200];
        snprintf(path, sizeof path, GADGET "%s", files[i]);
        file(path, "");
    }
}

static void the_gadget_is_described_and_taken_down(void **state) {
    (void)state;
    tw_error err = {0};
    struct stat st;
    make_attributes();
    folder(GADGET "/functions/ffs.tw-b.usb"); /* of a process that died */
    assert_int_equal(
        symlink(at(GADGET "/functions/ffs.tw-b.usb"), at(GADGET "/configs/c.1/ffs.tw-b.usb")), 0);
    assert_int_equal(make("b.usb", &err), TW_E_IO);
    assert_non_null(strstr(err.message, "cannot mount FunctionFS"));
    holds(GADGET "/idVendor", "0x1209");
    holds(GADGET "/idProduct", "0x000c");
    holds(GADGET "/bcdDevice", "0x0012");
    holds(GADGET "/strings/0x409/manufacturer", "Tilewright");
    holds(GADGET "/strings/0x409/serialnumber", "BOARD-9");
    assert_int_not_equal(lstat(at(GADGET "/configs/c.1/ffs.tw-b.usb"), &st), 0);
    assert_int_not_equal(lstat(at(GADGET "/functions/ffs.tw-b.usb"), &st), 0);
}

static void nothing_is_left_of_a_gadget_that_fails(void **state) {
    (void)state;
    tw_error err = {0};
    struct stat st;
    folder("/sys/class/udc/b.usb");
    folder("/sys/kernel/config/usb_gadget");
    /* half way: here are no folders but those that we make */
    assert_int_not_equal(make(NULL, &err), 0);
    assert_int_not_equal(lstat(at(GADGET), &st), 0);
}

static void the_user_of_the_controller_is_named(void **state) {
    (void)state;
    tw_error err = {0};
    struct tw_gadget_tree t = {
        .udc = "b.usb", .folder = "tilewright-b.usb", .lock = -1, .files = -1};
    folder("/sys/kernel/config/usb_gadget/other");
    file("/sys/kernel/config/usb_gadget/other/UDC", "b.usb\n");
    snprintf(t.base, sizeof t.base, "%s", at("/sys/kernel/config/usb_gadget"));
    t.gadgets = open(t.base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(tw_gadget_tree_bind(&t, &err), TW_E_DEVICE_BUSY);
    assert_non_null(strstr(err.message, "gadget 'other' is using this controller"));
    file("/sys/kernel/config/usb_gadget/other/UDC", "a.usb\n");
    /* there is no such attribute, and nobody has it */
    assert_int_equal(tw_gadget_tree_bind(&t, &err), TW_E_IO);
    make_attributes();
    assert_int_equal(tw_gadget_tree_bind(&t, &err), 0);
    holds(GADGET "/UDC", "b.usb");
    close(t.gadgets);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_board_without_a_controller_is_reported, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_unknown_controller_is_refused_with_the_available_ones,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_kernel_without_gadgets_reports_the_module, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_controller_is_used_by_one_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_gadget_is_described_and_taken_down, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_left_of_a_gadget_that_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_user_of_the_controller_is_named, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("gadget tree", tests, NULL, NULL);
}
