# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034 # the variables are for those who source it
# Sourced by the shell tests: helpers that print TAP lines. Needs TW_BIN. Each test works in a folder of its own, $work.
set -u
: "${TW_BIN:?the command under test}"
case $TW_BIN in /*) ;; *) TW_BIN=$PWD/$TW_BIN ;; esac
root=$PWD
model=$root/tests/data/fairytale-1.7m-Q8_0.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
unset TILEWRIGHT_ISA
exec </dev/null # a pipe there would be read as a prompt
failures=0

ok() {
    echo "ok $1"
}

not_ok() {
    echo "not ok $1"
    shift
    for line in "$@"; do printf '%s\n' "$line" | sed 's/^/# /'; done
    failures=$((failures + 1))
}

# check NAME COMMAND...: ok if the command succeeds
check() {
    name=$1
    shift
    if "$@"; then ok "$name"; else not_ok "$name" "failed: $*"; fi
}

# same NAME EXPECTED GOT
same() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected: $2" "found: $3"; fi
}

# run STATUS ARGUMENTS...: runs the command; out, err hold its output. False unless it ends with that status.
run() {
    expected=$1
    shift
    status=0
    "$TW_BIN" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    out=$(cat "$work/out")
    err=$(cat "$work/err")
    [ "$status" = "$expected" ]
}

# refuses NAME STATUS PATTERN ARGUMENTS...: that status, nothing on stdout, one line on stderr which matches the
# pattern, and at most one more after it, which begins with "try: "
refuses() {
    name=$1
    want=$2
    pattern=$3
    shift 3
    if ! run "$want" "$@"; then
        not_ok "$name" "exit status $status instead of $want" "$err"
    elif [ -s "$work/out" ]; then
        not_ok "$name" "it printed on standard output: $out"
    elif [ "$(sed '2{/^try: ./d}' "$work/err" | wc -l)" != 1 ]; then
        not_ok "$name" "not one line: $err"
    elif ! printf '%s\n' "$err" | grep -Eq -- "$pattern"; then
        not_ok "$name" "no match for $pattern: $err"
    else
        ok "$name"
    fi
}

# use_devices: for tests with emulators of their own: a runtime folder, a bundle of two sites, and an end for the
# processes whose ids are in $emulator and $holder
use_devices() {
    XDG_RUNTIME_DIR=$work/run
    export XDG_RUNTIME_DIR
    mkdir -p "$XDG_RUNTIME_DIR"
    bundle=$work/m.twb
    run 0 compile "$model" -o "$bundle" --sites 2 -q || not_ok 'a bundle' "$err"
    emulator=''
    holder=''
    trap 'kill -9 $emulator $holder 2>/dev/null; rm -rf "$work"' EXIT
}

finish() {
    [ "$failures" = 0 ]
    exit
}
