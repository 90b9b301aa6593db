#!/bin/bash
# tests/e2e/experts.sh TESSERA MAKE_EXPERTS - models with experts: calibration and quantizers per expert, packed and
# prepacked forms, exports, ranks, plans.  The model is a dense one whose feed-forwards stand in every expert, so that the
# dense model's numbers are the oracle.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/e2e/compensated-lib.sh
. "$(dirname "$0")/compensated-lib.sh"
MAKE=$(readlink -f "$2")
TEXT=$ROOT/tests/golden/models/README.md

DEMO=$ROOT/configs/demo
GOLDEN=$ROOT/tests/golden/models

# model NAME DENSE EXPERTS USED [FORM]
model() {
    "$MAKE" "$2" "$WORK/$1" "${@:3}"
    cp "$2"/{tokenizer.json,tokenizer_config.json,generation_config.json} "$WORK/$1/"
}
model one "$STORIES" 4 1
model two "$STORIES" 5 2
model wide "$DEMO" 4 2

# ---- the dense model's numbers -----------------------------------------------------------------------------------

ppl() { jq -r '.results.eval.perplexity' "$WORK/$1/results.json"; }
job() { printf 'version: 1\nmodel: %s\npipeline:\n%s\n' "$1" "$2" >"$WORK/job.yaml"; }
# near A B: to 1e-5, for the sum over experts of weight times the same row is rounded otherwise than the row
near() { jq -en --argjson a "$1" --argjson b "$2" '($a / $b - 1) | fabs < 1e-5' >/dev/null; }

for m in "$STORIES" one two; do
    job "$m" "  - eval: {text: $TEXT}"
    run run job.yaml --out "eval-${m##*/}"
    ok "${m##*/} is evaluated, got $rc" test "$rc" = 0
done
dense=$(ppl eval-stories260k)
ok "one expert of four: the dense perplexity" near "$(ppl eval-one)" "$dense"
ok "two experts of five: the dense perplexity" near "$(ppl eval-two)" "$dense"

run inspect one --json
ok "inspect tells of experts" json '.model.experts == {count: 4, used: 1, ffn: 172, layers: 5} and
    any(.model.tensors[]; .name == "router" and .shape == [4, 64]) and
    any(.model.tensors[]; .name == "experts.0.down_proj" and .shape == [64, 172])' "$WORK/out"

# ---- an expert that every token takes ----------------------------------------------------------------------------

# family FORM: the shared expert with weight 1, or weighed by the sigmoid of a score
family() {
    cat <<FAMILY
family: tessera.family/1
name: made-$1
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
$([ "$1" = shared ] || echo '  shared_router: layers.#.mlp.shared_gate')
  expert_gate: layers.#.mlp.experts.@.gate_proj
  expert_up: layers.#.mlp.experts.@.up_proj
  expert_down: layers.#.mlp.experts.@.down_proj
  final_norm: norm
  head: {name: lm_head, bare: true}
FAMILY
}
made() { printf 'version: 1\nmodel: %s\nfamilies: [%s.yaml]\npipeline:\n%s\n' "$1" "$1" "$2" >"$WORK/job.yaml"; }
for form in shared gated; do
    family $form >"$WORK/$form.yaml"
    model $form "$STORIES" 4 2 $form
    made $form "  - eval: {text: $TEXT}"
    run run job.yaml --out "eval-$form"
    ok "$form: it runs, got $rc" test "$rc" = 0
    ok "$form: the dense perplexity" near "$(ppl "eval-$form")" "$dense"
    made $form "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 4, group: 32}
  - eval: {text: $TEXT}"
    run run job.yaml --out "gptq-$form"
    ok "$form: gptq, got $rc" test "$rc" = 0
    ok "$form: a finite perplexity below 400" json '.results.eval.perplexity < 400' "$WORK/gptq-$form/results.json"
    ok "$form: the shared expert is packed, its score is not" json '[.results.quantize.linears[].name
        | select(test("layers.4.mlp.shared_expert"))] | length == 3 and all(test("router") | not)' "$WORK/gptq-$form/results.json"
    ok "$form: the input of its down is a site" grep -qa '"shared.down_in.hessian"' \
        "$WORK/gptq-$form/calibration/layer-00004.safetensors"
    run convert $form --to hf -o "$form.hf" --family $form.yaml # in 16 bits
    ok "$form: as a folder of Hugging Face, got $rc" test "$rc" = 0
    run convert $form.hf --to prepacked -o "$form.hf.pre" --family $form.yaml
    run convert "gptq-$form/packed" --to prepacked -o "$form.pre" --family $form.yaml
    ok "$form: prepacked, got $rc" test "$rc" = 0
    while read -r from to; do
        run logits "$from" --tokens 1,5,9,30,77 --family $form.yaml -o from.logits
        run logits "$to" --tokens 1,5,9,30,77 --family $form.yaml -o to.logits
        ok "$to: the same bytes" cmp -s "$WORK/from.logits" "$WORK/to.logits"
    done <<PAIRS
$form.hf $form.hf.pre
gptq-$form/packed $form.pre
PAIRS
    run logits $form --tokens 1,5,9,30,77 --family $form.yaml -o "$form.logits"
    run logits $form --tokens 1,5,9,30,77 --family $form.yaml --step --chunk 2 -o step.logits
    ok "$form: token by token the same bytes" cmp -s "$WORK/$form.logits" "$WORK/step.logits"
done
run inspect shared --family shared.yaml --json
ok "inspect tells of the shared expert" json '.model.experts == {count: 4, used: 2, ffn: 172, shared: 172, layers: 4} and
    any(.model.tensors[]; .name == "shared_expert.down_proj" and .shape == [64, 172])' "$WORK/out"
