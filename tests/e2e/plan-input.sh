#!/bin/bash
# tests/e2e/plan-input.sh TESSERA - what a plan is made from beside headers: prompts of a file, indicators of a
# file, and a model whose weights are packed already.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir "$WORK/devices" "$WORK/clusters"
device() { # NAME MEMORY RATE OPS
    cat >"$WORK/devices/$1.yaml" <<DEVICE
format: tessera.device/1
name: $1
memory: {total: $2, source: made up}
bandwidth: {peak: $3, source: made up}
kernels:
$(for k in f16 bf16 f32 int3 int4 int8; do
        echo "  - {kernel: $k, ops: $4, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
}
device small "1 MiB" "1 GB/s" "100 GFLOP/s"
device large "2 MiB" "3 GB/s" "400 GFLOP/s"
cat >"$WORK/clusters/tiny.yaml" <<CLUSTER
version: 1
nodes:
  - {name: a, devices: [{profile: small, count: 2}], link: {bandwidth: 10 GB/s, latency: 5 us}}
  - {name: b, devices: [{profile: large}]}
network: {bandwidth: 1 GB/s, latency: 20 us}
CLUSTER
job() { # MODEL WORKLOAD OPTIONS
    cat <<JOB
version: 1
model: $1
cluster: clusters/tiny.yaml
workload: {$2}
pipeline:
  - plan: {baselines: none, $3}
JOB
}

# ---- prompts of a file: their lengths, as text through the model's tokenizer or as numbers
cat >"$WORK/prompts.jsonl" <<'RECORDS'
{"prompt": "Once upon a time there was a little girl named Lily.", "max_tokens": 8}
{"body": {"prompt_tokens": 40, "max_tokens": 24}}
{"prompt_tokens": 20}
RECORDS
job "$STORIES" 'from: prompts.jsonl, generate: 10, batch: 8' 'use: rtn, group: 32, bits: [4, 8]' >"$WORK/from.yaml"
run plan from.yaml -o p.yaml --json
ok "prompts of a file, got $rc" test "$rc" = 0
# the ids of the text, counted by the program that the model came with
run tokenize "$STORIES" --text "Once upon a time there was a little girl named Lily." --json
first=$(jq '.ids | length' "$WORK/out" 2>/dev/null || echo 0)
ok "the text has tokens, got $first" test "$first" -gt 5
run plan from.yaml -o p.yaml --json
ok "means, rounded up, and the longest of each" json --argjson n "$first" '.workload.distribution and
    .workload.prompt == (($n + 40 + 20) / 3 | ceil) and .workload.generate == (42 / 3 | ceil) and
    .workload.context == 40 + 24' "$WORK/out"
run plan from.yaml -o p.yaml
ok "the table says so" grep -qE 'on average, at most 64 together' <(tr -s ' \n' ' ' <"$WORK/out")
sed -i 's/"prompt_tokens": 20/"prompt_tokens": -20/' "$WORK/prompts.jsonl"
fails "a record that is wrong" 2 from.yaml:4:18 plan from.yaml -o x.yaml
ok "a record that is wrong: its line" failure '.diagnostics[0].object == "prompts.jsonl:3"'
sed -i 's/prompts.jsonl/none.jsonl/' "$WORK/from.yaml"
fails "no such file" 2 from.yaml:4:18 plan from.yaml -o x.yaml
ok "no such file: named" failure '.diagnostics[0].object == "none.jsonl"'

# ---- indicators of a file
cat >"$WORK/i.json" <<'TABLE'
{"format": "tessera.indicators/1", "model": "xxh3:0", "layers": 5, "bits": [4, 8, 16], "tables": [
 {"name": "variance", "omega": [[9, 1, 0], [1, 0.1, 0], [1, 0.1, 0], [1, 0.1, 0], [9, 1, 0]]},
 {"name": "measured", "omega": [[1, 0.1, 0], [1, 0.1, 0], [50, 1, 0], [1, 0.1, 0], [1, 0.1, 0]]}]}
TABLE
job "$STORIES" 'prompt: 64, generate: 32, batch: 8, kv: f16' \
    'use: rtn, group: 32, bits: [4, 8], quality: {indicators: i.json, max_omega: 6}' >"$WORK/indicators.yaml"
run plan indicators.yaml -o p.yaml --json
ok "a file of indicators, got $rc" test "$rc" = 0
ok "the best of its tables; the layer that suffers is wide" json '(.prior | not) and (.quality | test("measured")) and
    .plan.bits[2] == "rtn-8" and .plan.omega <= 6 and
    ([.plan.bits | to_entries[] | if .key == 2 then (if .value == "rtn-4" then 50 else 1 end)
      else (if .value == "rtn-4" then 1 else 0.1 end) end] | add) as $sum | (.plan.omega - $sum | fabs) < 1e-9' "$WORK/out"
ok "the plan file names it" grep -qE '^quality: \{source: .*i.json.*, table: measured, hash: xxh3:' "$WORK/p.yaml"
run plan indicators.yaml -o p.yaml --json --set plan.quality.table=variance --set plan.quality.max_omega=5
ok "the table that is asked for, got $rc" json '(.quality | test("variance")) and .plan.bits[0] == "rtn-8" and
    .plan.bits[4] == "rtn-8" and .plan.omega <= 5' "$WORK/out"
was=$(jq .plan.omega "$WORK/out")
run plan indicators.yaml --check p.yaml --json --set plan.quality.table=variance --set plan.quality.max_omega=5
ok "and is priced again, got $rc" json --argjson was "$was" '.plan.omega == $was' "$WORK/out"
run plan indicators.yaml --check p.yaml
ok "by the other table it is not good enough, got $rc" test "$rc" = 3
fails "a table that is not there" 2 i.json plan indicators.yaml -o x.yaml --set plan.quality.table=hessian
ok "a table that is not there: named" mentions '"hessian"'
sed -i 's/"layers": 5/"layers": 4/' "$WORK/i.json"
run plan indicators.yaml -o x.yaml
ok "indicators of another model: exit code 2, got $rc" test "$rc" = 2

# ---- a model that is packed: its bits are what they are, places and micro-batches are planned
run quantize "$STORIES" --use rtn --group 32 --bits 4 -o packed4
run quantize "$STORIES" --use rtn --group 32 --bits 8 -o packed8
ok "packed, got $rc" test "$rc" = 0
work='prompt: 64, generate: 32, batch: 8'
job packed4 "$work" 'use_all: true' >"$WORK/kept.yaml"
run plan kept.yaml -o k.yaml --json
cp "$WORK/out" "$WORK/kept.json"
ok "a packed model is planned, got $rc" test "$rc" = 0
ok "with the bits that it has" json '.candidates == ["packed-4"] and (.plan.stages | length) == 3 and
    all(.plan.bits[]; . == "packed-4") and .plan.omega == 0' "$WORK/kept.json"
job "$STORIES" "$work" 'use: rtn, group: 32, bits: [4], use_all: true' >"$WORK/same.yaml"
run plan same.yaml -o s.yaml --json
ok "as long and as large as the original packed so" json --slurpfile k "$WORK/kept.json" \
    '.plan.latency_ms == $k[0].plan.latency_ms and [.plan.stages[].total] == [$k[0].plan.stages[].total]' "$WORK/out"
run plan kept.yaml -o k8.yaml --json --set model=packed8
ok "wider codes take more" json --slurpfile k "$WORK/kept.json" '.candidates == ["packed-8"] and
    ([.plan.stages[].weights] | add) > 1.5 * ([$k[0].plan.stages[].weights] | add)' "$WORK/out"
run plan kept.yaml --check k.yaml --json
ok "its plan checks, got $rc" json --slurpfile k "$WORK/kept.json" '.plan.latency_ms == $k[0].plan.latency_ms' "$WORK/out"
run plan kept.yaml --check k.yaml --export vllm --json
ok "another program gets the partition alone, got $rc" json '(.VLLM_PP_LAYER_PARTITION | split(",") | length) == 3 and
    .bits == [] and .gptq_dynamic == {}' "$WORK/out"
fails "bits for a packed model" 2 'packed4' \
    plan kept.yaml -o x.yaml --set 'plan.bits=[4]'
sed 's/keep: true/use: rtn, bits: 8/' "$WORK/k.yaml" >"$WORK/k-edited.yaml"
fails "a plan that would pack it again" 2 'k-edited.yaml' plan kept.yaml --check k-edited.yaml
ok "no plan was written" test ! -e "$WORK/x.yaml"
finish
