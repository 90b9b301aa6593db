#!/bin/bash
# tests/e2e/own-kernel.sh TESSERA CODEBOOK.so - a model in a plugin's own format, by its kernel and by dequantize(): the same logits
# to within F32 sums, the same bits for any batch, number of threads and of ranks; and its times in a device profile.
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
model whole --columns=false
model stored --prepare=false
logits kernel a
logits kernel b --threads 1
logits kernel c --step
logits scalar d
logits plain e
logits whole f
logits stored g
ok "any number of threads gives the same bytes" cmp a b
ok "prefill and decode give the same bytes" cmp a c
ok "with AVX2 and without it the same bytes" cmp a d
ok "prepared rows and stored rows give the same bytes" cmp a g
# Two files of F32: the largest difference beside the largest number.  Sums in another order may differ by (columns + 8) 2^-24
# of their magnitudes in each product (the rule kernel-close), 3.1e-5 at 512 columns; a few layers of that stay below 1e-4.
differs() { # A B
    local skip
    skip=$(($(od -A n -t u8 -N 8 a | tr -d ' ') + 8))
    paste <(od -A n -v -t f4 -w4 -j "$skip" "$1") <(od -A n -v -t f4 -w4 -j "$skip" "$2") |
        awk '/[an]/ { wrong = 1 } # nan or inf
            { d = $1 - $2; d = d < 0 ? -d : d; m = d > m ? d : m; a = $1 < 0 ? -$1 : $1; t = a > t ? a : t; n++ }
            END { exit !(!wrong && n == 9 * 4096 && t > 0 && m <= 1e-4 * t) }'
}
ok "the kernel's logits are those of dequantize, to 1e-4 of the largest" differs a e
ok "whole rows: likewise" differs f e
ok "they differ in their last bits: the kernel ran" bash -c "! cmp -s a e"

# ---- ranks: stages share layers, ranks of one stage rows and columns
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 3, "temperature": 0, "logprobs": 4}}' >in.jsonl
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
four='tp: 4, collective: {prefill: {codec: plain, algorithm: all-gather}, decode: {codec: plain, algorithm: all-gather}}, '
plan "$four" >four.yaml
plan 'tp: 2, collective: {prefill: {codec: plain, algorithm: all-gather}, decode: {codec: plain, algorithm: all-gather}}, ' >two.yaml
run batch kernel -i in.jsonl -o one.jsonl --plugin-path "$CODEBOOK"
ok "one rank: succeeds, got $rc" test "$rc" = 0
run batch kernel -i in.jsonl -o stages.jsonl --plugin-path "$CODEBOOK" --set run.plan=stages.yaml --set run.ranks=threads
ok "two stages: succeeds, got $rc" test "$rc" = 0
for file in one stages; do # identity and time apart
    jq -c '.response.body.choices' "$file.jsonl" >"$file.answers"
done
ok "two stages: the answers of one rank" cmp one.answers stages.answers
for many in two four; do
    run batch kernel -i in.jsonl -o "$many.jsonl" --plugin-path "$CODEBOOK" --set "run.plan=$many.yaml" --set run.ranks=threads
    ok "$many ranks of a stage: succeeds, got $rc" test "$rc" = 0
    jq -c '.response.body.choices' "$many.jsonl" >"$many.answers"
    ok "$many ranks of a stage: the answers of one rank, with the same log-probabilities" cmp one.answers "$many.answers"
done
ok "which are there" jq -e '.[0].logprobs.token_logprobs | length == 3' one.answers >holds
# Whole rows with zeros for the other rank's columns: other sums, within the bound of own-kernels.md. Logits have some units, so 1e-3
# is above 1e-4 of them.
for plan in stages two; do
    run batch whole -i in.jsonl -o "whole-$plan.jsonl" --plugin-path "$CODEBOOK" --set "run.plan=$plan.yaml" --set run.ranks=threads
    ok "whole rows, $plan: succeeds, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].logprobs.token_logprobs' "whole-$plan.jsonl" >"whole-$plan.numbers"
done
ok "whole rows: two ranks are as near as their sums" jq -se '.[0] as $a | .[1] as $b | ($a | length) == 3 and
    ([range(3) | ($a[.] - $b[.]) | fabs] | all(. < 1e-3))' whole-stages.numbers whole-two.numbers >holds
