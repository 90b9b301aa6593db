#!/bin/bash
# tests/e2e/plan.sh TESSERA - a plan file says which layer takes what: packed as it says, and refused
# with a place where it cannot be meant.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

cat >"$WORK/plan.yaml" <<PLAN
format: tessera.plan/1
layers: 5
stages:
  - layers: 0-2
    schemes:
      - {layers: 0-2, bits: 3}
      - {layers: 1, use: mx, element: fp4_e2m1}
  - layers: 3-4
    schemes:
      - {layers: 3-4, bits: 8}
      - {layers: 3-4, tensors: "*.down_proj", bits: 4}
PLAN
cp "$WORK/plan.yaml" "$WORK/good.yaml"
run quantize "$STORIES" --use rtn --group 32 --plan plan.yaml -o packed
ok "a plan is followed, got $rc" test "$rc" = 0
run inspect packed --json
ok "the packed model loads" test "$rc" = 0

job() {
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - quantize: {use: rtn, group: 32, plan: plan.yaml$1}
JOB
}
job ', rules: [{layers: 3-4, tensors: "*.q_proj", bits: 5}]'
run run job.yaml --out job
ok "as a step too, got $rc" test "$rc" = 0
cat >"$WORK/want.jq" <<'JQ'
def bits(l; t): [.results.quantize.linears[] | select(.name | startswith("model.layers.\(l).")) |
    select(.name | endswith(t)) | .bits_per_weight] | if length == 1 then .[0] else error("\(length)") end;
# rtn takes a bit more than its codes for groups of 32 (less at a short end), mx half a bit for 16
bits(0; "up_proj") == 4 and bits(1; "up_proj") == 4.5 and bits(2; "down_proj") < 4 and bits(3; "up_proj") == 9 and
bits(3; "down_proj") < 5 and bits(4; "q_proj") == 6 and bits(4; "k_proj") == 9 and
([.results.quantize.linears[] | select(.plugin | test("mx"))] | length == 7)
JQ
ok "each layer has what the plan says, and rules come after it" jq -e -f "$WORK/want.jq" "$WORK/job/results.json" >"$WORK/jq"
run run job.yaml --out job
ok "the same again is done already" is_done job

# Another plan is another job.
sed -i 's/layers: 0-2, bits: 3/layers: 0-2, bits: 4/' "$WORK/plan.yaml"
fails "a job folder of another plan" 2 'job' run job.yaml --out job

# A whole one, as the planner writes it, packs the same.
sed 's/^layers: 5$/layers: 5\nworkload: {prompt: 32, generate: 8, batch: 4, kv: f16}\nmicro_batches: {prefill: 1, decode: 2}\npredicted: {latency_ms: 12.5, solver: exact, proved: true}/; s/^  - layers: \(.*\)$/  - layers: \1\n    node: a\n    device: T4\n    send: {decode: {codec: plain}}\n    predicted: {weights: 10, busy: 0.5}\n    compensation: [{layers: \1, tensors: "*", k: 8}]/' "$WORK/good.yaml" >"$WORK/plan.yaml"
job ''
run run job.yaml --out whole
ok "a plan with stages and micro-batches packs, got $rc" test "$rc" = 0

# What cannot be meant: the plan's own place.
job ''
while IFS='|' read -r name edit place says; do
    sed "$edit" "$WORK/good.yaml" >"$WORK/plan.yaml"
    fails "$name" 2 "plan.yaml:$place" run job.yaml --out bad
    ok "$name: about $says" mentions "$says"
done <<'CASES'
a hole between stages|s/layers: 3-4$/layers: 4/|8:*|layer 3\b
the last layer is missing|s/3-4/3/|4:*|layer 4\b
a layer without scheme|s/layers: 0-2, bits/layers: 0-1, bits/|6:*|layer 2\b
a layer of another stage|s/layers: 1, use/layers: 3, use/|7:*|layer 3\b
more layers than there are|s/layers: 3-4$/layers: 3-9/|8:*|9
an unknown key|s/^stages/notes: x\nstages/|3:*|notes
another format|s/plan.1/plan.9/|1:*|tessera.plan.9
an option that no plugin has|s/bits: 8/bots: 8/|10:*|bots
an entry without layers|s/{layers: 0-2, bits/{bits/|6:*|layers
half a place|2s/$/\nmicro_batches: {prefill: 1, decode: 2}/|1:*|workload
micro-batches out of order|2s/$/\nworkload: {prompt: 8, generate: 4, batch: 2}\nmicro_batches: {prefill: 2, decode: 1}/|4:16|micro_batches
a stage without a place|2s/$/\nworkload: {prompt: 8, generate: 4, batch: 2}\nmicro_batches: {prefill: 1, decode: 2}/|6:5|node
channels of another stage|4s/$/\n    compensation: [{layers: 4, k: 8}]/|5:20|\b4\b
CASES

sed 's/^layers: 5/layers: 6/; s/layers: 3-4/layers: 3-5/' "$WORK/good.yaml" >"$WORK/plan.yaml"
fails "a plan for more layers than the model has" 2 'plan.yaml' run job.yaml --out bad
sed 's/^layers: 5/layers: 5\nmodel: xxh3:00000000000000000000000000000000/' "$WORK/good.yaml" >"$WORK/plan.yaml"
fails "a plan for another model" 2 'plan.yaml' run job.yaml --out bad
rm "$WORK/plan.yaml"
fails "no such plan" 2 'job.yaml:4:*' run job.yaml --out bad
ok "no such plan: its name" mentions 'plan[.]yaml'
finish
