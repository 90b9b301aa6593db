#!/bin/bash
# tests/e2e/experts-compensate.sh TESSERA MAKE_EXPERTS VAULT.so - error compensation of models with experts: residuals of each expert,
# perplexity that falls with what is added back down to that of the original, the same bytes whatever the pieces, the
# tuner's counts, simulated ranks; what does not fit is said in one sentence.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MAKE=$(readlink -f "$2")
VAULT=$(readlink -f "$3")
DEMO=$ROOT/configs/demo
TEXT=$DEMO/calibration.txt
HELD=$DEMO/held-out.txt
TOKENS=1,403,407,261,378,44,9

# model NAME EXPERTS USED [FORM]: the demo model, whose feed-forwards stand in every expert
model() {
    "$MAKE" "$DEMO" "$WORK/$1" "${@:2}"
    cp "$DEMO"/{tokenizer.json,tokenizer_config.json,generation_config.json} "$WORK/$1/"
}
model moe 4 2
run quantize moe -o packed --use rtn --bits 2 --group 64
ok "quantize: exit code 0, got $rc" test "$rc" = 0
run compensate moe --packed packed --text "$TEXT" --samples 4 --seqlen 64 --bits 16 -o j16 --json
ok "residuals of 16 bits: exit code 0, got $rc" test "$rc" = 0
# ppl FOLDER K [OPTION...]: perplexity
ppl() {
    run eval "$1" --text "$HELD" --window 128 --max-windows 2 --json --compensate "${@:2}"
    ok "eval $1 --compensate ${*:2}: exit code 0, got $rc" test "$rc" = 0
    value=$(jq '.perplexity' "$WORK/out")
}
run eval moe --text "$HELD" --window 128 --max-windows 2 --json
original=$(jq '.perplexity' "$WORK/out")
ppl packed 1024 --positions all
ok "all of them are the original: $value of $original" jq -en --argjson a "$value" --argjson b "$original" \
    '($a / $b - 1) | fabs < 1e-3'

run quantize moe -o packed --use rtn --bits 3 --group 128 --again
run compensate moe --packed packed --text "$TEXT" --samples 4 --seqlen 64 -o j --json
ok "compensate: exit code 0, got $rc" test "$rc" = 0
ok "four linears of attention and three of each expert" json '.results.compensate | .linears == 96 and .bits == 4
    and .tokens == 256 and .compensated_error < .squared_error / 100' "$WORK/j/results.json"
ok "an expert's rows of gate and up are one tensor" grep -qa '"model.layers.5.experts.2.ffn_in.residual"' \
    "$WORK/packed/compensation.safetensors"
cp "$WORK/packed/compensation.safetensors" "$WORK/first"
run compensate moe --packed packed --text "$TEXT" --samples 4 --seqlen 64 -o j2
ok "the same bytes again" cmp "$WORK/first" "$WORK/packed/compensation.safetensors"
last=
for k in 0 64 512; do
    ppl packed $k
    [ -z "$last" ] || ok "perplexity falls with the channels: $last, $value at $k" jq -en --argjson a "$last" \
        --argjson b "$value" '$a > $b'
    last=$value
done
ppl packed 64 --recall
dynamic=$value
ok "what was compensated" json '.compensation | .linears == 96 and .recall > 0.5 and .recall <= 1' "$WORK/out"
ppl packed 64 --select random
ok "at random it falls less: $dynamic, $value" jq -en --argjson a "$dynamic" --argjson b "$value" '$a < $b'
for way in exact static-meansq static-hessian; do
    ppl packed 32 --select $way
done

# One arithmetic: pieces, threads, instruction sets, prepacked files.
run convert packed -o m.tsr --to prepacked
ok "convert: exit code 0, got $rc" test "$rc" = 0
run logits packed --tokens $TOKENS -o a.st --compensate 64 --positions all
ok "logits: exit code 0, got $rc" test "$rc" = 0
while read -r what file more; do
    # shellcheck disable=SC2086
    run logits "$file" --tokens $TOKENS -o b.st --compensate 64 --positions all $more
    ok "$what: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
