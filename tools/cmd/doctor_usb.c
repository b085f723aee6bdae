/* SPDX-License-Identifier: Apache-2.0
 *
 * USB: the kernel's support, the memory for transfers, and each board's speed and permissions, from
 * sysfs alone.
 */
#include "tools/cmd/doctor.h"

#include "tilewright/usb.h"

#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WANTED_MB 128

static bool check_kernel(struct doctor *d) {
    if (!doctor_can(d, F_OK, "/sys/bus/usb")) {
        doctor_report(
            d, DOCTOR_MISSING, "usb",
            "sudo modprobe usbcore  (or run on the host; or pass the controller to the machine)",
            "this kernel has no USB support: /sys/bus/usb does not exist (a container or a small "
            "virtual machine?)");
        return false;
    }
    if (!doctor_can(d, R_OK | X_OK, "/dev/bus/usb")) {
        doctor_report(d, DOCTOR_MISSING, "usb",
                      "pass it to the container: docker run --device /dev/bus/usb ...",
                      "cannot read /dev/bus/usb: %s", strerror(errno));
    } else if (doctor_each(d, "/dev/bus/usb", NULL, NULL) == 0) {
        doctor_report(d, DOCTOR_MISSING, "usb", "plug in a controller, or pass one to this machine",
                      "the kernel supports USB, but there is no controller");
    } else {
        doctor_report(d, DOCTOR_GOOD, "usb", NULL, "the kernel supports USB");
    }
    return true;
}

static void check_memory(struct doctor *d) {
    long mb;
    if (doctor_read_number(d, &mb, "/sys/module/usbcore/parameters/usbfs_memory_mb")) {
        bool good = mb == 0 || mb >= WANTED_MB;
        doctor_report(d, good ? DOCTOR_GOOD : DOCTOR_MISSING, "usbfs memory",
                      "echo 128 | sudo tee /sys/module/usbcore/parameters/usbfs_memory_mb",
                      "transfers can use %ld MB%s", mb,
                      mb == 0 ? " (no limit)"
                      : good  ? ""
                              : "; large ones need 128");
    }
}

/* ---- boards ---- */

static long read_hex(const struct doctor *d, const char *device, const char *attribute) {
    char line[128];
    unsigned value;
    bool got = doctor_read_line(d, line, "/sys/bus/usb/devices/%s/%s", device, attribute) &&
               sscanf(line, "%x", &value) == 1;
    return got ? (long)value : -1;
}

struct board {
    const char *name; /* "1-2" */
    bool ours;
};

static void check_interface(struct doctor *d, const char *name, void *ctx) {
    struct board *b = ctx;
    size_t n = strlen(b->name);
    if (strncmp(name, b->name, n) == 0 && name[n] == ':') {
        b->ours = b->ours || (read_hex(d, name, "bInterfaceClass") == TW_USB_CLASS &&
                              read_hex(d, name, "bInterfaceSubClass") == TW_USB_SUBCLASS &&
                              read_hex(d, name, "bInterfaceProtocol") == TW_USB_PROTOCOL);
    }
}

static bool is_board(struct doctor *d, const char *name) {
    long vendor = read_hex(d, name, "idVendor"), product = read_hex(d, name, "idProduct");
    if (vendor == TW_USB_VENDOR &&
        (product == TW_USB_PRODUCT || product == TW_USB_PRODUCT_RECOVERY)) {
        return true;
    }
    struct board b = {.name = name};
    doctor_each(d, "/sys/bus/usb/devices", check_interface, &b);
    return b.ours;
}

/* A device that could run faster says so in its version even on a slow port: 2.10 announces the
 * capability descriptor of USB 3. */
static void check_speed(struct doctor *d, const char *name) {
    long speed = 0;
    char version[128];
    doctor_read_number(d, &speed, "/sys/bus/usb/devices/%s/speed", name);
    doctor_read_line(d, version, "/sys/bus/usb/devices/%s/version", name);
    bool fell_back = speed > 0 && speed <= 480 && strcmp(version, "2.10") >= 0;
    doctor_report(d, speed < 480 || fell_back ? DOCTOR_MISSING : DOCTOR_GOOD, "usb speed",
                  fell_back ? "plug it into a USB 3 port, with a USB 3 cable and without a hub"
                            : "plug it into another port, without a hub",
                  "usb:%s: %ld Mbit/s%s", name, speed,
                  fell_back     ? ", but it can do USB 3"
                  : speed < 480 ? ", far too slow"
                                : "");
}

static void check_node(struct doctor *d, const char *name) {
    long bus, number;
    char path[300];
    struct stat st;
    if (!doctor_read_number(d, &bus, "/sys/bus/usb/devices/%s/busnum", name) ||
        !doctor_read_number(d, &number, "/sys/bus/usb/devices/%s/devnum", name)) {
        return;
    }
    snprintf(path, sizeof path, "%.200s/dev/bus/usb/%03ld/%03ld", d->root, bus, number);
    if (access(path, R_OK | W_OK) == 0) {
        doctor_report(d, DOCTOR_GOOD, "usb access", NULL,
                      "usb:%s: /dev/bus/usb/%03ld/%03ld can be opened", name, bus, number);
        return;
    }
    int e = errno;
    const struct group *g = getgrnam("tilewright");
    bool applied = g && stat(path, &st) == 0 && st.st_gid == g->gr_gid;
    doctor_report(d, DOCTOR_MISSING, "usb access",
                  e == ENOENT ? "pass the port to this container or machine: docker run -v "
                                "/dev/bus/usb:/dev/bus/usb ..."
                  : applied   ? "sudo usermod -aG tilewright $USER  (then log in again)"
                              : DOCTOR_RULE_COMMAND,
                  "usb:%s: cannot open /dev/bus/usb/%03ld/%03ld: %s%s", name, bus, number,
                  strerror(e),
                  applied       ? "; it belongs to group tilewright"
                  : e == EACCES ? "; the udev rule was not applied to it"
                                : "");
}

static void check_device(struct doctor *d, const char *name, void *ctx) {
    (void)ctx;
    if (!strchr(name, ':') && is_board(d, name)) {
        check_speed(d, name);
        check_node(d, name);
    }
}

void doctor_check_usb(struct doctor *d) {
    if (check_kernel(d)) {
        check_memory(d);
        doctor_each(d, "/sys/bus/usb/devices", check_device, NULL);
    }
}
