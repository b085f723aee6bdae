/* SPDX-License-Identifier: Apache-2.0
 *
 * Error messages for a step that failed or does not end, in terms of the model: the section of the
 * program and the graph operation that an op came from.
 */
#include "driver/device/device.h"
#include "driver/session/session.h"
#include "tilewright/opcode.h"

#include <stdio.h>
#include <string.h>

static const char *section_of(const struct tw_program *p, uint32_t stage) {
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

/* Returns the stage of an op that is given by its index in its stream; TW_NONE if the device
 * reported one that does not exist. */
static uint32_t stage_of(const struct tw_program *p, const struct tw_place *place) {
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

static void add_place(const struct tw_program *p, const struct tw_place *place, const char *does,
                      char *text, size_t size) {
    uint32_t stage = stage_of(p, place);
    size_t n = strlen(text);
    if (stage != TW_NONE && n < size) {
        snprintf(text + n, size - n, "; site %u %s section %s, %s", place->site, does,
                 section_of(p, stage), origin_of(p, stage));
    }
}

/* "decode: device ...: RUN made no progress ...; site 3 is in section layer, layer.attn_q; site 1
 * waits in ..." */
static void explain_stuck(const struct tw_session *s, const struct tw_program *p, tw_error *err) {
    struct tw_link_progress progress;
    char text[160] = "";
    if (err && tw_device_is_stuck(s->deployment->device, &progress)) {
        add_place(p, &progress.at, "is in", text, sizeof text);
        add_place(p, &progress.waiting, "waits in", text, sizeof text);
        tw_error_append(err, "%s", text);
    }
    tw_error_prefix(err, p->name);
}

/* "layer 5, layer.ffn_down" */
static void name_origin(const struct tw_program *p, const struct tw_wire_failure *f, char *text,
                        size_t size) {
    const char *origin = origin_of(p, f->stage);
    for (uint32_t i = 0; i < p->n_sections; i++) {
        if (f->stage - p->sections[i].first_stage < p->sections[i].n_stages &&
            p->sections[i].repeat > 1) {
            snprintf(text, size, "%s %llu, %s", tw_program_string(p, p->sections[i].name),
                     (unsigned long long)f->need, origin);
            return;
        }
    }
    snprintf(text, size, "%s", origin);
}

/* "decode: the model's numbers overflow: layer 5, layer.ffn_down (matmul at site 3, op 12): row 0
 * of its result is infinite or not a number; ..." */
static int explain_overflow(const struct tw_program *p, const struct tw_wire_failure *f,
                            tw_error *err) {
    char place[160];
    const char *op = tw_op_info(f->opcode).name;
    name_origin(p, f, place, sizeof place);
    return tw_fail(err, TW_E_FAULT,
                   "%s: the model's numbers overflow: %s (%s at site %u, op %u): row %llu of its "
                   "result is infinite or not a number; the model is damaged, or its conversion "
                   "overflowed",
                   p->name, place, op ? op : "?", f->site, f->op_index,
                   (unsigned long long)f->have);
}

static bool is_overflow(const struct tw_wire_failure *f) {
    return strcmp(f->what, "NotFinite") == 0;
}

int tw_session_explain_numbers(struct tw_session *s, const struct session_program *const *programs,
                               uint8_t *const *requests, size_t n, tw_error *err) {
    for (size_t i = 0; i < n; i++) {
        struct tw_wire_failure failure = {.site = TW_NONE, .stage = TW_NONE};
        struct tw_wire_run *run = (struct tw_wire_run *)(void *)requests[i];
        struct tw_wire_done done;
        struct tw_device_call call = {.opcode = TW_WIRE_RUN,
                                      .payload = requests[i],
                                      .bytes = programs[i]->request_bytes,
                                      .out = &done,
                                      .out_bytes = sizeof done,
                                      .failure = &failure};
        tw_error ignored;
        run->flags = TW_WIRE_RUN_CHECK;
        int code = tw_device_call(s->deployment->device, &call, &ignored);
        run->flags = 0;
        if (code && is_overflow(&failure)) {
            return tw_session_explain(s, programs[i], &failure, TW_E_FAULT, err);
        }
        if (code) {
            break; /* the device cannot check, or is gone */
        }
    }
    return tw_fail(err, TW_E_FAULT,
                   "%s: the logits are infinite or not numbers; the model is damaged, or its "
                   "conversion overflowed",
                   programs[n - 1]->program->name);
}

bool tw_session_was_cut(const struct tw_wire_failure *f) {
    return f->code == TW_E_INTERRUPTED && strcmp(f->what, "Cancelled") == 0;
}

/* "decode: interrupted in the middle of a step, at position 12 (site 3, math, op 12); ..." */
static int explain_cut(const struct tw_session *s, const struct tw_program *p,
                       const struct tw_wire_failure *f, tw_error *err) {
    char place[80] = "";
    if (f->site < p->n_sites && f->engine < TW_ENGINE_COUNT) {
        snprintf(place, sizeof place, " (site %u, %s, op %u)", f->site, tw_engine_name(f->engine),
                 f->op_index);
    }
    return tw_fail(err, TW_E_INTERRUPTED,
                   "%s: interrupted in the middle of a step, at position %u%s; the sequence is "
                   "undefined from there on: create a new session",
                   p->name, s->position, place);
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
    if (code == TW_E_INTERRUPTED && tw_session_was_cut(f)) {
        return explain_cut(s, prog, f, err);
    }
    if (f->site == TW_NONE || f->stage >= prog->n_stages) {
        tw_error_prefix(err, prog->name);
        return code;
    }
    if (is_overflow(f)) {
        return explain_overflow(prog, f, err);
    }
    const char *op = tw_op_info(f->opcode).name;
    char element[80] = "";
    if (strncmp(f->what, "Page", 4) == 0 && f->object < prog->n_tensors) {
        snprintf(element, sizeof element, "element %u of page table %.40s, ", f->element,
                 tw_program_string(prog, prog->tensors[f->object].name));
    }
    return tw_fail(
        err, code,
        "%s: fault %s at site %u, %s, op %u (%s), section %s, %s: %shave %llu, need %llu",
        prog->name, f->what, f->site, tw_engine_name(f->engine), f->op_index, op ? op : "?",
        section_of(prog, f->stage), origin_of(prog, f->stage), element, (unsigned long long)f->have,
        (unsigned long long)f->need);
}