done <<'WAYS'
prepacked m.tsr
steps packed --step
chunks packed --chunk 3
one-thread packed --threads 1
three-threads m.tsr --threads 3
WAYS
for isa in scalar avx2; do
    export TSR_ISA=$isa
    run logits m.tsr --tokens $TOKENS -o b.st --compensate 64 --positions all --chunk 2
    ok "$isa: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
    unset TSR_ISA
done
run logits packed --tokens $TOKENS -o c.st
ok "not those without" test "$(cmp -s "$WORK/a.st" "$WORK/c.st" || echo other)" = other
run generate packed --tokens $TOKENS --max-tokens 6 --greedy --ignore-eos --json --compensate 64
mv "$WORK/out" "$WORK/text"
run generate m.tsr --tokens $TOKENS --max-tokens 6 --greedy --ignore-eos --json --compensate 64 --chunk 2
ok "generate: the same from a prepacked file in chunks" test "$(jq -c .tokens "$WORK/out")" = "$(jq -c .tokens "$WORK/text")"

# The tuner: gate, up and down are those of the two experts of a token.
cat >"$WORK/job.yaml" <<END
version: 1
model: packed
pipeline:
  - tune: {slower: 400, repeats: 2}
END
run run job.yaml --out tuned
ok "tune: exit code 0, got $rc" test "$rc" = 0
ok "its counts" json '[.results.tune.modules[] | [.name, .inputs, .outputs]] ==
    [["qkv", 256, 512], ["o", 256, 256], ["gate_up", 256, 2048], ["down", 512, 512]]' "$WORK/tuned/results.json"
ok "its times" json '.results.tune | .ms <= 5 * .base_ms and all(.modules[]; .base_ms > 0)' "$WORK/tuned/results.json"
run eval packed --text "$HELD" --window 128 --max-windows 2 --json --compensate-plan tuned/tuned.yaml
ok "the plan is taken: exit code 0, got $rc" test "$rc" = 0
cat >"$WORK/plan.yaml" <<'END'
format: tessera.plan/1
layers: 6
stages:
  - layers: 0-5
    schemes: [{layers: 0-5, keep: true}]
    compensation: [{tensors: "*.gate_proj", k: 16}, {tensors: "*.up_proj", k: 16}, {tensors: "*.down_proj", k: 32}]
END
run logits packed --tokens $TOKENS -o a.st --compensate-plan plan.yaml --positions all
ok "k of the experts' linears: exit code 0, got $rc" test "$rc" = 0
run logits m.tsr --tokens $TOKENS -o b.st --compensate-plan plan.yaml --positions all --step
ok "the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
sed -i 's/"\*.up_proj", k: 16/"*.up_proj", k: 8/' "$WORK/plan.yaml"
fails "one k for gate and up of the experts" 2 plan.yaml logits packed --tokens 1 -o x.st --compensate-plan plan.yaml

# Steps that measure.
cat >"$WORK/job.yaml" <<END
version: 1
model: packed
pipeline:
  - sweep: {text: $HELD, window: 128, max_windows: 2, channels: "0,64,512", select: "dynamic,static-hessian", targets: "400", repeats: 2}
  - outliers: {tokens: 6, at: 3, layer: 2}
END
run run job.yaml --out swept
ok "sweep and outliers: exit code 0, got $rc" test "$rc" = 0
ok "perplexity falls" json '[.results.sweep.points[] | select(.select == "dynamic") | .perplexity] | . == (sort | reverse)' \
    "$WORK/swept/results.json"
ok "outliers of an expert that the token takes" json '.results.outliers | .expert >= 0 and .expert < 4 and .taken >= 1 and
    .taken <= 6 and ([.sites[].name] == ["qkv", "o", "gate_up", "down"]) and all(.sites[]; .half_sorted <= .half_random)' \
    "$WORK/swept/results.json"
