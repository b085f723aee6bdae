/* SPDX-License-Identifier: Apache-2.0
 *
 * A session's programs: binds the inputs and the output by name, lays out the request for a step,
 * loads the program on the device.
 */
#include "driver/session/session.h"

#include "tilewright/opcode.h"

#include <stdio.h>
#include <stdlib.h>

static const struct tw_tensor *find_tensor(const struct tw_program *p, const char *name) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        if (strcmp(tw_program_string(p, p->tensors[i].name), name) == 0) {
            return &p->tensors[i];
        }
    }
    return NULL;
}

/* Finds a program "prefill" or "prefill.64": the name, or the name and a dot. Returns -1 if there
 * is none. */
static int find_program(const struct tw_bundle *b, const char *prefix) {
    size_t n = strlen(prefix);
    for (uint32_t i = 0; i < b->n_programs; i++) {
        const char *name = b->programs[i].name;
        if (strncmp(name, prefix, n) == 0 && (name[n] == 0 || name[n] == '.')) {
            return (int)i;
        }
    }
    return -1;
}

/* Finds an input or output and checks role, type and size (at least `bytes`), and that it has one
 * binding row. *address is 0 if the program does not have it. */
static int bind_tensor(const struct tw_session *s, const struct tw_program *p, const char *name,
                       enum tw_role role, enum tw_dtype dtype, uint64_t bytes, bool required,
                       uint64_t *address, tw_error *err) {
    const struct tw_bundle *b = &s->deployment->decoder->bundle;
    const struct tw_tensor *t = find_tensor(p, name);
    *address = 0;
    if (!t) {
        return required ? tw_fail(err, TW_E_FORMAT, "%s: program %s has no tensor \"%s\"", b->path,
                                  p->name, name)
                        : 0;
    }
    if (t->role != role || t->dtype != dtype || t->bytes < bytes || t->bind_count != 1 ||
        t->bind_first >= b->n_bind_rows) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: program %s: tensor \"%s\" of %llu bytes, expected an %s %s of at least "
                       "%llu",
                       b->path, p->name, name, (unsigned long long)t->bytes, tw_dtype_name(dtype),
                       role == TW_ROLE_INPUT ? "input" : "output", (unsigned long long)bytes);
    }
    *address = s->bind[t->bind_first];
    return 0;
}

static int lay_out_request(struct tw_session *s, struct session_program *out, uint32_t scheduler,
                           uint64_t seed, tw_error *err) {
    static const char *const name[IN_COUNT] = {"ids", "pos", "rows", "end"};
    const struct tw_program *p = out->program;
    struct tw_wire_input in[IN_COUNT];
    uint32_t which[IN_COUNT], number[IN_COUNT] = {TW_NONE, TW_NONE, TW_NONE, TW_NONE}, n = 0,
                              data = 0;
    for (uint32_t i = 0; i < IN_COUNT; i++) {
        uint32_t bytes = (i == IN_IDS ? p->rows : 1) * 4;
        uint64_t address;
        int code =
            bind_tensor(s, p, name[i], TW_ROLE_INPUT, TW_DT_I32, bytes, i <= IN_POS, &address, err);
        if (code) {
            return code;
        }
        if (address) {
            in[n] = (struct tw_wire_input){.address = address, .bytes = bytes};
            which[n] = i;
            number[i] = n++;
            data += bytes;
        }
    }
    struct tw_wire_run run = {.program = out->number,
                              .n_steps = 1,
                              .scheduler = (uint16_t)scheduler,
                              .n_inputs = n,
                              .seed = seed};
    uint32_t at = (uint32_t)(sizeof run + n * sizeof in[0]);
    uint32_t tail = (at + data + 7) / 8 * 8;
    out->request_bytes = at + data;
    out->stride = tail + (uint32_t)sizeof *out->greedy;
    out->request = calloc(TW_DEVICE_IN_FLIGHT, out->stride);
    if (!out->request) {
        return tw_fail(err, TW_E_NOMEM, "session: out of memory");
    }
    memcpy(out->request, &run, sizeof run);
    memcpy(out->request + sizeof run, in, n * sizeof in[0]);
    out->greedy = (struct tw_wire_greedy *)(void *)(out->request + tail);
    *out->greedy = (struct tw_wire_greedy){.logits = out->logits_address,
                                           .abort = s->interrupt_address,
                                           .n_vocab = s->n_vocab,
                                           .limit = s->n_ctx,
                                           .ids = number[IN_IDS],
                                           .pos = number[IN_POS],
                                           .end = number[IN_END]};
    memset(out->input, 0xFF, sizeof out->input); /* TW_NONE */
    for (uint32_t i = 0; i < n; i++) {
        out->input[which[i]] = at;
        at += in[i].bytes;
    }
    for (uint32_t i = 1; i < TW_DEVICE_IN_FLIGHT; i++) {
        memcpy(out->request + i * out->stride, out->request, out->stride);
    }
    return 0;
}

