#!/bin/bash
# tests/e2e/compare.sh TESSERA FOREIGN.so - comparisons as a user runs them: a file with a base and arms of every
# kind, fail_if, interruption, .kld files, multiple choice.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FOREIGN=$(readlink -f "$2")
DEMO=$ROOT/configs/demo
arms='.results.compare.arms | map({(.name): .}) | add |'

mkdir "$WORK/ab" "$WORK/texts"
head -c 20000 "$DEMO/calibration.txt" >"$WORK/texts/calibration.txt"
cat >"$WORK/base.yaml" <<JOB
version: 1
model: "$STORIES"
seed: 3
pipeline:
  - calibrate: {text: texts/calibration.txt, samples: 4, seqlen: 64}
  - quantize: {use: rtn, bits: 4, group: 32, to: elsewhere}
  - eval: {text: $DEMO/held-out.txt}
JOB
cat >"$WORK/none.yaml" <<JOB
version: 1
model: $STORIES
arms: {smooth: {quantize: {use: int8, mode: smooth}}, gptq: {quantize: {use: gptq, bits: 4}}}
measure: {perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 2}}
JOB
run compare none.yaml --out nothing --json
ok "nothing compared is no success: exit code 1, got $rc" test "$rc" = 1
ok "nothing compared: why" failure '.status == "numeric" and (.message | test("model.layers.0.self_attn.q_proj"))'

cat >"$WORK/plan.yaml" <<PLAN
format: tessera.plan/1
layers: 5
stages:
  - layers: 0-4
    schemes: [{layers: 0-4, bits: 8}]
PLAN
cat >"$WORK/ab/ab.yaml" <<JOB
version: 1
base: ../base.yaml
arms:
  two: {quantize.bits: 2}
  same: {set: {}}
  three: {set: {quantize.bits: 3}}
  disk: {model: ../packed}
  planned: {plan: ../plan.yaml}
  other: {quantize: {use: gptq, bits: 3, group: 32}}
  nowhere: {quantize.rules: [{tensors: "*.dwn_proj", bits: 3}]}
measure:
  perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 12}
  speed: {prompt: 8, generate: 4, repeats: 3}
pairs: [[two, three], [disk, same]]
samples: ["Once upon"]
sampling: {max_tokens: 4}
fail_if: ["kl.mean < 0", "two/three.delta.low <= 0", "same.top1 < 0.5"]
JOB
run quantize "$STORIES" --use rtn --bits 4 --group 32 -o packed
ok "a model on disk" test "$rc" = 0
run compare ab/ab.yaml --out job
ok "an arm that failed does not pass fail_if: exit code 5, got $rc" test "$rc" = 5
ok "it is said why" grep -q 'kl.mean < 0.*nowhere' "$WORK/err"
results=$WORK/job/results.json
ok "an arm that failed is reported" json "$arms .nowhere.failed | test(\"ab.yaml:10.*no linear\")" "$results"
ok "the others are not" json '[.results.compare.arms[] | select(.failed)] | length == 1' "$results"
ok "a plan is followed" json "$arms .planned.bits_per_weight > 8 and .planned.bits_per_weight < 9.1" "$results"
ok "an override is followed" json "$arms .three.bits_per_weight < .same.bits_per_weight" "$results"
ok "a model on disk gives the numbers of the same scheme" json \
    "$arms .disk.perplexity == .same.perplexity and .disk.kl == .same.kl and .disk.bytes == .same.bytes" "$results"
ok "a pair that does not differ" json \
    '.results.compare.pairs[1] | .delta.mean == 0 and .delta.p == 1 and .verdict.quality == "indistinguishable"' "$results"
ok "pairs are corrected over the pairs" json '.results.compare.pairs | (.[0].delta | .p_holm >= .p and .p_holm <= 2 * .p) and
    .[1].delta.p_holm == 1 and .[0].kl_delta.p_holm >= .[0].kl_delta.p' "$results"
ok "every window has the same tokens: the difference is that of the logarithms" json \
    "$arms (.three.perplexity / .original.perplexity | log) as \$d | (.three.delta.mean - \$d) | fabs < 1e-6" "$results"
ok "intervals are around their means" json \
    '[.results.compare.arms[] | select(.delta) | .delta, .kl | .low <= .mean and .mean <= .high and .se > 0] | all and length == 12' "$results"
