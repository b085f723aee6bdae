/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport to a device on PCIe. Selectors: "pcie" for the first that is ready,
 * "pcie:0000:00:02.0" or, for domain 0, "pcie:00:02.0". Appended to it, "?via=window" puts the
 * mailbox into the device's memory instead of the host's, and "?wait=poll" polls for answers
 * instead of waiting for an interrupt. While the device is open /run/lock/tilewright-pcie-BDF.lock
 * names the holder.
 */
#include "driver/transport/holder.h"
#include "driver/transport/link/link_client.h"
#include "driver/transport/pcie/pcie_host_pipe.h"
#include "driver/transport/pcie/vfio.h"
#include "loader/base/lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAILBOX_BYTES (TW_PCIE_MAILBOX_HEAD + 2ull * TW_PCIE_SLOTS * TW_PCIE_SLOT_BYTES)
#define WINDOW_BAR 2u

/* PCI functions that may be a Tilewright device (its magic number decides), and how to ring their
 * doorbell. */
static const struct kind {
    uint32_t vendor, device;
    const char *what;
    uint32_t bell_bar, bell_offset, bell_value;
} kinds[] = {
    {0x1af4, 0x1110, "an ivshmem device of QEMU", 0, 12, 1u << 16 /* peer 1, vector 0 */},
};

static const struct kind *kind_of(const char *bdf) {
    uint32_t vendor, device;
    if (tw_vfio_number(&tw_vfio_system, bdf, "vendor", &vendor) &&
        tw_vfio_number(&tw_vfio_system, bdf, "device", &device)) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            if (kinds[i].vendor == vendor && kinds[i].device == device) {
                return &kinds[i];
            }
        }
    }
    return NULL;
}

static void lock_path(const char *bdf, char path[160]) {
    char device[32];
    snprintf(device, sizeof device, "pcie-%.15s", bdf);
    tw_holder_lock(device, path);
}

/* Finds the process that is using the function, by its lock file or its group's node. */
static bool find_holder(const char *bdf, const char *group, uint32_t *pid, char name[32]) {
    char lock[160], node[32];
    lock_path(bdf, lock);
    snprintf(node, sizeof node, "/dev/vfio/%.15s", group);
    return tw_lock_label(lock, pid, name) || tw_holder_of_node(node, 0, pid, name);
}

/* ---- discovery ---- */

/* Reads the registers, without side effects. Returns false unless this process is root and the
 * function is awake; any problem is then only reported when the device is opened. */
