#!/bin/bash
# tests/e2e/figures-quant.sh TESSERA FIGURES - errors and sizes that quantizing prints, computed again: squared errors from
# the tensors before and after (figures.c), a codec's increases from eval, compensation's sizes from its file.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
MODEL=$ROOT/configs/demo/model.safetensors

# ---- roundtrip, and quantize of the same matrices
# again NAME: squared errors of NAME.st against the model, {tensor: {squared_error, relative_error}}, into want.json
again() {
    { tensors "$MODEL" && tensors "$1.st"; } | jq -s -r 'group_by(.name)[] | select(length == 2) |
        (if .[0].dtype == "F32" then [.[1], .[0]] else . end) | [.[0].name, .[0].file, .[0].from, .[0].dtype, .[1].file, .[1].from,
            .[1].dtype, .[0].shape[0] * .[0].shape[1]] | join(" ")' >pairs
    while read -r name from; do
        # shellcheck disable=SC2086 # words
        "$FIGURES" squared $from | jq --arg n "$name" '{($n): {squared_error, relative_error: (.squared_error / .squares | sqrt)}}'
    done <pairs | jq -s add >want.json
    ok "$1: all tensors" test "$(jq length want.json)" = "$(jq '.tensors | length' out)"
}
run roundtrip rtn:bits=4,group=32 "$MODEL" -o rtn.st --json
again rtn
ok "roundtrip of a quantizer: errors" near .tensors 1e-9 1e-12 want.json out
cp want.json rtn.json
run roundtrip mx:element=fp4_e2m1,block=32 --kind codec "$MODEL" -o mx.st --json
again mx
ok "roundtrip of a codec: errors" near .tensors 1e-9 1e-12 want.json out
ok "and bits on the wire: 4 an element, 8 for 32 of them" json '.tensors | length > 0 and all(.[]; .bits_per_weight == 4.25)' out
run quantize @demo --use rtn --bits 4 --group 32 -o q4 --json
ok "quantize: the errors of every linear" json --slurpfile w rtn.json '.results.quantize.linears | length == 42 and
    all(.[]; . as $l | ($w[0] | to_entries | map(select(.key | startswith($l.name))) | .[0].value.squared_error) as $e |
        ($l.squared_error - $e | fabs) <= 1e-9 * $e)' out
jq '[.results.quantize.linears[].squared_error] | add' out >error

# ---- compensate: what it starts from is what quantize left, what it keeps is in the file
head -c 3000 "$ROOT/configs/demo/calibration.txt" >cal.txt
run compensate @demo --packed q4 --text cal.txt --samples 2 --seqlen 64 --out comp --json
ok "compensate succeeds, got $rc" test "$rc" = 0
ok "the error before is quantize's" json --argjson e "$(cat error)" '.results.compensate | (.squared_error - $e | fabs) <= 1e-6 * $e and
    .compensated_error < .squared_error and .tokens == 2 * 64 and .linears == 42' out
# 4 bits a residual, an F16 scale for each of 2048 outputs of a layer
ok "its bytes" json '.results.compensate.bytes == 6 * (589824 / 2 + 2 * 2048)' out
ok "as in the file" test "$(tensors q4/compensation.safetensors | jq -s 'map(select(.name | test("[.](residual|scale)s?$")) | .bytes) | add')" = "$(jq .results.compensate.bytes out)"

# ---- indicators: Kendall's tau-b against `measured`, from the omegas of the file
cat >ind.yaml <<'JOB'
version: 1
model: "@demo"
pipeline:
  - calibrate: {text: cal.txt, samples: 2, seqlen: 64}
  - indicators: {bits: "3,4,16", measured: true, quantize: {use: rtn}}
JOB
run run ind.yaml --out ind --json
ok "indicators succeeds, got $rc" test "$rc" = 0
cat >tau.jq <<'JQ'
def sign: if . > 0 then 1 elif . < 0 then -1 else 0 end;
def tau($a; $b): [range($a | length) as $i | range($i) as $k | [$a[$i] - $a[$k], $b[$i] - $b[$k]] | map(sign)] |
    (map(.[0] * .[1]) | add) / (((map(.[0] * .[0]) | add) * (map(.[1] * .[1]) | add)) | sqrt);
def near($a; $b): ($a - $b | fabs) < 1e-12;
(.tables[] | select(.name == "measured").omega) as $m | [.tables[] | select(.name != "measured")] | length == 4 and
all(.[]; .omega as $o | near(.tau.all; tau([$o[][:2][]]; [$m[][:2][]])) and
    near(.tau.by_bits[0]; tau([$o[][0]]; [$m[][0]])) and near(.tau.by_bits[1]; tau([$o[][1]]; [$m[][1]])) and .tau.by_bits[2] == null)
JQ
ok "tau of every indicator" json -f tau.jq ind/indicators.json
ok "the results have the file's" json --slurpfile f ind/indicators.json '[.results.indicators.tables[].tau] == [$f[0].tables[].tau]' out

# ---- search-codec: increases are those of eval
head -c 1500 "$ROOT/configs/demo/held-out.txt" >choose.txt
run search-codec @demo --choose choose.txt --confirm cal.txt --window 32 --max-windows 2 --limit 3 --json \
    --codec mx:element=fp3_e1m1,block=32,scale_bits=5,rounding=nearest --codec mx:element=fp5_e2m2,block=8,scale_bits=5,rounding=nearest \
    --codec plain:dtype=bf16
cp out search.json
ok "search-codec succeeds, got $rc" test "$rc" = 0
perplexity() { # TEXT [CODEC]
    run eval @demo --text "$1" --window 32 --max-windows 2 --json ${2:+--simulate-tp 2 --codec "$2"}
    jq .perplexity out
}
base=$(perplexity choose.txt)
jq -r '.candidates[].codec' search.json | while read -r codec; do perplexity choose.txt "$codec"; done | jq -s . >found
ok "search-codec: the base and every increase, in percent" json --argjson base "$base" --slurpfile found found '.perplexity == $base and
    (.candidates | length) == 3 and . as $s | all(range(3); (100 * ($found[0][.] / $base - 1) - $s.candidates[.].increase | fabs) < 1e-9)' search.json
ok "the choice has the fewest bits of those below the limit" json '.limit as $l | .candidates | map(select(.increase < $l)) | min_by(.bits).codec' search.json
chosen=$(jq -r '.limit as $l | .candidates | map(select(.increase < $l)) | min_by(.bits).codec' search.json)
ok "and is named" test "$chosen" = "$(jq -r .chosen search.json)"
ok "bits of a codec: its elements and a share of the scale" json '.candidates | map({(.codec | sub(",scale.*"; "")): .bits}) | add ==
    {"mx:element=fp3_e1m1,block=32": (3 + 5 / 32), "mx:element=fp5_e2m2,block=8": (5 + 5 / 8), "plain:dtype=bf16": 16}' search.json
base=$(perplexity cal.txt) then=$(perplexity cal.txt "$chosen")
ok "confirmed on the other text" json --argjson b "$base" --argjson t "$then" '.confirmed_base == $b and .confirmed_perplexity == $t and
    (.confirmed_increase - 100 * ($t / $b - 1) | fabs) < 1e-9' search.json
finish
