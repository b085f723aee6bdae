/* SPDX-License-Identifier: Apache-2.0
 *
 * The device protocol: the messages between a driver and a device. A message is a fixed 32-byte
 * little-endian header and `length` bytes of payload. Requests are answered in order; an answer
 * repeats opcode and sequence of its request. The header is encoded and decoded through one table
 * (TW_WIRE_HEADER). Payloads are fixed-width little-endian structures, used in place. Freestanding:
 * the firmware includes this file unchanged.
 *
 * A request has status 0. An answer has status 0 or a TW_E_* code; if a request is refused, the
 * payload is one struct tw_wire_failure. Device addresses are opaque numbers returned by ALLOC; a
 * driver may only add offsets to them.
 */
#ifndef TILEWRIGHT_WIRE_H
#define TILEWRIGHT_WIRE_H

#include "tilewright/error.h"
#include "tilewright/machine.h"
#include "tilewright/requirements.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_WIRE_MAGIC 0x52575754u /* "TWWR" */
#define TW_WIRE_HEADER_BYTES 32u
/* Range of protocol versions that this source supports. */
#define TW_WIRE_VERSION_MIN 1u
#define TW_WIRE_VERSION_MAX 1u
/* Longest payload of one message; the driver divides longer writes and reads. */
#define TW_WIRE_MAX_PAYLOAD (64u << 20)

/* X(name, number, description; request payload -> answer payload) */
#define TW_WIRE_OPCODES(X)                                                                  \
    X(HELLO, 1, "versions and identity: tw_wire_hello -> tw_wire_identity")                 \
    X(RESET, 2, "unloads all programs, frees all memory")                                   \
    X(ALLOC, 3, "tw_wire_alloc -> address in the header")                                   \
    X(FREE, 4, "frees the allocation that starts at the address")                           \
    X(WRITE, 5, "payload -> memory at the address")                                         \
    X(READ, 6, "tw_wire_range -> the bytes at the address")                                 \
    X(FILL, 7, "tw_wire_range: `value` over the bytes at the address")                      \
    X(HASH, 8, "tw_wire_range -> tw_wire_hash of the bytes at the address")                 \
    X(LOAD, 9, "tw_wire_load: prepares a program in device memory -> tw_wire_loaded")       \
    X(UNLOAD, 10, "releases the program whose number is the address")                       \
    X(RUN, 11, "tw_wire_run, ...: executes steps -> tw_wire_done or tw_wire_tokens")        \
    X(EVENT, 12, "removes and returns the oldest event -> tw_wire_event, or no payload")    \
    X(COUNTERS, 13, "-> tw_wire_counters")                                                  \
    X(LOG, 14, "removes and returns the oldest log line -> text, or no payload")            \
    X(HEARTBEAT, 15, "progress word in the address of the answer")                          \
    X(KEEP, 16, "tw_wire_content: the allocation at the address has that content; keep it") \
    X(FIND, 17, "tw_wire_content -> address of an allocation with that content, or 0")      \
    X(DESCRIBE, 18, "-> JSON text of the target that the device is, or no payload")         \
    X(LIMITS, 19, "-> tw_requirements: the most that a program may need of the device")     \
    X(COPY, 20, "tw_wire_copy: bytes of its memory -> memory at the address")

enum tw_wire_opcode {
#define TW_X(name, number, text) TW_WIRE_##name = number,
    TW_WIRE_OPCODES(TW_X)
#undef TW_X
        TW_WIRE_OPCODE_LIMIT = 21
};

/* Returns the opcode's name, "NONE" for 0 and "?" for an unknown one. */
static inline const char *tw_wire_opcode_name(unsigned opcode) {
    static const char *const name[TW_WIRE_OPCODE_LIMIT] = {"NONE",
#define TW_X(name, number, text) #name,
                                                           TW_WIRE_OPCODES(TW_X)
#undef TW_X
    };
    return opcode < TW_WIRE_OPCODE_LIMIT ? name[opcode] : "?";
}

enum tw_wire_flags { TW_WIRE_ANSWER = 1 };

/* X(field, type, offset): every field of the header. crc is the CRC32C of the bytes before it. */
#define TW_WIRE_HEADER(X)    \
    X(magic, uint32_t, 0)    \
    X(version, uint8_t, 4)   \
    X(opcode, uint8_t, 5)    \
    X(flags, uint16_t, 6)    \
    X(sequence, uint32_t, 8) \
    X(status, int32_t, 12)   \
    X(address, uint64_t, 16) \
    X(length, uint32_t, 24)  \
    X(crc, uint32_t, 28)

