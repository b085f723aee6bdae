/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors: the table of every error the library can return, and the object that carries the message.
 *
 * Every fallible function returns 0 or one of the negative codes below and, when it fails, fills
 * the caller's tw_error with one line that names the place (file, offset, key, device, op) and what
 * was found and expected. The library never prints and never exits. Every function here may be
 * called from any thread.
 */
#ifndef TILEWRIGHT_ERROR_H
#define TILEWRIGHT_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Classes; the command's exit status is the class (see tw_error_exit_status). */
enum tw_error_class {
    TW_CLASS_OK = 0,
    TW_CLASS_USAGE = 2,       /* wrong use of the API or the command line */
    TW_CLASS_INPUT = 3,       /* an input file is malformed */
    TW_CLASS_UNSUPPORTED = 4, /* well-formed, but not supported */
    TW_CLASS_RESOURCE = 5,    /* memory, disk, device memory, context length */
    TW_CLASS_DEVICE = 6,      /* a device or its link failed */
    TW_CLASS_VERIFY = 7,      /* a program breaks a rule of the machine */
    TW_CLASS_INTERNAL = 70    /* a bug in Tilewright */
};

/* X(name, number, class, cause, remedy). The remedy is generic; "" where only the message can say
 * what to do. The command line prints it as "try: REMEDY" after a message that gives no advice. */
#define TW_ERRORS(X)                                                                               \
    X(USAGE, 1, USAGE, "bad argument", "")                                                         \
    X(IO, 2, INPUT, "a file could not be read or written", "")                                     \
    X(TRUNCATED, 3, INPUT, "a file is truncated", "fetch or copy the file again")                  \
    X(FORMAT, 4, INPUT, "a file is malformed",                                                     \
      "check that it is the file you mean; fetch or convert it again")                             \
    X(RANGE, 5, INPUT, "a number is out of range", "")                                             \
    X(MISSING, 6, INPUT, "a required key or tensor is absent",                                     \
      "convert the model with a current converter")                                                \
    X(SHAPE, 7, INPUT, "a tensor has the wrong shape",                                             \
      "convert the model with a current converter")                                                \
    X(UNSUPPORTED, 8, UNSUPPORTED, "a feature is not supported", "")                               \
    X(NOMEM, 9, RESOURCE, "memory ran out", "free memory, or use a smaller model or context (-c)") \
    X(NOSPACE, 10, RESOURCE, "the disk is full or the output cannot be written", "")               \
    X(PLACEMENT, 11, RESOURCE, "the program does not fit the target's memory",                     \
      "use a larger target or a smaller context (-c)")                                             \
    X(CONTEXT_FULL, 12, RESOURCE, "the context is full", "compile with a larger context (-c)")     \
    X(NO_DEVICE, 13, DEVICE, "no such device", "tilewright devices")                               \
    X(DEVICE_BUSY, 14, DEVICE, "the device is in use",                                             \
      "stop that process, or choose another device (tilewright devices)")                          \
    X(DEVICE_LOST, 15, DEVICE, "the device was lost",                                              \
      "reconnect or restart the device, then run again")                                           \
    X(PROTOCOL, 16, DEVICE, "the device sent an invalid answer",                                   \
      "tilewright reset; if it happens again, upgrade the device's firmware")                      \
    X(VERSION, 17, DEVICE, "versions do not match", "upgrade the side that the message names")     \
    X(FAULT, 18, DEVICE, "the tile machine faulted",                                               \
      "report the message together with the bundle")                                               \
    X(TIMEOUT, 19, DEVICE, "the device made no progress in time", "tilewright reset")              \
    X(VERIFY, 20, VERIFY, "a program breaks a rule of the tile machine",                           \
      "recompile the bundle; correct a program in text")                                           \
    X(HASH, 21, INPUT, "content does not match its hash", "copy or compile the bundle again")      \
    X(TARGET, 22, VERIFY, "a bundle is for another target",                                        \
      "recompile for this target, or choose its device")                                           \
    X(INTERRUPTED, 23, RESOURCE, "interrupted", "")                                                \
    X(INTERNAL, 24, INTERNAL, "an internal check failed", "report this with the command line")

enum tw_error_code {
    TW_OK = 0,
#define TW_X(name, number, class_, cause, remedy) TW_E_##name = -(number),
    TW_ERRORS(TW_X)
#undef TW_X
};

/* The error object; owned by the caller, needs no destructor. Zero-initialise it. `message` is one
 * NUL-terminated line of printable UTF-8; if too long it is cut between characters. */
typedef struct tw_error {
    int code;
    char message[480];
} tw_error;

/* Fills `err` (which may be NULL: then nothing happens) with the code and the formatted line
 * (format NULL: the code's cause). What is not printable UTF-8 in the line is replaced by '?'. */
void tw_error_set(tw_error *err, int code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
void tw_error_vset(tw_error *err, int code, const char *format, va_list args)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 0)))
#endif
    ;

/* How a function fails: `return tw_fail(err, TW_E_FORMAT, "...", ...)`. Fills `err` like
 * tw_error_set and its value is `code`. It is a macro so that the compiler and the analysers see,
 * without reading another file, which value the caller returns; `code` is evaluated twice.
 * Functions that add what they know (a rule, a line, a device) follow the same pattern: a function
 * `..._error` that fills `err`, and a macro `..._fail` whose value is the code. */
#define tw_fail(err, code, ...) (tw_error_set((err), (code), __VA_ARGS__), (code))

/* Puts "prefix: " before the message already in `err`, or the formatted text after it. `err` may be
 * NULL; the code stays. prefix NULL: changes nothing. */
void tw_error_prefix(tw_error *err, const char *prefix);
void tw_error_append(tw_error *err, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Return the stable name ("FORMAT"), the one-line cause and remedy ("": none), and the class of a
 * code; for an unknown code "UNKNOWN" and the internal class. Static strings. */
const char *tw_error_name(int code);
const char *tw_error_cause(int code);
const char *tw_error_remedy(int code);
enum tw_error_class tw_error_class_of(int code);

/* Returns the exit status of a command that ends with `code`: 0, or the class; 130 for
 * INTERRUPTED. */
int tw_error_exit_status(int code);

#ifdef __cplusplus
}
#endif
#endif