ok "corrected over the arms" json '[.results.compare.arms[] | select(.delta) | .delta.p_holm >= .delta.p] | all' "$results"
ok "percentiles rise" json \
    '[.results.compare.arms[] | select(.kl) | .kl | [.min, (.percentiles | .["1"], .["5"], .["10"], .["50"], .["90"], .["95"], .["99"], .["99.9"]), .max] | . == sort] | all' "$results"
ok "every token is in the histogram" json \
    '[.results.compare.arms[] | select(.kl) | (.kl.histogram.counts | add) == .scored] | all' "$results"
ok "statistics of the base's calibration are used" json "$arms .other.kl.mean < .three.kl.mean" "$results"
ok "two bits are worse" json "$arms .two.verdict.quality == \"worse\" and .two.delta.low > 0" "$results"
ok "speed over the original's" json \
    '[.results.compare.arms[] | select(.delta) | .speed.decode_ratio | .low <= .median and .median <= .high and .low > 0] | all' "$results"
ok "layers have their bits" json '[.results.compare.arms[] | select(.layer_bits) | .layer_bits | length == 5] | all' "$results"
ok "every arm has its text" json "$arms .three.samples[0].prompt == \"Once upon\"" "$results"
ok "the table says it in words" grep -qE '^two +worse: perplexity \+' "$WORK/out"
ok "every number is finite" test "$(grep -ciE '(: |, |\[)-?(nan|inf|infinity)\b' "$results" || true)" = 0
run compare ab/ab.yaml --out job --json
ok "a finished comparison still does not pass, got $rc" test "$rc" = 5
ok "and says what it found" json '.results.compare.gate.fail_if | map(.holds) == [true, false, false]' "$WORK/out"

# A baseline is a pair with every other arm; a condition names all that it holds for.
cat >"$WORK/baseline.yaml" <<JOB
version: 1
model: "$STORIES"
arms: {two: {quantize: {use: rtn, bits: 2, group: 32}}, four: {quantize: {use: rtn, bits: 4, group: 32}}, five: {quantize: {use: rtn, bits: 5, group: 32}}}
measure: {perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 6}}
pairs: [[two, four]]
baseline: four
fail_if: ["kl.mean > 1e-6", "two/four.kl_delta.low > 0", "five/four.kl_delta.high > 0", "bytes < 0"]
JOB
run compare baseline.yaml --out baseline --json
ok "violators: exit code 5, got $rc" test "$rc" = 5
ok "every arm against the baseline, once" json '.results.compare.pairs | map([.arm, .against]) == [["two", "four"], ["original", "four"], ["five", "four"]]' "$WORK/baseline/results.json"
ok "pairs have verdicts by KL as well" json '.results.compare.pairs | map({(.arm): .verdict}) | add |
    .two.kl == "worse" and .five.kl == "better" and (.two.text | test("; by KL worse: ")) and (.original | has("kl") | not)' "$WORK/baseline/results.json"
ok "all violators are named" json '.results.compare.gate.fail_if | map(.violators | map(.arm)) == [["two", "four", "five"], ["two/four"], [], []]' "$WORK/baseline/results.json"
ok "with their numbers" json '.results.compare | .gate.fail_if[0] as $g | [.arms[1:][].kl.mean] == ($g.violators | map(.value)) and $g.value == $g.violators[0].value' "$WORK/baseline/results.json"
for name in two four five two/four; do
    ok "the error names $name" mentions "'$name' has "
done
sed 's/^baseline: .*/baseline: six/; /^fail_if/d' "$WORK/baseline.yaml" >"$WORK/none-such.yaml"
fails "a baseline that is no arm" 2 'none-such.yaml:6:11' compare none-such.yaml --out no

# What packed linears took is said, of a packed folder and of a format without integers, too.
cat >"$WORK/acts.yaml" <<JOB
version: 1
base: base.yaml
plugins: [$FOREIGN]
arms:
  disk: {model: packed}
  odd: {quantize: {use: foreign}}
measure:
  perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 2}
  a8: true
  speed: {prompt: 8, generate: 4, repeats: 1}
samples: ["Once upon"]
sampling: {max_tokens: 2}
JOB
run compare acts.yaml --out acts
ok "acts: $(tail -1 "$WORK/err")" test "$rc" = 0
results=$WORK/acts/results.json
ok "int8, where there is a form for it" json \
    "$arms .disk | [.speed, .a8, .samples_act] | all(.act == \"a8\" and .packed_linears.f32 == 0 and .packed_linears.a8 > 0)" "$results"
