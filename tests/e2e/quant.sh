#!/bin/bash
# tests/e2e/quant.sh TESSERA - roundtrip, eval and the steps around quantization as a user calls them.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

# safetensors FILE HEADER BYTES: a file with this JSON header and, as printf escapes, these bytes.
safetensors() {
    local n=${#2}
    # shellcheck disable=SC2059
    printf "\\x$(printf %02x $((n % 256)))\\x$(printf %02x $((n / 256)))\0\0\0\0\0\0" >"$WORK/$1"
    printf '%s' "$2" >>"$WORK/$1"
    printf '%b' "$3" >>"$WORK/$1"
}
zero='\0\0\0\0' one='\0\0\0200\077' two='\0\0\0\0100' three='\0\0\0100\0100' minus='\0\0\0200\0277'
nan='\0\0\0300\0177'

# 2-bit codes hold 0..3 and -1..2 exactly, so the data comes back byte for byte.
rows="$zero$one$two$three$minus$zero$one$two"
safetensors in.st '{"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}}' "$rows"
run roundtrip rtn:bits=2,group=-1,scale=f32 in.st -o out.st --json
ok "roundtrip succeeds" test "$rc" = 0
ok "the data comes back" cmp <(tail -c 32 "$WORK/in.st") <(tail -c 32 "$WORK/out.st")
# a row: 1 byte of codes, a scale of 4, a zero point of 1, padded to 8: 72 bits for 4 weights
ok "bits and error per tensor" json '.tensors.w.bits_per_weight == 18 and .tensors.w.squared_error == 0' "$WORK/out"
run roundtrip rtn:bits=2,group=-1,scale=f32,symmetric=true in.st -o out.st --json
ok "another option, another result" json '.tensors.w.bits_per_weight == 10 and .tensors.w.squared_error > 0' "$WORK/out"
run roundtrip plain in.st -o out.st --kind codec --json
ok "roundtrip of a codec succeeds" test "$rc" = 0
ok "plain f32 loses nothing" json '.tensors.w.bits_per_weight == 32 and .tensors.w.squared_error == 0' "$WORK/out"
# the numbers of a row come back from 17 or 20 bits of scale and codes; calibrated ranges from 14 bits
run roundtrip mx in.st -o out.st --kind codec --json
ok "codec mx holds what its elements hold" json '.tensors.w.squared_error == 0 and .tensors.w.bits_per_weight == 6' "$WORK/out"
run roundtrip mx:scale_bits=5,element=int4 in.st -o out.st --kind codec --json
ok "a narrow scale" json '.tensors.w.bits_per_weight == 6' "$WORK/out"
run roundtrip int4_channel in.st -o out.st --kind codec --json
ok "codec int4_channel: a scale for each feature of a message" json '.tensors.w.bits_per_weight == 20' "$WORK/out"
run roundtrip topk in.st -o out.st --kind codec --json
ok "codec topk keeps the largest" json '.tensors.w.squared_error == 7' "$WORK/out"
fails "int4_bf16 wants to be calibrated" 2 'row 0' roundtrip int4_bf16 in.st -o new.st --kind codec
safetensors cal.st '{"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"w.calibration":{"dtype":"F32","shape":[1,4],"data_offsets":[32,48]}}' \
    "$rows$two$one$two$three"
run roundtrip int4_bf16:one_in=4 cal.st -o out.st --kind codec --json
ok "int4_bf16: rows beside a tensor calibrate it" json '.tensors.w.bits_per_weight == 8 and .tensors.w.squared_error < 3' "$WORK/out"

# MXFP4 holds these numbers too; a row: 2 bytes of codes, a scale padded to 4
run roundtrip mx in.st -o out.st --json
ok "mx holds what its elements hold" cmp <(tail -c 32 "$WORK/in.st") <(tail -c 32 "$WORK/out.st")
ok "mx: codes and scales" json '.tensors.w.bits_per_weight == 12 and .tensors.w.format == "tessera.mx/1"' "$WORK/out"
safetensors large.st '{"w":{"dtype":"F32","shape":[1,4],"data_offsets":[0,16]}}' '\0\0\0\0177'"$one$two$three"
fails "a scale that does not fit" 2 w roundtrip mx:scale_bits=4 large.st -o new.st
run roundtrip mx:scale_bits=4,on_overflow=nan large.st -o out.st --json
ok "or a NaN block where that was asked for" json '.tensors.w.squared_error == null' "$WORK/out"
fails "an element that is none" 2 'element' roundtrip mx:element=fp4_e2m2 in.st -o new.st

# four values fit a table of four; a row: 1 byte of codes, 4 entries of 2
fails "squeeze wants to know what an error costs" 2 w roundtrip squeeze in.st -o new.st
run roundtrip squeeze:bits=2,sensitivity=none,count_zeros=true in.st -o out.st --json
ok "squeeze holds as many values as its table" cmp <(tail -c 32 "$WORK/in.st") <(tail -c 32 "$WORK/out.st")
ok "squeeze: codes and table" json '.tensors.w.bits_per_weight == 18 and .tensors.w.format == "tessera.lut/1"' "$WORK/out"
safetensors costs.st '{"w":{"dtype":"F32","shape":[1,4],"data_offsets":[0,16]},"w.sensitivity":{"dtype":"F32","shape":[1,4],"data_offsets":[16,32]}}' \
    "$one$two$three$minus$one$one$zero$minus"
fails "a sensitivity below 0" 2 w roundtrip squeeze costs.st -o new.st

fails "a missing statistic" 2 'int8' roundtrip int8 in.st -o new.st
safetensors stat.st '{"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"w.absmax":{"dtype":"F32","shape":[4],"data_offsets":[32,48]}}' \
    "$rows$one$one$one$one"
run roundtrip int8 stat.st -o out.st --json
ok "a statistic beside its tensor is used and not quantized" json '.tensors | keys == ["w"]' "$WORK/out"
safetensors bad.st '{"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"w.absmax":{"dtype":"F32","shape":[2],"data_offsets":[32,40]}}' \
    "$rows$one$one"
fails "a statistic of another shape" 2 'w.absmax' roundtrip int8 bad.st -o new.st
safetensors nan.st '{"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}}' "$zero$one$two$three$one$one$nan$one"
fails "a weight that is not finite" 2 w roundtrip rtn nan.st -o new.st
safetensors int.st '{"w":{"dtype":"I32","shape":[2,4],"data_offsets":[0,32]}}' "$rows"
fails "integers" 2 'int.st' roundtrip rtn int.st -o new.st
safetensors flat.st '{"w":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}' "$rows"
fails "no matrix" 2 'flat.st' roundtrip rtn flat.st -o new.st
fails "an unknown plugin" 2 rtm roundtrip rtm in.st -o new.st
fails "a codec is no quantizer" 2 plain roundtrip plain in.st -o new.st
fails "an unknown option" 2 'rtn' roundtrip rtn:bit=3 in.st -o new.st
fails "an option out of range" 2 'bits' roundtrip rtn:bits=9 in.st -o new.st
fails "an option twice" 2 'rtn' roundtrip rtn:bits=3,bits=4 in.st -o new.st
fails "no value" 2 'rtn' roundtrip rtn:bits in.st -o new.st
ok "a failing command leaves no output" test ! -e "$WORK/new.st"

# eval
run eval @demo --text "$DEMO/held-out.txt" --protocol llamacpp-512 --max-windows 2 --json --against @demo
ok "eval succeeds" test "$rc" = 0
ok "a number comes with its protocol and text" json \
    '.protocol == "llamacpp-512" and .tokens == 510 and .window == 512 and .bos == "per window"
     and (.text_hash | startswith("xxh3:")) and .perplexity > 1' "$WORK/out"
ok "a model does not differ from itself" json '.kl.mean == 0 and .kl.max == 0 and .top1 == 1' "$WORK/out"
fails "an unknown protocol" 2 '--protocol gptq-2049:1:15' eval @demo --text "$DEMO/held-out.txt" --protocol gptq-2049
fails "no such text" 2 '--text missing.txt:1:6' eval @demo --text missing.txt
printf 'caf\351 au lait\n' | cat "$DEMO/config.json" - >"$WORK/latin.txt"
at=$(stat -c %s "$DEMO/config.json")
fails_with "a text that is no UTF-8" 2 latin.txt "byte $((at + 3)) " eval @demo --text latin.txt --window 64
fails_with "to calibrate on either" 2 latin.txt "byte $((at + 3)) " quantize "$STORIES" --use int8 --text latin.txt -o latin
head -c 3001 "$DEMO/held-out.txt" | tr -d '\n' >"$WORK/cut.txt" && printf '\303' >>"$WORK/cut.txt"
run eval @demo --text cut.txt --window 64 --max-windows 2
ok "a character that the end cuts off is let through" test "$rc" = 0
fails "a text too short" 2 '*/configs/demo/config.json' eval @demo --text "$DEMO/config.json"
fails "another vocabulary" 2 '*/tests/golden/models/stories260k' eval @demo --text "$DEMO/held-out.txt" --against "$STORIES"

# A comparison in which two arms cannot work: they say why, the others go on.
cat >"$WORK/job.yaml" <<JOB
version: 1
model: "@demo"
pipeline:
  - compare:
      arms:
        uncalibrated: {quantize: {use: int8}}
        three: {quantize: {use: rtn, bits: 3, rules: [{layers: 0-1, bits: 5}, {tensors: lm_head, bits: 8}]}}
        nowhere: {quantize: {use: rtn, rules: [{tensors: "*.dwn_proj", bits: 3}]}}
      measure:
        perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 2}
        speed: {prompt: 16, generate: 4, repeats: 2}
      samples: ["Once <b>"]
  - quantize: {use: rtn, bits: 4}
  - generate: {prompts: ["She was"], max_tokens: 4}
  - report: {html: pages/report.html}
