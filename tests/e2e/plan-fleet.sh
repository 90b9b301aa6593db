#!/bin/bash
# tests/e2e/plan-fleet.sh TESSERA [small|whole] - many nodes: copies of the model on groups of nodes,
# the batch split among them, a bound, files that are priced again; what is wrong with such a file.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# used: ticks of the processor that the programs of this test took until now.
used() { awk '{ print $16 + $17 }' "/proc/$$/stat"; }

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
mkdir "$WORK/devices" "$WORK/clusters"
device small "400 KiB" "6 GB/s" "800 GFLOP/s"
device large "4 MiB" "3 GB/s" "400 GFLOP/s"

nodes() { # PROFILE FIRST COUNT DEVICES [RATE]
    for ((i = $2; i < $2 + $3; i++)); do
        printf '  - {name: n%03d, devices: [{profile: %s, count: %d}], link: {bandwidth: %s, latency: 5 us}}\n' \
            "$i" "$1" "$4" "${5:-10 GB/s}"
    done
}
{
    echo 'version: 1'
    echo 'nodes:'
    nodes small 0 8 1
    nodes large 8 4 1
    echo 'network: {bandwidth: 1 GB/s, latency: 20 us}'
} >"$WORK/clusters/twelve.yaml"
cat >"$WORK/job.yaml" <<JOB
version: 1
model: $STORIES
cluster: clusters/twelve.yaml
workload: {prompt: 32, generate: 16, batch: 40}
pipeline:
  - plan: {use: rtn, group: 32, bits: [3, 4, 8, 16]}
JOB

# ---- a plan of twelve nodes; one small node does not hold the model, two do
run plan job.yaml -o p.yaml
ok "copies: exit code 0, got $rc" test "$rc" = 0
ok "the table fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
for line in '^cluster +twelve: 12 devices in 12 nodes' '^copies +[0-9]+ of the model on' \
    '^solver .*nothing is below' '^[0-9]+ cop(y|ies) +n0' '^latency .*tokens/s'; do
    ok "the table has $line" grep -qE "$line" "$WORK/out"
done
run plan job.yaml -o p.yaml --json
cp "$WORK/out" "$WORK/plan.json"
cat >"$WORK/want.jq" <<'JQ'
.format == "tessera.planning/1" and .nodes == 12 and (.fleet |
.types == 2 and .status == "optimal" and .bound_ms <= .objective_ms * 1.000001 and
# all requests once; no node twice; every copy has as many nodes as its first; the slowest counts
([.kinds[] | .copies * .batch] | add) == 40 and ([.kinds[].copies] | add) == .copies and
([.kinds[].nodes[][]] | length == (unique | length)) and ([.kinds[].nodes[][]] | length) == .nodes_used and
all(.kinds[]; (.nodes | length) == .copies and (.nodes[0] | length) as $n | all(.nodes[]; length == $n)) and
(([.kinds[].plan.latency_ms] | max) - .latency_ms | fabs) < 1e-9 * .latency_ms and
# groups of small ones, and groups with a large one
any(.kinds[]; .nodes[0] | all(. < "n008")) and any(.kinds[]; .nodes[0] | any(. >= "n008")) and
all(.kinds[].plan.stages[]; .total <= .capacity))
JQ
ok "the figures hold together" json -f "$WORK/want.jq" "$WORK/plan.json"
run plan job.yaml -o one.yaml --json --set plan.copy_nodes=1
ok "more nodes for a copy are not worse" json --argjson two "$(jq .fleet.objective_ms "$WORK/plan.json")" \
    '.fleet.objective_ms >= $two * 0.999' "$WORK/out"
ok "copies of one node are on large ones" json 'all(.fleet.kinds[]; all(.nodes[][]; . >= "n008"))' "$WORK/out"

# ---- each file is priced again, and is what was planned
for i in $(seq 0 $(($(jq '.fleet.kinds | length' "$WORK/plan.json") - 1))); do
    file=$(jq -r ".fleet.kinds[$i].file" "$WORK/plan.json")
    run plan job.yaml --check "$file" --json
    ok "$file checks, got $rc" test "$rc" = 0
    ok "$file costs what it did" json --slurpfile was "$WORK/plan.json" --argjson i "$i" \
        '.plan.latency_ms == $was[0].fleet.kinds[$i].plan.latency_ms and .said.same_work and
         .workload.batch == $was[0].fleet.kinds[$i].batch' "$WORK/out"
