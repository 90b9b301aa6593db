#!/bin/bash
# tests/e2e/figures-convert.sh TESSERA FIGURES FOREIGN.so - what convert counts, computed again from the files before and after
# (figures.c), and the bytes that run and bench count of a plugin's own format.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
FOREIGN=$(readlink -f "$3")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
MODEL=$ROOT/configs/demo/model.safetensors
tensors "$MODEL" >demo
WEIGHTS=$(jq -s 'map(select(.name | test("_proj")) | .shape[0] * .shape[1]) | add' demo)
EMBED=$(jq -s 'map(select(.name | test("embed_tokens")) | .bytes) | add' demo)
NORMS=$(jq -s 'map(select(.name | test("norm")) | .shape[0]) | add' demo)
run quantize @demo --use rtn --bits 4 --group 32 -o q4
run quantize @demo --use mx --element fp4_e2m1 -o mx4
run quantize @demo --use foreign --plugin-path "$FOREIGN" -o own
run roundtrip rtn:bits=4,group=32 "$MODEL" -o rtn.st

# differing FOLDER: numbers of FOLDER that are not those of before: of a linear what its codes stand for (rtn.st),
# of anything else the original's
differing() {
    { tensors rtn.st | jq -c 'select(.name | test("_proj"))'; jq -c 'select(.name | test("_proj") | not)' demo; } >before
    [ "$1" != plain ] || cp demo before
    { cat before && tensors "$1"/*.safetensors | jq -c '.after = true'; } | jq -s -r 'group_by(.name)[] | select(length == 2) |
        sort_by(.after // false) | [.[0].file, .[0].from, .[0].dtype, .[1].file, .[1].from, .[1].dtype, (.[0].shape | reduce .[] as $i (1; . * $i))] |
        join(" ")' >pairs
    ok "$1: all tensors are compared" test "$(wc -l <pairs)" = "$(wc -l <demo)"
    while read -r from; do
        # shellcheck disable=SC2086 # words
        "$FIGURES" squared $from
    done <pairs | jq -s 'map(.differ) | add' >differ
}
# converted NAME OPTION...: convert with these options succeeds
converted() {
    local name=$1
    shift
    run convert "$@" -o "$name" --json
    ok "convert $*: succeeds, got $rc" test "$rc" = 0
}
# counts NAME WANT: the counts of the last conversion, [packed, widened, quantized, requantized, rounded]
counts() {
    ok "$1: counts $(jq -c '[.packed, .widened, .quantized, .requantized, .rounded]' out)" json --argjson want "$2" \
        '[.packed, .widened, .quantized, .requantized, .rounded] == $want' out
}

for dtype in f16 bf16; do
    converted "hf-$dtype" q4 --to hf --dtype $dtype
    cp out hf.json
    differing "hf-$dtype"
    cp hf.json out
    ok "hf-$dtype: many are rounded" test "$(cat differ)" -gt 1000
    counts "hf-$dtype" "[0, 42, 0, 0, $(cat differ)]"
    [ $dtype = bf16 ] || cp differ f16
done
converted plain @demo --to hf --dtype f16
cp out hf.json
differing plain
cp hf.json out
ok "plain: some are rounded" test "$(cat differ)" -gt 0
counts plain "[0, 0, 0, 0, $(cat differ)]"
run convert @demo -o again --to hf --dtype f16
ok "the line" grep -qx "  $(cat differ) values rounded to 16 bits" out
for to in gptq compressed-tensors; do
    converted $to q4 --to $to
    counts $to "[42, 0, 0, 0, 0]"
    tensors $to/*.safetensors >names
    ok "$to: as many matrices of codes, and none of 16 bits" test "$(jq -r .name names | grep -cE '(qweight|weight_packed)$') $(jq -r .name names | grep -cE '_proj[.]weight$')" = "42 0"
done
converted gf.gguf q4 --to gguf --type f16
counts gf.gguf "[0, 42, 0, 0, $(cat f16)]"

# gguf NAME BLOCK COUNTS OPTION...: its counts, and the size of linears in blocks of 32 weights and BLOCK bytes
gguf() {
    local name=$1 block=$2 want=$3
    shift 3
    converted "$name.gguf" "$@" --to gguf
    counts "$name.gguf" "$want"
    ok "$name: bytes of 42 such matrices" json --argjson b "$((WEIGHTS * block / 32 + EMBED + 4 * NORMS))" '.bytes == $b' out
}
gguf auto 22 '[42, 0, 0, 0, 0]' q4
gguf mxfp4 17 '[42, 0, 0, 0, 0]' mx4
gguf quantized 34 '[0, 0, 42, 0, 0]' @demo --type q8_0
gguf twice 18 '[0, 0, 0, 42, 0]' q4 --type q4_0 --allow-requantize

# ---- a plugin's own format: ranks and the benchmark count what is in memory
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 3, "temperature": 0}}' >in.jsonl
cat >two.yaml <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 16, batch: 1, kv: f32}
micro_batches: {prefill: 1, decode: 1}
stages:
  - {layers: 0-2, node: n, device: a, tp: 2, schemes: [{layers: 0-2, bits: 8}],
     collective: {prefill: {codec: plain, algorithm: all-gather}, decode: {codec: plain, algorithm: all-gather}}}
  - {layers: 3-5, node: n, device: b, schemes: [{layers: 3-5, bits: 8}]}
PLAN
run batch own -i in.jsonl -o own.jsonl --plugin-path "$FOREIGN" --set run.plan=two.yaml --set run.ranks=threads
ok "run: succeeds, got $rc" test "$rc" = 0
# the embedding is with the first rank of the first stage and, as the head, with the last stage
# two ranks share the rows of q, k, v, gate and up, and each has o and down whole, of which it multiplies its columns
SUMS=$(jq -s 'map(select(.name | test("o_proj|down_proj")) | .shape[0] * (4 + .shape[1])) | add' demo)
OWN=$(jq -s 'map(select(.name | test("_proj")) | .shape[0] * (4 + .shape[1])) | add' demo)
ok "run: weights of ranks" json --argjson a "$(((OWN + SUMS) / 4))" --argjson half "$((OWN / 2))" --argjson e "$EMBED" '
    [.results.run.ranks[].weights] == [$a + $e, $a, $half + $e]' own.jsonl.job/results.json
run batch own -i in.jsonl -o one.jsonl --plugin-path "$FOREIGN"
for file in own one; do # identity and time apart
    jq -c '.response.body.choices' "$file.jsonl" >"$file.answers"
done
ok "run: answers" test -s own.answers
ok "run: the answers of one rank" cmp own.answers one.answers
run bench e2e own --plugin-path "$FOREIGN" --repeats 1 --mib 8 --prompt 8 --tokens 4 -v
ok "bench e2e: its bytes" grep -q " $(((OWN + EMBED + 500000) / 1000000)) MB of weights and " err
ok "bench e2e: its parameters" grep -q " $((WEIGHTS + EMBED / 2 + NORMS)) parameters, " err
finish
