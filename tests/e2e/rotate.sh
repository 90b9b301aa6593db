#!/bin/bash
# tests/e2e/rotate.sh TESSERA - rotations as a user runs them: the verb, the step before others, arms of a comparison, and
# what is refused.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
head -c 20000 "$DEMO/calibration.txt" >"$WORK/calibration.txt"

# ---- the verb --------------------------------------------------------------------------------
run rotate @demo -o turned --json
ok "rotated, got $rc" test "$rc" = 0
ok "both sites, an LM head of its own" json '.kind == "hadamard" and .sites == "both" and .untied and .tensors == 57' "$WORK/out"
ok "the config says so" json '.tie_word_embeddings == false and (.dtype // .torch_dtype) == "float32"' "$WORK/turned/config.json"
run rotate @demo -o turned
ok "an existing folder is kept: exit code 2, got $rc" test "$rc" = 2
run eval turned --text "$DEMO/held-out.txt" --protocol gptq-2048 --max-windows 1 --against @demo --json
ok "its function is that of the original" json '(.kl.mean | fabs) < 1e-9 and .top1 == 1' "$WORK/out"
run rotate @demo --kind random --sites heads -o heads --json
ok "heads alone leave the embedding tied" json '.untied == false and .tensors == 56' "$WORK/out"

# ---- transforms that run with the model ------------------------------------------------------------
# DEMO: 4 KV heads of 32, 512 columns of down_proj in 8 segments of 64
run rotate @demo --online both -o online --json
ok "rotated with transforms, got $rc" json '.sites == "both" and .online == "both"' "$WORK/out"
ok "its config names them and hides the architecture" json \
    '.tessera_rotation == {format: "tessera.rotation/1", architectures: ["LlamaForCausalLM"], model_type: "llama", keys: 32, down: 64}
     and .architectures == ["TesseraRotated"] and .model_type == "tessera_rotated"' "$WORK/online/config.json"
run inspect online --json
ok "inspect says so" json '.model.online == {keys: 32, down: 64, expert_down: 0, shared_down: 0}' "$WORK/out"
run eval online --text "$DEMO/held-out.txt" --protocol gptq-2048 --max-windows 1 --against @demo --json
ok "its function is that of the original" json '(.kl.mean | fabs) < 1e-9 and .top1 == 1' "$WORK/out"
# without the transform down_proj would be another matrix
jq '. + (.tessera_rotation | {architectures, model_type}) | del(.tessera_rotation)' "$WORK/online/config.json" >"$WORK/plain.json"
cp -r "$WORK/online" "$WORK/forgotten"
cp "$WORK/plain.json" "$WORK/forgotten/config.json"
run eval forgotten --text "$DEMO/held-out.txt" --protocol gptq-2048 --max-windows 1 --against @demo --json
ok "which needs them" json '.kl.mean > 1' "$WORK/out"
# the same bytes whatever the instruction set, the number of tokens in a call and of threads
run quantize online --use rtn --bits 4 --group 32 -o packed-online
ok "quantized, got $rc" test "$rc" = 0
run convert packed-online --to prepacked -o online.tsr
ok "prepacked, got $rc" test "$rc" = 0
for m in online packed-online online.tsr; do
    run logits "$m" --tokens 5,9,70,22,31,8,8,100 --act a8 --kv int4 -o want.st
    ok "$m runs, got $rc" test "$rc" = 0
    [ "$m" != online.tsr ] || ok "prepacked: the bytes of the packed model" cmp -s "$WORK/want.st" "$WORK/packed.st"
    cp "$WORK/want.st" "$WORK/packed.st"
    run logits "$m" --tokens 5,9,70,22,31,8,8,100 --act a8 --kv int4 --step --threads 1 -o got.st
    ok "$m token by token" cmp -s "$WORK/want.st" "$WORK/got.st"
    [ "$m" = online.tsr ] && continue # its layout is that of an instruction set
    for isa in scalar avx2; do
        (cd "$WORK" && TSR_ISA=$isa "$TESSERA" logits "$m" --tokens 5,9,70,22,31,8,8,100 --act a8 --kv int4 -o got.st >/dev/null 2>&1) || true
        ok "$m on $isa" cmp -s "$WORK/want.st" "$WORK/got.st"
    done
