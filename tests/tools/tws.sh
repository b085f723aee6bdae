#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs as text at the command line: verify and dump read what dump writes, and errors have file and line.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh
rules=$root/tests/loader/rules

run 0 dump "$model" --target sim4x4
cp "$work/out" "$work/a.tws"
sed '/^$/d' "$work/a.tws" >"$work/a.canonical"
run 0 verify "$work/a.tws"
check 'verify accepts the programs that dump wrote' sh -c 'printf "%s\n" "$1" | grep -Eq "a.tws: ok: 2 programs obey [0-9]+ rules"' _ "$out"
run 0 verify "$work/a.tws" --rules
check 'verify --rules of a text' [ "$(wc -l <"$work/out")" -ge 17 ]
run 0 verify "$work/a.tws" --json
check 'verify --json of a text' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["ok"] and d["text"].endswith("a.tws") and d["programs"] == 2 and d["error"] is None
assert sum(r["checked"] for r in d["rules"]) > 1000' "$work/out"
run 0 dump "$work/a.tws"
sed -i '/^$/d' "$work/out"
check 'dump of a text prints it back byte for byte' cmp "$work/out" "$work/a.canonical"
run 0 dump "$work/a.tws" --program decode
check 'dump --program of a text' sh -c 'head -n 1 "$1" | grep -q "^program decode " && [ "$(grep -c "^program" "$1")" = 1 ]' _ "$work/out"
run 0 compile "$model" -o "$work/a.twb" --target sim4x4 -q
run 0 dump "$work/a.twb"
cp "$work/out" "$work/b.tws"
check 'verify takes what dump wrote of a bundle' run 0 verify "$work/b.tws"

refuses 'a text has no earlier stages' 2 'text file has only stage program' dump "$work/a.tws" --stage low
refuses 'an unknown program of a text' 2 "no program 'x'; it has decode, prefill" dump "$work/a.tws" --program x
refuses 'a violated rule' 7 '06-fifo_balance.bad.tws:3: rule 6 fifo_balance: p buffer 0 \(f\): 3 pages' verify "$rules/06-fifo_balance.bad.tws"
cat "$rules/06-fifo_balance.ok.tws" "$rules/07-region_in_buffer.bad.tws" >"$work/two.tws"
refuses 'a violated rule of a second program' 7 'two.tws:[0-9]+: rule 7 region_in_buffer' verify "$work/two.tws"
if run 7 verify "$rules/06-fifo_balance.bad.tws" --json; then
    check 'verify --json of a broken rule' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert not d["ok"] and "rule 6" in d["error"] and [r["rule"] for r in d["rules"] if r["failed"]] == [6]' "$work/out"
else
    not_ok 'verify --json of a broken rule' "exit status $status"
fi
sed '3s/role=/rule=/' "$work/a.tws" >"$work/bad.tws"
refuses 'a mistake in the text' 3 "bad.tws:3:[0-9]+: found 'rule=.*', expected a field of a tensor" verify "$work/bad.tws"
refuses 'dump of a mistake' 3 'bad.tws:3:' dump "$work/bad.tws" --program x
printf '; nothing here\n' >"$work/empty.tws"
refuses 'a text without a program' 3 "empty.tws:2:1: found the end of the text, expected 'program'" verify "$work/empty.tws"
refuses 'a text that is not there' 3 'none.tws' verify "$work/none.tws"

# ---- every order ----

orders=$root/tests/loader/order_rules
run 0 verify --exhaustive "$orders/20-no_deadlock.ok.tws"
check 'every order of a good program' grep -Eq 'program p: ok: every order of its ops leaves the same bytes \([0-9]+ order' "$work/out"
run 7 verify --exhaustive "$orders/24-race_free.bad.earlier_iteration.tws"
check 'a race is the error' sh -c 'printf "%s\n" "$1" | grep -Eq "program p: site 0 load op [0-9]+ \(.*\) and site 0 store op [0-9]+ \(.*\) can run in either order and touch the same bytes"' _ "$err"
check 'a race and its two results' sh -c 'grep -q "^  race: " "$1" && grep -q "^  differs: .*tensor 1 (out)" "$1" &&
    [ "$(grep -Ec "^    order: 0:[a-z]+" "$1")" = 2 ]' _ "$work/out"
run 7 verify --exhaustive "$orders/20-no_deadlock.bad.tws"
check 'a deadlock and the order that ends in it' sh -c 'grep -q "^  deadlock: Deadlock at site 0 " "$1" && grep -q "^    order: " "$1"' _ "$work/out"
run 7 verify --exhaustive --json "$orders/20-no_deadlock.bad.tws"
check 'verify --exhaustive --json' python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
[p] = d["programs"]
assert not d["ok"] and p["program"] == "p" and [f["kind"] for f in p["findings"]] == ["deadlock"]
assert p["findings"][0]["schedules"] and "Deadlock" in d["error"]' "$work/out"
cat "$orders/20-no_deadlock.ok.tws" "$orders/24-race_free.bad.earlier_iteration.tws" >"$work/both.tws"
run 7 verify --exhaustive "$work/both.tws"
check 'every program of a text' [ "$(grep -c ': program p: ' "$work/out")" = 2 ]
run 7 verify --exhaustive "$orders/25-defined.bad.no_iteration.tws"
check 'a loop that may not run at all' grep -q 'program p: not ok with inputs of 0' "$work/out"
odd=$work/$(printf 'a\377\033[31m.tws')
cp "$orders/24-race_free.bad.tws" "$odd"
run 7 verify --exhaustive "$odd"
check '... of a file whose name is no text prints text' python3 -c '
import sys
text = open(sys.argv[1], "rb").read().decode("utf-8")
assert ": program p: " in text and all(c == "\n" or c.isprintable() for c in text)' "$work/out"
run 7 verify --exhaustive --json "$odd"
check '... and JSON' python3 -c 'import json, sys; json.load(open(sys.argv[1]))["programs"][0]' "$work/out"
refuses 'a broken rule comes first' 7 'rule 6 fifo_balance' verify --exhaustive "$rules/06-fifo_balance.bad.tws"
refuses 'a bundle in every order' 2 'not a text of programs' verify --exhaustive "$work/a.twb"
refuses 'a budget of nothing' 2 'applies only with --exhaustive' verify --max-states 5 "$work/a.tws"
refuses 'a program that is too large' 5 'too large to be run in every order' verify --exhaustive "$work/a.tws"

if command -v groff >/dev/null 2>&1; then
    for page in tools/man/*.[15]; do
        same "no warnings of groff: $page" '' "$(groff -man -t -ww -Tutf8 "$page" 2>&1 >/dev/null)"
    done
else
    echo 'skip man pages: no groff here'
fi
finish
