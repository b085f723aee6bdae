/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks in the order in which problems have to be fixed: IOMMU, module, binding, group,
 * permission.
 */
#include "driver/transport/pcie/vfio_probe.h"

#include "loader/base/compiler.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct tw_vfio_places tw_vfio_system = {"/sys", "/dev"};

struct probe {
    const struct tw_vfio_places *places;
    const char *bdf;
    struct tw_vfio_probe *out;
};

static void add(char *text, size_t size, const char *format, ...) TW_PRINTF(3, 4);
static void add(char *text, size_t size, const char *format, ...) {
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, size - n, format, args);
    va_end(args);
}

#define REASON(s, ...) add((s)->out->reason, sizeof(s)->out->reason, __VA_ARGS__)
#define REMEDY(s, ...) add((s)->out->remedy, sizeof(s)->out->remedy, __VA_ARGS__)

/* Records the state that a failed check implies. Returns false. */
static bool stop(const struct probe *s, const char *state) {
    snprintf(s->out->state, sizeof s->out->state, "%s", state);
    return false;
}

/* Reads the last component of a symbolic link in a function's folder; "" if there is none. */
static void read_link(const struct probe *s, const char *bdf, const char *file, char *name,
                      size_t size) {
    char path[300], target[300];
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/%s", s->places->sys, bdf, file);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    const char *last = strrchr(target, '/');
    snprintf(name, size, "%.*s", (int)size - 1, last ? last + 1 : target);
}

static bool is_there(const struct probe *s) {
    char path[300];
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s", s->places->sys, s->bdf);
    if (access(path, F_OK) == 0) {
        return true;
    }
    REASON(s, "there is no such PCI function");
    REMEDY(s, "list them with: lspci");
    return stop(s, "gone");
}

static bool has_group(const struct probe *s) {
    read_link(s, s->bdf, "iommu_group", s->out->group, sizeof s->out->group);
    if (s->out->group[0]) {
        return true;
    }
    REASON(s, "the IOMMU is off, or there is none");
    REMEDY(s, "add intel_iommu=on (amd_iommu=on) to the kernel's command line and enable VT-d or "
              "AMD-Vi in the firmware setup");
    return stop(s, "no IOMMU");
}

static bool has_vfio(const struct probe *s) {
    char path[300];
    snprintf(path, sizeof path, "%s/bus/pci/drivers/vfio-pci", s->places->sys);
    bool driver = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%s/vfio/vfio", s->places->dev);
    if (driver && access(path, F_OK) == 0) {
        return true;
    }
    REASON(s,
           driver ? "there is no %s: it was not passed into this container"
                  : "the driver vfio-pci is not loaded",
           path);
    REMEDY(s, driver ? "start it with --device %s" : "sudo modprobe vfio-pci", path);
    return stop(s, "no VFIO");
}

static bool is_vfio(const char *driver) {
    return strncmp(driver, "vfio", 4) == 0;
}

static bool is_bound(const struct probe *s) {
    char driver[64];
    read_link(s, s->bdf, "driver", driver, sizeof driver);
    if (is_vfio(driver)) {
        return true;
    }
    REASON(s, driver[0] ? "its driver is %s" : "it has no driver%s", driver);
    REMEDY(s, "echo vfio-pci | sudo tee /sys/bus/pci/devices/%s/driver_override; ", s->bdf);
    if (driver[0]) {
        REMEDY(s, "echo %s | sudo tee /sys/bus/pci/devices/%s/driver/unbind; ", s->bdf, s->bdf);
    }
    REMEDY(s, "echo %s | sudo tee /sys/bus/pci/drivers_probe", s->bdf);
    return stop(s, "not bound");
}

/* Returns whether the kernel lets this driver share a group with VFIO. */
static bool may_share(const char *driver) {
    return !driver[0] || is_vfio(driver) || strcmp(driver, "pci-stub") == 0 ||
           strcmp(driver, "pcieport") == 0;
}

static bool is_viable(const struct probe *s) {
    char path[300], driver[64];
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/iommu_group/devices", s->places->sys,
             s->bdf);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        read_link(s, e->d_name, "driver", driver, sizeof driver);
        if (e->d_name[0] == '.' || may_share(driver)) {
            continue;
        }
        if (s->out->reason[0]) {
            REASON(s, ", ");
        } else {
            REASON(s, "its IOMMU group %s also holds ", s->out->group);
        }
        REASON(s, "%s (driver %s)", e->d_name, driver);
        REMEDY(s, "%secho %s | sudo tee /sys/bus/pci/devices/%s/driver/unbind",
               s->out->remedy[0] ? "; " : "", e->d_name, e->d_name);
    }
    if (dir) {
        closedir(dir);
    }
    return !s->out->reason[0] || stop(s, "not viable");
}

static bool may_open(const struct probe *s, const char *name, const char *remedy) {
    char path[300];
    snprintf(path, sizeof path, "%s/vfio/%s", s->places->dev, name);
    if (access(path, R_OK | W_OK) == 0) {
        return true;
    }
    if (errno == ENOENT) {
        REASON(s, "there is no %s: it was not passed into this container", path);
        REMEDY(s, "start it with --device %s", path);
        return stop(s, "no VFIO");
    }
    REASON(s, "this user may not open %s", path);
    REMEDY(s, remedy, path);
    return stop(s, "no permission");
}

void tw_vfio_probe(const struct tw_vfio_places *places, const char *bdf,
                   struct tw_vfio_probe *out) {
    const struct probe s = {places, bdf, out};
    *out = (struct tw_vfio_probe){.state = "ready"};
    (void)(is_there(&s) && has_group(&s) && has_vfio(&s) && is_bound(&s) && is_viable(&s) &&
           may_open(&s, "vfio",
                    "sudo chmod 666 %s  (the kernel's own default; groups stay protected)") &&
           may_open(&s, out->group,
                    "tilewright doctor --udev-rule | sudo tee "
                    "/etc/udev/rules.d/60-tilewright.rules && sudo udevadm control "
                    "--reload && sudo udevadm trigger && sudo usermod -aG tilewright $USER, or "
                    "until the next boot: sudo "
                    "chown $USER %s"));
}

bool tw_vfio_number(const struct tw_vfio_places *places, const char *bdf, const char *file,
                    uint32_t *out) {
    char path[300], text[32];
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/%s", places->sys, bdf, file);
    FILE *f = fopen(path, "re");
    bool got = f && fgets(text, sizeof text, f);
    if (f) {
        fclose(f);
    }
    *out = got ? (uint32_t)strtoul(text, NULL, 0) : 0;
    return got;
}
