/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders are created from the outside in and removed from the inside out, so that the same steps
 * remove a partly created gadget, too. FunctionFS is mounted only while it is being opened, so
 * nothing of it outlives the process.
 */
#include "firmware/usb/gadget_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODULES "run: modprobe libcomposite usb_f_fs"

/* Reports that `step` failed with errno, and the remedy if there is one. */
static int fail_step(const struct tw_gadget_tree *t, const char *step, tw_error *err) {
    int why = errno;
    if (why == EACCES || why == EPERM || why == EROFS) {
        return tw_fail(err, TW_E_IO, "gadget on %s: %s: %s; run as root", t->udc, step,
                       strerror(why));
    }
    return tw_fail(err, TW_E_IO, "gadget on %s: %s: %s", t->udc, step, strerror(why));
}

/* ---- the controller ---- */

static int visible(const struct dirent *e) {
    return e->d_name[0] != '.';
}

static int choose_udc(struct tw_gadget_tree *t, const char *root, const char *wanted,
                      tw_error *err) {
    char folder[256], names[200] = "";
    struct dirent **list = NULL;
    bool found = false;
    snprintf(folder, sizeof folder, "%s/sys/class/udc", root);
    int n = scandir(folder, &list, visible, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        if (!found && strlen(name) < sizeof t->udc && (!wanted || strcmp(wanted, name) == 0)) {
            snprintf(t->udc, sizeof t->udc, "%s", name);
            found = true;
        }
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", name);
        free(list[i]);
    }
    free(list);
    if (found) {
        return 0;
    }
    if (n > 0 && wanted) {
        return tw_fail(err, TW_E_NO_DEVICE,
                       "gadget: no USB device controller '%.64s'; available: %s", wanted, names);
    }
    return tw_fail(
        err, TW_E_NO_DEVICE,
        "gadget: no USB device controller (%s is empty); the board may need its driver, or a "
        "device tree overlay that selects the device role",
        folder);
}

/* Locks the controller for one process; the kernel releases the lock when it dies. */
static int lock_udc(struct tw_gadget_tree *t, const char *root, tw_error *err) {
    char path[256];
    snprintf(path, sizeof path, "%s/sys/class/udc/%s", root, t->udc);
    t->lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->lock < 0) {
        return fail_step(t, "cannot open the controller", err);
    }
    if (flock(t->lock, LOCK_EX | LOCK_NB) == 0) {
        return 0;
    }
    return tw_fail(err, TW_E_DEVICE_BUSY,
                   "gadget on %s: another tilewright process is using this controller", t->udc);
}

/* ---- configfs ---- */

static int open_gadgets(struct tw_gadget_tree *t, const char *root, tw_error *err) {
    char config[128];
    snprintf(config, sizeof config, "%.100s/sys/kernel/config", root);
    snprintf(t->base, sizeof t->base, "%s/usb_gadget", config);
    t->gadgets = open(t->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->gadgets < 0 && errno == ENOENT && !*root) {
        if (mount("configfs", config, "configfs", 0, NULL) && errno != EBUSY) {
            return errno == EPERM || errno == EACCES
                       ? fail_step(t, "cannot mount configfs", err)
                       : tw_fail(err, TW_E_UNSUPPORTED,
                                 "gadget on %s: the kernel has no configfs; " MODULES, t->udc);
        }
        t->gadgets = open(t->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (t->gadgets < 0 && errno == ENOENT) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "gadget on %s: there is no %s: the kernel has no gadget support; " MODULES,
                       t->udc, t->base);
    }
    return t->gadgets < 0 ? fail_step(t, "cannot open configfs", err) : 0;
}

/* A path inside the gadget's folder, relative to usb_gadget. */
struct place {
    char path[200];
};

static struct place place(const struct tw_gadget_tree *t, const char *name, const char *rest) {
    struct place p;
    snprintf(p.path, sizeof p.path, "%s/%s%s", t->folder, name, rest);
    return p;
}

