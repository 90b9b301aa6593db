#!/bin/bash
# tests/e2e/batch.sh TESSERA - a batch: one line for each line, what is wrong with a line in its own
# line, the same bytes however it was run.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
cat >"$WORK/job.yaml" <<'YAML'
version: 1
model: "@demo"
seed: 3
YAML
# request N BODY [URL]
request() { printf '{"custom_id":"r%s","method":"POST","url":"%s","body":%s}\n' "$1" "${3:-/v1/completions}" "$2"; }
{
    for i in $(seq 1 12); do
        request "$i" '{"prompt":"The president said '"$i"'","max_tokens":'$((i % 5 + 2))'}'
    done
    request 13 '{"prompt":"The ship","max_tokens":4,"temperature":0,"logprobs":2}'
    request 14 '{"prompt":"The ship","max_tokens":40,"temperature":0,"stop":["xyz","p\u0027s"]}'
    request 15 '{"prompt":"The ship","max_tokens":6,"seed":11}'
    request 16 '{"prompt":"The ship","max_tokens":6,"seed":11}'
    request 17 '{"prompt":[5,6,7],"max_tokens":3}'
    request 18 '{"prompt":"x","max_tokens":-1}'
    request 19 '{"prompt":"x","max_token":1}'
    request 20 '{"prompt":"x","n":0}'
    request 21 '{"prompt":"x","max_tokens":5000}'
    request 22 '{"messages":[{"role":"user","content":"Hi"}]}' /v1/chat/completions
    request 23 '{"prompt":"x"}' /v1/embeddings
    request 24 '{"prompt":"x","temperature":1e99}'
    echo 'not json'
    echo
    request 27 '{"prompt":"","max_tokens":2}'
    printf '{"custom_id":"crlf","url":"/v1/completions","body":{"prompt":"a","max_tokens":2}}\r\n'
    printf '{"custom_id":"last","url":"/v1/completions","body":{"prompt":"<|end_of_text|>","max_tokens":2}}'
} >"$WORK/in.jsonl"
lines=$(wc -l <"$WORK/in.jsonl")
lines=$((lines + 1))

run batch job.yaml -i in.jsonl -o out.jsonl
ok "a batch succeeds" test "$rc" = 0
cp "$WORK/out.jsonl" "$WORK/clean.jsonl"
ok "one line for each line" test "$(wc -l <"$WORK/out.jsonl")" = "$lines"
ok "each is JSON" json -s "length == $lines" "$WORK/out.jsonl"
ok "in the order of the input" json -s '[.[:24][].custom_id] == [range(1; 25) | "r\(.)"]' "$WORK/out.jsonl"
ok "either a response or an error" json -s 'all(.[]; (.response == null) != (.error == null))' "$WORK/out.jsonl"
ok "ids are different" json -s '[.[].id] | length == (unique | length)' "$WORK/out.jsonl"
ok "tokens as asked" json -s 'all(.[:12][].response.body; .usage.completion_tokens <= 6 and .choices[0].finish_reason == "length")' "$WORK/out.jsonl"
ok "logprobs" json -s '.[12].response.body.choices[0].logprobs | (.tokens | length) == 4 and all(.token_logprobs[]; . <= 0) and all(.top_logprobs[]; length <= 2)' "$WORK/out.jsonl"
ok "the best token is the one taken" json -s '.[12].response.body.choices[0].logprobs | [.token_logprobs, .top_logprobs] | transpose | all(.[]; .[0] == ([.[1][]] | max))' "$WORK/out.jsonl"
ok "stop cuts the text" json -s '.[13].response.body.choices[0] | .finish_reason == "stop" and .text == "\u0027s shi"' "$WORK/out.jsonl"
ok "one seed, one text" json -s '.[14].response.body.choices[0].text == .[15].response.body.choices[0].text' "$WORK/out.jsonl"
wrong_line() { # INDEX CODE PATTERN
    ok "line $1: $2" json -s --arg c "$2" --arg m "$3" ".[$1 - 1].error | .code == \$c and (.message | test(\$m))" "$WORK/out.jsonl"
}
wrong_line 18 invalid_request 'max_tokens'
wrong_line 19 invalid_request 'max_token'
wrong_line 20 invalid_request '"n"'
wrong_line 21 context_length_exceeded 'context of 1024'
wrong_line 22 invalid_request 'no chat template'
wrong_line 23 invalid_request '/v1/embeddings'
wrong_line 24 invalid_request 'temperature'
wrong_line 25 invalid_json 'JSON'
wrong_line 26 invalid_json 'JSON'
ok "a special string in a prompt is text" json -s '.[28].response.body.usage.prompt_tokens > 3' "$WORK/out.jsonl"

