#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Devices of other processes: emulate, devices, selftest, reset, doctor.
. tests/tools/tap.sh
use_devices

# start NAME [options]: an emulator that listens
start() {
    : >"$work/name"
    "$TW_BIN" emulate --listen "$@" >"$work/name" 2>"$work/emulate.err" &
    emulator=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -s "$work/name" ] && return
        sleep 0.1
    done
    not_ok 'the emulator starts' "$(cat "$work/emulate.err")"
}

start one
same 'emulate prints its name' socket:one "$(cat "$work/name")"
check 'devices lists it as ready' run 0 devices --device socket:one
check 'its number is accepted too' run 0 devices --device "$(echo "$out" | awk '{ print $1 }')"
run 0 run "$bundle" --ids 1,403,407 -n 40 --print-ids
tokens=$out
check 'a model runs on it' run 0 run "$bundle" --ids 1,403,407 -n 40 --print-ids --device socket:one
same 'with the same tokens' "$tokens" "$out"
check 'and a second time' run 0 run "$bundle" --ids 1,403,407 -n 40 --print-ids --device socket:one
same 'with the same tokens again' "$tokens" "$out"
check 'selftest passes' run 0 selftest --device socket:one
check 'selftest of the emulator in the process passes' run 0 selftest
check 'reset' run 0 reset --device socket:one
refuses 'reset without a device' 2 'device is missing' reset
refuses 'another emulator at the same path is refused' 6 "process $emulator .tilewright" emulate --listen one
refuses 'an unknown fault plan' 2 'known plans: drop, ' emulate --listen two --faults nonsense
run 0 emulate --faults list
check 'the plans are listed' sh -c 'grep -q "^freeze " "$1"' _ "$work/out"

"$TW_BIN" bench "$bundle" --device socket:one -r 1000 >/dev/null 2>&1 &
holder=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$TW_BIN" devices | grep -q 'socket:one *busy' && break
    sleep 0.1
done
refuses 'a second host is told which process is using it' 6 "process $holder .tilewright" run "$bundle" --device socket:one -n 1
run 6 devices --device socket:one
check 'devices says that it is busy, and with which process' sh -c 'grep -q "busy.*process $2 (" "$1"' _ "$work/out" "$holder"
kill -9 "$holder"
wait "$holder" 2>/dev/null
holder=''
check 'after its host was killed it opens' run 0 run "$bundle" --device socket:one -n 2

kill -TERM "$emulator"
status=0
wait "$emulator" || status=$?
emulator=''
same 'SIGTERM ends it with success' 0 "$status"
same 'and leaves no file' '' "$(ls "$XDG_RUNTIME_DIR/tilewright")"
refuses 'then there is no such device' 6 'tilewright emulate --listen' run "$bundle" --device socket:one -n 1

start two --faults vanish --seed 3
refuses 'a device that vanishes is an error that names it' 6 'device socket:two.*closed the connection' \
    run "$bundle" --device socket:two -n 40
check 'and the next open works' run 0 run "$bundle" --device socket:two -n 2
kill -9 "$emulator"
wait "$emulator" 2>/dev/null
emulator=''
run 6 devices --device socket:two
check 'a killed one is listed as gone' sh -c 'grep -q gone "$1"' _ "$work/out"
start two
check 'and its socket can be served again' run 0 devices --device socket:two
kill -9 "$emulator"
wait "$emulator" 2>/dev/null

# ---- a device of a target of its own
cat >"$work/mine.json" <<JSON
{"name": "mine", "chips": 1, "width": 2, "height": 2, "sram_bytes": 1048576, "banks": 2, "clock_hz": 1e9,
 "dram_bytes_per_cycle": 64, "site_load_bytes_per_cycle": 16, "fma_per_cycle": 64, "int8_mac_per_cycle": 256,
 "vector_per_cycle": 16, "link_bytes_per_cycle": 32, "sync_cycles": 50, "call_cycles": 20}
JSON
run 0 compile "$model" -o "$work/mine.twb" --target "$work/mine.json" -q || not_ok 'a bundle for it' "$err"
sed 's/"sync_cycles": 50/"sync_cycles": 51/' "$work/mine.json" >"$work/other.json"
run 0 compile "$model" -o "$work/other.twb" --target "$work/other.json" -q || not_ok 'a bundle for another' "$err"
run 0 run "$bundle" --ids 1,403,407 -n 12 --print-ids
ids=$out
start my --target "$work/mine.json"
check 'a bundle for it runs' run 0 run "$work/mine.twb" --ids 1,403,407 -n 12 --print-ids --device socket:my
same '... with the same ids' "$ids" "$out"
check 'a model runs: it is compiled for the target that the device reports' \
    run 0 run "$model" --ids 1,403,407 -n 12 --print-ids --device socket:my
