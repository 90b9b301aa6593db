#!/bin/bash
# tests/e2e/export.sh TESSERA - tessera convert and the step export: what is written is what was there.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
IDS=4094,311,1052,278,90,1771,512,13

# header FILE: the JSON of a safetensors file.
header() {
    local n
    n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((n + 8)) "$1" | tail -c "$n"
}
# logits NAME MODEL
logits() {
    run logits "$2" --tokens "$IDS" -o "$1"
    [ "$rc" = 0 ]
}

logits demo.st @demo || true
for bits in 4 8; do
    run quantize @demo --use rtn --bits $bits --group 32 --symmetric -o "q$bits"
    ok "quantized to $bits bits" test "$rc" = 0
done
logits q4.st q4 || true

# ---- hf ------------------------------------------------------------------------------------
run convert @demo -o hf --to hf --json
ok "hf, got $rc" test "$rc" = 0
ok "nothing was rounded" json '.rounded == 0 and .packed == 0 and .tensors > 50' "$WORK/out"
ok "it is the model" logits hf.st hf
ok "bit for bit" cmp "$WORK/demo.st" "$WORK/hf.st"
ok "as large as the original" test "$(header "$WORK/hf/model.safetensors" | jq '[.[] | .data_offsets? // empty | .[1]] | max')" = \
    "$(header "$ROOT/configs/demo/model.safetensors" | jq '[.[] | .data_offsets? // empty | .[1]] | max')"
# the other name: keys as in a job file, and a job folder
run export @demo --to hf --format hf --out job
ok "the other name, got $rc" test "$rc" = 0
ok "writes the same" diff -r "$WORK/hf" "$WORK/job/hf"
run help export
ok "and is explained once" grep -q 'usage: tessera convert' "$WORK/out"
run convert @demo -o hf2 --to hf --shard-size 2
ok "in files of 2 MB" test "$(find "$WORK/hf2" -name 'model-0000*-of-*.safetensors' | wc -l)" -ge 4
ok "which load" logits hf2.st hf2
ok "as the same model" cmp "$WORK/demo.st" "$WORK/hf2.st"
run convert q4 -o wide --to hf --dtype f16 --json
ok "packed weights are widened" json '.widened == 42 and .packed == 0' "$WORK/out"
ok "to a model of 16 bits" logits wide.st wide
ok "no part and no lock is left" test -z "$(find "$WORK" -name '.*.part' -o -name '.*.lock')"

# ---- gptq and compressed-tensors -----------------------------------------------------------------
run convert q4 -o gptq --to gptq --json
ok "gptq, got $rc" test "$rc" = 0
ok "every linear keeps its codes" json '.packed == 42 and .widened == 0 and .rounded == 0' "$WORK/out"
header "$WORK/gptq/model.safetensors" >"$WORK/h"
ok "tensors of gptq" json '."model.layers.0.mlp.down_proj.qweight" == {dtype: "I32", shape: [64, 256], data_offsets: ."model.layers.0.mlp.down_proj.qweight".data_offsets}
    and ."model.layers.0.mlp.down_proj.qzeros".shape == [16, 32] and ."model.layers.0.mlp.down_proj.scales".dtype == "F16"' "$WORK/h"
ok "symmetric is version 1" json '.quantization_config | .checkpoint_format == "gptq" and .sym and .bits == 4 and .group_size == 32' "$WORK/gptq/config.json"
run convert q4 -o ct --to compressed-tensors
ok "compressed-tensors, got $rc" test "$rc" = 0
ok "its configuration" json '.quantization_config | .format == "pack-quantized" and .ignore == ["lm_head"] and
    .config_groups.group_0.weights.num_bits == 4' "$WORK/ct/config.json"
cat >"$WORK/mixed.yaml" <<JOB
version: 1
model: "@demo"
pipeline:
  - quantize:
      use: rtn
      bits: 4
      group: 64
      symmetric: false
      rules: [{layers: 0, bits: 8}, {tensors: "*.o_proj", keep: true}]
  - export: {format: gptq, to: gptq}
  - export: {format: compressed-tensors, to: ct}
JOB
run run mixed.yaml --out mixed --json
ok "a job exports, got $rc" test "$rc" = 0
ok "and says what" json '.results.export.packed == 36 and .results."export[2]".packed == 36' "$WORK/out"
ok "mixed bits are rules; asymmetric is version 2" json '.quantization_config | .checkpoint_format == "gptq_v2" and (.sym | not) and
    .dynamic."+:^model\\.layers\\.0\\.mlp\\.up_proj$".bits == 8 and .dynamic."-:^model\\.layers\\.5\\.self_attn\\.o_proj$" == {}' "$WORK/mixed/gptq/config.json"