static bool peek(const char *bdf, struct tw_pcie_registers *out) {
    char path[96], power[16] = "";
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.15s/power_state", bdf);
    FILE *f = fopen(path, "re");
    bool awake = f && fgets(power, sizeof power, f) &&
                 (strncmp(power, "D0", 2) == 0 || strncmp(power, "unk", 3) == 0);
    if (f) {
        fclose(f);
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.15s/resource%u", bdf, WINDOW_BAR);
    int fd = awake ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p =
        fd < 0 ? MAP_FAILED : mmap(NULL, TW_PCIE_REGISTER_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    if (p == MAP_FAILED) {
        return false;
    }
    memcpy(out, p, sizeof *out);
    munmap(p, TW_PCIE_REGISTER_BYTES);
    return out->magic != UINT32_MAX;
}

/* Describes a function that can be opened: whether it is a Tilewright device, and runs. */
static void describe_ready(const char *bdf, const struct kind *kind, const char *group,
                           struct tw_transport_info *info) {
    struct tw_pcie_registers r;
    bool seen = peek(bdf, &r);
    if (seen && r.magic != TW_PCIE_MAGIC) {
        snprintf(info->state, sizeof info->state, "not ours");
        snprintf(info->detail, sizeof info->detail, "%s, but not a Tilewright device", kind->what);
    } else if (seen && r.state == TW_PCIE_RECOVERY) {
        snprintf(info->state, sizeof info->state, "recovery");
        snprintf(info->detail, sizeof info->detail, "it cannot run: %.119s", r.reason);
    } else {
        snprintf(info->detail, sizeof info->detail, "%s, IOMMU group %s", kind->what, group);
    }
}

static void describe(const char *bdf, const struct kind *kind, struct tw_transport_info *info) {
    struct tw_vfio_probe probe = {0};
    char holder[32];
    uint32_t pid;
    snprintf(info->selector, sizeof info->selector, "pcie:%.15s", bdf);
    tw_vfio_probe(&tw_vfio_system, bdf, &probe);
    snprintf(info->state, sizeof info->state, "%s", probe.state);
    if (strcmp(probe.state, "ready") != 0) {
        int n = snprintf(info->detail, sizeof info->detail, "%s; %s", probe.reason, probe.remedy);
        if (n >= (int)sizeof info->detail) {
            snprintf(info->detail, sizeof info->detail, "%.110s; open it to see the remedy",
                     probe.reason);
        }
    } else if (find_holder(bdf, probe.group, &pid, holder)) {
        snprintf(info->state, sizeof info->state, "busy");
        snprintf(info->detail, sizeof info->detail, "%s; process %u (%s) is using it", kind->what,
                 pid, holder);
    } else {
        describe_ready(bdf, kind, probe.group, info);
    }
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void discover(bool (*found)(void *ctx, const struct tw_transport_info *info), void *ctx) {
    struct dirent **entry = NULL;
    int n = scandir("/sys/bus/pci/devices", &entry, NULL, by_name);
    bool more = true;
    for (int i = 0; i < n; i++) {
        const struct kind *kind = more ? kind_of(entry[i]->d_name) : NULL;
        if (kind) {
            struct tw_transport_info info = {.selector = ""};
            describe(entry[i]->d_name, kind, &info);
            more = found(ctx, &info);
        }
        free(entry[i]);
    }
    free(entry);
}

/* ---- names ---- */

struct choice {
    char bdf[TW_BDF_BYTES];
    bool window, poll;
};

struct search {
    char bdf[TW_BDF_BYTES];
    char why[320]; /* the first that is not ready */
};

static bool take_ready(void *ctx, const struct tw_transport_info *info) {
    struct search *s = ctx;
    if (strcmp(info->state, "ready") == 0) {
        snprintf(s->bdf, sizeof s->bdf, "%.15s", info->selector + strlen("pcie:"));
        return false;
    }
    if (!s->why[0]) {
        snprintf(s->why, sizeof s->why, "found %s, but %s: %s", info->selector, info->state,
                 info->detail);
    }
    return true;
}

static int find_first(char bdf[TW_BDF_BYTES], tw_error *err) {
    struct search s = {.bdf = ""};
    discover(take_ready, &s);
    if (!s.bdf[0]) {
        return tw_fail(err, TW_E_NO_DEVICE, "device pcie: %s",
                       s.why[0] ? s.why : "found no such device on this computer");
    }
    memcpy(bdf, s.bdf, sizeof s.bdf);
    return 0;
}

/* "0000:00:02.0" or "00:02.0" */
static int parse_bdf(const char *text, size_t n, char bdf[TW_BDF_BYTES], tw_error *err) {
    unsigned domain = 0, bus, slot, function;
    char copy[TW_BDF_BYTES], end;
    snprintf(copy, sizeof copy, "%.*s", (int)(n < sizeof copy ? n : sizeof copy), text);
    bool good = n < sizeof copy &&
                (sscanf(copy, "%4x:%2x:%2x.%1x%c", &domain, &bus, &slot, &function, &end) == 4 ||
                 (domain = 0, sscanf(copy, "%2x:%2x.%1x%c", &bus, &slot, &function, &end) == 3));
    if (!good || slot > 31 || function > 7) {
        return tw_fail(
            err, TW_E_NO_DEVICE,
            "device pcie:%.*s: no such device; use a name like pcie:0000:00:02.0 or pcie:00:02.0",
            (int)n, text);
    }
    snprintf(bdf, TW_BDF_BYTES, "%04x:%02x:%02x.%x", domain & 0xFFFF, bus & 0xFF, slot, function);
    return 0;
}

static int parse_option(const char *text, size_t n, struct choice *c, tw_error *err) {
    if (n == 10 && strncmp(text, "via=window", n) == 0) {
        c->window = true;
    } else if (n == 9 && strncmp(text, "wait=poll", n) == 0) {
        c->poll = true;
    } else {
        return tw_fail(err, TW_E_USAGE,
                       "device pcie: option '%.*s': expected via=window or wait=poll", (int)n,
                       text);
    }
    return 0;
}

static int parse(const char *rest, struct choice *c, tw_error *err) {
    size_t n = strcspn(rest, "?");
    const char *option = rest + n;
    int code = n ? parse_bdf(rest, n, c->bdf, err) : 0;
    while (!code && *option) {
        size_t length = strcspn(++option, "&");
        code = parse_option(option, length, c, err);
        option += length;
    }
    return code || n ? code : find_first(c->bdf, err);
}

/* ---- opening ---- */

struct card {
    struct tw_vfio vfio;
    const struct kind *kind;
    int lock; /* -1: none */
    char lock_path[160];
    uint8_t *mailbox; /* or NULL */
    uint64_t address;
};

static void ring(void *ctx) {
    struct card *c = ctx;
    tw_vfio_write32(&c->vfio, c->kind->bell_bar, c->kind->bell_offset, c->kind->bell_value);
}

static bool reset(void *ctx) {
    return tw_vfio_reset(&((struct card *)ctx)->vfio);
}

static void close_card(void *ctx) {
    struct card *c = ctx;
    if (c->mailbox) {
        tw_vfio_unshare(&c->vfio, MAILBOX_BYTES, c->mailbox, c->address);
    }
    tw_vfio_close(&c->vfio);
    tw_lock_release(c->lock_path, c->lock);
    free(c);
}

/* Takes the lock file. A lock file that cannot be created is no error: the kernel, too, lets only
 * one process open a group. */
static int take_lock(struct card *c, const char *name, const char *bdf, tw_error *err) {
    char what[140];
    tw_error e = {0};
    lock_path(bdf, c->lock_path);
    snprintf(what, sizeof what, "device %s", name);
    return tw_lock_take(c->lock_path, what, &c->lock, &e) == TW_E_DEVICE_BUSY
               ? tw_fail(err, TW_E_DEVICE_BUSY, "%s", e.message)
               : 0;
}

static int map_bars(struct card *c, tw_error *err) {
    struct tw_vfio *v = &c->vfio;
    uint32_t bell = c->kind->bell_bar;
    if (v->bar[WINDOW_BAR].bytes < TW_PCIE_REGISTER_BYTES ||
        v->bar[bell].bytes < c->kind->bell_offset + 4) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device %s: not a Tilewright device: BAR%u has %llu bytes, expected at "
                       "least %u",
                       v->name, WINDOW_BAR, (unsigned long long)v->bar[WINDOW_BAR].bytes,
                       (unsigned)TW_PCIE_REGISTER_BYTES);
    }
    int code = tw_vfio_map_bar(v, WINDOW_BAR, err);
    return code || !v->bar[bell].mappable ? code : tw_vfio_map_bar(v, bell, err);
}

/* Allocates the mailbox in the host's memory. Does nothing if it is not a Tilewright device, which
 * the pipe reports. */
static int make_mailbox(struct card *c, tw_error *err) {
    const struct tw_pcie_registers *r = (const void *)c->vfio.bar[WINDOW_BAR].mapped;
    if (tw_pcie_load(&r->magic) != TW_PCIE_MAGIC) {
        return 0;
    }
    int code = tw_vfio_set_dma_bits(&c->vfio, tw_pcie_load(&r->dma_bits), err);
    return code ? code : tw_vfio_share(&c->vfio, MAILBOX_BYTES, &c->mailbox, &c->address, err);
}

static int open_card(struct card *c, const char *name, const struct choice *choice, tw_error *err) {
    c->kind = kind_of(choice->bdf);
    if (!c->kind) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device %s: no such device: no PCI function at this address can be a "
                       "Tilewright device",
                       name);
    }
    int code = take_lock(c, name, choice->bdf, err);
    code = code ? code : tw_vfio_open(&c->vfio, name, choice->bdf, err);
    code = code ? code : map_bars(c, err);
    code = code || choice->window ? code : make_mailbox(c, err);
    return code ? code : tw_vfio_listen(&c->vfio, err);
}

