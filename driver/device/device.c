/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: the list of what the transports find, opening by selector, and requests, which
 * everything else is built from.
 */
#include "driver/device/device.h"

#include "loader/base/assert.h"
#include "loader/base/sized.h"
#include "loader/base/text_filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tw_transport_ops *const tw_transports[] = {&tw_transport_emu,  &tw_transport_usb,
                                                        &tw_transport_pcie, &tw_transport_socket,
                                                        &tw_transport_null, NULL};
#define SELECTORS \
    "emu, emu:TARGET, usb, usb:SERIAL, usb:BUS-PORT, pcie, pcie:BDF, socket:NAME and null"

const char *tw_version(void) {
    return TW_VERSION;
}

uint32_t tw_version_number(void) {
    return TW_VERSION_NUMBER;
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

int tw_device_list(bool (*found)(void *ctx, const struct tw_device_info *info), void *ctx,
                   tw_error *err) {
    struct lister l = {found, ctx, 0, true};
    int code = TW_NEED(err, found);
    for (size_t i = 0; !code && tw_transports[i] && l.more; i++) {
        tw_transports[i]->discover(pass_on, &l);
    }
    return code;
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
    return !q->selector[0]; /* probing the devices after it would only take time */
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
    tw_device_list(match_index, &q, NULL);
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
                   "device %s: supports %s %u to %u, this driver %u to %u: upgrade the %s",
                   d->selector, what, dev_lo, dev_hi, host_lo, host_hi,
                   too_old < 0 ? "driver" : "device's firmware");
}

static int greet(struct tw_device *d, tw_error *err) {
    struct tw_wire_hello hello = {.protocol_min = TW_WIRE_VERSION_MIN,
                                  .protocol_max = TW_WIRE_VERSION_MAX,
                                  .abi_major = TW_MACHINE_ABI_MAJOR,
                                  .abi_minor = TW_MACHINE_ABI_MINOR,
                                  .driver_version = TW_VERSION_NUMBER};
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
    d->transport->can_cancel = id->capabilities & TW_WIRE_CAN_CANCEL;
    return 0;
}

static int ask_limits(struct tw_device *d, tw_error *err) {
    struct tw_device_call call = {
        .opcode = TW_WIRE_LIMITS, .out = &d->limits, .out_bytes = sizeof d->limits};
    memset(&d->limits, 0xFF, sizeof d->limits);
    return d->identity.capabilities & TW_WIRE_CAN_LIMITS ? tw_device_call(d, &call, err) : 0;
}

/* Fetches the device's description of its target. It is untrusted, so it is parsed and checked like
 * a target file. */
static int describe(struct tw_device *d, tw_error *err) {
    char text[TW_TARGET_TEXT_BYTES], name[160];
    uint32_t n = 0;
    struct tw_target target;
    struct tw_device_call call = {
        .opcode = TW_WIRE_DESCRIBE, .out = text, .out_bytes = sizeof text, .out_length = &n};
    int code = d->identity.capabilities & TW_WIRE_CAN_DESCRIBE ? tw_device_call(d, &call, err) : 0;
    if (code || n == 0) {
        return code;
    }
    snprintf(name, sizeof name, "device %s: its description", d->selector);
    tw_error e = {0};
    if (tw_target_parse(name, text, n, &target, &e)) {
        return tw_fail(err, TW_E_PROTOCOL, "%s", e.message);
    }
    if (strcmp(target.name, d->identity.target) != 0) {
        return tw_fail(err, TW_E_PROTOCOL, "%s is of target %s, but its identity says %s", name,
                       target.name, d->identity.target);
    }
    memcpy(d->target_hash, target.hash, sizeof d->target_hash);
    return tw_target_print(&target, d->target_text, sizeof d->target_text, err);
}

static int open_transport(struct tw_device *d, const struct tw_transport_ops *ops, const char *rest,
                          const struct tw_transport_options *o, tw_error *err) {
    int code = ops->open(rest, o, &d->transport, err);
    if (code) {
        free(d);
        return code;
    }
    pthread_mutex_init(&d->lock, NULL);
    tw_status_init(&d->status);
    d->transport->progress_ctx = &d->status;
    d->transport->on_progress = tw_status_progress;
    code = greet(d, err);
    code = code ? code : ask_limits(d, err);
    code = code ? code : describe(d, err);
    if (code) {
        tw_device_close(d);
    }
    return code;
}

