#!/bin/bash
# tests/e2e/layers.sh TESSERA RANDOM_MODEL - `eval --by-layers` gives the numbers of the whole model in the memory of some
# layers, whatever the model is stored as, and `inspect` reads headers.
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
