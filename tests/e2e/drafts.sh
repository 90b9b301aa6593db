#!/bin/bash
# tests/e2e/drafts.sh TESSERA - drafts change no byte: of one text, of a list, of a batch, on ranks and of a server; what
# cannot have them says so.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
server=0
trap '[ "$server" = 0 ] || kill -KILL "$server" 2>/dev/null || true; rm -rf "$WORK"' EXIT

# ---- one text, and a list ------------------------------------------------------
run generate "$STORIES" --tokens 1 --max-tokens 200 --greedy
cp "$WORK/out" "$WORK/story"
for draft in "--draft lookup" "--draft lookup --draft-tokens 1" "--draft lookup --draft-tokens 16"; do
    # shellcheck disable=SC2086 # options
    run generate "$STORIES" --tokens 1 --max-tokens 200 --greedy $draft -v
    ok "$draft: the same story" cmp "$WORK/out" "$WORK/story"
    ok "$draft: some drafts are right" grep -q ': info: [1-9][0-9]* of [1-9][0-9]* drafted tokens were right' "$WORK/err"
done
for draft in none lookup; do
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $DEMO
seed: 4
pipeline:
  - generate: {prompts: ["The President said that", "a b c d a b c d a b", "The ship and the ship and the"], max_tokens: 40, temperature: 0.7, draft: $draft}
JOB
    cp "$WORK/job.yaml" "$WORK/job.$draft"
    run run job.yaml --out "list-$draft"
    ok "a list with draft: $draft: exit code 0, got $rc" test "$rc" = 0
done
ok "a list: the same texts" cmp <(jq .results.generate.samples "$WORK/list-none/results.json") \
    <(jq .results.generate.samples "$WORK/list-lookup/results.json")
ok "a list counts its drafts" json '.results.generate.drafts | .drafted >= .accepted and .accepted >= 0' "$WORK/list-lookup/results.json"
ok "without drafts nothing is counted" json '.results.generate | has("drafts") | not' "$WORK/list-none/results.json"

# ---- a batch, in one process and on ranks ----------------------------------------
for i in $(seq 1 9); do
    jq -cn --arg i "r$i" --argjson n "$i" '{custom_id: $i, method: "POST", url: "/v1/completions", body: {max_tokens: (30 + $n),
        prompt: (if $n % 3 == 0 then "It was the best of times, it was the worst of times, it was the" else "one two three \($n % 3) one two three" end),
        temperature: ($n % 2), logprobs: 2}}'
done >"$WORK/in.jsonl"
# batch NAME STEP: the answers of a step `run`
batch() {
    printf 'version: 1\nmodel: %s\nseed: 3\npipeline:\n  - run: {input: in.jsonl, output: out.jsonl, slots: 4, %s}\n' "$DEMO" "$2" >"$WORK/job.yaml"
    run run job.yaml --out "$1"
    ok "$1: exit code 0, got $rc" test "$rc" = 0
    jq -c .response.body.choices "$WORK/$1/out.jsonl" >"$WORK/$1.choices"
}
batch plain "draft: none"
ok "nine answers" test "$(wc -l <"$WORK/plain.choices")" = 9
batch chosen "draft: lookup"
batch five "draft: lookup, draft_tokens: 5"
for name in chosen five; do
    ok "$name: the same answers" cmp "$WORK/plain.choices" "$WORK/$name.choices"
done
ok "drafts were right and wrong" json '.results.run.drafts | .accepted > 0 and .drafted > .accepted' "$WORK/five/results.json"
cat >"$WORK/plan.yaml" <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 40, batch: 4, chunk: 8, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - {layers: 0-2, node: here, device: this-machine, tp: 1, schemes: [{layers: 0-2, keep: true}]}
  - {layers: 3-5, node: here, device: this-machine, tp: 2, schemes: [{layers: 3-5, keep: true}]}
PLAN
for kind in processes threads; do
    batch "ranks-$kind" "plan: plan.yaml, ranks: $kind, draft: lookup, draft_tokens: 3"
    ok "ranks as $kind: the same answers" cmp "$WORK/plain.choices" "$WORK/ranks-$kind.choices"
    ok "ranks as $kind: drafts were right" json '.results.run.drafts.accepted > 0' "$WORK/ranks-$kind/results.json"
done
# the answers of a batch do not depend on drafts, so that one continues without them
run batch job.yaml -i in.jsonl -o whole.jsonl
cp "$WORK/whole.jsonl" "$WORK/whole.was"
run batch job.yaml -i in.jsonl -o whole.jsonl --draft lookup
ok "drafts are no other batch: exit code 0, got $rc" test "$rc" = 0
ok "drafts are no other batch: the same file" cmp "$WORK/whole.was" "$WORK/whole.jsonl"

