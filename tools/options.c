/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options, parsed by the verb's table in one pass over argv.
 */
#include "tools/options.h"

#include "tools/option_names.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct opt *find_long(const struct opt_verb *verb, const char *name, size_t n) {
    for (const struct opt *o = verb->options; o->kind != OPT_END; o++) {
        if (strlen(o->name) == n && strncmp(o->name, name, n) == 0) {
            return o;
        }
    }
    return NULL;
}

static const struct opt *find_short(const struct opt_verb *verb, char letter) {
    for (const struct opt *o = verb->options; o->kind != OPT_END; o++) {
        if (o->letter && o->letter == letter) {
            return o;
        }
    }
    return NULL;
}

/* A whole number in [lo, hi], without spaces or signs other than '-'. */
static bool parse_i64(const char *text, int64_t lo, int64_t hi, int64_t *out) {
    const char *digits = *text == '-' ? text + 1 : text;
    if (*digits == 0 || strspn(digits, "0123456789") != strlen(digits)) {
        return false;
    }
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    *out = v;
    return errno == 0 && v >= lo && v <= hi;
}

static int bad_value(const struct opt *o, const char *text, tw_error *err) {
    switch (o->kind) {
    case OPT_I64:
        return tw_fail(err, TW_E_USAGE,
                       "option --%s: '%.60s' is not a whole number from %.0f to %.0f", o->name,
                       text, o->lo, o->hi);
    case OPT_FLOAT:
        return tw_fail(err, TW_E_USAGE, "option --%s: '%.60s' is not a number from %g to %g",
                       o->name, text, o->lo, o->hi);
    case OPT_IDS:
        return tw_fail(err, TW_E_USAGE,
                       "option --%s: '%.60s' is not a list of token ids such as 1,2,3", o->name,
                       text);
    case OPT_FLAG:
    case OPT_TEXT:
    case OPT_TEXTS:
    case OPT_END:
        break;
    }
    return tw_fail(err, TW_E_INTERNAL, "option --%s", o->name);
}

static int add_text(const struct opt *o, const char *text, struct opt_texts *out, tw_error *err) {
    if (out->n == OPT_MAX_TEXTS) {
        return tw_fail(err, TW_E_USAGE, "option --%s: given more than %u times", o->name,
                       OPT_MAX_TEXTS);
    }
    out->text[out->n++] = text;
    return 0;
}

static int parse_ids(const struct opt *o, const char *text, struct opt_ids *out, tw_error *err) {
    size_t max = strlen(text) / 2 + 1;
    uint32_t *ids = malloc(max * sizeof *ids);
    if (!ids) {
        return tw_fail(err, TW_E_NOMEM, "option --%s: out of memory", o->name);
    }
    size_t n = 0;
    const char *p = text + strspn(text, " \n");
    while (*p) {
        char number[16];
        size_t len = strspn(p, "0123456789");
        int64_t v = 0;
        if (len == 0 || len >= sizeof number) {
            break;
        }
        memcpy(number, p, len);
        number[len] = 0;
        if (!parse_i64(number, 0, UINT32_MAX - 1, &v)) {
            break;
        }
        ids[n++] = (uint32_t)v;
        p += len;
        size_t gap = strspn(p, ", \n");
        size_t commas = 0;
        for (size_t i = 0; i < gap; i++) {
            commas += p[i] == ',';
        }
        if ((gap == 0 && *p) || commas > 1 || (commas == 1 && !p[gap])) {
            break;
        }
        p += gap;
    }
    if (*p || n == 0) {
        free(ids);
        return bad_value(o, text, err);
    }
    free(out->ids);
    *out = (struct opt_ids){.given = true, .ids = ids, .n = n};
    return 0;
}

