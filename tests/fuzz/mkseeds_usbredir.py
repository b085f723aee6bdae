#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_usbredir: what guests do to a USB device, in the target's record form (see fuzz_usbredir.c).

usage: mkseeds_usbredir.py [tests/fuzz/seeds/usbredir]    (the output is the same on every run)
"""
import os
import struct
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds", "usbredir")
RESET, SET_CONFIG, GET_CONFIG, SET_ALT, GET_ALT = 3, 6, 7, 9, 10
START_ISO, START_INT, STOP_INT, ALLOC_STREAMS, CANCEL, REJECT, FILTER, ACK, START_BULK = 12, 15, 16, 18, 21, 22, 23, 24, 25
CONTROL, BULK, ISO, INTERRUPT = 100, 101, 102, 103
RAW, SEND, TAKE, GENERATION = 200, 201, 202, 203
FULL, HIGH, SUPER, RECOVERY, NO_HELLO = 0, 1, 2, 4, 8


def record(kind, ident=0, payload=b""):
    return struct.pack("<BBH", kind, ident, len(payload)) + payload


def config(n):
    return record(SET_CONFIG, 1, bytes([n]))


def control(ident, kind, request, value=0, index=0, length=0, data=b""):
    head = struct.pack("<BBBBHHH", kind & 0x80, request, kind, 0, value, index, length)
    return record(CONTROL, ident, head + data)


def bulk(ident, endpoint, length, data=b""):
    return record(BULK, ident, struct.pack("<BBHIH", endpoint, 0, length & 0xFFFF, 0, length >> 16) + data)


def out(ident, data):
    return bulk(ident, 0x01, len(data), data)


def read(ident, room):
    return bulk(ident, 0x82, room)


def send(n):
    return record(SEND, 0, struct.pack("<H", n - 1))


ENUMERATE = (record(RESET) + control(1, 0x80, 6, 0x0100, 0, 18) + control(2, 0x80, 6, 0x0200, 0, 255)
             + control(3, 0x80, 6, 0x0303, 0x0409, 255) + control(4, 0x80, 6, 0x0F00, 0, 255) + config(1)
             + record(GET_CONFIG, 2) + record(SET_ALT, 3, b"\0\0") + record(GET_ALT, 4, b"\0"))

SEEDS = {
    "enumerate": bytes([HIGH]) + ENUMERATE,
    "enumerate_super": bytes([SUPER]) + ENUMERATE,
    "recovery": bytes([FULL | RECOVERY]) + config(1) + control(5, 0xC1, 3, 0, 0, 120) + out(6, b"x"),
    "out": bytes([FULL]) + config(1) + out(1, b"a" * 64) + out(2, b"b" * 3) + record(TAKE) + out(3, b"c" * 64)
           + out(4, b"") + record(TAKE) + out(5, b""),
    "in": bytes([HIGH]) + config(1) + read(1, 1024) + send(1024) + read(2, 512) + send(2000) + read(3, 700)
          + read(4, 4096) + read(5, 0),
    "too_long": bytes([SUPER]) + config(1) + b"".join(out(i % 100, bytes(8192)) for i in range(9)) + out(3, b"x")
                + out(4, b"y") + record(TAKE),
    "cancel": bytes([HIGH]) + config(1) + read(1, 512) + read(2, 512) + record(CANCEL, 1) + send(5)
              + record(CANCEL, 2) + b"".join(out(i, b"z") for i in range(40)) + record(CANCEL, 39) + record(CANCEL, 35),
    "halt": bytes([HIGH]) + config(1) + out(1, bytes(512)) + control(2, 2, 3, 0, 1) + out(3, b"x")
            + control(4, 2, 1, 0, 1) + control(5, 2, 3, 0, 0x82) + read(6, 512) + control(7, 2, 1, 0, 0x82),
    "reset": bytes([HIGH]) + config(1) + record(START_INT, 1, b"\x83") + out(1, b"x") + record(GENERATION, 0, b"\5")
             + control(2, 0xC1, 1, 0, 0, 64) + control(3, 0x41, 2) + control(4, 0x41, 2) + record(GENERATION, 0, b"\6")
             + read(5, 64) + record(STOP_INT, 2, b"\x83") + record(TAKE),
    "reset_cancelled": bytes([HIGH]) + config(1) + record(GENERATION, 0, b"\5") + control(3, 0x41, 2)
                       + record(CANCEL, 3) + record(RESET),
    "foreign": bytes([HIGH]) + config(1) + record(START_ISO, 1, b"\x81\1\1")
               + record(ALLOC_STREAMS, 2, struct.pack("<II", 2, 4)) + record(ISO, 3, b"\1\0\0\0")
               + record(INTERRUPT, 4, b"\1\0\2\0hi") + record(ACK) + record(START_BULK, 5, struct.pack("<IIBB", 0, 9, 1, 2)),
    "filter": bytes([HIGH]) + record(REJECT) + record(FILTER, 0, b"-1,-1,-1,-1,1\0"),
    "rude": bytes([HIGH | NO_HELLO]) + config(1) + out(1, b"x"),
    "raw": bytes([HIGH]) + config(1) + record(RAW, 0, struct.pack("<IIQ", BULK, 0x7FFFFFFF, 1))
           + record(RAW, 0, b"\xFF" * 40),
    "short": bytes([HIGH]) + config(1) + record(CONTROL, 1, b"\0\6") + record(BULK, 0x81, b"\1\0\0\0"),
}


def main():
    os.makedirs(OUT, exist_ok=True)
    for name, data in SEEDS.items():
        with open(os.path.join(OUT, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
