#!/bin/bash
# tests/e2e/gpu.sh TESSERA SIMT.so MAKE_EXPERTS - models on a CUDA device, which is emulated here: whole or with some
# of their layers on the CPU they give the CPU's bytes; where there is no device, that is said.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
SIMT=$(readlink -f "$2")
MAKE=$(readlink -f "$3")
MODEL=$ROOT/tests/golden/models/llama2

# logits NAME ARGUMENT...: of eight tokens
logits() {
    run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --output "$1" "${@:2}"
    ok "$1 runs, got $rc" test "$rc" = 0
}
logits cpu
for layers in 0 1 -1; do
    logits "simt$layers" --plugin-path "$SIMT" --backend simt --numerics exact --gpu-layers "$layers"
    ok "$layers layers on the device: the bytes of the CPU" cmp -s "$WORK/cpu" "$WORK/simt$layers"
done
run logits "$MODEL" --tokens 1,5 --output x --plugin-path "$SIMT" --backend simt --gpu-layers 1 -v
ok "the log names both devices" grep -q "SIMT emulation.*\b1 layer.*\bcpu\b" "$WORK/err"

# Layouts with a minimum and with a table run packed on the device, too.
for file in bnb-nf4 ct-nvfp4 gguf-iq4_nl/*.gguf gguf-olmo2-q4_1/*.gguf gguf-q2_k/*.gguf; do
    for model in "$ROOT/tests/golden/checkpoints/"$file; do
        name=${file%%/*}
        run logits "$model" --tokens 1,5,9,2,7,30,4,11 --act a8 --output "$name-cpu"
        run logits "$model" --tokens 1,5,9,2,7,30,4,11 --act a8 --output "$name" --plugin-path "$SIMT" --backend simt --numerics exact -v
        ok "$name runs, got $rc" test "$rc" = 0
        ok "$name: the bytes of the CPU" cmp -s "$WORK/$name-cpu" "$WORK/$name"
        ok "$name: no linear is widened" bash -c '! grep -q "such weights run as F32" "$0"' "$WORK/err"
    done
done

# The experts of some layers or of all on the CPU, the rest on the device.
EXPERTS=$ROOT/tests/golden/models/qwen3_moe
run quantize "$EXPERTS" --use rtn --bits 4 --group 16 -o packed-experts
ok "experts are packed, got $rc" test "$rc" = 0
while read -r name model act; do
    run logits "$model" --tokens 1,5,9,2,7,30,4,11 --act "$act" --output "$name-cpu"
    for layers in 1 -1; do
        run logits "$model" --tokens 1,5,9,2,7,30,4,11 --act "$act" --output "$name$layers" -v \
            --plugin-path "$SIMT" --backend simt --numerics exact --cpu-experts "$layers"
        ok "$name: the experts of $layers layers on the CPU, got $rc" test "$rc" = 0
        ok "$name, $layers: the bytes of the CPU" cmp -s "$WORK/$name-cpu" "$WORK/$name$layers"
    done
    ok "$name: the log says where they run" grep -q 'the experts of [0-9]* of the layers 0 to [0-9]* run on cpu' "$WORK/err"
done <<MODELS
dense $EXPERTS f32
packed packed-experts a8
MODELS
fails "experts of a model that has none" 2 '*llama2' \
    logits "$MODEL" --tokens 1,5 --output x --plugin-path "$SIMT" --backend simt --cpu-experts 1

# A job: a packed model, its activations as int8 on both, one layer on either.
job() {
    cat >"$WORK/$1.yaml" <<JOB
version: 1
model: $ROOT/tests/golden/models/stories260k
plugins: [$SIMT]
$2
pipeline:
  - quantize: {use: rtn, bits: 4, group: 32}
  - generate: {prompts: ["Once upon a time", "The sun"], max_tokens: 6, temperature: 0, act: a8}
JOB
    run run "$1.yaml" --out "$1"
    ok "job $1 runs, got $rc" test "$rc" = 0
}
job on-cpu ''
job on-both $'backend: simt\nnumerics: exact\ngpu_layers: 1'
ok "jobs give the same tokens" cmp -s <(jq -S .results.generate.samples "$WORK/on-cpu/results.json") \
    <(jq -S .results.generate.samples "$WORK/on-both/results.json")
ok "there are some" json '.results.generate.samples | length == 2' "$WORK/on-cpu/results.json"

# numerics: auto, the default: prompts of F32 activations near the CPU's result and not equal to it, those of int8
# activations equal; exact gives the CPU's; reports name what ran.
run quantize "$ROOT/tests/golden/models/stories260k" --use rtn --bits 4 --group 32 -o packed
# evaluate NAME ARGUMENT...
evaluate() {
    run eval packed --text "$ROOT/configs/demo/held-out.txt" --window 24 --max-windows 2 --json "${@:2}"
    ok "$1 is evaluated, got $rc" test "$rc" = 0
    mv "$WORK/out" "$WORK/$1.json"
}
on=(--plugin-path "$SIMT" --backend simt)
evaluate cpu-f32
evaluate auto-f32 "${on[@]}"
evaluate exact-f32 "${on[@]}" --numerics exact
evaluate cpu-a8 --act a8
evaluate auto-a8 "${on[@]}" --act a8 --kv f32
perplexity() { jq .perplexity "$WORK/$1.json"; }
ok "the CPU is exact" json '.numerics == "exact"' "$WORK/cpu-f32.json"
ok "auto on a device is auto" json '.numerics == "auto"' "$WORK/auto-f32.json"
ok "the CPU's cache is F32" json '.kv == "f32"' "$WORK/cpu-f32.json"
ok "auto on a device has one of F16" json '.kv == "f16"' "$WORK/auto-f32.json"
ok "exact has one of F32" json '.kv == "f32"' "$WORK/exact-f32.json"
ok "exact is exact" json '.numerics == "exact"' "$WORK/exact-f32.json"
ok "exact gives the CPU's" test "$(perplexity exact-f32)" = "$(perplexity cpu-f32)"
ok "auto does not" test "$(perplexity auto-f32)" != "$(perplexity cpu-f32)"
# products of F16 are off by 2^-10 of their terms; a hundredth of a nat would be a bug
ok "but is near" jq -ne "($(perplexity auto-f32) / $(perplexity cpu-f32) | log | fabs | . >= 0 and . < 0.01)"
ok "int8 activations stay exact" test "$(perplexity auto-a8)" = "$(perplexity cpu-a8)"

# Two ranks on the device, over a transport that cannot carry its memory: sums go through the host, which
# is said, and the answers are those of ranks on the CPU.
cat >"$WORK/plan.yaml" <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 4, generate: 2, batch: 1, chunk: 4, kv: f32}
micro_batches: {prefill: 1, decode: 1}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - layers: 0-5
    node: here
    device: this-machine
    tp: 2
    schemes: [{layers: 0-5, use: rtn, bits: 4, group: 64}]
PLAN
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once upon", "max_tokens": 2}}' \
    >"$WORK/prompts.jsonl"
for backend in simt cpu; do
    cat >"$WORK/ranks.yaml" <<JOB
version: 1
model: $ROOT/configs/demo
plugins: [$SIMT]
backend: $backend
pipeline:
  - run: {input: prompts.jsonl, output: answers.jsonl, plan: plan.yaml, ranks: threads}
JOB
    run run ranks.yaml --out "ranks-$backend" -v
    ok "two ranks on $backend run, got $rc" test "$rc" = 0
    grep -c "sums over ranks go through the host: transport local carries memory of the host alone" \
        "$WORK/err" >"$WORK/said-$backend" || true
done
ok "both ranks say why their sums are made on the host" test "$(cat "$WORK/said-simt")" = 2
ok "on the CPU there is nothing to say" test "$(cat "$WORK/said-cpu")" = 0
ok "two ranks on the device: the answers of two on the CPU" cmp -s \
    <(jq -c .response.body.choices "$WORK/ranks-simt/answers.jsonl") \
    <(jq -c .response.body.choices "$WORK/ranks-cpu/answers.jsonl")
ok "of two tokens" json '.response.body.usage.completion_tokens == 2' "$WORK/ranks-simt/answers.jsonl"

# A plan over the device and the CPU, as its cluster file says; and one whose job gives the device the first layer.
mkdir "$WORK/devices"
cat >"$WORK/devices/board.yaml" <<'DEVICE'
format: tessera.device/1
name: board
memory: {total: 4 GB, source: "none: of a test"}
bandwidth: {peak: 100 GB/s, source: "none: of a test"}
kernels: [{kernel: int4, ops: 1 TFLOP/s, prefill: {compute: 0.5, read: 0.5}, decode: {compute: 0.5, read: 0.5}, source: "none: of a test"}]
DEVICE
cat >"$WORK/cluster.yaml" <<'CLUSTER'
version: 1
nodes:
  - name: here
    link: {bandwidth: 10 GB/s}
    devices: [{profile: devices/board.yaml, backend: simt}, {profile: this-machine, backend: cpu}]
CLUSTER
sed -n '/^stages:/q;p' "$WORK/plan.yaml" >"$WORK/split.yaml"
cat >>"$WORK/split.yaml" <<'STAGES'
stages:
  - {layers: 0-1, node: here, device: board, tp: 1, schemes: [{layers: 0-1, use: rtn, bits: 4, group: 64}]}
  - {layers: 2-5, node: here, device: this-machine, tp: 1, schemes: [{layers: 2-5, use: rtn, bits: 4, group: 64}]}
STAGES
while read -r name key; do
    sed "s/^backend: .*/$key/; s/plan: plan.yaml, ranks: threads/plan: split.yaml/" "$WORK/ranks.yaml" >"$WORK/mixed.yaml"
    run run mixed.yaml --out "$name" -v
    ok "$name: a plan over the device and the CPU runs, got $rc" test "$rc" = 0
    ok "$name: the answers of two ranks on the CPU" cmp -s <(jq -c .response.body.choices "$WORK/$name/answers.jsonl") \
        <(jq -c .response.body.choices "$WORK/ranks-cpu/answers.jsonl")
