#!/bin/bash
# tests/e2e/figures-compare.sh TESSERA FIGURES - a comparison's figures, computed again: perplexities, divergences and
# differences from logits (figures.c), corrections, ratios and verdicts from other figures that are printed.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
WINDOW=40 WINDOWS=4 ROUNDS=10
head -c 1200 "$ROOT/configs/demo/held-out.txt" >text.txt
token_ids @demo "$(cat text.txt)" | head -n $((WINDOW * WINDOWS)) >ids
run quantize @demo --use rtn --bits 3 --group 64 -o three
run quantize @demo --use rtn --bits 5 --group 32 -o five
cat >cmp.yaml <<JOB
version: 1
model: "@demo"
arms:
  three: {model: three}
  five: {quantize: {use: rtn, bits: 5, group: 32}}
pairs: [[three, five]]
measure:
  perplexity: {text: text.txt, window: $WINDOW, max_windows: $WINDOWS}
  speed: {prompt: 8, generate: 4, repeats: $ROUNDS}
JOB
run compare cmp.yaml --out cmp --json
ok "compare succeeds, got $rc" test "$rc" = 0
cp out cmp.json
of original @demo
of three three
of five five
for arm in three five; do
    # a float's difference of two probabilities: 1e-6
    "$FIGURES" eval "$WINDOW" ids "$arm" original | jq '(.hit | {se, low, high}) as $h | del(.hit, .windows, .kl.rms) |
        .kl |= del(.p, .detectable, .n, .windows) | .delta_p |= del(.p, .detectable, .n, .windows) |
        .top1_interval = {se: $h.se, low: ([$h.low, 0] | max), high: ([$h.high, 1] | min)} |
        .ratio = {value: (.delta.mean | exp), low: (.delta.low | exp), high: (.delta.high | exp)}' >want.json
    ok "$arm: the figures" near ".results.compare.arms | map({(.name): .}) | add | .$arm" 1e-4 2e-6 want.json cmp.json
    # a count for each quarter of a decade from 1e-8; a token on a border may go either way
    ok "$arm: the histogram has every token, at the quantiles' places" json --arg arm "$arm" '.results.compare.arms[] | select(.name == $arm) |
        .scored as $n | .kl as $k | $k.histogram.counts as $c |
        def bin: if . < 1e-8 then 0 else 1 + (4 * ((. / 1e-8) | log10) | floor) end;
        ($c | add) == $n and ([$c | to_entries[] | select(.value > 0) | .key] | first == ($k.min | bin) and last == ($k.max | bin)) and
        ([range(0; $k.median | bin)] | map($c[.]) | add // 0) < $n / 2 and
        ([range(0; ($k.median | bin) + 1)] | map($c[.]) | add) >= $n / 2' cmp.json
done
"$FIGURES" eval "$WINDOW" ids original | jq 'del(.windows)' >want.json
ok "the original's" near '.results.compare.arms[0]' 1e-4 1e-7 want.json cmp.json
"$FIGURES" eval "$WINDOW" ids three five | jq '{delta}' >want.json
ok "a pair's difference" near '.results.compare.pairs[0]' 1e-4 1e-7 want.json cmp.json
# ---- from figures that are printed
ok "Holm's correction" json '[.results.compare.arms[1:][].delta] | sort_by(.p) | .[0].p as $a | .[1].p as $b |
    (.[0].p_holm - ([2 * $a, 1] | min) | fabs) < 1e-12 and (.[1].p_holm - ([[2 * $a, 1] | min, $b] | max) | fabs) < 1e-12' cmp.json
ok "a pair alone needs none, and its divergence is the arms' difference" json '(.results.compare.arms | map({(.name): .}) | add) as $arm |
    .results.compare.pairs[0] | .delta.p_holm == .delta.p and .kl_delta.p_holm == .kl_delta.p and
    (.kl_delta.mean - ($arm.three.kl.mean - $arm.five.kl.mean) | fabs) < 1e-9' cmp.json
cat >verdict.jq <<'JQ'
.results.compare as $c | all($c.arms[1:][], $c.pairs[0]; . as $a |
    (if $a.delta.p_holm >= $c.alpha then "indistinguishable" elif $a.delta.mean > 0 then "worse" else "better" end) == $a.verdict.quality and
    (if $a.verdict.quality == "indistinguishable"
     then (($a.verdict.text | capture("a change of (?<x>[0-9.]+) %").x | tonumber) - 100 * (($a.delta.detectable | exp) - 1))
     else (($a.verdict.text | capture("perplexity (?<x>[-+][0-9.]+) %").x | ltrimstr("+") | tonumber) - 100 * (($a.delta.mean | exp) - 1)) end
     | fabs) < 0.0051) and
all($c.arms[1:][]; . as $a | $a.speed.decode_ratio as $r |
    (if $r.low > 1 then "faster" elif $r.high < 1 then "slower" else "alike" end) == $a.verdict.speed)
JQ
ok "verdicts are those of the figures" json -f verdict.jq cmp.json
ok "speeds: medians of the rounds" json --argjson rounds $ROUNDS 'def median: sort | (.[length / 2 | floor] + .[(length - 1) / 2 | floor]) / 2;
    .results.compare | .speed_of.repeats == $rounds and all(.arms[].speed; (.prefill_runs | length) == $rounds and
        (.decode_runs | length) == $rounds and (.prefill_tokens_per_s / (.prefill_runs | median) - 1 | fabs) < 1e-12 and
        (.decode_tokens_per_s / (.decode_runs | median) - 1 | fabs) < 1e-12)' cmp.json
# intervals FILE ARM: ratios of the same round, drawn again by the generator, seed and number of draws that are printed.  The
# ends are medians of the same draws, so that nothing but the last bits of a ratio may differ.
intervals() {
    local what name
    for what in prefill decode; do
        for name in original "$2"; do
            jq --arg arm "$name" --arg what "$what" '.results.compare.arms[] | select(.name == $arm).speed[$what + "_runs"][]' "$1" >"runs.$name"
        done
        "$FIGURES" bootstrap "$(jq .results.compare.speed_of.seed "$1")" "$(jq .results.compare.alpha "$1")" \
            "$(jq .results.compare.speed_of.draws "$1")" "runs.$2" runs.original >want.json
        ok "$1, $2: $what, median and interval of the ratio" near ".results.compare.arms | map({(.name): .}) | add | .$2.speed.${what}_ratio" \
            1e-12 0 want.json "$1"
    done
}
intervals cmp.json three
intervals cmp.json five
# at 99.8 % the ends are the tenth of 10,000 draws from either side: other draws have others
cat >tail.yaml <<JOB
version: 1
model: "@demo"
seed: 11
alpha: 0.002
arms:
  three: {model: three}
  five: {model: five}
measure:
  speed: {prompt: 4, generate: 2, repeats: 40}
JOB
run compare tail.yaml --out tail --json
ok "compare of speeds succeeds, got $rc" test "$rc" = 0
cp out tail.json
intervals tail.json three
intervals tail.json five
# ---- the table
run compare cmp.yaml --out cmp
ok "the rows of the table" json --rawfile table out '.results.compare.arms | length == 3 and all(.[]; . as $a |
    ($table | split("\n") | map(select(startswith($a.name + " ")))[0] | [splits(" +")]) as $row |
    ($row[1] | tonumber) - $a.bits_per_weight | fabs < 0.0051) and all(.[]; . as $a |
    ($table | split("\n") | map(select(startswith($a.name + " ")))[0] | [splits(" +")]) as $row |
    ($row[2] | gsub(","; "") | tonumber) == $a.bytes and ($row[3] | gsub(","; "") | tonumber) == $a.resident_bytes and
    (($row[4] | tonumber) - $a.perplexity | fabs) < 0.000051 and
    ($row[5] == "-" or ((($row[5] | tonumber) - $a.kl.mean | fabs) < 0.00000051 and (($row[6] | tonumber) - 100 * $a.top1 | fabs) < 0.0051)))' cmp.json
finish