static int make_folder(const struct tw_gadget_tree *t, const char *path, tw_error *err) {
    if (mkdirat(t->gadgets, path, 0755) == 0 || errno == EEXIST) {
        return 0;
    }
    char step[240];
    if (errno == ENOENT && strstr(path, "/functions/")) {
        return tw_fail(err, TW_E_UNSUPPORTED,
                       "gadget on %s: the kernel has no FunctionFS; " MODULES, t->udc);
    }
    snprintf(step, sizeof step, "cannot create %s", path);
    return fail_step(t, step, err);
}

static bool write_text(int folder, const char *path, const char *text) {
    int fd = openat(folder, path, O_WRONLY | O_CLOEXEC);
    size_t n = strlen(text);
    bool written = fd >= 0 && write(fd, text, n) == (ssize_t)n;
    int why = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = why;
    return written;
}

static int set(const struct tw_gadget_tree *t, const char *attribute, const char *text,
               tw_error *err) {
    const struct place p = place(t, attribute, "");
    if (write_text(t->gadgets, p.path, text)) {
        return 0;
    }
    char step[200];
    snprintf(step, sizeof step, "cannot set %s to '%s'", attribute, text);
    return fail_step(t, step, err);
}

static int set_number(const struct tw_gadget_tree *t, const char *attribute, unsigned value,
                      tw_error *err) {
    char text[16];
    snprintf(text, sizeof text, "0x%04x", value);
    return set(t, attribute, text, err);
}

static int describe(const struct tw_gadget_tree *t, const struct tw_usb_device *d, tw_error *err) {
    int code = set_number(t, "idVendor", TW_USB_VENDOR, err);
    code = code ? code : set_number(t, "idProduct", tw_usb_product(d), err);
    code = code ? code : set_number(t, "bcdDevice", tw_usb_bcd_version(d), err);
    code = code ? code : set(t, "strings/0x409/manufacturer", TW_USB_VENDOR_TEXT, err);
    code = code ? code : set(t, "strings/0x409/product", tw_usb_product_text(d), err);
    code = code ? code : set(t, "strings/0x409/serialnumber", d->serial, err);
    return code ? code : set(t, "configs/c.1/MaxPower", "500", err);
}

static int make_gadget(const struct tw_gadget_tree *t, const struct tw_usb_device *d,
                       tw_error *err) {
    const struct place strings = place(t, "strings/0x409", "");
    const struct place config = place(t, "configs/c.1", "");
    const struct place function = place(t, "functions/", t->function);
    const struct place in_config = place(t, "configs/c.1/", t->function);
    int code = make_folder(t, t->folder, err);
    code = code ? code : make_folder(t, strings.path, err);
    code = code ? code : make_folder(t, config.path, err);
    code = code ? code : make_folder(t, function.path, err);
    code = code ? code : describe(t, d, err);
    if (code) {
        return code;
    }
    /* absolute: the kernel resolves it from the process's working directory, not the link's */
    char target[400];
    snprintf(target, sizeof target, "%s/%s", t->base, function.path);
    return symlinkat(target, t->gadgets, in_config.path)
               ? fail_step(t, "cannot link the function into the configuration", err)
               : 0;
}

static void take_down(const struct tw_gadget_tree *t) {
    const struct place udc = place(t, "UDC", "");
    const struct place strings = place(t, "strings/0x409", "");
    const struct place config = place(t, "configs/c.1", "");
    const struct place function = place(t, "functions/", t->function);
    const struct place in_config = place(t, "configs/c.1/", t->function);
    write_text(t->gadgets, udc.path, "\n");
    unlinkat(t->gadgets, in_config.path, 0);
    unlinkat(t->gadgets, config.path, AT_REMOVEDIR);
    unlinkat(t->gadgets, function.path, AT_REMOVEDIR);
    unlinkat(t->gadgets, strings.path, AT_REMOVEDIR);
    unlinkat(t->gadgets, t->folder, AT_REMOVEDIR);
}

/* ---- FunctionFS ---- */

