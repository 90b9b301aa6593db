#!/bin/bash
# tests/faults/campaign/inputs.sh TESSERA RANDOM_MODEL FOLDER - makes what the cases read: a model of two layers with a
# tokenizer, packed, mapped and compensated forms of it, texts and job files.
set -euo pipefail
export LC_ALL=C
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
TESSERA=$(readlink -f "$1")
MAKER=$(readlink -f "$2")
mkdir -p "$3"
cd "$3"
tessera() { "$TESSERA" "$@" --threads 1 >said 2>&1 || { cat said >&2; echo "inputs: tessera $* failed" >&2; exit 1; }; }

"$MAKER" model 512 64 2 64 2 2
cp "$ROOT"/tests/golden/models/stories260k/{tokenizer.json,tokenizer_config.json,generation_config.json} model/
head -c 1500 "$ROOT/tests/golden/models/README.md" >text
tessera quantize model -o packed --use rtn --bits 4 --group 32
cp -r packed compensated
tessera compensate model --packed compensated --text text --samples 2 --seqlen 16 -o said.job
cp -r packed bare # token ids alone: a gguf has no tokenizer of this kind
rm bare/tokenizer*.json
tessera convert packed -o m.tsr --to prepacked
tessera convert bare -o m.gguf --to gguf
tessera eval model --text text --protocol llamacpp-512 --window 32 --max-windows 2 --save-kld base.kld
printf '%s\n' '{"text": "Once upon a time", "special": true}' '{"ids": [1, 403]}' >lines
for i in 0 1 2 3 4 5; do
    printf '{"custom_id":"%d","url":"/v1/completions","body":{"prompt":"Once upon a time %d","max_tokens":%d}}\n' $i $i $((2 + i))
done >requests
head -n 3 requests >fewer
printf '{"context": "Once upon a", "choices": [" time", " dog"], "answer": 0}\n' >questions

# jobs of several steps
cat >job.yaml <<'JOB'
version: 1
model: model
pipeline:
  - calibrate: {text: text, samples: 2, seqlen: 16}
  - indicators: {bits: "4,16", sequences: 1}
  - quantize: {use: int8}
  - calibrate: {text: text, samples: 2, seqlen: 16, codecs: {use: [int4_bf16], tp: 2}}
  - eval: {text: text, protocol: gptq-2048, window: 32, max_windows: 1}
  - report: {html: report.html}
JOB
cat >gptq.yaml <<'JOB'
version: 1
model: model
pipeline:
  - calibrate: {text: text, samples: 2, seqlen: 16}
  - quantize: {use: gptq, bits: 4, group: 32}
  - compensate: {bits: 4}
  - export: {to: out.hf, format: hf}
JOB
cat >ab.yaml <<'JOB'
version: 1
model: model
pipeline:
  - compare:
      quantize: {use: rtn, group: 32}
      arms: {four: {quantize.bits: 4}, eight: {quantize.bits: 8}}
      measure:
        perplexity: {text: text, protocol: llamacpp-512, window: 32, max_windows: 2}
        save_base: base.kld
      pairs: [[four, eight]]
JOB
printf 'version: 1\nmodel: model\nseed: 5\n' >batch.yaml

# a plan for two ranks
cat >plan.yaml <<'PLAN'
format: tessera.plan/1
layers: 2
workload: {prompt: 16, generate: 8, batch: 1, kv: f32}
micro_batches: {prefill: 1, decode: 1}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - {layers: 0, node: here, device: this-machine, tp: 1, schemes: [{layers: 0, keep: true}]}
  - {layers: 1, node: here, device: this-machine, tp: 1, schemes: [{layers: 1, keep: true}]}
PLAN
cat >ranks.yaml <<'JOB'
version: 1
model: model
pipeline:
  - run: {input: fewer, output: answers.jsonl, plan: plan.yaml, ranks: processes, temperature: 0}
JOB
cat >device.yaml <<'DEVICE'
format: tessera.device/1
name: device
memory: {total: 200 KiB, source: made up}
bandwidth: {peak: 1 GB/s, source: made up}
kernels:
  - {kernel: f16, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
  - {kernel: bf16, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
  - {kernel: int4, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
  - {kernel: int8, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
DEVICE
cat >cluster.yaml <<'CLUSTER'
version: 1
nodes:
  - name: a
    devices: [{profile: device.yaml, count: 2}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
CLUSTER
cat >planning.yaml <<'JOB'
version: 1
model: model
cluster: cluster.yaml
workload: {prompt: 16, generate: 8, batch: 2}
pipeline:
  - plan: {use: rtn, group: 32, bits: [4, 8, 16], baselines: uniform}
JOB
tessera tune compensated -o tuned.job --slower 1000 --repeats 1
cp tuned.job/dec-profile.json profile.json
tessera batch batch.yaml -i requests -o done.jsonl
rm -rf said said.job tuned.job
