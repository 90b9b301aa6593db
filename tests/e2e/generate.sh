#!/bin/bash
# tests/e2e/generate.sh TESSERA - logits and generate on bundled models: the story to the letter,
# the same bytes by every way to run, and what is refused.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MODELS=$ROOT/tests/golden/models

# What llama2.c's own test expects of this model, from the BOS token alone, 200 tokens.
cat >"$WORK/story" <<'STORY'
Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Lily, let's go to the park." Lily was sad and didn't know what to do. She said, "I want to play with your ball, but I can't find it."
Lily was sad and didn't know what to do. She said, "I'm sorry, Lily. I didn't know what to do."
Lily didn't want to help her mom, so she
STORY
run generate "$STORIES" --tokens 1 --max-tokens 200 --greedy
ok "the story is told to the letter" cmp "$WORK/out" "$WORK/story"
run generate "$STORIES" --tokens 1 --max-tokens 200 --greedy --json --threads 1
jq -j .text "$WORK/out" >"$WORK/text"
printf '\n' >>"$WORK/text"
ok "the same text with --json" cmp "$WORK/text" "$WORK/story"
ok "200 tokens, the prompt not among them" json '(.tokens | length) == 200 and .tokens[0] != 1' "$WORK/out"
ok "nothing but tokens and text" json 'keys == ["text", "tokens"]' "$WORK/out"

# logits and logits --step: the same file, whatever the way.
for model in llama3 gemma2 opt-350m-style bloom-6heads; do
    run logits "$MODELS/$model" --tokens 1,5,9,200,31,7,7,8 -o whole.safetensors
    ok "logits $model succeeds" test "$rc" = 0
    run logits "$MODELS/$model" --tokens 1,5,9,200,31,7,7,8 -o step.safetensors --step --threads 1
    ok "logits --step $model: the same bytes" cmp "$WORK/whole.safetensors" "$WORK/step.safetensors"
    run logits "$MODELS/$model" --tokens 1,5,9,200,31,7,7,8 -o chunk.safetensors --chunk 3
    ok "logits --chunk 3 $model: the same bytes" cmp "$WORK/whole.safetensors" "$WORK/chunk.safetensors"
    TSR_ISA=scalar run logits "$MODELS/$model" --tokens 1,5,9,200,31,7,7,8 -o scalar.safetensors
    ok "TSR_ISA=scalar $model: the same bytes" cmp "$WORK/whole.safetensors" "$WORK/scalar.safetensors"
done
run logits "$MODELS/llama3" --tokens 1,5,9 -o f32.safetensors
run logits "$MODELS/llama3" --tokens 1,5,9 -o int8.safetensors --kv int8
ok "--kv int8 is another arithmetic" test "$rc" = 0 -a -n "$(cmp "$WORK/f32.safetensors" "$WORK/int8.safetensors" 2>&1)"

# Draws repeat under a seed and differ between seeds; a model without a tokenizer has no text.
for seed in 1 1 2; do
    run generate @demo --prompt "The President said that" --max-tokens 24 --seed $seed --top-p 0.9 --json
    ok "generate with seed $seed succeeds" test "$rc" = 0
    mv "$WORK/out" "$WORK/seed.$seed.$checks"
done
ok "a seed repeats" test "$(cat "$WORK"/seed.1.* | sort -u | wc -l)" = 1
ok "another seed differs" test "$(cat "$WORK"/seed.* | sort -u | wc -l)" = 2
run generate "$MODELS/llama3" --tokens 1,5 --max-tokens 4 --greedy --json
ok "no tokenizer: text is null" json '.text == null and (.tokens | length) <= 4' "$WORK/out"

# What the command line does not state is the model's generation_config.json.
cp -r "$ROOT/configs/demo" "$WORK/own"
once() { # the text of a draw with these options
    run generate "$@" --prompt "The President said that" --max-tokens 24 --seed 5
    ok "generate $*" test "$rc" = 0 -a -s "$WORK/out"
    cat "$WORK/out"
}
says() { echo "$1" >"$WORK/own/generation_config.json"; } # CONFIGURATION
says '{"eos_token_id": 4095, "do_sample": true, "temperature": 1.7, "top_k": 7, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2}'
file=$(once own)
run generate own --prompt x --max-tokens 1 -v
ok "it is printed" grep -q 'temperature 1.7, top_p 0.9, min_p 0.01, repetition_penalty 1.2, top_k 7' "$WORK/err"
same=(--temperature 1.7 --top-k 7 --top-p 0.9 --min-p 0.01 --repetition-penalty 1.2)
ok "as stated" test "$file" = "$(once own "${same[@]}")"
other=$(once own --temperature 0.3)
says '{"eos_token_id": 4095}'
plain=$(once own)
ok "the same without the file" test "$file" = "$(once own "${same[@]}")" -a "$file" != "$plain"
ok "the command line wins" test "$other" = "$(once own --temperature 0.3 "${same[@]:2}")" -a "$other" != "$file"
ok "else a plain draw" test "$plain" = "$(once own --temperature 1)"
says '{"eos_token_id": [4095], "do_sample": false, "temperature": 0.9}'
ok "do_sample: false" test "$(once own)" = "$(once own --greedy)"
ok "the command line wins over it" test "$(once own --temperature 1)" = "$plain"
printf '{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "The President said that", "max_tokens": 24}}\n' >"$WORK/one.jsonl"
says '{"eos_token_id": 4095, "do_sample": true, "temperature": 0.4, "min_p": 0.2}'
run batch own -i one.jsonl -o file.out
run batch own -i one.jsonl -o stated.out --temperature 0.4 --min-p 0.2
run batch own -i one.jsonl -o other.out --temperature 2
text='.response.body.choices[0].text'
ok "of a batch too" test "$(jq "$text" "$WORK/file.out")" = "$(jq "$text" "$WORK/stated.out")"
ok "and its options win" test "$(jq "$text" "$WORK/file.out")" != "$(jq "$text" "$WORK/other.out")"
says '{"temperature": "warm"}'
fails "a value that is none" 2 generation_config.json generate own --prompt x
run generate own --prompt x --max-tokens 1 --temperature 1
ok "unless it is stated" test "$rc" = 0

fails "a token past the vocabulary" 2 'request 1' generate "$MODELS/llama3" --tokens 1,320
fails "no prompt" 2 'generate' generate "$STORIES"
fails "two prompts" 2 'generate' generate "$STORIES" --tokens 1 --prompt a
fails "more than learned positions" 2 '*/tests/golden/models/opt' generate "$MODELS/opt" --tokens 1 --max-tokens 100000
fails "text without a tokenizer" 2 'a prompt' generate "$MODELS/llama3" --prompt hello
fails "an unknown backend" 2 abacus logits "$STORIES" --tokens 1 -o l.safetensors --backend abacus
ok "a failing command leaves no output" test ! -e "$WORK/l.safetensors"

finish
