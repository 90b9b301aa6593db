#!/bin/bash
# tests/e2e/resume.sh TESSERA FORGE - a batch that goes on gives the bytes of a run without faults, or says which key
# differs: models that were renamed, weights and texts that were changed, options.
# shellcheck source=tests/e2e/resume-lib.sh
. "$(dirname "$0")/resume-lib.sh"
# ---- the model is somewhere else, or called something else --------------------------------------
begin m1
goes_on "where it was"
ok "the answers have the model's name" json -s '.[0].response.body.model == "m1"' "$WORK/clean.jsonl"
mkdir "$WORK/deep"
mv "$WORK/m1" "$WORK/deep/another"
job deep/another
goes_on "a model folder with another name and place"
ok "its name is that of the first run" json -s 'all(.[:14][]; .response.body.model == "m1")' "$WORK/out.jsonl"
half
fails "the model in place of a job" 2 '*/out.jsonl.job' batch deep/another -i in.jsonl -o out.jsonl -q --threads 1
ok "refused with the seed" mentions '\bseed\b.*\b3\b.*\b0\b'
cp -r "$WORK/deep/another" "$WORK/m1"
job m1
goes_on "a copy of the model"
run convert m1 -o a.tsr --to prepacked
run convert m1 -o a.gguf --to gguf
run quantize m1 --use rtn --bits 4 -o q
for kind in tsr gguf; do
    begin a.$kind
    mv "$WORK/a.$kind" "$WORK/b.$kind"
    job b.$kind
    goes_on "a .$kind with another name"
done
# The same of a finished job.
printf 'version: 1\nmodel: "%s"\npipeline:\n  - eval: {text: "%s", protocol: gptq-2048, max_windows: 1, window: 32}\n' m1 "$ROOT/configs/demo/held-out.txt" >"$WORK/eval.yaml"
[ -e "$ROOT/configs/demo/held-out.txt" ] || sed -i "s|text: \"[^\"]*\"|text: \"$WORK/in.jsonl\"|" "$WORK/eval.yaml"
run run eval.yaml --out e
ok "an eval" test "$rc" = 0
sed -i 's|model: "m1"|model: "deep/another"|' "$WORK/eval.yaml"
run run eval.yaml --out e
ok "a finished job whose model moved is done" is_done e
sed -i "s|model: \"deep/another\"|model: \"$STORIES\"|" "$WORK/eval.yaml"
fails "a finished job with another model" 2 'e' run eval.yaml --out e

