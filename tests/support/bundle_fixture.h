/* SPDX-License-Identifier: Apache-2.0
 *
 * A small bundle made by hand: two programs on two sites, two banks of weights, state, inputs and
 * outputs.
 */
#ifndef TW_TESTS_SUPPORT_BUNDLE_FIXTURE_H
#define TW_TESTS_SUPPORT_BUNDLE_FIXTURE_H

#include "compiler/emit/bundle_write.h"

#define FIXTURE_PROGRAMS 2u
#define FIXTURE_SITES 2u
#define FIXTURE_STREAMS (FIXTURE_SITES * TW_ENGINE_COUNT)
#define FIXTURE_SYMBOLS 6u
#define FIXTURE_ROWS 6u

struct bundle_fixture {
    struct tw_program programs[FIXTURE_PROGRAMS];
    struct tw_stream streams[FIXTURE_PROGRAMS][FIXTURE_STREAMS];
    uint32_t words[FIXTURE_PROGRAMS][FIXTURE_STREAMS][256];
    struct tw_tensor tensors[4];
    struct tw_buffer buffers[4];
    struct tw_group group;
    struct tw_trip trip;
    struct tw_stage stages[FIXTURE_STREAMS];
    struct tw_emit_symbol symbols[FIXTURE_SYMBOLS];
    uint32_t rows[FIXTURE_ROWS];
    uint32_t vocab[6];
    struct tw_emit_spec spec;
    uint64_t fail_at; /* fill refuses from this many bytes on */
    uint64_t filled;
    const struct tw_emit_symbol *last; /* to check that pieces come in order */
    uint64_t last_end;
    uint32_t disorder; /* pieces that broke the contract of fill */
};

/* Fills the fixture. It obeys the bundle's rules, not the verifier's: open it with
 * TW_BUNDLE_NO_RULES. */
void bundle_fixture_init(struct bundle_fixture *f);

/* Byte `offset` of symbol number `index`, as fill writes it. */
uint8_t bundle_fixture_byte(uint32_t index, uint64_t offset);

/* Creates a folder under $TMPDIR or /tmp and returns its name, which bundle_fixture_remove
 * frees. */
char *bundle_fixture_folder(void);
void bundle_fixture_remove(char *folder);

/* Reads the whole file into memory of exactly its size, 64 KiB-aligned; to be freed. NULL if it
 * cannot be read. */
uint8_t *bundle_fixture_read(const char *path, size_t *size);
/* Writes the bytes to path; 0 or -1. */
int bundle_fixture_save(const char *path, const uint8_t *bytes, size_t size);

/* Puts the right content hash into an image that was changed, if its note says a size that the
 * image has. */
void bundle_fixture_seal(uint8_t *bytes, size_t size);

#endif
