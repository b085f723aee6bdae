#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files that change while they are in use, file size limits, and obstacles made by other users.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh
XDG_RUNTIME_DIR=$work/run
export XDG_RUNTIME_DIR
mkdir -p "$XDG_RUNTIME_DIR"
bundle=$work/m.twb
run 0 compile "$model" -o "$bundle" --target sim4x4 -q || not_ok 'a bundle' "$err"

# ---- files that are truncated ----

# cut_while NAME FILE COMMAND...: FILE is emptied while the command runs, which must end with status 3 and name it
cut_while() {
    name=$1
    file=$2
    shift 2
    status=0
    "$TW_BIN" "$@" >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    if [ "$delay" = output ]; then # until it has begun to write, and has much left to do
        for _ in $(seq 1000); do
            [ -s "$work/out" ] && break
            sleep 0.01
        done
    else
        sleep "$delay"
    fi
    truncate -s 0 "$file"
    wait "$pid" || status=$?
    err=$(cat "$work/err")
    case $status:$err in
    3:*"$file"*"was truncated"*) ok "$name" ;;
    *) not_ok "$name" "status $status" "$err" ;;
    esac
}

delay=output
cp "$bundle" "$work/cut.twb"
cut_while 'a bundle that is truncated while it runs' "$work/cut.twb" run "$work/cut.twb" -n 450 --mode strict -p Once --ignore-eos
cp "$bundle" "$work/cut.twb"
run 0 run "$work/cut.twb" --ids 1 -n 3 --print-ids
golden=$out
: >"$work/new.twb"
cp "$bundle" "$work/new.twb"
mv "$work/new.twb" "$work/cut.twb"
run 0 run "$work/cut.twb" --ids 1 -n 3 --print-ids
same 'a bundle that was replaced' "$golden" "$out"

# A file that is truncated at any moment ends compile and verify with an error at most, whatever they have read by then.
for verb in compile verify; do
    signals=''
    for delay in 0.00 0.01 0.02 0.04 0.08; do
        if [ $verb = compile ]; then
            cp "$model" "$work/cut.gguf"
            set -- compile "$work/cut.gguf" -o "$work/cut.twb" --target sim4x4 -q
        else
            cp "$bundle" "$work/cut.twb"
            set -- verify "$work/cut.twb"
        fi
        status=0
        "$TW_BIN" "$@" >"$work/out" 2>"$work/err" &
        pid=$!
        sleep $delay
        truncate -s 0 "$2"
        wait "$pid" || status=$?
        case $status in
        0 | 3) ;;
        *) signals="$signals $delay:$status" ;;
        esac
    done
    same "a file that is truncated during $verb" '' "$signals"
done

# ---- numbers that overflow ----

# The norm of a layer's feed-forward part, times 1e30: infinities, and sums of squares that overflow.
scale() {
    python3 - "$model" "$work/scaled.gguf" "$1" "$2" <<'END'
import struct, sys
source, to, name, factor = sys.argv[1:]
b = bytearray(open(source, "rb").read())
at = 8
def take(form):
    global at
    v = struct.unpack_from("<" + form, b, at)[0]
    at += struct.calcsize("<" + form)
    return v
def text():
    global at
    n = take("Q")
    at += n
    return bytes(b[at - n:at]).decode("utf-8", "replace")
def value(kind):
    if kind == 8:
        text()
    elif kind == 9:
        kind, n = take("I"), take("Q")
        for _ in range(n):
            value(kind)
    else:
        take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}[kind])
tensors, keys = take("Q"), take("Q")
for _ in range(keys):
    text()
    value(take("I"))
found = {}
for _ in range(tensors):
    key, dims = text(), 1
    for _ in range(take("I")):
        dims *= take("Q")
    found[key] = (dims, take("I"), take("Q"))
