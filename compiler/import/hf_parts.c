/* SPDX-License-Identifier: Apache-2.0
 *
 * The chains of steps of a tokenizer.json (hf_parts.h). A pre-tokenizer is recognised by the
 * sequence of its steps with their expressions, which must be, letter by letter, those of a known
 * model: expressions from a file are never run.
 */
#include "compiler/import/hf_parts.h"

#include <stdio.h>
#include <string.h>

#define SPACE TW_HF_SPACE
#define MAX_STEPS 16u
#define SIGNATURE_BYTES 4096u

const char *tw_hf_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

bool tw_hf_true(const json_t *object, const char *key) {
    return json_is_true(json_object_get(object, key));
}

static bool is(const char *text, const char *expected) {
    return text && strcmp(text, expected) == 0;
}

static void refuse(struct tw_hf_parts *p, const char *part, const char *what, const char *detail) {
    if (!p->problem[0]) {
        snprintf(p->problem, sizeof p->problem, "tokenizer.json: %s %.24s%s%.60s is not supported",
                 part, what ? what : "without a type", detail ? ": " : "", detail ? detail : "");
    }
}

/* The steps of a part: itself, or those of a Sequence. */
struct steps {
    const json_t *step[MAX_STEPS];
    uint32_t n;
};

/* What steps do to blanks; only some sets of them are what TW_VOCAB_SQUEEZE means. */
struct blanks {
    bool replaced;     /* the table of normalisations came before, so that blanks are ' ' */
    bool left, right;  /* Strip at these ends */
    bool several;      /* Replace of " {2,}" */
    bool words;        /* WhitespaceSplit */
    bool prepend;      /* Prepend */
    bool each;         /* Metaspace with a blank before each of its words */
    const char *first; /* the name of the first step of these that drops blanks; NULL: none */
};

static struct steps list_steps(const json_t *root, const char *part, const char *inner,
                               struct tw_hf_parts *p) {
    const json_t *top = json_object_get(root, part), *step;
    struct steps s = {.n = 0};
    size_t i;
    if (!top || json_is_null(top)) {
        return s;
    }
    if (!is(tw_hf_text(top, "type"), "Sequence")) {
        s.step[s.n++] = top;
        return s;
    }
    json_array_foreach(json_object_get(top, inner), i, step) {
        if (s.n == MAX_STEPS) {
            refuse(p, part, "Sequence", "more than 16 steps");
            break;
        }
        s.step[s.n++] = step;
    }
    return s;
}

/* ---- normalizer ---- */

/* Remembers a step that drops blanks. */
static void drop_blanks(struct blanks *b, const struct tw_hf_parts *p, const char *name) {
    b->replaced = b->first ? b->replaced : p->charsmap != NULL;
    b->first = b->first ? b->first : name;
}

static void read_replace(const json_t *step, struct tw_hf_parts *p, struct blanks *b) {
    const json_t *pattern = json_object_get(step, "pattern");
    const char *text = tw_hf_text(pattern, "String"), *regex = tw_hf_text(pattern, "Regex");
    const char *content = tw_hf_text(step, "content");
    if (is(text, " ") && is(content, SPACE)) {
        p->escape_spaces = true;
    } else if (is(regex, " {2,}") && (is(content, " ") || is(content, SPACE))) {
        drop_blanks(b, p, "Replace");
        b->several = true;
    } else {
        refuse(p, "normalizer", "Replace", text ? text : regex);
    }
}

static void read_strip(const json_t *step, struct tw_hf_parts *p, struct blanks *b) {
    drop_blanks(b, p, "Strip");
    b->left = b->left || tw_hf_true(step, "strip_left");
    b->right = b->right || tw_hf_true(step, "strip_right");
}

static void read_normalizer(const json_t *root, struct tw_hf_parts *p, struct blanks *b) {
    struct steps s = list_steps(root, "normalizer", "normalizers", p);
    for (uint32_t i = 0; i < s.n; i++) {
        const char *type = tw_hf_text(s.step[i], "type");
        if (is(type, "Replace")) {
            read_replace(s.step[i], p, b);
        } else if (is(type, "Prepend") && is(tw_hf_text(s.step[i], "prepend"), SPACE)) {
            p->prefix_space = b->prepend = true;
        } else if (is(type, "Precompiled")) {
            p->charsmap = tw_hf_text(s.step[i], "precompiled_charsmap");
        } else if (is(type, "Strip")) {
            read_strip(s.step[i], p, b);
        } else if (!is(type, "NFC")) { /* text is taken as it is, as from a GGUF file */
            refuse(p, "normalizer", type, NULL);
        }
    }
}

