/* SPDX-License-Identifier: Apache-2.0
 *
 * The small bundle of the tests (bundle_fixture.h): its ops are encoded by the encoder, its weights
 * come from a formula.
 */
#include "tests/support/bundle_fixture.h"

#include "loader/base/hash.h"
#include "tilewright/op_schema.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char strings[] = "\0tokens\0weight\0cache\0logits\0x\0w\0y\0rows\0layer.w";
enum {
    S_TOKENS = 1,
    S_WEIGHT = 8,
    S_CACHE = 15,
    S_LOGITS = 21,
    S_X = 28,
    S_W = 30,
    S_Y = 32,
    S_ROWS = 34,
    S_ORIGIN = 39
};

struct writer {
    uint32_t *words;
    uint32_t n, stage;
};

static void put(struct writer *w, struct tw_op op) {
    op.stage = w->stage;
    w->n += tw_op_encode(&op, w->words + w->n);
}

static struct tw_buffer_at page(uint32_t buffer, uint64_t offset) {
    return tw_in_buffer(buffer, tw_affine_const(offset));
}

static void load_stream(struct writer *w, uint32_t site) {
    const uint32_t fifo = 2 * site;
    struct tw_affine instance = tw_affine_plus(tw_affine_const(site), 1, 1);
    put(w, tw_make_loop(0, 1, tw_count_const(4), TW_NONE));
    put(w, tw_make_reserve(0, fifo, 1));
    put(w, tw_make_read(0, tw_in_tensor(1, instance, tw_affine_const(0)), page(fifo, 0), 1, 1024,
                        1024, 1024));
    put(w, tw_make_push(0, fifo, 1));
    put(w, tw_make_end(0));
}

static void math_stream(struct writer *w, uint32_t site, bool extra) {
    const uint32_t fifo = 2 * site, y = fifo + 1;
    put(w, tw_make_wait(0, fifo, 1));
    if (extra) {
        put(w, tw_make_copy(0, page(y, 0), 64, page(y, 0), 64, 64, tw_count_const(4)));
    }
    put(w, tw_make_pop(0, fifo, 1));
}

/* The prefill program's second site stores nothing. */
static void store_stream(struct writer *w, uint32_t program, uint32_t site) {
    const uint64_t offset = (uint64_t)64 * site;
    if (program == 0 || site == 0) {
        put(w, tw_make_write(0, page(2 * site + 1, offset), 64,
                             tw_in_tensor(3, tw_affine_const(0), tw_affine_const(offset)), 128, 64,
                             tw_count_of(0, 4)));
    }
}

static void make_streams(struct bundle_fixture *f, uint32_t program) {
    for (uint32_t i = 0; i < FIXTURE_STREAMS; i++) {
        uint32_t site = i / TW_ENGINE_COUNT, engine = i % TW_ENGINE_COUNT;
        struct writer w = {f->words[program][i], 0, i};
        if (engine == TW_ENGINE_LOAD) {
            load_stream(&w, site);
        } else if (engine == TW_ENGINE_MATH) {
            math_stream(&w, site, program == 1);
        } else {
            store_stream(&w, program, site);
        }
        struct tw_stream s = {site, engine, f->words[program][i], w.n};
        f->streams[program][i] = s;
    }
}

