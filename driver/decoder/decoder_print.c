/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of a bundle as text.
 */
#include "driver/decoder/decoder.h"

#include "loader/base/sized.h"
#include "loader/text/print_program.h"

#include <string.h>

static int unknown_program(const tw_decoder *decoder, const char *program, tw_error *err) {
    char known[200] = "";
    for (uint32_t i = 0; i < decoder->bundle.n_programs; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "",
                 decoder->bundle.programs[i].name);
    }
    return tw_fail(err, TW_E_USAGE, "%s: no program '%.60s'; it has %s", decoder->bundle.path,
                   program, known);
}

int tw_decoder_print(const tw_decoder *decoder, const char *program, FILE *out, tw_error *err) {
    bool found = false;
    int code = TW_NEED_2(err, decoder, out);
    if (code) {
        return code;
    }
    for (uint32_t i = 0; i < decoder->bundle.n_programs && !code; i++) {
        const struct tw_program *p = &decoder->bundle.programs[i];
        if (!program || strcmp(p->name, program) == 0) {
            if (found) {
                fputc('\n', out);
            }
            found = true;
            code = tw_program_print_file(p, TW_PRINT_ALL, out, err);
        }
    }
    return found || code ? code : unknown_program(decoder, program ? program : "", err);
}
