/* SPDX-License-Identifier: Apache-2.0
 *
 * Deploying: checks that the bundle fits the device, places the parameter segments, the pages of
 * state, the programs' blobs and, on a device that verifies them, their certificates. Inputs and
 * outputs, binding rows and loaded programs come with the first session.
 */
#include "driver/device/deploy.h"

#include "loader/base/private_path.h"
#include "loader/base/sized.h"
#include "tilewright/progblob.h"

#include <stdlib.h>

#define PROGRAM_ALIGN 64u

/* Compares the hashes of the full descriptions if the device has one, else the names. */
static int check_target(const struct tw_device *device, const struct tw_decoder *decoder,
                        tw_error *err) {
    const struct tw_bundle_note *note = decoder->bundle.note;
    const char *target = device->identity.target;
    bool same_name = strncmp(target, note->target, sizeof note->target) == 0;
    if (device->target_text[0]
            ? memcmp(device->target_hash, note->target_hash, sizeof note->target_hash) == 0
            : !target[0] || same_name) {
        return 0;
    }
    return same_name
               ? tw_fail(err, TW_E_TARGET,
                         "%s: compiled for target %.63s, whose description differs from that of "
                         "device %s; compile the model for this device",
                         decoder->bundle.path, note->target, device->selector)
               : tw_fail(err, TW_E_TARGET, "%s: compiled for target %.63s, but device %s is a %s",
                         decoder->bundle.path, note->target, device->selector, target);
}

static const char *name_of(const struct tw_lack *l) {
    static const char *const features[] = {
#define TW_X(id, bit, text) [bit] = text,
        TW_FEATURES(TW_X)
#undef TW_X
    };
    static const char *const packings[] = {
#define TW_X(name, value, text) [value] = text,
        TW_PACKINGS(TW_X)
#undef TW_X
    };
    switch (l->kind) {
    case TW_LACK_OP:
        return l->number < TW_OP_LIMIT && tw_op_info(l->number).name ? tw_op_info(l->number).name
                                                                     : "?";
    case TW_LACK_DTYPE:
        return tw_dtype_name(l->number);
    case TW_LACK_PACKING:
        return l->number < TW_PACK_COUNT ? packings[l->number] : "?";
    case TW_LACK_FEATURE:
        return l->number < sizeof features / sizeof *features ? features[l->number] : "?";
    case TW_LACK_ROWS:
        return "rows in a step";
    case TW_LACK_CHIPS:
        return "chips";
    case TW_LACK_SITES:
        return "sites";
    case TW_LACK_WORDS:
        return "semaphore words on a site";
    case TW_LACK_TRIPS:
        return "trips";
    case TW_LACK_SRAM:
        return "bytes of SRAM on a site";
    case TW_LACK_NOTHING:
        break;
    }
    return "?";
}

/* Compares what a program needs with what the device says that it has. */
static int check_needs(const struct tw_device *device, const struct tw_bundle *b,
                       const struct tw_program *p, tw_error *err) {
    struct tw_requirements needs;
    if (!tw_requirements_of(p, &needs)) {
        return tw_fail(err, TW_E_INTERNAL, "%s: program %s was verified but does not decode",
                       b->path, p->name);
    }
    struct tw_lack l = tw_requirements_lack(&needs, &device->limits);
    switch (l.kind) {
    case TW_LACK_NOTHING:
        return 0;
    case TW_LACK_OP:
    case TW_LACK_DTYPE:
    case TW_LACK_PACKING:
    case TW_LACK_FEATURE:
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "%s: program %s needs %s %s (number %u), which device %s does not have; "
                       "upgrade the device's firmware, or compile the model for this device",
                       b->path, p->name,
                       l.kind == TW_LACK_OP        ? "the op"
                       : l.kind == TW_LACK_DTYPE   ? "the element type"
                       : l.kind == TW_LACK_PACKING ? "the packing"
                                                   : "the feature",
                       name_of(&l), l.number, device->selector);
    case TW_LACK_ROWS:
    case TW_LACK_CHIPS:
    case TW_LACK_SITES:
    case TW_LACK_WORDS:
    case TW_LACK_TRIPS:
    case TW_LACK_SRAM:
        break;
    }
    return tw_fail(err, TW_E_UNSUPPORTED,
                   "%s: program %s needs %llu %s, device %s has %llu; compile the model for this "
                   "device",
                   b->path, p->name, (unsigned long long)l.need, name_of(&l), device->selector,
                   (unsigned long long)l.have);
}

#define MAX_CTX (1u << 24)