ok "and groups" json '.quantization_config | (.config_groups | length) == 2 and (.ignore | length) == 7' "$WORK/mixed/ct/config.json"

# ---- gguf ------------------------------------------------------------------------------------
mkdir -p "$WORK/a" "$WORK/b"
run convert q4 -o a/m.gguf --to gguf --json
ok "gguf, got $rc" test "$rc" = 0
ok "every linear keeps its codes" json '.packed == 42 and .requantized == 0' "$WORK/out"
ok "it is a model" logits gguf.st a/m.gguf
ok "the same, bit for bit" cmp "$WORK/q4.st" "$WORK/gguf.st"
run convert a/m.gguf -o b/m.gguf --to gguf
ok "written again, got $rc" test "$rc" = 0
ok "the weights are the same" cmp <(tail -c 3000000 "$WORK/a/m.gguf") <(tail -c 3000000 "$WORK/b/m.gguf")
run convert a/m.gguf -o back --to gptq
ok "gguf to gptq, got $rc" test "$rc" = 0
ok "is what it was before" cmp "$WORK/gptq/model.safetensors" "$WORK/back/model.safetensors"
for type in f16 q8_0 q4_0 mxfp4; do
    run convert @demo -o "d-$type.gguf" --to gguf --type $type
    ok "$type, got $rc" test "$rc" = 0
    ok "$type is a model" logits "d-$type.st" "d-$type.gguf"
done

# ---- what is refused -----------------------------------------------------------------------------
late() { # NAME OBJECT KEYS: before a step runs
    printf 'version: 1\nmodel: "@demo"\npipeline:\n  - quantize: {use: rtn}\n  - export: {%s}\n' "$3" >"$WORK/late.yaml"
    fails "$1" 2 "$2" run late.yaml --out late
    ok "$1: nothing ran" test ! -e "$WORK/late/packed"
}
late "an output beside the job folder" '*:5:*' 'format: gguf, to: ../x.gguf'
ok "the sentence names it" mentions "'../x.gguf'"
late "a type that is not known" '*' 'format: gguf, to: x.gguf, type: q9'
late "a type of another format" '*:5:*' 'format: gptq, to: x, type: q4_0'
late "an importance matrix that is not there" '*' 'format: gguf, to: x.gguf, type: q4_k_m, imatrix: nowhere.gguf'
fails_with "a type as the format" 2 '*' 'format: gguf, type: Q4_K_M' convert @demo -o k --to Q4_K_M
fails "an unknown type" 2 '*q9:1:*' convert @demo -o k.gguf --to gguf --type q9
fails "a format that does not hold it" 2 'k.gguf' convert q8 -o k.gguf --to gguf --type q4_0
run convert q8 -o k.gguf --to gguf --type q4_0 --allow-requantize --json
ok "allowed, it is quantized again" json '.requantized == 42' "$WORK/out"
fails "a type for hf" 2 '*q4_0:1:*' convert @demo -o k --to hf --type q4_0
fails "a dtype for gguf" 2 'dtype' convert @demo -o k --to gguf --dtype f16
fails "shards of one file" 2 'shard_size' convert @demo -o k --to gguf --shard-size 2
fails "a backend for gptq" 2 'backend' convert q4 -o k --to gptq --backend cuda
fails "nothing quantized" 2 'k' convert @demo -o k --to gptq
fails "nothing quantized for ct" 2 'k' convert @demo -o k --to compressed-tensors
fails "a place that is taken" 2 'gptq' convert q4 -o gptq --to gptq
run quantize @demo --use rtn --bits 6 -o q6
fails "a width that gptq has not" 2 'k' convert q6 -o k --to gptq
run quantize @demo --use mx -o mx
ok "mx, got $rc" test "$rc" = 0
fails "mx as gptq" 2 'k' convert mx -o k --to gptq
fails "no output" 2 'convert' convert q4 --to gptq
ok "nothing is left of what was refused" test -z "$(find "$WORK" -maxdepth 1 -name k -o -maxdepth 1 -name '.k.*')"
mkdir -p "$WORK/part.part/deep"
run convert q4 -o part --to hf
ok "a folder with the name that a part once had is left alone, got $rc" test "$rc" = 0 -a -d "$WORK/part.part/deep"
finish
