/* SPDX-License-Identifier: Apache-2.0
 *
 * The manual page tilewright-protocol(7) against the headers: every row that a table of a header
 * gives (opcodes, kinds, status codes, fields of both packet headers), every payload with its
 * fields, offsets and sizes, every constant; and that no structure or constant of the headers is
 * left out. What is expected is printed where the page differs.
 */
#include "tests/support/man_page.h"
#include "tests/support/test.h"
#include "tilewright/error.h"
#include "tilewright/pcie.h"
#include "tilewright/usb.h"

static int open_page(void **state) {
    (void)state;
    return man_page_open("tools/man/tilewright-protocol.7");
}

static int close_page(void **state) {
    (void)state;
    man_page_close();
    return 0;
}

/* ---- tables of X-macros: whole rows ---- */

static void opcodes_are_those_of_the_header(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(name, number, text)                \
    man_page_add("%s|%d|", #name, (int)number); \
    man_page_add_text(text);
    TW_WIRE_OPCODES(TW_X)
#undef TW_X
    man_page_check_rows("opcodes");
}

static void kinds_of_packets_are_those_of_the_header(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(name, number, text)                \
    man_page_add("%s|%d|", #name, (int)number); \
    man_page_add_text(text);
    TW_LINK_KINDS(TW_X)
#undef TW_X
    man_page_check_rows("kinds");
}

static void status_codes_are_those_of_the_header(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(name, number, class_, cause, remedy)  \
    man_page_add("%s|\\-%d|", #name, (int)number); \
    man_page_add_text(cause);
    TW_ERRORS(TW_X)
#undef TW_X
    man_page_check_rows("status codes");
}

static void fields_of_both_headers_are_those_of_the_headers(void **state) {
    (void)state;
    man_page_begin();
#define TW_X(field, type, offset) \
    man_page_add("%s|%d|%d|%s\n", #field, (int)offset, (int)sizeof(type), #type);
    TW_WIRE_HEADER(TW_X)
    man_page_check_rows("message header");
    man_page_begin();
    TW_LINK_HEADER(TW_X)
#undef TW_X
    man_page_check_rows("packet header");
}

/* ---- payloads: field, offset, size; the rest of a row is prose ---- */

#define W(field) MAN_FIELD(tw_wire_hello, field)
MAN_FIELDS(tw_wire_hello, W(protocol_min), W(protocol_max), W(abi_major), W(abi_minor),
           W(driver_version), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_wire_identity, field)
MAN_FIELDS(tw_wire_identity, W(protocol_min), W(protocol_max), W(abi_major), W(abi_minor),
           W(firmware_version), W(capabilities), W(n_threads), W(max_allocations), W(memory_bytes),
           W(memory_used), W(max_payload), W(max_programs), W(target), W(device));
#undef W
#define W(field) MAN_FIELD(tw_wire_alloc, field)
MAN_FIELDS(tw_wire_alloc, W(bytes), W(align), W(flags));
#undef W
#define W(field) MAN_FIELD(tw_wire_range, field)
MAN_FIELDS(tw_wire_range, W(bytes), W(value), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_wire_copy, field)
MAN_FIELDS(tw_wire_copy, W(from), W(bytes), W(stride), W(rows), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_wire_hash, field)
MAN_FIELDS(tw_wire_hash, W(crc32c), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_wire_content, field)
MAN_FIELDS(tw_wire_content, W(bytes), W(hash));
#undef W
#define W(field) MAN_FIELD(tw_wire_load, field)
MAN_FIELDS(tw_wire_load, W(blob), W(blob_bytes), W(bind), W(n_bind), W(mode), W(n_threads),
           W(certificate), W(certificate_bytes), W(step_ops));
#undef W
#define W(field) MAN_FIELD(tw_wire_loaded, field)
MAN_FIELDS(tw_wire_loaded, W(program), W(n_threads), W(arena_bytes));
#undef W
#define W(field) MAN_FIELD(tw_wire_run, field)
MAN_FIELDS(tw_wire_run, W(program), W(n_steps), W(scheduler), W(flags), W(n_inputs), W(seed));
#undef W
#define W(field) MAN_FIELD(tw_wire_input, field)
MAN_FIELDS(tw_wire_input, W(address), W(bytes), W(flags));
#undef W
#define W(field) MAN_FIELD(tw_wire_greedy, field)
MAN_FIELDS(tw_wire_greedy, W(logits), W(abort), W(n_vocab), W(limit), W(ids), W(pos), W(end),
           W(n_stops), W(stop));
#undef W
#define W(field) MAN_FIELD(tw_wire_done, field)
MAN_FIELDS(tw_wire_done, W(steps), W(ops));
#undef W
#define W(field) MAN_FIELD(tw_wire_failure, field)
MAN_FIELDS(tw_wire_failure, W(code), W(site), W(engine), W(op_index), W(opcode), W(stage),
           W(object), W(program), W(have), W(need), W(what), W(element));
#undef W
#define W(field) MAN_FIELD(tw_wire_tokens, field)
MAN_FIELDS(tw_wire_tokens, W(steps), W(ops), W(n_tokens), W(ended), W(failure));
#undef W
#define W(field) MAN_FIELD(tw_wire_event, field)
MAN_FIELDS(tw_wire_event, W(kind), W(lost), W(number), W(failure));
#undef W
#define W(field) MAN_FIELD(tw_wire_counters, field)
MAN_FIELDS(tw_wire_counters, W(messages), W(refused), W(bytes_in), W(bytes_out), W(steps), W(ops),
           W(faults), W(memory_used), W(memory_peak), W(allocations), W(programs));
#undef W
#define W(field) MAN_FIELD(tw_link_open, field)
MAN_FIELDS(tw_link_open, W(flags), W(pid), W(nonce), W(command));
#undef W
#define W(field) MAN_FIELD(tw_link_opened, field)
MAN_FIELDS(tw_link_opened, W(status), W(holder_pid), W(holder), W(generation), W(credits),
           W(max_payload), W(was_dirty), W(target), W(device), W(faults));
#undef W
#define W(field) MAN_FIELD(tw_link_resend, field)
MAN_FIELDS(tw_link_resend, W(offset), W(reserved));
#undef W
#define W(field) MAN_FIELD(tw_place, field)
MAN_FIELDS(tw_place, W(site), W(engine), W(op_index), W(opcode));
#undef W
#define W(field) MAN_FIELD(tw_link_progress, field)
MAN_FIELDS(tw_link_progress, W(received), W(answered), W(executing), W(program), W(counter), W(at),
           W(waiting));
#undef W
#define W(field) MAN_FIELD(tw_usb_status, field)
MAN_FIELDS(tw_usb_status, W(progress), W(generation), W(state));
#undef W
#define W(field) MAN_FIELD(tw_usb_notice, field)
MAN_FIELDS(tw_usb_notice, W(kind), W(generation));
#undef W
#define W(field) MAN_FIELD(tw_pcie_registers, field)
MAN_FIELDS(tw_pcie_registers, W(magic), W(version), W(state), W(firmware_version), W(max_slots),
           W(dma_bits), W(window_offset), W(window_bytes), W(started), W(was_reset), W(generation),
           W(fault), W(fault_address), W(progress), W(reason), W(alive), W(reserved), W(start),
           W(reset), W(mailbox_kind), W(n_slots), W(mailbox), W(slot_bytes), W(armed), W(to_device),
           W(taken));
#undef W
#define W(field) MAN_FIELD(tw_pcie_mailbox, field)
MAN_FIELDS(tw_pcie_mailbox, W(to_host), W(done), W(wants_room), W(reserved), W(to_host_bytes),
           W(to_device_bytes));
#undef W

static const struct man_layout layouts[] = {
    MAN_LAYOUT(tw_wire_hello),     MAN_LAYOUT(tw_wire_identity), MAN_LAYOUT(tw_wire_alloc),
    MAN_LAYOUT(tw_wire_range),     MAN_LAYOUT(tw_wire_copy),     MAN_LAYOUT(tw_wire_hash),
    MAN_LAYOUT(tw_wire_content),   MAN_LAYOUT(tw_wire_load),     MAN_LAYOUT(tw_wire_loaded),
    MAN_LAYOUT(tw_wire_run),       MAN_LAYOUT(tw_wire_input),    MAN_LAYOUT(tw_wire_greedy),
    MAN_LAYOUT(tw_wire_done),      MAN_LAYOUT(tw_wire_tokens),   MAN_LAYOUT(tw_wire_failure),
    MAN_LAYOUT(tw_wire_event),     MAN_LAYOUT(tw_wire_counters), MAN_LAYOUT(tw_link_open),
    MAN_LAYOUT(tw_link_opened),    MAN_LAYOUT(tw_link_resend),   MAN_LAYOUT(tw_place),
    MAN_LAYOUT(tw_link_progress),  MAN_LAYOUT(tw_usb_status),    MAN_LAYOUT(tw_usb_notice),
    MAN_LAYOUT(tw_pcie_registers), MAN_LAYOUT(tw_pcie_mailbox),
};

#define N_LAYOUTS (sizeof layouts / sizeof layouts[0])

static void every_payload_has_its_table(void **state) {
    (void)state;
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        man_page_check_layout(&layouts[i]);
    }
}

/* ---- constants ---- */

#define C(name) \
    { #name, name }
static const struct man_constant constants[] = {
    C(TW_WIRE_MAGIC),
    C(TW_WIRE_HEADER_BYTES),
    C(TW_WIRE_VERSION_MIN),
    C(TW_WIRE_VERSION_MAX),
    C(TW_WIRE_MAX_PAYLOAD),
    C(TW_WIRE_ANSWER),
    C(TW_WIRE_CAN_STRICT),
    C(TW_WIRE_CAN_FAST),
    C(TW_WIRE_CAN_GREEDY),
    C(TW_WIRE_CAN_KEEP),
    C(TW_WIRE_CAN_LINK),
    C(TW_WIRE_CAN_DESCRIBE),
    C(TW_WIRE_CAN_LIMITS),
    C(TW_WIRE_CAN_COPY),
    C(TW_WIRE_CAN_COUNT),
    C(TW_WIRE_INPUT_COUNTS),
    C(TW_WIRE_CAN_CANCEL),
    C(TW_WIRE_CAN_VERIFY),
    C(TW_WIRE_LOAD_PLAIN_BYTES),
    C(TW_WIRE_BIND_ALIGN),
    C(TW_WIRE_MAX_DESCRIPTION),
    C(TW_WIRE_ALLOC_ZERO),
    C(TW_WIRE_STRICT),
    C(TW_WIRE_FAST),
    C(TW_WIRE_RUN_GREEDY),
    C(TW_WIRE_RUN_CHECK),
    C(TW_WIRE_RUN_CHOICE),
    C(TW_WIRE_MAX_INPUTS),
    C(TW_WIRE_MAX_TOKENS),
    C(TW_WIRE_MAX_STOPS),
    C(TW_WIRE_ENDED_COUNT),
    C(TW_WIRE_ENDED_STOP),
    C(TW_WIRE_ENDED_LIMIT),
    C(TW_WIRE_ENDED_ABORT),
    C(TW_WIRE_ENDED_FAULT),
    C(TW_WIRE_EVENT_DONE),
    C(TW_WIRE_EVENT_FAULT),
    C(TW_WIRE_EVENT_RESET),
    C(TW_LINK_MAGIC),
    C(TW_LINK_VERSION),
    C(TW_LINK_HEADER_BYTES),
    C(TW_LINK_CHUNK),
    C(TW_LINK_MAX_PAYLOAD),
    C(TW_LINK_MAX_MESSAGE),
    C(TW_LINK_CREDITS),
    C(TW_LINK_CHECKSUM),
    C(TW_LINK_QUERY),
    C(TW_USB_VENDOR),
    C(TW_USB_PRODUCT),
    C(TW_USB_PRODUCT_RECOVERY),
    C(TW_USB_CLASS),
    C(TW_USB_SUBCLASS),
    C(TW_USB_PROTOCOL),
    C(TW_USB_STATUS),
    C(TW_USB_RESET),
    C(TW_USB_REASON),
    C(TW_USB_NOTICE_DROPPED),
    C(TW_PCIE_MAGIC),
    C(TW_PCIE_VERSION),
    C(TW_PCIE_REGISTER_BYTES),
    C(TW_PCIE_IN_WINDOW),
    C(TW_PCIE_IN_HOST),
    C(TW_PCIE_RUNS),
    C(TW_PCIE_RECOVERY),
    C(TW_PCIE_MAX_SLOTS),
    C(TW_PCIE_MAILBOX_HEAD),
    C(TW_PCIE_CHUNK),
    C(TW_PCIE_NONE),
    C(TW_PCIE_ARM_PACKET),
    C(TW_PCIE_ARM_ROOM),
};
#define N_CONSTANTS (sizeof constants / sizeof constants[0])

static void every_constant_has_its_value(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CONSTANTS; i++) {
        man_page_check_constant(&constants[i]);
    }
}

static void the_page_documents_everything_in_the_headers(void **state) {
    static const char *const headers[] = {"include/tilewright/wire.h", "include/tilewright/link.h",
                                          "include/tilewright/usb.h", "include/tilewright/pcie.h"};
    static const char *const structures[] = {"tw_wire_header", "tw_link_header", NULL};
    static const char *const enums[] = {"_LIMIT", NULL};
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        man_page_check_structures(headers[i], layouts, N_LAYOUTS, structures);
        man_page_check_constants(headers[i], constants, N_CONSTANTS, enums);
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
    man_page_begin();
    man_page_add(".EX\n");
    for (size_t i = 0; i < sizeof bytes; i++) {
        man_page_add("%02x%s", bytes[i], i % 16 == 15 ? "\n" : " ");
    }
    man_page_add(".EE\n");
    man_page_check_found("the example");
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(opcodes_are_those_of_the_header),
        cmocka_unit_test(kinds_of_packets_are_those_of_the_header),
        cmocka_unit_test(status_codes_are_those_of_the_header),
        cmocka_unit_test(fields_of_both_headers_are_those_of_the_headers),
        cmocka_unit_test(every_payload_has_its_table),
        cmocka_unit_test(every_constant_has_its_value),
        cmocka_unit_test(the_page_documents_everything_in_the_headers),
        cmocka_unit_test(the_example_is_a_message),
    };
    return cmocka_run_group_tests_name("protocol_page", tests, open_page, close_page);
}
