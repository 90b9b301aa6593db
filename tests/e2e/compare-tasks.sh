#!/bin/bash
# tests/e2e/compare-tasks.sh TESSERA - named tasks in a comparison: what each question counts, tests computed
# again from it, corrections, verdicts, conditions, interruption, and what is refused.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
GOLDEN=$ROOT/tests/golden/tasks
arms='.results.compare.arms | map({(.name): .}) | add |'

mkdir -p "$WORK/rows/arc_easy" "$WORK/rows/mmlu" "$WORK/rows/lines" "$WORK/rows/one" "$WORK/rows/order"
cp "$GOLDEN/arc_easy/docs.jsonl" "$WORK/rows/arc_easy/test.jsonl"
cat "$GOLDEN"/mmlu_{anatomy,abstract_algebra,miscellaneous}/docs.jsonl >"$WORK/rows/mmlu/test.jsonl"
grep -m 24 -E '.{60}' "$ROOT/configs/demo/held-out.txt" | jq -cR '{line: .[0:60]}' >"$WORK/rows/lines/test.jsonl"
head -n 1 "$WORK/rows/lines/test.jsonl" >"$WORK/rows/one/test.jsonl"
for name in lines one; do
    printf '%s\n' 'task: tessera.task/1' "name: $name" "data: {name: mine/$name, split: test}" 'text: "{{ line }}"' \
        'metrics: [word_perplexity]' >"$WORK/$name.yaml"
done
# How a line goes on, out of five.  What the original takes counts as right, so that two bits are surely worse.
grep -m 60 -E '.{90}' "$ROOT/configs/demo/held-out.txt" | jq -Rnc '[inputs] as $l | range($l | length) as $i |
    {start: $l[$i][0:40], ends: [$l[$i, $i - 1, $i - 3, $i - 7][40:60], $l[$i - 9][40:63]], right: 0}' >"$WORK/rows/order/test.jsonl"
printf '%s\n' 'task: tessera.task/1' 'name: order' 'data: {name: mine/order, split: test}' 'context: "{{ start }}"' \
    'choices: "{{ ends }}"' 'answer: "{{ right }}"' 'metrics: [acc, acc_norm]' >"$WORK/order.yaml"
run eval @demo --task order.yaml --data rows --log-samples said.jsonl --json
jq -nc --slurpfile said "$WORK/said.jsonl" '[inputs] | to_entries[] | .key as $k | .value * {right:
    ([$said[] | select(.doc == $k) | .loglikelihood] | index(max))}' "$WORK/rows/order/test.jsonl" >"$WORK/right.jsonl"
mv "$WORK/right.jsonl" "$WORK/rows/order/test.jsonl"
cat >"$WORK/ab.yaml" <<JOB
version: 1
model: "@demo"
arms:
  two: {quantize: {use: rtn, bits: 2, group: 32}}
  three: {quantize: {use: rtn, bits: 3, group: 32}}
measure: {tasks: [arc_easy, order.yaml, mmlu, lines.yaml], data: rows}
pairs: [[two, three], [original, two]]
fail_if: ["two.tasks.lines.delta.word_perplexity.low > 0", "two/three.tasks.mmlu.delta.acc.p_holm < 0", "tasks.arc_easy.acc < 0"]
JOB
run compare ab.yaml --out job --json
ok "a condition about a task holds: exit code 5, got $rc" test "$rc" = 5
results=$WORK/job/results.json
ok "it names the arm" json '.results.compare.gate.fail_if | map(.holds) == [true, false, false] and .[0].arm == "two" and .[0].value > 0' "$results"
ok "the original has the harness's accuracy" json --slurpfile g "$GOLDEN/arc_easy/results.json" \
    "$arms .original.tasks.arc_easy.acc - \$g[0].models.demo.metrics.acc | fabs < 1e-9" "$results"
ok "what each question counts stays in the job folder" json '[.. | objects | select(has("outcomes"))] == []' "$results"
ok "and is there" json '.result.tasks | (.arc_easy.outcomes.acc.marks | test("^[01]{12}$")) and (.mmlu.outcomes.groups | unique == [0, 1, 2])
    and (.lines.outcomes.word_perplexity | (.marks | length) == 24 and (.weights | length) == 24)' "$WORK/job/compare/two.json"
ok "prompts are computed once" json "$arms [.[].tasks.arc_easy | .tokens_shared > .tokens_run] | all and length == 3" "$results"

