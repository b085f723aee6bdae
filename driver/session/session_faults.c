/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device tells of a step that failed or does not end, in words of the model: the section of
 * the program and the graph operation that an op came from.
 */
#include "driver/device/device.h"
#include "driver/session/session.h"
#include "tilewright/opcode.h"

#include <stdio.h>

static const char *span_of(const struct tw_program *p, uint32_t stage) {
    for (uint32_t i = 0; i < p->n_sections; i++) {
        if (stage - p->sections[i].first_stage < p->sections[i].n_stages) {
            return tw_program_string(p, p->sections[i].name);
        }
    }
    return "?";
}

static const char *origin_of(const struct tw_program *p, uint32_t stage) {
    return tw_program_string(p, p->stages[stage].origin);
}

/* The stage of an op that is known by its number in its stream; TW_NONE: the device tells
 * nonsense. */
static uint32_t stage_of(const struct tw_program *p, const struct tw_link_place *place) {
    if (place->site >= p->n_sites || place->engine >= TW_ENGINE_COUNT) {
        return TW_NONE;
    }
    const struct tw_stream *s = &p->streams[place->site * TW_ENGINE_COUNT + place->engine];
    struct tw_op op = {.n_words = 0};
    uint32_t at = 0;
    for (uint32_t i = 0; i <= place->op_index; i++, at += op.n_words) {
        if (!tw_op_decode(s->words, s->n_words, at, &op)) {
            return TW_NONE;
        }
    }
    return op.stage < p->n_stages ? op.stage : TW_NONE;
}

static void add_place(const struct tw_program *p, const struct tw_link_place *place,
                      const char *does, char *text, size_t size) {
    uint32_t stage = stage_of(p, place);
    size_t n = strlen(text);
    if (stage != TW_NONE && n < size) {
        snprintf(text + n, size - n, "; site %u %s section %s, %s", place->site, does,
                 span_of(p, stage), origin_of(p, stage));
    }
}

/* "decode: device ...: RUN made no progress ...; site 3 is in section layer, layer.attn_q; site 1
 * waits in ..." */
static void explain_stuck(const struct tw_session *s, const struct tw_program *p, tw_error *err) {
    struct tw_link_progress progress;
    char text[160] = "";
    if (err && tw_device_fail_stuck(s->deployment->device, &progress)) {
        add_place(p, &progress.at, "is in", text, sizeof text);
        add_place(p, &progress.waiting, "waits in", text, sizeof text);
        tw_error_append(err, "%s", text);
    }
    tw_error_prefix(err, p->name);
}

/* "decode: fault Undefined at site 3, math, op 12 (matmul), section layer, layer.attn_q: have 4,
 * need 8" */
int tw_session_explain(const struct tw_session *s, const struct session_program *p,
                       const struct tw_wire_failure *f, int code, tw_error *err) {
    const struct tw_program *prog = p->program;
    if (code == TW_E_TIMEOUT) {
        explain_stuck(s, prog, err);
        return code;
    }
    if (f->site == TW_NONE || f->stage >= prog->n_stages) {
        tw_error_prefix(err, prog->name);
        return code;
    }
    const char *op = tw_op_info(f->opcode).name;
    return tw_fail(err, code,
                   "%s: fault %s at site %u, %s, op %u (%s), section %s, %s: have %llu, need %llu",
                   prog->name, f->what, f->site, tw_engine_name(f->engine), f->op_index,
                   op ? op : "?", span_of(prog, f->stage), origin_of(prog, f->stage),
                   (unsigned long long)f->have, (unsigned long long)f->need);
}
