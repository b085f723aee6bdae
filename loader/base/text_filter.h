/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that a device or another process gave: it must not move a terminal's cursor, and must be
 * text that JSON can hold.
 */
#ifndef TW_LOADER_BASE_TEXT_FILTER_H
#define TW_LOADER_BASE_TEXT_FILTER_H

/* Puts '?' for each byte that is no printable ASCII. */
static inline void tw_clean_text(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        *c = *c < 0x20 || *c >= 0x7F ? '?' : *c;
    }
}

#endif
