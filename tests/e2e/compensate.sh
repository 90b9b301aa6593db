#!/bin/bash
# tests/e2e/compensate.sh TESSERA - residuals into a packed model, perplexity that falls with what is added back,
# the same bytes from a prepacked file; what does not fit is said in one sentence.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
TEXT=$DEMO/calibration.txt
HELD=$DEMO/held-out.txt
TOKENS=1,403,407,261,378,44,9

run quantize "$DEMO" -o packed --use rtn --bits 3 --group 128
ok "quantize: exit code 0, got $rc" test "$rc" = 0
fails "no residuals yet" 2 'packed' eval packed --text "$HELD" --compensate 8
fails "a model that is not packed" 2 '*/configs/demo' logits "$DEMO" --tokens 1 -o x --compensate 8
fails "no packed folder" 2 '--packed */configs/demo:1:12' compensate "$DEMO" --packed "$DEMO" --text "$TEXT" -o j
fails "no text" 2 '' compensate "$DEMO" --packed packed -o j
fails "another original" 2 'packed/packed.json' \
    compensate "$STORIES" --packed packed --text "$TEXT" --samples 1 --seqlen 16 -o j2
fails "no packed model" 2 '' compensate "$DEMO" --text "$TEXT" -o j
ok "nothing was left behind" test ! -e "$WORK/packed/compensation.json"

run compensate "$DEMO" --packed packed --text "$TEXT" --samples 8 --seqlen 64 -o j --json
ok "compensate: exit code 0, got $rc" test "$rc" = 0
ok "its report" json '.results.compensate | .linears == 42 and .bits == 4 and .bytes > 1700000 and .tokens == 512
    and .compensated_error < .squared_error / 100' "$WORK/j/results.json"
ok "the index" json '.format == "tessera.compensation/1" and .bits == 4' "$WORK/packed/compensation.json"
cp "$WORK/packed/compensation.safetensors" "$WORK/first"
run compensate "$DEMO" --packed packed --text "$TEXT" --samples 8 --seqlen 64 -o j3
ok "the same bytes again" cmp "$WORK/first" "$WORK/packed/compensation.safetensors"

# ppl K [OPTION...]: perplexity, per mille
ppl() {
    run eval packed --text "$HELD" --window 128 --max-windows 4 --json --compensate "$@"
    ok "eval --compensate $*: exit code 0, got $rc" test "$rc" = 0
    value=$(jq '.perplexity * 1000 | floor' "$WORK/out")
}
ppl 0
bare=$value
ppl 8
few=$value
ppl 128 --recall
many=$value
ok "perplexity falls with the channels: $bare, $few, $many" test "$bare" -gt "$few" -a "$few" -gt "$many"
ok "what was compensated" json '.compensation | .k == 128 and .select == "dynamic" and .positions == "all"
    and .tokens > 500 and .recall > 0.6 and .recall <= 1 and .host_bytes > 1700000' "$WORK/out"
ppl 128 --select random
ok "at random it falls less: $many, $value" test "$many" -lt "$value"
ppl 128 --positions decode
ok "no token of a text is generated" test "$value" = "$bare"
for way in exact static-meansq static-hessian; do
    ppl 32 --select $way
    ok "$way: $value of $bare" test "$value" -lt "$bare"
done

# What is generated is compensated, the prompt is not; the bytes do not depend on chunk or file.
run generate packed --tokens $TOKENS --max-tokens 6 --greedy --ignore-eos --json --compensate 64
ok "generate: exit code 0, got $rc" test "$rc" = 0
mv "$WORK/out" "$WORK/text"
run generate packed --tokens $TOKENS --max-tokens 6 --greedy --ignore-eos --json --compensate 64 --chunk 2
ok "generate in chunks: the same" cmp "$WORK/out" "$WORK/text"
run convert packed -o m.tsr --to prepacked
ok "convert: exit code 0, got $rc" test "$rc" = 0
run generate m.tsr --tokens $TOKENS --max-tokens 6 --greedy --ignore-eos --json --compensate 64
ok "generate from the file: the same" test "$(jq -c .tokens "$WORK/out")" = "$(jq -c .tokens "$WORK/text")"
run logits packed --tokens $TOKENS -o a.st --compensate 64
for isa in scalar avx2; do
    export TSR_ISA=$isa
    run logits m.tsr --tokens $TOKENS -o b.st --compensate 64 --step
    ok "logits of the file, $isa, step by step: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
    unset TSR_ISA