static void make_tables(struct bundle_fixture *f) {
    struct tw_tensor tensors[4] = {
        {S_TOKENS, 1, 4, TW_DT_I32, TW_PACK_ROW, TW_ROLE_INPUT, TW_INIT_NONE, 0, 1, 0, 0, 16},
        {S_WEIGHT, 16, 16, TW_DT_F32, TW_PACK_PANEL16, TW_ROLE_PARAM, TW_INIT_NONE, 1, 3, 0, 0,
         1024},
        {S_CACHE, 1, 16, TW_DT_F32, TW_PACK_ROW, TW_ROLE_STATE, TW_INIT_ZERO, 4, 1, 0, 0, 64},
        {S_LOGITS, 1, 32, TW_DT_F32, TW_PACK_ROW, TW_ROLE_OUTPUT, TW_INIT_NONE, 5, 1, 0, 0, 128},
    };
    memcpy(f->tensors, tensors, sizeof tensors);
    for (uint32_t i = 0; i < 4; i++) {
        struct tw_buffer b = {.name = i % 2 ? S_Y : S_W,
                              .site = i / 2,
                              .kind = i % 2 ? TW_BUF_RESIDENT : TW_BUF_FIFO};
        b.consumer = TW_ENGINE_MATH;
        b.pages = 1;
        b.page_bytes = i % 2 ? 64 : 1024;
        b.offset = i % 2 ? 1024 : 0;
        b.sibling_base = b.tensor = TW_NONE;
        f->buffers[i] = b;
    }
    struct tw_group group = {0, 0, 0, 2, 1, 1};
    struct tw_trip trip = {.name = S_ROWS, .div = 1, .max = 4};
    f->group = group;
    f->trip = trip;
    for (uint32_t i = 0; i < FIXTURE_STREAMS; i++) {
        struct tw_stage s = {
            TW_STAGE_COMPUTE, i / TW_ENGINE_COUNT, i % TW_ENGINE_COUNT, 0, S_ORIGIN, 0, 16, 16};
        f->stages[i] = s;
    }
}

static void make_program(struct bundle_fixture *f, uint32_t i) {
    struct tw_program *p = &f->programs[i];
    p->name = i == 0 ? "decode" : "prefill.4";
    p->strings = strings;
    p->strings_bytes = sizeof strings;
    p->rows = i == 0 ? 1 : 4;
    p->n_sites = p->mesh_width = FIXTURE_SITES;
    p->mesh_height = p->n_chips = 1;
    p->sram_bytes[0] = 65536;
    p->n_tensors = p->n_buffers = 4;
    p->n_groups = p->n_trips = 1;
    p->n_stages = FIXTURE_STREAMS;
    p->tensors = f->tensors;
    p->buffers = f->buffers;
    p->groups = &f->group;
    p->trips = &f->trip;
    p->stages = f->stages;
    p->streams = f->streams[i];
    make_streams(f, i);
}

uint8_t bundle_fixture_byte(uint32_t index, uint64_t offset) {
    uint64_t x = (offset + 1) * 0x9E3779B97F4A7C15u + index * 0xD6E8FEB86659FD93u;
    return (uint8_t)(x >> 56 ^ x >> 24);
}

static int fill(void *ctx, const struct tw_emit_symbol *symbol, uint64_t offset, uint64_t size,
                uint8_t *dst, tw_error *err) {
    struct bundle_fixture *f = ctx;
    uint32_t index = (uint32_t)(symbol - f->symbols);
    bool follows = f->last == symbol ? offset == f->last_end
                                     : offset == 0 && (!f->last || f->last_end == f->last->bytes);
    bool last = offset + size == symbol->bytes;
    f->disorder += !follows || size == 0 || size > 8u << 20 || offset + size > symbol->bytes ||
                   (size % 64 != 0 && !last);
    f->last = symbol;
    f->last_end = offset + size;
    f->filled += size;
    if (f->filled > f->fail_at) {
        return tw_fail(err, TW_E_INTERRUPTED, "interrupted");
    }
    for (uint64_t i = 0; i < size; i++) {
        dst[i] = bundle_fixture_byte(index, offset + i);
    }
    return 0;
}

