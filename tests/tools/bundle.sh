#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile, inspect, verify, dump, bench: a bundle from end to end, and malformed ones.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

run 0 compile "$model" -o "$work/a.twb" --target sim4x4
check 'compile reports what it produced' sh -c 'printf "%s\n" "$1" | grep -q "target sim4x4: 16 sites"' _ "$out"
check 'compile -q prints nothing' run 0 compile "$model" -o "$work/b.twb" --target sim4x4 -q
same 'and nothing on standard error' '' "$out$err"
check 'compiling twice gives the same bytes' cmp "$work/a.twb" "$work/b.twb"
run 0 compile "$model" -o "$work/b.twb" --target grid8x8 --json
check 'compile --json' python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["target"] == "grid8x8" and d["sites"] == 64 and d["bundle_bytes"] > 1e6' "$work/out"
same 'the reported size is the file size' "$(stat -c %s "$work/b.twb")" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["bundle_bytes"])' "$work/out")"

run 0 compile "$model" -o "$work/batch.twb" --batch 3
check 'compile --batch' sh -c 'printf "%s\n" "$1" | grep -q "batches of up to 4"' _ "$out"
run 0 inspect "$work/batch.twb"
check 'inspect shows the programs of batches' sh -c 'grep -q "^program   decode  *1 token" "$1" && grep -q "^program   decode.2  *2 tokens" "$1" && grep -q "^program   decode.4  *4 tokens" "$1"' _ "$work/out"
check 'verify of a bundle with batches' run 0 verify "$work/batch.twb"
run 0 dump "$work/batch.twb" --program decode
check 'dump --program decode is the one of a token' sh -c 'head -n 1 "$1" | grep -q "^program decode rows=1"' _ "$work/out"
refuses 'a batch that is too large' 2 'option --batch' compile "$model" -o "$work/b.twb" --batch 17
refuses '--batch with a bundle' 2 'option --batch is for models' run "$work/batch.twb" --batch 2 -p x
cat >"$work/small.json" <<'END'
{"name": "small", "chips": 1, "width": 4, "height": 2, "sram_bytes": 80000, "banks": 2, "clock_hz": 1e9,
 "dram_bytes_per_cycle": 64, "site_load_bytes_per_cycle": 16, "fma_per_cycle": 64, "int8_mac_per_cycle": 256,
 "vector_per_cycle": 16, "link_bytes_per_cycle": 32, "sync_cycles": 50, "call_cycles": 20}
END
run 0 compile "$model" -o "$work/batch.twb" --target "$work/small.json" --batch 16
check 'fewer rows than requested are noted' sh -c 'printf "%s\n" "$1" | grep -q "option --batch: 16 .*programs of at most [248] fit"' _ "$err"

refuses 'a bundle to standard output' 2 'cannot be written to standard output' compile "$model" -o -
check 'no file of that name' [ ! -e - ]
refuses 'a folder that is not there' 3 '^tilewright: /no/such/x.twb: cannot write: No such file' compile "$model" -o /no/such/x.twb
refuses 'a folder that is a file' 3 "^tilewright: $model/x.twb: cannot write: Not a directory" compile "$model" -o "$model/x.twb"
long=$work/$(printf 'x%.0s' $(seq 249))
check 'a file name of 249 bytes' run 0 compile "$model" -o "$long" -q
check 'has that name' [ -s "$long" ]
rm -f "$long"
refuses 'a name of 256 bytes is refused by that name' 3 "^tilewright: ${long}1234567: cannot write: File name too long" compile "$model" -o "${long}1234567"
mkdir "$work/limited"
status=0
(ulimit -f 100 && exec "$TW_BIN" compile "$model" -o "$work/limited/m.twb") >"$work/out" 2>"$work/err" || status=$?
same 'a bundle beyond the limit of file size' "5 tilewright: $work/limited/m.twb: cannot write: File too large" \
    "$status $(cat "$work/err")"
same 'leaves no file' '' "$(ls -A "$work/limited")"
python3 tests/tools/gguf_set.py "$model" "$work/nan.gguf" output_norm.weight=nan
refuses 'a weight that is NaN' 3 "^tilewright: $work/nan.gguf: tensor .* is infinite or not a number" \
    compile "$work/nan.gguf" -o "$work/nan.twb"

