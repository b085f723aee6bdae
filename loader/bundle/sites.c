/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams from images (loader/bundle/bundle_parts.h): reads `.tw.sites`, checks every index, then
 * gives each (program, site, engine) its words. A stream of an image without patches points into
 * the file; the others are expanded into one block.
 */
#include "loader/bundle/bundle_parts.h"

#include "tilewright/range.h"

#include <stdlib.h>
#include <string.h>

/* The section's arrays, after their sizes were checked. */
struct sites {
    const struct tw_sites_header *header;
    const struct tw_image_record *images;
    const struct tw_stream_record *streams;
    const uint32_t *patches, *args;
    const struct tw_elf *elf;
};

static int read_arrays(const struct tw_bundle *bundle, struct sites *s, tw_error *err) {
    uint64_t size;
    const uint8_t *at = tw_elf_content(&tw_owner(bundle)->elf, TW_SEC_SITES, &size);
    const struct tw_sites_header *h = (const struct tw_sites_header *)(const void *)at;
    if (size < sizeof *h || h->magic != TW_SITES_MAGIC) {
        return tw_fail(err, TW_E_FORMAT, "%s: .tw.sites: no valid header in its %llu bytes",
                       bundle->path, (unsigned long long)size);
    }
    uint64_t images = h->n_images * sizeof *s->images, streams = h->n_streams * sizeof *s->streams;
    uint64_t patches = h->n_patches * sizeof *s->patches, args = h->n_args * sizeof *s->args;
    if (sizeof *h + images + streams + patches + args != size) {
        return tw_fail(
            err, TW_E_RANGE,
            "%s: .tw.sites: %u images, %u streams, %u patches and %u arguments in %llu bytes",
            bundle->path, h->n_images, h->n_streams, h->n_patches, h->n_args,
            (unsigned long long)size);
    }
    s->elf = &tw_owner(bundle)->elf;
    s->header = h;
    s->images = (const struct tw_image_record *)(const void *)(at += sizeof *h);
    s->streams = (const struct tw_stream_record *)(const void *)(at += images);
    s->patches = (const uint32_t *)(const void *)(at += streams);
    s->args = (const uint32_t *)(const void *)(at + patches);
    return 0;
}

static int check_images(const struct tw_bundle *bundle, const struct sites *s, tw_error *err) {
    if (s->header->n_images != s->elf->n_images) {
        return tw_fail(err, TW_E_FORMAT, "%s: .tw.sites: %u images, the file has %u", bundle->path,
                       s->header->n_images, s->elf->n_images);
    }
    for (uint32_t i = 0; i < s->header->n_images; i++) {
        const struct tw_image_record *r = &s->images[i];
        uint64_t size = s->elf->sections[s->elf->image[i]].sh_size;
        if ((uint64_t)r->n_words * 4 != size ||
            !tw_range_ok(r->first_patch, r->n_patches, s->header->n_patches)) {
            return tw_fail(err, TW_E_RANGE,
                           "%s: .tw.sites: image %u: %u words in %llu bytes, patches %u + %u of %u",
                           bundle->path, i, r->n_words, (unsigned long long)size, r->first_patch,
                           r->n_patches, s->header->n_patches);
        }
        for (uint32_t k = 0; k < r->n_patches; k++) {
            uint32_t at = s->patches[r->first_patch + k];
            if (at >= r->n_words || (k > 0 && at <= s->patches[r->first_patch + k - 1])) {
                return tw_fail(err, TW_E_RANGE,
                               "%s: .tw.sites: image %u: patch %u at word %u of %u is outside the "
                               "image or not after "
                               "the previous one",
                               bundle->path, i, k, at, r->n_words);
            }
        }
    }
    return 0;
}

