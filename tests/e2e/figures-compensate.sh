#!/bin/bash
# tests/e2e/figures-compensate.sh TESSERA FIGURES RESIDUALS - what compensate, sweep, outliers and tune print, computed again:
# errors from the residuals in the file (residuals.c), perplexities and trends from logits (figures.c), shares from the lists and
# tables that are printed beside them.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
RESIDUALS=$(readlink -f "$3")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
MODEL=$ROOT/configs/demo/model.safetensors
FILE=q4/compensation.safetensors
head -c 3000 "$ROOT/configs/demo/calibration.txt" >cal.txt
head -c 1500 "$ROOT/configs/demo/held-out.txt" >held.txt
WINDOW=32 WINDOWS=4
cat >job.yaml <<JOB
version: 1
model: "@demo"
pipeline:
  - quantize: {use: rtn, bits: 4, group: 32, to: q4}
  - compensate: {text: cal.txt, samples: 2, seqlen: 64}
  - sweep: {text: held.txt, window: $WINDOW, max_windows: $WINDOWS, channels: "0,32,128", select: "dynamic,static-meansq", answers: 3}
JOB
run run job.yaml --out job --json
ok "the job succeeds, got $rc" test "$rc" = 0
cp out job.json
mv job/q4 .
run roundtrip rtn:bits=4,group=32 "$MODEL" -o rtn.st
tensors "$MODEL" >demo
tensors "$FILE" >kept

# ---- compensate: what is left
# part LINEAR: its codes, stride, scales and outputs in FILE; linears with one input lie in one row, each a multiple of 64 bytes
part() {
    jq -s -r --arg l "$1" --slurpfile demo demo '($l | capture("(?<layer>.*layers[.][0-9]+)[.](?<name>.*)")) as $n |
        {"self_attn.q_proj": ["attn_in", []], "self_attn.k_proj": ["attn_in", ["self_attn.q_proj"]],
         "self_attn.v_proj": ["attn_in", ["self_attn.q_proj", "self_attn.k_proj"]], "mlp.gate_proj": ["ffn_in", []],
         "mlp.up_proj": ["ffn_in", ["mlp.gate_proj"]]}[$n.name] as $joint |
        def outputs($x): $demo[] | select(.name == "\($n.layer).\($x).weight").shape[0];
        (.[] | select(.name == "\($n.layer).\($joint[0] // $n.name).residual")) as $codes |
        (.[] | select(.name == "\($l).scales")) as $scales |
        "\($codes.from + ([($joint[1] // [])[] | outputs(.) / 2 / 64 | ceil * 64] | add // 0)) \($codes.shape[1]) \($scales.from) \(outputs($n.name))"' kept
}
tensors rtn.st | jq -r 'select(.name | test("_proj")) | "\(.name) \(.from)"' >linears
# shellcheck disable=SC2094
while read -r name from; do
    # shellcheck disable=SC2046,SC2094 # words
    "$RESIDUALS" left $(jq -r --arg n "$name" 'select(.name == $n) | "\(.file) \(.from) \(.dtype)"' demo) rtn.st "$from" F32 \
        $(jq -r --arg n "$name" 'select(.name == $n) | "\(.shape[0]) \(.shape[1])"' demo) 4 "$FILE" $(part "${name%.weight}")
done <linears >left
ok "compensate: all linears" test "$(wc -l <left)" = 42
ok "compensate: the error that is left" json --argjson e "$(jq -s add left)" '.results.compensate |
    .compensated_error > 0 and (.compensated_error / $e - 1 | fabs) < 1e-6' job.json
BYTES=$(jq -s 'map(select(.name | test("[.](residual|scales)$")) | .bytes) | add' kept)

