#!/bin/bash
# tests/e2e/reference.sh TESSERA - docs/reference is what the program's tables and the headers say, and the check
# notices where it is not.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

check() { "$1/tools/reference/make" --check "$TESSERA" >"$WORK/out" 2>"$WORK/err"; }

ok "the pages are what the tables and headers say" check "$ROOT"
head -n 40 "$WORK/out"

mkdir "$WORK/tree" "$WORK/tree/docs"
ln -s "$ROOT/tools" "$ROOT/core" "$WORK/tree/"
cp -r "$ROOT/docs/reference" "$WORK/tree/docs/"
page=$WORK/tree/docs/reference
ok "and so is a copy" check "$WORK/tree"
# not CHANGE...: the check fails behind it, and names tools/docs
notices() {
    local name=$1
    shift
    "$@"
    ok "$name is noticed" eval '! check "$WORK/tree"'
    ok "$name: the error says what to run" grep -q 'run tools/docs$' "$WORK/err"
    rm -rf "$page"
    cp -r "$ROOT/docs/reference" "$page"
}
notices "another default" sed -i 's/| 128 |/| 64 |/' "$page/plugins/quantizer-rtn.md"
notices "a page that is missing" rm "$page/verbs/run.md"
notices "a page of nothing" touch "$page/steps/nothing.md"
notices "another comment of a function" sed -i 's/TSR_E_NOMEM/TSR_E_IO/' "$page/headers/codec.md"

# Each verb, step, key, option and header has its place.
run help --json
cp "$WORK/out" "$WORK/help"
while read -r file words; do
    ok "$file has $words" grep -qF -- "$words" "$ROOT/docs/reference/$file"
done < <(jq -r '(.verbs[] | .name as $v | .options[] | "verbs/\($v).md --" +
        (if .type == "bool" and .default == true then "no-" else "" end) + .flag),
    (.steps[] | select(.plugin == null) | .name as $s | .options[] | "steps/\($s).md | `\(.name)` |"),
    (.job[] | "job.md | `\(.name)` |"), (.common[] | "verbs.md --\(.flag)")' "$WORK/help")
for header in "$ROOT"/core/include/tessera/*.h; do
    page=$ROOT/docs/reference/headers/$(basename "$header" .h).md
    while read -r function; do
        ok "${header##*/}: $function" grep -qE "^##+ .$function.$" "$page"
    done < <(sed -nE 's/^    [a-z][^(]*\(\*([a-z_0-9]+)\)\(.*/\1/p' "$header" | sort -u)
done

finish
