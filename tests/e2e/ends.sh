#!/bin/bash
# tests/e2e/ends.sh TESSERA - head and embedding are packed where rules name them, and nowhere else.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
TEXT=$ROOT/configs/demo/held-out.txt
MODELS=$ROOT/tests/golden/models

logits() { # FILE MODEL [OPTION...]
    run logits "$2" --tokens 1,5,9,2,7 -o "$1" "${@:3}"
    ok "logits of $2 ${*:3}, got $rc" test "$rc" = 0
}

# tied, and not: the rules, how many linears are packed
for i in 1 2; do
    echo "{\"custom_id\": \"$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": [1, $i, 7], \"max_tokens\": 3, \"logprobs\": 1}}"
done >"$WORK/in.jsonl"
while IFS='#' read -r model layers rules linears; do
    job() {
        cat <<JOB
version: 1
model: $MODELS/$model
pipeline:
  - quantize: {use: rtn, bits: 4, group: 32, rules: $1}
  - eval: {text: $TEXT, protocol: llamacpp-512, max_windows: 1}
JOB
    }
    tokens=1
    [ -e "$MODELS/$model/tokenizer.json" ] || tokens=0
    run quantize "$MODELS/$model" --use rtn --bits 4 --group 32 --rules "$rules" -o packed --again --json
    ok "$model: packed, got $rc" test "$rc" = 0
    ok "$model: $linears matrices, the embedding at 8 bits" json --argjson n "$linears" '.results.quantize.linears |
        length == $n and any(.[]; .name == "model.embed_tokens" and .bits_per_weight == 9)' "$WORK/out"
    ok "$model: not among what is kept" test "$(head -c 20000 "$WORK/packed/kept.safetensors" | grep -ac 'embed_tokens')" = 0
    run inspect packed --json
    ok "$model: inspect names its format" json 'any(.model.tensors[]; .name == "embedding" and (.format | test("int")))' "$WORK/out"
    logits a packed
    logits b packed --step
    ok "$model: a token at a time gives the same" cmp -s "$WORK/a" "$WORK/b"
    TSR_ISA=scalar logits b packed
    ok "$model: plain C gives the same" cmp -s "$WORK/a" "$WORK/b"
    run convert packed -o prepacked --to prepacked
    logits b prepacked
    ok "$model: prepacked gives the same" cmp -s "$WORK/a" "$WORK/b"
    run quantize "$MODELS/$model" --use rtn --bits 4 --group 32 --rules "${rules/model.embed_tokens, bits: 8/model.embed_tokens, keep: true}" -o kept --again
    logits b kept
    ok "$model: they are those of other rows than the original's" test "$(cmp -s "$WORK/a" "$WORK/b" && echo same)" = ""
    if [ $tokens = 1 ]; then
        job "$rules" >"$WORK/job.yaml"
        run run job.yaml --out jobs --again --json
memory=$(jq .results.eval.perplexity "$WORK/out")
        run eval packed --text "$TEXT" --protocol llamacpp-512 --max-windows 1 --json
        ok "$model: a folder and the job's memory agree" json --argjson m "$memory" '$m > 1 and .perplexity == $m' "$WORK/out"
        # the same weights written out in 16 bits: what that rounds is below 2^-11 of each
        rm -rf "$WORK/wide"
        run convert packed -o wide --to hf
        run eval wide --text "$TEXT" --protocol llamacpp-512 --max-windows 1 --json
        ok "$model: and are what they decode to" json --argjson m "$memory" '$m > 1 and (.perplexity / $m - 1 | fabs) < 2e-3' "$WORK/out"
    fi
    # two stages: the embedding is the first rank's, the head the last one's or the first one's
    for way in 1 2 2-first; do
        split=${way%-*}
        mkdir -p "$WORK/$way"
        {
            printf 'format: tessera.plan/1\nlayers: %d\nworkload: {prompt: 8, generate: 3, batch: 2, kv: f32}\n' "$layers"
            [ "$way" != 2-first ] || echo 'master: {head: first}'
            printf 'micro_batches: {prefill: 1, decode: 1}\nquality: {source: prior}\nobjective: steady\naccounting: exact\nstages:\n'
            for ((i = 0; i < split; i++)); do
                printf -- '  - {layers: %d-%d, node: here, device: this-machine, tp: 1, schemes: [{layers: %d-%d, keep: true}]}\n' \
                    $((layers * i / split)) $((layers * (i + 1) / split - 1)) \
                    $((layers * i / split)) $((layers * (i + 1) / split - 1))
            done
        } >"$WORK/$way/plan.yaml"
        printf 'version: 1\nmodel: ../packed\npipeline:\n  - run: {plan: plan.yaml, input: ../in.jsonl, output: out.jsonl}\n' \
            >"$WORK/$way/job.yaml"
        run run "$way/job.yaml" --out "$WORK/$way/out" --again
        ok "$model: stages $way, got $rc" test "$rc" = 0
        jq -c .response.body.choices "$WORK/$way/out/out.jsonl" >"$WORK/$way.answers"
    done
    ok "$model: both records have answers" test "$(grep -c text "$WORK/1.answers")" = 2
    ok "$model: ranks give the same" cmp -s "$WORK/1.answers" "$WORK/2.answers"
    ok "$model: the head on the first stage, too" cmp -s "$WORK/1.answers" "$WORK/2-first.answers"
    rm -rf "$WORK/packed" "$WORK/prepacked" "$WORK/kept" "$WORK/1" "$WORK/2" "$WORK/2-first"
done <<'CASES'
stories260k#5#[{tensors: lm_head, bits: 8}, {tensors: model.embed_tokens, bits: 8}]#37
qwen2-untied#4#[{tensors: model.embed_tokens, bits: 8}]#29
opt-350m-style#3#[{tensors: lm_head, bits: 4}, {tensors: model.embed_tokens, bits: 8}]#20
CASES

fails "a tied embedding alone" 2 '*/tests/golden/models/stories260k' \
    quantize "$STORIES" --use rtn --rules '[{tensors: model.embed_tokens, bits: 8}]' -o no
for pattern in '*embed*' 'lm_*'; do
    fails "a pattern that is no name: $pattern" 2 '' \
        quantize "$STORIES" --use rtn --rules "[{tensors: \"$pattern\", bits: 8}]" -o no
done
run quantize "$STORIES" --use rtn --bits 4 --group 32 -o plain --json
ok "neither is packed unasked" json '.results.quantize.linears | length == 35 and
    all(.[]; .name != "lm_head" and .name != "model.embed_tokens")' "$WORK/out"
finish
