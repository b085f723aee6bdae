/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's walk: every stream once, with a stack of open loops; each op is passed to the part
 * that checks it. Also rules 2, 3 and the loop half of 11, which the walk itself needs.
 */
#include "loader/verify/verify_internal.h"

static int check_stage(struct tw_verifier *v) {
    const struct tw_program *p = v->program;
    uint32_t stage = v->op.stage;
    tw_vf_count(v, TW_RULE_table_sizes);
    if (stage == TW_NONE) {
        return 0;
    }
    if (stage >= p->n_stages) {
        return tw_vf_fail(v, TW_RULE_table_sizes, "stage %u does not exist, there are %u", stage,
                          p->n_stages);
    }
    if (p->stages[stage].site != v->place.site || p->stages[stage].engine != v->place.engine) {
        return tw_vf_fail(v, TW_RULE_table_sizes, "stage %u belongs to site %u %s", stage,
                          p->stages[stage].site, tw_engine_name(p->stages[stage].engine));
    }
    return 0;
}

static int check_engine(struct tw_verifier *v) {
    static const char letter[TW_ENGINE_COUNT] = {'L', 'M', 'S'};
    tw_vf_count(v, TW_RULE_engine_runs_op);
    const char *engines = tw_op_info(v->op.code).engines;
    if (!strchr(engines, letter[v->place.engine])) {
        char allowed[32] = "";
        for (const char *e = engines; *e; e++) {
            strcat(strcat(allowed, e == engines ? "" : " or "),
                   tw_engine_name(*e == 'L'   ? TW_ENGINE_LOAD
                                  : *e == 'M' ? TW_ENGINE_MATH
                                              : TW_ENGINE_STORE));
        }
        return tw_vf_fail(v, TW_RULE_engine_runs_op, "engine %s may not run it, only %s may",
                          tw_engine_name(v->place.engine), allowed);
    }
    return 0;
}

static int open_loop(struct tw_verifier *v) {
    const struct tw_operand *count = &v->op.operand[TW_LOOP_times];
    uint32_t var = v->op.operand[TW_LOOP_var].id, id = v->op.operand[TW_LOOP_id].id;
    uint64_t outer = v->n_loops ? v->loop[v->n_loops - 1].iterations : 1;
    if (v->var_count[var]) {
        return tw_vf_fail(v, TW_RULE_stream_decodes, "variable %u is used by an enclosing loop",
                          var);
    }
    tw_vf_count(v, TW_RULE_trips_sound);
    if (count->max < 1 || count->max > TW_VF_MAX_COUNT || outer * count->max > TW_VF_MAX_COUNT) {
        return tw_vf_fail(
            v, TW_RULE_trips_sound,
            "a loop of %u iterations inside loops of %llu; the maximum of the product is %u",
            count->max, (unsigned long long)outer, TW_VF_MAX_COUNT);
    }
    if ((count->id == TW_NONE) != (id == TW_NONE)) {
        return id == TW_NONE ? tw_vf_fail(v, TW_RULE_loops_agree, "a loop over a trip has no id")
                             : tw_vf_fail(v, TW_RULE_loops_agree,
                                          "a loop with a constant count has id %u", id);
    }
    /* Variables are 1..7 and distinct in a nest, so the stack cannot overflow. */
    struct tw_vf_loop *loop = &v->loop[v->n_loops++];
    loop->var = var;
    loop->trip = count->id;
    loop->max = count->max;
    loop->id = id;
    loop->iterations = outer * count->max;
    loop->fifo_base = v->fifo_log.n;
    loop->rendezvous_base = v->rendezvous_log.n;
    loop->wait_base = v->n_waits;
    v->var_count[var] = count->max;
    v->n_dynamic_open += id != TW_NONE;
    return id == TW_NONE ? 0 : tw_vf_dynamic_loop(v, v->place.engine);
}

static int close_loop(struct tw_verifier *v) {
    if (v->n_loops == 0) {
        return tw_vf_fail(v, TW_RULE_stream_decodes, "END without a LOOP");
    }
    struct tw_vf_loop loop = v->loop[--v->n_loops];
    v->var_count[loop.var] = 0;
    v->n_dynamic_open -= loop.id != TW_NONE;
    int rc = tw_vf_fifo_end_loop(v, &loop);
    return rc ? rc : tw_vf_rendezvous_end_loop(v, &loop);
}