struct tw_wire_header {
#define TW_X(field, type, offset) type field;
    TW_WIRE_HEADER(TW_X)
#undef TW_X
};

/* Where the fields of an encoded header lie: TW_WIRE_AT_opcode, TW_WIRE_SIZE_opcode ... */
enum tw_wire_header_layout {
#define TW_X(field, type, offset) TW_WIRE_AT_##field = offset, TW_WIRE_SIZE_##field = sizeof(type),
    TW_WIRE_HEADER(TW_X)
#undef TW_X
};
/* One field of an encoded header, by name and unsigned: TW_WIRE_GET(bytes, opcode). */
#define TW_WIRE_GET(bytes, field) tw_wire_get((bytes) + TW_WIRE_AT_##field, TW_WIRE_SIZE_##field)

/* ---- payloads ---- */

/* The driver's range of protocol versions, and its machine ABI. */
struct tw_wire_hello {
    uint16_t protocol_min, protocol_max;
    uint16_t abi_major, abi_minor;
    uint32_t driver_version; /* major << 16 | minor << 8 | patch */
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_hello) == 16, "hello");

enum tw_wire_capabilities {
    TW_WIRE_CAN_STRICT = 1,    /* RUN in strict mode */
    TW_WIRE_CAN_FAST = 2,      /* RUN in fast mode */
    TW_WIRE_CAN_GREEDY = 4,    /* RUN with TW_WIRE_RUN_GREEDY */
    TW_WIRE_CAN_KEEP = 8,      /* KEEP and FIND */
    TW_WIRE_CAN_LINK = 16,     /* its chips have links: it runs programs that span several */
    TW_WIRE_CAN_DESCRIBE = 32, /* DESCRIBE */
    /* LOAD checks program and certificate; without it the device trusts its host to have done so */
    TW_WIRE_CAN_VERIFY = 64,
    TW_WIRE_CAN_CANCEL = 128, /* CANCEL of tilewright/link.h */
    TW_WIRE_CAN_LIMITS = 256, /* LIMITS */
    TW_WIRE_CAN_COPY = 512,   /* COPY */
    TW_WIRE_CAN_COUNT = 1024  /* TW_WIRE_INPUT_COUNTS */
};

/* What a device is and can do; the answer to HELLO. */
struct tw_wire_identity {
    uint16_t protocol_min, protocol_max;
    /* runs programs of this major version with this minor version or less */
    uint16_t abi_major, abi_minor;
    uint32_t firmware_version;
    uint32_t capabilities;
    uint32_t n_threads;       /* maximum number for fast mode */
    uint32_t max_allocations; /* entries of the allocation table */
    uint64_t memory_bytes, memory_used;
    uint32_t max_payload;
    uint32_t max_programs;
    char target[64]; /* name of the machine that the device is; "" accepts any bundle's */
    char device[32];
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_identity) == 144, "identity");

/* Longest answer to DESCRIBE: the canonical JSON of a target, not terminated; its name is the
 * identity's. */
#define TW_WIRE_MAX_DESCRIPTION 2048u

enum tw_wire_alloc_flags { TW_WIRE_ALLOC_ZERO = 1 };
/* Request of ALLOC. */
struct tw_wire_alloc {
    uint64_t bytes;
    uint32_t align; /* a power of two, at most 65536 */
    uint32_t flags;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_alloc) == 16, "alloc");

/* Request of READ, FILL and HASH. */
struct tw_wire_range {
    uint64_t bytes;
    uint32_t value; /* FILL: the byte to write */
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_range) == 16, "range");

/* Request of COPY: `rows` rows of `bytes` bytes, one every `stride` (at least `bytes`) bytes from
 * `from` on, go to the same places from the header's address on, one row after the other, each as
 * by memmove. Both spans lie inside one allocation each. */
struct tw_wire_copy {
    uint64_t from, bytes, stride;
    uint32_t rows;
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_copy) == 32, "copy");

struct tw_wire_hash {
    uint32_t crc32c;
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_hash) == 8, "hash");

