/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the walk through a guest's IOMMU tables. Input: root u64, requester u16, flags u8, n u8, n
 * addresses u64, then the beginning of the guest's memory. Whatever the tables say, no
 * memory outside the guest's is accessed.
 */
#include "firmware/pcie/vtd.h"
#include "tilewright/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 12u

static void translate_and_touch(const struct tw_vtd *v, uint64_t address, bool write) {
    uint64_t bytes = 0;
    uint8_t *p = tw_vtd_translate(v, address, &bytes, write);
    if (!p) {
        return;
    }
    if (p < v->ram || bytes == 0 || bytes > v->ram_bytes - (uint64_t)(p - v->ram)) {
        abort();
    }
    if (write) {
        p[0] ^= 1;
        p[bytes - 1] ^= 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) {
        return 0;
    }
    struct tw_vtd v = {.root = tw_wire_get(data, 8),
                       .requester = (uint16_t)tw_wire_get(data + 8, 2),
                       .on = data[10] & 1};
    size_t n = data[11], list = HEAD + 8 * n;
    if (size < list) {
        return 0;
    }
    v.ram_bytes = (size - list + 4096) / 4096 * 4096;
    v.ram = calloc(1, v.ram_bytes);
    if (!v.ram) {
        abort();
    }
    memcpy(v.ram, data + list, size - list);
    for (size_t i = 0; i < n; i++) {
        translate_and_touch(&v, tw_wire_get(data + HEAD + 8 * i, 8), i & 1);
    }
    free(v.ram);
    return 0;
}
