/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes attack_bundles.h: programs are changed in memory, certified by the compiler's own search
 * and written by the compiler's own writer; what two symbols name is changed in the file.
 */
#include "tests/support/attack_bundles.h"

#include "compiler/emit/bundle_write.h"
#include "compiler/spatial/certify.h"
#include "loader/bundle/bindings.h"
#include "loader/bundle/bundle_parts.h"
#include "tests/support/bundle_fixture.h"
#include "tests/support/model_bundle.h"
#include "tilewright/opcode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDLESS 0x7FFFFFFFu

/* A program of the bundle that is being changed, and what was added to it. */
struct edit {
    struct tw_bundle bundle;
    struct tw_trip trips[16];
    struct tw_stream streams[64];
    uint32_t words[1 << 14];
};

static void require(int ok, const char *what, const tw_error *err) {
    if (!ok) {
        fprintf(stderr, "attack bundles: %s: %s\n", what, err ? err->message : "");
        abort();
    }
}

/* ---- programs ---- */

static struct tw_operand count(uint32_t trip, uint32_t max) {
    struct tw_operand o = {.kind = 'C', .id = trip, .max = max};
    return o;
}

static uint32_t put(uint32_t *to, uint32_t stage, uint32_t code,
                    const struct tw_operand *operands) {
    struct tw_op op = {.code = code, .stage = stage};
    const char *kinds = tw_op_info(code).operands;
    op.n_operands = (uint32_t)strlen(kinds);
    for (uint32_t i = 0; i < op.n_operands; i++) {
        op.operand[i] = operands[i];
        op.operand[i].kind = kinds[i];
    }
    return tw_op_encode(&op, to);
}

/* Puts a loop around decode's rope_table on site 0. A loop over a trip has the id 1, lower than
 * those of the compiler. */
static void loop_around_rope(struct edit *e, uint32_t trip, uint32_t max) {
    struct tw_program *p = &e->bundle.programs[0];
    const struct tw_stream *s = &p->streams[TW_ENGINE_MATH];
    struct tw_op op = {.code = 0};
    uint32_t at = 0, n;
    while (require(tw_op_decode(s->words, s->n_words, at, &op), "no rope_table", NULL),
           op.code != TW_OP_ROPE_TABLE) {
        at += op.n_words;
    }
    const struct tw_operand loop[] = {
        {.id = 1}, count(trip, max), {.id = trip == TW_NONE ? TW_NONE : 1}};
    memcpy(e->words, s->words, at * 4u);
    n = at + put(e->words + at, op.stage, TW_OP_LOOP, loop);
    memcpy(e->words + n, s->words + at, op.n_words * 4u);
    n += op.n_words;
    n += put(e->words + n, op.stage, TW_OP_END, NULL);
    memcpy(e->words + n, s->words + at + op.n_words, (s->n_words - at - op.n_words) * 4u);
    n += s->n_words - at - op.n_words;
    memcpy(e->streams, p->streams, p->n_sites * TW_ENGINE_COUNT * sizeof *p->streams);
    e->streams[TW_ENGINE_MATH].words = e->words;
    e->streams[TW_ENGINE_MATH].n_words = n;
    p->streams = e->streams;
}

static struct tw_trip *own_trips(struct edit *e, struct tw_program *p) {
    memcpy(e->trips, p->trips, p->n_trips * sizeof *p->trips);
    p->trips = e->trips;
    return e->trips;
}

static void loop_over_a_long_trip(struct edit *e) {
    struct tw_program *p = &e->bundle.programs[0];
    struct tw_trip *trips = own_trips(e, p); /* trip 0 is the position */
    trips[p->n_trips] = trips[0];
    trips[p->n_trips].add = 2000000000;
    trips[p->n_trips].max = ENDLESS;
    loop_around_rope(e, p->n_trips++, ENDLESS);
}

static void loop_of_2_31(struct edit *e) {
    loop_around_rope(e, TW_NONE, ENDLESS);
}

static void loop_of_100000(struct edit *e) {
    loop_around_rope(e, TW_NONE, 100000);
}