# ---- weights with one bit changed, and the times that they had -----------------------------------
begin m1
for file in "$WORK"/m1/*.safetensors; do
    flip "$file" "$(last "$file")"
    differs "$(basename "$file")" 'model.hash: "xxh3:[0-9a-f]+" => "xxh3:[0-9a-f]+"'
    flip "$file" "$(last "$file")"
done
goes_on "as they were again"
begin b.gguf
flip "$WORK/b.gguf" "$(last "$WORK/b.gguf" 70)"
differs "a GGUF file" 'model.hash: '
begin b.tsr
flip "$WORK/b.tsr" 4196
differs_in b.tsr "a prepacked file" ' 4096 .* [0-9]+ '
flip "$WORK/b.tsr" 4196
goes_on "a prepacked file as it was again"
begin q
flip "$WORK/q/layer-00001.safetensors" "$(last "$WORK/q/layer-00001.safetensors")"
differs_in q/layer-00001.safetensors "a packed model" packed.json

# ---- texts of the model --------------------------------------------------------------------------
cp -r "$WORK/m1" "$WORK/m3"
jq -j '.templates[] | select(.key == "chatml") | .template' "$ROOT/tests/golden/chat/chat.json" >"$WORK/m3/chat_template.jinja"
[ -e "$WORK/m3/generation_config.json" ] || echo '{}' >"$WORK/m3/generation_config.json"
[ -e "$WORK/m3/tokenizer_config.json" ] || echo '{}' >"$WORK/m3/tokenizer_config.json"
begin m3
text() { # FILE KEY COMMAND...: changed by a command that reads it and writes it
    local file=$WORK/m3/$1 key=$2
    cp "$file" "$WORK/saved"
    "${@:3}" <"$WORK/saved" >"$file"
    touch -r "$WORK/saved" "$file"
    differs "$1" "$key"
    cp "$WORK/saved" "$file"
}
text config.json 'model.hash: ' jq '.rope_theta = 12345'
text generation_config.json 'model.texts.generation_config.json: ' jq '.eos_token_id = 7'
text tokenizer_config.json 'model.texts.tokenizer_config.json: ' jq '.bos_token = "a"'
text tokenizer.json 'model.tokenizer_hash: ' jq -c '.'
text chat_template.jinja 'model.texts.chat_template.jinja: ' cat - <(echo)
rm "$WORK/m3/chat_template.jinja"
differs "no template any more" 'chat: \{.*=> null; model.texts.chat_template.jinja: "xxh3:[0-9a-f]+" => absent\)'

# ---- options -------------------------------------------------------------------------------------
begin m1
while read -r key value; do
    differs "$key" "run.$key: .* => \"?$value" --set "run.$key=$value"
done <<'KEYS'
max_tokens 5
temperature 0.5
top_p 0.5
top_k 7
repetition_penalty 1.5
context 64
act f32
kv int8
allow_special true
ignore_eos true
KEYS
differs "the seed" 'seed: 3 => 4' --set seed=4
differs_in '*' "the numerics" 'numerics: ' --set numerics=fast # where the CPU has no fast numerics, that is refused
differs "the stretch" 'records: \[1,17\] => \[1,5\]' --limit 5
differs "a shard" 'records: \[1,17\] => \[1,9\]' --shard 1/2
half
sed 's/The 3/The 4/' "$WORK/in.jsonl" >"$WORK/in2.jsonl"
fails "another input" 2 '*/out.jsonl.job' batch job.yaml -i in2.jsonl -o out.jsonl -q
half
cp "$WORK/in.jsonl" "$WORK/in3.jsonl"
run batch job.yaml -i in3.jsonl -o out.jsonl -q --threads 1
ok "the same input with another name" cmp "$WORK/out.jsonl" "$WORK/clean.jsonl"
goes_on "options that change no answer" --set run.slots=3 --set run.stall=9 --set run.deadline=500

# ---- what a plan step decides --------------------------------------------------------------------
mkdir -p "$WORK/devices"
cat >"$WORK/devices/small.yaml" <<DEVICE
format: tessera.device/1
name: small
memory: {total: 2 MiB, source: made up}
bandwidth: {peak: 1 GB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int3 int4 int8; do
    echo "  - {kernel: $k, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
done)
DEVICE
printf 'version: 1\nnodes:\n  - name: a\n    devices: [{profile: small, count: 2}]\n    link: {bandwidth: 10 GB/s, latency: 5 us}\n' >"$WORK/cluster.yaml"
cat >"$WORK/planned.yaml" <<JOB
version: 1
model: $STORIES
cluster: cluster.yaml
workload: {prompt: 16, generate: 8, batch: 4}
pipeline:
  - plan: {use: rtn, group: 32, bits: [3, 4, 8, 16], to: p.yaml, baselines: none}
JOB
head -n 9 "$WORK/in.jsonl" >"$WORK/nine.jsonl"
planned() { run batch planned.yaml -i nine.jsonl -o planned.out -q --set run.ranks=threads --set run.threads=1; }
planned
ok "a batch of a plan step: 0, got $rc" test "$rc" = 0
mv "$WORK/planned.out" "$WORK/planned.clean"
again() {
    rm -f "$WORK/planned.out" "$WORK/planned.out.job/results.json"
    "$FORGE" "$WORK/planned.out.job/journal" first 5
}
again
planned
ok "planned again, it goes on" cmp "$WORK/planned.out" "$WORK/planned.clean"
again
sed -i 's/2 MiB/300 KiB/' "$WORK/devices/small.yaml" # another plan, with other stages
planned
ok "another plan is refused: 2, got $rc" test "$rc" = 2
ok "another plan is named" grep -q '\bp\.yaml.*xxh3:[0-9a-f]*.*xxh3:' "$WORK/err"
finish
