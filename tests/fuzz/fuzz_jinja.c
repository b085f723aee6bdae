/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes chat templates. Input: the source, then, after a byte 0, the variables as JSON; without
 * them, or if they are not an object, two messages. The parts of what is rendered must make up its
 * text.
 */
#include "driver/chat/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition) {
        abort();
    }
}

static void check_parts(const struct tw_jinja_output *out) {
    const char *at = out->text;
    for (size_t i = 0; i < out->n_parts; i++) {
        require(out->parts[i].text == at && out->parts[i].n > 0);
        require(i == 0 || out->parts[i].data != out->parts[i - 1].data);
        at += out->parts[i].n;
    }
    require(at == out->text + out->n && *at == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    struct tw_jinja *jinja = NULL;
    struct tw_jinja_output out;
    tw_error err = {0};
    json_t *variables = end ? json_loadb((const char *)end + 1, size - n - 1, 0, NULL) : NULL;
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:b}", "messages", "role", "user",
                              "content", "Hi <|x|> there", "role", "assistant", "content", "Yes",
                              "add_generation_prompt", 1);
    }
    int code = tw_jinja_create((const char *)data, n, &jinja, &err);
    if (!code) {
        struct tw_jinja_input input = {.variables = variables};
        code = tw_jinja_render(jinja, &input, &out, &err);
        if (!code) {
            check_parts(&out);
            tw_jinja_output_finish(&out);
        }
    }
    require(!code || (err.code == code && err.message[0]));
    tw_jinja_destroy(jinja);
    json_decref(variables);
    return 0;
}
