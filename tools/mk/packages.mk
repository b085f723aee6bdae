# The packages, found by pkg-config; a goal meant for a fresh machine installs what is missing before it asks.

PACKAGES := libelf libbsd jansson libsodium libusb-1.0 libusbredirparser-0.5
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
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null)
TEST_CFLAGS = $(shell $(PKG_CONFIG) --cflags $(TEST_PACKAGES) 2>/dev/null) $(MOCK_CFLAGS)
TEST_LIBS = $(shell $(PKG_CONFIG) --libs $(TEST_PACKAGES) 2>/dev/null)

# umockdev shows libusb devices that are not there; what needs it skips where it is missing. Its headers are not ours
# to keep free of warnings.
MOCK_CFLAGS := $(subst -I,-isystem ,$(shell $(PKG_CONFIG) --cflags umockdev-1.0 2>/dev/null))
MOCK_LIBS := $(shell $(PKG_CONFIG) --libs umockdev-1.0 2>/dev/null)
