/* SPDX-License-Identifier: Apache-2.0
 *
 * An executor's programs: binds the inputs and the output by name, lays out the request for a step,
 * loads the program on the device.
 */
#include "driver/session/session.h"

#include "loader/base/assert.h"
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

int tw_session_find_program(const struct tw_bundle *b, const char *name) {
    size_t n = strlen(name);
    int found = -1;
    for (uint32_t i = b->n_programs; i-- > 0;) {
        const char *has = b->programs[i].name;
        if (strcmp(has, name) == 0) {
            return (int)i;
        }
        found = strncmp(has, name, n) == 0 && has[n] == '.' ? (int)i : found;
    }
    return found;
}

/* Finds an input or output and checks role, type and size (at least `bytes`), and that it has one
 * binding row. *address is 0 if the program does not have it. */
static int bind_tensor(const struct tw_executor *x, const struct tw_program *p, const char *name,
                       enum tw_role role, enum tw_dtype dtype, uint64_t bytes, bool required,
                       uint64_t *address, tw_error *err) {
    const struct tw_bundle *b = &x->deployment->decoder->bundle;
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
    *address = x->bind[t->bind_first];
    return 0;
}

/* Returns how many words an input of a step has. */
static uint32_t input_words(const struct session_program *p, uint32_t input) {
    return input == IN_IDS            ? p->rows
           : input == IN_WINDOW_PAGES ? p->lanes * p->window_slots
                                      : p->lanes;
}