/* Content identified by its hash, so that weights that a device already has are not sent again.
 * KEEP makes a whole allocation read-only and lets it outlive its host: after its last FREE, and
 * after the host has closed, it remains until its memory is needed, or RESET. FIND adds a
 * reference, which its caller must FREE. KEEP of content with another hash is refused (HASH),
 * unless the device cannot compute it: it then trusts the host that the hash is right. */
struct tw_wire_content {
    uint64_t bytes;
    uint8_t hash[32]; /* BLAKE2b-256 */
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_content) == 40, "content");

enum tw_wire_mode { TW_WIRE_STRICT = 0, TW_WIRE_FAST = 1 };

/* Request of LOAD. The program blob (tilewright/progblob.h, with streams), its binding rows (uint64
 * each, the address of one instance of a tensor, a multiple of TW_WIRE_BIND_ALIGN) and its
 * certificate are in device memory and must remain there; the device refuses to change them until
 * UNLOAD. A device with TW_WIRE_CAN_VERIFY refuses a program that breaks a rule of the tile machine
 * with VERIFY; `what` of the failure begins with the rule's number and name. Any other relies on
 * its host to have checked, and ignores the certificate; it is sent only the first
 * TW_WIRE_LOAD_PLAIN_BYTES bytes, because its release may know no more of this structure. */
struct tw_wire_load {
    uint64_t blob, blob_bytes;
    uint64_t bind, n_bind;
    uint32_t mode;                           /* tw_wire_mode */
    uint32_t n_threads;                      /* fast mode: 0 lets the device choose */
    uint64_t certificate, certificate_bytes; /* its words; 0 bytes: none */
    uint64_t step_ops; /* number of ops per step that it states; 0: not stated */
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_load) == 64, "load");
#define TW_WIRE_LOAD_PLAIN_BYTES 40u /* without the certificate */
#define TW_WIRE_BIND_ALIGN 64u

/* Answer to LOAD. */
struct tw_wire_loaded {
    uint32_t program; /* number for RUN and UNLOAD */
    uint32_t n_threads;
    uint64_t arena_bytes;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_loaded) == 16, "loaded");

/* Request of RUN. Followed by n_inputs struct tw_wire_input, then their bytes, one after the other
 * without gaps; the inputs are written before the first step. With GREEDY, a struct tw_wire_greedy
 * follows at the next multiple of 8. */
enum tw_wire_run_flags {
    TW_WIRE_RUN_GREEDY = 1,
    /* Checks what each operation computes: the first infinity or NaN is the fault NotFinite with
     * its place; `have` is the first bad row, `need` the iteration of the outermost loop. Slow: a
     * step whose results are worthless is run again in this way, with equal results, to find out
     * why. */
    TW_WIRE_RUN_CHECK = 2,
    /* With GREEDY, of a program that lists the best of its logits (TOPK): tw_wire_greedy's `logits`
     * is the address of the lists, and n_vocab the number of struct tw_top in them. The token is
     * that of the first of all entries (tw_top_before); none, or one of an infinity, is the fault
     * NotFinite. A NaN beside numbers is not noticed. */
    TW_WIRE_RUN_CHOICE = 4
};
struct tw_wire_run {
    uint32_t program;
    uint32_t n_steps;
    uint16_t scheduler; /* strict: enum tw_scheduler */
    uint16_t flags;     /* tw_wire_run_flags */
    uint32_t n_inputs;
    uint64_t seed;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_run) == 24, "run");
enum tw_wire_input_flags {
    TW_WIRE_INPUT_COUNTS = 1 /* GREEDY: its first word is incremented with each step */
};
struct tw_wire_input {
    uint64_t address;
    uint32_t bytes;
    uint32_t flags; /* tw_wire_input_flags; a device that cannot COUNT ignores them */
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_input) == 16, "input");
#define TW_WIRE_MAX_INPUTS 8u

/* GREEDY: the device feeds each step's most likely token (the lowest id among equals) to the next
 * step, without the host. Executes up to n_steps steps, at most TW_WIRE_MAX_TOKENS. Logits with an
 * infinity or NaN are the fault NotFinite without a place: `have` is the first of them, `need`
 * n_vocab. */
