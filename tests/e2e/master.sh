#!/bin/bash
# tests/e2e/master.sh TESSERA SIZE - the head where a plan puts it: beside the embedding on the first stage, the
# answers, memory, times and the picture are those of that placement, and a batch survives a kill.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
tokens=$([ "${2:-whole}" = small ] && echo 6 || echo 12)

for ((i = 0; i < 9; i++)); do # more records than slots
    printf '{"custom_id":"%d","method":"POST","url":"/v1/completions","body":{"prompt":"Once upon a time %d","max_tokens":%d,"logprobs":2}}\n' \
        $i $((7 * i)) $((tokens - i % 3))
done >"$WORK/prompts.jsonl"

# plan STAGES TP MASTER: a plan file of the demo's layers as they are
plan() {
    local i
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 16, batch: 4, chunk: 5, kv: f32}
micro_batches: {prefill: 1, decode: 2}
master: $3
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for ((i = 0; i < $1; i++)); do
        echo "  - {layers: $((6 * i / $1))-$((6 * (i + 1) / $1 - 1)), node: here, device: this-machine, tp: $2," \
            "schemes: [{layers: $((6 * i / $1))-$((6 * (i + 1) / $1 - 1)), keep: true}]}"
    done
}
job() { # RANKS
    printf 'version: 1\nmodel: "%s"\npipeline:\n  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, ranks: %s, gantt: run.svg}\n' \
        "$DEMO" "$1" >"$WORK/job.yaml"
}
choices() { jq -c '[.custom_id, .response.body.choices, .response.body.usage]' "$WORK/$1/answers.jsonl"; }

# ---- the same answers, with refilled slots
plan 1 1 '{}' >"$WORK/plan.yaml"
job processes
run run job.yaml --out one
ok "one rank: exit code 0, got $rc" test "$rc" = 0
choices one >"$WORK/want"
ok "nine answers" test "$(grep -c logprobs "$WORK/want")" = 9
while read -r stages tp kind head; do
    plan "$stages" "$tp" "{embed: first, head: $head}" >"$WORK/plan.yaml"
    job "$kind"
    out=$stages-$tp-$kind-$head
    run run job.yaml --out "$out"
    ok "$out: exit code 0, got $rc" test "$rc" = 0
    ok "$out: the same answers" cmp -s "$WORK/want" <(choices "$out")
    ok "$out: sums as declared" json 'all(.results.run.ranks[]; .sent_bytes == .declared_bytes)' "$WORK/$out/results.json"
done <<'WAYS'
1 2 threads first
2 1 processes first
2 1 processes last
3 1 threads first
2 2 processes first
3 2 threads first
WAYS
# the embedding is the head of this model (4096 x 256 in 16 bits): the first rank has it once, the last has none
ok "a tied head is there once" jq -e --slurpfile last "$WORK/2-1-processes-last/results.json" '
    [.results.run.ranks[].weights] as $f | [$last[0].results.run.ranks[].weights] as $l |
    $f[0] - $l[0] < 4096 and $f[0] >= $l[0] and $l[1] - $f[1] >= 2097152' "$WORK/2-1-processes-first/results.json" >"$WORK/jq"
ok "micro-batches are counted once" jq -e --slurpfile last "$WORK/2-1-processes-last/results.json" '
    [.results.run.ranks[].micro_batches] | unique | length == 1' "$WORK/2-1-processes-first/results.json" >"$WORK/jq"
# what the last rank sends: a row of logits for each token, or the hidden row that they are made of
jq -s '[.[].response.body.usage.completion_tokens] | add' "$WORK/2-1-processes-first/answers.jsonl" >"$WORK/answered"
ok "as many tokens as were asked for" test "$(cat "$WORK/answered")" = $((9 * (tokens - 1)))
ok "bytes of the way back" jq -e --argjson n "$(cat "$WORK/answered")" --slurpfile last "$WORK/2-1-processes-last/results.json" '
    [.results.run.ranks[].passed_bytes] as $f | [$last[0].results.run.ranks[].passed_bytes] as $l |
    $f[1] == $n * 256 * 4 and $l[1] == $n * 4096 * 4 and $f[0] == $l[0] and $f[0] > $f[1]' \
    "$WORK/2-1-processes-first/results.json" >"$WORK/jq"