run inspect family made-gated --family gated.yaml
ok "and of its form" grep -q 'an expert that every token takes, by the sigmoid of a score' "$WORK/out"
sed '/shared_down/d' "$WORK/shared.yaml" >"$WORK/bad.yaml"
fails "a family without the shared expert's down" 2 bad.yaml:13:3 inspect shared --family bad.yaml
sed '/shared:/d' "$WORK/shared.yaml" >"$WORK/bad.yaml"
fails "a family with its tensors alone" 2 bad.yaml:12:3 inspect shared --family bad.yaml
sed 's/  shared: .*/  groups: {count: n_group, when: grouped}/; /shared_/d' "$WORK/shared.yaml" >"$WORK/bad.yaml"
fails "groups by a flag that is not there" 2 bad.yaml:11:11 inspect shared --family bad.yaml

# ---- calibration per expert --------------------------------------------------------------------------------------

job one "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 4, group: 32}
  - eval: {text: $TEXT}"
run run job.yaml --out gptq
ok "gptq per expert, got $rc" test "$rc" = 0
ok "the tokens of each expert are told, all of them" json '.results.calibrate.experts | length == 5 and
    all(.tokens | length == 4 and add == 256 and .[3] == 0)' "$WORK/gptq/results.json"
ok "an expert that no token takes is named" grep -q 'layer 0: no token takes expert 3' "$WORK/err"
ok "its Hessian is there" grep -qa '"experts.3.down_in.hessian"' "$WORK/gptq/calibration/layer-00000.safetensors"
ok "no sites of a feed-forward that is not there" test -z "$(grep -a '"down_in.mean"' "$WORK/gptq/calibration/layer-00000.safetensors" || true)"
ok "all experts are packed, the router is not" json '[.results.quantize.linears[].name] | length == 80 and
    all(test("router") | not) and any(. == "model.layers.4.mlp.experts.3.down_proj")' "$WORK/gptq/results.json"
ok "each with a loss no larger than rounding's" json '[.results.quantize.linears[] | select(.name | test("experts"))
    | .loss <= .rtn_loss] | all' "$WORK/gptq/results.json"
job one "  - quantize: {use: rtn, bits: 4, group: 32}
  - eval: {text: $TEXT}"
run run job.yaml --out rtn
ok "statistics help: gptq is nearer than rounding" jq -en --argjson g "$(ppl gptq)" --argjson r "$(ppl rtn)" \
    --argjson d "$dense" '(($g - $d) | fabs) < (($r - $d) | fabs)'
# taken up again: the same statistics from the files
cp "$WORK/gptq/calibration/layer-00002.safetensors" "$WORK/before"
rm "$WORK/gptq/results.json"
job one "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 4, group: 32}
  - eval: {text: $TEXT}"
run run job.yaml --out gptq
ok "the job is resumed, got $rc" test "$rc" = 0
ok "from the same statistics" cmp -s "$WORK/before" "$WORK/gptq/calibration/layer-00002.safetensors"
ok "which tell the same counts" json '.results.calibrate.experts | all(.tokens[3] == 0)' "$WORK/gptq/results.json"

# ---- quantizers and rules ----------------------------------------------------------------------------------------

while read -r use more; do
    job one "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: $use$more}
  - eval: {text: $TEXT}"
    run run job.yaml --out "use-$use"
    ok "$use, got $rc" test "$rc" = 0
    ok "$use: a finite perplexity below 400" json '.results.eval.perplexity < 400' "$WORK/use-$use/results.json"
done <<'USES'
int8
mx , element: int4
USES
job one "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: awq, bits: 4, group: 32}
  - eval: {text: $TEXT}"
run run job.yaml --out awq -v
ok "a search over whole layers, got $rc" test "$rc" = 0
ok "is nearer than rounding" jq -en --argjson g "$(ppl awq)" --argjson r "$(ppl rtn)" --argjson d "$dense" \
    '(($g - $d) | fabs) < (($r - $d) | fabs)'
ok "routers follow in full precision" json '[.results.quantize.linears[] | select(.name | test("router"))]
    | length == 5 and all(.format == "tessera.float/1" and .plugin == "awq" and .bits_per_weight == 32 and .squared_error == 0)' \
    "$WORK/awq/results.json"
ok "the site without a producer is told" grep -q "layer 4, quantizer 'awq': .* of o_in; the scale there is 1" "$WORK/err"
cp "$WORK/awq/packed/layer-00002.safetensors" "$WORK/before"
rm "$WORK/awq/packed/layer-00002.safetensors" "$WORK/awq/packed/packed.json" "$WORK/awq/results.json"
run run job.yaml --out awq
ok "resumed, got $rc" test "$rc" = 0
ok "with the same layer" cmp -s "$WORK/before" "$WORK/awq/packed/layer-00002.safetensors"
for to in prepacked hf; do
    run convert awq/packed --to "$to" -o "awq.$to"
    ok "as $to, got $rc" test "$rc" = 0
    run logits "awq.$to" --tokens 1,5,9,30,77 -o "awq.$to.logits"
done
run logits awq/packed --tokens 1,5,9,30,77 -o awq.packed.logits
ok "prepacked, the same bytes" cmp -s "$WORK/awq.packed.logits" "$WORK/awq.prepacked.logits"
ok "a folder that runs, got $rc" test "$rc" = 0
job one "  - calibrate: {text: $TEXT, samples: 2, seqlen: 32}
  - quantize:
      use: awq
      bits: 4
      group: 32
      rules:
        - {tensors: '*.experts.*', use: rtn, bits: 4, group: 32}"
run run job.yaml --out awq-mixed
ok "a search for attention, rounding for experts, got $rc" test "$rc" = 0
job one "  - quantize:
      use: rtn
      bits: 8
      rules:
        - {tensors: '*.experts.1.*', use: rtn, bits: 4, group: 32}
        - {tensors: '*.mlp.router', use: rtn, bits: 8}"
run run job.yaml --out rules
ok "rules by expert and for the router, got $rc" test "$rc" = 0
ok "they hold for these" json '[.results.quantize.linears[] | {name, bits: .format}] | map(select(.name | test("router"))) | length == 5' \
    "$WORK/rules/results.json"

