#!/bin/bash
# tests/e2e/layers.sh TESSERA RANDOM_MODEL - `eval`, `logits` and `compare` by layers give the numbers of the whole model in
# the memory of some layers, whatever the model is stored as, and `inspect` reads headers.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
MAKER=$(readlink -f "$2")
DEMO=$ROOT/configs/demo
# 150 MB of weights in 32 layers, 4 MB of them in the embedding; in 8 bits 80 MB
"$MAKER" "$WORK/model" 4096 512 32 1024 8 4
cp "$DEMO"/tokenizer*.json "$WORK/model/"
head -c 1000 "$DEMO/held-out.txt" >"$WORK/text"
run quantize model -q --use rtn --bits 8 --group 64 --symmetric -o q8
ok "8 bits" test "$rc" = 0
run convert q8 -q -o gptq --to gptq
ok "as GPTQ" test "$rc" = 0
run convert q8 -q -o q8.gguf --to gguf
ok "as GGUF" test "$rc" = 0
run convert q8 -q -o ct --to compressed-tensors
ok "as compressed-tensors" test "$rc" = 0

# measure MODEL OPTION...: into $WORK/out, without what differs from run to run; sets peak.
measure() {
    run eval "$@" --text text --window 64 --json
    ok "$*: evaluates" test "$rc" = 0
    peak=$(jq .peak_memory_bytes "$WORK/out")
    jq -S 'del(.seconds, .peak_memory_bytes)' "$WORK/out" >"$WORK/numbers"
}

# by_layers MODEL N OPTION...: with N windows through a layer at once.
by_layers() {
    local model=$1 n=$2 bytes
    shift 2
    bytes=$(du -Lsb "$WORK/$model" | cut -f 1)
    measure "$model" "$@"
    mv "$WORK/numbers" "$WORK/whole"
    measure "$model" --by-layers "$n" "$@"
    echo "$model by layers: $peak bytes, $bytes of weights"
    ok "$model by layers: the numbers of the whole model" cmp "$WORK/whole" "$WORK/numbers"
    ok "$model by layers: $peak bytes at most, of $bytes" test "$peak" -lt $((bytes / 2))
    rc=0
    (cd "$WORK" && ulimit -d $((bytes / 4096)) && exec "$TESSERA" inspect "./$model") >"$WORK/out" 2>"$WORK/err" || rc=$?
    ok "$model: inspect takes a quarter, got $rc" test "$rc" = 0
}
by_layers model 1
by_layers q8 4
by_layers gptq 99 --act a8
by_layers ct 2
by_layers q8.gguf 1 --protocol llamacpp-512

# logits_by_layers MODEL OPTION...
IDS=$(seq -s , 3 7 900)
logits_by_layers() {
    local model=$1 bytes
    shift
    bytes=$(du -Lsb "$WORK/$model" | cut -f 1)
    run logits "$model" --tokens "$IDS" -o whole.st "$@"
    ok "$model: logits" test "$rc" = 0
    run logits "$model" --tokens "$IDS" -o layers.st --by-layers --json "$@"
    ok "$model: logits by layers" test "$rc" = 0
    ok "$model: the same logits" cmp "$WORK/whole.st" "$WORK/layers.st"
    peak=$(jq .peak_memory_bytes "$WORK/out")
    echo "$model: logits by layers: $peak bytes, $bytes of weights"
    ok "$model: $peak bytes for logits, of $bytes" test "$peak" -lt $((bytes / 2))
}
logits_by_layers model
logits_by_layers gptq --act a8
logits_by_layers q8.gguf
fails "logits token by token" 2 '--by-layers true:*' logits q8 --tokens 1,2 -o k.st --by-layers --step
fails "logits with another cache" 2 '--by-layers true:*' logits q8 --tokens 1,2 -o k.st --by-layers --kv int8

