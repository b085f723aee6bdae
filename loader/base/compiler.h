/* SPDX-License-Identifier: Apache-2.0
 *
 * What gcc and clang offer beyond C11, by names of ours, so that the rest of the tree is plain C. No
 * code, so that firmware without a C library may include it. (tilewright/error.h spells its own
 * attribute out, because installed headers stand alone.)
 */
#ifndef TW_LOADER_BASE_COMPILER_H
#define TW_LOADER_BASE_COMPILER_H

#if !defined(__GNUC__)
#error "compile with gcc or clang"
#endif

/* Of a function like printf: which argument is the format, and the first that it prints. */
#define TW_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))

/* Of a function that must be inlined, whatever the compiler thinks of its size. */
#define TW_INLINE static inline __attribute__((always_inline))

/* Of a function whose instructions only some processors have: the caller has checked for them. */
#define TW_TARGET(features) __attribute__((target(features)))

/* In a loop that polls a word of memory: lets the processor save power, and its other thread run. */
#if defined(__x86_64__) || defined(__i386__)
#define TW_SPIN_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TW_SPIN_PAUSE() __asm__ volatile("yield")
#else
#define TW_SPIN_PAUSE() ((void)0)
#endif

#endif
