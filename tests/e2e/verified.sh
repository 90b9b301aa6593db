#!/bin/bash
# tests/e2e/verified.sh TESSERA - a plan whose KL is measured as a whole: one job file from the model to answers, a plan that is
# solved again, plans that cannot keep the limit, and jobs that are cut.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
CALIBRATION=$DEMO/calibration.txt
HELD=$DEMO/held-out.txt

# ---- one device, whose reads are what a step takes: the fewest bits within the limit are the fastest
mkdir "$WORK/devices" "$WORK/clusters"
cat >"$WORK/devices/slow.yaml" <<DEVICE
format: tessera.device/1
name: slow
memory: {total: 64 MiB, source: made up}
bandwidth: {peak: 100 MB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int3 int4 int8; do
    echo "  - {kernel: $k, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
done)
DEVICE
cat >"$WORK/clusters/one.yaml" <<'CLUSTER'
version: 1
nodes: [{name: a, devices: [{profile: slow}]}]
CLUSTER
cat >"$WORK/clusters/two.yaml" <<'CLUSTER'
version: 1
nodes: [{name: a, devices: [{profile: slow}]}, {name: b, devices: [{profile: slow}]}]
network: {bandwidth: 1 GB/s, latency: 20 us}
CLUSTER

SCHEMES='{use: rtn, bits: 3, group: 128}, {use: rtn, bits: 4, group: 128}, {use: rtn, bits: 8, group: 128}'
job() { # INDICATORS KL OPTIONS [STEPS]
    cat <<JOB
version: 1
model: $DEMO
seed: 7
cluster: clusters/one.yaml
workload: {prompt: 64, generate: 32, batch: 4, concurrency: 0, chunk: 0, kv: f16}
pipeline:
  - plan:
      candidates: [$SCHEMES, original]
      quality: {indicators: $1}
      at_most: {kl: $2}
      baselines: none
      verify: {text: $HELD, max_windows: 6}
      $3
  - quantize: {use: rtn, plan: plan.yaml}
${4:-}
JOB
}

# ---- all steps, on the ranks of an emulated cluster
sed -e "s|: demo/|: $DEMO/|" -e "s|: emulated/|: $ROOT/configs/emulated/|" -e 's|samples: 8|samples: 4|; s|seqlen: 256|seqlen: 144|' \
    -e 's|probes: 4|probes: 2|; s|plans: 4|plans: 2|; s|max_windows: 16|max_windows: 6|' \
    "$ROOT/configs/verified.yaml" >"$WORK/whole.yaml"
head -n 4 "$ROOT/configs/emulated/prompts-128.jsonl" >"$WORK/prompts.jsonl"
sed -i "s|$ROOT/configs/emulated/prompts-128.jsonl|prompts.jsonl|" "$WORK/whole.yaml"
run run whole.yaml --out whole --set plan.baselines=none
ok "one job from the model to answers, got $rc" test "$rc" = 0
ok "it says what was verified" grep -q '^verified  *measured' "$WORK/out"
ok "every request is answered" test "$(wc -l <"$WORK/whole/answers.jsonl")" = 4
ok "and promised and measured KL are in the results" json '.results.plan.verify as $v | ($v.attempts | length) == 1 and
    $v.windows == 6 and $v.window == 144 and $v.target == 0.05 and $v.act == "a8" and
    $v.attempts[0].kl == .results.plan.plan.kl and $v.attempts[0].measured > 0 and
    $v.attempts[0].measured <= $v.target + $v.attempts[0].half' "$WORK/whole/results.json"
ok "the sums went through the calibrated codec" json '[.results.plan.plan.stages[].tp] | max == 2' "$WORK/whole/results.json"
run run whole.yaml --out whole --set plan.baselines=none
ok "again: it is done, and says the same" grep -q '^verified  *measured' "$WORK/out"
cp "$WORK/whole/indicators.json" "$WORK/right.json"

# ---- a limit that holds; the measurement is that of eval
by_eval() { # FOLDER ATTEMPT: its measured KL is that of the packed model by eval, which adds up doubles
    run eval "$1/packed" --text "$HELD" --window 144 --max-windows 6 --kv f16 --against "$DEMO" --json
    jq -e --argjson kl "$(jq .kl.mean "$WORK/out")" ".results.plan.verify.attempts[$2].measured / \$kl - 1 | fabs < 1e-6" \
        "$WORK/$1/results.json" >/dev/null
}
attempts() { jq -c '.results.plan.verify.attempts | map(.limit, .kl, .measured)' "$WORK/$1/results.json"; }
job right.json 0.05 "" >"$WORK/holds.yaml"
run run holds.yaml --out holds
ok "a limit that holds, got $rc" test "$rc" = 0
ok "it is the KL of eval" by_eval holds 0
ok "which is within the interval of the promise" json '.results.plan | .verify.attempts[0].measured as $m |
    .plan.kl_interval[0] <= $m and $m <= .plan.kl_interval[1]' "$WORK/holds/results.json"
# Two stages that send F32 compute what one does.
sed 's|clusters/one|clusters/two|' "$WORK/holds.yaml" >"$WORK/stages.yaml"
run run stages.yaml --out stages --set plan.codec=plain --set plan.use_all=true
ok "two stages, got $rc" test "$rc" = 0
ok "there are two" json '.results.plan.plan.stages | length == 2' "$WORK/stages/results.json"
ok "their KL is that of eval" by_eval stages 0
run run stages.yaml --out bf16 --set plan.use_all=true --set plan.head=first
ok "with BF16 on the link, got $rc" test "$rc" = 0
ok "another" test "$(jq '.results.plan.verify.attempts[0].measured' "$WORK/bf16/results.json")" != \
    "$(jq '.results.plan.verify.attempts[0].measured' "$WORK/stages/results.json")"

