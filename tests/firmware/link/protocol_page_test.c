/* SPDX-License-Identifier: Apache-2.0 The manual page tilewright-protocol(7) against the headers:
 * every row that a table of a header gives (opcodes, kinds, status codes, fields of both packet
 * headers), every payload with its fields, offsets and sizes, every constant; and that no structure
 * or constant of the headers is left out. What is expected is printed where the page differs. */
#include "loader/base/compiler.h"
#include "tests/support/program_text.h"
#include "tests/support/test.h"
#include "tilewright/pcie.h"
#include "tilewright/usb.h"

#define PAGE "tools/man/tilewright-protocol.7"

static char *page;

static int read_page(void **state) {
    (void)state;
    size_t size;
    page = text_read_file(PAGE, &size);
    return page ? 0 : -1;
}

static int drop_page(void **state) {
    (void)state;
    free(page);
    return 0;
}

/* ---- tables of X-macros: whole rows ---- */

static char expected[16384];

static void add(const char *format, ...) TW_PRINTF(1, 2);
static void add(const char *format, ...) {
    size_t n = strlen(expected);
    va_list args;
    va_start(args, format);
    vsnprintf(expected + n, sizeof expected - n, format, args);
    va_end(args);
    assert_true(strlen(expected) + 1 < sizeof expected);
}

/* A text as the page writes it: a row of its own block, with minus signs. */
static void add_text(const char *text) {
    add("T{\n");
    for (const char *c = text; *c; c++) {
        add(*c == '-' ? "\\-" : "%c", *c);
    }
    add("\nT}\n");
}

/* The rows stand behind the line `.\" rows NAME`, up to the end of their table. */
static void check_rows(const char *name) {
    char mark[80];
    snprintf(mark, sizeof mark, ".\\\" rows %s\n", name);
    const char *from = strstr(page, mark), *to = from ? strstr(from, ".TE\n") : NULL;
    size_t n = strlen(expected);
    if (!to || (size_t)(to - from) != strlen(mark) + n ||
        strncmp(from + strlen(mark), expected, n) != 0) {
        fail_msg("%s: behind %sthere should stand:\n%s", PAGE, mark, expected);
    }
}