done
run logits packed --tokens $TOKENS -o c.st
ok "not those without" test "$(cmp -s "$WORK/a.st" "$WORK/c.st" || echo other)" = other
run inspect m.tsr --verify
ok "the file is whole" test "$rc" = 0

# What a device compensates.  Rows of 256 columns of 3 bits take 96 bytes and 8 for two groups, of 512 columns 192 and 12.
run inspect ./packed --json
ok "inputs and their bytes, on no device" json '.model.compensation | .bits == 4 and .device == null and .least_us == null
    and ([.sites[] | [.site, .first, .last, .bytes, .used]] == [["attn_in", 0, 5, 512 * 104, null], ["o_in", 0, 5, 256 * 104, null],
    ["ffn_in", 0, 5, 1024 * 104, null], ["down_in", 0, 5, 256 * 204, null]])' "$WORK/out"
# a device that reads 53,000 bytes in 4 us
sed 's,peak: 320 GB/s,peak: 13.25 GB/s,' "$ROOT/configs/devices/t4.yaml" >"$WORK/slow.yaml"
for model in ./packed m.tsr; do
    run inspect $model --profile slow.yaml --json
    ok "short linears are skipped, $model" json '.model.compensation | .device == "T4" and .least_us == 4 and
        [.sites[].used] == [true, false, true, false] and
        ([.sites[] | .us * 13.25e3 - .bytes | fabs] | max) < 1e-6 and .sites[1].why == "reading its weights takes 2.01 us, less than 4 us"' \
        "$WORK/out"
done
run inspect ./packed --profile slow.yaml
ok "in words" grep -q 'layers 0 to 5, down_in .* skipped: reading its weights takes 3.94 us, less than 4 us' "$WORK/out"
run inspect ./packed --profile "$ROOT/configs/devices/ryzen-9-7950x.yaml" --json
ok "a CPU skips nothing" json '.model.compensation | .least_us == null and [.sites[].used] == [true, true, true, true]' "$WORK/out"
fails "a profile for a model without residuals" 2 '*/configs/demo' inspect "$DEMO" --profile slow.yaml
fails "a profile for a plugin" 2 'rtn' inspect rtn --profile slow.yaml
fails "a profile for a list" 2 '--profile' inspect plugins --profile slow.yaml
fails "no profile" 2 'none.yaml' inspect ./packed --profile none.yaml

# k by layer and input, from a plan
cat >"$WORK/plan.yaml" <<'END'
format: tessera.plan/1
layers: 6
stages:
  - layers: 0-5
    schemes: [{layers: 0-5, bits: 3}]
    compensation: [{k: 64}, {tensors: "*down_proj", k: 16}, {layers: 2-3, tensors: "*self_attn.[qkv]_proj", k: 0}]
END
run eval packed --text "$HELD" --window 128 --max-windows 2 --compensate-plan plan.yaml --json
ok "a plan: exit code 0, got $rc" test "$rc" = 0
# of 256 and 512 channels: 16 + 16 + 16 + 8 in four layers, 16 + 16 + 8 in two
ok "its channels" json '.compensation | .k == null and .linears == 36 and .selected == .tokens * (4 * 56 + 2 * 40)' "$WORK/out"
# thread blocks, which change no result
sed 's/{k: 64}/{k: 64, blocks: 4}/' "$WORK/plan.yaml" >"$WORK/blocks.yaml"
mv "$WORK/out" "$WORK/before"
run eval packed --text "$HELD" --window 128 --max-windows 2 --compensate-plan blocks.yaml --json
ok "blocks of a plan: the same perplexity" test "$(jq .perplexity "$WORK/before")" = "$(jq .perplexity "$WORK/out")"
sed 's/{k: 64}/{k: 64}, {tensors: "*q_proj", k: 64, blocks: 4}/; s/, {layers: 2-3.*k: 0}//' "$WORK/plan.yaml" >"$WORK/torn-blocks.yaml"
fails "one launch with two numbers of blocks" 2 'torn-blocks.yaml' \
    eval packed --text "$HELD" --compensate-plan torn-blocks.yaml