sed -i '/sweep/d; s/layer: 2/layer: 2, expert: 4/' "$WORK/job.yaml"
fails_with "an expert that is not there" 2 'job.yaml:4: step *' 'layer 2 has 4 experts' run job.yaml --out x1
taken=0
for i in 0 1 2 3; do
    sed -i "s/expert: .*}/expert: $i}/" "$WORK/job.yaml"
    run run job.yaml --out "expert-$i"
    [ "$rc" = 0 ] && taken=$((taken + 1))
    ok "expert $i: measured, or the token does not take it" test "$rc" = 0 -o \
        "$(grep -c "token 3 does not take expert $i in layer 2" "$WORK/err")" = 1
done
ok "the token takes two experts, got $taken" test "$taken" = 2
fails "residuals of another model" 2 'packed/packed.json' \
    compensate "$DEMO" --packed packed --text "$TEXT" --samples 1 --seqlen 16 -o x3

# Ranks, in a stage after another one and alone.
cat >"$WORK/prompts.jsonl" <<'END'
{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "It was the best of times,", "max_tokens": 8}}
{"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": "In the beginning", "max_tokens": 8}}
END
for n in 1 2; do
    {
        printf 'format: tessera.plan/1\nlayers: 6\nworkload: {prompt: 16, generate: 8, batch: 2, chunk: 3, kv: f32}\n'
        printf 'micro_batches: {prefill: 1, decode: 2}\nquality: {source: prior}\nobjective: steady\naccounting: exact\nstages:\n'
        for ((i = 0; i < n; i++)); do
            layers="$((6 * i / n))-$((6 * (i + 1) / n - 1))"
            printf '  - {layers: %s, node: here, device: this-machine, schemes: [{layers: %s, keep: true}]}\n' "$layers" "$layers"
        done
    } >"$WORK/stages.yaml"
    printf 'version: 1\nmodel: packed\npipeline:\n  - run: {plan: stages.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads, compensate: 64}\n' >"$WORK/job.yaml"
    run run job.yaml --out "ranks-$n"
    ok "$n stages: exit code 0, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].text' "$WORK/ranks-$n/answers.jsonl" >"$WORK/answers-$n"
done
ok "two stages: the answers of one" cmp "$WORK/answers-1" "$WORK/answers-2"

# Ranks with whole experts, experts on the CPU next to a device that it cannot read, and both.
sed '/layers: 3-5/d; /layers: 0-2/d' "$WORK/stages.yaml" >"$WORK/head.yaml"
# placed NAME BACKEND KEYS: the answers of one stage with these keys
placed() {
    { cat "$WORK/head.yaml" && printf '  - {layers: 0-5, node: here, device: this-machine, %s, schemes: [{layers: 0-5, keep: true}]}\n' "$3"; } >"$WORK/placed.yaml"
    printf 'version: 1\nmodel: packed\nplugins: ["%s"]\nbackend: %s\npipeline:\n  - run: {plan: placed.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads, compensate: 64}\n' \
        "$VAULT" "$2" >"$WORK/job.yaml"
    run run job.yaml --out "placed-$1"
    ok "$1: exit code 0, got $rc" test "$rc" = 0
    ok "$1: the answers of one engine" cmp "$WORK/answers-1" <(jq -c '.response.body.choices[0].text' "$WORK/placed-$1/answers.jsonl")
}
placed whole cpu "tp: 2, experts: whole"
placed cpu vault "cpu_experts: 1-4"
placed both vault "tp: 2, experts: whole, cpu_experts: true"
run logits packed --tokens $TOKENS -o a.st --compensate 64 --positions all
run logits packed --tokens $TOKENS -o b.st --compensate 64 --positions all --chunk 3 --plugin-path "$VAULT" --backend vault --cpu-experts 3
ok "logits with the experts of three layers on the CPU: exit code 0, got $rc" test "$rc" = 0
ok "the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
printf 'version: 1\nmodel: packed\nplugins: ["%s"]\nbackend: vault\ncpu_experts: 3\npipeline:\n  - tune: {slower: 400, repeats: 1}\n' "$VAULT" >"$WORK/job.yaml"
run run job.yaml --out tuned-cpu
ok "tune with experts on the CPU: exit code 0, got $rc" test "$rc" = 0
ok "its counts are the same" test "$(jq -c '[.results.tune.modules[] | [.name, .inputs, .outputs]]' "$WORK/tuned-cpu/results.json")" = \
    "$(jq -c '[.results.tune.modules[] | [.name, .inputs, .outputs]]' "$WORK/tuned/results.json")"
