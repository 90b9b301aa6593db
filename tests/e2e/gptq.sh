#!/bin/bash
# tests/e2e/gptq.sh TESSERA [small] - gptq on the demo model: better than rounding to nearest at 4 and
# 3 bits, and the same weights for any number of threads.  small (sanitized builds): not the former.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

compare() {
    # Every figure here is a function of model, texts and options alone, so a fixed part of the text
    # does; TSR_TEST_ALL takes all of it.
    local windows=6 arms='' bits group use better
    [ -z "${TSR_TEST_ALL:-}" ] || windows=1000
    for bits in 3 4; do
        for group in 64 128; do
            for use in rtn gptq; do
                arms+="        $use-$bits-$group: {quantize: {use: $use, bits: $bits, group: $group}}"$'\n'
            done
        done
    done
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: "@demo"
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 32, seqlen: 256}
  - compare:
      arms:
$arms      measure:
        perplexity: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: $windows}
JOB
    run run job.yaml --out job
    ok "the comparison succeeds, got $rc" test "$rc" = 0
    better='. as $r | [3, 4] | all(. as $b | [64, 128] | all(. as $g |
        [$r.results.compare.arms[] | {(.name): .}] | add |
        (.["gptq-\($b)-\($g)"] | what) < (.["rtn-\($b)-\($g)"] | what)))'
    ok "nearer to the original than rtn at every width" json "def what: .kl.mean; $better" "$WORK/job/results.json"
    ok "lower perplexity than rtn at every width" json "def what: .perplexity; $better" "$WORK/job/results.json"
}
[ "${2:-}" = small ] || compare

# One thread or three: the same weights (the journal beside them has the seconds).
cat >"$WORK/pack.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 3, group: 32, rules: [{tensors: "*.v_proj", act_order: false}]}
JOB
for threads in 1 3; do
    run run pack.yaml --out "pack$threads" --threads $threads
    ok "with $threads threads it succeeds, got $rc" test "$rc" = 0
done
ok "threads do not show" diff -rq -x journal "$WORK/pack1/packed" "$WORK/pack3/packed"
TSR_ISA=scalar run run pack.yaml --out scalar
ok "nor do wide loops" diff -rq -x journal "$WORK/pack1/packed" "$WORK/scalar/packed"
ok "every linear costs less than rounding to nearest" json \
    '.results.quantize.linears | length == 35 and all(.loss < .rtn_loss and .loss > 0 and .damping == 0.01)' \
    "$WORK/pack1/results.json"

# One set of options serves rtn, too: the same weights as without those of the Hessian.  What is without effect is said
# once a step, whatever the number of linears, rules and steps that look at the options.
for use in rtn gptq; do
    run inspect $use --json
    cp "$WORK/out" "$WORK/$use.json"
done
ok "as gptq has them" json --slurpfile g "$WORK/gptq.json" '[., $g[0]] | map(.components[0].options |
    map(select(.name | IN("bits", "group", "symmetric", "mse", "act_order", "static_groups", "damp", "scale")) |
        {name, type, default, min, max}) | sort_by(.name)) | .[0] == .[1] and (.[0] | length) == 8' "$WORK/rtn.json"
cat >"$WORK/both.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 4, seqlen: 64}
  - quantize: {use: rtn, bits: 3, group: 32, to: plain, rules: [{layers: 2, bits: 4}]}
  - quantize: {use: rtn, bits: 3, group: 32, act_order: false, static_groups: true, damp: 0.05, to: rtn, rules: [{layers: 2, bits: 4}]}
  - quantize: {use: gptq, bits: 3, group: 32, act_order: false, static_groups: true, damp: 0.05, to: gptq}
  - quantize: {use: gptq, bits: 3, group: 32, mse: true, to: mse, rules: [{layers: 2, bits: 4}]}
  - quantize: {use: gptq, bits: 3, group: 32, mse: true, static_groups: true, to: effect}
JOB
run config check both.yaml
ok "options of both are options of rtn, got $rc" test "$rc" = 0
run run both.yaml --out both
ok "both: exit code 0, got $rc" test "$rc" = 0
ok "rtn says what is without effect, once" test "$(grep -c 'warning: rtn: .*\bact_order, static_groups, damp\b' "$WORK/err")" = 1
ok "gptq says that mse is, once" test "$(grep -c 'warning: gptq: .*\bmse\b' "$WORK/err")" = 1
ok "nothing else is said" test "$(grep -c 'warning: ' "$WORK/err")" = 2
# weights FILE: behind the head, which has the fingerprint
weights() { tail -c +$(($(od -An -tu8 -N8 "$1") + 9)) "$1"; }
for file in "$WORK"/both/plain/layer-*.safetensors; do
    ok "the same weights: ${file##*/}" cmp <(weights "$file") <(weights "$WORK/both/rtn/${file##*/}")
done
ok "five layers" test "$(find "$WORK/both/plain" -name 'layer-*.safetensors' -size +20k | wc -l)" = 5

# What cannot work is one sentence.
cat >"$WORK/none.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - quantize: {use: gptq, bits: 3}
JOB
fails "no calibration" 2 'gptq' run none.yaml --out none -q
sed -i 's/bits: 3/bits: 3, params: range/' "$WORK/none.yaml"
fails "a range in the middle of a group" 2 'none.yaml:4:21' run none.yaml --out none -q
sed -i 's/params: range/alpha: 0.5/' "$WORK/none.yaml"
fails "a part of no correction" 2 'none.yaml:4:21' run none.yaml --out none -q

# The asymmetric target needs inputs after quantized layers; the first layer has none, and keeps its bytes.
for asymmetric in false true; do
    cat >"$WORK/target.yaml" <<JOB
version: 1
model: $STORIES
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 4, seqlen: 64}
  - quantize: {use: gptq, bits: 3, group: 32, sequential: true, asymmetric: $asymmetric}
JOB
    run run target.yaml --out "target-$asymmetric" --threads 3
    ok "sequential, asymmetric: $asymmetric: exit code 0, got $rc" test "$rc" = 0
done
layers() { find "$WORK/target-$1/packed" -maxdepth 1 -name 'layer-*.safetensors' | sort; }
same=()
while read -r a && read -r b <&3; do
    cmp -s <(weights "$a") <(weights "$b") && same+=("$(basename "$a" .safetensors)")
done < <(layers false) 3< <(layers true)
ok "the first layer alone is the same: ${same[*]}" test "${same[*]}" = layer-00000
ok "every linear costs less than rounding to nearest" json \
    '.results.quantize.linears | length == 35 and all(.loss < .rtn_loss and .loss > 0)' "$WORK/target-true/results.json"
sed -i 's/sequential: true, //' "$WORK/target.yaml"
fails "no sequential calibration" 2 "target.yaml:5: step 'quantize'" run target.yaml --out none -q
finish