job one "  - quantize:
      use: rtn
      bits: 4
      group: 32
      rules:
        - {tensors: '*.experts.[01].*', use: rtn, bits: 8, group: 32}
        - {tensors: '*.experts.[1-3].down_proj', use: mx}
        - {tensors: '*.experts.2.up_proj', keep: true}"
run run job.yaml --out groups
ok "experts of a layer in several formats, got $rc" test "$rc" = 0
ok "both formats are in a layer" json '[.results.quantize.linears[] | select(.name | test("layers.2.*experts.*down")) | .format] |
    unique == ["tessera.int/1", "tessera.mx/1"]' "$WORK/groups/results.json"
run logits groups/packed --tokens 1,5,9,30,77,4,8 -o groups.logits
for way in --step "--chunk 2" "--threads 1"; do
    # shellcheck disable=SC2086
    run logits groups/packed --tokens 1,5,9,30,77,4,8 -o groups.again $way
    ok "$way: the same bytes, got $rc" cmp -s "$WORK/groups.logits" "$WORK/groups.again"
done

# ---- packed, prepacked, other programs' forms --------------------------------------------------------------------

run logits rtn/packed --tokens 1,5,9,30,77 -o packed.logits
ok "a packed model runs, got $rc" test "$rc" = 0
run convert rtn/packed --to prepacked -o rtn.pre
ok "prepacked, got $rc" test "$rc" = 0
run logits rtn.pre --tokens 1,5,9,30,77 -o pre.logits
ok "prepacked: the same bytes" cmp -s "$WORK/packed.logits" "$WORK/pre.logits"
# all experts in one tensor; some layers; with a bias of the head; with latent attention
for m in granitemoe qwen3_moe-mixed phimoe deepseek_v2-lite deepseek_v3; do
    run convert "$GOLDEN/$m" --to hf -o "$m"
    ok "$m as a folder of Hugging Face, got $rc" test "$rc" = 0
    for form in "$GOLDEN/$m" "$m"; do
        run logits "$form" --tokens 1,5,9,30,77 -o "${form##*/}.$([ "$form" = "$m" ] && echo again || echo first)"
    done
    ok "$m: a folder that gives the same bytes" cmp -s "$WORK/$m.first" "$WORK/$m.again"
    run convert "$GOLDEN/$m" --to prepacked -o "$m.pre"
    run logits "$m.pre" --tokens 1,5,9,30,77 -o "$m.mapped"
    ok "$m: prepacked it gives the same bytes" cmp -s "$WORK/$m.first" "$WORK/$m.mapped"
done
run logits one --tokens 1,5,9,30,77 -o one.logits
run logits one --tokens 1,5,9,30,77 --step -o step.logits
ok "token by token: the same bytes" cmp -s "$WORK/one.logits" "$WORK/step.logits"
run logits one --tokens 1,5,9,30,77 --chunk 2 -o chunk.logits
ok "in pieces: the same bytes" cmp -s "$WORK/one.logits" "$WORK/chunk.logits"
run quantize wide --use rtn --bits 4 --group 32 --out wide-4
run logits wide-4 --tokens 1,5,9,30,77 -o packed.logits
run convert wide-4 --to gptq -o as-gptq
ok "as a GPTQ folder, got $rc" test "$rc" = 0
run logits as-gptq --tokens 1,5,9,30,77 -o gptq.logits
ok "which gives the same bytes" cmp -s "$WORK/packed.logits" "$WORK/gptq.logits"

# ---- GGUF, in both directions ------------------------------------------------------------------------------------

# same NAME A B: two models give the same bytes
same() {
    run logits "$2" --tokens 1,5,9,30,77 -o a.logits
    rm -f "$WORK/b.logits"
    run logits "$3" --tokens 1,5,9,30,77 -o b.logits
    ok "$1: the same bytes" cmp -s "$WORK/a.logits" "$WORK/b.logits"
}
run convert wide-4 --to gguf -o wide-4.gguf --json
ok "packed experts as GGUF, got $rc" test "$rc" = 0
ok "each stack keeps its codes" json '.packed == 42 and .requantized == 0 and .quantized == 0' "$WORK/out"
same "packed as GGUF" wide-4 wide-4.gguf
run inspect wide-4.gguf --json
ok "GGUF is read as the family with experts" json '.model | .family == "mixtral" and .experts.count == 4 and
    any(.tensors[]; .name == "experts.0.down_proj" and (.format | startswith("tessera.int/1")))' "$WORK/out"
run generate wide-4.gguf --prompt "It was" --max-tokens 4 --greedy --ignore-eos --json
cp "$WORK/out" "$WORK/from-gguf"
run generate wide-4 --prompt "It was" --max-tokens 4 --greedy --ignore-eos --json
ok "with its tokenizer" test "$(jq -c .tokens "$WORK/out")" = "$(jq -c .tokens "$WORK/from-gguf")"
for m in gpt_oss gpt_oss-mxfp4 granitemoe mixtral qwen3_moe deepseek_v2-lite deepseek_v2-groups deepseek_v3; do
    run convert "$GOLDEN/$m" --to gguf -o "$m.gguf"
    ok "$m as GGUF, got $rc" test "$rc" = 0
    same "$m as GGUF" "$GOLDEN/$m" "$m.gguf"
    run convert "$m.gguf" --to gguf -o "$m-2.gguf"
    ok "$m: written again, got $rc" test "$rc" = 0
    same "$m: written again" "$m.gguf" "$m-2.gguf"
