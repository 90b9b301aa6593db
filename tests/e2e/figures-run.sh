#!/bin/bash
# tests/e2e/figures-run.sh TESSERA FIGURES - what batch, run, journal, generate, tokenize and bench print, computed again: counts
# from the answers, log-probabilities from logits (figures.c), rates from the parts that are printed.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
run quantize @demo --use rtn --bits 4 --group 64 -o q4
PROMPT="It was the best of times"
for i in 1 2 3; do
    jq -cn --arg i "r$i" --argjson n $((4 * i)) --arg p "$PROMPT" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: $p, max_tokens: $n, logprobs: 2, temperature: 0}}'
done >in.jsonl
cat >>in.jsonl <<'BAD'
{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": 3}}
{"custom_id": "b", "url": "/v1/completions"
BAD

# counted FILE: what the answers come to
counted() {
    jq -s '{records: length, errors: (map(select(.error)) | length), tokens: (map(.response.body.usage.completion_tokens // 0) | add),
        codes: (map(.error.code // empty) | group_by(.) | map({(.[0]): length}) | add // {})}' "$1"
}
run batch q4 -i in.jsonl -o out.jsonl
ok "batch succeeds, got $rc" test "$rc" = 0
cp out said
cp err talk
counted out.jsonl >want
cp out.jsonl.job/results.json results
ok "records, errors and tokens are those of the output" json --slurpfile w want '.results.run as $r | $w[0] |
    .records == $r.records and .errors == $r.errors and .tokens == $r.tokens and .errors == 2 and
    .codes == ($r.errors_by_code | map({(.code): .records}) | add)' results
ok "the line" grep -q "^5 records, 2 errors: .*out.jsonl (act a8)" said
ok "counts by code" grep -q "2 of 5 records failed: 1 invalid_request, 1 invalid_json$" talk
ok "times to first tokens: least, median and most of each" json '.results.run.ttft_s | (.each | map(numbers) | sort) as $e |
    ($e | length) == 3 and .records == 3 and (.each | length) == 5 and .least == $e[0] and .median == $e[1] and .most == $e[2]' results
ok "the line of the first tokens" json --rawfile said said '.results.run.ttft_s as $t | $said |
    capture("first tokens after (?<m>[0-9.]+) s .median of (?<n>[0-9]+) records; (?<a>[0-9.]+) to (?<b>[0-9.]+) s") |
    (.n | tonumber) == 3 and ([[.m, $t.median], [.a, $t.least], [.b, $t.most]] | all(.[]; ((.[0] | tonumber) - .[1] | fabs) < 0.00051))' results
run journal show out.jsonl --json
ok "journal show counts the same" json '.lines == 5 and .errors == 2 and .starts == 1 and .sealed == true' out
ok "and has as many bytes" json --argjson n "$(stat -c %s out.jsonl.job/journal)" '.bytes == $n' out
run journal check out.jsonl --input in.jsonl
ok "journal check counts them" grep -q ' 5 lines, ' out

# ---- usage, and log-probabilities
token_ids q4 "$PROMPT" >prompt
head -n 3 out.jsonl | jq -s --argjson n "$(wc -l <prompt)" 'map(.response.body | .usage.prompt_tokens == $n and
    .usage.total_tokens == .usage.prompt_tokens + .usage.completion_tokens and .usage.completion_tokens == (.choices[0].logprobs.tokens | length) and
    (.choices[0].logprobs.tokens | join("")) == .choices[0].text) | all' >same
ok "usage: tokens of the prompt and of the answer" test "$(cat same)" = true
text=$(sed -n 3p out.jsonl | jq -r '.response.body.choices[0].text')
token_ids q4 "$PROMPT$text" >all
ok "the answer is tokenized as it was generated" test "$(wc -l <all)" = $(($(wc -l <prompt) + 12))
run logits q4 --tokens "$(paste -sd, all)" --act a8 -o l.st
"$FIGURES" likelihood "$(wc -l <prompt)" all l.st >sum
ok "log-probabilities of the tokens" json --argjson sum "$(cat sum)" -s '.[2].response.body.choices[0].logprobs.token_logprobs |
    length == 12 and ((add - $sum | fabs) < 2e-5)' out.jsonl
ok "at temperature 0 each is the likeliest" json -s '.[2].response.body.choices[0].logprobs |
    (.token_logprobs | length) == 12 and .token_logprobs == (.top_logprobs | map([.[]] | max))' out.jsonl

# ---- generate, tokenize
run generate q4 --prompt "$PROMPT" --max-tokens 12 --greedy --json
ok "generate: as the batch" json --arg t "$text" '.text == $t and (.tokens | length) == 12' out
ok "generate: its tokens" test "$(jq -c '.tokens' out)" = "$(tail -n 12 all | jq -sc .)"
run generate q4 --prompt "$PROMPT" --max-tokens 12 --greedy -v
ok "generate: what it counts" grep -qE " $(wc -l <prompt) prompt tokens in [0-9.]+ s, 11 decode steps in " err

# ---- run under a plan: rates, and the bytes of each rank
mkdir clusters
cat >clusters/two.yaml <<'CLUSTER'
version: 1
nodes:
  - name: here
    devices: [{profile: this-machine, count: 2}]
    link: {bandwidth: 1 GB/s, latency: 0 us}
CLUSTER
cat >job.yaml <<JOB
version: 1
model: q4
cluster: clusters/two.yaml
workload: {prompt: $(wc -l <prompt), generate: 12, batch: 3}
pipeline:
  - plan: {max_tp: 1, baselines: none}
  - run: {input: in.jsonl, output: a.jsonl, ranks: threads}
JOB
run run job.yaml --out job
ok "run: succeeds, got $rc" test "$rc" = 0
cp out said
counted job/a.jsonl >want
ok "run: the same counts" json --slurpfile w want '.results.run as $r | $w[0] | .records == $r.records and .errors == $r.errors and .tokens == $r.tokens' job/results.json
ok "run: tokens a second" json '.results.run | (.tokens_per_second * .seconds / .tokens - 1 | fabs) < 1e-9 and .predicted_tokens_per_second > 0' job/results.json
ok "run: the prediction is the plan's" json '(.results.run.predicted_tokens_per_second / .results.plan.plan.tokens_per_second - 1 | fabs) < 1e-6' job/results.json
ok "run: layers of the ranks, and the cache that was priced" json '.results.plan.plan.stages as $s | .results.run.ranks |
    ([.[].layers] | add) == 6 and ([.[].layers] == [$s[].layers]) and all(.[]; .first_layer >= 0 and .peak >= .weights + .kv)' job/results.json
ok "run: the line" json --rawfile said said '.results.run as $r | $said | capture("(?<n>[0-9]+) tokens in (?<s>[0-9.]+) s on (?<k>[0-9]+) ranks?: (?<r>[0-9.e+]+) tokens/s") |
    (.n | tonumber) == $r.tokens and (.k | tonumber) == ($r.ranks | length) and ((.s | tonumber) - $r.seconds | fabs) < 0.00051 and
    ((.r | tonumber) / $r.tokens_per_second - 1 | fabs) < 0.001' job/results.json

# ---- bench: rates are the work over the time; a row of 256 numbers has so many bytes
run bench gemv --rows 256 --cols 256 --repeats 3 --mib 8 --formats f32,bf16,int8,int4 --json
ok "bench gemv: GB/s" json '{f32: 1024, bf16: 512, int8: (256 + 2), int4: (128 + 4)} as $row | length == 4 and
    all(.[]; .unit == "GB/s" and (.value * .ms * 1e6 / (256 * $row[.format]) - 1 | fabs) < 1e-6 and .best >= .value)' out
run bench e2e q4 --repeats 3 --mib 8 --prompt 8 --tokens 4 --json
ok "bench e2e: tokens/s" json 'length == 2 and all(.[]; .unit == "tokens/s" and (.value * .ms / 1000 - 1 | fabs) < 1e-6 and .best >= .value)' out
ok "bench e2e: its format, whole" json 'all(.[]; .format == "tessera.packed/1" and .rows == 256 and .cols == 6)' out
finish
