#!/bin/bash
# Every SDK header compiles alone, without a warning, as C and as C++, and so does the frozen
# layout.   headers.sh SOURCE_ROOT
set -u
root=$1
failed=0
ran=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

compile() { # compiler language standard source
    ran=$((ran + 1))
    if ! "$1" -x "$2" -std="$3" -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only \
        -I"$root/core/include" "$4" 2>"$tmp/log"; then
        echo "$(head -1 "$4" | cut -c1-60): $1 -std=$3:"
        head -5 "$tmp/log"
        failed=$((failed + 1))
    fi
}

for header in "$root"/core/include/tessera/*.h; do
    name=$(basename "$header" .h)
    echo "#include \"tessera/$name.h\"" >"$tmp/$name.c"
done
cp "$root/tests/abi/layout_v1.c" "$tmp/layout.c"

for source in "$tmp"/*.c; do
    for cc in gcc clang-14; do
        command -v "$cc" >/dev/null || continue
        compile "$cc" c c11 "$source"
        compile "$cc" c c17 "$source"
    done
    for cxx in g++ clang++-14; do
        command -v "$cxx" >/dev/null || continue
        compile "$cxx" c++ c++11 "$source"
        compile "$cxx" c++ c++20 "$source"
    done
done
echo "$ran compilations, $failed failed"
# gcc is always there: two standards of eight sources are the least
[ "$failed" -eq 0 ] && [ "$ran" -ge 16 ]
