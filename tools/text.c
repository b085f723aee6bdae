/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters text from outside before the command prints it, with the library's filter.
 */
#include "tools/text.h"

#include "loader/base/text_filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct text_clean text_clean(const char *text) {
    struct text_clean clean = {.text = ""};
    text = text ? text : "";
    tw_text_copy(clean.text, sizeof clean.text, text, strlen(text));
    return clean;
}

json_t *text_json(const char *text) {
    if (!text) {
        return json_null();
    }
    char *clean = strdup(text);
    if (!clean) {
        return NULL;
    }
    tw_clean_text(clean);
    json_t *string = json_string(clean);
    free(clean);
    return string;
}

void text_print_lines(const char *text, FILE *out) {
    for (;;) {
        size_t n = strcspn(text, "\n");
        char line[512];
        tw_text_copy(line, sizeof line, text, n);
        fprintf(out, "%s\n", line);
        if (!text[n] || !text[n + 1]) {
            return;
        }
        text += n + 1;
    }
}

void text_print_generated(const char *text, size_t n) {
    if (!isatty(STDOUT_FILENO)) {
        fwrite(text, 1, n, stdout);
        return;
    }
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bool printable;
        bytes = tw_text_next(text + at, n - at, &printable);
        if (printable || text[at] == '\n' || text[at] == '\t') {
            fwrite(text + at, 1, bytes, stdout);
        } else {
            putchar('?');
        }
    }
}

json_t *text_json_float(float value) {
    char digits[32];
    for (int precision = 6; precision <= 9; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, (double)value);
        if (strtof(digits, NULL) == value) {
            break;
        }
    }
    return json_real(strtod(digits, NULL));
}

const char *text_hex(const uint8_t *bytes, size_t n, char *text) {
    text[0] = 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    return text;
}

const char *text_s(uint64_t n) {
    return n == 1 ? "" : "s";
}

bool text_bytes(const char *text, uint64_t *out) {
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    const char *rest = unit ? end + 1 : end;
    rest += unit && (strcmp(rest, "iB") == 0 || strcmp(rest, "B") == 0) ? strlen(rest) : 0;
    *out = (uint64_t)value << shift;
    return *text >= '0' && *text <= '9' && !*rest && !errno && *out >> shift == value;
}