static int data_op(struct tw_verifier *v) {
    struct tw_vf_data data;
    data.n_regions = data.n_imm = data.n_counts = 0;
    int rc = tw_vf_operands(v, &data);
    rc = rc ? rc : tw_vf_types(v, &data);
    return rc ? rc : tw_vf_regions(v, &data);
}

/* Checks ids and loop variables of ops without regions. */
static int control_operands(struct tw_verifier *v) {
    struct tw_vf_data data;
    data.n_regions = data.n_imm = data.n_counts = 0;
    return tw_vf_operands(v, &data);
}

static int dispatch(struct tw_verifier *v) {
    if (tw_op_is_data(v->op.code)) {
        return data_op(v);
    }
    int rc = control_operands(v);
    if (rc) {
        return rc;
    }
    switch (v->op.code) {
    case TW_OP_LOOP:
        return open_loop(v);
    case TW_OP_END:
        return close_loop(v);
    case TW_OP_SEM_INC:
    case TW_OP_SEM_WAIT:
    case TW_OP_MCAST_SET:
        return tw_vf_sync_op(v);
    default:
        return tw_vf_fifo_op(v);
    }
}

static int check_op(struct tw_verifier *v) {
    uint32_t code = v->op.code;
    int rc = check_engine(v);
    rc = rc ? rc : check_stage(v);
    if (rc) {
        return rc;
    }
    if (v->rendezvous_state && code != TW_OP_SEM_INC && code != TW_OP_SEM_WAIT &&
        code != TW_OP_MCAST_SET) {
        return tw_vf_fail(v, TW_RULE_rendezvous_shape,
                          "comes between arrival and release in the rendezvous of section %u",
                          v->rendezvous_section);
    }
    if (code != TW_OP_END) {
        v->closed = 0; /* set again by the release from the last rendezvous */
    }
    return dispatch(v);
}

static int walk(struct tw_verifier *v, const struct tw_stream *s) {
    v->place.engine = s->engine;
    v->place.op = 0;
    v->rendezvous_state = 0;
    v->closed = 0;
    for (uint32_t at = 0; at < s->n_words; at += v->op.n_words, v->place.op++) {
        bool decoded = tw_op_decode(s->words, s->n_words, at, &v->op);
        v->place.code = decoded ? v->op.code : 0;
        v->place.stage = decoded ? v->op.stage : TW_NONE;
        tw_vf_count(v, TW_RULE_stream_decodes);
        if (v->place.op % TW_VERIFY_INTERRUPT_OPS == 0 && tw_interrupted(v->interrupt)) {
            return tw_fail(v->err, TW_E_INTERRUPTED, "the check of %s was interrupted",
                           v->program->name);
        }
        if (!decoded) {
            return tw_vf_fail(v, TW_RULE_stream_decodes,
                              "word %u of %u: 0x%08x does not begin a known op with its operands",
                              at, s->n_words, s->words[at]);
        }
        int rc = check_op(v);
        if (rc) {
            return rc;
        }
    }
    if (v->n_loops) {
        return tw_vf_fail(v, TW_RULE_stream_decodes, "the stream ends inside %u open loops",
                          v->n_loops);
    }
    return tw_vf_rendezvous_end_stream(v);
}

static int walk_site(struct tw_verifier *v, uint32_t site) {
    const struct tw_stream *streams = &v->program->streams[(size_t)site * TW_ENGINE_COUNT];
    v->place.site = site;
    v->site_engines = 0;
    for (unsigned e = 0; e < TW_ENGINE_COUNT; e++) {
        v->site_engines += streams[e].n_words > 0;
        v->n_dynamic[e] = 0;
    }
    int rc = 0;
    for (unsigned e = 0; e < TW_ENGINE_COUNT && !rc; e++) {
        if (streams[e].n_words > 0) {
            rc = walk(v, &streams[e]);
        }
    }
    rc = rc ? rc : tw_vf_dynamic_compare(v);
    return rc || !v->site_engines ? rc : tw_vf_rendezvous_end_site(v);
}

int tw_vf_streams(struct tw_verifier *v) {
    int rc = 0;
    memset(&v->place, 0, sizeof v->place);
    for (uint32_t site = 0; site < v->program->n_sites && !rc; site++) {
        rc = walk_site(v, site);
    }
    return rc;
}
