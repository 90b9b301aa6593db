#!/bin/bash
# tests/e2e/cpu-experts.sh TESSERA MAKE_EXPERTS VAULT.so - a device that is too small for a model's experts, next to a CPU with
# memory for them: the planner leaves some to it, and the plan gives the answers of one engine.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MAKE=$(readlink -f "$2")
VAULT=$(readlink -f "$3")
DEMO=$ROOT/configs/demo

"$MAKE" "$DEMO" "$WORK/wide" 8 2
cp "$DEMO"/{tokenizer.json,tokenizer_config.json,generation_config.json} "$WORK/wide/"
mkdir "$WORK/devices"
# device NAME MEMORY SPEED
device() {
    sed "s/name: midi/name: $1/; s/total: 8 MiB/total: $2/; s/peak: 800 MB/peak: $3 MB/" \
        "$ROOT/configs/plan/devices/midi.yaml" >"$WORK/devices/$1.yaml"
}
device host '64 MiB' 400
# cluster NAME: with a CPU next to the device
cluster() {
    printf 'version: 1\nnodes:\n  - name: desk\n    devices: [{profile: board, emulate: cpu}]\n%s' "${2-}" >"$WORK/$1.yaml"
}
CPU='    cpu: {profile: host, link: {bandwidth: 200 MB/s, latency: 5 us}}'
cluster with "$CPU"
cluster alone
sed 's/profile: board, emulate: cpu/profile: host, emulate: cpu/' "$WORK/alone.yaml" >"$WORK/cpu.yaml"

WORKLOAD='{prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}'
# plan NAME CLUSTER OPTION...: its objective, "none" without a plan
plan() {
    local name=$1 cluster=$2
    shift 2
    run plan wide --cluster "$cluster.yaml" --workload "$WORKLOAD" --use rtn --group 32 "$@" --json -o "p-$name.yaml"
    cp "$WORK/out" "$WORK/$name.plan"
    [ "$rc" = 0 ] && jq .plan.objective_ms "$WORK/out" || echo none
}
layers() { jq -r '.plan.stages | map(.cpu_experts.layers // "none") | join(" ")' "$WORK/$1.plan"; }
less() { jq -en --argjson a "$1" --argjson b "$2" '$a < $b' >/dev/null; }
no_more() { jq -en --argjson a "$1" --argjson b "$2" '$a <= $b * (1 + 1e-9)' >/dev/null; }

# ---- the placement is chosen where it is better -------------------------------------------------------------------

before=none
for mib in 4 8 12 16; do
    device board "$mib MiB" 4000
    here=$(plan here with --bits 4)
    alone=$(plan alone alone --bits 4)
    ok "$mib MiB: a plan" test "$here" != none
    [ "$alone" = none ] || ok "$mib MiB: the CPU makes it no worse" no_more "$here" "$alone"
    [ "$before" = none ] || ok "$mib MiB: more memory makes it no worse" no_more "$here" "$before"
    before=$here
    layers here >>"$WORK/layers"
done
ok "all layers, some and none, as the device has room" test "$(tr '\n' ' ' <"$WORK/layers")" = "all 2-5 4-5 none "

# The device alone holds nothing, the CPU alone is slower, and so are fewer bits on the CPU alone.
device board '6 MiB' 4000
best=$(plan best with --bits 4)
ok "the device alone has no plan" test "$(plan alone alone --bits 4)" = none
ok "and no plan of 3 bits" test "$(plan alone alone --bits 3)" = none
ok "experts of five layers are on the CPU" test "$(layers best)" = 1-5
ok "that is faster than all on the CPU" less "$best" "$(plan cpu cpu --bits 4)"
ok "and than all on the CPU with 3 bits" less "$best" "$(plan cpu3 cpu --bits 3)"
for solver in ilp transfer adabits het uniform pipeedge; do
    run plan wide --cluster with.yaml --workload "$WORKLOAD" --use rtn --group 32 --bits 4,8 --solver exact --json -o p-x.yaml
    want=$(jq .plan.objective_ms "$WORK/out")
    run plan wide --cluster with.yaml --workload "$WORKLOAD" --use rtn --group 32 --bits 4,8 --solver "$solver" --json -o p-x.yaml
    [ "$rc" != 2 ] || continue # not built
    ok "$solver: a plan, got $rc" test "$rc" = 0
    ok "$solver: none better than the exact one" no_more "$want" "$(jq .plan.objective_ms "$WORK/out")"
    [ "$solver" != ilp ] || ok "ilp: as good" json --argjson w "$want" '(.plan.objective_ms / $w - 1) | fabs < 1e-3' "$WORK/out"
