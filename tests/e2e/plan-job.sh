#!/bin/bash
# tests/e2e/plan-job.sh TESSERA - plans of a model on machines that do not exist: what is printed and
# written holds together, edited plans are priced, what cannot be is said in one sentence.
# shellcheck source=tests/e2e/plan-lib.sh
. "$(dirname "$0")/plan-lib.sh"

# ---- links as measured are a cluster that can be planned for
run profile --links --ranks 2 --name small --transport local:bandwidth=100,latency=2000 \
    -o "$WORK/clusters/measured.yaml" --json
# Half and twice as bounds: on a busy machine a line through times has any slope nearby; without the pace
# shared memory has more than ten times the rate and less than a hundredth of the latency.
ok "links: both ways, not as fast as they were without a pace" json '(.pairs | length) == 2 and .ranks == 2 and
    all(.pairs[]; .from != .to and .mb_per_s > 1 and .mb_per_s < 200 and .alpha_us > 1000)' "$WORK/out"
ok "links: the file has what was measured" test "$(jq -r '[.pairs[].mb_per_s] | add / 2 | floor' "$WORK/out")" = \
    "$(sed -nE 's/.*link: \{bandwidth: ([0-9]+)[.0-9]* MB.*/\1/p' "$WORK/clusters/measured.yaml")"
sed 's/tiny/measured/' "$WORK/job.yaml" >"$WORK/measured-job.yaml"
run plan measured-job.yaml -o m.yaml
ok "links: the planner takes the file" grep -qE '^cluster +measured: 2 devices in 1 node' "$WORK/out"
fails "links: no such transport" 2 lokal profile --links --transport lokal
if [ -f "$(dirname "$TESSERA")/plugins/asked/mpi.so" ]; then
    fails "links: MPI without mpirun" 2 'mpi' profile --links --transport mpi
fi

# ---- a plan, and what is said of it
run plan job.yaml -o p.yaml
ok "a plan: exit code 0, got $rc" test "$rc" = 0
ok "the table fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
for line in '^model .*5 layers of 64' '^cluster +tiny: 3 devices in 2 nodes' '^work +8 requests, prompt 64' \
    '^device +layers +bits +weights +KV +work +free +margin +prefill +decode +busy' '^latency .*tokens/s' \
    '^quality +omega .* of at most .*uniform-4.*prior' '^times' '^it holds +at most' '^same work under'; do
    ok "the table has $line" grep -qE "$line" "$WORK/out"
