#!/bin/bash
# tests/e2e/cuda-ranks.sh TESSERA STAND-IN PLUGINS [mpi] - ranks of one machine take its devices in turn,
# whether they are threads, processes or mpirun's, and answer as one process on the CPU does; the driver is
# that of the tests (tests/gpu/standin), with 2 and 4 devices.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
STANDIN=$(readlink -f "$2") PLUGINS=$(readlink -f "$3")
export LD_LIBRARY_PATH=$STANDIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

for text in "Once upon" "The dog"; do
    jq -cn --arg t "$text" '{custom_id: $t, method: "POST", url: "/v1/completions",
        body: {prompt: $t, max_tokens: 3}}'
done >"$WORK/prompts.jsonl"

# plan STAGES TP [DEVICE...]: a plan file, on devices of these kinds
plan() {
    local i kinds=("${@:3}")
    cat <<PLAN
format: tessera.plan/1
layers: 5
workload: {prompt: 8, generate: 3, batch: 2, kv: f32}
micro_batches: {prefill: 1, decode: 1}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for ((i = 0; i < $1; i++)); do
        cat <<PLAN
  - layers: $((5 * i / $1))-$((5 * (i + 1) / $1 - 1))
    node: here
    device: ${kinds[i]:-gpu}
    tp: $2
    schemes: [{layers: $((5 * i / $1))-$((5 * (i + 1) / $1 - 1)), use: rtn, bits: 4, group: 32}]
PLAN
    done >"$WORK/stages"
    cat "$WORK/stages"
}
# job BACKEND RANKS [a step before]
job() {
    cat >"$WORK/job.yaml" <<JOB
version: 1
backend: $1
model: $STORIES
pipeline:
${3:+  - $3
}  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: $2}
JOB
}
texts() { jq -c ".response.body.choices[0].text" "$WORK/$1/answers.jsonl"; }
# What each rank took: "rank 1 of 4 ... device 1"
took() { sed -n 's/.*rank \([0-9]*\) of \([0-9]*\) on this machine works on device \([0-9]*\),.*/\1 of \2: \3/p' "$WORK/err" | sort -u | paste -sd, ; }

plan 1 1 >"$WORK/plan.yaml"
job cpu threads
run run job.yaml --out one
ok "one process on the CPU: exit code 0, got $rc" test "$rc" = 0
texts one >"$WORK/want"
ok "two texts" test "$(wc -l <"$WORK/want")" = 2
job cuda threads
run run job.yaml --out alone -v
ok "one rank of two devices takes the first, got '$(took)'" test "$(took)" = "0 of 1: 0"

while read -r stages tp kind devices want; do
    plan "$stages" "$tp" >"$WORK/plan.yaml"
    job cuda "$kind"
    TSR_STANDIN=devices=$devices run run job.yaml --out "run-$stages-$tp-$kind-$devices" -v
    ok "$stages stages of $tp as $kind: exit code 0, got $rc" test "$rc" = 0
    ok "$stages stages of $tp as $kind: the CPU's answers" cmp -s "$WORK/want" <(texts "run-$stages-$tp-$kind-$devices")
    ok "$devices devices for $stages stages of $tp as $kind: '$want', got '$(took)'" test "$(took)" = "${want//_/ }"
done <<'WAYS'
2 1 processes 2 0_of_2:_0,1_of_2:_1
4 1 threads 4 0_of_4:_0,1_of_4:_1,2_of_4:_2,3_of_4:_3
4 1 processes 2 0_of_4:_0,1_of_4:_1,2_of_4:_0,3_of_4:_1
WAYS

# A plan over GPUs of two kinds and the CPU, in an order that is not the driver's: the cluster file says what runs
# each kind, and which devices of the machine they are.
mkdir -p "$WORK/devices"
for kind in old new host; do
    cat >"$WORK/devices/$kind.yaml" <<DEVICE
format: tessera.device/1
name: $kind
memory: {total: 4 GB, source: "none: of a test"}
bandwidth: {peak: 100 GB/s, source: "none: of a test"}
kernels: [{kernel: int4, ops: 1 TFLOP/s, prefill: {compute: 0.5, read: 0.5}, decode: {compute: 0.5, read: 0.5}, source: "none: of a test"}]
DEVICE
done
# cluster OLD NEW HOST: what runs each
cluster() {
    cat >"$WORK/cluster.yaml" <<CLUSTER
version: 1
nodes:
  - name: here
    link: {bandwidth: 10 GB/s}
    devices:
      - {profile: devices/old.yaml, count: 2${1:+, backend: $1}}
      - {profile: devices/new.yaml${2:+, backend: $2}}
      - {profile: devices/host.yaml${3:+, backend: $3}}
CLUSTER
}
plan 4 1 old host new old >"$WORK/plan.yaml"
while read -r name kind head devices old new host want; do
    cluster "${old#-}" "${new#-}" "${host#-}"
    job "$head" "$kind"
    sed -i 's/^model:/cluster: cluster.yaml\n&/' "$WORK/job.yaml"
    TSR_STANDIN=devices=$devices run run job.yaml --out "$name" -v
    ok "$name: exit code 0, got $rc" test "$rc" = 0
    ok "$name: the CPU's answers" cmp -s "$WORK/want" <(texts "$name")
    ok "$name: '${want//_/ }', got '$(took)'" test "$(took)" = "${want//_/ }"
