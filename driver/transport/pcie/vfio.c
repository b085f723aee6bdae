/* SPDX-License-Identifier: Apache-2.0
 *
 * VFIO type 1. Each device has its own container, so it can access only the memory shared here.
 */
#include "driver/transport/pcie/vfio.h"

#include "driver/transport/holder.h"

#include "loader/base/event.h"
#include "tilewright/range.h"

#include <fcntl.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Last DMA address if an old kernel does not report the IOMMU's ranges: below 4 GiB and the window
 * of message-signalled interrupts. */
#define DEFAULT_LAST 0xfedfffffu
#define MAX_INFO_BYTES (1u << 20)
#define PCI_COMMAND 4u
#define PCI_COMMAND_MEMORY 2u
#define PCI_COMMAND_MASTER 4u

/* ---- group and container ---- */

static int open_group(struct tw_vfio *v, const char *group, tw_error *err) {
    char path[64];
    v->container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
    if (v->container < 0) {
        return tw_fail(err, TW_E_NO_DEVICE, "device %s: /dev/vfio/vfio: %s", v->name,
                       strerror(errno));
    }
    snprintf(path, sizeof path, "/dev/vfio/%s", group);
    v->group = open(path, O_RDWR | O_CLOEXEC);
    if (v->group < 0 && errno == EBUSY) {
        char holder[32];
        uint32_t pid;
        return tw_holder_of_node(path, 0, &pid, holder)
                   ? tw_fail(err, TW_E_DEVICE_BUSY, "device %s: process %u (%s) is using it",
                             v->name, pid, holder)
                   : tw_fail(err, TW_E_DEVICE_BUSY,
                             "device %s: another user's process is using it (sudo fuser -v %s)",
                             v->name, path);
    }
    return v->group < 0
               ? tw_fail(err, TW_E_NO_DEVICE, "device %s: %s: %s", v->name, path, strerror(errno))
               : 0;
}

static int refuse_iommu(const struct tw_vfio *v, tw_error *err) {
    if (errno == EPERM) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device %s: the kernel refuses because the IOMMU does not remap interrupts: "
                       "enable that in the firmware setup, or trust the device: echo 1 | sudo tee "
                       "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
                       v->name);
    }
    return tw_fail(err, TW_E_NO_DEVICE,
                   "device %s: cannot set up the IOMMU: %s; sudo modprobe vfio_iommu_type1",
                   v->name, strerror(errno));
}

static int join_container(struct tw_vfio *v, tw_error *err) {
    struct vfio_group_status status = {.argsz = sizeof status};
    if (ioctl(v->container, VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
        ioctl(v->container, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) != 1) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "device %s: VFIO has no type 1 IOMMU here; sudo modprobe vfio_iommu_type1",
                       v->name);
    }
    if (ioctl(v->group, VFIO_GROUP_GET_STATUS, &status) ||
        !(status.flags & VFIO_GROUP_FLAGS_VIABLE)) {
        return tw_fail(
            err, TW_E_NO_DEVICE,
            "device %s: its IOMMU group is not viable: another function in it has a driver; see "
            "/sys/bus/pci/devices/*/iommu_group",
            v->name);
    }
    if (ioctl(v->group, VFIO_GROUP_SET_CONTAINER, &v->container) ||
        ioctl(v->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU)) {
        return refuse_iommu(v, err);
    }
    return 0;
}

/* ---- the IOMMU's ranges ---- */

/* Finds the ranges in a linked list of capabilities. Returns 0 or NOMEM. */
static int read_ranges(struct tw_vfio *v, const uint8_t *info, uint32_t bytes, uint32_t at) {
    struct vfio_info_cap_header h;
    struct vfio_iommu_type1_info_cap_iova_range r;
    for (uint32_t turns = 0; at && turns < 64 && tw_range_ok(at, sizeof h, bytes);
         turns++, at = h.next) {
        memcpy(&h, info + at, sizeof h);
        if (h.id != VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE || !tw_range_ok(at, sizeof r, bytes)) {
            continue;
        }
        memcpy(&r, info + at, sizeof r);
        uint64_t each = sizeof(struct vfio_iova_range), list = at + sizeof r;
        if (r.nr_iovas == 0 || !tw_range_ok(list, r.nr_iovas * each, bytes)) {
            continue;
        }
        v->ranges = calloc(r.nr_iovas, sizeof *v->ranges);
        for (uint32_t i = 0; v->ranges && i < r.nr_iovas; i++) {
            struct vfio_iova_range range;
            memcpy(&range, info + list + i * each, sizeof range);
            v->ranges[i] = (struct tw_iova_range){range.start, range.end};
        }
        v->n_ranges = v->ranges ? r.nr_iovas : 0;
        return v->ranges ? 0 : TW_E_NOMEM;
    }
    v->ranges = malloc(sizeof *v->ranges);
    if (!v->ranges) {
        return TW_E_NOMEM;
    }
    *v->ranges = (struct tw_iova_range){0, DEFAULT_LAST};
    v->n_ranges = 1;
    return 0;
}

