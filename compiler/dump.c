/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints any stage of a compilation as text (`tilewright dump`).
 */
#include "compiler/pipeline_internal.h"

#include "compiler/spatial/compose.h"
#include "loader/base/sized.h"
#include "loader/text/print_program.h"

#include <string.h>

static void print_program(struct tw_builder *program, FILE *out) {
    struct tw_program view = tw_builder_program(program);
    tw_program_print_file(&view, TW_PRINT_ALL, out, NULL);
}

/* Prints a section as a complete program of its own, closed by its rendezvous, so that `verify`
 * accepts the text. */
static void print_section(struct tw_builder *section, FILE *out) {
    struct tw_builder alone;
    struct tw_builder *list[1] = {section};
    if (tw_compose(list, 1, section->name, &alone, NULL) == 0) {
        print_program(&alone, out);
    }
}

static void dump_planned(struct compilation *c, struct planned *p, const char *stage, FILE *out) {
    for (uint32_t r = 0; r < c->graph.regions.n; r++) {
        if (!strcmp(stage, "low")) {
            tw_low_print(&p->lows[r], out);
        } else if (!strcmp(stage, "section")) {
            print_section(p->sections[r], out);
        }
    }
    if (!strcmp(stage, "mid")) {
        tw_mid_print(&p->mid, out);
    } else if (!strcmp(stage, "program")) {
        print_program(p->program, out);
    }
}

int tw_compile_dump(const char *model_path, const char *stage,
                    const struct tw_compile_options *options, FILE *out, tw_error *err) {
    int rc = TW_NEED_3(err, model_path, stage, out);
    if (rc) {
        return rc;
    }
    static const char *const stages[] = {"graph", "mid", "low", "section", "program"};
    size_t known = 0;
    while (known < sizeof stages / sizeof *stages && strcmp(stages[known], stage)) {
        known++;
    }
    if (known == sizeof stages / sizeof *stages) {
        return tw_fail(err, TW_E_USAGE,
                       "there is no stage \"%.32s\"; stages: graph, mid, low, section, program",
                       stage);
    }
    struct compilation c;
    rc = tw_pipeline_begin(&c, __func__, options, err);
    rc = rc ? rc : tw_pipeline_frontend(&c, model_path, err);
    if (rc == 0 && known == 0) {
        tw_graph_print(&c.graph, out);
    } else if (rc == 0) {
        rc = tw_pipeline_plan(&c, err);
        if (rc == 0) {
            struct planned *list[MAX_PROGRAMS];
            uint32_t n = tw_pipeline_programs(&c, list);
            for (uint32_t i = 0; i < n; i++) {
                fprintf(out, "%s", i ? "\n" : "");
                dump_planned(&c, list[i], stage, out);
            }
        }
    }
    tw_pipeline_finish(&c);
    return rc;
}
