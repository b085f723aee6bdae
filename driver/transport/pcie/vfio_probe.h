/* SPDX-License-Identifier: Apache-2.0
 *
 * What Linux tells about a PCI function without opening it: may this process use it by VFIO, and if
 * not, what stands in the way and which command removes that. The one place that knows: discovery
 * lists it, opening refuses with it.
 */
#ifndef TW_DRIVER_TRANSPORT_PCIE_VFIO_PROBE_H
#define TW_DRIVER_TRANSPORT_PCIE_VFIO_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#define TW_BDF_BYTES 16 /* "0000:00:02.0" */

/* Where the kernel shows its things; tests have folders of their own. */
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

void tw_vfio_probe(const struct tw_vfio_places *places, const char *bdf, struct tw_vfio_probe *out);
/* A small number in a file of the function's folder, as "vendor": false where there is none. */
bool tw_vfio_number(const struct tw_vfio_places *places, const char *bdf, const char *file,
                    uint32_t *out);

#endif
