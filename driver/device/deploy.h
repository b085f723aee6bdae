/* SPDX-License-Identifier: Apache-2.0
 *
 * A deployment: a decoder's weights, programs and pages of state in a device's memory, shared by
 * all sessions on it.
 */
#ifndef TW_DRIVER_DEVICE_DEPLOY_H
#define TW_DRIVER_DEVICE_DEPLOY_H

#include "driver/decoder/decoder.h"
#include "driver/device/device.h"
#include "driver/device/prefix_tree.h"
#include "driver/device/state_pool.h"

struct tw_deployment {
    _Atomic uint32_t users; /* references besides the caller's: sessions */
    struct tw_device *device;
    struct tw_decoder *decoder;
    uint32_t resets; /* device->resets at the time of deployment */
    /* n_segments; only PARAM ones are the deployment's, the others stay 0 */
    uint64_t *segment_address;
    uint64_t *blob_address; /* n_programs: the program blobs */
    uint64_t *blob_bytes;
    uint8_t **blob; /* host copies: the device may use them in place */
    /* n_programs: their certificates, on a device that verifies; else 0 */
    uint64_t *certificate_address;
    /* the sequences' state, if the bundle keeps it in pages: of all positions, and of windows */
    struct tw_state_pool pool, window_pool;
    struct tw_prefix_tree *prefixes; /* NULL: the state is not in pages */
    /* Of saved prefixes (driver/session); NULL: none are saved. */
    char *prefix_folder;
    uint64_t prefix_bytes;
    /* What sessions share (driver/session): their executors, under the lock. */
    pthread_mutex_t lock;
    struct tw_executor *executors;
};

/* Fills in what a LOAD of program `index` says of the program itself: blob and certificate. Returns
 * the number of bytes of the request that this device takes. */
uint32_t tw_deployment_load(const struct tw_deployment *deployment, uint32_t index,
                            struct tw_wire_load *request);

/* Adds a reference, which tw_deployment_destroy() drops. Any thread. */
void tw_deployment_retain(struct tw_deployment *deployment);

#endif