# An arm counts what its model counts alone.
run quantize @demo --use rtn --bits 2 --group 32 -o packed2
run eval packed2 --task arc_easy,order.yaml,mmlu,lines.yaml --data rows --json
ok "as eval finds it" json --slurpfile c "$results" \
    '(.tasks | map_values({acc, acc_norm, word_perplexity, tokens_run, requests})) ==
     ($c[0].results.compare.arms[1].tasks | map_values({acc, acc_norm, word_perplexity, tokens_run, requests}))' "$WORK/out"

# The counts, McNemar's p and the size, from the marks alone.
for pair in "two 1" "three 2"; do
    read -r arm i <<<"$pair"
    for of in arc_easy.acc arc_easy.acc_norm order.acc order.acc_norm mmlu.acc; do
        task=${of%.*} m=${of#*.}
        paste <(jq -r ".result.tasks.$task.outcomes.$m.marks" "$WORK/job/compare/$arm.json" | fold -w1) \
            <(jq -r ".result.tasks.$task.outcomes.$m.marks" "$WORK/job/compare/original.json" | fold -w1) |
            awk -v d="$(jq -r ".results.compare.arms[$i].tasks.$task.delta.$m |
                [.only_arm, .only_reference, .mcnemar_p, .value, .needed] | @tsv" "$results")" '
            { x += $1 > $2; y += $1 < $2 }
            END { split(d, v, "\t"); n = x + y; k = x < y ? x : y; c = 1
                  for (i = 0; i <= k; i++) { s += c; c = c * (n - i) / (i + 1) }
                  p = 2 * s / 2 ^ n; p = p > 1 ? 1 : p; q = n / NR < 0.01 ? 0.01 : n / NR
                  t = ((1.959963984540054 * sqrt(q) + 0.8416212335729143 * sqrt(q - 1e-4)) / 0.01) ^ 2
                  exit !(NR >= 12 && v[1] == x && v[2] == y && (v[3] - p) ^ 2 < 1e-20 &&
                         (v[4] - (x - y) / NR) ^ 2 < 1e-20 && v[5] >= t && v[5] < t + 1) }' && same=0 || same=1
        ok "$arm, $task $m: counts, p and questions are those of the marks" test "$same" = 0
    done
done
ok "an arm that misses what the original has right is worse, and the original better" json "$arms (.original.tasks.order.acc == 1)
    and (.two.tasks.order.delta.acc | .verdict == \"worse\" and .only_arm == 0 and .value < 0 and .high < 0)" "$results"
ok "as a pair" json '.results.compare.pairs[1] | .verdict.tasks == "better" and
    (.tasks.order.delta.acc | .verdict == "better" and .only_reference == 0 and .value > 0 and .low > 0)' "$results"
ok "some questions are answered otherwise" json "$arms .two.tasks.order.delta.acc | .only_arm + .only_reference > 2" "$results"
ok "McNemar's test decides where rows have no groups" json '[.results.compare.arms[1:][].tasks | .arc_easy, .order | .delta[]] |
    all(.test == "mcnemar" and .p == .mcnemar_p and .units >= 12) and length == 8' "$results"
# Three subjects of four questions: the ends of the interval are all questions of the worst and of the best of them.
ok "subjects are what is drawn" json "$arms .original.tasks.mmlu.subject as \$o | .two.tasks.mmlu |
    [.subject | to_entries[] | .value.acc - \$o[.key].acc] as \$d |
    .delta.acc | .test == \"bootstrap\" and .units == 3 and .p == .bootstrap_p and (.p > 0.1)
        and (.low - (\$d | min) | fabs < 1e-12) and (.high - (\$d | max) | fabs < 1e-12)" "$results"
# Holm over both arms: six metrics each, sorted, times those that are left, and never falling.
holm='def holm: length as $n | [to_entries | sort_by(.value.p) | to_entries[] | {at: .value.key, v: ([.value.value.p * ($n - .key), 1] | min)}] |
    [foreach .[] as $e (0; [., $e.v] | max; {at: $e.at, v: .})] | sort_by(.at) | map(.v);'
ok "corrected over arms, tasks and metrics" json "$holm [.results.compare.arms[1:][].tasks[].delta[]] | length == 12 and
    ([(holm), map(.p_holm)] | transpose | all(.[0] - .[1] | fabs < 1e-12))" "$results"
ok "and over the pairs" json "$holm [.results.compare.pairs[].tasks[].delta[]] | length == 12 and
    ([(holm), map(.p_holm)] | transpose | all(.[0] - .[1] | fabs < 1e-12))" "$results"
ok "a pair is the difference of its arms" json '.results.compare | (.arms | map({(.name): .tasks.lines.word_perplexity}) | add) as $v |
    .pairs[0].tasks.lines.delta.word_perplexity.value - ($v.two - $v.three) | fabs < 1e-9' "$results"
ok "two bits are worse at lines, and nothing is better" json "$arms .two | .tasks.lines.delta.word_perplexity.verdict == \"worse\"
    and .verdict.tasks == \"worse\" and (.verdict.text | test(\"worse at order acc.*, lines word_perplexity\"))" "$results"
ok "the same weights are alike" json "$arms .three.tasks.arc_easy.delta[] | select(.only_arm + .only_reference == 0) | .p == 1 and .verdict == \"indistinguishable\" and .needed == 783" "$results"
run run ab.yaml --out job
ok "the table has arms and pairs of every metric" test "$(grep -cE '^  (original|two|three) ' "$WORK/out")" -ge 18 -a "$(grep -cE '^  (two|original) against' "$WORK/out")" = 12
ok "without numbers that are none" test "$(grep -ciE '\bnan\b|\binf\b' "$WORK/out")" = 0

# Perplexities by word and by byte and the bits of one text are one question: they count once, by the largest p.
sed 's/word_perplexity/word_perplexity, byte_perplexity, bits_per_byte/' "$WORK/lines.yaml" >"$WORK/whole.yaml"
sed 's/tasks: .*data/tasks: [whole.yaml, arc_easy], data/; /pairs\|fail_if/d' "$WORK/ab.yaml" >"$WORK/question.yaml"
run compare question.yaml --out question --json
ok "three metrics of a text, got $rc" test "$rc" = 0
ok "are one question of three, the shares two" json "$holm [.results.compare.arms[1:][].tasks |
    ([.[\"lines\"].delta[]] | {n: length, p: (map(.p) | max), p_holm: (map(.p_holm) | unique)}), (.arc_easy.delta[] | {n: 1, p, p_holm: [.p_holm]})] |
    map(.n) == [3, 1, 1, 3, 1, 1] and all(.[]; .p_holm | length == 1) and
    ([(holm), map(.p_holm[0])] | transpose | all(.[0] - .[1] | fabs < 1e-12))" "$WORK/question/results.json"

# The keys of eval: shots, and texts without BOS, as the harness recorded them.
mkdir -p "$WORK/rows/winogrande" "$WORK/rows/wikitext"
cp "$GOLDEN/winogrande-2shot/docs.jsonl" "$WORK/rows/winogrande/validation.jsonl"
cp "$GOLDEN/winogrande-2shot/fewshot.jsonl" "$WORK/rows/winogrande/train.jsonl"
cp "$GOLDEN/wikitext-nobos/docs.jsonl" "$WORK/rows/wikitext/test.jsonl"
cat >"$WORK/page.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - compare:
      arms: {two: {quantize: {use: rtn, bits: 2, group: 32}}}
      measure: {tasks: winogrande, data: rows, shots: 2}
  - compare:
      arms: {two: {quantize: {use: rtn, bits: 2, group: 32}}}
      measure: {tasks: wikitext, data: rows, add_bos: false}
  - report: {html: page.html}
JOB
run run page.yaml --out page
ok "two comparisons and a page, got $rc" test "$rc" = 0
ok "with shots" json --slurpfile g "$GOLDEN/winogrande-2shot/results.json" '.results.compare | (.tasks_of.tasks.winogrande.shots == 2) and
    (.arms[0].tasks.winogrande.acc - $g[0].models.stories260k.metrics.acc | fabs < 1e-9)' "$WORK/page/results.json"
ok "without BOS" json --slurpfile g "$GOLDEN/wikitext-nobos/results.json" '.results["compare[2]"] | (.tasks_of.tasks.wikitext.add_bos == false) and
    (.arms[0].tasks.wikitext.word_perplexity / $g[0].models.stories260k.metrics.word_perplexity - 1 | fabs | . >= 0 and . < 1e-4)' "$WORK/page/results.json"
ok "the report has a row for each metric and arm" test "$(grep -c '<tr><td>winogrande</td><td class="text">acc' "$WORK/page/page.html")" = 2 \
    -a "$(grep -c '<tr><td>wikitext</td>' "$WORK/page/page.html")" = 6

# Interrupted: a finished arm gives its marks to the tests, and one whose file is damaged is run again.
jq .results "$results" >"$WORK/whole.json"
rm "$WORK/job/results.json" "$WORK/job/compare/three.json"
before=$(stat -c %Y.%i "$WORK/job/compare/two.json")
cp -r "$WORK/job" "$WORK/broken"
run compare ab.yaml --out job --json
ok "it goes on: exit code 5, got $rc" test "$rc" = 5
ok "a finished arm is not run again" test "$before" = "$(stat -c %Y.%i "$WORK/job/compare/two.json")"
ok "the numbers are the same" cmp <(jq .results "$WORK/job/results.json") "$WORK/whole.json"
jq '.result.tasks.arc_easy.outcomes.acc.marks |= .[1:]' "$WORK/broken/compare/two.json" >"$WORK/cut.json"
mv "$WORK/cut.json" "$WORK/broken/compare/two.json"
run compare ab.yaml --out broken -v
ok "an arm whose marks are not whole is run anew" grep -q "'two'.*arc_easy" "$WORK/err"
ok "to the same numbers" cmp <(jq .results "$WORK/broken/results.json") "$WORK/whole.json"
sed -i '1s/"question": *"/&A /' "$WORK/rows/arc_easy/test.jsonl"
fails "rows that are others by now" 2 'job' compare ab.yaml --out job
cp "$GOLDEN/arc_easy/docs.jsonl" "$WORK/rows/arc_easy/test.jsonl"

# One document decides nothing.
sed 's/tasks: .*data/tasks: one.yaml, data/; /pairs\|fail_if/d' "$WORK/ab.yaml" >"$WORK/one-question.yaml"
run compare one-question.yaml --out single --json
ok "one document: undecided" json "$arms .two | .verdict.tasks == \"undecided\" and (.tasks.one.delta.word_perplexity | .p == null and .low == null and .needed == null)" \
    "$WORK/single/results.json"

# What is refused, each in a sentence at its place.
with() { sed "s|^$1:.*|$1: $2|" "$WORK/ab.yaml" >"$WORK/bad.yaml"; }
with measure '{tasks: [arc_esy], data: rows}'
sed -i '/fail_if/d' "$WORK/bad.yaml"
fails_with "no such task" 2 'bad.yaml:6:19' 'arc_esy' compare bad.yaml --out bad
with measure '{tasks: [hellaswag], data: rows}'
sed -i '/fail_if/d' "$WORK/bad.yaml"
fails_with "no rows: the sentence names the data set" 2 '*' 'Rowan/hellaswag' compare bad.yaml --out bad
with measure '{tasks: [arc_easy, arc_easy], data: rows}'
sed -i '/fail_if/d' "$WORK/bad.yaml"
fails_with "a task twice" 2 'bad.yaml:6:29' 'arc_easy' compare bad.yaml --out bad
with measure '{perplexity: {text: rows/lines/test.jsonl}, data: rows}'
sed -i '/fail_if/d' "$WORK/bad.yaml"
fails_with "rows without tasks" 2 'bad.yaml:6:10' 'tasks' compare bad.yaml --out bad
with measure '{perplexity: {text: rows/lines/test.jsonl}, add_bos: false}'
sed -i '/fail_if/d' "$WORK/bad.yaml"
fails_with "BOS without tasks" 2 'bad.yaml:6:10' 'add_bos' compare bad.yaml --out bad
for number in tasks.arc_easy.accuracy tasks.arc_easy.delta.acc tasks.arc_easy.delta.acc.mean tasks.arc_easy tasks.piqa.acc \
    two/three.tasks.arc_easy.acc tasks.lines.delta.acc.low; do
    with fail_if "[\"$number > 0\"]"
    fails_with "no such number: $number" 2 'bad.yaml:8:11' "$number" compare bad.yaml --out bad
done
sed 's/^arms:/by_layers: 4\n&/' "$WORK/ab.yaml" >"$WORK/bad.yaml"
fails_with "by layers" 2 '*' 'tasks' compare bad.yaml --out bad
finish
