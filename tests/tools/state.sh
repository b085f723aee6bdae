#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Saved states as files: list, show, drop. The files are written by tests/tools/state_file.py from the manual page.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

make_state() { python3 tests/tools/state_file.py "$@"; }
folder=$work/states
mkdir "$folder"
make_state "$folder/a.twstate" 100 fairytale 1700000000
make_state "$folder/b" 1 other 1800000000
echo 'a letter' >"$folder/letter"
mkdir "$folder/sub"
ln -s a.twstate "$folder/link"
: >"$folder/empty"

run 0 state list "$folder"
same 'a line for each state and one for all' 3 "$(wc -l <"$work/out" | tr -d ' ')"
check 'the newest first, with tokens, type, model and name' sh -c 'sed -n 1p "$1" | grep -Eq "KiB +1 token +2027-01-1. .*f16 +other +.*/states/b\$"' _ "$work/out"
check '... and the other' sh -c 'sed -n 2p "$1" | grep -Eq "100 tokens +2023-11-1. .*f16 +fairytale +.*/a.twstate\$"' _ "$work/out"
check '... and their sum' sh -c 'sed -n 3p "$1" | grep -Eq "in 2 states: .*/states\$"' _ "$work/out"
check 'without a folder: the current one' sh -c 'cd "$1" && "$2" state list | grep -q "  a.twstate\$"' _ "$folder" "$TW_BIN"
run 0 state list "$folder" --json
check 'list as JSON' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert [s["model"] for s in d["states"]] == ["other", "fairytale"] and d["bytes"] == sum(s["bytes"] for s in d["states"])
assert d["states"][1]["tokens"] == 100 and d["states"][1]["saved"] == 1700000000' "$work/out"
head -c 3000 "$folder/a.twstate" >"$folder/cut"
run 0 state list "$folder"
check 'one that is truncated is listed with the reason' grep -q 'cannot be used: .*cut: has 3000 bytes, expected' "$work/out"
run 0 state list "$folder" --json
check '... and in JSON' python3 -c 'import json, sys; assert [s for s in json.load(open(sys.argv[1]))["states"] if "error" in s]' "$work/out"

run 0 state show "$folder/a.twstate"
check 'show says that it is whole' grep -q 'a.twstate: saved state, version 1: whole' "$work/out"
check '... with model and hash' grep -Eq '^  model     fairytale \(hash [0-9a-f]{16}\)$' "$work/out"
check '... tokens and policy' grep -q '^  sequence  100 tokens, positions "absolute"$' "$work/out"
check '... pages' grep -q '^  caches    f16, 8 pages of 64 positions, 32.0 KiB$' "$work/out"
check '... size and time' grep -Eq '^  file      33.[0-9] KiB, saved 2023-11-1., .*1 save$|^  file      33.[0-9] KiB, saved 2023-11-1[45] ..:.., 1 save$' "$work/out"
run 0 state show "$folder/a.twstate" --json
check 'show as JSON' python3 -c '
import json, os, sys
d = json.load(open(sys.argv[1]))
assert d["bytes"] == os.path.getsize(sys.argv[2]) and d["pages"] == 8 and d["pages_bytes"] == 8 * 4096 and d["saves"] == 1
assert d["kv"] == "f16" and len(d["model_hash"]) == 64 and d["version"] == 1' "$work/out" "$folder/a.twstate"

