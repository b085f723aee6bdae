#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run and chat with --prompt-cache, and with --on-full.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

field() { # NAME: of the JSON that was printed
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/out" "$1"
}
ids=1
for i in $(seq 2 150); do ids="$ids,$((i * 37 % 900 + 3))"; done
files() { find "$XDG_CACHE_HOME/tilewright/prefix" -name '*.twprefix' | wc -l | tr -d ' '; }

# ---- --prompt-cache
run 0 run "$model" --ids "$ids" --temp 0 -n 20 --json
text=$(field text)
check 'without it nothing is kept' test ! -e "$XDG_CACHE_HOME/tilewright/prefix"
check '... nor said' sh -c '! grep -q reused "$1"' _ "$work/out"
run 0 run "$model" --ids "$ids" --temp 0 -n 20 --json --prompt-cache 64M
same 'the first prompt is computed' "0 $text" "$(field reused) $(field text)"
same '... and kept' 1 "$(files)"
same 'in a folder and a file of this user alone' '700 600' "$(stat -c %a "$XDG_CACHE_HOME/tilewright/prefix") $(
    stat -c %a "$XDG_CACHE_HOME/tilewright/prefix"/*)"
run 0 run "$model" --ids "$ids" --temp 0 -n 20 --json --prompt-cache 64M
same 'the second starts from it' "149 $text" "$(field reused) $(field text)"
run 0 run "$model" --ids "$ids" --temp 0 -n 20 --stats --print-ids --prompt-cache 64M
check '--stats says so' grep -q '149 tokens of the prompt from the cache' "$work/err"
run 0 run "$model" --ids "$ids" --temp 0 -n 20 --json --prompt-cache 64M --target sim4x4
same 'on another target, too' "149 $text" "$(field reused) $(field text)"
run 0 run "$model" --ids "$ids" --temp 0 -n 20 --json --prompt-cache 64M --prompt-cache-salt a
same 'not for another salt' "0 $text" "$(field reused) $(field text)"
run 0 run "$model" --ids "$ids" --temp 0 -n 20 --json --prompt-cache 64M --kv f16
same 'nor for another element type' 0 "$(field reused)"
run 0 state list "$XDG_CACHE_HOME/tilewright/prefix"
check 'state list shows them' grep -q 'in 3 states' "$work/out"
run 0 run "$model" --ids "$ids,5" --temp 0 -n 1 --json --prompt-cache 1K
same 'a sequence larger than SIZE is not kept' 3 "$(files)"
run 0 run "$model" --ids "9,$ids" --temp 0 -n 1 --json --prompt-cache 1M
same 'older ones make room' 1 "$(files)"
chmod 777 "$XDG_CACHE_HOME/tilewright/prefix"
refuses 'a folder that others may write to' 3 'chmod go-w' run "$model" --ids "$ids" -n 1 --prompt-cache 64M
chmod 700 "$XDG_CACHE_HOME/tilewright/prefix"
refuses 'a file' 2 "'prompt.bin' is not a size such as 512M or 2G .to keep one sequence in a file, use run --save-state" \
    run "$model" --prompt-cache prompt.bin
refuses 'no size' 2 'is not a size' run "$model" --prompt-cache 0
refuses 'a salt alone' 2 'goes with --prompt-cache' run "$model" --prompt-cache-salt x

# ---- chat
chat=$work/chat.gguf
template='{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}'
python3 tests/tools/gguf_set.py "$model" "$chat" "tokenizer.chat_template=$template"
long='Tell me a story of a king and his three sons who went out to see the world and came to a house in the wood, where an old woman sat at the fire and asked them what they wanted'
long="$long, and each of them told her"
long="$long; $long"
talk() { # TEXT ARGUMENTS...
    lines=$1
    shift
    status=0
    printf "$lines" | "$TW_BIN" chat "$chat" --temp 0 -n 12 --stats "$@" >"$work/out" 2>"$work/err" || status=$?
    out=$(cat "$work/out")
}
talk "$long\nAnd then\n"
plain=$out
talk "$long\nAnd then\n" --prompt-cache 64M
same 'chat: the same answers' "$plain" "$out"
check '... the first time nothing is there' sh -c '! grep -q "from the cache" "$1"' _ "$work/err"
talk "$long\nAnd then\n" --prompt-cache 64M
same '... the same after a restart' "$plain" "$out"
check '... from the cache' grep -Eq '[0-9]+ tokens of the prompt from the cache' "$work/err"
talk "$long\n/reset\nHello\n/reset\n$long\n"
check 'what was read before a /reset is not computed again' grep -Eq '[0-9]+ tokens of the prompt from the cache' "$work/err"

# ---- --on-full
refuses 'a full context' 5 'the context is full' run "$model" --ids "$ids" -c 64 -n 1
run 5 run "$model" -p Once -c 64 --temp 0 -n 100 --ignore-eos --no-display-prompt
begin=$out
run 0 run "$model" -p Once -c 64 --temp 0 -n 100 --ignore-eos --no-display-prompt --on-full slide
check 'slide goes on after what there was without it' sh -c 'case $1 in "$2"?*) ;; *) false ;; esac' _ "$out" "$begin"
slid=$out
run 0 run "$model" -p Once -c 64 --temp 0 -n 100 --ignore-eos --json --on-full slide
same 'JSON tells how often' '2 64' "$(field windows) $(field dropped)"
same '... and has the same text' "$slid" "$(field text)"
run 0 run "$model" -p Once -c 64 --temp 0 -n 100 --ignore-eos --on-full sink --sink 2 --stats
check 'sink, too' grep -q 'the context was full 2 times; 64 tokens were dropped' "$work/err"
run 0 run "$model" --ids "$ids" -c 64 --temp 0 -n 4 --json --on-full sink
same 'a prompt that is longer than the context' '3 96' "$(field windows) $(field dropped)"
talk "$long\n$long\n$long\n" -c 64 --on-full slide
check 'chat goes on' sh -c '[ "$1" = 0 ] && grep -q "the context was full" "$2"' _ "$status" "$work/err"
talk "$long\n$long\n$long\n" -c 64
check '... and ends without it' sh -c '[ "$1" = 5 ] && grep -q "with --on-full slide" "$2"' _ "$status" "$work/err"
refuses 'another word' 2 "'x' is neither stop, slide nor sink" run "$model" --on-full x
refuses '--sink alone' 2 'goes with --on-full sink' run "$model" --sink 3
refuses 'more first tokens than stay' 2 '32 stay, which must be more than the 32' run "$model" -p Once -c 64 --on-full sink --sink 32 -n 1
finish
