/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes tokenizer.json and the files beside it. Input: the four files with a NUL byte after each
 * (tokenizer.json, tokenizer_config.json, generation_config.json, the chat template), then a text,
 * which a tokenizer of what was accepted encodes and decodes.
 */
#include "compiler/import/hf_tokenizer.h"
#include "driver/tokenizer/tokenizer.h"
#include "loader/bundle/vocab_open.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 300u /* of the embedding */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition) {
        abort();
    }
}

/* Takes the file that ends at the next NUL byte; none if there is no such byte. */
static struct tw_hf_file take(const char *path, const uint8_t **data, size_t *size) {
    const uint8_t *end = *size ? memchr(*data, 0, *size) : NULL;
    struct tw_hf_file file = {.path = path};
    if (end && end > *data) {
        file.bytes = *data;
        file.size = (uint64_t)(end - *data);
    }
    if (end) {
        *size -= (size_t)(end + 1 - *data);
        *data = end + 1;
    }
    return file;
}

static void use(const struct tw_model *model, const char *text, size_t n) {
    struct tw_vocab vocab;
    struct tw_tokenizer *tokenizer;
    struct tw_token_list list = {.n = 0};
    tw_error err = {0};
    size_t length;
    require(tw_vocab_open(model->vocab, model->vocab_bytes, &vocab, &err) == 0);
    if (tw_tokenizer_create(&vocab, &tokenizer, &err) != 0) {
        require(err.code !=
                TW_E_UNSUPPORTED); /* the importer named a pre-tokenizer that is known */
        return;
    }
    if (tw_tokenizer_encode(tokenizer, text, n, TW_ENCODE_SPECIAL, &list, &err) == 0) {
        require(tw_tokenizer_decode(tokenizer, list.ids, list.n, 0, NULL, 0, &length, &err) == 0);
    } else {
        require(err.code != 0 && err.code != TW_E_INTERNAL);
    }
    tw_token_list_finish(&list);
    tw_tokenizer_destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_import_memory memory = {0};
    struct tw_model model = {.h = {.n_vocab = ROWS}};
    struct tw_hf_tokenizer_files files;
    tw_error err = {0};
    files.tokenizer = take("tokenizer.json", &data, &size);
    files.config = take("tokenizer_config.json", &data, &size);
    files.generation_config = take("generation_config.json", &data, &size);
    files.chat_template = take("chat_template.jinja", &data, &size);
    if (!files.tokenizer.bytes) {
        return 0;
    }
    int rc = tw_import_hf_tokenizer(&files, &memory, &model, &err);
    if (rc == 0 && model.vocab) {
        use(&model, (const char *)data, size);
    } else if (rc == 0) {
        require(model.tokenizer_problem && *model.tokenizer_problem);
    } else {
        require(err.code == rc && err.message[0] && rc != TW_E_INTERNAL);
    }
    tw_import_free(&memory);
    return 0;
}
