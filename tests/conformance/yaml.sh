#!/usr/bin/env bash
# yaml.sh TESSERA - `plugin check` of families and tasks: what other programs computed is met, and each rule has a file
# that breaks it and no other.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/../e2e/lib.sh"
GOLDEN=$ROOT/tests/golden

# tensor FILE NAME: an F32 tensor of rank 2 as a JSON list of rows.
tensor() {
    local head begin end cols
    head=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    # head comes first: tail reads all that it gets, so that no pipe breaks
    read -r begin end cols < <(head -c $((8 + head)) "$1" | tail -c "$head" |
        jq -r --arg n "$2" '.[$n] | select(.dtype == "F32") | "\(.data_offsets[0]) \(.data_offsets[1]) \(.shape[1])"')
    head -c $((8 + head + end)) "$1" | tail -c $((end - begin)) | od -An -v -tf4 -w$((4 * cols)) |
        sed -E 's/^ +/[/; s/ +/,/g; s/$/]/' | jq -cs .
}
# verdicts FILE.yaml: "RULE VERDICT" a line, of those that are neither passed nor skipped.
verdicts() {
    run plugin check "$1" --json
    jq -r '.rules[] | select(.verdict | IN("passed", "skipped") | not) | "\(.rule) \(.verdict)"' "$WORK/out"
}
# breaks RULE FILE.yaml: this rule and no other, and the exit code says so.
broken=()
breaks() {
    broken+=("$1")
    ok "$1: broken, and no other: $(verdicts "$2" | tr '\n' ' ')" test "$(verdicts "$2")" = "$1 failed"
    ok "$1: exit code 1" test "$(cd "$WORK" && "$TESSERA" plugin check "$2" >/dev/null 2>&1; echo $?)" = 1
    ok "$1: says what is wrong" json --arg r "$1" 'any(.rules[]; .rule == $r and (.text | length) > 10)' "$WORK/out"
}
# keeps NAME COUNT FILE.yaml: at least this many rules pass, and none fails.
keeps() {
    run plugin check "$3" --json
    ok "$1: keeps the rules" test "$rc" = 0
    ok "$1: $2 rules and more pass" json --argjson n "$2" '.failed == 0 and .passed >= $n' "$WORK/out"
}

# ---- families: models of tests/golden under names that are not built in -----------------------------
# made MODEL: $WORK/MODEL/mine.yaml, a model whose class is another, and the golden of the recorded logits.
made() {
    local from=$GOLDEN/models/$1 to=$WORK/$1 i
    mkdir "$to"
    cp "$from"/*.safetensors* "$to"
    jq '.architectures = ["MineForCausalLM"] | .model_type = "mine"' "$from/config.json" >"$to/config.json"
    sed -E 's/^name: .*/name: mine/; s/^architectures: .*/architectures: [MineForCausalLM]/; s/^model_types: .*/model_types: [mine]/' \
        "$ROOT/configs/families/$1.yaml" >"$to/mine.yaml"
    for i in 1 2; do
        jq -n --slurpfile c "$from/cases.json" --argjson i $i --slurpfile l <(tensor "$from/expected.safetensors" "case$i.logits") \
            '{tokens: $c[0].cases[$i].prompt, logits: $l[0]}'
    done | jq -s --slurpfile c "$from/cases.json" '{format: "tessera.family-golden/1", by: $c[0].reference, model: ".",
        tolerance: 5e-6, reason: "binary32 on both sides", cases: .}' >"$to/mine.golden.json"
}
for m in gemma3 olmo2; do
    made $m
    ok "$m: two cases" json ".cases | map(.logits | length) == [7, 40]" "$WORK/$m/mine.golden.json"
    keeps $m 8 "$m/mine.yaml"
done
run plugin check gemma3/mine.yaml --json
ok "a window that the golden is longer than" json 'any(.rules[]; .rule == "family-window" and .verdict == "passed")' "$WORK/out"

