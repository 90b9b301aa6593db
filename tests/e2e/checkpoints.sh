#!/bin/bash
# tests/e2e/checkpoints.sh TESSERA - folders that other programs quantized.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CHECKPOINTS=$ROOT/tests/golden/checkpoints
IDS=1,5,9,17

# copy NAME TO: a checkpoint that may be changed.
copy() { cp -r "$CHECKPOINTS/$1" "$WORK/$2" && chmod -R u+w "$WORK/$2"; }
# edit FOLDER FILTER: its config.json through jq.
edit() { jq "$2" "$WORK/$1/config.json" >"$WORK/edited" && mv "$WORK/edited" "$WORK/$1/config.json"; }

run inspect "$CHECKPOINTS/gptq4-g128" --json
ok "inspect says whose it is" json '.model.packed == "gptq" and .model.tensors[1].format == "tessera.int/1 with 4 bits"' "$WORK/out"
run inspect "$CHECKPOINTS/ct-mxfp4" --json
ok "and of another writer" json '.model.packed == "compressed-tensors" and .model.tensors[1].format == "tessera.mx/1 with fp4_e2m1"' "$WORK/out"
run inspect "$CHECKPOINTS/hf-f16" --json
ok "nothing is packed in a plain folder" json '.model | has("packed") | not' "$WORK/out"

run inspect models
ok "inspect lists the writers" grep -q '^compressed-tensors  ' "$WORK/out"

run logits "$CHECKPOINTS/gptq4-g128" --tokens $IDS -o want.st
ok "logits" test "$rc" = 0
ok "nothing is widened" test "$(grep -c widened "$WORK/err")" = 0
run logits "$CHECKPOINTS/gptq4-g128-actorder" --tokens $IDS -o order.st
ok "act-order runs" test "$rc" = 0
ok "and packed" test "$(grep -c widened "$WORK/err")" = 0
run logits "$CHECKPOINTS/gptq4-g128-actorder" --tokens $IDS -o step.st --step
ok "token by token too" cmp "$WORK/order.st" "$WORK/step.st"
run logits "$CHECKPOINTS/gptq4-g128-actorder" --tokens $IDS -o a8.st --act a8
ok "with int8 activations" test "$rc" = 0
run convert "$CHECKPOINTS/gptq4-g128-actorder" -o order --to gptq
ok "it goes out with its order" json '.quantization_config.desc_act' "$WORK/order/config.json"
run logits order --tokens $IDS -o back.st
ok "and comes back as it was" cmp "$WORK/order.st" "$WORK/back.st"
fails "where there is no order" 2 'ct' convert "$CHECKPOINTS/gptq4-g128-actorder" -o ct --to compressed-tensors
run convert "$CHECKPOINTS/gptq4-g128-actorder" -o wide --to hf --dtype bf16
ok "widened, columns are where they were" test "$rc" = 0
run logits "$CHECKPOINTS/bnb-nf4" --tokens $IDS -o nf4.st
ok "blocks of NF4 run packed, also where several lie in a row" bash -c '! grep -q widened "$0"' "$WORK/err"
run logits "$CHECKPOINTS/fp8-qwen3" --tokens 1,2,3 -o fp8.st
ok "FP8 in blocks runs packed" bash -c '! grep -q widened "$0"' "$WORK/err"
run logits "$CHECKPOINTS/gptq4-v1-asym-zero0" --tokens $IDS -o zero.st
ok "zero points of 0 are told of" grep -q 'whole words' "$WORK/err"
run generate "$CHECKPOINTS/awq4-g64-autoawq" --tokens $IDS --max-tokens 4 --greedy --ignore-eos --json
ok "generation" json '.tokens | length == 4' "$WORK/out"

# the configuration may stand beside config.json, as early writers had it
copy gptq4-g128 old
edit old 'del(.quantization_config)'
run logits old --tokens $IDS -o old.st
ok "quantize_config.json alone" cmp "$WORK/want.st" "$WORK/old.st"
rm "$WORK/old/quantize_config.json"
fails "no configuration at all" 2 'old' logits old --tokens $IDS -o none.st

# a wrong label is found in the data
copy gptq4-g128 labelled
edit labelled '.quantization_config.checkpoint_format = "gptq_v2"'
run logits labelled --tokens $IDS -o labelled.st
ok "v1 data under a v2 label" cmp "$WORK/want.st" "$WORK/labelled.st"
ok "with a warning" grep -q 'the data are believed' "$WORK/err"

copy gptq4-g128 wrong
edit wrong '.quantization_config.bits = 8'
fails "other bits than there are" 2 'wrong/model.safetensors' logits wrong --tokens $IDS -o none.st
edit wrong '.quantization_config = {"quant_method": "hqq"}'
fails "a writer that is not known" 2 'wrong/config.json' logits wrong --tokens $IDS -o none.st
edit wrong '.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": true}'
fails "a header of another writer" 2 'wrong/config.json: "quantization_config" (bitsandbytes)' logits wrong --tokens $IDS -o none.st
copy hf-f16 plain
edit plain '.quantization_config = {"quant_method": "gptq", "bits": 4}'
fails "quantized, but not stored so" 2 'plain/config.json: "quantization_config" (gptq)' logits plain --tokens $IDS -o none.st
fails "quantizing what is quantized" 2 '*/tests/golden/checkpoints/gptq4-g128' quantize "$CHECKPOINTS/gptq4-g128" --use rtn -o q
finish
