/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of tilewright doctor: each checks one subject and prints a line for each finding, with
 * the command that fixes it.
 */
#ifndef TW_TOOLS_CMD_DOCTOR_H
#define TW_TOOLS_CMD_DOCTOR_H

#include "loader/base/compiler.h"
#include "tools/ui.h"

enum doctor_verdict {
    DOCTOR_GOOD,
    DOCTOR_NOTE,    /* could be better, but no device needs it */
    DOCTOR_MISSING, /* devices on USB or PCIe need it */
    DOCTOR_BROKEN
};

struct doctor {
    json_t *list;       /* NULL: print */
    bool broken;        /* a check failed that must pass on every computer */
    uint32_t n_missing; /* verdicts MISSING */
    const char *root;   /* prefix of the paths that are checked; "" for this system */
};

/* Prints one line, filtered, and below it the remedy (may be NULL if the verdict is good). */
void doctor_report(struct doctor *d, enum doctor_verdict v, const char *what, const char *remedy,
                   const char *format, ...) TW_PRINTF(5, 6);

/* ---- files below the root; the format gives the path ---- */

bool doctor_can(const struct doctor *d, int mode, const char *format, ...) TW_PRINTF(3, 4);
/* Reads the first line and trims it; false and "" if the file cannot be read. */
bool doctor_read_line(const struct doctor *d, char line[128], const char *format, ...)
    TW_PRINTF(3, 4);
bool doctor_read_number(const struct doctor *d, long *out, const char *format, ...) TW_PRINTF(3, 4);
/* Reads the last component of a symbolic link's target. */
bool doctor_read_link(const struct doctor *d, char name[128], const char *format, ...)
    TW_PRINTF(3, 4);
/* Calls use() for each entry of a folder, in order of names. Returns how many there are; 0 if the
 * folder cannot be read. */
int doctor_each(struct doctor *d, const char *folder,
                void (*use)(struct doctor *d, const char *name, void *ctx), void *ctx);

/* ---- the parts ---- */

void doctor_check_rule(struct doctor *d); /* udev's rule and the group that it grants */
void doctor_check_usb(struct doctor *d);
void doctor_check_pcie(struct doctor *d);

/* The rule of this version: udev/60-tilewright.rules, terminated. */
extern const char tw_udev_rule[];
/* Installs and applies it. */
#define DOCTOR_RULE_COMMAND                                                              \
    "tilewright doctor --udev-rule | sudo tee /etc/udev/rules.d/60-tilewright.rules && " \
    "sudo udevadm control --reload && sudo udevadm trigger --subsystem-match=usb "       \
    "--subsystem-match=vfio"

#endif
