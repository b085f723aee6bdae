/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharing of op streams: streams of equal shape become one image, and the words that differ become
 * arguments.
 */
#ifndef TW_COMPILER_EMIT_IMAGES_H
#define TW_COMPILER_EMIT_IMAGES_H

#include "tilewright/bundle.h"
#include "tilewright/error.h"

/* The content of `.tw.image.<n>` and `.tw.sites`, as arrays owned by this struct. Two streams share
 * an image if their ops, numbers of terms and loop variables are the same words at the same
 * positions (so that one decoder walk fits both); every other word that differs between two streams
 * of an image is a patch. Images are in order of their first stream, streams in order of (program,
 * site, engine). */
struct tw_images {
    uint32_t n_images, n_streams, n_patches, n_args;
    struct tw_image_record *images;
    const uint32_t **image_words; /* into the programs' streams; not owned */
    struct tw_stream_record *streams;
    uint32_t *patches, *args;
};

/* Builds the images of all streams of the programs, which must outlive *out; tw_images_finish()
 * frees it, also after an error. Errors: NOMEM; UNSUPPORTED (more than TW_MAX_IMAGES shapes);
 * INTERNAL (a stream does not decode or is out of order). */
int tw_images_build(const struct tw_program *programs, uint32_t n_programs, struct tw_images *out,
                    tw_error *err);
void tw_images_finish(struct tw_images *images);

#endif
