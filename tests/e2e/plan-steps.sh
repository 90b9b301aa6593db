#!/bin/bash
# tests/e2e/plan-steps.sh TESSERA - plans in jobs: where they are written, and the steps that execute them.
# shellcheck source=tests/e2e/plan-lib.sh
. "$(dirname "$0")/plan-lib.sh"

run plan job.yaml -o p.yaml
# ---- without -o: the job's folder, where a later run is welcome
mkdir "$WORK/home"
(cd "$WORK/home" && "$TESSERA" plan ../job.yaml -q >/dev/null 2>&1)
ok "the plan is in the job's folder" cmp -s <(grep -v seconds "$WORK/p.yaml") <(grep -v seconds "$WORK/home/out/job/plan.yaml")
(cd "$WORK/home" && "$TESSERA" run ../job.yaml -q >/dev/null 2>&1)
ok "the step runs there" json '.results.plan.format == "tessera.planning/1"' "$WORK/home/out/job/results.json"
rc=0
cp "$WORK/home/out/job/plan.yaml" "$WORK/home/ran.yaml"
(cd "$WORK/home" && "$TESSERA" plan ../job.yaml --front --json) >"$WORK/out" 2>/dev/null || rc=$?
ok "a plan after the run is shown, got $rc" test "$rc" = 0
ok "with its front, and no file" json '(.points | length) > 0 and (has("file") | not)' "$WORK/out"
(cd "$WORK/home" && "$TESSERA" plan ../job.yaml) >/dev/null 2>"$WORK/err" || rc=$?
ok "it says how to write it, got $rc" grep -q '^tessera: out/job .*-o' "$WORK/err"
ok "the run's plan is not written over" cmp "$WORK/home/ran.yaml" "$WORK/home/out/job/plan.yaml"

# ---- planned and packed in one job
{
    job 8 'to: mine.yaml'
    echo '  - quantize: {plan: mine.yaml}'
} >"$WORK/both.yaml"
run config check both.yaml
ok "a plan that is not written yet is no mistake, got $rc" test "$rc" = 0
run run both.yaml --out both
ok "plan, then quantize, got $rc" test "$rc" = 0
ok "packed as planned" json '.results.plan.plan.bits as $b | all(.results.quantize.linears[] | select(.plugin == "rtn");
    ($b[.name | split(".")[2] | tonumber] | split("-")[1] | tonumber) as $bits |
    .bits_per_weight >= $bits and .bits_per_weight < $bits + 2)' "$WORK/both/results.json"

# ---- planned and run without a step that packs: what is packed while it is loaded needs no statistics
sed 's/use: rtn, //' "$WORK/job.yaml" >"$WORK/direct.yaml"
run config show direct.yaml
ok "a plan alone is for gptq, got $rc" grep -q '^ *use: "gptq"' "$WORK/out"
echo '  - run: {input: none.jsonl, output: answers.jsonl}' >>"$WORK/direct.yaml"
printf '{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 2}}\n' >"$WORK/none.jsonl"
run run direct.yaml --out direct
ok "a batch follows its plan, got $rc" test "$rc" = 0
ok "with the quantizer that needs none" grep -q 'use: rtn' "$WORK/direct/plan.yaml"
ok "and answers" test "$(grep -c '"status_code":200' "$WORK/direct/answers.jsonl")" = 1
sed -i 's/  - run:/  - quantize: {plan: plan.yaml}\n&/' "$WORK/direct.yaml"
run config show direct.yaml
ok "with a step that packs it is gptq" grep -q '^ *use: "gptq"' "$WORK/out"
fails_with "a limit that no candidate can have, before anything runs" 2 '*' 'no candidate has 4 bits' plan job.yaml --set 'plan.bits=[3, 8]' -o none.yaml
fails_with "one that is named" 2 '*' 'no candidate has 5 bits' plan job.yaml --set plan.quality.at_least=uniform-5 -o none.yaml

finish
