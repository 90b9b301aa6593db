#!/bin/bash
# tests/e2e/export-mixes.sh TESSERA - GGUF files in mixes of types, fitted with and without statistics of the inputs.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
IDS=4094,311,1052,278,90,1771,512,13

# logits NAME MODEL
logits() {
    run logits "$2" --tokens "$IDS" -o "$1"
    [ "$rc" = 0 ]
}

# ---- mixes of types, and importance matrices -----------------------------------------------------
for type in q3_k_m q4_k_m mxfp4_moe; do
    run convert @demo -o "d-$type.gguf" --to gguf --type $type --json
    ok "$type, got $rc" test "$rc" = 0
    ok "quantizes every linear and the embedding" json '.quantized == 43 and .requantized == 0' "$WORK/out"
    ok "$type is a model" logits "d-$type.st" "d-$type.gguf"
    for again in $type auto; do
        run convert "d-$type.gguf" -o e.gguf --to gguf --type "$again" --json
        ok "$type again as $again keeps every code" json '.packed == 43 and .requantized == 0' "$WORK/out"
        ok "which are the same bytes" cmp <(tail -c 2000000 "$WORK/d-$type.gguf") <(tail -c 2000000 "$WORK/e.gguf")
        rm -f "$WORK/e.gguf"
    done
done
fails "codes of another type" 2 'k.gguf' convert d-q4_k_m.gguf -o k.gguf --to gguf --type q3_k_m
run convert d-q4_k_m.gguf -o again.gguf --to gguf --type q3_k_m --allow-requantize --json
ok "allowed, they are fitted again, but for those of the type that they have" json '.requantized == 30 and .packed == 13' "$WORK/out"
cat >"$WORK/fit.yaml" <<JOB
version: 1
model: "@demo"
seed: 1
pipeline:
  - calibrate: {text: "$ROOT/configs/demo/calibration.txt", samples: 4, seqlen: 64}
  - export: {format: imatrix, to: imatrix.gguf}
  - export: {format: gguf, type: q4_k_m, imatrix: "$WORK/fit/imatrix.gguf", to: columns.gguf}
  - export: {format: gguf, type: q4_k_m, to: hessian.gguf}
  - quantize: {use: gptq, bits: 4, group: 32}
  - export: {format: gguf, type: q4_k_m, allow_requantize: true, to: gptq.gguf}
JOB
run run fit.yaml --out fit --json
ok "a job fits with its calibration, got $rc" test "$rc" = 0
ok "an importance matrix of every linear" json '.results.export | .format == "imatrix" and .tensors == 84' "$WORK/out"
ok "codes of another layout are fitted" json '.results."export[4]" | .requantized == 42 and .quantized == 1' "$WORK/out"
for one in columns hessian gptq; do
    ok "$one is a model" logits $one.st fit/$one.gguf
    ok "other than without" test "$(cmp -s "$WORK/d-q4_k_m.st" "$WORK/$one.st"; echo $?)" = 1
done
ok "and other than each other" test "$(cmp -s "$WORK/columns.st" "$WORK/hessian.st"; echo $?)" = 1
run convert @demo -o columns.gguf --to gguf --type q4_k_m --imatrix fit/imatrix.gguf
ok "the same by the verb, got $rc" cmp "$WORK/columns.gguf" "$WORK/fit/columns.gguf"
fails "an importance matrix that is a model" 2 'd-q4_k_m.gguf' convert @demo -o k.gguf --to gguf --type q4_k_m --imatrix d-q4_k_m.gguf
fails "of a model without it" 2 'k.gguf' convert @demo -o k.gguf --to imatrix
fails "for hf" 2 'imatrix' convert @demo -o k --to hf --imatrix fit/imatrix.gguf
finish
