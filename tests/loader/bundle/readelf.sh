#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Standard tools read a bundle without complaint. Compiles the repository's model, then runs each tool: it must exit
# with 0, print nothing to stderr, and print no word of doubt. TW_BIN: the command.
set -u
model=tests/data/fairytale-1.7m-Q8_0.gguf
bin=${TW_BIN:-build/tilewright}
folder=$(mktemp -d "${TMPDIR:-/tmp}/tw-readelf-XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
count=0
doubt='<unknown|<corrupt|[Uu]nrecognized|Unknown note|[Ww]arning:|[Ee]rror:'

# result STATUS TEXT: one TAP line
result() {
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        sed 's/^/# /' "$folder/out" "$folder/err" | head -n 20
    fi
}

skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

# quiet TEXT COMMAND...: succeeds in silence, and its output has no word of doubt
quiet() {
    text=$1
    shift
    if ! command -v "$1" >/dev/null 2>&1; then
        skip "$text" "$1 is not installed"
        return
    fi
    "$@" >"$folder/out" 2>"$folder/err"
    status=$?
    if [ -s "$folder/err" ] || grep -qE "$doubt" "$folder/out"; then
        status=1
    fi
    result "$status" "$text"
}

# holds TEXT PATTERN: the last output has a line like this
holds() {
    grep -qE "$2" "$folder/out"
    result $? "$1"
}

for target in host sim4x4; do
    bundle=$folder/$target.twb
    "$bin" compile "$model" -o "$bundle" --target "$target" >"$folder/out" 2>"$folder/err"
    if [ ! -s "$bundle" ]; then
        result 1 "$target: the model compiles"
        continue
    fi
    : >"$folder/err"
    quiet "$target: readelf -a -W reports no problem" readelf -a -W "$bundle"
    if command -v readelf >/dev/null 2>&1; then
        holds "$target: readelf shows weights as loadable and read-only, at 64 KiB" '^ +LOAD .* R +0x10000'
        holds "$target: readelf names each binding row's relocation" 'R_X86_64_64'
    fi
    quiet "$target: nm -S lists the symbols" nm -S "$bundle"
    if command -v nm >/dev/null 2>&1; then
        holds "$target: nm -S shows weights as read-only data with sizes" '^[0-9a-f]{16} [0-9a-f]{16} R '
        holds "$target: nm -S shows caches as memory with sizes" '^[0-9a-f]{16} [0-9a-f]{16} B '
    fi
    quiet "$target: objdump -h lists the sections" objdump -h "$bundle"
    quiet "$target: eu-elflint --gnu-ld finds no error" eu-elflint --gnu-ld "$bundle"
    quiet "$target: eu-readelf -a reads it" eu-readelf -a "$bundle"
    quiet "$target: file recognises it" file -b "$bundle"
    quiet "$target: strip makes a copy" strip -o "$folder/stripped" "$bundle"
done
echo "1..$count"
