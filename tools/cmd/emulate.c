/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright emulate: runs the device as a process of its own, on a UNIX socket, on USB or on PCIe,
 * until it is stopped.
 */
#include "tilewright/emulate.h"
#include "tools/cmd.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <stdlib.h>
#include <string.h>

struct emulate_args {
    const char *listen, *target, *isa, *faults, *usbredir, *speed, *udc, *serial, *recovery;
    const char *ivshmem, *guest_ram, *monitor, *requester;
    int64_t threads, memory, seed;
    bool gadget, quiet;
};

#define AT(field) offsetof(struct emulate_args, field)
static const struct opt options[] = {
    {OPT_TEXT, 'l', "listen", "PATH", AT(listen), 0, 0,
     "socket to create, or a NAME that `tilewright devices` will list (emu)"},
    {OPT_TEXT, 0, "usbredir", "PATH", AT(usbredir), 0, 0,
     "be a USB device for QEMU, which connects to this socket"},
    {OPT_TEXT, 0, "speed", "S", AT(speed), 0, 0,
     "speed of that USB device: full, high or super (high)"},
    {OPT_FLAG, 0, "gadget", NULL, AT(gadget), 0, 0,
     "be the USB device of this Linux board (needs root)"},
    {OPT_TEXT, 0, "udc", "NAME", AT(udc), 0, 0,
     "the board's controller in /sys/class/udc (the first)"},
    {OPT_TEXT, 0, "serial", "TEXT", AT(serial), 0, 0, "USB serial number (the board's)"},
    {OPT_TEXT, 0, "ivshmem", "PATH", AT(ivshmem), 0, 0,
     "be a PCIe device for QEMU, which connects to this socket"},
    {OPT_TEXT, 0, "guest-ram", "FILE", AT(guest_ram), 0, 0,
     "memory of QEMU's guest (memory-backend-file, share=on)"},
    {OPT_TEXT, 0, "monitor", "PATH", AT(monitor), 0, 0,
     "QEMU's monitor socket, if its guest has an IOMMU"},
    {OPT_TEXT, 0, "requester", "HEX", AT(requester), 0, 0,
     "that PCIe device's bus << 8 | slot << 3 (0010)"},
    {OPT_TEXT, 0, "recovery", "WHY", AT(recovery), 0, 0,
     "be a USB or PCIe device in recovery that reports WHY"},
    {OPT_TEXT, 0, "target", "T", AT(target), 0, 0, "machine to emulate (that of any bundle)"},
    {OPT_I64, 't', "threads", "N", AT(threads), 1, 256, "host threads (one per processor)"},
    {OPT_I64, 0, "memory", "MIB", AT(memory), 1, 1 << 24,
     "device memory in MiB (that of the host)"},
    {OPT_TEXT, 0, "isa", "I", AT(isa), 0, 0,
     "instruction set: scalar, avx2, avx512, neon, neon-dot (the fastest)"},
    {OPT_TEXT, 0, "faults", "PLAN", AT(faults), 0, 0,
     "inject faults, for tests: the name of a plan, or 'list'"},
    {OPT_I64, 's', "seed", "N", AT(seed), 0, 1e15, "seed of the fault plan (1)"},
    {OPT_FLAG, 'q', "quiet", NULL, AT(quiet), 0, 0, "do not print the names of the endpoints"},
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "emulate",
    "",
    0,
    "Serve an emulated device to other processes, or to hosts on a bus, until SIGTERM or Ctrl-C.",
    options,
    "Other verbs open it with --device socket:PATH. QEMU attaches it to USB with\n"
    "  -chardev socket,id=tw,path=PATH,reconnect=1 -device usb-redir,chardev=tw\n"
    "and to PCIe with\n"
    "  -chardev socket,id=tw,path=PATH -device ivshmem-doorbell,chardev=tw,vectors=1"};

/* Prints one line for each endpoint: a socket as its selector, others by kind. */
static void print_ready(void *ctx, const char *endpoint) {
    const struct emulate_args *a = ctx;
    bool named = strncmp(endpoint, "socket:", 7) == 0 && !strchr(a->listen, '/');
    if (!a->quiet) {
        printf("%s%s\n", named ? "socket:" : "", text_clean(named ? a->listen : endpoint).text);
        fflush(stdout);
    }
}

static int list_plans(tw_error *err) {
    const char *text, *name;
    for (uint32_t i = 0; (name = tw_fault_plan(i, &text)); i++) {
        printf("%-10s %s\n", name, text);
    }
    return ui_flush(err);
}

static bool parse_requester(const char *text, uint32_t *out) {
    size_t n = strlen(text);
    *out = (uint32_t)strtoul(text, NULL, 16);
    return n > 0 && n <= 4 && strspn(text, "0123456789abcdefABCDEF") == n;
}

static int run(int argc, char **argv, tw_error *err) {
    struct emulate_args a = {.seed = 1, .requester = "0010"};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    if (a.faults && strcmp(a.faults, "list") == 0) {
        return list_plans(err);
    }
    uint32_t requester;
    if (!parse_requester(a.requester, &requester)) {
        return tw_fail(err, TW_E_USAGE,
                       "emulate: --requester '%.40s' is not a hexadecimal number below 10000",
                       a.requester);
    }
    if (!a.listen && !a.usbredir && !a.gadget && !a.ivshmem) {
        a.listen = "emu";
    }
    struct tw_emulate_options o = {.size = sizeof o,
                                   .path = a.listen,
                                   .target = a.target,
                                   .isa = a.isa,
                                   .faults = a.faults,
                                   .seed = (uint64_t)a.seed,
                                   .memory_bytes = (uint64_t)a.memory << 20,
                                   .n_threads = (uint32_t)a.threads,
                                   .ready = print_ready,
                                   .ctx = &a,
                                   .usbredir = a.usbredir,
                                   .usb_speed = a.speed,
                                   .gadget = a.gadget,
                                   .udc = a.udc,
                                   .serial = a.serial,
                                   .recovery = a.recovery,
                                   .ivshmem = a.ivshmem,
                                   .guest_ram = a.guest_ram,
                                   .monitor = a.monitor,
                                   .requester = requester};
    ui_catch_interrupts();
    return tw_emulate(&o, &ui_stop, err);
}

const struct cmd cmd_emulate = {&verb, run};
