#!/bin/bash
# tests/e2e/memory.sh TESSERA RANDOM_MODEL - what --dry-run says that quantizing takes is kept.
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
keeps int8 --use int8 "${text[@]}"
keeps gptq --use gptq --bits 4 "${text[@]}"
keeps sequential --use int8 --sequential "${text[@]}"
finish
