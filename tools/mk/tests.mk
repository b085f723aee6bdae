# Unit tests: every tests/**/*_test.c is one program; fuzz targets: every tests/fuzz/fuzz_*.c; benchmarks: every
# tests/bench/*_bench.c.

# What the tests may link besides the library: tests/support, and the command's code (for its parts).
SUPPORT_ARCHIVE := $(OBJ)/support.a
TEST_ARCHIVE := $(OBJ)/tests.a

$(SUPPORT_ARCHIVE): $(TEST_SUPPORT_OBJS) $(BUILD)/sources
	$(call archive,$(TEST_SUPPORT_OBJS))

$(TEST_ARCHIVE): $(TOOL_OBJS) $(TEST_SUPPORT_OBJS) $(BUILD)/sources
	$(call archive,$(TOOL_OBJS) $(TEST_SUPPORT_OBJS))

$(OBJ)/tests/%.o: EXTRA_CFLAGS = $(TEST_CFLAGS)

# The library and the command's code with all symbols visible: to link each test statically takes ten times as long, and
# copies all of it as often.
TEST_LIBRARY := $(BUILD)/libtests.so
TEST_LIBRARY_OBJS := $(LIB_OBJS) $(filter-out $(OBJ)/tools/main.o,$(TOOL_OBJS))

$(TEST_LIBRARY): $(TEST_LIBRARY_OBJS) $(BUILD)/sources
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(SANFLAGS) $(LDFLAGS) -Xlinker -soname -Xlinker $(@F) -o $@ $(TEST_LIBRARY_OBJS) $(TOOL_LIBS) $(ALL_LIBS)

$(TEST_BINS): $(BUILD)/%: $(OBJ)/%.o $(SUPPORT_ARCHIVE) $(TEST_LIBRARY)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $< $(SUPPORT_ARCHIVE) $(TEST_LIBRARY) \
		-Xlinker -rpath -Xlinker '$(abspath $(BUILD))' $(TEST_LIBS) $(TOOL_LIBS) $(ALL_LIBS)

# What is measured is linked as it is shipped.
$(BENCH_BINS): $(BUILD)/%: $(OBJ)/%.o $(TEST_ARCHIVE) $(STATIC_LIB)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $< $(TEST_ARCHIVE) $(STATIC_LIB) $(TEST_LIBS) $(TOOL_LIBS) $(ALL_LIBS)

$(BUILD)/tests/driver/transport/usb/usb_test $(BUILD)/tests/driver/transport/usb/usb_host_pipe_test: TEST_LIBS += $(MOCK_LIBS)

# The programs that tools/check/cross runs on other processors, built for this one and linked like tests.
$(CROSS_BINS): $(BUILD)/%: $(OBJ)/%.o $(TEST_ARCHIVE) $(STATIC_LIB)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $< $(TEST_ARCHIVE) $(STATIC_LIB) $(TOOL_LIBS) $(ALL_LIBS)

$(FUZZ_BINS): $(BUILD)/%: $(OBJ)/%.o $(TEST_ARCHIVE) $(STATIC_LIB)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -fsanitize=fuzzer,address,undefined $(LDFLAGS) -o $@ $< $(TEST_ARCHIVE) $(STATIC_LIB) $(TOOL_LIBS) $(ALL_LIBS)

# Fuzz targets need clang and a library that reports its coverage.
FUZZ_BUILD := BUILD=build/fuzz CC=clang SAN=fuzzer-no-link,address,undefined

# Warnings of a second compiler, without generating code; it compiles the library's sources for the fuzz targets.
CLANG_STAMPS := $(patsubst %.c,$(BUILD)/clang/%.ok,$(filter-out $(LIB_SRCS),$(ALL_SRCS)))

$(CLANG_STAMPS): $(BUILD)/clang/%.ok: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)clang $(BASE_CFLAGS) -O2 $(PKG_CFLAGS) $(TEST_CFLAGS) -fsyntax-only -MMD -MP -MF $(@:.ok=.d) -MT $@ $<
	@touch $@

# clang's static analyser over what is shipped: paths through a function and the functions of its file. A finding is
# an error. TW_ASSERT (loader/base/assert.h) states what it cannot infer. A third of the usual number of states in a
# function takes half the time.
ANALYSED_SRCS := $(LIB_SRCS) $(TOOL_SRCS)
ANALYSIS_STAMPS := $(ANALYSED_SRCS:%.c=$(BUILD)/analyze/%.ok)

$(ANALYSIS_STAMPS): $(BUILD)/analyze/%.ok: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)clang --analyze --analyzer-output text -Xclang -analyzer-werror \
		-Xclang -analyzer-config -Xclang max-nodes=75000 $(BASE_CFLAGS) $(PKG_CFLAGS) \
		-DTW_COMPILER_ID='""' -MD -MP -MF $(@:.ok=.d) -MT $@ -o /dev/null $<
	@touch $@

.PHONY: tests benches cross-tests fuzz-targets clang-syntax clang-analyze
tests: $(TEST_BINS)
benches: $(BENCH_BINS)
cross-tests: $(CROSS_BINS)
fuzz-targets: $(FUZZ_BINS)
clang-syntax: $(CLANG_STAMPS)
clang-analyze: $(ANALYSIS_STAMPS)

.SECONDARY: $(TEST_SRCS:%.c=$(OBJ)/%.o) $(CROSS_SRCS:%.c=$(OBJ)/%.o) $(FUZZ_SRCS:%.c=$(OBJ)/%.o) $(BENCH_SRCS:%.c=$(OBJ)/%.o)
-include $(TEST_SRCS:%.c=$(OBJ)/%.d) $(BENCH_SRCS:%.c=$(OBJ)/%.d) $(CROSS_SRCS:%.c=$(OBJ)/%.d) $(TEST_SUPPORT_OBJS:.o=.d) $(FUZZ_SRCS:%.c=$(OBJ)/%.d) $(CLANG_STAMPS:.ok=.d) $(ANALYSIS_STAMPS:.ok=.d)
