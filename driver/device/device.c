/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: the list of what the transports find, opening by selector, and the request that
 * everything else is made of.
 */
#include "driver/device/device.h"
#include "loader/base/assert.h"
#include "loader/base/text_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_VERSION 0x000100u /* 0.1.0 */

const struct tw_transport_ops *const tw_transports[] = {&tw_transport_emu,  &tw_transport_usb,
                                                        &tw_transport_pcie, &tw_transport_socket,
                                                        &tw_transport_null, NULL};
#define SELECTORS \
    "emu, emu:TARGET, usb, usb:SERIAL, usb:BUS-PORT, pcie, pcie:BDF, socket:NAME and null"

const char *tw_version(void) {
    return TW_VERSION;
}

/* ---- list ---- */

struct lister {
    bool (*found)(void *ctx, const struct tw_device_info *info);
    void *ctx;
    uint32_t next;
    bool more;
};

struct tw_device_info tw_device_describe(const struct tw_transport_info *t, uint32_t index) {
    struct tw_device_info info = {.size = sizeof info,
                                  .index = index,
                                  .link_mbits = t->link_mbits,
                                  .link_best_mbits = t->link_best_mbits};
    memcpy(info.selector, t->selector, sizeof info.selector);
    memcpy(info.target, t->target, sizeof info.target);
    memcpy(info.state, t->state, sizeof info.state);
    memcpy(info.detail, t->detail, sizeof info.detail);
    tw_clean_text(info.target);
    tw_clean_text(info.detail);
    return info;
}

static bool pass_on(void *ctx, const struct tw_transport_info *t) {
    struct lister *l = ctx;
    struct tw_device_info info = tw_device_describe(t, l->next++);
    l->more = l->found(l->ctx, &info);
    return l->more;
}

void tw_device_list(bool (*found)(void *ctx, const struct tw_device_info *info), void *ctx) {
    struct lister l = {found, ctx, 0, true};
    for (size_t i = 0; tw_transports[i] && l.more; i++) {
        tw_transports[i]->discover(pass_on, &l);
    }
}

struct by_index {
    uint64_t wanted;
    uint32_t count;
    char selector[80];
};

static bool match_index(void *ctx, const struct tw_device_info *info) {
    struct by_index *q = ctx;
    q->count++;
    if (info->index == q->wanted) {
        memcpy(q->selector, info->selector, sizeof q->selector);
    }
    return !q->selector[0]; /* what comes behind it would only take its time */
}

/* ---- open ---- */

static const struct tw_transport_ops *find_transport(const char *selector, const char **rest) {
    size_t n = strcspn(selector, ":");
    for (size_t i = 0; tw_transports[i]; i++) {
        if (strlen(tw_transports[i]->name) == n &&
            strncmp(tw_transports[i]->name, selector, n) == 0) {
            *rest = selector[n] ? selector + n + 1 : "";
            return tw_transports[i];
        }
    }
    return NULL;
}

static int resolve(const char *selector, char name[128], tw_error *err) {
    size_t n = strlen(selector);
    if (n == 0 || n >= 128) {
        return tw_fail(err, TW_E_NO_DEVICE, "device '%.60s': no such device; there are " SELECTORS,
                       selector);
    }
    memcpy(name, selector, n + 1);
    if (strspn(selector, "0123456789") != n) {
        return 0;
    }
    struct by_index q = {.wanted = strtoull(selector, NULL, 10)};
    tw_device_list(match_index, &q);
    if (!q.selector[0]) {
        return tw_fail(err, TW_E_NO_DEVICE, "device %s: no such device; the list goes from 0 to %u",
                       selector, q.count - 1);
    }
    memcpy(name, q.selector, sizeof q.selector);
    return 0;
}

static int refuse_version(const struct tw_device *d, const char *what, int too_old,
                          uint32_t host_lo, uint32_t host_hi, uint32_t dev_lo, uint32_t dev_hi,
                          tw_error *err) {
    return tw_fail(err, TW_E_VERSION,
                   "device %s: it speaks %s %u to %u, this driver %u to %u: upgrade the %s",
                   d->selector, what, dev_lo, dev_hi, host_lo, host_hi,
                   too_old < 0 ? "driver" : "device's firmware");
}

