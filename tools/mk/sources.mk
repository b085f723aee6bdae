# What is compiled: every C file in its folder, without lists to maintain.

find_c = $(sort $(shell find $(1) -name '*.c' 2>/dev/null))

LIB_SRCS := $(call find_c,loader firmware driver compiler)
TOOL_SRCS := $(sort $(wildcard tools/*.c tools/cmd/*.c))
TEST_SRCS := $(filter %_test.c,$(call find_c,tests))
TEST_SUPPORT_SRCS := $(sort $(wildcard tests/support/*.c) $(filter-out %_test.c,$(wildcard tests/second_checker/*.c)))
FUZZ_SRCS := $(sort $(wildcard tests/fuzz/fuzz_*.c))
BENCH_SRCS := $(sort $(wildcard tests/bench/*_bench.c))
CROSS_SRCS := tests/cross/image_dump.c tests/cross/kernels_cross.c tests/cross/decode_cross.c
ALL_SRCS := $(LIB_SRCS) $(TOOL_SRCS) $(TEST_SRCS) $(TEST_SUPPORT_SRCS) $(FUZZ_SRCS) $(BENCH_SRCS) $(CROSS_SRCS)

OBJ := $(BUILD)/obj
LIB_OBJS := $(LIB_SRCS:%.c=$(OBJ)/%.o)
TOOL_OBJS := $(TOOL_SRCS:%.c=$(OBJ)/%.o)
TEST_SUPPORT_OBJS := $(TEST_SUPPORT_SRCS:%.c=$(OBJ)/%.o)
TEST_BINS := $(TEST_SRCS:%.c=$(BUILD)/%)
FUZZ_BINS := $(FUZZ_SRCS:%.c=$(BUILD)/%)
BENCH_BINS := $(BENCH_SRCS:%.c=$(BUILD)/%)
CROSS_BINS := $(CROSS_SRCS:%.c=$(BUILD)/%)