JOB
run run job.yaml --out job
ok "the job succeeds" test "$rc" = 0
cp "$WORK/out" "$WORK/first"
ok "an arm says why it failed" grep -q '^uncalibrated *failed: .*calibrate' "$WORK/first"
ok "with the place in the file" grep -q '^nowhere *failed: job.yaml:8:' "$WORK/first"
ok "the others go on" grep -qE '^three +[0-9.]+ ' "$WORK/first"
ok "failures are in the results" json \
    '[.results.compare.arms[] | select(.failed) | .name] == ["uncalibrated", "nowhere"]' "$WORK/job/results.json"
ok "the sum of the rules" json \
    '.results.compare.arms[2] | .bits_per_weight > 4.2 and .bits_per_weight < 5.2 and .kl.mean > 0' "$WORK/job/results.json"
ok "the page needs nothing else" test -s "$WORK/job/pages/report.html" -a \
    "$(grep -cE 'src=|href=|https?:' "$WORK/job/pages/report.html" || true)" = 0
ok "the page quotes" grep -q 'Once &lt;b&gt;' "$WORK/job/pages/report.html"
run run job.yaml --out job
ok "a finished job tells the same" test -z "$(diff "$WORK/first" "$WORK/out" | grep '^<' || true)"

# Tables take the cost of an error from the calibration; block formats need none.
cat >"$WORK/tables.yaml" <<JOB
version: 1
model: "$STORIES"
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 4, seqlen: 64}
  - compare:
      arms:
        flat: {quantize: {use: squeeze, bits: 3, scale: f32, sensitivity: none}}
        costs: {quantize: {use: squeeze, bits: 3, scale: f32}}
        outliers: {quantize: {use: squeeze, bits: 3, scale: f32, outliers: 0.05}}
        blocks: {quantize: {use: mx, element: fp6_e2m3}}
      measure:
        perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 1}
