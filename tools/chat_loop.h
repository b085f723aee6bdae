/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a conversation: reads messages and commands, prints answers. For the verb chat and
 * for run -cnv.
 */
#ifndef TW_TOOLS_CHAT_LOOP_H
#define TW_TOOLS_CHAT_LOOP_H

#include "tools/conversation.h"

#define CHAT_LOOP_NOTES                                                                           \
    "A line is a message; /help lists the commands. A line that ends with \\ continues on "       \
    "the next\none, and lines between two of \"\"\" are one message. Ctrl-C ends the answer; at " \
    "the prompt, two\nof them leave. Without a terminal each line of standard input is a "        \
    "message, and an error ends\nthe chat."

struct chat_loop_options {
    const struct conversation_options *conversation;
    const struct sampling_options *sampling;
    const struct engine_options *engine; /* those with which the engine was opened */
    const char *first;                   /* the first message, or NULL */
    bool single;                         /* end after the first answer */
    bool stats;
};

/* Talks until the input ends or the user leaves. On a terminal errors are printed and the
 * conversation goes on; else the first one ends it. Errors: those of conversation_begin() and
 * conversation_answer(); UI_PIPE. */
int chat_loop(struct engine *engine, const struct chat_loop_options *options, tw_error *err);

#endif