ok "F32, where there is none" json \
    "$arms .odd | (.speed.act == \"f32\" and .samples_act.act == \"f32\") and ([.speed, .a8, .samples_act] | all(.packed_linears.a8 == 0 and .packed_linears.f32 > 0))" "$results"
ok "the original has no packed linears" json "$arms .original.speed | .act == \"f32\" and (.packed_linears | add) == 0" "$results"
ok "both tables say so" test "$(grep -cE ", f32 on [0-9]+ of 'odd'" "$WORK/out")" = 3
results=$WORK/job/results.json

run quantize "$STORIES" --use rtn --bits 5 --group 32 -o packed --again
fails "a model on disk that is another by now" 2 'job' compare ab/ab.yaml --out job

# Interrupted: what is finished is not run again, and the numbers are those of a run that nobody
# disturbed.  The first time killed, the second time without the table.
cat >"$WORK/long.yaml" <<JOB
version: 1
base: base.yaml
together: 1
arms: {a: {quantize.bits: 3}, b: {quantize.bits: 5}, c: {quantize.bits: 6}}
measure:
  perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 128, max_windows: 30}
fail_if: c.kl.mean > 10
JOB
run compare long.yaml --out whole
ok "fail_if does not hold: exit code 0, got $rc" test "$rc" = 0
for ((i = 0; i < 20; i++)); do # where this shell came too late for that: once more
    rm -rf "$WORK/broken"
    (cd "$WORK" && exec "$TESSERA" compare long.yaml --out broken >/dev/null 2>&1) &
    pid=$!
    while [ ! -e "$WORK/broken/compare/a.json" ] && kill -0 $pid 2>/dev/null; do sleep 0.05; done
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    [ ! -e "$WORK/broken/compare/original.states" ] || break
done
ok "it was killed when an arm was finished, not all" test -e "$WORK/broken/compare/a.json" -a -e "$WORK/broken/compare/original.states"
cp -r "$WORK/broken" "$WORK/damaged"
rm -f "$WORK/broken/results.json" "$WORK/broken/compare/c.json"
before=$(stat -c %Y.%i "$WORK/broken/compare/a.json")
run compare long.yaml --out broken -v
ok "it goes on" test "$rc" = 0
ok "a finished arm is not run again" test "$before" = "$(stat -c %Y.%i "$WORK/broken/compare/a.json")"
ok "its file is the same" test "$before" = "$(stat -c %Y.%i "$WORK/broken/compare/a.json")"
ok "the numbers are the same" cmp <(jq 'del(.. | .seconds?)' "$WORK/whole/results.json") \
    <(jq 'del(.. | .seconds?)' "$WORK/broken/results.json")
ok "the original has left nothing but its result" test ! -e "$WORK/whole/compare/original.states" -a ! -e "$WORK/broken/compare/original.states"
run compare long.yaml --out beside --set compare.together=3
ok "the original's rows give the numbers of the original itself" cmp <(jq 'del(.. | .seconds?)' "$WORK/whole/results.json") \
    <(jq 'del(.. | .seconds?)' "$WORK/beside/results.json")
# b and c are still to come, and what the original left for them is not what it was
rm -f "$WORK"/damaged/results.json "$WORK"/damaged/compare/[bc].*
sed -i 's|tessera.arm/2|tessera.arm/1|' "$WORK/damaged/compare/a.json"
run compare long.yaml --out damaged -v
ok "it goes on with what the original left" test "$rc" = 0 -a "$(grep -c 'run again' "$WORK/err")" = 0
ok "an arm of another format is run anew" grep -q "'a'.*a.json.*tessera.arm/2" "$WORK/err"
ok "to the same numbers" cmp <(jq 'del(.. | .seconds?)' "$WORK/whole/results.json") \
    <(jq 'del(.. | .seconds?)' "$WORK/damaged/results.json")
# the file that says which token begins a text goes between two runs
cp -r "$STORIES" "$WORK/begins"
jq '.bos_token_id = null' "$STORIES/config.json" >"$WORK/begins/config.json"
sed 's|^base:.*|model: begins|; s|{quantize.bits|{quantize.use: rtn, quantize.group: 32, quantize.bits|; s|arms:.*|arms: {a: {quantize: {use: rtn, bits: 3, group: 32}}}|; /fail_if/d; s/max_windows: 30/max_windows: 2/' \
    "$WORK/long.yaml" >"$WORK/begins.yaml"
