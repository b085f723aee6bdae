#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the importers' fuzz targets: small complete files in each form, and a few with one fault.

usage: mkseeds.py [tests/fuzz/seeds]    (standard library only; the output is the same on every run)
"""
import base64
import json
import os
import struct
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")
DIM, HIDDEN, LAYERS, HEADS, KV, VOCAB, SEQ = 32, 32, 1, 4, 2, 6, 4
TOKENS = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581a", "b"]
SCORES = [0.0, 0.0, 0.0, 0.0, -1.0, -2.5]
TYPES = [2, 3, 3, 6, 1, 1]


def save(target, name, data):
    folder = os.path.join(OUT, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


# ---- GGUF ----
U8, I32, U32, F32, BOOL, STR, ARR, U64 = 0, 5, 4, 6, 7, 8, 9, 10
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind == STR:
        return text(v)
    if kind == ARR:
        elem, items = v
        return struct.pack("<IQ", elem, len(items)) + b"".join(value(elem, x) for x in items)
    return struct.pack("<" + SCALARS[kind], v)


def gguf(keys, tensors, version=3, alignment=32):
    block = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 30: (1, 2)}
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for key, kind, v in keys:
        head += text(key) + struct.pack("<I", kind) + value(kind, v)
    data = b""
    for name, dims, kind in tensors:
        data += bytes(-len(data) % alignment)
        elems, size = block[kind]
        count = 1
        for d in dims:
            count *= d
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += struct.pack("<%df" % count, *[1.0] * count) if kind == 0 else bytes(count // elems * size)
    return head + bytes(-len(head) % alignment) + data


def keys(extra=(), drop=()):
    base = [
        ("general.architecture", STR, "llama"),
        ("general.name", STR, "seed"),
        ("llama.context_length", U32, 64),
        ("llama.embedding_length", U32, DIM),
        ("llama.block_count", U32, LAYERS),
        ("llama.feed_forward_length", U32, HIDDEN),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, KV),
        ("llama.rope.dimension_count", U32, DIM // HEADS),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("tokenizer.ggml.model", STR, "llama"),
        ("tokenizer.ggml.tokens", ARR, (STR, TOKENS)),
        ("tokenizer.ggml.scores", ARR, (F32, SCORES)),
        ("tokenizer.ggml.token_type", ARR, (I32, TYPES)),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
        ("tokenizer.ggml.padding_token_id", U32, 0xFFFFFFFF),
    ]
    names = [k for k, _, _ in extra]
    return [k for k in base if k[0] not in drop and k[0] not in names] + list(extra)


def tensors(kind=0, tied=False):
    kv = DIM // HEADS * KV
    out = [("token_embd.weight", (DIM, VOCAB), kind), ("output_norm.weight", (DIM,), 0)]
    if not tied:
        out.append(("output.weight", (DIM, VOCAB), kind))
    for layer in range(LAYERS):
        for name, dims in (("attn_norm", (DIM,)), ("attn_q", (DIM, DIM)), ("attn_k", (DIM, kv)), ("attn_v", (DIM, kv)),
                           ("attn_output", (DIM, DIM)), ("ffn_norm", (DIM,)), ("ffn_gate", (DIM, HIDDEN)),
                           ("ffn_up", (DIM, HIDDEN)), ("ffn_down", (HIDDEN, DIM))):
            out.append(("blk.%d.%s.weight" % (layer, name), dims, 0 if len(dims) == 1 else kind))
    return out


def seeds_gguf():
    for name, kind in (("f16", 1), ("q4_0", 2), ("q8_0", 8), ("bf16", 30)):
        save("gguf", "llama_" + name, gguf(keys(), tensors(kind, True)))
    save("gguf", "untied_v2", gguf(keys(), tensors(2), version=2))
    save("gguf", "rope", gguf(keys([("llama.rope.scaling.type", STR, "linear"),
                                    ("llama.rope.scaling.factor", F32, 2.0), ("llama.rope.freq_base", F32, 5e5)]),
                              tensors(2, True) + [("rope_freqs.weight", (DIM // HEADS // 2,), 0)]))
    save("gguf", "flags", gguf(keys([("tokenizer.ggml.add_bos_token", BOOL, 0), ("tokenizer.ggml.add_eos_token", BOOL, 1),
                                     ("tokenizer.ggml.add_space_prefix", BOOL, 0), ("general.alignment", U32, 8)],
                                    ["tokenizer.ggml.token_type"]), tensors(2, True), alignment=8))
    every = [("k%d" % t, t, 1) for t in SCALARS] + [("a%d" % t, ARR, (t, [1, 0])) for t in SCALARS]
    nested = [("nested", ARR, (ARR, [(U8, [1, 2]), (STR, ["x", ""])])), ("none", ARR, (STR, []))]
    save("gguf", "every_type", gguf([("general.architecture", STR, "llama")] + every + nested, [("t", (8,), 0)]))
    save("gguf", "gpt2", gguf(keys([("tokenizer.ggml.model", STR, "gpt2")]), tensors(2, True)))
    save("gguf", "byte_level", gguf(keys([("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "llama-bpe"),
                                          ("tokenizer.ggml.tokens", ARR, (STR, ["a", "b", "\u0120", "ab", "\u0120ab", "<|end|>"])),
                                          ("tokenizer.ggml.token_type", ARR, (I32, [1, 1, 1, 1, 1, 4])),
                                          ("tokenizer.ggml.merges", ARR, (STR, ["a b", "\u0120 ab"]))],
                                         ["tokenizer.ggml.scores"]), tensors(2, True)))
    save("gguf", "split", gguf(keys([("split.count", U64, 2)]), []))
    save("gguf", "duplicate", gguf([("a", U32, 1), ("a", U32, 2)], []))


# What the architectures have instead of a llama's tensors: dropped ones, and others with their dims by layer.
HEAD, ATTN_KV = DIM // HEADS, DIM // HEADS * KV
QK = [("attn_q_norm.weight", (HEAD,)), ("attn_k_norm.weight", (HEAD,))]
POST = [("post_attention_norm.weight", (DIM,)), ("post_ffw_norm.weight", (DIM,))]
LAYER_NORM = [("attn_norm.bias", (DIM,)), ("ffn_norm.bias", (DIM,))]
ARCHITECTURES = {
    "qwen2": ((), [("attn_q.bias", (DIM,)), ("attn_k.bias", (ATTN_KV,)), ("attn_v.bias", (ATTN_KV,))], []),
    "qwen3": ((), QK, []),
    "gemma2": ((), POST, [("attention.sliding_window", U32, 8), ("final_logit_softcapping", F32, 20.0)]),
    "gemma3": ((), QK + POST, [("attention.sliding_window", U32, 8)]),
    "phi3": (("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"),
             [("attn_qkv.weight", (DIM, DIM + 2 * ATTN_KV)), ("ffn_up.weight", (DIM, 2 * HIDDEN))], []),
    "granite": ((), [], [("embedding_scale", F32, 2.0), ("logit_scale", F32, 3.0)]),
    "olmo2": (("attn_norm", "ffn_norm"),
              POST + [("attn_q_norm.weight", (DIM,)), ("attn_k_norm.weight", (ATTN_KV,))], []),
    "mistral3": ((), [], [("rope.scaling.type", STR, "yarn"), ("rope.scaling.factor", F32, 4.0),
                          ("rope.scaling.original_context_length", U32, 16),
                          ("attention.temperature_scale", F32, 0.1)]),
    "stablelm": ((), LAYER_NORM, [("attention.layer_norm_epsilon", F32, 1e-5)]),
    "starcoder2": (("ffn_gate",), LAYER_NORM + [("ffn_up.bias", (HIDDEN,))],
                   [("attention.layer_norm_epsilon", F32, 1e-5)]),
    "hunyuan-dense": ((), QK, [("rope.scaling.alpha", F32, 50.0)]),
    "cohere2": (("ffn_norm",), [], [("attention.layer_norm_epsilon", F32, 1e-5), ("attention.sliding_window", U32, 8),
                                    ("attention.sliding_window_pattern", ARR, (BOOL, ([1, 0] * LAYERS)[:LAYERS]))]),
}


def seeds_architectures():
    for name, (drop, more, extra) in ARCHITECTURES.items():
        own = [(name + k[5:] if k.startswith("llama.") else k, kind, v) for k, kind, v in keys()]
        own[0] = ("general.architecture", STR, name)
        own += [(name + "." + k, kind, v) for k, kind, v in extra]
        parts = [t for t in tensors(0, True) if t[0].split(".")[-2] not in drop]
        parts += [("blk.%d.%s" % (layer, n), dims, 0) for layer in range(LAYERS) for n, dims in more]
        save("gguf", "arch_" + name, gguf(own, parts))


# ---- llama2.c ----
def checkpoint(untied=False, tables=True, dim=4, hidden=4, layers=1, heads=2, kv=1, vocab=VOCAB, seq=SEQ):
    hd = dim // heads
    floats = vocab * dim + dim + layers * (2 * dim + 2 * dim * dim + 2 * dim * kv * hd + 3 * dim * hidden)
    floats += (seq * hd if tables else 0) + (vocab * dim if untied else 0)
    head = struct.pack("<7i", dim, hidden, layers, heads, kv, -vocab if untied else vocab, seq)
    return head + bytes(4 * floats)


def version1(shared=1):
    body = checkpoint(not shared, False)[28:]
    head = struct.pack("<2I7iB", 0x616B3432, 1, 4, 4, 1, 2, 1, VOCAB, SEQ, shared)
    return head + bytes(256 - len(head)) + body


def tokenizer(pieces=("<unk>", "\n<s>\n", "\n</s>\n", "<0x0A>", " a", "b")):
    out = struct.pack("<i", max(len(p) for p in pieces))
    for score, piece in zip(SCORES, pieces):
        out += struct.pack("<fi", score, len(piece)) + piece.encode()
    return out


def seeds_llama2c():
    def pair(model, tok):
        return struct.pack("<I", len(model)) + model + tok
    save("llama2c", "legacy", pair(checkpoint(), tokenizer()))
    save("llama2c", "no_tables", pair(checkpoint(tables=False), tokenizer()))
    save("llama2c", "untied", pair(checkpoint(untied=True), tokenizer()))
    save("llama2c", "version1", pair(version1(), tokenizer()))
    save("llama2c", "version1_untied", pair(version1(0), tokenizer()))
    save("llama2c", "tokenizer_only", pair(b"", tokenizer()))
    save("llama2c", "cut", pair(checkpoint()[:-1], tokenizer()[:-1]))


# ---- vocabulary blob ----
def blob(flags=5, bos=1, eos=2, types=TYPES):
    pieces = [t.encode() for t in TOKENS]
    offsets = [0]
    for p in pieces:
        offsets.append(offsets[-1] + len(p))
    head = struct.pack("<12I", 0x31435654, 1, len(pieces), flags, bos, eos, 0, 0xFFFFFFFF, offsets[-1], 0, 0, 0)
    kinds = bytes(types)
    return (head + struct.pack("<%df" % len(pieces), *SCORES) + struct.pack("<%dI" % len(offsets), *offsets) + kinds +
            bytes(-len(kinds) % 4) + b"".join(pieces))


def seeds_vocab():
    save("vocab", "good", blob())
    save("vocab", "all_flags", blob(flags=15))
    save("vocab", "no_ids", blob(flags=4, bos=0xFFFFFFFF, eos=0xFFFFFFFF))
    save("vocab", "bad_id", blob(bos=6))
    save("vocab", "bad_type", blob(types=[2, 3, 3, 6, 1, 9]))
    save("vocab", "cut", blob()[:-1])


# ---- transformers: for the config and the tensors that fuzz_safetensors.c and fuzz_hf_config.c have ----
def safetensors(kind="F32", drop=(), more=None):
    size, header, data = {"F32": 4, "F16": 2, "BF16": 2}[kind], {"__metadata__": {"format": "pt"}}, b""
    layer = "model.layers.0."
    for name, shape in (("model.embed_tokens", (5, 8)), ("model.norm", (8,)), (layer + "input_layernorm", (8,)),
                        (layer + "self_attn.q_proj", (8, 8)), (layer + "self_attn.k_proj", (4, 8)),
                        (layer + "self_attn.v_proj", (4, 8)), (layer + "self_attn.o_proj", (8, 8)),
                        (layer + "post_attention_layernorm", (8,)), (layer + "mlp.gate_proj", (8, 8)),
                        (layer + "mlp.up_proj", (8, 8)), (layer + "mlp.down_proj", (8, 8))):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if name not in drop:
            header[name + ".weight"] = {"dtype": kind, "shape": shape,
                                        "data_offsets": [len(data), len(data) + count * size]}
            data += bytes(range(count % 64)) + bytes(count * size - count % 64)
    header.update(more or {})
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def seeds_hf():
    for kind in ("F32", "F16", "BF16"):
        save("safetensors", "llama_" + kind.lower(), safetensors(kind))
    save("safetensors", "no_norm", safetensors(drop=("model.norm",)))
    save("safetensors", "bias", safetensors(more={"model.layers.0.self_attn.q_proj.bias": {
        "dtype": "F32", "shape": [0], "data_offsets": [1632, 1632]}}))
    save("safetensors", "none", struct.pack("<Q", 2) + b"{}")
    good = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8, "vocab_size": 5,
            "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "silu"}
    ministral = {"model_type": "ministral3",
                 "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e6, "mscale": 1.0,
                                     "mscale_all_dim": 1.0, "original_max_position_embeddings": 4,
                                     "llama_4_scaling_beta": 0.1}}
    for name, more in (("good", {}), ("mistral", {"model_type": "mistral", "sliding_window": 4096}),
                       ("qwen2", {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4}),
                       ("linear", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
                       ("llama3", {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                                                    "high_freq_factor": 4,
                                                    "original_max_position_embeddings": 64}}),
                       ("version5", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
                       ("quantised", {"quantization_config": {"quant_method": "gptq"}}),
                       ("cohere2", {"model_type": "cohere2", "layer_norm_eps": 1e-5, "sliding_window": 4,
                                    "logit_scale": 0.25, "use_qk_norm": False,
                                    "layer_types": ["full_attention"]}),
                       ("mistral3", {"model_type": "mistral3", "text_config": {**good, **ministral}}),
                       ("ministral3", ministral),
                       ("head_dim", {"head_dim": 4, "attention_bias": True})):
        save("hf_config", name, json.dumps({**good, **more}).encode())


# ---- vocabularies of the second form ----
NONE = 0xFFFFFFFF


def blob2(kind, pieces, flags=0, pre="", merges=(), charsmap=b"", ends=(), bos=NONE, eos=NONE, unk=NONE):
    """pieces: of (bytes, score, type)"""
    offsets = [0]
    for p, _, _ in pieces:
        offsets.append(offsets[-1] + len(p))
    scored = kind in (1, 3)
    pad = lambda b: b + bytes(-len(b) % 4)
    head = struct.pack("<12I", 0x32435654, kind, len(pieces), flags, bos, eos, unk, NONE, offsets[-1], 0, 0, 0)
    extra = struct.pack("<24s4I12I2I", pre.encode(), len(pieces) if scored else 0, len(merges), len(ends), len(charsmap),
                        *([NONE] * 12), 0, 0)
    out = head + extra
    if scored:
        out += struct.pack("<%df" % len(pieces), *[score for _, score, _ in pieces])
    out += struct.pack("<%dI" % len(offsets), *offsets)
    for merge in merges:
        out += struct.pack("<3I", *merge)
    out += pad(bytes(kind for _, _, kind in pieces)) + pad(b"".join(p for p, _, _ in pieces)) + pad(charsmap)
    return out + struct.pack("<%dI" % len(ends), *ends)


SPACE = "\u2581".encode()
BYTES = [(bytes([b]), 0, 1) for b in range(256)]
WORDS = BYTES + [(b"he", 0, 1), (b"ll", 0, 1), (b"hell", 0, 1), (b"<|end|>", 0, 3), (b"<u>", 0, 4 | 32)]
BYTE_MERGES = [(108, 108, 257), (104, 101, 256), (256, 257, 258)]
GRAMS = [(b"<unk>", 0, 2), (SPACE, -3, 1), (b"a", -2, 1), (SPACE + b"ab", -4, 1), (b"b", -2.5, 1), (b"<x>", 0, 4)]
CHARS = [(SPACE, 0, 1), (b"a", 0, 1), (b"b", 0, 1), (b"ab", 0, 1), (SPACE + b"ab", 0, 1), (b"<0x41>", 0, 6)]
# a double array with one key, "A", whose value is the text "ab"
CHARSMAP = (struct.pack("<I", 264) + struct.pack("<66I", 64 << 10, 2 << 10 | 256 | 65, 0, 1 << 31 | 2, *[0] * 62) +
            b"q\0ab\0")


def second_form():
    return {
        "bytes": blob2(2, WORDS, 1, "gpt-2", BYTE_MERGES, ends=[259], bos=259),
        "bytes_whole": blob2(2, WORDS, 16, "qwen2", BYTE_MERGES),
        "unigram": blob2(3, GRAMS, 4 | 32, unk=0),
        "unigram_map": blob2(3, GRAMS, 0, charsmap=CHARSMAP, unk=0),
        "chars": blob2(4, CHARS, 4, merges=[(1, 2, 3), (0, 3, 4)]),
        "spm_suffix": blob2(1, GRAMS, 4 | 128, unk=0),
        "spm_plain": blob2(1, GRAMS, 64 | 32, unk=0),
    }


def seeds_second_form():
    texts = {"bytes": "hello hell<|end|> <u>  \u00e9\n\n42".encode(), "bytes_whole": b"I'll say \xff\xc3 123\r\n x"}
    for name, b in second_form().items():
        save("vocab", name, b)
        text = texts.get(name, "  Ab a<x> ab\u00e9 ".encode())
        for flags in (0, 16, 32):
            save("tokenizer", "%s%d" % (name, flags), bytes([flags, 0]) + struct.pack("<H", len(b)) + b + text)


# ---- tokenizer.json ----
def seeds_hf_tokenizer():
    regex = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
             "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    added = [{"id": 6, "content": "<|im_end|>", "special": True, "rstrip": True}, {"id": 7, "content": "<u>", "special": False}]
    words = {"added_tokens": added, "normalizer": {"type": "NFC"},
             "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
             "post_processor": byte_level, "decoder": byte_level,
             "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120ab": 4},
                       "merges": ["a b", ["\u0120", "ab"]]}}
    space = "\u2581"
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": space}
    chars = {"added_tokens": [], "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": space}, replace]},
             "pre_tokenizer": None, "post_processor": {"type": "TemplateProcessing", "single": [
                 {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]},
             "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
             "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True,
                       "vocab": {"<unk>": 0, "<s>": 1, "<0x41>": 2, space: 3, "a": 4, space + "a": 5}, "merges": [space + " a"]}}
    gram = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(CHARSMAP).decode()},
            "pre_tokenizer": {"type": "Metaspace", "replacement": space, "prepend_scheme": "always"},
            "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], [space + "a", -1.5], ["b", -2]]}}
    config = {"bos_token": "a", "eos_token": {"content": "<|im_end|>"}, "model_max_length": 10 ** 30,
              "chat_template": [{"name": "default", "template": "{{ x }}"}]}
    for name, files in (("words", (words, config, {"eos_token_id": [6, 1]}, "{{ y }}")), ("chars", (chars,)), ("gram", (gram,)),
                        ("digits", (dict(words, pre_tokenizer={"type": "Sequence", "pretokenizers": [
                            {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel"}]}),)),
                        ("wordpiece", ({"model": {"type": "WordPiece"}},)), ("cut", ({"model": {"type": "BPE"}}, 3))):
        parts = [f if isinstance(f, str) else json.dumps(f, separators=(",", ":")) for f in files] + [""] * (4 - len(files))
        save("hf_tokenizer", name, "\0".join(parts).encode() + b"\0 ab  aA<|im_end|> b 42\n")


seeds_gguf()
seeds_architectures()
seeds_llama2c()
seeds_hf()
seeds_vocab()
seeds_second_form()
seeds_hf_tokenizer()