# the picture: chunks that are not a prompt's last do not come back
prefills() { grep -o '<title>prefill, micro-batch [0-9]*' "$1" | sort | uniq -c; }
prefills "$WORK/2-1-processes-first/run.svg" >"$WORK/ran"
prefills "$WORK/2-1-processes-first/run.simulated.svg" >"$WORK/simulated"
ok "the simulation is of the micro-batches that ran" cmp -s "$WORK/ran" "$WORK/simulated"
ok "nine of them for the head" test "$(grep -cE '<title>prefill, micro-batch [0-9]+, head' "$WORK/2-1-processes-first/run.svg")" = 9
ok "and more pieces than prompts" test "$(wc -l <"$WORK/ran")" -gt 9
ok "with the head last there is no such thing" test "$(grep -c ', head:' "$WORK/2-1-processes-last/run.svg")" = 0

# ---- what cannot be meant
job processes
while IFS='#' read -r master words; do
    plan 2 1 "$master" >"$WORK/plan.yaml"
    fails "$master" 2 'plan.yaml:5:*' run job.yaml --out bad
    ok "$master: about $words" mentions "$words"
done <<'BAD'
{head: middle}#'head'.*last.*first.*'middle'
{embed: last}#'embed'.*first.*'last'
{sample: last}#'sample'.*coordinator.*'last'
{tokenize: first}#'tokenize'.*coordinator.*'first'
{haed: first}#'haed'
BAD

# ---- a rank is killed: the same bytes
plan 2 1 '{head: first}' >"$WORK/plan.yaml"
printf 'version: 1\nmodel: "%s"\n' "$DEMO" >"$WORK/batch.yaml"
run batch batch.yaml -i prompts.jsonl -o whole.jsonl --set run.plan=plan.yaml
ok "a batch: exit code 0, got $rc" test "$rc" = 0
(cd "$WORK" && exec "$TESSERA" batch batch.yaml -i prompts.jsonl -o dies.jsonl --set run.plan=plan.yaml -q) >"$WORK/out" 2>"$WORK/err" </dev/null &
batch=$!
until [ "$(stat -c %s "$WORK/dies.jsonl.job/journal" 2>/dev/null || echo 0)" -gt 1000 ] || ! kill -0 $batch 2>/dev/null; do
    sleep 0.01
done
for p in $(pgrep -P $batch) $(pgrep -P $batch | xargs -r -n 1 pgrep -P); do # the last: a rank
    victim=$p
done
[ -z "${victim:-}" ] || kill -9 "$victim" 2>/dev/null || true
wait $batch || true
for ((i = 0; i < 3; i++)); do
    run batch batch.yaml -i prompts.jsonl -o dies.jsonl --set run.plan=plan.yaml
    [ "$rc" != 75 ] || continue
    break
done
ok "again: exit code 0, got $rc" test "$rc" = 0
ok "the bytes of the run that was let be" cmp "$WORK/whole.jsonl" "$WORK/dies.jsonl"

# ---- planned so
cp -r "$ROOT/configs/emulated" "$ROOT/configs/plan" "$WORK"
mkdir "$WORK/configs" && mv "$WORK/emulated" "$WORK/plan" "$WORK/configs/"
boards=(configs/emulated/boards.yaml --set plan.head=first)
run plan "${boards[@]}" -o p.yaml --json --explain --simulate
cp "$WORK/out" "$WORK/plan.json"
ok "a plan, got $rc" test "$rc" = 0
ok "the file says so" grep -qx 'master: {tokenize: coordinator, embed: first, head: first, sample: coordinator}' "$WORK/p.yaml"
ok "what comes back is exact" test "$(grep -A 1 'send:' "$WORK/p.yaml" | tail -1 | grep -c 'codec: plain')" = 1
ok "the ends are the first stage's" json '.head == "first" and .plan.stages[0].ends > 0 and
    all(.plan.stages[1:][]; .ends == 0) and .plan.stages[-1].send_decode_ms > 0' "$WORK/plan.json"