/* What is left of blanks after all steps. Words that WhitespaceSplit cuts out get a blank each from
 * Metaspace; where that puts one at the beginning, it takes the place of one that is there. */
static void judge_blanks(const struct blanks *b, struct tw_hf_parts *p) {
    bool words = b->words && b->each;
    bool ends = b->right && (b->left || b->each) && !b->words;
    p->squeeze = b->replaced && p->escape_spaces && !b->prepend && (words || (b->several && ends));
    if (b->first && !p->squeeze) {
        refuse(p, "dropping some blanks by", b->first, NULL);
    }
}

/* ---- pre-tokenizer ---- */

#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPELLED "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT4(suffixes, digits)                                                           \
    suffixes "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
             "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* The same with possessive quantifiers, which change nothing here. */
#define GPT4_POSSESSIVE(digits)                                                              \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]++" \
    "[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define QWEN35(suffixes)                                                                           \
    suffixes "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" \
             "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CAMEL(suffix, digits)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" suffix "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BYTES "\nbytes"

/* Each step on a line of its own: an expression of a Split after "=", or the name of another. */
static const struct {
    const char *signature, *pre;
} known[] = {
    {"\nwords", "gpt-2"},
    {"\ndigits\nwords", "starcoder"},
    {"\n=\\p{N}\nwords", "starcoder"},
    {"\npunctuation\nwords\n=[0-9][0-9][0-9]", "falcon"},
    {"\n=" GPT4(SUFFIXES, "\\p{N}{1,3}") BYTES, "llama-bpe"},
    {"\n=" GPT4(SPELLED, "\\p{N}{1,3}") BYTES, "llama-bpe"},
    {"\n=" GPT4_POSSESSIVE("\\p{N}{1,3}") BYTES, "llama-bpe"},
    {"\n=" GPT4(SUFFIXES, "\\p{N}") BYTES, "qwen2"},
    {"\n=" GPT4(SPELLED, "\\p{N}") BYTES, "qwen2"},
    {"\n=" GPT4_POSSESSIVE("\\p{N}") BYTES, "qwen2"},
    {"\n=" QWEN35(SUFFIXES) BYTES, "qwen35"},
    {"\n=" QWEN35(SPELLED) BYTES, "qwen35"},
    {"\n=" CAMEL("", "\\p{N}") BYTES, "tekken"},
    {"\n=" CAMEL(SUFFIXES "?", "\\p{N}{1,3}") BYTES, "gpt-4o"},
    {"\n=\\p{N}{1,3}\n=[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-"
     "\xE3\x83\xBF]+"
     "\n=[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
     "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+" BYTES,
     "deepseek-v3"},
};

struct signature {
    char text[SIGNATURE_BYTES];
    size_t n;
    bool full;
};

static void add(struct signature *s, const char *text) {
    size_t n = strlen(text);
    s->full = s->full || n >= sizeof s->text - s->n;
    if (!s->full) {
        memcpy(s->text + s->n, text, n + 1);
        s->n += n;
    }
}

static void read_split(const json_t *step, struct tw_hf_parts *p, struct signature *s) {
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = tw_hf_text(pattern, "Regex"), *text = tw_hf_text(pattern, "String");
    const char *behavior = tw_hf_text(step, "behavior");
    if (is(text, " ") && is(behavior, "MergedWithPrevious")) {
        return; /* of text whose blanks have become U+2581: cuts nothing */
    }
    bool isolated = is(behavior, "Isolated") || is(behavior, "Removed");
    if (!regex || !isolated || is(behavior, "Removed") != tw_hf_true(step, "invert")) {
        refuse(p, "pre_tokenizer", "Split", behavior);
        return;
    }
    add(s, "\n=");
    add(s, regex);
}

/* "always" puts a blank before the text and after each token in it, "first" before the text. */
static void read_metaspace(const json_t *step, struct tw_hf_parts *p, struct blanks *b) {
    const char *scheme = tw_hf_text(step, "prepend_scheme");
    bool first = is(scheme, "first");
    b->each = is(scheme, "always") || (!scheme && tw_hf_true(step, "add_prefix_space"));
    if (!is(tw_hf_text(step, "replacement"), SPACE)) {
        refuse(p, "pre_tokenizer", "Metaspace", tw_hf_text(step, "replacement"));
    }
    if (scheme && !first && !b->each && !is(scheme, "never")) {
        refuse(p, "pre_tokenizer", "Metaspace", scheme);
    }
    p->escape_spaces = true;
    p->words = !json_is_false(json_object_get(step, "split"));
    p->prefix_first = first && !b->prepend; /* Prepend has put one everywhere */
    p->prefix_new = (first || b->each) && !b->prepend;
    p->prefix_space = p->prefix_space || p->prefix_new;
}

