/* SPDX-License-Identifier: Apache-2.0
 *
 * The vocabulary, as the importers create it, `.tw.vocab` stores it and the tokenizer reads it: one
 * little-endian blob in one of two forms, each part starting at a multiple of 4 bytes.
 *
 *   TW_VOCAB_MAGIC_1 (bundles of version 2.0; SPM_BPE only):
 *     struct tw_vocab_header, float scores[n], uint32_t offsets[n + 1], uint8_t types[n],
 *     char bytes[bytes_size]
 *   TW_VOCAB_MAGIC (from version 2.1 on):
 *     struct tw_vocab_header, struct tw_vocab_extra, float scores[n_scores],
 *     uint32_t offsets[n + 1], struct tw_vocab_merge merges[n_merges], uint8_t types[n],
 *     char bytes[bytes_size], uint8_t charsmap[charsmap_bytes], uint32_t ends[n_ends]
 *
 * Piece i is bytes[offsets[i] .. offsets[i+1]), not terminated, of any bytes. How it is spelled
 * depends on the kind: in SPM_BPE, MERGE_BPE and UNIGRAM a blank is U+2581 and a byte token is
 * "<0x0A>" with type BYTE; in BYTE_BPE a piece is the bytes that it stands for.
 */
#ifndef TILEWRIGHT_VOCAB_H
#define TILEWRIGHT_VOCAB_H

#include "tilewright/error.h"
#include "tilewright/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_VOCAB_MAGIC_1 0x31435654u /* "TVC1" */
#define TW_VOCAB_MAGIC 0x32435654u   /* "TVC2" */

enum tw_vocab_kind {
    TW_VOCAB_NONE = 0,
    TW_VOCAB_SPM_BPE = 1,  /* of characters; the adjacent pair whose piece scores best is merged */
    TW_VOCAB_BYTE_BPE = 2, /* of bytes; the pair of the lowest rank is merged, word by word */
    TW_VOCAB_UNIGRAM = 3,  /* the split into pieces with the best sum of scores */
    TW_VOCAB_MERGE_BPE = 4 /* of characters; the pair of the lowest rank is merged */
};

/* Token types, numbered as in GGUF. */
enum tw_token_type {
    TW_TOKEN_NORMAL = 1,
    TW_TOKEN_UNKNOWN = 2,
    TW_TOKEN_CONTROL = 3,
    TW_TOKEN_USER_DEFINED = 4,
    TW_TOKEN_UNUSED = 5,
    TW_TOKEN_BYTE = 6
};

/* The bits of types[i]: the type, and what a special piece takes with it where it is recognised in
 * a text (white space on its left or right). */
#define TW_TOKEN_TYPE_MASK 15u
#define TW_TOKEN_LSTRIP 16u
#define TW_TOKEN_RSTRIP 32u

enum tw_vocab_flags {
    TW_VOCAB_ADD_BOS = 1,
    TW_VOCAB_ADD_EOS = 2,
    TW_VOCAB_SPACE_PREFIX = 4,
    TW_VOCAB_STOP_AT_BOS = 8, /* llama2.c: a sampled BOS ends the text */
    /* the flags below: TW_VOCAB_MAGIC only */
    TW_VOCAB_IGNORE_MERGES = 16, /* a word that is a piece is that piece, whatever the merges say */
    TW_VOCAB_SQUEEZE = 32,       /* drop blanks at both ends, and all but one of several */
    TW_VOCAB_PLAIN_SPACES = 64,  /* pieces spell blanks as blanks, not as U+2581 */
    TW_VOCAB_SPACE_SUFFIX = 128, /* a word's blank follows it: SPACE_PREFIX appends one */
    /* SPACE_PREFIX alone puts a blank before the text and after each special piece in it. */
    TW_VOCAB_PREFIX_AT_START = 256, /* only before the text */
    TW_VOCAB_PREFIX_IF_NONE = 512   /* only where no blank is yet */
};

