# Settings of a build: version, compiler, flags and the folder it goes to.

# version.h is the source of the version; the shared library's name carries the major number.
version_part = $(shell sed -n 's/^.define TW_VERSION_$(1) //p' include/tilewright/version.h)
SOVERSION := $(call version_part,MAJOR)
VERSION := $(SOVERSION).$(call version_part,MINOR).$(call version_part,PATCH)

ifeq ($(origin CC),default)
CC := gcc
endif

# SAN=address,undefined or SAN=thread: a sanitized build, in a folder of its own; DEBUG=1: one with assertions.
SAN :=
DEBUG :=
BUILD := build$(if $(SAN),/san-$(SAN),$(if $(DEBUG),/debug))

STD := -std=c11 -D_GNU_SOURCE
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wswitch-enum
# The order of every sum is part of the machine's definition: no contraction, no reassociation.
FLOAT := -ffp-contract=off -fno-math-errno
# A sanitizer instruments every access: with more optimisation, and with more than lines to name in a report, compilation
# takes three times as long as the tests.
CFLAGS := $(if $(SAN),-O1 -g1,-O2 -g)
# loader/base/assert.h: on wherever somebody looks for our mistakes, off in what is installed.
ASSERTS := $(if $(SAN)$(DEBUG),-DTW_ASSERTS)
LDFLAGS :=

# With sanitizers the optimiser warns about impossible paths, so warnings are errors only in the plain build.
ifeq ($(SAN),)
STRICT := -Werror
else
SANFLAGS := -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
endif

BASE_CFLAGS := $(STD) $(FLOAT) $(WARN) $(STRICT) $(ASSERTS) -Iinclude -I. -pthread -fPIC

# make -n: the first word of MAKEFLAGS holds the single letters, if there are any.
DRY_RUN := $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS))))

# Use all cores unless -j is given.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --no-builtin-rules

# Data beside the checkout; tests that need it are skipped if it is absent.
TW_SHARED ?= ../shared
ifneq ($(wildcard $(TW_SHARED)/.),)
override TW_SHARED := $(abspath $(TW_SHARED))
export TW_SHARED
else
unexport TW_SHARED
endif

# V=1 shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# Rewrites a stamp only if its text changes, so that what depends on it is rebuilt exactly then.
stamp = @mkdir -p $(@D); printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' >$@
