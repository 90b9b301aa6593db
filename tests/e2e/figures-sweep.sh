#!/bin/bash
# tests/e2e/figures-sweep.sh TESSERA FIGURES FORWARD - what sweep prints, computed again: perplexities and trends from logits
# (figures.c), what is selected from a forward pass of its own (forward.c), agreement from answers, slow-downs from times.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
FORWARD=$(readlink -f "$3")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
WINDOW=32 WINDOWS=4 SEED=7
WAYS="dynamic static-meansq static-hessian random"
head -c 1500 "$ROOT/configs/demo/held-out.txt" >held.txt
compensated $SEED "sweep: {text: held.txt, window: $WINDOW, max_windows: $WINDOWS, channels: \"0,32,128\", select: \"${WAYS// /,}\",
      answers: 3, targets: \"60,200\", repeats: 3}"
jq '.results.sweep' job.json >sweep.json
token_ids @demo "$(cat held.txt)" | head -n $((WINDOW * WINDOWS)) >ids
ok "the text is long enough" test "$(wc -l <ids)" = $((WINDOW * WINDOWS))
ok "all points" json '.points | length == 11' sweep.json

# ---- every point from logits
of k0 q4
for way in dynamic static-meansq; do
    for k in 32 128; do
        of "$way-$k" q4 --compensate "$k" --select "$way"
        "$FIGURES" eval "$WINDOW" ids "$way-$k" k0 | jq '{perplexity, mean_nll, delta: (.delta | {mean, low, high, p})}' >want.json
        ok "$way at $k" near ".points[] | select(.select == \"$way\" and .k == $k)" 1e-5 2e-6 want.json sweep.json
    done
    "$FIGURES" trend "$WINDOW" ids k0 "$way-32" "$way-128" >trend.json
    jq '{slope: (.slope | {mean, low, high, p}), steps: [.steps[] | {delta: {mean, low, high, p}}],
        rises: ([.steps[] | select(.mean > 0)] | length), proven: ([.steps[] | select(.low > 0)] | length)}' trend.json >want.json
    ok "trend of $way" near ".trends[] | select(.select == \"$way\")" 1e-5 2e-6 want.json sweep.json
    ok "its verdict" json --arg way "$way" --slurpfile t want.json '.trends[] | select(.select == $way).verdict ==
        (if $t[0].proven > 0 or $t[0].slope.low > 0 then "rises" elif $t[0].slope.high < 0 then "falls" else "open" end)' sweep.json
done
"$FIGURES" eval "$WINDOW" ids k0 | jq '{perplexity, mean_nll}' >want.json
ok "without compensation" near '.points[0]' 1e-6 0 want.json sweep.json
"$FIGURES" eval "$WINDOW" ids dynamic-32 static-meansq-128 | jq '{delta: (.delta | {mean, low, high, p})}' >want.json
ok "dynamic against four times as many" near '.quarter[] | select(.against == "static-meansq")' 1e-5 2e-6 want.json sweep.json
ok "bits a weight and bytes of residuals" json --argjson n "$(jq -s 'map(select(.name | test("[.](residual|scales)$")) | .bytes) | add' kept)" \
    '.host_bytes == $n and .residual_bits == 4 and .bits_per_weight == 4 + 24 / 32' sweep.json

# ---- perplexity and recall from a forward pass of its own
# same MODEL_POINT RELATIVE: perplexity is as that of `forward` to RELATIVE; of the channels that are found, only as many differ as
# lie so near a border that rounding may decide (`close`), which are few.
same() {
    ok "$1: perplexity" json --slurpfile w want.json --argjson r "$2" ".points[] | select($1) |
        "'(.mean_nll / $w[0].mean_nll - 1 | fabs) <= $r and (.perplexity / ($w[0].mean_nll | exp) - 1 | fabs) <= 5 * $r' sweep.json
    ok "$1: recall" json --slurpfile w want.json ".points[] | select($1) |"'$w[0] as $w |
        $w.exact > 10000 and $w.close < 0.002 * $w.exact and (.recall * $w.exact - $w.common | fabs) <= $w.close + 1e-6' sweep.json
}
# point WAY K RELATIVE
point() {
    "$FORWARD" sweep model "$WINDOW" ids "$1" "$2" "$2" "$2" "$2" $SEED >want.json
    same ".select == \"$1\" and .k == $2" "$3"
}
# where magnitudes decide, one channel on the other side of a border moves a likelihood by some 1e-5
point dynamic 32 1e-4
point dynamic 128 1e-4
point static-meansq 128 1e-6
point static-hessian 32 1e-6
point random 32 1e-6

