#!/bin/bash
# tests/e2e/figures-outliers.sh TESSERA FIGURES FORWARD - what outliers prints, computed again from the inputs of a forward pass of
# its own (forward.c), from residuals in the file, and from the lists that are printed.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FORWARD=$(readlink -f "$3")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
PROMPT="Large language models are"
compensated 0
token_ids q4 "$PROMPT" >ids
FIRST=$(wc -l <ids)
run generate q4 --prompt "$PROMPT" --max-tokens 12 --greedy --ignore-eos --act f32 --json
jq '.tokens[]' out >>ids
ok "twelve tokens behind a prompt" test "$(wc -l <ids)" = $((FIRST + 12))

# outliers LAYER SITE NUMBER TENSOR COUNT: of the input SITE, NUMBER in their order, COUNT channels being large
outliers() {
    local name="layer $1, $2" from
    run outliers q4 -o o --tokens 12 --at 3 --layer "$1" --site "$2" --seed 5 --json
    ok "$name: outliers succeeds, got $rc" test "$rc" = 0
    rm -rf o
    jq .results.outliers out >got.json
    "$FORWARD" outliers model ids "$FIRST" "$1" 3 "$3" "$5" 5 >want.json
    # inputs in F32 are off by up to 1e-6 of the largest (of some units), so the smallest ones, which the last errors of a curve are
    # made of, by some 1e-4 of themselves
    jq '{sites: [.sites[] | {inputs, magnitude}]}' want.json >magnitudes.json
    jq '{sites: [.sites[] | {sorted, random}]}' want.json >errors.json
    ok "$name: magnitudes" near . 1e-6 3e-6 magnitudes.json got.json
    ok "$name: errors" near . 1e-3 1e-13 errors.json got.json
    ok "$name: points" json '.sites | length == 4 and all(.[]; . as $s | .channels == [range(65) | . * $s.inputs / 64])' got.json
    ok "$name: the largest, but those at the border" json --slurpfile w want.json --argjson n "$5" '.large as $l | $w[0].large as $w | .count == $n and
        ($l | length) == 12 and ($w | length) == 12 and all(range(12); . as $i | ($l[$i] | length) == $n and
            ($w[$i].must - $l[$i] | length) == 0 and ($l[$i] - $w[$i].may | length) == 0 and
            ($w[$i].may | length) <= ($w[$i].must | length) + 2)' got.json
    ok "$name: what halves an error" json '.sites | all(.[]; . as $s | all("sorted", "random"; . as $way |
        $s["half_" + .] == ($s[$way] | [(.[0] / 2) as $half | to_entries[] | select(.value <= $half).key] | min / 64)))' got.json
    from=$(jq -r --arg n "model.layers.$1.$4.meansq" 'select(.name == $n) | "-j \(.from) -N \(.bytes)"' kept)
    # shellcheck disable=SC2086 # words
    od -A n -t f4 -v -w4 $from q4/compensation.safetensors | jq -s --argjson n "$5" '[to_entries | sort_by(-.value, .key)[:$n][].key]' >fixed
    ok "$name: often, again and recall, from the lists" json --slurpfile fixed fixed --argjson n "$5" '.large as $l |
        .often == ([$l[][]] | group_by(.) | map(select(2 * length >= 12)) | length) and
        ([range(1; 12) as $i | $l[$i] - ($l[$i] - $l[$i - 1]) | length] | add / $n / 11) as $again |
        ([$l[] | . - (. - $fixed[0]) | length] | add / $n / 12) as $recall |
        (.again - $again | fabs) < 1e-9 and (.recall - $recall | fabs) < 1e-9' got.json
}
# 5 % of 256 and of 512 channels, rounded up
outliers 0 qkv 0 attn_in 13
outliers 3 o 1 o_in 13
outliers 5 gate_up 2 ffn_in 13
outliers 5 down 3 down_in 26
finish