cp "$folder/a.twstate" "$folder/damaged"
printf 'x' | dd of="$folder/damaged" bs=1 seek=20000 conv=notrunc 2>/dev/null
refuses 'a damaged page' 3 'damaged: keys of layer 0, positions 64 to 99: damaged' state show "$folder/damaged"
run 0 state list "$folder"
check 'list reads only the head' grep -q '100 tokens.*/damaged$' "$work/out"
refuses 'a truncated state' 3 'cut: has 3000 bytes, expected' state show "$folder/cut"
refuses 'another file' 3 'letter: is not a saved state' state show "$folder/letter"
refuses 'an empty file' 3 'empty: the file is empty' state show "$folder/empty"
refuses 'a link' 3 'symbolic link' state show "$folder/link"
refuses 'a folder' 3 'not a regular file' state show "$folder"
refuses 'no file' 3 'No such file' state show "$folder/none"
refuses 'no folder' 3 'No such file' state list "$folder/none"
chmod 660 "$folder/b"
refuses 'one that others may write to' 3 'chmod go-w' state show "$folder/b"
run 0 state list "$folder"
check '... is not listed' sh -c '! grep -q "other" "$1"' _ "$work/out"
chmod 600 "$folder/b"

refuses 'drop of another file' 3 'letter: is not a saved state; it stays' state drop "$folder/letter"
check '... which stays' test -s "$folder/letter"
refuses 'drop of a link' 3 'symbolic link' state drop "$folder/link"
for file in damaged cut b; do
    check "drop $file" run 0 state drop "$folder/$file"
    same "... which is gone" "removed $folder/$file no" "$out $([ -e "$folder/$file" ] || echo no)"
done
run 0 state drop "$folder/a.twstate" --json
check 'drop as JSON' python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["removed"] == sys.argv[2]' "$work/out" "$folder/a.twstate"
run 0 state list "$folder"
check 'a folder without states' grep -q '0 B  in 0 states' "$work/out"

# ---- run --save-state, --load-state
state=$work/run.twstate
ids() { run 0 run "$model" --temp 0 --print-ids "$@"; }
ids --ids 1,403,407 -n 70
whole=$out
ids --ids 1,403,407 -n 30 --save-state "$state"
first=$out
check 'saving says what' grep -Eq 'run.twstate: saved 33 tokens; wrote [0-9.]+ [KM]iB$' "$work/err"
ids --load-state "$state" --save-state "$state" -n 40
same 'a saved run is continued with the same tokens' "$whole" "$first $out"
check 'restoring says how many tokens' grep -q 'run.twstate: restored 33 tokens$' "$work/err"
check '... and saving appends' grep -Eq 'run.twstate: saved 73 tokens; appended [0-9.]+ [KM]iB$' "$work/err"
run 0 state show "$state" --json
check 'show tells it' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["tokens"] == 73 and d["saves"] == 2 and d["model"] == "fairytale-1.7m" and d["kv"] == "f32"' "$work/out"
ids --load-state "$state" --target sim4x4 -n 10
again=$out
ids --load-state "$state" --target host -t 1 -n 10
same 'on another target and number of threads' "$out" "$again"
ids --ids 1,403,407 -n 0 --save-state "$work/prompt"
ids --load-state "$work/prompt" -n 70
same 'a prompt alone can be saved' "$whole" "$out"
run 0 run "$model" -p 'Once upon a time' --temp 0 -n 12 --no-display-prompt
text=$out
run 0 run "$model" -p 'Once' -n 0 --save-state "$work/once"
run 0 run "$model" --load-state "$work/once" -p 'upon a time' --temp 0 -n 12 --no-display-prompt
same 'text continues a state' "$text" "$out"
run 0 run "$model" --load-state "$work/once" -p 'upon' --temp 0 -n 2 --json
check 'JSON has what was restored' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["restored"] > 1 and len(d["ids"]) == 2' "$work/out"
before=$(cksum <"$state")
refuses 'another type of the caches' 4 'has keys and values in f32, and this program in f16; run it with --kv f32' \
    run "$model" --kv f16 --load-state "$state" -n 1
python3 -c '
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[-33] ^= 1 # a weight
open(sys.argv[2], "wb").write(data)' "$model" "$work/other.gguf"
refuses 'another model' 4 'was saved with model fairytale-1.7m \(hash [0-9a-f]{8}\), and this is .* \(hash [0-9a-f]{8}\)' \
    run "$work/other.gguf" --load-state "$state" -n 1
