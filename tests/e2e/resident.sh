#!/bin/bash
# tests/e2e/resident.sh TESSERA - quantized models of other programs: each takes at most 3 % more in memory than its file,
# with embedding and LM head, whose sizes are in the header; nothing is widened but what docs/formats names with the reason.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CASES=$(cd "$(dirname "$0")/../golden/checkpoints" && pwd)

# attn_k_b and attn_v_b of latent attention: docs/formats/gguf.md, Block types
widened=" gguf-deepseek_v2-q8_0 "

for case in "$CASES"/*/; do
    name=$(basename "$case")
    model=$case
    [ -f "$case/model.gguf" ] && model=$case/model.gguf
    [ "$name" = mxfp4-gptoss-tensors ] && continue # tensors alone
    stored=$(find "$case" \( -name 'model*.safetensors' -o -name model.gguf \) -exec cat {} + | wc -c)
    header=0 # of the files: what is left are the tensors, and in a GGUF file its metadata and gaps
    for file in "$case"/model*.safetensors; do
        [ -f "$file" ] && header=$((header + 8 + $(od -An -t u8 -N 8 "$file")))
    done
    run logits "$model" --tokens 1,2,3 -o l.st -v
    ok "$name: logits" test "$rc" = 0
    said=$(grep -c widened "$WORK/err" || true)
    run inspect "$model" --json
    if [[ "$widened" = *" $name "* ]]; then
        ok "$name: a line says what is widened" test "$said" = 1
        continue
    fi
    ok "$name: nothing is widened" test "$said" = 0
    ok "$name: at most 3 % more than the file" json ".model | .resident_bytes * 100 <= $stored * 103" "$WORK/out"
    if [ "$header" != 0 ]; then
        ok "$name: stored_bytes are those of all tensors" json ".model.stored_bytes == $stored - $header" "$WORK/out"
    else
        ok "$name: stored_bytes are those of the tensors" json ".model | .stored_bytes <= $stored and .stored_bytes > $stored * 0.7" "$WORK/out"
    fi
    # less than the file: order and shape of a linear's groups, zero points that are all alike, a bias of zeros
    ok "$name: all weights count" json ".model | .resident_bytes > .stored_bytes * 0.9" "$WORK/out"
done

finish
