/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory for any program (order_device.h): one block, a binding row after the other, with a
 * copy of its initial contents.
 */
#include "tests/support/order_device.h"
#include "tests/support/panel_layout.h"

#include "tests/support/random_model.h"
#include "tilewright/footprint.h"
#include "tilewright/opcode.h"
#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 1 << 16, ALIGN = 64 };
#define MAX_BYTES ((uint64_t)256 << 20)

/* ---- contents ---- */

static uint16_t small_half(uint64_t *s) {
    uint32_t r = (uint32_t)random_next(s);
    return (uint16_t)((r & 0x83FFu) | (9 + (r >> 16) % 3) << 10);
}

static void fill_bytes(uint8_t *at, uint64_t n, uint64_t *s) {
    for (uint64_t i = 0; i < n; i++) {
        at[i] = (uint8_t)random_next(s);
    }
}

static void fill_halves(uint8_t *at, uint64_t n, uint64_t *s) {
    for (uint64_t i = 0; i < n; i++) {
        uint16_t x = small_half(s);
        memcpy(at + i * 2, &x, 2);
    }
}

static void fill_floats(uint8_t *at, uint64_t n, uint64_t *s) {
    for (uint64_t i = 0; i < n; i++) {
        float x = (float)((double)(random_next(s) >> 40) / (1 << 23) - 1.0) * 0.5f;
        memcpy(at + i * 4, &x, 4);
    }
}

/* Bfloat16 numbers between 2^-6 and 2^-3. */
static void fill_bfloats(uint8_t *at, uint64_t n, uint64_t *s) {
    for (uint64_t i = 0; i < n; i++) {
        uint32_t r = (uint32_t)random_next(s);
        uint16_t x = (uint16_t)((r & 0x807Fu) | (121 + (r >> 16) % 3) << 7);
        memcpy(at + i * 2, &x, 2);
    }
}

/* The floats of a block as files have it. */
static void fill_row_floats(unsigned dtype, uint8_t *block, uint64_t *s) {
    switch (dtype) {
    case TW_DT_MXFP4:
        block[0] = 120;
        break;
    case TW_DT_Q2_K:
        fill_halves(block + 80, 2, s);
        break;
    case TW_DT_Q3_K:
        fill_halves(block + 108, 1, s);
        break;
    case TW_DT_Q6_K:
        fill_halves(block + 208, 1, s);
        break;
    default:
        fill_halves(block, panel_halves(dtype) / 16, s);
        break;
    }
}

static void fill_quants(const struct tw_tensor *t, uint8_t *at, uint64_t *s) {
    if (t->packing == TW_PACK_PANEL16) {
        uint64_t panel = tw_panel_bytes(t->dtype, t->cols);
        for (uint64_t p = 0; panel && (p + 1) * panel <= t->bytes; p++, at += panel) {
            fill_bytes(at, panel, s);
            for (uint32_t b = 0; b < t->cols / tw_dtype_block_elems(t->dtype); b++) {
                uint8_t *scales = at + panel_scales_at(t->dtype, b);
                fill_halves(scales, panel_halves(t->dtype), s);
                if (t->dtype == TW_DT_MXFP4) {
                    memset(scales, 120, 16);
                }
            }
        }
        return;
    }
    uint32_t block = tw_dtype_block_bytes(t->dtype);
    fill_bytes(at, t->bytes, s);
    for (uint64_t b = 0; (b + 1) * block <= t->bytes; b++) {
        fill_row_floats(t->dtype, at + b * block, s);
    }
}

static void fill_tensor(const struct tw_tensor *t, uint8_t *at, uint64_t seed) {
    uint64_t s = seed * 7919 + 1;
    if (t->role == TW_ROLE_STATE && t->init == TW_INIT_ZERO) {
        return;
    }
    switch (t->dtype) {
    case TW_DT_F32:
        fill_floats(at, t->bytes / 4, &s);
        break;
    case TW_DT_F16:
        fill_halves(at, t->bytes / 2, &s);
        break;
    case TW_DT_BF16:
        fill_bfloats(at, t->bytes / 2, &s);
        break;
    case TW_DT_U8:
        fill_bytes(at, t->bytes, &s);
        break;
    case TW_DT_I32: /* ids: 0 is a valid one */
        break;
    default:
        if (tw_block_type(t->dtype).bits) {
            fill_quants(t, at, &s);
        }
        break;
    }
}

/* ---- memory ---- */

static uint8_t *row_data(const struct order_device *d, const struct tw_tensor *t,
                         uint32_t instance) {
    return (uint8_t *)(uintptr_t)d->address[t->bind_first + instance];
}

