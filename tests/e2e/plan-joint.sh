#!/bin/bash
# tests/e2e/plan-joint.sh TESSERA - a plan with stages of several widths in one node: the search takes it where it is faster,
# --check prices it as it was planned, and a run of it gives the answers of one process; lists of codecs and what is wrong
# with them.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir "$WORK/devices" "$WORK/clusters"
cat >"$WORK/devices/d.yaml" <<DEVICE
format: tessera.device/1
name: d
memory: {total: 4000 KiB, source: made up}
bandwidth: {peak: 60 MB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int4; do
        echo "  - {kernel: $k, ops: 3 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
cat >"$WORK/clusters/c.yaml" <<'CLUSTER'
version: 1
nodes:
  - {name: a, devices: [{profile: d, count: 3}], link: {bandwidth: 100 MB/s, latency: 3 us}}
CLUSTER
cat >"$WORK/job.yaml" <<'JOB'
version: 1
model: "@demo"
cluster: clusters/c.yaml
workload: {prompt: 24, generate: 9, batch: 2, concurrency: 2, chunk: 0, kv: f16}
pipeline:
  - plan: {use: rtn, group: 32, bits: [4, 16], quality: {theta: 0.001}, codec: plain}
  - run: {input: in.jsonl, output: two.jsonl, plan: plan.yaml, ranks: threads}
JOB
for p in "Once upon a time" "The dog"; do
    printf '{"custom_id":"%s","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"%s","max_tokens":9,"temperature":0}}\n' \
        "$p" "$p"
done >"$WORK/in.jsonl"

# ---- three devices: two share the first stage, one has the other
run plan job.yaml -o plan.yaml --json
ok "a plan, got $rc" test "$rc" = 0
ok "of two widths in one node, proved in one solve" json '.plan.status == "optimal" and .plan.joint and
    ([.plan.stages[].tp] | sort) == [1, 2] and all(.plan.stages[]; .node == "a" and .total <= .capacity)' "$WORK/out"
ok "baselines say that they do not mix widths" json 'all(.baselines[]; .ignored == ["mixed widths"])' "$WORK/out"
cp "$WORK/out" "$WORK/plan.json"
run plan job.yaml --check plan.yaml --json
ok "--check takes it, got $rc" test "$rc" = 0
ok "at the same time" json --slurpfile was "$WORK/plan.json" \
    '(.plan.latency_ms / $was[0].plan.latency_ms - 1 | fabs) < 1e-9' "$WORK/out"
for tp in 1 2; do
    run plan job.yaml -o "one-$tp.yaml" --json --tp "$tp"
    ok "one width is not faster: $tp" json --slurpfile was "$WORK/plan.json" \
        '.plan.latency_ms == null or .plan.latency_ms >= $was[0].plan.latency_ms * (1 - 1e-6)' "$WORK/out"
done
run plan job.yaml -o table.yaml
ok "the table fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
ok "and says what others leave out" grep -q 'do not' "$WORK/out"

# ---- the ranks of such a plan answer as one process does
run run job.yaml --out ranks
ok "a run of it, got $rc" test "$rc" = 0
run quantize @demo --use rtn --bits 4 --group 32 -o one
ok "the model of one process, got $rc" test "$rc" = 0
run batch one -i in.jsonl -o one.jsonl --kv f16
answers() { jq -c '[.custom_id, .response.body.choices[0].text]' "$1"; }
ok "the same answers" cmp <(answers "$WORK/ranks/two.jsonl") <(answers "$WORK/one.jsonl")
ok "of three ranks" json '[.results.run.ranks[] | [.stage, .tp]] == [[0, 0], [0, 1], [1, 0]]' "$WORK/ranks/results.json"

# ---- lists of codecs
sed -i 's/, codec: plain//' "$WORK/job.yaml"
fails_with "a lossy codec in a list, without its cost" 2 'codecs' 'plain:dtype=bf16' plan job.yaml \
    --codecs '[plain, "plain:dtype=bf16"]'
fails "a list and one codec" 2 '--sums*' plan job.yaml --tp-codec plain --sums '[plain]'
fails_with "a codec that does not exist" 2 '--sums*' '"none"' plan job.yaml --sums '[none]'
fails_with "a codec twice" 2 '--sums*' "'plain'" plan job.yaml --sums '[plain, plain]'
fails_with "an empty list" 2 '--sums*' '1 to 16' plan job.yaml --sums '[]'
fails_with "a width that is none" 2 '--tp*' '1 to 1024' plan job.yaml --tp 0
fails "a width and its limit" 2 '--tp*' plan job.yaml --tp 2 --max-tp 2
finish