run 0 inspect "$work/a.twb"
check 'inspect shows programs and memory' sh -c 'grep -q "^program   decode" "$1" && grep -q "^program   prefill" "$1" && grep -q "^memory    state" "$1"' _ "$work/out"
run 0 inspect "$work/a.twb" --json
check 'inspect --json' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["target"] == "sim4x4" and d["n_vocab"] == 1024 and d["n_layers"] == 8 and d["tokenizer"] is True
assert {p["name"].split(".")[0] for p in d["programs"]} == {"decode", "prefill"} and len(d["tensors"]) > 70' "$work/out"
run 0 inspect "$work/a.twb" --symbols --plan
check 'inspect --symbols lists the caches' sh -c 'grep -q " state .*key" "$1"' _ "$work/out"
run 0 verify "$work/a.twb"
check 'verify' sh -c 'printf "%s\n" "$1" | grep -q ": ok: hashes match; 2 programs"' _ "$out"
run 0 verify "$work/a.twb" --rules
check 'verify --rules' [ "$(wc -l <"$work/out")" -ge 17 ]
run 0 verify "$work/a.twb" --json
check 'verify --json' python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["ok"] and sum(r["checked"] for r in d["rules"]) > 1000' "$work/out"
for stage in graph mid low section program; do
    run 0 dump "$model" --stage $stage --target sim4x4
    check "dump --stage $stage" [ "$(wc -l <"$work/out")" -gt 5 ]
done
sed 's/ bind=[^ ]*//' "$work/out" >"$work/program" # rows are assigned last
run 0 dump "$work/a.twb"
sed -i 's/ bind=[^ ]*//' "$work/out"
check 'dump of a bundle gives the compiler'"'"'s programs' cmp "$work/out" "$work/program"
run 0 dump "$work/a.twb" --program decode
check 'dump --program' sh -c 'head -n 1 "$1" | grep -q "decode"' _ "$work/out"
refuses 'an unknown program' 2 "no program 'x'.*decode" dump "$work/a.twb" --program x
refuses 'a stage that a bundle does not have' 2 'only stage program' dump "$work/a.twb" --stage mid

run 0 run "$work/a.twb" --ids 1,403,407 -n 8 --print-ids
golden=$out
run 0 run "$work/b.twb" --ids 1,403,407 -n 8 --print-ids --device emu:grid8x8
same 'bundles for two targets give the same ids' "$golden" "$out"
refuses 'a bundle on another target'"'"'s device' 7 'sim4x4.*grid8x8' run "$work/a.twb" --device emu:grid8x8
refuses 'a bundle with another --target' 7 'sim4x4.*host' run "$work/a.twb" --target host
refuses 'a context beyond the bundle'"'"'s' 2 '513.*512' run "$work/a.twb" -c 513
refuses 'a tokenizer for a bundle' 2 '--tokenizer' run "$work/a.twb" --tokenizer x

run 0 bench "$work/a.twb" -p 8 -n 8 -r 2 --json
check 'bench --json' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
for k in ("prefill_tok_s", "decode_tok_s", "load_s", "rss_mib", "threads", "first_token_ms", "bytes_per_token"):
    assert d[k] > 0, k
assert d["target"] == "sim4x4" and d["mode"] == "fast" and d["compile_s"] is None' "$work/out"
run 0 bench "$model" -p 8 -n 8 -r 2 --parallel 5 --depth 70 --json
check 'bench --parallel --depth' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["parallel"] == 5 and d["depth"] == 70 and d["decode_tok_s"] > 0 and d["single_tok_s"] > 0' "$work/out"
run 0 bench "$model" -p 8 -n 8 -r 2 --parallel 2
check '... as text' grep -q '^ .* tok/s  for each of 2 sequences; one alone ' "$work/out"
run 0 bench "$work/a.twb" -p 8 -n 8 -r 2 --parallel 2
check '... of a bundle without batches: a note' grep -q 'no programs for several sequences' "$work/err"
refuses 'a depth beyond the context' 5 '513 tokens do not fit into a context of 512' bench "$work/a.twb" -d 512 -n 1
run 0 bench "$work/a.twb" -p 8 -n 8 -r 2
check 'bench' sh -c 'grep -q "^decode " "$1"' _ "$work/out"
refuses 'bench beyond the context' 5 '513 tokens do not fit into a context of 512' bench "$work/a.twb" -p 5 -n 513