# The same text as generate gives to the same seed.
run generate @demo --prompt "The ship" --max-tokens 6 --seed 11 --json
ok "generate says the same" test "$(jq -r .text "$WORK/out")" = "$(jq -rs '.[14].response.body.choices[0].text' "$WORK/out.jsonl")"

# However it is run.
run batch job.yaml -i in.jsonl -o again.jsonl --threads 1 --set run.slots=3
ok "other slots, other threads: the same bytes" cmp "$WORK/again.jsonl" "$WORK/clean.jsonl"
run batch job.yaml -i in.jsonl -o again.jsonl --threads 1 --set run.slots=3
ok "again: nothing to do" is_done again.jsonl.job
rm "$WORK/again.jsonl"
run batch job.yaml -i in.jsonl -o again.jsonl --threads 1 --set run.slots=3
ok "an output that is gone comes back" cmp "$WORK/again.jsonl" "$WORK/clean.jsonl"
# Killed while it wrote the manifest again: the journal alone is enough to go on.
rm "$WORK/again.jsonl" "$WORK"/again.jsonl.job/*.json
run batch job.yaml -i in.jsonl -o again.jsonl --threads 1 --set run.slots=3
ok "a folder without a manifest goes on" cmp "$WORK/again.jsonl" "$WORK/clean.jsonl"
for i in 1 2 3; do
    run batch job.yaml -i in.jsonl -o "part$i.jsonl" --shard "$i/3"
done
cat "$WORK"/part[123].jsonl >"$WORK/parts"
ok "shards one behind the other" cmp "$WORK/parts" "$WORK/clean.jsonl"
run batch job.yaml -i in.jsonl -o five.jsonl --limit 5
ok "--limit" cmp "$WORK/five.jsonl" <(head -n 5 "$WORK/clean.jsonl")
cat >"$WORK/step.yaml" <<'YAML'
version: 1
model: "@demo"
seed: 3
pipeline:
  - run: {input: in.jsonl, output: answers.jsonl}
YAML
run run step.yaml --out steps
ok "the step run" cmp "$WORK/steps/answers.jsonl" "$WORK/clean.jsonl"
ok "tokens, seconds and what the journal took" json '.results.run | .tokens > 50 and .seconds > 0 and .journal_s > 0 and .journal_s < .seconds' "$WORK/steps/results.json"
run run step.yaml --out steps --set run.slots=3 --set run.stall=7 --set run.ranks=threads --set run.threads=1
ok "what changes no answer makes no other job" is_done steps
fails "what does is named" 2 'steps' run step.yaml --out steps --set run.slots=3 --set run.temperature=0.5
run batch job.yaml -i in.jsonl -o clean.jsonl --retry-errors
ok "--retry-errors of lines that stay wrong" cmp "$WORK/clean.jsonl" "$WORK/out.jsonl"
run batch job.yaml -i in.jsonl -o clean.jsonl
ok "the same command without it finds that all is done, got $rc" is_done clean.jsonl.job


# An output that is not what was sealed is written once more.
run batch job.yaml -i in.jsonl -o out.jsonl
ok "a job that is done" is_done out.jsonl.job
head -c 100 "$WORK/clean.jsonl" >"$WORK/out.jsonl"
run batch job.yaml -i in.jsonl -o out.jsonl
ok "an output that was cut: 0" test "$rc" = 0
ok "an output that was cut is whole again" cmp "$WORK/clean.jsonl" "$WORK/out.jsonl"
rm "$WORK/out.jsonl"
mkdir "$WORK/out.jsonl"
fails "a folder in the place of the output" 2 '*/out.jsonl' batch job.yaml -i in.jsonl -o out.jsonl
rmdir "$WORK/out.jsonl"
run batch job.yaml -i in.jsonl -o out.jsonl
ok "an output that is gone is there again" cmp "$WORK/clean.jsonl" "$WORK/out.jsonl"

# The same of the job that has the step in it.
for how in cut changed gone; do
    case $how in
    cut) head -c 100 "$WORK/clean.jsonl" >"$WORK/steps/answers.jsonl" ;;
    changed) sed 's/r1/r2/' "$WORK/clean.jsonl" >"$WORK/steps/answers.jsonl" ;;
    gone) rm "$WORK/steps/answers.jsonl" ;;
    esac
    run run step.yaml --out steps
    ok "an output that is $how: 0, got $rc" test "$rc" = 0
    ok "an output that is $how is said" grep -q 'answers\.jsonl' "$WORK/err"
    ok "an output that is $how is whole again" cmp "$WORK/clean.jsonl" "$WORK/steps/answers.jsonl"
    ok "an output that is $how: results" json '.results.run.records > 0' "$WORK/steps/results.json"
done
run run step.yaml --out steps
ok "and done again" is_done steps