static int check_note(const struct tw_decoder *decoder, tw_error *err) {
    const struct tw_bundle_note *note = decoder->bundle.note;
    return note->n_vocab && note->n_vocab <= TW_MAX_VOCAB && note->n_ctx && note->n_ctx <= MAX_CTX
               ? 0
               : tw_fail(err, TW_E_FORMAT,
                         "%s: its note has a vocabulary of %u tokens and a context of %u "
                         "positions, expected 1 to %u tokens and 1 to %u positions",
                         decoder->bundle.path, note->n_vocab, note->n_ctx, TW_MAX_VOCAB, MAX_CTX);
}

static int check_fit(const struct tw_device *device, const struct tw_decoder *decoder,
                     tw_error *err) {
    const struct tw_bundle_note *note = decoder->bundle.note;
    const struct tw_wire_identity *id = &device->identity;
    if (!decoder->verified) {
        return tw_fail(err, TW_E_VERIFY,
                       "%s: opened without verification (NO_RULES), so it cannot be deployed",
                       decoder->bundle.path);
    }
    if (note->abi_major != id->abi_major || note->abi_min_minor > id->abi_minor) {
        bool newer = note->abi_major > id->abi_major || note->abi_min_minor > id->abi_minor;
        return tw_fail(err, TW_E_VERSION, "%s: needs machine ABI %u.%u, device %s has %u.%u: %s",
                       decoder->bundle.path, note->abi_major, note->abi_min_minor, device->selector,
                       id->abi_major, id->abi_minor,
                       newer ? "upgrade the device's firmware" : "compile the bundle again");
    }
    int code = check_note(decoder, err);
    code = code ? code : check_target(device, decoder, err);
    if (code) {
        return code;
    }
    for (uint32_t i = 0; i < decoder->bundle.n_programs; i++) {
        const struct tw_program *p = &decoder->bundle.programs[i];
        if (p->n_chips > 1 && !(id->capabilities & TW_WIRE_CAN_LINK)) {
            return tw_fail(err, TW_E_UNSUPPORTED,
                           "%s: program %s spans %u chips, but device %s has no chip-to-chip links",
                           decoder->bundle.path, p->name, p->n_chips, device->selector);
        }
        code = check_needs(device, &decoder->bundle, p, err);
        if (code) {
            return code;
        }
    }
    return 0;
}

static int place_segments(struct tw_deployment *d, tw_error *err) {
    const struct tw_bundle *b = &d->decoder->bundle;
    for (uint32_t i = 0; i < b->n_segments; i++) {
        const struct tw_segment *s = &b->segments[i];
        if (s->kind != TW_SEG_PARAM || s->size == 0) {
            continue;
        }
        int code = tw_device_place(d->device, s->bytes, s->size, TW_PARAM_ALIGN,
                                   &d->segment_address[i], err);
        if (code) {
            return code;
        }
    }
    return tw_bundle_intact(b, err);
}

/* ---- state ---- */

/* A deployment has room for this many sequences of the whole context, but for no more positions
 * than that, nor more than half of the memory that is left holds. */
#define USUAL_SEQUENCES 16u
#define USUAL_POSITIONS 32768u

static uint32_t pages_of(uint64_t positions) {
    uint64_t pages = tw_state_pages(positions);
    return pages < TW_MAX_STATE_PAGES ? (uint32_t)pages : TW_MAX_STATE_PAGES;
}

static int usual_positions(const struct tw_deployment *d, uint64_t *out, tw_error *err) {
    struct tw_wire_counters now = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_COUNTERS, .out = &now, .out_bytes = sizeof now};
    int code = tw_device_call(d->device, &call, err);
    if (code) {
        return code;
    }
    uint64_t memory = d->device->identity.memory_bytes,
             left = memory > now.memory_used ? memory - now.memory_used : 0;
    uint64_t n_ctx = d->decoder->bundle.note->n_ctx, positions = n_ctx * USUAL_SEQUENCES;
    uint64_t page_bytes = d->pool.page_bytes + d->window_pool.page_bytes;
    uint64_t half = left / 2 / page_bytes * TW_KV_BLOCK;
    positions = positions < USUAL_POSITIONS ? positions : USUAL_POSITIONS;
    positions = positions < half ? positions : half;
    *out = positions ? positions : 1;
    return 0;
}

/* As many as the sequences need that the positions are enough for, in windows and in the chunks
 * that follow them. */
static uint32_t window_pages(const struct tw_deployment *d, uint64_t positions) {
    uint64_t n_ctx = d->decoder->bundle.note->n_ctx, sequences = (positions + n_ctx - 1) / n_ctx,
             each = pages_of(d->window_pool.window_ctx) + 2u;
    uint32_t all = pages_of(positions) + 1;
    return sequences * each < all ? (uint32_t)(sequences * each) : all;
}

