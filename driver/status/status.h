/* SPDX-License-Identifier: Apache-2.0
 *
 * The owner's side of a status page: what an open device publishes for `tilewright top`
 * (tw_status_list). Publishing is a few stores into mapped memory: no allocation, no system call,
 * no waiting for readers.
 *
 * Every function is legal on a status without a page, and then does nothing that can be seen.
 */
#ifndef TW_DRIVER_STATUS_STATUS_H
#define TW_DRIVER_STATUS_STATUS_H

#include "driver/status/status_page.h"
#include "driver/transport/transport.h"
#include "tilewright/tilewright.h"

#include <pthread.h>

struct tw_status {
    pthread_mutex_t lock;        /* among the threads of this process */
    struct tw_status_page *page; /* or NULL: none could be made */
    int fd;                      /* locked for as long as the page is true */
    char path[128];
    struct tw_status_owner owner;
    uint64_t published;
    uint32_t unanswered; /* requests */
    uint32_t old_texts;  /* slots that lack the texts of `now`: 0 to 2 */
    struct tw_status_now now;
    struct {
        uint64_t ns, tokens;
    } mark[2]; /* where the window of the rate begins, and where the next one will */
};

void tw_status_init(struct tw_status *s);
/* Makes the page of a device that has just been opened. Whatever stands in the way (a full disk, a
 * folder that cannot be written): there is no page. */
void tw_status_publish(struct tw_status *s, const char *selector,
                       const struct tw_wire_identity *identity);
/* The same numbers, for this process. */
void tw_status_get(struct tw_status *s, struct tw_status_info *info);
/* Removes the page. */
void tw_status_finish(struct tw_status *s);

void tw_status_set_bundle(struct tw_status *s, const char *path);
/* A request goes out; its answer is here. bytes: of the payload. */
void tw_status_begin(struct tw_status *s, enum tw_wire_opcode opcode, uint32_t bytes);
void tw_status_end(struct tw_status *s, uint32_t bytes, const struct tw_transport_count *count);
/* A request has failed. lost: no other will succeed on this handle. */
void tw_status_fail(struct tw_status *s, bool lost, const char *message);
/* The device gets on with what it does. `status` is a struct tw_status *, as the transport has
 * it. */
void tw_status_moved(void *status);
struct tw_status_step {
    uint32_t tokens, steps;
    bool prompt; /* they were given, not generated */
    uint32_t position, n_ctx;
};
/* A step of a session is done. */
void tw_status_step(struct tw_status *s, const struct tw_status_step *step);

#endif
