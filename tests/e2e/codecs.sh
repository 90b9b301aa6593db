#!/bin/bash
# tests/e2e/codecs.sh TESSERA - simulated ranks, calibrated codecs and their files, the search for a
# codec, as a user calls them.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
TEXT=$DEMO/held-out.txt

run eval "$DEMO" --text "$TEXT" --window 64 --max-windows 2 --against "$DEMO" --simulate-tp 4 --json
ok "exact sums of 4 ranks change no logit" json '.kl.max == 0 and .top1 == 1 and .simulated.exact' "$WORK/out"
run eval "$DEMO" --text "$TEXT" --window 64 --max-windows 2 --against "$DEMO" --simulate-tp 2 --codec mx:scale_bits=5 --json
ok "a codec does" json '.kl.mean > 0 and .simulated.bits == 4.15625 and (.simulated.exact | not)' "$WORK/out"
fails "a codec without ranks" 2 '--codec mx:1:6' eval "$DEMO" --text "$TEXT" --codec mx
fails "an unknown codec" 2 '--codec mxx:1:6' eval "$DEMO" --text "$TEXT" --simulate-tp 2 --codec mxx
fails "a codec that is not calibrated" 2 '--codec int4_bf16:1:6' eval "$DEMO" --text "$TEXT" --simulate-tp 2 --codec int4_bf16

cat >"$WORK/job.yaml" <<EOF
version: 1
model: $DEMO
pipeline:
  - quantize: {use: rtn, group: 32}
  - calibrate: {text: $DEMO/calibration.txt, samples: 3, seqlen: 32, codecs: {use: [int4_bf16], tp: 4}}
  - eval: {text: $TEXT, window: 64, max_windows: 2, simulate_tp: 4, codec: int4_bf16}
EOF
run run job.yaml --out job
ok "a job calibrates a codec and measures with it" test "$rc" = 0
ok "on the packed weights, at their bits" json \
    '.results.eval | .quantized and .simulated.ranks == 4 and .simulated.bits == 4.1875' "$WORK/job/results.json"
file=$(echo "$WORK"/job/codecs/int4_bf16-4-all-gather-*.safetensors)
ok "the calibration is kept" test -s "$file"
rc=0
"$ROOT/tools/papers-ranges" "$file" >"$WORK/ranges" 2>&1 || rc=$?
ok "its ranges are sorted, a line for each feature, got $rc" awk 'NR == 1 { next }
    NR == 2 && ($2 != 1 || $3 != 1) { exit 1 }
    NR > 2 && !($2 > 0 && $2 <= a && $3 > 0 && $3 <= f) { exit 1 }
    { a = $2; f = $3; n++ } END { if (n != 256) exit 1 }' "$WORK/ranges"
fails "and refused for the original weights" 2 '*/job/codecs/int4_bf16-4-all-gather-*.safetensors' \
    eval "$DEMO" --text "$TEXT" --simulate-tp 4 --codec int4_bf16 --codec-state "$file"
sed -i '/quantize:/d' "$WORK/job.yaml"
run run job.yaml --out plain
file=$(echo "$WORK"/plain/codecs/int4_bf16-4-all-gather-*.safetensors)
run eval "$DEMO" --text "$TEXT" --window 64 --max-windows 2 --simulate-tp 4 --codec int4_bf16 --codec-state "$file" --json
ok "a call takes the file of a job, with its numbers" json \
    ".perplexity == $(jq .results.eval.perplexity "$WORK/plain/results.json")" "$WORK/out"
fails "another width is refused" 2 '*/plain/codecs/int4_bf16-4-all-gather-*.safetensors' \
    eval "$DEMO" --text "$TEXT" --simulate-tp 2 --codec int4_bf16 --codec-state "$file"

cat >"$WORK/arms.yaml" <<EOF
version: 1
model: $DEMO
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 3, seqlen: 32}
  - compare:
      arms:
        exact: {simulate_tp: 2}
        fp3: {simulate_tp: 2, codec: "mx:element=fp3_e1m1"}
        kept: {simulate_tp: 2, codec: int4_bf16}
        both: {quantize: {use: rtn, group: 32}, simulate_tp: 2, codec: mx}
      measure: {perplexity: {text: $TEXT, window: 64, max_windows: 2}, kl: true}
EOF
run run arms.yaml --out arms
ok "arms of a comparison simulate ranks" json '.results.compare.arms |
    (.[] | select(.name == "exact") | .kl.max == 0 and .kind == "codec") and
    (.[] | select(.name == "fp3") | .kl.mean > 0 and .simulated.bits == 3.25) and
    (.[] | select(.name == "kept") | .kl.mean > 0) and
    (.[] | select(.name == "both") | .kind == "quantize" and .simulated.ranks == 2)' "$WORK/arms/results.json"
sed -i 's/codec: mx}/codek: mx}/' "$WORK/arms.yaml"
fails "a misspelt key of an arm" 2 'arms.yaml:10:65' run arms.yaml --out arms2

# the rule of the MX paper on its own Table 1 gives its Table 2
run search-codec --table "$ROOT/configs/papers/mx-table1.json" --json
ok "Table 1 of the paper gives its Table 2" json '[.[] | .codec | capture("element=(?<e>[a-z0-9_]+),block=(?<b>[0-9]+)") | .e + " " + .b] ==
    ["fp4_e2m1 8", "fp5_e2m2 32", "fp5_e2m2 32", "fp4_e2m1 32", "fp4_e2m1 32", "fp4_e2m1 8", "fp5_e2m2 32"]' "$WORK/out"
run search-codec "$DEMO" --choose "$DEMO/calibration.txt" --confirm "$TEXT" --window 64 --max-windows 2 --codec mx:element=fp3_e1m1 --codec mx:element=fp8_e4m3 --codec plain:dtype=bf16 --json
ok "a search chooses on one text and confirms on another" json '.chosen == "mx:element=fp8_e4m3" and
    (.candidates | length) == 3 and .confirmed_increase < 3 and .candidates[2].bits == 16' "$WORK/out"
fails "a search without a model" 2 '' search-codec --choose "$TEXT"
echo '{"format": "tessera.codec-table/1", "models": ["a"], "rows": [{"codec": "x", "bits": 4, "increase": []}]}' >"$WORK/bad.json"
fails "a table with a hole" 2 '*/bad.json' search-codec --table "$WORK/bad.json"

# the tables of the papers are jobs without an error
for file in "$ROOT"/configs/papers/comm/*.yaml; do
    run config check "$file"
    ok "$(basename "$file") has no error" test "$rc" = 0
done

finish