# ---- targets: channels from the table of times, slow-downs from times that are printed beside them
for target in 60 200; do
    ok "target $target: channels and times" json --argjson target $target --slurpfile t job/sweep-profile.json "$TIMES"' $t[0] as $t |
        .points[] | select(.target == $target) | [.channels[$t.modules[].name]] as $k | most($t; $k; $target) and
        close(.base_ms; at($t; [0, 0, 0, 0])) and close(.ms; at($t; $k)) and .slower == .ms / .base_ms - 1 and
        .decode_slower == .decode_ms / .decode_base_ms - 1' sweep.json
done
# What is chosen follows this machine's times, and so does how many channels lie on a border: the perplexity is held by logits of
# the same channels, and by the other forward pass only to within the few channels on which rounding decides.
jq -r --slurpfile config "$ROOT/configs/demo/config.json" '($config[0].num_hidden_layers) as $n |
    .points[] | select(.target == 60).channels | "format: tessera.plan/1", "layers: \($n)", "stages:", "  - layers: 0-\($n - 1)",
    "    schemes: [{layers: 0-\($n - 1), bits: 4}]", "    compensation: [{tensors: \"*self_attn.[qkv]_proj\", k: \(.qkv)}," +
    " {tensors: \"*o_proj\", k: \(.o)}, {tensors: \"*mlp.[gu]*\", k: \(.gate_up)}, {tensors: \"*down_proj\", k: \(.down)}]"' \
    sweep.json >chosen.yaml
of target-60 q4 --compensate-plan chosen.yaml
"$FIGURES" eval "$WINDOW" ids target-60 k0 | jq '{perplexity, mean_nll, delta: (.delta | {mean, low, high, p})}' >want.json
ok "target 60: from logits" near '.points[] | select(.target == 60)' 1e-5 2e-6 want.json sweep.json
# shellcheck disable=SC2046 # words
"$FORWARD" sweep model "$WINDOW" ids dynamic $(jq -r '.points[] | select(.target == 60).channels | "\(.qkv) \(.o) \(.gate_up) \(.down)"' sweep.json) \
    $SEED >want.json
same ".target == 60" 1e-3
ok "a token without compensation" json '[.points[].decode_base_ms // empty] as $l | ($l | length) == 2 and .decode_ms == ($l | min)' sweep.json

# ---- answers: 32 tokens behind each of three prompts of 32; the original reads the same and ranks them
# answers NAME OPTION...: which of them it ranks first into NAME
answers() {
    local name=$1 i
    shift
    for i in 0 1 2; do
        tail -n +$(((WINDOW * WINDOWS - 32) * i / 3 + 1)) ids | head -n 32 >said
        run generate q4 --tokens "$(paste -sd, said)" --max-tokens 32 --greedy --ignore-eos --act f32 --json "$@"
        jq '.tokens[]' out >>said
        run logits @demo --tokens "$(paste -sd, said)" -o said.st
        "$FIGURES" agree 32 said said.st
        rm -f said.st
    done >"$name"
}
answers bare
ok "agreement without compensation" json --argjson s "$(jq -s 'add / 96' bare)" '.points[0].agreement == $s' sweep.json
for way in dynamic static-meansq; do
    for k in 32 128; do
        answers with --compensate $k --select "$way"
        "$FIGURES" paired 32 with bare | jq --argjson s "$(jq -s 'add / 96' with)" '{agreement: $s, agreement_delta: {mean, low, high, p}}' >want.json
        ok "agreement of $way at $k" near ".points[] | select(.select == \"$way\" and .k == $k)" 1e-8 1e-9 want.json sweep.json
    done
done
finish
