#!/bin/bash
# tests/e2e/plan-items.sh TESSERA - one job: layers choose scheme, KV type and k of compensation, and the ends a scheme; the
# plan file has all of it, --check counts it the same, and quantize, compensate and run execute it.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

mkdir "$WORK/devices"
cat >"$WORK/devices/here.yaml" <<'END'
format: tessera.device/1
name: here
backend: cpu
memory: {total: 4600 KiB, source: made up}
bandwidth: {peak: 1 GB/s, source: made up}
kernels:
END
for k in bf16 f16 f32 int3 int8; do
    echo "  - {kernel: $k, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
done >>"$WORK/devices/here.yaml"
cat >"$WORK/cluster.yaml" <<'END'
version: 1
nodes:
  - {name: a, devices: [{profile: here}], link: {bandwidth: 10 GB/s, latency: 5 us}}
  - {name: b, devices: [{profile: here}], link: {bandwidth: 10 GB/s, latency: 5 us}}
network: {bandwidth: 1 GB/s, latency: 20 us}
END
# figures that are made up: the first layers suffer most, also from their caches
cat >"$WORK/kl.json" <<'END'
{"format": "tessera.indicators/2", "model": "x", "layers": 6,
 "schemes": [{"scheme": "rtn:bits=3,group=64", "kl": [0.08, 0.06, 0.03, 0.02, 0.01, 0.01], "half": [0.001, 0.001, 0.001, 0.001, 0.001, 0.001]},
             {"scheme": "rtn:bits=8,group=64", "kl": [0.0002, 0.0002, 0.0001, 0.0001, 0.0001, 0.0001], "half": [0, 0, 0, 0, 0, 0]}],
 "kv": [{"kv": "f16", "kl": 0.000001, "half": 0, "context": 64, "layers": [1, 1, 1, 1, 1, 1]},
        {"kv": "int8", "kl": 0.0006, "half": 0, "context": 64, "layers": [50, 1, 1, 1, 1, 1]},
        {"kv": "int4", "kl": 0.02, "half": 0.001, "context": 64, "layers": [50, 30, 1, 1, 1, 1]}],
 "links": [{"codec": "plain:dtype=bf16", "kl": 0, "half": 0}],
 "compensation": [{"scheme": "rtn:bits=3,group=64", "k": 32, "kept": 0.5, "interval": [0.45, 0.55]},
                  {"scheme": "rtn:bits=8,group=64", "k": 32, "kept": 0.6, "interval": [0.5, 0.7]}],
 "ends": [{"scheme": "rtn:bits=8,group=64", "kl": 0.0004, "interval": [0.0003, 0.0005]}]}
END
cat >"$WORK/in.jsonl" <<'END'
{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "The first time that a man came", "max_tokens": 5, "temperature": 0}}
{"custom_id": "2", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 5, "temperature": 0}}
END
# job KL MORE: keys of the plan
job() {
    cat >"$WORK/job.yaml" <<END
version: 1
model: $DEMO
cluster: cluster.yaml
workload: {prompt: 32, generate: 32, batch: 24, concurrency: 24, chunk: 0}
pipeline:
  - plan: {candidates: ["rtn:bits=3,group=64", "rtn:bits=8,group=64"], quality: {indicators: kl.json}, at_most: {kl: $1},
      baselines: none, max_tp: 1$2}
$3
END
}
ALL=', kv: [f16, int8, int4], compensate: [0, 16, 32], ends: [original, {use: rtn, bits: 8, group: 64}]'

job 0.06 "$ALL" '  - quantize: {use: rtn, plan: plan.yaml}
  - compensate: {text: '"$DEMO"'/calibration.txt, samples: 1, seqlen: 16}
  - run: {plan: plan.yaml, input: in.jsonl, output: answers.jsonl, ranks: threads}'
