#!/bin/bash
# tests/e2e/export-mxfp4.sh TESSERA - convert --to mxfp4: experts of gpt-oss from a folder, a GGUF file and the quantizer.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
IDS=14,3,52,27,90,71,12,13,17,47,99,5,300,2,61,8
PUBLISHED=$ROOT/tests/golden/models/gpt_oss-mxfp4

# same NAME A B: two models with the same logits, bit for bit.
same() {
    run logits "$2" --tokens "$IDS" -o a.st
    ok "$1: one model runs, got $rc" test "$rc" = 0
    run logits "$3" --tokens "$IDS" -o b.st
    ok "$1: the other runs, got $rc" test "$rc" = 0
    ok "$1: bit for bit" cmp "$WORK/a.st" "$WORK/b.st"
}

run convert "$PUBLISHED" --to mxfp4 -o again --json
ok "published, got $rc" test "$rc" = 0
ok "nothing changed" json '.packed == 4 and .widened == 0 and .rounded == 0 and .tensors == 41' "$WORK/out"
ok "the configuration" json '.quantization_config | .quant_method == "mxfp4" and (.modules_to_not_convert | length == 11 and
    contains(["model.layers.1.self_attn.o_proj", "model.layers.0.mlp.router", "lm_head"]))' "$WORK/again/config.json"
same "again" "$PUBLISHED" again

run convert "$PUBLISHED" --to gguf -o a.gguf --json
ok "to GGUF, got $rc" test "$rc" = 0
run convert a.gguf --to mxfp4 -o of-gguf --json
ok "of a GGUF file, got $rc" test "$rc" = 0
ok "codes are kept" json '.packed == 4 and .widened == 0 and .rounded == 0' "$WORK/out"
same "of a GGUF file" "$PUBLISHED" of-gguf
run convert of-gguf --to mxfp4 --dtype f16 -o f16 --json
ok "with a dtype, got $rc" test "$rc" = 0
ok "it is the rest's" json '.packed == 4 and .widened == 0' "$WORK/out"
ok "in the configuration, too" json '[.torch_dtype, .dtype] | contains(["float16"])' "$WORK/f16/config.json"

run convert "$PUBLISHED" --to hf -o wide --json
ok "to hf, got $rc" test "$rc" = 0
ok "widened exactly" json '.widened == 4 and .rounded == 0' "$WORK/out"
run quantize wide --use mx --element fp4_e2m1 --block 32 -o all
ok "quantized, got $rc" test "$rc" = 0
run convert all --to mxfp4 -o of-all --json
ok "experts of a packed model, got $rc" test "$rc" = 0
ok "other linears are widened" json '.packed == 4 and .widened == 8 and .rounded == 0' "$WORK/out"
run quantize wide --use mxfp4 --rules '[{tensors: "*.self_attn.*", keep: true}]' -o experts
ok "experts quantized, got $rc" test "$rc" = 0
run convert experts --to mxfp4 -o of-experts --json
ok "of the quantizer, got $rc" test "$rc" = 0
ok "the rest stays" json '.packed == 4 and .widened == 0 and .rounded == 0' "$WORK/out"
same "of the quantizer" experts of-experts

fails "experts that are not quantized" 2 'k' convert wide --to mxfp4 -o k
ok "it names them" mentions 'layers\.0\.mlp\.experts\.gate_up_proj\b'
run quantize "$ROOT/tests/golden/models/gpt_oss" --use mx --element fp4_e2m1 --block 32 -o short
fails "a short last block" 2 'k' convert short --to mxfp4 -o k
ok "it names the tensor" mentions 'layers\.0\.mlp\.experts\.down_proj\b.* 32\b'
fails "experts in tensors of their own" 2 'k' convert "$ROOT/tests/golden/models/mixtral" --to mxfp4 -o k
fails "rows of gate, then of up" 2 'k' convert "$ROOT/tests/golden/models/qwen3_5_moe" --to mxfp4 -o k
ok "it names the tensor" mentions 'layers\.0\.mlp\.experts\.gate_up_proj\b'
fails "a parameter as compressed-tensors" 2 'k' convert all --to compressed-tensors -o k
ok "it names the tensor" mentions 'layers\.0\.mlp\.experts\.gate_up_proj\b'
ok "and the formats that take it" mentions '\bhf, mxfp4 or gguf$'
run quantize "$ROOT/tests/golden/models/qwen3_5_moe" --use mx --element fp4_e2m1 --block 32 -o rows
fails "a parameter with rows of gate, then of up" 2 'k' convert rows --to compressed-tensors -o k
ok "mxfp4 is not among its formats" mentions 'experts\.[a-z_]+\b.* hf or gguf$'
ok "nothing is left" test ! -e "$WORK/k"
finish
