#!/bin/bash
# tests/e2e/figures-sizes.sh TESSERA FOREIGN.so - sizes that are printed, counted again from the headers of the files that
# were written: quantize, compare, inspect, roundtrip, convert and plan, also of a plugin's own format.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
FOREIGN=$(readlink -f "$2")
cd "$WORK"

tensors "$ROOT/configs/demo/model.safetensors" >demo
DEMO_BYTES=$(jq -s 'map(.bytes) | add' demo)
ORIGINAL=$(jq -s 'map(select(.name | test("_proj")) | .bytes) | add' demo)
WEIGHTS=$(jq -s 'map(select(.name | test("_proj")) | .shape[0] * .shape[1]) | add' demo)
run inspect @demo --json
ok "inspect: the original" json --argjson b "$DEMO_BYTES" --argjson n "$(jq -s 'map(.shape | reduce .[] as $i (1; . * $i)) | add' demo)" \
    '.model.bytes == $b and .model.parameters == $n' out

# counted NAME FOLDER: the linears of a packed folder into NAME.lin, {name, bytes, bits} each
counted() {
    tensors "$2"/layer-*.safetensors | jq -c 'select(.name | test("_proj.*[.](codes|meta|dense|order)$"))' >parts
    jq -s -c --slurpfile demo demo '[.[] | .linear = (.name | sub("[.](codes|meta|dense|order)$"; ""))] | group_by(.linear)[] |
        .[0].linear as $n | ($demo | map(select(.name | startswith($n))) | .[0].shape) as $s | (map(.bytes) | add) as $b |
        {name: $n, bytes: $b, bits: (8 * $b / ($s[0] * $s[1]))}' parts >"$1.lin"
}
# sizes NAME: what quantize (in NAME.json) and inspect say of the folder NAME
sizes() {
    local bytes all
    counted "$1" "$1"
    bytes=$(jq -s 'map(.bytes) | add' "$1.lin")
    all=$(($(tensors "$1/kept.safetensors" | jq -s 'map(.bytes) | add') + bytes))
    ok "$1: quantize's bytes are those of its files" json --argjson b "$bytes" --argjson o "$ORIGINAL" --argjson w "$WEIGHTS" \
        '.results.quantize | .bytes == $b and .original_bytes == $o and .weights == $w and
        (.bits_per_weight * $w / 8 - $b | fabs) < 1' "$1.json"
    ok "$1: and of every linear" json --slurpfile lin "$1.lin" '.results.quantize.linears | length == 42 and
        all(.[]; . as $l | $lin | map(select(.name as $n | $l.name | startswith($n))) | length == 1 and
            (.[0].bits - $l.bits_per_weight | fabs) < 1e-9)' "$1.json"
    run inspect "./$1" --json
    ok "$1: inspect's bytes" json --argjson b "$all" '.model.bytes == $b' out
}
while read -r name use; do
    # shellcheck disable=SC2086 # options of the plugin
    run quantize @demo --use $use --plugin-path "$FOREIGN" -o "$name" --json
    ok "$name: quantize succeeds, got $rc" test "$rc" = 0
    cp out "$name.json"
    sizes "$name"
done <<'SCHEMES'
rtn3 rtn --bits 3 --group 32
mx mx --element fp6_e3m2
own foreign
SCHEMES
# A plugin's own format is stored as the plugin wrote it: 4 + columns bytes a row.
ROWS=$(jq -s 'map(select(.name | test("_proj")) | .shape[0]) | add' demo)
OWN=$((WEIGHTS + 4 * ROWS))
ok "a plugin's own format: its bytes are stored" json --argjson b "$OWN" --argjson w "$WEIGHTS" '.results.quantize | .bytes == $b and
    (.bits_per_weight - 8 * $b / $w | fabs) < 1e-9' own.json