#define TW_WIRE_MAX_TOKENS 256u
#define TW_WIRE_MAX_STOPS 4u
struct tw_wire_greedy {
    uint64_t logits; /* address of the n_vocab f32 values that a step produces */
    /* address of a word that ends the run before the next step when it is not 0; 0: none */
    uint64_t abort;
    uint32_t n_vocab; /* greater than 0 */
    uint32_t limit;   /* positions: no step begins at this one */
    /* Indices of the request's inputs whose first words hold the token to feed, its position, and
     * the position after it. The last two are incremented with each step; TW_NONE: the program has
     * no such input. */
    uint32_t ids, pos, end;
    uint32_t n_stops;
    uint32_t stop[TW_WIRE_MAX_STOPS]; /* tokens that end the run */
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_greedy) == 56, "greedy");

/* Answer to RUN without GREEDY. */
struct tw_wire_done {
    uint64_t steps; /* of this program since it was loaded */
    uint64_t ops;   /* strict mode: executed in the last step */
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_done) == 16, "done");

/* Why a GREEDY run ended. */
enum tw_wire_ended {
    TW_WIRE_ENDED_COUNT = 0, /* after n_steps */
    TW_WIRE_ENDED_STOP = 1,  /* the last token is one of the stop tokens */
    TW_WIRE_ENDED_LIMIT = 2, /* the last token would have to be fed at `limit` */
    TW_WIRE_ENDED_ABORT = 3,
    TW_WIRE_ENDED_FAULT = 4 /* in the step after the last token */
};

/* Why a request was refused. `site` to `need` are those of struct tw_fault, or TW_NONE and 0 if
 * there was no fault. `element` is that of a page table, with PageOutOfRange and PageShared. */
struct tw_wire_failure {
    int32_t code;
    uint32_t site, engine, op_index, opcode, stage, object;
    uint32_t program;
    uint64_t have, need;
    char what[76]; /* text, NUL-terminated */
    uint32_t element;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_failure) == 128, "failure");

/* Answer to a GREEDY run; followed by n_steps words: the tokens, then TW_NONE. The last token has
 * not been fed. */
struct tw_wire_tokens {
    uint64_t steps, ops; /* as in tw_wire_done */
    uint32_t n_tokens;
    uint32_t ended;                 /* tw_wire_ended */
    struct tw_wire_failure failure; /* if ended is FAULT, else zeros */
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_tokens) == 152, "tokens");

enum tw_wire_event_kind {
    TW_WIRE_EVENT_DONE = 1,
    TW_WIRE_EVENT_FAULT = 2,
    TW_WIRE_EVENT_RESET = 3
};
/* Answer to EVENT, unless no event is queued. */
struct tw_wire_event {
    uint32_t kind;
    uint32_t lost; /* number of events dropped before this one */
    uint64_t number;
    struct tw_wire_failure failure; /* if kind is FAULT */
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_event) == 144, "event");

/* Totals since the device started. */
struct tw_wire_counters {
    uint64_t messages, refused;
    uint64_t bytes_in, bytes_out; /* payloads */
    uint64_t steps, ops, faults;
    uint64_t memory_used, memory_peak;
    uint32_t allocations, programs;
};
TW_STATIC_ASSERT(sizeof(struct tw_wire_counters) == 80, "counters");

/* ---- CRC32C (Castagnoli, reflected 0x82F63B78), bytewise ---- */

/* Continues `crc` (0 at the start) over n bytes and returns it. Takes about 1 ns per byte: 30 ns
 * for a header. */
