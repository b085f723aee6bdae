#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line: help, versions, and every kind of wrong argument.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

verbs='compile run bench inspect dump diff patch verify devices emulate selftest reset doctor top cache state'
for verb in $verbs; do
    if run 0 "$verb" --help && printf '%s\n' "$out" | grep -q "^usage: tilewright $verb" && [ -z "$err" ]; then
        ok "$verb --help"
    else
        not_ok "$verb --help" "$status" "$out" "$err"
    fi
    same "help $verb is the same text" "$out" "$("$TW_BIN" help "$verb")"
    longest=$(awk '{ if (length > n) n = length } END { print n + 0 }' "$work/out")
    check "$verb --help fits in 120 columns" [ "$longest" -le 120 ]
done
run 0 --help
check 'the general help names every verb' sh -c 'for v in '"$verbs"'; do grep -q "^  $v " "$1" || exit 1; done' _ "$work/out"
check 'the version' run 0 --version
part() { sed -n "s/^#define TW_VERSION_$1 //p" include/tilewright/version.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
same 'the version is that of the header' "tilewright $version" "$out"
for page in tools/man/*; do
    check "the version in $page" grep -Eq "^[.]TH .*Tilewright $version\"" "$page"
done
same 'the version is not repeated anywhere else' '' "$(grep -rlF "$version" --include=*.[ch] --include=*.mk --include=Makefile --include=*.in \
    include loader driver compiler firmware tools Makefile | grep -v include/tilewright/version.h)"
run 2
same 'without arguments: usage on stderr, status 2' "2 0" "$status $(wc -c <"$work/out" | tr -d ' ')"

# A second line says what usually helps, if the first does not.
tries() { # tries NAME STATUS PATTERN-OF-THE-SECOND-LINE ARGUMENTS...
    name=$1
    want=$2
    pattern=$3
    shift 3
    run "$want" "$@"
    if [ "$status" = "$want" ] && sed -n 2p "$work/err" | grep -Eqx "try: $pattern"; then
        ok "$name"
    else
        not_ok "$name" "$status" "$err"
    fi
}
alone() { # alone NAME STATUS ARGUMENTS...: there is no second line
    name=$1
    want=$2
    shift 2
    run "$want" "$@"
    same "$name" "$want 1" "$status $(wc -l <"$work/err" | tr -d ' ')"
}
head -c 100000 "$model" >"$work/cut.gguf"
head -c 300 README.md >"$work/bad.twb"
printf 'program x\n' >"$work/bad.tws"
tries 'a truncated model: fetch it again' 3 'fetch or copy the file again' run "$work/cut.gguf"
tries 'a malformed bundle: is it the right file?' 3 'check that it is the file you mean; .*' inspect "$work/bad.twb"
tries 'no such device: list the devices' 6 'tilewright devices' run "$model" --device gpu
alone 'an error in a text, with its line' 3 verify "$work/bad.tws"
alone 'a missing file' 3 run /no/such/file
alone 'a wrong option' 2 run m --tmep 1
alone 'a full context: the message has the advice' 5 run "$model" --ids 1,2,3,4,5 -c 4 -n 1

same '-V prints the version, too' "$("$TW_BIN" --version)" "$("$TW_BIN" -V)"

# The manual page has every option of every verb, by both of its names.
for verb in $verbs; do "$TW_BIN" "$verb" --help; done >"$work/help"
same 'the manual page names every option' '' "$(python3 -c '
import re, sys
page = open(sys.argv[1]).read().replace("\\-", "-")
for line in open(sys.argv[2]):
    m = re.match(r"  (?:(-.), |    )(--[a-z0-9-]+)", line)
    for name in m.groups() if m else ():
        if name and not re.search("(^|[^-a-z0-9])" + name + "([^-a-z0-9]|$)", page, re.M):
            print(name)' tools/man/tilewright.1 "$work/help")"
check 'the manual page names the other pages' grep -q 'tilewright..protocol (7)' tools/man/tilewright.1
make -s help >"$work/goals"
check 'make help prints an option below its goal' sh -c 'grep -A 1 "make check-qemu" "$1" | grep -q SCENARIOS' _ "$work/goals"

refuses 'an unknown verb' 2 "unknown verb 'rnu'; did you mean run" rnu x
refuses 'a verb that resembles none' 2 "unknown verb 'frobnicate'; see" frobnicate
refuses 'a file instead of a verb' 2 'is a file; a verb comes first, as in: tilewright run ' "$model"
refuses 'an unknown option' 2 "unknown option '--tmep'; did you mean --temp. see tilewright run --help" run m --tmep 1
refuses 'a prefix of an option' 2 "unknown option '--ignore'; did you mean --ignore-eos" run m --ignore
refuses 'an option that resembles none' 2 "unknown option '--frobnicate'; see" run m --frobnicate
refuses 'an unknown letter' 2 "unknown option '-z'" run m -z
refuses 'an option without its argument' 2 'option --n-predict needs an argument: N' run m -n
refuses 'a flag with an argument' 2 'option --json takes no argument' run m --json=1
for word in -no-cnv -ngl -fa -sm -ctk -mg -np -tb -ub -hf -mli -dev -nkvo; do
    refuses "llama.cpp's $word" 2 "unknown option '$word'" run m $word 1
done
refuses 'an unknown option of several letters' 2 "unknown option '-cwhatever'" run m -cwhatever
refuses 'a flag with letters' 2 "unknown option '-ex'" run m -ex
for o in '-m' '--model'; do
    check "a model named by $o" run 0 run $o "$model" --ids 1 -n 1 --print-ids
done
check 'and by --model=' run 0 run "--model=$model" --ids 1 -n 1 --print-ids
same '--ctx-size, --predict and --temperature are accepted' '3' \
    "$("$TW_BIN" run "$model" --ids 1 --ctx-size 40 --predict 3 --temperature 0 --print-ids | wc -w | tr -d ' ')"
refuses 'a model named twice' 2 "unexpected argument '$model'" run -m "$model" "$model"
refuses 'a context beyond the maximum' 2 'option --ctx: .*from 1 to 1048576' run m -c 1048577
refuses 'no model' 2 'MODEL.BUNDLE is missing' run
refuses 'two models' 2 "unexpected argument 'b'" run a b
for n in x 1x '' ' 1' 1.5 -2 99999999999999999999 0x10 1e3; do
    refuses "run -n '$n'" 2 'option --n-predict: .*whole number from -1 to' run m -n "$n"
done
for t in x '' 1x nan inf -1 1e99 0x1p3 101; do
    refuses "run --temp '$t'" 2 'option --temp: .*number from 0 to 100' run m --temp "$t"
done
for ids in '' ',' '1,' ',1' '1,,2' '1,x' 1-2 -1 4294967295 99999999999999; do
    refuses "run --ids '$ids'" 2 'option --ids: .*list of token ids' run m --ids "$ids"
done
refuses 'two prompts' 2 'only one of them' run m -p a --ids 1
refuses 'ids and JSON at once' 2 'only one of them' run m --print-ids --json
refuses 'an unknown mode' 2 "'quick' is neither fast nor strict" run "$model" --mode quick
refuses 'an unknown device' 6 "device 'gpu'.*there are emu" run "$model" --device gpu
refuses 'a device number too high' 6 'the list goes from 0 to' run "$model" --device 99
refuses 'an unknown target' 2 'nowhere.*host.*sim4x4.*grid8x8' run "$model" --target nowhere
refuses 'an unknown emulated target' 6 'emu:nowhere.*emu:sim4x4' run "$model" --device emu:nowhere
refuses 'device and target that differ' 7 'sim4x4.*grid8x8' run "$model" --device emu:sim4x4 --target grid8x8
refuses 'an unknown instruction set' 2 "instruction set 'sse9'" run "$model" --isa sse9
refuses 'a missing model' 3 '/no/such/file' run /no/such/file
refuses 'a missing model: the reason' 3 '/no/such/file: .*No such file' run /no/such/file
refuses 'a folder without a model' 3 "$work/config.json: there is no such file; expected the folder of a model" run "$work"
mkfifo "$work/pipe"
for verb in run bench inspect verify dump; do # without a writer, waiting would never end
    refuses "$verb of a pipe" 3 'not a regular file' $verb "$work/pipe"
done
refuses 'compile of a pipe' 3 'not a regular file' compile "$work/pipe" -o "$work/x.twb"
refuses 'a missing prompt file' 3 '/no/such/prompt' run "$model" -f /no/such/prompt
refuses 'compile without -o' 2 '--output' compile "$model"
refuses 'an unknown stage' 2 'stage' dump "$model" --stage nothing
refuses 'inspect of a model' 3 'fairytale' inspect "$model"
refuses 'verify of a model' 3 'fairytale' verify "$model"
refuses 'the null device runs nothing' 4 'program decode needs the op [a-z_]+ \(number [0-9]+\), which device null does not have' run "$model" --device null -n 1

run 0 devices
check 'devices lists the emulator first' sh -c 'head -n 1 "$1" | grep -q "^ 0  emu "' _ "$work/out"
run 0 devices --json
check 'devices --json is JSON' sh -c 'python3 -c "import json, sys; d = json.load(sys.stdin); assert d[0][\"device\"] == \"emu\" and all(x[\"state\"] for x in d)" <"$1"' _ "$work/out"
finish