# the event by event play and the closed form, which takes the head for part of the first stage's work
ok "played, it takes what is said" json '(.simulation.links | length) == (.simulation.stages | length) and
    (.simulation.barrier_ms / .plan.latency_ms - 1 | fabs) < 0.1' "$WORK/plan.json"
run plan "${boards[@]}" --check p.yaml --json --gantt p.svg
ok "its file costs what it did" jq -e --slurpfile was "$WORK/plan.json" '.head == "first" and
    .plan.latency_ms == $was[0].plan.latency_ms and [.plan.stages[].total] == [$was[0].plan.stages[].total]' "$WORK/out" >"$WORK/jq"
ok "the picture has the head of each of eight prompts" test "$(grep -cE '<title>prefill, micro-batch [0-9]+, head' "$WORK/p.svg")" = 8
run plan configs/emulated/boards.yaml --check p.yaml --json
ok "whatever the job would choose" json '.head == "first"' "$WORK/out"
run plan "${boards[@]}" --check p.yaml
ok "what was minimised is told apart" grep -q '^objective .* the way back counted as work' "$WORK/out"
ok "the table says it" grep -q '^master  *embedding and head on stage 0' "$WORK/out"
run plan configs/emulated/boards.yaml -o last.yaml --json --baselines none
ok "the other end costs what --explain said" jq -e --slurpfile was "$WORK/plan.json" '.plan.latency_ms as $ms |
    $was[0].explain.buys[] | select(.what == "the head on the last stage") | .latency_ms / $ms - 1 | fabs < 2e-4' "$WORK/out" >"$WORK/jq"
run plan --diff p.yaml last.yaml
ok "which differ in it" grep -qE '^head +first -> last' "$WORK/out"
for to in vllm llamacpp; do
    fails "to $to" 2 '[vl]*' plan "${boards[@]}" --check p.yaml --export $to
done
fails "a place that there is not" 2 '--set plan.head=middle:1:11' plan "${boards[@]}" --set plan.head=middle -o no.yaml
ok "with those that there are" mentions "'head'.*last.*first"

# ---- on devices that are not there: as long as they would take at least, in the memory that was planned
run run "${boards[@]}" --out emulated
ok "emulated: exit code 0, got $rc" test "$rc" = 0
ok "emulated: paced, and it took no less" json '.results.run |
    .paced > 100 and .emulated_tokens_per_second <= 1.02 * .predicted_tokens_per_second' "$WORK/emulated/results.json"
ok "emulated: planned memory is the accounted peak" json '.results |
    [.plan.plan.stages, (.run.ranks | group_by(.stage) | map(map(.peak) | add))] | transpose | length > 1 and
    all(.[0].total as $said | .[1] as $took | ($took / $said - 1) | fabs < 0.01)' "$WORK/emulated/results.json"
sed 's/head: first, sample/head: last, sample/' "$WORK/emulated/plan.yaml" >"$WORK/configs/emulated/plan.yaml"
sed -i 's/total: [58] MiB/total: 16 MiB/' "$WORK"/configs/plan/devices/m*.yaml # a head of its own takes more
sed -i '/- plan/d; s/input: /plan: plan.yaml, input: /' "$WORK/configs/emulated/boards.yaml"
run run configs/emulated/boards.yaml --out emulated-last
ok "emulated, the head last: exit code 0, got $rc" test "$rc" = 0
ok "emulated: the answers of the other end" cmp -s <(choices emulated) <(choices emulated-last)
finish
