#!/bin/bash
# tests/e2e/examples.sh TESSERA - the plugins of examples/ are built by the commands of examples/README.md, keep the rules, and work.
# A language without a compiler here is left out.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
umask 022
mkdir -p "$WORK/include"
ln -s "$ROOT/core/include/tessera" "$WORK/include/tessera"
# example LANGUAGE COMPILER NAME EXACT
example() {
    local line
    if ! command -v "$2" >/dev/null; then
        echo "left out: no $2"
        return 0
    fi
    cp "$ROOT/examples/$1/"* "$WORK"
    # shellcheck disable=SC2016 # backquotes of the page
    line=$(sed -n "s/^| \[$1\].*| \`\(.*\)\` |\$/\1/p" "$ROOT/examples/README.md")
    ok "$1: the page has its command" test -n "$line"
    ok "$1: the command builds it" eval '(cd "$WORK" && ${line//PREFIX\/include/include}) >"$WORK/err" 2>&1'
    run plugin check "$3.so"
    ok "$1: it keeps the rules" test "$rc" = 0
    run bench comm --plugin-path "$3.so" --ranks 2 --sizes 1,3 --hidden 96 --codecs "$3" --repeats 1 --json
    ok "$1: ranks exchange messages in it" test "$rc" = 0
    run inspect "$WORK/$3.so" --json
    ok "$1: it is described" json --arg n "$3" '.components[0] | .name == $n and .kind == "codec"' "$WORK/out"
}
example rust rustc shorten
cp "$ROOT/examples/codebook/"* "$WORK"
# shellcheck disable=SC2016 # backquotes of the page
line=$(sed -n 's/^| \[codebook\].*| `\(.*\)` |$/\1/p' "$ROOT/examples/README.md")
ok "codebook: the page has its command" test -n "$line"
ok "codebook: the command builds it" eval '(cd "$WORK" && ${line//PREFIX\/include/include}) >"$WORK/err" 2>&1'
run inspect "$WORK/codebook.so" --json
ok "codebook: it is described" json '.components[0] | .name == "codebook" and .kind == "quantizer"' "$WORK/out"
if [ "$(zig version 2>/dev/null | cut -d . -f 1,2)" = 0.15 ]; then
    example zig zig planes
else
    echo "left out: no zig 0.15"
fi
finish
