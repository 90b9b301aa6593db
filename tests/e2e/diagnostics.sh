#!/bin/bash
# tests/e2e/diagnostics.sh TESSERA - a file with several errors, read by each verb and step that reads such files: every error
# with its place, as a list where the job is checked, else in the sentence of the step that failed.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

cat >"$WORK/plan.yaml" <<'Y'
format: tessera.plan/1
layers: 5
extra: 1
stages:
  - {layers: 0-4, scheme: {use: rtn, bits: 4}}
oddity: 2
Y
cat >"$WORK/cluster.yaml" <<'Y'
version: 1
speed: 1
nodes:
  - {name: a, devices: [{profile: T4, count: 1}], colour: red}
network: {bandwidth: 1 GB/s, latency: 20 us}
Y
cat >"$WORK/task.yaml" <<'Y'
task: tessera.task/1
name: capitals
data: {name: mine/capitals, split: test}
context: "{{ country }}"
choices: "{{ cities }}"
answer: "{{ cities.index(capital) }}"
metrics: [acc]
shape: round
size: small
Y
sed 's/^name:.*/&\nshape: round\nsize: small/' "$ROOT/configs/families/qwen3.yaml" >"$WORK/family.yaml"
echo '{"custom_id": "a", "prompt": "Once", "max_tokens": 2}' >"$WORK/in.jsonl"
printf 'Once upon a time there was a little girl.%.0s\n' {1..200} >"$WORK/t.txt"
# job NAME STEPS [HEAD]
job() { printf 'version: 1\nmodel: "@demo"\n%spipeline:\n%b' "${3:+$3$'\n'}" "$2" >"$WORK/$1.yaml"; }
job run '  - run: {plan: plan.yaml, input: in.jsonl, output: out.jsonl}\n'
job rules '  - quantize: {use: rtn, plan: plan.yaml}\n'
job clusters '  - plan: {use: rtn, bits: [4]}\n' 'cluster: cluster.yaml'
job tasks '  - eval: {tasks: [task.yaml], data: .}\n'
job families '  - eval: {text: t.txt}\n' 'families: family.yaml'

# both NAME PLACE PLACE ARGUMENT...: exit code 2, and what is printed has both places, each once and followed by a reason
both() {
    local name=$1 a=$2 b=$3
    shift 3
    run "$@"
    ok "$name: exit code 2, got $rc" test "$rc" = 2
    for place in "$a" "$b"; do
        ok "$name: $place, once" test "$(grep -oE "$place:( error:)? unknown key" "$WORK/err" | wc -l)" = 1
    done
    run "$@" --json
    ok "$name, --json: exit code 2, got $rc" test "$rc" = 2
    ok "$name, --json: the first place" test "$(object)" = "${first:-$a}"
    grep -a '^{"format":"tessera.error/1"' "$WORK/err" >"$WORK/line" || true # progress may stand before it
    ok "$name, --json: the second" json --arg f "${b%%:*}" --arg b "$b" '.error |
        any(.diagnostics[]? | select(.severity == "error"); "\($f):\(.line):\(.column)" == $b and .file == $f) or
        any(.message, .diagnostics[]?.message; contains($b + ": "))' "$WORK/line"
}
both "run: a plan" plan.yaml:3:1 plan.yaml:6:1 run run.yaml --out a
both "batch: a plan" plan.yaml:3:1 plan.yaml:6:1 batch @demo -i in.jsonl -o out.jsonl --plan plan.yaml
both "quantize: rules" plan.yaml:3:1 plan.yaml:6:1 run rules.yaml --out b
both "plan --check: a plan" plan.yaml:3:1 plan.yaml:6:1 plan rules.yaml --check plan.yaml
both "plan: a cluster" cluster.yaml:2:1 cluster.yaml:4:51 plan clusters.yaml -o p.yaml
both "run: a cluster" cluster.yaml:2:1 cluster.yaml:4:51 run clusters.yaml --out c
both "doctor: a cluster" cluster.yaml:2:1 cluster.yaml:4:51 doctor cluster.yaml
both "eval: a task" task.yaml:8:1 task.yaml:9:1 eval @demo --task task.yaml --data .
both "run: a task" task.yaml:8:1 task.yaml:9:1 run tasks.yaml --out d
line=$(grep -n '^shape' "$WORK/family.yaml" | cut -d: -f1)
both "--family: a family" "family.yaml:$line:1" "family.yaml:$((line + 1)):1" inspect @demo --family family.yaml
first=families.yaml:3:11 both "run: a family" "family.yaml:$line:1" "family.yaml:$((line + 1)):1" run families.yaml --out e

# plans that are read when a step runs
run quantize @demo -o packed --use rtn --bits 4 --group 128
ok "a packed model, got $rc" test "$rc" = 0
run compensate @demo --packed packed --text t.txt --samples 1 --seqlen 16 -o residuals
ok "with residuals, got $rc" test "$rc" = 0
both "eval: compensation" plan.yaml:3:1 plan.yaml:6:1 eval packed --text t.txt --window 16 --max-windows 1 --compensate-plan plan.yaml
both "tune: a plan" plan.yaml:3:1 plan.yaml:6:1 tune packed --repeats 1 --plan plan.yaml -o tuned
finish