done
run plan job.yaml --out p-out.yaml
ok "--out is -o" cmp -s <(grep -v seconds "$WORK/p.yaml") <(grep -v seconds "$WORK/p-out.yaml")
run plan job.yaml -o p.yaml
ok "where the plan is" grep -q '\bp\.yaml$' "$WORK/err"
run plan job.yaml -o p.yaml --json
cp "$WORK/out" "$WORK/plan.json"
cat >"$WORK/want.jq" <<'JQ'
.format == "tessera.planning/1" and .layers == 5 and
# every layer once, in order, and the bits of the stages are those of the layers
([.plan.stages[].layers] | add) == 5 and (.plan.bits | length) == 5 and
([.plan.stages[].first] == ([.plan.stages[].layers] as $n | [range($n | length) | $n[:.] | add // 0])) and
([.plan.stages[].bits | to_entries[].value] | add) == 5 and
all(.plan.stages[]; .total == .weights + .kv + .ends + .workspace and .total <= .capacity and .busy <= 1) and
.plan.omega <= .max_omega and .plan.latency_ms > .plan.prefill_ms and
(.plan.tokens_per_second - 8 * 32 * 1000 / .plan.latency_ms | fabs) < 1e-6 * .plan.tokens_per_second and
.plan.bound_ms <= .plan.objective_ms * 1.000001 and .largest.batch >= 8 and .largest.prompt >= 64 and
# nothing that is as good is faster
(.plan.objective_ms as $best | all(.baselines[] | select(.latency_ms); .objective_ms >= $best * 0.9999))
JQ
ok "the figures hold together" jq -e -f "$WORK/want.jq" "$WORK/plan.json" >"$WORK/jq"

for way in "--clip false" --no-clip; do
    # shellcheck disable=SC2086 # a word or two
    run plan job.yaml --use awq $way -o awq.yaml --json
    ok "a quantizer's switch, $way: exit code 0, got $rc" test "$rc" = 0
    jq -c '.plan.bits' "$WORK/out" >"$WORK/awq$way"
done
ok "--no-clip is --clip false" cmp "$WORK/awq--clip false" "$WORK/awq--no-clip"
ok "and it is in the plan" grep -q 'clip: false' "$WORK/awq.yaml"

# ---- the file, priced again
run plan job.yaml --check p.yaml --json
ok "its own plan checks, got $rc" test "$rc" = 0
ok "and costs what it did" jq -e --slurpfile was "$WORK/plan.json" \
    '.plan.latency_ms == $was[0].plan.latency_ms and .plan.omega == $was[0].plan.omega and
     [.plan.stages[].total] == [$was[0].plan.stages[].total] and .said.same_work and
     (.said.latency_ms / .plan.latency_ms - 1 | fabs) < 1e-8' "$WORK/out" >"$WORK/jq"
run plan job.yaml --check p.yaml
ok "said beside it" grep -qE '^checked +p.yaml says .*\+0.00 % now' "$WORK/out"
run quantize "$STORIES" --plan p.yaml -o packed
ok "quantize takes it, got $rc" test "$rc" = 0
run quantize "$STORIES" --use rtn --plan p.yaml -o named
ok "with its quantizer named as well: the same bytes" cmp -s "$WORK/packed/layer-00000.safetensors" "$WORK/named/layer-00000.safetensors"
sed 's/use: rtn, //g' "$WORK/p.yaml" >"$WORK/unnamed.yaml"
run quantize "$STORIES" --plan unnamed.yaml -o nothing --json
ok "a plan without a quantizer: what is missing" test "$rc" = 2
ok "a plan without a quantizer: says so" mentions "needs 'use': the plan names no quantizer"
run plan --diff p.yaml p.yaml
ok "a plan is itself" grep -q 'are the same plan' "$WORK/out"
sed 's/^stages:/stagse:/' "$WORK/p.yaml" >"$WORK/near.yaml"
fails "a plan with a key that is none" 2 "near.yaml:$(grep -n '^stagse:' "$WORK/near.yaml" | cut -d: -f1):1" \
    plan --diff p.yaml near.yaml
ok "with the nearest key" failure ".diagnostics | any(.hint | test(\"'stages'\"))"

# A plan by hand: two stages, and what each layer takes.
hand() { # STAGES...
    cat <<PLAN
format: tessera.plan/1
layers: 5
workload: {prompt: 64, generate: 32, batch: 8}
micro_batches: {prefill: 2, decode: 4}
stages:
  - {layers: 0-1, node: a, device: small, schemes: [{layers: 0-1, bits: 4}]}
  - {layers: 2-4, node: b, device: large, schemes: [{layers: 2-4, bits: 8}, {layers: 4, keep: true}]}
PLAN
}
hand >"$WORK/hand.yaml"
run plan job.yaml --check hand.yaml --json
ok "a plan by hand is priced, got $rc" test "$rc" = 0
ok "with what it says" json '.plan.bits == ["rtn-4", "rtn-4", "rtn-8", "rtn-8", "original"] and
    .plan.prefill_mb == 2 and .plan.decode_mb == 4 and [.plan.stages[].device] == ["small", "large"]' "$WORK/out"
best=$(jq .plan.objective_ms "$WORK/plan.json")
ok "and is not better than the planned one" json --argjson best "$best" '.plan.objective_ms >= $best * 0.9999' "$WORK/out"
run plan --diff p.yaml hand.yaml --json
ok "the two differ" json '(.same | not) and any(.differences[]; .what | startswith("stage"))' "$WORK/out"

# Schemes for some tensors: between the plans with either for the whole layer, by their share of its weights.
parts() { # RULE of layer 4
    sed "s/{layers: 4, keep: true}/$1/" "$WORK/hand.yaml" >"$WORK/parts.yaml"
    run plan job.yaml --check parts.yaml --json -o again.yaml
    ok "layer 4 as $1 is priced, got $rc" test "$rc" = 0
    jq -c '[.plan.stages[1].weights, .plan.latency_ms, .plan.omega]' "$WORK/out"
}
four=$(parts '{layers: 4, bits: 4}') eight=$(parts '{layers: 4, bits: 8}')
mixed=$(parts '{layers: 4, tensors: "*.down_proj", bits: 4}')
ok "down_proj at 4 bits lies between" jq -ne --argjson a "$four" --argjson b "$eight" --argjson m "$mixed" \
    '$m[0] > $a[0] and $m[0] < $b[0] and $m[1] > $a[1] and $m[1] < $b[1] and $m[2] < $a[2] and $m[2] > $b[2] and
     # down_proj has 64 x 172 of 2 x 64 x 64 + 2 x 64 x 32 + 3 x 64 x 172 weights
     (($m[2] - $b[2]) / ($a[2] - $b[2]) - 172 / (2 * 64 + 2 * 32 + 3 * 172) | fabs) < 1e-9' >"$WORK/jq"
run plan job.yaml --check again.yaml --json
ok "and is written so that it reads back, got $rc" json --argjson m "$mixed" '.plan.latency_ms == $m[1] and .plan.omega == $m[2]' "$WORK/out"
fails "no export of layers in parts" 2 '' plan job.yaml --check again.yaml --export vllm
ok "with the layer" mentions 'layer 4\b'
# Compensated channels: bytes and time on a device that is the CPU; on others the host's memory, and time where a
# profile says how fast that is read.
compensated() { # DEVICE-LINES
    sed "s/bits: 8}, {layers: 4, keep: true}\]/bits: 8}, {layers: 4, keep: true}], compensation: [{layers: 2-4, tensors: \"*.down_proj\", k: 256}, {layers: 4, k: 0}]/" \
        "$WORK/hand.yaml" >"$WORK/made-up.yaml"
    run plan job.yaml --check made-up.yaml --json
    ok "compensated channels are priced, got $rc" test "$rc" = 0
}
run plan job.yaml --check hand.yaml --json
cp "$WORK/out" "$WORK/without.json"
compensated
# two layers of 64 x 172: rows of 32 bytes, padded to 64, and 2 bytes for each of 64 outputs; to work in, lists of 43
# channels for 8 requests, the rows of two prompts of 64, the outputs' scales
ok "on another device they are the host's" json --slurpfile was "$WORK/without.json" '.plan.stages[1].compensation ==
    {k: 256, bits: 4, bytes: (2 * (172 * 64 + 64 * 2)), work: (4 * (8 * 44 + 2 * 64) + 2 * 2 * 64), host: true, assumed: true, decode_ms: null} and
    .plan.latency_ms == $was[0].plan.latency_ms and .plan.stages[0].compensation == null' "$WORK/out"
run plan job.yaml --check made-up.yaml
ok "and it is said that their time is not counted" grep -qE 'not counted, the profile of large does not say' <(tr -s ' \n' ' ' <"$WORK/out")
fails "they are not lost by -o" 2 '' plan job.yaml --check made-up.yaml -o x.yaml
cp "$WORK/devices/large.yaml" "$WORK/large.yaml"
# it is read while the linears run: at a fast rate all that is left is the selection, 1.7 % of the two layers' time; at a
# slow one, what reading takes longer than these. 256 of 1024 of 172 channels are 43 rows, of 2 layers and 4 requests
for rate in 20000 20; do
    cp "$WORK/large.yaml" "$WORK/devices/large.yaml"
    sed -i "s/^name: large/&\nhost: {peak: $rate MB\/s, source: x}/" "$WORK/devices/large.yaml"
    compensated
    ok "read at $rate MB/s" json --slurpfile was "$WORK/without.json" --argjson rate $rate '
        (2 * 43 * 64 * 4 / ($rate * 1e6) * 1e3) as $fetch | $was[0].plan as $bare | $bare.stages[1].decode_ms as $base |
        .plan.stages[1].compensation.decode_ms as $ms |
        .plan.stages[1].compensation.host and .plan.stages[1].total == $bare.stages[1].total + .plan.stages[1].compensation.work and
        (if $rate == 20 then $ms > $fetch - $base and $ms < $fetch else $ms > 0 and $ms <= 0.017 * $base end) and
        (.plan.stages[1].decode_ms - $base - $ms | fabs) < 1e-9 and
        (.plan.latency_ms - $bare.latency_ms) as $more | $more >= 31 * $ms * 0.999 and $more <= 62 * $ms * 1.001' "$WORK/out"
done
# with the head on the first stage the last one sends, too: at 1 MB/s that decides
# which part of the pipeline is waited for
sed 's/bandwidth: 1 GB/bandwidth: 1 MB/; s/bandwidth: 10 GB/bandwidth: 1 MB/' "$WORK/clusters/tiny.yaml" >"$WORK/clusters/thin.yaml"
sed 's/tiny/thin/' "$WORK/job.yaml" >"$WORK/thin.yaml"
for plan in hand made-up; do
    sed 's/^stages:/master: {head: first}\n&/' "$WORK/$plan.yaml" >"$WORK/first.yaml"
    run plan thin.yaml --check first.yaml --json
    ok "$plan, head first: exit code 0, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/$plan.thin"
done
ok "priced with the way back" json --slurpfile was "$WORK/hand.thin" 'def decode: .plan.stages |
    (map(.decode_ms + .send_decode_ms) | add) as $round | (map(.decode_ms, .send_decode_ms) | max) as $most |
    # 31 rounds of two micro-batches
    [31 * $round + $most, $round + 61 * $most] | max;
    .plan.stages[1].send_decode_ms > 0 and ((decode - ($was[0] | decode)) as $more | $more > 0 and
        (.plan.latency_ms - $was[0].plan.latency_ms - $more | fabs) < 1e-9 * .plan.latency_ms)' "$WORK/made-up.thin"
run plan job.yaml --check made-up.yaml
ok "and said" grep -qE "in the host's memory; a decode micro-batch takes .* longer" <(tr -s ' \n' ' ' <"$WORK/out")
cp "$WORK/large.yaml" "$WORK/devices/large.yaml"
while IFS='|' read -r name entry place says; do
    sed "s/layers: 2-4, tensors: \"\*.down_proj\", k: 256/$entry/" "$WORK/made-up.yaml" >"$WORK/edited.yaml"
    fails "compensation, $name" 2 "edited.yaml:$place" plan job.yaml --check edited.yaml
    ok "compensation, $name: about $says" mentions "$says"
done <<'WRONG'
more than all|layers: 2-4, k: 1025|7:*|1025
no linear|layers: 3, tensors: "*.down", k: 4|7:*|\b3\b.*[*][.]down\b
another stage|layers: 1-3, k: 4|7:*|layer 1\b
no k|layers: 3|7:*|'k'
one input|layers: 3, tensors: "*.up_proj", k: 4|7|up_proj.*\b4\b.*\b0\b
WRONG
sed -i 's/^name: large/&\nbackend: cpu/' "$WORK/devices/large.yaml"
run plan job.yaml --check hand.yaml --json
cp "$WORK/out" "$WORK/without.json"
compensated
# 256 of 1024 of 172 channels are 43 rows, of 2 layers and 4 requests, at 3 GB/s
ok "on the CPU they are its memory and are read" json --slurpfile was "$WORK/without.json" '(2 * 43 * 64 * 4 / 3e9 * 1e3) as $ms |
    .plan.stages[1].compensation.bytes == 22272 and (.plan.stages[1].compensation.host | not) and
    .plan.stages[1].total == $was[0].plan.stages[1].total + 22272 + 2176 and
    (.plan.stages[1].compensation.decode_ms - $ms | fabs) < 1e-9 and
    (.plan.stages[1].decode_ms - $was[0].plan.stages[1].decode_ms - $ms | fabs) < 1e-9 and
    # 32 tokens, two micro-batches: at least the slowest stage once more for each
    (.plan.latency_ms - $was[0].plan.latency_ms) as $more | $more >= 31 * $ms * 0.999 and $more <= 62 * $ms * 1.001' "$WORK/out"
cp "$WORK/large.yaml" "$WORK/devices/large.yaml"
while IFS='|' read -r name code edit place says; do
    sed "$edit" "$WORK/hand.yaml" >"$WORK/edited.yaml"
    fails "$name" "$code" "edited.yaml$place" plan job.yaml --check edited.yaml
    ok "$name: about $says" mentions "$says"
done <<'CASES'
a node that is not there|2|s/node: b/node: bb/|:7:25|\bbb\b
a device that the node has not|2|s/device: large/device: small/|:7:36|\bb\b.*\bsmall\b
more devices than there are|2|s/tp: 1//; s/node: b, device: large/node: b, device: large, tp: 2/|:7:*|stage 1\b
a tensor that is none|2|s/{layers: 4, keep: true}/{layers: 4, tensors: "*.z_proj", bits: 3}/|:7:*|linear
an option that is none|2|s/bits: 4/bots: 4/|:6:*|bots
micro-batches above the work|2|s/decode: 4/decode: 9/|:4:16|micro_batches
a model of other layers|2|s/^layers: 5/layers: 6/; s/2-4, node/2-5, node/; s/{layers: 2-4, bits/{layers: 2-5, bits/||\b6 layers
CASES
sed 's/, batch: 8/, batch: 200/; s/decode: 4/decode: 40/; s/prefill: 2/prefill: 40/' "$WORK/hand.yaml" >"$WORK/edited.yaml"
fails "what does not fit" 3 'edited.yaml:6' plan job.yaml --set workload.batch=40 --check edited.yaml
ok "what does not fit: where and by how much" mentions 'stage 0\b.*\bsmall\b.*\ba\b.*short by [0-9.]+ [KM]iB'

# ---- lists of candidates, and every width that is left out
fails "a width twice" 2 '--set plan.bits=\[4, 4\]:1:15' plan job.yaml --set 'plan.bits=[4, 4]' -o x.yaml
fails "a width twice, written in two ways" 2 '--set plan.bits=\[4, 16, original\]:1:19' \
    plan job.yaml --set 'plan.bits=[4, 16, original]' -o x.yaml
fails "no width" 2 '--set plan.bits=\[\]:1:11' plan job.yaml --set 'plan.bits=[]' -o x.yaml
cluster 100 >"$WORK/clusters/hundred.yaml"
run plan job.yaml --set cluster=clusters/hundred.yaml -o x.yaml --baselines none --time-limit 1 --json
# 100 has the divisors 1, 2, 4, 5, 10, 20, 25, 50 and 100; the model has 8 heads and 4 of them in the cache
ok "100 devices: the sentence of every width is whole" json '.widths_left_out | split("; ") |
    map(select(test("^tp (5|10|20|25|50|100) of small: .*[a-z0-9)]$"))) | length == 6' "$WORK/out"

# ---- nothing fits: what is missing, and changes of which each one is enough
run plan job.yaml --set workload.batch=200 -o x.yaml
ok "too much work: exit code 3, got $rc" test "$rc" = 3
ok "too much work: nothing on stdout" test ! -s "$WORK/out"
ok "too much work: short by how much, where, and what would help" grep -qE \
    'no plan exists: short by [0-9.]+ MiB on each (small|large) \(.*\); there is one with that much more there, or .* requests at once' \
    "$WORK/err"
run plan job.yaml --set workload.batch=200 -o x.yaml --json
ok "too much work as JSON: exit code 3, got $rc" test "$rc" = 3
ok "too much work as JSON" json '.plan.status == "infeasible" and (.plan.reason | length) > 0 and .remedies.batch > 8' "$WORK/out"
cp "$WORK/out" "$WORK/infeasible.json"
batch=$(jq .remedies.batch "$WORK/infeasible.json")
run plan job.yaml --set workload.batch="$batch" -o x.yaml --baselines none
ok "$batch requests do fit, got $rc" test "$rc" = 0
run plan job.yaml --set workload.batch="$batch" -o x.yaml --solver uniform --baselines none --json
ok "even stages do not fit: exit code 3, got $rc" test "$rc" = 3
ok "even stages do not fit: it is about the solver" failure '.status == "infeasible" and .object == "uniform"'
run plan job.yaml --set workload.batch="$batch" -o x.yaml
ok "a policy without a plan says why, got $rc" grep -q '^  uniform *no plan: no even stages' "$WORK/out"
run plan job.yaml --set workload.batch=$((batch + 1)) -o x.yaml
ok "one more does not, got $rc" test "$rc" = 3
mib=$(jq '.remedies.memory[] | select(.device == "small") | .bytes / 1048576' "$WORK/infeasible.json")
device small "$((1 + mib)) MiB" "1 GB/s" "100 GFLOP/s"
run plan job.yaml --set workload.batch=200 -o x.yaml --baselines none
ok "$mib MiB more on each small are enough, got $rc" test "$rc" = 0
device small "$((mib - 1)) MiB" "1 GB/s" "100 GFLOP/s"
run plan job.yaml --set workload.batch=200 -o x.yaml
ok "two less are not, got $rc" test "$rc" = 3
device small "1 MiB" "1 GB/s" "100 GFLOP/s"

# ---- two changes together, where neither is enough
long=(--set workload.batch=1 --set workload.chunk=32 --set workload.prompt=6500 --baselines none -o x.yaml)
run plan job.yaml "${long[@]}" --set 'plan.quality={max_omega: 0}' --json
ok "a long prompt: exit code 3, got $rc" test "$rc" = 3
ok "a pair with a limit, none of which is enough alone" json '.remedies | .pair.kv_int8 and .pair.max_omega > 0 and
    (.kv_int8 | not) and .max_omega == null and .chunk == 0' "$WORK/out"
limit=$(jq .remedies.pair.max_omega "$WORK/out")
run plan job.yaml "${long[@]}" --set 'plan.quality={max_omega: 0}'
ok "in the sentence" grep -qE 'or a cache of int8 together with max_omega [0-9.]+$' "$WORK/err"
run plan job.yaml "${long[@]}" --set "plan.quality={max_omega: $limit}" --set workload.kv=int8
ok "both are enough, got $rc" test "$rc" = 0
run plan job.yaml "${long[@]}" --set "plan.quality={max_omega: $limit}"
ok "the limit alone is not, got $rc" test "$rc" = 3
run plan job.yaml "${long[@]}" --set "plan.quality={max_omega: $(jq -n "$limit * 0.98")}" --set workload.kv=int8
ok "and 2 % less of it are not, got $rc" test "$rc" = 3
# memory of two kinds of device, and of one with a higher limit
two_kinds() { # MIB-OF-SMALL MIB-OF-LARGE
    device small "$((1024 * $1 + 60)) KiB" "1 GB/s" "100 GFLOP/s"
    device large "$((1024 * $2 + 60)) KiB" "3 GB/s" "400 GFLOP/s"
}
every=(--set plan.use_all=true --set plan.max_tp=1 --set workload.batch=100 --baselines none -o x.yaml)
two_kinds 0 0
run plan job.yaml "${every[@]}" --json
ok "all kinds are too small: exit code 3, got $rc" test "$rc" = 3
ok "two of them need more" json '.remedies | .memory == [] and .pair.devices == ["small", "large"] and .pair.max_omega == null and
    .pair.bytes > 1048576' "$WORK/out"
ok "in the sentence" grep -qE 'with [0-9.]+ MiB more on each small and each large' "$WORK/err"
mib=$(jq '.remedies.pair.bytes / 1048576' "$WORK/out")
for change in "$mib $mib 0" "$((mib - 1)) $((mib - 1)) 3" "$mib 0 3" "0 $mib 3"; do
    read -r first second want <<<"$change"
    two_kinds "$first" "$second"
    run plan job.yaml "${every[@]}"
    ok "$first and $second MiB more: exit code $want, got $rc" test "$rc" = "$want"
done
two_kinds 0 0
few=(--set 'plan.bits=[3, 4]' --set 'plan.quality={max_omega: 0}' --baselines none -o x.yaml)
run plan job.yaml "${few[@]}" --json
ok "nothing fits, whatever the limit: exit code 3, got $rc" test "$rc" = 3
ok "memory of one kind and a limit" json '.remedies | .memory == [] and .max_omega == null and (.pair.devices | length) == 1 and
    .pair.max_omega > 0' "$WORK/out"
ok "in the sentence" grep -qE 'with [0-9.]+ MiB more on each (small|large) together with max_omega [0-9.]+' "$WORK/err"
limit=$(jq .remedies.pair.max_omega "$WORK/out")
more=$(jq '.remedies.pair | (.bytes / 1048576) as $m | [if .devices[0] == "small" then $m, 0 else 0, $m end] | "\(.[0]) \(.[1])"' -r "$WORK/out")
# shellcheck disable=SC2086 # two words
two_kinds $more
run plan job.yaml "${few[@]}"
ok "the memory alone is not enough, got $rc" test "$rc" = 3
run plan job.yaml "${few[@]}" --set "plan.quality={max_omega: $limit}"
ok "with the limit it is, got $rc" test "$rc" = 0
two_kinds 0 0
run plan job.yaml "${few[@]}" --set "plan.quality={max_omega: $limit}"
ok "the limit alone is not, got $rc" test "$rc" = 3
device small "1 MiB" "1 GB/s" "100 GFLOP/s"
device large "2 MiB" "3 GB/s" "400 GFLOP/s"
rm -f "$WORK/x.yaml"

# ---- what more would buy is what a plan with it costs
run plan job.yaml --explain --json -o x.yaml --set workload.batch=24
cp "$WORK/out" "$WORK/explained.json"
ok "what binds is said" json '(.explain.binds | length) >= 4 and (.explain.buys | length) >= 4' "$WORK/explained.json"
bought() { jq -c --arg w "$1" '.explain.buys[] | select(.what == $w)' "$WORK/explained.json"; }
# an answer that was not proved in the time that it had may be slower
said='(.plan.latency_ms / $was.latency_ms - 1) as $off | $off < 2e-4 and ($off > -2e-4 or ($was.proved | not))'
run plan job.yaml --json -o x.yaml --set workload.batch=24 --set cluster=clusters/three.yaml --baselines none
ok "one more device costs what was said" json --argjson was "$(bought 'one more small in node a')" \
    "$said" "$WORK/out"
device large "4098 MiB" "3 GB/s" "400 GFLOP/s"
run plan job.yaml --json -o x.yaml --set workload.batch=24 --baselines none
ok "4 GiB more cost what was said" json --argjson was "$(bought '4 GiB more on each large')" \
    "$said" "$WORK/out"
device large "2 MiB" "3 GB/s" "400 GFLOP/s"

sed 's/^  - name: b/  - {name: c, devices: [{profile: small}]}\n&/' "$WORK/clusters/tiny.yaml" >"$WORK/clusters/lone.yaml"
run plan job.yaml --explain --json -o x.yaml --set cluster=clusters/lone.yaml --baselines none
ok "a second device where no link is given: what is missing, got $rc" json 'any(.explain.buys[];
    .what == "one more small in node c" and (.reason | contains("node '"'c'"'; give the node a '"'link'"'")))' "$WORK/out"
run plan job.yaml --explain -o x.yaml --set cluster=clusters/lone.yaml --baselines none
ok "and that it is not known" grep -qE 'one more small in node c +not known' "$WORK/out"

# ---- options that change what is asked
run plan job.yaml --json -o x.yaml
was=$(jq .plan.objective_ms "$WORK/out")
while IFS='#' read -r name options filter; do
    eval "set -- $options"
    run plan job.yaml --json -o x.yaml --baselines none "$@"
    ok "$name: exit code 0, got $rc" test "$rc" = 0
    ok "$name: $filter" json --argjson was "$was" "$filter" "$WORK/out"
done <<'CASES'
all devices#--use-all --max-tp 1#(.plan.stages | length) == 3 and .plan.objective_ms >= $was * 0.9999
layers in pairs#--layer-group 2#.plan.objective_ms >= $was * 0.9999 and all(.plan.stages[]; .first % 2 == 0)
no meshes#--max-tp 1#.plan.width_choices == 1 and .plan.objective_ms >= $was * 0.9999
given micro-batches#--prefill-mb 2 --decode-mb 4#.plan.prefill_mb == 2 and .plan.decode_mb == 4
the objective of the paper#--objective paper#.objective == "paper" and .plan.status == "optimal"
fewer at once#--set workload.concurrency=4#.plan.rounds == 2 and .workload.concurrency == 4
lengths that differ#--set "workload.prompt={32: 1, 96: 1}"#.workload.distribution and .workload.prompt == 64 and .workload.context == 128
theta#--quality "{theta: 0.001}"#.max_omega == null and .theta == 0.001
a limit#--quality "{max_omega: 0.01}"#.plan.omega <= 0.01
a small cache#--set workload.kv=int8#([.plan.stages[].kv] | add) > 0 and .workload.kv_bits == 8
a cache of 4 bits#--set workload.kv=int4#([.plan.stages[].kv] | add) > 0 and .workload.kv == "int4" and .workload.kv_bits == 5
CASES
sed 's/use: rtn, group: 32, bits: .*]/candidates: [{use: mx, element: fp4_e2m1}, original]/' "$WORK/job.yaml" >"$WORK/listed.yaml"
run plan listed.yaml --json -o x.yaml --baselines none --quality "{max_omega: 100}"
ok "candidates, got $rc" json '(.candidates | length) == 2 and .candidates[1] == "original"' "$WORK/out"
sed 's/^network/order: fixed\nnetwork/' "$WORK/clusters/tiny.yaml" >"$WORK/clusters/fixed.yaml"
run plan job.yaml --json -o x.yaml --use-all --set cluster=clusters/fixed.yaml --max-tp 1
ok "a fixed order is kept" json '[.plan.stages[].device] == ["small", "small", "large"]' "$WORK/out"
rm -f "$WORK/x.yaml"

# ---- what the job leaves open is chosen, and is no worse than what it could say
sed 's/, concurrency: 0, chunk: 0, kv: f16//' "$WORK/job.yaml" >"$WORK/free.yaml"
for n in 8 200; do
    run plan free.yaml --set workload.batch=$n --json -o free-plan.yaml --baselines none
    ok "$n requests, all open: exit code 0, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/free.json"
    ok "$n requests: what was chosen is said" json '.plan.status == "optimal" and .plan.settings > 4 and
        (.settings | [.concurrency, .chunk, .kv] == ["chosen", "chosen", "chosen"]) and
        .settings.kv_omega == (if .workload.kv_bits == 8 then 5 / 256 else 0 end) and .plan.omega <= .max_omega' "$WORK/free.json"
    for once in 1 3 4 5 8 30 50 200; do
        [ "$once" -le "$n" ] || continue
        for kv in f16 int8; do
            run plan free.yaml --set workload.batch=$n --set workload.concurrency=$once --set workload.chunk=0 --kv $kv \
                --json -o x.yaml --baselines none
            # an int8 cache that nobody lists must be 1 % faster
            ok "$n requests, $once at once, $kv: nothing better, got $rc" test "$rc" = 3 -o "$(jq -s --arg kv $kv \
                '.[0].plan.latency_ms <= .[1].plan.latency_ms / (if $kv == "int8" then 0.99 else 1 end) * 1.0002' \
                "$WORK/free.json" "$WORK/out")" = true
        done
    done
    ok "$n requests: the file has it" test "$(grep '^workload:' "$WORK/free-plan.yaml")" = "$(jq -r '.workload |
        "workload: {prompt: 64, generate: 32, batch: \(.batch), concurrency: \(.concurrency), chunk: \(.chunk), kv: \(
        if .kv_bits == 8 then "int8" else "f16" end)}"' "$WORK/free.json")"
    run plan free.yaml --set workload.batch=$n --check free-plan.yaml --json
    ok "$n requests: a check prices what the file has" json --slurpfile was "$WORK/free.json" '.workload == $was[0].workload and
        (.plan.latency_ms / $was[0].plan.latency_ms - 1 | fabs) < 1e-6 and (.plan.omega - $was[0].plan.omega | fabs) < 1e-9 and
        .plan.prefill_mb == $was[0].plan.prefill_mb and (.settings | [.concurrency, .chunk, .kv] == ["fixed", "fixed", "fixed"])' \
        "$WORK/out"
done
ok "of 200 requests not all run at once" json '.workload.concurrency < 200' "$WORK/free.json"
run plan free.yaml --set workload.batch=200 -o x.yaml --baselines none
ok "the table says what was chosen" grep -qE '^chosen +[0-9]+ requests? at once, (whole prompts|chunks of)' "$WORK/out"
ok "the table still fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
run plan free.yaml --set workload.batch=200 --set workload.concurrency=30 -o x.yaml --baselines none --explain
ok "what the job fixes, left open: its gain, got $rc" grep -qE 'at once left open +[0-9.]+ m?s' "$WORK/out"
run plan free.yaml --set workload.batch=12 --set workload.concurrency=0 --set workload.chunk=0 -o x.yaml --kv f16 --baselines none --explain
ok "the number at once and the cache left open" grep -qE 'the type of the cache left open +[0-9.]+ m?s +[-+]' "$WORK/out"
ok "the table says what the job fixed" test "$(grep -c '^chosen' "$WORK/out")" = 0
run plan free.yaml --set workload.chunk=0 -o x.yaml --baselines none
ok "and what it fixed beside that" grep -qE 'fixed by the job: chunk|^ +job: chunk' "$WORK/out"
fails "a cache type that is none" 2 '--set plan.kv=\[f16, int4\]:1:15' plan free.yaml --set 'plan.kv=[f16, int4]' -o x.yaml
fails "a cache type twice" 2 '--set plan.kv=\[int8, int8\]:1:16' plan free.yaml --set 'plan.kv=[int8, int8]' -o x.yaml
fails "no cache type" 2 '--set plan.kv=\[\]:1:9' plan free.yaml --set 'plan.kv=[]' -o x.yaml
fails "a cache type in two places" 2 '--kv int8:1:9' plan job.yaml --kv int8 -o x.yaml
run plan free.yaml --accounting paper -o x.yaml --json --baselines none
ok "a paper's table has nothing open" json '.plan.settings == 1 and (.settings | [.concurrency, .chunk, .kv] == ["fixed", "fixed", "fixed"])' \
    "$WORK/out"
# too much even for one request: short by what that lacks
run plan free.yaml --set workload.prompt=20000 -o x.yaml --json
ok "one request does not fit, got $rc" test "$rc" = 3
ok "fewer at once is no remedy then" json '.plan.status == "infeasible" and .workload.concurrency == 1 and .remedies.batch == 0' "$WORK/out"

# and executed: the ranks' caches are those of the chosen number and type
jq -cn 'range(200) | {custom_id: "r\(.)", method: "POST", url: "/v1/completions", body: {prompt: "Once", max_tokens: 2}}' \
    >"$WORK/many.jsonl"
{
    sed 's/batch: 8/batch: 200/' "$WORK/free.yaml"
    echo '  - run: {input: many.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}'
} >"$WORK/executed.yaml"
run run executed.yaml --out executed
ok "plan, then run, got $rc" test "$rc" = 0
ok "the run has the plan's caches" json '.results.plan as $p | .results.run as $r | $p.workload.concurrency < 200 and
    ([$p.plan.stages[].kv] == [$r.ranks[].kv])' "$WORK/executed/results.json"
ok "all are answered" test "$(wc -l <"$WORK/executed/answers.jsonl")" = 200

# ---- what speed costs in quality
run plan free.yaml --front --chart front.svg -o x.yaml --baselines none --json
ok "a front: exit code 0, got $rc" test "$rc" = 0
cp "$WORK/out" "$WORK/front.json"
ok "a front: omega falls as time grows, one knee that is no end, the job's plan among them or beaten" json '.front.points as $p |
    ($p | length) as $n | $n >= 4 and $n <= 16 and ([$p[].latency_s] == ([$p[].latency_s] | sort)) and
    ([$p[].omega] == ([$p[].omega] | sort | reverse)) and ([$p[].omega] | unique | length) == $n and
    ([$p[] | select(.knee)] | length) == 1 and ($p[0].knee or $p[-1].knee | not) and
    all($p[]; ([.bits[]] | add) == 5 and .bytes > 0) and
    (.plan as $own | any($p[]; .latency_s * 1000 <= $own.latency_ms * 1.03 and .omega <= $own.omega * 1.000001))' "$WORK/front.json"
ok "a front: the same points on top, with a kl that is null by the prior" json '.points == .front.points and
    all(.points[]; has("kl") and .kl == null and .tokens_per_s > 0 and (.knee | type) == "boolean")' "$WORK/front.json"
while read -r omega seconds; do
    run plan free.yaml --quality "{max_omega: $omega}" -o x.yaml --baselines none --json
    # a chunk and an int8 cache must each be 1 % faster
    ok "a front: with at most $omega nothing is faster" json --argjson s "$seconds" '.plan.latency_ms / 1000 >= $s * 0.97' "$WORK/out"
done < <(jq -r '.front.points[1:-1][] | "\(.omega * 1.000001) \(.latency_s)"' "$WORK/front.json")
ok "a front: a point each in the picture, and a ring" test \
    "$(grep -c '<circle class="\(dot\|knee\)"' "$WORK/front.svg")" = "$(jq '.front.points | length' "$WORK/front.json")"
run plan free.yaml --front -o x.yaml --baselines none
ok "a front: the table fits a terminal" awk 'length > 80 {exit 1}' "$WORK/out"
ok "a front: the plan of 4 bits, marked and in words" grep -qE '^uniform-4 +the default limit, 4 bits in all layers: ' "$WORK/out"
ok "a front: one such plan" json '[.front.points[] | select(.four_bits)] | length == 1' "$WORK/front.json"
ok "a front: the knee in words" grep -qE '^the knee +[0-9.]+x as fast as the plan of best quality' "$WORK/out"
four=$(jq '.front.points[] | select(.four_bits).latency_s * 1000' "$WORK/front.json")
run plan free.yaml -o x.yaml --baselines none --json --quality '{at_least: uniform-4}'
ok "a front: it is that of at_least: uniform-4" json --argjson ms "$four" '.plan.latency_ms / $ms - 1 | fabs < 0.03' "$WORK/out"
# the least omega in a time: that of the front's points, or between two of them
read -r knee above < <(jq -r '.front.points | (map(.knee) | index(true)) as $k | "\(.[$k].latency_s * 1.03) \(.[$k].omega)"' "$WORK/front.json")
run plan free.yaml --at-most "{latency_s: $knee}" -o x.yaml --baselines none --json
ok "the least omega in a time: in time, and no more than the knee has, got $rc" json --argjson s "$knee" --argjson w "$above" \
    '.plan.latency_ms <= $s * 1000 and .plan.omega <= $w * 1.002 and .at_most_ms == $s * 1000 and .plan.status == "optimal"' "$WORK/out"
run plan free.yaml --at-most "{latency_s: $knee}" -o x.yaml --baselines none
ok "and the table says so" grep -qE 'quality omega [-0-9.e]+ of at most .*, the least in [0-9.]+ m?s' <(tr -s ' \n' ' ' <"$WORK/out")
fails "no plan is so fast" 3 '' plan free.yaml --at-most '{latency_s: 0.000001}' -o x.yaml
ok "no plan is so fast: how fast the fastest is" mentions 'takes [0-9.]+ s, with omega'
fails "at most of nothing" 2 '--set plan.at_most={}:1:*' plan free.yaml --set 'plan.at_most={}' -o x.yaml
fails "at most of what is not known" 2 '--set plan.at_most={power: 5}:1:*' plan free.yaml --set 'plan.at_most={power: 5}' -o x.yaml
fails "a picture of no front" 2 '--chart' plan free.yaml --chart x.svg -o x.yaml
rm -f "$WORK/x.yaml"

# ---- for other programs
run plan job.yaml -o p.yaml --check hand.yaml --export vllm
ok "vllm: the partition" grep -qx 'export VLLM_PP_LAYER_PARTITION=2,3' "$WORK/out"
run plan job.yaml -o p.yaml --check hand.yaml --export llamacpp --json
ok "llama.cpp: the output layer counts as one" json '.tensor_split == "2,4" and .gpu_layers == 6 and
    (.tensor_types | length) == 3' "$WORK/out"
# Every layer's tensors under one rule, of the type that is nearest; llama.cpp searches for these in names.
ok "llama.cpp: a type for each layer" json '.embedding_type == "f32" and .output_type == "f32" and .tensor_types as $rules |
    [range(5) as $l | [$rules[] | split("=") | select(.[0] as $re | "blk.\($l).ffn_down.weight" | test($re)) | .[1]]] ==
    [["q4_0"], ["q4_0"], ["q8_0"], ["q8_0"], ["f32"]]' "$WORK/out"
run plan job.yaml -o p.yaml --check hand.yaml --export llamacpp
ok "llama.cpp: two commands" test "$(grep -cE '^llama-quantize .* IN.gguf OUT.gguf q4_0$|^llama-cli .* --tensor-split 2,4 --n-gpu-layers 6$' "$WORK/out")" = 2
run plan job.yaml -o p.yaml --check hand.yaml --export vllm --json
# What vLLM reads: one number for each stage that add up to the layers; of GPTQ's "dynamic" the keys "+:" and "-:" with
# expressions that match whole names of modules, of which the first counts.
ok "vLLM: partition, ranks and rules" json '(.VLLM_PP_LAYER_PARTITION | split(",") | map(tonumber)) as $n |
    ($n | add) == 5 and ($n | length) == .pipeline_parallel_size and .tensor_parallel_size == 1 and
    (.ranks | length) == .pipeline_parallel_size and .bits == [4, 4, 8, 8, 32] and .gptq_dynamic as $d |
    all($d | keys[]; test("^[+-]:")) and
    ([range(5) as $l | [$d | to_entries[] | select(.key[2:] as $re |
        "model.layers.\($l).mlp.down_proj" | test("^" + $re + "$")) | if .key[:1] == "-" then 0 else .value.bits end]] ==
     [[4], [4], [8], [8], [0]])' "$WORK/out"

# ---- headers alone, and quickly: 70B weights that are not there
mkdir "$WORK/70b"
cat >"$WORK/70b/config.json" <<'CONFIG'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
 "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 32000,
 "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "float16", "tie_word_embeddings": false}
CONFIG
jq -nc '
[["model.embed_tokens", 32000, 8192], ["lm_head", 32000, 8192], ["model.norm", 8192],
 (range(80) as $l | ["self_attn.q_proj", 8192, 8192], ["self_attn.k_proj", 1024, 8192], ["self_attn.v_proj", 1024, 8192],
  ["self_attn.o_proj", 8192, 8192], ["mlp.gate_proj", 28672, 8192], ["mlp.up_proj", 28672, 8192],
  ["mlp.down_proj", 8192, 28672], ["input_layernorm", 8192], ["post_attention_layernorm", 8192] |
  ["model.layers.\($l).\(.[0])"] + .[1:])] |
reduce .[] as $t ({at: 0, out: {}}; (($t[1] * ($t[2] // 1)) * 2) as $n |
  .out["\($t[0]).weight"] = {dtype: "F16", shape: $t[1:], data_offsets: [.at, .at + $n]} | .at += $n) | .out' \
    >"$WORK/header"
bytes=$(stat -c %s "$WORK/header")
end=$(jq '[.[].data_offsets[1]] | max' "$WORK/header")
{
    for shift in 0 8 16 24 32 40 48 56; do printf "%b" "\\x$(printf %02x $((bytes >> shift & 255)))"; done
    cat "$WORK/header"
} >"$WORK/70b/model.safetensors"
truncate -s $((8 + bytes - 1 + 1 + end)) "$WORK/70b/model.safetensors"
cat >"$WORK/clusters/gpus.yaml" <<'CLUSTER'
version: 1
nodes:
  - {name: n, devices: [{profile: gpu, count: 4}], link: {bandwidth: 300 GB/s, latency: 5 us}}
CLUSTER
start=${EPOCHREALTIME/./}
run plan 70b --cluster clusters/gpus.yaml --workload '{prompt: 512, generate: 64, batch: 16}' --use rtn --group 128 \
    --bits 4 --max-tp 1 --baselines none -o p70.yaml --json
micros=$((${EPOCHREALTIME/./} - start))
ok "70B headers: exit code 0, got $rc" test "$rc" = 0
solving=$(jq '.plan.seconds * 1e6 | floor' "$WORK/out")
ok "70B headers under 2 s without solving, took $((micros - solving)) us" test $((micros - solving)) -lt 2000000
ok "70B weights at 4 bits and a bit" json '[.plan.stages[].weights] | add | . > 34e9 and . < 38e9' "$WORK/out"

# ---- where the plan is: the last line, after the table
(cd "$WORK" && "$TESSERA" plan job.yaml -o where.yaml --gantt where.svg) >"$WORK/where.txt" 2>&1 </dev/null || true
ok "the last lines name the picture and the plan" cmp <(tail -n 2 "$WORK/where.txt") \
    <(printf 'tessera: the picture is in where.svg\ntessera: the plan is in where.yaml\n')
run plan job.yaml -o where.yaml --export vllm
ok "so they do with another program's options" test "$(tail -n 1 "$WORK/err")" = 'tessera: the plan is in where.yaml'
run plan job.yaml -o where.yaml --json
ok "JSON has it in its object, got $rc" json '.file == "where.yaml"' "$WORK/out"
ok "and stderr does not" eval '! grep -q where.yaml "$WORK/err"'

# ---- a profile without a kernel: its type and the closest
sed '/kernel: f32/d; /kernel: int3/d; s/^name:.*/name: few/' "$WORK/devices/small.yaml" >"$WORK/devices/few.yaml"
printf 'version: 1\nnodes:\n  - {name: n, devices: [{profile: few}]}\n' >"$WORK/clusters/few.yaml"
small='{prompt: 8, generate: 8, batch: 1}'
fails_with "no kernel for the head" 2 few 'profile few has no kernel f32, .* head .* f16\b' plan "$STORIES" \
    --cluster clusters/few.yaml --workload "$small" --use rtn --group 32 --bits 4 -o x.yaml
sed 's/kernel: f32/kernel: f64/' "$WORK/devices/few.yaml" >"$WORK/devices/points.yaml"
cat >>"$WORK/devices/points.yaml" <<'POINTS'
layers:
  - kernel: f32
    source: made up
    shape: {hidden: 64, ffn: 172, heads: 8, kv_heads: 4, head_dim: 8, gated: true}
    prefill: [[1, 8, 0, 1]]
    decode: [[1, 8, 1]]
POINTS
sed 's/few/points/' "$WORK/clusters/few.yaml" >"$WORK/clusters/points.yaml"
sed -i 's/^name:.*/name: points/' "$WORK/devices/points.yaml"
fails_with "layers of the kernel, and no time for the head" 2 points "layers of kernel f32, .* head .*'ends'" plan "$STORIES" \
    --cluster clusters/points.yaml --workload "$small" --use rtn --group 32 --bits 4 -o x.yaml
mkdir "$WORK/half"
jq '.torch_dtype = "float16"' "$STORIES/config.json" >"$WORK/half/config.json"
run plan half --cluster clusters/few.yaml --workload "$small" --use rtn --group 32 --bits 3 \
    --set plan.quality.max_omega=1000 -o x.yaml --json
ok "no kernel for any candidate: exit code 3, got $rc" test "$rc" = 3
ok "no kernel for any candidate: its type and the closest" mentions 'profile few has no kernel int3, .* int4\b'
run plan half --cluster clusters/few.yaml --workload "$small" --use rtn --group 32 --bits 3,4 --baselines none -o few.yaml --json
ok "a candidate that cannot run is left out and named, got $rc" json '(.kernels_left_out |
    test("^the profile few has no kernel int3, .* int4$")) and all(.plan.bits[]; . == "rtn-4")' "$WORK/out"
run plan half --cluster clusters/few.yaml --workload "$small" --use rtn --group 32 --bits 3,4 --baselines none -o few.yaml
ok "the table says so" grep -qE '^left out +the profile few has no kernel int3' "$WORK/out"
run plan half --cluster clusters/few.yaml --workload "$small" --use rtn --group 32 --bits 4 --baselines none -o few.yaml --json
ok "nothing is left out where all run" json '.kernels_left_out == ""' "$WORK/out"

# ---- a configuration alone: the same plan as of headers; what stands for weights that are missing is refused
mkdir "$WORK/alone"
cp "$STORIES/config.json" "$WORK/alone/"
run plan "$STORIES" --cluster clusters/tiny.yaml --workload '{prompt: 64, generate: 32, batch: 8}' --use rtn --group 32 \
    --bits 4,8 --baselines none -o whole.yaml --json
jq '[.plan.latency_ms, .plan.bits, [.plan.stages[].total]]' "$WORK/out" >"$WORK/whole.json"
for model in alone alone/config.json; do
    run plan $model --cluster clusters/tiny.yaml --workload '{prompt: 64, generate: 32, batch: 8}' --use rtn --group 32 \
        --bits 4,8 --baselines none -o alone.yaml --json
    ok "$model is planned, got $rc" test "$rc" = 0
    ok "$model: the plan of the whole model" cmp <(jq '[.plan.latency_ms, .plan.bits, [.plan.stages[].total]]' "$WORK/out") \
        "$WORK/whole.json"
done
for name in model-00001-of-00002.safetensors pytorch_model.bin model.gguf; do
    : >"$WORK/alone/$name"
    fails "$name without the rest" 2 '*alone' plan alone --cluster clusters/tiny.yaml \
        --workload '{prompt: 64, generate: 32, batch: 8}' --use rtn --group 32 --bits 4,8 --baselines none -o x.yaml
    rm "$WORK/alone/$name"
done

# ---- the jobs that come along
for name in demo opt-30b llama-2-70b; do
    run plan "$ROOT/configs/plan/$name.yaml" --baselines none -o x.yaml --json
    ok "configs/plan/$name.yaml has a proved plan, got $rc" json '.plan.status == "optimal"' "$WORK/out"
done
rm -f "$WORK/x.yaml"

# ---- what a stage's times rest on: its own layers; its ends apart
# (the model's own type is F32; the machine was measured with BF16)
echo '  - {kernel: f32, ops: 1 TFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}' \
    >"$WORK/kernels"
sed -e "/^kernels:/r $WORK/kernels" -e '/^ends:/,$s/bf16/f32/' "$ROOT/configs/devices/this-machine.yaml" >"$WORK/devices/known.yaml"
sed -e '/^ends:/,$d' -e 's/^name:.*/name: endless/' "$WORK/devices/known.yaml" >"$WORK/devices/endless.yaml"
while read -r profile bits times ends; do
    printf 'version: 1\nnodes:\n  - {name: n, devices: [{profile: %s}]}\n' "$profile" >"$WORK/clusters/one.yaml"
    for how in fit table; do
        run plan "$STORIES" --cluster clusters/one.yaml --workload '{prompt: 32, generate: 8, batch: 4}' --use rtn \
            --group 128 --bits "$bits" --baselines none -o x.yaml --json --set "plan.latency=$how"
        ok "$profile, $bits bits, $how: layers $times, ends $ends, got $rc" \
            json '.plan.stages | all(.times == "'"$times"'" and .ends_times == "'"$ends"'")' "$WORK/out"
    done
done <<'CASES'
known 4 fitted fitted
endless 4 fitted roofline
small 4 roofline roofline
CASES
printf 'version: 1\nnodes:\n  - {name: n, devices: [{profile: endless}]}\n' >"$WORK/clusters/one.yaml"
run plan "$STORIES" --cluster clusters/one.yaml --workload '{prompt: 32, generate: 8, batch: 4}' --use rtn --bits 4 \
    --baselines none -o x.yaml
ok "and says so" grep -qE '^times +endless fitted.*, embedding and head roofline' "$WORK/out"
ok "and on whose kernels" grep -qxE "kernels +endless: Tessera's own: cpu, AVX-512 VNNI" "$WORK/out"
sed -i '/^measured_on:/d' "$WORK/devices/endless.yaml"
run plan "$STORIES" --cluster clusters/one.yaml --workload '{prompt: 32, generate: 8, batch: 4}' --use rtn --bits 4 \
    --baselines none -o x.yaml
ok "or by who wrote the profile" grep -qxE "kernels +endless: Tessera's own" "$WORK/out"
sed -i 's/source: "tessera profile/source: "a paper (its table), not tessera profile/' "$WORK/devices/endless.yaml"
run plan "$STORIES" --cluster clusters/one.yaml --workload '{prompt: 32, generate: 8, batch: 4}' --use rtn --bits 4 \
    --baselines none -o x.yaml
ok "others' kernels, by what the source begins with" grep -qxE "kernels +endless: others': a paper" "$WORK/out"
run plan job.yaml -o x.yaml --baselines none
ok "rooflines were not measured" grep -qE '^kernels +(small|large): not measured' "$WORK/out"
rm -f "$WORK/x.yaml"

# ---- every wrong input: one sentence with its place
while IFS='|' read -r name edit place says; do
    sed "$edit" "$WORK/job.yaml" >"$WORK/wrong.yaml"
    fails "$name" 2 "wrong.yaml:$place" plan wrong.yaml -o x.yaml
    ok "$name: about $says" mentions "$says"
done <<'CASES'
no cluster|/^cluster/d|5:11|machines
a cluster that is not there|s/tiny.yaml/tinny.yaml/|3:10|tinny
an unknown key|s/bits: \[/bit: 1, bits: [/|6:33|bit
a width that is none|s/\[3, 4/[3, four/|6:43|four
a width that the plugin has not|s/\[3, 4/[3, 99/|6:43|99
no such quantizer|s/use: rtn/use: rnt/|6:*|rnt
no such solver|s/baselines: uniform/solver: exakt/|6:*|exakt
quality that is no map|s/baselines: uniform/quality: good/|6:*|quality
a key of quality|s/baselines: uniform/quality: {at_last: uniform-4}/|6:*|at_last
indicators that are not there|s/baselines: uniform/quality: {indicators: no.json}/|6:*|no[.]json
work that is negative|s/batch: 8/batch: -8/|4:45|batch
options beside candidates|s/use: rtn, group: 32, bits: .*]/group: 32, candidates: [original]/|6:12|group
a quantizer beside candidates|s/group: 32, bits: .*]/candidates: [original]/|6:17|use
no step of that name|s/- plan/- plam/|6:5|plam
CASES
sed 's/bits: \[/hed: first, bits: [/' "$WORK/job.yaml" >"$WORK/wrong.yaml"
fails "a misspelt key of the step's own" 2 'wrong.yaml:6:33' plan wrong.yaml -o x.yaml
ok "and what was meant" failure ".diagnostics[0].hint | test(\"'head'\")"
sed 's/uniform-4/uniform-5/; s/baselines: uniform/quality: {at_least: uniform-5}/' "$WORK/job.yaml" >"$WORK/wrong.yaml"
fails "quality like nothing there is" 2 'wrong.yaml:6:*' plan wrong.yaml -o x.yaml
cp -r "$STORIES" "$WORK/short"
jq '.max_position_embeddings = 64' "$STORIES/config.json" >"$WORK/short/config.json"
sed "s|^model: .*|model: short|" "$WORK/job.yaml" >"$WORK/short.yaml"
run plan job.yaml -o room.yaml
run plan short.yaml -o long.yaml
ok "requests longer than the model was trained for: exit code 0, got $rc" test "$rc" = 0
ok "with one warning" test "$(grep -cE 'warning: .*\b96 positions\b.* trained for 64\b' "$WORK/err")" = 1
ok "and the plan is that of a model with room" cmp <(grep -vE '^#|model|headers|hash|seconds' "$WORK/room.yaml") <(grep -vE '^#|model|headers|hash|seconds' "$WORK/long.yaml")
sed "s|^model: .*|model: $ROOT/tests/golden/models/opt|" "$WORK/job.yaml" >"$WORK/learned.yaml"
fails "requests longer than learned positions" 2 '' plan learned.yaml -o x.yaml --set workload.prompt=128
ok "with both numbers" failure '.message | test("\\b160\\b.*\\b128\\b")'
fails "a model without machines" 2 '' plan "$STORIES"
fails "a model without work" 2 '' plan "$STORIES" --cluster clusters/tiny.yaml
fails "nothing to plan" 2 '' plan
fails "an option of nothing" 2 '' plan --instance x.json --solvr uniform
ok "no plan was written" test ! -e "$WORK/x.yaml"
# ---- a limit on the time until all prompts are done
sed 's/concurrency: 0, //' "$WORK/job.yaml" >"$WORK/open.yaml"
run plan open.yaml -o free.yaml --json
ttft=$(jq .plan.ttft_ms "$WORK/out")
least=$(jq .plan.latency_ms "$WORK/out")
# fewer requests at once have their first tokens sooner
run plan open.yaml -o first.yaml --json --at-most "{ttft_s: $(jq -n "$ttft * 0.7 / 1000")}"
ok "a limit on prompts: exit code 0, got $rc" test "$rc" = 0
ok "it holds, and costs time" json ".plan.ttft_ms <= .max_ttft_ms * (1 + 1e-9) and .max_ttft_ms < $ttft and .plan.latency_ms >= $least * 0.9999 and
    .plan.omega <= .max_omega" "$WORK/out"
ok "it is in the plan file" grep -q "ttft_ms: $(jq -r '.plan.ttft_ms | tostring | .[:4]' "$WORK/out")" "$WORK/first.yaml"
run plan open.yaml --check first.yaml --json --at-most "{ttft_s: $(jq -n "$ttft / 1000")}"
ok "checked within a limit, got $rc" test "$rc" = 0
rc=0
run plan open.yaml --check free.yaml --at-most "{ttft_s: $(jq -n "$ttft * 0.98 / 1000")}"
ok "checked above it: exit code 3, got $rc" test "$rc" = 3
ok "with its time" grep -q 'all prompts are done after' "$WORK/err"
run plan open.yaml -o both.yaml --json --at-most "{ttft_s: $(jq -n "$ttft / 1000"), latency_s: $(jq -n "$least * 1.2 / 1000")}"
ok "with a limit on the whole, got $rc" json ".plan.ttft_ms <= $ttft * (1 + 1e-9) and .plan.latency_ms <= $least * 1.2" "$WORK/out"
run plan job.yaml -o none.yaml --at-most '{ttft_s: 0.000001}'
ok "no plan: exit code 3, got $rc" test "$rc" = 3
ok "with the key" grep -q 'at_most: {ttft_s: 1e-06}' "$WORK/err"
ok "with the limit that has a plan" grep -qE 'there is one with .*at_most: \{ttft_s: [0-9.e-]+\} instead of 1e-06' "$WORK/err"
run plan job.yaml -o none.yaml --at-most '{ttft_s: 0.000001}' --json
limit=$(jq .remedies.max_ttft_ms "$WORK/out")
run plan job.yaml -o none.yaml --at-most "{ttft_s: $(jq -n "$limit / 1000")}"
ok "$limit ms are enough, got $rc" test "$rc" = 0
# the step between two limits that are tried is a thousandth of a doubling
run plan job.yaml -o none.yaml --at-most "{ttft_s: $(jq -n "$limit * 0.997 / 1000")}"
ok "and 0.3 % less are not, got $rc" test "$rc" = 3
fails "a head on the first stage" 2 '--at-most*' plan job.yaml -o none.yaml --head first --at-most '{ttft_s: 1}'

finish
