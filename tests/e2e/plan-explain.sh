#!/bin/bash
# tests/e2e/plan-explain.sh TESSERA - `plan --explain`: what a change buys is what a plan with it costs, in time and in quality.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

mkdir "$WORK/devices" "$WORK/clusters"
cat >"$WORK/devices/small.yaml" <<DEVICE
format: tessera.device/1
name: small
memory: {total: 4 MiB, source: made up}
bandwidth: {peak: 6 GB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int4 int8; do
    echo "  - {kernel: $k, ops: 800 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
done)
DEVICE
# two nodes of two, none of whose devices holds the model
cluster() { # INSIDE NETWORK COUNT
    cat >"$WORK/clusters/four.yaml" <<CLUSTER
version: 1
nodes:
  - {name: a, devices: [{profile: small, count: $3}], link: {bandwidth: $1, latency: 20 us}}
  - {name: b, devices: [{profile: small, count: 2}], link: {bandwidth: $1, latency: 20 us}}
network: {bandwidth: $2, latency: 100 us}
CLUSTER
}
cat >"$WORK/job.yaml" <<JOB
version: 1
model: $DEMO
cluster: clusters/four.yaml
workload: {prompt: 32, generate: 12, batch: 8, concurrency: 8, chunk: 0, kv: f32}
pipeline:
  - plan: {use: rtn, group: 64, bits: [4, 8], baselines: none}
JOB
cluster "40 MB/s" "10 MB/s" 2
run plan job.yaml --explain --json -o p.yaml
ok "a plan over both nodes, got $rc" json '[.plan.stages[].node] | unique == ["a", "b"]' "$WORK/out"
cp "$WORK/out" "$WORK/explained.json"
now=$(jq .plan.latency_ms "$WORK/out")
least=$(jq .explain.omega_in_time "$WORK/out")

# priced WHAT ARGUMENT...: a plan with it costs what was said, or less where the answer was not proved in the time that it had; it is
# no faster than the bound
buys() { jq -c --arg w "$1" '.explain.buys[] | select(.what == $w)' "$WORK/explained.json"; }
priced() {
    run plan job.yaml --json -o x.yaml "${@:2}"
    ok "$1: costs what was said" json --argjson was "$(buys "$1")" '(.plan.latency_ms / $was.latency_ms - 1) as $off |
        $off < 3e-4 and ($off > -3e-4 or ($was.proved | not)) and
        ($was.bound_ms == null or (.plan.latency_ms >= $was.bound_ms * (1 - 1e-6) and $was.bound_ms > 0))' "$WORK/out"
}
priced "prompts of half the length" --set workload.prompt=16
priced "links by mx:element=fp4_e2m1" --codec mx:element=fp4_e2m1
priced "a cache of int8" --set 'workload={prompt: 32, generate: 12, batch: 8, concurrency: 8, chunk: 0}' --set "plan.kv=[int8]"
priced "the head on the first stage" --set plan.head=first
cluster "40 MB/s" "20 MB/s" 2
priced "links between nodes twice as fast"
cluster "80 MB/s" "10 MB/s" 2
priced "links inside nodes twice as fast"
cluster "40 MB/s" "10 MB/s" 3
priced "one more small in node a"
cluster "40 MB/s" "10 MB/s" 2

ok "what only adds is no worse, in time and in quality" json --argjson now "$now" --argjson least "$least" \
    'all(.explain.buys[] | select(.what | test("more|twice|half|open")); .latency_ms <= $now * (1 + 1e-9) and
     .omega_in_time <= 1.03 * $least)' "$WORK/explained.json"
ok "every answer has an interval: its time, and a bound no greater" json --argjson now "$now" \
    'all(.explain.buys[] | select(.latency_ms); .bound_ms == null and .at_most == null or (.bound_ms > 0 and
     .bound_ms <= .latency_ms * (1 + 1e-9) and (.at_most - (.bound_ms / $now - 1) | fabs) < 1e-9)) and
     ([.explain.buys[] | select(.what | test("more|twice"))] | length >= 5 and all(has("bound_ms") and has("proved")))' "$WORK/explained.json"
ok "omega has one, too" json 'all(.explain, .explain.buys[] | select(.omega_in_time); .omega_bound == null and
     (.omega_proved | not) or (.omega_bound > 0 and .omega_bound <= .omega_in_time and
     (.omega_proved == (.omega_in_time <= .omega_bound * 1.02 * (1 + 1e-9)))))' "$WORK/explained.json"
ok "a slower change buys no quality in this time" json --argjson now "$now" \
    'all(.explain.buys[] | select(.latency_ms > $now * 1.001); .omega_in_time == null)' "$WORK/explained.json"
ok "a codec by the prior has no price in quality" json 'any(.explain.buys[]; .what == "links by mx:element=fp4_e2m1" and
    .omega == null and .omega_in_time == null)' "$WORK/explained.json"
# the least omega in the time of the plan is that of at_most
run plan job.yaml --json -o x.yaml --set "plan.at_most={latency_s: $(jq -n "$now * 1.0000001 / 1000")}"
ok "the least omega in this time is that of at_most" json --argjson least "$least" '.plan.omega <= $least * 1.001 and
    $least <= 1.03 * .plan.omega' "$WORK/out"
ok "and no less than its bound" json --slurpfile was "$WORK/explained.json" '$was[0].explain.omega_bound as $bound |
    $bound == null or ($bound > 0 and $bound <= .plan.omega * (1 + 1e-9))' "$WORK/out"
# a solver that gets a part of the problem proves nothing of the whole
run plan job.yaml --explain --json --solver het -o x.yaml
ok "what het finds is not proved, got $rc" json '[.explain.buys[] | select(.latency_ms)] |
    length > 3 and all(.bound_ms == null and (.proved | not))' "$WORK/out"
run plan job.yaml --explain -o p.yaml
ok "the table fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
for line in '^solved again with' '^  no change ' '^  links between nodes twice as fast +[0-9.]+ m?s +[-+][0-9.]+ % +(proved|[-+][0-9.]+ %|not known) ' '^at most ' '^  links by mx:element=fp4_e2m1 .* -( ~)?$'; do
    ok "the table has $line" grep -qE "$line" "$WORK/out"
done
finish
