/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares every kernel of every table of this processor with the scalar one, and hashes the
 * results. A plain program (no cmocka) for processors that we have only as cross compiler and
 * emulator. Prints "ok", "not ok" and "same NAME HASH" lines; the "same" lines are equal on every
 * machine.
 */
#include "tests/cross/image.h"
#include "tests/support/kernel_cases.h"

#include <string.h>

static uint64_t hash;
static uint32_t checked, failed;

/* Hashes all NaNs as one: their payload and sign are not defined. */
static void hash_words(const void *words, size_t bytes, bool floats) {
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t u;
        memcpy(&u, (const char *)words + i, 4);
        u = floats && (u & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC00000u : u;
        hash = cross_hash(hash, &u, sizeof u);
    }
}

static void check(uint32_t op, const struct tw_kargs *args, unsigned out, size_t bytes,
                  enum fixture_kind kind, const char *what) {
    char message[FIXTURE_MESSAGE];
    checked++;
    if (fixture_differs(op, args, out, bytes, kind, what, message)) {
        failed++;
        printf("not ok %s\n", message);
    }
    hash_words(args->p[out], bytes, kind == FIXTURE_FLOATS);
}

int main(void) {
    printf("# tables:");
    for (int isa = 0; isa < TW_ISA_COUNT; isa++) {
        const struct tw_kernel_table *t = tw_kernel_table((enum tw_isa)isa);
        printf("%s%s", t ? " " : "", t ? t->name : "");
    }
    printf("\n");
    for (uint32_t i = 0; i < KERNEL_CASES; i++) {
        hash = CROSS_HASH;
        kernel_cases[i].run(check);
        printf("same %s %016llx\n", kernel_cases[i].name, (unsigned long long)hash);
    }
    if (!failed) {
        printf("ok %u calls of kernels give the scalar bits in every table\n", checked);
    }
    return failed != 0;
}
