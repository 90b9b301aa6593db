#!/bin/bash
# tests/e2e/memory.sh TESSERA RANDOM_MODEL - what --dry-run says that quantizing takes is kept, and
# converting takes a layer at a time whatever the model is stored as; the stages of plans take what is planned.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MAKER=$(readlink -f "$2")
DEMO=$ROOT/configs/demo
# 80 MB of weights in 16 layers, so that one layer and all of them differ
"$MAKER" "$WORK/model" 4096 512 16 1024 8 4
cp "$DEMO"/tokenizer*.json "$WORK/model/"
weights=$(stat -c %s "$WORK/model/model.safetensors")

# keeps NAME ARGUMENT...: the peak of a run is at most what was said, which is less than the weights.
keeps() {
    local name=$1 stated peak
    shift
    run quantize model "$@" --dry-run --json
    ok "$name: dry run" test "$rc" = 0
    stated=$(jq .memory.peak "$WORK/out")
    run quantize model "$@" -o "$name" --json
    ok "$name: runs" test "$rc" = 0
    peak=$(jq .results.quantize.peak_memory_bytes "$WORK/out")
    echo "$name: $stated stated, $peak measured, $weights of weights"
    ok "$name: $peak bytes at most, $stated were stated" test "$peak" -le "$stated"
    ok "$name: not the whole model at once" test "$stated" -lt "$weights"
}

text=(--text "$DEMO/calibration.txt" --samples 8 --seqlen 64)
keeps rtn --use rtn --bits 4
# the others in turns: half of them in one run, as the seed picks
n=${TSR_TEST_SEED:-0}
turn() {
    n=$((n + 1))
    if [ "${TSR_TEST_ALL:-0}" != 0 ] || [ $((n % 2)) != 0 ]; then
        keeps "$@"
    fi
}
turn int8 --use int8 "${text[@]}"
turn gptq --use gptq --bits 4 "${text[@]}"
turn awq --use awq --bits 4 "${text[@]}"
turn squeeze --use squeeze --bits 4 "${text[@]}"
turn sequential --use int8 --sequential "${text[@]}"
# more threads than cores: what each keeps for itself is stated too
turn threads --use gptq --bits 4 --threads 8 "${text[@]}"

# streams FROM TO ARGUMENT...: FROM is converted to TO in less memory than two thirds of its weights;
# a tenth are embedding and head, the program takes 7 MB.
streams() {
    local from=$1 to=$2 bytes peak
    shift 2
    run convert "$from" -o "$to" "$@" --json
    ok "$from to $to: converts" test "$rc" = 0
    bytes=$(find "$WORK/$from" -type f -printf '%s\n' | awk '{n += $1} END {print n}')
    peak=$(jq .peak_memory_bytes "$WORK/out")
    echo "$from to $to: $peak bytes, $bytes of weights"
    ok "$from to $to: $peak bytes at most, of $bytes" test "$peak" -lt $((bytes * 2 / 3))
}
run quantize model -q --use rtn --bits 8 --group 64 --symmetric -o q8
ok "8 bits" test "$rc" = 0
streams model m.gguf --to gguf
streams q8 as-gptq --to gptq
streams as-gptq ct --to compressed-tensors
streams ct q8.gguf --to gguf
streams q8.gguf hf --to hf

# what the planner counts of each stage is what its ranks account for; of small models here, of large ones by the tool
rc=0
SIZE=small TESSERA=$TESSERA RANDOM_MODEL=$MAKER "$ROOT/tools/stage-memory" -s 16 3 >"$WORK/out" 2>"$WORK/err" || rc=$?
cat "$WORK/out"
ok "stages take what was planned, to 1 %, got $rc" test "$rc" = 0
finish
