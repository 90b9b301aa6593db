#!/bin/bash
# tests/e2e/expert-groups.sh TESSERA MAKE_EXPERTS - bits of groups of experts: a plan gives those that the calibration's tokens
# take most more bits than the others; the file names them, the model is packed so, and --check has the plan's figures.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MAKE=$(readlink -f "$2")
DEMO=$ROOT/configs/demo
TEXT=$ROOT/tests/golden/models/README.md

"$MAKE" "$DEMO" "$WORK/wide" 8 2
cp "$DEMO"/{tokenizer.json,tokenizer_config.json,generation_config.json} "$WORK/wide/"
mkdir "$WORK/devices"
# board MEMORY: an emulated device
board() {
    sed "s/name: midi/name: board/; s/total: 8 MiB/total: $1/; s/peak: 800 MB/peak: 4000 MB/" \
        "$ROOT/configs/plan/devices/midi.yaml" >"$WORK/devices/board.yaml"
}
printf 'version: 1\nnodes:\n  - name: desk\n    devices: [{profile: board, emulate: cpu}]\n' >"$WORK/one.yaml"
board '19 MiB'

# job PLAN-KEYS [STEPS]
job() {
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: wide
cluster: one.yaml
workload: {prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}
pipeline:
  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - plan: {use: rtn, group: 32, bits: [3, 4, 8], baselines: none, $1}
${2-}
JOB
}
has() { jq -e "$@" "$WORK/best/results.json" >/dev/null; }
# memory between that of 4 bits and of 8
job "expert_groups: 2, quality: {max_omega: 3}" "  - quantize: {use: rtn, plan: plan.yaml}"
run run job.yaml --out best
ok "a plan and a model that is packed by it, got $rc" test "$rc" = 0
ok "the result says how many groups" has '.results.plan.experts | .groups == 2 and .frequencies == "measured"'
ok "some layer has two widths" has '.results.plan.plan.bits | any(test("^rtn-[48]/[34]$"))'
ok "never more bits for the others" has '.results.plan.plan.bits | all(test("3/4|3/8|4/8") | not)'
ok "of all bits it is the candidates that fall" has '.results.plan.candidates == ["rtn-3", "rtn-4", "rtn-8", "rtn-4/3", "rtn-8/3", "rtn-8/4"]'
PLAN=$WORK/best/plan.yaml
ok "the file names experts" grep -Eq '^      - \{layers: "[0-9]", experts: "[0-9,-]+", use: rtn, bits: [34], group: 32\}$' "$PLAN"

# what is packed is what the plan says: bits of every expert, and bytes
jq -r '.results.plan.plan.bits | to_entries[] | "\(.key) \(.value)"' "$WORK/best/results.json" >"$WORK/bits"
jq -r '.results.calibrate.experts[] | "\(.layer) \(.tokens | map(tostring) | join(" "))"' "$WORK/best/results.json" >"$WORK/tokens"
# expected LAYER EXPERT: its bits, by the four experts with the most tokens (of equal ones the lower)
expected=$(while read -r layer name; do
    read -ra tokens < <(sed -n "s/^$layer //p" "$WORK/tokens")
    name=${name#rtn-}
    for e in {0..7}; do
        n=0
        for o in {0..7}; do
            [ "${tokens[o]}" -gt "${tokens[e]}" ] || { [ "${tokens[o]}" = "${tokens[e]}" ] && [ "$o" -lt "$e" ]; } && n=$((n + 1))
        done
        [ $n -lt 4 ] && echo "$layer $e ${name%/*}" || echo "$layer $e ${name#*/}"
    done
done <"$WORK/bits")
packed=$(jq -r '[.results.quantize.linears[] | select(.name | test("experts")) |
    (.name | capture("layers\\.(?<l>[0-9]+).*experts\\.(?<e>[0-9]+)\\.")) + {b: (.bits_per_weight | floor)}] |
    unique | sort_by([(.l | tonumber), (.e | tonumber)])[] | "\(.l) \(.e) \(.b)"' "$WORK/best/results.json")
ok "experts are packed as their group" test "$packed" = "$expected"

# --check prices it alike, with the groups of the job and without
cp "$PLAN" "$WORK/found.yaml"
check() { run plan job.yaml --check "$@" --json; }
figures() { jq -c '.plan | [.latency_ms, .omega, .stages[0].total]' "$WORK/out"; }
run plan wide --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}' --use rtn --group 32 --bits 3,4,8 \
    --expert-groups 2 --routing best/calibration --quality '{max_omega: 3}' --baselines none --json -o verb.yaml