static bool is_kept(const struct tw_tensor *t) {
    return t->role == TW_ROLE_OUTPUT || t->role == TW_ROLE_STATE;
}

static bool make_rows(struct order_device *d, uint64_t n) {
    d->n_rows = (uint32_t)n;
    d->address = calloc(n + 1, sizeof *d->address);
    d->bytes = calloc(n + 1, sizeof *d->bytes);
    return d->address && d->bytes;
}

/* Tensors that name one row share it; it is as large as the largest. False: one names a row that is
 * not there. */
static bool size_rows(struct order_device *d) {
    const struct tw_program *p = d->program;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        for (uint32_t i = 0; i < p->tensors[t].bind_count; i++) {
            uint64_t row = (uint64_t)p->tensors[t].bind_first + i;
            if (row >= d->n_rows) {
                return false;
            }
            d->bytes[row] =
                p->tensors[t].bytes > d->bytes[row] ? p->tensors[t].bytes : d->bytes[row];
            d->kept_bytes += is_kept(&p->tensors[t]) && p->tensors[t].bytes < MAX_BYTES
                                 ? p->tensors[t].bytes
                                 : 0;
        }
    }
    return true;
}

/* One row after the other. */
static bool place_apart(struct order_device *d, uint64_t *size) {
    for (uint32_t r = 0; r < d->n_rows; r++) {
        if (d->bytes[r] > MAX_BYTES || *size > MAX_BYTES) {
            return false;
        }
        d->address[r] = *size;
        *size += (d->bytes[r] + ALIGN - 1) / ALIGN * ALIGN;
    }
    return true;
}

/* One segment after the other. */
static bool place_at(struct order_device *d, const struct tw_bind_target *rows, uint64_t *size) {
    uint64_t end[4] = {0, 0, 0, 0};
    for (uint32_t r = 0; r < d->n_rows; r++) {
        uint64_t last = rows[r].offset + d->bytes[r];
        if (rows[r].segment > 2 || d->bytes[r] > MAX_BYTES || rows[r].offset > MAX_BYTES) {
            return false;
        }
        end[rows[r].segment + 1] =
            last > end[rows[r].segment + 1] ? last : end[rows[r].segment + 1];
    }
    for (uint32_t i = 1; i < 4; i++) {
        end[i] = end[i - 1] + (end[i] + ALIGN - 1) / ALIGN * ALIGN;
    }
    for (uint32_t r = 0; r < d->n_rows; r++) {
        d->address[r] = end[rows[r].segment] + rows[r].offset;
    }
    *size = end[3];
    return true;
}

static bool make_memory(struct order_device *d, uint64_t size) {
    const struct tw_program *p = d->program;
    d->size = (size_t)size + ALIGN;
    d->memory = aligned_alloc(ALIGN, d->size / ALIGN * ALIGN + ALIGN);
    d->initial = malloc(d->size);
    if (!d->memory || !d->initial) {
        return false;
    }
    memset(d->memory, 0, d->size);
    for (uint32_t r = 0; r < d->n_rows; r++) {
        d->address[r] += (uint64_t)(uintptr_t)d->memory;
    }
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        for (uint32_t i = 0; i < p->tensors[t].bind_count; i++) {
            fill_tensor(&p->tensors[t], row_data(d, &p->tensors[t], i), t * 1009u + i);
        }
    }
    memcpy(d->initial, d->memory, d->size);
    return true;
}

static uint64_t rows_of(const struct tw_program *p) {
    uint64_t n = 0;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        uint64_t end = (uint64_t)p->tensors[t].bind_first + p->tensors[t].bind_count;
        n = p->tensors[t].bind_count && end > n ? end : n;
    }
    return n;
}

bool order_device_open_at(struct order_device *d, const struct tw_program *p,
                          const struct tw_bind_target *rows, uint64_t n) {
    uint64_t size = 0;
    memset(d, 0, sizeof *d);
    d->program = p;
    d->placed = rows != NULL;
    n = rows ? n : rows_of(p);
    if (n > MAX_ROWS || !make_rows(d, n) || !size_rows(d) ||
        !(rows ? place_at(d, rows, &size) : place_apart(d, &size)) || !make_memory(d, size)) {
        order_device_close(d);
        return false;
    }
    return true;
}

bool order_device_open(struct order_device *d, const struct tw_program *p) {
    return order_device_open_at(d, p, NULL, 0);
}

void order_device_close(struct order_device *d) {
    free(d->address);
    free(d->bytes);
    free(d->memory);
    free(d->initial);
    free(d->arena);
    memset(d, 0, sizeof *d);
}