refuses 'a context that is too small' 5 '73 tokens, more than the session.s context of 40' run "$model" -c 40 --load-state "$state" -n 1
refuses 'a missing state' 3 'none: No such file' run "$model" --load-state "$work/none" -n 1
refuses 'what is not a state is not loaded' 3 'is not a saved state' run "$model" --load-state "$folder/letter" -n 1
run 2 run "$model" --ids 1 -n 1 --save-state "$folder/letter"
check '... nor overwritten' grep -q 'a letter' "$folder/letter"
check '... which is said' grep -q 'letter: is there and is not a saved state' "$work/err"
same 'and the state is as it was' "$before" "$(cksum <"$state")"
refuses 'not in conversations' 2 'option --save-state does not go with a conversation' run "$model" -cnv --save-state "$state"

refuses 'state without a word' 2 'list.show.drop.save.load .* is missing' state
refuses 'another word' 2 "'remove' is neither list, show, drop, save nor load" state remove x
refuses 'show without a file' 2 'state show: FILE is missing' state show
refuses 'drop without a file' 2 'state drop: FILE is missing' state drop
refuses 'two files' 2 "unexpected argument 'b'" state show a b
refuses 'three' 2 "unexpected argument 'd'" state load a b d

# ---- state save, state load
ids=1,403,407
for i in $(seq 4 100); do ids="$ids,$((i * 31 % 900 + 3))"; done
run 0 run "$model" --ids "$ids,5" --temp 0 -n 10 --print-ids
whole=$out
run 0 state save "$model" "$work/kept" --ids "$ids"
check 'save says what it saved' grep -Eq 'kept: saved 100 tokens; wrote [0-9.]+ [KM]iB$' "$work/out"
run 0 run "$model" --load-state "$work/kept" --ids 5 --temp 0 -n 10 --print-ids
same 'run continues it' "$whole" "$out"
run 0 state save "$model" "$work/kept" --ids "$ids,7,8" --json
check 'a longer text is appended, and JSON says so' python3 -c '
import json, os, sys
d = json.load(open(sys.argv[1]))
assert d["tokens"] == 102 and d["appended"] and d["bytes"] == os.path.getsize(sys.argv[2])' "$work/out" "$work/kept"
run 0 state load "$model" "$work/kept"
check 'load says how many tokens' grep -Eq 'kept: restored 102 tokens in [0-9.]+ ms; [0-9]+ more fit the context of [0-9]+$' "$work/out"
run 0 state load "$model" "$work/kept" --target sim4x4 -c 200 --json
check '... as JSON, on another target' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert (d["tokens"], d["n_ctx"], d["target"]) == (102, 200, "sim4x4") and d["restore_s"] >= 0' "$work/out"
run 0 state save "$model" "$work/text" -p 'Once upon a time'
run 0 run "$model" -p 'Once upon a time' --temp 0 -n 8 --no-display-prompt
text=$out
run 0 run "$model" --load-state "$work/text" --temp 0 -n 8
same 'a text can be saved' "$text" "$out"
refuses 'load of a context that is too short' 5 'has 102 tokens, more than the session.s context of 64' \
    state load "$model" "$work/kept" -c 64
refuses 'load with another element type' 4 'in f32, and this program in f16' state load "$model" "$work/kept" --kv f16
refuses 'load of another file' 3 'is not a saved state' state load "$model" "$model"
echo text >"$work/letter"
refuses 'save over another file' 2 'is not a saved state; remove it' state save "$model" "$work/letter" -p x
refuses 'save without a text' 2 'one of --prompt, --file and --ids' state save "$model" "$work/x"
refuses 'save without a file' 2 'state save: FILE is missing' state save "$model" -p x
refuses 'load without a model' 2 'state load: MODEL is missing' state load
refuses 'load with a text' 2 'option --prompt has no effect on state load' state load "$model" "$work/kept" -p x
refuses 'show with a target' 2 'option --target has no effect on state show' state show "$work/kept" --target host
finish
