/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides by a file's first bytes: bundles, GGUF files and llama2.c checkpoints all have a zero
 * among the first eight.
 */
#include "tools/text_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool text_file_is(const char *path) {
    unsigned char bytes[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    /* Bytes read from a pipe would be missing afterwards. */
    bool regular = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    ssize_t n = regular ? read(fd, bytes, sizeof bytes) : -1;
    if (fd >= 0) {
        close(fd);
    }
    for (ssize_t i = 0; i < n; i++) {
        if ((bytes[i] < 0x20 && !strchr("\t\n\r", bytes[i])) || bytes[i] == 0 || bytes[i] == 0x7F) {
            return false;
        }
    }
    return n > 0 && !(n >= 4 && memcmp(bytes, "GGUF", 4) == 0);
}
