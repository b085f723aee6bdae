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

refuses 'state without a word' 2 'list.show.drop .* is missing' state
refuses 'another word' 2 "'remove' is neither list, show nor drop" state remove x
refuses 'show without a file' 2 'state show: FILE is missing' state show
refuses 'drop without a file' 2 'state drop: FILE is missing' state drop
refuses 'two files' 2 "unexpected argument 'b'" state show a b
finish
