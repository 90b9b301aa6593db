#!/bin/bash
# tests/e2e/memory.sh TESSERA RANDOM_MODEL - what --dry-run says that quantizing takes is kept.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MAKER=$(readlink -f "$2")
DEMO=$ROOT/configs/demo
# 90 MB of weights in 10 layers, so that one layer and all of them differ
"$MAKER" "$WORK/model" 4096 512 10 2304 8 4
cp "$DEMO"/tokenizer*.json "$WORK/model/"
weights=$(stat -c %s "$WORK/model/model.safetensors")

# keeps NAME LIMIT ARGUMENT...: the peak of a run is at most what was said, and that is at most LIMIT.
keeps() {
    local name=$1 limit=$2 stated peak
    shift 2
    run quantize model "$@" --dry-run --json
    ok "$name: dry run" test "$rc" = 0
    stated=$(jq .memory.peak "$WORK/out")
    run quantize model "$@" -o "$name" --json
    ok "$name: runs" test "$rc" = 0
    peak=$(jq .results.quantize.peak_memory_bytes "$WORK/out")
    echo "$name: $stated stated, $peak measured, $weights of weights"
    ok "$name: $peak bytes at most, $stated were stated" test "$peak" -le "$stated"
    ok "$name: not the whole model at once" test "$stated" -le "$limit"
}

text=(--text "$DEMO/calibration.txt" --samples 8 --seqlen 64)
keeps rtn "$weights" --use rtn --bits 4
keeps int8 "$weights" --use int8 "${text[@]}"
keeps gptq $((2 * weights)) --use gptq --bits 4 "${text[@]}"
keeps sequential $((2 * weights)) --use gptq --bits 3 --sequential "${text[@]}"
finish