n, kind, offset = found[name]
assert kind == 0
first = (at + 31) // 32 * 32 + offset
for i in range(n):
    v = struct.unpack_from("<f", b, first + 4 * i)[0]
    struct.pack_into("<f", b, first + 4 * i, v * float(factor))
open(to, "wb").write(b)
END
}
scale blk.5.ffn_norm.weight 1e30
for options in '--target sim4x4' '--target host --sites 2' '--target sim4x4 --mode strict' '--temp 0.8 -s 1'; do
    # shellcheck disable=SC2086 # several words
    refuses "an overflow names layer and tensor ($options)" 6 'overflow: layer 5, layer.ffn_act .*: row 0 ' \
        run "$work/scaled.gguf" -p Once -n 5 $options
done
scale blk.2.ffn_norm.weight 1e18
refuses 'and a sum of squares that overflows does not become a row of zeros' 6 'layer 3, layer.attn_norm \(rms_norm ' \
    run "$work/scaled.gguf" -p Once -n 5 --target sim4x4

# ---- limits ----

if command -v prlimit >/dev/null; then
    limited() { # LIMIT STATUS ARGUMENTS...
        limit=$1
        expected=$2
        shift 2
        status=0
        prlimit --fsize="$limit" "$TW_BIN" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
        out=$(cat "$work/out")
        err=$(cat "$work/err")
        [ "$status" = "$expected" ]
    }
    # through pipes, since nothing can be written to a file here
    same 'a device without any file' "$golden" \
        "$(prlimit --fsize=0 "$TW_BIN" run "$bundle" --ids 1 -n 3 --print-ids 2>/dev/null | cat)"
    rm -f "$work/small.twb"
    check 'compile beyond the limit is an error' limited 100000 5 compile "$model" -o "$work/small.twb" --target sim4x4 -q
    check 'logits beyond the limit are an error' limited 100000 5 run "$bundle" --ids 1 -n 40 --logits "$work/logits"
    same 'and nothing is left' '' "$(find "$work" -name 'small*' -o -name 'logits*')"
else
    ok 'limits # SKIP no prlimit'
fi

# ---- obstacles ----

: >"$work/precious"
status=0
# the name that the temporary file of this process will have
sh -c 'ln -s "$1/precious" "$1/l.tmp-$$"; exec "$2" run "$3" --ids 1 -n 1 --logits "$1/l"' sh "$work" "$TW_BIN" "$bundle" \
    >"$work/out" 2>"$work/err" || status=$?
same 'logits are not written through a link' '2:0' "$([ "$status" != 0 ] && echo 2):$(stat -c %s "$work/precious")"

python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.bind(sys.argv[1])
s.listen(1)
print("ready", flush=True)
time.sleep(60)' "$work/living" >"$work/ready" &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
while ! grep -q ready "$work/ready"; do sleep 0.1; done
refuses 'the socket of another program is left alone' 6 'another program is listening there' emulate --listen "$work/living"
check 'and still exists' test -S "$work/living"
kill $server

if [ "$(id -u)" = 0 ]; then
    mkdir "$work/theirs"
    chown 54321 "$work/theirs"
    mkdir -m 700 "$work/own"
    ln -s "$work/theirs" "$work/own/tilewright"
    XDG_RUNTIME_DIR=$work/own
    refuses 'a runtime folder that is a link' 6 'found a link or file' run "$bundle" -n 1 --device socket:x
    rm "$work/own/tilewright"
    mkdir "$work/own/tilewright"
    chown 54321 "$work/own/tilewright"
    refuses 'and one of another user' 6 'belongs to user 54321' run "$bundle" -n 1 --device socket:x
    run 0 devices
    case $out in
    *'belongs to user 54321'*) ok 'devices says so' ;;
    *) not_ok 'devices says so' "$out" ;;
    esac
    same 'the built-in emulator does not need the folder' "$golden" \
        "$("$TW_BIN" run "$bundle" --ids 1 -n 3 --print-ids 2>/dev/null)"
else
    ok 'folders of others # SKIP not root'
fi
finish