run run job.yaml --out o
ok "plan, quantize, compensate and run: exit code 0, got $rc" test "$rc" = 0
PLAN=$(find "$WORK/o" -name plan.yaml | head -n 1)
ok "the plan file is there" test -n "$PLAN"
cp "$PLAN" "$WORK/plan.yaml"
ok "it has types of caches" grep -qE '^workload: .*kv: (f16|int8|int4), kv_layers: "' "$WORK/plan.yaml"
ok "it has channels" grep -qE '^      - [{]layers: "[0-9,-]+", k: (16|32)[}]' "$WORK/plan.yaml"
ok "it has the ends" grep -qE '^  - [{]tensors: lm_head, use: rtn, bits: 8, group: 64[}]' "$WORK/plan.yaml"
ok "it says what they cost" grep -qE 'parts: .*compensation: -0[.0-9]+|compensation: -0' "$WORK/plan.yaml"
# what ran is what the plan says
ok "compensated channels ran" json '.results.run.compensation | .tokens > 0 and .selected > 0' "$WORK/o/results.json"
ok "answers" test "$(wc -l <"$(find "$WORK/o" -name answers.jsonl | head -n 1)")" = 2
PACKED=$(find "$WORK/o" -name packed.json | head -n 1)
ok "head and embedding are packed" test -n "$PACKED" -a -e "$(dirname "$PACKED")/head.safetensors"

job 0.06 "$ALL" ''
run plan job.yaml -o again.yaml --json
ok "the plan, got $rc" test "$rc" = 0
cp "$WORK/out" "$WORK/planned"
ok "-o writes the same" cmp -s <(grep -v 'seconds' "$WORK/plan.yaml") <(grep -v 'seconds' "$WORK/again.yaml")
run plan job.yaml --check plan.yaml --json
ok "checked, got $rc" test "$rc" = 0
ok "to the same bytes, times and KL" json --slurpfile was "$WORK/planned" '$was[0].plan as $p |
    def near($a; $b): ($a - $b | fabs) <= 1e-9 * ($a | fabs) + 1e-12;
    near(.plan.latency_ms; $p.latency_ms) and near(.plan.omega; $p.omega) and near(.plan.kl; $p.kl) and
    near(.plan.kl_interval[1]; $p.kl_interval[1]) and .plan.kv_layers == $p.kv_layers and
    .plan.compensated == $p.compensated and .plan.ends == $p.ends and
    near(.plan.parts.kv; $p.parts.kv) and near(.plan.parts.compensation; $p.parts.compensation) and
    (.plan.stages | length) == ($p.stages | length) and
    ([.plan.stages[], $p.stages[] | [.weights, .kv, .ends, .workspace, .total, .compensation.bytes]] |
        .[:length / 2] == .[length / 2:])' "$WORK/out"
ok "KL is within the limit" json '.plan.kl <= 0.06 and .plan.kl > 0.001' "$WORK/out"

sed 's/kv_layers: "[^"]*"/kv_layers: "5=f16"/; s/k: 32}/k: 8}/; s/bits: 8, group: 64}$/bits: 6, group: 64}/; s/compensation: -0.015/compensation: -0.01/' \
    "$WORK/plan.yaml" >"$WORK/other.yaml"
run plan --diff plan.yaml other.yaml --json
ok "a difference, got $rc" test "$rc" = 0
ok "in caches, channels, ends and KL" json '[.differences[].what] | contains(["kv_layers"]) and
    any(test("stage [01], channels")) and contains(["ends", "KL of compensation"])' "$WORK/out"

# fewer choices are never better; one type of cache for all is a choice of all
best=$(jq .plan.latency_ms "$WORK/planned")
some=0
PACKED_ENDS=', ends: [{use: rtn, bits: 8, group: 64}]'
for less in '' ', kv: [f16]' ', kv: [int8]' ', kv: [int4]' ', kv: [f16, int8, int4]' \
    ', kv: [f16, int8, int4], compensate: [0, 32]' ", kv: [f16, int8, int4]$PACKED_ENDS" ", kv: [int4]$PACKED_ENDS"; do
    job 0.06 "$less" ''
    run plan job.yaml -o less.yaml --json
    ok "$less: a plan or none, got $rc" test "$rc" = 0 -o "$rc" = 3
    [ "$rc" = 3 ] && continue
    some=$((some + 1))
    ok "$less: never better" json --argjson best "$best" '.plan.latency_ms >= $best * 0.9995' "$WORK/out"
done
ok "$some of them have a plan" test "$some" -gt 1