# What is refused before anything runs.
{ head -n 3 "$WORK/in.jsonl"; head -n 1 "$WORK/in.jsonl"; } >"$WORK/twice.jsonl"
fails "one custom_id twice" 2 '*/twice.jsonl' batch job.yaml -i twice.jsonl -o twice.out
: >"$WORK/empty.jsonl"
fails "an empty input" 2 '*/empty.jsonl' batch job.yaml -i empty.jsonl -o empty.out
run batch job.yaml -i missing.jsonl -o missing.out
ok "a missing input" test "$rc" = 2
run batch job.yaml -i in.jsonl -o shard.out --shard 4/3
ok "a shard that is none" test "$rc" = 2
fails "input and output one file" 2 '*/in.jsonl' batch job.yaml -i in.jsonl -o in.jsonl
sed 's/seed: 3/seed: 4/' "$WORK/job.yaml" >"$WORK/other.yaml"
fails "another job in the folder" 2 '*/out.jsonl.job' batch other.yaml -i in.jsonl -o out.jsonl
ok "and what differs" failure '.message | test("\\bseed\\b")'

# A chat: the same tokens as the conversation put together by hand; special strings in it are text.
cp -r "$ROOT/configs/demo" "$WORK/talks"
jq -j '.templates[] | select(.key == "chatml") | .template' "$ROOT/tests/golden/chat/chat.json" >"$WORK/talks/chat_template.jinja"
text=$(jq -c '.templates[] | select(.key == "chatml") | .cases[3].text' "$ROOT/tests/golden/chat/chat.json")
messages=$(jq -c '.templates[] | select(.key == "chatml") | .cases[3].messages' "$ROOT/tests/golden/chat/chat.json")
{
    request 1 '{"messages":'"$messages"',"max_tokens":5,"temperature":0,"logprobs":true,"top_logprobs":1}' /v1/chat/completions
    request 2 '{"prompt":'"$text"',"max_tokens":5,"temperature":0}'
    request 3 '{"messages":[{"role":"user","content":"<|end_of_text|>"}],"max_tokens":1}' /v1/chat/completions
    request 4 '{"messages":[{"role":"user"}]}' /v1/chat/completions
    request 5 '{"messages":[{"role":"user","content":[{"type":"text","text":"one <|end_of_text|>"},{"type":"text","text":" two"}]}],"max_tokens":1}' /v1/chat/completions
    request 6 '{"messages":[{"role":"user","content":"one <|end_of_text|> two"}],"max_tokens":1}' /v1/chat/completions
    request 7 '{"messages":[{"role":"user","content":"x"}],"tool_choice":"required"}' /v1/chat/completions
} >"$WORK/talk.jsonl"
run batch talks -i talk.jsonl -o talk.out
ok "a chat" json -s '.[0].response.body | .object == "chat.completion" and .choices[0].message.role == "assistant"' "$WORK/talk.out"
ok "as put together by hand" json -s '.[0].response.body.choices[0].message.content == .[1].response.body.choices[0].text' "$WORK/talk.out"
ok "logprobs of a chat" json -s '.[0].response.body.choices[0].logprobs.content | length == 5 and all(.[]; .logprob == .top_logprobs[0].logprob)' "$WORK/talk.out"
ok "a special string in a message is text" json -s '.[2].response.body.usage.prompt_tokens > 20' "$WORK/talk.out"
ok "a message without content" json -s '.[3].error.message | test("content")' "$WORK/talk.out"
ok "parts are one text" json -s '.[4].response.body.usage.prompt_tokens == .[5].response.body.usage.prompt_tokens' "$WORK/talk.out"
ok "tool_choice" json -s '.[6].error.message | test("tool_choice")' "$WORK/talk.out"

