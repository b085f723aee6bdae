/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache on disk: saved states in the folder of a deployment (tw_deploy_options). The
 * name of a file is ROOT-SEQUENCE.twprefix: the first digits of the session's prefix root, which
 * the salt is part of, and of the hash of the tokens with which it was made; it may have grown
 * since. What a file holds is checked as any saved state is, and its schema has the whole root in
 * the place of the model's identity. Several processes may use a folder at the same time.
 */
#ifndef TW_DRIVER_SESSION_PREFIX_FILES_H
#define TW_DRIVER_SESSION_PREFIX_FILES_H

#include "driver/session/session.h"

/* Makes the longest beginning of s->ids[0..n) that a file has the session's sequence, if it is at
 * least a page longer than what the session has. What cannot be used is passed over; files that are
 * damaged are removed. */
void tw_prefix_files_take(struct tw_session *s, uint32_t n);

/* Saves the session's sequence: appends it to the file that has its beginning, if there is one.
 * Then removes files until the rest takes no more than the deployment's prefix_bytes, least value
 * first: bytes, divided by the time since they were used; never the one just written. Errors: those
 * of tw_session_save(). */
int tw_prefix_files_keep(struct tw_session *s, uint64_t *written_bytes, tw_error *err);

#endif
