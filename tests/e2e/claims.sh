#!/bin/bash
# tests/e2e/claims.sh TESSERA [small] - figures beside a comparison, plans from indicators, and the page
# of both.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
demo=$ROOT/configs/demo

# Plans: the statistics alone, so seconds; two of three widths fit 5.5 bits on average.
run indicators "$demo" --text "$demo/calibration.txt" --bits 3,4,8 --budget 5.5 --samples 2 --seqlen 64 \
    --no-measured --no-hessian --out plans --json
ok "indicators succeed" test "$rc" = 0
ok "each indicator has a plan of 5.5 bits or fewer" json \
    '.results.indicators.plans.of | length == 3 and all(.bits | length == 6 and add / 6 <= 5.5)' \
    "$WORK/plans/results.json"
ok "its sum is that of the table" json \
    '.results.indicators | .bits as $w | .tables as $t | [.plans.of[] | . as $p |
     ($t[] | select(.name == $p.name) | .omega) as $o |
     ([$p.bits | to_entries[] | $o[.key][.value as $b | $w | index($b)]] | add) - $p.omega |
     fabs < 1e-9 * ($p.omega + 1)] | all' "$WORK/plans/results.json"
fails "a budget below the narrowest width" 3 '' indicators "$demo" \
    --text "$demo/calibration.txt" --bits 3,4,8 --budget 2 --samples 2 --seqlen 64 --no-measured \
    --no-hessian --out none

# A comparison: 8 bits are better than 2 beyond any doubt, so the claim of the reverse is contradicted.
cat >"$WORK/job.yaml" <<YAML
version: 1
model: $demo
pipeline:
  - quantize: {use: rtn, plan: plans/plan-variance.yaml}
  - compare:
      quantize: {use: rtn, group: 128}
      arms: {w8: {quantize.bits: 8}, w2: {quantize.bits: 2}, last: {quantize.bits: 4, quantize.rules: [{layers: "0%-67%", keep: true}]}}
      pairs: [[w8, w2]]
      measure: {perplexity: {text: $demo/held-out.txt, window: 128, max_windows: 6}}
  - claims:
      source: a paper & its <table>
      paper: {one: {w8: 1.5, w2: 2.5}, two: {w2: 3}}
      order: [[w8, w2], [w2, w8], [original, w2]]
  - report: {html: report.html}
YAML
run run job.yaml --out job
ok "the job succeeds" test "$rc" = 0
ok "the table has the paper's columns" grep -qE '^arm .* one +two$' "$WORK/out"
ok "and its verdicts" grep -qE '^2 of 3 orders hold, 1 contradicted, 0 undecided' "$WORK/out"
ok "the results have them" json '[.results.claims.orders[].verdict] == ["holds", "contradicted", "holds"]' \
    "$WORK/job/results.json"
ok "the page is whole" grep -q '</html>' "$WORK/job/report.html"
ok "with plots" test "$(grep -c '<svg ' "$WORK/job/report.html")" -ge 4
ok "and nothing from elsewhere" test "$(grep -cE 'https?:|src=|@import|url\(' "$WORK/job/report.html" || true)" = 0
ok "names are text" grep -q 'a paper &amp; its &lt;table&gt;' "$WORK/job/report.html"
cp "$WORK/out" "$WORK/first"
run run job.yaml --out job
ok "the second run prints the same tables" test "$(grep -c 'orders hold' "$WORK/out")" = 1

# What cannot be asked.
sed 's/\[w2, w8\]/[w8, last]/' "$WORK/job.yaml" >"$WORK/bad.yaml"
fails "an order that nothing measured" 2 "bad.yaml:10: step 'claims'" run bad.yaml --out bad --json
sed 's/w2: 3/w7: 3/' "$WORK/job.yaml" >"$WORK/bad.yaml"
fails "a figure of no arm" 2 'two' run bad.yaml --out bad2 --json
sed 's/\[w2, w8\]/[w2]/; s/w8: 1.5/w8: much/' "$WORK/job.yaml" >"$WORK/bad.yaml"
run config check bad.yaml --json
ok "what is no order and no number: exit code 2, got $rc" test "$rc" = 2
ok "both at their places, before anything runs" json 'map("\(.line):\(.column)") | . == ["12:25", "13:25"]' "$WORK/out"

# Every comparison of the papers is a job file without an error.
for file in "$ROOT"/configs/ab/*.yaml; do
    run config check "$file"
    ok "$(basename "$file") has no error" test "$rc" = 0
done

finish