static int store_number(const struct opt *o, const char *text, void *at, tw_error *err) {
    char *end;
    errno = 0;
    if (o->kind == OPT_I64) {
        int64_t v;
        if (!parse_i64(text, (int64_t)o->lo, (int64_t)o->hi, &v)) {
            return bad_value(o, text, err);
        }
        memcpy(at, &v, sizeof v);
    } else {
        double v = strtod(text, &end);
        if (*text == 0 || strspn(text, "0123456789.eE+-") != strlen(text) || *end || !isfinite(v) ||
            v < o->lo || v > o->hi) {
            return bad_value(o, text, err);
        }
        float f = (float)v;
        memcpy(at, &f, sizeof f);
    }
    return 0;
}

static int store(const struct opt *o, const char *text, void *into, tw_error *err) {
    void *at = (char *)into + o->offset;
    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)at = true;
        return 0;
    case OPT_TEXT:
        *(const char **)at = text;
        return 0;
    case OPT_TEXTS:
        return add_text(o, text, at, err);
    case OPT_IDS:
        return parse_ids(o, text, at, err);
    case OPT_I64:
    case OPT_FLOAT:
        return store_number(o, text, at, err);
    case OPT_END:
        break;
    }
    return tw_fail(err, TW_E_INTERNAL, "option --%s", o->name);
}

/* ---- words of the command line ---- */

/* The command line and the position in it. */
struct line {
    const struct opt_verb *verb;
    char **argv;
    int argc, at;
    struct opt_result *result;
    uint32_t n_operands;
};

/* "; did you mean --temp?", or "". */
static void suggest(const struct opt_verb *verb, const char *word, char text[64]) {
    size_t best = SIZE_MAX, distance;
    char name[OPTION_NAME_BYTES];
    text[0] = 0;
    if (word[1] != '-') {
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (const struct opt *o = verb->options; o->kind != OPT_END; o++) {
        if (option_is_near(name, o->name, &distance) && distance < best) {
            best = distance;
            snprintf(text, 64, "; did you mean --%.31s?", o->name);
        }
    }
}

static int unknown(const struct opt_verb *verb, const char *word, tw_error *err) {
    char meant[64];
    const char *why = option_of_llama(word);
    if (why && *why) {
        return tw_fail(err, TW_E_USAGE, "unknown option '%.60s': %s; see tilewright %s --help",
                       word, why, verb->name);
    }
    suggest(verb, word, meant);
    return tw_fail(err, TW_E_USAGE, "unknown option '%.60s'%s%s see tilewright %s --help", word,
                   meant, *meant ? "" : ";", verb->name);
}

static bool takes_a_model(const struct opt_verb *verb) {
    return strncmp(verb->operands, "MODEL", 5) == 0;
}

/* An operand, or the model after -m. */
static int take_operand(struct line *l, const char *text, tw_error *err) {
    uint32_t max = l->verb->n_operands;
    for (const char *p = l->verb->operands; (p = strchr(p, '[')); p++) {
        max++;
    }
    if (l->n_operands == max) {
        return tw_fail(err, TW_E_USAGE, "unexpected argument '%.60s'; see tilewright %s --help",
                       text, l->verb->name);
    }
    l->result->operand[l->n_operands++] = text;
    return 0;
}

static const struct opt model_option = {
    OPT_TEXT, 'm', "model", "FILE", 0, 0, 0, "same as the operand: the model or bundle"};

static const struct opt *find(const struct opt_verb *verb, const char *word, size_t n) {
    const char *long_name = option_of_one_dash(word);
    if (long_name) {
        return find_long(verb, long_name, strlen(long_name));
    }
    if (word[1] != '-') {
        const struct opt *o = find_short(verb, word[1]);
        return !o && takes_a_model(verb) && word[1] == 'm' ? &model_option : o;
    }
    const struct opt *o = find_long(verb, word + 2, n - 2);
    const char *ours = o ? NULL : option_other_name(word + 2, n - 2);
    if (ours) {
        return find_long(verb, ours, strlen(ours));
    }
    return !o && takes_a_model(verb) && n == 7 && strncmp(word, "--model", n) == 0 ? &model_option
                                                                                   : o;
}

/* True if `attached` cannot be the value of a short option: a flag takes none, and letters are not
 * a number, so the word is a long option written with one dash. */
static bool is_no_value(const struct opt *o, const char *attached) {
    bool number = o->kind == OPT_I64 || o->kind == OPT_FLOAT || o->kind == OPT_IDS;
    return o->kind == OPT_FLAG || (number && !strchr("0123456789+-.", *attached));
}

/* The option at argv[at] and its value, which may be the next argument. */
static int take_option(struct line *l, const struct opt **option, const char **value,
                       tw_error *err) {
    const char *word = l->argv[l->at];
    bool is_long = word[1] == '-' || option_of_one_dash(word);
    const char *equals = is_long ? strchr(word, '=') : NULL;
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    const struct opt *o = find(l->verb, word, n);
    const char *attached = is_long ? (equals ? equals + 1 : NULL) : (word[2] ? word + 2 : NULL);
    *value = NULL;
    *option = o;
    if (!o || (!is_long && (option_of_llama(word) || (attached && is_no_value(o, attached))))) {
        return unknown(l->verb, word, err);
    }
    if (o->kind == OPT_FLAG) {
        return attached ? tw_fail(err, TW_E_USAGE, "option --%s takes no argument: '%.60s'",
                                  o->name, word)
                        : 0;
    }
    *value = attached ? attached : l->at + 1 < l->argc ? l->argv[++l->at] : NULL;
    return *value ? 0
                  : tw_fail(err, TW_E_USAGE, "option --%s needs an argument: %s", o->name, o->arg);
}

/* argv[at], which begins with a dash. */
static int parse_option(struct line *l, void *into, tw_error *err) {
    const struct opt *o;
    const char *value, *word = l->argv[l->at];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        l->result->help = true;
        return 0;
    }
    int code = take_option(l, &o, &value, err);
    if (code) {
        return code;
    }
    if (o == &model_option) {
        return take_operand(l, value, err);
    }
    size_t row = (size_t)(o - l->verb->options);
    if (row < 128) {
        l->result->given[row / 64] |= UINT64_C(1) << row % 64;
    }
    return store(o, value, into, err);
}

