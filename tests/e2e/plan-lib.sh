# shellcheck shell=bash
# tests/e2e/plan-lib.sh - devices and clusters that do not exist, and a job on them, for the tests plan-job and plan-steps.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

device() { # NAME MEMORY RATE OPS
    cat >"$WORK/devices/$1.yaml" <<DEVICE
format: tessera.device/1
name: $1
memory: {total: $2, source: made up}
bandwidth: {peak: $3, source: made up}
kernels:
$(for k in f16 bf16 f32 int3 int4 int8; do
        echo "  - {kernel: $k, ops: $4, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
}
mkdir "$WORK/devices" "$WORK/clusters"
device small "1 MiB" "1 GB/s" "100 GFLOP/s"
device large "2 MiB" "3 GB/s" "400 GFLOP/s"
device gpu "80 GB" "2 TB/s" "300 TFLOP/s"

cluster() { # COUNT-OF-SMALL
    cat <<CLUSTER
version: 1
nodes:
  - name: a
    devices: [{profile: small, count: $1}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
  - name: b
    devices: [{profile: large}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
network: {bandwidth: 1 GB/s, latency: 20 us}
CLUSTER
}
cluster 2 >"$WORK/clusters/tiny.yaml"
cluster 3 >"$WORK/clusters/three.yaml"

job() { # BATCH OPTIONS
    cat <<JOB
version: 1
model: $STORIES
cluster: clusters/tiny.yaml
workload: {prompt: 64, generate: 32, batch: $1, concurrency: 0, chunk: 0, kv: f16}
pipeline:
  - plan: {use: rtn, group: 32, bits: [3, 4, 8, 16], $2}
JOB
}
job 8 'baselines: uniform' >"$WORK/job.yaml"
