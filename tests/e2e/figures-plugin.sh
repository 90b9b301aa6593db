#!/bin/bash
# tests/e2e/figures-plugin.sh TESSERA FIGURES FOREIGN.so - what `plugin check` and `add-outliers` count, what a fleet's plan adds up and the
# shares of a profile, computed again: from the list of rules, the headers of the model, the files of the copies, the points.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FOREIGN=$(readlink -f "$3")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
tensors "$ROOT/configs/demo/model.safetensors" >demo

# ---- plugin check: counts of the rules, figures of eval on the same text
run plugin check "$FOREIGN" --json
ok "plugin check succeeds, got $rc" test "$rc" = 0
cp out check.json
ok "plugin check: counts of the rules by verdict" json '. as $c | (.rules | length) > 50 and
    ([.rules[].verdict] | group_by(.) | map({(.[0]): length}) | add) as $n | $c.passed == ($n.passed // 0) and
    $c.failed == ($n.failed // 0) and $c.skipped == ($n.skipped // 0) and $c.warnings == ($n.warning // 0) and
    .passed + .failed + .skipped + .warnings == (.rules | length)' check.json
head -c 24576 "$ROOT/configs/demo/held-out.txt" | sed '$d' >text.txt
run quantize @demo --use foreign --plugin-path "$FOREIGN" -o own
run eval own --plugin-path "$FOREIGN" --text text.txt --protocol llamacpp-512 --against @demo --json
ok "eval succeeds, got $rc" test "$rc" = 0
# a byte for each of 3,538,944 weights, and an F32 for each of 12,288 rows
ok "plugin check: figures of the model" json --slurpfile e out '.models | length == 1 and (.[0] | (.bits_per_weight - 8 * 3588096 / 3538944 | fabs) < 1e-9 and
    (.perplexity / $e[0].perplexity - 1 | fabs) < 1e-6 and (.kl_mean / $e[0].kl.mean - 1 | fabs) < 1e-6 and .top1 == $e[0].top1)' check.json
run eval @demo --text text.txt --protocol llamacpp-512 --json
ok "plugin check: of the original" json --slurpfile e out '.models[0].original_perplexity / $e[0].perplexity - 1 | fabs < 1e-6' check.json

# ---- add-outliers: three neurons for each triple in every layer's feed-forward; their columns add up to zero
run add-outliers @demo -o outlier-model --triples 16 --json
ok "add-outliers succeeds, got $rc" test "$rc" = 0
tensors outlier-model/model.safetensors >outlier-model.json
ok "add-outliers: neurons of its triples" json -s --slurpfile d demo '($d | map({(.name): .shape}) | add) as $was | map(select(.name | test("mlp"))) |
    length == 18 and all(.[]; (.name | test("down")) as $down | .shape[if $down then 1 else 0 end] == $was[.name][if $down then 1 else 0 end] + 3 * 16)' outlier-model.json
ok "add-outliers: as its configuration" test "$(jq .intermediate_size outlier-model/config.json)" = $(($(jq .intermediate_size "$ROOT/configs/demo/config.json") + 48))
ok "add-outliers: and as it prints" test "$(jq .triples out)" = 16

# ---- a fleet: sums over copies, each of which is a file
mkdir devices clusters
cat >devices/small.yaml <<'DEVICE'
format: tessera.device/1
name: small
memory: {total: 400 KiB, source: made up}
bandwidth: {peak: 6 GB/s, source: made up}
kernels:
DEVICE
for k in f16 bf16 f32 int4; do
    echo "  - {kernel: $k, ops: 800 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
done >>devices/small.yaml
sed 's/small/large/; s/400 KiB/4 MiB/; s/6 GB/3 GB/; s/800/400/' devices/small.yaml >devices/large.yaml
{
    printf 'version: 1\nnodes:\n'
    for i in 0 1 2 3 4 5 6 7 8; do
        printf '  - {name: n%d, devices: [{profile: %s}], link: {bandwidth: 10 GB/s, latency: 5 us}}\n' $i "$([ $i -lt 6 ] && echo small || echo large)"
    done
    echo 'network: {bandwidth: 1 GB/s, latency: 20 us}'
} >clusters/nine.yaml
cat >fleet.yaml <<JOB
version: 1
model: $STORIES
cluster: clusters/nine.yaml
workload: {prompt: 32, generate: 16, batch: 40}
pipeline:
  - plan: {use: rtn, group: 32, bits: [4, 16]}
JOB
run plan fleet.yaml -o p.yaml --json
ok "a fleet: succeeds, got $rc" test "$rc" = 0
cp out fleet.json
# each file is a plan of its own requests: price it, then add up
for file in $(jq -r '.fleet.kinds[].file' fleet.json); do
    run plan fleet.yaml --check "$file" --json
    jq '.plan | {latency_ms, objective_ms, tokens_per_second, stages: (.stages | length)}' out
done | jq -s . >copies.json
ok "a fleet: two kinds of copies at least" json 'length >= 2' copies.json
ok "a fleet: its sums" json --slurpfile c copies.json '.fleet | . as $f | [.kinds, $c[0]] | transpose | map({copies: .[0].copies, batch: .[0].batch,
        nodes: (.[0].nodes | length), plan: .[1]}) | ([.[].plan.latency_ms] | max) as $slowest |
    ([.[] | .copies * .batch] | add) == 40 and ([.[].copies] | add) == $f.copies and all(.[]; .copies == .nodes) and
    ([$f.kinds[].nodes[][]] | unique | length) == $f.nodes_used and ($f.latency_ms / $slowest - 1 | fabs) < 1e-6 and
    ($f.tokens_per_second / (40 * 16 / $slowest * 1000) - 1 | fabs) < 1e-6 and
    ($f.objective_ms / ([.[].plan.objective_ms] | max) - 1 | fabs) < 1e-6 and
    all(.[]; (.plan.tokens_per_second / (.batch * 16 / .plan.latency_ms * 1000) - 1 | fabs) < 1e-6)' fleet.json

