#!/bin/bash
# tests/e2e/plan-residuals.sh TESSERA - a checked plan counts the residuals that a packed model has: at their bits, of
# packed linears that are given channels, to the byte; from a folder and from a prepacked file.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

mkdir "$WORK/devices"
for name in here far; do
    cat >"$WORK/devices/$name.yaml" <<END
format: tessera.device/1
name: $name
memory: {total: 64 MiB, source: made up}
bandwidth: {peak: 1 GB/s, source: made up}
$([ $name = here ] && echo "backend: cpu" || echo "host: {peak: 2 GB/s, source: made up}")
kernels:
$(for k in bf16 f32 int3; do
        echo "  - {kernel: $k, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
END
done
cat >"$WORK/cluster.yaml" <<'END'
version: 1
nodes:
  - {name: a, devices: [{profile: here}], link: {bandwidth: 10 GB/s, latency: 5 us}}
  - {name: b, devices: [{profile: far}], link: {bandwidth: 10 GB/s, latency: 5 us}}
network: {bandwidth: 1 GB/s, latency: 20 us}
END
for model in packed packed.tsr; do
    cat >"$WORK/$model.yaml" <<END
version: 1
model: $model
cluster: cluster.yaml
workload: {prompt: 32, generate: 16, batch: 1, kv: f32}
pipeline: [{plan: {use: rtn}}]
END
done
# plan OF-STAGE-0 OF-STAGE-1: which channels
plan() {
    cat >"$WORK/plan.yaml" <<END
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 16, batch: 1, kv: f32}
micro_batches: {prefill: 1, decode: 1}
stages:
  - {layers: 0-2, node: a, device: here, schemes: [{layers: 0-2, keep: true}], ${1:+compensation: [$1]}}
  - {layers: 3-5, node: b, device: far, schemes: [{layers: 3-5, keep: true}], ${2:+compensation: [$2]}}
END
}
# header FILE: of a safetensors file, as JSON
header() {
    local n
    n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((8 + n)) "$1" | tail -c "$n" # tail reads all that it gets, so that no pipe breaks
}
# in_file LAYERS-REGEX: bytes of residuals and scales of these layers as the file has them
in_file() {
    header "$WORK/packed/compensation.safetensors" | jq --arg l "^model.layers.$1[.].*[.](residual|scales)$" '
        [to_entries[] | select(.key | test($l)) | .value.data_offsets | .[1] - .[0]] | add'
}

run quantize "$DEMO" -o packed --use rtn --bits 3 --group 128 --rules '[{tensors: "*.1.*.o_proj", keep: true}]'
ok "quantize: exit code 0, got $rc" test "$rc" = 0
plan '{k: 1024}'
run plan packed.yaml --check plan.yaml --json
ok "no residuals yet: exit code 0, got $rc" test "$rc" = 0
ok "as compensate keeps them by default" json '.plan.stages[0].compensation | .assumed and .bits == 4' "$WORK/out"
run plan packed.yaml --check plan.yaml
ok "and it is said" grep -q 'residuals of 4 bits (the model has none yet)' <(tr -s ' \n' ' ' <"$WORK/out")
plan
run plan packed.yaml --check plan.yaml --json
cp "$WORK/out" "$WORK/without"

