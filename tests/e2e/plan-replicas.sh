#!/bin/bash
# tests/e2e/plan-replicas.sh TESSERA - `replicas`: several copies of the model on equal parts of the devices, compared with
# one pipeline; the plan file is priced as it was planned and runs with the answers of one process.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

mkdir "$WORK/devices" "$WORK/clusters"
cat >"$WORK/devices/small.yaml" <<DEVICE
format: tessera.device/1
name: small
memory: {total: 16 MiB, source: made up}
bandwidth: {peak: 6 GB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int3 int4 int8; do
    echo "  - {kernel: $k, ops: 800 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
done)
DEVICE
# a node of four, behind a link where copies pay and one where they do not; two nodes of two and one of three
box() { printf 'version: 1\nnodes:\n  - {name: box, devices: [{profile: small, count: %d}], link: {bandwidth: %s, latency: %s}}\n' "$@"; }
box 4 "20 MB/s" "200 us" >"$WORK/clusters/slow.yaml"
box 4 "100 GB/s" "1 us" >"$WORK/clusters/fast.yaml"
cat >"$WORK/clusters/three.yaml" <<'CLUSTER'
version: 1
nodes:
  - {name: a, devices: [{profile: small, count: 2}], link: {bandwidth: 20 MB/s, latency: 200 us}}
  - {name: b, devices: [{profile: small, count: 2}], link: {bandwidth: 20 MB/s, latency: 200 us}}
  - {name: c, devices: [{profile: small, count: 3}], link: {bandwidth: 20 MB/s, latency: 200 us}}
network: {bandwidth: 1 MB/s, latency: 1 ms}
CLUSTER
job() { # CLUSTER KEYS
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $DEMO
cluster: clusters/$1.yaml
workload: {prompt: 16, generate: 12, batch: 8, kv: f32}
pipeline:
  - plan: {use: rtn, group: 64, bits: [4, 8], baselines: none${2:+, $2}}
JOB
}

# ---- the search: one pipeline, two copies and four; the best of them is the plan
for cluster in slow fast; do
    job "$cluster"
    for n in 1 2 4 auto; do
        run plan job.yaml -o "$cluster-$n.yaml" --json --set "plan.replicas=$n"
        ok "$cluster $n: exit code 0, got $rc" test "$rc" = 0
        cp "$WORK/out" "$WORK/$cluster-$n.json"
    done
    jq -s '[.[].plan.latency_ms] | min' "$WORK/$cluster"-[124].json >"$WORK/least"
    ok "$cluster: auto is the best of them" json --argjson least "$(cat "$WORK/least")" \
        '(.plan.latency_ms - $least | fabs) < 1e-3 * $least and .plan.status == "optimal"' "$WORK/$cluster-auto.json"
    ok "$cluster: each number was tried" json '[.replicas.tried[].count] == [1, 2, 4]' "$WORK/$cluster-auto.json"
done
ok "slow links: four copies of one device" json '.replicas | .count == 4 and .share == 2 and .devices == 1 and
    .nodes == [["box"], ["box"], ["box"], ["box"]]' "$WORK/slow-auto.json"
ok "the rate is that of all copies" json '(.replicas.tokens_per_second - 4 * .plan.tokens_per_second | fabs) <
    1e-6 * .replicas.tokens_per_second' "$WORK/slow-auto.json"
ok "the bound is of all numbers" json '.plan.bound_ms <= .plan.objective_ms * 1.000001' "$WORK/slow-auto.json"
ok "by itself a plan is one pipeline" json 'has("replicas") | not' "$WORK/slow-1.json"
run plan job.yaml -o x.yaml --set plan.replicas=2
ok "the table fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
for line in '^copies +2 of the model, each on 2 devices with 4 of 8 requests' '^cluster .* for each copy' '^work +4 requests for each copy'; do
    ok "the table has $line" grep -qE "$line" "$WORK/out"
done

# ---- several nodes: whole nodes of a type for each copy, or parts of one
job three
run plan job.yaml -o three.yaml --json --set plan.replicas=2
ok "two copies: nodes of two, and one device of three" json '.replicas | .nodes == [["a", "c"], ["b", "c"]] and .devices == 3' "$WORK/out"
run plan job.yaml -o three.yaml --json --set plan.replicas=3
ok "three copies: one device of three, the nodes of two are none of theirs" json '.replicas | .nodes == [["a", "c"], ["a", "c"], ["b", "c"]]
    and .devices == 2 and .share == 3' "$WORK/out"
fails_with "five parts have no device each" 2 '' '\b5\b.*\b7\b' plan job.yaml --set plan.replicas=5