int opt_parse(const struct opt_verb *verb, int argc, char **argv, void *into,
              struct opt_result *result, tw_error *err) {
    struct line l = {.verb = verb, .argc = argc, .argv = argv, .result = result};
    bool options = true;
    int code = 0;
    memset(result, 0, sizeof *result);
    for (l.at = 1; l.at < argc && !code && !result->help; l.at++) {
        const char *word = argv[l.at];
        if (options && strcmp(word, "--") == 0) {
            options = false;
        } else {
            code = options && word[0] == '-' && word[1] ? parse_option(&l, into, err)
                                                        : take_operand(&l, word, err);
        }
    }
    if (!code && !result->help && l.n_operands < verb->n_operands) {
        code = tw_fail(err, TW_E_USAGE, "%s is missing; see tilewright %s --help", verb->operands,
                       verb->name);
    }
    return code;
}

bool opt_was_given(const struct opt_verb *verb, const struct opt_result *result, const char *name) {
    const struct opt *o = find_long(verb, name, strlen(name));
    size_t row = o ? (size_t)(o - verb->options) : 0;
    return o && row < 128 && (result->given[row / 64] >> row % 64 & 1);
}

void opt_print_help(const struct opt_verb *verb, FILE *out) {
    fprintf(out, "usage: tilewright %s %s%s[options]\n%s\n\n", verb->name, verb->operands,
            *verb->operands ? " " : "", verb->summary);
    for (const struct opt *o = verb->options; o->kind != OPT_END; o++) {
        char left[64];
        snprintf(left, sizeof left, "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
                 o->kind == OPT_FLAG ? "" : " ", o->kind == OPT_FLAG ? "" : o->arg);
        fprintf(out, "  %-28s %s\n", left, o->help);
    }
    if (takes_a_model(verb)) {
        fprintf(out, "  %-28s %s\n", "-m, --model FILE", model_option.help);
    }
    fprintf(out, "  %-28s %s\n", "-h, --help", "print this help");
    if (*verb->notes) {
        fprintf(out, "\n%s\n", verb->notes);
    }
}
