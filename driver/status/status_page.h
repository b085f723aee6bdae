/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a status page, a file that the owner of an open device maps and others read. It
 * holds the numbers twice: the owner fills the slot that is not current and then increments
 * `published`, so it never waits; a reader that finds the same count before and after has read one
 * consistent slot. Both run on one computer: native byte order.
 */
#ifndef TW_DRIVER_STATUS_STATUS_PAGE_H
#define TW_DRIVER_STATUS_STATUS_PAGE_H

#include "tilewright/machine.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TW_STATUS_MAGIC UINT64_C(0x4547415054535754) /* "TWSTPAGE" */
#define TW_STATUS_VERSION 3u
#define TW_STATUS_FILE_BYTES 4096u
/* Folder for pages of devices that several users may share; the others are in this user's folder of
 * sockets. */
#define TW_STATUS_SHARED_FOLDER "/run/lock"

enum tw_status_state { TW_STATUS_IDLE, TW_STATUS_RUNNING, TW_STATUS_WAITING, TW_STATUS_LOST };

/* The part of a page that changes. Times are of tw_clock_coarse_ns(), whose milliseconds are
 * precise enough. */
struct tw_status_now {
    uint32_t state, doing; /* tw_status_state; tw_wire_opcode, or 0 */
    uint32_t position, n_ctx;
    uint64_t tokens, prompt_tokens, steps;
    uint64_t sent_bytes, received_bytes; /* of messages */
    uint64_t resent, damaged;            /* as in tw_transport_count */
    /* tokens generated in the last seconds of work, and the time they took */
    uint64_t rate_tokens, rate_ns;
    uint64_t token_ns, progress_ns; /* time of the last token and of the last progress */
    uint32_t pages, pages_used, pages_shared, pages_cached; /* as in struct tw_status_info */
    char bundle[256];                                       /* name of the bundle's file */
    char error[200]; /* of the last request that failed; LOST: the cause */
};
TW_STATIC_ASSERT(sizeof(struct tw_status_now) % 8 == 0, "a slot is whole words");
#define TW_STATUS_WORDS (sizeof(struct tw_status_now) / 8)
#define TW_STATUS_NUMBER_WORDS (offsetof(struct tw_status_now, bundle) / 8)

/* The part of a page that is written once, before the file gets its name. */
struct tw_status_owner {
    uint64_t magic;
    uint32_t version, pid;
    /* field 22 of /proc/PID/stat: distinguishes processes with the same PID */
    uint64_t pid_start;
    uint64_t pid_namespace; /* inode of the namespace in which the PID is valid */
    uint64_t opened_ns;
    char program[32];
    char device[128], target[64], machine[32]; /* selector; as in the device's identity */
};

struct tw_status_page {
    struct tw_status_owner owner;
    _Atomic uint64_t published; /* slot published % 2 is current */
    _Atomic uint64_t slot[2][TW_STATUS_WORDS];
};
TW_STATIC_ASSERT(sizeof(struct tw_status_page) <= TW_STATUS_FILE_BYTES, "a status page");
TW_STATIC_ASSERT(sizeof(_Atomic uint64_t) == 8, "atomic words have no lock beside them");

/* Stores the path of page `number` of a process: in the shared folder, or in this user's, which is
 * created. Returns false if this user's folder cannot be used. */
bool tw_status_path(bool shared, uint32_t pid, uint32_t number, char path[128]);
/* Stores the start time of a process (pid 0: this one) and this process's namespace. Returns false
 * if there is no such process, or no /proc. */
bool tw_status_process(uint32_t pid, uint64_t *start, uint64_t *name_space);
/* Converts a page's content to the public structure, with terminated, printable texts. */
struct tw_status_info;
void tw_status_describe(const struct tw_status_owner *o, const struct tw_status_now *n,
                        struct tw_status_info *info);
/* Removes the pages that ended processes left in this user's folder. */
void tw_status_sweep(void);

#endif