# ---- a profile: shares of the peaks from the points in the file
run profile -o here.yaml --model @demo --scheme original --scheme rtn:bits=4 --quick --repeats 1 --rounds 1 --positions 64 --sequences 4
ok "profile succeeds, got $rc" test "$rc" = 0
LAYER=$(jq -s 'map(select(.name | test("layers[.]0[.].*_proj")) | .shape[0] * .shape[1]) | add' demo)
# 4 bits, and for each group of 128 a scale of 2 bytes and a zero point: what is read of a layer, without the files' padding
echo '{"bf16": 2, "int4": 0.5234375}' >widths.json
# [{kernel, ops, prefill, decode, width, points}]; ops in units of the file
awk '/^kernels:/ { part = "k" } /^layers:/ { part = "l" } /^ends:/ { part = "" }
    part && /kernel:/ { kernel = $3 }
    part == "k" && /ops: [0-9]/ { unit["M"] = 1e6; unit["G"] = 1e9; unit["T"] = 1e12
        printf "{\"kernel\": \"%s\", \"ops\": %s}\n", kernel, $2 * unit[substr($3, 1, 1)] }
    part == "k" && /compute:/ { gsub(/[{},]/, ""); sub(":", "", $1); printf "{\"kernel\": \"%s\", \"%s\": %s}\n", kernel, $1, $3 }
    part == "k" && /bytes_per_weight:/ { printf "{\"kernel\": \"%s\", \"width\": %s}\n", kernel, $2 }
    part == "l" && /source:/ { open = 0 }
    part == "l" && /(prefill|decode):/ { if (open) print "]}"; phase = $1; sub(":", "", phase); sub(/^ *[a-z]+: /, ""); text = $0
        while (getline > 0 && !/source:|decode:/) text = text $0
        printf "{\"kernel\": \"%s\", \"%s_points\": %s}\n", kernel, phase, text
        if (/decode:/) { sub(/^ *decode: /, ""); text = $0
            while (getline > 0 && !/source:/) text = text $0
            printf "{\"kernel\": \"%s\", \"decode_points\": %s}\n", kernel, text } }' here.yaml |
    jq -s 'group_by(.kernel) | map(add)' >profile.json
ok "profile: both kernels" json 'length == 2 and all(.[]; (.prefill_points | length) > 2 and (.decode_points | length) > 2)' profile.json
ok "profile: shares that are reached, and bytes of a weight" json --argjson w "$LAYER" --slurpfile width widths.json '
    def near($a; $b): ($a / $b - 1 | fabs) < 0.006; # three digits
    all(.[]; ([.prefill_points[] | 2 * $w * .[0] * .[1] / .[3] * 1000] | max) as $pre |
        ([.decode_points[] | 2 * $w * .[0] / .[2] * 1000] | max) as $dec |
        near(.prefill; [$pre / .ops, 1] | min) and near(.decode; [$dec / .ops, 1] | min) and near(.width; $width[0][.kernel]))' profile.json
finish
