/* SPDX-License-Identifier: Apache-2.0
 *
 * A USB gadget as the kernel has it: a tree of folders in configfs that describes it, a FunctionFS
 * instance with its endpoints' files, and the controller that it is bound to.
 */
#ifndef TW_FIRMWARE_USB_GADGET_TREE_H
#define TW_FIRMWARE_USB_GADGET_TREE_H

#include "firmware/usb/usb_device.h"

#define TW_GADGET_UDC 64u

struct tw_gadget_tree {
    char udc[TW_GADGET_UDC];
    char function[48], folder[96]; /* "ffs.tw-UDC"; the gadget's name inside usb_gadget */
    char base[160];                /* usb_gadget's path */
    int lock;                      /* of the controller */
    int gadgets;                   /* usb_gadget */
    int files;                     /* the FunctionFS folder: ep0, then ep1 ... */
};

/* Chooses the controller, takes down what a dead process left, makes gadget and function; not bound
 * to the bus. root: the folder that has /sys, "" but in tests. Errors: as tw_gadget_create. On
 * failure nothing is left. */
int tw_gadget_tree_make(struct tw_gadget_tree *t, const char *root, const char *udc,
                        const struct tw_usb_device *d, tw_error *err);
/* Connects to the bus. Errors: DEVICE_BUSY (names the gadget that has the controller), IO. */
int tw_gadget_tree_bind(const struct tw_gadget_tree *t, tw_error *err);
/* Leaves the bus. Legal when not bound. */
void tw_gadget_tree_unbind(const struct tw_gadget_tree *t);
/* Takes the gadget down; the endpoints' files have been closed. */
void tw_gadget_tree_remove(struct tw_gadget_tree *t);

#endif
