#!/bin/bash
# tests/e2e/plan-remedies.sh TESSERA - schemes that a refused plan is offered, fewer bits and packed embedding and head: what is
# offered is enough, and nothing less is.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir "$WORK/devices" "$WORK/clusters"
device() { # KIB
    cat >"$WORK/devices/one.yaml" <<DEVICE
format: tessera.device/1
name: one
memory: {total: $1 KiB, source: made up}
bandwidth: {peak: 1 GB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int2 int3 int4 int8; do
        echo "  - {kernel: $k, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
}
cat >"$WORK/clusters/one.yaml" <<CLUSTER
version: 1
nodes:
  - name: a
    devices: [{profile: one}]
CLUSTER
cat >"$WORK/job.yaml" <<JOB
version: 1
model: $STORIES
cluster: clusters/one.yaml
workload: {prompt: 64, generate: 32, batch: 1, concurrency: 0, chunk: 0, kv: f16}
pipeline:
  - plan: {use: rtn, group: 32, bits: [8], baselines: none}
JOB

refused() { # NAME SET...: leaves the remedies in $WORK/out
    local name=$1
    shift
    run plan job.yaml -o x.yaml --json "$@"
    ok "$name: exit code 3, got $rc" test "$rc" = 3
}
solves() { # NAME CODE SET...
    local name=$1 code=$2
    shift 2
    run plan job.yaml -o x.yaml "$@"
    ok "$name: exit code $code, got $rc" test "$rc" = "$code"
}
chunk=(--set workload.chunk=32)
ends=(--set 'plan.ends=[rtn-8]')

device 4096
run plan job.yaml -o x.yaml --json
# what each change takes off, as the planner counts it; embedding and head are tied, 512 x 64 in F32
need=$(jq '.plan.stages[0].total' "$WORK/out")
ok "a plan where there is room, of $need bytes" test "$need" -gt 600000
kib=$((need / 1024))

# ---- one change
device $((kib - 20))
refused "20 KiB are missing"
ok "both schemes are offered, and what is known of them" json '.remedies |
    .narrow == {candidate: "rtn-4", known: true} and .ends == {candidate: "rtn-8", known: false} and (has("pair") | not)' "$WORK/out"
run plan job.yaml -o x.yaml
ok "in the sentence" grep -q 'or the candidate rtn-4, or embedding and head by rtn-8, whose loss is not measured$' "$WORK/err"
solves "4 bits are enough" 0 --set 'plan.bits=[4, 8]' --set 'plan.quality={max_omega: 100}'
solves "packed ends are enough" 0 "${ends[@]}"
solves "neither is not" 3
device $((kib - 150))
refused "150 KiB are missing"
ok "the widest scheme that is enough is offered" json '.remedies | .narrow.candidate == "rtn-2" and (has("ends") | not)' "$WORK/out"
for change in "4 3" "3 3" "2 0"; do
    read -r bits want <<<"$change"
    solves "$bits bits with 150 KiB less" "$want" --set "plan.bits=[$bits, 8]" --set 'plan.quality={max_omega: 100}'
done

# ---- two changes
device $((kib - 203))
refused "203 KiB are missing"
ok "ends and a chunk" json '.remedies | .pair.ends == {candidate: "rtn-8", known: false} and .pair.chunk == 32 and .chunk == 0 and
    .narrow == null and .ends == null and .pair.narrow == null' "$WORK/out"
solves "both are enough" 0 "${chunk[@]}" "${ends[@]}"
solves "the chunk alone is not" 3 "${chunk[@]}"
solves "the ends alone are not" 3 "${ends[@]}"
device $((kib - 253))
refused "253 KiB are missing"
ok "fewer bits and a chunk" json '.remedies | .pair.narrow == {candidate: "rtn-4", known: true} and .pair.chunk == 32 and
    .pair.ends == null' "$WORK/out"
solves "both are enough" 0 "${chunk[@]}" --set 'plan.bits=[4, 8]' --set 'plan.quality={max_omega: 100}'
solves "the chunk alone is not" 3 "${chunk[@]}"
solves "the chunk with the ends is not" 3 "${chunk[@]}" "${ends[@]}"

# ---- within the limit of quality, or with a higher one
tight=(--set workload.chunk=32 --set 'plan.quality={max_omega: 0.03}')
device $((kib - 253))
refused "fewer bits than the limit allows" "${tight[@]}"
ok "fewer bits and a higher limit" json '.remedies | .narrow == null and .max_omega == null and .pair.narrow.candidate == "rtn-4" and
    .pair.max_omega > 0.03' "$WORK/out"
limit=$(jq .remedies.pair.max_omega "$WORK/out")
solves "both are enough" 0 "${tight[@]}" --set 'plan.bits=[4, 8]' --set "plan.quality={max_omega: $limit}"
solves "2 % less of the limit are not" 3 "${tight[@]}" --set 'plan.bits=[4, 8]' \
    --set "plan.quality={max_omega: $(jq -n "$limit * 0.98")}"
solves "fewer bits alone are not" 3 "${tight[@]}" --set 'plan.bits=[4, 8]'

# ---- a file that has no figure of the scheme
device $((kib - 20))
hash=$("$TESSERA" inspect "$STORIES" --json | jq -r '.hash // .model.hash')
jq -n --arg hash "$hash" '{format: "tessera.indicators/2", model: $hash, layers: 5,
    schemes: [{scheme: "rtn:bits=8,group=32", kl: [0.001, 0.001, 0.001, 0.001, 0.001]}],
    kv: [{kv: "f16", kl: 0, half: 0, context: 512}], links: [], sums: []}' >"$WORK/kl.json"
known=(--set plan.codec=plain --set 'plan.quality={indicators: kl.json, max_omega: 1}')
refused "indicators of one scheme" "${known[@]}"
ok "a scheme without a figure is offered as that" json '.remedies | .narrow == {candidate: "rtn-4", known: false} and
    .ends == {candidate: "rtn-8", known: false}' "$WORK/out"
run plan job.yaml -o x.yaml "${known[@]}"
ok "and said so" grep -q 'or the candidate rtn-4, whose loss is not measured, or embedding and head by rtn-8, whose loss is not measured$' "$WORK/err"

# ---- packed weights stay as they are
run quantize "$STORIES" --use rtn --bits 8 --group 32 --out packed
ok "a packed model: exit code 0, got $rc" test "$rc" = 0
sed -e "s|^model: .*|model: packed|; s|use: rtn, group: 32, bits: \[8\], ||" "$WORK/job.yaml" >"$WORK/packed.yaml"
run plan packed.yaml -o x.yaml --json
ok "no scheme is offered for packed weights" json '.plan.status == "infeasible" and (.remedies | has("narrow") or has("ends") | not)' "$WORK/out"
finish
