#!/bin/bash
# tests/e2e/plan-copies.sh TESSERA - `replicas: auto` over two unlike nodes: a copy of the model on each, with shares that fit their
# speed, where that is fastest; the files are priced as planned and run with the answers and the memory that were planned.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

mkdir "$WORK/devices" "$WORK/clusters"
device() { # NAME RATE OPS [MEMORY]
    cat >"$WORK/devices/$1.yaml" <<DEVICE
format: tessera.device/1
name: $1
memory: {total: ${4:-7 MiB}, source: made up}
bandwidth: {peak: $2, source: made up}
kernels:
$(for k in f16 bf16 f32 int4 int8; do
        echo "  - {kernel: $k, ops: $3, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
}
device new "10 GB/s" "40 GFLOP/s"
device old "6 GB/s" "20 GFLOP/s"
device lean "10 GB/s" "40 GFLOP/s" "3500 KiB" # which does not hold the model
cat >"$WORK/clusters/unlike.yaml" <<'CLUSTER'
version: 1
nodes:
  - {name: a, devices: [{profile: new}], link: {bandwidth: 20 MB/s, latency: 200 us}}
  - {name: b, devices: [{profile: old, count: 2}], link: {bandwidth: 20 MB/s, latency: 200 us}}
network: {bandwidth: 1 MB/s, latency: 1 ms}
CLUSTER
sed 's/profile: new/profile: lean/' "$WORK/clusters/unlike.yaml" >"$WORK/clusters/lean.yaml"
sed 's/network: .*/network: {bandwidth: 100 GB\/s, latency: 1 us}/; s/20 MB/100 GB/; s/200 us/1 us/' "$WORK/clusters/unlike.yaml" >"$WORK/clusters/fast.yaml"
job() { # NAME CLUSTER BATCH KEYS
    cat >"$WORK/$1.yaml" <<JOB
version: 1
model: $DEMO
cluster: clusters/$2.yaml
workload: {prompt: 16, generate: 12, batch: $3, kv: f32}
pipeline:
  - plan: {use: rtn, group: 64, bits: [4, 8], baselines: none, codec: plain, replicas: auto}
JOB
}

# ---- the search: copies on the two nodes are better than one pipeline and equal parts, and no worse than `copy_nodes`
job slow unlike 8
run plan slow.yaml -o slow-plan.yaml
ok "unlike nodes: exit code 0, got $rc" test "$rc" = 0
ok "the table fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
ok "the table has the copies and what was compared" grep -qE '^copies +2 of the model on 2 of 2 nodes' "$WORK/out"
run plan slow.yaml -o slow-plan.yaml --json
cp "$WORK/out" "$WORK/slow.json"
ok "a copy on each, which take the batch in unlike shares" json '.fleet | .status == "optimal" and .copies == 2 and
    ([.kinds[].nodes[][]] | sort) == ["a", "b"] and ([.kinds[].batch] | add) == 8 and .kinds[0].batch != .kinds[1].batch and
    [.tried[].count] == [1, 2]' "$WORK/slow.json"
for n in 1 2; do
    run plan slow.yaml -o other.yaml --json --replicas "$n"
    ok "better than replicas: $n" json --slurpfile best "$WORK/slow.json" '.plan.latency_ms > 1.05 * $best[0].fleet.latency_ms and
        .plan.latency_ms == ($best[0].fleet.tried[] | select(.count == '"$n"') | .latency_ms)' "$WORK/out"
    run plan slow.yaml -o other.yaml --json --replicas 1 --copy-nodes "$n"
    ok "no worse than copy_nodes: $n, and not below the bound" json --slurpfile best "$WORK/slow.json" '.fleet.latency_ms as $ms |
        $best[0].fleet | .latency_ms <= $ms * 1.0002 and .bound_ms <= $ms and .bound_ms <= .latency_ms and
        .bound_ms >= 0.9997 * .latency_ms' "$WORK/out"
done
job alone lean 8
run plan alone.yaml -o alone-plan.yaml --json
ok "where one node is too small: equal parts of the other, and no groups of nodes are faster" json '.plan.status == "optimal" and .replicas.count == 2 and
    .replicas.groups == "not faster"' "$WORK/out"

# the least omega within a time that only one number of copies keeps to
run plan alone.yaml -o alone-plan.yaml --json --set plan.at_most.latency_s=0.1
ok "a time that one pipeline does not keep to, got $rc" json '.plan.latency_ms <= 100 and .replicas.count == 2 and
    .replicas.groups == "left out" and [.replicas.tried[] | .latency_ms == null] == [true, false]' "$WORK/out"
job quick fast 2
run plan quick.yaml -o quick-plan.yaml --json --set plan.at_most.latency_s=0.02
ok "a time that two copies do not keep to, got $rc" json '.plan.latency_ms <= 20 and .replicas.count == 1 and
    [.replicas.tried[] | .latency_ms == null] == [false, true]' "$WORK/out"
fails "a time that none keeps to" 3 '' plan alone.yaml --set plan.at_most.latency_s=0.001

# ---- the files are priced as planned
priced() { # JOB
    local i file
    for i in 0 1; do
        file=$(jq -r ".fleet.kinds[$i].file" "$WORK/$1.json")
        run plan "$1.yaml" --check "$file" --json --simulate
        ok "$file checks and is simulated, got $rc" test "$rc" = 0
        ok "$file costs what it did" json --slurpfile was "$WORK/$1.json" --argjson i "$i" '.said.same_work and .simulation != null and
            .plan.latency_ms == $was[0].fleet.kinds[$i].plan.latency_ms and .workload.batch == $was[0].fleet.kinds[$i].batch and
            .workload.concurrency == $was[0].fleet.kinds[$i].concurrency' "$WORK/out"
    done
}
priced slow
# the same through the step of a job
(cd "$WORK" && "$TESSERA" run slow.yaml -q --out ran >/dev/null 2>"$WORK/err") || true
for i in "" -2; do
    ok "the step writes plan$i" cmp -s <(grep -v seconds "$WORK/slow-plan$i.yaml") <(grep -v seconds "$WORK/ran/plan$i.yaml")
done
# more requests than memory holds: each copy has as many at once as are best for it
job many unlike 64
run plan many.yaml -o many-plan.yaml --json
cp "$WORK/out" "$WORK/many.json"
ok "many: fewer at once than a share, in each copy" json '.fleet.kinds | length == 2 and all(.[]; .concurrency < .batch) and
    .[0].concurrency != .[1].concurrency' "$WORK/many.json"
priced many

# ---- what cannot be
fails_with "an option about one copy" 2 '' 'explain.*\b2\b' plan slow.yaml --explain
sed 's/^  - plan.*/&\n  - run: {input: in.jsonl, output: out.jsonl, act: f32}/' "$WORK/slow.yaml" >"$WORK/followed.yaml"
echo '{}' >"$WORK/in.jsonl"
run plan followed.yaml -o followed-plan.yaml --json
ok "later steps run by one file, so its copies are alike" json --slurpfile best "$WORK/slow.json" '.replicas.groups == "left out" and
    .plan.latency_ms == ([$best[0].fleet.tried[].latency_ms] | min)' "$WORK/out"
run plan followed.yaml -o followed-plan.yaml
ok "the table says so" bash -c "tr -s '\n ' ' ' <'$WORK/out' | grep -q 'are left out: a later step takes one plan'"

# ---- they run: each copy its share of the requests, with the answers of one process and the memory of the plan
texts=('It was the best of times,' 'The President said that' 'Once upon a time' 'In the beginning' 'The house on the hill' 'She said' 'A long way from' 'Nobody knew')
for ((i = 0; i < 64; i++)); do
    jq -cn --arg t "${texts[i % 8]}" --arg i "r$i" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: $t, max_tokens: 12, temperature: 0}}'
