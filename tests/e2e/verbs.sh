#!/bin/bash
# tests/e2e/verbs.sh TESSERA - a verb is the step of its name: the same figures, texts and files by the command line
# and by a job; options that a step takes from the job's head.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$WORK"
head -c 1500 "$ROOT/configs/demo/held-out.txt" >text.txt
run quantize @demo --use rtn --bits 4 --group 32 -o q4 -q
run eval @demo --text text.txt --protocol llamacpp-512 --window 32 --save-kld base.kld --json
ok "a base file, got $rc" test "$rc" = 0 -a -s base.kld
jq -nc '{context: "The sky is", choices: ["blue", "a green"], answer: 0}' >q.jsonl
jq -nc '{context: "He said that", choices: ["no", "it was"], answer: 1}' >>q.jsonl

cat >job.yaml <<'JOB'
version: 1
model: q4
seed: 5
pipeline:
  - eval: {text: text.txt, window: 48, act: a8, kv: int8, chunk: 7, against: "@demo"}
  - eval: {text: text.txt, window: 48, numerics: exact}
  - eval: {choices: q.jsonl, against: "@demo"}
  - eval: {against: base.kld}
  - generate: {prompt: "The President said that", max_tokens: 12, temperature: 0.8, top_p: 0.9}
  - generate: {tokens: "1,5,9", max_tokens: 6, act: f32, ignore_eos: true}
  - logits: {tokens: "1,5,9,8", output: l.safetensors, kv: int8}
  - export: {to: m.gguf, format: gguf}
JOB
run run job.yaml --out job --json
ok "a job of all of them: exit code 0, got $rc" test "$rc" = 0
cp out job.json

# same NAME STEP OPTION...: the verb says what the job found, and what a manifest has in addition.
same() {
    local name=$1 key=$2
    shift 2
    run "$@" --json
    ok "$name: the verb succeeds, got $rc" test "$rc" = 0
    ok "$name: says the same" json --slurpfile j job.json --arg k "$key" '
        def plain: del(.seconds, .model, .model_hash, .kv, .numerics, .device, .reference.kv, .reference.numerics,
            .reference.device, .act, .packed_linears);
        plain == ($j[0].results[$k] | plain)' out
}
same "a text against a model" eval eval q4 --text text.txt --window 48 --act a8 --kv int8 --against @demo
same "a text" "eval[2]" eval q4 --text text.txt --window 48
same "questions" "eval[3]" eval q4 --choices q.jsonl --against @demo
same "a base file" "eval[4]" eval q4 --against base.kld
same "a prompt" generate generate q4 --prompt "The President said that" --max-tokens 12 --top-p 0.9 --seed 5
same "ids" "generate[2]" generate q4 --tokens 1,5,9 --max-tokens 6 --act f32 --ignore-eos --greedy
run logits q4 --tokens 1,5,9,8 -o l.safetensors --kv int8
ok "logits: the same file" cmp l.safetensors job/l.safetensors
run convert q4 -o m.gguf --to gguf
ok "convert: the same file as export's" cmp m.gguf job/m.gguf
ok "verbs leave nothing but what they were told to" test "$(echo ./*)" = \
    "./base.kld ./err ./job ./job.json ./job.yaml ./jq ./l.safetensors ./m.gguf ./out ./q.jsonl ./q4 ./text.txt"
run run job.yaml --out job
ok "a job that is done prints what it found" test "$rc" = 0 -a "$(grep -c '^perplexity ' out)" = 3 -a "$(grep -c '^accuracy ' out)" = 1
echo "more" >>text.txt
fails "a changed text is noticed" 2 'job' run job.yaml --out job

# What looks like YAML is a text all the same.
for text in 'a: b' '[x' '{y: 1}' '# no' '- 1' "'q'" 'null' '*p'; do
    run generate @demo --prompt "$text" --max-tokens 2 --greedy --json
    ok "the prompt <$text> is a text, got $rc" test "$rc" = 0
done

# The head's backend and numerics are the steps', unless they say otherwise.
cat >on.yaml <<'JOB'
version: 1
model: '@demo'
backend: abacus
pipeline:
  - generate: {tokens: "1,5", max_tokens: 2}
JOB
fails "the head's backend runs a step" 2 abacus run on.yaml --out on --json
run run on.yaml --out on --json --set generate.backend=cpu
ok "a step's own comes first, got $rc" test "$rc" = 0
ok "and only that is kept" json '.options.pipeline[0].generate | .backend == "cpu" and (has("numerics") or has("chunk") | not)' on/manifest.json
fails "a key that is no step's" 2 '--set generate.backnd=cpu:1:10' run on.yaml --out on2 --json --set generate.backnd=cpu

fails "and of a verb whose step has none of its own" 2 abacus \
    quantize @demo --use gptq --text text.txt --samples 2 --seqlen 32 --backend abacus -o other
ok "what failed left nothing" test ! -e other/packed.json

# What a job's needs are is known before its first step runs.
cat >need.yaml <<JOB
version: 1
model: '@demo'
pipeline:
  - calibrate: {text: text.txt, samples: 2, seqlen: 32}
  - eval: {text: text.txt, window: 48}
  - quantize: {use: rtn, bits: 4, rules: [{tensors: "*.nowhere", bits: 3}]}
JOB
fails "a rule that matches nothing" 2 'need.yaml:6:43' run need.yaml --out need --json
ok "before the first step ran" test ! -e need/calibration

finish
