#!/bin/bash
# tests/faults/freeze.sh TESSERA FROZEN.so FROZEN_TRANSPORT.so [mpi FREEZE.so] - a rank of a batch stands still
# at each place where others wait for it: as a process, as a call that never returns, as an MPI rank.  It is
# named; the supervisor starts all anew, and the answers are those of a run without faults.
# Of the cases under mpirun, half by TSR_TEST_SEED, unless TSR_TEST_ALL is set.
# shellcheck source=tests/faults/lib.sh
. "$(dirname "$0")/lib.sh"
FROZEN=$(readlink -f "$2")
TRANSPORT=$(readlink -f "$3")
FREEZE=$(readlink -f "${5:-.}")
MODEL=$ROOT/configs/demo
cd "$WORK"
bad=0
wrong() {
    bad=$((bad + 1))
    echo "WRONG: $*"
    [ ! -s err ] || tail -n 30 err | sed 's/^/    /'
}

mkdir devices
cat >devices/this-machine.yaml <<'DEVICE'
format: tessera.device/1
name: this-machine
backend: cpu
memory: {total: 1 GiB, source: made up}
bandwidth: {peak: 10 GB/s, source: made up}
kernels:
  - {kernel: f32, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
DEVICE
for ((i = 0; i < 4; i++)); do
    printf '{"custom_id":"%d","url":"/v1/completions","body":{"prompt":"Once upon a time %d","max_tokens":6}}\n' $i $i
done >in.jsonl
# plan STAGES TP
plan() {
    local i
    cat <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 8, generate: 6, batch: 4, kv: f32}
micro_batches: {prefill: 1, decode: 1}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for ((i = 0; i < $1; i++)); do
        echo "  - {layers: $((6 * i / $1))-$((6 * (i + 1) / $1 - 1)), node: here, device: this-machine, tp: $2, schemes: [{layers: $((6 * i / $1))-$((6 * (i + 1) / $1 - 1)), keep: true}]}"
    done
}
plan 2 1 >stages.yaml
plan 1 2 >tp.yaml
# job BACKEND TRANSPORT: what the second rank runs on, and how a stage's ranks talk
job() {
    cat >cluster.yaml <<CLUSTER
version: 1
nodes:
  - {name: here, devices: [{profile: this-machine, count: 2, backend: [cpu, "$1"], transport: "$2"}], link: {bandwidth: 1 GB/s}}
CLUSTER
    printf 'version: 1\nmodel: "%s"\nseed: 5\ncluster: cluster.yaml\n' "$MODEL" >job.yaml
}
# batch OUTPUT PLAN [argument...]; the exit code is left in rc
batch() {
    rc=0
    timeout -s KILL 300 "$TESSERA" batch job.yaml --plugin-path "$FROZEN" --plugin-path "$TRANSPORT" -i in.jsonl -o "$1" \
        -q --json --threads 1 --set run.plan="$2" --set run.stall=1 "${@:3}" >/dev/null 2>err </dev/null || rc=$?
}
for plan in stages tp; do
    job cpu local
    batch "clean-$plan.jsonl" $plan.yaml --set run.stall=600
    [ $rc = 0 ] || wrong "$plan: exit $rc without a fault"
done

# case_of NAME PLAN BACKEND TRANSPORT RANKS CHECK...: one freeze, then the rest of the batch
case_of() {
    local name=$1 plan=$2
    rm -rf out.jsonl* once
    job "$3" "$4"
    batch out.jsonl "$plan.yaml" --set run.ranks="$5"
    [ $rc = 0 ] || wrong "$name: exit $rc"
    [ -e once ] || wrong "$name: nothing stood still"
    "${@:6}" || wrong "$name: not so: ${*:6}"
    event '.then == "restart"' || wrong "$name: nobody says that another one goes on"
    cmp -s out.jsonl "clean-$plan.jsonl" || wrong "$name: other answers"
}
# failed FILTER: a rank that is so; ends_late KIND: rank 1 at its end, of which a process is killed and a thread takes its
# process with it.
failed() { event ".kind == \"rank-failed\" and $1"; }
ends_late() {
    if [ "$1" = processes ]; then failed '.rank == 1 and .doing == "ends"'; else error_names 1; fi
}
error_names() { failure ".status == \"device\" and (.message | test(\"rank $1\\\\b\"))"; }
ONCE="once=$WORK/once"
if [ "${4:-}" != mpi ]; then
    for ranks in processes threads; do
        how=$([ $ranks = threads ] && echo thread || echo process)
        case_of "load, $ranks" stages "frozen:at=load,n=3,how=$how,$ONCE" local $ranks failed '.rank == 1 and .doing == "loads"'
        case_of "prompt, $ranks" stages "frozen:at=prefill,how=$how,$ONCE" local $ranks failed '.rank == 1 and .doing == "works"'
        case_of "token, $ranks" tp "frozen:at=decode,n=9,how=$how,$ONCE" local $ranks failed '.rank == 1 and .doing == "works"'
        case_of "end, $ranks" stages "frozen:at=end,how=$how,$ONCE" local $ranks ends_late $ranks
    done
    case_of "sum, threads" tp cpu "frozen:at=sum,n=5,how=thread,$ONCE" threads failed '.rank <= 1 and .doing == "sums"'
    case_of "sum, a call of processes" tp cpu "frozen:at=sum,n=5,how=thread,$ONCE" processes failed '.rank <= 1 and .doing == "sums"'
    [ $bad = 0 ]
    exit
fi

