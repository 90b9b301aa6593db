#!/bin/bash
# tests/e2e/device-kernel.sh TESSERA CODEBOOK.so BAD.so SIMT.so - a model in a plugin's own format on an emulated CUDA device, by
# the plugin's code for it: the bytes of the CPU, in prefill and in decode.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CODEBOOK=$(readlink -f "$2") BAD=$(readlink -f "$3") SIMT=$(readlink -f "$4")
cd "$WORK"
model() { # NAME PLUGIN OPTION...
    run quantize "$STORIES" --use "$2" -o "$1" --plugin-path "$3" --json "${@:4}"
    ok "$1: quantize succeeds, got $rc" test "$rc" = 0
}
TOKENS=1,2,3,4,5,6
logits() { # MODEL OUT PLUGIN OPTION...
    run logits "./$1" --tokens "$TOKENS" --plugin-path "$3" --plugin-path "$SIMT" -o "$2" -v "${@:4}"
    ok "$2: succeeds, got $rc" test "$rc" = 0
}
on=(--backend simt --numerics exact)
model kernel codebook "$CODEBOOK"
logits kernel cpu "$CODEBOOK"
logits kernel device "$CODEBOOK" "${on[@]}"
ok "the plugin's code runs on the device" grep -q "products of org.example.codebook/1 run on SIMT emulation" err
ok "in prefill it gives the bytes of the CPU" cmp cpu device
logits kernel step "$CODEBOOK" "${on[@]}" --step
ok "in decode, too" cmp cpu step
logits kernel some "$CODEBOOK" "${on[@]}" --gpu-layers 2
ok "and for some layers" cmp cpu some
model host codebook "$CODEBOOK" --device=false
logits host host.out "$CODEBOOK" "${on[@]}"
ok "without code for the device its products run on the CPU, and the log says so" grep -q "no code for SIMT emulation" err
ok "with the same bytes" cmp cpu host.out
model whole codebook "$CODEBOOK" --columns=false
logits whole whole.out "$CODEBOOK"
logits whole whole-device.out "$CODEBOOK" "${on[@]}"
ok "whole rows: the bytes of the CPU" cmp whole.out whole-device.out

# ---- ranks of one stage share rows and columns: each has its part on the device
ranks() { # RANKS: a plan
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 8, generate: 3, batch: 1, kv: f32}
micro_batches: {prefill: 1, decode: 1}
stages:
  - {layers: 0-5, node: n, device: a, tp: $1, collective: {prefill: {codec: plain, algorithm: all-gather}, decode: {codec: plain, algorithm: all-gather}}, schemes: [{layers: 0-5, bits: 2}]}
PLAN
}
for n in 1 2 4; do ranks $n >"$n.yaml"; done
request() { # PROMPT
    jq -cn --arg p "$1" '{custom_id: "a", method: "POST", url: "/v1/completions",
        body: {prompt: $p, max_tokens: 2, temperature: 0, logprobs: 4}}'
}
request Once >in.jsonl
answers() { # NAME MODEL PLUGIN RANKS OPTION...: into NAME.answers, with log-probabilities
    run batch "$2" -i in.jsonl -o "$1.jsonl" --plugin-path "$3" --plugin-path "$SIMT" --set "run.plan=$4.yaml" --set run.ranks=threads \
        --numerics exact -v "${@:5}"
    ok "$1: succeeds, got $rc" test "$rc" = 0
    jq -c '.response.body.choices' "$1.jsonl" >"$1.answers"
}
shared() { # NAME RANKS OPTION...: a model of it on so many ranks, which share columns
    local n
    run quantize @demo --use codebook -o "demo-$1" --plugin-path "$CODEBOOK" "${@:3}"
    ok "demo-$1: quantize succeeds, got $rc" test "$rc" = 0
    for n in $2; do
        answers "$1-cpu-$n" "demo-$1" "$CODEBOOK" "$n"
        answers "$1-device-$n" "demo-$1" "$CODEBOOK" "$n" --backend simt
        ok "$1, $n ranks: the plugin's code runs on the device" grep -q "products of org.example.codebook/1 run on SIMT emulation" err
        ok "$1, $n ranks: it gives the answers of the CPU" cmp "$1-cpu-$n.answers" "$1-device-$n.answers"
    done
    ok "$1: they have log-probabilities" jq -e '.[0].logprobs.token_logprobs | length == 2 and all(. < 0)' "$1-device-2.answers" >holds
}
shared columns "2 4"
answers one demo-columns "$CODEBOOK" 1
ok "two ranks give the answers of one" cmp one.answers columns-device-2.answers
ok "and so do four" cmp one.answers columns-device-4.answers
# a kernel of whole rows: columns that ranks share are multiplied on the CPU, with zeros for those of others
shared rows 2 --columns=false
# the ranks' products are those of the device: a kernel that is wrong for two tokens gives other answers
run quantize @demo --use bad_device --fault=same -o demo-bad --plugin-path "$BAD"
ok "demo-bad: quantize succeeds, got $rc" test "$rc" = 0
for prompt in Once The; do # three tokens, with that before the first word, and two
    request $prompt >in.jsonl
    answers $prompt-cpu demo-bad "$BAD" 2
    answers $prompt-device demo-bad "$BAD" 2 --backend simt
done
ok "a kernel that is right for three tokens, on two ranks" cmp Once-cpu.answers Once-device.answers
ok "and wrong for two" bash -c '! cmp -s The-cpu.answers The-device.answers'

# A kernel that is wrong for two tokens gives other logits for two: it is the plugin's code that multiplies.
model bad bad_device "$BAD" --fault=same
logits bad bad-cpu "$BAD"
logits bad bad-device "$BAD" "${on[@]}"
ok "a kernel that is right for six tokens" cmp bad-cpu bad-device
TOKENS=1,2
logits bad two-cpu "$BAD"
logits bad two-device "$BAD" "${on[@]}"
ok "and wrong for two" bash -c '! cmp -s two-cpu two-device'
model range bad_device "$BAD" --fault=launch
TOKENS=1,2,3
run logits ./range --tokens 1,2,3 --plugin-path "$BAD" --plugin-path "$SIMT" -o x "${on[@]}"
ok "a launch that is out of range: exit status, got $rc" test "$rc" != 0
ok "is named with its place" grep -q "layers.*a launch of kernel 0 of 1.*2048 threads" err
model code bad_device "$BAD" --fault=code
run logits ./code --tokens 1,2,3 --plugin-path "$BAD" --plugin-path "$SIMT" -o x "${on[@]}"
ok "code that does not load: exit status, got $rc" test "$rc" != 0
ok "is named with its place" grep -q "the image has no kernel 'codebook_convolution'" err

finish
