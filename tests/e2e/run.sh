#!/bin/bash
# tests/e2e/run.sh TESSERA - the step `run`: the ranks of a plan give the answers of one process, whatever
# their number and kind, and a mixed fleet of emulated devices runs.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

i=0
while read -r text; do
    jq -cn --arg t "$text" --arg i "r$((i += 1))" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: $t, max_tokens: 12}}'
done >"$WORK/prompts.jsonl" <<'TEXTS'
It was the best of times,
The President said that
Once upon a time
In the beginning
TEXTS

# plan STAGES TP: a plan file
plan() {
    local i
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 12, batch: 4, chunk: 3, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for ((i = 0; i < $1; i++)); do
        cat <<PLAN
  - layers: $((6 * i / $1))-$((6 * (i + 1) / $1 - 1))
    node: here
    device: this-machine
    tp: $2
    schemes: [{layers: $((6 * i / $1))-$((6 * (i + 1) / $1 - 1)), use: rtn, bits: $((3 + 1)), group: 64}]
PLAN
    done
}

job() {
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $DEMO
pipeline:
$1
JOB
}

# one process: quantized as the same plan says, then generate
plan 1 1 >"$WORK/plan.yaml"
job '  - quantize: {use: rtn, plan: plan.yaml}
  - generate:
      max_tokens: 12
      prompts: ["It was the best of times,", "The President said that", "Once upon a time", "In the beginning"]'
run run job.yaml --out one
ok "one process: exit code 0, got $rc" test "$rc" = 0
jq -c '.results.generate.samples[].text' "$WORK/one/results.json" >"$WORK/want"
ok "four texts" test "$(wc -l <"$WORK/want")" = 4

while read -r stages tp kind; do
    plan "$stages" "$tp" >"$WORK/plan.yaml"
    job "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: $kind, gantt: run.svg}"
    run run job.yaml --out "run-$stages-$tp-$kind"
    ok "$stages stages of $tp as $kind: exit code 0, got $rc" test "$rc" = 0
    jq -c ".response.body.choices[0].text" "$WORK/run-$stages-$tp-$kind/answers.jsonl" >"$WORK/got"
    ok "$stages stages of $tp as $kind: the same answers" cmp -s "$WORK/want" "$WORK/got"
done <<'WAYS'
3 1 processes
2 2 processes
2 2 threads
1 4 threads
WAYS
ok "each rank is told of" json '.results.run.ranks | length == 4 and all(.micro_batches > 0 and
    .weights > 0 and .peak >= .weights and .load_peak > 0 and .sums > 0 and .sent_bytes == .declared_bytes)' \
    "$WORK/run-2-2-threads/results.json"
# four ranks read what three do: each linear once
jq -r '[.results.run.ranks[].read_bytes] | add' "$WORK/run-3-1-processes/results.json" >"$WORK/once"
ok "each rank reads its part" json --argjson once "$(cat "$WORK/once")" \
    '[.results.run.ranks[].read_bytes] | length == 4 and all(. > 0) and add == $once' \
    "$WORK/run-2-2-processes/results.json"
ok "the time to the first token of every record" json '.results.run.ttft_s | .records == 4 and (.each | length) == 4 and
    .least > 0 and .least == (.each | min) and .most == (.each | max) and .least <= .median and .median <= .most' \
    "$WORK/run-2-2-threads/results.json"
ok "a picture of the run" grep -q '<svg' "$WORK/run-3-1-processes/run.svg"
ok "and of its simulation" grep -q '<svg' "$WORK/run-3-1-processes/run.simulated.svg"
prefills() {
    grep -o '<title>prefill, micro-batch [0-9]*' "$1" | sort | uniq -c
}
prefills "$WORK/run-3-1-processes/run.svg" >"$WORK/ran"
prefills "$WORK/run-3-1-processes/run.simulated.svg" >"$WORK/simulated"
ok "more pieces of prompts than prompts" test "$(wc -l <"$WORK/ran")" -gt 4
ok "the simulation is of the micro-batches that ran" cmp -s "$WORK/ran" "$WORK/simulated"
left=
for p in $(pgrep -x tessera); do
    [ "$(readlink "/proc/$p/cwd" 2>/dev/null)" != "$WORK" ] || left="$left $p"
done
ok "no rank is left, but$left" test -z "$left"

# records that are all refused: their lines, and no picture
echo '{"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"prompt": -1}}' >"$WORK/refused.jsonl"
plan 2 1 >"$WORK/plan.yaml"
job '  - run: {plan: plan.yaml, input: refused.jsonl, output: answers.jsonl, gantt: run.svg}'
run run job.yaml --out refused
ok "nothing to compute: exit code 0, got $rc" test "$rc" = 0
ok "nothing to compute: the line says so" grep -q invalid_request "$WORK/refused/answers.jsonl"
ok "nothing to compute: no picture" test ! -e "$WORK/refused/run.svg"
ok "nothing to compute: a warning" grep -q "no record was computed" "$WORK/err"

