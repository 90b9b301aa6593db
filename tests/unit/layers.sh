#!/bin/bash
# tests/unit/layers.sh ROOT - tools/layers passes on the tree, and fails on each thing that it checks for.
set -euo pipefail
export LC_ALL=C
ROOT=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
checks=0

# small: a tree of two folders that passes.
small() {
    rm -rf "$work/t"
    mkdir -p "$work/t/core/low" "$work/t/core/high" "$work/t/core/include/tessera"
    echo '#define LOW' >"$work/t/core/low/low.h"
    echo '#include "tessera/plugin.h"' >"$work/t/core/low/low.c"
    echo '#include "low/low.h"' >"$work/t/core/high/high.c"
    printf '%s\n' 'include: | headers' 'low: include | below' 'high: low | above' >"$work/t/core/layers.txt"
    printf '%s\n' '# t' '' '<!-- tools/layers --write puts this here -->' '<!-- end of tools/layers -->' >"$work/t/ARCHITECTURE.md"
    "$ROOT/tools/layers" --write "$work/t" >"$work/out" 2>&1
}

# refuses NAME PATTERN: tools/layers fails on the small tree as it is now, with this sentence.
refuses() {
    checks=$((checks + 1))
    if "$ROOT/tools/layers" --check "$work/t" >"$work/out" 2>&1 || ! grep -qF -- "$2" "$work/out"; then
        wrong=$((wrong + 1))
        echo "WRONG: $1"
        cat "$work/out"
    fi
}

checks=$((checks + 1))
"$ROOT/tools/layers" --check "$ROOT" || wrong=$((wrong + 1))
checks=$((checks + 1))
small && "$ROOT/tools/layers" --check "$work/t" >/dev/null || wrong=$((wrong + 1))

echo '#include "high/high.h"' >>"$work/t/core/low/low.c"
refuses 'an edge upwards' 'core/low/low.c: includes "high/high.h", but core/layers.txt has no edge from low to high'
sed -i 's/^low: include/low: include high/' "$work/t/core/layers.txt"
refuses 'a declared edge upwards' 'low stands before high, which it includes'
small
mkdir "$work/t/core/new"
echo >"$work/t/core/new/new.c"
refuses 'a folder that is not listed' 'core/new is not in core/layers.txt'
small
echo 'gone: | nothing' >>"$work/t/core/layers.txt"
refuses 'a listed folder without code' 'lists gone, which has no code'
small
sed -i 's/^high: low/high: include low/' "$work/t/core/layers.txt"
refuses 'an edge that no file uses' 'no file of high includes include'
small
echo '#include "tessera/codec.h"' >>"$work/t/core/high/high.c"
sed -i 's/^high: low/high: include low/' "$work/t/core/layers.txt"
refuses 'an old diagram' 'is not of today'

# inside a folder
circle='these files of a folder include each other in a circle: low/'
small
echo '#include "low/other.h"' >>"$work/t/core/low/low.c"
echo '#include "low/low.h"' >"$work/t/core/low/other.h"
refuses 'two files in a circle' "$circle"
small
echo '#include "low/b.h"' >"$work/t/core/low/a.c"
echo '#include "low/c.h"' >"$work/t/core/low/b.h"
echo '#include "a.h"' >"$work/t/core/low/c_internal.h"
refuses 'three files in a circle, one by its internal header' "$circle"
small
echo '#include "low/low_internal.h"' >>"$work/t/core/low/low.c"
printf '%s\n' '#include "low/low.h"' '#include "low/internal.h"' >"$work/t/core/low/low_internal.h"
echo '#include "low/low.h"' >"$work/t/core/low/internal.h"
checks=$((checks + 1))
"$ROOT/tools/layers" --check "$work/t" >/dev/null || wrong=$((wrong + 1))

echo "$checks checks, $wrong wrong"
[ $wrong = 0 ]
