#!/bin/bash
# tests/e2e/figures-plan.sh TESSERA - the figures of a plan, computed again from other figures: times and
# rates from the stages, omega from the prior's formula, bytes on links from the run's own counters.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

mkdir "$WORK/clusters" "$WORK/devices"
# the time on a link is that of its bytes alone, from which they are computed
sed '/^codecs:/,$d' "$ROOT/configs/devices/this-machine.yaml" >"$WORK/devices/this-machine.yaml"
cat >"$WORK/clusters/two.yaml" <<'CLUSTER'
version: 1
nodes:
  - name: here
    devices: [{profile: this-machine, count: 2}]
    link: {bandwidth: 1 GB/s, latency: 0 us}
CLUSTER

# ---- a plan's own figures
cat >"$WORK/job.yaml" <<JOB
version: 1
model: $DEMO
cluster: clusters/two.yaml
workload: {prompt: 64, generate: 32, batch: 8}
pipeline:
  - plan: {use: rtn, group: 32, bits: [3, 4, 8, 16], max_tp: 1}
JOB
cat >"$WORK/steady.jq" <<'JQ'
# the form `steady` of docs/formats/instance.md over the stages that are printed
def ceil_div($a; $b): ($a / $b) | ceil;
# prompts go in groups within the decode micro-batches, over which requests are spread evenly
def prefills($k): ceil_div($k; .plan.decode_mb) as $sets | ($k % $sets) as $more | (($k - $more) / $sets) as $each |
    $more * ceil_div($each + 1; .plan.prefill_mb) + ($sets - $more) * ceil_div($each; .plan.prefill_mb);
