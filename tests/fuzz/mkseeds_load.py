#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_load: what a host does with a lawful program, in the target's record form (see fuzz_load.c).

usage: mkseeds_load.py [tests/fuzz/seeds/load]    (the output is the same on every run)
"""
import os
import struct
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds", "load")
WRITE, AIM, LOAD, RUN, UNLOAD, FREE, KEEP = range(7)
BLOB, CERTIFICATE, ROWS, DATA = range(4)


def write(part, word, value):
    return struct.pack("<BBHI", WRITE, part, word, value)


def aim(row, other, offset=0):
    return struct.pack("<BHHB", AIM, row, other, offset)


def load(how, less=0):
    return struct.pack("<BBB", LOAD, how, less)


def run(program, flags=0):
    return struct.pack("<BBB", RUN, program, flags)


def one(record, value):
    return struct.pack("<BB", record, value)


SEEDS = {}
for program in range(3):
    first = bytes([program])
    SEEDS[f"honest{program}"] = first + load(0) + load(1) + run(0, 4) + run(1, 128) + one(UNLOAD, 0) + one(UNLOAD, 1)
    SEEDS[f"blob{program}"] = first + b"".join(write(BLOB, word, value) for word, value in ((44, 7), (60, 1 << 31), (90, 0)))
    SEEDS[f"certificate{program}"] = first + write(CERTIFICATE, 3, 1) + load(0) + write(CERTIFICATE, 0, 0xFFFFFFFF) + load(5, 4)
    SEEDS[f"rows{program}"] = first + aim(0, 1) + load(1) + aim(0, 0, 16) + aim(2, 2, 1) + load(0)
    SEEDS[f"frozen{program}"] = first + load(1) + write(BLOB, 90, 0) + write(ROWS, 0, 0) + write(CERTIFICATE, 0, 0) + run(0)
    SEEDS[f"kept{program}"] = (
        first + b"".join(one(KEEP, part) + one(FREE, part) for part in (BLOB, CERTIFICATE, ROWS)) + load(0) + run(0) + load(128)
    )

os.makedirs(OUT, exist_ok=True)
for name, data in SEEDS.items():
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)