JOB
run run tables.yaml --out tables
ok "the job with tables succeeds" test "$rc" = 0
arms='.results.compare.arms | map({(.name): .}) | add |'
ok "no arm fails" json '[.results.compare.arms[] | select(.failed)] == []' "$WORK/tables/results.json"
ok "costs are used" json "$arms .flat.kl.mean != .costs.kl.mean and .flat.kl.mean > 0 and .costs.kl.mean > 0" "$WORK/tables/results.json"
ok "outliers cost bits and lower the error" json \
    "$arms .outliers.bits_per_weight > .costs.bits_per_weight + 2 and .outliers.kl.mean < .costs.kl.mean" "$WORK/tables/results.json"
ok "six bits and a scale for 32" json "$arms .blocks.bits_per_weight >= 6.25 and .blocks.kl.mean < .costs.kl.mean" "$WORK/tables/results.json"
# a plugin's switch is off by --no-NAME, as our own are
for way in "--clip false" --no-clip --clip; do
    # shellcheck disable=SC2086 # a word or two
    run quantize "$STORIES" --use awq --group 32 --text "$ROOT/configs/demo/calibration.txt" --samples 2 --seqlen 64 $way -o "awq$way"
    ok "awq $way: exit code 0, got $rc" test "$rc" = 0
done
ok "--no-clip is --clip false" diff -rq -x journal -x manifest.json -x results.json "$WORK/awq--clip false" "$WORK/awq--no-clip"
ok "and not --clip" test "$(cmp -s "$WORK/awq--clip/packed.json" "$WORK/awq--no-clip/packed.json" || echo other)" = other
fails "a switch with a value" 2 '--no-clip 3:1:18' quantize "$STORIES" --use awq --no-clip 3 -o x
fails "no switch" 2 '--no-bits true:1:10' quantize "$STORIES" --use awq --no-bits -o x
ok "said with its name" failure '.diagnostics[0].object == "no_bits"'
fails "another plugin's switch" 2 '--no-clip true:1:10' quantize "$STORIES" --use rtn --no-clip -o x
run help quantize
ok "in the help" grep -q -- '--no-clip' "$WORK/out"

