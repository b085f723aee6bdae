#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The logits of all tokens of a prompt: compile --logits all, run --logits-all. They are those that decoding the same
# tokens one by one gives, bit for bit.
# shellcheck disable=SC2086,SC2016 # words; parameters of sh -c
. tests/tools/tap.sh
prompt=1,403,407
n=45 # more than a step of a score program takes, and no multiple of one
vocab=1024
row=$((vocab * 4))

for target in host sim4x4; do
    run 0 compile "$model" -o "$work/$target.twb" --target $target -q
    run 0 compile "$model" -o "$work/$target-all.twb" --target $target --logits all -q
done
run 0 inspect "$work/host-all.twb"
check 'a bundle names its program of scores' sh -c 'printf "%s\n" "$1" | grep -q "score\.32"' _ "$out"
run 0 inspect "$work/host.twb"
check '... and one without has none' sh -c '! printf "%s\n" "$1" | grep -q "score"' _ "$out"
check 'verify of a bundle with scores' run 0 verify "$work/host-all.twb"

# Every token that decoding chooses is fed again by the score: rows 3 to the end are what decode gave.
run 0 run "$work/host-all.twb" --ids $prompt -n $n --ignore-eos --print-ids --logits "$work/decoded"
chosen=$(printf '%s\n' "$out" | tr ' ' ',')
same 'decode wrote a row for each token' $((n * row)) "$(wc -c <"$work/decoded")"
for at in host-all sim4x4-all; do
    for options in '' '--mode strict' '--threads 1' '--chunk 7'; do
        what="score of $at $options"
        if ! run 0 run "$work/$at.twb" --ids $prompt,$chosen --logits-all "$work/scored" $options; then
            not_ok "$what" "$err"
            continue
        fi
        same "$what: a row for each token of the prompt" $(((n + 3) * row)) "$(wc -c <"$work/scored")"
        # the last token was not fed while decoding
        tail -c +$((2 * row + 1)) "$work/scored" | head -c $((n * row)) >"$work/tail"
        check "$what: the bits of decoding" cmp "$work/tail" "$work/decoded"
    done
done

# The first tokens of the prompt, too: each is the last row of a shorter prompt.
: >"$work/shorter"
for ids in 1 1,403 1,403,407; do
    run 0 run "$work/host.twb" --ids $ids -n 1 --print-ids --logits "$work/one"
    cat "$work/one" >>"$work/shorter"
done
run 0 run "$work/host-all.twb" --ids $prompt --logits-all "$work/scored"
check 'the rows of the first tokens' cmp "$work/scored" "$work/shorter"

run 0 run "$model" --ids $prompt --logits-all "$work/of-model"
check 'of a model, which is compiled with them' cmp "$work/of-model" "$work/shorter"
run 0 run "$work/host-all.twb" -p 'Once upon a time' --logits-all "$work/text"
same 'it prints the prompt' 'Once upon a time' "$out"
run 0 run "$work/host-all.twb" --ids $prompt --logits-all "$work/json" --json
check 'as JSON' sh -c 'python3 -c "import json, sys; json.load(sys.stdin)" <"$1"' _ "$work/out"

run 0 run "$work/host-all.twb" --ids $prompt --logits-all "$work/x" --stats
check '--stats counts the prompt' sh -c 'printf "%s\n" "$1" | grep -q "3 tokens of prompt, [1-9]"' _ "$err"
rm -f "$work/x"

refuses 'a prompt beyond the context, before the first step' 5 '45 more tokens at position 0 of 40' \
    run "$work/host-all.twb" -c 40 --ids $chosen --logits-all "$work/x"
check '... leaves no file' [ ! -e "$work/x" ]
refuses 'a bundle without it' 4 'compile the model with --logits all' run "$work/host.twb" --ids $prompt --logits-all "$work/x"
check '... leaves no file' [ ! -e "$work/x" ]
refuses 'together with a number of tokens' 2 'does not go with --n-predict' \
    run "$work/host-all.twb" --ids $prompt -n 3 --logits-all "$work/x"
refuses 'together with --logits' 2 'does not go with --logits' \
    run "$work/host-all.twb" --ids $prompt --logits "$work/y" --logits-all "$work/x"
refuses 'to standard output' 2 'standard output carries the text' run "$work/host-all.twb" --ids $prompt --logits-all -
refuses 'to a file that cannot be written' 3 '/no/such' run "$work/host-all.twb" --ids $prompt --logits-all /no/such/logits
refuses 'of other logits' 2 'found "some", expected last or all' compile "$model" -o "$work/x.twb" --logits some
finish
