#!/bin/bash
# coverage.sh SOURCE_ROOT NEWER_INCLUDE - layout_v1.c asserts the place of every member and the size
# of every public struct, and the value of every constant; a member that came without a line is found.
# The structs are what the compiler says of the headers, not what a pattern finds in them.
set -euo pipefail
export LC_ALL=C
root=$1 newer=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
layout=$root/tests/abi/layout_v1.c

# wanted INCLUDE_DIR: the lines that the layout of these headers must have, without the values.
wanted() {
    local all=$tmp/all.c
    for header in "$1"/tessera/*.h; do
        echo "#include <tessera/$(basename "$header")>"
    done >"$all"
    gcc -std=c11 -g -gdwarf-4 -fno-eliminate-unused-debug-types -I"$1" -c "$all" -o "$tmp/all.o"
    readelf --debug-dump=info "$tmp/all.o" 2>/dev/null | awk '
        /Abbrev Number/ {
            depth = $1; gsub(/^<|>.*$/, "", depth)
            tag = $NF
            if (tag ~ /structure_type|union_type/) { owner = ""; at = depth; word = tag ~ /union/ ? "union" : "struct" }
            else if (depth <= at) owner = ""
            next
        }
        /DW_AT_name/ {
            if (tag ~ /structure_type|union_type/ && depth == at) {
                owner = $NF ~ /^tsr_/ ? word " " $NF : ""
                if (owner != "") print "SIZE(" owner ","
            } else if (tag ~ /DW_TAG_member/ && owner != "")
                print "AT(" owner ", " $NF ","
        }'
    gcc -std=c11 -I"$1" -E -dM "$all" | awk '
        $1 == "#define" && $2 ~ /^TSR_[A-Z0-9_]+$/ && NF > 2 && $2 != "TSR_PLUGIN_HEADER" {
            print ($3 ~ /^"/ ? "TEXT(" : $3 ~ /^[0-9.]+e-?[0-9]+$/ ? "REAL(" : "IS(") $2 ","
        }' | grep -v '^IS(TSR_ABI_MINOR,' || true
}

# missing INCLUDE_DIR: those that it has not.
missing() {
    wanted "$1" >"$tmp/wanted"
    sed -nE 's/^((SIZE|AT)\([a-z0-9_ ]+,( [a-z0-9_]+,)?|(IS|TEXT|REAL)\([A-Z0-9_]+,).*/\1/p' "$layout" |
        sort -u >"$tmp/have"
    sort -u "$tmp/wanted" | comm -23 - "$tmp/have"
}

failed=0
# shellcheck disable=SC2310 # set -e inside does not matter: the counts below are checked
missing "$root/core/include" >"$tmp/missing"
structs=$(grep -c '^SIZE' "$tmp/wanted") members=$(grep -c '^AT' "$tmp/wanted")
constants=$(grep -cE '^(IS|TEXT|REAL)' "$tmp/wanted")
echo "$structs structs, $members members, $constants constants"
if [ -s "$tmp/missing" ]; then
    echo "tests/abi/layout_v1.c has no line for:"
    sed 's/,$//; s/$/, ...)/' "$tmp/missing"
    failed=1
fi
# Every struct that the headers spell out was seen.
spelled=$(cat "$root"/core/include/tessera/*.h | grep -cE '^(struct|union) tsr_[a-z0-9_]+ \{$')
[ "$spelled" = "$structs" ] || { echo "the headers define $spelled structs"; failed=1; }

# It does find what is missing: each struct of the later minor has one more member.
missing "$newer" >"$tmp/missing"
later=$(cat "$newer"/tessera/*.h | grep -c '^    uint64_t later;$')
found=$(grep -c '^AT(.*, later,$' "$tmp/missing" || true)
if [ "$later" -lt 20 ] || [ "$later" != "$found" ]; then
    echo "of $later members without a line, $found were found"
    failed=1
fi
exit $failed