static int query_iommu(struct tw_vfio *v, tw_error *err) {
    struct vfio_iommu_type1_info first = {.argsz = sizeof first};
    if (ioctl(v->container, VFIO_IOMMU_GET_INFO, &first)) {
        return tw_fail(err, TW_E_IO, "device %s: cannot query the IOMMU: %s", v->name,
                       strerror(errno));
    }
    uint32_t bytes = first.argsz > sizeof first ? first.argsz : (uint32_t)sizeof first;
    uint8_t *info = bytes <= MAX_INFO_BYTES ? calloc(1, bytes) : NULL;
    if (!info) {
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", v->name);
    }
    struct vfio_iommu_type1_info *whole = (struct vfio_iommu_type1_info *)(void *)info;
    whole->argsz = bytes;
    int code = ioctl(v->container, VFIO_IOMMU_GET_INFO, whole) ? TW_E_IO : 0;
    if (!code) {
        v->iommu_sizes = whole->flags & VFIO_IOMMU_INFO_PGSIZES ? whole->iova_pgsizes : 0;
        code = read_ranges(v, info, bytes,
                           whole->flags & VFIO_IOMMU_INFO_CAPS ? whole->cap_offset : 0);
    }
    free(info);
    return code ? tw_fail(err, code, "device %s: cannot query which addresses the IOMMU translates",
                          v->name)
                : 0;
}

/* ---- the device ---- */

static bool region(const struct tw_vfio *v, uint32_t index, struct vfio_region_info *info) {
    *info = (struct vfio_region_info){.argsz = sizeof *info, .index = index};
    return ioctl(v->device, VFIO_DEVICE_GET_REGION_INFO, info) == 0;
}

static int enable_dma(struct tw_vfio *v, tw_error *err) {
    struct vfio_region_info config;
    uint8_t bytes[2];
    if (!region(v, VFIO_PCI_CONFIG_REGION_INDEX, &config) ||
        pread(v->device, bytes, 2, (off_t)(config.offset + PCI_COMMAND)) != 2) {
        return tw_fail(err, TW_E_IO, "device %s: cannot read its PCI configuration: %s", v->name,
                       strerror(errno));
    }
    bytes[0] |= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    return pwrite(v->device, bytes, 2, (off_t)(config.offset + PCI_COMMAND)) == 2
               ? 0
               : tw_fail(err, TW_E_IO, "device %s: cannot enable DMA: %s", v->name,
                         strerror(errno));
}

static int open_device(struct tw_vfio *v, const char *bdf, tw_error *err) {
    struct vfio_device_info info = {.argsz = sizeof info};
    v->device = ioctl(v->group, VFIO_GROUP_GET_DEVICE_FD, bdf);
    if (v->device < 0 || ioctl(v->device, VFIO_DEVICE_GET_INFO, &info)) {
        return tw_fail(err, TW_E_NO_DEVICE, "device %s: cannot open the device through VFIO: %s",
                       v->name, strerror(errno));
    }
    v->can_reset = info.flags & VFIO_DEVICE_FLAGS_RESET;
    for (uint32_t i = 0; i < TW_VFIO_BARS; i++) {
        struct vfio_region_info r;
        if (region(v, VFIO_PCI_BAR0_REGION_INDEX + i, &r)) {
            v->bar[i].bytes = r.size;
            v->bar[i].offset = r.offset;
            v->bar[i].mappable = r.flags & VFIO_REGION_INFO_FLAG_MMAP;
        }
    }
    return enable_dma(v, err);
}