done

# A CPU with memory for the experts of four layers: those that may choose per layer have a plan, one candidate for all has none.
device board '8 MiB' 4000
device host '9 MiB' 400
for solver in exact ilp transfer adabits het; do
    run plan wide --cluster with.yaml --workload "$WORKLOAD" --use rtn --group 32 --bits 4,8 --solver "$solver" --json -o p-x.yaml
    [ "$rc" != 2 ] || continue # not built
    [ "$solver" = het ] || ok "$solver: a plan within both memories, got $rc" json '.plan.stages[0].cpu_experts |
        .bytes > 0 and .bytes <= .capacity' "$WORK/out"
    [ "$solver" != het ] || ok "het: no plan, got $rc" test "$rc" = 3
done
device board '6 MiB' 4000
device host '64 MiB' 400

# ---- what is said ----------------------------------------------------------------------------------------------------

ok "the plan names the layers" grep -q '^    cpu_experts: 1-5$' "$WORK/p-best.yaml"
ok "and the memory" grep -q 'host: [1-9][0-9]*, host_capacity: 67108864' "$WORK/p-best.yaml"
ok "a stage has its experts' place" json '.plan.stages | length == 1 and all(.cpu_experts | .cpu == "host" and
    .layers == "1-5" and .bytes > 0 and .capacity == 67108864)' "$WORK/best.plan"
check() { run plan wide --cluster with.yaml --workload "$WORKLOAD" --use rtn --group 32 --bits 4 --check "$@"; }
check p-best.yaml --json
ok "--check has its time and bytes" json --slurpfile a "$WORK/best.plan" '.plan.latency_ms == $a[0].plan.latency_ms and
    .plan.stages[0].total == $a[0].plan.stages[0].total and
    .plan.stages[0].cpu_experts == $a[0].plan.stages[0].cpu_experts' "$WORK/out"
check p-best.yaml --explain
ok "a table and an explanation, got $rc" test "$rc" = 0
ok "the table has the CPU's share of the time" grep -Eq '[1-9][0-9]* % in decode' <(tr -s ' \n' ' ' <"$WORK/out")
# a CPU of twice the speed, with a link of twice the speed, halves the CPU's share
cp "$WORK/devices/host.yaml" "$WORK/host.yaml"
sed -i 's/peak: 400 MB/peak: 800 MB/; s/ops: 10 GFLOP/ops: 20 GFLOP/' "$WORK/devices/host.yaml"
cluster with "${CPU/200 MB\/s, latency: 5 us/400 MB\/s, latency: 2.5 us}"
check p-best.yaml --json
ok "the shares are the CPU's part, got $rc" json --slurpfile a "$WORK/best.plan" '.plan.stages[0] as $fast | $a[0].plan.stages[0] |
    .cpu_experts as $cpu | $cpu.prefill_share > 0.1 and $cpu.decode_share < 1 and
    (((.prefill_ms - $fast.prefill_ms) / .prefill_ms - $cpu.prefill_share / 2) | fabs) < 1e-6 and
    (((.decode_ms - $fast.decode_ms) / .decode_ms - $cpu.decode_share / 2) | fabs) < 1e-6' "$WORK/out"
