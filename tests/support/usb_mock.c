/* SPDX-License-Identifier: Apache-2.0
 *
 * The usbfs of the mock. Only built where umockdev is installed.
 */
#if __has_include(<umockdev.h>)
#include "tests/support/usb_mock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const struct mock_shape mock_good = {.product = TW_USB_PRODUCT,
                                     .usb_version = 0x0200,
                                     .packet = MOCK_PACKET,
                                     .interface_class = TW_USB_CLASS,
                                     .endpoints = 3,
                                     .serial = "TW0001"};

static void die(const char *what, const char *why) {
    fprintf(stderr, "usb mock: %s: %s\n", what, why);
    abort();
}

/* ---- the preloaded library ---- */

/* A sanitizer's own library has to stay in front. */
static void find_sanitizer(char path[300]) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[600];
    path[0] = 0;
    while (maps && !path[0] && fgets(line, sizeof line, maps)) {
        char *file = strchr(line, '/');
        if (file && (strstr(file, "/libasan.so") || strstr(file, "/libtsan.so"))) {
            snprintf(path, 300, "%.*s:", (int)strcspn(file, "\n"), file);
        }
    }
    if (maps) {
        fclose(maps);
    }
}

/* The loader only warns about a library that is not there; without it no device would ever appear,
 * and each test would wait for one until its time is over. */
static void require_preload(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[600];
    bool found = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        found = strstr(line, "libumockdev-preload") != NULL;
    }
    if (maps) {
        fclose(maps);
    }
    if (!found) {
        fprintf(stderr, "usb mock: libumockdev-preload.so.0 is not installed; run tools/bootstrap "
                        "check (Debian: umockdev)\n");
        exit(1);
    }
}

void usb_mock_enter(char **argv) {
    char sanitizer[300], all[400], self[1000];
    const char *now = getenv("LD_PRELOAD");
    if (now && strstr(now, "libumockdev-preload")) {
        require_preload();
        return;
    }
    find_sanitizer(sanitizer);
    snprintf(all, sizeof all, "%slibumockdev-preload.so.0", sanitizer);
    setenv("LD_PRELOAD", all, 1);
    /* by its name, which locks show */
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    execv(self, argv);
    die("exec", strerror(errno));
}

/* ---- transfers; the lock is held ---- */

static bool is_in(const struct usbdevfs_urb *u) {
    return u->endpoint & 0x80;
}

static void end_urb(struct usb_mock *m, struct usbdevfs_urb *u, int status, size_t n) {
    u->status = status;
    u->actual_length = (int)n;
    m->done[m->n_done++] = u;
}

/* Takes the oldest transfer of an endpoint, or the one given, out of those in flight. */
static struct usbdevfs_urb *land(struct usb_mock *m, unsigned char endpoint,
                                 const struct usbdevfs_urb *this) {
    for (unsigned i = 0; i < m->n_flying; i++) {
        struct usbdevfs_urb *u = m->flying[i];
        if (this ? u == this : u->endpoint == endpoint) {
            memmove(m->flying + i, m->flying + i + 1,
                    (--m->n_flying - i) * sizeof(struct usbdevfs_urb *));
            return u;
        }
    }
    return NULL;
}

/* As a bus does it: bus packets fill the transfer, and one that is shorter than the others ends
 * it. */
static void feed_host(struct usb_mock *m) {
    while (m->to_host) {
        struct mock_packet *p = m->to_host;
        struct usbdevfs_urb *u = land(m, MOCK_IN, NULL);
        if (!u) {
            return;
        }
        size_t room = (size_t)u->buffer_length, n = p->n < room ? p->n : room;
        memcpy(u->buffer, p->bytes, n);
        end_urb(m, u, 0, n);
        memmove(p->bytes, p->bytes + n, p->n - n);
        p->n -= n;
        if (p->n == 0 && n < room) { /* a full transfer does not see the short packet after it */
            m->to_host = p->next;
            m->to_host_end = m->to_host ? m->to_host_end : &m->to_host;
            free(p->bytes);
            free(p);
        }
    }
}

static void take_out(struct usb_mock *m, const struct usbdevfs_urb *u, size_t n) {
    size_t room = TW_PACKET_BYTES - m->assembled, copy = n < room ? n : room;
    memcpy(m->assembly + m->assembled, u->buffer, copy);
    m->assembled += copy;
}

