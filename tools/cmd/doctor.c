/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright doctor: checks this computer for what each kind of device needs and prints the fix for
 * each problem. The emulator must work; what is missing for the rest is no failure.
 */
#include "tools/cmd/doctor.h"
#include "tilewright/pcie.h"
#include "tilewright/tilewright.h"
#include "tools/cmd.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct doctor_args {
    bool json, udev_rule;
    const char *root;
};

#define AT(field) offsetof(struct doctor_args, field)
static const struct opt options[] = {
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {OPT_FLAG, 0, "udev-rule", NULL, AT(udev_rule), 0, 0,
     "print only the udev rule of this version"},
    {OPT_TEXT, 0, "root", "DIR", AT(root), 0, 0,
     "check the system whose /sys, /dev, /proc and /etc are below DIR (/)"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "doctor", "",
    0,        "Check this computer for what devices need, and print the fix for each problem.",
    options,  "The exit status is 6 if the emulator does not work."};

/* ---- the emulator ---- */

static void check_emulator(struct doctor *d) {
    tw_device *device;
    tw_error err = {0};
    int code = tw_device_open("emu", NULL, &device, &err);
    if (!code) {
        code = tw_device_selftest(device, NULL, NULL, &err);
        tw_device_close(device);
    }
    doctor_report(d, code ? DOCTOR_BROKEN : DOCTOR_GOOD, "emulator",
                  "report this line, with the output of: cat /proc/cpuinfo", "%s",
                  code ? err.message : "memory, transfers and a program pass its self-test");
}

static void check_processor(struct doctor *d) {
    static const char *const isa[] = {"neon-dot", "neon", "avx512", "avx2", "scalar"};
    for (size_t i = 0; i < sizeof isa / sizeof isa[0]; i++) {
        struct tw_device_options o = {.size = sizeof o, .isa = isa[i]};
        tw_device *device;
        if (tw_device_open("emu", &o, &device, NULL) == 0) {
            tw_device_close(device);
            doctor_report(d, strcmp(isa[i], "scalar") == 0 ? DOCTOR_NOTE : DOCTOR_GOOD, "processor",
                          "the emulator is slow without AVX2 or NEON; no action is needed",
                          "the fastest kernels it runs are %s", isa[i]);
            return;
        }
    }
}

/* ---- limits ---- */

#define CAP_IPC_LOCK 14

/* True if this process may lock memory without limit. */
static bool may_lock_all(void) {
    unsigned long long effective = 0;
    char line[200];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "CapEff: %llx", &effective) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return effective >> CAP_IPC_LOCK & 1;
}

/* A card's mailbox, as the driver allocates it (driver/transport/pcie/pcie_host_pipe.h): memory of
 * this process that the card reads and writes. */
#define MAILBOX_SLOTS 16u
#define MAILBOX_SLOT_BYTES (17u * 4096u)

static void check_memlock(struct doctor *d) {
    static const char remedy[] =
        "echo '* - memlock 65536' | sudo tee /etc/security/limits.d/tilewright.conf  (then log in "
        "again; this shell alone: sudo prlimit --memlock=67108864 --pid $$)";
    const uint64_t need = tw_pcie_mailbox_bytes(MAILBOX_SLOTS, MAILBOX_SLOT_BYTES);
    struct rlimit l;
    if (getrlimit(RLIMIT_MEMLOCK, &l)) {
        return;
    }
    if (l.rlim_cur == RLIM_INFINITY || may_lock_all()) {
        doctor_report(d, DOCTOR_GOOD, "memlock", NULL,
                      "this process may lock memory without limit");
        return;
    }
    doctor_report(
        d, l.rlim_cur >= need ? DOCTOR_GOOD : DOCTOR_MISSING, "memlock", remedy,
        "%llu KiB may be locked; DMA of a PCIe device needs %llu (2 x %u packets of %u KiB "
        "and a page)",
        (unsigned long long)l.rlim_cur / 1024, (unsigned long long)need / 1024, MAILBOX_SLOTS,
        MAILBOX_SLOT_BYTES / 1024);
}

/* The kernel doubles the requested size, up to this limit. */
static void check_buffers(struct doctor *d) {
    long bytes;
    if (doctor_read_number(d, &bytes, "/proc/sys/net/core/wmem_max")) {
        doctor_report(d, bytes >= 131072 ? DOCTOR_GOOD : DOCTOR_NOTE, "sockets",
                      "sudo sysctl -w net.core.wmem_max=1048576", "a socket can buffer %ld KiB%s",
                      bytes / 1024, bytes >= 131072 ? "" : "; packets of 64 KiB need 128");
    }
}

