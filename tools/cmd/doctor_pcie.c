/* SPDX-License-Identifier: Apache-2.0
 *
 * PCIe: IOMMU, VFIO, and for each IOMMU group that holds a card whether the kernel would let a
 * process open it, which it does only if no other driver uses a device of the group.
 */
#include "tools/cmd/doctor.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The id of QEMU's shared memory device, which stands in for a card. */
#define CARD_VENDOR 0x1AF4
#define CARD_DEVICE 0x1110

/* ---- the IOMMU's switches ---- */

/* Reads the first word after "vendor_id :" in /proc/cpuinfo; "" unless the processor is x86. */
static void read_vendor(const struct doctor *d, char vendor[32]) {
    char path[300], line[200];
    snprintf(path, sizeof path, "%.200s/proc/cpuinfo", d->root);
    FILE *f = fopen(path, "re");
    vendor[0] = 0;
    while (f && fgets(line, sizeof line, f) && sscanf(line, "vendor_id : %31s", vendor) != 1) {
    }
    if (f) {
        fclose(f);
    }
}

static bool kernel_has_option(const struct doctor *d, const char *option) {
    char path[300], line[2048] = "";
    snprintf(path, sizeof path, "%.200s/proc/cmdline", d->root);
    FILE *f = fopen(path, "re");
    if (f) {
        line[fread(line, 1, sizeof line - 1, f)] = 0;
        fclose(f);
    }
    const char *at = strstr(line, option);
    return at && (at == line || at[-1] == ' ') && strchr(" \n", at[strlen(option)]);
}

/* Intel's IOMMU has to be enabled on the kernel's command line, which is done once; AMD's is
 * enabled unless the command line says otherwise. If that is done, only the firmware setup is
 * left. */
static const char *iommu_command(const struct doctor *d) {
    char vendor[32];
    read_vendor(d, vendor);
    if (strcmp(vendor, "GenuineIntel") == 0) {
        return kernel_has_option(d, "intel_iommu=on")
                   ? "enable VT-d in the firmware setup (the kernel was started with "
                     "intel_iommu=on already)"
                   : "grep -q intel_iommu=on /etc/default/grub || sudo sed -i "
                     "'s/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on /' /etc/default/grub; sudo "
                     "update-grub && sudo reboot  (VT-d must be enabled in the firmware setup)";
    }
    if (strcmp(vendor, "AuthenticAMD") == 0 || strcmp(vendor, "HygonGenuine") == 0) {
        return kernel_has_option(d, "amd_iommu=off")
                   ? "sudo sed -i 's/amd_iommu=off *//' /etc/default/grub; sudo update-grub && "
                     "sudo reboot"
                   : "enable AMD-Vi (IOMMU) in the firmware setup; the kernel then uses it";
    }
    return "enable the IOMMU in the firmware setup; the kernel then uses it";
}

/* ---- the kernel ---- */

static void check_kernel(struct doctor *d) {
    bool groups = doctor_each(d, "/sys/kernel/iommu_groups", NULL, NULL) > 0;
    doctor_report(d, groups ? DOCTOR_GOOD : DOCTOR_MISSING, "iommu", iommu_command(d),
                  groups ? "the IOMMU is on"
                         : "no IOMMU groups: the IOMMU is off, or there is none");
    if (!doctor_can(d, F_OK, "/dev/vfio/vfio")) {
        doctor_report(d, DOCTOR_MISSING, "vfio", "sudo modprobe vfio-pci",
                      "/dev/vfio/vfio does not exist: VFIO is not loaded");
    } else if (!doctor_can(d, R_OK | W_OK, "/dev/vfio/vfio")) {
        doctor_report(
            d, DOCTOR_MISSING, "vfio",
            "sudo chmod 666 /dev/vfio/vfio  (the kernel's own default; groups stay protected)",
            "cannot open /dev/vfio/vfio: %s", strerror(errno));
    } else if (!doctor_can(d, F_OK, "/sys/bus/pci/drivers/vfio-pci")) {
        doctor_report(d, DOCTOR_MISSING, "vfio", "sudo modprobe vfio-pci",
                      "VFIO is loaded, but its driver vfio-pci is not");
    } else {
        doctor_report(d, DOCTOR_GOOD, "vfio", NULL, "the driver is loaded");
    }
}

/* ---- groups ---- */

struct group {
    char number[128];
    char card[128];    /* its address */
    char blocker[128]; /* another device of the group, bound to a driver */
    char driver[128];
};

/* The kernel's rule, as in driver/transport/pcie/vfio_probe.c: vfio-pci and its variants for some
 * devices are harmless, and so are drivers that do no DMA themselves. */
