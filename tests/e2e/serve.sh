#!/bin/bash
# tests/e2e/serve.sh TESSERA - a model that answers HTTP requests: what a batch answers, whatever else runs; what is
# refused; slow clients, signals and the end.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
if [ ! -x "$(dirname "$TESSERA")/http/tessera-http" ]; then
    fails "serve without the HTTP program" 2 '' serve @demo --port 0
    finish
    exit 0
fi
server=0
end_server() { [ "$server" = 0 ] || kill -KILL "$server" 2>/dev/null || true; }
trap 'end_server; rm -rf "$WORK"' EXIT

# begin ARGUMENT...: a server in the background; sets $server and $at
begin() {
    : >"$WORK/log"
    (cd "$WORK" && exec "$TESSERA" serve "$@" --port 0) >"$WORK/said" 2>"$WORK/log" </dev/null &
    server=$!
    for ((i = 0; i < 600; i++)); do
        grep -q 'listening at' "$WORK/log" && break
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    at=$(sed -n 's/^tessera: listening at //p' "$WORK/log")
    ok "serve $* listens" test -n "$at"
}
# stop [SIGNAL]: ends it; sets rc
stop() {
    rc=0
    kill -"${1:-TERM}" "$server" || true
    wait "$server" || rc=$?
    server=0
    cp "$WORK/log" "$WORK/err"
}
# ask PATH [CURL-OPTION...]: sets status, leaves the body in $WORK/body
ask() {
    local path=$1
    shift
    status=$(curl -s -m 60 -o "$WORK/body" -w '%{http_code}' "$@" "$at$path") || true
}
# refused NAME STATUS CODE PATH [CURL-OPTION...]
refused() {
    local name=$1 want=$2 code=$3
    shift 3
    : >"$WORK/body"
    ask "$@"
    ok "$name: status $want, got $status" test "$status" = "$want"
    ok "$name: an error with its code" json --arg c "$code" '.error | .code == $c and (.message | type == "string") and .type' "$WORK/body"
}

