/* SPDX-License-Identifier: Apache-2.0
 *
 * Extensions of gcc and clang beyond C11, under names of our own, so that the rest of the tree is
 * plain C. Contains no code, so that firmware without a C library may include it.
 * (tilewright/error.h spells its own attribute out, because installed headers stand alone.)
 */
#ifndef TW_LOADER_BASE_COMPILER_H
#define TW_LOADER_BASE_COMPILER_H

#if !defined(__GNUC__)
#error "compile with gcc or clang"
#endif

/* Marks a function like printf: the indices of its format and of the first argument to print. */
#define TW_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))

/* Marks a function that must be inlined, whatever its size. */
#define TW_INLINE static inline __attribute__((always_inline))
/* A function that is kept apart, so that its registers are its own. */
#define TW_NOINLINE __attribute__((noinline))

/* Marks a function that uses instructions of certain processors; callers check for them first. */
#define TW_TARGET(features) __attribute__((target(features)))

/* For loops that poll a word of memory: saves power, and gives way to the core's other thread. */
#if defined(__x86_64__) || defined(__i386__)
#define TW_SPIN_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TW_SPIN_PAUSE() __asm__ volatile("yield")
#else
#define TW_SPIN_PAUSE() ((void)0)
#endif

#endif
