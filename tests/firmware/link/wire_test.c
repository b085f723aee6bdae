/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the wire protocol: published checksums, a header byte by byte, and every way in which
 * one can be wrong.
 */
#include "tests/support/test.h"
#include "tilewright/wire.h"

/* RFC 3720, B.4 and the check value of the CRC catalogue. */
static void the_checksum_is_the_published_crc32c(void **state) {
    (void)state;
    uint8_t bytes[32] = {0};
    assert_int_equal(tw_wire_crc32c(0, "123456789", 9), 0xE3069283u);
    assert_int_equal(tw_wire_crc32c(0, bytes, 32), 0x8A9136AAu);
    memset(bytes, 0xFF, 32);
    assert_int_equal(tw_wire_crc32c(0, bytes, 32), 0x62A8AB43u);
    for (uint8_t i = 0; i < 32; i++) {
        bytes[i] = i;
    }
    assert_int_equal(tw_wire_crc32c(0, bytes, 32), 0x46DD794Eu);
    assert_int_equal(tw_wire_crc32c(tw_wire_crc32c(0, bytes, 13), bytes + 13, 19), 0x46DD794Eu);
}

static struct tw_wire_header sample(void) {
    return (struct tw_wire_header){.version = 1,
                                   .opcode = TW_WIRE_READ,
                                   .flags = 0x0203,
                                   .sequence = 0x11223344,
                                   .status = -7,
                                   .address = UINT64_C(0x8877665544332211),
                                   .length = 0x00000110};
}

static void a_header_has_its_fields_where_the_table_says(void **state) {
    (void)state;
    struct tw_wire_header h = sample();
    uint8_t bytes[TW_WIRE_HEADER_BYTES];
    tw_wire_encode(&h, bytes);
    const uint8_t expected[28] = {0x54, 0x57, 0x57, 0x52, 1,    6,    0x03, 0x02, 0x44, 0x33,
                                  0x22, 0x11, 0xF9, 0xFF, 0xFF, 0xFF, 0x11, 0x22, 0x33, 0x44,
                                  0x55, 0x66, 0x77, 0x88, 0x10, 0x01, 0,    0};
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_int_equal(tw_wire_get(bytes + 28, 4), tw_wire_crc32c(0, expected, sizeof expected));
}

static void decoding_gives_back_what_was_encoded(void **state) {
    (void)state;
    struct tw_wire_header h = sample(), back;
    uint8_t bytes[TW_WIRE_HEADER_BYTES];
    const char *why;
    tw_wire_encode(&h, bytes);
    assert_int_equal(tw_wire_decode(bytes, &back, &why), 0);
#define TW_X(field, type, offset) assert_true(back.field == h.field);
    TW_WIRE_HEADER(TW_X)
#undef TW_X
}

static void any_flipped_bit_is_detected(void **state) {
    (void)state;
    struct tw_wire_header h = sample(), back;
    uint8_t bytes[TW_WIRE_HEADER_BYTES];
    const char *why;
    tw_wire_encode(&h, bytes);
    for (unsigned bit = 0; bit < 8 * TW_WIRE_HEADER_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(tw_wire_decode(bytes, &back, &why), TW_E_PROTOCOL);
        assert_string_equal(why, bit < 32 ? "magic" : "checksum");
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static int decode_changed(struct tw_wire_header h, const char **why) {
    uint8_t bytes[TW_WIRE_HEADER_BYTES];
    tw_wire_encode(&h, bytes);
    struct tw_wire_header back;
    return tw_wire_decode(bytes, &back, why);
}

static void fields_out_of_bounds_are_named(void **state) {
    (void)state;
    const char *why;
    struct tw_wire_header h = sample();
    h.version = 0;
    assert_int_equal(decode_changed(h, &why), TW_E_VERSION);
    h.version = TW_WIRE_VERSION_MAX + 1;
    assert_int_equal(decode_changed(h, &why), TW_E_VERSION);
    assert_string_equal(why, "version");
    h = sample();
    h.opcode = 0;
    assert_int_equal(decode_changed(h, &why), TW_E_PROTOCOL);
    h.opcode = TW_WIRE_OPCODE_LIMIT;
    assert_int_equal(decode_changed(h, &why), TW_E_PROTOCOL);
    assert_string_equal(why, "opcode");
    h = sample();
    h.length = TW_WIRE_MAX_PAYLOAD;
    assert_int_equal(decode_changed(h, &why), 0);
    h.length = TW_WIRE_MAX_PAYLOAD + 1;
    assert_int_equal(decode_changed(h, &why), TW_E_PROTOCOL);
    assert_string_equal(why, "length");
}

static void version_ranges_agree_on_the_highest_common_one(void **state) {
    (void)state;
    uint32_t v = 0;
    assert_int_equal(tw_wire_agree(1, 3, 2, 5, &v), 0);
    assert_int_equal(v, 3);
    assert_int_equal(tw_wire_agree(2, 5, 1, 3, &v), 0);
    assert_int_equal(v, 3);
    assert_int_equal(tw_wire_agree(1, 1, 2, 3, &v), -1);
    assert_int_equal(tw_wire_agree(4, 5, 2, 3, &v), 1);
}

static void every_opcode_has_its_name(void **state) {
    (void)state;
#define TW_X(name, number, text) assert_string_equal(tw_wire_opcode_name(number), #name);
    TW_WIRE_OPCODES(TW_X)
#undef TW_X
    assert_string_equal(tw_wire_opcode_name(TW_WIRE_OPCODE_LIMIT), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checksum_is_the_published_crc32c),
        cmocka_unit_test(a_header_has_its_fields_where_the_table_says),
        cmocka_unit_test(decoding_gives_back_what_was_encoded),
        cmocka_unit_test(any_flipped_bit_is_detected),
        cmocka_unit_test(fields_out_of_bounds_are_named),
        cmocka_unit_test(version_ranges_agree_on_the_highest_common_one),
        cmocka_unit_test(every_opcode_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
