/* SPDX-License-Identifier: Apache-2.0
 *
 * The pre-tokenizers (pretokenizer.h): a table of expressions for each family, and the loop that
 * cuts with one after the other.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "driver/tokenizer/pretokenizer.h"

#include "loader/base/assert.h"
#include "loader/base/grow.h"
#include "tilewright/vocab.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 6u

/* White space as Unicode defines it, spelled out because PCRE2's \s has one character more
 * (U+180E). For use inside of brackets. */
#define W      \
    "\\t-\\r " \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACES "[" W "]+(?![^" W "])|[" W "]+" /* all but the blank before a word; else all */
#define LINES "[" W "]*[\\r\\n]+"

#define SUFFIXES "'s|'t|'re|'ve|'m|'ll|'d"
#define ANY_CASE_SUFFIXES "(?i:" SUFFIXES ")"

#define GPT2_WORDS SUFFIXES "| ?\\p{L}+| ?\\p{N}+| ?[^" W "\\p{L}\\p{N}]+|" SPACES
/* GPT-4's and what derives from it: `digits` at once */
#define GPT4(digits)                                                     \
    ANY_CASE_SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" W \
                      "\\p{L}\\p{N}]+[\\r\\n]*|" LINES "|" SPACES
/* A word of capitals, then small letters; `suffix` may follow. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CAMEL(suffix, digits)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" suffix "|" digits "| ?[^" W "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES "|" SPACES

/* DeepSeek's letters: those with case, of an older Unicode. */
#define CASED                                                                               \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"          \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"  \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"           \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"          \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"          \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}" \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"  \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"          \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"           \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"            \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}" \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"  \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"           \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"          \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"        \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"  \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define HAN "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
/* White space at the end; the look-behind keeps the search from trying every blank of a run. */
#define TRAILING "(?<![" W "])[" W "]++\\z"
#define BLOOM_WORD " ?[^(|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})" W "]+"

enum family {
    DEFAULT,
    GPT2,
    LLAMA3,
    QWEN2,
    QWEN35,
    STARCODER,
    FALCON,
    DEEPSEEK,
    DEEPSEEK_CODER,
    DEEPSEEK3,
    TEKKEN,
    GPT4O,
    SEED_CODER,
    BAILING,
    BLOOM,
    VIKING,
    FAMILIES
};

static const char *const stages[FAMILIES][MAX_STAGES] = {
    [DEFAULT] = {"[\\p{P}$+<=>^~|]+", GPT2_WORDS, "\\p{N}+", "[0-9][0-9][0-9]"},
    [GPT2] = {GPT2_WORDS},
    [LLAMA3] = {GPT4("\\p{N}{1,3}")},
    [QWEN2] = {GPT4("\\p{N}")},
    [QWEN35] = {ANY_CASE_SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" W
                                  "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" SPACES},
    [STARCODER] = {"\\p{N}", GPT2_WORDS},
    [FALCON] = {"[\\p{P}$+<=>^~|`]+", GPT2_WORDS, "[0-9][0-9][0-9]"},
    [DEEPSEEK] = {"[\\r\\n]", "[" W "]?[" CASED "]+",
                  "[" W
                  "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-"
                  "\\x{3002}]+",
                  TRAILING, HAN, "\\p{N}+"},
    [DEEPSEEK_CODER] = {"[\\r\\n]", "[" W "]?\\p{L}+", "[" W "]?\\p{P}+", HAN, "\\p{N}"},
    [DEEPSEEK3] = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
                   "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                   "?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES},
    [TEKKEN] = {CAMEL("", "\\p{N}")},
    [GPT4O] = {CAMEL(ANY_CASE_SUFFIXES "?", "\\p{N}{1,3}")},
    [SEED_CODER] = {ANY_CASE_SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" W
                                      "\\p{L}\\p{N}\\r\\n]+|" LINES "|" SPACES},
    [BAILING] = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" W
                 "\\p{L}\\p{N}]++[\\r\\n]*|[" W "]*[\\r\\n]|" SPACES},
    [BLOOM] = {BLOOM_WORD},
    [VIKING] = {BLOOM_WORD, "\\p{N}"},
};

static const struct {
    const char *name;
    enum family family;
} names[] = {
#define TW_X(name, family, ignores_merges, adds_bos) {name, family},
    TW_PRETOKENIZERS(TW_X)
#undef TW_X
};

struct tw_pretokenizer {
    pcre2_code *code[MAX_STAGES];
    uint32_t n_stages;
};

/* ---- tables ---- */

static int find_family(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, name) == 0) {
            return (int)names[i].family;
        }
    }
    return -1;
}

static int compile(const char *pattern, pcre2_code **out, tw_error *err) {
    int number;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &number, &at, NULL);
    if (!*out) {
        bool memory = number == PCRE2_ERROR_NOMEMORY || number == 121; /* "failed to allocate" */
        return tw_fail(err, memory ? TW_E_NOMEM : TW_E_INTERNAL,
                       "pre-tokenizer: PCRE2 refuses an expression (error %d at %zu)", number, at);
    }
    /* Without just-in-time code (a hardened kernel, another processor) the interpreter is used. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return 0;
}

/* Appends the names that are known to the message, as far as they fit. */
static int unknown_name(const char *name, tw_error *err) {
    tw_error_set(err, TW_E_UNSUPPORTED, "pre-tokenizer \"%.24s\" is not known; those known are",
                 name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tw_error_append(err, " %s", names[i].name);
    }
    return TW_E_UNSUPPORTED;
}

