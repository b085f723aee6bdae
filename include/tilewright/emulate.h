/* SPDX-License-Identifier: Apache-2.0
 *
 * Serving an emulated device that other processes, virtual machines or a host at the other end of a
 * cable can open. Part of the public API; the conventions are those of tilewright.h.
 */
#ifndef TILEWRIGHT_EMULATE_H
#define TILEWRIGHT_EMULATE_H

#include "tilewright/tilewright.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the endpoints at which hosts find the device: at least one of path, usbredir, gadget and
 * ivshmem. */
struct tw_emulate_options {
    uint32_t size;
    /* of a UNIX socket, or a NAME in the folder that discovery lists; NULL: no socket */
    const char *path;
    /* the target to emulate, as in tw_compile_options; drivers get its full description. NULL:
     * accept bundles for any target */
    const char *target;
    const char *isa;       /* as in tw_device_options */
    const char *faults;    /* fault plan (tw_fault_plan), for tests; NULL: none */
    uint64_t seed;         /* of the fault plan */
    uint64_t memory_bytes; /* device memory; 0: the host's */
    uint32_t n_threads;    /* 0: the processors this process may use */
    /* Or NULL: called once per endpoint, when hosts can open the device through it: "socket:PATH",
     * "usbredir:PATH", "gadget:CONTROLLER", "ivshmem:PATH". */
    void (*ready)(void *ctx, const char *endpoint);
    void *ctx;
    /* path of a UNIX socket that QEMU connects to (-device usb-redir); NULL: none */
    const char *usbredir;
    const char *usb_speed; /* of the usbredir device: "full", "high" (also NULL), "super" */
    /* not 0: act as the USB device of this Linux board (FunctionFS; needs root) */
    uint32_t gadget;
    const char *udc; /* its controller in /sys/class/udc; NULL: the first */
    /* USB serial number; NULL: the board's, or one derived from the usbredir path */
    const char *serial;
    /* not NULL: emulate a device in recovery, which reports this reason; excludes `path` */
    const char *recovery;
    /* ivshmem not NULL: act as a PCIe device in a QEMU guest. ivshmem: path of the socket of its
     * ivshmem-doorbell; guest_ram: file of the guest's RAM (NULL: no DMA); monitor: socket of
     * QEMU's monitor (NULL: the guest has no IOMMU); requester: the device's bus << 8 | slot << 3 |
     * function. */
    const char *ivshmem, *guest_ram, *monitor;
    uint32_t requester;
};

/* Serves the device until *stop is not 0 (tilewright.h, "Stop words"; NULL: forever). `options`
 * must not be NULL. Errors: DEVICE_BUSY (names the process that serves this path or uses this
 * controller), NO_DEVICE (no such target or controller), USAGE, UNSUPPORTED, IO. */
int tw_emulate(const struct tw_emulate_options *options, const volatile sig_atomic_t *stop,
               tw_error *err);

/* Returns the name of fault plan `index`, a static string, and stores its effect in *text (`text`
 * may be NULL); NULL after the last. */
const char *tw_fault_plan(uint32_t index, const char **text);

#ifdef __cplusplus
}
#endif
#endif