run compare begins.yaml --out begun
rm "$WORK/begun/results.json" "$WORK/begins/generation_config.json"
run compare begins.yaml --out without
run compare begins.yaml --out begun
ok "an arm whose texts begin otherwise is run anew" cmp <(jq 'del(.. | .seconds?)' "$WORK/without/results.json") \
    <(jq 'del(.. | .seconds?)' "$WORK/begun/results.json")
rm -f "$WORK"/damaged/results.json "$WORK"/damaged/compare/[bc].*
head -c 1000 /dev/zero >"$WORK/damaged/compare/original.states"
run compare long.yaml --out damaged -v
ok "what is not what it left is not taken" grep -q "run again.*original.states" "$WORK/err"
ok "and the numbers are the same" cmp <(jq 'del(.. | .seconds?)' "$WORK/whole/results.json") \
    <(jq 'del(.. | .seconds?)' "$WORK/damaged/results.json")
rm "$WORK/broken/results.json"
printf x | dd of="$WORK/broken/compare/b.safetensors" bs=1 seek=400 conv=notrunc 2>/dev/null
run compare long.yaml --out broken -v
ok "an arm whose file is damaged is run anew" grep -q "'b'.*b.safetensors" "$WORK/err"
ok "and gives the same" cmp <(jq 'del(.. | .seconds?)' "$WORK/whole/results.json") \
    <(jq 'del(.. | .seconds?)' "$WORK/broken/results.json")
run compare long.yaml --out broken --again --set compare.measure.perplexity.max_windows=2
ok "anew with other options" test "$rc" = 0
run run long.yaml --out one --set compare.measure.perplexity.max_windows=1
ok "one window decides nothing" json \
    '[.results.compare.arms[] | select(.delta) | .verdict.quality == "undecided" and .delta.low == null] | all and length == 3' "$WORK/one/results.json"

# What is wrong with a comparison is said before anything runs, each at its place.
cat >"$WORK/bad.yaml" <<JOB
version: 1
base: base.yaml
arms:
  a: {quantize.bits: 9}
  b: {calibrate.samples: 3}
  c: {model: packed, quantize: {use: rtn}}
  d: {modle: packed}
  e.f: {model: absent}
measure: {perplexity: {text: $DEMO/held-out.txt}}
pairs: [[a, z]]
fail_if: ["kl.maen > 3", "kl.mean = 3", "a/b.delta.low > 0"]
aims: {}
JOB
fails "what is wrong in eleven places" 2 'bad.yaml:4:*' compare bad.yaml --out bad
ok "each at its place, with what it is about" failure '.diagnostics | map("\(.line):\(.column) \(.object)") | 
    . == ["4:22 bits", "5:7 calibrate.samples", "6:6 c", "7:7 modle", "8:3 e.f", "8:3 e.f", "10:13 z", "11:11 kl.maen > 3",
        "11:26 kl.mean = 3", "11:41 a/b.delta.low > 0", "12:1 aims"]'
ok "nothing ran" test ! -e "$WORK/bad"
sed 's/^pairs:.*/pairs: [[two, two]]/; /^fail_if/d' "$WORK/ab/ab.yaml" >"$WORK/ab/twice.yaml"
fails "an arm against itself" 2 'ab/twice.yaml:14:9' compare ab/twice.yaml --out bad
printf 'version: 1\nbase: absent.yaml\narms: {a: {set: {}}}\n' >"$WORK/orphan.yaml"
fails "no base" 2 'orphan.yaml:1:1' compare orphan.yaml
printf 'version: 1\nbase: long.yaml\narms: {a: {set: {}}}\n' >"$WORK/nested.yaml"
fails "a base that is a comparison" 2 'nested.yaml:1:1' compare nested.yaml

# Base files of llama-perplexity
text=(--text "$DEMO/held-out.txt" --protocol llamacpp-512 --window 64 --max-windows 6)
run eval "$STORIES" "${text[@]}" --save-kld base.kld --json
ok "a base file is written" test "$rc" = 0
cp "$WORK/out" "$WORK/plain"
# 8 + 12, 6 windows of 64 tokens, rows of 512 + 4 words
ok "as long as its header says" test "$(stat -c %s "$WORK/base.kld")" = $((20 + 6 * 64 * 4 + 6 * 31 * 2 * 516))
run eval "$STORIES" --against base.kld --json
ok "it is read" test "$rc" = 0
ok "a model does not differ from its own file by more than 16 bits do" json --slurpfile p "$WORK/plain" \
    '(.kl.mean | fabs) < 1e-5 and .kl.max < 3e-4 and .top1 > 0.98 and .perplexity == $p[0].perplexity and (.delta.mean | fabs) < 1e-3' "$WORK/out"
