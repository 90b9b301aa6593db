#!/bin/bash
# tests/e2e/hosts.sh TESSERA SIZE [mpi HALT.so] - codecs that ranks choose or have calibrated; ranks that mpirun
# started: the bytes of one process, what differs between them is named, a rank that dies is named and
# the same command goes on.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
SEED=${TSR_TEST_SEED:-$((SRANDOM % 1000000))}
echo "seed $SEED"

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

# plan STAGES TP [LINE]: a plan file; LINE stands in each stage
plan() {
    local i
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: ${TOKENS:-12}, batch: 4, chunk: 3, kv: f32}
micro_batches: {prefill: 1, decode: 2}
master: {head: ${HEAD:-last}}
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
    schemes: [{layers: $((6 * i / $1))-$((6 * (i + 1) / $1 - 1)), use: rtn, bits: 4, group: 64}]
${3:+    $3}
PLAN
    done
}
job() { # STEPS [FILE]
    printf 'version: 1\nmodel: %s\ncluster: here.yaml\npipeline:\n%s\n' "$DEMO" "$1" >"$WORK/${2:-job.yaml}"
}
texts() { jq -c '.response.body.choices[0].text' "$WORK/$1/answers.jsonl"; }
STEP='  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, stall: 600'
mkdir "$WORK/devices"
cat >"$WORK/devices/this-machine.yaml" <<'DEVICE'
format: tessera.device/1
name: this-machine
backend: cpu
memory: {total: 1 GiB, source: made up}
bandwidth: {peak: 10 GB/s, source: made up}
kernels:
  - {kernel: f32, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
DEVICE
cat >"$WORK/here.yaml" <<'CLUSTER'
version: 1
nodes:
  - {name: here, devices: [{profile: this-machine, count: 8}], link: {bandwidth: 1 GB/s, latency: 10 us}}
CLUSTER

# ---- auto ----------------------------------------------------------------------
plan 1 2 'collective: {prefill: {codec: auto, algorithm: auto}, decode: {codec: "auto:plain;mx"}}' >"$WORK/plan.yaml"
job "$STEP}"
run run job.yaml --out auto
ok "codec auto: exit code 0, got $rc" test "$rc" = 0
ok "what it became is in the manifest" json '.links.stages | length == 1 and
    all(.[0].prefill, .[0].decode; (.codec | length) > 0 and (.algorithm == "all-gather" or .algorithm == "two-step"))' \
    "$WORK/auto/manifest.json"
# a run that goes on takes it from there: a choice that no measurement makes
jq '.links.stages[0].decode = {codec: "mx:block=16", algorithm: "two-step"}' "$WORK/auto/manifest.json" >"$WORK/m.json"
mv "$WORK/m.json" "$WORK/auto/manifest.json"
cp "$WORK/auto/answers.jsonl" "$WORK/first.jsonl"
rm -r "$WORK/auto/results.json" "$WORK/auto/answers.jsonl"
run run job.yaml --out auto
ok "it goes on: exit code 0, got $rc" test "$rc" = 0
ok "with the choice that the manifest has" json '.links.stages[0].decode.codec == "mx:block=16"' "$WORK/auto/manifest.json"
ok "and the answers that were there" cmp -s "$WORK/first.jsonl" "$WORK/auto/answers.jsonl"
run batch job.yaml -i prompts.jsonl -o lost.jsonl
ok "a batch with codec auto: exit code 0, got $rc" test "$rc" = 0
rm "$WORK/lost.jsonl" "$WORK"/lost.jsonl.job/{results,manifest}.json
fails "answers without the choice" 2 "*/lost.jsonl.job" batch job.yaml -i prompts.jsonl -o lost.jsonl

plan 1 2 'collective: {prefill: {codec: int4_channel}}' >"$WORK/plan.yaml"
fails "a codec whose rows depend on each other" 2 "codec 'int4_channel'" run job.yaml --out bad
ok "with the codec" failure '.message | test("int4_channel")'
plan 2 1 'send: {prefill: {codec: auto}}' >"$WORK/plan.yaml"
run run job.yaml --out bad
ok "auto between stages: exit code 2, got $rc" test "$rc" = 2

# ---- calibrated codecs ----------------------------------------------------------
CODEC='collective: {prefill: {codec: int4_bf16}, decode: {codec: int4_bf16}}'
plan 1 2 "$CODEC" >"$WORK/plan.yaml"
fails "a calibrated codec on weights that are packed later" 2 int4_bf16 run job.yaml --out bad
CALIBRATE="  - quantize: {use: rtn, plan: plan.yaml}
  - calibrate: {text: $DEMO/calibration.txt, samples: 2, seqlen: 32, codecs: {use: [int4_bf16], tp: 2, act: a8}}"
job "$CALIBRATE
$STEP}"
run run job.yaml --out codec
ok "its calibration is found in the job: exit code 0, got $rc" test "$rc" = 0
state=$(echo "$WORK"/codec/codecs/*.safetensors)
ok "it was written" test -s "$state"
plan 1 4 "${CODEC//int4_bf16/int4_bf16, state: $state}" >"$WORK/plan.yaml"
job "  - quantize: {use: rtn, plan: plan.yaml}
$STEP}"
fails "a calibration for another width" 2 "*/codecs/int4_bf16-2-*.safetensors" run job.yaml --out bad
ok "with both numbers of ranks" failure '.message | test("\\b2\\b.*\\b4\\b")'
plan 1 2 "${CODEC//int4_bf16/int4_bf16, state: $state}" >"$WORK/plan.yaml"
run run job.yaml --out named
ok "named by the plan: exit code 0, got $rc" test "$rc" = 0
ok "the same answers" cmp -s <(texts codec) <(texts named)
plan 1 2 "$CODEC" >"$WORK/plan.yaml"
job "  - quantize: {use: rtn, plan: plan.yaml}
$STEP, codec_state: $state}"
run run job.yaml --out keyed
ok "named by the step: exit code 0, got $rc" test "$rc" = 0
ok "the same answers" cmp -s <(texts codec) <(texts keyed)
plan 1 4 "$CODEC" >"$WORK/plan.yaml"
fails "the step's, for another width" 2 "*/codecs/int4_bf16-2-*.safetensors" run job.yaml --out bad
ok "with both numbers of ranks" failure '.message | test("\\b2\\b.*\\b4\\b")'
sed -i "s|codec_state: [^,}]*|codec_state: nowhere.safetensors|" "$WORK/job.yaml"
fails "the step's, which is not there" 2 job.yaml:6:114 run job.yaml --out bad
# ranks that are simulated: the same as by what the job before calibrated
streamed=$state
EVAL="  - eval: {text: $DEMO/held-out.txt, window: 64, max_windows: 2, act: a8, simulate_tp: 2, codec: int4_bf16"
plan 1 2 >"$WORK/plan.yaml"
job "$CALIBRATE
$EVAL}"
run run job.yaml --out simulated
state=$(echo "$WORK"/simulated/codecs/*.safetensors)
job "  - quantize: {use: rtn, plan: plan.yaml}
$EVAL, codec_state: $state}"
run run job.yaml --out stated
ok "codec_state of an eval step: exit code 0, got $rc" test "$rc" = 0
same_perplexity() { # JOB
    ok "the same perplexity" test "$(jq .results.eval.perplexity "$WORK/simulated/results.json")" = \
        "$(jq -e '.results.eval.perplexity | numbers' "$WORK/$1/results.json")"
}
same_perplexity stated
# A calibration belongs to a model and to weights as packed, wherever these are: in memory, in the folder of a
# job that streams, in a folder that is the model.
ok "a job that streams and one that does not write the same calibration" cmp -s "$streamed" "$state"
sed -i "s|codec_state: [^}]*|codec_state: $streamed|" "$WORK/job.yaml"
run run job.yaml --out streamed
ok "codec_state of a job that streams, in one that does not: exit code 0, got $rc" test "$rc" = 0
same_perplexity streamed
job "  - quantize: {use: rtn, plan: plan.yaml}
$STEP, codec_state: $state}"
plan 1 2 "$CODEC" >"$WORK/plan.yaml"
run run job.yaml --out streams
ok "codec_state of a job that does not stream, in one that does: exit code 0, got $rc" test "$rc" = 0
ok "the same answers" cmp -s <(texts codec) <(texts streams)
run eval codec/packed --text "$DEMO/held-out.txt" --window 64 --max-windows 2 --act a8 --simulate-tp 2 \
    --codec int4_bf16 --codec-state "$state" --json
ok "for the packed folder itself: exit code 0, got $rc" test "$rc" = 0
ok "the same perplexity" test "$(jq .results.eval.perplexity "$WORK/simulated/results.json")" = \
    "$(jq -e '.perplexity | numbers' "$WORK/out")"
for scheme in "bits: 4, group: 16" "bits: 8"; do
    job "  - quantize: {use: rtn, $scheme}
$EVAL, codec_state: $state}"
    fails "codec_state of other weights ($scheme)" 2 "$state" run job.yaml --out "other-${scheme//[^a-z0-9]/}"
    ok "with both hashes" failure '.message | test("xxh3:[0-9a-f]{32}.*xxh3:[0-9a-f]{32}")'
done
job "$EVAL, codec_state: $state}"
fails "codec_state of packed weights for those as stored" 2 "$state" run job.yaml --out bad
ok "with the hash of the packed weights" failure '.message | test("xxh3:[0-9a-f]{32}")'

# ---- mpirun ---------------------------------------------------------------------
[ "${3:-}" = mpi ] || finish
[ "${3:-}" = mpi ] || exit 0
HALT=$(readlink -f "$4")
MPI="--allow-run-as-root --oversubscribe"
mpi() { # RANKS ARGUMENT...
    local n=$1
    shift
    rc=0
    # shellcheck disable=SC2086
    (cd "$WORK" && exec mpirun $MPI -n "$n" "$TESSERA" "$@") >"$WORK/out" 2>"$WORK/all" </dev/null || rc=$?
    grep 'tessera[:.]' "$WORK/all" >"$WORK/err" || true # without what mpirun says
}
plan 1 1 >"$WORK/plan.yaml"
job "$STEP}"
run run job.yaml --out one
texts one >"$WORK/want"
ok "four texts" test "$(wc -l <"$WORK/want")" = 4
k=0
for tp in 1 2 4; do
    for stages in 1 2 3; do
        k=$((k + 1))
        [ $((tp * stages)) -gt 1 ] || continue
        [ "${TSR_TEST_ALL:-0}" = 1 ] || [ $(((SEED + k) % 3)) = 0 ] || continue
        HEAD=$([ $(((tp + stages) % 2)) = 1 ] && echo first || echo last) plan $stages $tp >"$WORK/plan.yaml"
        mpi $((tp * stages)) run job.yaml --out "mpi-$stages-$tp"
        ok "$stages stages of $tp under mpirun: exit code 0, got $rc" test "$rc" = 0
        ok "$stages stages of $tp under mpirun: the same answers" cmp -s "$WORK/want" <(texts "mpi-$stages-$tp")
        run run job.yaml --out "here-$stages-$tp"
        ok "$stages stages of $tp: the same bytes" cmp -s "$WORK/mpi-$stages-$tp/answers.jsonl" \
            "$WORK/here-$stages-$tp/answers.jsonl"
        ok "each rank is told of" json --argjson n $((tp * stages)) '.results.run.ranks | length == $n and
            all(.micro_batches > 0 and .weights > 0 and .peak >= .weights)' "$WORK/mpi-$stages-$tp/results.json"
    done
done

# a batch: the lines of a run here, ids too; from its own key for the plan, and the command again
tp=$((1 + SEED % 2))
plan $((3 - tp)) $tp >"$WORK/plan.yaml"
printf 'version: 1\nmodel: %s\n' "$DEMO" >"$WORK/batch.yaml"
run batch batch.yaml -i prompts.jsonl -o here.jsonl --set run.plan=plan.yaml
ok "a batch on ranks: exit code 0, got $rc" test "$rc" = 0
mpi 2 batch batch.yaml -i prompts.jsonl -o under.jsonl --set run.plan=plan.yaml
ok "a batch under mpirun: exit code 0, got $rc" test "$rc" = 0
ok "four lines" test "$(wc -l <"$WORK/under.jsonl")" = 4
ok "the bytes of processes" cmp "$WORK/here.jsonl" "$WORK/under.jsonl"
mpi 2 batch batch.yaml -i prompts.jsonl -o under.jsonl --set run.plan=plan.yaml
ok "a batch that is done: exit code 0, got $rc" test "$rc" = 0
ok "and was found done" is_done under.jsonl.job

# beyond what the model was trained for: one warning of all ranks
plan 2 1 >"$WORK/plan.yaml"
cp -r "$DEMO" "$WORK/short"
jq '.max_position_embeddings = 16' "$DEMO/config.json" >"$WORK/short/config.json"
sed "s|^model:.*|model: short|; s/{plan:/{context: 64, plan:/" "$WORK/job.yaml" >"$WORK/short.yaml"
mpi 2 run short.yaml --out short-job
ok "a longer context under mpirun: exit code 0, got $rc" test "$rc" = 0
ok "one warning" test "$(grep -c 'warning: .* trained for' "$WORK/err")" = 1
ok "the same answers" cmp -s "$WORK/want" <(texts short-job)

mpi 3 run job.yaml --out bad --json
ok "more processes than ranks: exit code 2, got $rc" test "$rc" = 2
ok "more processes than ranks: one error, with the number of ranks" failure '.message | test("mpirun -n 2\\b")'
sed 's/{name: here/{name: here, host: elsewhere/' "$WORK/here.yaml" >"$WORK/e.yaml"
sed 's/here.yaml/e.yaml/' "$WORK/job.yaml" >"$WORK/elsewhere.yaml"
mpi 2 run elsewhere.yaml --out bad --json
ok "a rank on another host than its node's: exit code 2, got $rc" test "$rc" = 2
ok "node and host are named" failure '.message | test("\\bhere\\b.*\\belsewhere\\b")'
sed "s|{name: here|{name: here, model_at: $DEMO|" "$WORK/here.yaml" >"$WORK/e.yaml"
sed -i "s|^model:.*|model: /nowhere/model|" "$WORK/elsewhere.yaml"
mpi 2 run elsewhere.yaml --out at
ok "the node's own place of the model: exit code 0, got $rc" test "$rc" = 0
ok "the same answers from there" cmp -s "$WORK/want" <(texts at)
# rank 1 has another plan
mkdir "$WORK/other"
cp -r "$WORK/devices" "$WORK/prompts.jsonl" "$WORK/here.yaml" "$WORK/job.yaml" "$WORK/other"
sed 's/bits: 4/bits: 8/' "$WORK/plan.yaml" >"$WORK/other/plan.yaml"
rc=0
# shellcheck disable=SC2086
(cd "$WORK" && mpirun $MPI -n 1 "$TESSERA" run job.yaml --out bad --json : -n 1 "$TESSERA" run other/job.yaml --out bad --json) \
    >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
ok "another plan on rank 1: exit code 2, got $rc" test "$rc" = 2
ok "rank and host are named" failure ".message | test(\"rank 1 on $(hostname)\\\\b\")"
# a job that rank 1 alone cannot read: the place goes to rank 0
sed 's/temperature:/temprature:/' "$WORK/job.yaml" >"$WORK/other/job.yaml"
at=$(grep -no 'temprature' "$WORK/other/job.yaml" | cut -d: -f1)
rc=0
# shellcheck disable=SC2086
(cd "$WORK" && mpirun $MPI -n 1 "$TESSERA" run job.yaml --out bad --json : -n 1 "$TESSERA" run other/job.yaml --out bad --json) \
    >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
ok "a job that rank 1 cannot read: exit code 2, got $rc" test "$rc" = 2
ok "its file, line and column" failure ".status == \"input\" and .object == \"other/job.yaml\" and .line == $at and .column > 1"
ok "and its rank" failure ".message | test(\"rank 1 on $(hostname)\\\\b\")"
job "  - quantize: {use: rtn, plan: plan.yaml}
$STEP}" two.yaml
mpi 2 run two.yaml --out bad
ok "other steps: exit code 2, got $rc" test "$rc" = 2

# a rank dies: named, replaced, the same bytes
for ((i = 0; i < 24; i++)); do
    printf '{"custom_id":"%d","url":"/v1/completions","body":{"prompt":"Once upon a time %d","max_tokens":48}}\n' $i $i
done >"$WORK/prompts.jsonl"
TOKENS=64 plan 1 2 >"$WORK/plan.yaml"
run batch batch.yaml -i prompts.jsonl -o whole.jsonl --set run.plan=plan.yaml

# halted NAME PROCESS: waits until processes of the batch stand still (HALT stopped them); pids: which. False if PROCESS,
# which runs the batch, has ended.
halted() {
    local p
    until [ -s "$WORK/$1.halted" ]; do
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.02
    done
    read -ra pids <"$WORK/$1.halted"
    for p in "${pids[@]}"; do
        until [[ "$(sed 's/.*) \(.\).*/\1/' "/proc/$p/stat" 2>/dev/null)" != [RSD] ]]; do sleep 0.02; done
    done
}
# half_left NAME: what was stopped has half of its work before it.
half_left() { [ "$("$TESSERA" journal show "$WORK/$1.jsonl" --json | jq .lines)" -le 12 ]; }
# by_halt NAME WHO: what a batch needs in its environment for that, once it has answered something.
by_halt() { echo "LD_PRELOAD=$HALT" "TSR_HALT=1000,$2" "TSR_HALT_ONCE=$WORK/$1.halted"; }

