#!/bin/bash
# tests/e2e/imatrix.sh TESSERA - importance matrices of llama.cpp as the statistics of quantizers.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

cat >"$WORK/make.yaml" <<JOB
version: 1
model: "@demo"
seed: 1
pipeline:
  - calibrate: {text: "$ROOT/configs/demo/calibration.txt", samples: 4, seqlen: 64}
  - export: {format: imatrix, to: imatrix.gguf}
  - quantize: {use: rtn, bits: 3, group: 64, minimum: true, weighted: true, to: calibrated}
JOB
run run make.yaml --out make --json
ok "a calibration, its importance matrix and its weights, got $rc" test "$rc" = 0
cp "$WORK/out" "$WORK/calibrated.json"

# errors FILE: the squared errors of all linears in a result of quantize
errors() { jq -c '[.. | .linears? // empty | .[].squared_error]' "$1"; }

# ---- the same scales, but for the rounding of sums to means ------------------------------------
for scheme in "rtn --bits 3 --group 64 --minimum --weighted" "nvfp4 --search inputs" "mxfp4 --search inputs" \
    "squeeze --sensitivity inputs --bits 3"; do
    name=${scheme%% *}
    # shellcheck disable=SC2086 # several words
    run quantize @demo --use $scheme --imatrix make/imatrix.gguf -o "p-$name" --json
    ok "$name by the importance matrix, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/$name.json"
    run logits "p-$name" --tokens 4094,311,1052 -o "$name.st"
    ok "$name: it runs" test "$rc" = 0
done
ok "errors within 1 % of those by the calibration" jq -en --argjson a "$(errors "$WORK/rtn.json")" \
    --argjson b "$(errors "$WORK/calibrated.json")" \
    '($a | length) == 42 and all(range(42); ($a[.] / $b[.] - 1 | fabs) < 0.01)' >"$WORK/jq"
run quantize @demo --use rtn --bits 3 --group 64 --minimum --mse -o p-mse --json
ok "other than without, got $rc" test "$(errors "$WORK/out")" != "$(errors "$WORK/rtn.json")"
cat >"$WORK/step.yaml" <<JOB
version: 1
model: "@demo"
pipeline:
  - quantize: {use: rtn, bits: 3, group: 64, minimum: true, weighted: true, imatrix: make/imatrix.gguf}
JOB
run run step.yaml --out step --json
ok "a job needs no calibrate step, got $rc" test "$rc" = 0
ok "the same weights as by the verb" cmp "$WORK/step/packed/layer-00003.safetensors" "$WORK/p-rtn/layer-00003.safetensors"
run quantize @demo --use rtn --weighted --imatrix make/imatrix.gguf --dry-run --json -o p-dry
ok "its memory is stated, got $rc" json '.memory.peak > 0 and .memory.calibrate == 0' "$WORK/out"

# ---- latent attention: kv_b under its whole name --------------------------------------------------
cp -r "$ROOT/tests/golden/models/deepseek_v3" "$WORK/latent"
jq -cn --argjson size 320 -f "$ROOT/tools/families/tokenizer.jq" >"$WORK/latent/tokenizer.json"
cat >"$WORK/latent.yaml" <<JOB
version: 1
model: latent
pipeline:
  - calibrate: {text: "$ROOT/configs/demo/calibration.txt", samples: 4, seqlen: 64}
  - export: {format: imatrix, to: imatrix.gguf}
  - quantize: {use: rtn, bits: 4, group: 8, weighted: true}
JOB
run run latent.yaml --out latent-job --json
ok "latent attention: a calibration and its importance matrix, got $rc" test "$rc" = 0
cp "$WORK/out" "$WORK/latent.json"
run quantize latent --use rtn --bits 4 --group 8 --weighted --imatrix latent-job/imatrix.gguf -o p-latent --json
ok "its weights by that file, got $rc" test "$rc" = 0
ok "errors within 1 % of those by the calibration" jq -en --argjson a "$(errors "$WORK/out")" \
    --argjson b "$(errors "$WORK/latent.json")" \
    '($a | length) > 60 and ([range($a | length) | select($b[.] > 0) | ($a[.] / $b[.] - 1 | fabs)] | max) < 0.01' >"$WORK/jq"