static void end_packet(struct usb_mock *m) {
    m->ended_bytes += m->assembled == 1;
    if (m->on_packet && m->assembled) {
        m->on_packet(m->ctx, m->assembly, m->assembled);
    }
    m->assembled = 0;
}

static void submit_out(struct usb_mock *m, struct usbdevfs_urb *u) {
    size_t n = (size_t)u->buffer_length;
    if (m->stalls_out) {
        m->stalls_out--;
        end_urb(m, u, -EPIPE, 0);
        return;
    }
    switch (m->out) {
    case MOCK_TAKE:
        take_out(m, u, n);
        if (n % MOCK_PACKET || (u->flags & USBDEVFS_URB_ZERO_PACKET)) {
            end_packet(m);
        }
        end_urb(m, u, 0, n);
        break;
    case MOCK_HOLD:
        m->flying[m->n_flying++] = u;
        break;
    case MOCK_ERROR:
        end_urb(m, u, -EPROTO, 0);
        break;
    case MOCK_CUT:
        take_out(m, u, n / 2 / MOCK_PACKET * MOCK_PACKET);
        end_urb(m, u, -EPROTO, n / 2 / MOCK_PACKET * MOCK_PACKET);
        break;
    }
}

static void submit_in(struct usb_mock *m, struct usbdevfs_urb *u) {
    if (u->endpoint == MOCK_IN && m->stalls_in) {
        m->stalls_in--;
        end_urb(m, u, -EPIPE, 0);
    } else if (u->endpoint == MOCK_IN && m->errors_in) {
        m->errors_in--;
        end_urb(m, u, -EPROTO, 0);
    } else {
        m->flying[m->n_flying++] = u;
        feed_host(m);
    }
}

static void submit_control(struct usb_mock *m, struct usbdevfs_urb *u) {
    uint8_t *setup = u->buffer, *data = setup + 8;
    size_t room = (size_t)setup[6] | (size_t)setup[7] << 8, n = 0;
    if (setup[0] == 0xC1 && setup[1] == TW_USB_STATUS) {
        if (m->silent_status) {
            m->flying[m->n_flying++] = u;
            return;
        }
        n = sizeof m->status < room ? sizeof m->status : room;
        memcpy(data, &m->status, n);
    } else if (setup[0] == 0xC1 && setup[1] == TW_USB_REASON) {
        n = strlen(m->reason) < room ? strlen(m->reason) : room;
        memcpy(data, m->reason, n);
    } else if (setup[0] == 0x41 && setup[1] == TW_USB_RESET) {
        m->host_resets++;
    } else {
        end_urb(m, u, -EPIPE, 0);
        return;
    }
    end_urb(m, u, 0, n);
}

static int submit(struct usb_mock *m, struct usbdevfs_urb *u) {
    if (m->gone) {
        return ENODEV;
    }
    if (m->refuse_submit && u->type == USBDEVFS_URB_TYPE_BULK && !is_in(u)) {
        return m->refuse_submit;
    }
    if (m->n_flying + m->n_done >= MOCK_URBS) {
        return ENOMEM;
    }
    if (u->type == USBDEVFS_URB_TYPE_CONTROL) {
        submit_control(m, u);
    } else if (is_in(u)) {
        submit_in(m, u);
    } else {
        submit_out(m, u);
    }
    return 0;
}

static int discard(struct usb_mock *m, struct usbdevfs_urb *u) {
    if (!land(m, 0, u)) {
        return EINVAL;
    }
    end_urb(m, u, -ENOENT, 0);
    return 0;
}

static int reap(struct usb_mock *m, void **out) {
    if (m->n_done == 0) {
        usleep(200); /* libusb asks all the time here: a plain file is always ready */
        return m->gone ? ENODEV : EAGAIN;
    }
    *out = m->done[0];
    memmove(m->done, m->done + 1, --m->n_done * sizeof m->done[0]);
    return 0;
}

static int claim(struct usb_mock *m) {
    if (m->claims_refused) {
        m->claims_refused--;
        return m->refuse_claim;
    }
    m->claims++;
    return 0;
}

static int clear_halt(struct usb_mock *m) {
    m->clears++;
    return m->gone ? ENODEV : 0;
}

/* ---- usbfs ---- */