static void opcodes_are_those_of_the_header(void **state) {
    (void)state;
    expected[0] = 0;
#define TW_X(name, number, text)       \
    add("%s|%d|", #name, (int)number); \
    add_text(text);
    TW_WIRE_OPCODES(TW_X)
#undef TW_X
    check_rows("opcodes");
}

static void kinds_of_packets_are_those_of_the_header(void **state) {
    (void)state;
    expected[0] = 0;
#define TW_X(name, number, text)       \
    add("%s|%d|", #name, (int)number); \
    add_text(text);
    TW_LINK_KINDS(TW_X)
#undef TW_X
    check_rows("kinds");
}

static void status_codes_are_those_of_the_header(void **state) {
    (void)state;
    expected[0] = 0;
#define TW_X(name, number, class_, cause, remedy) \
    add("%s|\\-%d|", #name, (int)number);         \
    add_text(cause);
    TW_ERRORS(TW_X)
#undef TW_X
    check_rows("status codes");
}

static void fields_of_both_headers_are_those_of_the_headers(void **state) {
    (void)state;
    expected[0] = 0;
#define TW_X(field, type, offset) \
    add("%s|%d|%d|%s\n", #field, (int)offset, (int)sizeof(type), #type);
    TW_WIRE_HEADER(TW_X)
    check_rows("message header");
    expected[0] = 0;
    TW_LINK_HEADER(TW_X)
#undef TW_X
    check_rows("packet header");
}

/* ---- payloads: field, offset, size; the rest of a row is prose ---- */

struct field {
    const char *name;
    size_t offset, bytes;
};
struct layout {
    const char *name;
    size_t bytes;
    const struct field *fields;
    size_t n;
};

#define FIELD(type, field) \
    { #field, offsetof(struct type, field), sizeof(((struct type *)0)->field) }
#define FIELDS(type, ...) static const struct field type##_fields[] = {__VA_ARGS__}
#define LAYOUT(type) \
    { #type, sizeof(struct type), type##_fields, sizeof type##_fields / sizeof type##_fields[0] }

#define W(field) FIELD(tw_wire_hello, field)
FIELDS(tw_wire_hello, W(protocol_min), W(protocol_max), W(abi_major), W(abi_minor),
       W(driver_version), W(reserved));
#undef W
#define W(field) FIELD(tw_wire_identity, field)
FIELDS(tw_wire_identity, W(protocol_min), W(protocol_max), W(abi_major), W(abi_minor),
       W(firmware_version), W(capabilities), W(n_threads), W(max_allocations), W(memory_bytes),
       W(memory_used), W(max_payload), W(max_programs), W(target), W(device));
#undef W
#define W(field) FIELD(tw_wire_alloc, field)
FIELDS(tw_wire_alloc, W(bytes), W(align), W(flags));
#undef W
#define W(field) FIELD(tw_wire_range, field)
FIELDS(tw_wire_range, W(bytes), W(value), W(reserved));
#undef W
#define W(field) FIELD(tw_wire_hash, field)
FIELDS(tw_wire_hash, W(crc32c), W(reserved));
#undef W
#define W(field) FIELD(tw_wire_content, field)
FIELDS(tw_wire_content, W(bytes), W(hash));
#undef W
#define W(field) FIELD(tw_wire_load, field)
FIELDS(tw_wire_load, W(blob), W(blob_bytes), W(bind), W(n_bind), W(mode), W(n_threads));
#undef W
#define W(field) FIELD(tw_wire_loaded, field)
FIELDS(tw_wire_loaded, W(program), W(n_threads), W(arena_bytes));
#undef W
#define W(field) FIELD(tw_wire_run, field)
FIELDS(tw_wire_run, W(program), W(n_steps), W(scheduler), W(flags), W(n_inputs), W(seed));
#undef W
#define W(field) FIELD(tw_wire_input, field)
FIELDS(tw_wire_input, W(address), W(bytes), W(reserved));
#undef W
#define W(field) FIELD(tw_wire_greedy, field)
FIELDS(tw_wire_greedy, W(logits), W(abort), W(n_vocab), W(limit), W(ids), W(pos), W(end),
       W(n_stops), W(stop));
#undef W
#define W(field) FIELD(tw_wire_done, field)
FIELDS(tw_wire_done, W(steps), W(ops));
#undef W
#define W(field) FIELD(tw_wire_failure, field)
FIELDS(tw_wire_failure, W(code), W(site), W(engine), W(op_index), W(opcode), W(stage), W(object),
       W(program), W(have), W(need), W(what));
#undef W
#define W(field) FIELD(tw_wire_tokens, field)
FIELDS(tw_wire_tokens, W(steps), W(ops), W(n_tokens), W(ended), W(failure));
#undef W
#define W(field) FIELD(tw_wire_event, field)
FIELDS(tw_wire_event, W(kind), W(lost), W(number), W(failure));
#undef W
#define W(field) FIELD(tw_wire_counters, field)
FIELDS(tw_wire_counters, W(messages), W(refused), W(bytes_in), W(bytes_out), W(steps), W(ops),
       W(faults), W(memory_used), W(memory_peak), W(allocations), W(programs));
#undef W
#define W(field) FIELD(tw_link_open, field)
FIELDS(tw_link_open, W(flags), W(pid), W(nonce), W(command));
#undef W
#define W(field) FIELD(tw_link_opened, field)
FIELDS(tw_link_opened, W(status), W(holder_pid), W(holder), W(generation), W(credits),
       W(max_payload), W(was_dirty), W(target), W(device), W(faults));
#undef W
#define W(field) FIELD(tw_link_resend, field)
FIELDS(tw_link_resend, W(offset), W(reserved));
#undef W
#define W(field) FIELD(tw_place, field)
FIELDS(tw_place, W(site), W(engine), W(op_index), W(opcode));
#undef W
#define W(field) FIELD(tw_link_progress, field)
FIELDS(tw_link_progress, W(received), W(answered), W(executing), W(program), W(beat), W(at),
       W(waiting));
#undef W
#define W(field) FIELD(tw_usb_status, field)
FIELDS(tw_usb_status, W(progress), W(generation), W(state));
#undef W
#define W(field) FIELD(tw_usb_notice, field)
FIELDS(tw_usb_notice, W(kind), W(generation));
#undef W
#define W(field) FIELD(tw_pcie_registers, field)
FIELDS(tw_pcie_registers, W(magic), W(version), W(state), W(firmware_version), W(max_slots),
       W(dma_bits), W(window_offset), W(window_bytes), W(started), W(was_reset), W(generation),
       W(fault), W(fault_address), W(progress), W(reason), W(alive), W(reserved), W(start),
       W(reset), W(mailbox_kind), W(n_slots), W(mailbox), W(slot_bytes), W(armed), W(to_device),
       W(taken));
#undef W
#define W(field) FIELD(tw_pcie_mailbox, field)
FIELDS(tw_pcie_mailbox, W(to_host), W(done), W(wants_room), W(reserved), W(to_host_bytes),
       W(to_device_bytes));
#undef W

static const struct layout layouts[] = {
    LAYOUT(tw_wire_hello),    LAYOUT(tw_wire_identity), LAYOUT(tw_wire_alloc),
    LAYOUT(tw_wire_range),    LAYOUT(tw_wire_hash),     LAYOUT(tw_wire_content),
    LAYOUT(tw_wire_load),     LAYOUT(tw_wire_loaded),   LAYOUT(tw_wire_run),
    LAYOUT(tw_wire_input),    LAYOUT(tw_wire_greedy),   LAYOUT(tw_wire_done),
    LAYOUT(tw_wire_tokens),   LAYOUT(tw_wire_failure),  LAYOUT(tw_wire_event),
    LAYOUT(tw_wire_counters), LAYOUT(tw_link_open),     LAYOUT(tw_link_opened),
    LAYOUT(tw_link_resend),   LAYOUT(tw_place),         LAYOUT(tw_link_progress),
    LAYOUT(tw_usb_status),    LAYOUT(tw_usb_notice),    LAYOUT(tw_pcie_registers),
    LAYOUT(tw_pcie_mailbox),
};

/* The next row of a table, of which `row` begins what is expected; NULL: it is not there. Moves
 * behind a text block. */
static const char *expect_row(const char *at, const char *row) {
    size_t n = strlen(row);
    if (strncmp(at, row, n) != 0) {
        return NULL;
    }
    const char *end = strchr(at, '\n');
    if (end && end - at >= 2 && strncmp(end - 2, "T{", 2) == 0) {
        end = strstr(end, "\nT}\n");
        end = end ? end + 3 : NULL;
    }
    return end ? end + 1 : NULL;
}

static void check_layout(const struct layout *l) {
    char text[120];
    snprintf(text, sizeof text, "\n.\\\" rows %s %zu\n", l->name, l->bytes);
    const char *at = strstr(page, text);
    size_t next = 0;
    at = at ? at + strlen(text) : NULL;
    for (size_t i = 0; i < l->n && at; i++) {
        snprintf(text, sizeof text, "%s|%zu|%zu|", l->fields[i].name, l->fields[i].offset,
                 l->fields[i].bytes);
        at = expect_row(at, text);
        assert_int_equal(l->fields[i].offset, next); /* our own list has them all */
        next += l->fields[i].bytes;
    }
    assert_true(next == l->bytes);
    if (!at || strncmp(at, ".TE\n", 4) != 0) {
        fail_msg("%s: %s: \"%s\" is missing, or something stands behind the last field", PAGE,
                 l->name, text);
    }
}

static void every_payload_has_its_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        check_layout(&layouts[i]);
    }
}

/* ---- constants ---- */

struct constant {
    const char *name;
    unsigned long value;
};
#define C(name) \
    { #name, name }
static const struct constant constants[] = {
    C(TW_WIRE_MAGIC),         C(TW_WIRE_HEADER_BYTES),
    C(TW_WIRE_VERSION_MIN),   C(TW_WIRE_VERSION_MAX),
    C(TW_WIRE_MAX_PAYLOAD),   C(TW_WIRE_ANSWER),
    C(TW_WIRE_CAN_STRICT),    C(TW_WIRE_CAN_FAST),
    C(TW_WIRE_CAN_GREEDY),    C(TW_WIRE_CAN_KEEP),
    C(TW_WIRE_CAN_LINK),      C(TW_WIRE_ALLOC_ZERO),
    C(TW_WIRE_STRICT),        C(TW_WIRE_FAST),
    C(TW_WIRE_RUN_GREEDY),    C(TW_WIRE_MAX_INPUTS),
    C(TW_WIRE_MAX_TOKENS),    C(TW_WIRE_MAX_STOPS),
    C(TW_WIRE_ENDED_COUNT),   C(TW_WIRE_ENDED_STOP),
    C(TW_WIRE_ENDED_LIMIT),   C(TW_WIRE_ENDED_ABORT),
    C(TW_WIRE_ENDED_FAULT),   C(TW_WIRE_EVENT_DONE),
    C(TW_WIRE_EVENT_FAULT),   C(TW_WIRE_EVENT_RESET),
    C(TW_LINK_MAGIC),         C(TW_LINK_VERSION),
    C(TW_LINK_HEADER_BYTES),  C(TW_LINK_CHUNK),
    C(TW_LINK_MAX_PAYLOAD),   C(TW_LINK_MAX_MESSAGE),
    C(TW_LINK_CREDITS),       C(TW_LINK_MIXED),
    C(TW_LINK_QUERY),         C(TW_USB_VENDOR),
    C(TW_USB_PRODUCT),        C(TW_USB_PRODUCT_RECOVERY),
    C(TW_USB_CLASS),          C(TW_USB_SUBCLASS),
    C(TW_USB_PROTOCOL),       C(TW_USB_STATUS),
    C(TW_USB_RESET),          C(TW_USB_REASON),
    C(TW_USB_NOTICE_DROPPED), C(TW_PCIE_MAGIC),
    C(TW_PCIE_VERSION),       C(TW_PCIE_REGISTER_BYTES),
    C(TW_PCIE_IN_WINDOW),     C(TW_PCIE_IN_HOST),
    C(TW_PCIE_RUNS),          C(TW_PCIE_RECOVERY),
    C(TW_PCIE_MAX_SLOTS),     C(TW_PCIE_MAILBOX_HEAD),
    C(TW_PCIE_CHUNK),         C(TW_PCIE_NONE),
    C(TW_PCIE_ARM_PACKET),    C(TW_PCIE_ARM_ROOM),
};
#define N_CONSTANTS (sizeof constants / sizeof constants[0])

static void every_constant_has_its_value(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        char decimal[100], hex[100];
        snprintf(decimal, sizeof decimal, "\n%s|%lu|", constants[i].name, constants[i].value);
        snprintf(hex, sizeof hex, "\n%s|0x%lX|", constants[i].name, constants[i].value);
        if (!strstr(page, decimal) && !strstr(page, hex)) {
            fail_msg("%s: a row \"%s\" is missing", PAGE, decimal + 1);
        }
    }
}

/* ---- nothing is left out ---- */

static const char *const headers[] = {"include/tilewright/wire.h", "include/tilewright/link.h",
                                      "include/tilewright/usb.h", "include/tilewright/pcie.h"};

static bool is_known(const char *name) {
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        if (strcmp(constants[i].name, name) == 0) {
            return true;
        }
    }
    return strchr(name, '#') != NULL;
}

/* "struct tw_x {" at the start of a line. */
static void check_structures(const char *path, const char *text) {
    for (const char *at = text; (at = strstr(at, "\nstruct tw_")); at++) {
        char name[64];
        bool found = false;
        if (sscanf(at, "\nstruct %63[a-z_0-9] {", name) != 1 || at[8 + strlen(name) + 1] != '{') {
            continue;
        }
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            found = found || strcmp(layouts[i].name, name) == 0;
        }
        if (!found && strcmp(name, "tw_wire_header") != 0 && strcmp(name, "tw_link_header") != 0) {
            fail_msg("%s: struct %s is not in the page", path, name);
        }
    }
}

/* "#define TW_X value" and, in an enum, "TW_X = value". */
static void check_constants(const char *path, const char *text) {
    for (const char *at = text; (at = strstr(at, "TW_")); at += 3) {
        char name[64];
        size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789#");
        bool defined = at - text > 9 && strncmp(at - 9, "\n#define ", 9) == 0 && at[n] == ' ';
        bool counted = strncmp(at + n, " = ", 3) == 0 && at > text && strchr(" {\t", at[-1]);
        if ((!defined && !counted) || n >= sizeof name) {
            continue;
        }
        memcpy(name, at, n);
        name[n] = 0;
        if (!is_known(name) && !strstr(name, "_LIMIT")) {
            fail_msg("%s: %s is not in the page", path, name);
        }
    }
}

static void the_headers_have_nothing_that_the_page_lacks(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        size_t size;
        char *text = text_read_file(headers[i], &size);
        assert_non_null(text);
        check_structures(headers[i], text);
        check_constants(headers[i], text);
        free(text);
    }
}

static void the_example_is_a_message(void **state) {
    struct tw_wire_hello hello = {
        .protocol_min = 1, .protocol_max = 1, .abi_major = 1, .driver_version = 0x000100};
    struct tw_wire_header h = {
        .version = 1, .opcode = TW_WIRE_HELLO, .sequence = 1, .length = sizeof hello};
    uint8_t bytes[TW_WIRE_HEADER_BYTES + sizeof hello];
    (void)state;
    tw_wire_encode(&h, bytes);
    memcpy(bytes + TW_WIRE_HEADER_BYTES, &hello, sizeof hello);
    expected[0] = 0;
    add(".EX\n");
    for (size_t i = 0; i < sizeof bytes; i++) {
        add("%02x%s", bytes[i], i % 16 == 15 ? "\n" : " ");
    }
    add(".EE\n");
    if (!strstr(page, expected)) {
        fail_msg("%s: the example should be:\n%s", PAGE, expected);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(opcodes_are_those_of_the_header),
        cmocka_unit_test(kinds_of_packets_are_those_of_the_header),
        cmocka_unit_test(status_codes_are_those_of_the_header),
        cmocka_unit_test(fields_of_both_headers_are_those_of_the_headers),
        cmocka_unit_test(every_payload_has_its_table),
        cmocka_unit_test(every_constant_has_its_value),
        cmocka_unit_test(the_headers_have_nothing_that_the_page_lacks),
        cmocka_unit_test(the_example_is_a_message),
    };
    return cmocka_run_group_tests_name("protocol_page", tests, read_page, drop_page);
}