int tw_device_open(const char *selector, const struct tw_device_options *options, tw_device **out,
                   tw_error *err) {
    struct tw_device_options given;
    char name[128];
    int code = TW_NEED(err, out);
    code = code ? code : tw_sized_read(__func__, &given, sizeof given, options, err);
    code = code ? code : resolve(selector ? selector : "emu", name, err);
    if (code) {
        return code;
    }
    const struct tw_transport_options o = {.n_threads = given.n_threads,
                                           .isa = given.isa,
                                           .memory_bytes = given.memory_bytes,
                                           .deadline_ms = given.deadline_ms};
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
    code = open_transport(d, ops, rest, &o, err);
    if (code) {
        return code;
    }
    tw_status_publish(&d->status, d->selector, &d->identity);
    *out = d;
    return 0;
}

void tw_device_retain(struct tw_device *device) {
    atomic_fetch_add(&device->users, 1);
}

void tw_device_close(tw_device *device) {
    if (device && atomic_fetch_sub(&device->users, 1) == 0) {
        device->transport->ops->close(device->transport);
        tw_status_finish(&device->status);
        pthread_mutex_destroy(&device->lock);
        free(device);
    }
}

int tw_device_check_reset(const struct tw_device *device, uint32_t resets, tw_error *err) {
    return atomic_load(&device->resets) == resets
               ? 0
               : tw_fail(err, TW_E_USAGE,
                         "device %s: the device was reset, which freed everything on it; deploy "
                         "the bundle again",
                         device->selector);
}

/* A device that shares this process's memory is this process: nobody else could be checked. */
static bool trusts_host(const struct tw_device *d) {
    uint32_t can = d->identity.capabilities;
    return (can & (TW_WIRE_CAN_STRICT | TW_WIRE_CAN_FAST)) && !(can & TW_WIRE_CAN_VERIFY) &&
           !d->transport->ops->map;
}

int tw_device_get_info(const tw_device *device, struct tw_device_info *info, tw_error *err) {
    int code = TW_NEED(err, device);
    code = code ? code : tw_sized_check(__func__, info, err);
    if (code) {
        return code;
    }
    struct tw_device_info i = {.size = sizeof i,
                               .index = UINT32_MAX,
                               .link_mbits = device->transport->link_mbits,
                               .link_best_mbits = device->transport->link_best_mbits,
                               .trusts_host = trusts_host(device)};
    memcpy(i.selector, device->selector, sizeof i.selector - 1);
    snprintf(i.state, sizeof i.state, "%s", device->lost ? "lost" : "open");
    memcpy(i.target, device->identity.target, sizeof i.target);
    memcpy(i.detail, device->identity.device, sizeof device->identity.device);
    tw_sized_write(info, &i, sizeof i);
    return 0;
}

const char *tw_device_target(const tw_device *device) {
    return device ? device->target_text : "";
}

const char *tw_device_recovered(const tw_device *device) {
    return device && device->transport->recovered ? device->transport->recovered : "";
}

int tw_device_get_status(tw_device *device, struct tw_status_info *info, tw_error *err) {
    struct tw_status_info i;
    int code = TW_NEED(err, device);
    code = code ? code : tw_sized_check(__func__, info, err);
    if (!code) {
        tw_status_get(&device->status, &i);
        tw_sized_write(info, &i, sizeof i);
    }
    return code;
}

/* ---- requests ---- */

/* Formats why the device refused a request, with its two numbers if they carry information. */
static const char *describe_failure(const struct tw_wire_failure *f, char text[160]) {
    int n = snprintf(text, 160, "%s", f->what);
    if (f->code == TW_E_NOMEM && f->have == f->need && f->need) { /* a table is full */
        snprintf(text + n, (size_t)(160 - n), " (%llu of %llu in use; destroy a session first)",
                 (unsigned long long)f->have, (unsigned long long)f->need);
    } else if (strncmp(f->what, "Page", 4) == 0) {
        snprintf(text + n, (size_t)(160 - n),
                 " (element %u of page table %u: have %llu, need %llu)", f->element, f->object,
                 (unsigned long long)f->have, (unsigned long long)f->need);
    } else if (f->have || f->need) {
        snprintf(text + n, (size_t)(160 - n), " (have %llu, need %llu)",
                 (unsigned long long)f->have, (unsigned long long)f->need);
    }
    return text;
}

static int refused(const struct tw_device *d, const struct tw_device_call *call,
                   const struct tw_wire_header *h, const void *payload, tw_error *err) {
    struct tw_wire_failure f = {.code = h->status};
    if (h->length != sizeof f) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: its refusal of %s has %u bytes, expected %zu", d->selector,
                       tw_wire_opcode_name(call->opcode), h->length, sizeof f);
    }
    memcpy(&f, payload, sizeof f);
    f.what[sizeof f.what - 1] = 0;
    tw_clean_text(f.what);
    if (call->failure) {
        *call->failure = f;
    }
    char text[160];
    int known = h->status >= TW_E_INTERNAL && h->status < 0 ? h->status : TW_E_PROTOCOL;
    return tw_fail(err, known, "device %s: %s: %s", d->selector, tw_wire_opcode_name(call->opcode),
                   describe_failure(&f, text));
}