# Tools, calls and variables reach the template; where it refuses, the line has its place.
cat >"$WORK/talks/chat_template.jinja" <<'EOF'
{{ bos_token }}
{%- for m in messages -%}
{{ m.role }}: {{ m.content if m.content is string else m.tool_calls[0].function.arguments.k }};
{%- endfor -%}
{{ tools | tojson if tools else 'no tools' }} {{ mode }} {{ strftime_now('%Y-%m-%d') }}
{%- if mode == 'bad' %}{{ raise_exception('Mode ' ~ mode ~ ' is none') }}{% endif %}
EOF
call='{"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"k\": \"value\"}"}}]}'
{
    request 1 '{"messages":[{"role":"user","content":"x"},'"$call"'],"tools":[{"a":1}],"chat_template_kwargs":{"mode":"on"},"max_tokens":3,"temperature":0}' /v1/chat/completions
    request 2 '{"prompt":"user: x;assistant: value;[{\"a\": 1}] on 2024-07-26","max_tokens":3,"temperature":0}'
    request 3 '{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"mode":"bad"},"max_tokens":3}' /v1/chat/completions
    request 4 '{"messages":[{"role":"user","content":"x"}],"tools":[{"a":1}],"tool_choice":"none","chat_template_kwargs":{"mode":"on"},"max_tokens":3,"temperature":0}' /v1/chat/completions
    request 5 '{"prompt":"user: x;no tools on 2024-07-26","max_tokens":3,"temperature":0}'
} >"$WORK/tools.jsonl"
run batch talks -i tools.jsonl -o tools.out
same='def text: .response.body.choices[0] | .message.content // .text; def n: .response.body.usage.prompt_tokens;'
ok "tools as put together by hand" json -s "$same"'(.[0] | text, n) == (.[1] | text, n) and (.[3] | text, n) == (.[4] | text, n)' "$WORK/tools.out"
ok "what the template refuses" json -s '.[2].error | .code == "invalid_request" and (.message | test("chat_template:6:27: Mode bad is none"))' "$WORK/tools.out"
cp "$WORK/talks/chat_template.jinja" "$WORK/other.jinja"
run batch talks -i tools.jsonl -o dated.out --date 2031-05-04
ok "another date" json -s '.[0].response.body.choices[0] != null' "$WORK/dated.out"
fails "a date that is none" 2 '--date 2031-5-4:1:5' batch talks -i tools.jsonl -o bad.out --date 2031-5-4
fails "a template that is nowhere" 2 'nowhere.jinja' batch talks -i tools.jsonl -o bad.out --template nowhere.jinja
echo '{% nothing %}' >"$WORK/bad.jinja"
fails "a template that cannot run" 2 'bad.jinja:1:4' batch talks -i tools.jsonl -o bad.out --template bad.jinja
fails "the same batch with another template" 2 '*/tools.out.job' batch talks -i tools.jsonl -o tools.out --template other.jinja --date 2024-07-27
jq -j '.templates[] | select(.key == "chatml") | .template' "$ROOT/tests/golden/chat/chat.json" >"$WORK/talks/chat_template.jinja"
run generate talks --chat --system S --prompt a --max-tokens 3 --greedy
ok "generate --chat" test "$rc" = 0 -a -s "$WORK/out"
was=$(cat "$WORK/out")
fails "--chat without a template" 2 '' generate @demo --chat --prompt a
run generate @demo --chat --system S --prompt a --max-tokens 3 --greedy --template talks/chat_template.jinja
ok "--template FILE" test "$rc" = 0 -a "$(cat "$WORK/out")" = "$was"
# shellcheck disable=SC2016
jq --rawfile t "$WORK/talks/chat_template.jinja" '. + {chat_template: [{name: "default", template: "x"}, {name: "real", template: $t}]}' \
    "$ROOT/configs/demo/tokenizer_config.json" >"$WORK/talks/tokenizer_config.json"
rm "$WORK/talks/chat_template.jinja"
run generate talks --chat --system S --prompt a --max-tokens 3 --greedy --template real
ok "--template NAME" test "$rc" = 0 -a "$(cat "$WORK/out")" = "$was"
fails "--template of no chat" 2 generate generate talks --prompt a --template real
echo '{{ unknown }}' >"$WORK/talks/chat_template.jinja"
fails "a template that makes nothing" 2 '' generate talks --chat --prompt a
echo '{{ messages[7].content }}' >"$WORK/talks/chat_template.jinja"
fails "a template that fails" 2 'chat_template:1:15' generate talks --chat --prompt a

# Prompts that begin alike are computed once: the same answers from one slot and from eight, most of the prompts reused.
words=$(for i in $(seq 60); do printf 'word %s of many, ' "$i"; done)
for i in $(seq 8); do
    request "$i" "{\"prompt\":\"$words and $i\",\"max_tokens\":5}"
done >"$WORK/alike.jsonl"
for slots in 1 8; do
    printf 'version: 1\nmodel: "@demo"\npipeline:\n  - run: {input: alike.jsonl, output: out.jsonl, context: 1024, slots: %s}\n' "$slots" >"$WORK/alike.yaml"
    run run alike.yaml --out "alike-$slots"
    ok "alike with $slots slots: exit code 0, got $rc" test "$rc" = 0
    ok "alike with $slots slots: most is reused" json '.results.run | .errors == 0 and .reused_tokens > 1000' "$WORK/alike-$slots/results.json"
done
ok "alike: the same answers" cmp <(jq .response.body.choices "$WORK/alike-1/out.jsonl") <(jq .response.body.choices "$WORK/alike-8/out.jsonl")

# The journal, looked at.
run journal show out.jsonl --json
ok "journal show" json ".sealed and .lines == $lines and (.damaged | not)" "$WORK/out"
run journal export out.jsonl
ok "journal export" cmp "$WORK/out" "$WORK/out.jsonl"
finish
