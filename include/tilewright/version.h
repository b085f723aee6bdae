/* SPDX-License-Identifier: Apache-2.0
 *
 * The version: these three numbers are its only source. The build (tools/mk/config.mk), the
 * library, the firmware and the pkg-config file use them; tests/tools/version.sh checks the man
 * pages against them. Freestanding.
 */
#ifndef TILEWRIGHT_VERSION_H
#define TILEWRIGHT_VERSION_H

#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1
#define TW_VERSION_PATCH 0

/* For #if and for the wire: major << 16 | minor << 8 | patch. */
#define TW_VERSION_NUMBER (TW_VERSION_MAJOR << 16 | TW_VERSION_MINOR << 8 | TW_VERSION_PATCH)

#define TW_VERSION_TEXT_(x) #x
#define TW_VERSION_TEXT(x) TW_VERSION_TEXT_(x)
/* "0.1.0" */
#define TW_VERSION                    \
    TW_VERSION_TEXT(TW_VERSION_MAJOR) \
    "." TW_VERSION_TEXT(TW_VERSION_MINOR) "." TW_VERSION_TEXT(TW_VERSION_PATCH)

#endif