done
# ranks: each transforms its own columns
printf '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": [5, 9, 70, 22, 31], "max_tokens": 8, "logprobs": 5}}\n' >"$WORK/prompts.jsonl"
ranks_of() { # MODEL RANKS...: 1 first
    local tp
    for tp in "${@:2}"; do
        cat >"$WORK/plan.yaml" <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 8, batch: 1, concurrency: 1, chunk: 8, kv: f32}
micro_batches: {prefill: 1, decode: 1}
master: {tokenize: coordinator, embed: first, head: last, sample: coordinator}
stages:
  - {layers: 0-5, node: here, device: board, tp: $tp, schemes: [{layers: 0-5, keep: true}]}
PLAN
        printf 'version: 1\nmodel: %s\npipeline:\n  - run: {plan: plan.yaml, input: prompts.jsonl, output: answers.jsonl, temperature: 0, ranks: threads}\n' "$1" >"$WORK/ranks.yaml"
        run run ranks.yaml --out "$1-$tp"
        ok "$1: $tp ranks, got $rc" test "$rc" = 0
        jq -c '.response.body.choices[0] | [.text, .logprobs]' "$WORK/$1-$tp/answers.jsonl" >"$WORK/got-$1-$tp"
        ok "$1: $tp ranks: the answer and the log-probabilities of one" cmp -s "$WORK/got-$1-1" "$WORK/got-$1-$tp"
    done
}
ranks_of packed-online 1 2 4
ok "an answer with log-probabilities" json '.[0] != "" and (.[1] | length) > 0' "$WORK/got-packed-online-1"
# scales of AWQ pass no transform
run quantize online --use awq --bits 8 --group 64 --scale f32 --text calibration.txt --samples 4 --seqlen 64 -o scaled
ok "awq, got $rc" test "$rc" = 0
run eval scaled --text "$DEMO/held-out.txt" --protocol gptq-2048 --max-windows 1 --against @demo --json
ok "awq of 8 bits keeps the function" json '.kl.mean < 1e-3' "$WORK/out"
for format in hf gguf gptq; do
    fails "export to $format" 2 '*' convert online --to "$format" -o no
    ok "export to $format: the reason" mentions 'transforms'
done

# ---- transforms that a quantizer chooses for each block ----------------------------------------
run quantize @demo --use mx --element fp8_e4m3 -o mx8
run eval mx8 --text "$DEMO/held-out.txt" --protocol gptq-2048 --max-windows 1 --against @demo --json
cp "$WORK/out" "$WORK/plain.json"
run quantize @demo --use mx --element fp8_e4m3 --transform both -o spread
ok "mx with transforms, got $rc" test "$rc" = 0
run eval spread --text "$DEMO/held-out.txt" --protocol gptq-2048 --max-windows 1 --against @demo --json
# a transform that one side lacks gives a KL above 1, as with `online` above
ok "8 bits keep the function as they do without" json --slurpfile plain "$WORK/plain.json" \
    '.kl.mean > 0 and .kl.mean < 2 * $plain[0].kl.mean' "$WORK/out"
run logits spread --tokens 5,9,70,22,31,8,8,100 --act a8 --kv int4 -o want.st
run logits spread --tokens 5,9,70,22,31,8,8,100 --act a8 --kv int4 --step --threads 1 -o got.st
ok "token by token" cmp -s "$WORK/want.st" "$WORK/got.st"
ranks_of spread 1 4
for format in hf gguf prepacked; do
    fails "export to $format" 2 '*' convert spread --to "$format" -o no
    ok "export to $format: the reason" mentions 'transforms that its quantizer chose'
done
run quantize "$STORIES" --use mx --transform down -o narrow
ok "172 columns take no transform: the log says so" grep -q 'takes no transform of the input of down_proj' "$WORK/err"
run quantize online --use mx --transform both -o twice
ok "no second one at the same place" grep -q 'takes no transform of the input of down_proj' "$WORK/err"

