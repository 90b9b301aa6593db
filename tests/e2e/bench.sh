#!/bin/bash
# tests/e2e/bench.sh TESSERA - bench measures every format, in three forms, and a random model.
# Sizes are tiny: what is tested is that the figures exist, not what they are.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

small=(--rows 64 --cols 320 --mib 4 --repeats 1)
run bench gemv "${small[@]}" --json
ok "gemv runs" test "$rc" = 0
ok "gemv measures five formats" test "$(jq length "$WORK/out")" = 5
ok "gemv gives times" jq -e 'all(.[]; .ms > 0 and .value > 0 and .probe > 0)' "$WORK/out"
run bench gemm "${small[@]}" --m 7 --bits 2,3,5 --act a16 --output csv
ok "gemm runs" test "$rc" = 0
ok "gemm prints a line per format" test "$(wc -l <"$WORK/out")" = 4
ok "gemm says what ran" grep -q '^gemm,int3,a16,64,320,7,' "$WORK/out"
# one round, so that the ratio of the round is that of the two times
run bench gemv "${small[@]}" --m 2,3 --bits 4,3 --threads 1 --json
ok "gemv measures several sizes of each format, got $rc" json '[.[] | .format, .m] ==
    ["int4", 2, "int4", 3, "int3", 2, "int3", 3]' "$WORK/out"
ok "gemv: tokens over the first size, none where another process had the cores" json 'def right:
    if .[0].counts and .[1].counts then .[0].tokens_over_first == 1 and
    (.[1].tokens_over_first / (3 / 2 * .[0].ms / .[1].ms) - 1 | fabs) < 1e-9
    else .[1].tokens_over_first == null end; (.[:2] | right) and (.[2:] | right)' "$WORK/out"
for act in f32 a16 a8; do
    run bench gemm "${small[@]}" --m 7 --formats fp8_block --act $act --output csv
    ok "gemm runs FP8 with scales of blocks, got $rc" grep -q "^gemm,fp8_block,$act,64,320,7," "$WORK/out"
done
run bench gemv "${small[@]}" --formats fp8_block --json
ok "and gemv, got $rc" json "all(.[]; .ms > 0)" "$WORK/out"
run bench gemm "${small[@]}" --m 2,5 --bits 4 --output csv
ok "gemm takes several sizes, too" grep -q '^gemm,int4,a8,64,320,5,' "$WORK/out"
ok "gemm: the ratio has a column" grep -q '^what,.*,busy,tokens_over_first$' "$WORK/out"
for m in 0 1,,4 "1," 65537 1,2,3,4,5,6,7,8,9; do
    fails "--m $m" 2 '--m' bench gemv "${small[@]}" --m "$m"
done
fails "--m 1,4 of syrk" 2 '--m' bench syrk "${small[@]}" --m 1,4
run bench e2e --shape tiny --layers 1 --prompt 5 --tokens 2 --repeats 1 --mib 4
ok "e2e runs a random model" test "$rc" = 0
ok "e2e prints prefill and decode" test "$(grep -cE '^\| (prefill|decode) ' "$WORK/out")" = 2
run bench e2e --shape tiny --layers 1 --prompt 5 --tokens 2 --repeats 1 --mib 4 --quantizer rtn:bits=3 \
    --checkpoint "$WORK/random" --json
ok "e2e packs it" test "$rc" = 0
ok "e2e with packed weights takes a8" jq -e 'all(.[]; .act == "a8")' "$WORK/out"
ok "--checkpoint keeps the model" test -s "$WORK/random/model.safetensors"
run quantize "$WORK/random" --use rtn --bits 4 -o random4
run bench e2e "$WORK/random4" --prompt 5 --tokens 2 --repeats 1 --mib 4 --json
ok "so does a packed folder, got $rc" json 'length == 2 and all(.[]; .act == "a8" and (.format | startswith("tessera")))' "$WORK/out"
run bench e2e "$WORK/random" --prompt 5 --tokens 2 --repeats 1 --mib 4 --quantizer mx:element=fp5_e3m1 --json
ok "so do small floats, got $rc" json 'length == 2 and all(.[]; .act == "a8")' "$WORK/out"
run bench batch "$WORK/random4" --slots 5 --prompt 20 --tokens 4 --repeats 2 --mib 4 --json
ok "batch compares sequences with a prompt, got $rc" json 'length == 1 and (.[0] | .what == "batch" and .act == "a8" and .m == 5 and .rows == 20 and
    .cols == 4 and .value > 0 and .probe > 0)' "$WORK/out"
run bench dec "${small[@]}" --formats int3 --channels 64,256 --json
ok "dec runs" jq -e 'length == 6 and all(.[]; .unit == "%" or .value > 0) and
    [.[].what] == ["dec-64", "slower-64", "dec-256", "slower-256", "select-64", "select-256"]' "$WORK/out"