sed 's/{k: 64}/{k: 64, blocks: -1}/' "$WORK/plan.yaml" >"$WORK/no-blocks.yaml"
fails "no number of blocks" 2 '*no-blocks.yaml*' eval packed --text "$HELD" --compensate-plan no-blocks.yaml
sed 's/\[qkv\]_proj/q_proj/' "$WORK/plan.yaml" >"$WORK/torn.yaml"
fails "linears that share an input" 2 'torn.yaml' \
    eval packed --text "$HELD" --compensate-plan torn.yaml
fails "two ways at once" 2 '' eval packed --text "$HELD" --compensate 8 --compensate-plan plan.yaml

# the same on ranks: whatever shares the work, the answers are those of one engine
for i in 1 2 3; do
    echo '{"custom_id": "r'$i'", "method": "POST", "url": "/v1/completions", "body": {"prompt": "The '$i'. time that a man came", "max_tokens": 10, "temperature": 0}}'
done >"$WORK/in.jsonl"
# ranks TP CODEC [COMPENSATION COMPENSATION]: a plan of two stages
ranks() {
    cat <<END
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 16, batch: 3, kv: f32}
micro_batches: {prefill: 2, decode: 2}
stages:
  - {layers: 0-2, node: n, device: a, tp: $1, schemes: [{layers: 0-2, bits: 3}], ${3:+compensation: [$3],}
     collective: {prefill: {codec: $2, algorithm: all-gather}, decode: {codec: $2, algorithm: all-gather}}}
  - {layers: 3-5, node: n, device: b, schemes: [{layers: 3-5, bits: 3}], ${4:+compensation: [$4]}}
END
}
# answers NAME OPTION...: NAME.jsonl without what is of the run alone
answers() {
    local name=$1
    shift
    run batch packed --input in.jsonl --output "$name.jsonl" "$@"
    ok "$name: exit code 0, got $rc" test "$rc" = 0
    jq -c '[.custom_id, .response.body.choices, .response.body.usage]' "$WORK/$name.jsonl" >"$WORK/$name.said"
}
each='{k: 64}, {tensors: "*down_proj", k: 16}'
last='{tensors: "*[qkv]_proj", k: 128}'
ranks 2 plain "$each" "$last" >"$WORK/two.yaml"
ranks 2 plain >"$WORK/bare.yaml"
ranks 2 int4_channel "$each" "$last" >"$WORK/lossy.yaml"
answers bare
answers one --set run.compensate_plan=two.yaml
ok "compensated answers are others" test "$(cmp -s "$WORK/bare.said" "$WORK/one.said" || echo other)" = other
answers two --set run.plan=two.yaml
ok "two stages, the first of two processes: the same" cmp "$WORK/one.said" "$WORK/two.said"
ok "what was compensated" json '.results.run | .compensation.linears == 30 and .compensation.tokens == 27 and
    .compensation.selected == 27 * (3 * (16 + 16 + 16 + 8) + 3 * 32) and (.ranks | length) == 3 and
    (.ranks | map(.residuals) | add) == .compensation.host_bytes and .ranks[2].residuals < .ranks[0].residuals' \
    "$WORK/two.jsonl.job/results.json"
