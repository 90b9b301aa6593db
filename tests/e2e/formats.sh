#!/bin/bash
# tests/e2e/formats.sh TESSERA FOREIGN.so - weights in every packed format go through eval: what runs is
# said, and neither threads nor instruction set change a result.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FOREIGN=$(readlink -f "$2")
DEMO=$ROOT/configs/demo

# job NAME QUANTIZER: quantizes the demo model and evaluates one window with F32 and with int8.
job() {
    cat >"$WORK/$1.yaml" <<JOB
version: 1
model: "@demo"
plugins: [$FOREIGN]
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 1, seqlen: 64}
  - quantize: $2
  - eval: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 1}
  - eval: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 1, act: a8}
JOB
    run run "$1.yaml" --out "$1" "${@:3}"
}
# perplexity NAME KEY: of eval or eval[2]
perplexity() { jq -r ".results[\"$2\"].perplexity" "$WORK/$1/results.json"; }
# near A B: both are perplexities, within 3 % of each other (rounding moves these models by less)
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 1 && b > 1 && a < 1.03 * b && b < 1.03 * a) }'; }
# both NAME: int8 activations change the result of a job a little
both() {
    local a b
    a=$(perplexity "$1" eval) b=$(perplexity "$1" 'eval[2]')
    ok "$1: int8 activations run ($a, $b)" test "$a" != "$b"
    ok "$1: and cost little ($a, $b)" near "$a" "$b"
    ok "$1: in every linear" json '.results["eval[2]"].packed_linears | .f32 == 0 and .a8 > 0' "$WORK/$1/results.json"
    ok "$1: nothing is warned about" test "$(grep -c warning: "$WORK/err")" = 0
}

job foreign '{use: foreign}'
ok "a third-party format runs, got $rc" test "$rc" = 0
ok "the log says how" grep -q "org\.example\.bytes/1.*'foreign'" "$WORK/err"
ok "the results name it" json '.results.quantize.linears[0].format == "org.example.bytes/1"' "$WORK/foreign/results.json"
ok "it has no int8 form" test "$(perplexity foreign eval)" = "$(perplexity foreign 'eval[2]')"

ok "the results count it" json '.results["eval[2]"] | .act == "a8" and .packed_linears.f32 > 0 and .packed_linears.a8 == 0' "$WORK/foreign/results.json"
ok "and so does the line" grep -q 'act a8, f32 on [0-9]* packed linears' "$WORK/out"

for element in fp8_e4m3 fp8_e5m2 fp6_e3m2 fp5_e3m1; do
    job "$element" "{use: mx, element: $element}"
    ok "$element runs, got $rc" test "$rc" = 0
    both "$element"
done
job fp8b '{use: mx, element: fp8_e4m3}' --threads 1
ok "threads change nothing of FP8" test "$(perplexity fp8_e4m3 'eval[2]')" = "$(perplexity fp8b 'eval[2]')"

job fp4 '{use: mx, element: fp4_e2m1, block: 32}' --threads 1
ok "MXFP4 runs, got $rc" test "$rc" = 0
both fp4
job fp4b '{use: mx, element: fp4_e2m1, block: 32}' --threads 2
ok "threads change nothing" test "$(perplexity fp4 'eval[2]')" = "$(perplexity fp4b 'eval[2]')"

job lut '{use: squeeze, bits: 4, outliers: 0.005}'
ok "tables with outliers run, got $rc" test "$rc" = 0
both lut
if grep -qw avx2 /proc/cpuinfo; then
    TSR_ISA=avx2 job lut2 '{use: squeeze, bits: 4, outliers: 0.005}'
    ok "the instruction set changes nothing" test \
        "$(perplexity lut eval) $(perplexity lut 'eval[2]')" = "$(perplexity lut2 eval) $(perplexity lut2 'eval[2]')"
fi

job llm '{use: int8, mode: llm}'
ok "LLM.int8 runs, got $rc" test "$rc" = 0
both llm

finish