static int greet(struct tw_device *d, tw_error *err) {
    struct tw_wire_hello hello = {.protocol_min = TW_WIRE_VERSION_MIN,
                                  .protocol_max = TW_WIRE_VERSION_MAX,
                                  .abi_major = TW_MACHINE_ABI_MAJOR,
                                  .abi_minor = TW_MACHINE_ABI_MINOR,
                                  .driver_version = DRIVER_VERSION};
    struct tw_device_call call = {.opcode = TW_WIRE_HELLO,
                                  .payload = &hello,
                                  .bytes = sizeof hello,
                                  .out = &d->identity,
                                  .out_bytes = sizeof d->identity};
    int code = tw_device_call(d, &call, err);
    if (code) {
        return code;
    }
    struct tw_wire_identity *id = &d->identity;
    id->target[sizeof id->target - 1] = id->device[sizeof id->device - 1] = 0;
    tw_clean_text(id->target);
    tw_clean_text(id->device);
    uint32_t version;
    int old = tw_wire_agree(TW_WIRE_VERSION_MIN, TW_WIRE_VERSION_MAX, id->protocol_min,
                            id->protocol_max, &version);
    if (old) {
        return refuse_version(d, "protocol", old, TW_WIRE_VERSION_MIN, TW_WIRE_VERSION_MAX,
                              id->protocol_min, id->protocol_max, err);
    }
    if (id->abi_major != TW_MACHINE_ABI_MAJOR) {
        return refuse_version(d, "machine ABI", id->abi_major > TW_MACHINE_ABI_MAJOR ? -1 : 1,
                              TW_MACHINE_ABI_MAJOR, TW_MACHINE_ABI_MAJOR, id->abi_major,
                              id->abi_major, err);
    }
    return 0;
}

int tw_device_open(const char *selector, const struct tw_device_options *options, tw_device **out,
                   tw_error *err) {
    struct tw_transport_options o = {0};
    if (options) {
        o.n_threads = options->n_threads;
        o.isa = options->isa;
        o.memory_bytes = options->memory_bytes;
        o.deadline_ms = options->size > offsetof(struct tw_device_options, deadline_ms)
                            ? options->deadline_ms
                            : 0;
    }
    char name[128];
    int code = resolve(selector ? selector : "emu", name, err);
    if (code) {
        return code;
    }
    const char *rest;
    const struct tw_transport_ops *ops = find_transport(name, &rest);
    if (!ops) {
        return tw_fail(err, TW_E_NO_DEVICE, "device '%s': no such device; there are " SELECTORS,
                       name);
    }
    struct tw_device *d = calloc(1, sizeof *d);
    if (!d) {
        return tw_fail(err, TW_E_NOMEM, "device %s: out of memory", name);
    }
    memcpy(d->selector, name, sizeof name);
    code = ops->open(rest, &o, &d->transport, err);
    if (code) {
        free(d);
        return code;
    }
    pthread_mutex_init(&d->lock, NULL);
    tw_status_init(&d->status);
    d->transport->moved_ctx = &d->status;
    d->transport->moved = tw_status_moved;
    code = greet(d, err);
    if (code) {
        tw_device_close(d);
        return code;
    }
    tw_status_publish(&d->status, d->selector, &d->identity);
    *out = d;
    return 0;
}

void tw_device_close(tw_device *device) {
    if (device) {
        device->transport->ops->close(device->transport);
        tw_status_finish(&device->status);
        pthread_mutex_destroy(&device->lock);
        free(device);
    }
}

void tw_device_get_info(const tw_device *device, struct tw_device_info *info) {
    struct tw_device_info i = {.size = sizeof i,
                               .index = UINT32_MAX,
                               .link_mbits = device->transport->link_mbits,
                               .link_best_mbits = device->transport->link_best_mbits};
    memcpy(i.selector, device->selector, sizeof i.selector - 1);
    snprintf(i.state, sizeof i.state, "%s", device->lost ? "lost" : "open");
    memcpy(i.target, device->identity.target, sizeof i.target);
    memcpy(i.detail, device->identity.device, sizeof device->identity.device);
    memcpy(info, &i, info->size < sizeof i ? info->size : sizeof i);
}

