#!/bin/bash
# tests/e2e/numerics.sh TESSERA - numerics: fast runs where the CPU can, near the exact result, and
# is refused with a sentence where it cannot.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

text=$ROOT/configs/demo/held-out.txt
args=(eval @demo --text "$text" --window 64 --max-windows 4 --json)
cat >"$WORK/fast.yaml" <<YAML
version: 1
model: "@demo"
numerics: fast
pipeline:
  - eval: {text: $text, window: 64, max_windows: 4}
YAML

cat >"$WORK/gptq.yaml" <<YAML
version: 1
model: $STORIES
pipeline:
  - calibrate: {text: $ROOT/configs/demo/calibration.txt, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 4, group: 32}
YAML

TSR_ISA=avx2 fails "an instruction set without it" 2 "backend 'cpu'" "${args[@]}" --numerics fast
TSR_ISA=scalar fails "in a job, too" 2 "backend 'cpu'" run fast.yaml --out job
fails "a word that is none" 2 '--numerics rough:1:19' generate @demo --prompt a --numerics rough

run "${args[@]}"
ok "exact runs" test "$rc" = 0
exact=$(jq .perplexity "$WORK/out")
run "${args[@]}" --numerics fast
if grep -qw avx512_bf16 /proc/cpuinfo; then
    ok "fast runs" test "$rc" = 0
    fast=$(jq .perplexity "$WORK/out")
    # activations of 8 bits of mantissa: a hundredth of a nat would be a bug
    ok "near exact ($fast, $exact)" jq -ne "($fast / $exact | log | fabs | . >= 0 and . < 0.01)"
    ok "and not the same" test "$fast" != "$exact"
    run run fast.yaml --out job --json
    ok "a job runs" test "$rc" = 0
    ok "a job gives what the verb gives" \
        jq -e --argjson p "$fast" 'first(.. | .perplexity? // empty) == $p' "$WORK/out"
    # A product of inputs with 8 bits of mantissa is off by 2^-8 at most.
    run run gptq.yaml --out exact --set numerics=exact
    ok "gptq runs" test "$rc" = 0
    run run gptq.yaml --out fast --set numerics=fast
    ok "gptq runs on BF16 products" test "$rc" = 0
    ok "its losses are near" jq -ne --slurpfile a "$WORK/exact/results.json" --slurpfile b "$WORK/fast/results.json" \
        '[$a, $b | .[0].results.quantize.linears | map(.rtn_loss)] | transpose | length > 0
         and all(.[1] / .[0] | log | fabs | . >= 0 and . < 0.004)'
    ok "and not the same" test "$(jq -c '.results.quantize.linears | map(.rtn_loss)' "$WORK/exact/results.json")" != \
        "$(jq -c '.results.quantize.linears | map(.rtn_loss)' "$WORK/fast/results.json")"
    run bench gemm --formats bf16 --rows 64 --cols 320 --repeats 1 --numerics fast --json
    ok "bench says that BF16 products ran" jq -e '.[0].act == "bf16" and .[0].probe > 0' "$WORK/out"
else
    ok "fast is refused" test "$rc" = 2
    ok "with a sentence" grep -q "AVX512-BF16" "$WORK/err"
fi

finish