fails "a k above what was measured" 2 kl.json plan job.yaml --set 'plan.compensate=[0,33]'
fails "no number" 2 '*' plan job.yaml --set 'plan.compensate=[0,x]'
fails "twice" 2 '*' plan job.yaml --set 'plan.compensate=[8,8]'
fails "ends without a figure" 2 kl.json plan job.yaml --set 'plan.ends=[original,rtn-6]'
fails "ends twice" 2 '*' plan job.yaml --set 'plan.ends=[original,original]'
sed 's/tensors: lm_head/tensors: head/' "$WORK/plan.yaml" >"$WORK/wrong.yaml"
fails "a rule for no end" 2 'wrong.yaml:*' plan job.yaml --check wrong.yaml

fails "a codec that is calibrated, between stages" 2 '*' plan job.yaml --set 'plan.codecs=["plain:dtype=bf16", int4_bf16]'
sed "s|cluster: .*|cluster: $ROOT/configs/plan/boards.yaml|" "$WORK/job.yaml" >"$WORK/boards.yaml"
fails "compensation where no device reads the host's memory" 2 '*' plan boards.yaml -o x.yaml --set 'plan.compensate=[0,16]'

# a plan after indicators reads them, unless it wants the prior
cat >"$WORK/after.yaml" <<END
version: 1
model: $DEMO
cluster: cluster.yaml
workload: {prompt: 32, generate: 32, batch: 4}
pipeline:
  - indicators: {text: $DEMO/calibration.txt, samples: 2, seqlen: 16, bits: [3, 8], measured: false, hessian: false}
  - plan: {use: rtn, group: 64, bits: [3, 8], max_tp: 1, baselines: none, quality: {at_least: uniform-3}}
END
run run after.yaml --out after
ok "a plan after indicators, got $rc" test "$rc" = 0
ok "takes them" json '(.results.plan.prior | not) and (.results.plan.quality | test("variance"))' "$WORK/after/results.json"
run run after.yaml --out prior --set plan.quality.indicators=prior
ok "or the prior" json '.results.plan.prior' "$WORK/prior/results.json"

# a codec of a plugin is a choice like others, where its KL is known
sed 's/"layers": \[50, 30, 1, 1, 1, 1\]}\]/"layers": [50, 30, 1, 1, 1, 1]},\n        {"kv": "kivi:bits=2", "kl": 0.03, "half": 0.001, "context": 64, "layers": [50, 30, 1, 1, 1, 1]}]/' \
    "$WORK/kl.json" >"$WORK/kivi.json"
ok "indicators with kivi" test "$(jq -r '.kv[3].kv' "$WORK/kivi.json")" = kivi:bits=2
job 0.06 ", kv: [f16, \"kivi:bits=2\"]$PACKED_ENDS" '  - quantize: {use: rtn, plan: plan.yaml}
  - run: {plan: plan.yaml, input: in.jsonl, output: answers.jsonl, ranks: threads}'
sed -i 's/kl.json/kivi.json/' "$WORK/job.yaml"
run run job.yaml --out k
ok "a plan with kivi and its run, got $rc" test "$rc" = 0
cp "$(find "$WORK/k" -name plan.yaml | head -n 1)" "$WORK/kivi.yaml"
ok "some layers have it" grep -q '^workload: .*kivi:bits=2' "$WORK/kivi.yaml"
ok "answers of its ranks" test "$(wc -l <"$(find "$WORK/k" -name answers.jsonl | head -n 1)")" = 2
# 2 requests ran, 24 were planned
ok "stages count the bytes of its units" test "$(jq '.results.run.ranks[].kv * 12' "$WORK/k/results.json")" = \
    "$(sed -nE 's/.*predicted: .* kv: ([0-9]+),.*/\1/p' "$WORK/kivi.yaml")"
run plan job.yaml --check kivi.yaml --json
ok "checked, got $rc" test "$rc" = 0
fails "kivi without a figure" 2 '*' plan job.yaml --set 'plan.kv=[f16, "kivi:bits=8"]'
ok "the name that has none" grep -q 'no KL of a KV cache of kivi:bits=8' "$WORK/err"
fails "a codec that there is not" 2 '*' plan job.yaml --set 'plan.kv=[f16, kivy]'

finish