# ---- mpirun --------------------------------------------------------------------------
MPI="--allow-run-as-root --oversubscribe -n 2 -x LD_PRELOAD=$FREEZE -x TSR_FREEZE_ONCE=$WORK/once"
# supervised NAME CALL EVENT: a freeze at a call of MPI under the supervisor
supervised() {
    rm -rf out.jsonl* once
    job cpu ""
    batch out.jsonl tp.yaml --mpirun "$MPI -x TSR_FREEZE=$2"
    [ $rc = 0 ] || wrong "$1: exit $rc"
    [ -e once ] || wrong "$1: nothing stood still"
    event "$3" || wrong "$1: no event with '$3'"
    cmp -s out.jsonl clean-tp.jsonl || wrong "$1: other answers"
}
# alone NAME BACKEND CALL CHECK...: nobody starts it anew: exit 6, and the same command goes on
alone() {
    local name=$1 turn
    rm -rf out.jsonl* once
    job "$2" ""
    for turn in freezes "goes on"; do
        rc=0
        # shellcheck disable=SC2086
        timeout -s KILL 300 mpirun $MPI -x TSR_FREEZE="$3" "$TESSERA" batch job.yaml --plugin-path "$FROZEN" -i in.jsonl \
            -o out.jsonl -q --json --threads 1 --set run.plan=tp.yaml --set run.stall=1 >/dev/null 2>err </dev/null || rc=$?
        if [ "$turn" = freezes ]; then
            [ $rc = 6 ] || wrong "$name: exit $rc"
            [ -e once ] || wrong "$name: nothing stood still"
            "${@:4}" || wrong "$name: not so: ${*:4}"
        else
            [ $rc = 0 ] || wrong "$name, again: exit $rc"
            cmp -s out.jsonl clean-tp.jsonl || wrong "$name, again: other answers"
        fi
    done
}
# Rank 0 is killed while rank 1 stands in a call, and mpirun lets it be: rank 1 ends on its own.
cat >rank.sh <<'RANK'
"$@" &
echo $! >pid.$OMPI_COMM_WORLD_RANK.part
mv pid.$OMPI_COMM_WORLD_RANK.part pid.$OMPI_COMM_WORLD_RANK
rc=0
wait $! || rc=$?
echo $rc >rc.$OMPI_COMM_WORLD_RANK
RANK
abandoned() {
    local name=$1 start i
    rm -rf out.jsonl* once rc.? pid.?
    job "$2" ""
    # shellcheck disable=SC2086
    timeout -s KILL 300 mpirun $MPI --enable-recovery bash rank.sh "$TESSERA" batch job.yaml --plugin-path "$FROZEN" -i in.jsonl \
        -o out.jsonl -q --json --threads 1 --set run.plan=tp.yaml --set run.stall=4 >/dev/null 2>err </dev/null &
    start=$SECONDS
    for ((i = 0; i < 6000; i++)); do
        [ ! -e once ] || break
        sleep 0.01
    done
    [ -e once ] || wrong "$name: nothing stood still"
    kill -KILL "$(cat pid.0)" || wrong "$name: rank 0 had ended"
    wait $! || true
    [ "$(cat rc.0)" = 137 ] || wrong "$name: rank 0 ended with $(cat rc.0)"
    [ "$(cat rc.1)" = 6 ] || wrong "$name: rank 1 ended with $(cat rc.1 2>&1)"
    [ $((SECONDS - start)) -lt 60 ] || wrong "$name: it took $((SECONDS - start)) s"
    error_names "0 .* $(cat pid.0) .*rank 1" || wrong "$name: no error names rank 0, its process and rank 1"
}
turn=${TSR_TEST_SEED:-0}
# sampled COMMAND...: every second one, or all
sampled() {
    turn=$((turn + 1))
    if [ -n "${TSR_TEST_ALL:-}" ] || [ $((turn % 2)) = 1 ]; then "$@"; fi
}
abandoned "rank 0 is killed" "frozen:at=decode,n=9,how=thread,$ONCE"
# A signal handler, which cannot write JSON, prints this.
leaves_mpi() { grep -q "tessera: error: mpi: " err; }
sampled supervised "an exchange" MPI_Isend,100,1,self '.kind == "rank-failed" and .rank <= 1 and .host'
sampled supervised "rank 0 in an exchange" MPI_Isend,100,0,self '.then == "restart"'
sampled supervised "the last step" MPI_Finalize,1,1,self '.then == "restart"'
sampled supervised "mpirun itself" MPI_Isend,100,0,mpirun '.kind == "mpirun-stalled"'
sampled alone "the model is read" cpu pread,1,1,thread failed '.rank == 1 and .host and .doing == null'
sampled alone "a load" "frozen:at=load,n=3,$ONCE" none failed '.rank == 1 and .host and (.doing | . == "starts" or . == "loads")'
sampled alone "a call at load" "frozen:at=load,n=3,how=thread,$ONCE" none failed '.rank == 1 and .host and .doing == "loads"'
sampled alone "a call at a token" "frozen:at=decode,n=9,how=thread,$ONCE" none failed '.rank == 1 and .host and .doing == "works"'
sampled alone "a call of MPI" cpu MPI_Isend,100,1,thread failed '.rank == 1 and .host'
sampled alone "a call of MPI of rank 0" cpu MPI_Isend,100,0,thread error_names 0
sampled alone "the end of a rank" "frozen:at=end,how=thread,$ONCE" none error_names 1
sampled alone "the end of MPI" cpu MPI_Finalize,1,1,self leaves_mpi
[ $bad = 0 ]