static bool is_vfio(const char *driver) {
    return strncmp(driver, "vfio", 4) == 0;
}

static void find_blocker(struct doctor *d, const char *name, void *ctx) {
    struct group *g = ctx;
    char driver[128];
    bool bound = doctor_read_link(d, driver, "/sys/bus/pci/devices/%s/driver", name);
    bool harmless = !bound || is_vfio(driver) || strcmp(driver, "pci-stub") == 0 ||
                    strcmp(driver, "pcieport") == 0;
    if (!harmless && strcmp(name, g->card) != 0 && !g->blocker[0]) {
        snprintf(g->blocker, sizeof g->blocker, "%.127s", name);
        snprintf(g->driver, sizeof g->driver, "%.127s", driver);
    }
}

/* tee writes the address to the files in their order: unbind first, then probe. */
static void report_unbound(struct doctor *d, const struct group *g, const char *driver) {
    char remedy[400], unbind[140] = "";
    if (driver[0]) {
        snprintf(unbind, sizeof unbind, "/sys/bus/pci/drivers/%.60s/unbind ", driver);
    }
    snprintf(remedy, sizeof remedy,
             "echo vfio-pci | sudo tee /sys/bus/pci/devices/%.16s/driver_override && echo %.16s | "
             "sudo tee "
             "%s/sys/bus/pci/drivers_probe",
             g->card, g->card, unbind);
    doctor_report(d, DOCTOR_MISSING, "iommu group", remedy,
                  "pcie:%s: group %s: not bound to vfio-pci%s%s", g->card, g->number,
                  driver[0] ? " but to " : "", driver);
}

static void report_access(struct doctor *d, const struct group *g) {
    char remedy[400];
    if (doctor_can(d, R_OK | W_OK, "/dev/vfio/%s", g->number)) {
        doctor_report(d, DOCTOR_GOOD, "iommu group", NULL,
                      "pcie:%s: group %s is viable and can be opened", g->card, g->number);
        return;
    }
    int e = errno;
    snprintf(remedy, sizeof remedy, "docker run --device /dev/vfio/%.16s ...", g->number);
    doctor_report(d, DOCTOR_MISSING, "iommu group", e == ENOENT ? remedy : DOCTOR_RULE_COMMAND,
                  "pcie:%s: cannot open /dev/vfio/%s: %s", g->card, g->number, strerror(e));
}

static void report_group(struct doctor *d, const struct group *g) {
    char remedy[400];
    if (!g->blocker[0]) {
        report_access(d, g);
        return;
    }
    snprintf(remedy, sizeof remedy, "echo %.16s | sudo tee /sys/bus/pci/drivers/%.60s/unbind",
             g->blocker, g->driver);
    doctor_report(d, DOCTOR_MISSING, "iommu group", remedy,
                  "pcie:%s: group %s is not viable: driver %s uses %s of the same group", g->card,
                  g->number, g->driver, g->blocker);
}

static void check_card(struct doctor *d, const char *name, void *ctx) {
    (void)ctx;
    long vendor = 0, device = 0;
    char driver[128], folder[200];
    struct group g = {.blocker = ""};
    doctor_read_number(d, &vendor, "/sys/bus/pci/devices/%s/vendor", name);
    doctor_read_number(d, &device, "/sys/bus/pci/devices/%s/device", name);
    doctor_read_link(d, driver, "/sys/bus/pci/devices/%s/driver", name);
    if (vendor != CARD_VENDOR || device != CARD_DEVICE) {
        return;
    }
    if (!doctor_read_link(d, g.number, "/sys/bus/pci/devices/%s/iommu_group", name)) {
        doctor_report(d, DOCTOR_MISSING, "iommu group", iommu_command(d),
                      "pcie:%s is not in an IOMMU group", name);
        return;
    }
    snprintf(g.card, sizeof g.card, "%.127s", name);
    snprintf(folder, sizeof folder, "/sys/kernel/iommu_groups/%.100s/devices", g.number);
    doctor_each(d, folder, find_blocker, &g);
    if (is_vfio(driver)) {
        report_group(d, &g);
    } else {
        report_unbound(d, &g, driver);
    }
}

void doctor_check_pcie(struct doctor *d) {
    if (!doctor_can(d, F_OK, "/sys/bus/pci")) {
        doctor_report(d, DOCTOR_MISSING, "pcie", "run on the host",
                      "this kernel has no PCI support: /sys/bus/pci does not exist");
        return;
    }
    check_kernel(d);
    doctor_each(d, "/sys/bus/pci/devices", check_card, NULL);
}