/* ---- the devices' own states ---- */

/* The fix for a state, formatted into text[]; NULL if none is needed. */
static const char *remedy_of(const struct tw_device_info *i, char text[300]) {
    const char *name = strchr(i->selector, ':');
    name = name ? name + 1 : "";
    bool usb = strncmp(i->selector, "usb", 3) == 0, pcie = strncmp(i->selector, "pcie", 4) == 0;
    if (strcmp(i->state, "ready") == 0 || strcmp(i->state, "busy") == 0) {
        return NULL;
    }
    if (strcmp(i->state, "gone") == 0) {
        snprintf(text, 300, "tilewright emulate --listen %s", name);
    } else if (strcmp(i->state, "no permission") == 0) {
        snprintf(text, 300, "%s",
                 usb || pcie
                     ? DOCTOR_RULE_COMMAND
                     : "run as the user who owns the socket: ls -l $XDG_RUNTIME_DIR/tilewright");
    } else if (strcmp(i->state, "not bound") == 0) {
        snprintf(text, 300,
                 "echo vfio-pci | sudo tee /sys/bus/pci/devices/%.16s/driver_override && echo "
                 "%.16s | sudo tee "
                 "/sys/bus/pci/drivers_probe",
                 name, name);
    } else if (strcmp(i->state, "not ours") == 0) {
        snprintf(text, 300,
                 "none if the device is meant for something else; otherwise start its firmware");
    } else if (!*name) { /* a whole kind, such as USB on a kernel without it */
        snprintf(text, 300, "see %s above", i->selector);
    } else if (pcie &&
               strcmp(i->state, "recovery") != 0) { /* "no IOMMU", "no VFIO", "not viable", ... */
        snprintf(text, 300, "see iommu, vfio and iommu group above");
    } else { /* "recovery", "silent", and states that only one transport has */
        snprintf(text, 300, "tilewright reset -v --device %s", i->selector);
    }
    return text;
}

static bool report_device(void *ctx, const struct tw_device_info *i) {
    struct doctor *d = ctx;
    char text[300];
    const char *remedy = remedy_of(i, text);
    bool built_in = strncmp(i->selector, "emu", 3) == 0 || strcmp(i->selector, "null") == 0;
    bool bus = strncmp(i->selector, "usb", 3) == 0 || strncmp(i->selector, "pcie", 4) == 0;
    if (!built_in || remedy) {
        doctor_report(d,
                      !remedy ? DOCTOR_GOOD
                      : bus   ? DOCTOR_MISSING
                              : DOCTOR_NOTE,
                      "device", remedy, "%s: %s: %s", i->selector, i->state, i->detail);
    }
    return true;
}

/* ---- all ---- */

/* One line for a user who only wants to run a model. */
static void print_summary(const struct doctor *d) {
    uint32_t n = d->n_missing;
    if (d->broken) {
        return; /* the error line says so */
    }
    if (n == 0) {
        puts("The emulator works. Nothing is missing for USB and PCIe.");
        return;
    }
    printf("The emulator works. %u thing%s missing for USB and PCIe; ignore %s if you have no such "
           "device.\n",
           n, n == 1 ? " is" : "s are", n == 1 ? "it" : "them");
}

static int report(const struct doctor_args *a, tw_error *err) {
    struct doctor d = {.list = a->json ? json_array() : NULL, .root = a->root ? a->root : ""};
    check_emulator(&d);
    check_processor(&d);
    check_memlock(&d);
    check_buffers(&d);
    doctor_check_rule(&d);
    doctor_check_usb(&d);
    doctor_check_pcie(&d);
    tw_device_list(report_device, &d, NULL);
    if (!a->json) {
        print_summary(&d);
    }
    int code = a->json ? ui_print_json(d.list, err) : ui_flush(err);
    return code || !d.broken ? code
                             : tw_fail(err, TW_E_FAULT, "the emulator does not work; see above");
}

static int run(int argc, char **argv, tw_error *err) {
    struct doctor_args a = {0};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    if (a.udev_rule) {
        fputs(tw_udev_rule, stdout);
        return ui_flush(err);
    }
    if (a.root && access(a.root, R_OK | X_OK)) {
        return tw_fail(err, TW_E_USAGE, "option --root: %.200s is not a readable folder", a.root);
    }
    return report(&a, err);
}

const struct cmd cmd_doctor = {&verb, run};
