# SPDX-License-Identifier: Apache-2.0
# What the guest's scripts share: results, requests to the host, users, waiting. Sourced by a scenario, which calls
# finish last.
# shellcheck shell=sh disable=SC2034,SC3045,SC3043 # for the scenarios; busybox has read -t, local

prompt=1,403,407 # of tools/qemu/run
results=0
failures=0
out=''
err=''
answer=''
status=0

ok() {
    results=$((results + 1))
    echo "ok $1"
}

# not_ok NAME [WHY...]
not_ok() {
    results=$((results + 1))
    failures=$((failures + 1))
    echo "not ok $1"
    shift
    for line in "$@"; do printf '%s\n' "$line" | head -n 20 | sed 's/^/# /'; done
}

# skip NAME WHY
skip() {
    results=$((results + 1))
    echo "skip $1: $2"
}

# check NAME COMMAND...
check() {
    local name="$1"
    shift
    if "$@"; then ok "$name"; else not_ok "$name" "failed: $*" "$err"; fi
}

# same NAME EXPECTED GOT
same() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected: $2" "found:    $3"; fi
}

# run STATUS COMMAND...: runs it as root, for two minutes at most; sets out, err and status. False unless it
# ends with that status.
run() {
    run_as root "$@"
}

# run_as USER STATUS COMMAND...
run_as() {
    local as="$1" wanted="$2"
    shift 2
    status=0
    timeout -k 5 120 as "$as" "$@" >/tmp/out 2>/tmp/err </dev/null || status=$?
    out=$(cat /tmp/out)
    err=$(cat /tmp/err)
    [ "$status" = "$wanted" ]
}

# refuses NAME USER STATUS PATTERN COMMAND...: it ends with that status and an error that matches the pattern
refuses() {
    local name="$1" user="$2" want="$3" pattern="$4"
    shift 4
    if ! run_as "$user" "$want" "$@"; then
        not_ok "$name" "exit status $status instead of $want" "$out" "$err"
    elif ! printf '%s\n' "$err" | grep -Eq -- "$pattern"; then
        not_ok "$name" "no match for $pattern: $err"
    else
        ok "$name"
    fi
}

# prints NAME PATTERN COMMAND...: it succeeds and prints a line that matches
prints() {
    local name="$1" pattern="$2"
    shift 2
    if ! run_as root 0 "$@"; then
        not_ok "$name" "exit status $status" "$out" "$err"
    elif ! printf '%s\n' "$out" | grep -Eq -- "$pattern"; then
        not_ok "$name" "no match for $pattern" "$out" "$err"
    else
        ok "$name"
    fi
}

# has PATTERN: the output of the last command has a line that matches
has() {
    printf '%s\n' "$out" | grep -Eq -- "$1"
}

# decodes NAME SELECTOR [USER]: the shipped model's 64 tokens and their logits, bit for bit those of the host's emulator
decodes() {
    rm -f /tmp/logits
    if ! run_as "${3:-root}" 0 tilewright run /data/model.twb --device "$2" --ids "$prompt" -n 64 --print-ids \
        --logits /tmp/logits; then
        not_ok "the shipped model runs on $1" "exit status $status" "$err"
        return
    fi
    same "the shipped model's 64 ids on $1" "$(cat /data/ids)" "$out"
    check "their logits on $1 are the host's bit for bit" cmp /data/logits /tmp/logits
}

# host ACTION...: asks the host for an action (see boot), and returns when it is done; `answer` is the host's answer
host() {
    echo "@@host $*"
    answer=''
    read -r -t 60 answer </dev/console
    case $answer in
    @@done*) answer=${answer#@@done } ;;
    *) not_ok "the host does: $*" "it answers: $answer" ;;
    esac
}

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    local tries=$(($1 * 10))
    shift
    while [ "$tries" -gt 0 ]; do
        "$@" >/dev/null 2>&1 && return 0
        usleep 100000
        tries=$((tries - 1))
    done
    return 1
}

# suite NAME PROGRAM...: runs a cmocka program, and passes its results on as ours, each with its group's name, which
# cmocka prints after the group as "# ok - GROUP"
suite() {
    local suite="$1" passed
    shift
    status=0
    CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 5 300 "$@" >/tmp/suite 2>&1 </dev/null || status=$?
    awk -v suite="$suite" '
        /^ok /               { sub(/^ok [0-9]* - /, ""); names[n++] = $0 }
        /^# (not )?ok - /    { sub(/^# (not )?ok - /, ""); for (i = 0; i < n; i++) print "ok " suite ": " $0 " " names[i]; n = 0 }
        END                  { for (i = 0; i < n; i++) print "ok " suite ": " names[i] }' /tmp/suite >/tmp/passed
    cat /tmp/passed
    passed=$(wc -l </tmp/passed)
    results=$((results + passed))
    [ "$status" = 0 ] && [ "$passed" -gt 0 ] && return
    not_ok "$suite: $*" "exit status $status" "$(grep -v '^ok' /tmp/suite | tail -n 20)"
}

finish() {
    [ "$failures" = 0 ] || dmesg | tail -n 30 | sed 's/^/# dmesg: /'
    echo "1..$results"
    [ "$failures" = 0 ]
    exit
}