static int prepare(struct tw_session *s, uint32_t index, const struct tw_session_options *options,
                   struct session_program *out, tw_error *err) {
    const struct tw_deployment *d = s->deployment;
    struct tw_wire_load q = {.bind = s->bind_address,
                             .n_bind = d->decoder->bundle.n_bind_rows,
                             .mode = s->mode == TW_MODE_STRICT ? TW_WIRE_STRICT : TW_WIRE_FAST,
                             .n_threads = options->n_threads};
    struct tw_wire_loaded loaded = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_LOAD,
                                  .payload = &q,
                                  .bytes = tw_deployment_load(d, index, &q),
                                  .out = &loaded,
                                  .out_bytes = sizeof loaded};
    int code = tw_device_call(d->device, &call, err);
    if (code) {
        tw_error_prefix(err, out->program->name);
        return code;
    }
    out->number = loaded.program;
    out->loaded = true;
    s->n_threads = s->n_threads ? s->n_threads : loaded.n_threads; /* the first is decode */
    return 0;
}

/* Finds the lists of the best logits, which not every program has. */
static int bind_choice(const struct tw_session *s, struct session_program *p, tw_error *err) {
    const struct tw_tensor *t = find_tensor(p->program, "choice");
    uint64_t n = t ? t->bytes / sizeof(struct tw_top) : 0;
    p->n_choices = n <= UINT32_MAX ? (uint32_t)n : 0;
    p->choice_k = t ? t->cols / (uint32_t)sizeof(struct tw_top) : 0;
    return bind_tensor(s, p->program, "choice", TW_ROLE_OUTPUT, TW_DT_U8, sizeof(struct tw_top),
                       false, &p->choice_address, err);
}

int tw_session_load_program(struct tw_session *s, const char *prefix,
                            const struct session_output *output, struct session_program *out,
                            tw_error *err) {
    const struct tw_session_options *options = &s->options;
    const struct tw_bundle *b = &s->deployment->decoder->bundle;
    int index = find_program(b, prefix);
    if (index < 0) {
        return 0;
    }
    out->program = &b->programs[index];
    out->rows = out->program->rows;
    if (out->rows == 0 || out->rows > UINT32_MAX / 8) {
        return tw_fail(err, TW_E_FORMAT, "%s: program %s takes %u rows, expected 1 to %u", b->path,
                       out->program->name, out->rows, UINT32_MAX / 8);
    }
    const struct tw_tensor *t = find_tensor(out->program, output->name);
    out->logits_stride = t && output->all_rows ? (uint64_t)t->cols * 4 : (uint64_t)s->n_vocab * 4;
    if (out->logits_stride < (uint64_t)s->n_vocab * 4) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: program %s: tensor \"%s\" has %u columns, expected %u", b->path,
                       out->program->name, output->name, t->cols, s->n_vocab);
    }
    uint64_t bytes = out->logits_stride * (output->all_rows ? out->rows : 1);
    int code = bind_tensor(s, out->program, output->name, TW_ROLE_OUTPUT, TW_DT_F32, bytes, true,
                           &out->logits_address, err);
    code = code ? code : bind_choice(s, out, err);
    code = code ? code : prepare(s, (uint32_t)index, options, out, err);
    code =
        code ? code : lay_out_request(s, out, options->random_schedule ? 1 : 0, options->seed, err);
    if (!code) {
        out->logits_mapped = tw_device_map(s->deployment->device, out->logits_address, bytes);
    }
    return code;
}

/* Lists are worth it if they are shorter than the logits; a sampler also takes no more. */
static bool has_lists(const struct tw_session *s, const struct session_program *p, uint32_t top_k) {
    return !p->program || (p->n_choices > 0 && p->choice_k >= top_k && !p->logits_mapped &&
                           p->n_choices <= s->n_vocab / 2);
}

bool tw_session_use_lists(struct tw_session *s, uint32_t top_k) {
    if (top_k == 0 || !has_lists(s, &s->decode, top_k) || !has_lists(s, &s->prefill, top_k)) {
        return false;
    }
    uint32_t a = s->decode.n_choices, b = s->prefill.n_choices;
    s->lists = calloc(a > b ? a : b, sizeof *s->lists);
    return s->lists != NULL;
}

void tw_session_use_logits(struct tw_session *s) {
    free(s->lists);
    s->lists = NULL;
}

void tw_session_unload_program(struct tw_session *s, struct session_program *p) {
    if (p->loaded && !tw_session_check_reset(s, NULL)) {
        struct tw_device_call call = {.opcode = TW_WIRE_UNLOAD, .address = p->number};
        tw_device_call(s->deployment->device, &call, NULL);
    }
    free(p->request);
    memset(p, 0, sizeof *p);
}
