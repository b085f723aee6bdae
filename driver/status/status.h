/* SPDX-License-Identifier: Apache-2.0
 *
 * The owner's side of a status page: what an open device publishes for `tilewright top`
 * (tw_status_list). Publishing is a few stores into mapped memory: no allocation, no system call,
 * no waiting for readers.
 *
 * Every function may be called on a status without a page; only this process sees its numbers then.
 * Except for init, publish and finish they may be called from any thread.
 */
#ifndef TW_DRIVER_STATUS_STATUS_H
#define TW_DRIVER_STATUS_STATUS_H

#include "driver/status/status_page.h"
#include "driver/transport/transport.h"
#include "tilewright/tilewright.h"

#include <pthread.h>

struct tw_status {
    pthread_mutex_t lock;        /* among the threads of this process */
    struct tw_status_page *page; /* or NULL: could not be created */
    int fd;                      /* locked as long as the page is valid */
    char path[128];
    struct tw_status_owner owner;
    uint64_t published;
    uint32_t unanswered; /* requests */
    uint32_t old_texts;  /* slots that do not have the texts of `now` yet: 0 to 2 */
    struct tw_status_now now;
    struct {
        uint64_t ns, tokens;
    } mark[2]; /* where the window of the rate begins, and where the next one will */
};

/* Initialises a status without a page. */
void tw_status_init(struct tw_status *s);
/* Creates the page of a device that has just been opened. If that fails (a full disk, a read-only
 * folder) there is no page. */
void tw_status_publish(struct tw_status *s, const char *selector,
                       const struct tw_wire_identity *identity);
/* Fills `info` with the current numbers, for this process. */
void tw_status_get(struct tw_status *s, struct tw_status_info *info);
/* Removes the page and ends the status. */
void tw_status_finish(struct tw_status *s);

/* Records the bundle that was deployed; only the file's name is published. */
void tw_status_set_bundle(struct tw_status *s, const char *path);
/* Record that a request is being sent, and that its answer has arrived. `bytes`: of the payload;
 * `count`: of the transport. */
void tw_status_begin(struct tw_status *s, enum tw_wire_opcode opcode, uint32_t bytes);
void tw_status_end(struct tw_status *s, uint32_t bytes, const struct tw_transport_count *count);
/* Records that a request has failed. lost: every later request on this handle will fail. */
void tw_status_fail(struct tw_status *s, bool lost, const char *message);
/* Records that the device made progress. `status` is a struct tw_status *, so that a transport can
 * call it. */
void tw_status_progress(void *status);
struct tw_status_step {
    uint32_t tokens, steps;
    bool prompt; /* the tokens were given, not generated */
    uint32_t position, n_ctx;
};
/* Records one or more finished steps of a session. */
void tw_status_step(struct tw_status *s, const struct tw_status_step *step);

/* Pages of state, as in struct tw_status_info. */
struct tw_status_pages {
    uint32_t all, used, shared, cached;
};
/* Records that a pool of a deployment on the device had `before` and has `now`. */
void tw_status_pages(struct tw_status *s, const struct tw_status_pages *before,
                     const struct tw_status_pages *now);

#endif
