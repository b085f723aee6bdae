#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The cache of compiled models: when it is used, how it recovers from damage, and what happens without it.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

go() { run 0 run "$model" --ids 1,403,407 -n 8 --print-ids "$@"; }
bundles() { find "$work/cache" -name '*.twb' | wc -l | tr -d ' '; }

go
golden=$out
same 'one bundle a model' 1 "$(bundles)"
bundle=$(find "$work/cache" -name '*.twb')
check 'named MODEL-TARGET-HASH' sh -c 'basename "$1" | grep -Eqx "fairytale-1.7m-host-[0-9a-f]{64}.twb"' _ "$bundle"
before=$(stat -c %i.%Y "$bundle")
go
same 'the second run gives the same' "$golden" "$out"
same 'and compiles nothing' "$before" "$(stat -c %i.%Y "$bundle")"
go --ctx 100
same 'another context, another bundle' 2 "$(bundles)"
go --target sim4x4
same 'another target, another bundle' 3 "$(bundles)"
cp "$model" "$work/copy.gguf"
run 0 run "$work/copy.gguf" --ids 1,403,407 -n 8 --print-ids
same 'the same content under another name shares the bundle' 3 "$(bundles)"
same 'files of the cache are private to the user' 700 "$(stat -c %a "$work/cache/tilewright")"

damage() { # NAME: the bundle was changed; the next run compiles it again and says so in one line
    if go && [ "$out" = "$golden" ] && [ "$(wc -l <"$work/err")" = 1 ] && printf '%s\n' "$err" | grep -q 'is damaged; compiling it again'; then
        ok "$1"
    else
        not_ok "$1" "$status" "$out" "$err"
    fi
    go
    same "$1: recovered" "$golden:" "$out:$err"
}
size=$(stat -c %s "$bundle")
truncate -s $((size / 2)) "$bundle"
damage 'a truncated bundle'
: >"$bundle"
damage 'an empty bundle'
printf 'x' | dd of="$bundle" bs=1 seek=300 conv=notrunc 2>/dev/null
damage 'a changed header'
printf 'xyzw' | dd of="$bundle" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
damage 'a changed weight'
cp "$model" "$bundle"
damage 'another file in its place'

# An intact bundle of another model.
python3 tests/tools/gguf_set.py "$model" "$work/other.gguf" general.name=other
run 0 compile "$work/other.gguf" -o "$work/other.twb" -q
cp "$work/other.twb" "$bundle"
if go && [ "$out" = "$golden" ] && printf '%s\n' "$err" | grep -q 'is not the one that was stored there; compiling it again'; then
    ok "another model's bundle is not run"
else
    not_ok "another model's bundle" "$status" "$out" "$err"
fi
go
same '... but compiled again' "$golden:" "$out:$err"
check 'under its name' test -f "$bundle"
# A folder with that name.
rm "$bundle"
mkdir "$bundle"
for again in 'a folder at its place' 'a second time'; do
    if go && [ "$out" = "$golden" ] && [ "$(wc -l <"$work/err")" = 1 ] &&
        printf '%s\n' "$err" | grep -q "cannot store the bundle in the cache: $bundle: Is a directory"; then
        ok "$again"
    else
        not_ok "$again" "$status" "$out" "$err"
    fi
done
rmdir "$bundle"
same 'nothing else is left' 2 "$(find "$work/cache/tilewright" -mindepth 1 | wc -l | tr -d ' ')"
go

# ---- cache list, cache prune
names() { python3 -c 'import json, sys; print(" ".join(e["name"].rsplit("-", 1)[0] for e in json.load(open(sys.argv[1]))["entries"]))' "$work/out"; }
run 0 cache list
same 'cache list has a line for each and one for all' 4 "$(wc -l <"$work/out" | tr -d ' ')"
check '... with the sum' sh -c 'tail -n 1 "$1" | grep -q "MiB  in 3 bundles: .*/cache/tilewright\$"' _ "$work/out"
sleep 0.02
go --target sim4x4
run 0 cache list --json
same 'the most recently used is first' 'fairytale-1.7m-sim4x4' "$(names | cut -d' ' -f1)"
go --target host
run 0 cache list --json
same 'and changes by use' 'fairytale-1.7m-host' "$(names | cut -d' ' -f1)"
refuses 'cache without list or prune' 2 'list.prune is missing' cache
refuses 'another word' 2 "'purge' is neither list nor prune" cache purge
refuses 'prune without a size' 2 '--max-size is missing' cache prune
refuses 'list with a size' 2 '--max-size is for cache prune' cache list --max-size 1M
for size in '' x -1 1X 1.5M 99999999999999999999 20000000T '1 M'; do
    refuses "a size '$size'" 2 "'$size' is not a size such as 500M" cache prune --max-size "$size"
done
: >"$work/cache/tilewright/new-1.twb" # a compilation that was killed long ago, and one that is running
: >"$work/cache/tilewright/new-2.twb"
touch -d '3 days ago' "$work/cache/tilewright/new-1.twb"
run 0 cache prune --max-size 4M
check 'prune keeps what fits' sh -c 'printf "%s\n" "$1" | grep -Eq "^removed 2 bundles, .*; 2 left, 3\..* MiB"' _ "$out"
run 0 cache list --json
same 'those that were used last' 'fairytale-1.7m-host fairytale-1.7m-sim4x4' "$(names)"
same 'and what another process is compiling' 'new-2.twb' "$(cd "$work/cache/tilewright" && ls new-*)"
rm "$work/cache/tilewright/new-2.twb"
run 0 cache prune --max-size 1GiB --json
check 'prune that removes nothing' python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["removed"] == [] and d["bytes"] > 3e6' "$work/out"
run 0 cache prune --max-size 0
same 'prune to 0 removes all' 0 "$(bundles)"
run 0 cache list
check 'an empty cache' grep -q '0 B  in 0 bundles' "$work/out"
go
bundle=$(find "$work/cache" -name '*.twb')
before=$(stat -c %i "$bundle")
go --fresh
check '--fresh compiles again' [ "$before" != "$(stat -c %i "$bundle")" ]

