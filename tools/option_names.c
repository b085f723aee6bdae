/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of the options of llama.cpp, and the Damerau-Levenshtein distance (optimal string
 * alignment).
 */
#include "tools/option_names.h"

#include <stdint.h>
#include <string.h>

const char *option_other_name(const char *name, size_t n) {
    static const char *const pair[][2] = {{"ctx-size", "ctx"},      {"predict", "n-predict"},
                                          {"temperature", "temp"},  {"reverse-prompt", "stop"},
                                          {"typical-p", "typical"}, {"repetitions", "repeats"}};
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        if (strlen(pair[i][0]) == n && strncmp(pair[i][0], name, n) == 0) {
            return pair[i][1];
        }
    }
    return NULL;
}

/* Options for features that this program does not have need no reason. */
static const struct {
    const char *name, *why;
} llama[] = {
    {"-no-cnv", "the prompt is continued as text unless -cnv is given: omit it"},
    {"-sysf", "use -sys with the text"},
    {"-if", "use -cnv, or the verb chat"},
    {"-mli", "in a chat, a line that ends with \\ continues on the next one"},
    {"-ngl", "layers are not offloaded one by one: --device selects where all of them run"},
    {"-sm", "layers are not offloaded: --device chooses where all of them run"},
    {"-ts", "layers are not offloaded: --device chooses where all of them run"},
    {"-mg", "layers are not offloaded: --device chooses where all of them run"},
    {"-ot", "layers are not offloaded: --device chooses where all of them run"},
    {"-cmoe", "layers are not offloaded: --device chooses where all of them run"},
    {"-ncmoe", "layers are not offloaded: --device chooses where all of them run"},
    {"-dev", "use --device with a name listed by: tilewright devices"},
    {"-tb", "-t is for the prompt, too"},
    {"-ub", "use --chunk: tokens of the prompt that are fed in one step"},
    {"-fa", "attention is computed as the bundle says: omit it"},
    {"-ctk", "use --kv for keys and values together: f32 or f16"},
    {"-ctv", "use --kv for keys and values together: f32 or f16"},
    {"-nkvo", "keys and values are kept where the model runs"},
    {"-hf", "models are not downloaded: name a file"},
    {"-hfr", "models are not downloaded: name a file"},
    {"-hff", "models are not downloaded: name a file"},
    {"-hft", "models are not downloaded: name a file"},
    {"-mu", "models are not downloaded: name a file"},
    {"-dr", "models are not downloaded: name a file"},
    {"-mm", "there is no multimodal projector"},
    {"-mmu", "there is no multimodal projector"},
    {"-mmp", "model files are always mapped: omit it"},
    {"-md", "there is no draft model"},
    {"-cd", "there is no draft model"},
    {"-td", "there is no draft model"},
    {"-tbd", "there is no draft model"},
    {"-devd", "there is no draft model"},
    {"-ngld", "there is no draft model"},
    {"-ctkd", "there is no draft model"},
    {"-ctvd", "there is no draft model"},
    {"-pg", "measure -p and -n separately"},
    {"-np", "one sequence is generated at a time"},
    {"-ns", "one sequence is generated at a time"},
    {"-cb", "one sequence is generated at a time"},
    {"-gan", ""},
    {"-gaw", ""},
    {"-bf", ""},
    {"-ptc", ""},
    {"-sp", "use --special"},
    {"-nr", ""},
    {"-ser", ""},
    {"-lv", ""},
    {"-ld", ""},
    {"-lcs", ""},
    {"-lcd", ""},
    {"-dt", ""},
    {"-dio", ""},
    {"-kvu", ""},
    {"-cram", ""},
    {"-ctxcp", ""},
    {"-embd", ""},
    {"-oe", ""},
    {"-ps", ""},
    {"-pps", ""},
};

const char *option_of_one_dash(const char *word) {
    static const char *const pair[][2] = {
        {"-cnv", "conversation"}, {"-sys", "system-prompt"}, {"-st", "single-turn"}};
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        if (strcmp(word, pair[i][0]) == 0) {
            return pair[i][1];
        }
    }
    return NULL;
}

const char *option_of_llama(const char *word) {
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < sizeof llama / sizeof llama[0]; i++) {
        if (strlen(llama[i].name) == n && strncmp(llama[i].name, word, n) == 0) {
            return llama[i].why;
        }
    }
    return NULL;
}

static size_t min3(size_t a, size_t b, size_t c) {
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Returns how many letters have to be inserted, removed, replaced, or swapped with the next to turn
 * `from` into `to`; more than the length of either for names of OPTION_NAME_BYTES or more. */
static size_t edit_distance(const char *from, const char *to) {
    size_t n = strlen(from), m = strlen(to);
    size_t d[OPTION_NAME_BYTES][OPTION_NAME_BYTES];
    if (n >= OPTION_NAME_BYTES || m >= OPTION_NAME_BYTES) {
        return n + m + 1;
    }
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = 0; k <= m; k++) {
            if (i == 0 || k == 0) {
                d[i][k] = i + k;
                continue;
            }
            size_t same = from[i - 1] == to[k - 1] ? 0 : 1;
            d[i][k] = min3(d[i - 1][k] + 1, d[i][k - 1] + 1, d[i - 1][k - 1] + same);
            if (i > 1 && k > 1 && from[i - 1] == to[k - 2] && from[i - 2] == to[k - 1]) {
                d[i][k] = min3(d[i][k], d[i - 2][k - 2] + 1, SIZE_MAX);
            }
        }
    }
    return d[n][m];
}

bool option_is_near(const char *from, const char *to, size_t *distance) {
    size_t n = strlen(from), m = strlen(to);
    bool begins = n >= 3 && n < m && strncmp(from, to, n) == 0;
    *distance = begins ? 1 : edit_distance(from, to);
    return begins || (*distance <= 2 && *distance * 2 < m && *distance * 2 < n + 1);
}
