/* SPDX-License-Identifier: Apache-2.0
 *
 * A USB gadget as the kernel represents it: a tree of folders in configfs, a FunctionFS instance
 * with a file for each endpoint, and the controller to which it is bound. One thread at a time.
 */
#ifndef TW_FIRMWARE_USB_GADGET_TREE_H
#define TW_FIRMWARE_USB_GADGET_TREE_H

#include "firmware/usb/usb_device.h"

#define TW_GADGET_UDC 64u

struct tw_gadget_tree {
    char udc[TW_GADGET_UDC];
    char function[48], folder[96]; /* "ffs.tw-UDC"; the gadget's name inside usb_gadget */
    char base[160];                /* usb_gadget's path */
    int lock;                      /* descriptor that holds the controller's lock */
    int gadgets;                   /* descriptor of usb_gadget */
    int files;                     /* descriptor of the FunctionFS folder: ep0, ep1, ... */
};

/* Chooses the controller, removes the remains of a dead process, creates gadget and function, and
 * opens FunctionFS; does not connect to the bus. root: the folder that contains /sys, "" except in
 * tests. Errors: as tw_gadget_create. On failure everything is removed again. */
int tw_gadget_tree_make(struct tw_gadget_tree *t, const char *root, const char *udc,
                        const struct tw_usb_device *d, tw_error *err);
/* Connects to the bus. Errors: DEVICE_BUSY (names the gadget that is using the controller), IO. */
int tw_gadget_tree_bind(const struct tw_gadget_tree *t, tw_error *err);
/* Disconnects from the bus. Legal when not connected. */
void tw_gadget_tree_unbind(const struct tw_gadget_tree *t);
/* Removes the gadget and unlocks the controller. The endpoints' files must have been closed. */
void tw_gadget_tree_remove(struct tw_gadget_tree *t);

#endif