ok "the verb has the option, got $rc" test "$rc" = 0
ok "and finds the same plan" cmp -s <(grep -v 'seconds\|# Plan' "$WORK/verb.yaml") <(grep -v 'seconds\|# Plan' "$WORK/found.yaml")
want=$(figures)
verb() {
    run plan wide --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}' --use rtn --group 32 \
        --bits 3,4,8 --routing best/calibration --quality '{max_omega: 9}' --baselines none "$@" --json
}
verb --check found.yaml --expert-groups 2
ok "--check: the plan's figures, got $rc" test "$(figures)" = "$want"
verb --check found.yaml
ok "--check without groups: the same omega and bytes, got $rc" test "$(jq -c '.plan | [.stages[0].total]' "$WORK/out")" = "$(jq -c '[.[2]]' <<<"$want")"
# one candidate for all experts is the plan of that candidate
sed -E 's/(experts: "[^"]*", use: rtn, bits: )[348]/\14/g; s/(layers: "[^"]*", use: rtn, bits: )[348]/\14/g' "$WORK/found.yaml" >"$WORK/alike.yaml"
verb --check alike.yaml --expert-groups 2
ok "4 bits for both groups: that candidate, got $rc" json '.plan.bits | all(. == "rtn-4")' "$WORK/out"
# three kinds of experts, and of their tensors, by hand
sed -E '0,/experts: "/s/^(      - \{layers: "([0-9])", experts: )/      - {layers: "\2", experts: "0", tensors: "*.down_proj", bits: 8}\n\1/' \
    "$WORK/found.yaml" >"$WORK/hand.yaml"
verb --check hand.yaml
ok "groups of a file by hand, got $rc" test "$rc" = 0

# ---- indicators of single experts -----------------------------------------------------------------------------------

cat >"$WORK/suffer.yaml" <<JOB
version: 1
model: wide
pipeline:
  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - indicators: {bits: "3,4,8,16", quantize: {use: rtn, group: 32}, measured: false}
JOB
ok "without indicators of experts frequencies divide a layer's" has '.results.plan.experts.quality == "frequencies"'
run run suffer.yaml --out measured
ok "indicators, got $rc" test "$rc" = 0
IND=$WORK/measured/indicators.json
# by_them OPTION...: a plan by the indicators
by_them() {
    run plan wide --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}' --use rtn --group 32 --bits 3,4,8 \
        --expert-groups 2 --routing best/calibration --quality '{at_least: uniform-4, indicators: measured/indicators.json}' --baselines none "$@"
}
by_them -o measured/plan.yaml
ok "a plan by them, got $rc" test "$rc" = 0
ok "the table says so" grep -q "each with its experts' own indicators" <(tr -s ' \n' ' ' <"$WORK/out")
by_them --json -o measured/plan.yaml
ok "so does the result" json '.experts.quality == "hessian"' "$WORK/out"
cp "$WORK/out" "$WORK/by-them"
by_them --check measured/plan.yaml --json
ok "--check has its figures, got $rc" json --slurpfile a "$WORK/by-them" '.plan.omega == $a[0].plan.omega and .plan.latency_ms == $a[0].plan.latency_ms' "$WORK/out"
ok "every expert has one for every width" json '.tables | map(select(.name != "random")) | length == 3 and
    all(.experts | length == 6 and all(length == 8 and all(length == 4 and .[3] == 0)))' "$IND"
ok "they are parts of their layer's" json '.tables[] | select(.name == "hessian") | [.omega, .experts] | transpose |
    all(.[0] as $layer | .[1] | [range(4) as $b | (map(.[$b]) | add) <= $layer[$b] * (1 + 1e-9)] | all)' "$IND"
