/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright doctor: what this computer lacks for each kind of device, and the command that mends it. The emulator must
 * work; what the rest lacks is told, and is no failure.
 */
#include "tilewright/tilewright.h"
#include "tools/cmd.h"
#include "tools/ui.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum verdict { GOOD, LACKING, BROKEN };

struct report {
    json_t *list; /* NULL: print */
    bool broken;
};

struct doctor_args {
    bool json;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "json", NULL, offsetof(struct doctor_args, json), 0, 0, "print JSON"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "doctor", "",
    0,        "Looks at what devices need of this computer, and tells how to mend what is missing.",
    options,  "The exit status is 6 if the emulator does not work."};

/* One line, and below it the remedy: a command where there is one. */
static void tell(struct report *r, enum verdict v, const char *what, const char *found, const char *remedy) {
    static const char *const word[] = {"ok", "lacks", "broken"};
    r->broken = r->broken || v == BROKEN;
    if (r->list) {
        json_array_append_new(r->list, json_pack("{s:s, s:s, s:s, s:s*}", "check", what, "state", word[v], "found",
                                                 found, "remedy", v == GOOD ? NULL : remedy));
        return;
    }
    printf("%-6s  %-14s  %s\n", word[v], what, found);
    if (v != GOOD && remedy) {
        printf("%24s%s\n", "", remedy);
    }
}

/* ---- the emulator ---- */

static void check_emulator(struct report *r) {
    tw_device *device;
    tw_error err = {0};
    int code = tw_device_open("emu", NULL, &device, &err);
    if (!code) {
        code = tw_device_selftest(device, NULL, NULL, &err);
        tw_device_close(device);
    }
    tell(r, code ? BROKEN : GOOD, "emulator", code ? err.message : "memory, transfers and a program pass its self-test",
         "report this line, with the output of: cat /proc/cpuinfo");
}

static void check_processor(struct report *r) {
    static const char *const isa[] = {"neon-dot", "neon", "avx512", "avx2", "scalar"};
    for (size_t i = 0; i < sizeof isa / sizeof isa[0]; i++) {
        struct tw_device_options o = {.size = sizeof o, .isa = isa[i]};
        tw_device *device;
        char text[80];
        if (tw_device_open("emu", &o, &device, NULL) == 0) {
            tw_device_close(device);
            snprintf(text, sizeof text, "the fastest kernels that it runs are %s", isa[i]);
            tell(r, strcmp(isa[i], "scalar") == 0 ? LACKING : GOOD, "processor", text,
                 "the emulator is slow without AVX2 or NEON; nothing has to be done");
            return;
        }
    }
}

/* ---- what the system allows ---- */

static bool read_number(const char *path, long *out) {
    FILE *f = fopen(path, "r");
    bool got = f && fscanf(f, "%ld", out) == 1;
    if (f) {
        fclose(f);
    }
    return got;
}

static void check_memlock(struct report *r) {
    struct rlimit l;
    char text[120];
    if (getrlimit(RLIMIT_MEMLOCK, &l)) {
        return;
    }
    bool enough = l.rlim_cur == RLIM_INFINITY || l.rlim_cur >= 256u << 20;
    if (l.rlim_cur == RLIM_INFINITY) {
        snprintf(text, sizeof text, "no limit");
    } else {
        snprintf(text, sizeof text, "%llu KiB may be locked; DMA of a PCIe device wants 262144",
                 (unsigned long long)l.rlim_cur / 1024);
    }
    tell(r, enough ? GOOD : LACKING, "memlock", text,
         "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/tilewright.conf  (then log in again)");
}

static void check_buffers(struct report *r) {
    long bytes;
    char text[120];
    if (read_number("/proc/sys/net/core/wmem_max", &bytes)) {
        snprintf(text, sizeof text, "a socket may hold %ld KiB", bytes / 1024);
        tell(r, bytes >= 131072 ? GOOD : LACKING, "sockets", text, "sudo sysctl -w net.core.wmem_max=1048576");
    }
}

/* ---- USB ---- */