done
run convert granitemoe.gguf --to hf --dtype f16 -o granitemoe-back
ok "back as a folder, got $rc" test "$rc" = 0
same "back as a folder" "$GOLDEN/granitemoe" granitemoe-back
mkdir "$WORK/jitter"
cp "$GOLDEN"/phimoe/model.safetensors "$WORK/jitter"
jq '.router_jitter_noise = 0.1' "$GOLDEN/phimoe/config.json" >"$WORK/jitter/config.json"
fails_with "another jitter of the router" 2 x.gguf 'how its experts are chosen' convert jitter --to gguf -o x.gguf
fails "weights of experts that llama.cpp would divide by their sum" 2 x.gguf \
    convert "$GOLDEN/qwen3_moe-mixed" --to gguf -o x.gguf
fails_with "rows that blocks do not divide" 2 x.gguf 'layers.0.experts.down' convert "$GOLDEN/mixtral" --to gguf --type q8_0 -o x.gguf
# other names, as the section of a family says; two for the part that is gate and up of each expert
sed 's/^name: .*/name: mine/; s/^  architectures: .gpt-oss.*/  architectures: [gpt-0ss]/; /^  write:/d
    s/^  tensors:/  tensors:\n    experts_gate_up: [blk.#.ffn_gate_all_, blk.#.ffn_up_all_]/' \
    "$ROOT/configs/families/gpt_oss.yaml" >"$WORK/mine.yaml"
LC_ALL=C sed 's/gpt-oss/gpt-0ss/g; s/ffn_gate_exps/ffn_gate_all_/g; s/ffn_up_exps/ffn_up_all_/g' "$WORK/gpt_oss.gguf" >"$WORK/other.gguf"
run logits "$GOLDEN/gpt_oss" --tokens 1,5,9,30,77 -o a.logits
run logits other.gguf --tokens 1,5,9,30,77 -o b.logits --family mine.yaml
ok "GGUF of an added family with experts, got $rc" test "$rc" = 0
ok "the same bytes" cmp -s "$WORK/a.logits" "$WORK/b.logits"
sed -i 's/, blk.#.ffn_up_all_//' "$WORK/mine.yaml"
fails "one name for two tensors" 2 mine.yaml:54:22 logits other.gguf --tokens 1 -o x.logits --family mine.yaml
run inspect family gpt_oss --json
ok "inspect tells both names" json 'any(.family.parts[]; .part == "experts_gate_up" and
    .gguf == "blk.#.ffn_gate_exps, blk.#.ffn_up_exps")' "$WORK/out"
run convert gpt_oss.gguf --to prepacked -o oss.pre
ok "GGUF as a prepacked file, got $rc" test "$rc" = 0
same "GGUF as a prepacked file" gpt_oss.gguf oss.pre
# what is read from GGUF is quantized: some experts, others keep their stack with its biases
run quantize gpt_oss.gguf --use rtn --bits 8 --group 16 --rules '[{tensors: "*.experts.1.*", keep: true}]' -o oss-8
ok "experts of a GGUF file are packed, got $rc" test "$rc" = 0
run quantize "$GOLDEN/gpt_oss" --use rtn --bits 8 --group 16 --rules '[{tensors: "*.experts.1.*", keep: true}]' -o oss-8-hf
same "as those of the folder" oss-8-hf oss-8

# ---- ranks and plans ---------------------------------------------------------------------------------------------

# plan STAGES TP
plan() {
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 8, batch: 4, chunk: 3, kv: f32}
micro_batches: {prefill: 1, decode: 2}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for ((i = 0; i < $1; i++)); do
        local layers="$((6 * i / $1))-$((6 * (i + 1) / $1 - 1))"
        printf '  - {layers: %s, node: here, device: this-machine, tp: %s, schemes: [{layers: %s, use: rtn, bits: 4, group: 32}]}\n' \
            "$layers" "$2" "$layers"
    done
}
i=0
while read -r text; do
    jq -cn --arg t "$text" --arg i "r$((i += 1))" '{custom_id: $i, method: "POST", url: "/v1/completions",
        body: {prompt: $t, max_tokens: 8}}'
done >"$WORK/prompts.jsonl" <<'TEXTS'
It was the best of times,
The President said that
In the beginning
TEXTS
while read -r stages tp kind; do
    plan "$stages" "$tp" >"$WORK/plan.yaml"
    job wide "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: $kind}"
    run run job.yaml --out "run-$stages-$tp-$kind"
    ok "$stages stages of $tp as $kind, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].text' "$WORK/run-$stages-$tp-$kind/answers.jsonl" >"$WORK/got-$stages-$tp"
    ok "$stages stages of $tp as $kind: three answers" test "$(grep -c '"' "$WORK/got-$stages-$tp")" = 3
    ok "$stages stages of $tp as $kind: the answers of one" cmp -s "$WORK/got-1-1" "$WORK/got-$stages-$tp"
done <<'WAYS'
1 1 threads
2 1 processes
1 2 threads
2 2 processes
WAYS
# whole experts: of a folder, where others' are not even read, and of a stack that is cut
run convert wide --to gguf -o wide.gguf
while read -r stages m; do
    plan "$stages" 2 | sed 's/tp: 2/tp: 2, experts: whole/' >"$WORK/plan.yaml"
    job "$m" "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
    run run job.yaml --out "whole-$stages-$m"
    ok "$m: whole experts in $stages stages of 2, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].text' "$WORK/whole-$stages-$m/answers.jsonl" >"$WORK/got-whole"
    ok "$m: whole experts in $stages stages of 2: the answers of one" cmp -s "$WORK/got-1-1" "$WORK/got-whole"
