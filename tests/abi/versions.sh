#!/bin/bash
# tests/abi/versions.sh TESSERA OLDER.so NEWER.so - the program quantizes a model with a plugin that was
# built with the headers of ABI 1.0, and with one built with those of a later minor: a whole job each;
# and the conformance tester takes both.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/../e2e/lib.sh"
DEMO=$ROOT/configs/demo

# job NAME PLUGIN MINOR
job() {
    local so
    so=$(readlink -f "$2")
    run inspect "$so" --json
    ok "$1: is built for ABI 1.$3" json --arg abi "1.$3" '.components[0] | .abi == $abi and .name == "sample"' "$WORK/out"
    cat >"$WORK/$1.yaml" <<JOB
version: 1
model: "@demo"
plugins: [$so]
pipeline:
  - quantize: {use: sample, limit: 100}
  - eval: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 1}
JOB
    run run "$1.yaml" --out "$1"
    ok "$1: the job runs, got $rc" test "$rc" = 0
    ok "$1: with its format" json '.results.quantize.linears[0].format | test("int8|tessera.int/1")' "$WORK/$1/results.json"
    ok "$1: nothing is warned about" test "$(grep -c warning: "$WORK/err")" = 0
}
# The tester takes them as well; what a table lacks is not asked for.
for so in "$2" "$3"; do
    so=$(readlink -f "$so")
    run plugin check --no-model "$so"
    ok "every rule holds for $(basename "$so")" test "$rc" = 0
    ok "the promise that 1.0 has no place for is passed over" grep -q 'skipped .*error-steps' "$WORK/out"
done
perplexity() { jq -r '.results.eval.perplexity' "$WORK/$1/results.json"; }

job older "$2" 0
job newer "$3" "$(($(sed -n 's/^#define TSR_ABI_MINOR *//p' "$ROOT/core/include/tessera/plugin.h") + 1))"
ok "the same numbers come out" test "$(perplexity older)" = "$(perplexity newer)"
cat >"$WORK/plain.yaml" <<JOB
version: 1
model: "@demo"
pipeline:
  - eval: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 1}
JOB
run run plain.yaml --out plain
# codes of 100 steps a side: a weight moves by 0.5 % of the row's largest at most
ok "near those of the model itself" awk -v a="$(perplexity older)" -v b="$(perplexity plain)" \
    'BEGIN { exit !(a > 1 && b > 1 && a < 1.02 * b && b < 1.02 * a && a != b) }'
finish
