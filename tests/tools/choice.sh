#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile --top-k: greedy tokens that the device chooses from lists of the best logits are those that all logits say,
# on the shipped model and on every shared one.
# shellcheck disable=SC2086 # words
. tests/tools/tap.sh

compared=0
# The same bundle, by its lists and by all logits, which --logits has the host read.
compare() {
    what="$1 for $2"
    if ! run 0 compile "$1" -o "$work/a.twb" --target $2 --top-k $3 -q; then
        if [ "$status" = 4 ]; then echo "skip $what: not supported"; else not_ok "$what" "$err"; fi
        return
    fi
    compared=$((compared + 1))
    run 0 run "$work/a.twb" --ids 1,2,3 -n 12 --ignore-eos --print-ids
    lists=$out
    run 0 run "$work/a.twb" --ids 1,2,3 -n 12 --ignore-eos --print-ids --logits "$work/logits"
    if [ -n "$lists" ] && [ "$lists" = "$out" ]; then
        ok "$(basename "$what")"
    else
        not_ok "$what" "by lists: $lists" "by logits: $out"
    fi
}

for target in 'host --sites 2' sim4x4 sim4x4x2; do
    compare "$model" "$target" 1
done
shared=${TW_SHARED:-$root/../shared}/data
for file in "$shared"/arch/*.gguf "$shared"/models/stories260K.gguf; do
    if [ -e "$file" ]; then compare "$file" 'host --sites 3' 4; else echo "skip $file is not there"; fi
done
[ ! -d "$shared/arch" ] || check 'models that are supported were compared' [ "$compared" -ge 20 ]

run 0 compile "$model" -o "$work/lists.twb" --target sim4x4 --top-k 4 -q
run 0 dump "$work/lists.twb" --program decode
check 'a list for each site' grep -q 'tensor [0-9]* choice role=output dtype=u8 shape=16x32 ' "$work/out"
check 'verify' run 0 verify "$work/lists.twb"
run 0 compile "$model" -o "$work/plain.twb" --target sim4x4 -q
run 0 dump "$work/plain.twb" --program decode
check 'none without the option' sh -c '! grep -q "choice\|topk" "$1"' _ "$work/out"
refuses 'no entries' 2 "top-k" compile "$model" -o "$work/x.twb" --top-k 0
refuses 'too many entries' 2 "top-k" compile "$model" -o "$work/x.twb" --top-k 1025
finish