static inline uint32_t tw_wire_crc32c(uint32_t crc, const void *bytes, size_t n) {
    static const uint32_t table[256] = {
        0x00000000, 0xF26B8303, 0xE13B70F7, 0x1350F3F4, 0xC79A971F, 0x35F1141C, 0x26A1E7E8,
        0xD4CA64EB, 0x8AD958CF, 0x78B2DBCC, 0x6BE22838, 0x9989AB3B, 0x4D43CFD0, 0xBF284CD3,
        0xAC78BF27, 0x5E133C24, 0x105EC76F, 0xE235446C, 0xF165B798, 0x030E349B, 0xD7C45070,
        0x25AFD373, 0x36FF2087, 0xC494A384, 0x9A879FA0, 0x68EC1CA3, 0x7BBCEF57, 0x89D76C54,
        0x5D1D08BF, 0xAF768BBC, 0xBC267848, 0x4E4DFB4B, 0x20BD8EDE, 0xD2D60DDD, 0xC186FE29,
        0x33ED7D2A, 0xE72719C1, 0x154C9AC2, 0x061C6936, 0xF477EA35, 0xAA64D611, 0x580F5512,
        0x4B5FA6E6, 0xB93425E5, 0x6DFE410E, 0x9F95C20D, 0x8CC531F9, 0x7EAEB2FA, 0x30E349B1,
        0xC288CAB2, 0xD1D83946, 0x23B3BA45, 0xF779DEAE, 0x05125DAD, 0x1642AE59, 0xE4292D5A,
        0xBA3A117E, 0x4851927D, 0x5B016189, 0xA96AE28A, 0x7DA08661, 0x8FCB0562, 0x9C9BF696,
        0x6EF07595, 0x417B1DBC, 0xB3109EBF, 0xA0406D4B, 0x522BEE48, 0x86E18AA3, 0x748A09A0,
        0x67DAFA54, 0x95B17957, 0xCBA24573, 0x39C9C670, 0x2A993584, 0xD8F2B687, 0x0C38D26C,
        0xFE53516F, 0xED03A29B, 0x1F682198, 0x5125DAD3, 0xA34E59D0, 0xB01EAA24, 0x42752927,
        0x96BF4DCC, 0x64D4CECF, 0x77843D3B, 0x85EFBE38, 0xDBFC821C, 0x2997011F, 0x3AC7F2EB,
        0xC8AC71E8, 0x1C661503, 0xEE0D9600, 0xFD5D65F4, 0x0F36E6F7, 0x61C69362, 0x93AD1061,
        0x80FDE395, 0x72966096, 0xA65C047D, 0x5437877E, 0x4767748A, 0xB50CF789, 0xEB1FCBAD,
        0x197448AE, 0x0A24BB5A, 0xF84F3859, 0x2C855CB2, 0xDEEEDFB1, 0xCDBE2C45, 0x3FD5AF46,
        0x7198540D, 0x83F3D70E, 0x90A324FA, 0x62C8A7F9, 0xB602C312, 0x44694011, 0x5739B3E5,
        0xA55230E6, 0xFB410CC2, 0x092A8FC1, 0x1A7A7C35, 0xE811FF36, 0x3CDB9BDD, 0xCEB018DE,
        0xDDE0EB2A, 0x2F8B6829, 0x82F63B78, 0x709DB87B, 0x63CD4B8F, 0x91A6C88C, 0x456CAC67,
        0xB7072F64, 0xA457DC90, 0x563C5F93, 0x082F63B7, 0xFA44E0B4, 0xE9141340, 0x1B7F9043,
        0xCFB5F4A8, 0x3DDE77AB, 0x2E8E845F, 0xDCE5075C, 0x92A8FC17, 0x60C37F14, 0x73938CE0,
        0x81F80FE3, 0x55326B08, 0xA759E80B, 0xB4091BFF, 0x466298FC, 0x1871A4D8, 0xEA1A27DB,
        0xF94AD42F, 0x0B21572C, 0xDFEB33C7, 0x2D80B0C4, 0x3ED04330, 0xCCBBC033, 0xA24BB5A6,
        0x502036A5, 0x4370C551, 0xB11B4652, 0x65D122B9, 0x97BAA1BA, 0x84EA524E, 0x7681D14D,
        0x2892ED69, 0xDAF96E6A, 0xC9A99D9E, 0x3BC21E9D, 0xEF087A76, 0x1D63F975, 0x0E330A81,
        0xFC588982, 0xB21572C9, 0x407EF1CA, 0x532E023E, 0xA145813D, 0x758FE5D6, 0x87E466D5,
        0x94B49521, 0x66DF1622, 0x38CC2A06, 0xCAA7A905, 0xD9F75AF1, 0x2B9CD9F2, 0xFF56BD19,
        0x0D3D3E1A, 0x1E6DCDEE, 0xEC064EED, 0xC38D26C4, 0x31E6A5C7, 0x22B65633, 0xD0DDD530,
        0x0417B1DB, 0xF67C32D8, 0xE52CC12C, 0x1747422F, 0x49547E0B, 0xBB3FFD08, 0xA86F0EFC,
        0x5A048DFF, 0x8ECEE914, 0x7CA56A17, 0x6FF599E3, 0x9D9E1AE0, 0xD3D3E1AB, 0x21B862A8,
        0x32E8915C, 0xC083125F, 0x144976B4, 0xE622F5B7, 0xF5720643, 0x07198540, 0x590AB964,
        0xAB613A67, 0xB831C993, 0x4A5A4A90, 0x9E902E7B, 0x6CFBAD78, 0x7FAB5E8C, 0x8DC0DD8F,
        0xE330A81A, 0x115B2B19, 0x020BD8ED, 0xF0605BEE, 0x24AA3F05, 0xD6C1BC06, 0xC5914FF2,
        0x37FACCF1, 0x69E9F0D5, 0x9B8273D6, 0x88D28022, 0x7AB90321, 0xAE7367CA, 0x5C18E4C9,
        0x4F48173D, 0xBD23943E, 0xF36E6F75, 0x0105EC76, 0x12551F82, 0xE03E9C81, 0x34F4F86A,
        0xC69F7B69, 0xD5CF889D, 0x27A40B9E, 0x79B737BA, 0x8BDCB4B9, 0x988C474D, 0x6AE7C44E,
        0xBE2DA0A5, 0x4C4623A6, 0x5F16D052, 0xAD7D5351,
    };
    const uint8_t *p = (const uint8_t *)bytes;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc = table[(crc ^ p[i]) & 0xFFu] ^ crc >> 8;
    }
    return ~crc;
}

