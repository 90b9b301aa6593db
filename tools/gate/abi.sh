#!/bin/bash
# tools/gate/abi.sh [--write | --freeze | INCLUDE_DIR] - compares the public tables with tests/abi/stored.abixml, which
# abidw made of them: every struct and union of INCLUDE_DIR/tessera/*.h (core/include), with all that they reach.
# Headers in draft/ are left out.
#
#   --write   stores the tables as they are now
#   --freeze  stores the headers and their layout as tests/abi/headers-1.MINOR, which tests/abi/frozen.py holds
#
# Where they differ, one sentence says whether tables have only grown, and the differences follow; exit status 1.
# 77: abigail-tools is missing, or the processor is not x86-64, whose layout is stored.
# shellcheck source=/dev/null
. "$(dirname "$0")/../help.sh"
set -euo pipefail
export LC_ALL=C
root=$(realpath "$(dirname "$0")/../..")
stored=$root/tests/abi/stored.abixml
include=$root/core/include
if [ "${1:-}" = --freeze ]; then
    minor=$(sed -n 's/^#define TSR_ABI_MINOR *//p' "$include/tessera/plugin.h")
    to=$root/tests/abi/headers-1.$minor
    rm -rf "$to"
    mkdir -p "$to/tessera"
    cp "$include"/tessera/*.h "$to/tessera/"
    # A struct may be longer in a later minor; the rest of the layout stays.
    sed -E "1,/\*\//c\\
/* layout_v1.c - the layout of ABI 1.$minor as it was.  Headers of every later minor of major 1 compile\\
 * with it: structs may be longer, no member may be elsewhere.  Not one line may be changed. */
        s/^(#define SIZE.*sizeof\(type\)) ==/\1 >=/" "$root/tests/abi/layout_v1.c" >"$to/layout_v1.c"
    exit 0
fi
[ $# -eq 0 ] || [ "$1" = --write ] || include=$(realpath "$1")

if ! command -v abidw >/dev/null || ! command -v abidiff >/dev/null; then
    echo "SKIPPED: abidw is not installed; tools/setup.sh test installs abigail-tools"
    exit 77
fi
if [ "$(uname -m)" != x86_64 ]; then
    echo "SKIPPED: the stored tables are those of x86-64"
    exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# One variable of each struct: abidw follows types from exported symbols alone. DWARF 4 and the names of
# types as their ids, so that another compiler gives the same file; no path, no line.
for header in "$include"/tessera/*.h; do
    echo "#include <tessera/$(basename "$header")>"
done >"$tmp/tables.c"
sed -nE 's/^((struct|union) (tsr_[a-z0-9_]+)) \{$/extern \1 table_\3; \1 table_\3;/p' \
    "$include"/tessera/*.h >>"$tmp/tables.c"
(cd "$tmp" && gcc -std=c11 -g -gdwarf-4 -fPIC -shared -nostdlib -I"$include" tables.c -o tables.so)
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --type-id-style hash "$tmp/tables.so" |
    sed -E "s| path='[^']*'||" >"$tmp/tables.abixml"

if [ "${1:-}" = --write ]; then
    cp "$tmp/tables.abixml" "$stored"
    exit 0
fi
rc=0
abidiff --leaf-changes-only --no-show-locs "$stored" "$tmp/tables.abixml" >"$tmp/report" 2>&1 || rc=$?
# bit 0: an error, bit 1: wrong use, bit 2: a change, bit 3: a change that is incompatible
if [ $((rc & ~12)) != 0 ]; then
    echo "abidiff failed with exit status $rc:"
    cat "$tmp/report"
    exit 1
fi
[ $rc != 0 ] || exit 0

# Growth by the rules of docs/abi.md is a new table, or a member after the former end of one.
how="tables grew at their end; say so in docs/abi.md, and store them with tools/gate/abi.sh --write"
awk '
    /^$|summary: |^[0-9]+ (Changed|Added|Removed)|reported earlier$/ { next }
    /^ +\[[CA]\]|^.(struct|union) tsr_[a-z0-9_]+. changed:$/ { was = 0; next }
    /size of symbol changed|type of variable changed:|insertions?:$|there are data member changes:$/ { next }
    /type size changed from/ { was = $5; next }
    /, at offset [0-9]+ \(in bits\)$/ && was > 0 && $(NF - 2) >= was { next }
    { broken = 1 }
    END { exit broken }' "$tmp/report" ||
    how="tables changed otherwise than by members at their end, which breaks plugins (docs/abi.md, Versions)"
echo "$include is not what tests/abi/stored.abixml has: $how"
sed -E "/^$|summary: |size of symbol|type of variable/d; s/ table_tsr_[a-z0-9_]+'/'/" "$tmp/report" |
    sed -E "N; /^'.*\n  details were reported earlier/d; P; D"
exit 1