int tw_vfio_open(struct tw_vfio *v, const char *name, const char *bdf, tw_error *err) {
    struct tw_vfio_probe probe = {0};
    *v = (struct tw_vfio){
        .container = -1, .group = -1, .device = -1, .interrupt = -1, .request = -1};
    snprintf(v->name, sizeof v->name, "%s", name);
    tw_vfio_probe(&tw_vfio_system, bdf, &probe);
    if (strcmp(probe.state, "ready") != 0) {
        return tw_fail(err, TW_E_NO_DEVICE, "device %s: %s: %s; %s", name, probe.state,
                       probe.reason, probe.remedy);
    }
    int code = open_group(v, probe.group, err);
    code = code ? code : join_container(v, err);
    code = code ? code : query_iommu(v, err);
    return code ? code : open_device(v, bdf, err);
}

static void close_fd(int *fd) {
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void set_irq(struct tw_vfio *v, uint32_t index, int fd);

void tw_vfio_close(struct tw_vfio *v) {
    if (v->interrupt >= 0) {
        set_irq(v, VFIO_PCI_MSIX_IRQ_INDEX, -1);
    }
    if (v->request >= 0) {
        set_irq(v, VFIO_PCI_REQ_IRQ_INDEX, -1);
    }
    for (uint32_t i = 0; i < TW_VFIO_BARS; i++) {
        if (v->bar[i].mapped) {
            munmap(v->bar[i].mapped, v->bar[i].bytes);
        }
    }
    close_fd(&v->device);
    close_fd(&v->group);
    close_fd(&v->container);
    close_fd(&v->interrupt);
    close_fd(&v->request);
    tw_iova_finish(&v->iova);
    free(v->ranges);
    *v = (struct tw_vfio){
        .container = -1, .group = -1, .device = -1, .interrupt = -1, .request = -1};
}

/* ---- BARs ---- */

int tw_vfio_map_bar(struct tw_vfio *v, uint32_t index, tw_error *err) {
    if (!v->bar[index].bytes || !v->bar[index].mappable) {
        return tw_fail(err, TW_E_IO, "device %s: BAR%u of %llu bytes is not mappable", v->name,
                       index, (unsigned long long)v->bar[index].bytes);
    }
    void *p = mmap(NULL, v->bar[index].bytes, PROT_READ | PROT_WRITE, MAP_SHARED, v->device,
                   (off_t)v->bar[index].offset);
    if (p == MAP_FAILED) {
        return tw_fail(err, TW_E_IO, "device %s: cannot map BAR%u: %s", v->name, index,
                       strerror(errno));
    }
    v->bar[index].mapped = p;
    return 0;
}

void tw_vfio_write32(struct tw_vfio *v, uint32_t index, uint64_t offset, uint32_t value) {
    if (v->bar[index].mapped) {
        *(volatile uint32_t *)(volatile void *)(v->bar[index].mapped + offset) = value;
    } else if (pwrite(v->device, &value, sizeof value, (off_t)(v->bar[index].offset + offset)) <
               0) {
        return; /* the device is gone, which the wait will detect */
    }
}

/* ---- DMA ---- */

int tw_vfio_set_dma_bits(struct tw_vfio *v, uint32_t bits, tw_error *err) {
    tw_error e = {0};
    uint64_t page = tw_iova_page(v->iommu_sizes, (uint64_t)sysconf(_SC_PAGESIZE));
    if (bits < 12 || bits > 64) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: it reports DMA addresses of %u bits, expected 12 to 64", v->name,
                       bits);
    }
    int code = tw_iova_init(&v->iova, v->ranges, v->n_ranges, bits, page, &e);
    return code ? tw_fail(err, code, "device %s: %s", v->name, e.message) : 0;
}

static int refuse_map(const struct tw_vfio *v, uint64_t bytes, tw_error *err) {
    int e = errno;
    struct rlimit l;
    if (e == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &l) == 0 && l.rlim_cur != RLIM_INFINITY) {
        return tw_fail(err, TW_E_NOMEM,
                       "device %s: DMA needs %llu KiB of locked memory, this process may lock %llu "
                       "KiB in all: ulimit "
                       "-l %llu, or permanently: echo '* - memlock unlimited' | sudo tee "
                       "/etc/security/limits.d/tilewright.conf  (then log in again)",
                       v->name, (unsigned long long)(bytes + 1023) / 1024,
                       (unsigned long long)l.rlim_cur / 1024,
                       (unsigned long long)(l.rlim_cur + bytes + 1023) / 1024);
    }
    return tw_fail(err, TW_E_NOMEM, "device %s: cannot map %llu bytes for DMA: %s", v->name,
                   (unsigned long long)bytes, strerror(e));
}

