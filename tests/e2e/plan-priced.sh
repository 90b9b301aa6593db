#!/bin/bash
# tests/e2e/plan-priced.sh TESSERA - `tessera plan --check` of a plan has the time, the objective and the quality that the search
# has of it: random clusters and jobs, with the head on the first or the last stage, packed ends, settings left open, a limit on
# the prompts, prompts in chunks, copies and groups of copies.
# TSR_TEST_SEED chooses the problems; TSR_TEST_ALL=1 takes more.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
RANDOM=${TSR_TEST_SEED:-1}
N=20
[ "${TSR_TEST_ALL:-}" != 1 ] || N=300

mkdir "$WORK/devices" "$WORK/clusters"
# In a subshell RANDOM begins anew, so all numbers of a problem are drawn before it is written.
draws=()
draw() { # K BELOW
    echo $((draws[$1] % $2))
}
pick() { # K WORD...: one of them
    local k=${draws[$1]}
    shift
    shift $((k % $#))
    echo "$1"
}
device() { # NAME K
    cat >"$WORK/devices/$1.yaml" <<DEVICE
format: tessera.device/1
name: $1
memory: {total: $((2000 + $(draw "$2" 6000))) KiB, source: made up}
bandwidth: {peak: $((2 + $(draw $(($2 + 1)) 9))) GB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int4 int8; do
        echo "  - {kernel: $k, ops: $((10 + $(draw $(($2 + 2)) 30))) GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
}
node() { # NAME K
    echo "  - {name: $1, devices: [{profile: $(pick "$2" new old), count: $((1 + $(draw $(($2 + 1)) 2)))}], link: {bandwidth: $((5 + $(draw $(($2 + 2)) 500))) MB/s, latency: $(draw $(($2 + 3)) 300) us}}"
}
problem() {
    for k in {0..39}; do draws[k]=$RANDOM; done
    device new 0
    device old 3
    {
        printf 'version: 1\nnodes:\n'
        node a 6
        node b 10
        [ "$(draw 14 2)" = 0 ] || node c 15
        echo "network: {bandwidth: $((1 + $(draw 20 100))) MB/s, latency: $(draw 21 900) us}"
    } >"$WORK/clusters/random.yaml"
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $DEMO
cluster: clusters/random.yaml
workload: {prompt: $((4 + $(draw 22 40))), generate: $((1 + $(draw 23 12))), batch: $((2 + $(draw 24 9)))$(pick 25 "" ", concurrency: 2" ", kv: f32" ", chunk: 16")}
pipeline:
  - plan:
      use: rtn
      group: 64
      bits: [4, 8]
      baselines: none
      codec: $(pick 26 plain plain mx:element=fp4_e2m1)
      $(pick 27 "head: first" "head: first" "head: last" "at_most: {ttft_s: 0.0$((1 + $(draw 28 9)))}")
      $(pick 29 "replicas: 1" "replicas: auto")
      $(pick 30 "ends: [rtn-8]" "" "")
JOB
}
same() { # FILE PLAN: --check has of a file what the plan says
    run plan job.yaml --check "$1" --json
    [ "$rc" = 0 ] && json --argjson was "$2" 'def near($a; $b): $a >= $b * (1 - 1e-9) and $a <= $b * (1 + 1e-9);
        .plan as $p | all("latency_ms", "objective_ms", "ttft_ms", "omega"; near($p[.]; $was[.]))' "$WORK/out"
}
plans=0 copies=0 groups=0 back=0
for i in $(seq "$N"); do
    problem
    rm -f "$WORK"/plan*.yaml
    run plan job.yaml -o plan.yaml --json
    [ "$rc" = 3 ] && continue
    ok "problem $i is planned, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/was.json"
    plans=$((plans + 1))
    if json '.fleet.kinds | length > 0' "$WORK/was.json"; then
        groups=$((groups + 1))
        for k in $(seq 0 $(($(jq '.fleet.kinds | length' "$WORK/was.json") - 1))); do
            ok "problem $i, group $k costs what it did" same "$(jq -r ".fleet.kinds[$k].file" "$WORK/was.json")" \
                "$(jq -c ".fleet.kinds[$k].plan" "$WORK/was.json")"
        done
        continue
    fi
    json '.replicas.count > 1' "$WORK/was.json" && copies=$((copies + 1))
    [ "$(sed -n 's/ *head: //p' "$WORK/job.yaml")" = first ] && json '.plan.stages | length > 1' "$WORK/was.json" && back=$((back + 1))
    ok "problem $i costs what it did" same plan.yaml "$(jq -c .plan "$WORK/was.json")"
done
echo "$plans plans: $copies of copies, $groups of unlike copies, $back whose rows come back to the head"
if [ "${TSR_TEST_SEED:-1}" = 1 ]; then
    ok "some of each" test $((plans > 8 && copies > 0 && groups > 0 && back > 2)) = 1
fi
finish
