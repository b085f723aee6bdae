#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_pcie.c and fuzz_vtd.c: hosts that follow the protocol, and tables that map memory."""
import os
import struct

here = os.path.dirname(os.path.abspath(__file__))
REGISTER, HOST_WORD, MAILBOX_WORD, START_HOST, START_WINDOW, RING, TAKE, SEND, MAP, STRAY = range(10)
TO_DEVICE, TAKEN, RESET = 10, 11, 1  # words after `start`
LENGTHS = 64 // 4 + 64  # word of to_device_bytes[0] in the mailbox


def write(folder, name, data):
    path = os.path.join(here, "seeds", folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as f:
        f.write(data)


def do(action, at=0, value=0):
    return struct.pack("<BHI", action, at, value)


def host(start, where):
    data = do(start) + do(RING) + do(TAKE)
    for k in range(5):
        data += do(MAILBOX_WORD, where + LENGTHS + k % 2, 100 + k)
        data += do(HOST_WORD, TO_DEVICE, k + 1) + do(RING) + do(TAKE) + do(SEND, 0, 500 * k) + do(HOST_WORD, TAKEN, k + 1)
    return data + do(HOST_WORD, RESET, 1) + do(TAKE)


def pcie():
    write("pcie", "host", host(START_HOST, 0x8000))
    write("pcie", "window", host(START_WINDOW, 0))
    write("pcie", "unmapped", host(START_HOST, 0x8000) + do(MAP, 0) + do(SEND, 0, 9) + do(TAKE))
    write("pcie", "wild_counter", do(START_HOST) + do(TAKE) + do(HOST_WORD, TO_DEVICE, 0xFFFFFFF0) + do(TAKE))
    write("pcie", "wild_taken", do(START_HOST) + do(TAKE) + do(HOST_WORD, TAKEN, 77) + do(SEND, 0, 9) + do(TAKE))


def vtd():
    ram = bytearray(0x8000)

    def put(at, value):
        ram[at : at + 8] = struct.pack("<Q", value)

    put(0x1000, 0x2001)  # root -> context
    put(0x2000 + 0x10 * 16, 0x3001)  # context -> four levels
    put(0x2000 + 0x10 * 16 + 8, 2)
    put(0x3000, 0x4003)
    put(0x4000, 0x5003)
    put(0x5000, 0x6003)
    put(0x5008, 0x83)  # 2 MiB
    put(0x6028, 0x7003)
    addresses = [0x5000, 0x5123, 0x200000, 0x7FFFFFFFFFFF, 0x6000, 0xFFFFFFFFFFFFFFFF]
    tail = struct.pack("<%dQ" % len(addresses), *addresses) + bytes(ram)
    write("vtd", "levels", struct.pack("<QHBB", 0x1000, 0x10, 1, len(addresses)) + tail)
    write("vtd", "physical", struct.pack("<QHBB", 0, 0, 0, len(addresses)) + tail)


pcie()
vtd()
