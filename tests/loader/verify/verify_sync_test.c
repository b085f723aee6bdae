/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of semaphores and rendezvous: 14 thresholds_reachable, 15 rendezvous_shape.
 */
#include "tests/support/verify_kit.h"

/* ---- thresholds_reachable ---- */
BREAK(threshold_epoch) {
    CHANGE(b, MATH, SEM_WAIT, 0, op.operand[1].offset.term[1].step = 3);
}
BREAK(threshold_too_high) {
    CHANGE(b, MATH, SEM_WAIT, 0, op.operand[1].offset.base = 3);
}
BREAK(threshold_step) {
    CHANGE(b, MATH, SEM_WAIT, 0, op.operand[1].offset.term[0].step = 3);
}
BREAK(flag_forgotten) {
    REMOVE(b, 0, STORE, MCAST_SET, 0);
}
BREAK(flag_twice) {
    CHANGE(b, STORE, SEM_INC, 0, op.operand[2].id = 2);
}
BREAK(flags_too_many) {
    CHANGE(b, STORE, SEM_INC, 0, op.operand[2].id = TW_NONE);
}
BREAK(word_elsewhere) {
    b->groups[1] = b->groups[0];
    b->groups[1].x1 = 1;
    b->p.n_groups = 2;
    b->semaphores[SMALL_KV].group = 1;
}
/* Two chips of one site: the semaphore has a word on the first, the flag is raised on the
 * second. */
BREAK(word_on_other_chip) {
    struct tw_group first = {0, 0, 0, 1, 1, 1};
    b->p.mesh_width = 1;
    b->p.n_chips = b->groups[0].chips = 2;
    b->groups[0].x1 = 1;
    b->groups[1] = b->groups[2] = first;
    b->groups[2].chip = 1;
    b->p.n_groups = 3;
    b->semaphores[SMALL_VALID].group = 1;
    CHANGE(b, STORE, MCAST, 0, op.operand[op.n_operands - 1].id = 2);
    CHANGE(b, STORE, MCAST_SET, 0, op.operand[1].id = 2);
}

/* ---- rendezvous_shape ---- */
BREAK(never_arrives) {
    REMOVE(b, 0, MATH, SEM_INC, 0);
}
BREAK(never_waits) {
    REMOVE(b, 0, MATH, SEM_WAIT, 1);
}
BREAK(arrives_elsewhere) {
    CHANGE(b, MATH, SEM_INC, 0, op.operand[1].id = 1);
}
BREAK(work_inside) {
    INSERT(b, MATH, SEM_WAIT, 1, QUANT, pb_on(SMALL_BUF(SMALL_XN, 0), 0), pb_id(128),
           pb_on(SMALL_BUF(SMALL_XQ, 0), 0), pb_id(40), pb_id(32), pb_rows(SMALL_ROWS, 4));
}
BREAK(two_roots) {
    struct tw_op op;
    uint32_t at = pb_find(b, 1, STORE, TW_OP_SEM_INC, 2, &op);
    op.operand[1].id = 1;
    pb_splice(b, 1, STORE, at, op.n_words, &op);
}
BREAK(release_forgotten) {
    REMOVE(b, 0, STORE, MCAST_SET, 1);
}
BREAK(release_early) {
    CHANGE(b, MATH, SEM_WAIT, 1, op.operand[1].offset.base = 0);
}
BREAK(release_once) {
    CHANGE(b, MATH, SEM_WAIT, 1, op.operand[1].offset.term[0].step = 0);
}
BREAK(local_too_few) {
    CHANGE(b, STORE, SEM_WAIT, 0, op.operand[1].offset.base = 2);
}
BREAK(one_semaphore_missing) {
    b->sections[0].gather = TW_NONE;
}
BREAK(semaphore_of_other_section) {
    b->sections[0].gather = SMALL_HEAD + 1;
}
BREAK(semaphore_role) {
    b->semaphores[SMALL_LAYERS + 2].role = TW_SEM_READY;
}
BREAK(repeat_uneven) {
    b->sections[0].repeat = 3;
}

static const struct breakage breakages[] = {
    ROW(thresholds_reachable, threshold_epoch, "grows by 3 per epoch, but 4 increments arrive"),
    ROW(thresholds_reachable, threshold_too_high,
        "reaches 5 in the first epoch, but the word only 4"),
    ROW(thresholds_reachable, threshold_step, "reaches 5 in the first epoch, but the word only 4"),
    ROW(thresholds_reachable, flag_forgotten, "grows by 4 per epoch, but 2 increments arrive"),
    ROW(thresholds_reachable, flag_twice, "grows by 2 per epoch, but 4 increments arrive"),
    ROW(thresholds_reachable, flags_too_many, "the maximum is 2147483647"),
    ROW(thresholds_reachable, word_elsewhere, "semaphore 0 (kv) has no word"),
    ROW(thresholds_reachable, word_on_other_chip,
        "semaphore 1 (valid) does not have words on all of chip 1, x 0..1, y 0..1"),
    ROW(rendezvous_shape, never_arrives,
        "uses release semaphore 4 of section 0 outside a rendezvous"),
    ROW(rendezvous_shape, never_waits,
        "comes between arrival and release in the rendezvous of section 0"),
    ROW(rendezvous_shape, arrives_elsewhere, "arrives at site 1"),
    ROW(rendezvous_shape, work_inside, "comes between arrival and release in"),
    ROW(rendezvous_shape, two_roots, "gathers at site 1, others at site 0"),
    ROW(rendezvous_shape, release_forgotten,
        "uses release semaphore 4 of section 0 before any release in the rendezvous of section 0"),
    ROW(rendezvous_shape, release_early, "release threshold begins at 0, expected 1"),
    ROW(rendezvous_shape, release_once, "grows by 0 per iteration of v1, expected 1"),
    ROW(rendezvous_shape, local_too_few, "local threshold begins at 2, expected 3"),
    ROW(rendezvous_shape, one_semaphore_missing, "names 2 of the three"),
    ROW(rendezvous_shape, semaphore_of_other_section, "semaphore 6 is not one of the section's"),
    ROW(rendezvous_shape, semaphore_role, "has role 0, expected 3"),
    ROW(rendezvous_shape, repeat_uneven, "2 times, others 2, repeat 3"),
};

int main(void) {
    RUN_BREAKAGES("verify_sync", breakages);
}