# a weight that is no number, in a layer of the second rank: its error comes with what it is about
cp -r "$DEMO" "$WORK/nan"
bytes=$(od -An -t u8 -N8 "$WORK/nan/model.safetensors" | tr -d ' ')
at=$(jq '."model.layers.5.mlp.up_proj.weight".data_offsets[0]' <(dd if="$DEMO/model.safetensors" bs=1 skip=8 count="$bytes" status=none))
printf '\xff\x7f' | dd of="$WORK/nan/model.safetensors" bs=1 seek=$((8 + bytes + at)) conv=notrunc status=none
for kind in processes threads; do
    job "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, ranks: $kind}"
    sed -i 's/^model:.*/model: nan/' "$WORK/job.yaml"
    fails "a NaN that rank 1 meets ($kind)" 2 model.layers.5.mlp.up_proj run job.yaml --out "nan-$kind"
    ok "with status and rank ($kind)" failure '.status == "input" and (.message | test("\\brank 1\\b"))'
done

# what cannot be meant
plan 2 8 >"$WORK/plan.yaml"
job '  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl}'
fails "a width that would cut a KV head" 2 o_proj run job.yaml --out bad
ok "it names those that work" failure '.message | test("\\b1\\b.*\\b2\\b.*\\b4\\b")'
plan 2 1 | sed 's/layers: 6/layers: 7/; s/3-5/3-6/g' >"$WORK/plan.yaml"
fails "a plan for more layers" 2 plan.yaml run job.yaml --out bad
plan 2 1 | grep -vE 'node|device|tp:|workload|micro' >"$WORK/plan.yaml"
fails "a plan without places" 2 "job.yaml:4: step 'run'" run job.yaml --out bad
plan 2 1 | sed 's/use: rtn/use: gptq/' >"$WORK/plan.yaml"
fails "a quantizer that needs statistics" 2 "job.yaml:4: step 'run'" run job.yaml --out bad
job '  - run: {input: prompts.jsonl, output: answers.jsonl, gantt: run.svg}'
fails "a picture without a plan" 2 job.yaml:4:63 run job.yaml --out bad

# a mixed fleet of devices that are not there, from planning to answers
cp -r "$ROOT/configs/emulated" "$ROOT/configs/plan" "$WORK"
mkdir "$WORK/configs" && mv "$WORK/emulated" "$WORK/plan" "$WORK/configs/"
run run configs/emulated/boards.yaml --out emulated
ok "emulated boards: exit code 0, got $rc" test "$rc" = 0
ok "all were paced, and it took no less than the boards would" json '.results.run |
    .paced > 100 and .emulated_tokens_per_second <= 1.02 * .predicted_tokens_per_second' \
    "$WORK/emulated/results.json"
ok "what the plan expected is said" grep -q "^emulated: .* the plan expected [1-9]" "$WORK/out"
# a plan by hand predicts nothing
head -n 1 "$WORK/configs/emulated/prompts-128x16.jsonl" >"$WORK/configs/emulated/one.jsonl"
sed -i 's/prompts-128x16/one/' "$WORK/configs/emulated/overlap.yaml"
run run configs/emulated/overlap.yaml --out overlap
ok "a plan by hand on emulated boards: exit code 0, got $rc" test "$rc" = 0
ok "nothing that it expected is said" grep -qE "^emulated: [0-9.]+ tokens/s; [0-9]+ of" "$WORK/out"
# what the planner counts of each stage, beside what its ranks allocated at most: a hundredth at most
cat >"$WORK/memory.jq" <<'JQ'
.results | [.plan.plan.stages, (.run.ranks | group_by(.stage) | map(map(.peak) | add))] | transpose | length > 1 and all(
    .[0].total as $said | .[1] as $took |
    ($took / $said - 1) | fabs < 0.01)
JQ
ok "planned memory is the accounted peak" json -f "$WORK/memory.jq" "$WORK/emulated/results.json"
sed -i 's/total: 8 MiB/total: 6 MiB/' "$WORK/configs/plan/devices/midi.yaml"
cp "$WORK/emulated/plan.yaml" "$WORK/configs/emulated/plan.yaml"
sed -i '/- plan/d; s/input: /plan: plan.yaml, input: /' "$WORK/configs/emulated/boards.yaml"
fails "a device without room for its share" 4 "activations on cpu*" run configs/emulated/boards.yaml --out small
ok "it names the rank" failure '.status == "no-memory" and (.message | test("rank 3\\b"))'
finish
