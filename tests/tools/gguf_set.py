# SPDX-License-Identifier: Apache-2.0
"""gguf_set.py IN OUT KEY=VALUE...: a GGUF file (version 3, default alignment) with other metadata.

VALUE: a string with \\-escapes of bytes; "u32:1,1" an array of u32; "-" removes the key; a key that is
not there is added. TENSOR=nan: the tensor's first number (float32) becomes NaN."""
import struct, sys

SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def text(b):
    return struct.pack("<Q", len(b)) + b


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def value(self, kind):
        begin = self.at
        if kind == 8:
            self.take(self.u64())
        elif kind == 9:
            element, n = struct.unpack("<IQ", self.take(12))
            for _ in range(n if element == 8 else 0):
                self.take(self.u64())
            self.take(0 if element == 8 else n * SIZE[element])
        else:
            self.take(SIZE[kind])
        return self.data[begin : self.at]


def encode(value):
    if value.startswith("u32:"):
        numbers = [int(x) for x in value[4:].split(",")]
        return 9, struct.pack("<IQ%dI" % len(numbers), 4, len(numbers), *numbers)
    return 8, text(value.encode("latin-1", "surrogateescape").decode("unicode_escape").encode("latin-1"))


r = Reader(open(sys.argv[1], "rb").read())
magic, n_tensors, n_kv = r.take(8), r.u64(), r.u64()
kvs = {}
for _ in range(n_kv):
    key = r.take(r.u64())
    kind = struct.unpack("<I", r.take(4))[0]
    kvs[key] = (kind, r.value(kind))
begin = r.at
offsets = {}
for _ in range(n_tensors):
    name = r.take(r.u64()).decode()
    dims = struct.unpack("<I", r.take(4))[0]
    r.take(8 * dims + 4)
    offsets[name] = r.u64()
tensors = r.data[begin : r.at]
data = bytearray(r.data[(r.at + 31) // 32 * 32 :])
for change in sys.argv[3:]:
    key, value = change.split("=", 1)
    if key in offsets:
        data[offsets[key] : offsets[key] + 4] = struct.pack("<f", float(value))
        continue
    kvs.pop(key.encode(), None)
    if value != "-":
        kvs[key.encode()] = encode(value)
out = magic + struct.pack("<QQ", n_tensors, len(kvs))
for key, (kind, value) in kvs.items():
    out += text(key) + struct.pack("<I", kind) + value
out += tensors
open(sys.argv[2], "wb").write(out + b"\0" * (-len(out) % 32) + data)