static void read_byte_level(const json_t *step, struct tw_hf_parts *p, struct signature *s) {
    p->byte_level = true;
    if (tw_hf_true(step, "add_prefix_space")) {
        refuse(p, "pre_tokenizer", "ByteLevel", "add_prefix_space");
    }
    /* Older files do not have the key, and mean true. */
    add(s, json_is_false(json_object_get(step, "use_regex")) ? BYTES : "\nwords");
}

static void read_step(const json_t *step, struct tw_hf_parts *p, struct signature *s,
                      struct blanks *b) {
    const char *type = tw_hf_text(step, "type");
    if (is(type, "Split")) {
        read_split(step, p, s);
    } else if (is(type, "Metaspace")) {
        read_metaspace(step, p, b);
    } else if (is(type, "ByteLevel")) {
        read_byte_level(step, p, s);
    } else if (is(type, "Digits") && tw_hf_true(step, "individual_digits")) {
        add(s, "\ndigits");
    } else if (is(type, "Punctuation") && is(tw_hf_text(step, "behavior"), "Contiguous")) {
        add(s, "\npunctuation");
    } else if (is(type, "WhitespaceSplit")) {
        drop_blanks(b, p, "WhitespaceSplit");
        b->words = true;
    } else {
        refuse(p, "pre_tokenizer", type, NULL);
    }
}

static void read_pre_tokenizer(const json_t *root, struct tw_hf_parts *p, struct blanks *b) {
    struct steps s = list_steps(root, "pre_tokenizer", "pretokenizers", p);
    struct signature signature = {.n = 0};
    for (uint32_t i = 0; i < s.n; i++) {
        read_step(s.step[i], p, &signature, b);
    }
    if (signature.full) {
        refuse(p, "pre_tokenizer", "Sequence", "over 4096 bytes of expressions");
    }
    for (size_t i = 0; i < sizeof known / sizeof *known && p->byte_level && !p->pre; i++) {
        p->pre = is(signature.text, known[i].signature) ? known[i].pre : NULL;
    }
    if (p->byte_level ? !p->pre : signature.n > 0) {
        refuse(p, "pre_tokenizer", "with the steps", signature.text + 1);
    }
}

/* ---- post-processor and decoder ---- */

/* The token of a template's step, NULL: it is the text. */
static const char *special_of(const json_t *step) {
    return tw_hf_text(json_object_get(step, "SpecialToken"), "id");
}

static void read_template(const json_t *step, struct tw_hf_parts *p) {
    const json_t *single = json_object_get(step, "single"), *item;
    bool text = false;
    size_t i;
    json_array_foreach(single, i, item) {
        const char *token = special_of(item);
        const char **to = text ? &p->after : &p->before;
        if (!token) {
            text = true;
        } else if (*to) {
            refuse(p, "post_processor", "TemplateProcessing", "several tokens in a row");
        } else {
            *to = token;
        }
    }
}

static void read_post_processor(const json_t *root, struct tw_hf_parts *p) {
    struct steps s = list_steps(root, "post_processor", "processors", p);
    for (uint32_t i = 0; i < s.n; i++) {
        const char *type = tw_hf_text(s.step[i], "type");
        if (is(type, "TemplateProcessing")) {
            read_template(s.step[i], p);
        } else if (!is(type, "ByteLevel")) {
            refuse(p, "post_processor", type, NULL);
        }
    }
}

static void read_decoder(const json_t *root, struct tw_hf_parts *p) {
    static const char *const fine[] = {"ByteLevel", "ByteFallback", "Fuse",
                                       "Strip",     "Replace",      "Metaspace"};
    struct steps s = list_steps(root, "decoder", "decoders", p);
    for (uint32_t i = 0; i < s.n; i++) {
        const char *type = tw_hf_text(s.step[i], "type");
        bool known_type = false;
        for (size_t k = 0; k < sizeof fine / sizeof *fine; k++) {
            known_type = known_type || is(type, fine[k]);
        }
        if (!known_type) {
            refuse(p, "decoder", type, NULL);
        }
    }
}

void tw_hf_read_parts(const json_t *root, struct tw_hf_parts *out) {
    struct blanks blanks = {0};
    memset(out, 0, sizeof *out);
    read_normalizer(root, out, &blanks);
    read_pre_tokenizer(root, out, &blanks);
    judge_blanks(&blanks, out);
    read_post_processor(root, out);
    read_decoder(root, out);
}