done <<'WAYS'
gpus-and-cpu processes cpu 3 cuda cuda - 0_of_3:_0,1_of_3:_1,2_of_3:_2
cpu-named threads cuda 3 - - cpu 0_of_3:_0,1_of_3:_1,2_of_3:_2
numbered threads cpu 4 ["cuda:device=2","cuda:device=1"] cuda:device=3 cpu 0_of_3:_2,1_of_3:_3,2_of_3:_1
WAYS
ok "results say what each rank ran on" json '[.results.run.ranks[].backend] ==
    ["cuda:device=2", "cpu", "cuda:device=3", "cuda:device=1"]' "$WORK/numbered/results.json"
cluster '{a: 1}' '' ''
fails "a backend that is no name" 2 'cluster.yaml:6:56' run job.yaml --out none
cluster 'cuda, emulate: cpu' '' ''
fails "a device that is emulated, too" 2 'cluster.yaml:6:56' run job.yaml --out none
cluster nothing '' ''
fails "a backend that is none" 2 nothing run job.yaml --out none

# A device that this process has used before: its driver is of no use to a process that is forked then.
plan 2 1 >"$WORK/plan.yaml"
job cuda processes 'generate: {prompts: ["The"], max_tokens: 1, temperature: 0}'
TSR_STANDIN=devices=2 run run job.yaml --out after -v
ok "a step on the device, then ranks: exit code 0, got $rc" test "$rc" = 0
ok "they are threads, which is said" grep -qi "threads.*'cuda'" "$WORK/err"
ok "on devices of their own, got '$(took)'" test "$(took)" = "0 of 2: 0,1 of 2: 1"
ok "and the CPU's answers" cmp -s "$WORK/want" <(texts after)

# A kernel that goes astray costs the context of all ranks that share it: each ends, in one sentence with kernels.
plan 2 1 >"$WORK/plan.yaml"
job cuda threads
for n in 1 30; do # the supervisor tries again
    TSR_STANDIN=devices=1,fail=$n run run job.yaml --out "lost-$n" --json
    ok "kernel $n goes astray, of ranks that share a device: exit code 75 in the end, got $rc" test "$rc" = 75
    said=$(grep -acE '"tessera.error/1".*Stand-in: .*illegal memory access.*k_[a-z]' "$WORK/err")
    ended=$(grep -ac '"worker-ended"' "$WORK/err")
    ok "kernel $n: one sentence, with kernels, each time: $said of $ended" test "$said" -gt 1 -a "$said" = "$ended"
done

# A device that is named is taken, by all; one that is not there is one sentence.
job cuda:device=1 threads
TSR_STANDIN=devices=2 run run job.yaml --out named -v
ok "a device that is named, got $rc and '$(took)'" test "$rc$(took)" = "00 of 2: 1,1 of 2: 1"
for kind in threads processes; do
    job cuda:device=2 $kind
    TSR_STANDIN=devices=2 fails "one that is not there, as $kind" 2 "backend 'cuda'" run job.yaml --out none
    ok "with its number and the last one, as $kind" failure '.message | test("\\b2\\b.*\\b1\\b")'
done
fails "without ranks too" 2 "backend 'cuda'" \
    logits "$STORIES" --tokens 1 --output x --backend cuda:device=1
fails "an option that is none" 2 'cuda' \
    logits "$STORIES" --tokens 1 --output x --backend cuda:devise=1
fails "numerics are the job's" 2 'cuda:numerics=fast' \
    logits "$STORIES" --tokens 1 --output x --backend cuda:numerics=fast
run logits "$STORIES" --tokens 1,5,9 --output cpu
run logits "$STORIES" --tokens 1,5,9 --output host --numerics exact --backend cuda:weights=host,launching=single
ok "weights in the memory of the host: the CPU's bytes, got $rc" cmp -s "$WORK/cpu" "$WORK/host"

# The rules of the plugin interface, each in a process that is forked.
run plugin check "$PLUGINS/cuda.so"
ok "the rules hold on this driver, got $rc: $(grep -E '^(failed|crashed|hung)' "$WORK/out" | head -c 400)" test "$rc" = 0

[ "${4:-}" != mpi ] || {
    plan 4 1 >"$WORK/plan.yaml"
    job cuda processes
    rc=0
    (cd "$WORK" && TSR_STANDIN=devices=4 exec mpirun --allow-run-as-root --oversubscribe -n 4 "$TESSERA" run job.yaml --out mpi -v) \
        >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    ok "under mpirun: exit code 0, got $rc" test "$rc" = 0
    ok "under mpirun: devices in turn, got '$(took)'" test "$(took)" = "0 of 4: 0,1 of 4: 1,2 of 4: 2,3 of 4: 3"
    ok "under mpirun: the CPU's answers" cmp -s "$WORK/want" <(texts mpi)
}
finish