/* Creates a temporary folder to mount on. */
static bool temporary_folder(char path[48]) {
    static const char *const places[] = {"/run", "/tmp", "/dev"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, 48, "%s/tilewright-ffs-XXXXXX", places[i]);
        if (mkdtemp(path)) {
            return true;
        }
    }
    return false;
}

static int open_function(struct tw_gadget_tree *t, tw_error *err) {
    char path[48];
    if (!temporary_folder(path)) {
        return fail_step(t, "cannot create a folder for FunctionFS in /run, /tmp or /dev", err);
    }
    int code = 0;
    if (mount(t->function + strlen("ffs."), path, "functionfs", 0, NULL)) {
        code = fail_step(t, "cannot mount FunctionFS", err);
    } else {
        t->files = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        code = t->files < 0 ? fail_step(t, "cannot open FunctionFS", err) : 0;
        umount2(path, MNT_DETACH); /* it stays alive while its files are open */
    }
    rmdir(path);
    return code;
}

/* ---- life ---- */

int tw_gadget_tree_make(struct tw_gadget_tree *t, const char *root, const char *udc,
                        const struct tw_usb_device *d, tw_error *err) {
    memset(t, 0, sizeof *t);
    t->lock = t->gadgets = t->files = -1;
    int code = choose_udc(t, root, udc, err);
    if (code) {
        return code;
    }
    snprintf(t->folder, sizeof t->folder, "tilewright-%s", t->udc);
    /* the kernel accepts at most 39 bytes */
    snprintf(t->function, sizeof t->function, "ffs.tw-%.32s", t->udc);
    code = lock_udc(t, root, err);
    code = code ? code : open_gadgets(t, root, err);
    if (!code) {
        take_down(t);
        code = make_gadget(t, d, err);
        code = code ? code : open_function(t, err);
    }
    if (code) {
        tw_gadget_tree_remove(t);
    }
    return code;
}

/* Finds the gadget that is bound to our controller, or "". */
static void find_holder(const struct tw_gadget_tree *t, char holder[64]) {
    int folder = openat(t->gadgets, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = folder < 0 ? NULL : fdopendir(folder);
    holder[0] = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[300], text[TW_GADGET_UDC + 2] = "";
        snprintf(path, sizeof path, "%s/UDC", e->d_name);
        int fd = e->d_name[0] == '.' ? -1 : openat(t->gadgets, path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0) {
            close(fd);
        }
        text[n > 0 ? n : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        if (strcmp(text, t->udc) == 0) {
            snprintf(holder, 64, "%.63s", e->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    } else if (folder >= 0) {
        close(folder);
    }
}

int tw_gadget_tree_bind(const struct tw_gadget_tree *t, tw_error *err) {
    const struct place udc = place(t, "UDC", "");
    if (write_text(t->gadgets, udc.path, t->udc)) {
        return 0;
    }
    int why = errno;
    char holder[64];
    find_holder(t, holder);
    if (holder[0]) {
        return tw_fail(
            err, TW_E_DEVICE_BUSY,
            "gadget on %s: gadget '%s' is using this controller; to free it, run: echo > %s/%s/UDC",
            t->udc, holder, t->base, holder);
    }
    errno = why;
    return why == EBUSY
               ? tw_fail(
                     err, TW_E_DEVICE_BUSY,
                     "gadget on %s: a gadget driver of the kernel is using this controller; see "
                     "/sys/class/udc/%s/function",
                     t->udc, t->udc)
               : fail_step(t, "cannot connect to the bus", err);
}

void tw_gadget_tree_unbind(const struct tw_gadget_tree *t) {
    const struct place udc = place(t, "UDC", "");
    write_text(t->gadgets, udc.path, "\n");
}

void tw_gadget_tree_remove(struct tw_gadget_tree *t) {
    if (t->files >= 0) {
        close(t->files);
    }
    if (t->gadgets >= 0) {
        take_down(t);
        close(t->gadgets);
    }
    if (t->lock >= 0) {
        close(t->lock);
    }
    t->files = t->gadgets = t->lock = -1;
}