def steady($n):
    (.workload.concurrency) as $b | prefills($b) as $mp | ceil_div($b; .plan.decode_mb) as $md |
    [.plan.stages[] | .prefill_ms, (.send_prefill_ms // 0)] as $pre |
    [.plan.stages[] | .decode_ms, (.send_decode_ms // 0)] as $dec |
    ($dec | add) as $r | ($dec | max) as $d |
    (.plan.prefill_jobs // 1) as $c |
    ($pre | add) / $c + ($mp - 1 / $c) * ($pre | max) +
    (if $n > 1 then [($n - 1) * $r + ($md - 1) * $d, $r + (($n - 1) * $md - 1) * $d] | max else 0 end);
# what `requests` more add, which take the slots of those that are done
def rest($k): .plan.prefill_mb as $eta | .plan.decode_mb as $xi |
    ($k - $k % $xi) / $xi * ceil_div($xi; $eta) + ceil_div($k % $xi; $eta);
# the micro-batches of residents stay; of a rest, the last may be smaller
def refill($n; $k; $mp):
    (.plan.decode_mb) as $xi | (if $k < .workload.concurrency then $k % $xi else 0 end) as $fewer |
    (ceil_div($k; $xi) - (if $fewer > 0 then 1 else 0 end)) as $full | (.plan.prefill_jobs // 1) as $c |
    [.plan.stages[] | (.decode_rest_ms // .decode_ms), (.send_decode_rest_ms // .send_decode_ms // 0)] as $less |
    [.plan.stages[] | .prefill_ms, (.send_prefill_ms // 0)] as $pre |
    [.plan.stages[] | .decode_ms, (.send_decode_ms // 0)] as $dec |
    (($n - 1) * (if $full > 0 then $dec else $less end | add)) as $way | ceil_div(.workload.concurrency; $xi) as $md |
    [$mp * ($pre | max) + ($n - 1) * ($full * ($dec | max) + (if $fewer > 0 then $less | max else 0 end)),
        ($pre | add) / $c + ($mp - 1 / $c) * ($pre | max) + $way -
        ($md - ceil_div($k; $xi)) * ([$dec | max, $way / $md] | min)] | max;
def latency($n):
    .workload as $w | ($w.batch % $w.concurrency) as $rest |
    steady($n) + (($w.batch - $rest) / $w.concurrency - 1) * refill($n; $w.concurrency; prefills($w.concurrency)) +
    (if $rest > 0 then refill($n; $rest; rest($rest)) else 0 end);
def near($a; $b): ($a - $b) as $d | (if $d < 0 then -$d else $d end) <= 1e-6 * ($b + 1e-9);
JQ
figures() { # NAME
    cp "$WORK/steady.jq" "$WORK/one.jq"
    cat >>"$WORK/one.jq" <<'JQ'
.workload as $w | .plan as $p | . as $all |
near($p.latency_ms; latency($w.generate)) and
near($p.prefill_ms; steady(1)) and
near($p.tokens_per_second; $w.batch * $w.generate / $p.latency_ms * 1000) and
$p.rounds == (($w.batch / $w.concurrency) | ceil) and
all($p.stages[]; .total == .weights + .kv + .ends + .workspace and .total <= .capacity) and
([$p.stages[].layers] | add) == ($p.bits | length) and
([$p.stages[].bits | .. | numbers] | add) == ($p.bits | length) and
all($p.stages[]; . as $s | near($s.busy;
    def work($k; $mp): (if $k < $w.concurrency then $k % $p.decode_mb else 0 end) as $fewer |
        $mp * $s.prefill_ms + ($w.generate - 1) * ((($k / $p.decode_mb | ceil) - (if $fewer > 0 then 1 else 0 end)) * $s.decode_ms +
        (if $fewer > 0 then $s.decode_rest_ms else 0 end));
    ($w.batch % $w.concurrency) as $rest |
    [1, ((($w.batch - $rest) / $w.concurrency) * work($w.concurrency; $all | prefills($w.concurrency)) +
        (if $rest > 0 then work($rest; $all | rest($rest)) else 0 end)) / $p.latency_ms] | min))
JQ
    ok "$1: latency, rate, shares and bytes come from the stages" json -f "$WORK/one.jq" "$WORK/out"
}
run plan job.yaml -o p.yaml --json --baselines none
ok "a plan: exit code 0, got $rc" test "$rc" = 0
figures "a plan"
# the prior: 4^(4 - bits) for a layer of the mean size, and all layers of this model have one size
ok "a plan: omega is that of its bits" json '.plan.omega as $w | ([.plan.bits[] | if . == "original" then 0 else
    pow(4; 4 - (capture("-(?<b>[0-9]+)").b | tonumber)) end] | add) as $sum | $sum > 0 and $sum - $w < 1e-9 and $w - $sum < 1e-9' \
    "$WORK/out"
cp "$WORK/out" "$WORK/json"
run plan job.yaml -o p.yaml --baselines none
# figures of the table have three digits
printed() { # REGEX: the first number after it
    sed -nE "s/.*$1 *([0-9.]+).*/\1/p" "$WORK/out" | head -1
}
tokens=$(sed -nE 's,.* ([0-9.e+]+) tokens/s.*,\1,p' "$WORK/out" | head -1)
ok "the table's rate is that of the JSON" json --arg t "$tokens" \
    '(.plan.tokens_per_second / ($t | tonumber)) as $q | $q > 0.995 and $q < 1.005' "$WORK/json"
ok "the table's omega is that of the JSON" json --arg t "$(printed 'quality +omega')" \
    '(.plan.omega / ($t | tonumber)) as $q | $q > 0.995 and $q < 1.005' "$WORK/json"
run plan job.yaml --set workload.concurrency=3 -o p.yaml --json --baselines none
figures "a plan in rounds"
run plan job.yaml --set workload.chunk=20 -o p.yaml --json --baselines none
figures "a plan in chunks"
ok "a plan in chunks: three whole ones and a shorter one" json '.plan.prefill_jobs > 3 and .plan.prefill_jobs < 4' "$WORK/out"

# ---- what is priced is what travels
for i in 1 2 3 4; do
    jq -cn --arg i "r$i" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: "It was the best of times, it was the worst", max_tokens: 12}}'
done >"$WORK/prompts.jsonl"
plan_file() { # PROMPT CODEC-OF-PREFILL CODEC-OF-DECODE
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: $1, generate: 12, batch: 4, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for i in 0 1; do
        cat <<PLAN
  - layers: $((3 * i))-$((3 * i + 2))
    node: here
    device: this-machine
    tp: 1
    schemes: [{layers: $((3 * i))-$((3 * i + 2)), use: rtn, bits: 4, group: 64}]
PLAN
        [ $i = 1 ] || printf '    send:\n      prefill: {codec: "%s"}\n      decode: {codec: "%s"}\n' "$2" "$3"
    done
}
cat >"$WORK/run.yaml" <<JOB
version: 1
model: $DEMO
pipeline:
  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}
JOB
prompt=16
while read -r pre dec; do
    plan_file "$prompt" "$pre" "$dec" >"$WORK/plan.yaml"
    name="codecs $pre and $dec"
    run run run.yaml --out "run-$pre-$dec"
    ok "$name: the run, exit code 0, got $rc" test "$rc" = 0
    prompt=$(jq -s '.[0].response.body.usage.prompt_tokens' "$WORK/run-$pre-$dec/answers.jsonl")
    rows=$(jq -s '[.[].response.body.usage.completion_tokens - 1] | add' "$WORK/run-$pre-$dec/answers.jsonl")
    plan_file "$prompt" "$pre" "$dec" >"$WORK/plan.yaml"
    sed "s/prompt: 64, generate: 32, batch: 8/prompt: $prompt, generate: 12, batch: 4, kv: f32/" \
        "$WORK/job.yaml" >"$WORK/check.yaml"
    run plan check.yaml --check plan.yaml --json
    ok "$name: priced, exit code 0, got $rc" test "$rc" = 0
    ok "$name: the bytes that travelled are those that are priced" json --argjson rows "$rows" \
        --slurpfile ran "$WORK/run-$pre-$dec/results.json" '.plan.stages[0] as $s | ($ran[0].results.run.ranks[0].passed_bytes) as $b |
        (4 * $s.send_prefill_ms * 1e6 + $rows * $s.send_decode_ms * 1e6 / .plan.decode_mb) as $priced |
        $b > 0 and (($priced - $b) | fabs) < 1' "$WORK/out"
    ms=$(jq '.plan.stages[0].send_decode_ms' "$WORK/out")
    run plan check.yaml --check plan.yaml --json --set plan.accounting=paper
    [ "$pre $dec" != "plain plain" ] || ok "accounting paper: FP16 on the link, as the papers count" json \
        --argjson ms "$ms" '.plan.stages[0].send_decode_ms * 2 - $ms | fabs < 1e-9' "$WORK/out"
done <<'CODECS'
plain plain
plain:dtype=bf16 plain:dtype=bf16
plain plain:dtype=bf16
mx:block=32 plain
CODECS

# ---- inside a stage: the sums of two ranks
tp_plan() { # PROMPT CODEC-OF-PREFILL CODEC-OF-DECODE
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: $1, generate: 12, batch: 4, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - layers: 0-5
    node: here
    device: this-machine
    tp: 2
    schemes: [{layers: 0-5, use: rtn, bits: 4, group: 64}]
    collective:
      prefill: {codec: "$2", algorithm: all-gather}
      decode: {codec: "$3", algorithm: all-gather}
PLAN
}
# stage_at RATE: the stage's times with links of that rate into the file RATE
stage_at() {
    sed "s,bandwidth: [^,]*,bandwidth: $1 MB/s," "$WORK/clusters/two.yaml" >"$WORK/clusters/at.yaml"
    run plan check.yaml --check plan.yaml --json --set cluster=clusters/at.yaml
    ok "$name: priced at $1 MB/s, exit code 0, got $rc" test "$rc" = 0
    jq '.plan.stages[0]' "$WORK/out" >"$WORK/$1"
}
while read -r pre dec; do
    tp_plan "$prompt" "$pre" "$dec" >"$WORK/plan.yaml"
    name="sums by $pre and $dec"
    run run run.yaml --out "tp-$pre-$dec"
    ok "$name: the run, exit code 0, got $rc" test "$rc" = 0
    rows=$(jq -s '[.[].response.body.usage.completion_tokens - 1] | add' "$WORK/tp-$pre-$dec/answers.jsonl")
    sed "s/prompt: 64, generate: 32, batch: 8/prompt: $prompt, generate: 12, batch: 4, kv: f32/; s/max_tp: 1/max_tp: 2/" \
        "$WORK/job.yaml" >"$WORK/check.yaml"
    stage_at 1
    stage_at 2
    # what a stage takes longer at half the rate is half of its bytes over the rate; micro-batches of one prompt and two rows
    ok "$name: the bytes that travelled are those that are priced" json -s --argjson rows "$rows" \
        --slurpfile ran "$WORK/tp-$pre-$dec/results.json" '($ran[0].results.run.ranks | map(.sent_bytes)) as $b |
        (4 * (.[0].prefill_ms - .[1].prefill_ms) * 2000 + $rows * (.[0].decode_ms - .[1].decode_ms) * 2000 / 2) as $priced |
        ($b | length) == 2 and $b[0] == $b[1] and $b[0] > 0 and ([$ran[0].results.run.ranks[] | .declared_bytes == .sent_bytes] | all) and
        (($priced - $b[0]) | fabs) < 1e-6 * $b[0]' "$WORK/1" "$WORK/2"
done <<'CODECS'
plain plain
plain:dtype=bf16 plain
mx:block=32 mx:block=32
CODECS

# ---- the lines through a profile's `ends`: the same plan on devices that differ in them alone
device() { # EMBED HEAD VOCAB WIDTH
    cat <<DEVICE
format: tessera.device/1
name: line
memory: {total: 4 GiB, source: made up}
bandwidth: {peak: 10 GB/s, source: made up}
kernels:
  - {kernel: bf16, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
ends:
  - {part: embed, kernel: bf16, vocab: $3, width: $4, points: $1, source: made up}
  - {part: head, kernel: bf16, vocab: $3, width: $4, points: $2, source: made up}
DEVICE
}
cat >"$WORK/line.jq" <<'JQ'
# least squares of relative errors, without a negative coefficient; scale: to the model's matrix
def line($points; $scale; $x): [$points[] | {x: .[0], y: (.[1] * $scale)}] as $p |
    def error($a; $b): [$p[] | (($a + $b * .x) / .y - 1) | . * .] | add;
    def sum(f): [$p[] | f] | add;
    sum(1 / (.y * .y)) as $w | sum(.x / (.y * .y)) as $wx | sum(.x * .x / (.y * .y)) as $wxx | sum(1 / .y) as $wy | sum(.x / .y) as $wxy |
    ($w * $wxx - $wx * $wx) as $det |
    ([[$wy / $w, 0], [0, $wxy / $wxx]] + (if ($p | length) > 1 then [[($wy * $wxx - $wx * $wxy) / $det, ($w * $wxy - $wx * $wy) / $det]] else [] end) |
        map(select(.[0] >= 0 and .[1] >= 0)) | min_by(error(.[0]; .[1]))) | .[0] + .[1] * $x;
(4096 * 256 / ($vocab * $width)) as $size | $base[0].plan as $b | .plan as $p | $p.prefill_mb as $m | $p.decode_mb as $n |
def near($a; $b): ($a - $b) as $d | (if $d < 0 then -$d else $d end) <= 1e-9 * ($b + 1);
($b.stages | length) == 1 and $p.stages[0].ends_times == "fitted" and
near($p.stages[0].prefill_ms - $b.stages[0].prefill_ms + 2; line($embed; 256 / $width; 64 * $m) + line($head; $size; $m)) and
near($p.stages[0].decode_ms - $b.stages[0].decode_ms + 2; line($embed; 256 / $width; $n) + line($head; $size; $n))
JQ
sed -e 's/this-machine, count: 2/line/' "$WORK/clusters/two.yaml" >"$WORK/clusters/line.yaml"
sed -e 's/two.yaml/line.yaml/' -e 's/bits: .*max_tp/bits: [16], max_tp/' "$WORK/job.yaml" >"$WORK/line.yaml"
mkdir -p "$WORK/clusters/devices"
device '[[1, 1]]' '[[1, 1]]' 4096 256 >"$WORK/clusters/devices/line.yaml"
run plan line.yaml -o line-plan.yaml --baselines none
ok "ends: a plan, got $rc" test "$rc" = 0
run plan line.yaml --check line-plan.yaml --json
cp "$WORK/out" "$WORK/base.json"
while IFS='|' read -r name embed head vocab width; do
    device "$embed" "$head" "$vocab" "$width" >"$WORK/clusters/devices/line.yaml"
    run plan line.yaml --check line-plan.yaml --json
    ok "ends, $name: exit code 0, got $rc" test "$rc" = 0
    ok "ends, $name: the stage's times hold the lines" json --slurpfile base "$WORK/base.json" --argjson embed "$embed" --argjson head "$head" \
        --argjson vocab "$vocab" --argjson width "$width" -f "$WORK/line.jq" "$WORK/out"
done <<'ENDS'
points on no line|[[1, 0.3], [64, 0.9], [512, 2.5]]|[[1, 0.7], [8, 1.1], [32, 1.2]]|4096|256
one that would begin below 0|[[1, 0.1], [64, 9], [512, 90]]|[[1, 0.1], [8, 2], [32, 9]]|4096|256
one that would fall|[[1, 3], [64, 2], [512, 1]]|[[1, 9], [8, 4], [32, 3]]|4096|256
another matrix|[[1, 0.3], [64, 0.9]]|[[1, 0.7], [32, 1.2]]|32000|1024
ENDS
finish
