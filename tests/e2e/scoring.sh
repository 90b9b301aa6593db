#!/bin/bash
# tests/e2e/scoring.sh TESSERA [small] - a batch as scoring clients use it: log-probabilities of prompts, several prompts and several
# choices in one request, against recorded answers; the same bytes however it was run; what is refused.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
GOLDEN=$ROOT/tests/golden/completions
request() { printf '{"custom_id":"%s","url":"%s","body":%s}\n' "$1" "${3:-/v1/completions}" "$2"; }

# ---- recorded requests of lm-eval and of the openai client ------------------
for file in "$GOLDEN"/*.json; do
    name=$(basename "$file" .json)
    case $name in # a server that adds no BOS; special strings are special in both
    ll-text-nobos) more='{"add_special_tokens": false, "allow_special": true}' ;;
    ll-text*) more='{"allow_special": true}' ;;
    *) more='{}' ;;
    esac
    jq -c --arg f "$name" --argjson more "$more" '[.log[] | select(.request and (.path | endswith("/completions"))).body]
        | to_entries[] | {custom_id: "\($f).\(.key)", url: "/v1/completions", body: (.value + $more)}' "$file"
done >"$WORK/recorded.jsonl"
for file in "$GOLDEN"/*.json; do
    jq -c '.log[] | select(.answer).body | objects | select(.usage)' "$file"
done >"$WORK/want.jsonl"
n=$(wc -l <"$WORK/want.jsonl")
ok "an answer is recorded for each request" test "$n" -gt 30 -a "$n" = "$(wc -l <"$WORK/recorded.jsonl")"
run batch @demo -i recorded.jsonl -o recorded.out
ok "recorded requests run, got $rc" test "$rc" = 0
ok "none is an error" json -s 'all(.[]; .error == null)' "$WORK/recorded.out"
jq -s 'map(.response.body)' "$WORK/recorded.out" >"$WORK/got"
jq -s . "$WORK/want.jsonl" >"$WORK/want"
jq -s 'map(.body.temperature == 0)' "$WORK/recorded.jsonl" >"$WORK/greedy"
# holds OPTION OF JQ... FILTER: a filter that reads no file is true
holds() { jq -en "$@" >/dev/null 2>"$WORK/jq"; }
# as_recorded NAME FILTER: of two choices, $a ours and $b the recorded one, of every greedy request
as_recorded() {
    ok "$1: as recorded" holds --slurpfile a "$WORK/got" --slurpfile b "$WORK/want" --slurpfile g "$WORK/greedy" \
        "[\$a[0], \$b[0], \$g[0]] | transpose | map(select(.[2]) | [.[0].choices, .[1].choices] | transpose[])
         | length >= 40 and all(.[]; . as [\$a, \$b] | $2)"
}
ok "tokens are counted as recorded" holds --slurpfile a "$WORK/got" --slurpfile b "$WORK/want" --slurpfile g "$WORK/greedy" \
    '[$a[0], $b[0], $g[0]] | transpose | map(select(.[2])) | all(.[]; .[0].usage == .[1].usage)'
as_recorded "texts" '$a.text == $b.text and $a.index == $b.index and $a.finish_reason == $b.finish_reason'
as_recorded "tokens" '$a.logprobs.tokens == $b.logprobs.tokens'
as_recorded "offsets" '$a.logprobs.text_offset == $b.logprobs.text_offset'
as_recorded "no value of a first token" '$b.logprobs == null or $a.logprobs.token_logprobs[0] == null'
as_recorded "log-probabilities" '$b.logprobs == null or ([$a.logprobs.token_logprobs[1:], $b.logprobs.token_logprobs[1:]] |
    (.[0] | length) == (.[1] | length) and (transpose | all(.[]; .[0] - .[1] | . < 1e-4 and . > -1e-4)))'
as_recorded "the likeliest tokens" '$b.logprobs == null or ([$a.logprobs.top_logprobs, $b.logprobs.top_logprobs] | transpose |
    all(.[]; if .[1] == null then .[0] == null else (.[0] | keys) == (.[1] | keys) end))'
as_recorded "a greedy token is one number in both" '$b.logprobs == null or ([$a.logprobs, $b.logprobs] |
    map([.token_logprobs[1:], (.top_logprobs[1:] | map([.[]] | max))] | transpose | map(.[0] == .[1])) | .[0] == .[1])'

# ---- edge cases -------------------------------------------------------------
long=$(jq -nc '[range(1024) | 5 + . % 300]')
{
    request echo '{"prompt":"The ship","echo":true,"max_tokens":4,"temperature":0}'
    request none '{"prompt":"The ship","echo":true,"max_tokens":0}'
    request plain '{"prompt":"The ship","max_tokens":4,"temperature":0}'
    request marks '{"prompt":[4094,3278,4094,5],"echo":true,"max_tokens":1,"logprobs":2,"temperature":0}'
    request one '{"prompt":[3278],"echo":true,"max_tokens":0,"logprobs":0}'
    request zero '{"prompt":[3278,325],"echo":true,"max_tokens":1,"logprobs":0,"temperature":0}'
    request long '{"prompt":'"$long"',"echo":true,"max_tokens":1,"logprobs":1,"temperature":0}'
    request stop '{"prompt":"The ship","echo":true,"max_tokens":40,"temperature":0,"logprobs":1,"stop":["ship","p\u0027s"]}'
    request n3 '{"prompt":["The ship",  "Once"],"n":3,"max_tokens":5,"seed":7,"logprobs":1,"temperature":1}'
    for k in 7 8 9; do
        request "a$k" '{"prompt":"The ship","max_tokens":5,"seed":'$k',"logprobs":1,"temperature":1}'
        request "b$k" '{"prompt":"Once","max_tokens":5,"seed":'$k',"logprobs":1,"temperature":1}'
    done
    request free '{"prompt":["The ship","The ship"],"n":20,"max_tokens":6,"temperature":1}'
    request free1 '{"prompt":"The ship","max_tokens":6,"temperature":1}'
    request bytes '{"prompt":"h\u00e9 \ud83d\ude00!","echo":true,"max_tokens":1,"logprobs":1,"temperature":0}'
} >"$WORK/edge.jsonl"
{
    request empty '{"prompt":[]}'
    request inside '{"prompt":[[5],[]]}'
    request nothing '{"prompt":["a",""],"add_special_tokens":false}'
    request mixed '{"prompt":["a",[5]]}'
    request mixed2 '{"prompt":[[5],5]}'
    request deep '{"prompt":[[5],[[6]]]}'
    request wrong '{"prompt":[[5],[6,"x"]]}'
    request far '{"prompt":[[5],[6,4096]],"echo":true}'
    request below '{"prompt":[5,-1]}'
    request size '{"prompt":[[5],'"$long"'],"max_tokens":2}'
    request kind '{"prompt":[true]}'
    request echo '{"prompt":"a","echo":1}'
    request top '{"prompt":"a","echo":true,"logprobs":21}'
    request bool '{"prompt":"a","echo":true,"logprobs":true}'
    request n '{"prompt":"a","n":0}'
    request n2 '{"prompt":"a","n":129}'
    request n3 '{"prompt":"a","n":1.5}'
    request many '{"prompt":'"$(jq -nc '[range(200) | [5]]')"',"n":6}'
    request list '{"prompt":'"$(jq -nc '[range(1025) | [5]]')"'}'
    request best '{"prompt":"a","n":2,"best_of":2}'
    request values '{"prompt":'"$(jq -nc '[range(1000) | [5]]')"',"max_tokens":500,"logprobs":20}'
    request chat '{"messages":[{"role":"user","content":"x"}],"echo":true}' /v1/chat/completions
    request bos '{"prompt":"a","add_special_tokens":"no"}'
} >"$WORK/bad.jsonl"
bad=$(wc -l <"$WORK/bad.jsonl")
cat "$WORK/edge.jsonl" <(sed 's/"custom_id":"/&bad-/' "$WORK/bad.jsonl") >"$WORK/in.jsonl"
run batch @demo -i in.jsonl -o out.jsonl
ok "edge cases run, got $rc" test "$rc" = 0
ok "every wrong line is an error, the others are not" json -s 'all(.[]; (.error != null) == (.custom_id | startswith("bad-")))' "$WORK/out.jsonl"
ok "as many as there are" json -s --argjson n "$bad" 'map(select(.error)) | length == $n and $n > 20' "$WORK/out.jsonl"
says() { # ID CODE PATTERN
    ok "$1: $2" json -s --arg i "bad-$1" --arg c "$2" --arg m "$3" 'map(select(.custom_id == $i).error) |
        length == 1 and (.[0] | .code == $c and (.message | test($m) and (contains("\n") | not)))' "$WORK/out.jsonl"
}
says empty invalid_request 'not empty'
says inside invalid_request 'prompt 2 is empty'
says nothing invalid_request 'prompt 2 is empty'
says mixed invalid_request 'item 2 .*text'
says mixed2 invalid_request 'item 2 .*list'
says deep invalid_request 'item 1 of prompt 2'
says wrong invalid_request 'item 2 of prompt 2'
says far invalid_request 'prompt 2: .*4096'
says below invalid_request 'item 2'
says size context_length_exceeded 'prompt 2: .*1024'
says kind invalid_request 'item 1'
says echo invalid_request 'echo'
says top invalid_request 'logprobs'
says bool invalid_request 'logprobs'
says n invalid_request '"n"'
says n2 invalid_request '"n"'
says n3 invalid_request '"n"'
says many invalid_request '200 .*1024'
says list invalid_request '1025 .*1024'
says best invalid_request 'best_of'
says values invalid_request '10500000'
says chat invalid_request 'echo'
says bos invalid_request 'add_special_tokens'

text=$(jq -r 'select(.custom_id == "plain").response.body.choices[0].text' "$WORK/out.jsonl")
# of ID [OPTION OF JQ...] FILTER: what the filter says of an answer's body
of() {
    local id=$1
    shift
    jq -e --arg id "$id" 'select(.custom_id == $id).response.body' "$WORK/out.jsonl" >"$WORK/one"
    json "$@" "$WORK/one"
}
ok "echo: prompt and text" of echo --arg t "$text" '.choices[0].text == "<|begin_of_text|>The ship" + $t'
ok "the prompt alone" of none '.choices[0] | .text == "<|begin_of_text|>The ship" and .logprobs == null and .finish_reason == "length"'
ok "no new tokens are counted" of none '.usage.completion_tokens == 0'
ok "special tokens of ids" of marks '.choices[0].logprobs | .tokens[0] == "<|begin_of_text|>" and .tokens[2] == .tokens[0] and
    (.tokens | length) == 5 and .text_offset[1] == 17 and (.top_logprobs[1:] | all(.[]; length == 2))'
ok "one token has no value" of one '.choices[0].logprobs | .token_logprobs == [null] and .text_offset == [0] and .top_logprobs == null'
ok "values without alternatives" of zero '.choices[0].logprobs | (.token_logprobs | length) == 3 and .top_logprobs == null'
ok "a prompt that fills the context" of long '.choices[0].logprobs | (.token_logprobs | length) == 1025 and all(.token_logprobs[1:][]; . <= 0)'
ok "a stop string is looked for behind the prompt" of stop '.choices[0] | .finish_reason == "stop" and
    .text == "<|begin_of_text|>The ship\u0027s " and (.text | length) as $n | all(.logprobs.text_offset[]; . <= $n)'
ok "characters, not bytes" of bytes '.choices[0] | .logprobs.text_offset as $o | $o == ($o | sort) and
    $o[-1] == (.text | length) - (.logprobs.tokens[-1] | length) and (.text | startswith("<|begin_of_text|>h\u00e9 \ud83d\ude00!"))'
ok "six choices in order" of n3 '[.choices[].index] == [range(6)] and .usage.prompt_tokens < 12 and .usage.completion_tokens <= 30'
ok "choice k is that of seed + k" json -s '(map(select(.custom_id == "n3").response.body.choices[] | del(.index))) as $n |
    [.[] | select(.custom_id | test("^[ab][789]$")) | {id: .custom_id, c: (.response.body.choices[0] | del(.index))}] | sort_by(.id) |
    length == 6 and map(.c) == $n' "$WORK/out.jsonl"
ok "choices without a seed differ" of free '.choices | length == 40 and ([.[].text] | unique | length) > 30'

# ---- however it was run -----------------------------------------------------
cat "$WORK/recorded.jsonl" "$WORK/in.jsonl" >"$WORK/both.jsonl"
run batch @demo -i both.jsonl -o clean.out
ways=("--slots 64 --chunk 5" "--slots 1 --threads 1" "--slots 3" "--slots 5 --chunk 100 --threads 2")
[ "${2:-whole}" = whole ] || ways=("${ways[0]}") # sanitizers take their time
for how in "${ways[@]}"; do
    # shellcheck disable=SC2086 # words
    run batch @demo -i both.jsonl -o again.out $how
    ok "$how: the same bytes" cmp "$WORK/clean.out" "$WORK/again.out"
    rm -rf "$WORK/again.out" "$WORK/again.out.job"
done
for i in 1 2 3; do
    run batch @demo -i both.jsonl -o "part$i.out" --shard "$i/3"
done
cat "$WORK"/part[123].out >"$WORK/parts"
ok "shards, one after the other" cmp "$WORK/clean.out" "$WORK/parts"
# The journal: a run that was cut off goes on.
run batch @demo -i both.jsonl -o cut.out
size=$(stat -c %s "$WORK/cut.out.job/journal")
for part in 3 2; do
    head -c $((size / part)) "$WORK/cut.out.job/journal" >"$WORK/short"
    cp "$WORK/short" "$WORK/cut.out.job/journal"
    rm -f "$WORK/cut.out" "$WORK"/cut.out.job/*.json
    run batch @demo -i both.jsonl -o cut.out
    ok "a journal cut to 1/$part goes on, got $rc" test "$rc" = 0
    ok "and gives the same bytes" cmp "$WORK/clean.out" "$WORK/cut.out"
done
run journal check clean.out --input both.jsonl
ok "journal check finds every line right, got $rc" test "$rc" = 0

# A deadline ends a record whose other choices have not begun, and is none of the record that waited behind it.
{
    request huge '{"prompt":'"$(jq -nc '[range(8) | [5]]')"',"n":128,"max_tokens":1000,"ignore_eos":true}'
    request next '{"prompt":"a","n":3,"max_tokens":2,"ignore_eos":true}'
} >"$WORK/late.jsonl"
run batch @demo -i late.jsonl -o late.out --deadline 2
ok "a record beyond its deadline" json -s '.[0].error.code == "deadline_exceeded" and (.[1].response.body.choices | length == 3)' "$WORK/late.out"

# ---- ranks of a plan: stages, parts of a layer, prompts in chunks of three --
plan() { # STAGES TP
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 512, generate: 512, batch: 4, chunk: 3, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for ((i = 0; i < $1; i++)); do
        range=$((6 * i / $1))-$((6 * (i + 1) / $1 - 1))
        echo "  - {layers: $range, node: here, device: this-machine, tp: $2, schemes: [{layers: $range, use: rtn, bits: 8, group: 64}]}"
    done
}
for parts in "1 1" "2 2"; do
    # shellcheck disable=SC2086 # two numbers
    plan $parts >"$WORK/plan.yaml"
    step='run: {input: in.jsonl, output: answers.jsonl, context: 1024, act: f32'
    [ "$parts" = "1 1" ] && steps="  - quantize: {use: rtn, plan: plan.yaml}
  - $step}" || steps="  - $step, plan: plan.yaml, ranks: threads}"
    printf 'version: 1\nmodel: "@demo"\nseed: 3\npipeline:\n%s\n' "$steps" >"$WORK/job.yaml"
    run run job.yaml --out "ways-${parts/ /-}"
    ok "$parts: exit code 0, got $rc" test "$rc" = 0
    jq -c '[.custom_id, .response.body.choices, .response.body.usage, .error]' "$WORK/ways-${parts/ /-}/answers.jsonl" >"$WORK/answers-${parts/ /-}"
done
ok "ranks give the same answers" cmp "$WORK/answers-1-1" "$WORK/answers-2-2"
ok "as many as there are requests" test "$(wc -l <"$WORK/answers-2-2")" = "$(wc -l <"$WORK/in.jsonl")"
finish