const char *tw_device_recovered(const tw_device *device) {
    return device->transport->recovered ? device->transport->recovered : "";
}

void tw_device_get_status(tw_device *device, struct tw_status_info *info) {
    struct tw_status_info i;
    tw_status_get(&device->status, &i);
    i.size = info->size;
    memcpy(info, &i, info->size < sizeof i ? info->size : sizeof i);
}

/* ---- requests ---- */

static int refused(const struct tw_device *d, const struct tw_device_call *call,
                   const struct tw_wire_header *h, const void *payload, tw_error *err) {
    struct tw_wire_failure f = {.code = h->status};
    if (h->length != sizeof f) {
        return tw_fail(err, TW_E_PROTOCOL, "device %s: a refusal of %s has %u bytes, expected %zu",
                       d->selector, tw_wire_opcode_name(call->opcode), h->length, sizeof f);
    }
    memcpy(&f, payload, sizeof f);
    f.what[sizeof f.what - 1] = 0;
    tw_clean_text(f.what);
    if (call->failure) {
        *call->failure = f;
    }
    int known = h->status >= TW_E_INTERNAL && h->status < 0 ? h->status : TW_E_PROTOCOL;
    return tw_fail(err, known, "device %s: %s: %s (have %llu, need %llu)", d->selector,
                   tw_wire_opcode_name(call->opcode), f.what, (unsigned long long)f.have,
                   (unsigned long long)f.need);
}

static int check_answer(const struct tw_device *d, const struct tw_device_call *call,
                        const struct tw_wire_header *sent, const uint8_t *bytes,
                        struct tw_wire_header *h, uint32_t payload_bytes, tw_error *err) {
    const char *why;
    int code = tw_wire_decode(bytes, h, &why);
    /* HELLO is answered in the device's own version, so that both sides learn who must be
     * upgraded. */
    if (code && !(code == TW_E_VERSION && call->opcode == TW_WIRE_HELLO)) {
        return tw_fail(err, code, "device %s: the answer to %s has a wrong %s", d->selector,
                       tw_wire_opcode_name(call->opcode), why);
    }
    if (h->opcode != sent->opcode || h->sequence != sent->sequence ||
        !(h->flags & TW_WIRE_ANSWER) || h->length != payload_bytes) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: the answer to %s %u is one to %s %u with %u of %u bytes",
                       d->selector, tw_wire_opcode_name(call->opcode), sent->sequence,
                       tw_wire_opcode_name(h->opcode), h->sequence, payload_bytes, h->length);
    }
    return 0;
}

/* What a transport cannot mend ends the handle: later calls tell the cause and touch nothing. */
static int note_loss(struct tw_device *d, int code, const tw_error *e, tw_error *err) {
    if (code == TW_E_DEVICE_LOST || code == TW_E_TIMEOUT || code == TW_E_PROTOCOL ||
        code == TW_E_VERSION) {
        d->lost = code;
        snprintf(d->cause, sizeof d->cause, "%.*s", (int)sizeof d->cause - 1, e->message);
    }
    tw_status_fail(&d->status, d->lost != 0, e->message);
    return tw_fail(err, code, "%s", e->message);
}

static int check_alive(const struct tw_device *d, tw_error *err) {
    return d->lost ? tw_fail(err, TW_E_DEVICE_LOST, "device %s is lost; open it again (%s)",
                             d->selector, d->cause)
                   : 0;
}

static int post(struct tw_device *d, const struct tw_device_call *call, struct tw_wire_header *sent,
                tw_error *err) {
    uint8_t bytes[TW_WIRE_HEADER_BYTES];
    *sent = (struct tw_wire_header){.version = TW_WIRE_VERSION_MAX,
                                    .opcode = (uint8_t)call->opcode,
                                    .sequence = ++d->sequence,
                                    .address = call->address,
                                    .length = call->bytes};
    tw_wire_encode(sent, bytes);
    d->sent_bytes += call->bytes;
    tw_status_begin(&d->status, call->opcode, call->bytes);
    tw_error e = {0};
    int code = d->transport->ops->submit(d->transport, bytes, call->payload, call->bytes, &e);
    return code ? note_loss(d, code, &e, err) : 0;
}