static int answer(struct usb_mock *m, unsigned long request, void *arg) {
    switch (request) {
    case USBDEVFS_GET_CAPABILITIES:
        *(uint32_t *)arg = USBDEVFS_CAP_ZERO_PACKET | USBDEVFS_CAP_NO_PACKET_SIZE_LIM |
                           USBDEVFS_CAP_BULK_SCATTER_GATHER | USBDEVFS_CAP_REAP_AFTER_DISCONNECT;
        return 0;
    case USBDEVFS_CLAIMINTERFACE:
    case USBDEVFS_DISCONNECT_CLAIM:
        return claim(m);
    case USBDEVFS_GETDRIVER:
    case USBDEVFS_IOCTL:
        return ENODATA;
    case USBDEVFS_RELEASEINTERFACE:
        return 0;
    case USBDEVFS_CLEAR_HALT:
        return clear_halt(m);
    case USBDEVFS_RESET:
        m->resets++;
        return 0;
    case USBDEVFS_SUBMITURB:
        return submit(m, arg);
    case USBDEVFS_DISCARDURB:
        return discard(m, arg);
    case USBDEVFS_REAPURB:
    case USBDEVFS_REAPURBNDELAY:
        return reap(m, arg);
    default:
        fprintf(stderr, "usb mock: ioctl %lx is not emulated\n", request);
        return ENOTTY;
    }
}

static gboolean on_ioctl(UMockdevIoctlBase *base, UMockdevIoctlClient *client, gpointer mock) {
    (void)base;
    struct usb_mock *m = mock;
    UMockdevIoctlData *data = umockdev_ioctl_client_get_arg(client);
    guint8 *bytes;
    gint n;
    void *arg;
    umockdev_ioctl_data_retrieve(data, &bytes, &n);
    memcpy(&arg, bytes, sizeof arg);
    g_free(bytes);
    pthread_mutex_lock(&m->lock);
    int code = answer(m, umockdev_ioctl_client_get_request(client), arg);
    pthread_mutex_unlock(&m->lock);
    umockdev_ioctl_client_complete(client, code ? -1 : 0, code);
    return TRUE;
}

/* ---- making ---- */

void usb_mock_init(struct usb_mock *m) {
    *m = (struct usb_mock){.bed = umockdev_testbed_new(),
                           .handler = umockdev_ioctl_base_new(),
                           .assembly = malloc(TW_PACKET_BYTES),
                           .reason = ""};
    m->to_host_end = &m->to_host;
    pthread_mutex_init(&m->lock, NULL);
    g_signal_connect(m->handler, "handle-ioctl", G_CALLBACK(on_ioctl), m);
}

void usb_mock_finish(struct usb_mock *m) {
    g_object_unref(m->bed);
    g_object_unref(m->handler);
    while (m->to_host) {
        struct mock_packet *p = m->to_host;
        m->to_host = p->next;
        free(p->bytes);
        free(p);
    }
    free(m->assembly);
    pthread_mutex_destroy(&m->lock);
}

static size_t put_endpoint(uint8_t *d, unsigned address, unsigned type, unsigned packet) {
    const uint8_t bytes[7] = {
        7, 5, (uint8_t)address, (uint8_t)type, (uint8_t)packet, (uint8_t)(packet >> 8), 4};
    memcpy(d, bytes, sizeof bytes);
    return sizeof bytes;
}

static size_t put_descriptors(const struct mock_shape *s, uint8_t d[64]) {
    const uint8_t device[18] = {18,
                                1,
                                (uint8_t)s->usb_version,
                                (uint8_t)(s->usb_version >> 8),
                                0,
                                0,
                                0,
                                64,
                                TW_USB_VENDOR & 0xFF,
                                TW_USB_VENDOR >> 8,
                                (uint8_t)s->product,
                                (uint8_t)(s->product >> 8),
                                0x12,
                                0x01,
                                1,
                                2,
                                3,
                                1};
    const uint8_t total = (uint8_t)(18 + 7 * s->endpoints);
    const uint8_t rest[18] = {9,
                              2,
                              total,
                              0,
                              1,
                              1,
                              0,
                              0x80,
                              50,
                              9,
                              4,
                              0,
                              0,
                              s->endpoints,
                              s->interface_class,
                              TW_USB_SUBCLASS,
                              TW_USB_PROTOCOL,
                              0};
    memcpy(d, device, 18);
    memcpy(d + 18, rest, 18);
    size_t n = 36;
    n += s->endpoints > 0 ? put_endpoint(d + n, MOCK_NOTICE, 3, 16) : 0;
    n += s->endpoints > 1 ? put_endpoint(d + n, MOCK_OUT, 2, s->packet) : 0;
    n += s->endpoints > 2 ? put_endpoint(d + n, MOCK_IN, 2, s->packet) : 0;
    return n;
}