# ---- sweep: every point from logits
token_ids @demo "$(cat held.txt)" | head -n $((WINDOW * WINDOWS)) >ids
ok "the text is long enough" test "$(wc -l <ids)" = $((WINDOW * WINDOWS))
jq '.results.sweep' job.json >sweep.json
of k0 q4
for way in dynamic static-meansq; do
    for k in 32 128; do
        of "$way-$k" q4 --compensate "$k" --select "$way"
        "$FIGURES" eval "$WINDOW" ids "$way-$k" k0 | jq '{perplexity, mean_nll, delta: (.delta | {mean, low, high, p})}' >want.json
        ok "sweep: $way at $k" near ".points[] | select(.select == \"$way\" and .k == $k)" 1e-5 2e-6 want.json sweep.json
    done
    "$FIGURES" trend "$WINDOW" ids k0 "$way-32" "$way-128" >trend.json
    jq '{slope: (.slope | {mean, low, high, p}), steps: [.steps[] | {delta: {mean, low, high, p}}],
        rises: ([.steps[] | select(.mean > 0)] | length), proven: ([.steps[] | select(.low > 0)] | length)}' trend.json >want.json
    ok "sweep: trend of $way" near ".trends[] | select(.select == \"$way\")" 1e-5 2e-6 want.json sweep.json
    ok "sweep: its verdict" json --arg way "$way" --slurpfile t want.json '.trends[] | select(.select == $way).verdict ==
        (if $t[0].proven > 0 or $t[0].slope.low > 0 then "rises" elif $t[0].slope.high < 0 then "falls" else "open" end)' sweep.json
done
"$FIGURES" eval "$WINDOW" ids k0 | jq '{perplexity, mean_nll}' >want.json
ok "sweep: without compensation" near '.points[0]' 1e-6 0 want.json sweep.json
"$FIGURES" eval "$WINDOW" ids dynamic-32 static-meansq-128 | jq '{delta: (.delta | {mean, low, high, p})}' >want.json
ok "sweep: dynamic against four times as many" near '.quarter | select(length == 1)[0]' 1e-5 2e-6 want.json sweep.json
ok "sweep: bits a weight and bytes of residuals" json --argjson n "$BYTES" '.host_bytes == $n and .residual_bits == 4 and
    .bits_per_weight == 4 + 24 / 32' sweep.json
# what is found of the largest channels is a share; the inputs that it is taken from are not written anywhere
ok "sweep: shares that are found" json '.points[1:] | length == 4 and all(.[]; .recall > 0 and .recall <= 1)' sweep.json

# answers: 32 tokens behind each of three prompts of 32; the original reads the same and ranks them
for k in 0 32 128; do
    for i in 0 1 2; do
        tail -n +$(((WINDOW * WINDOWS - 32) * i / 3 + 1)) ids | head -n 32 >said
        run generate q4 --tokens "$(paste -sd, said)" --max-tokens 32 --greedy --ignore-eos --act f32 --json --compensate $k
        jq '.tokens[]' out >>said
        run logits @demo --tokens "$(paste -sd, said)" -o said.st
        rm -f "said.$i"
        "$FIGURES" agree 32 said said.st
        rm -f said.st
    done | jq -s 'add / 96' >share
    ok "sweep: agreement at $k" json --argjson s "$(cat share)" --argjson k $k '.points[] | select(.k == $k and .select == "dynamic") |
        (.agreement - $s | fabs) < 1e-9' sweep.json
done
ok "sweep: differences of agreement" json '.points | .[0].agreement as $was | .[1:] | length == 4 and
    all(.[]; (.agreement_delta.mean - .agreement + $was | fabs) < 1e-9)' sweep.json

# ---- outliers: of the first layer, whose input is the norm of a row of the embedding
PROMPT="Large language models are"
run outliers q4 -o o --tokens 12 --at 3 --layer 0 --site qkv --json
ok "outliers succeeds, got $rc" test "$rc" = 0
jq .results.outliers out >outliers.json
run generate q4 --prompt "$PROMPT" --max-tokens 12 --greedy --ignore-eos --act f32 --json
row=$(jq '.tokens[2]' out)
# shellcheck disable=SC2046 # words
"$RESIDUALS" curve $(jq -s -r --argjson row "$row" 'map({(.name): .}) | add | .["model.embed_tokens.weight"] as $e |
    .["model.layers.0.input_layernorm.weight"] as $g | "\($e.file) \($e.from + $row * $e.bytes / $e.shape[0]) \($e.dtype) \($g.from) \($g.dtype) \($e.shape[1])"' demo) \
    "$(jq .rms_norm_eps "$ROOT/configs/demo/config.json")" 4 "$FILE" $(for l in q k v; do part model.layers.0.self_attn.${l}_proj; done) >want.json
ok "outliers: magnitudes and errors" near '.sites[0]' 1e-4 1e-12 want.json outliers.json
ok "outliers: all channels at random are all channels" json --slurpfile w want.json '.sites[0] | .random[64] == 0 and .sorted[64] == 0 and
    (.random[0] / $w[0].sorted[0] - 1 | fabs) < 1e-4' outliers.json
ok "outliers: what halves an error" json '.sites | length == 4 and all(.[]; . as $s | all("sorted", "random"; . as $way |
    $s["half_" + .] == ($s[$way] | [(.[0] / 2) as $half | to_entries[] | select(.value <= $half).key] | min / 64)))' outliers.json
