# Packages found by pkg-config. Goals for a fresh machine install missing ones first.

PACKAGES := libelf libbsd jansson libsodium libusb-1.0 libusbredirparser-0.5 libutf8proc libpcre2-8
# For the command alone.
TOOL_PACKAGES := libedit
TEST_PACKAGES := cmocka

BOOTSTRAPPED_GOALS := demo check check-qemu bench fuzz
ifneq ($(filter $(BOOTSTRAPPED_GOALS),$(MAKECMDGOALS)),)
ifeq ($(DRY_RUN),)
ifneq ($(shell tools/bootstrap $(MAKECMDGOALS) >&2 && echo ready),ready)
$(error the packages above are needed for this goal)
endif
endif
endif

PKG_CONFIG := pkg-config
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) $(TOOL_PACKAGES) 2>/dev/null)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null)
TOOL_LIBS := $(shell $(PKG_CONFIG) --libs $(TOOL_PACKAGES) 2>/dev/null)
TEST_CFLAGS = $(shell $(PKG_CONFIG) --cflags $(TEST_PACKAGES) 2>/dev/null) $(MOCK_CFLAGS)
TEST_LIBS = $(shell $(PKG_CONFIG) --libs $(TEST_PACKAGES) 2>/dev/null)

# umockdev simulates devices for libusb; tests that need it are skipped without it. Its headers are system headers,
# since their warnings are not ours to fix.
MOCK_CFLAGS := $(subst -I,-isystem ,$(shell $(PKG_CONFIG) --cflags umockdev-1.0 2>/dev/null))
MOCK_LIBS := $(shell $(PKG_CONFIG) --libs umockdev-1.0 2>/dev/null)