# the experts of each layer's second group suffer no more than those of its first
jq -r '.tables[] | select(.name == "hessian") | .experts | to_entries[] | "\(.key) \(.value | map(.[0] | tostring) | join(" "))"' "$IND" >"$WORK/suffers"
hits=0
while read -r layer list; do
    read -ra v < <(sed -n "s/^$layer //p" "$WORK/suffers")
    second=$(tr ',' '\n' <<<"$list" | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done | tr '\n' ' ')
    most=$(for e in $second; do echo "${v[e]}"; done | sort -g | tail -n 1)
    least=$(for e in {0..7}; do [[ " $second" == *" $e "* ]] || echo "${v[e]}"; done | sort -g | head -n 1)
    ok "layer $layer: groups by what experts suffer" awk "BEGIN { exit !($most <= $least) }"
    hits=$((hits + 1))
done < <(sed -n 's/^      - {layers: "\([0-9]\)", experts: "\([0-9,-]*\)".*/\1 \2/p' "$WORK/measured/plan.yaml")
ok "some layer has two widths" test "$hits" -gt 0

# ---- the packed model has its plan's price -------------------------------------------------------------------------

# price MODEL PLAN OPTION...: bytes and times of a plan, without frequencies
price() {
    local model=$1 plan=$2
    shift 2
    run plan "$model" --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}' --check "$plan" --json "$@"
    cp "$WORK/out" "$WORK/price.json"
}
# priced NAME PLAN: of the plan and of what is packed by it; bytes are equal, times within rounding
priced() {
    sed -n '/^    schemes:/,/^    predicted/{/^    schemes:/!{/^    predicted/!d}}; s/^    schemes:/    schemes: [{layers: "0-5", keep: true}]/; /^headers:/d; p' \
        "$WORK/$2" >"$WORK/keep.yaml"
    price wide "$2" --use rtn --group 32 --bits 3,4,8
    ok "$1: the plan's price, got $rc" test "$rc" = 0
    cp "$WORK/price.json" "$WORK/planned.json"
    price "$1" keep.yaml
    ok "$1: a price of what is packed, got $rc" test "$rc" = 0
    ok "$1: the same" json --slurpfile a "$WORK/planned.json" 'def near($x; $y): ($x / $y - 1) | fabs < 1e-12;
        .plan as $p | $a[0].plan as $q | $p.stages[0].total == $q.stages[0].total and $p.stages[0].weights == $q.stages[0].weights and
        near($p.latency_ms; $q.latency_ms) and near($p.stages[0].prefill_ms; $q.stages[0].prefill_ms) and
        near($p.stages[0].decode_ms; $q.stages[0].decode_ms) and $p.stages[0].cpu_experts.bytes == $q.stages[0].cpu_experts.bytes' "$WORK/price.json"
}
# packed NAME PLAN: also with the experts on a CPU next to the device
packed() {
    run quantize wide --use rtn --plan "$2" -o "$1"
    ok "$1: packed by the plan, got $rc" test "$rc" = 0
    priced "$1" "$2"
    cp "$WORK/one.yaml" "$WORK/without.yaml"
    printf '    cpu: {profile: host, link: {bandwidth: 200 MB/s, latency: 5 us}}\n' >>"$WORK/one.yaml"
    sed 's/^    tp: 1/&\n    cpu_experts: 1-5/' "$WORK/$2" >"$WORK/split.yaml"
    priced "$1" split.yaml
    ok "$1: experts are on the CPU" json '.plan.stages[0].cpu_experts.bytes > 0' "$WORK/price.json"
    mv "$WORK/without.yaml" "$WORK/one.yaml"
}
sed 's/name: midi/name: host/; s/total: 8 MiB/total: 64 MiB/; s/peak: 800 MB/peak: 400 MB/' "$ROOT/configs/plan/devices/midi.yaml" >"$WORK/devices/host.yaml"
packed by-groups found.yaml
packed by-hand hand.yaml
ok "experts of more than one width" test "$(grep -c 'experts: "' "$WORK/hand.yaml")" -gt 1
# without further groups the price is another: the test above can fail
price wide found.yaml --use rtn --group 32 --bits 3,4,8
cp "$WORK/price.json" "$WORK/planned.json"
price wide alike.yaml --use rtn --group 32 --bits 3,4,8
ok "one width for all experts is another price" json --slurpfile a "$WORK/planned.json" '.plan.stages[0].total != $a[0].plan.stages[0].total' "$WORK/price.json"
run plan by-groups --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}' --json -o placed.yaml
ok "a packed model is planned, got $rc" test "$rc" = 0
price by-groups placed.yaml
ok "with the price of its check" json --slurpfile a "$WORK/price.json" '.plan.latency_ms == $a[0].plan.latency_ms' "$WORK/price.json"
rules='[{layers: 0, experts: 0, bits: 8}, {layers: 0, experts: 1, bits: 6}, {layers: 0, experts: 2, bits: 5}, {layers: 0, experts: 3, bits: 3}]'
run quantize wide --use rtn --bits 4 --group 32 --rules "$rules" -o five
fails "five layouts in one layer" 2 'five' plan five --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4}' -o x.yaml