fails "tables without calibration" 2 model.layers.0.self_attn.q_proj quantize "$STORIES" --use squeeze --out uncalibrated

# Everything wrong with a scheme is said before anything runs.
sed -i 's/bits: 4/bits: 1/; s/layers: 0-1, bits: 5/layers: 0-1, bots: 5/' "$WORK/job.yaml"
fails "a wrong scheme" 2 'job.yaml:7:*' run job.yaml --out other
ok "the places of the rule and of the step" failure '.diagnostics | map("\(.line) \(.object)") | . == ["7 bots", "13 bits"]'
ok "nothing ran" test ! -e "$WORK/other/results.json"

# ---- where the product is: the last line of what is printed
(cd "$WORK" && "$TESSERA" quantize "$STORIES" --use rtn --bits 4 --group 32 --out where) >"$WORK/both" 2>&1 </dev/null || true
ok "quantize names the packed model" test "$(tail -n 1 "$WORK/both")" = 'tessera: the packed model is in where'
run quantize "$STORIES" --use rtn --bits 4 --group 32 --out quiet -q
ok "not where it is to be quiet, got $rc" test "$rc" = 0 -a ! -s "$WORK/err"
cat >"$WORK/where.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - quantize: {use: rtn, bits: 4, group: 32}
  - export: {to: m.tsr, format: prepacked}
JOB
(cd "$WORK" && "$TESSERA" run where.yaml --out job-where) >"$WORK/both" 2>&1 </dev/null || true
ok "run names the folder and what is in it" test "$(tail -n 1 "$WORK/both")" = \
    'tessera: results are in job-where: m.tsr, packed, results.json'
run run where.yaml --out job-json --json
ok "with JSON it says nothing of it, got $rc" test "$rc" = 0 -a "$(grep -c 'are in' "$WORK/err")" = 0

finish
