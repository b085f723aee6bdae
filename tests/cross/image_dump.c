/* SPDX-License-Identifier: Apache-2.0
 *
 * image_dump TARGET FILE: compiles the shipped model for a target and writes its image for
 * decode_cross (image.h); then decodes with it through the driver and prints the line that every
 * other machine has to print, too.
 */
#include "driver/session/session.h"
#include "tests/cross/image.h"
#include "tests/support/model_bundle.h"
#include "tests/support/model_fixture.h"
#include "tilewright/progblob.h"

#include <stdlib.h>
#include <string.h>

static void die(const char *what) {
    fprintf(stderr, "image_dump: %s\n", what);
    exit(1);
}

static void put(FILE *f, const void *bytes, size_t n) {
    if (fwrite(bytes, 1, n, f) != n) {
        die("cannot write the image");
    }
}

static uint32_t row_of(const struct tw_session *s, uint64_t n_rows, uint64_t address) {
    for (uint32_t i = 0; i < n_rows; i++) {
        if (s->executor->bind[i] == address) {
            return i;
        }
    }
    die("an address of the request is not one of the binding rows'");
    return 0;
}

/* The session's own request, for one token, with binding rows where addresses were. */
static void put_request(FILE *f, struct tw_session *s, uint64_t n_rows) {
    struct session_program *p = &s->executor->decode;
    uint32_t id = CROSS_FIRST_TOKEN;
    tw_session_set_inputs(s, p, 0, s->position, &id, 1);
    size_t padded = (size_t)((const uint8_t *)p->greedy - p->request);
    uint8_t *q = calloc(1, padded + sizeof *p->greedy);
    if (!q) {
        die("no memory");
    }
    memcpy(q, p->request, padded);
    struct tw_wire_run *run = (struct tw_wire_run *)(void *)q;
    struct tw_wire_input *in = (struct tw_wire_input *)(void *)(run + 1);
    struct tw_wire_greedy greedy = *p->greedy;
    greedy.logits = p->logits_address;
    greedy.n_vocab = s->n_vocab;
    greedy.limit = s->n_ctx;
    run->flags = TW_WIRE_RUN_GREEDY;
    for (uint32_t i = 0; i < run->n_inputs; i++) {
        in[i].address = row_of(s, n_rows, in[i].address);
    }
    greedy.logits = row_of(s, n_rows, greedy.logits);
    greedy.abort = 0;
    memcpy(q + padded, &greedy, sizeof greedy);
    put(f, q, padded + sizeof greedy);
    free(q);
}

static void put_tables(FILE *f, const struct tw_bundle *b) {
    for (uint32_t i = 0; i < b->n_segments; i++) {
        struct cross_segment x = {.bytes = b->segments[i].size};
        x.kind = b->segments[i].kind == TW_SEG_PARAM   ? CROSS_CONTENT
                 : b->segments[i].kind == TW_SEG_STATE ? CROSS_STATE
                                                       : CROSS_SCRATCH;
        put(f, &x, sizeof x);
    }
    for (uint64_t i = 0; i < b->n_bind_rows; i++) {
        struct cross_bind x = {.offset = b->bind[i].offset, .segment = b->bind[i].segment};
        put(f, &x, sizeof x);
    }
}

static void dump(FILE *f, struct tw_session *s) {
    const struct tw_deployment *d = s->deployment;
    const struct tw_bundle *b = &d->decoder->bundle;
    const struct session_program *decode = &s->executor->decode;
    const struct tw_program *program = decode->program; /* with as many pages as the segment has */
    uint32_t blob_bytes = tw_progblob_bytes(program, true);
    uint8_t *blob = malloc(blob_bytes);
    if (!blob) {
        die("no memory");
    }
    tw_progblob_write(program, true, blob);
    struct cross_image head = {.magic = CROSS_MAGIC,
                               .n_segments = b->n_segments,
                               .n_bind = (uint32_t)b->n_bind_rows,
                               .blob_bytes = blob_bytes,
                               .n_vocab = s->n_vocab};
    head.request_bytes = (uint32_t)((const uint8_t *)(decode->greedy + 1) - decode->request);
    put(f, &head, sizeof head);
    put_tables(f, b);
    put(f, blob, blob_bytes);
    free(blob);
    put_request(f, s, b->n_bind_rows);
    for (uint32_t i = 0; i < b->n_segments; i++) {
        if (b->segments[i].kind == TW_SEG_PARAM) {
            put(f, tw_device_map(d->device, d->segment_address[i], b->segments[i].size),
                (size_t)b->segments[i].size);
        }
    }
}

static void print_expected(struct tw_session *s) {
    const struct tw_bundle *b = &s->deployment->decoder->bundle;
    uint32_t ids[CROSS_TOKENS], id = CROSS_FIRST_TOKEN;
    uint64_t state = CROSS_HASH;
    for (uint32_t i = 0; i < CROSS_TOKENS; i++) {
        if (tw_session_feed(s, &id, 1, NULL)) {
            die("a step failed");
        }
        id = ids[i] = best_token(tw_session_logits(s), s->n_vocab);
    }
    for (uint64_t i = 0; i < b->n_bind_rows; i++) { /* page i is number i in both */
        if (b->segments[b->bind[i].segment].kind == TW_SEG_STATE) {
            uint64_t bytes = b->bind[i].size;
            const void *at = tw_device_map(s->deployment->device, s->executor->bind[i], bytes);
            state = cross_hash(state, at, (size_t)bytes);
        }
    }
    cross_print(ids, cross_hash(CROSS_HASH, tw_session_logits(s), (size_t)s->n_vocab * 4), state);
}

int main(int argc, char **argv) {
    FILE *f = argc == 3 ? fopen(argv[2], "wb") : NULL;
    if (!f) {
        die("usage: image_dump TARGET FILE");
    }
    struct rig r;
    rig_open(&r, argv[1], 1, NULL);
    dump(f, r.session);
    print_expected(r.session);
    rig_close(&r);
    model_bundle_cleanup();
    if (fclose(f)) {
        die("cannot write the image");
    }
    return 0;
}