# One that llama-perplexity wrote; it printed 33.7378 and keeps its cache in F16 (tests/golden/kld)
run eval @demo --against "$ROOT/tests/golden/kld/demo-16.kld" --json
ok "llama.cpp's file has llama.cpp's perplexity" json \
    '(.perplexity / 33.7378 - 1 | fabs) < 3e-4 and (.kl.mean | fabs) < 5e-5 and .kl.max < 5e-4 and .tokens == 14' "$WORK/out"
head -c 3000 "$DEMO/held-out.txt" >"$WORK/first.txt"
run eval @demo --text first.txt --protocol llamacpp-512 --window 16 --max-windows 2 --save-kld ours.kld --json
# 20 bytes of header; of the tokens all but the first of each window, which is BOS already in ours
ok "ours begins alike" cmp <(head -c 20 "$WORK/ours.kld") <(head -c 20 "$ROOT/tests/golden/kld/demo-16.kld")
for at in 24 88; do
    ok "and has the same tokens at byte $at" cmp <(tail -c +$((at + 1)) "$WORK/ours.kld" | head -c 60) \
        <(tail -c +$((at + 1)) "$ROOT/tests/golden/kld/demo-16.kld" | head -c 60)
done
ok "and is as long" test "$(stat -c %s "$WORK/ours.kld")" = "$(stat -c %s "$ROOT/tests/golden/kld/demo-16.kld")"
run convert @demo -o demo.gguf --to gguf
run eval @demo --text first.txt --protocol llamacpp-512 --window 16 --max-windows 2 --against demo.gguf --json
ok "a tokenizer in another file that means the same is the same" json '.kl.max == 0 and .top1 == 1' "$WORK/out"
cat >"$WORK/kld.yaml" <<JOB
version: 1
base: base.yaml
arms: {a: {quantize.bits: 4}}
measure: {base: base.kld}
JOB
run compare kld.yaml --out kld
ok "a comparison takes it as its reference" json \
    ".results.compare.reference == \"base.kld\" and ($arms .original.kl.mean < 1e-5 and .a.kl.mean > .original.kl.mean)" "$WORK/kld/results.json"
head -c 5000 "$WORK/base.kld" >"$WORK/short.kld"
fails "a file that ends early" 2 'short.kld' eval "$STORIES" --against short.kld
fails "another vocabulary" 2 'base.kld' eval @demo --against base.kld
printf '_logitz_' >"$WORK/no.kld"
fails "no such file" 2 'no.kld' eval "$STORIES" --against no.kld
fails "another protocol" 2 '' eval "$STORIES" --text "$DEMO/held-out.txt" --save-kld new.kld
ok "no half file" test -z "$(find "$WORK" -maxdepth 1 -name '*new.kld*')"

# Multiple choice: what the model has written itself is likelier than what it has not.
run generate "$STORIES" --prompt "Once upon a time" --max-tokens 6 --greedy --json
said=$(jq -r .text "$WORK/out")
jq -nc --arg s "$said" '{context: "Once upon a time", choices: ["; zq xk vj wq 7", $s], answer: 1}' >"$WORK/q.jsonl"
jq -nc --arg s "$said" '{question: "Once upon a time", choices: [$s, "; zq xk vj wq 7"], gold: "B"}' >>"$WORK/q.jsonl"
run eval "$STORIES" --choices q.jsonl --against packed --json
ok "questions are asked" test "$rc" = 0
ok "one of two" json '.choices | .right == 1 and .questions == 2 and .accuracy == 0.5 and .low < 0.1 and .high > 0.9
    and .p == 1 and .only_arm == 0 and .only_reference == 0 and .normalized.right == 1' "$WORK/out"
run eval "$STORIES" --choices q.jsonl
ok "for people" grep -q '^accuracy 50.00 %.*1 of 2' "$WORK/out"

# The same questions to several arms: text that goes on, beside the same text with its words turned round.
grep -m 24 -E '.{90}' "$DEMO/held-out.txt" | jq -cR '.[40:90] as $right |
    {context: .[0:40], choices: [($right | split(" ") | reverse | join(" ")), $right], answer: 1}' >"$WORK/many.jsonl"
