#!/bin/bash
# tests/e2e/cuda-nccl.sh TESSERA GPU_CHECK STAND-IN OVER PLUGINS - the backend cuda and the transport nccl together: a
# plan's ranks whose sums are coded, carried and added on the devices, as a cluster file asks for it, and gpu-check's
# part `ranks`.  The driver is that of the tests (tests/gpu/standin), NCCL its stand-in over it (tests/nccl/over).
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CHECK=$(readlink -f "$2") STANDIN=$(readlink -f "$3") OVER=$(readlink -f "$4") PLUGINS=$(readlink -f "$5")
export LD_LIBRARY_PATH=$OVER:$STANDIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 2}}' \
    >"$WORK/prompts.jsonl"
# job KIND CODEC ALGORITHM BACKEND TRANSPORT [STATE]
job() {
    cat >"$WORK/plan.yaml" <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 4, generate: 2, batch: 1, kv: f32}
micro_batches: {prefill: 1, decode: 1}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - layers: 0-5
    node: here
    device: this-machine
    tp: 2
    collective:
      prefill: {codec: $2, algorithm: $3${6:+, state: $6}}
      decode: {codec: $2, algorithm: $3${6:+, state: $6}}
    schemes: [{layers: 0-5, use: rtn, bits: 4, group: 64}]
PLAN
    cat >"$WORK/cluster.yaml" <<CLUSTER
version: 1
nodes:
  - {name: here, link: {bandwidth: 10 GB/s}, devices: [{profile: this-machine, count: 2, backend: $4, transport: $5}]}
CLUSTER
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $ROOT/configs/demo
cluster: cluster.yaml
pipeline:
  - quantize: {use: rtn, plan: plan.yaml}
  - run: {input: prompts.jsonl, output: answers.jsonl, plan: plan.yaml, ranks: $1, temperature: 0}
JOB
}
texts() { jq -c .response.body.choices "$WORK/$1/answers.jsonl"; }

# int4_bf16 needs ranges: of the packed model, as its ranks make them
while read -r kind codec algorithm; do
    name=$kind-$codec-$algorithm state=
    if [ "$codec" = int4_bf16 ]; then
        job threads plain "$algorithm" cpu local
        sed "s|^  - run: .*|  - calibrate: {text: $ROOT/configs/demo/calibration.txt, samples: 2, seqlen: 32, codecs: {use: [int4_bf16], tp: 2, act: a8, algorithm: $algorithm}}|" \
            "$WORK/job.yaml" >"$WORK/ranges.yaml"
        run run ranges.yaml --out ranges
        ok "ranges for $name, got $rc" test "$rc" = 0
        state=$(cd "$WORK" && echo ranges/codecs/*.safetensors)
    fi
    job threads "$codec" "$algorithm" cpu local "$state"
    run run job.yaml --out "cpu-$name"
    ok "$name on CPUs: exit code 0, got $rc" test "$rc" = 0
    for devices in 1 2; do
        job "$kind" "$codec" "$algorithm" cuda nccl "$state"
        rm -f "$WORK"/counts.*
        TSR_STANDIN=devices=$devices TSR_STANDIN_LOG=$WORK/counts.%p run run job.yaml --out "cuda-$name-$devices" -v
        ok "$name on $devices devices, $kind: exit code 0, got $rc" test "$rc" = 0
        ok "$name on $devices devices: the answers of CPUs" cmp -s <(texts "cpu-$name") <(texts "cuda-$name-$devices")
        ok "$name on $devices devices: no sum goes through the host" \
            test "$(grep -c 'through the host' "$WORK/err")" = 0
        # two sums of each of six layers in each of two ranks, for a prompt and a token; of each process that ran kernels
        # and told what it did at its end
        want=0
        case $codec:$devices in
            plain:2 | mx*:2 | int4_bf16:2) want=$([ "$kind" = threads ] && echo 48 || echo 24) ;;
        esac
        sums=$(grep -l '^k_' "$WORK"/counts.* | while read -r file; do
            awk '$1 ~ /^k_window_/ {n += $2} END {print n + 0}' "$file"
        done | sort -u | paste -sd,)
        ok "$name on $devices devices, $kind: $want sums in windows, got $sums" test "$sums" = "$want"
    done
done <<'WAYS'
threads plain two-step
processes plain two-step
processes int4_bf16 two-step
threads mx all-gather
processes mx two-step
WAYS
# a kernel that goes astray fails the messages of all ranks that share its context: the kernels are named all the same
job threads mx two-step cuda nccl
TSR_STANDIN=devices=1,fail=20 run run job.yaml --out lost --json
ok "a context is lost under messages: restarts, then an end or the answers of CPUs, got $rc" \
    eval '[ "$rc" = 75 ] || cmp -s <(texts cpu-processes-mx-two-step) <(texts lost)'
said=$(grep -acE '"tessera.error/1".*Stand-in: .*illegal memory access.*k_[a-z]' "$WORK/err")
ended=$(grep -ac '"worker-ended"' "$WORK/err")
ok "one sentence, with kernels, each time: $said of $ended" test "$said" -gt 1 -a "$said" = "$ended"
# where a rank's transport and backend are on different devices it is said, and the answers are the same
job threads mx two-step cuda:device=0 nccl:device=1
TSR_STANDIN=devices=2 run run job.yaml --out apart -v
ok "on different devices: the answers of CPUs, got $rc" cmp -s <(texts cpu-processes-mx-two-step) <(texts apart)
ok "which is said" grep -q "through the host.*nccl" "$WORK/err"

for ranks in 2 4 8; do
    rc=0
    "$CHECK" ranks cuda "$PLUGINS/cuda.so" "$PLUGINS" nccl:device=0 $ranks >"$WORK/out" 2>"$WORK/err" || rc=$?
    ok "gpu-check's $ranks ranks, got $rc" grep -q "^$ranks ranks: .* sums are those of ranks on CPUs, on the device$" "$WORK/out"
done
rc=0
TSR_STANDIN_REFUSES=1 "$CHECK" ranks cuda "$PLUGINS/cuda.so" "$PLUGINS" nccl:device=0 2 >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "a NCCL that lets no two ranks share a device has a status of its own, got $rc" test "$rc" = 3
# gpu-check's sums: a time for each size over two devices; with one, and where they do not see each other, a status
for row in 0:devices=2 4:devices=1 5:devices=2,nopeers; do
    rc=0
    TSR_STANDIN=${row#*:} "$CHECK" sums cuda "$PLUGINS/cuda.so" "$PLUGINS" nccl 3 >"$WORK/out" 2>"$WORK/err" || rc=$?
    ok "gpu-check's sums with ${row#*:}, got $rc" test "$rc" = "${row%%:*}"
    times=$(jq -s '[.[] | select(.ranks == 2 and .us > 0 and .us < 1e9) | .sum_bytes] == [16384, 65536, 524288]' "$WORK/out")
    ok "which are three, or none" test "$times" = "$([ "$rc" = 0 ] && echo true || echo false)"
done
finish