static int check_answer(const struct tw_device *d, const struct tw_device_call *call,
                        const struct tw_wire_header *sent, const uint8_t *bytes,
                        struct tw_wire_header *h, uint32_t payload_bytes, tw_error *err) {
    const char *why;
    int code = tw_wire_decode(bytes, h, &why);
    /* HELLO is answered in the device's own version, so that both sides learn who must be
     * upgraded. */
    if (code && !(code == TW_E_VERSION && call->opcode == TW_WIRE_HELLO)) {
        return tw_fail(err, code, "device %s: the answer to %s has an invalid %s", d->selector,
                       tw_wire_opcode_name(call->opcode), why);
    }
    if (h->opcode != sent->opcode || h->sequence != sent->sequence ||
        !(h->flags & TW_WIRE_ANSWER) || h->length != payload_bytes) {
        return tw_fail(err, TW_E_PROTOCOL,
                       "device %s: expected the answer to %s %u, found one to %s %u with %u of %u "
                       "bytes",
                       d->selector, tw_wire_opcode_name(call->opcode), sent->sequence,
                       tw_wire_opcode_name(h->opcode), h->sequence, payload_bytes, h->length);
    }
    return 0;
}

/* Records a failed exchange. One that the transport could not recover ends the handle: later calls
 * report the cause and do not touch the device. */
static int record_loss(struct tw_device *d, int code, const tw_error *e, tw_error *err) {
    if (code == TW_E_DEVICE_LOST || code == TW_E_TIMEOUT || code == TW_E_PROTOCOL ||
        code == TW_E_VERSION || code == TW_E_INTERRUPTED) {
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

static void set_stop(struct tw_device *d, const volatile sig_atomic_t *const *stop) {
    for (uint32_t i = 0; i < TW_STOP_WORDS; i++) {
        d->transport->stop[i] = stop ? stop[i] : NULL;
    }
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
    set_stop(d, call->stop);
    tw_status_begin(&d->status, call->opcode, call->bytes);
    tw_error e = {0};
    int code = d->transport->ops->submit(d->transport, bytes, call->payload, call->bytes, &e);
    return code ? record_loss(d, code, &e, err) : 0;
}

static int collect(struct tw_device *d, const struct tw_device_call *call,
                   const struct tw_wire_header *sent, tw_error *err) {
    uint8_t bytes[TW_WIRE_HEADER_BYTES];
    const void *payload = NULL;
    uint32_t payload_bytes = 0;
    struct tw_wire_header h;
    tw_error e = {0};
    set_stop(d, call->stop);
    int code = d->transport->ops->receive(d->transport, bytes, &payload, &payload_bytes, &e);
    code = code ? code : check_answer(d, call, sent, bytes, &h, payload_bytes, &e);
    if (code) {
        return record_loss(d, code, &e, err);
    }
    tw_status_end(&d->status, payload_bytes, &d->transport->count);
    if (h.status) {
        code = refused(d, call, &h, payload, &e);
        tw_status_fail(&d->status, false, e.message);
        return tw_fail(err, code, "%s", e.message);
    }
    if (call->out_length && h.length <= call->out_bytes) {
        *call->out_length = h.length;
    } else if (h.length != call->out_bytes) {
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
    set_stop(device, NULL);
    pthread_mutex_unlock(&device->lock);
    return code;
}

bool tw_device_is_stuck(struct tw_device *device, struct tw_link_progress *out) {
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
    uint64_t max =
        d->transport->credits < TW_DEVICE_IN_FLIGHT ? d->transport->credits : TW_DEVICE_IN_FLIGHT;
    int code = check_alive(d, err);
    TW_ASSERT(max > 0); /* opening has refused a device that gives no credit */
    while (!d->lost && (collected < posted || (!code && posted < n))) {
        if (!code && posted < n && posted - collected < max) {
            memset(&call[posted % max], 0, sizeof call[0]);
            fill(ctx, posted, &call[posted % max]);
            code = post(d, &call[posted % max], &sent[posted % max], err);
            posted++;
        } else {
            int one = collect(d, &call[collected % max], &sent[collected % max], code ? NULL : err);
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
    set_stop(device, NULL);
    pthread_mutex_unlock(&device->lock);
    if (n_good) {
        *n_good = good;
    }
    return code;
}
