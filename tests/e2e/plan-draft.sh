#!/bin/bash
# tests/e2e/plan-draft.sh TESSERA VAULT - a plan reserves the memory of the draft model of the step that runs by it, on the first device or
# beside it in the memory of its node's CPU: as many bytes of weights and cache as the run then reports.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
VAULT=$(readlink -f "$2") # a backend with memory that the host cannot read

mkdir "$WORK/devices" "$WORK/clusters"
device() { # NAME KIB BACKEND
    cat >"$WORK/devices/$1.yaml" <<DEVICE
format: tessera.device/1
name: $1
${3:+backend: $3}
memory: {total: $2 KiB, source: made up}
bandwidth: {peak: 1 GB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int2 int3 int4 int8; do
        echo "  - {kernel: $k, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
}
cat >"$WORK/clusters/two.yaml" <<CLUSTER
version: 1
nodes:
  - name: a
    devices: [{profile: box, count: 2}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
CLUSTER
# a run has no more slots than requests
jq -cn 'range(4) | {custom_id: "r\(.)", method: "POST", url: "/v1/completions", body: {max_tokens: 8, prompt: "The President said that"}}' >"$WORK/in.jsonl"
job() { # STEP-KEYS
    cat <<JOB
version: 1
model: "@demo"
plugins: ["$VAULT"]
cluster: clusters/two.yaml
workload: {prompt: 40, generate: 24, batch: 4, concurrency: 0, chunk: 0, kv: f32}
pipeline:
  - plan: {use: rtn, bits: [8], baselines: none, use_all: true, max_tp: 1, codec: plain}
  - run: {input: in.jsonl, output: out.jsonl, ranks: threads, context: 64$1}
JOB
}
run quantize "$DEMO" --use rtn --bits 4 --out small
ok "a draft model: exit code 0, got $rc" test "$rc" = 0

# ---- the bytes that are planned are those that the run reports
device box 1000000 cpu
job "" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml --json
ok "without drafts nothing is reserved" json '(has("draft") | not) and (.plan.stages | length == 2 and all(.[]; has("draft") | not))' "$WORK/out"
cp "$WORK/out" "$WORK/plain"
for draft in small self "self, draft_bits: 5"; do
    job ", draft: $draft" >"$WORK/job.yaml"
    run plan job.yaml -o x.yaml --json
    ok "draft: $draft: a plan, got $rc" test "$rc" = 0
    ok "draft: $draft: on the first device alone" json '.draft.total as $n | $n > 100000 and [.plan.stages[].draft] == [$n, 0] and
        $n == .draft.weights + .draft.kv + .draft.workspace' "$WORK/out"
    ok "draft: $draft: and in its total" json --slurpfile was "$WORK/plain" '
        (.plan.stages | map(.total - .weights - .kv - .ends - .workspace)) == (.plan.stages | map(.draft)) and
        ($was[0].plan.stages | map(.total - .weights - .kv - .ends - .workspace)) == [0, 0]' "$WORK/out"
    bytes=$(jq '.draft.weights + .draft.kv' "$WORK/out")
    rm -rf "$WORK/ran"
    run run job.yaml --out ran
    ok "draft: $draft: runs, got $rc" test "$rc" = 0
    # a run does not count the 13 norms of 256 floats, nor what a backend keeps with each of the 43 matrices, less than 1 KiB; a
    # slot of the cache has 393,216 bytes, a bit more or less 442,368
    ok "draft: $draft: $bytes bytes were planned, the run has $(jq .results.run.drafts.bytes "$WORK/ran/results.json")" \
        json --argjson n "$bytes" '.results.run.drafts.bytes <= $n and $n - .results.run.drafts.bytes <= 13 * 1024 + 43 * 1024' "$WORK/ran/results.json"
done
run plan job.yaml -o x.yaml
ok "in the table" grep -qE '^draft +a draft model of [0-9.]+ MiB on the first device' "$WORK/out"

# ---- where there is no room: the first device has fewer layers, or there is no plan
total=$(jq '[.plan.stages[].total] | max' "$WORK/plain")
device box $((total / 1024 + 40)) cpu
job "" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml
ok "the model alone fits, got $rc" test "$rc" = 0
job ", draft: small" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml
ok "not with a draft model: exit code 3, got $rc" test "$rc" = 3
ok "in one sentence" grep -qE 'no plan exists: .*with a draft model of [0-9.]+ MiB on the first device' "$WORK/err"
run run job.yaml --out refused
ok "the job is refused, too: exit code 3, got $rc" test "$rc" = 3
more=$(jq -n --argjson n "$bytes" '$n / 1024 | ceil')
device box $((total / 1024 + 40 + 2 * more)) cpu
run plan job.yaml -o x.yaml
ok "with room for it, got $rc" test "$rc" = 0
device box $((total / 1024 + 40)) ""
run plan job.yaml -o x.yaml
ok "a device that no backend is named of reserves it, got $rc" test "$rc" = 3
# `lookup` and plans of other files reserve nothing
job ", draft: lookup" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml --json
ok "lookup takes no memory" json '.plan.status == "optimal" and (has("draft") | not)' "$WORK/out"
job ", draft: small, plan: other.yaml" >"$WORK/job.yaml"
cp "$WORK/x.yaml" "$WORK/other.yaml"
run plan job.yaml -o x.yaml --json
ok "a run by another plan is not this one's" json '.plan.status == "optimal" and (has("draft") | not)' "$WORK/out"

# ---- what cannot draft
job ", draft: small" | sed -e 's/"@demo"/small/; s/draft: small/draft: self/; s/use: rtn, bits: \[8\], //' >"$WORK/job.yaml"
fails_with "packed weights draft for nobody" 2 '*' 'draft: self: .* is packed' plan job.yaml -o y.yaml

# ---- beside devices with a backend of their own: the step's backend is the CPU, so the draft model is in the memory of the CPU
job ", draft: small" >"$WORK/job.yaml"
cat >"$WORK/clusters/two.yaml" <<CLUSTER
version: 1
nodes:
  - name: a
    devices: [{profile: card, count: 2, backend: vault}]
    cpu: {profile: host, link: {bandwidth: 10 GB/s, latency: 5 us}}
    link: {bandwidth: 10 GB/s, latency: 5 us}
CLUSTER
device card 1000000 vault
device host 1000000 cpu
run plan job.yaml -o x.yaml --json
ok "two cards and a CPU: a plan, got $rc" test "$rc" = 0
ok "no card holds the draft model" json '.draft.total == 0 and ([.plan.stages[].draft] == [0, 0])' "$WORK/out"
need=$(jq .draft.elsewhere "$WORK/out")
bytes=$(jq '.draft.weights + .draft.kv' "$WORK/out")
rm -rf "$WORK/ran"
run run job.yaml --out ran
ok "runs on the cards, got $rc" test "$rc" = 0
ok "with a draft model of as many bytes as planned" json --argjson n "$bytes" \
    '.results.run.drafts.bytes <= $n and $n - .results.run.drafts.bytes <= 13 * 1024 + 43 * 1024' "$WORK/ran/results.json"
run plan job.yaml -o x.yaml --json
ok "the CPU does: its $need bytes are those of weights, cache and workspace" json \
    '.draft.elsewhere > 100000 and .draft.elsewhere == .draft.weights + .draft.kv + .draft.workspace' "$WORK/out"
run plan job.yaml -o x.yaml
ok "in the table" grep -qE '^draft +a draft model of [0-9.]+ MiB beside the first stage, in its node' "$WORK/out"
device host $((need / 1024 - 1)) cpu
run plan job.yaml -o x.yaml
ok "a CPU that is too small: exit code 3, got $rc" test "$rc" = 3
ok "in one sentence" grep -qE 'no plan exists: .*with a draft model of [0-9.]+ MiB beside the first stage' "$WORK/err"
device host $((need / 1024 + 1)) cpu
run plan job.yaml -o x.yaml
ok "one with room for it, got $rc" test "$rc" = 0
run plan --check x.yaml job.yaml
ok "the file says so, too, got $rc" test "$rc" = 0
device host $((need / 1024 - 1)) cpu
run plan --check x.yaml job.yaml
ok "not on a smaller one: exit code 3, got $rc" test "$rc" = 3
ok "the check says by how much" grep -qE "a draft model has too little of the memory of node a's CPU: short by [0-9]" "$WORK/err"

# ---- the CPU is one of the devices
cat >"$WORK/clusters/two.yaml" <<CLUSTER
version: 1
nodes:
  - name: a
    devices: [{profile: card, backend: vault}, {profile: host, backend: cpu}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
order: fixed
CLUSTER
device host 1000000 cpu
job "" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml --json
ok "a card, then the CPU: got $rc" test "$rc" = 0
was=$(jq '.plan.stages[1] | .total' "$WORK/out")
cp "$WORK/out" "$WORK/plain"
job ", draft: small" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml --json
ok "with a draft model, got $rc" test "$rc" = 0
ok "the CPU's stage has $need bytes less" json --argjson n "$need" --slurpfile was "$WORK/plain" \
    '.plan.stages[1].capacity + $n == $was[0].plan.stages[1].capacity and .plan.stages[0].capacity == $was[0].plan.stages[0].capacity' "$WORK/out"
device host $((was * 11 / 10 / 1024 + 64)) cpu
job "" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml --json
ok "a smaller CPU, got $rc" test "$rc" = 0
alone=$(jq '.plan.stages[1].layers' "$WORK/out")
job ", draft: small" >"$WORK/job.yaml"
run plan job.yaml -o x.yaml --json
ok "beside a draft model it has fewer layers than $alone, got $rc" json --argjson n "$alone" '.plan.stages[1].layers < $n' "$WORK/out"

# ---- a CPU that is too small for the draft model takes no plan away: the first card has it, and the CPU layers or nothing
sed -i '/^order/d; s/{profile: card,/{profile: card, count: 2,/' "$WORK/clusters/two.yaml"
job ", draft: small, backend: vault" | sed 's/use_all: true, //' >"$WORK/job.yaml"
device card $(((total + need) / 1024 + 200)) vault
device host $((was * 11 / 10 / 1024 + 64)) cpu
sed 's/, {profile: host, backend: cpu}//' "$WORK/clusters/two.yaml" >"$WORK/cards.yaml"
cp "$WORK/clusters/two.yaml" "$WORK/both.yaml"
cp "$WORK/cards.yaml" "$WORK/clusters/two.yaml"
run plan job.yaml -o x.yaml --json
ok "two cards with room for a draft model: a plan, got $rc" test "$rc" = 0
without=$(jq .plan.latency_ms "$WORK/out")
cp "$WORK/both.yaml" "$WORK/clusters/two.yaml"
for kib in 10 $((need / 1024 / 2)) $((need / 1024 + 40)); do
    device host "$kib" cpu
    run plan job.yaml -o x.yaml --json
    ok "and a CPU of $kib KiB: a plan, got $rc" test "$rc" = 0
    ok "that is no slower" json --argjson ms "$without" '.plan.latency_ms > 0 and .plan.latency_ms <= $ms * (1 + 1e-6)' "$WORK/out"
    run plan --check x.yaml job.yaml
    ok "and holds when it is checked, got $rc" test "$rc" = 0
done
finish
