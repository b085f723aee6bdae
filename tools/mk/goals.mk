# The goals for users.

C_FILES := $(sort $(shell find driver loader compiler firmware tools include tests -name '*.[ch]' 2>/dev/null))
DEMO_MODEL := tests/data/fairytale-1.7m-Q8_0.gguf
FUZZ_SECONDS := 600
MUTANTS := 300000
TW_MUTANTS := $(MUTANTS)
TW_MACHINES ?= 10000
TW_MUTANT_SEED := 1
TW_MINUTES := 1

# These scripts call make: they share its job slots, but make -n only prints them.
SCRIPT := @$(if $(DRY_RUN),,+)

.PHONY: all demo check check-qemu bench bench-order bench-kernels bench-tokenizer fuzz mutate machines compare soak hostile format clean help
all: $(STATIC_LIB) $(SHARED_LIB) $(COMMAND)

demo: all
	@$(COMMAND) run $(DEMO_MODEL) -p "Once upon a time" --temp 0.8 --top-p 0.95 -s 1 -n 200

check:
	$(SCRIPT)CC='$(CC)' tools/check/run-checks

# All scenarios of tests/qemu/, or those that SCENARIOS names, with assertions.
QEMU_BUILD := build/debug
QEMU_TESTS := $(QEMU_BUILD)/tests/driver/transport/transport_conformance_test $(QEMU_BUILD)/tests/driver/transport/outside_device_test
check-qemu:
	$(SCRIPT)$(MAKE) --no-print-directory SAN= DEBUG=1 BUILD=$(QEMU_BUILD) all $(QEMU_TESTS)
	@TW_BIN='$(abspath $(QEMU_BUILD))/tilewright' TW_BUILD='$(abspath $(QEMU_BUILD))' tools/qemu/run $(SCENARIOS)

bench: all
	@if test -x tools/bench/run; then TW_BIN='$(abspath $(COMMAND))' TW_BUILD='$(abspath $(BUILD))' tools/bench/run; \
		else echo 'tools/bench/run is missing in this checkout' >&2; exit 1; fi

bench-kernels: $(BENCH_BINS)
	@$(BUILD)/tests/bench/kernel_bench

bench-tokenizer: $(BENCH_BINS)
	@$(BUILD)/tests/bench/tokenizer_bench

# The cost of certificates, also for the models that `make bench` has generated.
bench-order: $(BENCH_BINS)
	@$(BUILD)/tests/bench/order_bench $(DEMO_MODEL) $(wildcard $(BUILD)/bench/*.gguf) $(BENCH_MODELS)

# The long form of the checker's tests: TW_MUTANTS mutants, each accepted one under more than 100 schedules, and small ones in
# every order; three random programs a mutant; a false certificate for three.
mutate: $(BUILD)/tests/loader/order/mutation_test $(BUILD)/tests/loader/order/agreement_test $(BUILD)/tests/loader/order/certificate_test compare
	@TW_MUTANTS=$(TW_MUTANTS) TW_MUTANT_SEED=$(TW_MUTANT_SEED) $(BUILD)/tests/loader/order/mutation_test
	@TW_AGREE=$$(($(TW_MUTANTS) * 3)) $(BUILD)/tests/loader/order/agreement_test
	@TW_FALSE_CERTIFICATES=$$(($(TW_MUTANTS) / 3)) $(BUILD)/tests/loader/order/certificate_test

# Strict execution, the explorer and fast execution of TW_MACHINES random programs, under 21 schedules for each input.
machines: $(BUILD)/tests/loader/order/machines_test
	@TW_MACHINES=$(TW_MACHINES) $(BUILD)/tests/loader/order/machines_test

# Both checkers judge TW_MUTANTS mutants of compiled programs, and twice as many of small random ones.
compare: $(BUILD)/tests/second_checker/compare_test
	@TW_MUTANTS=$(TW_MUTANTS) TW_MUTANT_SEED=$(TW_MUTANT_SEED) $(BUILD)/tests/second_checker/compare_test

# Long fuzzing: FUZZ_SECONDS for each target; findings are kept in build/check/fuzz/.
fuzz:
	$(SCRIPT)FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_RUNS=-1 tools/check/fuzz

# The long form of the endurance tests: 1,000 opens, 1,000 kills of either side, 200 resets in the middle of a run.
soak: $(BUILD)/tests/driver/transport/socket/socket_crash_test
	@TW_LONG=1 $(BUILD)/tests/driver/transport/socket/socket_crash_test

# A server between hostile hosts, then a driver between hostile devices, under the sanitizers, TW_MINUTES each.
HOSTILE_BUILD := build/san-address,undefined
HOSTILE_TEST := $(HOSTILE_BUILD)/tests/driver/transport/hostile_test
hostile:
	$(SCRIPT)$(MAKE) --no-print-directory SAN=address,undefined BUILD=$(HOSTILE_BUILD) $(HOSTILE_TEST)
	@fixed=$$(setarch "$$(uname -m)" -R true 2>/dev/null && echo setarch "$$(uname -m)" -R); \
		TW_MINUTES=$(TW_MINUTES) ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 $$fixed $(HOSTILE_TEST)

format:
	clang-format -i $(C_FILES)

clean:
	rm -rf build

help:
	@sed -n 's/^#: //p' tools/mk/goals.mk

#: make              build the library (static, shared) and the command build/tilewright
#: make demo         let a small model write a fairy tale on the emulated device
#: make check        run all checks; the last line counts them
#: make check-qemu   run all tests in QEMU: a stock kernel, with devices on its USB and PCIe buses
#:                   SCENARIOS="usb pcie": only these
#: make bench        measure decode and prefill, against llama.cpp if it is built
#: make bench-order  measure the cost of certificates
#: make bench-kernels  measure matrix products; tools/bench/kernels compares two builds
#: make bench-tokenizer  measure tokenizers: each pre-tokenizer, and the metadata of 250,000 tokens
#: make mutate       test the checker with TW_MUTANTS (300000) mutated programs, from TW_MUTANT_SEED (1) on
#: make machines     compare strict, exhaustive and fast execution of TW_MACHINES (10000) random programs
#: make compare      let a second checker, written from the man pages, judge TW_MUTANTS mutants as well
#: make fuzz         fuzz each target for FUZZ_SECONDS (600)
#: make soak         open, kill and reset devices some thousand times
#: make hostile      attack a served device, and a driver, for TW_MINUTES (1) each, under the sanitizers
#: make install      install everything; DESTDIR=... PREFIX=/usr/local
#: make format       run clang-format on all C files
#: make clean        remove build/
#: options           CC=clang  SAN=address,undefined  SAN=thread  DEBUG=1  CFLAGS=...  V=1  TW_SHARED=...