int tw_pretokenizer_create(const char *name, struct tw_pretokenizer **out, tw_error *err) {
    int family = find_family(name), rc = 0;
    *out = NULL;
    if (family < 0) {
        return unknown_name(name, err);
    }
    struct tw_pretokenizer *pre = calloc(1, sizeof *pre);
    if (!pre) {
        return tw_fail(err, TW_E_NOMEM, "pre-tokenizer: out of memory");
    }
    while (rc == 0 && pre->n_stages < MAX_STAGES && stages[family][pre->n_stages]) {
        rc = compile(stages[family][pre->n_stages], &pre->code[pre->n_stages], err);
        pre->n_stages += rc == 0;
    }
    if (rc) {
        tw_pretokenizer_destroy(pre);
        return rc;
    }
    *out = pre;
    return 0;
}

void tw_pretokenizer_destroy(struct tw_pretokenizer *pre) {
    for (uint32_t i = 0; pre && i < pre->n_stages; i++) {
        pcre2_code_free(pre->code[i]);
    }
    free(pre);
}

void tw_cuts_finish(struct tw_cuts *cuts) {
    free(cuts->ends);
    free(cuts->old);
    memset(cuts, 0, sizeof *cuts);
}

/* ---- cutting ---- */

/* What one cut uses; created for each, so that threads can share a pre-tokenizer. */
struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    struct tw_cuts *cuts;
    tw_error *err;
};

static int add_end(struct matcher *m, uint32_t end) {
    struct tw_cuts *cuts = m->cuts;
    if (!tw_grow(&cuts->ends, &cuts->room, cuts->n + 1, sizeof *cuts->ends)) {
        return tw_fail(m->err, TW_E_NOMEM, "pre-tokenizer: no memory for %zu words", cuts->n);
    }
    cuts->ends[cuts->n++] = end;
    return 0;
}

/* Finds the next match of text[at..n). Returns 1 and its place, 0 if there is none, or an error. */
static int next_match(const struct matcher *m, const pcre2_code *code, const char *text, uint32_t n,
                      uint32_t at, uint32_t *start, uint32_t *end) {
    int rc = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                         m->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        return 0;
    }
    if (rc < 0) {
        return tw_fail(m->err, rc == PCRE2_ERROR_NOMEMORY ? TW_E_NOMEM : TW_E_INTERNAL,
                       "pre-tokenizer: PCRE2 cannot match at byte %u of %u (error %d)", at, n, rc);
    }
    const PCRE2_SIZE *where = pcre2_get_ovector_pointer(m->data);
    *start = (uint32_t)where[0];
    *end = (uint32_t)where[1];
    return 1;
}

/* Cuts one piece, text[from..to): its matches, and what is between them. */
static int cut_piece(struct matcher *m, const pcre2_code *code, const char *text, uint32_t from,
                     uint32_t to) {
    uint32_t n = to - from, at = 0, start, end;
    while (at < n) {
        int rc = next_match(m, code, text + from, n, at, &start, &end);
        if (rc < 0) {
            return rc;
        }
        if (rc == 0 || end <= start) {
            break;
        }
        TW_ASSERT(start >= at && end <= n);
        rc = start > at ? add_end(m, from + start) : 0;
        rc = rc ? rc : add_end(m, from + end);
        if (rc) {
            return rc;
        }
        at = end;
    }
    return at < n ? add_end(m, to) : 0;
}

static int cut_stage(struct matcher *m, const pcre2_code *code, const char *text) {
    struct tw_cuts *cuts = m->cuts;
    uint32_t *ends = cuts->ends, from = 0;
    size_t n = cuts->n, room = cuts->room;
    int rc = 0;
    cuts->ends = cuts->old;
    cuts->room = cuts->old_room;
    cuts->old = ends;
    cuts->old_room = room;
    cuts->n = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = cut_piece(m, code, text, from, cuts->old[i]);
        from = cuts->old[i];
    }
    return rc;
}

int tw_pretokenizer_cut(const struct tw_pretokenizer *pre, const char *text, uint32_t n,
                        struct tw_cuts *cuts, tw_error *err) {
    struct matcher m = {.data = pcre2_match_data_create(1, NULL),
                        .context = pcre2_match_context_create(NULL),
                        .cuts = cuts,
                        .err = err};
    int rc = m.data && m.context ? 0 : tw_fail(err, TW_E_NOMEM, "pre-tokenizer: out of memory");
    if (rc == 0) {
        /* The expressions are ours and their work is bounded by the text (pretokenizer.h). */
        pcre2_set_match_limit(m.context, UINT32_MAX);
        pcre2_set_heap_limit(m.context, UINT32_MAX);
        pcre2_set_depth_limit(m.context, UINT32_MAX);
        cuts->n = 0;
        rc = add_end(&m, n);
    }
    for (uint32_t i = 0; i < pre->n_stages && rc == 0; i++) {
        rc = cut_stage(&m, pre->code[i], text);
    }
    pcre2_match_data_free(m.data);
    pcre2_match_context_free(m.context);
    return rc;
}