ok "whole rows: in their last bits they differ" bash -c '! cmp -s whole-stages.numbers whole-two.numbers'

# ---- a device profile: the format has an entry of its own, and plans take it
run profile -o own.yaml --model @demo --scheme codebook --scheme rtn:bits=4 --plugin-path "$CODEBOOK" --quick --repeats 1 --rounds 1 \
    --positions 64 --sequences 4
ok "a profile: succeeds, got $rc" test "$rc" = 0
ok "with the format by its id and bits: a roofline and points" test "$(grep -c '  - kernel: org.example.codebook/1:2$' own.yaml)" = 2
run profile --of own.yaml --model @demo --scheme codebook --plugin-path "$CODEBOOK" --repeats 1 --positions 64 --sequences 4 --check 2 --json
ok "it predicts layers of the format, got $rc" json 'map(.kernel) | unique == ["org.example.codebook/1:2"]' out
device() { # KERNEL SHARE...
    echo 'format: tessera.device/1'
    echo 'name: made'
    echo 'memory: {total: 1 GiB, source: made up}'
    echo 'bandwidth: {peak: 1 GB/s, source: made up}'
    echo 'kernels:'
    while [ $# -gt 0 ]; do
        echo "  - {kernel: $1, ops: 1 PFLOP/s, prefill: {compute: 1, read: $2}, decode: {compute: 1, read: $2}, bytes_per_weight: 1, source: made up}"
        shift 2
    done
}
mkdir devices clusters
cat >clusters/one.yaml <<CLUSTER
version: 1
nodes:
  - name: n
    devices: [{profile: made}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
network: {bandwidth: 1 GB/s, latency: 20 us}
CLUSTER
cat >job.yaml <<JOB
version: 1
model: "@demo"
plugins: [$CODEBOOK]
cluster: clusters/one.yaml
workload: {prompt: 16, generate: 16, batch: 1, kv: f16}
pipeline:
  - plan: {candidates: [codebook]}
JOB
decode_of() { # NAME PROFILE...
    local name=$1
    shift
    device "$@" >devices/made.yaml
    run plan job.yaml -o "$name.plan.yaml" --json
    ok "$name: a plan, got $rc" test "$rc" = 0
    jq '.plan.latency_ms - .plan.prefill_ms' out >"$name.ms"
    jq '[.plan.stages[] | .weights, .ends, .workspace]' out >"$name.sizes"
}
decode_of decoded f32 0.5 bf16 1
decode_of slow f32 0.5 bf16 1 org.example.codebook/1:2 0.25
decode_of fast f32 0.5 bf16 1 org.example.codebook/1:2 1
decode_of named f32 0.5 bf16 1 org.example.codebook/1:2 0.25 codebook/org.example.codebook/1:2 1
ok "plans take the entry of the format, else f32" jq -se '.[0] as $f32 | .[1] > 1.5 * $f32 and .[2] < 0.75 * $f32' decoded.ms slow.ms fast.ms >holds
ok "and before it that of the quantizer" cmp fast.ms named.ms
# A model that is packed already is priced as the candidate was: the entry of its format, else f32.
sed "s|@demo|$WORK/kernel|; s|candidates: .codebook.||" job.yaml >packed.yaml
packed_of() { # NAME PROFILE...
    local name=$1
    shift
    device "$@" >devices/made.yaml
    run plan packed.yaml -o "$name.packed.yaml" --json
    ok "$name, packed: a plan, got $rc" test "$rc" = 0
    jq '.plan.latency_ms - .plan.prefill_ms' out >"$name.packed"
    jq '[.plan.stages[] | .weights, .ends, .workspace]' out >"$name.packed-sizes"
}
packed_of decoded f32 0.5 bf16 1
packed_of slow f32 0.5 bf16 1 org.example.codebook/1:2 0.25
packed_of fast f32 0.5 bf16 1 org.example.codebook/1:2 1
for name in decoded slow fast; do
    ok "$name: the price of the packed model is that of the candidate" cmp "$name.ms" "$name.packed"
    ok "$name: and so are its bytes" cmp "$name.sizes" "$name.packed-sizes"
done
# 2.25 bits of each of 3,538,944 weights, and F32 gains of two norms of 256 in six layers
ok "they are what is stored" jq -e '.[0] == 3538944 * 2.25 / 8 + 6 * 2 * 256 * 4' decoded.sizes >holds
finish