# a chunk of 144 tokens would take 200,000 bytes
answers without --set run.plan=bare.yaml
ok "working memory is for a token of each sequence, not for a chunk" json --slurpfile was "$WORK/without.jsonl.job/results.json" '
    [.results.run.ranks, $was[0].results.run.ranks] | map(map(.peak)) | transpose | length == 3 and
    all(.[]; .[0] > .[1] and .[0] < .[1] + 32768)' "$WORK/two.jsonl.job/results.json"
answers threads --set run.plan=two.yaml --set run.ranks=threads
ok "ranks that are threads: the same" cmp "$WORK/one.said" "$WORK/threads.said"
answers same --set run.compensate=32
answers given --set run.plan=bare.yaml --set run.compensate=32
ok "k from the command line: the same" cmp "$WORK/same.said" "$WORK/given.said"
fails "rounded sums" 2 '' \
    batch packed --input in.jsonl --output no.jsonl --set run.plan=lossy.yaml
fails "a plan with k, and k" 2 'two.yaml' \
    batch packed --input in.jsonl --output no.jsonl --set run.plan=two.yaml --set run.compensate=8
fails "a plan with k for a model without residuals" 2 '*/configs/demo' \
    batch "$DEMO" --input in.jsonl --output no.jsonl --set run.plan=two.yaml

# the tuner: this device, then a table; the plan runs
run tune packed -o tuned --slower 1000 --repeats 2
ok "tune: exit code 0, got $rc" test "$rc" = 0
ok "what it found" json '.results.tune | .slower <= 10 and (.modules | length) == 4 and .lost < 1' "$WORK/tuned/results.json"
ok "its table" json '.format == "tessera.dec-profile/1" and .residual == 4 and all(.modules[]; .ms[0] | length == 1025)' "$WORK/tuned/dec-profile.json"
run eval packed --text "$HELD" --window 128 --max-windows 2 --compensate-plan tuned/tuned.yaml --json
ok "its plan runs" json '.compensation.selected > 0' "$WORK/out"
ok "its plan says what runs" json --slurpfile r "$WORK/tuned/results.json" --slurpfile e "$WORK/out" '
    .stages[0].predicted.residuals == $e[0].compensation.host_bytes and
    (.predicted.lost - $r[0].results.tune.lost | fabs) < 1e-8 and (.predicted.slower - $r[0].results.tune.slower | fabs) < 1e-7' "$WORK/tuned/tuned.yaml"
jq '{format, bits, host_gbps: 16, device_gbps: 192, modules: [
    {name: "qkv", inputs: 256, outputs: 512, base_ms: 1, blocks: [4, 8], ms: [[range(1025) | 1 + ([0, . - 30] | max) / 100], [range(1025) | 1 + ([0, . - 60] | max) / 100]]},
    {name: "down", inputs: 512, outputs: 256, base_ms: 2, blocks: [4], ms: [[range(1025) | 2 + ([0, . - 64] | max) / 50]]}]}' \
    "$WORK/tuned/dec-profile.json" >"$WORK/table.json"
# a clock that is off may say that all of it costs less than nothing
jq '.modules[].base_ms *= 1000' "$WORK/tuned/dec-profile.json" >"$WORK/noise.json"
run tune packed -o noise --slower 5 --profile noise.json
ok "a table below its base: $(tail -1 "$WORK/err")" json '.results.tune.slower == 0' "$WORK/noise/results.json"
run eval packed --text "$HELD" --window 128 --max-windows 2 --compensate-plan noise/tuned.yaml --json
ok "its plan runs, too" json '.compensation.selected > 0' "$WORK/out"
run tune packed -o tuned2 --slower 5.2 --profile table.json --plan plan.yaml
ok "a table: exit code 0, got $rc" test "$rc" = 0
# 3.156 ms: with 8 blocks 60 and 64 are free; together 67 take 3.13, 68 3.16; then qkv alone to 69
ok "what it found in it" json --slurpfile t "$WORK/table.json" '.results.tune | (.knee - $t[0].bits * 64 / 3 | fabs) < 1e-6 and .most_blocks == 8 and .common == 67
    and [.modules[].k] == [69, 67] and .slower <= 0.052' "$WORK/tuned2/results.json"