ok "of a linear, too" json '.results.quantize.linears[0] | .bits_per_weight == 8 * (4 + 256) / 256' own.json
run quantize @demo --use foreign --plugin-path "$FOREIGN" -o again
ok "the line says so" grep -q "$OWN bytes instead of $ORIGINAL" out
for file in again/*.safetensors; do
    ok "the same bytes again: ${file#again/}" cmp "$file" "own/${file#again/}"
done
# without the plugin its weights cannot run, and with it they run as those that its dequantize() gives
fails "a model in a plugin's format without the plugin" 2 'org.example.foreign/foreign' logits ./own --tokens 1,2,3 -o without
run logits ./own --tokens 1,2,3 -o with --plugin-path "$FOREIGN"
ok "with the plugin it runs, got $rc" test "$rc" = 0
run convert ./own -o decoded.tsr --to prepacked --plugin-path "$FOREIGN"
ok "its values as F32, got $rc" test "$rc" = 0
run logits ./decoded.tsr --tokens 1,2,3 -o as-f32
ok "logits of the packed weights are those of the values, byte for byte" cmp with as-f32
run inspect ./decoded.tsr --json
ok "inspect: the values are stored as F32" json --argjson w "$WEIGHTS" '.model.bytes > 4 * $w' out

# ---- head and embedding: of a tied model a packed head is one matrix more, beside the embedding that stays
EMBED=$(jq -s 'map(select(.name | test("embed_tokens")) | .bytes) | add' demo)
ends() { # NAME RULES ORIGINAL
    run quantize @demo --use rtn --bits 4 --group 32 --rules "$2" -o "$1" --json
    ok "$1: bytes and those of the original, the same matrices" json --argjson o "$3" \
        --argjson b "$(tensors "$1"/layer-*.safetensors "$1"/head.safetensors | jq -s 'map(select(.name | test("codes$|meta$")) | .bytes) | add')" \
        '.results.quantize | .bytes == $b and .original_bytes == $o' out
    run inspect "./$1" --json
    ok "$1: inspect's bytes" json --argjson b "$(tensors "$1"/*.safetensors | jq -s 'map(.bytes) | add')" '.model.bytes == $b' out
}
ends head '[{tensors: lm_head, bits: 4}]' "$ORIGINAL"
ends both '[{tensors: lm_head, bits: 4}, {tensors: model.embed_tokens, bits: 8}]' $((ORIGINAL + EMBED))

# ---- convert: tensors and their bytes; of a file that is mapped, the file's
for to in hf gptq compressed-tensors; do
    run convert rtn3 -o "$to" --to "$to" --json
    ok "convert --to $to: tensors and bytes" json --argjson f "$(tensors "$to"/*.safetensors | jq -s '{tensors: length, bytes: (map(.bytes) | add)}')" \
        '{tensors, bytes} == $f' out
done
run convert rtn3 -o rtn3.gguf --to gguf --json
cp out gguf.json
run inspect ./rtn3.gguf --json
ok "convert --to gguf: bytes are those that inspect counts" json --slurpfile g gguf.json --argjson n "$(stat -c %s rtn3.gguf)" \
    '.model.bytes == $g[0].bytes and .model.bytes < $n' out
run convert rtn3 -o rtn3.tsr --to prepacked --json
ok "convert --to prepacked: bytes of the file" json --argjson n "$(stat -c %s rtn3.tsr)" '.bytes == $n' out
run inspect ./rtn3.tsr --json
ok "inspect: of the file, too" json --argjson n "$(stat -c %s rtn3.tsr)" '[.. | .file_bytes? | numbers] | length == 1 and .[0] == $n' out

# ---- inspect of the plugin, roundtrip
run inspect "$FOREIGN" --probe --json
ok "inspect: bits of the layout, and those that are stored" json '[.. | objects | select(.packs_as? == "org.example.bytes/1")] | length == 1 and
    .[0].bits_per_weight == 8 * (4 + 1024) / 1024' out
run inspect "$FOREIGN" --probe
ok "inspect: the line" grep -q 'packs as *org.example.bytes/1, 8.031 bits a weight' out
run roundtrip foreign "$STORIES/model.safetensors" --plugin-path "$FOREIGN" -o own.st --json
ok "roundtrip: a plugin's own format" json '.tensors | length > 0 and all(.[];
    (.bits_per_weight - 8 * (4 + .cols) / .cols | fabs) < 1e-9)' out
run roundtrip rtn:bits=4,group=32 "$STORIES/model.safetensors" -o rtn.st --json
# codes in whole bytes a row; for each group an F16 scale and a byte of zero point, padded to 4 bytes
ok "roundtrip: a format of ours" json '.tensors | length > 0 and all(.[];
    (.bits_per_weight - 8 * (.cols / 2 + 4 * (3 * (.cols / 32 | ceil) / 4 | ceil)) / .cols | fabs) < 1e-9)' out

# ---- compare
cat >cmp.yaml <<JOB
version: 1
model: "@demo"
plugins: [$FOREIGN]
arms:
  own: {quantize: {use: foreign}}
  rtn3: {quantize: {use: rtn, bits: 3, group: 32}}
  disk: {model: mx}
  head: {model: head}
  both: {model: both}
measure: {perplexity: {text: $ROOT/configs/demo/held-out.txt, protocol: llamacpp-512, window: 32, max_windows: 1}}
JOB
run compare cmp.yaml --out cmp --json
ok "compare succeeds, got $rc" test "$rc" = 0
cp out cmp.json
for pair in own:own rtn3:rtn3 disk:mx; do
    ok "compare: bytes of ${pair%:*}" json --arg arm "${pair%:*}" --slurpfile lin "${pair#*:}.lin" --argjson w "$WEIGHTS" '
        .results.compare.arms[] | select(.name == $arm) | ($lin | map(.bytes) | add) as $b | .bytes == $b and
        (.bits_per_weight * $w / 8 - $b | fabs) < 1 and
        (.layer_bits | [range(6) as $i | .[$i] - 8 * ([$lin[] | select(.name | contains("layers.\($i).")) | .bytes] | add) / ($w / 6)]
            | length == 6 and all(.[]; fabs < 1e-9))' cmp.json
done

for arm in own rtn3 disk head both; do
    ok "compare: $arm beside the original's same matrices" json --arg arm "$arm" --argjson o "$ORIGINAL" --argjson e "$EMBED" '
        .results.compare | (.weights * 2) as $w | .arms[0].bytes as $first | .arms[] | select(.name == $arm) |
        ($o + if $arm == "both" then $e else 0 end) as $was | $w == $o and $first == $o and .original_bytes == $was and
        .verdict.size == (if .bytes < $was then "smaller" else "larger" end) and
        ((.bits_per_weight * .weights / 8 - .bytes) | fabs) < 1 and
        (([.bytes, $was] | max / min) as $times | .verdict.text | capture("(?<x>[0-9.]+) times (smaller|larger)") |
            (.x | tonumber) - $times | fabs) < 0.0051' cmp.json
done

# ---- compare: what the device has of them
# the CPU's panels: BF16 as it is; three bits in 3/8 of a byte, for each 32 columns an F16 scale and a byte of zero point
ok "compare: bytes in memory" json --argjson w "$WEIGHTS" --argjson own "$OWN" '[.results.compare.arms[] | {(.name): .}] | add |
    .original.resident_bytes == 2 * $w and .own.resident_bytes == $own and .rtn3.resident_bytes == $w * (3 / 8 + 3 / 32) and
    .head.resident_bytes == $w * (4 / 8 + 3 / 32) and all(.[]; .widened == 0)' cmp.json
# a backend that reads F32 alone, with a few numbers before each matrix
run plugin new backend floats
cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I "$ROOT/core/include" "-Wl,--version-script=$ROOT/plugins/plugin.map" floats/floats.c -o floats.so
for measure in "perplexity: {text: $ROOT/configs/demo/held-out.txt, protocol: llamacpp-512, window: 32, max_windows: 1}" \
    "speed: {prompt: 4, generate: 2, repeats: 1}"; do
    cat >floats.yaml <<JOB
version: 1
model: "@demo"
plugins: [floats.so]
backend: floats
arms: {rtn3: {quantize: {use: rtn, bits: 3, group: 32}}}
measure: {$measure}
JOB
    run compare floats.yaml --out floats.out --json
    ok "floats, ${measure%%:*}: succeeds, got $rc" test "$rc" = 0
    rm -rf floats.out
    ok "floats, ${measure%%:*}: stored at three bits, F32 in memory" json --slurpfile lin rtn3.lin --argjson w "$WEIGHTS" '.results.compare.arms |
        length == 2 and .[1].bytes == ($lin | map(.bytes) | add) and
        all(.[]; .widened == 42 and .resident_bytes >= 4 * $w and .resident_bytes <= 4 * $w + 42 * 64)' out
done
run compare floats.yaml --out floats.out
ok "floats: the table says so" grep -qE "^memory: .* format of 42 linears of 'rtn3' and has them as F32; its linears take [0-9,]+ bytes" out

# ---- plan
cat >board.yaml <<'BOARD'
format: tessera.device/1
name: board
memory: {total: 4 GiB, source: made up}
bandwidth: {peak: 1 GB/s, source: made up}
kernels:
  - {kernel: f32, ops: 2 GFLOP/s, prefill: {compute: 0.5, read: 1}, decode: {compute: 0.5, read: 1}, source: made up}
  - {kernel: bf16, ops: 2 GFLOP/s, prefill: {compute: 0.5, read: 1}, decode: {compute: 0.5, read: 1}, source: made up}
BOARD
cat >cluster.yaml <<'CLUSTER'
version: 1
nodes: [{name: here, devices: [{profile: board.yaml}]}]
CLUSTER
for from in candidate packed; do
    model=own bits=
    [ "$from" = packed ] || model='"@demo"' bits=', candidates: [{use: foreign}]'
    cat >plan.yaml <<JOB
version: 1
model: $model
plugins: [$FOREIGN]
cluster: cluster.yaml
workload: {prompt: 16, generate: 16, batch: 2}
pipeline:
  - plan: {max_tp: 1$bits}
JOB
    run plan plan.yaml -o p.yaml --baselines none --json
    ok "plan, $from: succeeds, got $rc" test "$rc" = 0
    # norms are there as F32
    ok "plan, $from: weights of the plugin's format in memory" json --argjson own "$OWN" \
        '.plan.stages | length == 1 and .[0].weights == $own + 6 * 2 * 256 * 4' out
    # a product reads them as F32, a block at a time
    ok "plan, $from: a step decodes them" json --argjson w "$WEIGHTS" '.plan.stages[0].decode_ms > 4 * $w / 1e6' out
    # LLM-PQ's formula: 4 h^2 + 2 h f elements of 8 bits a layer, two norms of 2 h bytes, the cache, up to whole MiB
    run plan plan.yaml -o p.yaml --baselines none --json --set plan.accounting=paper
    ok "plan, $from: by the papers' account, too" json '.plan.stages[0].weights == 6 *
        ((((4 * 256 * 256 + 2 * 256 * 512) + 4 * 256 + 65536) / 1048576 | ceil) * 1048576 - 65536)' out
done
finish
