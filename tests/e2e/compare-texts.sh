#!/bin/bash
# tests/e2e/compare-texts.sh TESSERA - several texts in one comparison: each has the numbers of a comparison on it alone, and
# all together those of their tokens.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
head -c 20000 "$ROOT/configs/demo/held-out.txt" >"$WORK/first.txt"
tail -c 20000 "$ROOT/configs/demo/held-out.txt" >"$WORK/last.txt"
cat >"$WORK/both.yaml" <<JOB
version: 1
model: $STORIES
arms: {two: {quantize: {use: rtn, bits: 2, group: 32}}, four: {quantize: {use: rtn, bits: 4, group: 32}}}
pairs: [[two, four]]
measure: {perplexity: {protocol: llamacpp-512, window: 64, max_windows: 5}, text: [first.txt, last.txt]}
JOB
run compare both.yaml --out both
ok "two texts, got $rc" test "$rc" = 0
ok "the table has a verdict of each" test "$(grep -cE '^(two|four) +(first|last)\.txt: ' "$WORK/out")" = 4
for name in first last; do
    sed "s/max_windows: 5}, text: .*/max_windows: 5, text: $name.txt}}/" "$WORK/both.yaml" >"$WORK/$name.yaml"
    run compare "$name.yaml" --out "$name"
    ok "$name alone, got $rc" test "$rc" = 0
    ok "$name: differences, divergences and pairs are those of a comparison on it alone" json --arg text "$name.txt" \
        --slurpfile one "$WORK/$name/results.json" 'def of: [.delta.mean, .delta.se, .delta.p, .kl.mean, .kl_delta.mean, .kl_delta.p];
        .results.compare as $all | $one[0].results.compare as $one |
        [$all.arms[1:][], $all.pairs[] | .texts[] | select(.text == $text) | of] == [$one.arms[1:][], $one.pairs[] | of]
        and ([$all.arms[1].texts[] | select(.text == $text) | .text_hash] == [$one.perplexity_of.text_hash])' "$WORK/both/results.json"
done
ok "all together: the mean over the tokens of both" json '.results.compare | all(.arms[1:][], .pairs[]; .delta as $d |
    (([.texts[].delta | .mean * .n] | add) / $d.n - $d.mean | fabs) < 1e-12 and ([.texts[].delta.n] | add) == $d.n and $d.windows == 10)' "$WORK/both/results.json"
# four tests of arms, sorted, times those that are left, and never falling; two of the pair
ok "corrected over arms and texts" json 'def holm: length as $n | [to_entries | sort_by(.value.p) | to_entries[] | {at: .value.key, v: ([.value.value.p * ($n - .key), 1] | min)}] |
    [foreach .[] as $e (0; [., $e.v] | max; {at: $e.at, v: .})] | sort_by(.at) | map(.v);
    .results.compare | [[.arms[1:][].texts[].delta], [.pairs[].texts[].delta], [.pairs[].texts[].kl_delta]] | map(length) == [4, 2, 2] and
    all(.[]; [holm, map(.p_holm)] | transpose | all(.[0] - .[1] | fabs < 1e-12))' "$WORK/both/results.json"
run compare both.yaml --out layers --by-layers 2
ok "by layers, got $rc" test "$rc" = 0
ok "the same numbers" test "$(jq -c '[.results.compare.arms[].texts]' "$WORK/layers/results.json")" = "$(jq -c '[.results.compare.arms[].texts]' "$WORK/both/results.json")"

sed 's/perplexity: {/perplexity: {text: first.txt, /' "$WORK/both.yaml" >"$WORK/twice.yaml"
fails "a text in both places" 2 'twice.yaml:5:*' compare twice.yaml --out no
sed 's/, text: .*/}/' "$WORK/both.yaml" >"$WORK/none.yaml"
fails "no text" 2 'none.yaml:5:*' compare none.yaml --out no
sed 's/first.txt, last.txt/first.txt, lost.txt/' "$WORK/both.yaml" >"$WORK/lost.yaml"
fails "a text that is not there" 2 'lost.yaml:5:*' compare lost.yaml --out no
sed 's/, last.txt//' "$WORK/both.yaml" >"$WORK/single.yaml"
fails "a list of one" 2 'single.yaml:5:*' compare single.yaml --out no
finish