done <<'WAYS'
1 wide
2 wide
1 wide.gguf
WAYS
job "$DEMO" "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
fails "whole experts of a model without any" 2 "job.yaml:4: step 'run'" run job.yaml --out none
plan 2 2 >"$WORK/plan.yaml"
job wide.gguf "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
run run job.yaml --out run-gguf
ok "2 stages of 2 from a GGUF file, got $rc" test "$rc" = 0
jq -c '.response.body.choices[0].text' "$WORK/run-gguf/answers.jsonl" >"$WORK/got-gguf"
ok "2 stages of 2 from a GGUF file: the answers of one" cmp -s "$WORK/got-1-1" "$WORK/got-gguf"
model wide-shared "$DEMO" 4 2 gated
cp "$WORK/gated.yaml" "$WORK/wide-shared.yaml"
while read -r stages tp; do
    plan "$stages" "$tp" >"$WORK/plan.yaml"
    made wide-shared "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
    run run job.yaml --out "shared-$stages-$tp"
    ok "a shared expert in $stages stages of $tp, got $rc" test "$rc" = 0
    jq -c '.response.body.choices[0].text' "$WORK/shared-$stages-$tp/answers.jsonl" >"$WORK/shared-got-$stages-$tp"
    ok "a shared expert in $stages stages of $tp: three answers" test "$(grep -c '"' "$WORK/shared-got-$stages-$tp")" = 3
    ok "a shared expert in $stages stages of $tp: the answers of one" \
        cmp -s "$WORK/shared-got-1-1" "$WORK/shared-got-$stages-$tp"
done <<'WAYS'
1 1
1 2
2 2
WAYS
job wide "  - run: {input: prompts.jsonl, output: answers.jsonl, temperature: 0}"
run run job.yaml --out batch
ok "a batch, got $rc" test "$rc" = 0
ok "a batch: three answers" test "$(jq -r 'select(.error == null) | .custom_id' "$WORK/batch/answers.jsonl" | wc -l)" = 3

# ---- profiles of two forms ---------------------------------------------------------------------------------------

# A profile of layers of two forms has both: the dense one has no experts.
run profile --model "$GOLDEN/qwen3_moe-mixed" --scheme original --quick --repeats 1 --rounds 1 --positions 32 --sequences 2 \
    -o mixed.yaml
ok "a profile of layers of two forms, got $rc" test "$rc" = 0
ok "one shape has experts" test "$(grep -c '    shape: .*experts: ' "$WORK/mixed.yaml")" = 1
ok "another has none" test "$(grep '    shape: ' "$WORK/mixed.yaml" | grep -vc 'experts: ')" = 1

# ---- latent attention ---------------------------------------------------------------------------------------------

# A tokenizer whose ids are bytes, for models of 320 ids.
jq -n '[range(33; 127), range(161; 173), range(174; 256)] as $own
    | reduce range(256) as $b ({v: {}, n: 256}; if $own | any(. == $b) then .v[[$b] | implode] = $b
        else .v[[.n] | implode] = $b | .n += 1 end)
    | {version: "1.0", added_tokens: [], normalizer: null, decoder: {type: "ByteLevel"},
       pre_tokenizer: {type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true},
       model: {type: "BPE", vocab: .v, merges: []}}' >"$WORK/bytes.json"
run inspect "$GOLDEN/deepseek_v3"
ok "inspect tells of latent attention" grep -q 'keys and values of rank 24, queries of rank 40; a head has 16' "$WORK/out"
for m in deepseek_v2-lite deepseek_v3; do
    cp -r "$GOLDEN/$m" "$WORK/l-$m"
    cp "$WORK/bytes.json" "$WORK/l-$m/tokenizer.json"
    job "l-$m" "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 4, group: 8}
  - eval: {text: $TEXT, window: 64, max_windows: 4}"
    run run job.yaml --out "gptq-$m"
    ok "$m: gptq, got $rc" test "$rc" = 0
    ok "$m: every linear of attention and of the shared expert is packed" json '[.results.quantize.linears[].name] as $n
        | ["self_attn.kv_a_proj", "self_attn.kv_b_proj", "self_attn.o_proj", "mlp.shared_expert.down_proj"]
        | all(. as $p | $n | any(. == "model.layers.2." + $p))' "$WORK/gptq-$m/results.json"
    ok "$m: each with a loss no larger than rounding's" json '[.results.quantize.linears[] | .loss <= .rtn_loss] | all'         "$WORK/gptq-$m/results.json"
    ok "$m: the input of kv_b is a site" grep -qa '"kv_b_in.hessian"' "$WORK/gptq-$m/calibration/layer-00000.safetensors"
    for use in "int8" "mx, element: int4"; do
        job "l-$m" "  - calibrate: {text: $TEXT, samples: 4, seqlen: 64}
  - quantize: {use: $use, on_unsupported: keep}
  - eval: {text: $TEXT, window: 64, max_windows: 4}"
        run run job.yaml --out "${use%%,*}-$m"
        ok "$m: ${use%%,*}, got $rc" test "$rc" = 0
    done
    run convert "gptq-$m/packed" --to prepacked -o "$m.packed.pre"
    ok "$m: prepacked, got $rc" test "$rc" = 0
    for one in "gptq-$m/packed" "$m.packed.pre"; do
        run logits "$one" --tokens 1,5,9,30,77 -o "${one//\//-}.logits"
    done
    ok "$m: the same bytes" cmp -s "$WORK/gptq-$m-packed.logits" "$WORK/$m.packed.pre.logits"
    for kv in f16 int8; do
        run logits "l-$m" --tokens 1,5,9,30,77,12,13 --kv $kv -o kv.logits
        ok "$m: a cache of $kv, got $rc" test "$rc" = 0
        run logits "l-$m" --tokens 1,5,9,30,77,12,13 --kv $kv --step -o step.logits
        ok "$m: token by token the same bytes" cmp -s "$WORK/kv.logits" "$WORK/step.logits"
    done
    job "l-$m" "  - calibrate: {text: $TEXT, samples: 2, seqlen: 32}
  - quantize: {use: awq, bits: 4, group: 8}"
    run run job.yaml --out "awq-$m"
    ok "$m: a search over whole layers, got $rc" test "$rc" = 0
    ok "$m: it divides the norm of the row" grep -qa '"model.layers.2.kv_b_in.gain"' "$WORK/awq-$m/packed/layer-00002.safetensors"
    run convert "awq-$m/packed" --to prepacked -o "awq-$m.pre"
    for one in "awq-$m/packed" "awq-$m.pre"; do
        run logits "$one" --tokens 1,5,9,30,77 -o "${one//\//-}.logits"
    done
    ok "$m: prepacked, the same bytes" cmp -s "$WORK/awq-$m-packed.logits" "$WORK/awq-$m.pre.logits"
    run convert "gptq-$m/packed" --to gguf --allow-requantize --type f16 -o "packed-$m.gguf" --json
    ok "$m: packed matrices as floats in GGUF, got $rc" json '.packed == 0 and .widened > 0' "$WORK/out"
    run logits "packed-$m.gguf" --tokens 1,5,9,30,77 -o packed.logits
    ok "$m: which is read, got $rc" test "$rc" = 0
    [ "$m" != deepseek_v3 ] || compensated "l-$m" "$(jq '[.results.quantize.linears[]] | length' "$WORK/gptq-$m/results.json")" \
        "attn_in.residual kv_b_in.top self_attn.kv_b_proj.residual"
    plan 1 1 | sed 's/layers: 6/layers: 3/; s/0-5/0-2/g; s/group: 32/group: 8/' >"$WORK/plan.yaml"
    job "l-$m" "  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}"
    run run job.yaml --out "one-$m"
    ok "$m: a run by a plan, got $rc" test "$rc" = 0
    plan 3 1 | sed 's/layers: 6/layers: 3/; s/0-1/0-0/g; s/2-3/1-1/g; s/4-5/2-2/g; s/group: 32/group: 8/' >"$WORK/plan.yaml"
    run run job.yaml --out "three-$m"
    ok "$m: three stages, got $rc" test "$rc" = 0
    ok "$m: the answers of one" cmp -s <(jq -c .response.body.choices[0].text "$WORK/one-$m/answers.jsonl")         <(jq -c .response.body.choices[0].text "$WORK/three-$m/answers.jsonl")
