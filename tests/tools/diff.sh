#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What differs between bundles: diff, patch, compile --delta-from.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

old=$work/old.twb new=$work/new.twb
"$TW_BIN" compile "$model" -o "$old" -q
"$TW_BIN" compile "$model" -o "$new" -c 300 -q

run 0 diff "$old" "$old"
same 'a bundle and itself' 'the bundles are the same' "$out"
run 0 diff "$old" "$new" -o "$work/d.twd"
check 'another context: no weights' grep -q '^weights  0 of 75 tensors differ: 0 B of 1.7 MiB, in 0 chunks' "$work/out"
check '... the same results' grep -q '^results  the same: ' "$work/out"
check '... State of other sizes' grep -q '^state    other tensors or sizes$' "$work/out"
check '... each tensor that differs has a line' grep -q '^state    blk.0.attn.key  *[0-9.]* KiB, was 160.0 KiB$' "$work/out"
check '... and each section' grep -Eq '^section  .tw.header .* bytes differ$' "$work/out"
check '... a delta of less than 4 KiB' [ "$(wc -c <"$work/d.twd")" -lt 4096 ]
check '... which is said' grep -q '^delta    .*/d.twd: .* for a bundle of 1.9 MiB' "$work/out"
run 0 diff "$old" "$new" -o "$work/d.twd" --json
check 'diff as JSON' python3 -c '
import json, os, sys
d = json.load(open(sys.argv[1]))
assert not d["same"] and d["same_results"] and not d["same_state"] and d["params"] == 75 and d["changed_params"] == 0
assert d["delta"]["bytes"] == os.path.getsize(sys.argv[2]) and d["delta"]["bundle_bytes"] == os.path.getsize(sys.argv[3])
assert {p["role"] for p in d["parts"]} == {"section", "state", "input"} and len(d["new"]) == 64' "$work/out" "$work/d.twd" "$new"

run 0 patch "$old" "$work/d.twd" -o "$work/made.twb"
check 'patch makes the new bundle' cmp -s "$work/made.twb" "$new"
check '... and says its hash' grep -Eq 'made.twb: 1.9 MiB, content [0-9a-f]{64}$' "$work/out"
same '... which runs' "$("$TW_BIN" run "$new" --ids 1,403,407 -n 8 --print-ids)" \
    "$("$TW_BIN" run "$work/made.twb" --ids 1,403,407 -n 8 --print-ids)"
run 0 patch "$old" "$work/d.twd" -o "$work/made.twb" --json
check 'patch as JSON' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["bundle"].endswith("/made.twb") and len(d["content"]) == 64 and d["delta"]["stored_bytes"] < 100' "$work/out"
run 0 patch "$old" "$work/d.twd" -o "$work/made.twb" -q
same 'patch -q prints nothing' '' "$out$err"

run 0 compile "$model" -o "$work/c.twd" -c 300 --delta-from "$old"
check 'compile --delta-from writes a delta' grep -q '^delta    .*/c.twd: ' "$work/out"
check '... the same as diff' cmp -s "$work/c.twd" "$work/d.twd"
run 0 compile "$model" -o "$work/c.twd" -c 300 --delta-from "$old" --json
check '... in JSON' python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["delta"]["path"].endswith("/c.twd")' "$work/out"
same '... and leaves no bundle' "$(printf '%s\n' c.twd d.twd err made.twb new.twb old.twb out)" "$(cd "$work" && ls -p | grep -v /)"

refuses 'a delta for another bundle' 4 'new.twb: is bundle [0-9a-f]{16}..., but the delta is for [0-9a-f]{16}...$' patch "$new" "$work/d.twd" -o "$work/x"
refuses 'a bundle as a delta' 3 'new.twb: not a delta of bundles' patch "$old" "$new" -o "$work/x"
refuses 'a delta as a bundle' 3 'd.twd: not a bundle' diff "$work/d.twd" "$new"
refuses 'a model' 3 'not a bundle' diff "$model" "$new"
refuses 'patch without -o' 2 'option --output .-o. is missing' patch "$old" "$work/d.twd"
refuses 'patch without a delta' 2 'DELTA' patch "$old" -o "$work/x"
refuses 'a folder that is not there' 3 'cannot write: No such file' patch "$old" "$work/d.twd" -o "$work/none/x"
refuses 'the output is the base' 2 'would overwrite .*/old.twb, which it is made from' compile "$model" -o "$old" --delta-from "$old"
refuses 'the delta is OLD' 2 'would overwrite .*/old.twb, which it is made from' diff "$old" "$new" -o "$old"
refuses 'the bundle is the delta' 2 'would overwrite .*/d.twd, which it is made from' patch "$old" "$work/d.twd" -o "$work/d.twd"
refuses 'a delta to standard output' 2 'cannot be written to standard output' diff "$old" "$new" -o -
refuses 'no such base' 3 'none.twb' compile "$model" -o "$work/x" --delta-from "$work/none.twb"
head -c 200 "$work/d.twd" >"$work/cut.twd"
refuses 'a delta that is cut off' 3 'cut.twd: has 32 bytes after its header, which says' patch "$old" "$work/cut.twd" -o "$work/x"
cp "$work/d.twd" "$work/damaged.twd"
printf 'x' | dd of="$work/damaged.twd" bs=1 seek=180 conv=notrunc 2>/dev/null
refuses 'a delta that is damaged' 3 'damaged.twd: the delta is damaged' patch "$old" "$work/damaged.twd" -o "$work/x"
check 'refusals leave no file' [ ! -e "$work/x" ]

finish