cp "$WORK/host.yaml" "$WORK/devices/host.yaml"
cluster with "$CPU"
check p-best.yaml --explain
ok "the table says where they are" grep -q '^experts .*desk:board: layers 1-5 on the CPU host' "$WORK/out"
ok "so does the explanation" grep -q 'experts: of 5 of the 6 layers of desk:board on the CPU' "$WORK/out"
sed 's/cpu_experts: 1-5/cpu_experts: true/' "$WORK/p-best.yaml" >"$WORK/p-all.yaml"
check p-all.yaml --json
ok "all of them: slower" less "$best" "$(jq .plan.objective_ms "$WORK/out")"
check p-best.yaml --gantt picture.svg
ok "the picture says how many, got $rc" grep -q '>CPU: experts of 5 of 6, [1-9][0-9]* %<' "$WORK/picture.svg"
export_to() { run plan wide --cluster with.yaml --workload "$WORKLOAD" --use rtn --group 32 --bits 4 --check "$1" --export "$2" "${@:3}"; }
export_to p-best.yaml llamacpp
ok "llama.cpp: the experts of these layers, got $rc" grep -qF -- \
    "--n-gpu-layers 7 --override-tensor 'blk\.(1|2|3|4|5)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU'" "$WORK/out"
export_to p-best.yaml llamacpp --json
ok "the same as JSON" json '(.override_tensor | endswith("exps=CPU")) and (has("n_cpu_moe") | not)' "$WORK/out"
export_to p-all.yaml llamacpp
ok "all of them: the number of layers" grep -q -- ' --n-cpu-moe 6$' "$WORK/out"
export_to p-best.yaml vllm
ok "vLLM: one sentence" grep -q '^# vLLM has no option for experts on the CPU: .* 1,2,3,4,5 ' "$WORK/out"
export_to p-best.yaml vllm --json
ok "the same as JSON" json '.not_exported == "cpu_experts" and .cpu_experts == "1,2,3,4,5"' "$WORK/out"
run plan --diff p-best.yaml p-all.yaml
ok "--diff names both" grep -q 'experts of layers 1-5 on the CPU' "$WORK/out"

# residuals of experts on the CPU are in its memory and read by it; those of the rest by the device
residuals() { # SED
    sed "/^    predicted/i\\    compensation: [{layers: 0-5, tensors: \"*.$1\", k: 128}]" "$WORK/p-best.yaml" >"$WORK/p-comp.yaml"
    check p-comp.yaml --json
    cp "$WORK/out" "$WORK/$1.json"
}
residuals down_proj
ok "residuals of experts, got $rc" json --slurpfile a "$WORK/best.plan" '.plan.stages[0] as $c | $a[0].plan.stages[0] |
    $c.compensation.bytes as $n | ($c.compensation.bytes / 6) as $layer |
    ($c.cpu_experts.bytes - .cpu_experts.bytes) == 5 * $layer and $c.weights - .weights == $layer' "$WORK/out"
ok "the CPU reads them" less "$(jq '.plan.stages[0].decode_ms' "$WORK/best.plan")" "$(jq '.plan.stages[0].decode_ms' "$WORK/down_proj.json")"
residuals o_proj
ok "residuals around them, got $rc" json --slurpfile a "$WORK/best.plan" '.plan.stages[0] as $c | $a[0].plan.stages[0] |
    $c.cpu_experts.bytes == .cpu_experts.bytes and $c.weights - .weights == $c.compensation.bytes' "$WORK/out"

# ---- what is refused -------------------------------------------------------------------------------------------------