done
bad() { jq "$1" "$GOLDEN/deepseek_v3/config.json" >"$WORK/bad/config.json"; }
cp -r "$GOLDEN/deepseek_v3" "$WORK/bad"
while IFS='#' read -r change says; do
    bad "$change"
    run inspect bad --json
    ok "$change: an error, got $rc" test "$rc" = 2
    ok "$change: of one sentence" test "$(grep -ac '^{"format":"tessera.error/1"' "$WORK/err")" = 1
    ok "$change: $says" grep -qF "$says" "$WORK/err"
done <<'BAD'
.n_group = 3#must divide 8 experts
.topk_group = 5#5 of 4 groups
.topk_group = 1#a token takes 3 experts, but 1 of 4 groups have 2
.n_group = 8 | .topk_group = 4#8 groups of one expert each
.topk_method = "greedy"#is not supported; noaux_tc is
.scoring_func = "softmax"#is not supported; sigmoid is
.kv_lora_rank = null#kv_lora_rank
.qk_rope_head_dim = 7#must be even
.v_head_dim = 0#v_head_dim
.q_lora_rank = null#q_proj.weight
.kv_lora_rank = 32#kv_lora_rank, qk_rope_head_dim of config.json
.n_shared_experts = 3#shared_experts
.num_hidden_layers = 2#is unknown
.num_nextn_predict_layers = 0#model.layers.3
BAD

# What a GGUF file of latent attention has no word for.
refused() {
    rm -rf "$WORK/other"
    cp -r "$GOLDEN/deepseek_v3" "$WORK/other"
    jq "$2" "$GOLDEN/deepseek_v3/config.json" >"$WORK/other/config.json"
    fails_with "$1" 2 x.gguf "$3" convert other --to gguf -o x.gguf
}
refused "halves that rotate together" '.rope_interleave = false' "the pairs of columns"
refused "two scales of yarn" '.rope_scaling.mscale = 0.5' "scaling of rope"
# and what a damaged one says: a half without the other, other sizes
# broken WHAT FROM TO TEXT: the file with one word for another
broken() {
    LC_ALL=C sed "s/$2/$3/" "$WORK/deepseek_v3.gguf" >"$WORK/broken.gguf"
    fails_with "$1" 2 broken.gguf "$4" logits broken.gguf --tokens 1 -o x.logits
}
broken "keys without values" 'blk.1.attn_v_b' 'blk.1.attn_v_x' 'attn_v_'
broken "values without keys" 'blk.1.attn_k_b' 'blk.1.attn_k_x' 'attn_k_'
broken "no rank" 'attention.kv_lora_rank' 'attention.kv_lora_xxxx' 'kv_lora_rank'
broken "no columns that rotate" 'rope.dimension_count' 'rope.dimension_xxxxx' 'dimension_count'
broken "a head of another width" 'attention.key_length_mla' 'attention.key_length_xxx' 'key-value heads'
broken "another router" 'expert_gating_func' 'expert_gating_xxxx' 'expert_weights_norm'

# ---- plans -------------------------------------------------------------------------------------------------------

# Memory is of all experts.  The time of a step is of those that its tokens reach: with one token as many as it takes, whatever
# the others are; with more tokens more.
mkdir "$WORK/devices"
sed 's/total: 8 MiB/total: 1 GiB/' "$ROOT/configs/plan/devices/midi.yaml" >"$WORK/devices/midi.yaml"
printf 'version: 1\nnodes:\n  - {name: desk, devices: [{profile: midi}]}\n' >"$WORK/cluster.yaml"
model wider "$DEMO" 8 2
stage() { jq -r --arg k "$2" '.plan.stages | if length == 1 then .[0][$k] else error("stages") end' "$WORK/$1.plan"; }
while read -r name model batch; do
    run plan "$model" --cluster cluster.yaml --workload "{prompt: 16, generate: 8, batch: $batch}" --bits 4 --json -o x.yaml
    ok "a plan for $model, $batch at once, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/$name.plan"
