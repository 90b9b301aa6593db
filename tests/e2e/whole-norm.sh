#!/bin/bash
# tests/e2e/whole-norm.sh TESSERA WIDE_MODEL - ranks of a model that norms queries and keys over all heads (OLMo 2 and 3): the
# answers of one rank, times of a plan, and codecs that would round before the norm.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
WIDE=$(readlink -f "$2")

printf '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": [5, 9, 70, 22, 31], "max_tokens": 8}}\n' >"$WORK/prompts.jsonl"
# plan TP [KEY]
plan() {
    cat >"$WORK/plan.yaml" <<PLAN
format: tessera.plan/1
layers: 3
workload: {prompt: 16, generate: 8, batch: 1, concurrency: 1, chunk: 8, kv: f32}
micro_batches: {prefill: 1, decode: 1}
master: {tokenize: coordinator, embed: first, head: last, sample: coordinator}
stages:
  - {layers: 0-2, node: here, device: board, tp: $1, schemes: [{layers: 0-2, keep: true}]${2-}}
PLAN
}
# job MODEL [LINE]
job() {
    printf 'version: 1\nmodel: %s\n%spipeline:\n  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}\n' \
        "$1" "${2-}" >"$WORK/job.yaml"
}
mkdir "$WORK/devices"
sed 's/name: midi/name: board/; s/total: 8 MiB/total: 64 MiB/' "$ROOT/configs/plan/devices/midi.yaml" >"$WORK/devices/board.yaml"
printf 'version: 1\nnodes:\n  - name: here\n    devices: [{profile: board, count: 4, emulate: cpu}]\n    link: {bandwidth: 1 GB/s, latency: 5 us}\n' >"$WORK/cluster.yaml"
for m in olmo2 olmo3; do
    "$WIDE" "$WORK/$m" "$m"
    cp "$STORIES"/tokenizer*.json "$WORK/$m/"
    for tp in 1 2 4; do
        plan "$tp"
        job "$m"
        run run job.yaml --out "run-$m-$tp"
        ok "$m on $tp ranks, got $rc" test "$rc" = 0
        jq -c '.response.body.choices[0].text' "$WORK/run-$m-$tp/answers.jsonl" >"$WORK/got-$m-$tp"
        ok "$m on $tp ranks: the answer of one" cmp -s "$WORK/got-$m-1" "$WORK/got-$m-$tp"
    done
    ok "$m: an answer" grep -q . "$WORK/got-$m-1"
    # emulated devices
    plan 2
    job "$m" $'cluster: cluster.yaml\n'
    run run job.yaml --out "emulated-$m"
    ok "$m on emulated devices, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].text' "$WORK/emulated-$m/answers.jsonl" >"$WORK/got-$m-emulated"
    ok "$m on emulated devices: the answer of one" cmp -s "$WORK/got-$m-1" "$WORK/got-$m-emulated"
done

WORK_LOAD='{prompt: 16, generate: 8, batch: 1, chunk: 8, kv: f32}'
plan 2
run plan olmo2 --cluster cluster.yaml --workload "$WORK_LOAD" --check plan.yaml --json
ok "the plan has a price, got $rc" json '.plan.stages[0].decode_ms > 0' "$WORK/out"
# devices with no more memory than the plan says
cp "$WORK/devices/board.yaml" "$WORK/large.yaml"
kib=$(jq '(.plan.stages[0] | .total + .uneven) / 2 / 1024 | ceil' "$WORK/out")
sed -i "s/total: 64 MiB/total: $kib KiB/" "$WORK/devices/board.yaml"
job olmo2 $'cluster: cluster.yaml\n'
run run job.yaml --out tight
ok "ranks in the memory of the plan, got $rc" cmp -s "$WORK/got-olmo2-1" <(jq -c '.response.body.choices[0].text' "$WORK/tight/answers.jsonl")
cp "$WORK/large.yaml" "$WORK/devices/board.yaml"
"$WIDE" "$WORK/llama" llama
# slower MODEL: what a millisecond more of latency adds to a step
slower() {
    for latency in 5 1005; do
        sed "s/latency: 5 us/latency: $latency us/" "$WORK/cluster.yaml" >"$WORK/late.yaml"
        run plan "$1" --cluster late.yaml --workload "$WORK_LOAD" --check plan.yaml --json
        jq .plan.stages[0].decode_ms "$WORK/out"
    done | jq -s '.[1] - .[0]'
}
ok "three sums for each layer, a Llama has two" jq -en --argjson a "$(slower olmo2)" --argjson b "$(slower llama)" \
    '$b >= 2 * 3 and (($a / $b / 1.5 - 1) | fabs) < 1e-6' >"$WORK/true"

# codecs that round
plan 2 ", collective: {prefill: {codec: mx}, decode: {codec: mx}}"
job olmo2
fails "ranks whose sums are rounded" 2 "job.yaml:4: step 'run'" run job.yaml --out none
fails "a plan of such ranks" 2 'stage 0*' plan olmo2 --cluster cluster.yaml --workload "$WORK_LOAD" --check plan.yaml
run plan olmo2 --cluster cluster.yaml --workload "$WORK_LOAD" --use rtn --group 32 --bits 4 --tp-codec mx --json -o x.yaml
ok "the planner has no ranks then, got $rc" json '.plan.stages | all(.tp == 1)' "$WORK/out"
ok "and says why" json 'tostring | test("before their norm")' "$WORK/out"
finish
