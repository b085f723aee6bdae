# The library, static and shared, and the command.

STATIC_LIB := $(BUILD)/libtilewright.a
SHARED_LIB := $(BUILD)/libtilewright.so
SONAME := libtilewright.so.$(SOVERSION)
COMMAND := $(BUILD)/tilewright

ALL_CFLAGS = $(BASE_CFLAGS) $(CFLAGS) $(SANFLAGS) $(PKG_CFLAGS)
ALL_LIBS = $(PKG_LIBS) -lm -pthread

.PHONY: FORCE
FORCE:

# After a change of compiler or flags everything is compiled again.
$(BUILD)/flags: FORCE
	@test -n '$(PKG_LIBS)' -a -n '$(TOOL_LIBS)' || { $(PKG_CONFIG) --exists --print-errors $(PACKAGES) $(TOOL_PACKAGES); \
		echo 'packages are missing: run tools/bootstrap' >&2; exit 1; }
	$(call stamp,$(CC) $(ALL_CFLAGS) $(LDFLAGS))

# After a file was added or removed the archives and the library are rebuilt.
$(BUILD)/sources: FORCE
	$(call stamp,$(LIB_SRCS) $(TOOL_SRCS) $(TEST_SUPPORT_SRCS))

$(OBJ)/%.o: %.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<

# The checker's clocks are vectors with an element for each engine; -O2 does not vectorise loops of unknown length.
$(OBJ)/loader/order/check_clocks.o: EXTRA_CFLAGS += -O3

# The files that determine a bundle's bytes: a bundle cached by another compiler is not reused (compiler/cache_key.c).
COMPILER_FILES := $(sort $(shell find compiler include loader -name '*.[ch]' -o -name '*.def'))
$(BUILD)/compiler-id: FORCE
	$(call stamp,$(firstword $(shell cat $(COMPILER_FILES) | cksum)))
$(OBJ)/compiler/cache_key.o: $(BUILD)/compiler-id
$(OBJ)/compiler/cache_key.o: EXTRA_CFLAGS += -DTW_COMPILER_ID='"$(shell cat $(BUILD)/compiler-id)"'

# The udev rule is built into the command.
$(OBJ)/tools/cmd/doctor_rule.o: udev/60-tilewright.rules

archive = @mkdir -p $(@D); rm -f $@; ar rcsD $@ $(1)

$(STATIC_LIB): $(LIB_OBJS) $(BUILD)/sources
	$(call say,AR,$@)
	$(call archive,$(LIB_OBJS))

# Only what the public headers declare is visible in the shared library.
$(BUILD)/tilewright.map: tools/mk/version-script tools/mk/declared $(wildcard include/tilewright/*.h)
	@mkdir -p $(@D)
	$(Q)CC='$(CC)' tools/mk/version-script TILEWRIGHT_$(SOVERSION) >$@.tmp && mv $@.tmp $@

$(SHARED_LIB): $(LIB_OBJS) $(BUILD)/sources $(BUILD)/tilewright.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(SANFLAGS) $(LDFLAGS) -Wl,-soname,$(SONAME) \
		-Xlinker --version-script -Xlinker $(BUILD)/tilewright.map $(if $(SAN),,-Wl,-z,defs) -o $@ $(LIB_OBJS) $(ALL_LIBS)
	@ln -sf $(@F) $(BUILD)/$(SONAME)

$(COMMAND): $(TOOL_OBJS) $(STATIC_LIB) $(BUILD)/sources
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $(TOOL_OBJS) $(STATIC_LIB) $(TOOL_LIBS) $(ALL_LIBS)

-include $(LIB_OBJS:.o=.d) $(TOOL_OBJS:.o=.d)
