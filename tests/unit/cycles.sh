#!/bin/bash
# tests/unit/cycles.sh ROOT BUILD CC - tools/layers --calls passes on the objects of BUILD, and fails on a circle of
# calls, on one that is listed and gone, and on a source without an object.
set -euo pipefail
export LC_ALL=C
ROOT=$1
BUILD=$2
CC=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
checks=0

# small: a tree with one folder, in which high calls low, and its objects.
small() {
    rm -rf "$work/t"
    mkdir -p "$work/t/core/one" "$work/t/build"
    echo 'void low(void); void low(void) {}' >"$work/t/core/one/low.c"
    echo 'void low(void); void high(void); void high(void) { low(); }' >"$work/t/core/one/high.c"
}

# build: the objects of the tree, and the list of them as meson writes it.
build() {
    local f
    for f in "$work"/t/core/*/*.c; do
        f=${f##*/core/}
        "$CC" -c -o "$work/t/build/${f//\//_}.o" "$work/t/core/$f"
        printf '  "file": "../core/%s",\n  "output": "%s.o"\n' "$f" "${f//\//_}"
    done >"$work/t/build/compile_commands.json"
}

# says PATTERN STATUS WHAT: the check of the tree ends with the status, and with this in what it says.
says() {
    local rc=0
    checks=$((checks + 1))
    "$ROOT/tools/layers" --calls "$work/t/build" "$work/t" >"$work/out" 2>&1 || rc=$?
    if [ $rc != "$2" ] || ! grep -qF -- "$1" "$work/out"; then
        wrong=$((wrong + 1))
        echo "WRONG: $3"
        cat "$work/out"
    fi
}

checks=$((checks + 1))
"$ROOT/tools/layers" --calls "$BUILD" "$ROOT" || wrong=$((wrong + 1))

circle='these files of a folder call each other in a circle: core/one: high low; high calls low() of low; low calls high() of high'
small
build
says '2 objects, 0 circles' 0 'a tree without a circle'
echo 'void high(void); void low(void); void low(void) { high(); }' >"$work/t/core/one/low.c"
build
says "$circle" 1 'two files in a circle'
printf '%s\n' '# circles' 'core/one: high low | one idea' >"$work/t/core/cycles.txt"
says '2 objects, 1 circles' 0 'a circle that is listed'
echo 'core/one: high low' >"$work/t/core/cycles.txt"
says 'has no reason' 1 'a circle without a reason'
small
build
echo 'core/one: high low | one idea' >"$work/t/core/cycles.txt"
says 'lists core/one: high low, which is no circle' 1 'a listed circle that is gone'
small
echo 'extern int table; void *low(void); void *low(void) { return &table; }' >"$work/t/core/one/low.c"
echo 'void *low(void); int table = 1; void *high(void); void *high(void) { return low(); }' >"$work/t/core/one/high.c"
build
says 'low calls table() of high' 1 'a circle by a table'
small
build
rm "$work/t/build/one_low.c.o"
says 'core/one/low.c has no object' 1 'a source without an object'
small
mkdir "$work/t/core/two"
echo 'void high(void); void low(void); void low(void) { high(); }' >"$work/t/core/two/low.c"
build
says '3 objects, 0 circles' 0 'files of two folders'

echo "$checks checks, $wrong wrong"
[ $wrong = 0 ]