void order_device_rewind(struct order_device *d) {
    memcpy(d->memory, d->initial, d->size);
}

/* Finds the row that holds an address by binary search: rows are in ascending order. Placed rows
 * may lie in any order and over each other: all of memory is theirs. */
static void *map(void *ctx, uint64_t address, uint64_t size) {
    const struct order_device *d = ctx;
    if (d->placed) {
        uint64_t base = (uint64_t)(uintptr_t)d->memory;
        bool inside = address >= base && tw_range_ok(address - base, size, d->size);
        return inside ? (void *)(uintptr_t)address : NULL;
    }
    uint32_t from = 0, to = d->n_rows;
    while (to - from > 1) {
        uint32_t middle = from + (to - from) / 2;
        *(d->address[middle] <= address ? &from : &to) = middle;
    }
    bool ok = d->n_rows && address >= d->address[from] &&
              tw_range_ok(address - d->address[from], size, d->bytes[from]);
    return ok ? (void *)(uintptr_t)address : NULL;
}

struct tw_machine_config order_device_config(struct order_device *d) {
    return (struct tw_machine_config){.program = d->program,
                                      .bind = d->address,
                                      .n_bind = d->n_rows,
                                      .map = map,
                                      .ctx = d,
                                      .kernels = tw_kernel_table(TW_ISA_SCALAR)};
}

/* ---- steps ---- */

static uint32_t value_of(const char *name, const struct order_inputs *in, uint32_t i) {
    const char *prefix = strchr(name, '.'); /* of one of two models */
    name = prefix ? prefix + 1 : name;
    if (strcmp(name, "ids") == 0) {
        return (i * 7 + in->pos * 3 + 1) % (in->n_ids ? in->n_ids : 1);
    }
    if (strcmp(name, "pages") == 0) { /* other numbers in each run of a few steps, none twice */
        return (uint32_t)(i * 3 + in->draw % 5) % ORDER_PAGES;
    }
    return strcmp(name, "pos") == 0 ? in->pos : strcmp(name, "end") == 0 ? in->end : in->rows;
}

/* A value of an Input that all trips over it admit. */
static uint32_t drawn(const struct tw_program *p, uint32_t tensor, uint64_t draw) {
    uint64_t s = draw + tensor * 977u;
    int64_t least = 0, most = INT32_MAX, clamped = INT64_MIN;
    bool limited = false;
    for (uint32_t i = 0; i < p->n_trips; i++) {
        const struct tw_trip *t = &p->trips[i];
        int64_t reach = (int64_t)t->max * t->div - t->add;
        if (t->input == tensor && t->clamp) {
            clamped = reach > clamped ? reach : clamped;
        } else if (t->input == tensor) {
            least = least > -(int64_t)t->add ? least : -(int64_t)t->add;
            most = most < reach ? most : reach;
            limited = true;
        }
    }
    if (!limited && clamped != INT64_MIN) { /* below, within and above their ranges */
        least = random_below(&s, 4) ? -2 : INT32_MIN;
        most = clamped + 2 < INT32_MAX && random_below(&s, 4) ? clamped + 2 : INT32_MAX;
    }
    most = most < least ? least : most;
    switch (random_below(&s, 6)) {
    case 0:
        return (uint32_t)least;
    case 1:
        return (uint32_t)(least + (most > least));
    case 2:
        return (uint32_t)most;
    case 3:
        return (uint32_t)(most - (most > least));
    default:
        return (uint32_t)(least + (int64_t)(random_next(&s) % (uint64_t)(most - least + 1)));
    }
}

static bool is_drawn(const struct tw_program *p, uint32_t tensor, const struct order_inputs *in) {
    const char *name = tw_program_string(p, p->tensors[tensor].name);
    name = strchr(name, '.') ? strchr(name, '.') + 1 : name;
    return in->draw && strcmp(name, "ids") != 0 && strcmp(name, "pos") != 0 &&
           strcmp(name, "pages") != 0;
}

/* The same of row i of a batch. All rows are of one sequence: their rows of the table are equal. */
static uint32_t value_of_row(const struct tw_tensor *x, const char *name,
                             const struct order_inputs *in, uint32_t i) {
    bool used = i < in->rows;
    if (strcmp(name, "pages") == 0) {
        return value_of(name, in, i % x->cols);
    }
    return strcmp(name, "pos") == 0    ? in->pos + i
           : strcmp(name, "end") == 0  ? (used ? in->pos + i + 1 : 0)
           : strcmp(name, "rows") == 0 ? used
                                       : value_of(name, in, i);
}