bad() {
    local name=$1 code=$2 object=$3
    shift 3
    sed "$@" "$WORK/p-best.yaml" >"$WORK/bad.yaml"
    fails "$name" "$code" "$object" plan wide --cluster "$cluster" --workload "$WORKLOAD" --use rtn --group 32 --bits 4 --check bad.yaml
}
at=$(grep -n cpu_experts "$WORK/p-best.yaml" | cut -d: -f1)
cluster=with.yaml
bad "neither layers nor a truth value" 2 "bad.yaml:$at:*" 's/cpu_experts: 1-5/cpu_experts: maybe/'
bad "layers of no stage" 2 "bad.yaml:$at:*" 's/cpu_experts: 1-5/cpu_experts: 1-6/'
bad "a list" 2 "bad.yaml:$at:*" 's/cpu_experts: 1-5/cpu_experts: [1, 5]/'
bad "too few on the CPU" 3 '*' 's/cpu_experts: 1-5/cpu_experts: 2-5/'
cluster=alone.yaml
bad "a node whose CPU is not known" 2 "bad.yaml:$at:*" 's/^$//'
device host '5 MiB' 400
cluster=with.yaml
bad "a CPU with little memory" 3 '*' 's/^$//'
ok "the planner keeps to it, too" test "$(plan small with --bits 4)" = none
device host '64 MiB' 400
cluster=two.yaml
cluster two '    cpu: {profile: board, link: {bandwidth: 1 GB/s}}'
bad "a CPU that is a device, too" 2 'two.yaml:5:*' 's/^$//'
cluster two '    cpu: {profile: host}'
bad "a CPU without a way to it" 2 'two.yaml:5:*' 's/^$//'
run plan "$DEMO" --cluster with.yaml --workload "$WORKLOAD" --use rtn --group 32 --bits 4 -o p-dense.yaml --json
cp "$WORK/out" "$WORK/dense"
run plan "$DEMO" --cluster alone.yaml --workload "$WORKLOAD" --use rtn --group 32 --bits 4 -o p-dense2.yaml --json
ok "a model without experts has the plan that it has without the CPU" cmp -s <(grep -v 'solver\|seconds\|# Plan\|proved' "$WORK/p-dense.yaml") \
    <(grep -v 'solver\|seconds\|# Plan\|proved' "$WORK/p-dense2.yaml")

# ---- the plan runs, to the bit of one engine -------------------------------------------------------------------------

i=0
while read -r text; do
    jq -cn --arg t "$text" --arg i "r$((i += 1))" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: $t, max_tokens: 8}}'
done >"$WORK/prompts.jsonl" <<'TEXTS'
It was the best of times,
The President said that
In the beginning
TEXTS
# job NAME CLUSTER PLAN [KEY]
job() {
    printf 'version: 1\nmodel: wide\ncluster: %s.yaml\nplugins: ["%s"]\n%spipeline:\n  - run: {plan: %s, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}\n' \
        "$2" "$VAULT" "${4-}" "$3" >"$WORK/$1.yaml"
    run run "$1.yaml" --out "run-$1" -v
    ok "$1: it runs, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].text' "$WORK/run-$1/answers.jsonl" >"$WORK/got-$1"
}
sed '/cpu_experts:/d; s/device: board/device: host/' "$WORK/p-best.yaml" >"$WORK/p-one.yaml"
job one cpu p-one.yaml
ok "one engine: three answers" test "$(grep -c '"' "$WORK/got-one")" = 3
job emulated with p-best.yaml
ok "the plan on the emulated device: the answers of one engine" cmp -s "$WORK/got-one" "$WORK/got-emulated"
ok "in the memory that the plan has for both" json '.results.run.ranks | length == 1' "$WORK/run-emulated/results.json"
sed 's/emulate: cpu/backend: vault/' "$WORK/with.yaml" >"$WORK/vaulted.yaml"
job real vaulted p-best.yaml
ok "on a device that the CPU cannot read: the answers of one engine" cmp -s "$WORK/got-one" "$WORK/got-real"
ok "with the experts of five layers on the CPU" grep -q 'the experts of 5 of the layers 0 to 5 run on' "$WORK/err"
sed -i 's/ranks: threads/ranks: threads, gantt: run.svg/' "$WORK/real.yaml"
run run real.yaml --out drawn
ok "the picture of the run names the CPU, got $rc" grep -q '>and experts on the CPU<' "$WORK/drawn/run.svg"
finish