# ---- refused ---------------------------------------------------------------------------------
refuse() {
    fails "$1 is refused" 2 "$2" rotate "$2" "${@:4}" -o no
    ok "$1: the reason" mentions "$3"
}
MODELS=$ROOT/tests/golden/models
refuse "LayerNorm" "$MODELS/opt" 'LayerNorm'
refuse "norms after the sub-layers" "$MODELS/olmo2" 'after its sub-layers'
refuse "latent values" "$MODELS/deepseek_v3" 'latent'
refuse "gated attention" "$MODELS/qwen3_next" 'gate'
run quantize "$STORIES" --use rtn --bits 4 --group 32 -o packed
refuse "a packed model" packed 'packed'
refuse "latent keys" "$MODELS/deepseek_v3" 'latent' --sites none --online keys
refuse "layers without keys" "$MODELS/qwen3_next" 'delta' --sites none --online keys
refuse "narrow runs" "$STORIES" '172 columns' --sites none --online down
refuse "a model with transforms" online 'rotated already'
refuse "nothing to rotate" @demo 'none' --sites none
# damage SET REASON: the rotation of a config with other content
damage() {
    cp "$WORK/online/config.json" "$WORK/whole.json"
    jq "$1" "$WORK/whole.json" >"$WORK/online/config.json"
    fails "config.json with $1" 2 '*' logits online --tokens 1 -o no
    ok "config.json with $1: the reason" mentions "$2"
    mv "$WORK/whole.json" "$WORK/online/config.json"
}
damage '.tessera_rotation.down = 96' '96'
damage '.tessera_rotation.down = 1.5' 'down'
damage '.tessera_rotation.keys = 64' '64'
damage '.tessera_rotation.shared_down = 16' 'shared_down'
damage '.tessera_rotation.values = 32' 'values'
damage '.tessera_rotation.format = "tessera.rotation/2"' 'tessera.rotation/2'
damage 'del(.tessera_rotation.keys, .tessera_rotation.down)' 'names no transform'
damage 'del(.tessera_rotation)' 'TesseraRotated'
ok "nothing is left behind" test ! -e "$WORK/no"

# ---- the step --------------------------------------------------------------------------------
cat >"$WORK/job.yaml" <<JOB
version: 1
model: $STORIES
seed: 3
pipeline:
  - rotate: {kind: hadamard}
  - calibrate: {text: calibration.txt, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 4, group: 32}
  - eval: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 4, against: $STORIES}
JOB
run run job.yaml --out job --json
ok "a job that rotates first, got $rc" test "$rc" = 0
ok "its manifest names the model of the job" test \
    "$(jq -r .model.path "$WORK/job/manifest.json")" = "$STORIES"
ok "what it packed is the rotated one" json '.results.eval.kl.mean | . > 1e-4 and . < 1' "$WORK/job/results.json"
run logits job/packed --tokens 1,5,9 -o l.st
ok "and runs by itself" test "$rc" = 0
run run job.yaml --out job
ok "a second run finds it done" is_done job
cat >"$WORK/late.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - calibrate: {text: calibration.txt, samples: 4, seqlen: 64}
  - rotate: {}
JOB
fails "a rotation after a calibration" 2 'late.yaml:5:13' run late.yaml

# ---- arms ------------------------------------------------------------------------------------
cat >"$WORK/ab.yaml" <<JOB
version: 1
model: $STORIES
seed: 3
calibrate: {text: calibration.txt, samples: 4, seqlen: 64}
quantize: {use: gptq, bits: 4, group: 32}
arms:
  plain: {set: {}}
  turned: {rotate: {}, quantize: {use: rtn, bits: 8, group: 32}}
  both: {rotate: {kind: hadamard, sites: both, seed: 3}, quantize: {use: gptq, bits: 4, group: 32}}