# ---- families: one fault each ----------------------------------------------------------------------
run plugin new family mine
ok "a new family is written" test "$rc" = 0
keeps "a new family" 8 mine/mine.yaml
# variant NAME: a copy of the folder
variant() { rm -rf "${WORK:?}/$1" && cp -r "$WORK/mine" "$WORK/$1"; }
variant reads && echo 'nrom: rms' >>"$WORK/reads/mine.yaml"
breaks family-reads reads/mine.yaml
ok "the other rules wait" json '.rules | length == 1' "$WORK/out"
variant name && sed -i 's/^name: .*/name: llama/' "$WORK/name/mine.yaml"
breaks family-name name/mine.yaml
variant summary && sed -i '/^summary:/d' "$WORK/summary/mine.yaml"
breaks family-summary summary/mine.yaml
variant models && sed -i 's/mineForCausalLM/&, LlamaForCausalLM/' "$WORK/models/mine.yaml"
breaks family-models models/mine.yaml
variant binds && sed -i 's/final_norm: norm/final_norm: last_norm/' "$WORK/binds/mine.yaml"
breaks family-binds binds/mine.yaml
variant logits && printf 'rope:\n  pairs: adjacent\n' >>"$WORK/logits/mine.yaml"
breaks family-logits logits/mine.yaml
variant window && printf 'window:\n  size: sliding_window\n' >>"$WORK/window/mine.yaml"
jq '.sliding_window = 40' "$WORK/mine/config.json" >"$WORK/window/config.json"
breaks family-window window/mine.yaml
# all gains of the last norm 1; the golden is that model's, so that nothing else is wrong with it
variant vectors
head=$(od -An -tu8 -N8 "$WORK/mine/model.safetensors" | tr -d ' ')
begin=$(head -c $((8 + head)) "$WORK/mine/model.safetensors" | tail -c "$head" | jq '.["model.norm.weight"].data_offsets[0]')
for ((i = 0; i < 16; i++)); do printf '\x80\x3f'; done |
    dd of="$WORK/vectors/model.safetensors" bs=1 seek=$((8 + head + begin)) conv=notrunc status=none
run logits vectors --family vectors/mine.yaml --tokens 1,2,3,4,5,6,7,8,9 -o own.st
jq --slurpfile l <(tensor "$WORK/own.st" logits) '.cases = [{tokens: [1,2,3,4,5,6,7,8,9], logits: $l[0]}]' \
    "$WORK/mine/mine.golden.json" >"$WORK/vectors/mine.golden.json"
breaks family-vectors vectors/mine.yaml
# goldens that are none
variant golden
for change in '.tolerance = 0.5' '.reason = ""' 'del(.by)' '.model = "nowhere"' '.cases = []' '.format = "tessera.family-golden/2"' \
    '.cases |= [.[0]]' '.cases[1].tokens |= .[1:]' '.cases[1].tokens[0] = -1' '.cases[1].logits[3][4] = "NaN"' '.cases[1].logits[3] |= .[1:]'; do
    jq "$change" "$WORK/mine/mine.golden.json" >"$WORK/golden/mine.golden.json"
    ok "golden with $change" test "$(verdicts golden/mine.yaml)" = "family-golden failed"
done
rm "$WORK/golden/mine.golden.json"
breaks family-golden golden/mine.yaml
# a golden whose logits are of another size, or of tokens that are not there
jq '.cases |= map(.logits |= map(.[1:]))' "$WORK/mine/mine.golden.json" >"$WORK/golden/mine.golden.json"
ok "a golden of another vocabulary" test "$(verdicts golden/mine.yaml)" = "family-logits failed"
jq '.cases[1].tokens[0] = 32' "$WORK/mine/mine.golden.json" >"$WORK/golden/mine.golden.json"
ok "a golden with a token that is not there" test "$(verdicts golden/mine.yaml)" = "family-logits failed"
jq '.cases[1].logits[3][4] += 0.001' "$WORK/mine/mine.golden.json" >"$WORK/golden/mine.golden.json"
ok "a golden with one other logit" test "$(verdicts golden/mine.yaml)" = "family-logits failed"
ok "the place is told" json 'any(.rules[]; .rule == "family-logits" and (.text | test("cases.1., token 3, logit 4\\b")))' "$WORK/out"

# ---- tasks: those of tests/golden, recorded from lm-evaluation-harness ---------------------------------
# task_of FOLDER TASK SHOTS: $WORK/FOLDER/mine.yaml and its golden
task_of() {
    local from=$GOLDEN/tasks/$1 to=$WORK/task-$1 shots='[]'
    mkdir "$to"
    sed 's/^name: .*/name: mine/' "$ROOT/configs/tasks/$2.yaml" >"$to/mine.yaml"
    grep -q '^summary:' "$to/mine.yaml" || echo 'summary: A task of the harness' >>"$to/mine.yaml"
    [ ! -e "$from/fewshot.jsonl" ] || shots=$(jq -cs . "$from/fewshot.jsonl")
    jq -n --slurpfile rows "$from/docs.jsonl" --slurpfile q "$from/requests.jsonl" --slurpfile r "$from/results.json" \
        --argjson s "$shots" --argjson n "$3" '$r[0].models.demo as $m | {format: "tessera.task-golden/1",
        by: "lm-evaluation-harness 0.4.13", rows: $rows, cases: [{shots: $n,
            requests: [$q, $m.requests] | transpose | map(.[0] + {loglikelihood: .[1].loglikelihood, is_greedy: .[1].is_greedy}),
            answers: [$m.documents[].target],
            metrics: ($m.metrics | with_entries(select(.key | endswith("_stderr") | not)))}]}
        + if ($s | length) > 0 then {shot_rows: $s} else {} end' >"$to/mine.golden.json"
}
for t in arc_easy winogrande wikitext lambada_openai; do
    task_of $t $t 0
    # the golden is of 0 shots, and without their split none are wanted; targets of these are places of choices in arc_easy alone
    sed -i -E 's/, shots: [a-z]+\}/}/' "$WORK/task-$t/mine.yaml"
    [ $t != winogrande ] || jq 'del(.cases[].answers) | .cases[].answers = [.rows[].answer | tonumber - 1]' "$WORK/task-$t/mine.golden.json" >"$WORK/x"
    [ $t != winogrande ] || mv "$WORK/x" "$WORK/task-$t/mine.golden.json"
    # rolling sums of the harness are those of windows
    [ $t != wikitext ] || jq 'del(.cases[].metrics)' "$WORK/task-$t/mine.golden.json" >"$WORK/x"
    [ $t != wikitext ] || mv "$WORK/x" "$WORK/task-$t/mine.golden.json"
    keeps $t 5 "task-$t/mine.yaml"
