/* SPDX-License-Identifier: Apache-2.0
 *
 * The udev rule, which is built into this program, and the group that it gives access to.
 */
#include "tools/cmd/doctor.h"

#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

/* The file, terminated by a zero. */
__asm__(".section .rodata\n"
        ".global tw_udev_rule\n"
        "tw_udev_rule:\n"
        ".incbin \"udev/60-tilewright.rules\"\n"
        ".byte 0\n"
        ".previous\n");

/* Where udev looks; the first folder that has the file counts. */
static const char *const folders[] = {"/etc/udev/rules.d", "/run/udev/rules.d",
                                      "/usr/local/lib/udev/rules.d", "/usr/lib/udev/rules.d",
                                      "/lib/udev/rules.d"};

static const char *find_rule(const struct doctor *d) {
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (doctor_can(d, F_OK, "%s/60-tilewright.rules", folders[i])) {
            return folders[i];
        }
    }
    return NULL;
}

static bool is_current(const struct doctor *d, const char *folder) {
    char path[300], text[8192];
    snprintf(path, sizeof path, "%.200s%s/60-tilewright.rules", d->root, folder);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) {
        fclose(f);
    }
    return n == strlen(tw_udev_rule) && memcmp(text, tw_udev_rule, n) == 0;
}

static void check_file(struct doctor *d) {
    const char *folder = find_rule(d);
    bool runs = doctor_can(d, F_OK, "/run/udev/control");
    if (!runs && !folder) {
        doctor_report(d, DOCTOR_MISSING, "udev rule", "on the host: " DOCTOR_RULE_COMMAND,
                      "udev is not running here (a container?): devices have the permissions that "
                      "the host gave them");
    } else if (!folder) {
        doctor_report(d, DOCTOR_MISSING, "udev rule", DOCTOR_RULE_COMMAND,
                      "60-tilewright.rules is not installed");
    } else if (!is_current(d, folder)) {
        doctor_report(d, DOCTOR_MISSING, "udev rule", DOCTOR_RULE_COMMAND,
                      "%s/60-tilewright.rules is of another version or was changed", folder);
    } else if (!runs) {
        doctor_report(d, DOCTOR_MISSING, "udev rule", "sudo systemctl start systemd-udevd",
                      "%s/60-tilewright.rules is installed, but udev is not running", folder);
    } else {
        doctor_report(d, DOCTOR_GOOD, "udev rule", NULL,
                      "%s/60-tilewright.rules is of this version, and udev is running", folder);
    }
}

/* ---- the group ---- */

static bool process_is_in(gid_t wanted) {
    gid_t list[256];
    int n = getgroups(256, list);
    bool found = getegid() == wanted;
    for (int i = 0; i < n; i++) {
        found = found || list[i] == wanted;
    }
    return found;
}

static bool user_is_in(const struct group *g) {
    const struct passwd *user = getpwuid(geteuid());
    bool found = false;
    for (char **m = g->gr_mem; user && *m; m++) {
        found = found || strcmp(*m, user->pw_name) == 0;
    }
    return found;
}

static void check_group(struct doctor *d) {
    const struct group *g = getgrnam("tilewright");
    if (geteuid() == 0) {
        doctor_report(d, DOCTOR_GOOD, "permissions", NULL,
                      "running as root, who can open every device");
    } else if (!g) {
        doctor_report(
            d, DOCTOR_MISSING, "permissions",
            "sudo groupadd --system tilewright && sudo usermod -aG tilewright $USER  (then "
            "log in again)",
            "group tilewright, which gives access to boards and cards, does not exist");
    } else if (process_is_in(g->gr_gid)) {
        doctor_report(d, DOCTOR_GOOD, "permissions", NULL, "you are in group tilewright");
    } else if (user_is_in(g)) {
        doctor_report(d, DOCTOR_MISSING, "permissions", "newgrp tilewright  (or log in again)",
                      "you are in group tilewright, but this session began before you were added");
    } else {
        doctor_report(d, DOCTOR_MISSING, "permissions",
                      "sudo usermod -aG tilewright $USER  (then log in again)",
                      "you are not in group tilewright");
    }
}

void doctor_check_rule(struct doctor *d) {
    check_file(d);
    check_group(d);
}
