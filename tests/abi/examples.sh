#!/bin/bash
# examples.sh SOURCE_ROOT - every public header opens with an example of 5 to 15 lines in its comment.  The
# example uses a name that the header defines, and compiles as C11 after an include of that header.
set -euo pipefail
export LC_ALL=C
root=$1
include=$root/core/include
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for compiler in gcc clang-14; do
    command -v "$compiler" >/dev/null ||
        { echo "$compiler is not installed; run tools/setup.sh test"; exit 1; }
done

# example_of HEADER: the indented lines after " * Example" in the header's first comment.
example_of() {
    awk '
        /^ \* Example/ { found = 1; next }
        / \*\/$/ || /^ \*\/$/ { exit }
        found && /^ \*     / { print substr($0, 8); next }
        found && /^ \*$/ { print ""; next }
        found { exit }' "$1"
}

# names_of HEADER: the constants, macros, types and functions that it defines.
names_of() {
    sed -nE 's/^#define (TSR_[A-Z0-9_]+).*/\1/p; s/^(struct|union) (tsr_[a-z0-9_]+) \{$/\2/p
        s/^typedef .* (tsr_[a-z0-9_]+);$/\1/p; s/^([A-Za-z].*[ *])?(tsr_[a-z0-9_]+)\(.*/\2/p' "$1" | sort -u
}

# check_header HEADER: nothing, or one line that says what is wrong.
check_header() {
    local header=$1 name=${1#"$include/"} lines
    [ "$(sed -n '1s,^/\* \([^ ]*\) - .*,\1,p' "$header")" = "$name" ] ||
        { echo "$name:1: the header opens with \"/* $name - ...\""; return; }
    example_of "$header" >"$tmp/example"
    lines=$(grep -c . "$tmp/example" || true)
    if [ "$lines" -lt 5 ] || [ "$lines" -gt 15 ]; then
        echo "$name: the example has $lines lines; expected 5 to 15"
        return
    fi
    names_of "$header" >"$tmp/names"
    grep -oE '\b(TSR|tsr)_[A-Za-z0-9_]+' "$tmp/example" | sort -u | comm -12 - "$tmp/names" | grep -q . ||
        { echo "$name: the example uses no name that the header defines"; return; }
    { echo "#include \"$name\""; cat "$tmp/example"; } >"$tmp/example.c"
    for compiler in gcc clang-14; do
        "$compiler" -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wno-unused -Wno-unused-parameter -Wno-missing-field-initializers \
            -Werror -fsyntax-only -I"$include" "$tmp/example.c" >"$tmp/log" 2>&1 ||
            { echo "$name: $compiler: $(grep -m 1 'error' "$tmp/log")"; return; }
    done
}

failed=0
headers=0
for header in "$include"/tessera/*.h "$include"/tessera/draft/*.h; do
    wrong=$(check_header "$header")
    [ -z "$wrong" ] || { echo "$wrong"; failed=1; }
    headers=$((headers + 1))
done
echo "$headers headers"
[ "$headers" -ge 22 ] || failed=1

# The check finds a header without an example, a short one, a foreign one and a wrong name.
include=$tmp/include
mkdir -p "$include/tessera"
cp -r "$root/core/include/tessera/." "$include/tessera/"
for edit in '/^ \* Example/,/^ \*\/$/{/\*\/$/!d}' '/^ \*     static/,/^ \*     {/d' \
    '/^ \*     /s/tsr_\|TSR_\|TSR_OK/not_/g' '/^ \*     /s/TSR_OK/TSR_OKAY/'; do
    sed "$edit" "$root/core/include/tessera/status.h" >"$include/tessera/status.h"
    if cmp -s "$root/core/include/tessera/status.h" "$include/tessera/status.h" ||
        [ -z "$(check_header "$include/tessera/status.h")" ]; then
        echo "a header edited by '$edit' passes"
        failed=1
    fi
done
exit $failed
