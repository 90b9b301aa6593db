#!/bin/bash
# tests/e2e/install.sh TESSERA - `meson install` gives a tree that works where it is put.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
BUILD=$(dirname "$TESSERA")

meson install -C "$BUILD" --no-rebuild --destdir "$WORK/root" >"$WORK/log" 2>&1 ||
    { cat "$WORK/log"; exit 1; }
TESSERA=$(find "$WORK/root" -type f -name tessera -perm -u+x)
prefix=$(dirname "$(dirname "$TESSERA")")
ok "one program" test -x "$TESSERA"
ok "the demo model" test -s "$prefix/share/tessera/demo/model.safetensors"
ok "the SDK header" test -s "$prefix/include/tessera/plugin.h"
ok "a man page" grep -q '^\.TH' "$prefix/share/man/man1/tessera-run.1"
for plugin in awq cpu int8 local mx plain rtn squeeze uniform; do
    ok "plugin $plugin" test -s "$prefix/lib/tessera/$plugin.so"
done

run inspect rtn --json
ok "a plugin is found in lib/tessera" json --arg path "$prefix/lib/tessera/rtn.so" \
    '[.. | strings] | any(. == $path)' "$WORK/out"
run config check "$prefix/share/tessera/quickstart.yaml"
ok "the installed quickstart is a good job" test "$rc" = 0
run generate @demo --prompt "It was" --max-tokens 4 --greedy --json
ok "@demo is found" json '.tokens | length == 4' "$WORK/out"

finish
