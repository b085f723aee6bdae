/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions for files of saved states (tilewright/state.h).
 */
#include "tilewright/state.h"

#include "driver/state/state_internal.h"
#include "loader/base/private_path.h"
#include "loader/base/sized.h"
#include "loader/base/text_filter.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void copy_text(char *to, size_t room, const char *text) {
    snprintf(to, room, "%s", text);
    tw_clean_text(to);
}

static void describe(const struct tw_saved *f, struct tw_state_info *out) {
    const struct tw_saved_commit *c = &f->commit;
    *out = (struct tw_state_info){
        .version = c->version,
        .n_tokens = c->n_tokens,
        .page_positions = f->schema.page_positions,
        .n_slots = f->n_slots,
        .n_tensors = f->schema.n_tensors,
        .n_pages = (uint64_t)f->n_slots * f->sizes.cell_pages,
        .pages_bytes = f->n_slots * f->sizes.pages_bytes,
        .file_bytes = c->file_bytes,
        .saves = c->sequence,
        .saved_ns = c->saved_ns,
    };
    memcpy(out->model_hash, f->schema.identity, sizeof out->model_hash);
    copy_text(out->model, sizeof out->model, f->schema.model);
    copy_text(out->policy, sizeof out->policy, f->schema.policy);
    copy_text(out->kv, sizeof out->kv, tw_saved_kv_name(&f->schema));
}

int tw_state_file_info(const char *path, uint32_t flags, struct tw_state_info *info,
                       tw_error *err) {
    struct tw_state_info full;
    struct tw_saved *f;
    if (TW_NEED(err, path) || tw_sized_check(__func__, info, err) ||
        tw_known_flags(__func__, flags, TW_STATE_FILE_CHECK, err)) {
        return TW_E_USAGE;
    }
    int code = tw_saved_open(path, NULL, flags ? TW_SAVED_WHOLE : TW_SAVED_HEAD, &f, err);
    if (code) {
        return code;
    }
    describe(f, &full);
    tw_saved_close(f);
    tw_sized_write(info, &full, sizeof full);
    return 0;
}

int tw_state_file_remove(const char *path, tw_error *err) {
    int fd;
    if (TW_NEED(err, path)) {
        return TW_E_USAGE;
    }
    int code = tw_private_file_open(path, &fd, err);
    if (code) {
        return code;
    }
    bool is_state = tw_saved_may_replace(fd) && lseek(fd, 0, SEEK_END) > 0;
    close(fd);
    if (!is_state) {
        return tw_fail(err, TW_E_FORMAT, "%.200s: is not a saved state; it stays", path);
    }
    return unlink(path) == 0
               ? 0
               : tw_fail(err, TW_E_IO, "%.200s: cannot remove: %s", path, strerror(errno));
}