run bench dec "${small[@]}" --channels 64 --json
ok "dec without --formats: what compensation is for, got $rc" json 'map([.what, .format]) == [("int3", "int4") as $f |
    (("dec-64", "slower-64", "select-64") | [., $f])]' "$WORK/out"
run bench dec "${small[@]}" --bits 8 --channels 64 --json
ok "dec of --bits, got $rc" json 'map(.format) | unique == ["int8"]' "$WORK/out"
run bench dec --shape tiny --layers 1 --prompt 5 --tokens 2 --repeats 1 --mib 4 --channels 64,256 --json
ok "dec runs whole steps, got $rc" json 'length == 4 and all(.[]; (.unit == "%" or .value > 0) and .rows == 256) and
    [.[].what] == ["decode-64", "slower-64", "decode-256", "slower-256"] and .[1].probe > 0 and
    .[3].probe > 2 * .[1].probe' "$WORK/out"
fails "dec of no folder" 2 '/nowhere' bench dec /nowhere
fails "channels of more than 1024" 2 '--channels' bench dec "${small[@]}" --formats int3 --channels 1025
fails "residuals of 3 bits" 2 '--residual' bench dec "${small[@]}" --formats int3 --residual 3
run bench experts --mib 4 --hidden 320 --ffn 96 --used 2 --bits 4,3 --repeats 1 --json
ok "experts runs, got $rc" json 'map([.what, .format]) == [("int4", "int3") as $f | ("gemv", "feed_forward", "experts", "apart") | [., $f]] and
    all(.[]; .value > 0 and .probe > 0 and .unit == "GB/s")' "$WORK/out"
run bench experts --mib 4 --hidden 320 --ffn 96 --used 2 --repeats 1 --output csv
ok "experts: a ratio to gemv" grep -q '^what,.*,busy,tokens_over_first$' "$WORK/out"
fails "more experts than fit" 2 '--mib' bench experts --mib 1 --hidden 4096 --ffn 4096 --used 8
shape=(--mib 4 --heads 6 --kv-heads 2 --head-dim 40 --repeats 1)
run bench attention "${shape[@]}" --positions 40,300 --m 1,3 --formats f32,f16,int8,fp8,int4 --json
ok "attention runs on every type of a cache, got $rc" json '[.[] | .format, .rows, .m] ==
    [("f32", "f16", "int8", "fp8", "int4") as $f | (40, 300) as $p | (1, 3) as $m | $f, $p, $m] and
    all(.[]; .what == "attention" and .cols == 80 and .group == 3 and .value > 0 and .probe > 0 and .unit == "GB/s")' "$WORK/out"
# keys and values of 300 positions: 2 heads of 40 numbers in F16, and in 8 bits with a scale
ok "attention counts the bytes that it reads" json 'map(select(.rows == 300)) | all(.[] | select(.format == "f16");
    (.value * .ms * 1e6 / (.m * 300 * 2 * 2 * 80) - 1 | fabs) < 1e-9) and all(.[] | select(.format == "int8");
    (.value * .ms * 1e6 / (.m * 300 * 2 * 2 * 44) - 1 | fabs) < 1e-9)' "$WORK/out"
fails "attention: heads that do not share evenly" 2 '--heads' bench attention "${shape[@]}" --kv-heads 4
fails "attention: no type of a cache" 2 '--formats' bench attention "${shape[@]}" --formats bf16
fails "attention: positions" 2 '--positions' bench attention "${shape[@]}" --positions 0
run bench syrk "${small[@]}" --m 9 --json
ok "syrk runs" jq -e 'length == 1 and all(.[]; .what == "syrk" and .value > 0 and .m == 9)' "$WORK/out"
run bench cholesky "${small[@]}" --json
ok "cholesky runs" jq -e 'length == 1 and all(.[]; .value > 0 and .probe > 0)' "$WORK/out"
run bench encode --repeats 1 --json
ok "encode runs" jq -e 'length > 8 and all(.[]; .value > 0 and .threads == 1)' "$WORK/out"
run bench plan splitquant-7 --json
ok "plan runs, got $rc" test "$rc" = 0
# the other six are devices alone, which do not hold the model: no solver sees them
ok "plan: two objectives, two ways to say what quality is worth, each with a plan" json '(.cases | length) == 4 and
    ([.cases[] | .objective + " " + .quality] | unique | length) == 4 and .fleet == null and
    all(.cases[]; .objective_ms > 0 and .gap >= 0 and .gap <= 1e-4 and .cpu_s > 0 and .instances == 1)' "$WORK/out"
