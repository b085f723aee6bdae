/* SPDX-License-Identifier: Apache-2.0
 *
 * Deltas as text and as JSON (tools/delta_report.h).
 */
#include "tools/delta_report.h"

#include "tools/text.h"
#include "tools/ui.h"

json_t *delta_json(const struct tw_delta_info *info, const char *path) {
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "path", text_json(path), "bytes",
                     (json_int_t)info->delta_bytes, "bundle_bytes", (json_int_t)info->target_bytes,
                     "copied_bytes", (json_int_t)info->copied_bytes, "stored_bytes",
                     (json_int_t)info->stored_bytes, "patched_bytes",
                     (json_int_t)info->patched_bytes, "changed_bytes",
                     (json_int_t)info->changed_bytes);
}

void delta_print(const struct tw_delta_info *info, const char *path) {
    char a[32], b[32], c[32], d[32];
    printf("delta    %s: %s for a bundle of %s; %s stored, %s patched\n", text_clean(path).text,
           ui_bytes(info->delta_bytes, a), ui_bytes(info->target_bytes, b),
           ui_bytes(info->stored_bytes, c), ui_bytes(info->patched_bytes, d));
}
