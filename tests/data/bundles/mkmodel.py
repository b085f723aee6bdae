#!/usr/bin/env python3
# SPDX-License-Identifier: CC0-1.0
"""Writes the model that the kept bundles were compiled from: mkmodel.py OUT.gguf

A llama of 2 layers with random Q8_0 weights and a SentencePiece vocabulary with byte fallback, as
GGUF version 3. The same bytes each time.
"""
import random
import struct
import sys

random.seed(11)
DIM, N_LAYERS, N_HEADS, N_KV_HEADS, HEAD_DIM, HIDDEN, N_CTX = 32, 2, 2, 1, 16, 64, 64

# (piece, score, type): types of GGUF: 1 normal, 2 unknown, 3 control, 5 unused, 6 byte
pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3)]
pieces += [("<0x%02X>" % i, 0, 6) for i in range(256)]
letters = "abcdefghijklmnopqrstuvwxyz"
words = ["▁"] + ["▁" + c for c in letters] + list(letters) + ["▁the", "he", "in", "er", "an"]
pieces += [(word, -float(i), 1) for i, word in enumerate(words)]
while len(pieces) % 32:
    pieces.append(("[unused%d]" % len(pieces), 0, 5))
N_VOCAB = len(pieces)


def q8_0(rows, cols):
    out = b""
    for _ in range(rows * cols // 32):
        out += struct.pack("<e", random.uniform(0.5, 1) / 127)
        out += bytes((random.randint(-127, 127) & 255) for _ in range(32))
    return out


def ones(n):
    return b"".join(struct.pack("<f", 1 + random.uniform(-0.1, 0.1)) for _ in range(n))


def matrix(name, rows, cols):
    return name, (cols, rows), 8, q8_0(rows, cols)


def vector(name, n):
    return name, (n,), 0, ones(n)


tensors = [
    matrix("output.weight", N_VOCAB, DIM),
    matrix("token_embd.weight", N_VOCAB, DIM),
    vector("output_norm.weight", DIM),
]
for layer in range(N_LAYERS):
    blk = "blk.%d." % layer
    tensors += [
        vector(blk + "attn_norm.weight", DIM),
        matrix(blk + "attn_q.weight", N_HEADS * HEAD_DIM, DIM),
        matrix(blk + "attn_k.weight", N_KV_HEADS * HEAD_DIM, DIM),
        matrix(blk + "attn_v.weight", N_KV_HEADS * HEAD_DIM, DIM),
        matrix(blk + "attn_output.weight", DIM, N_HEADS * HEAD_DIM),
        vector(blk + "ffn_norm.weight", DIM),
        matrix(blk + "ffn_gate.weight", HIDDEN, DIM),
        matrix(blk + "ffn_up.weight", HIDDEN, DIM),
        matrix(blk + "ffn_down.weight", DIM, HIDDEN),
    ]


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


pairs = []


def put_u32(key, value):
    pairs.append(text(key) + struct.pack("<II", 4, value))


def put_f32(key, value):
    pairs.append(text(key) + struct.pack("<If", 6, value))


def put_text(key, value):
    pairs.append(text(key) + struct.pack("<I", 8) + text(value))


def put_array(key, kind, items):
    pairs.append(text(key) + struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items))


put_text("general.architecture", "llama")
put_text("general.name", "kept")
put_text("general.license", "CC0-1.0")
put_u32("llama.context_length", N_CTX)
put_u32("llama.embedding_length", DIM)
put_u32("llama.block_count", N_LAYERS)
put_u32("llama.feed_forward_length", HIDDEN)
put_u32("llama.attention.head_count", N_HEADS)
put_u32("llama.attention.head_count_kv", N_KV_HEADS)
put_u32("llama.rope.dimension_count", HEAD_DIM)
put_f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
put_text("tokenizer.ggml.model", "llama")
put_array("tokenizer.ggml.tokens", 8, [text(p) for p, _, _ in pieces])
put_array("tokenizer.ggml.scores", 6, [struct.pack("<f", s) for _, s, _ in pieces])
put_array("tokenizer.ggml.token_type", 5, [struct.pack("<i", t) for _, _, t in pieces])
put_u32("tokenizer.ggml.bos_token_id", 1)
put_u32("tokenizer.ggml.eos_token_id", 2)
put_u32("tokenizer.ggml.unknown_token_id", 0)

out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs)
offset = 0
for name, dims, kind, data in tensors:
    out += text(name) + struct.pack("<I", len(dims))
    out += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)
    offset += (len(data) + 31) // 32 * 32
out += b"\0" * (-len(out) % 32)
for _, _, _, data in tensors:
    out += data + b"\0" * (-len(data) % 32)
with open(sys.argv[1], "wb") as file:
    file.write(out)
