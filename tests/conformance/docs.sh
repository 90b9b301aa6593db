#!/usr/bin/env bash
# docs.sh TESSERA DOCS/ABI.MD [--write] - the page's table of rules is what `tessera plugin check
# --list` says; --write makes it so.
set -euo pipefail
tessera=$1 page=$2

table() {
    printf '| Kind | Rule | What it wants |\n|---|---|---|\n'
    "$tessera" plugin check --list | sed -E 's/^([a-z]+) +([a-z0-9-]+) +(.*)$/| \1 | `\2` | \3 |/'
}

# The page with the lines between its two marks replaced by the table.
made() {
    local inside=0
    while IFS= read -r line; do
        case $line in
        '<!-- rules: '*) printf '%s\n' "$line"; table; inside=1 ;;
        '<!-- end of rules -->') inside=0 ;;&
        *) [ $inside = 1 ] || printf '%s\n' "$line" ;;
        esac
    done <"$page"
}

if ! grep -q "^<!-- rules: " "$page" || ! grep -q "^<!-- end of rules -->$" "$page"; then
    echo "$page has no place for the table of rules" >&2
    exit 1
fi
if [ "${3:-}" = --write ]; then
    made >"$page.new"
    mv "$page.new" "$page"
elif ! diff -u "$page" <(made); then
    echo "$page: the table of rules is another one; run $0 TESSERA $page --write" >&2
    exit 1
fi