static uint32_t input_of(const struct tw_program *p, const char *name) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        if (strcmp(p->strings + p->tensors[i].name, name) == 0) {
            return i;
        }
    }
    require(0, name, NULL);
    return 0;
}

/* A prefill's number of rows is its position: none at 0, where LAST_ROW then writes nothing. */
static void rows_of_position(struct edit *e) {
    struct tw_program *p = &e->bundle.programs[1];
    own_trips(e, p)[0].input = input_of(p, "pos");
}

/* ---- writing a changed bundle ---- */

static int copy_weights(void *ctx, const struct tw_emit_symbol *symbol, uint64_t offset,
                        uint64_t size, uint8_t *dst, tw_error *err) {
    (void)ctx;
    (void)err;
    memcpy(dst, (const uint8_t *)symbol->source + offset, size);
    return 0;
}

static struct tw_emit_symbol *symbols_of(const struct tw_bundle *b) {
    struct tw_emit_symbol *to = calloc(b->n_symbols, sizeof *to);
    require(to != NULL, "no memory", NULL);
    for (uint32_t i = 0; i < b->n_symbols; i++) {
        const struct tw_symbol *s = &b->symbols[i];
        const struct tw_segment *g = &b->segments[s->segment];
        to[i] = (struct tw_emit_symbol){.name = s->name,
                                        .role = s->role,
                                        .dtype = s->dtype,
                                        .bank = g->bank,
                                        .bytes = s->size,
                                        .source = g->bytes ? g->bytes + s->offset : NULL};
    }
    return to;
}

static uint32_t *rows_of(const struct tw_bundle *b) {
    uint32_t *to = calloc(b->n_bind_rows, sizeof *to);
    require(to != NULL, "no memory", NULL);
    for (uint64_t r = 0; r < b->n_bind_rows; r++) {
        const struct tw_bind_target *row = &b->bind[r];
        uint32_t i = 0;
        while (b->symbols[i].segment != row->segment || b->symbols[i].offset != row->offset) {
            require(++i < b->n_symbols, "a row of no symbol", NULL);
        }
        to[r] = i;
    }
    return to;
}

static void write_bundle(const struct tw_bundle *b, const char *path) {
    struct tw_certificate certificates[4];
    struct tw_cmem mem = {0};
    tw_error err = {0};
    require(b->n_programs <= 4 && tw_cmem_init(&mem, &err) == 0, "arena", &err);
    for (uint32_t i = 0; i < b->n_programs; i++) {
        require(tw_certify(&mem, &b->programs[i], &certificates[i], &err) == 0, "certify", &err);
    }
    struct tw_emit_spec spec = {.note = *b->note,
                                .n_programs = b->n_programs,
                                .programs = b->programs,
                                .n_symbols = b->n_symbols,
                                .symbols = symbols_of(b),
                                .n_bind_rows = b->n_bind_rows,
                                .bind_symbol = rows_of(b),
                                .vocab = b->vocab,
                                .vocab_bytes = b->vocab_bytes,
                                .fill = copy_weights};
    spec.certificate = tw_certificate_pack(&mem, b->programs, certificates, b->n_programs,
                                           &spec.certificate_bytes);
    require(tw_bundle_write(path, &spec, &err) == 0, "write", &err);
    free((void *)(uintptr_t)spec.symbols);
    free((void *)(uintptr_t)spec.bind_symbol);
    tw_cmem_finish(&mem);
}

static void write_changed(const char *target, void (*change)(struct edit *e), const char *path) {
    static struct edit e;
    tw_error err = {0};
    require(tw_bundle_open(model_bundle(target), 0, &e.bundle, &err) == 0, "open", &err);
    change(&e);
    write_bundle(&e.bundle, path);
    tw_bundle_close(&e.bundle);
}

/* ---- two symbols over each other ---- */

static Elf64_Sym *symbol_named(uint8_t *file, const char *name) {
    const Elf64_Ehdr *h = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + h->e_shoff);
    for (uint32_t i = 0; i < h->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        const char *names = (const char *)file + sections[s->sh_link].sh_offset;
        Elf64_Sym *symbols = (void *)(file + s->sh_offset);
        for (uint64_t k = 0; s->sh_type == SHT_SYMTAB && k < s->sh_size / sizeof *symbols; k++) {
            if (strcmp(names + symbols[k].st_name, name) == 0) {
                return &symbols[k];
            }
        }
    }
    return NULL;
}

