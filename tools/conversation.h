/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation: its messages, and the part of them that the session has. Each turn renders all
 * messages with the model's template, and only the tokens that differ from what the session has
 * are fed; it is rewound to where they begin, and takes from the prefix cache what that has.
 * Messages that do not fit the context go through it in windows, with --on-full.
 */
#ifndef TW_TOOLS_CONVERSATION_H
#define TW_TOOLS_CONVERSATION_H

#include "tools/engine.h"
#include "tools/sampling.h"

#include <jansson.h>

struct conversation_options {
    const char *template, *system; /* template: a name, or a file */
    int64_t n;                     /* maximum tokens of an answer; -1: until it ends */
};
#define CONVERSATION_DEFAULTS \
    { .n = -1 }

/* Their rows of an option table; `type` is the verb's structure, whose field `conversation` is a
 * struct conversation_options. */
#define CONVERSATION_OFFSET(type, field) \
    (offsetof(type, conversation) + offsetof(struct conversation_options, field))
/* clang-format off */
#define CONVERSATION_ROWS(type)                                                                   \
    {OPT_TEXT, 0, "system-prompt", "TEXT", CONVERSATION_OFFSET(type, system), 0, 0,               \
     "instructions of the system, before the messages; also -sys TEXT"},                          \
    {OPT_TEXT, 0, "template", "T", CONVERSATION_OFFSET(type, template), 0, 0,                     \
     "chat template: a file, or the name of a built-in one (the model's)"}
/* clang-format on */

struct conversation {
    struct engine *engine;
    const struct engine_options *engine_options;
    const struct conversation_options *options;
    tw_chat *chat;
    struct tw_generate_options generate; /* sampling; callbacks are set for each answer */
    struct sampling sampling;
    json_t *messages;
    uint32_t *fed; /* the tokens that the session has */
    size_t n_fed, fed_room;
    uint32_t n_reused;                /* of the last prompt, from the prefix cache */
    struct tw_generate_result result; /* of the last answer */
    char *answer;                     /* its text, n_answer bytes */
    size_t n_answer, answer_room;
    bool shows;   /* print the answer as it comes */
    bool stopped; /* Ctrl-C ended the last answer */
};

/* Reads the template and begins a conversation. The caller calls conversation_finish in any case.
 * Errors: those of tw_chat_create() and sampling_apply(); IO, RANGE (the template's file). */
int conversation_begin(struct conversation *c, struct engine *engine,
                       const struct engine_options *engine_options,
                       const struct conversation_options *options,
                       const struct sampling_options *sampling, tw_error *err);
void conversation_finish(struct conversation *c);

/* Adds a message of the user; or sets that of the system, NULL: none. Errors: NOMEM, FORMAT (not
 * UTF-8). */
int conversation_add(struct conversation *c, const char *text, size_t n, tw_error *err);
int conversation_set_system(struct conversation *c, const char *text, tw_error *err);
/* Forgets all messages but the system's. */
void conversation_reset(struct conversation *c);
/* Removes messages from the end until the user's last one is the last. False: there is none. */
bool conversation_drop_answer(struct conversation *c);

/* Generates the answer to the messages, prints it if `shows`, and adds it. If it fails, the user's
 * last message is removed, so that the conversation can go on. SIGINT ends the answer only; what
 * there is of it is kept. Errors: those of tw_chat_tokenize() and tw_generate(); CONTEXT_FULL (the
 * messages alone, with the numbers); UI_PIPE. */
int conversation_answer(struct conversation *c, tw_error *err);

/* Writes the messages to a file as JSON, and reads them. Reading checks everything before anything
 * changes. Errors: IO, NOSPACE; FORMAT (names what is wrong and where), RANGE. */
int conversation_save(const struct conversation *c, const char *path, tw_error *err);
int conversation_load(struct conversation *c, const char *path, tw_error *err);

#endif
