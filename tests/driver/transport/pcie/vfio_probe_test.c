/* SPDX-License-Identifier: Apache-2.0
 *
 * What prevents the use of a card, with a sysfs of the test's own: each reason with the commands
 * that fix it.
 */
#include "driver/transport/pcie/vfio_probe.h"
#include "loader/base/compiler.h"
#include "tests/support/test.h"

#include <sys/stat.h>
#include <unistd.h>

#define BDF "0000:00:02.0"
#define OTHER "0000:00:1f.0"

static char root[] = "/tmp/tw-vfio-XXXXXX", sys[64], dev[64];
static struct tw_vfio_places places = {sys, dev};
static struct tw_vfio_probe probe;

static void shell(const char *format, ...) TW_PRINTF(1, 2);
static void shell(const char *format, ...) {
    char command[600], line[700];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(line, sizeof line, "cd %s && %s", root, command);
    assert_int_equal(system(line), 0);
}

/* A card in group 7 that is ready. */
static int make(void **state) {
    (void)state;
    strcpy(root, "/tmp/tw-vfio-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(sys, sizeof sys, "%s/sys", root);
    snprintf(dev, sizeof dev, "%s/dev", root);
    shell("mkdir -p sys/bus/pci/devices/" BDF " sys/bus/pci/devices/" OTHER
          " sys/bus/pci/drivers/vfio-pci "
          "sys/bus/pci/drivers/lpc_ich sys/groups/7/devices/" BDF " dev/vfio");
    shell("ln -s ../../../../groups/7 sys/bus/pci/devices/" BDF "/iommu_group");
    shell("ln -s ../../drivers/vfio-pci sys/bus/pci/devices/" BDF "/driver");
    shell("touch dev/vfio/vfio dev/vfio/7");
    return 0;
}

static int drop(void **state) {
    (void)state;
    shell("rm -rf %s", root);
    return 0;
}

static void assert_state(const char *state, const char *reason, const char *remedy) {
    tw_vfio_probe(&places, BDF, &probe);
    assert_string_equal(probe.state, state);
    if (!strstr(probe.reason, reason) || !strstr(probe.remedy, remedy)) {
        fail_msg("'%s' and '%s' do not contain '%s' and '%s'", probe.reason, probe.remedy, reason,
                 remedy);
    }
}

static void a_usable_card_is_ready(void **state) {
    (void)state;
    assert_state("ready", "", "");
    assert_string_equal(probe.reason, "");
    assert_string_equal(probe.remedy, "");
    assert_string_equal(probe.group, "7");
}

static void a_card_that_is_not_there_is_gone(void **state) {
    (void)state;
    shell("rm -r sys/bus/pci/devices/" BDF);
    assert_state("gone", "no such", "lspci");
}

static void without_an_iommu_the_kernels_option_is_named(void **state) {
    (void)state;
    shell("rm sys/bus/pci/devices/" BDF "/iommu_group");
    assert_state("no IOMMU", "off", "intel_iommu=on");
}

static void without_the_module_it_is_named(void **state) {
    (void)state;
    shell("rm -r sys/bus/pci/drivers/vfio-pci dev/vfio");
    assert_state("no VFIO", "not loaded", "sudo modprobe vfio-pci");
}

static void in_a_container_without_the_node_it_is_named(void **state) {
    (void)state;
    shell("rm dev/vfio/7");
    assert_state("no VFIO", "container", "/dev/vfio/7");
    shell("rm -r dev/vfio");
    assert_state("no VFIO", "container", "/dev/vfio/vfio");
}

static void a_card_without_a_driver_gets_the_commands_to_bind_it(void **state) {
    (void)state;
    shell("rm sys/bus/pci/devices/" BDF "/driver");
    assert_state("not bound", "no driver",
                 "echo vfio-pci | sudo tee /sys/bus/pci/devices/" BDF "/driver_override; echo " BDF
                 " | sudo tee /sys/bus/pci/drivers_probe");
    assert_null(strstr(probe.remedy, "unbind"));
}

static void a_card_with_another_driver_is_unbound_first(void **state) {
    (void)state;
    shell("ln -sfn ../../drivers/lpc_ich sys/bus/pci/devices/" BDF "/driver");
    assert_state("not bound", "its driver is lpc_ich",
                 "driver_override; echo " BDF " | sudo tee /sys/bus/pci/devices/" BDF
                 "/driver/unbind; echo " BDF " | sudo tee /sys/bus/pci/drivers_probe");
}

static void others_in_the_group_are_named(void **state) {
    (void)state;
    shell("mkdir sys/groups/7/devices/" OTHER);
    assert_state("ready", "", ""); /* without a driver it does no harm */
    shell("ln -s ../../drivers/lpc_ich sys/bus/pci/devices/" OTHER "/driver");
    assert_state("not viable", "group 7 also holds " OTHER " (driver lpc_ich)",
                 "echo " OTHER " | sudo tee /sys/bus/pci/devices/" OTHER "/driver/unbind");
    shell("ln -sfn ../../drivers/vfio-pci sys/bus/pci/devices/" OTHER "/driver");
    assert_state("ready", "", "");
}

static void a_crowded_group_does_not_overflow(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) {
        shell("mkdir -p sys/groups/7/devices/0000:01:%02x.0 sys/bus/pci/devices/0000:01:%02x.0", i,
              i);
        shell("ln -s ../../drivers/lpc_ich sys/bus/pci/devices/0000:01:%02x.0/driver", i);
    }
    assert_state("not viable", "group 7 also holds", "unbind");
    assert_true(strlen(probe.reason) < sizeof probe.reason &&
                strlen(probe.remedy) < sizeof probe.remedy);
}

static void a_node_of_another_user_is_reported(void **state) {
    (void)state;
    if (geteuid() == 0) {
        skip(); /* root may open everything; tests/qemu/pcie has a user */
    }
    shell("chmod 0 dev/vfio/7");
    assert_state("no permission", "/dev/vfio/7", "chown");
}

static void numbers_are_read_from_files(void **state) {
    (void)state;
    uint32_t n;
    shell("echo 0x1af4 > sys/bus/pci/devices/" BDF "/vendor");
    assert_true(tw_vfio_number(&places, BDF, "vendor", &n));
    assert_int_equal(n, 0x1af4);
    assert_false(tw_vfio_number(&places, BDF, "device", &n));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_usable_card_is_ready),
        TEST(a_card_that_is_not_there_is_gone),
        TEST(without_an_iommu_the_kernels_option_is_named),
        TEST(without_the_module_it_is_named),
        TEST(in_a_container_without_the_node_it_is_named),
        TEST(a_card_without_a_driver_gets_the_commands_to_bind_it),
        TEST(a_card_with_another_driver_is_unbound_first),
        TEST(others_in_the_group_are_named),
        TEST(a_crowded_group_does_not_overflow),
        TEST(a_node_of_another_user_is_reported),
        TEST(numbers_are_read_from_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
