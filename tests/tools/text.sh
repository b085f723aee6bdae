#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Text from models and paths: what is printed is valid UTF-8 on one line and cannot control a terminal, as text and
# JSON.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

set_keys() { # OUT KEY=VALUE...
    python3 "$root/tests/tools/gguf_set.py" "$model" "$@"
}
# clean FILE: valid UTF-8 without control characters but newline
cat >"$work/clean.py" <<'END'
import sys, unicodedata
text = open(sys.argv[1], "rb").read().decode("utf-8")  # fails if it is not UTF-8
bad = [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"]
sys.exit(bool(bad))
END
clean() { python3 "$work/clean.py" "$1"; }
json_model() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["model"])' "$work/out"; }

count=0
# shown NAME VALUE EXPECTED: general.name is VALUE; every verb that prints it prints EXPECTED
shown() {
    count=$((count + 1))
    set_keys "$work/$count.gguf" "general.name=$2"
    check "$1: compile" run 0 compile "$work/$count.gguf" -o "$work/$count.twb" -q
    check "$1: inspect" run 0 inspect "$work/$count.twb"
    check "$1: inspect prints clean text" clean "$work/out"
    same "$1: the name" "model     $3 (llama, CC0-1.0)" "$(head -n 1 "$work/out")"
    check "$1: inspect --json" run 0 inspect "$work/$count.twb" --json
    same "$1: the name in JSON" "$3" "$(json_model)"
    [ $count = 1 ] || return
    check "$1: bench" run 0 bench "$work/$count.twb" -p 1 -n 1 -r 1
    check "$1: bench prints clean text" clean "$work/out"
    check "$1: run --json" run 0 run "$work/$count.twb" --ids 1 -n 1 --json
    same "$1: the name of run" "$3" "$(json_model)"
    check "$1: verify --json" run 0 verify "$work/$count.twb" --json
}
shown 'an escape sequence' '\033[2J\033]0;owned\007x' '?[2J?]0;owned?x'
shown 'line breaks' 'one\ntwo\rthree' 'one?two?three'
shown 'controls of the upper half' '\302\2331m' '?1m'
shown 'invalid UTF-8' 'a\377b\303' 'a?b'
e=$(python3 -c 'print("\\303\\251" * 64)') # 128 bytes, one too many for the note
shown '128 bytes of accents' "$e" "$(python3 -c 'print("\u00e9" * 63)')"
shown 'emoji and Cyrillic' '\360\237\246\231 \320\264\320\260' "$(printf '\360\237\246\231 \320\264\320\260')"

# A bundle whose texts were changed afterwards.
python3 - "$work/1.twb" "$work/hostile.twb" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
at = data.find(b"?[2J?]0;owned?x\0")
assert at > 0
data[at : at + 3] = b"\x1b\xff\xc3"
open(sys.argv[2], "wb").write(data)
END
run 3 inspect "$work/hostile.twb"
check 'a changed note is refused, in clean text' clean "$work/err"

# Paths.
odd=$work/$(printf 'a\377\033[31m.twb')
if cp "$work/1.twb" "$odd" 2>/dev/null; then
    check 'a path with 0xFF: verify' run 0 verify "$odd"
    check '... prints clean text' clean "$work/out"
    check 'a path with 0xFF: verify --json' run 0 verify "$odd" --json
    check '... is JSON' python3 -c 'import json, sys; assert "a??[31m.twb" in json.load(open(sys.argv[1]))["bundle"]' "$work/out"
    check 'a path with 0xFF: compile --json' run 0 compile "$model" -o "$odd" --json
    check '... is JSON, too' python3 -m json.tool "$work/out" /dev/null
    check 'a path with 0xFF: compile' run 0 compile "$model" -o "$odd"
    check '... prints clean text' clean "$work/out"
    rm "$odd"
    check 'a path with 0xFF that is not there' run 3 run "$odd"
    check '... gives a clean message' clean "$work/err"
    check '... with its printable parts' grep -q 'a??\[31m.twb' "$work/err"
else
    echo 'skip this file system has no such names'
fi
run 2 run "$model" -n "$(printf '\303\251%.0s' $(seq 60))"
check 'a long argument in a message' clean "$work/err"
run 2 "$(printf 'r\033[31mn')"
check 'a verb in a message' clean "$work/err"

# A model's text: unchanged for other programs, without control characters on a terminal. The prompt stands in for it.
cat >"$work/terminal.py" <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.DEVNULL)
os.close(slave)
seen = b""
try:
    while True:
        part = os.read(master, 4096)
        if not part:
            break
        seen += part
except OSError:
    pass
p.wait()
sys.stdout.buffer.write(seen.replace(b"\r\n", b"|"))
END
prompt=$(printf 'a\033[31m\tb')
run 0 run "$model" -p "$prompt" -n 0
same 'control characters reach a pipe' "$prompt" "$out"
same 'but not a terminal' "$(printf 'a?[31m  b|')" "$(python3 "$work/terminal.py" "$TW_BIN" run "$model" -p "$prompt" -n 0 | expand)"
finish