cat >"$WORK/ask.yaml" <<JOB
version: 1
base: base.yaml
arms: {two: {quantize.bits: 2}, three: {quantize.bits: 3}, disk: {model: packed2}}
measure: {choices: many.jsonl}
fail_if: ["two.choices.accuracy > 0.99", "choices.p_holm < 0"]
JOB
run quantize "$STORIES" --use rtn --bits 2 --group 32 -o packed2
run compare ask.yaml --out ask --json
ok "questions to several arms: exit code 0, got $rc" test "$rc" = 0
cp "$WORK/out" "$WORK/asked"
ok "every arm was asked everything" json '[.results.compare.arms[].choices.questions] == [24, 24, 24, 24]' "$WORK/asked"
ok "the same weights answer the same" json "$arms [.two, .disk | .choices] | .[0] == .[1]" "$WORK/asked"
ok "marks stay in the job folder" json '[.. | objects | select(has("marks"))] == []' "$WORK/asked"
run eval packed2 --choices many.jsonl --against "$STORIES" --json
ok "as eval finds it" json --slurpfile c "$WORK/asked" \
    '(.choices | del(.file, .file_hash)) == ($c[0].results.compare.arms[1].choices | del(.p_holm))' "$WORK/out"
# McNemar's test by its definition: 2^-n times the binomial coefficients up to the smaller count, twice
jq -r '.results.compare.arms[1:][].choices | [.only_arm, .only_reference, .p] | @tsv' "$WORK/asked" |
    awk '{ n = $1 + $2; m = $1 < $2 ? $1 : $2; c = 1; s = 0
           for (i = 0; i <= m; i++) { s += c; c = c * (n - i) / (i + 1) }
           p = 2 * s / 2 ^ n; p = p > 1 ? 1 : p; bad += !((p - $3) ^ 2 < 1e-20) }
         END { exit !(NR == 3 && bad == 0) }' && exact=0 || exact=1
ok "p is McNemar's" test "$exact" = 0
ok "and corrected: the smallest of three by three" json '.results.compare.arms[1:] | map(.choices) | sort_by(.p) |
    (.[0].p_holm - ([3 * .[0].p, 1] | min) | fabs) < 1e-12 and ([.[] | .p_holm >= .p] | all)' "$WORK/asked"
ok "the table has it" test "$(run compare ask.yaml --out ask && grep -c 'only this arm right' "$WORK/out")" = 3
echo '{"context": "a", "choices": ["b"], "answer": 0}' >"$WORK/q1.jsonl"
fails "one choice" 2 'q1.jsonl:1' eval "$STORIES" --choices q1.jsonl
printf '\n{"context": "a", "choices": ["b", "c"], "answer": 2}\n' >"$WORK/q2.jsonl"
fails "no such answer" 2 'q2.jsonl:2' eval "$STORIES" --choices q2.jsonl
fails "text and questions" 2 'eval' eval "$STORIES" --choices q.jsonl --text q.jsonl
: >"$WORK/q3.jsonl"
echo '{"context": "a", "choices": ["b", ""], "answer": 0}' >"$WORK/q4.jsonl"
fails "an empty choice" 2 'q4.jsonl:1' eval "$STORIES" --choices q4.jsonl
head -c 8000 "$DEMO/held-out.txt" | jq -Rsc '{context: ., choices: ["a", "b"], answer: 0}' >"$WORK/q5.jsonl"
run eval "$STORIES" --choices q5.jsonl
ok "a question that is cut is told of" test "$rc" = 0 -a "$(grep -c 'warning: .*\b1 of 1\b' "$WORK/err")" = 1
fails "no question" 2 'q3.jsonl' eval "$STORIES" --choices q3.jsonl

# ---- one window: no interval, and no "nan" in its place --------------------------------------
cat >"$WORK/window.yaml" <<JOB
version: 1
model: $STORIES
arms: {rtn: {quantize: {use: rtn, bits: 4, group: 32}}}
measure: {kl: true, perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, window: 64, max_windows: 1}}
JOB
run compare window.yaml --out window
ok "one window: exit code 0, got $rc" test "$rc" = 0
ok "one window: a divergence without an error" grep -qE '^rtn .* 0\.[0-9]{6}  +' "$WORK/out"
ok "one window: nothing is nan" test "$(grep -ciE '\bnan\b' "$WORK/out")" = 0

finish