/* Token ids are TW_NONE if the model has none. Besides eos the tokens end[0 .. n_ends) end a
 * text: those that end a turn or a message. (TW_VOCAB_MAGIC stores them in `ends`; then these three
 * words are zero.) */
#define TW_VOCAB_MAX_ENDS 2u
struct tw_vocab_header {
    uint32_t magic, kind, n_tokens, flags;
    uint32_t bos, eos, unk, pad;
    uint32_t bytes_size;
    uint32_t n_ends, end[TW_VOCAB_MAX_ENDS];
};
TW_STATIC_ASSERT(sizeof(struct tw_vocab_header) == 48, "vocab header");

/* Further tokens with a role. */
enum tw_vocab_special {
    TW_SPECIAL_EOT = 0, /* end of turn */
    TW_SPECIAL_EOM = 1, /* end of message */
    TW_SPECIAL_SEP = 2,
    TW_SPECIAL_NEWLINE = 3,
    TW_SPECIAL_MASK = 4,
    TW_SPECIAL_FIM_PREFIX = 5, /* fill in the middle */
    TW_SPECIAL_FIM_SUFFIX = 6,
    TW_SPECIAL_FIM_MIDDLE = 7,
    TW_SPECIAL_FIM_PAD = 8,
    TW_SPECIAL_FIM_REPO = 9,
    TW_SPECIAL_FIM_SEP = 10
};
#define TW_SPECIALS 12u /* one is reserved, and TW_NONE */

#define TW_VOCAB_MAX_EXTRA_ENDS 64u
#define TW_VOCAB_MAX_CHARSMAP_BYTES 4194304u
#define TW_PRE_NAME_BYTES 24u
struct tw_vocab_extra {
    char pre[TW_PRE_NAME_BYTES];   /* the pre-tokenizer, NUL-padded; BYTE_BPE only */
    uint32_t n_scores;             /* n_tokens, or 0 where the kind does not use them */
    uint32_t n_merges;             /* in the order of their ranks, the lowest first */
    uint32_t n_ends;               /* tokens that end a text besides eos */
    uint32_t charsmap_bytes;       /* SentencePiece's table of normalisations; UNIGRAM only */
    uint32_t special[TW_SPECIALS]; /* by enum tw_vocab_special; or TW_NONE */
    uint32_t reserved[2];          /* 0 */
};
TW_STATIC_ASSERT(sizeof(struct tw_vocab_extra) == 96, "vocab extra");

/* The pre-tokenizers, which cut a text into the words that BYTE_BPE merges separately: X(name,
 * family, ignore_merges, adds_bos), where the name is that of GGUF's key tokenizer.ggml.pre, and
 * models that cut in the same way are of one family (driver/tokenizer/pretokenizer.c). The last two
 * say which of TW_VOCAB_IGNORE_MERGES and TW_VOCAB_ADD_BOS a file gets that does not say. */
