#!/bin/bash
# tests/e2e/papers.sh TESSERA - the jobs of the papers' tables are valid, and one table is predicted as
# docs/lab/papers.md has it.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

jobs=$(jq -r '[.rows[].job] | unique[]' "$ROOT/configs/papers/printed.json")
for job in $jobs; do
    run config check "$ROOT/configs/papers/$job.yaml"
    ok "$job is a valid job, got $rc" test "$rc" = 0
done
for file in "$ROOT"/configs/papers/qdec/*.yaml; do
    run config check "$file"
    ok "$(basename "$file") is a valid job, got $rc" test "$rc" = 0
done
for file in "$ROOT"/configs/papers/qdec/figures-*.yaml; do
    fails "$(basename "$file"), another model" 2 "*/$(basename "$file"):*" \
        run "$file" --set "model=$STORIES" --out other
done
for file in "$ROOT"/configs/papers/*.yaml; do
    ok "$(basename "$file") belongs to a row" grep -qxF "$(basename "$file" .yaml)" <<<"$jobs"
done

rc=0
TESSERA=$TESSERA "$ROOT/tools/papers" -o "$WORK/papers" "Table 5" >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "the tool runs, got $rc" test "$rc" = 0
ok "three clusters, their schemes in the printed order" \
    json '.orders == {rows: 3, equal: 3} and (.rows | length) == 3' "$WORK/papers/results.json"
# the profiles of these devices hold measured layers of these kernels; 2 is what the worst row is off by.  Rows of 8 bits on
# cluster 11 are printed at three times what the authors' runtime printed for the same plan, 22.6 tokens/s
# (tests/golden/planner/authors/runs.json, fa78d0b818 with 100 tokens), which is the oracle there
ok "no prediction is off by more than twice" json '[.rows[] | . as $r | .compared[] |
    select($r.job != "llmpq-11" or . == "uniform") | $r.predicted[.] / $r.printed[.]] |
    length == 7 and all(.[]; . > 0.5 and . < 2)' "$WORK/papers/results.json"
ok "8 bits on cluster 11 are as in the authors' run, within 10 %" json '.rows[] | select(.job == "llmpq-11") |
    .predicted.pipeedge / 22.6 | . > 0.9 and . < 1.1' "$WORK/papers/results.json"
ok "ours is not below theirs" json 'all(.rows[]; .predicted.tessera >= .predicted["llm-pq"] * (1 - 1e-4))' \
    "$WORK/papers/results.json"
ok "the table is in the manual as it is printed" bash -c 'grep -F "| cluster 1" "$1" |
    grep -v "^| cluster [0-9]* |" | cut -d "|" -f 1-7 >"$1.rows" && [ "$(wc -l <"$1.rows")" -ge 9 ] &&
    while IFS= read -r row; do grep -qF "$row" "$2" || exit 1; done <"$1.rows"' _ "$WORK/out" \
    "$ROOT/docs/lab/papers.md"

# a width for each node, and no narrower
run plan "$ROOT/configs/papers/splitquant-10.yaml" --min-tp 4 --baselines none -o plan.yaml --json
ok "one mesh of four, got $rc" json '[.plan.stages[].tp] == [4] and
    (.widths_left_out | contains("tp 2 of A100-40G-marlin: narrower than the job allows"))' "$WORK/out"
finish