static void make_spec(struct bundle_fixture *f) {
    static const struct tw_emit_symbol symbols[FIXTURE_SYMBOLS] = {
        {"tokens", TW_ROLE_INPUT, TW_DT_I32, 0, 16, NULL},
        {"weight.0", TW_ROLE_PARAM, TW_DT_F32, 0, 1024, NULL},
        {"weight.1", TW_ROLE_PARAM, TW_DT_F32, 1, 1100, NULL},
        {"weight.2", TW_ROLE_PARAM, TW_DT_F32, 0, 1024, NULL},
        {"cache", TW_ROLE_STATE, TW_DT_F32, 0, 64, NULL},
        {"logits", TW_ROLE_OUTPUT, TW_DT_F32, 0, 128, NULL},
    };
    memcpy(f->symbols, symbols, sizeof symbols);
    for (uint32_t i = 0; i < FIXTURE_ROWS; i++) {
        f->rows[i] = i;
    }
    for (uint32_t i = 0; i < 6; i++) {
        f->vocab[i] = 0x01010101u * i;
    }
    struct tw_emit_spec *s = &f->spec;
    s->note.abi_major = TW_MACHINE_ABI_MAJOR;
    s->note.n_vocab = 4;
    s->note.n_ctx = 16;
    s->note.n_layers = 3;
    s->note.n_banks = 2;
    s->note.n_params = 768;
    memset(s->note.target_hash, 0xA5, sizeof s->note.target_hash);
    snprintf(s->note.target, sizeof s->note.target, "sim4x4");
    snprintf(s->note.model, sizeof s->note.model, "fixture");
    s->n_programs = FIXTURE_PROGRAMS;
    s->programs = f->programs;
    s->n_symbols = FIXTURE_SYMBOLS;
    s->symbols = f->symbols;
    s->n_bind_rows = FIXTURE_ROWS;
    s->bind_symbol = f->rows;
    s->vocab = f->vocab;
    s->vocab_bytes = sizeof f->vocab;
    s->plan = "plan: by hand\n";
    s->origin = "layer.w\n";
    s->fill = fill;
    s->ctx = f;
}

void bundle_fixture_init(struct bundle_fixture *f) {
    memset(f, 0, sizeof *f);
    f->fail_at = UINT64_MAX;
    make_tables(f);
    for (uint32_t i = 0; i < FIXTURE_PROGRAMS; i++) {
        make_program(f, i);
    }
    make_spec(f);
}

char *bundle_fixture_folder(void) {
    const char *root = getenv("TMPDIR");
    char *name = malloc(4096);
    if (name) {
        snprintf(name, 4096, "%s/tw-bundle-XXXXXX", root ? root : "/tmp");
    }
    if (!name || !mkdtemp(name)) {
        perror("bundle fixture: a folder for the test");
        abort();
    }
    return name;
}

void bundle_fixture_remove(char *folder) {
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) {
        closedir(dir);
    }
    rmdir(folder);
    free(folder);
}

uint8_t *bundle_fixture_read(const char *path, size_t *size) {
    struct stat st;
    void *bytes = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 ||
        posix_memalign(&bytes, TW_PARAM_ALIGN, (size_t)st.st_size + !st.st_size) != 0) {
        return NULL;
    }
    *size = (size_t)st.st_size;
    bool whole = read(fd, bytes, *size) == (ssize_t)*size;
    close(fd);
    if (!whole) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

int bundle_fixture_save(const char *path, const uint8_t *bytes, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return -1;
    }
    bool whole = write(fd, bytes, size) == (ssize_t)size;
    return close(fd) == 0 && whole ? 0 : -1;
}

void bundle_fixture_seal(uint8_t *bytes, size_t size) {
    struct tw_bundle_note note;
    if (size < TW_HEADER_OFFSET + sizeof note) {
        return;
    }
    memcpy(&note, bytes + TW_HEADER_OFFSET, sizeof note);
    if (note.meta_bytes <= size && note.meta_bytes >= TW_HEADER_OFFSET + sizeof note) {
        uint8_t *to = bytes + TW_HEADER_OFFSET + offsetof(struct tw_bundle_note, content_hash);
        tw_hash_content(bytes, note.meta_bytes, to);
    }
}