ok "the plan that was given" json '.stages[0].schemes == [{layers: "0-5", bits: 3}] and .stages[0].compensation[0].k == 69
    and .stages[0].compensation[3].k == 0 and .stages[0].predicted.residuals > 0 and .predicted.slower <= 0.052' "$WORK/tuned2/tuned.yaml"

# a table of other linears
while IFS='|' read -r name change facts; do
    jq "$change" "$WORK/table.json" >"$WORK/other.json"
    fails_with "a table, $name" 2 other.json "$facts" tune packed -o refused --profile other.json
done <<'WRONG'
other inputs|.modules[1].inputs = 2048|'down' .* 2048 .* 256 .* 512 .* 256\b
other outputs|.modules[0].outputs = 1536|'qkv' .* 256 .* 1536 .* 256 .* 512\b
wider weights|.bits = 4.24| 4[.]240 .* 3[.][0-9]+
wider residuals|.residual = 8| 8 .* 4\b
no such kind|.modules[0].name = "query"|'query'
one kind twice|.modules[1] = .modules[0]|'qkv'
WRONG
jq 'del(.bits, .host_gbps)' "$WORK/table.json" >"$WORK/unsaid.json"
run tune packed -o unsaid --slower 5.2 --profile unsaid.json
ok "what a table does not say is not compared, got $rc" json '[.results.tune.modules[].k] == [69, 67]' "$WORK/unsaid/results.json"
ok "why there is no knee" grep -q "the formula's knee: not known, the profile does not say the bits of its weights" "$WORK/out"
ok "in the results, too" json '.results.tune | .knee == null and (.knee_unknown | test("bits of its weights"))' "$WORK/unsaid/results.json"

# the largest channels of a layer, token by token
run outliers packed -o o1 --tokens 20 --at 3 --layer 2 --json
ok "outliers: exit code 0, got $rc" test "$rc" = 0
ok "errors fall to nothing, by magnitude sooner" json '.results.outliers | .layer == 2 and (.sites | map(.name)) == ["qkv", "o", "gate_up", "down"]
    and all(.sites[]; (.sorted | length) == 65 and (.random | length) == 65 and .sorted[0] > 0 and .sorted[64] == 0 and .random[64] == 0
        and ((.sorted[0] / .random[0] - 1) | fabs) < 1e-9 and .half_sorted < .half_random and .magnitude[0] >= .magnitude[64])' "$WORK/out"
ok "channels of 20 tokens" json '.results.outliers | (.large | length) == 20 and .count == 26 and all(.large[]; length == 26 and . == (unique))
    and .again >= 0 and .again <= 1 and .recall < 0.9' "$WORK/out"
fails "a token that is not there" 2 '--at 30:1:13' outliers packed -o o2 --tokens 20 --at 30
fails "no such layer" 2 '' outliers packed -o o2 --layer 6

# a job
printf '%s\n' '{"context": "The man went to the", "choices": ["house", "zzz"], "answer": 0}' \
    '{"context": "She was very", "choices": ["qqq", "good"], "answer": 1}' >"$WORK/questions.jsonl"
cat >"$WORK/job.yaml" <<END
version: 1
model: $DEMO
pipeline:
  - quantize: {use: rtn, bits: 3, group: 128}
  - compensate: {text: $TEXT, samples: 2, seqlen: 64, bits: 2}
  - eval: {text: $HELD, window: 128, max_windows: 2}
  - eval: {text: $HELD, window: 128, max_windows: 2, compensate: 128}
  - sweep: {text: $HELD, window: 128, max_windows: 2, channels: "0,64", select: "dynamic,random"}
  - compensate: {text: $TEXT, samples: 2, seqlen: 64}
  - sweep: {text: $HELD, window: 128, max_windows: 2, channels: "0,64", choices: questions.jsonl, targets: "300", repeats: 2, answers: 3}
  - outliers: {tokens: 10}
  - report: {html: report.html}
