#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tilewright run on the shipped model: what it prints, where, and that every way of running gives the same ids.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

ids=1,403,407,261,378
expect() { # NAME EXPECTED ARGUMENTS...: stdout is this, stderr is empty
    name=$1
    want=$2
    shift 2
    if run 0 "$@" && [ -z "$err" ]; then same "$name" "$want" "$out"; else not_ok "$name" "$status" "$err"; fi
}

run 0 run "$model" --ids $ids -n 24 --print-ids
golden=$out
check 'ids alone on one line' sh -c 'printf "%s\n" "$1" | grep -Eqx "([0-9]+ ){23}[0-9]+"' _ "$golden"
same 'and nothing else' 1 "$(wc -l <"$work/out" | tr -d ' ')"
expect 'again, from the cache' "$golden" run "$model" --ids $ids -n 24 --print-ids
for o in '--chunk 1' '--chunk 3' '-t 1' '-t 2' '--isa scalar' '--mode strict' '--rows 8' '--sites 1' '--sites 3' \
    '--target sim4x4' '--target sim4x4 --mode strict' '--target grid8x8 -t 1' '--device emu' '--device 0' \
    '--device emu:sim4x4 --chunk 2' '--ctx 40'; do
    # shellcheck disable=SC2086 # words
    expect "the same ids with $o" "$golden" run "$model" --ids $ids -n 24 --print-ids $o
done
TILEWRIGHT_ISA=scalar
export TILEWRIGHT_ISA
expect 'the same ids with TILEWRIGHT_ISA' "$golden" run "$model" --ids $ids -n 24 --print-ids
case $(uname -m) in
aarch64) TILEWRIGHT_ISA=avx2 ;;
*) TILEWRIGHT_ISA=neon ;;
esac
refuses "another processor's instruction set" 4 'does not support it; use one of: scalar' run "$model" --ids $ids
TILEWRIGHT_ISA=sse9
refuses 'a bad TILEWRIGHT_ISA' 2 'sse9.*this processor has scalar' run "$model" --ids $ids
unset TILEWRIGHT_ISA
expect 'ids separated by spaces, long form with =' "$golden" run "$model" '--ids=1 403 407 261 378' -n24 --print-ids