run eval moe --text "$HELD" --window 128 --max-windows 2 --json --simulate-tp 2
ok "simulated ranks: exit code 0, got $rc" test "$rc" = 0
ok "exact sums: the perplexity" jq -e --argjson b "$original" '(.perplexity / $b - 1) | fabs < 1e-5' "$WORK/out"
run eval moe --text "$HELD" --window 128 --max-windows 2 --json --simulate-tp 4 --codec mx
ok "sums through a codec are others" jq -e --argjson b "$original" '(.perplexity / $b - 1) | . != 0 and fabs < 0.2' "$WORK/out"

# A shared expert, weighed by the sigmoid of a score.
cat >"$WORK/family.yaml" <<'FAMILY'
family: tessera.family/1
name: made-shared
architectures: [MadeExpertsForCausalLM]
model_types: [made_experts]
prefixes: ["model."]
config: {eps: {key: rms_norm_eps, default: 1e-5}}
experts:
  count: num_local_experts
  used: num_experts_per_tok
  layers: {from: {key: first_k_dense_replace, default: 1}}
  shared: {width: intermediate_size}
tensors:
  embed: embed_tokens
  attn_in: layers.#.input_layernorm
  q: layers.#.self_attn.q_proj
  k: layers.#.self_attn.k_proj
  v: layers.#.self_attn.v_proj
  o: layers.#.self_attn.o_proj
  ffn_in: layers.#.post_attention_layernorm
  gate: layers.#.mlp.gate_proj
  up: layers.#.mlp.up_proj
  down: layers.#.mlp.down_proj
  router: layers.#.mlp.gate
  shared_gate: layers.#.mlp.shared.gate_proj
  shared_up: layers.#.mlp.shared.up_proj
  shared_down: layers.#.mlp.shared.down_proj
  shared_router: layers.#.mlp.shared_gate
  expert_gate: layers.#.mlp.experts.@.gate_proj
  expert_up: layers.#.mlp.experts.@.up_proj
  expert_down: layers.#.mlp.experts.@.down_proj
  final_norm: norm
  head: {name: lm_head, bare: true}
FAMILY
model shared 3 1 gated
F=(--family family.yaml)
run quantize shared -o spacked --use rtn --bits 3 --group 128 "${F[@]}"
run compensate shared --packed spacked --text "$TEXT" --samples 4 --seqlen 64 -o sj "${F[@]}" --json
ok "a shared expert: exit code 0, got $rc" test "$rc" = 0
ok "its linears count, scores of routers do not" json '.results.compensate.linears == 7 + 5 * (4 + 3 * 4)' "$WORK/sj/results.json"
run logits spacked --tokens $TOKENS -o a.st --compensate 64 --positions all "${F[@]}"
ok "its logits: exit code 0, got $rc" test "$rc" = 0
run logits spacked --tokens $TOKENS -o b.st --compensate 64 --positions all --chunk 2 "${F[@]}"
ok "in chunks: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
run logits spacked --tokens $TOKENS -o b.st --compensate 64 --positions all --step "${F[@]}"
ok "token by token: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
run logits shared --tokens $TOKENS -o c.st "${F[@]}"
run logits spacked --tokens $TOKENS -o d.st "${F[@]}"
ok "three forms" test "$(cat "$WORK"/{a,c,d}.st | wc -c)" = "$((3 * $(wc -c <"$WORK/a.st")))"
finish