#define TW_PRETOKENIZERS(X)                   \
    X("default", DEFAULT, 0, 0)               \
    X("gpt-2", GPT2, 0, 0)                    \
    X("phi-2", GPT2, 0, 0)                    \
    X("mpt", GPT2, 0, 0)                      \
    X("olmo", GPT2, 0, 0)                     \
    X("jais", GPT2, 0, 0)                     \
    X("trillion", GPT2, 0, 0)                 \
    X("granite-docling", GPT2, 0, 0)          \
    X("exaone4", GPT2, 0, 0)                  \
    X("gigachat", GPT2, 0, 0)                 \
    X("mellum", GPT2, 0, 0)                   \
    X("modern-bert", GPT2, 0, 0)              \
    X("a.x-4.0", GPT2, 0, 0)                  \
    X("jina-es", GPT2, 0, 0)                  \
    X("jina-de", GPT2, 0, 0)                  \
    X("jina-v2-es", GPT2, 0, 0)               \
    X("jina-v2-de", GPT2, 0, 0)               \
    X("llama-bpe", LLAMA3, 1, 1)              \
    X("llama3", LLAMA3, 1, 1)                 \
    X("llama-v3", LLAMA3, 1, 1)               \
    X("falcon3", LLAMA3, 1, 1)                \
    X("falcon-h1", LLAMA3, 1, 1)              \
    X("pixtral", LLAMA3, 1, 1)                \
    X("midm-2.0", LLAMA3, 1, 1)               \
    X("lfm2", LLAMA3, 1, 1)                   \
    X("jina-v5-nano", LLAMA3, 1, 1)           \
    X("dbrx", LLAMA3, 0, 0)                   \
    X("smaug-bpe", LLAMA3, 0, 0)              \
    X("glm4", LLAMA3, 0, 0)                   \
    X("chatglm-bpe", LLAMA3, 0, 0)            \
    X("qwen2", QWEN2, 0, 0)                   \
    X("deepseek-r1-qwen", QWEN2, 0, 0)        \
    X("stablelm2", QWEN2, 0, 0)               \
    X("hunyuan", QWEN2, 0, 0)                 \
    X("megrez", QWEN2, 0, 0)                  \
    X("kormo", QWEN2, 0, 0)                   \
    X("f2llmv2", QWEN2, 0, 0)                 \
    X("solar-open", QWEN2, 0, 0)              \
    X("grok-2", QWEN2, 0, 0)                  \
    X("qwen35", QWEN35, 0, 0)                 \
    X("starcoder", STARCODER, 0, 0)           \
    X("refact", STARCODER, 0, 0)              \
    X("command-r", STARCODER, 0, 0)           \
    X("smollm", STARCODER, 0, 0)              \
    X("codeshell", STARCODER, 0, 0)           \
    X("exaone", STARCODER, 0, 0)              \
    X("minerva-7b", STARCODER, 0, 0)          \
    X("falcon", FALCON, 0, 0)                 \
    X("deepseek-llm", DEEPSEEK, 0, 0)         \
    X("deepseek-coder", DEEPSEEK_CODER, 0, 0) \
    X("deepseek-v3", DEEPSEEK3, 0, 0)         \
    X("hunyuan-dense", DEEPSEEK3, 0, 0)       \
    X("joyai-llm", DEEPSEEK3, 0, 0)           \
    X("tekken", TEKKEN, 1, 1)                 \
    X("gpt-4o", GPT4O, 0, 0)                  \
    X("llama4", GPT4O, 0, 0)                  \
    X("kanana2", GPT4O, 0, 0)                 \
    X("minimax-m2", GPT4O, 0, 0)              \
    X("seed-coder", SEED_CODER, 0, 0)         \
    X("bailingmoe", BAILING, 0, 0)            \
    X("bailingmoe2", BAILING, 0, 0)           \
    X("llada-moe", BAILING, 0, 0)             \
    X("bloom", BLOOM, 0, 0)                   \
    X("poro-chat", BLOOM, 0, 0)               \
    X("gpt3-finnish", BLOOM, 0, 0)            \
    X("viking", VIKING, 0, 0)

/* Two pieces that become a third, which is spelled as both together. */
struct tw_vocab_merge {
    uint32_t left, right, merged;
};
TW_STATIC_ASSERT(sizeof(struct tw_vocab_merge) == 12, "vocab merge");

/* A checked view of a blob (tw_vocab_open of loader/bundle/vocab_open.h); all pointers are into the
 * blob. A blob of the first form has an empty `extra`, but for n_ends and n_scores. */
struct tw_vocab {
    struct tw_vocab_header header;
    struct tw_vocab_extra extra;
    const float *scores; /* NULL if there are none */
    const uint32_t *offsets;
    const uint8_t *types;
    const char *bytes;
    const struct tw_vocab_merge *merges;
    const uint32_t *ends;
    const uint8_t *charsmap;
};

#ifdef __cplusplus
}
#endif
#endif