/* Checks one record against its place in the order and adds the words that it needs to *words. */
static int check_stream(const struct tw_bundle *bundle, const struct sites *s, uint32_t i,
                        uint32_t program, uint32_t k, uint64_t *words, tw_error *err) {
    const struct tw_stream_record *r = &s->streams[i];
    if (r->program != program || r->site != k / TW_ENGINE_COUNT ||
        r->engine != k % TW_ENGINE_COUNT) {
        return tw_fail(
            err, TW_E_FORMAT,
            "%s: .tw.sites: stream %u: (program %u, site %u, engine %u), expected (%u, %u, %u)",
            bundle->path, i, r->program, r->site, r->engine, program, k / TW_ENGINE_COUNT,
            k % TW_ENGINE_COUNT);
    }
    if (r->image == TW_NONE) {
        return 0;
    }
    if (r->image >= s->header->n_images ||
        !tw_range_ok(r->first_arg, s->images[r->image].n_patches, s->header->n_args)) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: .tw.sites: stream %u: image %u of %u, or its arguments from %u on, of "
                       "%u, do not exist",
                       bundle->path, i, r->image, s->header->n_images, r->first_arg,
                       s->header->n_args);
    }
    *words += s->images[r->image].n_patches ? s->images[r->image].n_words : 0;
    return 0;
}

static int check_streams(const struct tw_bundle *bundle, const struct sites *s, uint64_t *words,
                         tw_error *err) {
    uint64_t n = 0, limit = TW_MAX_EXPANDED_BYTES(s->elf->size);
    for (uint32_t p = 0; p < bundle->n_programs; p++) {
        n += (uint64_t)bundle->programs[p].n_sites * TW_ENGINE_COUNT;
    }
    if (n != s->header->n_streams) {
        return tw_fail(err, TW_E_FORMAT, "%s: .tw.sites: %u streams, the programs have %llu",
                       bundle->path, s->header->n_streams, (unsigned long long)n);
    }
    for (uint32_t p = 0, i = 0; p < bundle->n_programs; p++) {
        for (uint32_t k = 0; k < bundle->programs[p].n_sites * TW_ENGINE_COUNT; k++, i++) {
            int rc = check_stream(bundle, s, i, p, k, words, err);
            if (rc != 0) {
                return rc;
            }
        }
    }
    if (*words > limit / 4) {
        return tw_fail(err, TW_E_RANGE,
                       "%s: .tw.sites: streams expand to %llu words, the maximum is %llu",
                       bundle->path, (unsigned long long)*words, (unsigned long long)(limit / 4));
    }
    return 0;
}

/* Writes the words of stream i to `to` if they must be expanded, and returns the end of what it
 * wrote. */
static uint32_t *expand(const struct sites *s, uint32_t i, struct tw_stream *out, uint32_t *to) {
    const struct tw_stream_record *r = &s->streams[i];
    out->site = r->site;
    out->engine = r->engine;
    out->words = s->patches; /* any valid pointer, for no words */
    out->n_words = 0;
    if (r->image == TW_NONE) {
        return to;
    }
    const struct tw_image_record *image = &s->images[r->image];
    const uint8_t *bytes = s->elf->bytes + s->elf->sections[s->elf->image[r->image]].sh_offset;
    out->n_words = image->n_words;
    out->words = (const uint32_t *)(const void *)bytes;
    if (image->n_patches == 0) {
        return to;
    }
    memcpy(to, bytes, (size_t)image->n_words * 4);
    for (uint32_t k = 0; k < image->n_patches; k++) {
        to[s->patches[image->first_patch + k]] = s->args[r->first_arg + k];
    }
    out->words = to;
    return to + image->n_words;
}

int tw_parts_sites(struct tw_bundle *bundle, tw_error *err) {
    struct tw_bundle_owner *owner = tw_owner(bundle);
    struct sites s = {0};
    uint64_t words = 0;
    int rc = read_arrays(bundle, &s, err);
    rc = rc ? rc : check_images(bundle, &s, err);
    rc = rc ? rc : check_streams(bundle, &s, &words, err);
    if (rc != 0) {
        return rc;
    }
    owner->n_streams = s.header->n_streams;
    owner->streams = calloc(owner->n_streams + 1, sizeof *owner->streams);
    owner->words = malloc((size_t)words * 4 + 4);
    if (!owner->streams || !owner->words) {
        return tw_fail(err, TW_E_NOMEM, "%s: out of memory for %llu words of streams", bundle->path,
                       (unsigned long long)words);
    }
    uint32_t *to = owner->words;
    for (uint32_t p = 0, i = 0; p < bundle->n_programs; p++) {
        bundle->programs[p].streams = owner->streams + i;
        for (uint32_t k = 0; k < bundle->programs[p].n_sites * TW_ENGINE_COUNT; k++, i++) {
            to = expand(&s, i, &owner->streams[i], to);
        }
    }
    return 0;
}