static bool has_entries(const char *path) {
    DIR *dir = opendir(path);
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        found = e->d_name[0] != '.';
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

static void check_usb(struct report *r) {
    static const char limit[] = "/sys/module/usbcore/parameters/usbfs_memory_mb";
    long mb;
    char text[120];
    if (access("/sys/bus/usb", F_OK)) {
        tell(r, LACKING, "usb", "this kernel has no USB: no /sys/bus/usb (a container or a small virtual machine?)",
             "sudo modprobe usbcore  (or run on the host; or pass the controller to the machine)");
        return;
    }
    if (access("/dev/bus/usb", R_OK | X_OK)) {
        snprintf(text, sizeof text, "/dev/bus/usb cannot be read: %s", strerror(errno));
        tell(r, LACKING, "usb", text, "pass it to the container: --device /dev/bus/usb");
    } else {
        bool any = has_entries("/dev/bus/usb");
        tell(r, any ? GOOD : LACKING, "usb", any ? "the kernel has USB" : "the kernel has USB, but no controller",
             "plug a controller in, or pass one to this machine");
    }
    if (read_number(limit, &mb)) {
        snprintf(text, sizeof text, "transfers may hold %ld MB%s", mb, mb == 0 ? " (no limit)" : "");
        tell(r, mb == 0 || mb >= 128 ? GOOD : LACKING, "usbfs memory", text,
             "echo 128 | sudo tee /sys/module/usbcore/parameters/usbfs_memory_mb");
    }
}

/* ---- PCIe ---- */

static void check_pcie(struct report *r) {
    char text[120];
    bool groups = has_entries("/sys/kernel/iommu_groups");
    if (access("/sys/bus/pci", F_OK)) {
        tell(r, LACKING, "pcie", "this kernel has no PCI: no /sys/bus/pci", "run on the host");
        return;
    }
    tell(r, groups ? GOOD : LACKING, "iommu",
         groups ? "the IOMMU is on" : "no IOMMU groups: it is off, or there is none",
         "add intel_iommu=on (amd_iommu=on) to the kernel's command line, and turn VT-d or AMD-Vi on in the firmware");
    if (access("/dev/vfio/vfio", F_OK)) {
        tell(r, LACKING, "vfio", "there is no /dev/vfio/vfio: the driver is not loaded", "sudo modprobe vfio-pci");
    } else if (access("/dev/vfio/vfio", R_OK | W_OK)) {
        snprintf(text, sizeof text, "/dev/vfio/vfio cannot be opened: %s", strerror(errno));
        tell(r, LACKING, "vfio", text,
             "sudo chmod 666 /dev/vfio/vfio  (the kernel's own default; groups stay protected)");
    } else {
        tell(r, GOOD, "vfio", "the driver is loaded", NULL);
    }
}

/* ---- permissions ---- */

static bool in_group(gid_t wanted) {
    gid_t list[256];
    int n = getgroups(256, list);
    bool found = getegid() == wanted;
    for (int i = 0; i < n; i++) {
        found = found || list[i] == wanted;
    }
    return found;
}

static void check_group(struct report *r) {
    const struct group *g = getgrnam("tilewright");
    if (geteuid() == 0) {
        tell(r, GOOD, "permissions", "this is root, who may open every device", NULL);
    } else if (!g) {
        tell(r, LACKING, "permissions", "there is no group tilewright, which may open boards and cards",
             "sudo groupadd --system tilewright && sudo usermod -aG tilewright $USER  (then log in again)");
    } else {
        bool in = in_group(g->gr_gid);
        tell(r, in ? GOOD : LACKING, "permissions",
             in ? "you are in group tilewright" : "you are not in group tilewright",
             "sudo usermod -aG tilewright $USER  (then log in again)");
    }
}

/* ---- what there is ---- */

/* One that is not ready is refused before anything is touched, with the commands that mend it. */
static void tell_card(struct report *r, const char *selector, const char *text, bool good) {
    tw_device *device;
    tw_error err = {0};
    if (!good && tw_device_open(selector, NULL, &device, &err) == 0) {
        tw_device_close(device); /* it has become ready in between */
    }
    tell(r, good ? GOOD : LACKING, "device", text, err.message);
}

static bool tell_device(void *ctx, const struct tw_device_info *d) {
    struct report *r = ctx;
    char text[300], remedy[160];
    bool ready = strcmp(d->state, "ready") == 0, busy = strcmp(d->state, "busy") == 0;
    bool gone = strcmp(d->state, "gone") == 0;
    snprintf(text, sizeof text, "%s: %s: %s", d->selector, d->state, d->detail);
    if (strncmp(d->selector, "pcie:", 5) == 0) {
        tell_card(r, d->selector, text, ready || busy);
        return true;
    }
    if (strncmp(d->selector, "socket:", 7) != 0) {
        return true;
    }
    snprintf(remedy, sizeof remedy, gone ? "tilewright emulate --listen %s" : "tilewright reset --device socket:%s",
             d->selector + 7);
    tell(r, ready || busy ? GOOD : LACKING, "device", text, remedy);
    return true;
}

static int run(int argc, char **argv, tw_error *err) {
    struct doctor_args a = {0};
    struct opt_result result;
    int code = opt_parse(&verb, argc, argv, &a, &result, err);
    if (code) {
        return code;
    }
    if (result.help) {
        opt_print_help(&verb, stdout);
        return ui_flush(err);
    }
    struct report r = {.list = a.json ? json_array() : NULL};
    check_emulator(&r);
    check_processor(&r);
    check_memlock(&r);
    check_buffers(&r);
    check_usb(&r);
    check_pcie(&r);
    check_group(&r);
    tw_device_list(tell_device, &r);
    code = a.json ? ui_print_json(r.list, err) : ui_flush(err);
    return code || !r.broken ? code : tw_fail(err, TW_E_FAULT, "the emulator does not work; see above");
}

const struct cmd cmd_doctor = {&verb, run};
