/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright state: lists, shows and removes saved states, for which it needs no device and no
 * model; makes one of a prompt, and tries one on a model.
 */
#include "tilewright/state.h"

#include "loader/base/grow.h"
#include "tools/cmd.h"
#include "tools/state_model.h"
#include "tools/text.h"
#include "tools/ui.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct state_args {
    struct engine_options engine;
    struct prompt_options prompt;
    bool json, special;
};

#define AT(field) offsetof(struct state_args, field)
static const struct opt options[] = {
    {OPT_FLAG, 0, "json", NULL, AT(json), 0, 0, "print JSON"},
    {OPT_TEXT, 'p', "prompt", "TEXT", AT(prompt.text), 0, 0, "save: the text"},
    {OPT_TEXT, 'f', "file", "FILE", AT(prompt.file), 0, 0,
     "save: read the text from FILE; - is standard input"},
    {OPT_IDS, 0, "ids", "1,2,3", AT(prompt.ids), 0, 0, "save: token ids, used exactly as given"},
    {OPT_FLAG, 'e', "escape", NULL, AT(prompt.escape), 0, 0,
     "save: interpret \\n, \\r, \\t, \\\\, \\', \\\" and \\xHH in the text"},
    {OPT_FLAG, 0, "no-bos", NULL, AT(prompt.no_bos), 0, 0,
     "save: do not put the beginning-of-text token before the text"},
    {OPT_FLAG, 0, "special", NULL, AT(special), 0, 0, "save: parse special tokens in the text"},
    COMPILE_ROWS(struct state_args),
    SESSION_ROWS(struct state_args),
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "state",
    "list|show|drop|save|load [FOLDER|FILE|MODEL] [FILE]",
    1,
    "List the saved states of a folder; show one, checked; remove one; save one; try one.",
    options,
    "state list [FOLDER]         the states in FOLDER (.), the newest first\n"
    "state show FILE             what FILE holds; every byte of it is checked\n"
    "state drop FILE             remove FILE, if it is a saved state\n"
    "state save MODEL FILE -p T  feed the text T to the model, and save its state in FILE\n"
    "state load MODEL FILE       restore FILE on the model, and say how many tokens it has\n"
    "Text is generated after a saved state by: run MODEL --load-state FILE"};

/* ---- the states of a folder, the newest first ---- */

struct entry {
    char *path;
    struct tw_state_info info;
    tw_error err; /* why it cannot be used; code 0: it can */
};

struct entries {
    struct entry *items;
    size_t n, room;
    uint64_t bytes;
};

static void free_entries(struct entries *all) {
    for (size_t i = 0; i < all->n; i++) {
        free(all->items[i].path);
    }
    free(all->items);
}

static char *join(const char *folder, const char *name) {
    size_t n = strlen(folder), room = n + strlen(name) + 2;
    char *path = malloc(room);
    if (path) {
        bool bare = strcmp(folder, ".") == 0;
        snprintf(path, room, "%s%s%s", bare ? "" : folder,
                 bare || (n && folder[n - 1] == '/') ? "" : "/", name);
    }
    return path;
}

/* Files that are not states are not listed, and neither are those of other users. */
static int add(struct entries *all, const char *folder, const char *name, tw_error *err) {
    struct entry e = {.info.size = sizeof e.info, .path = join(folder, name)};
    struct stat st;
    if (!e.path || !tw_grow(&all->items, &all->room, all->n + 1, sizeof *all->items)) {
        free(e.path);
        return tw_fail(err, TW_E_NOMEM, "out of memory for the list of states");
    }
    bool is_file = lstat(e.path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
    int code = is_file ? tw_state_file_info(e.path, 0, &e.info, &e.err) : TW_E_IO;
    if (code == TW_E_FORMAT || code == TW_E_IO) {
        free(e.path);
        return 0;
    }
    e.info.file_bytes = (uint64_t)st.st_size;
    all->bytes += e.info.file_bytes;
    all->items[all->n++] = e;
    return 0;
}

static int by_time(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->info.saved_ns != y->info.saved_ns) {
        return x->info.saved_ns < y->info.saved_ns ? 1 : -1;
    }
    return strcmp(x->path, y->path);
}

