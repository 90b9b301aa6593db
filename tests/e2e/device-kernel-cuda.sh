#!/bin/bash
# tests/e2e/device-kernel-cuda.sh TESSERA CODEBOOK.so STAND-IN CUDA.so - a plugin's code for CUDA devices, which nvcc made, through the
# backend cuda over a driver of the tests (tests/gpu/standin) that has the kernel as C and works late: the bytes of the CPU, graphs, and
# no memory taken after the first launch.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CODEBOOK=$(readlink -f "$2") STANDIN=$(readlink -f "$3") CUDA=$(readlink -f "$4")
export TSR_STANDIN_LOG=$WORK/counts
export LD_LIBRARY_PATH=$STANDIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cd "$WORK"
count() { awk -v n="$1" '$1 == n {print $2}' "$WORK/counts"; }
run quantize "$STORIES" --use codebook -o kernel --plugin-path "$CODEBOOK"
ok "quantize succeeds, got $rc" test "$rc" = 0
logits() { # OUT OPTION...
    run logits ./kernel --tokens 1,2,3,4,5,6,7 --plugin-path "$CODEBOOK" --plugin-path "$CUDA" -o "$@" --numerics exact
    ok "$1: succeeds, got $rc" test "$rc" = 0
}
logits cpu --backend cpu
for launching in graphs single overlap; do
    rm -f counts
    logits "$launching" --backend "cuda:launching=$launching"
    ok "$launching: prefill gives the bytes of the CPU" cmp cpu "$launching"
    rm -f counts
    logits "$launching-step" --backend "cuda:launching=$launching" --step
    ok "$launching: decode, too" cmp cpu "$launching-step"
    ok "$launching: the plugin's kernel ran for each token" test "$(count codebook_linear)" -ge 7
    ok "$launching: with a launch that adds its segments" test "$(count k_segments)" = "$(count codebook_linear)"
    ok "$launching: no memory is taken after the first launch" test "$(count late)" = 0
    ok "$launching: nothing is left allocated" test "$(count allocated)" = 0
    [ "$launching" = single ] || ok "$launching: in graphs" test "$(count graphs)" -ge 1
done
# Ranks of one stage share rows and columns, on two devices and on four. A token has 7 products in each of 6 layers; a kernel of whole
# rows leaves the two whose columns ranks share to the CPU.
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 2, "temperature": 0, "logprobs": 4}}' >in.jsonl
answers() { # NAME MODEL RANKS OPTION...
    cat >plan.yaml <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 8, generate: 3, batch: 1, kv: f32}
micro_batches: {prefill: 1, decode: 1}
stages:
  - {layers: 0-5, node: n, device: a, tp: $3, collective: {prefill: {codec: plain, algorithm: all-gather}, decode: {codec: plain, algorithm: all-gather}}, schemes: [{layers: 0-5, bits: 2}]}
PLAN
    rm -f counts
    TSR_STANDIN=devices=$3 run batch "$2" -i in.jsonl -o "$1.jsonl" --plugin-path "$CODEBOOK" --plugin-path "$CUDA" \
        --set run.plan=plan.yaml --set run.ranks=threads --numerics exact "${@:4}"
    ok "$1: succeeds, got $rc" test "$rc" = 0
    jq -c '.response.body.choices' "$1.jsonl" >"$1.answers"
}
for model in columns rows; do
    each=$([ $model = columns ] && echo 84 || echo 60) # two passes, each of 42 products or of 30
    run quantize @demo --use codebook --set "quantize.columns=$([ $model = columns ] && echo true || echo false)" -o $model \
        --plugin-path "$CODEBOOK"
    ok "$model: quantize succeeds, got $rc" test "$rc" = 0
    for n in 2 4; do
        answers $model-cpu-$n $model $n --backend cpu
        answers $model-$n $model $n --backend cuda
        ok "$model, $n ranks: the answers of the CPU" cmp $model-cpu-$n.answers $model-$n.answers
        ok "$model, $n ranks: $each products each on a device, got $(count codebook_linear)" \
            test "$(count codebook_linear)" = $((each * n))
        ok "$model, $n ranks: no memory is taken after the first launch" test "$(count late)" = 0
    done
done
ok "they have log-probabilities" jq -e '.[0].logprobs.token_logprobs | length == 2 and all(. < 0)' columns-4.answers >holds
answers one columns 1 --backend cpu
ok "four ranks give the answers of one" cmp one.answers columns-4.answers
run plugin check "$CODEBOOK" --no-model --only 'device-*' --on "$CUDA" --json
ok "it keeps the rules, got $rc" json '.rules | map(.verdict) == ["passed", "passed", "passed", "passed"]' out
finish
