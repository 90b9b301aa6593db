#!/bin/bash
# tests/digests/compare.sh DIGESTS SET... - the lines of plain C and those of each set that this processor has are the same.
set -euo pipefail
export LC_ALL=C
digests=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$digests" scalar >"$work/scalar"
cases=$(wc -l <"$work/scalar")
wrong=0
compared=0
for set; do
    rc=0
    "$digests" "$set" >"$work/set" 2>"$work/err" || rc=$?
    if [ $rc = 2 ]; then
        continue # not on this processor
    fi
    compared=$((compared + 1))
    if [ $rc != 0 ] || ! grep -qx "set $set" "$work/err" || ! cmp -s "$work/scalar" "$work/set"; then
        wrong=$((wrong + 1))
        echo "WRONG: $set: $(tail -n 1 "$work/err")"
        diff "$work/scalar" "$work/set" | grep '^>' | head -n 20 || true
    fi
done
echo "$cases cases, $compared sets with plain C, $wrong wrong"
[ $wrong = 0 ] && [ "$cases" -gt 200 ]