# files of newer llama.cpp have no such entry: a name of as many letters
LC_ALL=C sed 's/attn_kv_b/attn_kx_b/g' "$WORK/latent-job/imatrix.gguf" >"$WORK/newer.gguf"
fails_with "an importance matrix without kv_b" 2 '*newer.gguf' 'blk.0.attn_kv_b.weight.*rule' \
    quantize latent --use rtn --bits 4 --group 8 --weighted --imatrix newer.gguf -o p-x
run quantize latent --use rtn --bits 4 --group 8 --weighted --imatrix newer.gguf -o p-rule --rules '[{tensors: "*.kv_b_proj", weighted: false}]'
ok "with a rule for it, got $rc" test "$rc" = 0

# ---- what does not go together -----------------------------------------------------------------
fails_with "statistics that the file lacks" 2 '' 'mean squares' quantize @demo --use gptq --imatrix make/imatrix.gguf -o p-x
fails_with "statistics after packed layers" 2 '' 'sequential' quantize @demo --use rtn --weighted --sequential \
    --imatrix make/imatrix.gguf -o p-x
fails_with "weights without statistics" 2 'rtn' 'calibrate' quantize @demo --use rtn --weighted -o p-x
fails "other statistics into the same folder" 2 'p-rtn' quantize @demo --use rtn --bits 3 --group 64 --minimum \
    --weighted --text "$ROOT/configs/demo/calibration.txt" --samples 4 --seqlen 64 -o p-rtn

# ---- files that are wrong ----------------------------------------------------------------------
# i32 N: four bytes, the lowest first
i32() { printf '%b' "$(printf '\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)))"; }
# older FILE NAME N BITS: one tensor in the older form, whose columns are all the F32 number BITS
older() {
    {
        i32 1
        i32 ${#2}
        printf '%s' "$2"
        i32 1
        i32 "$3"
        for ((i = 0; i < $3 && i < 512; i++)); do i32 "$4"; done
    } >"$WORK/$1"
}
bad() { fails_with "$1" 2 "$2" "$3" quantize @demo --use rtn --weighted --imatrix "${4:-wrong.dat}" -o p-x; }
older wrong.dat blk.0.attn_q.weight 12 0x3f800000
bad "another number of columns" '*wrong.dat*' '12 columns'
older wrong.dat blk.900.attn_q.weight 12 0x3f800000
bad "names that match nothing" '*wrong.dat*' 'blk.900.attn_q.weight'
older wrong.dat blk.0.attn_q.weight 12 0x7fc00000
bad "not a number" '*wrong.dat*' 'value 0'
older wrong.dat blk.0.attn_q.weight $((0x40000001)) 0x3f800000
bad "a size that overflows" '*wrong.dat*' 'byte'
older wrong.dat blk.0.attn_q.weight 256 0x3f800000
bad "a file of one linear" '*wrong.dat*' 'blk.0.attn_k.weight'
run quantize @demo --use rtn --weighted --imatrix wrong.dat -o p-one --json \
    --rules '[{tensors: "*", keep: true}, {layers: 0, tensors: "*.q_proj", keep: false}]'
ok "a file of the one linear that is quantized, got $rc" test "$rc" = 0
ok "it is" json '[.. | .linears? // empty | .[].name] == ["model.layers.0.self_attn.q_proj"]' "$WORK/out"
run quantize @demo --use rtn --weighted --imatrix wrong.dat -o p-plain --json \
    --rules '[{tensors: "*", weighted: false}, {layers: 0, tensors: "*.q_proj", weighted: true}]'
ok "others without their inputs, got $rc" json '[.. | .linears? // empty | .[].name] | length == 42' "$WORK/out"
bad "a file that is absent" '*none.dat*' 'none.dat' none.dat
run convert @demo -o model.gguf --to gguf
bad "a model" '*model.gguf*' 'imatrix' model.gguf
ok "and nothing is left" test ! -e "$WORK/p-x"
finish
