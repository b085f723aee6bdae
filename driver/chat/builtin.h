/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates by name, for models whose file has none. Written for this project after the
 * formats that the models' publishers document.
 */
#ifndef TW_DRIVER_CHAT_BUILTIN_H
#define TW_DRIVER_CHAT_BUILTIN_H

#include <stddef.h>

struct tw_chat_builtin {
    const char *name, *text;
};
extern const struct tw_chat_builtin tw_chat_builtins[];
extern const size_t tw_chat_n_builtins;

#endif