done <<'PLANS'
four wide 1
eight wider 1
many wider 8
PLANS
run quantize wide --use rtn --bits 4 --group 128 --out wide-4-128
norms=$((6 * 2 * 256 * 4))
ok "weights: those that quantize packs, routers and norms" test "$(stage four weights)" = \
    "$(($(jq .results.quantize.bytes "$WORK/wide-4-128/results.json") + norms))"
for m in deepseek_v2-lite deepseek_v3; do
    run plan "l-$m" --cluster cluster.yaml --workload '{prompt: 16, generate: 8, batch: 1}' --bits 4 --json -o x.yaml
    ok "a plan for $m, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/$m.plan"
    run quantize "l-$m" --use rtn --bits 4 --group 128 --out "$m-4"
    norms=$((3 * 4 * (64 + 64 + 24 + $([ $m = deepseek_v3 ] && echo 40 || echo 0))))
    ok "$m: weights of the plan" test "$(stage $m weights)" = \
        "$(($(jq .results.quantize.bytes "$WORK/$m-4/results.json") + norms))"
    ok "$m: keys and values of 24 columns a head" test "$(stage $m kv)" = $((3 * 24 * 2 * 4 * 24 * 2))
done
run plan rules/packed --cluster cluster.yaml --workload '{prompt: 16, generate: 8, batch: 1}' --json -o x.yaml
ok "a plan for packed experts of different widths, got $rc" json '.plan.stages | length > 0' "$WORK/out"
# more(A, B, KEY): of plan A's and B's stage
more() { jq -en --argjson a "$(stage "$1" "$3")" --argjson b "$(stage "$2" "$3")" '$a > $b' >/dev/null; }
ok "more experts take more memory" more eight four weights
ok "but one token takes as long" test "$(stage eight decode_ms)" = "$(stage four decode_ms)"
ok "and eight tokens longer" more many eight decode_ms
ok "every expert counts alike where nothing was measured" json '.experts == {count: 8, used: 2, frequencies: "equal"}' \
    "$WORK/many.plan"

# Two devices of a node: some rows of every expert, whole ones, or the better of both, which is no worse than either.
mkdir "$WORK/pair"
sed 's/devices: \[.*/link: {bandwidth: 10 GB\/s}, devices: [{profile: midi, count: 2}]}/' "$WORK/cluster.yaml" >"$WORK/pair.yaml"
for experts in rows whole any; do
    run plan wider --cluster pair.yaml --workload '{prompt: 16, generate: 8, batch: 4}' --bits 4 --min-tp 2 --json \
        --experts $experts -o "$experts.yaml"
    ok "a plan of $experts, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/$experts.plan"
    run plan wider --cluster pair.yaml --workload '{prompt: 16, generate: 8, batch: 4}' --bits 4 --check "$experts.yaml" --json
    ok "$experts: --check has its time" jq -en --argjson a "$(jq .plan.latency_ms "$WORK/$experts.plan")" \
        --argjson b "$(jq .plan.latency_ms "$WORK/out")" '($a / $b - 1) | fabs < 1e-9'
done
ok "whole experts are in the plan" grep -q '^    experts: whole' "$WORK/whole.yaml"
ok "and in its table" test "$(stage whole experts)" = whole
ok "rows are not named" test "$(stage rows experts)" = null
ok "of any, the better" jq -en --argjson a "$(jq .plan.objective_ms "$WORK/any.plan")" \
    --argjson r "$(jq .plan.objective_ms "$WORK/rows.plan")" --argjson w "$(jq .plan.objective_ms "$WORK/whole.plan")" \
    '$a <= $r and $a <= $w and $r < $w'
plan 1 2 | sed 's/layers: 6/layers: 5/; s/0-5/0-4/g; s/here, device: this-machine, tp: 2/desk, device: midi, tp: 2, experts: whole/' \
    >"$WORK/plan-two.yaml"
fails_with "experts that do not divide" 2 'stage 0, layer 0 as rtn-4' '5 experts' plan two --cluster pair.yaml \
    --workload '{prompt: 16, generate: 8, batch: 4}' --bits 4 --check plan-two.yaml

# A profile of layers with experts: every time is finite, and the planner takes the points as measured.
run profile --model wide --scheme original --scheme rtn:bits=4,group=32 --quick --repeats 1 --rounds 1 --positions 64 \
    --sequences 8 -o wide.yaml
ok "a profile, got $rc" test "$rc" = 0
ok "its shape names the experts" test "$(grep -c 'ffn: 512, .*experts: 4, used: 2}' "$WORK/wide.yaml")" = 2
run profile --of wide.yaml --model wide --scheme original --check 2 --repeats 1 --positions 64 --sequences 8 --json
ok "it predicts workloads, got $rc" json 'all(.error_raw >= 0)' "$WORK/out"
printf 'version: 1\nnodes:\n  - {name: desk, devices: [{profile: %s}]}\n' "$WORK/wide.yaml" >"$WORK/own.yaml"
run plan wide --cluster own.yaml --workload '{prompt: 16, generate: 8, batch: 4}' --candidates '[original]' --json -o x.yaml
ok "a plan with its times, got $rc" json '.plan.stages | length == 1 and all(.times == "fitted" or .times == "measured")' "$WORK/out"
sed 's/, used: 2}/}/' "$WORK/wide.yaml" >"$WORK/bad.yaml"
fails "experts without how many are used" 2 '*bad.yaml:*' profile --of bad.yaml --model wide --scheme original --check 2