# ---- indicators that promise half: solved again once
jq 'del(.map, .plans) | .schemes |= map(.kl |= map(. / 2) | .half |= map(0))' "$WORK/right.json" >"$WORK/half.json"
job half.json 0.04 "" >"$WORK/again.yaml"
run run again.yaml --out again
ok "solved again, got $rc" test "$rc" = 0
ok "with a warning" grep -q 'solving again' "$WORK/err"
cat >"$WORK/want.jq" <<'JQ'
.results.plan.verify as $v | $v.attempts as $a | ($a | length) == 2 and $v.target == 0.04 and
$a[0].limit == 0.04 and $a[0].measured > 0.04 + $a[0].half and $a[1].measured <= 0.04 + $a[1].half and
($a[1].limit - $a[0].limit * $a[0].kl / $a[0].measured | fabs) < 1e-12 and $a[1].kl <= $a[1].limit and
.results.plan.plan.kl == $a[1].kl and (.results | keys) == ["plan", "quantize"]
JQ
ok "the limit was scaled, and the results are those of the second plan" jq -e -f "$WORK/want.jq" "$WORK/again/results.json" >"$WORK/jq"
ok "so is the packed model" by_eval again 1

# ---- cut in the second attempt: it goes on there
cp -r "$WORK/again" "$WORK/cut"
rm "$WORK/cut/results.json"
run run again.yaml --out cut
ok "a cut job goes on, got $rc" test "$rc" = 0
ok "at the second attempt" test "$(grep -c 'solving again' "$WORK/err")" = 0
ok "with the layers that are there" json '.results.quantize.layers_resumed == 6' "$WORK/cut/results.json"
ok "and the same attempts" test "$(attempts cut)" = "$(attempts again)"
run run again.yaml --out cut --again
ok "--again starts with the first" test "$rc" = 0 -a "$(grep -c 'solving again' "$WORK/err")" = 1
ok "and comes to the same attempts" test "$(attempts cut)" = "$(attempts again)"
rm "$WORK/cut/results.json"
sed -i 's/"attempts": .*/"attempts": 3,/' "$WORK/cut/verify.json"
fails "a journal that is damaged" 2 'cut/verify.json*' run again.yaml --out cut

# ---- plans that do not keep the limit
job half.json 0.04 "" | sed 's/, original\]/]/; s/, {use: rtn, bits: 8, group: 128}//; s/, {use: rtn, bits: 4, group: 128}//; s/kl: 0.04/kl: 0.09/' \
    >"$WORK/none.yaml"
rc=0
run run none.yaml --out none
ok "no plan keeps the lower limit: exit code 1, got $rc" test "$rc" = 1
ok "with both figures in one sentence" grep -qE 'measures a KL of 0\.[0-9]+ nats per token on .*, above 0\.09.*, where it promised 0\.[0-9]+; no plan keeps to' "$WORK/err"
# The most sensitive layer is said to lose nothing at 3 bits, so that each plan takes it so.
jq 'del(.map, .plans) | .schemes |= map(.half |= map(0)) |
    (.schemes[0].kl | max) as $most | .schemes[0].kl |= map(if . == $most then 0 else . end)' "$WORK/right.json" >"$WORK/blind.json"
job blind.json 0.04 "" >"$WORK/never.yaml"
run run never.yaml --out never
ok "three times again, then exit code 1, got $rc" test "$rc" = 1
ok "four plans" test "$(grep -c 'solving again' "$WORK/err")" = 3
ok "and both figures" grep -qE 'measures a KL of 0\.[0-9]+ .*, above 0\.04.*, where it promised 0\.[0-9]+; the last of 4 plans' "$WORK/err"
run run never.yaml --out never
ok "the same again, from the last attempt: exit code 1, got $rc" test "$rc" = 1
ok "which is measured once" test "$(grep -c 'solving again' "$WORK/err")" = 0
ok "with the same sentence" grep -qE ', above 0\.04.*, where it promised 0\.[0-9]+; the last of 4 plans' "$WORK/err"

# ---- what cannot be
job right.json 0.05 "" "  - generate: {prompts: [a]}
  - compensate: {text: $CALIBRATION}" >"$WORK/bad.yaml"
fails "a step in between" 2 'bad.yaml:15:5' run bad.yaml --out bad
job right.json 0.05 "" | grep -v quantize: >"$WORK/bad.yaml"
fails "nothing packs" 2 'bad.yaml:12:15' run bad.yaml --out bad
job right.json 0.05 "" | grep -v -e indicators: -e at_most: >"$WORK/bad.yaml"
fails "no promise" 2 'bad.yaml:10:15' run bad.yaml --out bad
job right.json 0.05 "" | sed 's/held-out.txt/missing.txt/' >"$WORK/bad.yaml"
fails "no text" 2 'bad.yaml:12:22' run bad.yaml --out bad
fails "without a job" 2 '--verify*' plan "$DEMO" --cluster clusters/one.yaml --workload '{prompt: 64, generate: 32, batch: 4}' \
    --quality '{indicators: right.json}' --bits 4 --use rtn --group 128 --verify "{text: $HELD}"

finish