done <<'WAYS'
by-cluster cluster: cluster.yaml
by-layers backend: simt\ngpu_layers: 1
WAYS
ok "by-layers: one layer is on the device" grep -q "SIMT emulation.*\b1 layer.*\bcpu\b" "$WORK/err"
ok "by-cluster: results say what ran on what" json '[.results.run.ranks[].backend] == ["simt", "cpu"]' "$WORK/by-cluster/results.json"

# Ranks that share layers on the device, the experts of all of them, or of the first stage, on the CPU.
"$MAKE" "$ROOT/configs/demo" "$WORK/moe" 4 2
cp "$ROOT"/configs/demo/{tokenizer.json,tokenizer_config.json,generation_config.json} "$WORK/moe/"
sed -n '/^stages:/q;p' "$WORK/plan.yaml" >"$WORK/moe.yaml"
cat >>"$WORK/moe.yaml" <<'STAGES'
stages:
  - {layers: 0-2, node: here, device: this-machine, tp: 2, experts: whole, schemes: [{layers: 0-2, use: rtn, bits: 4, group: 32}]}
  - {layers: 3-5, node: here, device: this-machine, tp: 1, schemes: [{layers: 3-5, use: rtn, bits: 4, group: 32}]}
STAGES
while read -r name backend experts; do
    cat >"$WORK/moe-ranks.yaml" <<JOB
