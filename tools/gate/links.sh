#!/bin/bash
# tools/gate/links.sh [--self-test | FILE...] - every relative link of the tree's pages leads to a file that is there, and
# its anchor to a heading of that page; where a page says `file.c`: `function()`, that file has this function.  Without FILE:
# every *.md that git does not ignore.  --self-test: broken links are found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
export LC_ALL=C.UTF-8

# anchors FILE: those of its headings, as the forges make them
anchors() {
    awk '/^ *```/ { f = !f } !f && /^#+ / {
        s = tolower($0); sub(/^#+ +/, "", s)
        gsub(/\]\([^)]*\)/, "", s); gsub(/[^a-z0-9 _-]/, "", s); gsub(/ /, "-", s)
        print n[s]++ ? s "-" n[s] - 1 : s }' "$1"
}

# links FILE: LINE TARGET, code left out
links() {
    awk '/^ *```/ { f = !f } !f {
        s = $0; gsub(/`[^`]*`/, "", s)
        while (match(s, /\]\([^) ]*\)/)) {
            print NR, substr(s, RSTART + 2, RLENGTH - 3); s = substr(s, RSTART + RLENGTH) } }' "$1"
}

# functions FILE: LINE FILE FUNCTION of each `file.c`: `function()`, also across the end of a line
functions() {
    awk '{ s = held $0; from = held == "" ? NR : NR - 1; held = ""
        while (match(s, /`[a-z0-9_\/]+\.[ch]`: `[a-z0-9_]+\(\)`/)) {
            t = substr(s, RSTART + 1, RLENGTH - 4); split(t, w, /`: `/); print from, w[1], w[2]; s = substr(s, RSTART + RLENGTH) }
        if (s ~ /`[a-z0-9_\/]+\.[ch]`:$/) held = s " " }' "$1"
}

if [ "${1:-}" = --self-test ]; then
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    printf '# One `two`, three!\n\n[a](#one-two-three) [b](other.md#x-1) `[c](gone.md)` [d](https://example.org)\n' >"$dir/good.md"
    printf '# X\n# X\nSee `a.c`: `one()`, `a.c`:\n`one()`.\n' >"$dir/other.md"
    printf 'int one(void)\n{\n    two();\n}\n' >"$dir/a.c"
    printf '[a](gone.md)\n\n[b](other.md#y)\n`a.c`: `one()`, `a.c`: `two()`, `b.c`:\n`one()`\n' >"$dir/bad.md"
    "$here/links.sh" "$dir/good.md" "$dir/other.md" || { echo "self-test: the good page fails"; exit 1; }
    if "$here/links.sh" "$dir/bad.md" >"$dir/out"; then
        echo "self-test: the bad page passes"
        exit 1
    fi
    diff - "$dir/out" <<OUT
$dir/bad.md:1: gone.md: there is no such file
$dir/bad.md:3: other.md#y: $dir/other.md has no such heading
$dir/bad.md:4: a.c: has no function two()
$dir/bad.md:4: b.c: has no function one()
OUT
    exit
fi
[ $# -gt 0 ] || mapfile -t pages < <(git ls-files --cached --others --exclude-standard '*.md' | sort -u)
[ $# = 0 ] || pages=("$@")
bad=0 n=0
for page in "${pages[@]}"; do
    [ -f "$page" ] || continue
    while read -r line target; do
        case $target in http:* | https:* | mailto:*) continue ;; esac
        n=$((n + 1))
        file=${target%%#*} anchor=''
        [[ $target != *'#'* ]] || anchor=${target#*#}
        to=$page
        [ -z "$file" ] || to=$(dirname "$page")/$file
        if [ ! -e "$to" ]; then
            echo "$page:$line: $target: there is no such file"
        elif [ -n "$anchor" ] && ! anchors "$to" | grep -qxF -- "$anchor"; then
            echo "$page:$line: $target: $to has no such heading"
        else
            continue
        fi
        bad=$((bad + 1))
    done < <(links "$page")
    while read -r line file function; do
        for at in "$(dirname "$page")/$file" "$file" "core/$file"; do
            [ ! -f "$at" ] || break
        done
        # a definition: the name at the start of a line or after a type, not indented
        grep -qsE "^([a-z].*[ *])?$function\(" "$at" && continue
        echo "$page:$line: $file: has no function $function()"
        bad=$((bad + 1))
    done < <(functions "$page")
done
[ $n -gt 0 ] || { echo "no page has a link"; exit 1; }
[ $bad = 0 ]
