/* SPDX-License-Identifier: Apache-2.0
 *
 * The line under construction and its destination, shared by print_program.c (tables) and print_ops.c (streams).
 */
#ifndef TW_LOADER_PRINT_INTERNAL_H
#define TW_LOADER_PRINT_INTERNAL_H

#include "loader/print_program.h"

struct tw_printer {
    const struct tw_program *program;
    tw_program_line *line;
    void *ctx;
    int rc; /* of the first line that was refused */
    size_t used;
    char text[2048]; /* a line that does not fit is cut */
};

void tw_print_text(struct tw_printer *p, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
/* A name from the string table; kind and id if it is empty or missing. */
void tw_print_name(struct tw_printer *p, uint32_t name, char kind, uint32_t id);
void tw_print_end(struct tw_printer *p);

/* print_ops.c */
void tw_print_streams(struct tw_printer *p);

#endif