meansq=$(jq -r 'select(.name == "model.layers.0.attn_in.meansq").from' kept)
od -A n -t f4 -v -w4 -j "$meansq" -N 1024 "$FILE" | jq -s '[to_entries | sort_by(-.value, .key)[:13][].key]' >fixed
ok "outliers: often, again and recall, from the lists" json --slurpfile fixed fixed '.large as $l | .count == (256 * .share / 100 | ceil) and
    ($l | length) == 12 and all($l[]; length == 13) and
    .often == ([$l[][]] | group_by(.) | map(select(2 * length >= 12)) | length) and
    ([range(1; 12) as $i | $l[$i] - ($l[$i] - $l[$i - 1]) | length] | add / 13 / 11) as $again |
    ([$l[] | . - (. - $fixed[0]) | length] | add / 13 / 12) as $recall |
    (.again - $again | fabs) < 1e-9 and (.recall - $recall | fabs) < 1e-9' outliers.json

# ---- tune: from the table of times, and what was lost from the file
run tune q4 -o t --slower 30 --repeats 2 --json
ok "tune succeeds, got $rc" test "$rc" = 0
jq .results.tune out >tune.json
cat >tune.jq <<'JQ'
def sum: reduce .[] as $x (0; . + $x);
def close($a; $b): ($a - $b | fabs) <= 1e-6 * ($b | fabs);
$t[0] as $t | . as $r | ($t.modules | map(.base_ms) | sum) as $base | ($base * 1.3 * (1 + 1e-9)) as $limit |
def at($k): [range(4) as $i | if $k[$i] == 0 then $t.modules[$i].base_ms else $t.modules[$i].ms[0][$k[$i]] end] | sum;
[$r.modules[].k] as $k | ($r.modules | map(.name)) == ($t.modules | map(.name)) and ($k | add) > 0 and
close($r.base_ms; $base) and close($r.ms; at($k)) and close($r.slower; ([at($k) / $base - 1, 0] | max)) and at($k) <= $limit and
# one more of any does not fit
all(range(4); . as $i | $k[$i] == 1024 or $k[$i] == 0 or at($k | .[$i] += 1) > $limit) and
# the first k that all may have, behind which the next is too long
([range(4) | select($k[.] > 0)] as $in | [range(1; 1025)] | map(. as $n | select(at([range(4) | if $k[.] > 0 then $n else 0 end]) > $limit)) |
    min // 1025) - 1 == $r.common and
close($r.knee; 1024 * $t.bits / 4 * $t.host_gbps / $t.device_gbps)
JQ
ok "tune: k, times, slow-down and knee" json --slurpfile t t/dec-profile.json -f tune.jq tune.json
jq -r 'select(.name | test("_in[.]lost$")) | "\(.name) \(.from) \(.bytes)"' kept | while read -r name from bytes; do
    od -A n -t f4 -v -w4 -j "$from" -N "$bytes" "$FILE" | jq -s --arg n "$name" '{site: ($n | capture("[.](?<s>[a-z]+)_in[.]lost").s), v: .}'
done | jq -s . >lost
ok "tune: all sites" json 'length == 24' lost
ok "tune: the share that stays lost" json --slurpfile r tune.json '. as $all | ($r[0].modules | map({(.name): .k}) | add) as $k |
    ([$all[].v[]] | add) as $was | [$all[] | $k[{attn: "qkv", o: "o", ffn: "gate_up", down: "down"}[.site]] as $n |
        (.v | sort | reverse)[($n * (.v | length) / 1024 | floor):][]] | add as $left | ($left / $was - $r[0].lost | fabs) < 1e-6' lost
finish