/* Allocates memory aligned to a page of the IOMMU, which may be larger than the host's. */
static uint8_t *new_pages(uint64_t bytes, uint64_t page) {
    uint8_t *p =
        mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    uint64_t before = (page - (uintptr_t)p % page) % page;
    if (before) {
        munmap(p, before);
    }
    munmap(p + before + bytes, page - before);
    return p + before;
}

static uint64_t whole_pages(const struct tw_vfio *v, uint64_t bytes) {
    uint64_t whole = 0;
    return tw_align_u64(bytes, v->iova.page, &whole) ? whole : 0;
}

int tw_vfio_share(struct tw_vfio *v, uint64_t bytes, uint8_t **memory, uint64_t *address,
                  tw_error *err) {
    tw_error e = {0};
    uint64_t size = whole_pages(v, bytes);
    int code = tw_iova_alloc(&v->iova, bytes, address, &e);
    if (code) {
        return tw_fail(err, code, "device %s: %s", v->name, e.message);
    }
    *memory = new_pages(size, v->iova.page);
    struct vfio_iommu_type1_dma_map map = {.argsz = sizeof map,
                                           .flags =
                                               VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
                                           .vaddr = (uintptr_t)*memory,
                                           .iova = *address,
                                           .size = size};
    if (*memory && ioctl(v->container, VFIO_IOMMU_MAP_DMA, &map) == 0) {
        return 0;
    }
    code = refuse_map(v, size, err);
    if (*memory) {
        munmap(*memory, size);
    }
    tw_iova_free(&v->iova, *address, bytes);
    *memory = NULL;
    return code;
}

void tw_vfio_unshare(struct tw_vfio *v, uint64_t bytes, uint8_t *memory, uint64_t address) {
    uint64_t size = whole_pages(v, bytes);
    struct vfio_iommu_type1_dma_unmap unmap = {
        .argsz = sizeof unmap, .iova = address, .size = size};
    if (ioctl(v->container, VFIO_IOMMU_UNMAP_DMA, &unmap)) {
        return; /* the device can still access it, so it must not be reused */
    }
    munmap(memory, size);
    tw_iova_free(&v->iova, address, bytes);
}

/* ---- interrupts, reset ---- */

static bool has_irq(const struct tw_vfio *v, uint32_t index) {
    struct vfio_irq_info info = {.argsz = sizeof info, .index = index};
    return ioctl(v->device, VFIO_DEVICE_GET_IRQ_INFO, &info) == 0 && info.count > 0 &&
           info.flags & VFIO_IRQ_INFO_EVENTFD;
}

/* Connects vector 0 of an interrupt index to an eventfd; -1: disconnects it. */
static int try_irq(struct tw_vfio *v, uint32_t index, int fd) {
    union {
        struct vfio_irq_set set;
        uint8_t bytes[sizeof(struct vfio_irq_set) + sizeof(int)];
    } u = {.set = {.argsz = sizeof u,
                   .flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD,
                   .index = index,
                   .count = 1}};
    memcpy(u.bytes + offsetof(struct vfio_irq_set, data), &fd, sizeof fd);
    if (fd < 0) {
        u.set.argsz = sizeof u.set;
        u.set.flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE;
        u.set.count = 0;
    }
    return ioctl(v->device, VFIO_DEVICE_SET_IRQS, &u.set);
}

static void set_irq(struct tw_vfio *v, uint32_t index, int fd) {
    if (try_irq(v, index, fd)) {
        return; /* closing the device does the same */
    }
}

static int listen_to(struct tw_vfio *v, uint32_t index, int *fd, tw_error *err) {
    if (!has_irq(v, index)) {
        return 0;
    }
    *fd = tw_event_create();
    if (*fd < 0 || try_irq(v, index, *fd)) {
        int e = errno;
        close_fd(fd);
        return tw_fail(err, TW_E_IO, "device %s: cannot set up its interrupts: %s", v->name,
                       strerror(e));
    }
    return 0;
}

int tw_vfio_listen(struct tw_vfio *v, tw_error *err) {
    int code = listen_to(v, VFIO_PCI_MSIX_IRQ_INDEX, &v->interrupt, err);
    return code ? code : listen_to(v, VFIO_PCI_REQ_IRQ_INDEX, &v->request, err);
}

bool tw_vfio_reset(struct tw_vfio *v) {
    return v->can_reset && ioctl(v->device, VFIO_DEVICE_RESET) == 0;
}
