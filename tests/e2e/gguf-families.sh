#!/bin/bash
# tests/e2e/gguf-families.sh TESSERA - models of many families as GGUF and back: the bytes of their logits stay.  That llama.cpp
# computes the same from these files is checked by tools/check-exports.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
GOLDEN=$ROOT/tests/golden/models

# same NAME A B: two models give the same bytes
same() {
    run logits "$2" --tokens 1,5,9,30,77,12,3,64,200 -o a.logits
    rm -f "$WORK/b.logits"
    run logits "$3" --tokens 1,5,9,30,77,12,3,64,200 -o b.logits
    ok "$1: the same bytes" cmp -s "$WORK/a.logits" "$WORK/b.logits"
}
# both NAME MODEL: written, read, and written again from what was read
both() {
    run convert "$2" --to gguf -o "$1.gguf"
    ok "$1 as GGUF, got $rc" test "$rc" = 0
    same "$1 as GGUF" "$2" "$1.gguf"
    run convert "$1.gguf" --to gguf -o "$1-2.gguf"
    ok "$1: written again, got $rc" test "$rc" = 0
    same "$1: written again" "$1.gguf" "$1-2.gguf"
}
for m in bloom bloom-6heads phimoe qwen3 qwen3-window-untied olmo2 olmo3 granite gemma3-v5-noscaling phi3 glm4 cohere cohere-qknorm cohere2 starcoder2 mistral3; do
    both $m "$GOLDEN/$m"
done
# changed NAME MODEL FILTER: the model with another config.json
changed() {
    mkdir -p "$WORK/$1"
    cp "$GOLDEN/$2"/model*.safetensors* "$WORK/$1"
    jq "$3" "$GOLDEN/$2/config.json" >"$WORK/$1/config.json"
}
# what llama.cpp has no key for has the value that it takes
changed gemma2 gemma2 '.query_pre_attn_scalar = .head_dim'
changed gemma3 gemma3 '.query_pre_attn_scalar = .head_dim'
changed gemma3-wrapped gemma3-wrapped '.text_config.query_pre_attn_scalar = .text_config.head_dim'
changed smollm3 smollm3 'del(.no_rope_layers) | .no_rope_layer_interval = 4'
for m in gemma2 gemma3 gemma3-wrapped smollm3; do
    both $m $m
done
fails "another scale of scores" 2 x.gguf convert "$GOLDEN/gemma2" --to gguf -o x.gguf
# a key that GGUF does not have
changed bloom-post bloom '.apply_residual_connection_post_layernorm = true'
fails "a residual from the norm" 2 x.gguf convert bloom-post --to gguf -o x.gguf
ok "a residual from the norm: it says what" mentions "gguf has no word for its norms"
# what llama.cpp computes otherwise
run convert "$GOLDEN/phimoe" --to gguf -o other.gguf
ok "experts chosen one after the other: a log line" grep -q "llama.cpp computes RMS norms" "$WORK/err"
run convert "$GOLDEN/phi3" --to gguf -o windows.gguf
ok "windows that llama.cpp ignores: a log line" grep -q "no sliding window for this family; context_length is the window" "$WORK/err"
changed betas deepseek_v3 ".rope_scaling.beta_slow = 2 | del(.rope_scaling.mscale, .rope_scaling.mscale_all_dim)"
run convert betas --to gguf -o betas.gguf
ok "yarn with other ends: a log line" grep -q "32 and 1 as ends of yarn.s ramp.* beta_slow 2" "$WORK/err"
ok "yarn on latent attention: a log line" grep -q "scales all columns of latent attention" "$WORK/err"
fails "other layers that do not rotate" 2 x.gguf convert "$GOLDEN/smollm3" --to gguf -o x.gguf

# Biases that llama.cpp has no place for or asks for, heads that do not fill the hidden size, a head that is the embedding.
# otherwise NAME FAMILY MODEL REGEX WHAT FLAG...: a model of a family file with another line is refused, and why
otherwise() {
    sed "s/$4/$5/; s/^name: .*/name: otherwise/" "$ROOT/configs/families/$2.yaml" >"$WORK/otherwise.yaml"
    fails "$1" 2 x.gguf convert "$GOLDEN/$3" --to gguf -o x.gguf --family otherwise.yaml
    ok "$1: it says so" mentions "$6"
}
otherwise "biases without a place" llama llama-linear-rope-bias 'attention_bias: {tensor: .*' 'attention_bias: {default: false}' \
    '"attention_bias" is true in .*only without these tensors'
otherwise "biases that are asked for" llama llama2 'attention_bias: {tensor: .*' 'attention_bias: {default: true}' \
    '"attention_bias" is false in .*only with these tensors'
otherwise "heads of another width" qwen3 qwen3 'use_sliding_window: {default: .*' 'head_dim: {rule: hidden_by_heads}' \
    "gguf has no word for its sizes"
otherwise "a head that is the embedding" qwen3 qwen3 'use_sliding_window: {default: .*' 'tie_word_embeddings: {default: false}' \
    "gguf has no word for a head that is the embedding"

# Long rope: factors of short texts and of long ones.  They are F32 in the file, so the last bits may differ.
run convert "$GOLDEN/phi3-longrope" --to gguf -o long.gguf
ok "long rope as GGUF, got $rc" test "$rc" = 0
run inspect long.gguf --json
ok "long rope comes back" json '.model.layer_forms[0].scaling != "none"' "$WORK/out"
run convert long.gguf --to gguf -o long-2.gguf
same "long rope: written again" long.gguf long-2.gguf

# Which layers have a window is a list in the file, so it need not be every fourth.
run inspect cohere2.gguf --json
cp "$WORK/out" "$WORK/ours"
run inspect "$GOLDEN/cohere2" --json
ok "windows come back" test "$(jq -c '.model.layer_forms' "$WORK/ours")" = "$(jq -c '.model.layer_forms' "$WORK/out")"
ok "some have one, some not" json '[.model.layer_forms[].window > 0] | unique | length == 2' "$WORK/ours"
# One architecture, two families: a window tells them apart.
for m in olmo2 olmo3; do
    run inspect $m.gguf --json
    ok "$m.gguf is read as $m" json ".model.family == \"$m\"" "$WORK/out"
done
finish