measure: {perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 4}}
JOB
run compare ab.yaml --out ab --json
ok "arms, got $rc" test "$rc" = 0
arms='.results.compare.arms | map({(.name): .}) | add |'
# close WHAT A B: two numbers differ by F32 rounding of divergences.
near() { jq -ne --argjson a "$1" --argjson b "$2" '$a > 0 and (($a - $b) | fabs) < 1e-6 * $a' >/dev/null; }
close() { ok "$1" near "$2" "$3"; }
ok "an arm has the perplexity of the job with the same steps" test \
    "$(jq "$arms .both.perplexity" "$WORK/ab/results.json")" = "$(jq .results.eval.perplexity "$WORK/job/results.json")"
close "and its divergence" "$(jq "$arms .both.kl.mean" "$WORK/ab/results.json")" "$(jq .results.eval.kl.mean "$WORK/job/results.json")"
ok "it says how it is rotated" json "$arms .both.rotated == {kind: \"hadamard\", sites: \"both\", online: \"none\", seed: 3, dtype: \"F32\"} and (.plain | has(\"rotated\") | not)" "$WORK/ab/results.json"
ok "folders of rotated models end with their arms" test -z "$(find "$WORK/ab" -name '*.rotated')"
run compare ab.yaml --by-layers 2 --out layers --json
ok "by layers, got $rc" test "$rc" = 0
ok "the same numbers" test "$(jq -c "$arms .both | [.perplexity, .kl.mean]" "$WORK/layers/results.json")" = \
    "$(jq -c "$arms .both | [.perplexity, .kl.mean]" "$WORK/ab/results.json")"

# ---- caches ------------------------------------------------------------------------------------
cat >"$WORK/kv.yaml" <<JOB
version: 1
model: $STORIES
arms: {half: {kv: f16}, eight: {kv: int8}, packed: {model: packed, kv: int8}}
measure: {perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 4}}
JOB
run compare kv.yaml --out kv
ok "caches as arms, got $rc" test "$rc" = 0
ok "their bytes are in the table" grep -qE '^eight .* int8 +[0-9,]+ ' "$WORK/out"
# 5 layers, 4 heads of 8 for keys and values, 64 positions: 4, 2 and 1 bytes a number, and a scale of 4 for each head
ok "and in the results" json "$arms [.original, .half, .eight | .cache.bytes] == [81920, 40960, 30720] and .half.kind == \"cache\" and .packed.kv == \"int8\"" "$WORK/kv/results.json"
ok "int8 rounds more than f16" json "$arms .eight.kl.mean > .half.kl.mean and .half.kl.mean > 0" "$WORK/kv/results.json"
run eval "$STORIES" --kv int8 --against "$STORIES" --text "$DEMO/held-out.txt" --protocol llamacpp-512 --window 64 --max-windows 4 --json
close "as eval --kv says" "$(jq .kl.mean "$WORK/out")" "$(jq "$arms .eight.kl.mean" "$WORK/kv/results.json")"
fails "by layers the cache is F32" 2 '--by-layers 1*' compare kv.yaml --by-layers 1 --out no

# ---- inputs of few bits ----------------------------------------------------------------------
cat >"$WORK/bits.yaml" <<JOB
version: 1
model: $STORIES
arms: {b8: {act_bits: 8}, b6: {act_bits: 6}, b4: {act_bits: 4}, b3: {act_bits: 3, model: packed}}
measure: {perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 4}}
JOB
run compare bits.yaml --out bits --json
ok "rounded inputs as arms, got $rc" test "$rc" = 0
ok "fewer bits lose more, 8 little" json "$arms [.b8, .b6, .b4, .b3 | .kl.mean] | . == sort and .[0] > 0 and .[0] < 0.01 and .[2] > 0.05" "$WORK/bits/results.json"
ok "the results say so" json "$arms .b4.act_bits == 4 and .b4.kind == \"inputs\" and .b3.kind == \"model\"" "$WORK/bits/results.json"
sed 's/act_bits: 8/act_bits: 1/' "$WORK/bits.yaml" >"$WORK/one.yaml"
fails "one bit has no values" 2 'one.yaml:3:*' compare one.yaml --out no
sed 's/^measure: {/&speed: {prompt: 4, generate: 2, repeats: 1}, /' "$WORK/bits.yaml" >"$WORK/fast.yaml"
fails "rounded inputs have no speed" 2 'fast.yaml:3:12' compare fast.yaml --out no
finish
