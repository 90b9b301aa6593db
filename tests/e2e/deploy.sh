#!/bin/bash
# tests/e2e/deploy.sh TESSERA [mpi] - the recipes of configs/deploy: the job is good, the one for ssh runs on this host, and a rank of
# srun is told from a batch script of Slurm. tools/check-deploy runs them whole, on several hosts.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/lib.sh"
cp -r "$ROOT/configs/deploy" "$WORK/deploy"

run config check deploy/job.yaml
ok "the job is good, got $rc" test "$rc" = 0
run run deploy/job.yaml --out clean --set run.ranks=threads
ok "it answers in one process, got $rc" test "$rc" = 0
ok "every request" test "$(wc -l <"$WORK/clean/answers.jsonl")" = "$(wc -l <"$WORK/deploy/prompts.jsonl")"

# A script of sbatch has counts of tasks, but is no rank of them.
rc=0
(cd "$WORK" && SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "$TESSERA" run deploy/job.yaml --out batch) \
    >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
ok "in a batch script of Slurm the program starts the ranks itself, got $rc" test "$rc" = 0
ok "with the same bytes" cmp "$WORK/clean/answers.jsonl" "$WORK/batch/answers.jsonl"
# srun gives a rank; there is no server of PMIx here, so that MPI cannot start: what matters is that the program asks for it
rc=0
(cd "$WORK" && PMIX_RANK=1 SLURM_STEP_NUM_TASKS=2 timeout 60 "$TESSERA" run deploy/job.yaml --out rank) \
    >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
ok "a rank of srun does not answer alone, got $rc" test "$rc" != 0
ok "and writes no results" test ! -e "$WORK/rank/answers.jsonl"

script() { # EXIT ARGUMENT...
    local want=$1
    shift
    rc=0
    (cd "$WORK" && PATH=$WORK/bin:$PATH "$@") >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    ok "${*:1:2}: exit code $want, got $rc" test "$rc" = "$want"
}
mkdir "$WORK/bin"
ln -s "$TESSERA" "$WORK/bin/tessera"
printf '# none\n' >"$WORK/none"
script 2 deploy/ssh/run.sh none deploy/job.yaml out
ok "a host file without hosts is named" grep -q 'none: has no host' "$WORK/err"
script 2 deploy/ssh/run.sh none
ok "arguments that are missing: how it is called" grep -q 'run.sh HOSTFILE JOB OUT' "$WORK/err"
script 2 deploy/slurm/tessera.sbatch deploy/job.yaml
ok "and of the batch script" grep -q 'usage: sbatch' "$WORK/err"

if [ "${2:-}" = mpi ]; then
    # both ranks here: one node with two devices
    printf 'version: 1\nnodes:\n  - {name: first, devices: [{profile: host, count: 2}], link: {bandwidth: 1 MB/s, latency: 1 s}}\n' \
        >"$WORK/deploy/cluster.yaml"
    sed -i 's/node: second/node: first/' "$WORK/deploy/plan.yaml"
    echo 'localhost slots=2' >"$WORK/hostfile"
    run run deploy/job.yaml --out one --set run.ranks=threads
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    script 0 deploy/ssh/run.sh hostfile deploy/job.yaml over
    ok "doctor looked at the link first" grep -qE '^ok +link' "$WORK/out"
    ok "the ranks of mpirun answer with the same bytes" cmp "$WORK/one/answers.jsonl" "$WORK/over/answers.jsonl"
    # a job that doctor refuses does not start
    sed -i 's/1 MB.s/1000 TB\/s/' "$WORK/deploy/cluster.yaml"
    script 1 deploy/ssh/run.sh hostfile deploy/job.yaml refused
    ok "no job on a slower link than the file's" test ! -e "$WORK/refused"
fi
finish
