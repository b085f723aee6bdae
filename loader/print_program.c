/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a program's tables, one record a line, and drives the printing of its streams. A line is built in one buffer and
 * handed to the caller's function. */
#include "loader/print_internal.h"

#include <stdarg.h>
#include <string.h>

void tw_print_text(struct tw_printer *p, const char *format, ...) {
    size_t room = sizeof p->text - 1 - p->used; /* one byte stays for the newline */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(p->text + p->used, room, format, args);
    va_end(args);
    if (n > 0) {
        p->used += (size_t)n < room ? (size_t)n : room - 1;
    }
}

/* Bytes of a file's string that could end the line or the name are shown as '?'. */
void tw_print_name(struct tw_printer *p, uint32_t name, char kind, uint32_t id) {
    uint32_t limit = p->program->strings ? p->program->strings_bytes : 0;
    const char *s = p->program->strings;
    if (name >= limit || s[name] == 0) {
        tw_print_text(p, "%c%u", kind, id);
        return;
    }
    for (uint32_t i = name; i < limit && s[i] != 0 && i - name < 100; i++) {
        unsigned char c = (unsigned char)s[i];
        tw_print_text(p, "%c", c <= 0x20 || c == 0x7F ? '?' : c);
    }
}

void tw_print_end(struct tw_printer *p) {
    p->text[p->used++] = '\n';
    if (p->rc == 0) {
        p->rc = p->line(p->ctx, p->text, p->used);
    }
    p->used = 0;
}

static const char *one_of(uint32_t value, const char *const *names, uint32_t n) {
    return value < n ? names[value] : "?";
}

static void print_tensors(struct tw_printer *p) {
    static const char *const role[] = {"input", "param", "output", "state", "activation"};
    static const char *const packing[] = {"row", "panel16", "keys", "values"};
    static const char *const init[] = {"none", "zero", "blob"};
    for (uint32_t i = 0; i < p->program->n_tensors; i++) {
        const struct tw_tensor *t = &p->program->tensors[i];
        tw_print_text(p, "tensor %u ", i);
        tw_print_name(p, t->name, 't', i);
        tw_print_text(p, " %s %s[%u, %u] %s bytes=%llu", one_of(t->role, role, 5), tw_dtype_name(t->dtype), t->rows,
                      t->cols, one_of(t->packing, packing, 4), (unsigned long long)t->bytes);
        if (t->head_dim) {
            tw_print_text(p, " head_dim=%u", t->head_dim);
        }
        tw_print_text(p, " bind=%u+%u init=%s", t->bind_first, t->bind_count, one_of(t->init, init, 3));
        tw_print_end(p);
    }
}

static void print_buffers(struct tw_printer *p) {
    static const char *const kind[] = {"fifo", "resident", "scratch"};
    for (uint32_t i = 0; i < p->program->n_buffers; i++) {
        const struct tw_buffer *b = &p->program->buffers[i];
        tw_print_text(p, "buffer %u ", i);
        tw_print_name(p, b->name, 'b', i);
        tw_print_text(p, " site %u %s %s %u x %llu at %llu", b->site, one_of(b->kind, kind, 3), tw_dtype_name(b->dtype),
                      b->pages, (unsigned long long)b->page_bytes, (unsigned long long)b->offset);
        if (b->kind == TW_BUF_FIFO) {
            tw_print_text(p, " %s -> %s", tw_engine_name(b->producer), tw_engine_name(b->consumer));
        }
        if (b->mem_class) {
            tw_print_text(p, " class=%u", b->mem_class);
        }
        if (b->sibling_base != TW_NONE) {
            tw_print_text(p, " siblings=%u", b->sibling_base);
        }
        if (b->tensor < p->program->n_tensors) {
            tw_print_text(p, " of ");
            tw_print_name(p, p->program->tensors[b->tensor].name, 't', b->tensor);
        }
        tw_print_end(p);
    }
}

static void print_groups(struct tw_printer *p) {
    for (uint32_t i = 0; i < p->program->n_groups; i++) {
        const struct tw_group *g = &p->program->groups[i];
        tw_print_text(p, "group %u chip %u x=%u..%u y=%u..%u network=%u", i, g->chip, g->x0, g->x1, g->y0, g->y1,
                      g->network);
        tw_print_end(p);
    }
}

static void print_semaphores(struct tw_printer *p) {
    static const char *const role[] = {"ready", "valid", "gather", "release"};
    for (uint32_t i = 0; i < p->program->n_semaphores; i++) {
        const struct tw_semaphore *s = &p->program->semaphores[i];
        tw_print_text(p, "semaphore %u ", i);
        tw_print_name(p, s->name, 's', i);
        tw_print_text(p, " %s group=%u initial=%u", one_of(s->role, role, 4), s->group, s->initial);
        tw_print_end(p);
    }
}