# Damage: one line, status 3 (or 7), no crash, at once.
size=$(stat -c %s "$work/a.twb")
for cut in 0 1 63 64 1000 4095 4096 $((size / 2)) $((size - 1)); do
    head -c "$cut" "$work/a.twb" >"$work/cut.twb"
    if run 3 verify "$work/cut.twb" && [ "$(grep -vc '^try: ' "$work/err")" = 1 ]; then
        ok "a bundle cut at $cut"
    else
        not_ok "a bundle cut at $cut" "$status" "$err"
    fi
done
cp "$work/a.twb" "$work/bad.twb"
# Another format: unsupported, with advice. (The format number is the first field of the header at 88.)
printf '\003' | dd of="$work/bad.twb" bs=1 seek=88 conv=notrunc 2>/dev/null
refuses 'a bundle of another format' 4 'bundle format 3.1, .* reads 2.x: recompile the model, or upgrade tilewright' run "$work/bad.twb" -n 1
cp "$work/a.twb" "$work/bad.twb"
printf 'zzzz' | dd of="$work/bad.twb" bs=1 seek=$((size * 2 / 3)) conv=notrunc 2>/dev/null
refuses 'a changed weight fails verify' 3 'hash|bank' verify "$work/bad.twb"

if [ -e /proc/self/fd ] && mkdir "$work/ro" && chmod 500 "$work/ro" && ! touch "$work/ro/x" 2>/dev/null; then
    refuses 'a folder that cannot be written' '3|5' 'ro/x.twb' compile "$model" -o "$work/ro/x.twb"
else
    rm -f "$work/ro/x"
    refuses 'a folder that is not there' 3 '/no/such/x.twb' compile "$model" -o /no/such/x.twb
fi
cp "$model" "$work/own.gguf"
refuses 'a bundle in place of its model' 2 'would overwrite .*own.gguf' compile "$work/own.gguf" -o "$work/./own.gguf"
check 'the model is as it was' cmp "$model" "$work/own.gguf"
printf 'keep' >"$work/old.twb"
run 3 compile /no/such/model -o "$work/old.twb"
same 'a failed compile leaves the old file' keep "$(cat "$work/old.twb")"
if [ -w /dev/full ]; then
    status=0
    (ulimit -f 64 && trap '' XFSZ && exec "$TW_BIN" compile "$model" -o "$work/full.twb") >"$work/out" 2>"$work/err" || status=$?
    same 'a full disk: status 5' 5 "$status"
    same 'and no incomplete bundle' '' "$(find "$work" -name 'full.twb*')"
fi

# Output that breaks: more than a buffer of it, so that it breaks before the last flush.
cat >"$work/reader.py" <<'EOF'
import subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.stdout.read(1)
p.stdout.close()
print(p.wait(), *p.stderr.read().decode().split("\n"))
EOF
run 0 dump "$work/a.twb"
cp "$work/out" "$work/a.tws"
for words in "dump $model" "dump $work/a.twb" "dump $work/a.tws"; do
    # shellcheck disable=SC2086
    same "a reader that closes the pipe: $words" 141 "$(python3 "$work/reader.py" "$TW_BIN" $words | sed 's/ *$//')"
done
if [ -w /dev/full ]; then
    for words in "dump $work/a.twb" "dump $model" "inspect $work/a.twb --json" "verify $work/a.twb"; do
        status=0
        # shellcheck disable=SC2086
        "$TW_BIN" $words >/dev/full 2>"$work/err" || status=$?
        same "a full disk: $words" '5 1' "$status $(grep -c 'No space left' "$work/err")"
    done
fi

# A text of programs from a pipe is refused because it is a pipe, not for a parse error after a first read.
head -c 4000 "$work/a.tws" | { sleep 0.2 && "$TW_BIN" verify /dev/stdin >"$work/out" 2>"$work/err"; }
check 'a text from a pipe' grep -q '/dev/stdin: is not a regular file' "$work/err"

if command -v readelf >/dev/null; then
    readelf -aW "$work/a.twb" >/dev/null 2>"$work/err"
    same 'readelf prints no warning' '' "$(cat "$work/err")"
    nm -S "$work/a.twb" >"$work/out" 2>"$work/err"
    same 'nm prints no warning' '' "$(cat "$work/err")"
    check 'nm lists a weight' grep -q 'attn_q' "$work/out"
else
    echo 'skip readelf and nm: they are not installed'
fi
finish