read -ra env < <(by_halt dies siblings)
# nobody is late while this shell waits for the processor
(cd "$WORK" && exec "$TESSERA" batch batch.yaml -i prompts.jsonl -o dies.jsonl --set run.plan=plan.yaml --set run.stall=600 -q --json \
    --mpirun "$MPI -n 2 -x ${env[0]} -x ${env[1]} -x ${env[2]}") >"$WORK/out" 2>"$WORK/err" </dev/null &
run=$!
pids=()
ok "rank 1 stands still at work" halted dies $run
ok "one process stands still: ${#pids[@]}" test ${#pids[@]} = 1
victim=${pids[0]:-0}
ok "it is rank 1" grep -zqx OMPI_COMM_WORLD_RANK=1 "/proc/$victim/environ"
ok "half of the work is left" half_left dies
[ "$victim" = 0 ] || kill -9 "$victim" || true
rc=0
wait "$run" || rc=$?
ok "the group began anew: exit code 0, got $rc" test "$rc" = 0
# rank 0 sees it, or mpirun, which ends rank 0 at once
ok "who died is said" jq -R -s -e --argjson victim "$victim" '[split("\n")[] | select(startswith("{\"format\":\"tessera.event/1\"")) | fromjson.event] |
    any(.[]; .kind == "rank-failed" and .rank == 1 and .process == $victim) or any(.[]; .kind == "worker-ended" and .then == "restart")' "$WORK/err"
ok "and the answers are those of a run without faults" cmp -s "$WORK/whole.jsonl" "$WORK/dies.jsonl"

# all are stopped for longer than a rank may stand still, under mpirun and here: nobody was late
# shellcheck disable=SC2046,SC2086
(cd "$WORK" && exec env $(by_halt rests all) mpirun $MPI -n 2 "$TESSERA" batch batch.yaml -i prompts.jsonl -o rests.jsonl \
    --set run.plan=plan.yaml -q) >"$WORK/out2" 2>"$WORK/err2" </dev/null &
there=$!
ok "under mpirun all stand still at work" halted rests $there
stopped=("${pids[@]}")
# shellcheck disable=SC2046
(cd "$WORK" && exec env $(by_halt naps all) "$TESSERA" batch batch.yaml -i prompts.jsonl -o naps.jsonl --set run.plan=plan.yaml -q) \
    >"$WORK/out" 2>"$WORK/err" </dev/null &
here=$!
ok "here too" halted naps $here
stopped+=("${pids[@]}")
ok "four ranks and who watches them: ${#stopped[@]}" test "${#stopped[@]}" = 6
ok "half of the work is left" half_left rests
ok "half of the work is left here" half_left naps
sleep 6
kill -CONT "${stopped[@]}" || true
rc=0
wait "$here" || rc=$?
ok "they go on: exit code 0, got $rc" test "$rc" = 0
ok "with the same answers" cmp -s "$WORK/whole.jsonl" "$WORK/naps.jsonl"
rc=0
wait "$there" || rc=$?
ok "under mpirun too: exit code 0, got $rc" test "$rc" = 0
ok "with the same answers" cmp -s "$WORK/whole.jsonl" "$WORK/rests.jsonl"
finish
