#!/bin/bash
# tests/e2e/compare-sizes.sh TESSERA - sizes and speeds in comparisons: bytes as stored and in memory, where bits per weight go,
# remarks on schemes whose bits are above those that they name, and pairs that say which arm is smaller and faster.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

cat >"$WORK/c.yaml" <<JOB
version: 1
model: "@demo"
arms:
  tables: {quantize: {use: squeeze, bits: 3, sensitivity: none}}
  plain: {quantize: {use: rtn, bits: 3, group: 128}}
  short: {quantize: {use: rtn, bits: 4, group: 32}}
  again: {quantize: {use: rtn, bits: 3, group: 128}}
  mixed: {quantize: {use: rtn, bits: 3, group: 128, rules: [{tensors: "*.down_proj", bits: 8}]}}
  partly: {quantize: {use: rtn, bits: 4, group: 128, rules: [{layers: 0, keep: true}]}}
  digits: {quantize: {use: nvfp4}}
measure:
  perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 2}
  speed: {prompt: 8, generate: 8, repeats: 5}
pairs: [[plain, short], [partly, plain], [again, plain]]
JOB
run compare c.yaml --out c
ok "a comparison, got $rc" test "$rc" = 0
results=$WORK/c/results.json
cp "$WORK/out" "$WORK/table"
arms='.results.compare.arms | map({(.name): .}) | add |'
ok "parts add up to the bits per weight" json '.results.compare.arms | length == 8 and
    all(.[]; . as $a | .bits_of | .codes + .scales + .tables + .order + .unpacked - $a.bits_per_weight | fabs < 1e-9)' "$results"
# from shapes: the demo model's rows have 192 columns, those of down_proj 512
q=$(jq "[$arms .tables.layer_bits | .[]] | add / length" "$results")
ok "a table of 8 F16 values for each row: 128/192 and 128/512 bits" json --argjson q "$q" "$arms .tables.bits_of |
    .codes == 3 and .scales == 0 and .tables > 128 / 512 and .tables < 128 / 192 and (\$q - 3 - .tables | fabs) < 1e-9" "$results"
ok "tables on short rows: a remark" json "$arms .tables | .remark | contains(\"names 3: codes 3.00, tables\")" "$results"
ok "rules for some tensors: a remark" json "$arms .mixed.remark | contains(\"names 3: codes \")" "$results"
ok "kept layers: a remark" json "$arms .partly.remark | contains(\"names 4: \") and contains(\"unpacked weights\")" "$results"
# a zero point and a scale of each group are what a name does not say
ok "others have none, whatever their groups" json "$arms [.original, .plain, .short, .digits] | all(has(\"remark\") | not)" "$results"
ok "digits of a quantizer's name count" json "$arms .digits.bits_of.named == 4 and .original.bits_of.named == null" "$results"
for arm in tables mixed partly; do
    ok "the table has the remark of $arm" grep -qF "'$arm': $(jq -r "$arms .$arm.remark" "$results")" "$WORK/table"
done
ok "and three of them" test "$(grep -c ' bits per weight, but the scheme names ' "$WORK/table")" = 3
grouped() { jq -r "$arms $1 | tostring | [match(\".{1,3}(?=(.{3})*\$)\"; \"g\").string] | join(\",\")" "$results"; }
ok "the table has both sizes" grep -qE "^plain +3\.24 +$(grouped .plain.bytes) +$(grouped .plain.resident_bytes) " "$WORK/table"

# pairs: from the arms' own figures
cat >"$WORK/pair.jq" <<'JQ'
def median: sort | .[(length - 1) / 2];
.results.compare | (.arms | map({(.name): .}) | add) as $arms | all(.pairs[];
    . as $p | $arms[.arm] as $a | $arms[.against] as $b |
    (.size_ratio - $a.bytes / $b.bytes | fabs) < 1e-12 and
    ([range(5) as $i | $a.speed.decode_runs[$i] / $b.speed.decode_runs[$i]] | median) as $m |
    ($m / $p.speed.decode_ratio.median - 1 | fabs) < 1e-9 and
    (.speed.decode_ratio | .low <= .median and .median <= .high) and
    (if .speed.decode_ratio.low > 1 then "faster" elif .speed.decode_ratio.high < 1 then "slower" else "alike" end) == .verdict.speed and
    (.verdict.text | contains("decode x")) == (.verdict.speed != "alike"))
JQ
ok "ratios of pairs are those of the figures" json -f "$WORK/pair.jq" "$results"
ok "a pair says how much smaller" json '.results.compare | (.arms | map({(.name): .bytes}) | add) as $b | .pairs[0].verdict |
    .size == "smaller" and ((.text | capture("(?<x>[0-9.]+) % smaller").x | tonumber) - 100 * (1 - $b.plain / $b.short) | fabs) < 0.05' "$results"
ok "or larger" json '.results.compare.pairs[1].verdict | .size == "larger" and (.text | test("[0-9] % larger"))' "$results"
ok "and nothing of equal sizes" json '.results.compare.pairs[2] | .size_ratio == 1 and .verdict.size == "alike" and
    (.verdict.text | test("smaller|larger") | not)' "$results"
ok "the table says it" grep -qE '^plain against short  .*% smaller' "$WORK/table"

# without a text, speed alone decides
sed '/perplexity:/d; s/^pairs:.*/pairs: [[plain, short]]/' "$WORK/c.yaml" >"$WORK/s.yaml"
run compare s.yaml --out s
ok "speed alone, got $rc" test "$rc" = 0
ok "a pair has its size and speed" json '.results.compare.pairs[0] | (has("failed") | not) and .verdict.size == "smaller" and
    (.verdict.speed | IN("faster", "slower", "alike"))' "$WORK/s/results.json"

page=$WORK/c/report.html
ok "the report has both sizes" grep -qE 'bytes<br>stored</th><th>bytes in<br>memory' "$page"
ok "and the remarks" test "$(grep -o 'bits per weight, but the scheme names' "$page" | wc -l)" = 3
ok "and what pairs say" grep -q '% smaller' "$page"
finish
