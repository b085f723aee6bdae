#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_link_driver, fuzz_session_driver, fuzz_link_device and fuzz_medium, in the record
formats of these targets.

usage: mkseeds_link.py [tests/fuzz/seeds]    (the output is the same on every run)
"""
import os
import struct
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")


def save(target, name, data):
    folder = os.path.join(OUT, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(bytes(data))


# ---- what a device does to the driver: one record for each packet that the driver reads ----
LIMITS_BYTES = 96  # struct tw_requirements
NOTHING, RAW, OPENED, DATA, ANSWER, PROGRESS, RESEND, GONE, NO_ROOM, OTHER = (bytes([i]) for i in range(10))
# bits of the first byte; RECOVERY: the pipe has three recovery steps
PLAIN, RECOVERY, BIG_CHUNK, QUERY = 0, 4 | 3, 8, 16


def opened(credits=8, generation=1):
    return OPENED + bytes(8) + bytes([credits, generation, 0])


def answer(n, how=0):
    return ANSWER + struct.pack("<BH", how, n) + bytes(range(min(n, 250)))


def progress(flags=0, **fields):
    names = ("received", "answered", "executing", "program", "counter")
    return PROGRESS + struct.pack("<4IQ", *(fields.get(n, 0) for n in names)) + struct.pack("<8I", *range(8)) + bytes([flags])


def part(sequence, offset, total, length, data=b""):
    return DATA + struct.pack("<BBIII", 0, sequence, offset, total, length) + data


def seeds_driver():
    good = opened() + answer(80) + answer(0) * 3 + answer(1000) + answer(0) * 2
    save("link_driver", "good", bytes([BIG_CHUNK]) + good * 2)
    save("link_driver", "silent", bytes([RECOVERY]))
    save("link_driver", "query", bytes([QUERY]) + opened() + opened() + answer(80))
    save("link_driver", "no_credits", bytes([PLAIN]) + opened(0))
    save("link_driver", "busy", bytes([PLAIN]) + OPENED + bytes(8) + bytes([8 | 16 | 128, 1, 0]))
    save("link_driver", "stray", bytes([PLAIN]) + opened() + progress(1) + answer(80))
    save("link_driver", "flood", bytes([PLAIN]) + opened() + progress(received=1) * 30)
    save("link_driver", "resend", bytes([PLAIN]) + opened() + (RESEND + bytes(9)) * 300)
    save("link_driver", "wrong_answers", bytes([PLAIN]) + opened() + answer(80, 16) + answer(80))
    save("link_driver", "refusals", bytes([PLAIN]) + opened() + answer(128, 1) + answer(3, 1) * 3)
    save("link_driver", "lengths", bytes([PLAIN]) + opened() + answer(80, 2) + b"\xff" * 4)
    save("link_driver", "parts", bytes([PLAIN]) + opened() + part(3, 0, 112, 40, bytes(64)) + part(3, 40, 5000, 72, bytes(64)))
    save("link_driver", "no_room", bytes([PLAIN]) + opened() + NO_ROOM + b"\xff" + answer(80))
    save("link_driver", "version", bytes([RECOVERY]) + OTHER + b"\x02")
    save("link_driver", "raw", bytes([RECOVERY]) + RAW + b"\x20" + b"\xff" * 33 + GONE)


# ---- what a host sends to a device ----
H_RAW, H_REQUEST, H_PART, H_RESEND, H_PING, H_CLOSE, H_OPEN, H_SETTLE, H_ACK, H_NO_ROOM, H_GONE = (
    bytes([i]) for i in range(11))
HELLO, RESET, ALLOC, FREE, WRITE, READ, FILL, HASH, LOAD, UNLOAD, RUN, EVENT, COUNTERS, LOG, HEARTBEAT, KEEP, FIND = range(1, 18)


def request(opcode, place=0, payload=b""):
    return H_REQUEST + struct.pack("<BBH", opcode, place, len(payload)) + payload


def alloc(n):
    return request(ALLOC, 0, struct.pack("<QII", n, 64, 1)) + H_SETTLE


def seeds_device():
    hello = request(HELLO, 0, struct.pack("<HHHHII", 1, 1, 1, 0, 256, 0))
    span = struct.pack("<QII", 1000, 7, 0)
    memory = alloc(1000) + request(WRITE, 0, bytes(100)) + request(READ, 0, span) + request(FILL, 0, span) + \
        request(HASH, 0, span) + request(FREE, 0)
    content = struct.pack("<Q", 1000) + bytes(32)
    save("link_device", "memory", hello + memory + H_SETTLE + H_CLOSE)
    save("link_device", "kept", alloc(1000) + request(KEEP, 0, content) + request(FIND, 0, content) + H_CLOSE)
    save("link_device", "no_acks", request(COUNTERS) * 8 + H_SETTLE + request(COUNTERS) * 8 + H_SETTLE +
         H_RESEND + b"\x01" + bytes(4) + H_RESEND + b"\x09" + bytes(4) + alloc(5000) + request(READ, 0, span) * 9)
    save("link_device", "too_many", request(HEARTBEAT) * 40)
    save("link_device", "gaps", H_PART + struct.pack("<BIII", 3, 0, 64, 40) + bytes(64) +
         H_PART + struct.pack("<BIII", 3, 50, 64, 14) + bytes(64) + H_PING + H_RESEND + bytes(5))
    save("link_device", "no_room", H_NO_ROOM + b"\x50" + alloc(100000) + request(READ, 0, struct.pack("<QII", 100000, 0, 0)) +
         H_ACK + b"\x02" + H_PING + H_OPEN + bytes(48))
    save("link_device", "raw", H_RAW + b"\x27" + b"\xff" * 40 + H_PING + H_GONE)
    save("link_device", "odd", request(RUN, 0, bytes(60)) + request(UNLOAD) + request(EVENT) + request(LOG) + request(0) + request(RESET))


def seeds_medium():
    save("medium", "two_hosts", b"\x01\x01\x00\x01\x02\x00\x04\x01\x01\x04")
    save("medium", "gone", b"\x01\x01\x00\x05\x02\x03\x04\x01\x03\x00\x04")
    save("medium", "repeated", b"\x01\x01\x00\x01\x01\x04\x01\x01\x01\x00\x04")


# ---- answers of a device to the driver above its transports ----
GOOD, CONTENT, ADDRESS, REFUSED, LENGTH, HEADER, LOST = (bytes([i]) for i in range(7))


def seeds_session():
    deployed = GOOD * 40
    save("session_driver", "good", b"\x00" + deployed * 2)
    save("session_driver", "kept", b"\x02" + deployed * 2)
    save("session_driver", "limits", b"\x08" + b"\xff" * LIMITS_BYTES + deployed * 2)
    save("session_driver", "little", b"\x08" + bytes(LIMITS_BYTES) + deployed)
    save("session_driver", "selftest", b"\x04" + deployed)
    save("session_driver", "small_messages", b"\x01" + struct.pack("<I", 4096) + GOOD * 600)
    save("session_driver", "no_memory", b"\x00" + REFUSED + b"\x09" + bytes(128))
    place = struct.pack("<i7IQQ", -18, 1, 1, 3, 8, 5, 0, 0, 4, 8) + b"Undefined" + bytes(71)
    for n in (20, 24, 28, 32, 36):
        save("session_driver", "fault_%d" % n, b"\x00" + GOOD * n + REFUSED + b"\x12" + place + GOOD * 9)
        save("session_driver", "tokens_%d" % n, b"\x00" + GOOD * n + (CONTENT + b"\xff" * 160) * 4)
        save("session_driver", "stuck_%d" % n, b"\x00" + GOOD * n + bytes([132]) + bytes(24) + struct.pack("<8I", 0, 1, 2, 3, 1, 2, 3, 4))
    save("session_driver", "addresses", b"\x02" + (ADDRESS + b"\xff") * 40)
    save("session_driver", "header", b"\x00" + HEADER + b"\x01\x03\x80")


seeds_driver()
seeds_session()
seeds_device()
seeds_medium()
