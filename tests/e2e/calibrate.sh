#!/bin/bash
# tests/e2e/calibrate.sh TESSERA - calibration that is kept, taken up again and refused when damaged;
# indicators as a step and as a verb.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
TEXT=$ROOT/tests/golden/models/README.md

cat >"$WORK/job.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - calibrate: {text: $TEXT, samples: 3, seqlen: 24}
  - indicators: {bits: "3,8,16", sequences: 2, quantize: {use: rtn, group: 32}}
  - quantize: {use: gptq, bits: 4, group: 32}
  - report: {html: report.html}
JOB
run run job.yaml --out job
ok "the job succeeds, got $rc" test "$rc" = 0
ok "a table of indicators" grep -qE '^variance_stochastic +[0-9.e+-]+ +-?[01]\.[0-9]+' "$WORK/out"
ok "a file for each layer" test "$(cd "$WORK/job/calibration" && echo layer-*)" = \
    "layer-00000.safetensors layer-00001.safetensors layer-00002.safetensors layer-00003.safetensors layer-00004.safetensors"
ok "with the Hessians that later steps need" grep -qa '"down_in.hessian"' "$WORK/job/calibration/layer-00003.safetensors"
ok "with the eigenvalues of the indicators" grep -qa '"down_in.top":{"dtype":"F64","shape":\[1\]' "$WORK/job/calibration/layer-00003.safetensors"
ok "and no inputs" test -z "$(grep -a '"down_in.inputs"' "$WORK/job/calibration/layer-00003.safetensors" || true)"
ok "the indicators' file" json '.format == "tessera.indicators/1" and .layers == 5 and .bits == [3, 8, 16]
    and [.tables[].name] == ["variance", "variance_stochastic", "hessian", "random", "measured"]
    and ([.tables[].omega | length] | unique) == [5] and ([.tables[].omega[][2]] | unique) == [0]
    and ([.tables[] | select(.name != "measured") | .omega[] | .[0] > .[1]] | all)
    and (.tables[2].tau.all | . >= -1 and . <= 1) and .tables[2].tau.by_bits[2] == null
    and .tables[2].quantizer == {use: "rtn", group: 32}' "$WORK/job/indicators.json"
ok "the ranks are on the page" grep -q 'Kendall tau' "$WORK/job/report.html"

# Killed in the middle: what is there is used, what is not is made, and nothing changes.
cp -r "$WORK/job" "$WORK/cut"
rm "$WORK/cut/results.json" "$WORK/cut/calibration/"layer-0000[2-4]* "$WORK/cut/indicators.json"
echo torn >"$WORK/cut/calibration/.layer-00002.safetensors.0123abcd.part"
: >"$WORK/cut/calibration/.layer-00002.safetensors.lock"
run run job.yaml --out cut
ok "a cut job goes on, got $rc" test "$rc" = 0
ok "what the cut left is gone" test -z "$(find "$WORK/cut" -name '.*')"
for f in "$WORK/job/calibration/"*; do
    ok "the same bytes: $(basename "$f")" cmp -s "$f" "$WORK/cut/calibration/$(basename "$f")"
done
omegas='[.tables[] | [.name, .omega, .loss]]'
ok "the same indicators" test "$(jq -c "$omegas" "$WORK/job/indicators.json")" = \
    "$(jq -c "$omegas" "$WORK/cut/indicators.json")"
packed='.results.quantize | [.bytes, .bits_per_weight, [.linears[].squared_error]]'
ok "the same weights" test "$(jq -c "$packed" "$WORK/job/results.json")" = "$(jq -c "$packed" "$WORK/cut/results.json")"

# A file that is not what was written is refused, not used. Its last 8 bytes are an eigenvalue of the indicators'.
rm "$WORK/cut/results.json"
printf 'x' | dd of="$WORK/cut/calibration/layer-00001.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "$WORK/cut/calibration/layer-00001.safetensors") - 3))
fails "damage" 2 'cut/calibration/layer-00001.safetensors' run job.yaml --out cut -q
rm "$WORK/cut/calibration/layer-00001.safetensors"
run run job.yaml --out cut
ok "it is made again, got $rc" test "$rc" = 0
ok "with the same bytes" cmp "$WORK/job/calibration/layer-00001.safetensors" "$WORK/cut/calibration/layer-00001.safetensors"

# The verb.
run indicators "$STORIES" --text "$TEXT" --samples 2 --seqlen 16 --bits 4,16 --no-measured --out verb --json
ok "the verb succeeds, got $rc" test "$rc" = 0
ok "without what was not wanted" json '[.results.indicators.tables[].name] ==
    ["variance", "variance_stochastic", "hessian", "random"]' "$WORK/out"
fails "no inputs" 2 '' indicators "$STORIES" --out none
bits() { fails "bits $1" 2 "--bits $1:1:12" indicators "$STORIES" --text "$TEXT" --bits "$1" --out none; }
bits 4,3
bits 9
bits 3,
bits 2,3,4,5,6,7,8,16,17
ok "with a hint" failure '.diagnostics[0].hint | test("\"3,4,8,16\"")'
fails "no such quantizer" 2 '--quantize {use: rtm}:1:27' indicators "$STORIES" --text "$TEXT" --quantize '{use: rtm}' --out none
ok "named" failure '.diagnostics[0].object == "rtm"'
fails "no text" 2 '--text missing.txt:1:12' indicators "$STORIES" --text missing.txt --out none
ok "no folder is left behind" test ! -e "$WORK/none/indicators.json"