rm -rf "$work/cache"
check 'a cache that is not there' run 0 cache list
check 'is not created by listing it' [ ! -e "$work/cache" ]
"$TW_BIN" run "$model" --ids 1,403,407 -n 8 --print-ids >"$work/a" 2>&1 &
first=$!
"$TW_BIN" run "$model" --ids 1,403,407 -n 8 --print-ids >"$work/b" 2>&1 &
second=$!
wait $first
wait $second
same 'two at once, the first' "$golden" "$(cat "$work/a")"
same 'two at once, the second' "$golden" "$(cat "$work/b")"
same 'and one bundle' 1 "$(bundles)"
same 'and nothing else' 1 "$(find "$work/cache" -type f | wc -l | tr -d ' ')"

rm -rf "$work/cache"
: >"$work/cache" # a file where the folder should be
if go && [ "$out" = "$golden" ] && printf '%s\n' "$err" | grep -q 'temporary file' && [ "$(wc -l <"$work/err")" = 1 ]; then
    ok 'without a cache: a temporary file, and a note'
else
    not_ok 'without a cache' "$status" "$out" "$err"
fi
rm "$work/cache"
mkdir "$work/home"
status=0
out=$(env -u XDG_CACHE_HOME HOME="$work/home" "$TW_BIN" run "$model" --ids 1,403,407 -n 8 --print-ids) || status=$?
same 'without XDG_CACHE_HOME: under HOME' "0 $golden 1" "$status $out $(find "$work/home/.cache/tilewright" -name '*.twb' | wc -l | tr -d ' ')"
out=$(env XDG_CACHE_HOME=relative HOME="$work/home" "$TW_BIN" run "$model" --ids 1,403,407 -n 8 --print-ids)
same 'a relative XDG_CACHE_HOME is ignored' "$golden" "$out"
check 'and not created' [ ! -e relative ]
status=0
out=$(env -u XDG_CACHE_HOME -u HOME TMPDIR="$work" "$TW_BIN" run "$model" --ids 1,403,407 -n 8 --print-ids 2>/dev/null) || status=$?
same 'without HOME as well: a temporary file' "0 $golden" "$status $out"
check 'the note does not name a folder that is not there' sh -c 'env -u XDG_CACHE_HOME -u HOME "$1" run "$2" --ids 1 -n 1 2>&1 >/dev/null | grep -q "cannot use the cache in XDG_CACHE_HOME or HOME"' _ "$TW_BIN" "$model"
same 'which is gone afterwards' '' "$(find "$work" -maxdepth 1 -name 'tilewright-*')"

# A signal while it is compiled: neither the file nor its folder is left. (A run that is faster than the signal is
# repeated.)
cat >"$work/kill.py" <<'EOF'
import glob, os, subprocess, sys
folder = sys.argv[3]
os.environ["TMPDIR"], os.environ["XDG_CACHE_HOME"] = folder, "/dev/null"
for attempt in range(50):
    p = subprocess.Popen([sys.argv[1], "run", sys.argv[2], "--target", "grid8x8", "-n", "1"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    while p.poll() is None and not glob.glob(folder + "/tilewright-*"):
        pass
    p.terminate()
    if p.wait() == 130:
        break
print(p.returncode, os.listdir(folder))
EOF
mkdir "$work/tmp"
same 'a signal leaves no temporary folder' '130 []' "$(python3 "$work/kill.py" "$TW_BIN" "$model" "$work/tmp")"

# No room in the cache, and none for a temporary file either.
mkdir "$work/small"
status=0
(ulimit -f 64 && XDG_CACHE_HOME=$work/small TMPDIR=$work/small exec "$TW_BIN" run "$model" -n 1) \
    >"$work/out" 2>"$work/err" || status=$?
same 'a full cache: status 5' 5 "$status"
check 'a temporary file was tried' grep -q 'small/tilewright/.*; compiling into a temporary file' "$work/err"
same 'and nothing is left' '' "$(find "$work/small" -type f -o -name 'tilewright-*')"

# A cache that another user could have filled is not used: neither a folder nor an entry that is not ours.
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$work/other/tilewright"
    chown 54321 "$work/other/tilewright"
    XDG_CACHE_HOME=$work/other "$TW_BIN" run "$model" --ids 1 -n 1 >"$work/out" 2>"$work/err"
    same "another user's cache folder: status" 0 "$?"
    check "it says whose the folder is" grep -q 'other/tilewright.*belongs to user 54321' "$work/err"
    same "and nothing is put there" '' "$(ls "$work/other/tilewright")"
    mkdir "$work/mine"
    XDG_CACHE_HOME=$work/mine "$TW_BIN" run "$model" --ids 1 -n 1 >/dev/null 2>&1
    chown 54321 "$work"/mine/tilewright/*.twb
    XDG_CACHE_HOME=$work/mine "$TW_BIN" run "$model" --ids 1 -n 1 >"$work/out" 2>"$work/err"
    same "another user's entry: status" 0 "$?"
    check "it says that the entry is not used" grep -q 'belongs to user 54321.*not used' "$work/err"
fi
finish
