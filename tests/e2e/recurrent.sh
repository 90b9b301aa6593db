#!/bin/bash
# tests/e2e/recurrent.sh TESSERA WIDE_MODEL - models with layers of the gated delta rule: every form of their weights, ways to run
# them, and what is refused.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/e2e/compensated-lib.sh
. "$(dirname "$0")/compensated-lib.sh"
WIDE=$2
TEXT=$ROOT/tests/golden/models/README.md
GOLDEN=$ROOT/tests/golden/models
IDS=1,166,313,120,88,126,256,71,187,96,216,5,9,30,77

# The recorded model with a tokenizer: the first 320 entries of one of 900.
model() {
    mkdir "$WORK/$1"
    cp "$GOLDEN/$2"/*.json "$GOLDEN/$2"/model*.safetensors "$WORK/$1/"
    jq '.model.vocab |= with_entries(select(.value < 320)) | .model.vocab as $v
        | .model.merges |= map(select(sub(" "; "") | in($v)))' "$ROOT/tests/golden/tokenizers/gpt2/tokenizer.json" \
        >"$WORK/$1/tokenizer.json"
}
job() { printf 'version: 1\nmodel: %s\npipeline:\n%s\n' "$1" "$2" >"$WORK/job.yaml"; }
logits() { run logits "$1" --tokens "$IDS" -o "$2" "${@:3}"; }
# same NAME A B: two files of logits
same() { ok "$1: the same bytes" cmp -s "$WORK/$2" "$WORK/$3"; }

# planned NAME ATTENTION: ATTENTION is its first layer that has some; a profile of both forms of its layers, and plans with its times and without them, which run
planned() {
    local m=$1 shape="delta: {key_heads: 2, value_heads: 4, key_dim: 16, value_dim: [0-9]+, kernel: 4}"
    run profile --model "$m" --scheme rtn:bits=4,group=32 --quick --repeats 1 --rounds 1 --positions 64 --sequences 4 \
        --name "$m" --times "$m.times" -o "devices/$m.yaml"
    ok "$m: a profile, got $rc" test "$rc" = 0
    ok "$m: its shapes" test "$(grep -Ec "    shape: .*($shape|head_dim: 32, attention_gate: true), gated: true" \
        "$WORK/devices/$m.yaml")" = 2
    ok "$m: its times are of both" json -s --argjson a "$2" 'map(.first_layer // empty) | unique == [0, $a]' "$WORK/$m.times"
    run profile --of "devices/$m.yaml" --model "$m" --scheme rtn:bits=4,group=32 --check 2 --repeats 1 --positions 64 \
        --sequences 4 --json
    ok "$m: it predicts workloads, got $rc" json 'length == 4 and all(.error_raw >= 0)' "$WORK/out"
    for of in "$m fitted" "midi roofline"; do
        local device=${of% *}
        printf 'version: 1\nnodes:\n  - {name: desk, devices: [{profile: %s, count: 2}], link: {bandwidth: 12 GB/s, latency: 10 us}}\n' \
            "$device" >"$WORK/$m-$device.yaml"
        run plan "$m" --cluster "$m-$device.yaml" --workload '{prompt: 16, generate: 8, batch: 4}' \
            --candidates '[{use: rtn, bits: 4, group: 32}]' -o "$m-$device.plan" --json
        ok "$m on $device: a plan, got $rc" test "$rc" = 0
        ok "$m on $device: all layers, times ${of#* }" json --arg t "${of#* }" \
            '[.plan.stages[] | select(.times == $t) | .layers] | add == 4' "$WORK/out"
        job "$m" "  - run: {plan: $m-$device.plan, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
        run run job.yaml --out "$m-$device"
        ok "$m on $device: the plan runs, got $rc" test "$rc" = 0
    done
}

# forms NAME LINEARS ATTENTION GGUF: every form of one model's weights; LINEARS: how many the layers have; GGUF: what the
# refusal of that format names, if it is refused
forms() {
    local m=$1
    run inspect "$m" --json
    ok "$m: layers of both forms are told, got $rc" json '[.model.layer_forms[].form] | unique ==
        ["delta rule", "gated attention"]' "$WORK/out"

    logits "$m" first
    ok "$m runs, got $rc" test "$rc" = 0
    for how in --step "--chunk 1" "--chunk 4"; do
        # shellcheck disable=SC2086 # two words
        logits "$m" other $how
        same "$m $how" first other
    done
    for kv in f16 int8; do
        logits "$m" "$kv" --kv "$kv" --step
        logits "$m" again --kv "$kv" --chunk 3
        same "$m with a cache of $kv" "$kv" again
    done

    run convert "$m" --to hf -o "$m-hf"
    ok "$m as a folder of Hugging Face, got $rc" test "$rc" = 0
    logits "$m-hf" again
    same "$m: a folder" first again
    run convert "$m" --to prepacked -o "$m.pre"
    ok "$m: prepacked, got $rc" test "$rc" = 0
    logits "$m.pre" again
    same "$m: prepacked" first again

    while read -r use more; do
        job "$m" "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: $use$more}
  - eval: {text: $TEXT}"
        run run job.yaml --out "$m-$use"
        ok "$m: $use, got $rc" test "$rc" = 0
        ok "$m: $use: all linears are packed" json --argjson n "$2" '([.results.quantize.linears[]
            | select(.format != "tessera.float/1")] | length == $n) and ([.results.quantize.linears[].name | capture("\\.(?<p>[zba])_proj$").p] | unique == ["a", "b", "z"])' \
            "$WORK/$m-$use/results.json"
        ok "$m: $use: a perplexity of random weights" json '.results.eval.perplexity | . > 1 and . < 1e6' \
            "$WORK/$m-$use/results.json"
        logits "$m-$use/packed" packed
        ok "$m: $use: the packed model runs, got $rc" test "$rc" = 0
        run convert "$m-$use/packed" --to prepacked -o "$m-$use.pre"
        logits "$m-$use.pre" again
        same "$m: $use, prepacked" packed again
        run convert "$m-$use/packed" --to hf -o "$m-$use-hf"
        ok "$m: $use as a folder of Hugging Face, got $rc" test "$rc" = 0
        logits "$m-$use-hf" again
        ok "$m: $use, the folder runs, got $rc" test "$rc" = 0
    done <<'USES'
rtn , bits: 4, group: 32
gptq , bits: 4, group: 32
awq , bits: 4, group: 32
int8
USES
    job "$m" "  - quantize: {use: rtn, bits: 4, group: -1}"
    run run job.yaml --out "$m-rows"
    logits "$m-rows/packed" packed
    run convert "$m-rows/packed" --to compressed-tensors -o "$m-ct"
    ok "$m as compressed-tensors, got $rc" test "$rc" = 0
    logits "$m-ct" again
    same "$m: compressed-tensors" packed again

    [ "$m" != sparse ] || compensated "$m" "$(jq '[.results.quantize.linears[].name | select(test("router") | not)] | length' \
        "$WORK/$m-rtn/results.json")" "attn_in.residual o_in.top"
    planned "$m" "$3"
    rm -f "$WORK/x.gguf"
    if [ -n "${4:-}" ]; then
        fails_with "$m: GGUF" 2 x.gguf "$4" convert "$m" --to gguf -o x.gguf
    else
        run convert "$m" --to gguf -o x.gguf
        ok "$m: GGUF, got $rc" test "$rc" = 0
        logits x.gguf again
        ok "$m: the file runs, got $rc" test "$rc" = 0
    fi
}

i=0
while read -r text; do
    jq -cn --arg t "$text" --arg i "r$((i += 1))" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: $t, max_tokens: 8}}'
done >"$WORK/prompts.jsonl" <<'TEXTS'
It was the best of times,
The President said that
In the beginning there was nothing but a word, and the word was long
no
TEXTS
mkdir "$WORK/devices"
cp "$ROOT/configs/plan/devices/midi.yaml" "$WORK/devices/"
model dense qwen3_5
forms dense 36 1 ' 16 .* 24'
model sparse qwen3_next
forms sparse 110 3

# ---- batches and ranks ---------------------------------------------------------------------------

# plan STAGES RANKS LAYERS
plan() {
    cat <<PLAN
format: tessera.plan/1
layers: $3
workload: {prompt: 16, generate: 8, batch: 4, chunk: 3, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for ((i = 0; i < $1; i++)); do
        local layers="$(($3 * i / $1))-$(($3 * (i + 1) / $1 - 1))"
        printf '  - {layers: %s, node: here, device: this-machine, tp: %s, schemes: [{layers: %s, use: rtn, bits: 4, group: 32}]}\n' \
            "$layers" "$2" "$layers"
    done
}
answers() { jq -c '[.custom_id, .response.body.choices[0].text]' "$WORK/$1/answers.jsonl" | sort >"$WORK/$1.answers"; }
# Ranks get what one gets: of the recorded model, and of one that can be cut, whose prompts are token ids.
jq -c '.body.prompt = ([.custom_id | explode | add] | [.[0], 3, .[0] - 60, 5])' "$WORK/prompts.jsonl" >"$WORK/ids.jsonl"
for name in delta delta-fused; do
    "$WIDE" "$WORK/$name" "$name"
done
while read -r model input layers stages ranks kind; do
    plan "$stages" "$ranks" "$layers" >"$WORK/plan.yaml"
    job "$model" "  - run: {plan: plan.yaml, input: $input.jsonl, output: answers.jsonl, temperature: 0, ranks: $kind}"
    to=$model-$stages-$ranks
    run run job.yaml --out "$to"
    ok "$model: $stages stages of $ranks as $kind, got $rc" test "$rc" = 0
    answers "$to"
    ok "$to: four answers" test "$(wc -l <"$WORK/$to.answers")" = 4
    ok "$to: the answers of one" cmp -s "$WORK/$model-1-1.answers" "$WORK/$to.answers"
done <<'WAYS'
dense prompts 4 1 1 threads
dense prompts 4 2 1 processes
dense prompts 4 4 1 threads
delta ids 3 1 1 threads
delta ids 3 1 4 processes
delta ids 3 3 2 threads
delta-fused ids 3 1 1 threads
delta-fused ids 3 1 2 threads
delta-fused ids 3 2 4 processes
WAYS
plan 1 2 4 >"$WORK/plan.yaml"
job dense "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
fails_with "heads too narrow for two ranks" 2 "*" 'out_proj.* 96 ' run job.yaml --out tensor-parallel

# ---- GGUF ----------------------------------------------------------------------------------------
# The same answers through a GGUF file and back, of F32 and of codes that keep their places or move by whole blocks; the last
# bit of a decay may be another one.
# asked MODEL: the answers of a model
asked() {
    job "$1" "  - run: {input: ids.jsonl, output: answers.jsonl, temperature: 0}"
    run run job.yaml --out "asked-$1"
    ok "$1 answers, got $rc" test "$rc" = 0
    answers "asked-$1"
}
run quantize delta --use rtn --bits 4 --group 32 --symmetric -o delta-packed -q
for from in delta delta-packed; do
    asked "$from"
    run convert "$from" --to gguf -o "$from.gguf"
    ok "$from as GGUF, got $rc" test "$rc" = 0
    run convert "$from.gguf" --to gguf -o "$from.again.gguf"
    ok "and again, got $rc" test "$rc" = 0
    run convert "$from.gguf" --to prepacked -o "$from.gguf.tsr"
    ok "and prepacked, got $rc" test "$rc" = 0
    for to in "$from.gguf" "$from.again.gguf" "$from.gguf.tsr"; do
        asked "$to"
        ok "$to: the same answers" cmp -s "$WORK/asked-$from.answers" "$WORK/asked-$to.answers"
    done
    run logits "$from.gguf" --tokens 1,5,9,30 -o first
    run logits "$from.again.gguf" --tokens 1,5,9,30 -o again
    ok "$from: no code has changed" cmp -s "$WORK/first" "$WORK/again"
done
run convert delta.gguf --to hf -o delta.hf --dtype auto
asked delta.hf
plan 1 2 3 >"$WORK/plan.yaml"
job delta.gguf "  - run: {plan: plan.yaml, input: ids.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
run run job.yaml --out gguf-ranks
answers gguf-ranks
ok "ranks share a GGUF file, got $rc" cmp -s "$WORK/delta-1-1.answers" "$WORK/gguf-ranks.answers"
job delta-packed.gguf "  - run: {plan: plan.yaml, input: ids.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
fails "codes in an order of their own are not cut" 2 "*" run job.yaml --out gguf-cut

# ---- batches -------------------------------------------------------------------------------------
for batch in 1 2 4; do
    job dense "  - run: {input: prompts.jsonl, output: answers.jsonl, temperature: 0, slots: $batch}"
    run run job.yaml --out "batch-$batch"
    ok "a batch of $batch, got $rc" test "$rc" = 0
    answers "batch-$batch"
    ok "a batch of $batch: the same answers" cmp -s "$WORK/batch-1.answers" "$WORK/batch-$batch.answers"
done

# ---- configurations that cannot be ---------------------------------------------------------------

# bad NAME FACTS FILTER: the model with another config.json is refused with these names and numbers
bad() {
    rm -rf "$WORK/bad"
    cp -r "$WORK/dense" "$WORK/bad"
    jq "$3" "$WORK/dense/config.json" >"$WORK/bad/config.json"
    fails_with "$1" 2 "*" "$2" inspect bad
}
bad "an unknown type of layer" 'layer_types.*2' '.text_config.layer_types[2] = "sliding_attention"'
bad "too few types" 'layer_types.* 3 .* 4 ' '.text_config.layer_types |= .[:3]'
bad "heads that do not divide" ' 3 .* 2 ' '.text_config.linear_num_value_heads = 3'
bad "no heads" 'linear_num_key_heads' '.text_config.linear_num_key_heads = 0'
bad "a head too wide" 'linear_key_head_dim' '.text_config.linear_key_head_dim = 5000'
bad "a convolution too long" 'linear_conv_kernel_dim' '.text_config.linear_conv_kernel_dim = 65'
bad "an interval of 0" 'full_attention_interval' '.text_config.full_attention_interval = 0'
bad "another convolution" 'conv1d.weight.*160, 1, 4.*160, 1, 3' '.text_config.linear_conv_kernel_dim = 3'
bad "other widths" 'in_proj_qkv|conv1d' '.text_config.linear_key_head_dim = 8'
bad "layers of the other form" 'self_attn|linear_attn' '.text_config.layer_types |= map("full_attention")'

# ---- family files that cannot be -----------------------------------------------------------------

# wrong NAME LINE-PATTERN SED: the built-in file, edited, is refused at that place
wrong() {
    sed -e 's/^name: .*/name: mine/' -e "$3" "$ROOT/configs/families/qwen3_5-wrapped.yaml" >"$WORK/mine.yaml"
    fails "$1" 2 "$2" inspect dense --family mine.yaml
}
wrong "a part that is missing" '*mine.yaml:*' '/delta_conv/d'
wrong "a linear that is missing" '*mine.yaml:*' '/delta_b:/d'
wrong "a linear twice" '*mine.yaml:*' 's/^  delta_o:.*/&\n  delta_ba: layers.#.x/'
wrong "parts without the section" '*mine.yaml:*' '/^delta:/,/^  types/d'
wrong "a gate without the form" '*mine.yaml:*' '/attention: gated/d'
wrong "the form without a gate" '*mine.yaml:*' 's/^  q_gate:/  q:/'
wrong "an unknown key" '*mine.yaml:*' 's/^  kernel:/  kernels:/'
wrong "layers by a list" '*mine.yaml:*' 's/^  layers: {except_every.*/  layers: {listed: some}/'
wrong "GGUF" '*mine.yaml:*' 's/^tensors:/gguf:\n  architectures: [x]\ntensors:/'
finish