done
run plan job.yaml --check p.yaml --explain --simulate
ok "one copy is explained, got $rc" test "$rc" = 0
run plan --diff p.yaml one.yaml --json
ok "the two differ in replicas or share" json 'any(.differences[]; .what | test("replicas|share|stage"))' "$WORK/out"
# the same through the step of a job
(cd "$WORK" && "$TESSERA" run job.yaml -q --out ran >/dev/null 2>"$WORK/err") || true
ok "the step writes them" cmp -s <(grep -v seconds "$WORK/p.yaml") <(grep -v seconds "$WORK/ran/plan.yaml")

# ---- what cannot be
fails "an option about one copy" 2 '' plan job.yaml --explain
fails "a share that does not divide" 2 '' plan job.yaml --set plan.share_unit=3
fails "nothing holds it" 3 '' plan job.yaml --set workload.batch=4000 --set plan.copy_nodes=1 -o x.yaml
cat >"$WORK/hand.yaml" <<PLAN
format: tessera.plan/1
layers: 5
workload: {prompt: 32, generate: 16, batch: 40}
micro_batches: {prefill: 1, decode: 2}
replicas: 2
share: 4
replica_nodes: [[n000, n008], [n001, n009]]
stages:
  - {layers: 0, node: n000, device: small, schemes: [{layers: 0, bits: 4}]}
  - {layers: 1-4, node: n008, device: large, schemes: [{layers: 1-4, bits: 8}]}
PLAN
run plan job.yaml --check hand.yaml --json
ok "a plan by hand with replicas is priced, got $rc" test "$rc" = 0
ok "for its share" json '.workload.batch == 4 and (.plan.stages | length) == 2' "$WORK/out"
while IFS='|' read -r name edit place says; do
    sed "$edit" "$WORK/hand.yaml" >"$WORK/edited.yaml"
    fails "$name" 2 "edited.yaml$place" plan job.yaml --check edited.yaml
    ok "$name: about $says" mentions "$says"
done <<'CASES'
a node in two replicas|s/n001, n009/n001, n008/|:7:38|n008
a node that is not alike|s/n001, n009/n001, n002/|:7:38|n002.*n008
a replica with a node too few|s/\[n001, n009\]/[n001]/|:7:31|\b1\b.*\b2\b
a list for too few replicas|s/, \[n001, n009\]//|:7:16|replica_nodes.*\b2\b
a first list that is not the stages'|s/\[n000, n008\], \[n001/[n002, n008], [n001/|:7:17|n000
more than the batch|s/share: 4/share: 21/|:6:8|\b21\b.*\b40\b
more than there are nodes|/replica_nodes/d; s/replicas: 2/replicas: 5/|:5:11|\b5\b.*\b4\b.*n008
a micro-batch above the share|s/decode: 2/decode: 9/||\b9\b.*\b4\b
CASES

# ---- a thousand devices of four kinds in 125 nodes
if [ "${2:-}" = whole ]; then
    {
        echo 'version: 1'
        echo 'nodes:'
        nodes T4 0 31 8 "12 GB/s"
        nodes V100-32G-vllm 31 31 8 "150 GB/s"
        nodes A100-40G-marlin 62 31 8 "300 GB/s"
        nodes A800-80G 93 32 8 "200 GB/s"
        echo 'network: {bandwidth: 100 Gbit/s, latency: 20 us}'
    } >"$WORK/clusters/thousand.yaml"
    cat >"$WORK/thousand-job.yaml" <<JOB
version: 1
model: $ROOT/configs/papers/models/llama-3.3-70b/config.json
cluster: clusters/thousand.yaml
workload: {prompt: 512, generate: 100, batch: 8192}
pipeline:
  - plan: {bits: [4, 8, 16], group: 128}
JOB
    start=$(used)
    run plan thousand-job.yaml -o t.yaml --json
    ok "1,000 devices: exit code 0, got $rc" test "$rc" = 0
    ok "all requests, no node twice" json '.devices == 1000 and .nodes == 125 and (.fleet |
        ([.kinds[] | .copies * .batch] | add) == 8192 and
        ([.kinds[].nodes[][]] | length == (unique | length)) and .bound_ms > 0)' "$WORK/out"
    # 5 s by itself
    ok "in less than a minute of the processor" test $(($(used) - start)) -lt $((60 * $(getconf CLK_TCK)))
fi
finish