# ---- the answers of a batch, whatever the load -------------------------------
for file in "$ROOT"/tests/golden/completions/*.json; do
    jq -c '.log[] | select(.request and (.path | endswith("/completions"))).body' "$file"
done >"$WORK/bodies"
cat >>"$WORK/bodies" <<'B'
{"prompt":"Once upon","max_tokens":20,"n":3,"temperature":1}
{"prompt":["The ship","h\u00e9"],"max_tokens":9,"seed":5,"n":2,"logprobs":3,"echo":true}
{"prompt":"x","max_tokens":0}
B
n=$(wc -l <"$WORK/bodies")
mkdir "$WORK/want" "$WORK/got"
# a request without a seed is that of the first line of a batch
for ((i = 1; i <= n; i++)); do
    sed -n "${i}p" "$WORK/bodies" >"$WORK/body.$i"
    jq -c '{custom_id: "a", url: "/v1/completions", body: .}' "$WORK/body.$i" >"$WORK/line.jsonl"
    if jq -e 'has("seed") | not' "$WORK/body.$i" >"$WORK/jq" || [ "$i" -le 3 ]; then
        run batch @demo -i line.jsonl -o "one.$i"
        jq -c '.response.body | [.choices, .usage, .object, .model]' "$WORK/one.$i" >"$WORK/want/$i"
    else
        sed "s/\"a\"/\"$i\"/" "$WORK/line.jsonl" >>"$WORK/seeded.jsonl"
    fi
done
run batch @demo -i seeded.jsonl -o seeded.out
while IFS= read -r line; do
    id=$(jq -r .custom_id <<<"$line")
    jq -c '.response.body | [.choices, .usage, .object, .model]' <<<"$line" >"$WORK/want/$id"
done <"$WORK/seeded.out"
ok "an answer of a batch for each body" test "$(find "$WORK/want" -type f -size +50c | wc -l)" = "$n" -a "$n" -gt 30

begin @demo --slots 3
ask /health
ok "/health" test "$status" = 200
ask /v1/models
ok "/v1/models" json '.object == "list" and .data[0].id == "demo" and .data[0].object == "model"' "$WORK/body"
ask /v1/models/demo
ok "/v1/models/NAME" json '.id == "demo"' "$WORK/body"
# counter NAME: what /metrics says
counter() { curl -s -m 60 "$at/metrics" | sed -n "s/^tessera_$1_total //p"; }
prompts=$(counter prompt_tokens) news=$(counter generated_tokens)
ask /v1/completions -d '{"prompt":[5,6,7],"max_tokens":4,"n":2,"ignore_eos":true}'
ok "/metrics counts a prompt once" test "$(counter prompt_tokens)" = $((prompts + 3))
ok "and new tokens of each choice" test "$(counter generated_tokens)" = $((news + 8))
# one MANY: asks for each body, so many at once
each() {
    # shellcheck disable=SC2016 # of the inner shell
    seq "$n" | xargs -P "$1" -I{} sh -c 'curl -s -m 100 -o "$1/got/$2" -d "@$1/body.$2" "$3/v1/completions"' _ "$WORK" {} "$at"
    for ((i = 1; i <= n; i++)); do
        jq -c '[.choices, .usage, .object, .model]' "$WORK/got/$i" >"$WORK/one" || true
        ok "$1 at once, body $i: the answer of a batch" cmp -s "$WORK/one" "$WORK/want/$i"
        rm -f "$WORK/got/$i"
    done
}
each 1
each 12

# ---- keys and values of prompts stay -------------------------------------------
reused=$(counter reused_tokens)
for ((i = 1; i <= 4; i++)); do
    # a conversation: each turn begins with the one before and its answer
    jq -cn --argjson p "$(cat "$WORK/turn" 2>/dev/null || echo '[5,6,7,8,9,10,11,12]')" '{prompt: $p, max_tokens: 6, temperature: 0, ignore_eos: true, logprobs: 1}' >"$WORK/turns.$i"
    ask /v1/completions -d @"$WORK/turns.$i"
    jq -c .choices "$WORK/body" >"$WORK/turned.$i"
    ask /tokenize -d "$(jq -c '{prompt: (.choices[0].logprobs.tokens | add), add_special_tokens: false}' "$WORK/body")"
    jq -c --slurpfile t "$WORK/body" '.prompt + $t[0].tokens + [20, 21]' "$WORK/turns.$i" >"$WORK/turn"
    jq -c --arg i "$i" '{custom_id: $i, url: "/v1/completions", body: .}' "$WORK/turns.$i"
done >"$WORK/turns.jsonl"
run batch @demo -i turns.jsonl -o turns.out
for ((i = 1; i <= 4; i++)); do
    ok "turn $i: the answer of a batch, which reuses nothing" test "$(cat "$WORK/turned.$i")" = "$(sed -n "${i}p" "$WORK/turns.out" | jq -c .response.body.choices)"
done
ok "a turn takes what the one before computed: $(($(counter reused_tokens) - reused))" test $(($(counter reused_tokens) - reused)) -ge 42

# ---- streams: the same answers in parts ----------------------------------------
# joined: the choices of the events on stdin, their parts put together, and the usage
joined() {
    sed -n 's/^data: //p' | grep -v '^\[DONE\]$' | jq -cs --argjson chat "${1:-false}" '
        def cat(f): map(f) | if all(. == null) then null else map(. // empty) | add end;
        ([.[].choices[]] | group_by(.index) | map({
            index: .[0].index,
            text: cat(if $chat then .delta.content else .text end),
            logprobs: (map(.logprobs // empty) | if length == 0 then null else
                reduce .[] as $l (null; if . == null then $l else with_entries(.key as $k | .value += $l[$k]) end) end),
            finish_reason: (map(.finish_reason // empty) | if length == 1 then .[0] else error("ends") end)
        })) as $c | [$c, (map(.usage // empty) | .[0])]'
}
whole='[(.choices | map({index, text: (.text // .message.content), logprobs, finish_reason})), .usage]'
for ((i = 1; i <= n; i++)); do
    jq -c '. + {stream: true, stream_options: {include_usage: true}}' "$WORK/body.$i" >"$WORK/stream.$i"
done
# shellcheck disable=SC2016 # of the inner shell
seq "$n" | xargs -P 6 -I{} sh -c 'curl -sN -m 100 -o "$1/got/$2" -d "@$1/stream.$2" "$3/v1/completions"' _ "$WORK" {} "$at"
for ((i = 1; i <= n; i++)); do
    joined <"$WORK/got/$i" >"$WORK/one" || true
    jq -c '{choices: .[0], usage: .[1]} | '"$whole" "$WORK/want/$i" >"$WORK/two"
    ok "stream $i: the parts are the answer of a batch" cmp -s "$WORK/one" "$WORK/two"
    ok "stream $i: events and an end" test "$(tail -n 2 "$WORK/got/$i" | head -n 1)" = 'data: [DONE]' -a \
        -z "$(grep -vE '^(data: .*)?$' "$WORK/got/$i")"
    rm -f "$WORK/got/$i"
done
curl -sN -m 60 -D "$WORK/head" -o "$WORK/body" -d '{"prompt":"Once","max_tokens":3,"stream":true}' "$at/v1/completions"
ok "a stream says what it is" grep -qi '^content-type: text/event-stream' "$WORK/head"
ok "no usage unless asked for" json -R -s 'split("\n") | map(select(startswith("data: {")) | .[6:] | fromjson) | length > 1 and all(.[]; has("usage") | not)' "$WORK/body"

# a client that leaves has no slot and no place: a stream, an answer, one that waits for a slot
for more in '"stream":true' '"seed":1'; do
    for k in 1 2 3 4 5; do
        curl -sN -m 60 -o "$WORK/left.$k" -d '{"prompt":"Once","max_tokens":1000,"ignore_eos":true,"n":128,'"$more"'}' "$at/v1/completions" &
        waits[k]=$!
    done
    for ((i = 0; i < 300; i++)); do
        ask /health
        json '.in_work == 5' "$WORK/body" && break
        sleep 0.05
    done
    ok "five are in work: $more" json '.in_work == 5' "$WORK/body"
    kill "${waits[@]}" || true
    wait "${waits[@]}" || true
    # 128000 tokens each would take minutes
    for ((i = 0; i < 100; i++)); do
        ask /health
        json '.in_work == 0' "$WORK/body" && break
        sleep 0.05
    done
    ok "none is after they left: $more" json '.in_work == 0' "$WORK/body"
    ask /v1/completions -m 20 -d '{"prompt":"x","max_tokens":1}'
    ok "and the slots are free: $more, $status" test "$status" = 200
done
ask /tokenize -d '{"prompt": "test", "add_special_tokens": false}'
ok "/tokenize as lm-eval was answered" json '. == {"count": 2, "max_model_len": 1024, "tokens": [83, 422]}' "$WORK/body"
ask /tokenizer_info
ok "/tokenizer_info, of which lm-eval reads eos_token" json '. == {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "chat_template": null}' "$WORK/body"
ask /detokenize -d '{"tokens": [83, 422]}'
ok "/detokenize" json '. == {"prompt": "test"}' "$WORK/body"
curl -s -m 60 -H 'Expect: 100-continue' -H 'Transfer-Encoding: chunked' -d @"$WORK/body.1" -o "$WORK/body" "$at/v1/completions"
jq -c '[.choices, .usage, .object, .model]' "$WORK/body" >"$WORK/one"
ok "a body in chunks" cmp -s "$WORK/one" "$WORK/want/1"

# ---- what is refused ----------------------------------------------------------
refused "no JSON" 400 invalid_json /v1/completions -d 'not json'
refused "no object" 400 invalid_request /v1/completions -d '[1]'
refused "an unknown key" 400 invalid_request /v1/completions -d '{"prompt":"a","max_token":1}'
refused "options of a stream that is none" 400 invalid_request /v1/completions -d '{"prompt":"a","stream_options":{"include_usage":true}}'
refused "an unknown option of a stream" 400 invalid_request /v1/completions -d '{"prompt":"a","stream":true,"stream_options":{"usage":true}}'
refused "a stream too long for the context" 400 context_length_exceeded /v1/completions -d '{"prompt":"a","max_tokens":5000,"stream":true}'
refused "no template" 400 invalid_request /v1/chat/completions -d '{"messages":[{"role":"user","content":"a"}]}'
refused "too long for the context" 400 context_length_exceeded /v1/completions -d '{"prompt":"a","max_tokens":5000}'
refused "no text" 400 invalid_request /tokenize -d '{"prompt":1}'
refused "no ids" 400 invalid_request /detokenize -d '{"tokens":["a"]}'
refused "an unknown path" 404 not_found /v1/embeddings -d '{}'
refused "an unknown model" 404 model_not_found /v1/models/other
refused "another method" 405 method_not_allowed /v1/completions -X DELETE
head -c 2000000 /dev/zero | tr '\0' ' ' >"$WORK/large"
refused "a long body" 413 body_too_long /v1/completions -H 'Expect:' --data-binary @"$WORK/large"
status=$(curl -s -m 60 -o "$WORK/body" -w '%{http_code}' -H 'Expect:' -H 'Transfer-Encoding: chunked' --data-binary @"$WORK/large" "$at/v1/completions") || true
ok "a long body in chunks gets no answer, got $status" test "$status" = 000
ask /health -H "X: $(head -c 60000 /dev/zero | tr '\0' a)"
ok "a long head: $status" test "$status" = 431 -o "$status" = 413
printf 'no http\r\n\r\n' >"$WORK/noise"
port=${at##*:}
exec 5<>"/dev/tcp/127.0.0.1/$port"
cat "$WORK/noise" >&5
cat <&5 >"$WORK/body" || true
exec 5>&-
ok "bytes that are no HTTP end the connection" test "$(head -c 8 "$WORK/body")" = HTTP/1.1 -o ! -s "$WORK/body"
ask /health
ok "and the server goes on" test "$status" = 200

ask /metrics
ok "/metrics counts answers by status" test "$status" = 200 -a "$(sed -n 's/^tessera_http_answers_total{status="405"} //p' "$WORK/body")" = 1
ok "and what is open" grep -q '^tessera_http_connections [1-9]' "$WORK/body"
ok "in lines that are comments or a name and a number" test -z "$(grep -vE '^(# (HELP|TYPE) |[a-z_]+(\{status="[0-9]+"\})? [0-9]+$)' "$WORK/body")"

# ---- the end ---------------------------------------------------------------------
(curl -s -m 100 -o "$WORK/last" -d '{"prompt":"Once","max_tokens":900,"ignore_eos":true,"n":3,"temperature":1}' "$at/v1/completions") &
last=$!
for ((i = 0; i < 300; i++)); do
    ask /health # the line of a request that has come counts
    json '.in_work >= 1' "$WORK/body" && break
    sleep 0.1
done
stop TERM
ok "SIGTERM ends it with 0, got $rc" test "$rc" = 0
wait "$last" || true
ok "a request that had come is answered" json '.usage.completion_tokens == 2700' "$WORK/last"
ok "nobody listens any more" test "$(curl -s -o /dev/null -w '%{http_code}' "$at/health" || true)" = 000
ok "what it did is said" grep -q 'requests, .* errors, .* new tokens' "$WORK/said"

# ---- a key, limits, slow clients -----------------------------------------------
echo 'secret-key' >"$WORK/key"
begin @demo --api-key-file key --queue 2 --slots 1 --timeout 1.5 --deadline 2 --connections 8
refused "no key" 401 invalid_api_key /v1/models
refused "another key" 401 invalid_api_key /v1/models -H 'Authorization: Bearer secret-kez'
refused "a part of the key" 401 invalid_api_key /v1/models -H 'Authorization: Bearer secret'
ask /v1/models -H 'Authorization: Bearer secret-key'
ok "the key: $status" test "$status" = 200
ask /health
ok "/health needs none: $status" test "$status" = 200
# a request that cannot end before its deadline, and two places in all
long='{"prompt":[[5],[5],[5],[5],[5],[5],[5],[5]],"max_tokens":1000,"n":128,"ignore_eos":true}'
for k in 1 2 3 4; do
    curl -s -m 60 -o "$WORK/long.$k" -w '%{http_code}\n' -H 'Authorization: Bearer secret-key' -d "$long" "$at/v1/completions" >"$WORK/code.$k" &
    waits[k]=$!
done
wait "${waits[@]}" || true
ok "two wait, the others get 503, and none has an answer after its deadline" test "$(sort "$WORK"/code.? | tr '\n' ' ')" = '503 503 504 504 '
ok "errors in both" json -s 'all(.[]; .error.code == "overloaded" or .error.code == "deadline_exceeded")' "$WORK"/long.?
exec 5<>"/dev/tcp/127.0.0.1/${at##*:}"
printf 'POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret-key\r\nContent-Length: 30\r\n\r\n{"pro' >&5
timeout 60 cat <&5 >"$WORK/body" || true
exec 5>&-
exec 6<>"/dev/tcp/127.0.0.1/${at##*:}"
printf 'POST /v1/comp' >&6
timeout 60 cat <&6 >"$WORK/body" && slow=0 || slow=$?
exec 6>&-
ok "a client that does not go on is shut, $slow" test "$slow" = 0
ask /health
ok "and the server is there" test "$status" = 200
# the HTTP program is gone: the engine says so
kill -KILL "$(pgrep -P "$server" tessera-http)"
rc=0
wait "$server" || rc=$?
server=0
cp "$WORK/log" "$WORK/err"
ok "without the HTTP program: exit code 6, got $rc" test "$rc" = 6

# ---- a job, and what cannot start ---------------------------------------------
cat >"$WORK/job.yaml" <<'Y'
version: 1
model: "@demo"
pipeline:
  - quantize: {use: rtn, bits: 8, group: 64}
Y
for k in 1 2; do
    begin job.yaml --out packed --no-reuse
    ask /v1/completions -d '{"prompt":"Once","max_tokens":8,"temperature":0}'
    cp "$WORK/body" "$WORK/packed.$k"
    stop INT
    ok "Ctrl-C ends it with 0, got $rc" test "$rc" = 0
done
jq '{custom_id: "a", url: "/v1/completions", body: .}' -c <<<'{"prompt":"Once","max_tokens":8,"temperature":0}' >"$WORK/line.jsonl"
run batch job.yaml -i line.jsonl -o packed.out
for k in 1 2; do
    ok "a quantized model answers as in a batch, start $k" test \
        "$(jq -c .choices "$WORK/packed.$k")" = "$(jq -c .response.body.choices "$WORK/packed.out")"
done

# ---- chats, by the model's template -------------------------------------------
cp -r "$ROOT/configs/demo" "$WORK/talks"
jq -j '.templates[] | select(.key == "chatml") | .template' "$ROOT/tests/golden/chat/chat.json" >"$WORK/talks/chat_template.jinja"
cat >"$WORK/chat" <<'B'
{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Who?"}]}],"model":"demo","max_tokens":8,"temperature":0,"stop":["\n","."],"seed":1234,"logprobs":true,"top_logprobs":2,"n":2}
B
jq -c '{custom_id: "a", url: "/v1/chat/completions", body: .}' "$WORK/chat" >"$WORK/line.jsonl"
run batch talks -i line.jsonl -o chat.out
begin talks --name talks/one
ask /v1/models/talks/one
ok "a name of one's own" json '.id == "talks/one"' "$WORK/body"
ask /v1/completions -d '{"prompt":"a","max_tokens":1}'
ok "is that of answers too" json '.model == "talks/one"' "$WORK/body"
ask /tokenizer_info
ok "and the template is what the model ships" test "$(jq -j .chat_template "$WORK/body")" = "$(cat "$WORK/talks/chat_template.jinja")"
jq -c '. + {stream: true, stream_options: {include_usage: true}}' "$WORK/chat" >"$WORK/stream"
curl -sN -m 60 -o "$WORK/events" -d @"$WORK/stream" "$at/v1/chat/completions"
joined true <"$WORK/events" >"$WORK/one" || true
ask /v1/chat/completions -d @"$WORK/chat"
stop TERM
jq -c "$whole" "$WORK/body" >"$WORK/two"
ok "a chat in parts" cmp -s "$WORK/one" "$WORK/two"
ok "its first delta has the role" json -R -s 'split("\n") | map(select(startswith("data: {")) | .[6:] | fromjson)
    | all(.object == "chat.completion.chunk") and ([.[].choices[] | .delta.role // empty] == ["assistant", "assistant"])' "$WORK/events"
ok "a chat, $status: the answer of a batch" test "$status" = 200 -a \
    "$(jq -c '[.choices, .usage, .object, .model]' "$WORK/body")" = "$(jq -c '.response.body | [.choices, .usage, .object, .model]' "$WORK/chat.out")"
ok "with a message in each choice" json '.object == "chat.completion" and ([.choices[].message.role] == ["assistant", "assistant"])' "$WORK/body"

# ---- the ranks of a plan ---------------------------------------------------------
cat >"$WORK/plan.yaml" <<'P'
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 12, batch: 4, chunk: 3, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - {layers: 0-2, node: here, device: this-machine, tp: 2, schemes: [{layers: 0-2, use: rtn, bits: 4, group: 64}]}
  - {layers: 3-5, node: here, device: this-machine, tp: 1, schemes: [{layers: 3-5, use: rtn, bits: 4, group: 64}]}
P
for ((i = 1; i <= n; i += 3)); do
    jq -c --arg i "$i" 'select(has("seed")) | {custom_id: $i, url: "/v1/completions", body: .}' "$WORK/body.$i"
done >"$WORK/line.jsonl"
run batch @demo -i line.jsonl -o ranked.out --plan plan.yaml --context 400
begin @demo --plan plan.yaml --context 400
same=0
while IFS= read -r line; do
    i=$(jq -r .custom_id <<<"$line")
    ask /v1/completions -d @"$WORK/body.$i"
    [ "$(jq -c '[.choices, .usage]' "$WORK/body")" != "$(jq -c '.response.body | [.choices, .usage]' <<<"$line")" ] || same=$((same + 1))
done <"$WORK/ranked.out"
ok "ranks answer as in a batch: $same" test "$same" -gt 4 -a "$same" = "$(wc -l <"$WORK/line.jsonl")"
# the prompts again, longer by their answers: the slots have the beginning
again=0
while IFS= read -r line; do
    i=$(jq -r .custom_id <<<"$line")
    jq -c --argjson a "$line" '.prompt |= (if type == "string" then . + $a.response.body.choices[0].text else . end)' \
        "$WORK/body.$i" >"$WORK/body.again.$i"
    jq -c --arg i "$i" '{custom_id: $i, url: "/v1/completions", body: .}' "$WORK/body.again.$i" >>"$WORK/again.jsonl"
done <"$WORK/ranked.out"
run batch @demo -i again.jsonl -o again.out --plan plan.yaml --context 400
for _ in 1 2; do
    while IFS= read -r line; do
        ask /v1/completions -d @"$WORK/body.again.$(jq -r .custom_id <<<"$line")"
        [ "$(jq -c '[.choices, .usage]' "$WORK/body")" != "$(jq -c '.response.body | [.choices, .usage]' <<<"$line")" ] || again=$((again + 1))
    done <"$WORK/again.out"
done
ok "ranks answer prompts that begin alike as in a batch: $again" test "$again" = $((2 * $(wc -l <"$WORK/again.out")))
reused=$(counter reused_tokens)
ok "ranks reuse what their slots have: $reused tokens" test "$reused" -gt 0
stop TERM
ok "and end with 0, got $rc" test "$rc" = 0
ok "what the ranks did is said" grep -q 'on 3 ranks' "$WORK/said"
begin @demo --plan plan.yaml --context 400
kill -KILL "$(pgrep -P "$server" -x tessera | tail -n 1)"
ask /v1/completions -m 60 -d '{"prompt":"a"}'
rc=0
wait "$server" || rc=$?
server=0
ok "a rank that dies ends the server: $rc" test "$rc" = 6

# ---- the arms of a comparison -------------------------------------------------------
cat >"$WORK/ab.yaml" <<'Y'
version: 1
model: "@demo"
seed: 3
quantize: {use: rtn, bits: 8, group: 64}
arms:
  eight: {quantize: {use: rtn, bits: 8, group: 64}}
  four: {set: {quantize.bits: 4}}
Y
for bits in 4 8; do
    sed "s/bits: 8/bits: $bits/" "$WORK/job.yaml" >"$WORK/job$bits.yaml"
    jq -c '{custom_id: "a", url: "/v1/completions", body: .}' <<<'{"prompt":"Once upon","max_tokens":16,"temperature":0,"logprobs":2}' >"$WORK/line.jsonl"
    run batch "job$bits.yaml" -i line.jsonl -o "arm$bits.out"
    jq -c .response.body.choices "$WORK/arm$bits.out" >"$WORK/arm$bits"
done
run batch @demo -i line.jsonl -o arm0.out
jq -c .response.body.choices "$WORK/arm0.out" >"$WORK/arm0"
# arm NAME: its choices
arm() {
    ask /v1/completions -d '{"model":"'"$1"'","prompt":"Once upon","max_tokens":16,"temperature":0,"logprobs":2}'
    jq -c .choices "$WORK/body"
}
begin ab.yaml --out ab
ask /v1/models
ok "each arm is a model" json '[.data[].id] == ["original", "eight", "four"]' "$WORK/body"
for which in original:0 eight:8 four:4; do
    ok "arm ${which%:*} answers as its scheme does in a batch" test "$(arm "${which%:*}")" = "$(cat "$WORK/arm${which#*:}")"
done
refused "no arm" 404 model_not_found /v1/completions -d '{"model":"other","prompt":"a"}'
refused "no model" 404 model_not_found /v1/completions -d '{"prompt":"a"}'
refused "no arm in a path" 404 model_not_found /v1/models/other
stop TERM
ok "it ends with 0, got $rc" test "$rc" = 0
begin ab.yaml --out blind --blind
ask /v1/models
ok "blind, names are numbers" json '[.data[].id] == ["arm-1", "arm-2", "arm-3"]' "$WORK/body"
for k in 1 2 3; do
    arm "arm-$k" >"$WORK/blind.$k"
done
stop TERM
for k in 1 2 3; do
    case $(jq -r ".results.serve.arms[\"arm-$k\"]" "$WORK/blind/results.json") in
    original) want=0 ;; eight) want=8 ;; four) want=4 ;; *) want=none ;;
    esac
    ok "and the results say which is which: arm-$k is $want" cmp -s "$WORK/blind.$k" "$WORK/arm$want"
done
fails "blind without a comparison" 2 '*' serve @demo --port 0 --blind
fails "a name for arms" 2 '*' serve ab.yaml --out named --port 0 --name x

fails "a host that is no address" 2 '' serve @demo --host localhost --port 0
fails "a key file that is not there" 2 '*' serve @demo --api-key-file nothing --port 0
echo 'two words' >"$WORK/key"
fails "a key with a space" 2 '*' serve @demo --api-key-file key --port 0
echo 1 >"$WORK/port"
begin @demo --port-file port
ok "the port is in the file" test "$(cat "$WORK/port")" = "${at##*:}"
fails "a port that is taken" 2 '' serve @demo --port "${at##*:}"
stop TERM
finish