# Latent attention: an entry for its dense layers and one for those with experts, whose times a plan applies.
for m in deepseek_v2-lite deepseek_v3; do
    run profile --model "l-$m" --scheme rtn:bits=4,group=8 --quick --repeats 1 --rounds 1 --positions 64 --sequences 8 -o "l-$m.yaml"
    ok "$m: a profile, got $rc" test "$rc" = 0
    ok "$m: its shapes name the rows and the columns of a head" test \
        "$(grep -c 'heads: 4, latent: {q_rank: [0-9]*, rank: 24, nope: 16, rope: 8, v: 16}, gated: true' "$WORK/l-$m.yaml")" = 2
    printf 'version: 1\nnodes:\n  - {name: desk, devices: [{profile: %s}]}\n' "$WORK/l-$m.yaml" >"$WORK/own.yaml"
    run plan "l-$m" --cluster own.yaml --workload '{prompt: 16, generate: 8, batch: 4}' --candidates '[{use: rtn, bits: 4, group: 8}]' \
        --json -o "l-$m.plan"
    ok "$m: a plan with its times, got $rc" json '.plan.stages | length == 1 and all(.times == "fitted" or .times == "measured")' \
        "$WORK/out"
done
sed 's/latent: {/kv_heads: 4, &/' "$WORK/l-deepseek_v3.yaml" >"$WORK/bad.yaml"
fails "latent attention and heads of keys" 2 '*bad.yaml:*' profile --of bad.yaml --model l-deepseek_v3 --scheme original --check 2
sed 's/ rank: 24,//' "$WORK/l-deepseek_v3.yaml" >"$WORK/bad.yaml"
fails "latent attention without its row" 2 '*bad.yaml:*' profile --of bad.yaml --model l-deepseek_v3 --scheme original --check 2

# Schemes for some linears of a layer with latent attention: the plan lies between those with either for the whole layer, by
# their share of the weights, and a model is packed by it.
job l-deepseek_v3 "  - plan: {bits: [4], use: rtn, group: 8, to: plan.yaml}"
sed -i 's/^pipeline:/cluster: cluster.yaml\nworkload: {prompt: 16, generate: 8, batch: 1}\n&/' "$WORK/job.yaml"
run run job.yaml --out planned
ok "a plan, got $rc" test "$rc" = 0
# weights NAME RULE: bytes of the plan with that rule in addition
weights() {
    sed "s/^    schemes:.*/&\n      - {layers: 0-2, use: rtn, bits: 4, group: 8}\n      - {layers: 1, $2}/; /^      - {layers: \"/d" \
        "$WORK/planned/plan.yaml" >"$WORK/$1.yaml"
    run plan job.yaml --check "$1.yaml" --json -o again.yaml
    ok "layer 1 with $2 is priced, got $rc" test "$rc" = 0
    jq -c '[.plan.stages[0].weights, .plan.omega]' "$WORK/out"
}
four=$(weights four 'bits: 4') eight=$(weights eight 'bits: 8')
some=$(weights some 'tensors: "*.kv_b_proj", bits: 8')
ok "kv_b at 8 bits lies between" jq -ne --argjson a "$four" --argjson b "$eight" --argjson m "$some" \
    '$m[0] == $a[0] + 128 * 24 / 2 and $m[0] < $b[0] and $m[1] < $a[1] and $m[1] > $b[1]' >"$WORK/jq"
ok "the plan that is written names it" grep -q 'layers: "1", tensors: "\*.kv_b_proj", .*bits: 8' "$WORK/again.yaml"
run quantize l-deepseek_v3 --use rtn --plan again.yaml --out some
ok "a model is packed by it, got $rc" json '[.results.quantize.linears[] | select(.bits_per_weight > 8) | .name] ==
    ["model.layers.1.self_attn.kv_b_proj"]' "$WORK/some/results.json"
for name in kv_c k z; do
    (weights none "tensors: \"*.${name}_proj\", bits: 8") >/dev/null 2>&1
    fails "$name: a linear that is none, or that this model lacks" 2 'none.yaml:*' plan job.yaml --check none.yaml
    ok "$name: a sentence about it" grep -q 'no linear' "$WORK/err"
done

# Measured frequencies: the last expert of the model `one` gets no token.
sed -i 's/ops: 10 GFLOP/ops: 10 TFLOP/' "$WORK/devices/midi.yaml" # so that reading is what takes the time
job one "  - calibrate: {text: $TEXT, samples: 2, seqlen: 32}
  - plan: {bits: [4], use: rtn, to: plan.yaml}"
sed -i 's/^pipeline:/cluster: cluster.yaml\nworkload: {prompt: 16, generate: 8, batch: 8}\n&/' "$WORK/job.yaml"
run run job.yaml --out routed
ok "a plan behind a calibration, got $rc" test "$rc" = 0
ok "uses its counts" json '.results.plan.experts == {count: 4, used: 1, frequencies: "measured"}' "$WORK/routed/results.json"
ok "and says so" grep -q 'frequencies measured' "$WORK/out"
for name in equal measured; do
    routing=()
    [ $name = equal ] || routing=(--routing routed/calibration)
    run plan one --cluster cluster.yaml --workload '{prompt: 16, generate: 8, batch: 8}' --bits 4 --use rtn --json -o x.yaml \
        "${routing[@]}"
    ok "a plan with $name frequencies, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/$name.plan"
    ok "$name frequencies are named" json ".experts.frequencies == \"$name\"" "$WORK/$name.plan"
done
ok "fewer experts are reached than by equal chances" more equal measured decode_ms
ok "the job's plan has the time of the verb's" test "$(stage measured decode_ms)" = \
    "$(jq -r '.results.plan.plan.stages[0].decode_ms' "$WORK/routed/results.json")"
fails "counts of another model" 2 "*/layer-00000.safetensors" plan wide --cluster cluster.yaml --workload '{prompt: 16, generate: 8, batch: 8}' \
    --bits 4 --routing routed/calibration -o x.yaml
fails "a model without experts" 2 "$DEMO" plan "$DEMO" --cluster cluster.yaml \
    --workload '{prompt: 16, generate: 8, batch: 8}' --bits 4 --routing routed/calibration -o x.yaml
fails "a folder that is not there" 2 "--routing nowhere*" plan one --cluster cluster.yaml \
    --workload '{prompt: 16, generate: 8, batch: 8}' --bits 4 --routing nowhere -o x.yaml
finish