# ---- the file is priced as planned, and says what the search said
job slow
for n in 2 4 auto; do
    run plan job.yaml --check "slow-$n.yaml" --json
    ok "$n checks, got $rc" test "$rc" = 0
    ok "$n costs what it did" json --slurpfile was "$WORK/slow-$n.json" '.plan.latency_ms == $was[0].plan.latency_ms and
        .said.same_work and .replicas.count == $was[0].replicas.count and .replicas.nodes == $was[0].replicas.nodes and
        .replicas.share == $was[0].replicas.share' "$WORK/out"
done
run plan job.yaml --check slow-2.yaml -o again.yaml
ok "a checked plan keeps its copies when written" cmp -s <(sed '/^predicted/,$d; /^#/d' "$WORK/slow-2.yaml") \
    <(sed '/^predicted/,$d; /^#/d' "$WORK/again.yaml")
run plan --diff slow-1.yaml slow-4.yaml --json
ok "the difference is in replicas and share" json '[.differences[].what] | index("replicas") and index("share")' "$WORK/out"
run plan job.yaml --check slow-4.yaml --explain --simulate
ok "one copy is explained, got $rc" test "$rc" = 0
sed '/replica_nodes/,/^quality/{/^quality/!d}' "$WORK/slow-4.yaml" >"$WORK/unlisted.yaml"
run plan job.yaml --check unlisted.yaml --json
ok "without a list it costs the same" json --slurpfile was "$WORK/slow-4.json" '.plan.latency_ms == $was[0].plan.latency_ms' "$WORK/out"

# ---- what cannot be
fails "a number that is none" 2 '--set plan.replicas=many:*' plan job.yaml --set plan.replicas=many
fails_with "more copies than devices" 2 '' '\b5\b.*\b4\b' plan job.yaml --set plan.replicas=5
fails "copies of whole nodes, too" 2 '--set plan.replicas=2:*' plan job.yaml --set plan.replicas=2 --set plan.copy_nodes=1 --set cluster=clusters/three.yaml
sed 's/^replicas: 4/replicas: 5/; s/^share: 2/share: 1/; /replica_nodes/,/^quality/{/^quality/!d}' "$WORK/slow-4.yaml" >"$WORK/five.yaml"
sed 's/tp: 1/tp: 2/' "$WORK/slow-4.yaml" >"$WORK/wide.yaml"
fails_with "more than the node has devices for" 2 'five.yaml:*' '\b5\b.*\b4\b' plan job.yaml --check five.yaml
fails_with "listed more often than it has devices for" 2 'wide.yaml:*' 'box.*\b3\b.*\b2\b' plan job.yaml --check wide.yaml

# ---- it runs: the answers of one process, whatever the number of copies and the kind of ranks
i=0
while read -r text; do
    jq -cn --arg t "$text" --arg i "r$((i += 1))" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: $t, max_tokens: 12, temperature: 0}}'
done >"$WORK/in.jsonl" <<'TEXTS'
It was the best of times,
The President said that
Once upon a time
In the beginning
The house on the hill
She said
A long way from
Nobody knew
TEXTS
cat >"$WORK/run.yaml" <<JOB
version: 1
model: $DEMO
pipeline:
  - quantize: {use: rtn, plan: plan.yaml}
  - run: {input: in.jsonl, output: out.jsonl, plan: plan.yaml, act: f32}
JOB
sed -i 's/codec: "plain:dtype=bf16"/codec: plain/' "$WORK"/slow-[124].yaml
# every layer of all three takes 4 bits, so that they are one model
sed -i -E 's/(use: rtn, bits: )8/\14/' "$WORK"/slow-[124].yaml
for n in 1 2 4; do
    for kind in threads processes; do
        [ "$n$kind" != 4threads ] || continue
        cp "$WORK/slow-$n.yaml" "$WORK/plan.yaml"
        run run run.yaml --out "ran-$n-$kind" --set "run.ranks=$kind"
        ok "$n, $kind: exit code 0, got $rc" test "$rc" = 0
        ok "$n, $kind: all answers" test "$(wc -l <"$WORK/ran-$n-$kind/out.jsonl")" = 8
        # identifiers derive from the job, of which the plan is part
        jq -c '[.custom_id, .response.body.choices, .response.body.usage]' "$WORK/ran-$n-$kind/out.jsonl" >"$WORK/answers-$n-$kind"
        ok "$n, $kind: those of one pipeline" cmp -s "$WORK/answers-1-threads" "$WORK/answers-$n-$kind"
    done
done
finish