done >"$WORK/all.jsonl"
cat >"$WORK/run.yaml" <<JOB
version: 1
model: $DEMO
pipeline:
  - quantize: {use: rtn, plan: plan.yaml}
  - run: {input: in.jsonl, output: out.jsonl, plan: plan.yaml, act: f32}
JOB
ran() { # NAME PLAN FIRST COUNT
    # every layer takes 4 bits, so that all are one model
    sed -E 's/(use: rtn, bits: )8/\14/' "$WORK/$2" >"$WORK/plan.yaml"
    sed -n "$(($3 + 1)),$(($3 + $4))p" "$WORK/all.jsonl" >"$WORK/in.jsonl"
    run run run.yaml --out "ran-$1" --set "run.ranks=$5"
    ok "$1: exit code 0, got $rc" test "$rc" = 0
    jq -c '[.custom_id, .response.body.choices, .response.body.usage]' "$WORK/ran-$1/out.jsonl" >"$WORK/answers-$1"
}
run plan slow.yaml -o one.yaml --json --replicas 1
ran one one.yaml 0 8 threads
for kind in threads processes; do
    first=0
    for i in 0 1; do
        share=$(jq ".fleet.kinds[$i].batch" "$WORK/slow.json")
        ran "$kind-$i" "$(jq -r ".fleet.kinds[$i].file" "$WORK/slow.json")" "$first" "$share" "$kind"
        first=$((first + share))
    done
    ok "$kind: both copies together answer as one process" cmp -s "$WORK/answers-one" <(cat "$WORK/answers-$kind-0" "$WORK/answers-$kind-1")
done
for i in 0 1; do
    ran "many-$i" "$(jq -r ".fleet.kinds[$i].file" "$WORK/many.json")" 0 "$(jq ".fleet.kinds[$i].batch" "$WORK/many.json")" threads
    ok "copy $i of many: caches of as many requests as planned" json --slurpfile was "$WORK/many.json" --argjson i "$i" \
        '[.results.run.ranks[].kv] == [$was[0].fleet.kinds[$i].plan.stages[].kv]' "$WORK/ran-many-$i/results.json"
done
finish