same '... with the same ids' "$ids" "$out"
check '... once more, as JSON' run 0 run "$model" --ids 1,403 -n 2 --json --device socket:my
check '... for target mine' grep -q '"target": "mine"' "$work/out"
refuses 'one of another target is refused' 7 'compiled for target host, but device socket:my is a mine' \
    run "$bundle" -n 1 --device socket:my
refuses 'also one of the same name with other numbers' 7 'target mine, whose description differs from that of device socket:my' \
    run "$work/other.twb" -n 1 --device socket:my
kill -9 "$emulator"
wait "$emulator" 2>/dev/null

# ---- a device that dies in the middle: what there is, then the error
dies() { # dies OPTION: --print-ids or --json; the device is slow, and killed once tokens have come
    start dying --faults slow
    "$TW_BIN" run "$bundle" --ids 1,403,407 -n 400 --ignore-eos --logits "$work/logits" "$1" --device socket:dying \
        >"$work/out" 2>"$work/err" &
    holder=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
        "$TW_BIN" top --json | grep -Eq '"tokens": ([3-9]|[1-9][0-9])' && break
        sleep 0.1
    done
    kill -9 "$emulator"
    wait "$emulator" 2>/dev/null
    emulator=
    status=0
    wait "$holder" || status=$?
    holder=
    same "$1 of a device that dies: status" 6 "$status"
    check '... the error is on standard error' grep -q 'device socket:dying' "$work/err"
}
dies --print-ids
check '... and the ids up to then are printed' grep -Eqx '([0-9]+ )+[0-9]+' "$work/out"
dies --json
check '... in the JSON, with the error' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["stop"] == "error" and d["error"]["code"] == "DEVICE_LOST" and len(d["ids"]) >= 3 and d["text"], d' "$work/out"

# ---- reset and selftest of faulty devices
field() { # field NAME: of the JSON printed last
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/out" "$1"
}
start ill --faults corrupt --seed 2
check 'reset reports its steps' run 0 reset -v --device socket:ill
same '... opening and reset, one line each' 3 "$(grep -c '^tilewright: reset socket:ill: ' "$work/err")"
check 'selftest passes over a bad link' run 0 selftest --device socket:ill --json -r 2
same '... in both rounds' 2 "$(field rounds_passed)"
check '... and reports what had to be resent' [ "$(field resent)" -gt 0 ]
check '... and what arrived damaged' [ "$(field damaged)" -gt 0 ]
same '... and that the device verifies programs itself' False "$(field trusts_host)"
kill -9 "$emulator"
wait "$emulator" 2>/dev/null

start frozen --faults freeze --seed 3
run 6 selftest --device socket:frozen --deadline 1 --json
same 'selftest of a device that freezes fails as JSON' 'False TIMEOUT' "$(field passed) $(field code)"
check '... one line names the step and the request' grep -Eq '^tilewright: [a-z, ]+: device socket:frozen: [A-Z]+ made no progress' "$work/err"
check 'reset brings it back' run 0 reset --device socket:frozen --json --deadline 5
same '... as JSON' True "$(field reset)"
kill -9 "$emulator"
wait "$emulator" 2>/dev/null

start newer --faults version
refuses 'reset of a device with an unknown protocol version' 6 'protocol 99 to 99, this driver' reset --device socket:newer
kill -9 "$emulator"
wait "$emulator" 2>/dev/null

# The connection ends after a number of packets, sometimes during a reset: then the device is opened once more. On a
# busy computer there are more packets, so the first connection may end before the reset, or the second one, too: that
# is reported as the failure.
again=0
bad=0
for seed in 1 5 2 3 4; do
    start "v$seed" --faults vanish --seed "$seed"
    for _ in 1 2 3 4 5 6; do
        if run 0 reset -v --device "socket:v$seed"; then
            again=$((again + $(grep -c 'open again: the device answers' "$work/err")))
        elif ! grep -Eq ' (open|reset) again: | open: .* closed the connection' "$work/err"; then
            bad=$((bad + 1))
            sed 's/^/# reset failed: /' "$work/err"
        fi
    done
    kill -9 "$emulator"
    wait "$emulator" 2>/dev/null
    [ "$again" -eq 0 ] || break
done
emulator=''
same 'a reset whose connection ends opens the device once more' "0 without" "$bad without"
check '... and then succeeds' [ "$again" -gt 0 ]
refuses 'reset of a device that is not there, as JSON, is one line too' 6 'no such socket' reset --device socket:nothing
start two

check 'doctor finds the emulator working' run 0 doctor
check 'doctor reports on every kind' sh -c 'for w in emulator processor memlock usb permissions; do grep -q " $w " "$1" || exit 1; done' _ "$work/out"
run 0 doctor --json
check 'doctor --json has a remedy for everything that is missing' sh -c \
    'python3 -c "import json, sys; assert all(c[\"state\"] == \"ok\" or c[\"remedy\"] for c in json.load(sys.stdin))" <"$1"' _ "$work/out"
finish
