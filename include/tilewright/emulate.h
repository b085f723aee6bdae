/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosting an emulated device: be the device that other processes, virtual machines or a cable's
 * other end open. Part of the public API; the conventions are those of tilewright.h.
 */
#ifndef TILEWRIGHT_EMULATE_H
#define TILEWRIGHT_EMULATE_H

#include "tilewright/tilewright.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where hosts find the device: at least one of path, usbredir, gadget and ivshmem. */
struct tw_emulate_options {
    uint32_t size;
    /* of a UNIX socket, or a NAME for the well-known folder that discovery reads; NULL: no
     * socket */
    const char *path;
    /* the machine to be, as in tw_compile_options; its full description is given to drivers. NULL:
     * any bundle's */
    const char *target;
    const char *isa;       /* as in tw_device_options */
    const char *faults;    /* fault plan (tw_fault_plan), for tests; NULL: none */
    uint64_t seed;         /* of the plan */
    uint64_t memory_bytes; /* 0: the host's */
    uint32_t n_threads;    /* 0: the processors this process may use */
    /* Or NULL: called once for each endpoint when hosts can open the device through it:
     * "socket:PATH", "usbredir:PATH", "gadget:CONTROLLER", "ivshmem:PATH". */
    void (*ready)(void *ctx, const char *endpoint);
    void *ctx;
    /* path of a UNIX socket where QEMU finds the device (-device usb-redir); NULL: none */
    const char *usbredir;
    const char *usb_speed; /* of that device: "full", "high" (also NULL), "super" */
    /* not 0: be the USB device of this Linux board (FunctionFS; needs root) */
    uint32_t gadget;
    const char *udc; /* its controller in /sys/class/udc; NULL: the first */
    /* serial number on USB; NULL: the board's, or one made of the usbredir path */
    const char *serial;
    /* not NULL: be a device that cannot run, for this reason; then there is no socket */
    const char *recovery;
    /* Not NULL: be a PCIe device in a QEMU guest: path of the socket for its ivshmem-doorbell, file
     * of the guest's RAM (NULL: no DMA), socket of its monitor (NULL: it has no IOMMU), and the
     * device's bus << 8 | slot << 3 | function. */
    const char *ivshmem, *guest_ram, *monitor;
    uint32_t requester;
};

/* Is the device until *stop is not 0 (tilewright.h, "Stop words"; NULL: for ever). `options` must
 * not be NULL. Errors: DEVICE_BUSY (names the process that serves this path or has this
 * controller), NO_DEVICE (no such target or controller), USAGE, UNSUPPORTED, IO. */
int tw_emulate(const struct tw_emulate_options *options, const volatile sig_atomic_t *stop,
               tw_error *err);

/* Name and effect of fault plan `index`; NULL after the last. `text` may be NULL. */
const char *tw_fault_plan(uint32_t index, const char **text);

#ifdef __cplusplus
}
#endif
#endif
