#!/bin/bash
# probe.sh SOURCE_ROOT NEWER_INCLUDE REPORT_DIR - what abidiff says about the headers of every former
# minor and those of today: abidiff-1.N.txt, for reviewers.  Plugins show it nothing, since their
# tables hang off a pointer to void; so each set of headers becomes an object that exports one
# variable per public struct.  abidiff calls an appended member and an inserted one the same, so
# that judging the report is left to layout_v1.c.
set -euo pipefail
export LC_ALL=C
root=$1 newer=$2 reports=$3
if ! command -v abidiff >/dev/null; then
    echo "SKIPPED: abidiff is not installed (Debian package abigail-tools), no report is made"
    exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

# probe NAME INCLUDE_DIR
probe() {
    local header
    for header in "$2"/tessera/*.h; do
        echo "#include <tessera/$(basename "$header")>"
    done >"$tmp/$1.c"
    cat "$2"/tessera/*.h |
        sed -nE 's/^((struct|union) (tsr_[a-z0-9_]+)) \{$/extern \1 probe_\3; \1 probe_\3;/p' >>"$tmp/$1.c"
    gcc -std=c11 -g -fPIC -shared -I"$2" "$tmp/$1.c" -o "$tmp/$1.so"
}

# diff_of NAME OTHER REPORT: the report; fails where abidiff failed or a struct is gone.
diff_of() {
    local rc=0
    abidiff "$tmp/$1.so" "$tmp/$2.so" >"$3" 2>&1 || rc=$?
    # bit 0: an error, bit 1: wrong use, bit 2: a change, bit 3: an incompatible one
    [ $((rc & ~4)) = 0 ] || { echo "abidiff $1 $2: exit code $rc"; head -20 "$3"; failed=1; }
}

probe today "$root/core/include"
probe newer "$newer"
objects=$(nm "$tmp/today.so" | grep -c ' probe_tsr_')
[ "$objects" -ge 34 ] || { echo "the probe has $objects objects only"; failed=1; }
for dir in "$root"/tests/abi/headers-1.*; do
    minor=${dir##*headers-}
    probe "$minor" "$dir"
    diff_of "$minor" today "$reports/abidiff-$minor.txt"
    echo "$reports/abidiff-$minor.txt: $(grep -c 'data member insertion' "$reports/abidiff-$minor.txt" || true) insertions"
done
# It is about something: what 1.1 brought is told, nothing is between a set and itself, and a later
# minor shows a change.
grep -q 'max_error_steps' "$reports/abidiff-1.0.txt" || { echo "the report lacks 1.1's member"; failed=1; }
diff_of today today "$tmp/same.txt"
grep -q 'later' "$tmp/same.txt" && failed=1
diff_of today newer "$tmp/newer.txt"
grep -q 'later' "$tmp/newer.txt" || { echo "a new member is not seen"; failed=1; }
exit $failed