# ---- emulated devices run it -----------------------------------------------------------------------------------------

printf '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "It was the best of times,", "max_tokens": 6}}\n' >"$WORK/prompts.jsonl"
# answers NAME MODEL PLAN CLUSTER-LINE
answers() {
    printf 'version: 1\nmodel: %s\n%spipeline:\n  - run: {plan: %s, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}\n' \
        "$2" "$4" "$3" >"$WORK/$1.yaml"
    run run "$1.yaml" --out "run-$1"
    ok "$1: it runs, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].text' "$WORK/run-$1/answers.jsonl" >"$WORK/got-$1"
}
answers single wide found.yaml ''
ok "one engine: an answer" test "$(grep -c '"' "$WORK/got-single")" = 1
for name in found hand; do
    answers "real-$name" wide "$name.yaml" ''
    answers "emulated-$name" wide "$name.yaml" $'cluster: one.yaml\n'
    ok "$name: the answers of one engine" cmp -s "$WORK/got-real-$name" "$WORK/got-emulated-$name"
    ok "$name: in the device's time" json '.results.run.emulated_tokens_per_second > 0' "$WORK/run-emulated-$name/results.json"
done
sed '/cpu_experts:/d' "$WORK/keep.yaml" >"$WORK/kept.yaml"
answers emulated-packed by-groups kept.yaml $'cluster: one.yaml\n'
ok "the packed model: the answers of one engine" cmp -s "$WORK/got-single" "$WORK/got-emulated-packed"

# ---- what is refused -----------------------------------------------------------------------------------------------

bad() { # WHAT PLACE SED
    sed -E "$3" "$WORK/found.yaml" >"$WORK/bad.yaml"
    fails "$1" 2 "$2" plan wide --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4, chunk: 8, kv: f32}' --use rtn \
        --group 32 --routing best/calibration --check bad.yaml
}
at=$(grep -n 'experts: "' "$WORK/found.yaml" | head -n 1 | cut -d: -f1)
bad "an expert that is not there" "bad.yaml:$at:*" '0,/experts: "/s/experts: "[^"]*"/experts: "8"/'
bad "no experts" "bad.yaml:$at:*" '0,/experts: "/s/experts: "[^"]*"/experts: [1]/'
fails "an expert that is not there, to quantize" 2 '*' quantize wide --use rtn --bits 4 --group 32 --rules '[{experts: 8, bits: 8}]' -o x
fails "experts of a model that has none" 2 '*' quantize "$STORIES" --use rtn --bits 4 --group 2 --rules '[{experts: 1, bits: 8}]' -o x
fails "groups without frequencies" 2 '' plan wide --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4}' --use rtn \
    --group 32 --bits 4,8 --expert-groups 2 -o x.yaml
fails "groups of a model without experts" 2 "$STORIES" plan "$STORIES" --cluster one.yaml --workload '{prompt: 16, generate: 8, batch: 4}' --use rtn \
    --group 2 --bits 4,8 --expert-groups 2 --routing best/calibration -o x.yaml
finish
