#!/bin/bash
# tests/e2e/context.sh TESSERA - contexts beyond the positions that a model was trained for: rope and ALiBi go on by
# their law, with one warning; learned positions end.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MODELS=$ROOT/tests/golden/models
TOKENS=5,17,3,9,20,31,8
# copy NAME OF JQ: the model OF under another name, its config.json changed
copy() {
    mkdir "$WORK/$1"
    cp "$MODELS/$2"/* "$WORK/$1"
    jq "$3" "$MODELS/$2/config.json" >"$WORK/$1/config.json"
}
# warns NAME TOKENS TRAINED: one warning, with both numbers
warns() {
    ok "$1: one warning" test "$(grep -c warning "$WORK/err")" = 1
    ok "$1: with the context and what the model was trained for" grep -qE "warning: .*\b$2 tokens\b.*\b$3\b.* trained for" "$WORK/err"
}
logits() { # MODEL OUT
    run logits "$1" --tokens "${3:-$TOKENS}" -o "$2"
    ok "$1: logits, exit code 0, got $rc" test "$rc" = 0
}

# laws that do not look at max_position_embeddings: the bytes of a model with room
while read -r name of change; do
    copy "$name-room" "$of" "$change | .max_position_embeddings = 64 | .seq_length = 64"
    copy "$name" "$of" "$change | .max_position_embeddings = 4 | .seq_length = 4"
    logits "$name-room" room.st
    ok "$name: no warning where there is room" test "$(grep -c warning "$WORK/err")" = 0
    logits "$name" beyond.st
    warns "$name" 7 4
    ok "$name: beyond what it was trained for, the same bytes" cmp "$WORK/room.st" "$WORK/beyond.st"
    run logits "$name" --tokens "$TOKENS" -o step.st --step
    ok "$name: step by step" test "$rc" = 0
done <<'LAWS'
plain llama2 .
linear llama-linear-rope-bias .
llama3 llama3 .
yarn llama2 .rope_scaling={"rope_type":"yarn","factor":2,"original_max_position_embeddings":4}
alibi bloom .
LAWS
run logits plain --tokens 5,17,3,9 -o inside.st
ok "within it no warning" test "$rc" = 0 -a "$(grep -c warning "$WORK/err")" = 0

# long rope: the long list beyond the original positions, whatever the longest context is
LONG='.rope_scaling += {"factor": 4} | .original_max_position_embeddings = 4'
copy long-room phi3-longrope "$LONG | .max_position_embeddings = 64"
copy long phi3-longrope "$LONG | .max_position_embeddings = 5"
logits long-room room.st
logits long beyond.st
warns long 7 5
ok "long rope: the same bytes" cmp "$WORK/room.st" "$WORK/beyond.st"

# long rope in pieces: eval reads 512 tokens at a time, ranks get 16, and both know how long the text is
copy pieces phi3-longrope '.original_max_position_embeddings = 600 | .max_position_embeddings = 2048'
jq -cn --argjson size 320 -f "$ROOT/tools/families/tokenizer.jq" >"$WORK/pieces/tokenizer.json"
head -c 2000 "$ROOT/configs/demo/held-out.txt" >"$WORK/text"
run eval pieces --text text --window 900 --max-windows 1 --json
perplexity=$(jq .perplexity "$WORK/out")
run eval pieces --text text --window 900 --max-windows 1 --by-layers 1 --json
ok "eval in pieces: the perplexity of the whole, got $perplexity" json --argjson p "$perplexity" '.perplexity == $p and $p > 1' "$WORK/out"
mkdir -p "$WORK/rows/far"
head -c 700 "$WORK/text" | jq -Rsc '{text: .}' >"$WORK/rows/far/test.jsonl"
printf 'task: tessera.task/1\nname: far\ndata: {name: mine/far, split: test}\ncontext: "{{ text }}"\nchoices: [a, b]\nanswer: "0"\ndelimiter: ""\nmetrics: [acc]\n' >"$WORK/far.yaml"
run eval pieces --task far.yaml --data rows --log-samples samples.jsonl
ok "a question of 701 tokens: exit code 0, got $rc" test "$rc" = 0
for c in a b; do
    jq -c --arg c $c '{custom_id: $c, method: "POST", url: "/v1/completions",
        body: {prompt: (.text + $c), echo: true, logprobs: 1, max_tokens: 1}}' "$WORK/rows/far/test.jsonl"
done >"$WORK/echo.jsonl"
run batch pieces -i echo.jsonl -o echoed.jsonl --temperature 0
ok "its choices have the log-likelihoods that batch has" jq -en --slurpfile a "$WORK/samples.jsonl" --slurpfile b "$WORK/echoed.jsonl" \
    '[$a[].loglikelihood] as $x | [$b[].response.body.choices[0].logprobs.token_logprobs[-2]] as $y | ($x | length) == 2 and
    all(range(2); ($x[.] - $y[.] | fabs) < 1e-5)' >"$WORK/jq"
cp -r "$MODELS/phi3-longrope" "$WORK/ranks"
cp "$WORK/pieces/tokenizer.json" "$WORK/ranks/"
jq -c '.cases[] | {custom_id: .name, method: "POST", url: "/v1/completions", body: {prompt: .prompt, max_tokens: 8,
    logprobs: 2, ignore_eos: true}}' "$MODELS/phi3-longrope/cases.json" >"$WORK/requests.jsonl"
cat >"$WORK/plan.yaml" <<'PLAN'
format: tessera.plan/1
layers: 2
workload: {prompt: 64, generate: 8, batch: 4, chunk: 16, kv: f32}
micro_batches: {prefill: 2, decode: 2}
stages:
  - {layers: 0-0, node: here, device: board, tp: 1, schemes: [{layers: 0-0, keep: true}]}
  - {layers: 1-1, node: here, device: board, tp: 1, schemes: [{layers: 1-1, keep: true}]}
PLAN
printf 'version: 1\nmodel: ranks\npipeline:\n  - run: {plan: plan.yaml, input: requests.jsonl, output: a.jsonl, temperature: 0, ranks: threads}\n' >"$WORK/ranks.yaml"
run run ranks.yaml --out staged
ok "stages: exit code 0, got $rc" test "$rc" = 0
run batch ranks -i requests.jsonl -o whole.jsonl --temperature 0
answers() { jq -cS '[.custom_id, .response.body.choices]' "$WORK/$1"; }
ok "prompts in pieces: four answers" test "$(answers whole.jsonl | grep -c '"text"')" = 4
ok "prompts in pieces: the answers of one engine" cmp <(answers whole.jsonl) <(answers staged/a.jsonl)

# dynamic: a base that grows with the length; 7 tokens of 4, factor 2, heads of 16
copy dynamic llama2 '.rope_scaling = {"rope_type": "dynamic", "factor": 2} | .max_position_embeddings = 4'
copy grown llama2 '.rope_theta = 10000 * pow(2 * 7 / 4 - 1; 16 / 14) | .max_position_embeddings = 64'
logits dynamic beyond.st
warns dynamic 7 4
logits grown grown.st
ok "dynamic: the grown base" cmp "$WORK/grown.st" "$WORK/beyond.st"

# learned positions end
many=$(seq -s, 1 129 | sed 's/[0-9]*/7/g')
fails "learned positions" 2 "$MODELS/opt" logits "$MODELS/opt" --tokens "$many" -o none.st
ok "with both numbers" failure '.message | test("\\b129\\b.*\\b128\\b.*learned")'
ok "nothing was written" test ! -e "$WORK/none.st"

# verbs and steps: one warning each, whatever the number of engines
cp -r "$ROOT/configs/demo" "$WORK/short"
jq '.max_position_embeddings = 16' "$ROOT/configs/demo/config.json" >"$WORK/short/config.json"
run generate short --prompt "Once upon a time" --max-tokens 30 --greedy --ignore-eos --json
ok "generate: exit code 0, got $rc" test "$rc" = 0
ok "generate: warns once" test "$(grep -c warning "$WORK/err")" = 1
cp "$WORK/out" "$WORK/beyond"
run generate @demo --prompt "Once upon a time" --max-tokens 30 --greedy --ignore-eos --json
ok "generate: the same tokens" test "$(jq -c .tokens "$WORK/out")" = "$(jq -c .tokens "$WORK/beyond")"
text=$ROOT/configs/demo/held-out.txt
run eval short --text "$text" --window 64 --max-windows 2 --json
ok "eval: exit code 0, got $rc" test "$rc" = 0
warns eval 64 16
cp "$WORK/out" "$WORK/beyond"
run eval @demo --text "$text" --window 64 --max-windows 2 --json
ok "eval: the same perplexity" test "$(jq .perplexity "$WORK/out")" = "$(jq -e .perplexity "$WORK/beyond")"
run eval short --text "$text" --max-windows 2 --json
ok "a window of its own is within" test "$rc" = 0 -a "$(grep -c warning "$WORK/err")" = 0
cat >"$WORK/job.yaml" <<Y
version: 1
model: short
pipeline:
  - calibrate: {text: $ROOT/configs/demo/calibration.txt, samples: 2, seqlen: 32}
Y
run run job.yaml --out calibrated
ok "calibrate: exit code 0, got $rc" test "$rc" = 0
warns calibrate 32 16
cat >"$WORK/plan.yaml" <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 12, batch: 4, chunk: 3, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - {layers: 0-2, node: here, device: this-machine, tp: 1, schemes: [{layers: 0-2, use: rtn, bits: 4, group: 64}]}
  - {layers: 3-5, node: here, device: this-machine, tp: 1, schemes: [{layers: 3-5, use: rtn, bits: 4, group: 64}]}
PLAN
echo '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"Once upon a time","max_tokens":20}}' >"$WORK/prompts.jsonl"
for kind in processes threads; do
    cat >"$WORK/job.yaml" <<Y
version: 1
model: short
pipeline:
  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, context: 40, temperature: 0, ranks: $kind}
Y
    run run job.yaml --out "ranks-$kind"
    ok "ranks, $kind: exit code 0, got $rc" test "$rc" = 0
    warns "ranks, $kind" 40 16
    ok "ranks, $kind: an answer" json -s 'length == 1 and .[0].response.body.usage.completion_tokens > 0' "$WORK/ranks-$kind/answers.jsonl"
done
finish