/* A step's rows, or a greedy run's tokens, must fit behind the window that its first one sees. */
static int check_window(const struct tw_deployment *d, tw_error *err) {
    const struct tw_bundle *b = &d->decoder->bundle;
    const struct tw_state_pool *pool = &d->window_pool;
    uint32_t rows = TW_WIRE_MAX_TOKENS;
    for (uint32_t i = 0; i < b->n_programs; i++) {
        rows = b->programs[i].rows > rows ? b->programs[i].rows : rows;
    }
    uint64_t need = (uint64_t)pool->window + TW_KEY_SEGMENT + rows;
    return pool->n_tensors == 0 || (pool->window && pool->window_ctx >= need)
               ? 0
               : tw_fail(err, TW_E_FORMAT,
                         "%s: its windows of %u positions have room for %u, expected %llu", b->path,
                         pool->window, pool->window_ctx, (unsigned long long)need);
}

static int make_pool(struct tw_deployment *d, const struct tw_deploy_options *o, tw_error *err) {
    const struct tw_bundle *b = &d->decoder->bundle;
    int code = tw_state_pool_find(&d->pool, TW_PAGE_TABLE, d->device, b, err);
    code = code ? code : tw_state_pool_find(&d->window_pool, TW_WINDOW_TABLE, d->device, b, err);
    if (code || d->pool.n_tensors + d->window_pool.n_tensors == 0) {
        return code;
    }
    code = check_window(d, err);
    if (code) {
        return code;
    }
    uint64_t positions = o->state_positions;
    code = positions ? 0 : usual_positions(d, &positions, err);
    code = code ? code : tw_state_pool_open(&d->pool, pages_of(positions), err);
    code = code ? code : tw_state_pool_open(&d->window_pool, window_pages(d, positions), err);
    code = code ? code : tw_prefix_tree_create(&d->pool, &d->window_pool, &d->prefixes, err);
    tw_error_prefix(code ? err : NULL, d->decoder->bundle.path);
    return code;
}

#define USUAL_PREFIX_BYTES (UINT64_C(1) << 30)

static int open_prefixes(struct tw_deployment *d, const struct tw_deploy_options *o,
                         tw_error *err) {
    d->prefix_bytes = o->prefix_bytes ? o->prefix_bytes : USUAL_PREFIX_BYTES;
    if (!o->prefix_folder || !d->prefixes) {
        return 0;
    }
    d->prefix_folder = strdup(o->prefix_folder);
    return d->prefix_folder
               ? tw_private_folder(d->prefix_folder, true, err)
               : tw_fail(err, TW_E_NOMEM, "%s: out of memory", d->decoder->bundle.path);
}

/* ---- programs ---- */

/* Writes the blob of a program whose state is in the pool. */
static int make_blob(struct tw_deployment *d, uint32_t index, tw_error *err) {
    const struct tw_bundle *b = &d->decoder->bundle;
    struct tw_program p = b->programs[index];
    uint32_t bytes = tw_progblob_bytes(&p, true);
    if (bytes == 0) {
        return tw_fail(err, TW_E_RANGE, "%s: program %s is too large for a message", b->path,
                       p.name);
    }
    struct tw_tensor *tensors = malloc((p.n_tensors + 1u) * sizeof *tensors);
    d->blob[index] = aligned_alloc(PROGRAM_ALIGN, ((size_t)bytes + PROGRAM_ALIGN - 1) /
                                                      PROGRAM_ALIGN * PROGRAM_ALIGN);
    if (!tensors || !d->blob[index]) {
        free(tensors);
        return tw_fail(err, TW_E_NOMEM, "%s: no memory for program %s (%u bytes)", b->path, p.name,
                       bytes);
    }
    memcpy(tensors, p.tensors, p.n_tensors * sizeof *tensors);
    tw_state_pool_resize(&d->pool, tensors, p.n_tensors);
    tw_state_pool_resize(&d->window_pool, tensors, p.n_tensors);
    p.tensors = tensors;
    tw_progblob_write(&p, true, d->blob[index]);
    d->blob_bytes[index] = bytes;
    free(tensors);
    return 0;
}

static int place_programs(struct tw_deployment *d, tw_error *err) {
    for (uint32_t i = 0; i < d->decoder->bundle.n_programs; i++) {
        int code = make_blob(d, i, err);
        code = code ? code
                    : tw_device_place(d->device, d->blob[i], d->blob_bytes[i], PROGRAM_ALIGN,
                                      &d->blob_address[i], err);
        if (code) {
            return code;
        }
    }
    return 0;
}

static int place_certificates(struct tw_deployment *d, tw_error *err) {
    const struct tw_bundle *b = &d->decoder->bundle;
    if (!(d->device->identity.capabilities & TW_WIRE_CAN_VERIFY)) {
        return 0;
    }
    for (uint32_t i = 0; i < b->n_programs; i++) {
        const struct tw_certificate *c = &b->certificates[i];
        int code = tw_device_place(d->device, c->words, (uint64_t)c->n_words * 4, PROGRAM_ALIGN,
                                   &d->certificate_address[i], err);
        if (code) {
            return code;
        }
    }
    return 0;
}

