/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a program (compiler/spatial/report.h), derived from the finished program alone, so
 * that it covers sections and rendezvous alike.
 */
#include "compiler/spatial/report.h"

#include "tilewright/requirements.h"

static const char *name_of(const struct tw_builder *u, uint32_t tensor) {
    return u->strings->bytes.items + u->tensors.items[tensor].name;
}

static void print_needs(const struct tw_requirements *n, FILE *out) {
    fprintf(out, "  requires     %llu", (unsigned long long)n->sram_bytes[0]);
    for (uint32_t c = 1; c < TW_MEM_CLASSES; c++) {
        if (n->sram_bytes[c]) {
            fprintf(out, " + %llu", (unsigned long long)n->sram_bytes[c]);
        }
    }
    fprintf(out, " bytes of SRAM and %u semaphore words per site; types", n->words);
    for (unsigned i = 0; i < TW_DT_COUNT; i++) {
        if (n->dtypes >> i & 1) {
            fprintf(out, " %s", tw_dtype_name(i));
        }
    }
    fprintf(out, "; ops");
    for (unsigned i = 0; i < TW_OP_LIMIT; i++) {
        const char *name = tw_op_info(i).name;
        if (name && n->ops[i / 32] >> i % 32 & 1) {
            fprintf(out, " %s", name);
        }
    }
    if (n->chips > 1) {
        fprintf(out, "; links between %u chips", n->chips);
    }
    fprintf(out, "\n");
}

/* Prints each activation with the place of its first buffer: it has the same place on every
 * site. */
static void print_activations(const struct tw_builder *u, FILE *out) {
    for (uint32_t t = 0; t < u->tensors.n; t++) {
        for (uint32_t i = 0; i < u->buffers.n; i++) {
            const struct tw_buffer *b = &u->buffers.items[i];
            if (b->tensor == t) {
                fprintf(out, "  activation   [%llu, %llu) of each SRAM: %s\n",
                        (unsigned long long)b->offset,
                        (unsigned long long)(b->offset + b->pages * b->page_bytes), name_of(u, t));
                break;
            }
        }
    }
    fprintf(out,
            "  sections     %llu bytes of each SRAM after the activations, reused by each phase\n",
            (unsigned long long)u->private_bytes);
}

static void print_dram(const struct tw_builder *u, enum tw_role role, const char *what, FILE *out) {
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t t = 0; t < u->tensors.n; t++) {
        const struct tw_tensor *x = &u->tensors.items[t];
        n += x->role == role;
        bytes += x->role == role ? x->bytes * x->bind_count : 0;
    }
    fprintf(out, "  %-12s %u tensors, %llu bytes, in DRAM\n", what, n, (unsigned long long)bytes);
}

int tw_builder_print_report(struct tw_builder *u, FILE *out, tw_error *err) {
    struct tw_requirements needs;
    struct tw_program p = tw_builder_program(u);
    if (!tw_requirements_of(&p, &needs)) {
        return tw_fail(err, TW_E_INTERNAL, "program %s: its code does not decode", u->name);
    }
    fprintf(out, "program %s: %u phases\n  outputs     ", u->name, u->sections.n);
    for (uint32_t i = 0; i < u->outputs.n; i++) {
        fprintf(out, " %s", name_of(u, u->outputs.items[i]));
    }
    if (u->approx) {
        fprintf(out, "\n  claims       approximate: %s\n", u->approx);
    } else {
        fprintf(out, "\n  claims       exact: bit-identical to the strict interpreter\n");
    }
    print_needs(&needs, out);
    print_activations(u, out);
    print_dram(u, TW_ROLE_STATE, "state", out);
    print_dram(u, TW_ROLE_PARAM, "params", out);
    return 0;
}
