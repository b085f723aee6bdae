/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles that a first proof accepted and that break a promise, made again in this format: the
 * shipped model, compiled and changed in one place, with every hash and certificate right. The
 * attacks of the first edition are in ../shared/data/attack, whose README says what each one
 * breaks; that format is refused by its version.
 */
#ifndef TW_TESTS_SUPPORT_ATTACK_BUNDLES_H
#define TW_TESTS_SUPPORT_ATTACK_BUNDLES_H

#include <stddef.h>

struct attack_bundle {
    const char *name;
    const char *says; /* the refusal, in part; NULL: the loader accepts it, and a device runs it
                       * without harm or refuses the step */
};
extern const struct attack_bundle attack_bundles[];
extern const size_t n_attack_bundles;

/* Writes the bundle to a file and returns its path, valid until the next call. Aborts the test if
 * it cannot. model_bundle_cleanup() is still the caller's; so is the removal of the file. */
const char *attack_bundle_make(const struct attack_bundle *attack);

/* Attacks of the first edition, in ../shared/data/attack. */
extern const char *const first_attacks[];
extern const size_t n_first_attacks;

#endif
