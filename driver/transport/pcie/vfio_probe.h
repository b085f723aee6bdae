/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out without opening a PCI function whether this process may use it through VFIO, and if
 * not, what the obstacle is and which command removes it. Used both for discovery and for the error
 * when opening.
 */
#ifndef TW_DRIVER_TRANSPORT_PCIE_VFIO_PROBE_H
#define TW_DRIVER_TRANSPORT_PCIE_VFIO_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#define TW_BDF_BYTES 16 /* "0000:00:02.0" */

/* Where sysfs and the device nodes are; tests use their own folders. */
struct tw_vfio_places {
    const char *sys, *dev;
};
extern const struct tw_vfio_places tw_vfio_system;

struct tw_vfio_probe {
    /* "ready", "gone", "no IOMMU", "no VFIO", "not bound", "not viable", "no permission" */
    char state[32];
    char reason[200]; /* "" if ready */
    char remedy[280]; /* commands; "" if ready */
    char group[16];   /* its name in /dev/vfio; "" where it has none */
};

/* Probes the function at `bdf` and fills *out. Any thread. */
void tw_vfio_probe(const struct tw_vfio_places *places, const char *bdf, struct tw_vfio_probe *out);
/* Reads a number from a file in the function's folder, such as "vendor". Returns false and stores 0
 * if there is none. Any thread. */
bool tw_vfio_number(const struct tw_vfio_places *places, const char *bdf, const char *file,
                    uint32_t *out);

#endif