# measure: kl, keyed by scheme.
run indicators "$STORIES" --text "$TEXT" --samples 3 --seqlen 16 --measure kl --plans 3 --codecs '["plain:dtype=bf16"]' \
    --schemes '[{use: rtn, group: 32, bits: 3}, {use: gptq, group: 32, bits: 3}]' --out kl --json
ok "figures of KL, got $rc" test "$rc" = 0
ok "by scheme" json '.format == "tessera.indicators/2" and .tokens == 48 and .probed == [0, 1, 2, 3, 4]
    and [.schemes[].scheme] == ["rtn:group=32,bits=3", "gptq:group=32,bits=3"]
    and all(.schemes[]; (.kl | length == 5) and all(.kl[]; . > 0) and all(.half[]; . > 0))
    and [.kv[].kv] == ["f16", "int8"] and .kv[0].kl < .kv[1].kl and .links[0].kl > 0' "$WORK/kl/indicators.json"
ok "whole plans are the sums of their layers" json '. as $f | all(.plans[]; . as $p | $p.w - ([range(5) as $l |
    $f.schemes[] | select(.scheme == $p.layers[$l]).kl[$l]] | add) | fabs < 1e-12)' "$WORK/kl/indicators.json"
ok "its cost" json '.cost.forwards > 10 and .cost.said_s > 0 and .cost.seconds > 0' "$WORK/kl/indicators.json"
fails "schemes of tables" 2 '--schemes*' indicators "$STORIES" --text "$TEXT" --schemes '[{use: rtn}]' --out none
fails "a codec that is not there" 2 '--codecs*' indicators "$STORIES" --text "$TEXT" --measure kl --codecs '[none]' --out none
run indicators "$STORIES" --text "$TEXT" --samples 3 --seqlen 16 --measure kl --plans 0 --probes 1 --kv none --codecs '[]' \
    --schemes '[{use: rtn, group: 32, bits: 8}]' --ends '[{use: rtn, bits: 4, group: 32}, {use: rtn, bits: 8, group: 32}]' --out ends
ok "figures of embedding and head, got $rc" test "$rc" = 0
ok "in the file" json '[.ends[].scheme] == ["rtn:bits=4,group=32", "rtn:bits=8,group=32"] and .ends[1].kl > 0 and
    .ends[1].kl < .ends[0].kl and all(.ends[]; .interval[0] < .kl and .kl < .interval[1])' "$WORK/ends/indicators.json"
ok "and in words" grep -qE '^rtn:bits=8,group=32 .* embedding and head$' "$WORK/out"
run plan "$STORIES" --cluster "$ROOT/configs/emulated/clusters/pair.yaml" --workload '{prompt: 32, generate: 8, batch: 4, kv: f32}' \
    --candidates '[{use: rtn, bits: 8, group: 32}, original]' --quality "{indicators: $WORK/ends/indicators.json}" --at-most '{kl: 1}' \
    --ends '[original, {use: rtn, bits: 8, group: 32}]' --codec plain --baselines none -o ends.yaml
ok "a plan reads them, got $rc" test "$rc" = 0
run indicators "$STORIES" --text "$TEXT" --samples 3 --seqlen 16 --measure kl --plans 0 --probes 1 --kv f32 --codecs '[]' \
    --schemes '[{use: rtn, group: 32, bits: 3}]' --compensate 32,1024 --out kept
ok "what compensation leaves, got $rc" test "$rc" = 0
ok "of each k" json '[.compensation[] | .scheme + " " + (.k | tostring)] == ["rtn:group=32,bits=3 32", "rtn:group=32,bits=3 1024"] and
    .compensation[1].kept < 0.2 and .compensation[1].kept < .compensation[0].kept and
    all(.compensation[]; .interval[0] <= .kept and .kept < .interval[1])' "$WORK/kept/indicators.json"
ok "in words" grep -qE '^rtn:group=32,bits=3 .*% +left with 32 channels of 1024$' "$WORK/out"
ok "the packed model is gone" test ! -e "$WORK/kept/packed.indicators"
run plan "$STORIES" --cluster "$ROOT/configs/emulated/clusters/pair.yaml" --workload '{prompt: 32, generate: 8, batch: 4, kv: f32}' \
    --candidates '[{use: rtn, bits: 3, group: 32}]' --quality "{indicators: $WORK/kept/indicators.json}" --at-most '{kl: 9}' \
    --compensate '[0, 32]' --codec plain --baselines none -o kept.yaml
ok "a plan reads it, got $rc" test "$rc" = 0
fails "channels that do not ascend" 2 '--compensate*' indicators "$STORIES" --text "$TEXT" --measure kl --compensate 8,8 --out none
fails "ends of tables" 2 '--ends*' indicators "$STORIES" --text "$TEXT" --ends '[{use: rtn}]' --out none
fails "a quantizer of the ends that is not there" 2 '--ends*' indicators "$STORIES" --text "$TEXT" --measure kl --ends '[{use: rtm}]' --out none
fails "ends by a quantizer that needs inputs" 2 'gptq' indicators "$STORIES" --text "$TEXT" --samples 1 --seqlen 8 --measure kl --plans 0 --probes 1 \
    --kv none --schemes '[{use: rtn, bits: 8, group: 32}]' --ends '[{use: gptq, bits: 4, group: 32}]' --out none
fails "a scheme with rules" 2 '--schemes*' indicators "$STORIES" --text "$TEXT" --measure kl \
    --schemes '[{use: rtn, sequential: true}]' --out none

finish