version: 1
model: moe
plugins: [$SIMT]
backend: $backend
cpu_experts: $experts
pipeline:
  - run: {input: prompts.jsonl, output: answers.jsonl, plan: moe.yaml, ranks: threads}
JOB
    run run moe-ranks.yaml --out "moe-$name"
    ok "$name: ranks with experts, got $rc" test "$rc" = 0
    ok "$name: the answers of ranks on the CPU" cmp -s <(jq -c .response.body.choices "$WORK/moe-$name/answers.jsonl") \
        <(jq -c .response.body.choices "$WORK/moe-cpu/answers.jsonl")
done <<'WAYS'
cpu cpu 0
some simt 3
all simt -1
WAYS
# the same by the plan alone, of one stage
sed '/layers: 3-5/s/tp: 1/tp: 1, cpu_experts: true/' "$WORK/moe.yaml" >"$WORK/moe-stage.yaml"
sed 's/moe.yaml/moe-stage.yaml/; /^cpu_experts:/d' "$WORK/moe-ranks.yaml" >"$WORK/moe-stages.yaml"
run run moe-stages.yaml --out moe-stage -v
ok "stage: experts of one stage by its plan, got $rc" test "$rc" = 0
ok "stage: the log says where" grep -q 'the experts of 3 of the layers 3 to 5 run on cpu' "$WORK/err"
ok "stage: the other's are on the device" eval '! grep -q "the experts of .* of the layers 0" "$WORK/err"'
ok "stage: the answers of ranks on the CPU" cmp -s <(jq -c .response.body.choices "$WORK/moe-stage/answers.jsonl") \
    <(jq -c .response.body.choices "$WORK/moe-cpu/answers.jsonl")
run plan moe --cluster cluster.yaml --workload '{prompt: 4, generate: 2, batch: 1}' --bits 4 --check moe-stage.yaml
ok "stage: a CPU that the cluster does not have, got $rc" test "$rc" = 2
ok "stage: which is said at its place" grep -q "moe-stage.yaml:10:.*the CPU of node 'here'" "$WORK/err"
ok "of two tokens, too" json '.response.body.usage.completion_tokens == 2' "$WORK/moe-all/answers.jsonl"

# Without a device (and where there is one, this machine's): auto takes what there is, and says so.
run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --output auto --backend auto -v
ok "auto runs, got $rc" test "$rc" = 0
ok "auto: the bytes of the CPU" cmp -s "$WORK/cpu" "$WORK/auto"
ok "auto says what it took" grep -q "backend auto: " "$WORK/err"
if [ -e "$(dirname "$TESSERA")/plugins/cuda.so" ] && [[ "$(ldconfig -p)" != *libcuda.so.1* ]]; then
    fails "no device" 6 "backend 'cuda'" \
        logits "$MODEL" --tokens 1 --output x --backend cuda
    run plugin check "$(dirname "$TESSERA")/plugins/cuda.so"
    ok "plugin check: nothing is wrong, got $rc" test "$rc" = 0
    ok "plugin check: one sentence" grep -q "skipped .*works: .*there is no CUDA device" "$WORK/out"
    run inspect
    ok "inspect says so" grep -q "cuda .*not usable: there is no CUDA device" "$WORK/out"
    run inspect "$(dirname "$TESSERA")/plugins/cuda.so"
    ok "inspect lists what was built" grep -q "built for sm_75, sm_80, sm_86, sm_89, sm_90 and PTX" "$WORK/out"
fi
finish
