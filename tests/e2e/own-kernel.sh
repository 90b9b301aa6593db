#!/bin/bash
# tests/e2e/own-kernel.sh TESSERA CODEBOOK.so - a model in a plugin's own format, by its kernel and by dequantize(): the same logits
# to within F32 sums, the same bits for any batch and number of threads.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CODEBOOK=$(readlink -f "$2")
cd "$WORK"
model() { # NAME OPTION...
    local name=$1
    shift
    run quantize @demo --use codebook "$@" --plugin-path "$CODEBOOK" -o "$name" --json
    ok "$name: quantize succeeds, got $rc" test "$rc" = 0
}
logits() { # MODEL OUT OPTION...
    local model=$1 to=$2
    shift 2
    run logits "./$model" --tokens 1,2,3,4,5,6,7,8,9 --plugin-path "$CODEBOOK" -o "$to" "$@"
    ok "$to: succeeds, got $rc" test "$rc" = 0
}
model kernel
ok "two bits a weight, and an F16 scale for 64" json '.results.quantize.bits_per_weight == 2.25' out
model plain --kernel=false
model scalar --avx2=false
logits kernel a
logits kernel b --threads 1
logits kernel c --step
logits scalar d
logits plain e
ok "any number of threads gives the same bytes" cmp a b
ok "prefill and decode give the same bytes" cmp a c
ok "with AVX2 and without it the same bytes" cmp a d
# Two files of F32: the largest difference beside the largest number.  Sums in another order may differ by (columns + 8) 2^-24
# of their magnitudes in each product (the rule kernel-close), 3.1e-5 at 512 columns; a few layers of that stay below 1e-4.
differs() {
    local skip
    skip=$(($(od -A n -t u8 -N 8 a | tr -d ' ') + 8))
    paste <(od -A n -v -t f4 -w4 -j "$skip" "$1") <(od -A n -v -t f4 -w4 -j "$skip" "$2") |
        awk '/[an]/ { wrong = 1 } # nan or inf
            { d = $1 - $2; d = d < 0 ? -d : d; m = d > m ? d : m; a = $1 < 0 ? -$1 : $1; t = a > t ? a : t; n++ }
            END { exit !(!wrong && n == 9 * 4096 && t > 0 && m <= 1e-4 * t) }'
}
ok "the kernel's logits are those of dequantize, to 1e-4 of the largest" differs a e
ok "they differ in their last bits: the kernel ran" bash -c "! cmp -s a e"

# ---- ranks: stages share layers; ranks of one stage would share columns, which a kernel does not do
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 3, "temperature": 0}}' >in.jsonl
plan() { # KEYS of the first stage
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 16, batch: 1, kv: f32}
micro_batches: {prefill: 1, decode: 1}
stages:
  - {layers: 0-2, node: n, device: a, $1schemes: [{layers: 0-2, bits: 2}]}
  - {layers: 3-5, node: n, device: b, schemes: [{layers: 3-5, bits: 2}]}
PLAN
}
plan '' >stages.yaml
plan 'tp: 2, collective: {prefill: {codec: plain, algorithm: all-gather}, decode: {codec: plain, algorithm: all-gather}}, ' >two.yaml
run batch kernel -i in.jsonl -o one.jsonl --plugin-path "$CODEBOOK"
ok "one rank: succeeds, got $rc" test "$rc" = 0
run batch kernel -i in.jsonl -o stages.jsonl --plugin-path "$CODEBOOK" --set run.plan=stages.yaml --set run.ranks=threads
ok "two stages: succeeds, got $rc" test "$rc" = 0
for file in one stages; do # identity and time apart
    jq -c '.response.body.choices' "$file.jsonl" >"$file.answers"
done
ok "two stages: the answers of one rank" cmp one.answers stages.answers
run batch kernel -i in.jsonl -o two.jsonl --plugin-path "$CODEBOOK" --set run.plan=two.yaml --set run.ranks=threads
ok "two ranks of a stage: refused, got $rc" test "$rc" != 0
ok "and the reason is said" grep -q "kernel of quantizer 'org.example.codebook/codebook:[^']*' multiplies whole rows" err
finish