/* ---- header ---- */

/* Little-endian integers of 1 to 8 bytes at any alignment. */
static inline void tw_wire_put(uint8_t *at, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline uint64_t tw_wire_get(const uint8_t *at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

/* Sets magic and crc of `header` and writes its 32 bytes to `bytes`. */
static inline void tw_wire_encode(struct tw_wire_header *header,
                                  uint8_t bytes[TW_WIRE_HEADER_BYTES]) {
    header->magic = TW_WIRE_MAGIC;
    header->crc = 0;
#define TW_X(field, type, offset) \
    tw_wire_put(bytes + offset, (uint64_t)header->field, sizeof(type));
    TW_WIRE_HEADER(TW_X)
#undef TW_X
    header->crc = tw_wire_crc32c(0, bytes, TW_WIRE_AT_crc);
    tw_wire_put(bytes + TW_WIRE_AT_crc, header->crc, TW_WIRE_SIZE_crc);
}

/* Decodes and checks a header. Returns 0, PROTOCOL (not a header, damaged, or out of bounds) or
 * VERSION (an intact header of a version outside TW_WIRE_VERSION_MIN..MAX; the fields are then
 * valid). *why (not NULL) is set to the name of the wrong field, a static string, or "". */
static inline int tw_wire_decode(const uint8_t bytes[TW_WIRE_HEADER_BYTES],
                                 struct tw_wire_header *header, const char **why) {
#define TW_X(field, type, offset) header->field = (type)tw_wire_get(bytes + offset, sizeof(type));
    TW_WIRE_HEADER(TW_X)
#undef TW_X
    *why = "";
    if (header->magic != TW_WIRE_MAGIC) {
        *why = "magic";
        return TW_E_PROTOCOL;
    }
    if (header->crc != tw_wire_crc32c(0, bytes, TW_WIRE_AT_crc)) {
        *why = "checksum";
        return TW_E_PROTOCOL;
    }
    if (header->version < TW_WIRE_VERSION_MIN || header->version > TW_WIRE_VERSION_MAX) {
        *why = "version";
        return TW_E_VERSION;
    }
    if (header->opcode == 0 || header->opcode >= TW_WIRE_OPCODE_LIMIT) {
        *why = "opcode";
        return TW_E_PROTOCOL;
    }
    if (header->length > TW_WIRE_MAX_PAYLOAD) {
        *why = "length";
        return TW_E_PROTOCOL;
    }
    return TW_OK;
}

/* Finds the highest version in both ranges and stores it in *version. Returns 0, or which side is
 * too old: -1 the one with range a, 1 the one with range b. */
static inline int tw_wire_agree(uint32_t a_min, uint32_t a_max, uint32_t b_min, uint32_t b_max,
                                uint32_t *version) {
    if (a_max < b_min) {
        return -1;
    }
    if (b_max < a_min) {
        return 1;
    }
    *version = a_max < b_max ? a_max : b_max;
    return 0;
}

#ifdef __cplusplus
}
#endif
#endif