for bits in 2 4 8 16; do
    run compensate "$DEMO" --packed packed --text "$DEMO/calibration.txt" --samples 1 --seqlen 16 --bits $bits -o "j$bits"
    ok "$bits bits: exit code 0, got $rc" test "$rc" = 0
    plan '{k: 1024}' '{tensors: "*.down_proj", k: 512}, {tensors: "*.o_proj", k: 3}'
    run plan packed.yaml --check plan.yaml --json
    # down has 512 inputs, of which 256 are read, and 256 outputs; 3 of 1024 of the 256 inputs of o are none.  To work in:
    # a list of 1 + 512 or 1 + 256 channels, the rows of a prompt of 32, scales of 3 * 2048 - 256 or 3 * 256 outputs
    ok "$bits bits: $(in_file '[0-2]') bytes of the file, 20 linears of stage 0" json --slurpfile was "$WORK/without" \
        --argjson file "$(in_file '[0-2]')" --argjson bits $bits '(if $bits == 16 then 0 else 2 end) as $scale |
        [.plan.stages[].compensation] as [$a, $b] | ($was[0].plan.stages | map(.total)) as $bare |
        $a == {k: 1024, bits: $bits, bytes: $file, work: (4 * (513 + 32) + 2 * (3 * 2048 - 256)), host: false, assumed: false,
            decode_ms: $a.decode_ms} and $b.work == 4 * (257 + 32) + 2 * 3 * 256 and
        .plan.stages[0].total == $bare[0] + $file + $a.work and .plan.stages[1].total == $bare[1] + $b.work and
        $b.bits == $bits and $b.host and ($b.assumed | not) and $b.k == 512 and
        $b.bytes == 3 * (512 * 256 * $bits / 8 + 256 * $scale) and
        (3 * 256 * 256 * $bits / 8 / 2e9 * 1e3) as $fetch | $was[0].plan.stages[1].decode_ms as $base |
        $b.decode_ms > ([0, $fetch - $base] | max) and $b.decode_ms < $fetch and
        $b.decode_ms < ([0, $fetch - 0.9 * $base] | max) + 0.05 * $base' "$WORK/out"
    run convert packed -o packed.tsr --to prepacked
    ok "$bits bits: convert, got $rc" test "$rc" = 0
    run plan packed.tsr.yaml --check plan.yaml --json
    ok "$bits bits, prepacked" json --argjson file "$(in_file '[0-2]')" --argjson bits $bits \
        '.plan.stages[0].compensation | .bits == $bits and .bytes == $file and (.assumed | not)' "$WORK/out"
    rm -f "$WORK/packed.tsr"
done
# What compensation works in beside them is counted, too: by how much the ranks' peaks grow.  The kernels' own lists and
# the scratch of their sums are not, and of the plan's tokens of a forward there may be more: within a third.
for i in 1 2 3; do
    echo '{"custom_id": "r'$i'", "method": "POST", "url": "/v1/completions", "body": {"prompt": "The '$i'. time that a man came", "max_tokens": 6, "temperature": 0}}'
done >"$WORK/in.jsonl"
sed -i 's/batch: 1/batch: 3/' "$WORK/packed.yaml"
sed -i 's/{profile: here}/{profile: here, count: 2}/; s/profile: far/profile: here/' "$WORK/cluster.yaml"
run compensate "$DEMO" --packed packed --text "$DEMO/calibration.txt" --samples 1 --seqlen 16 -o j
for k in 0 1024; do
    plan "{k: $k}" "{k: $k}"
    sed -i 's/batch: 1/batch: 3/; s/device: here,/device: here, tp: 2,/; s/device: far/device: here/' "$WORK/plan.yaml"
    run plan packed.yaml --check plan.yaml --json
    ok "k $k: priced, got $rc" test "$rc" = 0
    jq -c '[.plan.stages[] | .workspace]' "$WORK/out" >"$WORK/workspace$k"
    run batch packed --input in.jsonl --output "out$k.jsonl" --threads 2 --set run.plan=plan.yaml
    ok "k $k: runs, got $rc" test "$rc" = 0
    jq -c '.results.run.ranks | map(.peak) | [.[0] + .[1], .[2]]' "$WORK/out$k.jsonl.job/results.json" >"$WORK/peak$k"
done
ok "what it works in: $(cat "$WORK"/workspace* "$WORK"/peak* | tr '\n' ' ')" jq -ne --slurpfile a "$WORK/workspace0" --slurpfile b "$WORK/workspace1024" \
    --slurpfile c "$WORK/peak0" --slurpfile d "$WORK/peak1024" '[0, 1] | all(. as $i |
    ($b[0][$i] - $a[0][$i]) / ($d[0][$i] - $c[0][$i]) | . > 0.67 and . < 1.33)' >"$WORK/jq"
printf 'x' | dd of="$WORK/packed/compensation.safetensors" bs=1 seek=8 conv=notrunc 2>/dev/null
fails "damaged residuals" 2 'packed/compensation.safetensors' plan packed.yaml --check plan.yaml

finish