done
task_of arc_easy-2shot arc_easy 2
keeps arc_easy-2shot 8 task-arc_easy-2shot/mine.yaml

# ---- tasks: one fault each -----------------------------------------------------------------------------
rm -r "$WORK/mine"
run plugin new task mine
ok "a new task is written" test "$rc" = 0
keeps "a new task" 8 mine/mine.yaml
variant reads && echo 'contxt: x' >>"$WORK/reads/mine.yaml"
breaks task-reads reads/mine.yaml
variant name && sed -i 's/^name: .*/name: arc_easy/' "$WORK/name/mine.yaml"
breaks task-name name/mine.yaml
variant summary && sed -i '/^summary:/d' "$WORK/summary/mine.yaml"
breaks task-summary summary/mine.yaml
variant shots && jq '.cases |= [.[0]]' "$WORK/mine/mine.golden.json" >"$WORK/shots/mine.golden.json"
breaks task-shots shots/mine.yaml
variant requests && sed -i 's/What is the capital/Which is the capital/' "$WORK/requests/mine.yaml"
breaks task-requests requests/mine.yaml
variant answers && sed -i "s/{{ cities.index(capital) }}/{{ cities.index(capital) if country != 'Peru' else 1 }}/" "$WORK/answers/mine.yaml"
jq 'del(.cases[].metrics)' "$WORK/mine/mine.golden.json" >"$WORK/answers/mine.golden.json"
breaks task-answers answers/mine.yaml
variant scores && sed -i 's/^metrics: .*/metrics: [acc]/' "$WORK/scores/mine.yaml"
breaks task-scores scores/mine.yaml
variant golden
for change in '.rows |= .[:1]' 'del(.shot_rows)' '.cases[0].requests = []' 'del(.cases[0].requests[2].context)' '.by = ""' '.rows[1] = 3' \
    '.format = "tessera.family-golden/1"' '.cases[1].shots = -1'; do
    jq "$change" "$WORK/mine/mine.golden.json" >"$WORK/golden/mine.golden.json"
    ok "golden with $change" test "$(verdicts golden/mine.yaml)" = "task-golden failed"
done
rm "$WORK/golden/mine.golden.json"
breaks task-golden golden/mine.yaml
for change in '.cases[0].metrics.acc += 0.001' 'del(.cases[0].metrics.acc_norm)' 'del(.cases[1].requests[3].loglikelihood)' '.cases[0].metrics.f1 = 1'; do
    jq "$change" "$WORK/mine/mine.golden.json" >"$WORK/golden/mine.golden.json"
    ok "scores with $change" test "$(verdicts golden/mine.yaml)" = "task-scores failed"
done
jq '.cases[0].requests |= .[:-1]' "$WORK/mine/mine.golden.json" >"$WORK/golden/mine.golden.json"
ok "a golden with a request less" grep -q '^task-requests failed' <(verdicts golden/mine.yaml)

# ---- every rule has such a file ------------------------------------------------------------------------
run plugin check --list --json
ok "every rule is broken by a file" test "$(jq -r '.[] | select(.kind == "family" or .kind == "task") | .rule' "$WORK/out" | sort)" = \
    "$(printf '%s\n' "${broken[@]}" | sort)"

# ---- what is refused ------------------------------------------------------------------------------------
echo 'model: x' >"$WORK/other.yaml"
fails "a YAML file of another form" 2 '*other.yaml' plugin check other.yaml
echo '{' >"$WORK/broken.yaml"
fails "a file that is no YAML" 2 '*broken.yaml*' plugin check broken.yaml
fails "a file that is not there" 2 '*nothing.yaml' plugin check nothing.yaml
fails "options of a YAML file" 2 '*mine.yaml' plugin check mine/mine.yaml --set bits=3
fails "components of a YAML file" 2 '*mine.yaml' plugin check mine/mine.yaml --component x
run plugin check mine/mine.yaml --only task-reads --in-process
ok "one rule in this process" test "$rc" = 0
finish
