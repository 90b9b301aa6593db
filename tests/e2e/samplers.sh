#!/bin/bash
# tests/e2e/samplers.sh TESSERA - samplers in generate, batch and serve: the same answers whatever shares the work, texts
# within their schema, and a batch that was killed goes on as if it had not been.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
server=0
end_server() { [ "$server" = 0 ] || kill -KILL "$server" 2>/dev/null || true; }
trap 'end_server; rm -rf "$WORK"' EXIT
SCHEMA='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}, "tags": {"type": "array", "maxItems": 2, "items": {"enum": ["a", "b"]}}}, "required": ["name", "age"]}'
FORMAT=$(jq -nc --argjson s "$SCHEMA" '{type: "json_schema", json_schema: {name: "x", schema: $s}}')
# fits FILE: each line is a text that keeps the schema
fits() {
    jq -e -R 'fromjson | (.name | type == "string" and length <= 8) and (.age | type == "number" and floor == .) and
        ((.tags // []) | length <= 2 and all(. == "a" or . == "b")) and (keys - ["age", "name", "tags"] == [])' "$1" >/dev/null
}

# ---- batch ---------------------------------------------------------------------------
for i in $(seq 12); do
    jq -nc --argjson f "$FORMAT" --arg i "$i" '{custom_id: "r\($i)", method: "POST", url: "/v1/completions",
        body: ({prompt: "The \($i). time", max_tokens: 120, temperature: 0.7} + if ($i | tonumber) % 3 == 0 then {} else {response_format: $f} end)}'
done >"$WORK/in.jsonl"
job() { # job NAME KEYS
    printf 'version: 1\nmodel: "@demo"\npipeline:\n  - run: {input: in.jsonl, output: answers.jsonl, %s}\n' "$2" >"$WORK/$1.yaml"
}
cat >"$WORK/plan.yaml" <<'END'
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 120, batch: 4, kv: f32}
micro_batches: {prefill: 2, decode: 2}
stages:
  - {layers: 0-2, node: n, device: a, tp: 1, schemes: [{layers: 0-2, keep: true}]}
  - {layers: 3-5, node: n, device: b, tp: 1, schemes: [{layers: 3-5, keep: true}]}
END
MIN_P='samplers: [{use: min_p, p: 0.02}], act: f32'
job one "$MIN_P, slots: 1"
job many "$MIN_P, slots: 5"
job ranks "$MIN_P, plan: plan.yaml, ranks: threads"
job plain "act: f32, slots: 5"
for name in one many ranks plain; do
    run run $name.yaml --out $name
    ok "$name: exit code 0, got $rc" test "$rc" = 0
done
texts() { jq -cS '[.custom_id, .response.body.choices]' "$WORK/$1/answers.jsonl" | sort; }
ok "one slot or five: the same answers" cmp <(texts one) <(texts many)
ok "one engine or ranks: the same answers" cmp <(texts one) <(texts ranks)
ok "min_p changes some of them" test "$(texts one)" != "$(texts plain)"
jq -r 'select(.response.body.choices[0].finish_reason == "stop") | select(.custom_id | ltrimstr("r") | tonumber % 3 != 0) |
    .response.body.choices[0].text' "$WORK/one/answers.jsonl" | tr -d '\n' | sed 's/}/}\n/g' >"$WORK/texts"
ok "most of the texts end, got $(wc -l <"$WORK/texts") of 8" test "$(wc -l <"$WORK/texts")" -ge 4
ok "those that end keep the schema" fits "$WORK/texts"

# killed while it runs, and started again
job killed "$MIN_P, slots: 2"
(cd "$WORK" && exec "$TESSERA" run killed.yaml --out killed) >"$WORK/log" 2>&1 </dev/null &
server=$!
for ((i = 0; i < 400; i++)); do
    [ "$(stat -c %s "$WORK"/killed/answers.jsonl.job/journal* 2>/dev/null | sort -n | tail -1)" -gt 2000 ] 2>/dev/null && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.02
done
end_server
wait "$server" 2>/dev/null || true
server=0
run run killed.yaml --out killed
ok "started again: exit code 0, got $rc" test "$rc" = 0
ok "the answers of a run that was not killed" cmp <(texts one) <(texts killed)

# ---- what is refused -------------------------------------------------------------------
job unknown 'samplers: [min_q]'
fails "an unknown sampler" 2 'unknown.yaml:4:*' run unknown.yaml
job option 'samplers: [{use: min_p, q: 1}]'
fails "an unknown option" 2 'option.yaml:4:*' run option.yaml
job schema 'samplers: [{use: grammar, schema: "{\"pattern\": \"a\"}"}]'
fails "a keyword that is not kept" 2 'schema.yaml:4:*' run schema.yaml
job order "samplers: [{use: min_p, p: 1}, {use: grammar, schema: '{\"const\": 7}'}], temperature: 0, limit: 1"
run run order.yaml --out order
ok "a token that cannot follow fails its record alone" jq -e '.error.message | test("grammar")' "$WORK/order/answers.jsonl" >/dev/null

# ---- generate ---------------------------------------------------------------------------
cat >"$WORK/generate.yaml" <<END
version: 1
model: "@demo"
pipeline:
  - generate:
      prompts: ["The", "Once"]
      max_tokens: 120
      temperature: 0.7
      samplers: [{use: grammar, schema: '$SCHEMA'}, min_p]
END
run run generate.yaml --out generated --json
jq -r '.. | .samples? // empty | .[] | select(.stopped) | .text' "$WORK/out" | tr -d '\n' | sed 's/}/}\n/g' >"$WORK/texts"
ok "generate: texts that end keep the schema" fits "$WORK/texts"
ok "generate: one ends" test -s "$WORK/texts"

# ---- serve --------------------------------------------------------------------------------
if [ -x "$(dirname "$TESSERA")/http/tessera-http" ]; then
    (cd "$WORK" && exec "$TESSERA" serve @demo --port 0 --act f32) >"$WORK/said" 2>"$WORK/log" </dev/null &
    server=$!
    for ((i = 0; i < 600; i++)); do
        grep -q 'listening at' "$WORK/log" && break
        sleep 0.1
    done
    at=$(sed -n 's/^tessera: listening at //p' "$WORK/log")
    body=$(jq -c 'select(.custom_id == "r1") | .body + {seed: 3}' "$WORK/in.jsonl")
    jq -nc --argjson b "$body" '{custom_id: "s", method: "POST", url: "/v1/completions", body: $b}' >"$WORK/seeded.jsonl"
    run batch @demo -i seeded.jsonl -o seeded-out.jsonl --act f32
    curl -s -m 60 -o "$WORK/body" -d "$body" "$at/v1/completions" || true
    ok "serve answers as batch does" cmp <(jq -cS .choices "$WORK/body") <(jq -cS .response.body.choices "$WORK/seeded-out.jsonl")
    status=$(curl -s -m 60 -o "$WORK/body" -w '%{http_code}' -d '{"prompt": "a", "response_format": {"type": "xml"}}' "$at/v1/completions") || true
    ok "a format that is none: 400, got $status" test "$status" = 400
    kill -TERM "$server"
    wait "$server" || true
    server=0
fi
finish