run bench plan "$ROOT/tests/golden/planner/example-steady.json" --repeats 3 --json
ok "plan: one problem, solved again and again" json '.status == "optimal" and .solves == 3 and .solver == "exact" and
    (.objective - 24 | fabs) < 1e-6 and .bound <= .objective and .first_s > 0 and .least_s > 0 and .median_s >= .least_s' "$WORK/out"
run bench plan "$ROOT/tests/golden/planner/infeasible-1.json" --repeats 1
ok "plan: a problem without a plan is one, too" grep -q '^infeasible-1 by exact: infeasible$' "$WORK/out"
fails "plan: a problem that is not there" 2 'none.json' bench plan none.json
fails "a cluster that is not there" 2 'llmpq-12' bench plan llmpq-12
if [ "${2:-whole}" = whole ]; then
    run bench plan fleet --json
    ok "plan: the fleet takes the whole batch, a node once, and its bound is near" json '.cases == [] and (.fleet |
        .gap >= 0 and .gap <= 1e-3 and .bound_ms <= .objective_ms and .cpu_s > 0 and
        ([.groups[] | .copies * .batch] | add) == 8192 and
        ([.groups[] | .copies * (.nodes | add)] | add) <= 125)' "$WORK/out"
fi
if [ -n "${TSR_TEST_ALL:-}" ]; then
    run bench plan --json
    ok "plan: 22 clusters proved, the papers' in 1 s for half of them and 10 s for all" json '
        (.cases | length) == 88 and all(.cases[]; .objective_ms > 0 and .gap <= 1e-4) and .median_s <= 1 and
        .max_s <= 10 and all(.cases[] | select(.cluster == "four-kinds"); .cpu_s <= 30) and .fleet.cpu_s <= 10' \
        "$WORK/out"
fi
run bench gemm "${small[@]}" --m 7 --formats bf16,int4 --repeats 1 --chart shares.svg
ok "a chart: exit code 0, got $rc" test "$rc" = 0
ok "a chart has both formats" test "$(grep -cE '>(bf16|int4)</text>' "$WORK/shares.svg")" = 2
ok "a chart is XML" python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$WORK/shares.svg"
fails "a chart of no formats" 2 '--chart' bench load --chart shares.svg
# bytes are exact: 3 of 4 ranks get 8 tokens of 256 features, coded whole, or in two hops of a quarter each
run bench comm --ranks 4 --sizes 1,8 --hidden 256 --repeats 1 --codecs "plain;mx;int4_bf16" --json
ok "comm runs, got $rc" test "$rc" = 0
ok "comm: every codec by every algorithm beside the ring, one choice, a link" json '(.sizes | length) == 2 and
    all(.sizes[]; (.ways | length) == 7 and ([.ways[] | select(.auto)] | length) == 1 and
        ([.ways[] | select(.best)] | length) == 1 and .link.mb_per_s > 0 and .link.alpha_us >= 0 and
        all(.ways[]; .us > 0 and (.algorithm == "ring" or .predicted_us > 0)))' "$WORK/out"
ok "comm: the bytes are those of the codecs" json '[.sizes[1].ways[].sent_bytes] ==
    [6144, 24576, 12288, 3264, 1632, 3216, 1632]' "$WORK/out"
run bench comm --ranks 2 --sizes 8 --hidden 256 --repeats 1 --codecs plain \
    --transport local:bandwidth=20,latency=500
ok "comm: a table and the cross-over" grep -q 'No codec beats plain' "$WORK/out"
# NVLink's figures, and a wire's: whatever the load, FP4 takes more than a copy, and less than such a wire
for link in "4,370000 plain" "50,1 mx"; do
    run bench comm --ranks 2 --sizes 128 --hidden 4096 --repeats 1 --link "${link% *}"
    ok "comm: over ${link% *} auto takes ${link#* }" grep -q "^128 tokens over .* predicted: auto takes ${link#* }[: ]" "$WORK/out"
done
fails "comm: a link of one number" 2 '--link' bench comm --link 4
fails "comm: a link without a rate" 2 '--link' bench comm --link 4,0
fails "comm: no codec of that name" 2 plane bench comm --codecs plane
fails "comm: no such option of a transport" 2 'local' bench comm --transport local:bandwith=3
fails "comm: sizes that are none" 2 '--sizes' bench comm --sizes 4,,5
run bench gemm "${small[@]}" --m 7 --formats bf16 --segment 320 --output csv
ok "gemm with one chain of sums runs" test "$rc" = 0
for segment in 100 32; do
    fails "--segment $segment of 320 columns" 2 '--segment' \
        bench gemm "${small[@]}" --formats bf16 --segment $segment
