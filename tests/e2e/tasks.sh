#!/bin/bash
# tests/e2e/tasks.sh TESSERA - named evaluation tasks from the command line and from a job: the metrics that lm-evaluation-harness
# recorded, a task of one's own, rows in a folder and in the hub's cache, and what is refused.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
GOLDEN=$ROOT/tests/golden/tasks
mkdir -p "$WORK/rows/arc_easy" "$WORK/rows/winogrande" "$WORK/rows/mine"
cp "$GOLDEN/arc_easy/docs.jsonl" "$WORK/rows/arc_easy/test.jsonl"
cp "$GOLDEN/winogrande-2shot/docs.jsonl" "$WORK/rows/winogrande/validation.jsonl"
cp "$GOLDEN/winogrande-2shot/fewshot.jsonl" "$WORK/rows/winogrande/train.jsonl"

# as_recorded FOLDER TASK METRIC FILE: equal to 1e-9; of the task anywhere in the file
as_recorded() {
    ok "$2: $3 is the harness's" jq -en --slurpfile a "$4" --slurpfile b "$GOLDEN/$1/results.json" \
        "[\$a[0] | .. | objects | .tasks? | objects | .$2? | objects | .$3][0] as \$got |
         \$b[0].models.demo.metrics.$3 as \$want | \$got != null and (\$got - \$want | . < 1e-9 and . > -1e-9)"
}
run eval @demo --task arc_easy --data rows --log-samples samples.jsonl --json
ok "a task runs, got $rc" test "$rc" = 0
cp "$WORK/out" "$WORK/arc"
for m in acc acc_stderr acc_norm acc_norm_stderr; do
    as_recorded arc_easy arc_easy $m "$WORK/arc"
done
ok "a line for each request" test "$(wc -l <"$WORK/samples.jsonl")" = "$(wc -l <"$GOLDEN/arc_easy/requests.jsonl")"
ok "with the same texts" cmp -s <(jq -c '[.context, .continuation]' "$WORK/samples.jsonl") \
    <(jq -c '[.context, .continuation]' "$GOLDEN/arc_easy/requests.jsonl")
run eval @demo --task winogrande --num-fewshot 2 --data rows --json
ok "with shots, got $rc" test "$rc" = 0
as_recorded winogrande-2shot winogrande acc "$WORK/out"

# rows in one file, in NAME/docs.jsonl, and those of shots in a file
run eval @demo --task winogrande --num-fewshot 2 --data "$GOLDEN/winogrande-2shot/docs.jsonl" \
    --fewshot-data "$GOLDEN/winogrande-2shot/fewshot.jsonl" --json
ok "rows and shots in a file each, got $rc" test "$rc" = 0
as_recorded winogrande-2shot winogrande acc "$WORK/out"
mkdir -p "$WORK/plain/arc_easy"
cp "$GOLDEN/arc_easy/docs.jsonl" "$WORK/plain/arc_easy/docs.jsonl"
run eval @demo --task arc_easy --data plain --json
ok "rows in docs.jsonl, got $rc" test "$rc" = 0
as_recorded arc_easy arc_easy acc_norm "$WORK/out"
fails_with "shots of another split than the file's" 2 winogrande 'fewshot_data' eval @demo --task winogrande --num-fewshot 2 \
    --data "$GOLDEN/winogrande-2shot/docs.jsonl"

# a job, with a task of one's own
cat >"$WORK/capitals.yaml" <<'Y'
task: tessera.task/1
name: capitals
data: {name: mine/capitals, split: test}
context: "Question: What is the capital of {{ country }}?\nAnswer:"
choices: "{{ cities }}"
answer: "{{ cities.index(capital) }}"
metrics: [acc]
Y
printf '%s\n' '{"country": "France", "cities": ["Lyon", "Paris"], "capital": "Paris"}' \
    '{"country": "Peru", "cities": ["Lima", "Cusco", "Ica"], "capital": "Lima"}' >"$WORK/rows/mine/test.jsonl"
printf 'version: 1\nmodel: "@demo"\npipeline:\n  - eval: {tasks: [arc_easy, capitals.yaml], data: rows}\n' >"$WORK/job.yaml"
mv "$WORK/rows/mine" "$WORK/rows/capitals"
run run job.yaml --out job --json
ok "in a job, got $rc" test "$rc" = 0
as_recorded arc_easy arc_easy acc "$WORK/job/results.json"
ok "both questions of the task count" json '[.. | objects | .tasks? | objects | .capitals? | objects][0] |
    .documents == 2 and .n == 2 and .requests == 5 and (.acc | IN(0, 0.5, 1))' "$WORK/job/results.json"

# the hub's cache
snapshot=$WORK/cache/datasets--allenai--ai2_arc/snapshots/0123
mkdir -p "$snapshot/ARC-Easy" "$snapshot/../../refs"
printf 0123 >"$snapshot/../../refs/main"
cp "$GOLDEN/arc_easy/docs.jsonl" "$snapshot/ARC-Easy/test-00000-of-00001.jsonl"
run eval @demo --task arc_easy --hf-cache cache --json
ok "rows from the cache, got $rc" test "$rc" = 0
as_recorded arc_easy arc_easy acc "$WORK/out"

# what is refused
fails_with "no such task" 2 '--task arc_esy:1:12' 'arc_easy' eval @demo --task arc_esy --data rows
fails_with "data that are not there" 2 nowhere.jsonl 'JSON Lines file of rows of task' eval @demo --task hellaswag --data nowhere.jsonl
fails_with "no rows: the sentence names the data set" 2 hellaswag 'Rowan/hellaswag' eval @demo --task hellaswag --data rows
sed -i 's/{{ country }}/{{ land }}/' "$WORK/capitals.yaml"
fails_with "a field that a row lacks" 2 context:1:37 'land' eval @demo --task capitals.yaml --data rows
sed -i 's/^metrics:/metrik:/' "$WORK/capitals.yaml"
fails "an unknown key" 2 capitals.yaml:7:1 eval @demo --task capitals.yaml --data rows
printf '{"country": "France"' >"$WORK/rows/arc_easy/test.jsonl"
fails "a broken row" 2 rows/arc_easy/test.jsonl:1:1:20 eval @demo --task arc_easy --data rows
finish