# ---- a server --------------------------------------------------------------------
if [ -x "$(dirname "$TESSERA")/http/tessera-http" ]; then
    (cd "$WORK" && exec "$TESSERA" serve "$DEMO" --port 0 --draft lookup --draft-tokens 4) >"$WORK/said" 2>"$WORK/log" </dev/null &
    server=$!
    for ((i = 0; i < 600; i++)); do
        ! grep -q 'listening at' "$WORK/log" || break
        sleep 0.1
    done
    at=$(sed -n 's/^tessera: listening at //p' "$WORK/log")
    curl -s -m 60 "$at/v1/completions" -d '{"prompt":"It was the best of times, it was the worst of times, it was the","max_tokens":30,"temperature":0}' >"$WORK/body"
    ok "a server: the text of the batch" cmp <(jq -r '.choices[0].text' "$WORK/body" | cut -c1-40) \
        <(sed -n 6p "$WORK/plain.choices" | jq -r '.[0].text' | cut -c1-40)
    curl -s -m 60 "$at/metrics" >"$WORK/metrics"
    ok "a server counts drafts" grep -qE '^tessera_drafted_tokens_total [1-9]' "$WORK/metrics"
    kill -TERM "$server"
    wait "$server" || true
    server=0
fi

# ---- another model, and the same in fewer bits --------------------------------------
whole='s/.*: \([0-9]*\) of \([0-9]*\) drafted tokens were right$/\1 \2/p'
for draft in "$STORIES --draft-tokens 4" "self --draft-bits 4 --draft-tokens 4" self; do
    # shellcheck disable=SC2086 # options
    run generate "$STORIES" --tokens 1 --max-tokens 200 --greedy --draft $draft -v
    ok "draft $draft: exit code 0, got $rc" test "$rc" = 0
    ok "draft $draft: the same story" cmp "$WORK/out" "$WORK/story"
    sed -n "$whole" "$WORK/err" >"$WORK/right"
    read -r right drafted <"$WORK/right"
    case $draft in
    "$STORIES"*) ok "the same model is right: $right of $drafted" test "$drafted" -gt 100 -a "$right" = "$drafted" ;;
    *tokens*) ok "4 bits are nearly right: $right of $drafted" test "$drafted" -gt 100 -a $((2 * right)) -gt "$drafted" -a "$right" -lt "$drafted" ;;
    esac
done
run quantize "$DEMO" --use rtn --bits 3 --out rounded
ok "a smaller model: exit code 0, got $rc" test "$rc" = 0
sed -e 's/draft: lookup/draft: rounded, draft_tokens: 3/' "$WORK/job.lookup" >"$WORK/job.yaml"
run run job.yaml --out list-small
ok "a list with a draft model: exit code 0, got $rc" test "$rc" = 0
ok "a list with a draft model: the same texts" cmp <(jq .results.generate.samples "$WORK/list-none/results.json") \
    <(jq .results.generate.samples "$WORK/list-small/results.json")
ok "its memory is counted" json '.results.generate.drafts | .accepted > 0 and .drafted > .accepted and .bytes > 100000' "$WORK/list-small/results.json"
batch small "draft: rounded, draft_tokens: 4"
batch chosen-self "draft: self, draft_bits: 2"
batch ranks-small "plan: plan.yaml, draft: rounded, draft_tokens: 3"
batch ranks-self "plan: plan.yaml, ranks: threads, draft: self"
for name in small chosen-self ranks-small ranks-self; do
    ok "$name: the same answers" cmp "$WORK/plain.choices" "$WORK/$name.choices"
done
for name in small ranks-small; do
    ok "$name: drafts were right and wrong" json '.results.run.drafts | .accepted > 0 and .drafted > .accepted' "$WORK/$name/results.json"
done

# ---- refused ---------------------------------------------------------------------
fails "draft_tokens without draft" 2 '*' generate "$STORIES" --tokens 1 --draft-tokens 3
fails_with "no such draft model" 2 '*' "no such model: '.*oracle'" generate "$STORIES" --tokens 1 --draft oracle
fails "draft_bits without self" 2 '*' generate "$STORIES" --tokens 1 --draft lookup --draft-bits 3
fails "one bit" 2 '*' generate "$STORIES" --tokens 1 --draft self --draft-bits 1
fails_with "another vocabulary" 2 '*' 'token [0-9]+ is another text' generate "$STORIES" --tokens 1 --draft "$DEMO"
fails_with "no original weights" 2 '*' 'draft: self: .*rounded is packed' generate "$WORK/rounded" --prompt The --draft self
fails_with "a draft model with a state" 2 '*' 'qwen3_next: a layer has a state' generate "$ROOT/tests/golden/models/llama3" --tokens 1,2 --draft "$ROOT/tests/golden/models/qwen3_next"
fails "too many tokens" 2 '*' generate "$STORIES" --tokens 1 --draft lookup --draft-tokens 17
run generate "$ROOT/tests/golden/models/qwen3_next" --tokens 1,2,3 --max-tokens 4 --greedy --draft lookup
ok "a state cannot go back: exit code 0, got $rc" test "$rc" = 0
ok "a state cannot go back: said" grep -q '^tessera: warning: no drafts: a layer has a state, which cannot go back$' "$WORK/err"
finish