# a comparison: arms of several kinds, by layers one at a time and all at once
cat >"$WORK/compare.yaml" <<END
version: 1
model: model
pipeline:
  - compare:
      measure: {perplexity: {text: text, window: 64}, a8: true, save_base: base.kld}
      arms:
        four: {quantize: {use: rtn, bits: 4, group: 64}}
        gguf: {model: q8.gguf}
        ct: {model: ct}
END
sed -i 's/window: 64/window: 64, protocol: llamacpp-512/' "$WORK/compare.yaml"
sed 's/  - compare:/&\n      by_layers: 3/' "$WORK/compare.yaml" >"$WORK/compare-one.yaml"
sed 's/  - compare:/&\n      by_layers: 99\n      together: 9/' "$WORK/compare.yaml" >"$WORK/compare-all.yaml"
for job in compare compare-one compare-all; do
    run run $job.yaml -o $job
    ok "$job: runs" test "$rc" = 0
    jq -S '.results.compare | del(.peak_memory_bytes) | walk(if type == "object" then
        del(.seconds, .resident_bytes, .widened, .cache, .kv) else . end)' "$WORK/$job/results.json" >"$WORK/$job.json"
done
bytes=$(du -Lsb "$WORK/model" | cut -f 1)
for job in compare-one compare-all; do
    ok "$job: the same numbers" cmp "$WORK/compare.json" "$WORK/$job.json"
    ok "$job: the same log-probabilities" cmp "$WORK/compare/base.kld" "$WORK/$job/base.kld"
    peak=$(jq .results.compare.peak_memory_bytes "$WORK/$job/results.json")
    echo "$job: $peak bytes, $bytes of weights"
    ok "$job: no packed weights are left" test -z "$(find "$WORK/$job" -name '*.packed' -o -name '*.states')"
done
# the original, an arm, and the arm with int8 activations: each has an embedding and an LM head
peak=$(jq .results.compare.peak_memory_bytes "$WORK/compare-one/results.json")
ok "one arm at a time: $peak bytes, of $bytes" test "$peak" -lt $((bytes * 3 / 5))
ok "arms differ" json '[.arms[].perplexity] | unique | length == 3' "$WORK/compare.json"
for what in 'speed: {prompt: 8}' 'choices: text'; do
    sed "s/a8: true/$what/; s/, save_base: base.kld//" "$WORK/compare-one.yaml" >"$WORK/bad.yaml"
    fails "compare with ${what%%:*}" 2 'bad.yaml:5:*' run bad.yaml -o bad
done

# two models, each by layers
measure q8.gguf --against gptq --act a8
mv "$WORK/numbers" "$WORK/whole"
measure q8.gguf --against gptq --act a8 --by-layers 3
ok "against another model: the same numbers" cmp "$WORK/whole" "$WORK/numbers"
# what a step before it quantized
cat >"$WORK/job.yaml" <<END
version: 1
model: model
pipeline:
  - quantize: {use: rtn, bits: 8, group: 64, symmetric: true}
  - eval: {text: text, window: 64, kl: true, by_layers: 2}
END
sed 's/, by_layers: 2//' "$WORK/job.yaml" >"$WORK/job-whole.yaml"
for job in job job-whole; do
    run run $job.yaml -o $job
    ok "$job: runs" test "$rc" = 0
    jq -S '.results.eval | del(.seconds)' "$WORK/$job/results.json" >"$WORK/$job.json"
done
ok "a job by layers: the same numbers" cmp "$WORK/job.json" "$WORK/job-whole.json"
ok "with KL" json '.kl.mean > 0 and .quantized' "$WORK/job.json"

fails "questions" 2 '--by-layers 1:*' eval model --by-layers 1 --choices text
fails "another cache" 2 '--by-layers 1:*' eval model --by-layers 1 --text text --kv int8
run convert q8 -q -o q8.pre --to prepacked
fails "a prepacked file" 2 'q8.pre' eval q8.pre --by-layers 1 --text text --window 64
finish