void order_device_set(struct order_device *d, const struct order_inputs *in) {
    const struct tw_program *p = d->program;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        const struct tw_tensor *x = &p->tensors[t];
        for (uint32_t i = 0; x->role == TW_ROLE_INPUT && x->dtype == TW_DT_I32 && i < x->bytes / 4;
             i++) {
            uint32_t value = is_drawn(p, t, in) ? drawn(p, t, in->draw + i * UINT64_C(7919))
                             : x->rows > 1 ? value_of_row(x, tw_program_string(p, x->name), in, i)
                                           : value_of(tw_program_string(p, x->name), in, i);
            memcpy(row_data(d, x, 0) + (size_t)i * 4, &value, 4);
        }
    }
}

void order_device_keep(const struct order_device *d, uint8_t *to) {
    const struct tw_program *p = d->program;
    for (uint32_t t = 0; t < p->n_tensors; t++) {
        for (uint32_t i = 0; is_kept(&p->tensors[t]) && i < p->tensors[t].bind_count; i++) {
            memcpy(to, row_data(d, &p->tensors[t], i), (size_t)p->tensors[t].bytes);
            to += p->tensors[t].bytes;
        }
    }
}

static bool make_room(struct order_device *d, size_t bytes, size_t max_bytes) {
    if (bytes <= d->arena_bytes) {
        return true;
    }
    if (bytes > max_bytes) {
        return false;
    }
    free(d->arena);
    d->arena_bytes = (bytes + 4095) / 4096 * 4096;
    d->arena = aligned_alloc(ALIGN, d->arena_bytes);
    d->arena_bytes = d->arena ? d->arena_bytes : 0;
    return d->arena != NULL;
}

static int begin(struct order_device *d, struct tw_strict **machine, struct tw_fault *fault) {
    struct tw_machine_config config = order_device_config(d);
    struct tw_arena arena = {d->arena, d->arena_bytes, 0};
    int rc = tw_strict_init(&config, &arena, machine, fault);
    if (rc == TW_E_NOMEM && make_room(d, arena.used, (size_t)MAX_BYTES)) {
        arena = (struct tw_arena){d->arena, d->arena_bytes, 0};
        rc = tw_strict_init(&config, &arena, machine, fault);
    }
    return rc;
}

struct order_run order_device_run(struct order_device *d, const struct order_inputs *in, uint32_t n,
                                  enum tw_scheduler scheduler, uint64_t seed, uint8_t *kept) {
    struct order_run run;
    struct tw_strict *machine = NULL;
    memset(&run, 0, sizeof run);
    order_device_rewind(d);
    run.rc = begin(d, &machine, &run.fault);
    run.taken = run.rc == 0;
    while (run.rc == 0 && run.steps < n) {
        order_device_set(d, &in[run.steps]);
        run.rc = tw_strict_step(machine, scheduler,
                                seed + (scheduler == TW_SCHED_RANDOM ? run.steps : 0), &run.fault);
        if (kept) {
            order_device_keep(d, kept + run.steps * d->kept_bytes);
        }
        run.steps += run.rc == 0;
        run.ops = tw_strict_ops(machine);
    }
    return run;
}

int order_device_explore(struct order_device *d, const struct order_inputs *in,
                         struct tw_explore_options options, size_t max_bytes,
                         struct tw_explore_result *result, struct tw_fault *fault) {
    struct tw_machine_config config = order_device_config(d);
    struct tw_arena arena = {d->arena, d->arena_bytes, 0};
    int rc;
    order_device_rewind(d);
    order_device_set(d, in);
    while ((rc = tw_explore(&config, &arena, &options, result, fault)) == TW_E_NOMEM &&
           make_room(d, arena.used, max_bytes)) {
        arena = (struct tw_arena){d->arena, d->arena_bytes, 0};
    }
    return rc;
}

bool order_fault_is_input(const struct order_device *d, const struct tw_fault *fault) {
    const char *what = fault->what ? fault->what : "";
    bool cache = fault->opcode == TW_OP_KEY_WRITE || fault->opcode == TW_OP_VALUE_WRITE;
    return strcmp(what, "InputRange") == 0 || strcmp(what, "IdOutOfRange") == 0 ||
           strcmp(what, "PageOutOfRange") == 0 || strcmp(what, "PageShared") == 0 ||
           (cache && strcmp(what, "WriteOutOfRange") == 0 &&
            fault->object < d->program->n_tensors &&
            fault->need == d->program->tensors[fault->object].rows);
}