run 0 run "$model" -p 'Once upon a time' --temp 0 -n 20
text=$out
check 'the text begins with the prompt' sh -c 'case $1 in "Once upon a time "?*) ;; *) exit 1 ;; esac' _ "$text"
run 0 run "$model" -p 'Once upon a time' --temp 0 -n 20 --no-display-prompt
same 'without the prompt' "$text" "Once upon a time$out"
printf 'Once upon a time' >"$work/prompt"
expect 'the prompt from a file' "$text" run "$model" -f "$work/prompt" --temp 0 -n 20
same 'the prompt from standard input' "$text" "$("$TW_BIN" run "$model" -f - --temp 0 -n 20 <"$work/prompt")"
printf 'Once upon a time\n' >"$work/prompt"
expect 'one final newline of a file is dropped' "$text" run "$model" -f "$work/prompt" --temp 0 -n 20
same 'a pipe on standard input is the prompt' "$text" "$(echo 'Once upon a time' | "$TW_BIN" run "$model" --temp 0 -n 20)"
same 'and a file' "$text" "$("$TW_BIN" run "$model" --temp 0 -n 20 <"$work/prompt")"
same 'but not where there is a prompt' "$text" "$(echo x | "$TW_BIN" run "$model" -p 'Once upon a time' --temp 0 -n 20)"
printf 'a\n\n' >"$work/prompt"
run 0 run "$model" -f "$work/prompt" -n 0
same 'but only one' "$(printf 'a\n.')" "$(cat "$work/out" && echo .)"
run 0 run "$model" -n 0 -e -p 'a\n\t\\\x41\q\x4'
same '-e: escapes in the prompt' "$(printf 'a\n\t\\A\\q\\x4')" "$out"
run 0 run "$model" -n 0 -p 'a\n'
same 'none without it' 'a\n' "$out"
ids_of() { python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt_ids"])' "$work/out"; }
run 0 run "$model" -p 'Once' -n 1 --json
plain=$(ids_of)
run 0 run "$model" -p '<s>Once' --special -n 1 --json
check 'a prompt that begins with BOS gets no second one' sh -c 'case $1 in "1 1 "*) exit 1 ;; "1 "*) ;; *) exit 1 ;; esac' _ "$(ids_of)"
run 0 run "$model" -p '<s><s>Once' --special -n 1 --json
check 'and two if it has two' sh -c 'case $1 in "1 1 1 "*) exit 1 ;; "1 1 "*) ;; *) exit 1 ;; esac' _ "$(ids_of)"
run 0 run "$model" -p '<s>Once' --special --no-bos -n 1 --json
check '--no-bos keeps the BOS of the prompt' sh -c 'case $1 in "1 1 "*) exit 1 ;; "1 "*) ;; *) exit 1 ;; esac' _ "$(ids_of)"
run 0 run "$model" -p 'Once' --special -n 1 --json
same 'without its name nothing changes' "$plain" "$(ids_of)"

run 0 run "$model" --temp 0 -n 12
check 'a text without a prompt does not begin with a space' sh -c 'case $1 in [!\ ]*) ;; *) exit 1 ;; esac' _ "$out"
run 0 run "$model" -p Hello -n 0
same '-n 0 prints the prompt alone' Hello "$out"

run 0 run "$model" -p 'The' -s 5 -n 40
first=$out
expect 'the same seed, the same text' "$first" run "$model" -p 'The' -s 5 -n 40
run 0 run "$model" -p 'The' -s 6 -n 40
check 'another seed, another text' [ "$out" != "$first" ]
run 0 run "$model" -p 'The' -n 40 --stats
check '--stats is one line on stderr' sh -c 'printf "%s\n" "$1" | grep -Eq "^tilewright: .*tok/s.*seed [0-9]+"' _ "$err"
check 'it has the right plurals' sh -c '! printf "%s\n" "$1" | grep -Eq "[ ,]1 (tokens|threads)"' _ "$err"
run 0 run "$model" --ids 1 -n 1 -t 1 --stats --print-ids
check 'one thread is one thread' grep -q '1 token of prompt.* 1 thread$' "$work/err"
"$TW_BIN" run "$model" -p 'The' -n 3 -s 1 --stats >"$work/both" 2>&1
same 'text and --stats in one file: two lines' 1 "$(grep -c '^tilewright: .*tok/s' "$work/both")"
run 0 run "$model" -p 'The' -n 40 --stats
seed=$(printf '%s\n' "$err" | sed 's/.*seed \([0-9]*\).*/\1/')
expect 'the reported seed reproduces the text' "$out" run "$model" -p 'The' -n 40 -s "$seed"

run 0 run "$model" -p 'The' --temp 0 -n 40 --print-ids
greedy=$out
for o in '--top-k 1' '--top-p 0' '--min-p 1'; do
    # shellcheck disable=SC2086
    expect "only the likeliest is left with $o" "$greedy" run "$model" -p 'The' -n 40 --print-ids -s 7 $o
done

run 0 run "$model" -p 'Once upon a time' -n 10 -s 1 --json
check 'JSON' sh -c 'python3 - "$1" <<EOF
import json, sys
d = json.load(open(sys.argv[1]))
assert len(d["ids"]) == 10 and d["stop"] == "count" and d["seed"] == 1 and d["prompt_ids"][0] == 1, d
assert "\"temp\": 0.8," in open(sys.argv[1]).read()
assert d["text"] and d["target"] == "host" and d["threads"] >= 1 and d["decode_tok_s"] > 0, d
EOF' _ "$work/out"

run 0 run "$model" --ids $ids -n 6 --print-ids --logits "$work/logits"
same 'one row of logits for each token' $((6 * 1024 * 4)) "$(wc -c <"$work/logits" | tr -d ' ')"
check 'the largest logits are the greedy ids' sh -c 'python3 - "$1" $2 <<EOF
import array, sys
a = array.array("f", open(sys.argv[1], "rb").read())
rows = [a[i : i + 1024] for i in range(0, len(a), 1024)]
assert [r.index(max(r)) for r in rows] == [int(x) for x in sys.argv[2:]]
EOF' _ "$work/logits" "$out"
cp "$work/logits" "$work/expected"
for o in '--mode strict' '--target sim4x4' '--target grid8x8 --mode strict' '--isa scalar' '-t 1 --chunk 1'; do
    # shellcheck disable=SC2086
    run 0 run "$model" --ids $ids -n 6 --print-ids --logits "$work/logits" $o
    check "the same bits of logits with $o" cmp "$work/logits" "$work/expected"
done
"$TW_BIN" run "$model" --ids $ids -n 6 --logits "$work/logits" >&- 2>/dev/null
check 'a closed standard output: the text does not get into the logits' cmp "$work/logits" "$work/expected"
"$TW_BIN" run "$model" --ids $ids -n 6 --print-ids --stats --logits "$work/logits" >/dev/null 2>&-
check 'nor do messages for a closed standard error' cmp "$work/logits" "$work/expected"
refuses 'logits to standard output' 2 'standard output carries the text' run "$model" --ids $ids -n 1 --logits -
refuses 'logits that cannot be written' 3 '/no/such' run "$model" --ids $ids -n 1 --logits /no/such/logits
long=$work/$(printf 'x%.0s' $(seq 249))
check 'a file name of 249 bytes' run 0 run "$model" --ids $ids -n 1 --print-ids --logits "$long"
rm -f "$long"
refuses 'one of 256 is named as it is' 3 '1234567: File name too long' run "$model" --ids $ids -n 1 --print-ids --logits "$long"1234567
# A limit of file size, whose signal would end the process.
mkdir "$work/limited"
status=0
(ulimit -f 100 && exec "$TW_BIN" run "$model" --ids $ids -n 100 --print-ids --logits "$work/limited/logits") \
    >"$work/out" 2>"$work/err" || status=$?
same 'logits beyond the limit of file size' '5 File too large' "$status $(sed 's/.*: //' "$work/err")"
same 'leave no file' '' "$(ls "$work/limited")"
if [ -w /dev/full ]; then
    refuses 'logits on a full disk' 5 '/dev/full' run "$model" --ids $ids -n 60 --print-ids --logits /dev/full
    status=0
    "$TW_BIN" run "$model" -p x -n 5 >/dev/full 2>"$work/err" || status=$?
    same 'text on a full disk' 5 "$status"
    same 'and one line' 1 "$(wc -l <"$work/err" | tr -d ' ')"
fi

if run 5 run "$model" --ids $ids -c 20 -n 100 --ignore-eos --print-ids && [ "$(wc -w <"$work/out")" = 16 ]; then
    check 'a full context: what there is, then the reason' sh -c 'printf "%s\n" "$1" | grep -q "context is full.*20 of 20.*-c"' _ "$err"
else
    not_ok 'a full context' "$status" "$out" "$err"
fi
refuses 'a prompt longer than the context' 5 'context is full' run "$model" --ids 1,2,3,4,5 -c 4 -n 1
refuses 'such a prompt is not printed either' 5 'context is full' run "$model" -p 'Once upon a time' -c 4 -n 1
refuses 'nor an empty line of ids' 5 'context is full' run "$model" --ids 1,2,3,4,5 -c 4 -n 1 --print-ids
run 0 run "$model" --ids $ids -c 20 --ignore-eos --print-ids
same 'without -n it stops where the context ends' 16 "$(wc -w <"$work/out" | tr -d ' ')"
refuses 'an id outside of the vocabulary' 2 'id 1024 at index 1 is not below the vocabulary.s 1024 tokens' run "$model" --ids 1,1024
same 'no temporary file is left' '' "$(find "$work" -name '*.tmp-*')"

# A checkpoint with no tokenizer beside it.
python3 - "$work/plain.bin" <<'EOF'
import random, struct, sys
random.seed(1)
dim, hidden, layers, heads, vocab, seq = 32, 32, 1, 2, 64, 16
n = vocab * dim + layers * (2 * dim + 4 * dim * dim + 3 * dim * hidden) + dim
header = struct.pack("<7i", dim, hidden, layers, heads, heads, vocab, seq)
open(sys.argv[1], "wb").write(header + struct.pack("<%df" % n, *[random.uniform(-0.5, 0.5) for _ in range(n)]))
EOF
refuses 'no tokenizer, a prompt of text' 4 'plain.bin: it has no tokenizer.*--tokenizer.*--ids' run "$work/plain.bin" -p x
refuses 'no tokenizer, text to print' 4 'plain.bin: it has no tokenizer.*--print-ids' run "$work/plain.bin" --ids 1
if run 0 run "$work/plain.bin" --ids 1 -n 4 --print-ids; then
    same 'no tokenizer, ids' 4 "$(wc -w <"$work/out" | tr -d ' ')"
else
    not_ok 'no tokenizer, ids' "$status" "$err"
fi

# A tokenizer that is not supported: reported before anything is compiled.
python3 tests/tools/gguf_set.py "$model" "$work/rwkv.gguf" tokenizer.ggml.model=rwkv
before=$(find "$work/cache" -type f | wc -l)
refuses 'an rwkv vocabulary and text' 4 \
    'rwkv.gguf: key tokenizer.ggml.model is "rwkv", expected "llama" .*--ids.*--print-ids' run "$work/rwkv.gguf" -p x
refuses 'an rwkv vocabulary and no ids to print' 4 'tokenizer.ggml.model is "rwkv"' run "$work/rwkv.gguf" --ids 1
same 'nothing was compiled' "$before" "$(find "$work/cache" -type f | wc -l)"
check 'ids in, ids out: it runs' run 0 run "$work/rwkv.gguf" --ids 1 -n 2 --print-ids
refuses 'from the cache: the same reason' 4 'tokenizer.ggml.model is "rwkv"' run "$work/rwkv.gguf" -p x
run 0 compile "$work/rwkv.gguf" -o "$work/rwkv.twb"
check 'compile notes it' grep -q 'tokenizer.ggml.model is "rwkv".*token ids' "$work/err"
refuses 'its bundle has no tokenizer' 4 'rwkv.twb: it has no tokenizer' run "$work/rwkv.twb" -p x
python3 tests/tools/gguf_set.py "$model" "$work/martian.gguf" tokenizer.ggml.model=gpt2 tokenizer.ggml.pre=martian
refuses 'a pre-tokenizer that is not known' 4 'tokenizer.ggml.pre is "martian", expected default gpt-2' \
    run "$work/martian.gguf" -p x
python3 tests/tools/gguf_set.py "$model" "$work/old.gguf" tokenizer.ggml.model=gpt2 tokenizer.ggml.pre=-
refuses 'byte-level BPE without a pre-tokenizer' 4 'tokenizer.ggml.pre is missing, .* convert' run "$work/old.gguf" -p x
python3 tests/tools/gguf_set.py "$model" "$work/none.gguf" tokenizer.ggml.model=-
refuses 'no tokenizer in a GGUF file' 4 'key tokenizer.ggml.model is missing' run "$work/none.gguf" -p x
python3 tests/tools/gguf_set.py "$model" "$work/layers.gguf" llama.attention.head_count_kv=u32:2,2,2,2,2,2,2,2
run 0 run "$model" --ids 1,5 -n 4 --print-ids
ids=$(cat "$work/out")
run 0 run "$work/layers.gguf" --ids 1,5 -n 4 --print-ids
same 'a value for each layer, all the same: the same ids' "$ids" "$(cat "$work/out")"
python3 tests/tools/gguf_set.py "$model" "$work/layers.gguf" llama.attention.head_count_kv=u32:2,2,2,2,2,2,2,0
refuses 'a layer without key heads' 3 'element 7 of key llama.attention.head_count_kv is 0' run "$work/layers.gguf" -p x

# Options that have no effect.
run 0 compile "$model" -o "$work/small.twb" --target sim4x4 -q
for o in '--rows 3' '--sites 3' '--kv f16' '--quant q8_0' '--activations f32' '--fresh' '--tokenizer x'; do
    # shellcheck disable=SC2086 # words
    refuses "a bundle with $o" 2 "option ${o%% *} is for models, but .*small.twb is compiled already" run "$work/small.twb" --ids 1 -n 1 $o
done
refuses 'dump of a bundle with --ctx' 2 'option --ctx is for models' dump "$work/small.twb" -c 10
for verb in 'run --ids 1 -n 1' 'dump' "compile -o $work/x.twb"; do
    # shellcheck disable=SC2086
    refuses "${verb%% *}: --sites for a target with its own" 2 'option --sites is for target host' \
        $verb "$model" --target sim4x4 --sites 3
done
refuses '--sites for a device with its own' 2 'option --sites is for target host' run "$model" --device emu:sim4x4 --sites 3 --ids 1
refuses 'a site without --map' 2 'option --site is for --map' inspect "$work/small.twb" --site 3
refuses '--no-bos with ids' 2 'option --no-bos has no effect on --ids' run "$model" --ids 1 --no-bos
refuses '--escape with ids' 2 'option --escape has no effect on --ids' run "$model" --ids 1 -e
noted() { # NAME PATTERN ARGUMENTS...: it runs and prints one line that matches
    name=$1
    pattern=$2
    shift 2
    if run 0 "$@" && [ "$(wc -l <"$work/err")" = 1 ] && printf '%s\n' "$err" | grep -Eq -- "$pattern"; then
        ok "$name"
    else
        not_ok "$name" "$status" "$err"
    fi
}
noted 'more threads than sites' '--threads: 200 requested, using 16' run "$work/small.twb" --ids 1 -n 1 -t 200 --print-ids
noted 'a context beyond the trained one' '--ctx: 600 positions, but the model was trained for 512' \
    run "$model" --ids 1 -n 1 -c 600 --print-ids
noted '... from the cache, too' 'the model was trained for 512' run "$model" --ids 1 -n 1 -c 600 --print-ids
noted '... compile' 'the model was trained for 512' compile "$model" -c 600 -o "$work/x.twb"
run 0 compile "$model" -c 600 -o "$work/x.twb" -q
same '... compile -q' '' "$err"

# A vocabulary without U+2581: each space of the prompt becomes three byte tokens.
python3 -c 'import sys; d = open(sys.argv[1], "rb").read(); open(sys.argv[2], "wb").write(d.replace("\u2581".encode(), b"\x01\x02\x03"))' \
    "$model" "$work/blankless.gguf"
run 0 run "$work/blankless.gguf" -p "$(printf '%100s' '')" -n 0 --json
check 'a prompt of more tokens than bytes' python3 -c '
import json, sys
assert len(json.load(open(sys.argv[1]))["prompt_ids"]) > 300' "$work/out"

# A reader that closes the pipe, and an interrupt.
"$TW_BIN" run "$model" -p x -n 100000 --ignore-eos -c 400 2>"$work/err" | head -c 1 >/dev/null
same 'a reader that closes the pipe is not an error' '' "$(cat "$work/err")"
for signal in INT TERM; do
    python3 - "$TW_BIN" "$model" $signal >"$work/result" <<'EOF'
import signal, subprocess, sys
command = [sys.argv[1], "run", sys.argv[2], "-p", "x", "-n", "-1", "--mode", "strict", "--target", "sim4x4", "--ignore-eos"]
p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.stdout.read(1)
p.send_signal(getattr(signal, "SIG" + sys.argv[3]))
out, err = p.communicate(timeout=60)
print(p.returncode, err.decode())
EOF
    same "SIG$signal ends the text with status 130 and without a message" 130 "$(tr -d ' \n' <"$work/result")"
done

# Progress, on a terminal only: of a long prompt, and of a measurement.
cat >"$work/terminal.py" <<'EOF'
import os, pty, signal, subprocess, sys
wanted, command = sys.argv[1].encode(), sys.argv[2:]
master, slave = pty.openpty()
p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave)
os.close(slave)
seen = b""
try:
    while wanted not in seen:
        seen += os.read(master, 4096)
    p.send_signal(signal.SIGINT)
except OSError:  # it ended without printing anything
    pass
out, err = p.communicate(timeout=60)
print(p.returncode, len(out), wanted in seen)
EOF
printf 'a %.0s' $(seq 20000) >"$work/long"
same 'a long prompt shows progress' '130 0 True' "$(python3 "$work/terminal.py" 'processing the prompt' "$TW_BIN" run "$model" \
    -f "$work/long" -c 60000 --chunk 1 -n 1)"
same 'a measurement shows progress' '130 0 True' "$(python3 "$work/terminal.py" measuring "$TW_BIN" bench "$model" -r 1000)"
finish