done
# ---- a table of all, and two of them compared
run bench suite "${small[@]}" --shape tiny --layers 1 --prompt 5 --tokens 2 --json
ok "suite: every kind, got $rc" json '[.[].what] | unique == ["cholesky", "decode", "encode", "gemm", "gemv", "prefill", "syrk"]' "$WORK/out"
ok "suite: rows differ in what they are about" json '[.[] | [.what, .format, .act, .unit, .rows, .cols, .m, .group]] | length == (unique | length)' "$WORK/out"
ok "suite: every row has its rounds and threads" json 'all(.[]; (.rounds | length) == 1 and .threads >= 1) and
    (map(select(.what == "gemv").threads) | unique) == (map(select(.what == "syrk").threads) | unique)' "$WORK/out"
run bench gemv "${small[@]}" --formats int4,int4z,int8z --group 64 --json
ok "gemv: formats with zero points have a group of their own" json '[.[] | [.format, .group]] == [["int4", 64], ["int4z", 64], ["int8z", 64]]' "$WORK/out"
fails "no zero points beyond 8 bits" 2 '--formats' bench gemv --formats int9z
run bench suite "${small[@]}" --formats int3 --output csv
ok "suite of one format" test "$(grep -cE '^gem[vm],int3,' "$WORK/out")" = 2
rows() { # SHARE COUNTS: two rows, the second of the given shares
    jq -n --argjson s "$1" --argjson c "$2" '[{what: "gemv", format: "int4", act: "a8", unit: "GB/s", rows: 64, cols: 64, m: 1, group: 128,
        device: "cpu", counts: true, value: 10, rounds: [0.90, 0.92, 0.91, 0.905, 0.915, 0.93, 0.895]},
        {what: "gemm", format: "int4", act: "a8", unit: "GOP/s", rows: 64, cols: 64, m: 9, group: 128, device: "cpu", counts: $c,
        value: 20, rounds: $s}]'
}
rows '[0.60, 0.61, 0.62, 0.605, 0.615, 0.625, 0.59]' true >"$WORK/first.json"
rows '[0.50, 0.51, 0.52, 0.505, 0.515, 0.525, 0.49]' true >"$WORK/slow.json"
rows '[0.50, 0.51, 0.52, 0.505, 0.515, 0.525, 0.49]' false >"$WORK/void.json"
run bench diff first.json first.json --json
ok "a result against itself: exit code 0, got $rc" test "$rc" = 0
ok "a result against itself: nothing changed" json '.format == "tessera.bench-diff/1" and [.rows[].ratio] == [1, 1] and
    all(.rows[]; .verdict == "same" or .verdict == "undecided") and .only_first == [] and .only_second == []' "$WORK/out"
run bench diff first.json slow.json --json
ok "a slower row: exit code 1, got $rc" test "$rc" = 1
ok "a slower row: which, and by how much" json '.rows[0].verdict != "slower" and .rows[1].verdict == "slower" and
    (.rows[1] | .low < .ratio and .ratio < .high and .high < 0.9)' "$WORK/out"
ok "a slower row: named" grep -q '1 row is slower by more than 3 %, the first is gemm of int4' "$WORK/err"
run bench diff slow.json first.json
ok "the other way it is faster: exit code 0, got $rc" test "$rc" = 0
ok "the other way it is faster" grep -qE '^\| gemm \|.*\| faster \|$' "$WORK/out"
run bench diff first.json slow.json --tolerance 0.3
ok "within the tolerance, got $rc" test "$rc" = 0
run bench diff first.json void.json
ok "a row that does not count is void, got $rc" grep -qE '^\| gemm \|.*\| void \|$' "$WORK/out"
jq '.[:1]' "$WORK/first.json" >"$WORK/short.json"
run bench diff first.json short.json
ok "rows of one side are named" grep -q 'only in first.json: gemm of int4' "$WORK/out"
jq '.[1] = .[0]' "$WORK/first.json" >"$WORK/twice.json"
jq '.[0].rounds = []' "$WORK/first.json" >"$WORK/rounds.json"
jq '.[0].rounds[2] = "x"' "$WORK/first.json" >"$WORK/text.json"
echo '{}' >"$WORK/object.json"
for bad in twice rounds text object missing; do
    fails "diff of $bad" 2 "*$bad.json*" bench diff first.json $bad.json
done
fails "diff of one file" 2 '' bench diff first.json
fails "gemv with two more words" 2 b bench gemv a b
fails "an unknown bench" 2 'gemx' bench gemx
fails "an unknown format" 2 '--formats' bench gemv --formats int9
fails "an unknown shape" 2 '--shape' bench e2e --shape 2b
TSR_ISA=sse9 fails "an unknown instruction set" 2 "backend 'cpu'" bench gemv "${small[@]}"

finish
