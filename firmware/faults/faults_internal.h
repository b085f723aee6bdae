/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the fault plans: the plans by number, and the trigger of their event.
 */
#ifndef TW_FIRMWARE_FAULTS_FAULTS_INTERNAL_H
#define TW_FIRMWARE_FAULTS_FAULTS_INTERNAL_H

#include "firmware/faults/faults.h"

enum plan {
    PLAN_none = -1,
#define TW_X(name, text) PLAN_##name,
    TW_FAULT_PLANS(TW_X)
#undef TW_X
};

/* Returns true once `count` has reached the trigger, until the next host connects. With the
 * lock. */
bool tw_faults_triggered(struct tw_faults *f, uint32_t count);

#endif