static int lay_out_request(struct tw_executor *x, struct session_program *out, tw_error *err) {
    static const char *const name[IN_COUNT] = {"ids",        "pos",        "rows",         "end",
                                               "pos.window", "end.window", TW_WINDOW_TABLE};
    const struct tw_program *p = out->program;
    struct tw_wire_input in[IN_COUNT];
    uint32_t which[IN_COUNT], number[IN_COUNT], n = 0, data = 0;
    for (uint32_t i = 0; i < IN_COUNT; i++) {
        uint32_t bytes = input_words(out, i) * 4;
        uint64_t address;
        int code =
            bind_tensor(x, p, name[i], TW_ROLE_INPUT, TW_DT_I32, bytes, i <= IN_POS, &address, err);
        if (code) {
            return code;
        }
        number[i] = TW_NONE;
        if (address) {
            bool counts = i == IN_WINDOW_POS || i == IN_WINDOW_END;
            in[n] = (struct tw_wire_input){
                .address = address, .bytes = bytes, .flags = counts ? TW_WIRE_INPUT_COUNTS : 0};
            which[n] = i;
            number[i] = n++;
            data += bytes;
        }
    }
    struct tw_wire_run run = {.program = out->number, .n_steps = 1, .n_inputs = n};
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

static int load(struct tw_executor *x, struct session_program *p, tw_error *err) {
    const struct tw_deployment *d = x->deployment;
    struct tw_wire_load q = {.bind = x->bind_address,
                             .n_bind = d->decoder->bundle.n_bind_rows,
                             .mode = x->mode == TW_MODE_STRICT ? TW_WIRE_STRICT : TW_WIRE_FAST,
                             .n_threads = x->wanted_threads};
    struct tw_wire_loaded loaded = {0};
    struct tw_device_call call = {.opcode = TW_WIRE_LOAD,
                                  .payload = &q,
                                  .bytes = tw_deployment_load(d, p->index, &q),
                                  .out = &loaded,
                                  .out_bytes = sizeof loaded};
    int code = tw_device_call(d->device, &call, err);
    if (code) {
        tw_error_prefix(err, p->program->name);
        return code;
    }
    p->number = loaded.program;
    p->loaded = true;
    if (x->n_threads == 0) { /* of decode, before a session has the executor */
        x->n_threads = loaded.n_threads;
    }
    return 0;
}

static void unload(struct tw_executor *x, struct session_program *p) {
    const struct tw_deployment *d = x->deployment;
    if (p->loaded && !tw_device_check_reset(d->device, d->resets, NULL)) {
        struct tw_device_call call = {.opcode = TW_WIRE_UNLOAD, .address = p->number};
        tw_device_call(d->device, &call, NULL);
    }
    p->loaded = false;
}

static void set_number(struct session_program *p) {
    for (uint32_t i = 0; i < TW_DEVICE_IN_FLIGHT; i++) {
        ((struct tw_wire_run *)(void *)(p->request + (size_t)i * p->stride))->program = p->number;
    }
}

int tw_executor_mend(struct tw_executor *x, struct session_program *p, tw_error *err) {
    if (!p->broken) {
        return 0;
    }
    unload(x, p);
    int code = load(x, p, err);
    if (!code) {
        p->broken = false;
        set_number(p);
    }
    return code;
}

/* Finds the lists of the best logits, which not every program has. */
static int bind_choice(const struct tw_executor *x, struct session_program *p, tw_error *err) {
    const struct tw_tensor *t = find_tensor(p->program, "choice");
    uint64_t n = t ? t->bytes / sizeof(struct tw_top) : 0;
    p->n_choices = n <= UINT32_MAX ? (uint32_t)n : 0;
    p->choice_k = t ? t->cols / (uint32_t)sizeof(struct tw_top) : 0;
    return bind_tensor(x, p->program, "choice", TW_ROLE_OUTPUT, TW_DT_U8, sizeof(struct tw_top),
                       false, &p->choice_address, err);
}

/* Returns the executor's table at that address; it has room for those of all programs. */
static struct page_table *table_at(struct tw_executor *x, uint64_t address) {
    uint32_t i = 0;
    while (i < x->n_tables && x->table[i].address != address) {
        i++;
    }
    TW_ASSERT(i < sizeof x->table / sizeof x->table[0]);
    if (i == x->n_tables) {
        x->table[i] = (struct page_table){.address = address};
        x->n_tables++;
    }
    return &x->table[i];
}

/* Finds the page tables, each of which must have an entry for every page of the bundle's context,
 * as those of windows must for all of theirs: a row for each lane. */
static int bind_tables(struct tw_executor *x, struct session_program *p, tw_error *err) {
    const struct tw_state_pool *window = &x->deployment->window_pool;
    const struct tw_tensor *all = find_tensor(p->program, TW_PAGE_TABLE),
                           *last = find_tensor(p->program, TW_WINDOW_TABLE);
    uint64_t slots = tw_state_pages(x->deployment->decoder->bundle.note->n_ctx), address = 0;
    p->window_slots = (uint32_t)tw_state_pages(window->window_ctx);
    if (p->lanes > 1) {
        slots = all && all->cols > slots ? all->cols : slots;
        p->window_slots = last && last->cols > p->window_slots ? last->cols : p->window_slots;
    }
    if (x->deployment->pool.n_tensors == 0) {
        return 0;
    }
    int code = bind_tensor(x, p->program, TW_PAGE_TABLE, TW_ROLE_INPUT, TW_DT_I32,
                           p->lanes * slots * 4, false, &address, err);
    for (uint32_t i = 0; i < p->lanes && address && !code; i++) {
        p->table[i] = table_at(x, address + i * slots * 4);
    }
    return code;
}

/* Finds the logits. */
static int bind_output(const struct tw_executor *x, struct session_program *p,
                       const struct session_output *output, uint64_t *bytes, tw_error *err) {
    const struct tw_bundle *b = &x->deployment->decoder->bundle;
    const struct tw_tensor *t = find_tensor(p->program, output->name);
    uint64_t row = (uint64_t)b->note->n_vocab * 4;
    p->logits_stride = t && output->all_rows ? (uint64_t)t->cols * 4 : row;
    if (p->logits_stride < row) {
        return tw_fail(err, TW_E_FORMAT,
                       "%s: program %s: tensor \"%s\" has %u columns, expected %u", b->path,
                       p->program->name, output->name, t->cols, b->note->n_vocab);
    }
    *bytes = p->logits_stride * (output->all_rows ? p->rows : 1);
    return bind_tensor(x, p->program, output->name, TW_ROLE_OUTPUT, TW_DT_F32, *bytes, true,
                       &p->logits_address, err);
}

static int prepare(struct tw_executor *x, const struct session_output *output,
                   struct session_program *out, tw_error *err) {
    const struct tw_bundle *b = &x->deployment->decoder->bundle;
    uint64_t bytes = 0;
    out->rows = out->program->rows;
    out->lanes = output->lanes ? out->rows : 1;
    if (out->lanes > TW_BATCH_MAX) {
        return tw_fail(err, TW_E_FORMAT, "%s: program %s takes %u sequences, expected at most %u",
                       b->path, out->program->name, out->lanes, TW_BATCH_MAX);
    }
    if (out->rows == 0 || out->rows > UINT32_MAX / 8) {
        return tw_fail(err, TW_E_FORMAT, "%s: program %s takes %u rows, expected 1 to %u", b->path,
                       out->program->name, out->rows, UINT32_MAX / 8);
    }
    int code = bind_output(x, out, output, &bytes, err);
    code = code ? code : bind_choice(x, out, err);
    code = code ? code : bind_tables(x, out, err);
    code = code ? code : load(x, out, err);
    code = code ? code : lay_out_request(x, out, err);
    if (!code) {
        out->logits_mapped = tw_device_map(x->deployment->device, out->logits_address, bytes);
    }
    return code;
}

int tw_session_load_program(struct tw_executor *x, const char *name,
                            const struct session_output *output, struct session_program *out,
                            tw_error *err) {
    const struct tw_bundle *b = &x->deployment->decoder->bundle;
    int index = out->program ? -1 : tw_session_find_program(b, name);
    if (index < 0) {
        return 0;
    }
    out->index = (uint32_t)index;
    out->program = &b->programs[index];
    int code = prepare(x, output, out, err);
    if (code) {
        tw_session_unload_program(x, out);
    }
    return code;
}

/* Lists are worth it if they are shorter than the logits; a sampler also takes no more. */
static bool has_lists(const struct tw_session *s, const struct session_program *p, uint32_t top_k) {
    return !p->program || (p->n_choices > 0 && p->choice_k >= top_k && !p->logits_mapped &&
                           p->n_choices <= s->n_vocab / 2);
}

bool tw_session_use_lists(struct tw_session *s, uint32_t top_k) {
    struct tw_executor *x = s->executor;
    pthread_mutex_lock(&x->lock);
    bool has = top_k && has_lists(s, &x->decode, top_k) && has_lists(s, &x->prefill, top_k);
    uint32_t a = x->decode.n_choices, b = x->prefill.n_choices;
    pthread_mutex_unlock(&x->lock);
    if (!has) {
        return false;
    }
    s->lists = calloc(a > b ? a : b, sizeof *s->lists);
    return s->lists != NULL;
}

void tw_session_use_logits(struct tw_session *s) {
    free(s->lists);
    s->lists = NULL;
}

void tw_session_unload_program(struct tw_executor *x, struct session_program *p) {
    unload(x, p);
    free(p->request);
    memset(p, 0, sizeof *p);
}