/* Creates the pipe, which owns the card from then on, also on error. */
static int start_card(struct card *c, const char *name, const struct choice *choice,
                      struct tw_pipe **out, tw_error *err) {
    const struct tw_pcie_side side = {.name = name,
                                      .bar2 = c->vfio.bar[WINDOW_BAR].mapped,
                                      .bar2_bytes = c->vfio.bar[WINDOW_BAR].bytes,
                                      .mailbox = c->mailbox,
                                      .mailbox_address = c->address,
                                      .ring = ring,
                                      .interrupt = choice->poll ? -1 : c->vfio.interrupt,
                                      .request = c->vfio.request,
                                      .reset = c->vfio.can_reset ? reset : NULL,
                                      .close = close_card,
                                      .ctx = c};
    return tw_pcie_pipe_create(&side, out, err);
}

static int open_pcie(const char *rest, const struct tw_transport_options *options,
                     struct tw_transport **out, tw_error *err) {
    struct choice choice = {.bdf = ""};
    struct tw_pipe *pipe;
    struct tw_link *link;
    char name[96];
    int code = parse(rest, &choice, err);
    if (code) {
        return code;
    }
    snprintf(name, sizeof name, "pcie:%s", choice.bdf);
    struct card *c = calloc(1, sizeof *c);
    if (!c) {
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", name);
    }
    c->lock = c->vfio.container = c->vfio.group = c->vfio.device = c->vfio.interrupt =
        c->vfio.request = -1;
    code = open_card(c, name, &choice, err);
    if (code) {
        close_card(c);
        return code;
    }
    code = start_card(c, name, &choice, &pipe, err);
    code = code ? code : tw_link_open(name, pipe, options->deadline_ms, &link, err);
    if (code) {
        return code;
    }
    link->base.ops = &tw_transport_pcie;
    *out = &link->base;
    return 0;
}

const struct tw_transport_ops tw_transport_pcie = {
    .name = "pcie",
    .discover = discover,
    .open = open_pcie,
    .submit = tw_link_submit,
    .receive = tw_link_receive,
    .stuck = tw_link_is_stuck,
    .close = tw_link_close,
};
