/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutants of programs: one op or one number is deleted, doubled, exchanged with a neighbour, moved,
 * or altered; also on all sites at once, and two changes together; and the families, whose changes
 * belong together. A mutant shares everything that was not changed with its program.
 */
#ifndef TW_TESTS_SUPPORT_ORDER_MUTATE_H
#define TW_TESTS_SUPPORT_ORDER_MUTATE_H

#include "loader/bundle/loader.h"
#include "loader/order/certificate.h"
#include "tilewright/opcode.h"

/* X(id, name): kinds of ops, and of records. */
#define ORDER_OP_CLASSES(X)     \
    X(RENDEZVOUS, "rendezvous") \
    X(HANDSHAKE, "handshake")   \
    X(FIFO, "FIFO op")          \
    X(LOOP, "loop border")      \
    X(DATA, "data op")
#define ORDER_ACTIONS(X) \
    X(DELETE, "deleted") \
    X(DOUBLE, "doubled") \
    X(SWAP, "swapped")   \
    X(MOVE, "moved")     \
    X(ALTER, "altered")
#define ORDER_RECORDS(X)       \
    X(BUFFER, "memory map")    \
    X(SEMAPHORE, "semaphores") \
    X(TRIP, "trips")           \
    X(SPAN, "spans")           \
    X(GROUP, "groups")         \
    X(TENSOR, "tensors")       \
    X(STAGE, "stages")         \
    X(SHAPE, "mesh, rows, SRAM")
/* X(id, name, function): changes that belong together, so that they pass the rules which a single
 * one breaks. */
#define ORDER_FAMILIES(X)                       \
    X(FIELDS, "two fields of an op", fields)    \
    X(OPS, "fields of two ops", ops)            \
    X(ROWS, "fields of two records", records)   \
    X(BLOCK, "a block to another place", block) \
    X(PASSAGE, "both ends of a FIFO", passage)  \
    X(BODY, "a loop around a block", body)      \
    X(GROUP, "a group and its counts", group)   \
    X(COUNT, "increments and waits", handshake) \
    X(CREDIT, "credits and distances", credit)  \
    X(LAST, "trips and last rows", trips)       \
    X(TIMES, "loop counts", times)              \
    X(BIND, "binding rows", bindings)           \
    X(PLACE, "places of binding rows", places)  \
    X(ROLE, "roles and bindings", roles)        \
    X(WINDOW, "windows of tensors", windows)    \
    X(CLASS, "memory classes", classes)         \
    X(PAGES, "page tables", pages)              \
    X(SENDS, "sends and copies", sends)         \
    X(SUM, "windows and parts of sums", sums)   \
    X(KEYS, "segments of keys", keys)           \
    X(STATES, "states of attention", states)    \
    X(CACHES, "rows of caches", caches)         \
    X(LISTS, "lists of the best", lists)        \
    X(TYPES, "types of weights", types)

enum order_op_class {
#define TW_X(id, name) ORDER_##id,
    ORDER_OP_CLASSES(TW_X)
#undef TW_X
        ORDER_N_OP_CLASSES
};
enum order_action {
#define TW_X(id, name) ORDER_##id,
    ORDER_ACTIONS(TW_X)
#undef TW_X
        ORDER_N_ACTIONS
};
enum order_record {
#define TW_X(id, name) ORDER_REC_##id,
    ORDER_RECORDS(TW_X)
#undef TW_X
        ORDER_N_RECORDS
};

enum order_family {
#define TW_X(id, name, function) ORDER_FAMILY_##id,
    ORDER_FAMILIES(TW_X)
#undef TW_X
        ORDER_N_FAMILIES
};

/* Kinds of mutation: op class times action, then records, then both of these, then
 * families. */
enum {
    ORDER_KIND_RECORDS = ORDER_N_OP_CLASSES * ORDER_N_ACTIONS,
    ORDER_KIND_ALL_SITES =
        ORDER_KIND_RECORDS +
        ORDER_N_RECORDS, /* an op's change, on every site that has the same op there */
    ORDER_KIND_PAIR,     /* two changes */
    ORDER_KIND_FAMILIES,
    ORDER_N_KINDS = ORDER_KIND_FAMILIES + ORDER_N_FAMILIES
};
/* Returns the name of a kind, in static storage. */
const char *order_kind_name(uint32_t kind);

/* Where the ops of each class are. */
struct order_place {
    uint32_t stream, op;
};
struct order_index {
    const struct tw_program *program;
    struct order_place *places[ORDER_N_OP_CLASSES];
    uint32_t n[ORDER_N_OP_CLASSES];
};
void order_index_make(struct order_index *x, const struct tw_program *p);
void order_index_free(struct order_index *x);

enum { ORDER_MAX_OWNED = 4096 };
struct order_mutant {
    struct tw_program p;
    uint32_t kind;
    char text[400];
    struct tw_stream *streams;
    void **owned;
    uint32_t n_owned;
    /* Where each binding row is (segments: Params, State, the rest); NULL: each apart. */
    struct tw_bind_target *rows;
    uint64_t n_rows;
    /* The program's certificate adapted to the mutant, if only lengths of RUN turns differ; else
     * NULL */
    uint32_t *words;
    uint32_t n_words;
};

/* Makes a mutant of a kind. Returns false if the program has nothing of that kind. `certificate`
 * may have no words. */
bool order_mutate(const struct order_index *x, const struct tw_certificate *certificate,
                  uint32_t kind, uint64_t *seed, struct order_mutant *out);
void order_mutant_free(struct order_mutant *m);

#endif