static int collect(struct tw_device *d, const struct tw_device_call *call,
                   const struct tw_wire_header *sent, tw_error *err) {
    uint8_t bytes[TW_WIRE_HEADER_BYTES];
    const void *payload = NULL;
    uint32_t payload_bytes = 0;
    struct tw_wire_header h;
    tw_error e = {0};
    int code = d->transport->ops->receive(d->transport, bytes, &payload, &payload_bytes, &e);
    code = code ? code : check_answer(d, call, sent, bytes, &h, payload_bytes, &e);
    if (code) {
        return note_loss(d, code, &e, err);
    }
    tw_status_end(&d->status, payload_bytes, &d->transport->count);
    if (h.status) {
        code = refused(d, call, &h, payload, &e);
        tw_status_fail(&d->status, false, e.message);
        return tw_fail(err, code, "%s", e.message);
    }
    if (h.length != call->out_bytes) {
        return tw_fail(err, TW_E_PROTOCOL, "device %s: the answer to %s has %u bytes, expected %u",
                       d->selector, tw_wire_opcode_name(call->opcode), h.length, call->out_bytes);
    }
    if (h.length) {
        memcpy(call->out, payload, h.length);
    }
    if (call->out_address) {
        *call->out_address = h.address;
    }
    return 0;
}

int tw_device_call(struct tw_device *device, const struct tw_device_call *call, tw_error *err) {
    pthread_mutex_lock(&device->lock);
    struct tw_wire_header sent;
    int code = check_alive(device, err);
    code = code ? code : post(device, call, &sent, err);
    code = code ? code : collect(device, call, &sent, err);
    pthread_mutex_unlock(&device->lock);
    return code;
}

bool tw_device_fail_stuck(struct tw_device *device, struct tw_link_progress *out) {
    pthread_mutex_lock(&device->lock);
    struct tw_transport *t = device->transport;
    bool stuck = t->ops->stuck && t->ops->stuck(t, out);
    pthread_mutex_unlock(&device->lock);
    return stuck;
}

static int call_many(struct tw_device *d, uint64_t n,
                     void (*fill)(void *ctx, uint64_t i, struct tw_device_call *call), void *ctx,
                     uint64_t *n_good, tw_error *err) {
    struct tw_device_call call[TW_DEVICE_IN_FLIGHT] = {{0}};
    struct tw_wire_header sent[TW_DEVICE_IN_FLIGHT];
    uint64_t posted = 0, collected = 0;
    uint64_t most =
        d->transport->credits < TW_DEVICE_IN_FLIGHT ? d->transport->credits : TW_DEVICE_IN_FLIGHT;
    int code = check_alive(d, err);
    TW_ASSERT(most > 0); /* opening has refused a device that gives no credit */
    while (!d->lost && (collected < posted || (!code && posted < n))) {
        if (!code && posted < n && posted - collected < most) {
            memset(&call[posted % most], 0, sizeof call[0]);
            fill(ctx, posted, &call[posted % most]);
            code = post(d, &call[posted % most], &sent[posted % most], err);
            posted++;
        } else {
            int one =
                collect(d, &call[collected % most], &sent[collected % most], code ? NULL : err);
            code = code ? code : one;
            collected++;
            *n_good += code == 0;
        }
    }
    return code;
}

int tw_device_call_many(struct tw_device *device, uint64_t n,
                        void (*fill)(void *ctx, uint64_t i, struct tw_device_call *call), void *ctx,
                        uint64_t *n_good, tw_error *err) {
    uint64_t good = 0;
    pthread_mutex_lock(&device->lock);
    int code = call_many(device, n, fill, ctx, &good, err);
    pthread_mutex_unlock(&device->lock);
    if (n_good) {
        *n_good = good;
    }
    return code;
}
