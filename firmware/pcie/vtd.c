/* SPDX-License-Identifier: Apache-2.0
 *
 * One table walk for each page, without a cache, so a page that the guest unmaps is unreachable at
 * once. Layouts are those of the "Intel Virtualization Technology for Directed I/O" specification,
 * chapter 9.
 */
#include "firmware/pcie/vtd.h"

#include "loader/base/clock.h"
#include "tilewright/range.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAGE UINT64_C(4096)
#define ADDRESS UINT64_C(0x000ffffffffff000) /* bits of an entry that hold an address */
#define READ 1u
#define WRITE 2u
#define LARGE 0x80u /* the entry maps a page, not a table */
#define ROOT_MODE UINT64_C(0xc00)
#define MONITOR_MS 2000u

/* ---- the walk ---- */

static bool read_entry(const struct tw_vtd *v, uint64_t at, uint64_t *value) {
    if (at % 8 || !tw_range_ok(at, 8, v->ram_bytes)) {
        return false;
    }
    *value = __atomic_load_n((const uint64_t *)(const void *)(v->ram + at), __ATOMIC_RELAXED);
    return true;
}

static uint8_t *physical(const struct tw_vtd *v, uint64_t at, uint64_t page, uint64_t *bytes) {
    if (at >= v->ram_bytes) {
        return NULL;
    }
    uint64_t to_end = page - at % page, left = v->ram_bytes - at;
    *bytes = to_end < left ? to_end : left;
    return v->ram + at;
}

/* Reads the requester's context entry: its lower and upper half. */
static bool find_context(const struct tw_vtd *v, uint64_t *low, uint64_t *high) {
    uint64_t root, table;
    if (v->root & ROOT_MODE ||
        !read_entry(v, (v->root & ADDRESS) + (v->requester >> 8) * 16u, &root) || !(root & 1)) {
        return false;
    }
    table = (root & ADDRESS) + (v->requester & 0xFF) * 16u;
    return read_entry(v, table, low) && read_entry(v, table + 8, high) && (*low & 1);
}

/* Walks the page tables from the top level down. */
static uint8_t *walk(const struct tw_vtd *v, uint64_t table, uint32_t levels, uint64_t address,
                     uint64_t *bytes, bool write) {
    for (uint32_t level = levels; level > 0; level--) {
        uint32_t shift = 12 + 9 * (level - 1);
        uint64_t entry;
        if (!read_entry(v, table + (address >> shift) % 512 * 8, &entry) ||
            !(entry & (write ? WRITE : READ))) {
            return NULL;
        }
        bool large = level > 1 && entry & LARGE;
        if (large && level > 3) {
            return NULL; /* only 4 KiB, 2 MiB and 1 GiB pages exist */
        }
        if (large || level == 1) {
            uint64_t page = UINT64_C(1) << shift;
            return physical(v, (entry & ADDRESS & ~(page - 1)) | (address & (page - 1)), page,
                            bytes);
        }
        table = entry & ADDRESS;
    }
    return NULL;
}

uint8_t *tw_vtd_translate(const struct tw_vtd *v, uint64_t address, uint64_t *bytes, bool write) {
    uint64_t low, high;
    if (!v->on) {
        return physical(v, address, PAGE, bytes);
    }
    if (!find_context(v, &low, &high)) {
        return NULL;
    }
    uint32_t kind = (low >> 2) & 3, levels = (uint32_t)(high & 7) + 2;
    if (kind == 2) {
        return physical(v, address, PAGE, bytes); /* pass-through: addresses are physical */
    }
    if (kind == 3 || levels < 3 || levels > 5 || address >> (12 + 9 * levels)) {
        return NULL;
    }
    return walk(v, low & ADDRESS, levels, address, bytes, write);
}

/* ---- the registers ---- */

static int connect_monitor(const char *path, tw_error *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) {
        return tw_fail(err, TW_E_IO, "monitor %s: the path is too long", path);
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a)) {
        int e = errno;
        if (fd >= 0) {
            close(fd);
        }
        return tw_fail(err, TW_E_IO, "monitor %s: %s", path, strerror(e));
    }
    return fd;
}

/* Finds "fed90018: 0xVALUE 0xVALUE" in the monitor's output. */
static bool find_answer(const char *text, uint64_t value[2]) {
    const char *p = strstr(text, "fed90018: 0x");
    char *end;
    if (!p || !strchr(p, '\n')) {
        return false;
    }
    value[0] = strtoull(p + 10, &end, 16);
    value[1] = strtoull(end, NULL, 16);
    return *end == ' ';
}

/* Reads until the answer is there, with one deadline for all of it: the device waits meanwhile. */
static bool read_answer(int fd, uint64_t value[2]) {
    char text[4096];
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t end = tw_clock_ms() + MONITOR_MS, now;
    while (n < sizeof text - 1 && (now = tw_clock_ms()) < end) {
        if (poll(&p, 1, (int)(end - now)) <= 0) {
            continue; /* a signal, or the deadline has passed */
        }
        ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        got = got > 0 ? got : 0;
        n += (size_t)got;
        text[n] = 0;
        if (find_answer(text, value)) {
            return true;
        }
    }
    return false;
}

int tw_vtd_read_registers(struct tw_vtd *v, const char *monitor, tw_error *err) {
    /* command and status; then the root table */
    static const char command[] = "xp /2gx 0xfed90018\n";
    uint64_t value[2];
    int fd = connect_monitor(monitor, err);
    if (fd < 0) {
        return fd;
    }
    bool answered =
        send(fd, command, sizeof command - 1, MSG_NOSIGNAL) == (ssize_t)sizeof command - 1 &&
        read_answer(fd, value);
    close(fd);
    if (!answered) {
        return tw_fail(err, TW_E_IO,
                       "monitor %s: cannot read the IOMMU's registers: no answer to 'xp'", monitor);
    }
    v->on = value[0] >> 63 & 1; /* translation is enabled */
    v->root = value[1];
    return 0;
}