uint32_t tw_deployment_load(const struct tw_deployment *d, uint32_t index, struct tw_wire_load *q) {
    const struct tw_certificate *c = &d->decoder->bundle.certificates[index];
    q->blob = d->blob_address[index];
    q->blob_bytes = d->blob_bytes[index];
    if (!(d->device->identity.capabilities & TW_WIRE_CAN_VERIFY)) {
        return TW_WIRE_LOAD_PLAIN_BYTES;
    }
    q->certificate = d->certificate_address[index];
    q->certificate_bytes = (uint64_t)c->n_words * 4;
    q->step_ops = c->step_ops;
    return sizeof *q;
}

static int make_tables(struct tw_deployment *d, tw_error *err) {
    const struct tw_bundle *b = &d->decoder->bundle;
    d->segment_address = calloc(b->n_segments + 1, sizeof *d->segment_address);
    d->blob_address = calloc(b->n_programs + 1, sizeof *d->blob_address);
    d->blob_bytes = calloc(b->n_programs + 1, sizeof *d->blob_bytes);
    d->blob = calloc(b->n_programs + 1, sizeof *d->blob);
    d->certificate_address = calloc(b->n_programs + 1, sizeof *d->certificate_address);
    if (!d->segment_address || !d->blob_address || !d->blob_bytes || !d->blob ||
        !d->certificate_address) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", b->path);
    }
    return 0;
}

int tw_deploy(tw_device *device, const tw_decoder *decoder, tw_deployment **out, tw_error *err) {
    return tw_deploy_with(device, decoder, NULL, out, err);
}

int tw_deploy_with(tw_device *device, const tw_decoder *decoder,
                   const struct tw_deploy_options *options, tw_deployment **out, tw_error *err) {
    struct tw_deploy_options o;
    int code = TW_NEED_3(err, device, decoder, out);
    code = code ? code : tw_sized_read(__func__, &o, sizeof o, options, err);
    code = code ? code : check_fit(device, decoder, err);
    if (code) {
        return code;
    }
    struct tw_deployment *d = calloc(1, sizeof *d);
    if (!d) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory", decoder->bundle.path);
    }
    d->device = device;
    d->resets = atomic_load(&device->resets);
    d->decoder = tw_decoder_retain(decoder);
    tw_device_retain(device);
    pthread_mutex_init(&d->lock, NULL);
    code = make_tables(d, err);
    code = code ? code : place_segments(d, err);
    code = code ? code : make_pool(d, &o, err);
    code = code ? code : open_prefixes(d, &o, err);
    code = code ? code : place_programs(d, err);
    code = code ? code : place_certificates(d, err);
    if (code) {
        tw_deployment_destroy(d);
        return code;
    }
    tw_status_set_bundle(&device->status, decoder->bundle.path);
    *out = d;
    return 0;
}

void tw_deployment_retain(struct tw_deployment *deployment) {
    atomic_fetch_add(&deployment->users, 1);
}

static void free_device_memory(struct tw_deployment *d) {
    const struct tw_bundle *b = &d->decoder->bundle;
    for (uint32_t i = 0; d->segment_address && i < b->n_segments; i++) {
        tw_device_free(d->device, d->segment_address[i]);
    }
    for (uint32_t i = 0; d->blob_address && i < b->n_programs; i++) {
        tw_device_free(d->device, d->blob_address[i]);
    }
    for (uint32_t i = 0; d->certificate_address && i < b->n_programs; i++) {
        tw_device_free(d->device, d->certificate_address[i]);
    }
}

void tw_deployment_destroy(tw_deployment *d) {
    if (!d || atomic_fetch_sub(&d->users, 1) != 0) {
        return;
    }
    /* After a reset the addresses may belong to another deployment. */
    bool on_device = !tw_device_check_reset(d->device, d->resets, NULL);
    if (on_device) {
        free_device_memory(d);
    }
    tw_prefix_tree_destroy(d->prefixes);
    tw_state_pool_close(&d->pool, on_device);
    tw_state_pool_close(&d->window_pool, on_device);
    pthread_mutex_destroy(&d->lock);
    for (uint32_t i = 0; d->blob && i < d->decoder->bundle.n_programs; i++) {
        free(d->blob[i]);
    }
    tw_decoder_close(d->decoder);
    tw_device_close(d->device);
    free(d->segment_address);
    free(d->blob_address);
    free(d->blob_bytes);
    free(d->certificate_address);
    free(d->blob);
    free(d->prefix_folder);
    free(d);
}
