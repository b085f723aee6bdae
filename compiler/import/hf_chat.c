/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates of folders (hf_chat.h).
 */
#include "compiler/import/hf_chat.h"

#include "compiler/import/hf_parts.h"

#include <inttypes.h>
#include <string.h>

/* The template that counts in tokenizer_config.json; NULL or "": none. */
static const char *find_template(const json_t *config) {
    const json_t *value = json_object_get(config, "chat_template"), *item;
    const char *text = json_string_value(value);
    size_t i;
    json_array_foreach(value, i, item) {
        const char *name = tw_hf_text(item, "name");
        if (name && strcmp(name, "default") == 0) {
            text = tw_hf_text(item, "template");
        }
    }
    return text;
}

int tw_hf_read_chat(const struct tw_hf_tokenizer_files *files, const json_t *config,
                    struct tw_import_memory *memory, struct tw_model *model, tw_error *err) {
    struct tw_hf_file file = files->chat_template;
    const char *text = file.bytes ? NULL : find_template(config);
    if (text) {
        file = (struct tw_hf_file){files->config.path, text, strlen(text)};
    }
    if (file.size == 0) {
        return 0;
    }
    if (file.size > TW_CHAT_BYTES_MAX || memchr(file.bytes, 0, (size_t)file.size)) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: a chat template of %" PRIu64 " bytes, expected at most %u, none of "
                       "them 0",
                       file.path, file.size, TW_CHAT_BYTES_MAX);
    }
    model->chat = tw_import_text(memory, file.bytes, file.size);
    return model->chat ? 0 : tw_fail(err, TW_E_NOMEM, "%s: out of memory", file.path);
}