static void add_text(struct usb_mock *m, const char *text) {
    GError *e = NULL;
    if (!umockdev_testbed_add_from_string(m->bed, text, &e)) {
        die("device", e->message);
    }
}

void usb_mock_add(struct usb_mock *m, unsigned port, const struct mock_shape *shape) {
    uint8_t d[64];
    char text[2000], hex[129] = "", node[40], serial[80] = "";
    size_t n = put_descriptors(shape, d);
    for (size_t i = 0; i < n; i++) {
        snprintf(hex + 2 * i, 3, "%02X", d[i]);
    }
    if (shape->serial) {
        snprintf(serial, sizeof serial, "A: serial=%s\\n\n", shape->serial);
    }
    snprintf(
        text, sizeof text,
        "P: /devices/pci0000:00/0000:00:01.0/usb1/1-%u\n"
        "N: bus/usb/001/%03u\nE: BUSNUM=001\nE: DEVNUM=%03u\nE: DEVNAME=/dev/bus/usb/001/%03u\n"
        "E: DEVTYPE=usb_device\nE: SUBSYSTEM=usb\nA: bConfigurationValue=1\\n\nA: busnum=1\\n\nA: "
        "devnum=%u\\n\n"
        "A: devpath=%u\\n\nA: speed=480\\n\nA: product=a mock\\n\n%sH: descriptors=%s\n",
        port, port + 1, port + 1, port + 1, port + 1, port, serial, hex);
    add_text(m, text);
    snprintf(node, sizeof node, "/dev/bus/usb/001/%03u", port + 1);
    GError *e = NULL;
    if (!umockdev_testbed_attach_ioctl(m->bed, node, m->handler, &e)) {
        die(node, e->message);
    }
}

void usb_mock_claimed(struct usb_mock *m, unsigned port) {
    char text[300];
    snprintf(text, sizeof text,
             "P: /devices/pci0000:00/0000:00:01.0/usb1/1-%u/1-%u:1.0\nE: DEVTYPE=usb_interface\nE: "
             "SUBSYSTEM=usb\n"
             "L: driver=../../../../../../bus/usb/drivers/usbfs\n",
             port, port);
    add_text(m, text);
}

void usb_mock_remove(struct usb_mock *m, unsigned port) {
    char path[80], node[40];
    GError *e = NULL;
    snprintf(node, sizeof node, "/dev/bus/usb/001/%03u", port + 1);
    umockdev_testbed_detach_ioctl(m->bed, node, &e);
    snprintf(path, sizeof path, "/sys/devices/pci0000:00/0000:00:01.0/usb1/1-%u", port);
    umockdev_testbed_uevent(m->bed, path, "remove");
    umockdev_testbed_remove_device(m->bed, path);
}

/* ---- what happens ---- */

void usb_mock_send(struct usb_mock *m, const void *bytes, size_t n) {
    struct mock_packet *p = calloc(1, sizeof *p);
    p->bytes = malloc(n ? n : 1);
    p->n = n;
    memcpy(p->bytes, bytes, n);
    pthread_mutex_lock(&m->lock);
    *m->to_host_end = p;
    m->to_host_end = &p->next;
    feed_host(m);
    pthread_mutex_unlock(&m->lock);
}

void usb_mock_notice(struct usb_mock *m, const struct tw_usb_notice *notice) {
    pthread_mutex_lock(&m->lock);
    struct usbdevfs_urb *u = land(m, MOCK_NOTICE, NULL);
    if (!u) {
        die("notice", "the host does not wait for one");
    }
    memcpy(u->buffer, notice, sizeof *notice);
    end_urb(m, u, 0, sizeof *notice);
    pthread_mutex_unlock(&m->lock);
}

void usb_mock_vanish(struct usb_mock *m) {
    pthread_mutex_lock(&m->lock);
    m->gone = true;
    for (; m->n_flying; m->n_flying--) {
        end_urb(m, m->flying[m->n_flying - 1], -ESHUTDOWN, 0);
    }
    pthread_mutex_unlock(&m->lock);
}

void usb_mock_set_out(struct usb_mock *m, enum mock_out out) {
    pthread_mutex_lock(&m->lock);
    m->out = out;
    pthread_mutex_unlock(&m->lock);
}

unsigned usb_mock_flying(struct usb_mock *m) {
    pthread_mutex_lock(&m->lock);
    unsigned n = m->n_flying;
    pthread_mutex_unlock(&m->lock);
    return n;
}
#endif
