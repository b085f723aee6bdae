#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Documents stay true: links of every Markdown file lead somewhere, file tables of READMEs and paths below tests/ exist, every
# room is in its folder's README, lines fit, and man pages format without a warning and refer to pages that exist.
# shellcheck disable=SC2016 # parameters of sh -c
. tests/tools/tap.sh

cat >"$work/markdown.py" <<'PY'
import glob, os, re, sys

bad = []
files = os.popen("git ls-files --cached --others --exclude-standard '*.md' 2>/dev/null").read().split()
if not files:  # no git, or no checkout
    files = glob.glob("**/*.md", recursive=True) + glob.glob(".github/*.md")
files = sorted(f for f in files if not f.startswith("build/"))

def is_file_name(word):
    return re.fullmatch(r"[\w./*-]+", word) and ("/" in word or re.search(r"\.[a-z]{1,6}$", word))

for path in files:
    folder = os.path.dirname(path)
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        where = "%s:%d" % (path, number)
        if len(line) > 100 and not line.startswith("|"):
            bad.append("%s: %d columns" % (where, len(line)))
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            if "://" not in link and not os.path.exists(os.path.join(folder, link)):
                bad.append("%s: link to %s, which does not exist" % (where, link))
        for word in re.findall(r"`(tests/[^` {}]+)`", line):
            if not glob.glob(word.replace("NAME", "*")):
                bad.append("%s: names %s, which does not exist" % (where, word))
        if line.startswith("|"):
            for word in re.findall(r"`([^`]+)`", line.split("|")[1]):
                if is_file_name(word) and not glob.glob(os.path.join(folder, word)):
                    bad.append("%s: names %s, which does not exist" % (where, word))

for folder in ("loader", "firmware", "driver", "compiler"):
    text = open(folder + "/README.md", encoding="utf-8").read()
    for room in sorted(os.listdir(folder)):
        if os.path.isdir(os.path.join(folder, room)) and "`%s/`" % room not in text:
            bad.append("%s/README.md does not name the room %s/" % (folder, room))

print("%d files" % len(files))
for line in bad:
    print(line)
sys.exit(1 if bad or len(files) < 15 else 0)
PY
if found=$(python3 "$work/markdown.py" 2>&1); then
    ok 'Markdown files: links, file names, rooms and width'
else
    not_ok 'Markdown files: links, file names, rooms and width' "$found"
fi

# What a page's SEE ALSO and text call NAME (N), of our own pages.
references() {
    sed -e 's/\\-/-/g' -e 's/[\\"]//g' "$1" | grep -oE '\b(tilewright(-[a-z]+)?|tws) ?\([1-8]\)' | tr -d ' ' | sort -u
}

for page in tools/man/*.[1-8]; do
    missing=''
    for name in $(references "$page"); do
        file=tools/man/$(echo "$name" | sed 's/(\(.\))/.\1/')
        [ -f "$file" ] || missing="$missing $name"
    done
    same "${page##*/} refers to pages that exist" '' "$missing"
    if ! command -v groff >/dev/null; then
        echo "skip ${page##*/}: groff is not installed"
        continue
    fi
    # Tables too wide for 80 columns and lines that cannot be adjusted are no mistakes.
    warnings=$(groff -man -t -Tutf8 -ww -z "$page" 2>&1 | grep -v 'adjust line\|break line')
    same "${page##*/} formats without a warning" '' "$warnings"
done
for page in tools/man/*.[1-8]; do
    case ${page##*/} in
    tilewright.1) ;;
    *) check "tilewright.1 names ${page##*/}" sh -c 'sed "s/.-/-/g; s/[\\\\\"]//g" tools/man/tilewright.1 | grep -qF "$1 ($2)"' _ \
        "$(basename "${page%.*}")" "${page##*.}" ;;
    esac
done
finish
