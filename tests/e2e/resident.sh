#!/bin/bash
# tests/e2e/resident.sh TESSERA - quantized models of other programs: each takes at most 3 % more in memory than its file,
# and nothing is widened but what docs/formats names with the reason.
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
    run logits "$model" --tokens 1,2,3 -o l.st -v
    ok "$name: logits" test "$rc" = 0
    said=$(grep -c widened "$WORK/err" || true)
    run inspect "$model" --json
    if [[ "$widened" = *" $name "* ]]; then
        ok "$name: a line says what is widened" test "$said" = 1
        continue
    fi
    ok "$name: nothing is widened" test "$said" = 0
    ok "$name: at most 3 % more than the file" json ".model | .bytes * 100 <= $stored * 103 and .resident_bytes <= .bytes" "$WORK/out"
done

finish