static void print_trips(struct tw_printer *p) {
    for (uint32_t i = 0; i < p->program->n_trips; i++) {
        const struct tw_trip *t = &p->program->trips[i];
        tw_print_text(p, "trip %u ", i);
        tw_print_name(p, t->name, 'n', i);
        tw_print_text(p, " = (");
        tw_print_name(p, t->input < p->program->n_tensors ? p->program->tensors[t->input].name : TW_NONE, 't',
                      t->input);
        tw_print_text(p, " + %u) / %u, max %u", t->add, t->div, t->max);
        tw_print_end(p);
    }
}

static void print_id(struct tw_printer *p, const char *label, uint32_t id) {
    if (id == TW_NONE) {
        tw_print_text(p, " %s=-", label);
    } else {
        tw_print_text(p, " %s=%u", label, id);
    }
}

static void print_spans(struct tw_printer *p) {
    for (uint32_t i = 0; i < p->program->n_spans; i++) {
        const struct tw_span *s = &p->program->spans[i];
        tw_print_text(p, "section %u ", i);
        tw_print_name(p, s->name, 'c', i);
        tw_print_text(p, " repeat=%u buffers=%u+%u semaphores=%u+%u stages=%u+%u edges=%u+%u", s->repeat,
                      s->first_buffer, s->n_buffers, s->first_semaphore, s->n_semaphores, s->first_stage, s->n_stages,
                      s->first_edge, s->n_edges);
        print_id(p, "local", s->local);
        print_id(p, "gather", s->gather);
        print_id(p, "release", s->release);
        tw_print_end(p);
    }
}

static void print_stages(struct tw_printer *p) {
    static const char *const kind[] = {"load", "store", "recv", "compute", "sync"};
    static const char *const handshake[] = {"credit", "semaphore", "barrier"};
    for (uint32_t i = 0; i < p->program->n_stages; i++) {
        const struct tw_stage *s = &p->program->stages[i];
        tw_print_text(p, "stage %u %s site %u %s section %u ", i, one_of(s->kind, kind, 5), s->site,
                      tw_engine_name(s->engine), s->section);
        tw_print_name(p, s->origin, 'o', i);
        tw_print_text(p, " cols=%u+%u k=%u", s->first_col, s->n_cols, s->k);
        tw_print_end(p);
    }
    for (uint32_t i = 0; i < p->program->n_edges; i++) {
        const struct tw_edge *e = &p->program->edges[i];
        tw_print_text(p, "edge %u stage %u -> %u buffer=%u %s", i, e->from, e->to, e->buffer,
                      one_of(e->handshake, handshake, 3));
        if (e->semaphore != TW_NONE) {
            tw_print_text(p, " semaphore=%u count=%u", e->semaphore, e->count);
        }
        tw_print_end(p);
    }
}

static void print_head(struct tw_printer *p) {
    const struct tw_program *g = p->program;
    tw_print_text(p, "program %s rows=%u sites=%u mesh=%ux%u chips=%u sram=%llu", g->name ? g->name : "?", g->rows,
                  g->n_sites, g->mesh_width, g->mesh_height, g->n_chips, (unsigned long long)g->sram_bytes);
    tw_print_end(p);
}

int tw_program_print(const struct tw_program *program, unsigned what, tw_program_line *line, void *ctx) {
    struct tw_printer p;
    p.program = program;
    p.line = line;
    p.ctx = ctx;
    p.rc = 0;
    p.used = 0;
    print_head(&p);
    if (what & TW_PRINT_TABLES) {
        print_tensors(&p);
        print_buffers(&p);
        print_groups(&p);
        print_semaphores(&p);
        print_trips(&p);
        print_spans(&p);
        print_stages(&p);
    }
    if (what & TW_PRINT_STREAMS) {
        tw_print_streams(&p);
    }
    return p.rc;
}

static int write_line(void *ctx, const char *line, size_t bytes) {
    return fwrite(line, 1, bytes, (FILE *)ctx) == bytes ? 0 : TW_E_IO;
}

int tw_program_print_file(const struct tw_program *program, unsigned what, FILE *file, tw_error *err) {
    int rc = tw_program_print(program, what, write_line, file);
    if (rc || fflush(file) != 0) {
        return tw_fail(err, TW_E_IO, "the text of program %s could not be written",
                       program->name ? program->name : "?");
    }
    return 0;
}
