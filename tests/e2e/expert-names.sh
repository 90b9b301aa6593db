#!/bin/bash
# tests/e2e/expert-names.sh TESSERA SPLIT_EXPERTS - a family whose file has all experts in one tensor reads folders that store
# them one by one: the same bytes, whatever is done with the model.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
SPLIT=$(readlink -f "$2")
GOLDEN=$ROOT/tests/golden/models/qwen3_5_moe

"$SPLIT" "$GOLDEN" "$WORK/apart"
# same NAME A B [OPTION...]: two models give the same bytes
same() {
    local name=$1 a=$2 b=$3
    shift 3
    rm -f "$WORK"/[ab].logits
    run logits "$a" --tokens 1,5,9,30,77,4,8 -o a.logits
    run logits "$b" --tokens 1,5,9,30,77,4,8 -o b.logits "$@"
    ok "$name: the same bytes, got $rc" cmp -s "$WORK/a.logits" "$WORK/b.logits"
}
same "one by one" "$GOLDEN" apart
for way in --step "--chunk 2" "--threads 1"; do
    # shellcheck disable=SC2086
    same "one by one, $way" "$GOLDEN" apart $way
done
run inspect apart --json
ok "the experts are known, got $rc" json '.model | .experts.count > 1 and any(.tensors[]; .name == "experts.0.up_proj")' "$WORK/out"
run convert apart --to prepacked -o as-prepacked
ok "prepacked, got $rc" test "$rc" = 0
same "prepacked" apart as-prepacked
for model in "$GOLDEN" apart; do
    run quantize "$model" --use rtn --bits 4 --group 8 --out "q-${model##*/}"
    ok "quantized, got $rc" test "$rc" = 0
done
same "quantized" q-qwen3_5_moe q-apart
"$SPLIT" "$GOLDEN" "$WORK/less" "model.language_model.layers.1.mlp.experts.1.up_proj.weight"
fails "an expert that is missing" 2 '*' logits less --tokens 1 -o x.logits

# ---- the family's file ---------------------------------------------------------------------------------------------

bad() { # WHAT PLACE SED
    sed "s/^name: .*/name: mine/; $3" "$ROOT/configs/families/qwen3_5_moe.yaml" >"$WORK/mine.yaml"
    fails "$1" 2 "mine.yaml:$2:*" logits apart --tokens 1 -o x.logits --family mine.yaml
}
at=$(grep -n 'each: \[' "$ROOT/configs/families/qwen3_5_moe.yaml" | cut -d: -f1)
bad "one name for gate and up" "$at" 's/each: \[\([^,]*\), [^]]*\]/each: \1/'
bad "no number of an expert" "$at" "$at"'s/@\.gate_proj/gate_proj/'
bad "a part that is no expert" "$(grep -n '^  router: layers' "$ROOT/configs/families/qwen3_5_moe.yaml" | cut -d: -f1)" \
    's/^  router: \(layers.*\)/  router: {name: \1, each: layers.#.mlp.@.gate}/'
finish
