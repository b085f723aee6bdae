/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations in files (conversation.h): {"messages": [{"role": ..., "content": ...}, ...]}.
 */
#include "tools/conversation.h"

#include "tools/logits_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX ((size_t)16 << 20)

int conversation_save(const struct conversation *c, const char *path, tw_error *err) {
    struct logits_file f;
    json_t *o = json_pack("{s:s, s:O}", "model", c->engine->info.model, "messages", c->messages);
    char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    if (!text) {
        return tw_fail(err, TW_E_NOMEM, "out of memory for the conversation");
    }
    int code = logits_file_open(&f, path, err);
    if (!code) {
        code = logits_file_write(&f, text, strlen(text), err);
        code = code ? code : logits_file_write(&f, "\n", 1, err);
        int closed = logits_file_close(&f, !code, code ? NULL : err);
        code = code ? code : closed;
    }
    free(text);
    return code;
}

/* ---- loading ---- */

static bool is_role(const char *role) {
    static const char *const known[] = {"system", "user", "assistant", "tool", "developer"};
    for (size_t i = 0; role && i < sizeof known / sizeof *known; i++) {
        if (strcmp(role, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int check_message(const char *path, size_t index, const json_t *message, tw_error *err) {
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!is_role(role)) {
        return tw_fail(err, TW_E_FORMAT,
                       "%.200s: message %zu: role is %s%.40s%s, expected system, user, assistant, "
                       "tool or developer",
                       path, index, role ? "\"" : "", role ? role : "missing", role ? "\"" : "");
    }
    if (!json_is_string(json_object_get(message, "content")) || json_object_size(message) != 2) {
        return tw_fail(err, TW_E_FORMAT,
                       "%.200s: message %zu: expected a role and a text as content, nothing else",
                       path, index);
    }
    return 0;
}

static int check_messages(const char *path, const json_t *messages, tw_error *err) {
    int code = 0;
    if (!json_is_array(messages)) {
        return tw_fail(err, TW_E_FORMAT,
                       "%.200s: expected a JSON object with an array \"messages\"", path);
    }
    for (size_t i = 0; i < json_array_size(messages) && !code; i++) {
        code = check_message(path, i, json_array_get(messages, i), err);
    }
    return code;
}

static int read_json(FILE *f, const char *path, json_t **out, tw_error *err) {
    json_error_t at;
    struct stat st;
    if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || (size_t)st.st_size > FILE_MAX) {
        return tw_fail(err, TW_E_RANGE, "%.200s: expected a file of at most %zu bytes", path,
                       FILE_MAX);
    }
    *out = json_loadf(f, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    return *out ? 0
                : tw_fail(err, TW_E_FORMAT, "%.200s: line %d, column %d: %.120s", path, at.line,
                          at.column, at.text);
}

int conversation_load(struct conversation *c, const char *path, tw_error *err) {
    FILE *f = fopen(path, "rbe");
    json_t *o = NULL;
    if (!f) {
        return tw_fail(err, TW_E_IO, "%.200s: %s", path, strerror(errno));
    }
    int code = read_json(f, path, &o, err);
    fclose(f);
    json_t *messages = json_is_array(o) ? o : json_object_get(o, "messages");
    code = code ? code : check_messages(path, messages, err);
    if (!code) {
        json_decref(c->messages);
        c->messages = json_incref(messages);
    }
    json_decref(o);
    return code;
}
