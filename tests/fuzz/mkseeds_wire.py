#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_wire: sessions of requests in the target's record form (see fuzz_wire.c).

usage: mkseeds_wire.py [tests/fuzz/seeds/wire]    (the output is the same on every run)
"""
import os
import struct
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds", "wire")
HELLO, RESET, ALLOC, FREE, WRITE, READ, FILL, HASH, LOAD, UNLOAD, RUN, EVENT, COUNTERS, LOG, HEARTBEAT = range(1, 16)
# The order in which the target's fixture allocates.
IDS, ROWS, TABLE, LOGITS, BLOB, BIND, FREE_ONE = range(7)


def at(which, offset=0):
    return 0xAD << 56 | offset << 8 | which


def record(opcode, selector=0, payload=b""):
    return struct.pack("<BBH", opcode, selector, len(payload)) + payload


def place(which, offset=0):
    return which << 2 | offset


def alloc(n, align=64, flags=1):
    return record(ALLOC, 0, struct.pack("<QII", n, align, flags))


def rng(opcode, which, n, value=0, offset=0):
    return record(opcode, place(which, offset), struct.pack("<QII", n, value, 0))


def run(program, ids, rows, steps=1, scheduler=0, seed=0):
    inputs = struct.pack("<QIIQII", at(IDS), 16, 0, at(ROWS), 4, 0)
    head = struct.pack("<IIIIQ", program, steps, scheduler, 2, seed)
    return record(RUN, 0, head + inputs + struct.pack("<4iI", *ids, rows))


def greedy(program, token, steps, pos, limit, stops=()):
    """A run that feeds its own tokens back; position, end and abort word are in the allocation FREE_ONE."""
    places = ((at(IDS), 16), (at(ROWS), 4), (at(FREE_ONE), 4), (at(FREE_ONE, 4), 4))
    head = struct.pack("<IIHHIQ", program, steps, 0, 1, len(places), 0)
    head += b"".join(struct.pack("<QII", *place, 0) for place in places)
    data = struct.pack("<4i3I", token, 0, 0, 0, 1, pos, pos + 1) + bytes(4)
    stop = (*stops, 0, 0, 0, 0)[:4]
    tail = struct.pack("<QQIIIIII4I", at(LOGITS), at(FREE_ONE, 8), 16, limit, 0, 2, 3, len(stops), *stop)
    return record(RUN, 0, head + data + tail)


def load(mode, blob_bytes=1040, n_bind=4):
    return record(LOAD, 0, struct.pack("<QQQQII", at(BLOB), blob_bytes, at(BIND), n_bind, mode, 0))


SEEDS = {
    "hello": record(HELLO, 0, struct.pack("<HHHHII", 1, 1, 1, 0, 0x100, 0)) + record(HEARTBEAT) + record(COUNTERS),
    "memory": alloc(100) + record(WRITE, place(FREE_ONE, 1), b"abcdef") + rng(READ, FREE_ONE, 8) + rng(FILL, FREE_ONE, 3, 7)
    + rng(HASH, FREE_ONE, 100) + record(FREE, place(FREE_ONE)) + rng(READ, FREE_ONE, 1),
    "steps": run(0, (5, 0, 7, 3), 4) + rng(READ, LOGITS, 64) + run(0, (1, 2, 3, 4), 1, 3, 1, 9),
    "greedy": alloc(16) + greedy(0, 1, 1, 0, 9) + greedy(0, 3, 3, 7, 9, (7, 2)) + greedy(0, 3, 3, 9, 9)
    + rng(FILL, FREE_ONE, 4, 1, 8) + greedy(0, 3, 3, 0, 9),
    "faults": run(0, (99, 0, 0, 0), 1) + record(EVENT) + record(LOG) + run(0, (1, 0, 0, 0), 1) + run(0, (1, 0, 0, 0), 9),
    "reload": record(UNLOAD, 0) + load(1) + run(0, (1, 2, 3, 4), 2) + load(0) + run(1, (1, 2, 3, 4), 3) + record(UNLOAD, 1),
    "reset": record(RESET) + alloc(8) + alloc(0) + alloc(1 << 40) + rng(READ, 0, 8) + record(EVENT),
    "raw": record(0, 0, struct.pack("<IBBHIiQII", 0x52575754, 1, 13, 0, 1, 0, 0, 0, 0)),
}

os.makedirs(OUT, exist_ok=True)
for name, data in SEEDS.items():
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)
