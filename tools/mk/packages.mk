# The packages, found by pkg-config; a goal meant for a fresh machine installs what is missing before it asks.

PACKAGES := libelf libbsd jansson libsodium
TEST_PACKAGES := cmocka

BOOTSTRAPPED_GOALS := demo check bench fuzz
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
TEST_CFLAGS = $(shell $(PKG_CONFIG) --cflags $(TEST_PACKAGES) 2>/dev/null)
TEST_LIBS = $(shell $(PKG_CONFIG) --libs $(TEST_PACKAGES) 2>/dev/null)