END
run run job.yaml --out job
ok "a job: exit code 0, got $rc" test "$rc" = 0
ok "its perplexities" json '.results | ."eval[2]".perplexity < .eval.perplexity and ."eval[2]".compensation.bits == 2' \
    "$WORK/job/results.json"

ok "questions and a target" json '.results."sweep[2]" | .decode_ms > 0 and (.points | length) == 3 and .points[2].decode_ms > 0
    and .points[2].decode_slower > -1 and all(.points[]; .choices.questions == 2 and .choices.accuracy >= 0.5)
    and .points[1].choices.p == 1' "$WORK/job/results.json"
ok "answers beside the original's" json '.results."sweep[2]".points | (.[0].agreement > 0.2 and .[0].agreement < 1) and
    .[1].agreement > 0.2 and (.[1].agreement_delta.mean - (.[1].agreement - .[0].agreement) | fabs < 1e-6) and .[2].agreement == null' "$WORK/job/results.json"
ok "its page has five plots" test "$(grep -c "<svg.*compensated channels" "$WORK/job/report.html")" = 5
ok "and legends in them" test "$(grep -cE 'class="tick"[^>]*>(dynamic|random|3.24 bits, residuals of [24])</text>' "$WORK/job/report.html")" -ge 4
ok "and a line for each way to select" test "$(grep -c "perplexity with k: " "$WORK/job/report.html")" = 3
ok "and five of the largest channels" test "$(grep -cE "<svg.*(channels added back|The largest 5 %)" "$WORK/job/report.html")" = 5

# all of what little 8 bits lose, exactly: the original writes the same (its prompt alone is not compensated)
cat >"$WORK/near.yaml" <<END
version: 1
model: $DEMO
pipeline:
  - quantize: {use: rtn, bits: 8, group: 128}
  - compensate: {text: $TEXT, samples: 2, seqlen: 64, bits: 16}
  - sweep: {text: $HELD, window: 128, max_windows: 1, channels: "0,1024", answers: 3}
END
run run near.yaml --out near
ok "the original's answers: exit code 0, got $rc" test "$rc" = 0
ok "token by token" json '.results.sweep.points[1].agreement > 0.95' "$WORK/near/results.json"
# the paper's tables of it: one window has no intervals
jq '.results.sweep as $s | .results = {sweep: $s, "sweep[2]": $s, "sweep[3]": $s}' "$WORK/near/results.json" |
    jq -r --arg name rtn --slurpfile printed "$ROOT/configs/papers/qdec/printed.json" -f "$ROOT/tools/papers-compensation.jq" >"$WORK/tables.md"
ok "tables of one window: $(grep -c '^|' "$WORK/tables.md") rows" grep -q '^| 1024 | [0-9.]* | -*[0-9.e-]* |' "$WORK/tables.md"
ok "without empty intervals" test "$(grep -cE '\( to|null' "$WORK/tables.md")" = 0

if [ "${2:-whole}" = whole ]; then # builds with sanitizers take a minute for it
    # all of what any quantizer loses, in F16, is the original again, scales that were folded into norms and rows, too
    for way in "awq, group: 128" "gptq, group: 128" "squeeze, sensitivity: none"; do
        cat >"$WORK/whole.yaml" <<END
version: 1
model: $DEMO
pipeline:
  - calibrate: {text: $TEXT, samples: 2, seqlen: 64}
  - eval: {text: $HELD, window: 128, max_windows: 2}
  - quantize: {use: $way, bits: 3, rules: [{layers: "0,3,5", bits: 4}]}
  - compensate: {bits: 16}
  - eval: {text: $HELD, window: 128, max_windows: 2}
  - eval: {text: $HELD, window: 128, max_windows: 2, compensate: 1024}
