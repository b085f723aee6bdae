/* SPDX-License-Identifier: Apache-2.0
 *
 * tilewright chat: a conversation in the terminal, or of the lines of a script.
 */
#include "tools/chat_loop.h"
#include "tools/cmd.h"
#include "tools/ui.h"

struct chat_args {
    struct engine_options engine;
    struct conversation_options conversation;
    struct sampling_options sampling;
    const char *first;
    bool single, stats;
};

#define AT(field) offsetof(struct chat_args, field)
static const struct opt options[] = {
    CONVERSATION_ROWS(struct chat_args),
    {OPT_TEXT, 'p', "prompt", "TEXT", AT(first), 0, 0, "the first message"},
    {OPT_FLAG, 0, "single-turn", NULL, AT(single), 0, 0, "leave after the first answer; also -st"},
    {OPT_I64, 'n', "n-predict", "N", AT(conversation.n), -1, 1 << 24,
     "maximum tokens of an answer; -1: until it ends (-1)"},
    SAMPLING_ROWS(struct chat_args),
    {OPT_FLAG, 0, "stats", NULL, AT(stats), 0, 0,
     "print tokens and speed on standard error after each answer"},
    CONTEXT_ROWS(struct chat_args),
    COMPILE_ROWS(struct chat_args),
    SESSION_ROWS(struct chat_args),
    {.kind = OPT_END},
};

static const struct opt_verb verb = {
    "chat",  "MODEL|BUNDLE", 1, "Talk with a model, by the chat template in its file.",
    options, CHAT_LOOP_NOTES};

static int run(int argc, char **argv, tw_error *err) {
    struct chat_args a = {.engine = ENGINE_DEFAULTS,
                          .conversation = CONVERSATION_DEFAULTS,
                          .sampling = SAMPLING_DEFAULTS};
    struct opt_result result;
    struct engine e;
    int code;
    if (!cmd_begin(&verb, argc, argv, &a, &result, &code, err)) {
        return code;
    }
    a.engine.text = true;
    a.engine.whole_steps = true;
    a.engine.caches = true;
    code = engine_open(&e, result.operand[0], &a.engine, err);
    if (!code) {
        struct chat_loop_options o = {.conversation = &a.conversation,
                                      .sampling = &a.sampling,
                                      .engine = &a.engine,
                                      .first = a.first,
                                      .single = a.single,
                                      .stats = a.stats};
        code = chat_loop(&e, &o, err);
        engine_close(&e);
    }
    return code;
}

const struct cmd cmd_chat = {&verb, run};
