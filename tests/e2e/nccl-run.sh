#!/bin/bash
# tests/e2e/nccl-run.sh TESSERA NCCL-STAND-IN alone|mpi - sums of a plan's ranks over the transport nccl, as a cluster
# file asks for it: threads, processes, and under mpirun, where ranks find each other over MPI.  NCCL is that of the
# tests (tests/nccl), the ranks compute on the CPU: sums that stay on devices are tests/nccl/test_device_model.c.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
STANDIN=$(readlink -f "$2")
export LD_LIBRARY_PATH=$STANDIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

cat >"$WORK/plan.yaml" <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 4, generate: 3, batch: 1, chunk: 4, kv: f32}
micro_batches: {prefill: 1, decode: 1}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - {layers: 0-2, node: here, device: this-machine, tp: 2, schemes: [{layers: 0-2, use: rtn, bits: 4, group: 64}]}
  - {layers: 3-5, node: here, device: this-machine, tp: 2, schemes: [{layers: 3-5, use: rtn, bits: 4, group: 64}]}
PLAN
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once upon", "max_tokens": 3}}' \
    >"$WORK/prompts.jsonl"
# job KIND TRANSPORT
job() {
    cat >"$WORK/cluster.yaml" <<CLUSTER
version: 1
nodes:
  - {name: here, link: {bandwidth: 10 GB/s}, devices: [{profile: this-machine, count: 4${2:+, transport: "$2"}}]}
CLUSTER
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $ROOT/configs/demo
cluster: cluster.yaml
pipeline:
  - run: {input: prompts.jsonl, output: answers.jsonl, plan: plan.yaml, ranks: $1, temperature: 0}
JOB
}
answers() { jq -c .response.body.choices "$WORK/$1/answers.jsonl"; }

job threads ''
run run job.yaml --out local
ok "over local: exit code 0, got $rc" test "$rc" = 0
ok "three tokens" json '.response.body.usage.completion_tokens == 3' "$WORK/local/answers.jsonl"
for kind in threads processes; do
    job $kind nccl
    run run job.yaml --out "nccl-$kind"
    ok "$kind over nccl: exit code 0, got $rc" test "$rc" = 0
    ok "$kind over nccl: the answers of local" cmp -s <(answers local) <(answers "nccl-$kind")
done
# it is nccl that carries them: what it does not have is its sentence
job threads nccl:device=9
fails "a device that is not there" 2 "job.yaml:5: step 'run'" run job.yaml --out none
job threads nothing
fails "a transport that is none" 2 nothing run job.yaml --out none
job threads 'nccl, emulate: cpu'
fails "a device that is emulated" 2 'cluster.yaml:3:56' run job.yaml --out none

# under_mpi TRANSPORT OUT
under_mpi() {
    job processes "$1"
    rc=0
    (cd "$WORK" && exec mpirun --allow-run-as-root --oversubscribe -n 4 "$TESSERA" run job.yaml --out "$2" --json) \
        >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
}
[ "$3" != mpi ] || {
    under_mpi nccl:ids=mpi mpi
    ok "under mpirun: exit code 0, got $rc" test "$rc" = 0
    ok "under mpirun: the answers of local" cmp -s <(answers local) <(answers mpi)
    under_mpi nccl none
    ok "under mpirun without ids: exit code 2, got $rc" test "$rc" = 2
    # mpirun may end rank 0 while it prints; another rank's line then says it
    ok "under mpirun without ids: what is said is about the transport" grep -q "'nccl'" "$WORK/err"
    # every pair of ranks, each direction a communicator of its own
    rc=0
    (cd "$WORK" && exec mpirun --allow-run-as-root --oversubscribe -n 3 "$TESSERA" profile --links \
        --transport nccl:ids=mpi -o links.yaml --json) >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    ok "links of MPI ranks over nccl, got $rc" json '(.pairs | length) == 6 and all(.pairs[]; .mb_per_s > 0)' "$WORK/out"
}
finish