static int read_folder(struct entries *all, const char *folder, tw_error *err) {
    DIR *d = opendir(folder);
    int code = 0;
    if (!d) {
        return tw_fail(err, TW_E_IO, "%.200s: %s", folder, strerror(errno));
    }
    for (const struct dirent *f; !code && (f = readdir(d));) {
        code = add(all, folder, f->d_name, err);
    }
    closedir(d);
    if (all->n) {
        qsort(all->items, all->n, sizeof *all->items, by_time);
    }
    return code;
}

/* ---- printing ---- */

static const char *time_text(uint64_t ns, char text[32]) {
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm local;
    snprintf(text, 32, "?");
    if (localtime_r(&seconds, &local)) {
        strftime(text, 32, "%Y-%m-%d %H:%M", &local);
    }
    return text;
}

static json_t *info_json(const char *path, const struct tw_state_info *i) {
    char hash[65];
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "path",
                     text_json(path), "model", i->model, "model_hash",
                     text_hex(i->model_hash, 32, hash), "kv", i->kv, "policy", i->policy, "version",
                     (json_int_t)i->version, "tokens", (json_int_t)i->n_tokens, "page_positions",
                     (json_int_t)i->page_positions, "pages", (json_int_t)i->n_pages, "pages_bytes",
                     (json_int_t)i->pages_bytes, "bytes", (json_int_t)i->file_bytes, "saves",
                     (json_int_t)i->saves, "saved", (json_int_t)(i->saved_ns / 1000000000u));
}

static json_t *entry_json(const struct entry *e) {
    return e->err.code
               ? json_pack("{s:o, s:I, s:o}", "path", text_json(e->path), "bytes",
                           (json_int_t)e->info.file_bytes, "error", text_json(e->err.message))
               : info_json(e->path, &e->info);
}

static void print_entry(const struct entry *e) {
    char bytes[32], when[32];
    printf("%10s  ", ui_bytes(e->info.file_bytes, bytes));
    if (e->err.code) {
        printf("cannot be used: %s\n", e->err.message);
        return;
    }
    printf("%7u token%s  %s  %-4s  %s  %s\n", e->info.n_tokens, e->info.n_tokens == 1 ? " " : "s",
           time_text(e->info.saved_ns, when), e->info.kv, e->info.model, text_clean(e->path).text);
}

static int print_list(const struct entries *all, const char *folder, bool json, tw_error *err) {
    char bytes[32];
    if (json) {
        json_t *states = json_array();
        for (size_t i = 0; i < all->n; i++) {
            json_array_append_new(states, entry_json(&all->items[i]));
        }
        return ui_print_json(json_pack("{s:o, s:I, s:o}", "folder", text_json(folder), "bytes",
                                       (json_int_t)all->bytes, "states", states),
                             err);
    }
    for (size_t i = 0; i < all->n; i++) {
        print_entry(&all->items[i]);
    }
    printf("%10s  in %zu state%s: %s\n", ui_bytes(all->bytes, bytes), all->n, text_s(all->n),
           text_clean(folder).text);
    return ui_flush(err);
}

static void print_info(const char *path, const struct tw_state_info *i) {
    char bytes[32], pages[32], when[32], hash[65];
    printf("%s: saved state, version %u: whole\n", text_clean(path).text, i->version);
    printf("  model     %s (hash %s)\n", i->model, text_hex(i->model_hash, 8, hash));
    printf("  sequence  %u token%s, positions \"%s\"\n", i->n_tokens, text_s(i->n_tokens),
           i->policy);
    printf("  caches    %s, %llu pages of %u positions, %s\n", i->kv,
           (unsigned long long)i->n_pages, i->page_positions, ui_bytes(i->pages_bytes, pages));
    printf("  file      %s, saved %s, %llu save%s\n", ui_bytes(i->file_bytes, bytes),
           time_text(i->saved_ns, when), (unsigned long long)i->saves, text_s(i->saves));
}

