#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a saved state by the manual page tilewright-state(5), without our code: of a model with two layers.

usage: state_file.py FILE TOKENS [MODEL [SAVED-SECONDS]]
"""
import hashlib
import os
import struct
import sys

POSITIONS, VOCAB, LAYERS, PAGE = 64, 512, 2, 4096


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def blake(data):
    return hashlib.blake2b(data, digest_size=32).digest()


def text(s):
    return s.encode().ljust(64, b"\0")


def tensor(name):
    return text(name) + struct.pack("<6IQ", 0, 1, 0, 32, 1, LAYERS, PAGE)


def main(path, n, model="fairytale", seconds=1700000000):
    schema = hashlib.sha256(model.encode()).digest() + text(model) + text("absolute")
    schema += struct.pack("<4I", 1, POSITIONS, VOCAB, 2) + tensor("keys") + tensor("values")
    cells, tails = b"", b""
    for slot in range((n + POSITIONS - 1) // POSITIONS):
        here = min(POSITIONS, n - slot * POSITIONS)
        ids = [(7 * i + slot) % VOCAB for i in range(here)] + [0] * (POSITIONS - here)
        pages = [bytes([slot + 1, p]) * (PAGE // 2) for p in range(2 * LAYERS)]
        tail = struct.pack("<2I", slot, here) + struct.pack("<%dH" % POSITIONS, *ids)
        tail += struct.pack("<%dI" % len(pages), *(crc32c(p) for p in pages))
        cells += b"".join(pages) + tail
        tails += tail
    slots = (n + POSITIONS - 1) // POSITIONS
    commit = b"TWSTATE\n" + struct.pack("<2I4Q4I", 1, len(schema), 1, seconds * 10**9, len(cells) // slots,
                                        1024 + len(schema) + len(cells), n, slots, 0xFFFFFFFF, 0)
    commit += blake(schema) + blake(tails) + bytes(352)
    commit += blake(commit)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, commit + commit + schema + cells)
    os.close(fd)


main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:4], **({"seconds": int(sys.argv[4])} if len(sys.argv) > 4 else {}))