static void seal_bindings(uint8_t *file, size_t size, const char *path) {
    struct tw_bundle b;
    tw_error err = {0};
    uint64_t bytes;
    bundle_fixture_seal(file, size);
    require(tw_bundle_open_memory(path, file, size, TW_BUNDLE_NO_RULES, &b, &err) == 0, "reopen",
            &err);
    const uint8_t *certificate = tw_elf_content(&tw_owner(&b)->elf, TW_SEC_CERT, &bytes);
    tw_bindings_hash(b.bind, b.n_bind_rows,
                     (uint8_t *)(uintptr_t)certificate +
                         offsetof(struct tw_cert_header, bindings_hash));
    tw_bundle_close(&b);
    bundle_fixture_seal(file, size);
}

/* Moves a symbol onto another, `offset` bytes from its beginning. Returns false if there is no such
 * symbol. */
static bool move_symbol(uint8_t *file, const char *name, const char *onto, uint64_t offset) {
    Elf64_Sym *a = symbol_named(file, name), *b = symbol_named(file, onto);
    if (a && b) {
        a->st_value = b->st_value + offset;
    }
    return a && b;
}

/* Every layer's values lie over its keys, one head further: heads of different sites share
 * bytes. */
static void move_values(uint8_t *file) {
    char name[64], onto[64];
    uint32_t layer = 0;
    do {
        snprintf(name, sizeof name, "blk.%u.attn.value", layer);
        snprintf(onto, sizeof onto, "blk.%u.attn.key", layer);
    } while (++layer && move_symbol(file, name, onto, symbol_named(file, onto) ? 32 * 640 * 4 : 0));
    require(layer > 1, "no attn.key", NULL);
}

/* The host checks ids before a step, and the step writes logits over them. */
static void move_logits(uint8_t *file) {
    require(move_symbol(file, "logits", "ids", 0), "no logits", NULL);
}

static void write_moved(const char *target, void (*move)(uint8_t *file), const char *path) {
    size_t size;
    uint8_t *file = bundle_fixture_read(model_bundle(target), &size);
    require(file != NULL, target, NULL);
    move(file);
    seal_bindings(file, size, path);
    require(bundle_fixture_save(path, file, size) == 0, path, NULL);
    free(file);
}

/* ---- the attacks ---- */

#define APART "rule 28 bindings_apart: "
#define BUDGET "rule 29 step_budget: "

const struct attack_bundle attack_bundles[] = {
    {"alias2_s2", APART}, {"alias2_sim", APART}, {"ids_alias", APART}, {"triploop", BUDGET},
    {"loop31", BUDGET},   {"lastrow_s2", NULL},  {"loop100000", NULL},
};
const size_t n_attack_bundles = sizeof attack_bundles / sizeof attack_bundles[0];

static const struct {
    const char *target;
    void (*move)(uint8_t *file);
    void (*change)(struct edit *e);
} made[] = {
    {"host", move_values, NULL},    {"sim4x4", move_values, NULL},
    {"host", move_logits, NULL},    {"host", NULL, loop_over_a_long_trip},
    {"host", NULL, loop_of_2_31},   {"host", NULL, rows_of_position},
    {"host", NULL, loop_of_100000},
};

const char *attack_bundle_make(const struct attack_bundle *attack) {
    static char path[64];
    size_t i = (size_t)(attack - attack_bundles);
    snprintf(path, sizeof path, "/tmp/tw-attack-%d.twb", (int)getpid());
    unlink(path);
    if (made[i].move) {
        write_moved(made[i].target, made[i].move, path);
    } else {
        write_changed(made[i].target, made[i].change, path);
    }
    return path;
}

const char *const first_attacks[] = {
    "alias2_s2.twb", "alias2_sim.twb", "ids_alias.twb",  "triploop.twb",
    "loop31.twb",    "lastrow_s2.twb", "loop100000.twb",
};
const size_t n_first_attacks = sizeof first_attacks / sizeof first_attacks[0];