/* ---- the verb ---- */

static int list(const char *folder, bool json, tw_error *err) {
    struct entries all = {.n = 0};
    int code = read_folder(&all, folder, err);
    code = code ? code : print_list(&all, folder, json, err);
    free_entries(&all);
    return code;
}

static int show(const char *path, bool json, tw_error *err) {
    struct tw_state_info info = {.size = sizeof info};
    int code = tw_state_file_info(path, TW_STATE_FILE_CHECK, &info, err);
    if (code || json) {
        return code ? code : ui_print_json(info_json(path, &info), err);
    }
    print_info(path, &info);
    return ui_flush(err);
}

static int drop(const char *path, bool json, tw_error *err) {
    int code = tw_state_file_remove(path, err);
    if (code || json) {
        return code ? code : ui_print_json(json_pack("{s:o}", "removed", text_json(path)), err);
    }
    printf("removed %s\n", text_clean(path).text);
    return ui_flush(err);
}

/* Options that the word does not take are refused: they are not its own. */
static int check_options(const struct opt_result *result, const char *what, tw_error *err) {
    bool saves = strcmp(what, "save") == 0, loads = strcmp(what, "load") == 0;
    for (const struct opt *o = options; o->kind != OPT_END; o++) {
        bool ours =
            strcmp(o->name, "json") == 0 || saves || (loads && strncmp(o->help, "save:", 5) != 0);
        if (!ours && opt_was_given(&verb, result, o->name)) {
            return tw_fail(err, TW_E_USAGE, "option --%s has no effect on state %s", o->name, what);
        }
    }
    return 0;
}

static int act_on_model(const struct state_args *a, const struct opt_result *result,
                        const char *what, tw_error *err) {
    const char *model = result->operand[1], *path = result->operand[2];
    bool saves = strcmp(what, "save") == 0;
    if (!model || !path) {
        return tw_fail(err, TW_E_USAGE, "state %s: %s is missing; see tilewright state --help",
                       what, model ? "FILE" : "MODEL");
    }
    if (saves && (a->prompt.text != NULL) + (a->prompt.file != NULL) + a->prompt.ids.given != 1) {
        return tw_fail(err, TW_E_USAGE,
                       "state save: the text is needed: one of --prompt, --file and --ids");
    }
    struct engine_options o = a->engine;
    o.text = saves && !a->prompt.ids.given;
    return saves ? state_model_save(model, path, &o, &a->prompt, a->special, a->json, err)
                 : state_model_load(model, path, &o, a->json, err);
}

static int act(const struct state_args *a, const struct opt_result *result, tw_error *err) {
    const char *what = result->operand[0], *path = result->operand[1];
    int code = check_options(result, what, err);
    if (code || strcmp(what, "save") == 0 || strcmp(what, "load") == 0) {
        return code ? code : act_on_model(a, result, what, err);
    }
    if (result->operand[2]) {
        return tw_fail(err, TW_E_USAGE, "unexpected argument '%.60s'; see tilewright state --help",
                       result->operand[2]);
    }
    if (strcmp(what, "list") == 0) {
        return list(path ? path : ".", a->json, err);
    }
    bool shows = strcmp(what, "show") == 0;
    if (!shows && strcmp(what, "drop") != 0) {
        return tw_fail(err, TW_E_USAGE, "state: '%.60s' is neither list, show, drop, save nor load",
                       what);
    }
    if (!path) {
        return tw_fail(err, TW_E_USAGE, "state %s: FILE is missing; see tilewright state --help",
                       what);
    }
    return shows ? show(path, a->json, err) : drop(path, a->json, err);
}

static int run(int argc, char **argv, tw_error *err) {
    struct state_args a = {.engine = ENGINE_DEFAULTS};
    struct opt_result result;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    code = act(&a, &result, err);
    free(a.prompt.ids.ids);
    return code;
}

const struct cmd cmd_state = {&verb, run};