END
        run run whole.yaml --out "whole-${way%%,*}"
        ok "${way%%,*} at 3.5 bits: exit code 0, got $rc" test "$rc" = 0
        # half a unit of F16 of the loss is 2^-12 of it: the perplexity moves by that share of what quantization moved it, about
        ok "with all of what it lost it is the original" json '.results | .eval.perplexity as $was | [.["eval[2]", "eval[3]"].perplexity - $was | fabs] |
            .[0] > 0.5 and .[1] < .[0] / 500' "$WORK/whole-${way%%,*}/results.json"
    done

    # outliers that vary by token: nothing changes but what rounding loses; a selection by token at k finds more of them
    # than a static one at 4k
    run add-outliers "$DEMO" -o outlier-model
    ok "add-outliers: exit code 0, got $rc" test "$rc" = 0
    fails "a folder that is there" 2 'outlier-model' add-outliers "$DEMO" -o outlier-model
    fails "a model without such neurons" 2 '*/tests/golden/models/phi3' add-outliers "$ROOT/tests/golden/models/phi3" -o none
    run eval "$DEMO" --text "$HELD" --window 128 --max-windows 2 --json
    mv "$WORK/out" "$WORK/before"
    run eval outlier-model --text "$HELD" --window 128 --max-windows 2 --json
    ok "as good as before" json --slurpfile b "$WORK/before" '(.perplexity / $b[0].perplexity - 1) | fabs < 1e-3' "$WORK/out"
    run quantize outlier-model -o outliers --use rtn --bits 3 --group 128
    run compensate outlier-model --packed outliers --text "$TEXT" --samples 8 --seqlen 64 -o j4
    run sweep outliers -o swept --text "$HELD" --window 128 --max-windows 8 --channels 0,16,64 --select dynamic,static-hessian \
        --targets 300 --repeats 2
    ok "sweep: exit code 0, got $rc" test "$rc" = 0
    ok "perplexity falls with the channels" json '[.results.sweep.points[] | select(.select == "dynamic").perplexity] |
        length == 3 and .[0] > .[1] and .[1] > .[2]' "$WORK/swept/results.json"
    ok "said with its statistics" json '.results.sweep.trends | length == 2 and .[0].select == "dynamic" and .[0].verdict == "falls"
        and .[0].proven == 0 and .[0].slope.high < 0 and (.[0].steps | length) == 2 and .[1].select == "static-hessian"' \
        "$WORK/swept/results.json"
    ok "and printed" grep -q "dynamic, perplexity with k: falls; nll -.* a step (p .*), higher at 0 of 2 steps, at 0 beyond chance" "$WORK/out"
    ok "by token at 16 beats static at 64" json '.results.sweep.quarter | length == 1 and .[0].k == 16 and .[0].against_k == 64
        and .[0].delta.mean < 0 and .[0].delta.p < 0.01' "$WORK/swept/results.json"
    ok "a target" json '.results.sweep.points[-1] | .target == 300 and .slower <= 3 and .perplexity > 0' "$WORK/swept/results.json"
    fails "answers without an original" 2 '' \
        sweep outliers -o s3 --text "$HELD" --window 128 --max-windows 1 --answers 2
    fails "channels that do not begin with 0" 2 '--channels 8,16:1:7' sweep outliers -o s2 --text "$HELD" --channels 8,16
fi

# what a killed run left beside the residuals
touch "$WORK/packed/.compensation.old.lock"
run compensate "$DEMO" --packed packed --text "$DEMO/calibration.txt" --samples 2 --seqlen 16 -o relocked
ok "a lock that a killed run left is taken away: exit $rc" test "$rc" = 0 -a ! -e "$WORK/packed/.compensation.old.lock"

# damage
printf 'x' | dd of="$WORK/packed/compensation.safetensors" bs=1 seek=100000 conv=notrunc 2>/dev/null
fails "another byte" 2 'packed/compensation.safetensors' logits packed --tokens 1 -o x --compensate 8
cp "$WORK/first" "$WORK/packed/compensation.safetensors"
run quantize "$DEMO" -o packed --use rtn --bits 4 --group 128 --again
ok "quantized again: the residuals are gone" test ! -e "$WORK/packed/compensation.json"

finish
