#!/bin/bash
# tests/e2e/figures-compensate.sh TESSERA FIGURES RESIDUALS - what compensate and tune print, computed again: errors from the
# residuals in the file (residuals.c), what is tuned from the table of times that is printed beside it.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
RESIDUALS=$(readlink -f "$3")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
FILE=q4/compensation.safetensors
compensated 0

# ---- compensate: what is left
jq -r 'select(.name | test("_proj")) | "\(.name) \(.from)"' rtn >linears
# shellcheck disable=SC2094
while read -r name from; do
    # shellcheck disable=SC2046,SC2094 # words
    "$RESIDUALS" $(jq -r --arg n "$name" 'select(.name == $n) | "\(.file) \(.from) \(.dtype)"' demo) rtn.st "$from" F32 \
        $(jq -r --arg n "$name" 'select(.name == $n) | "\(.shape[0]) \(.shape[1])"' demo) 4 "$FILE" $(part "${name%.weight}")
done <linears >left
ok "compensate: all linears" test "$(wc -l <left)" = 42
ok "compensate: the error that is left" json --argjson e "$(jq -s add left)" '.results.compensate |
    .compensated_error > 0 and (.compensated_error / $e - 1 | fabs) < 1e-6' job.json

# ---- tune: from the table of times, and what was lost from the file
run tune q4 -o t --slower 30 --repeats 2 --json
ok "tune succeeds, got $rc" test "$rc" = 0
jq .results.tune out >tune.json
ok "tune: k, times and slow-down" json --slurpfile t t/dec-profile.json "$TIMES"' $t[0] as $t | [.modules[].k] as $k |
    (.modules | map(.name)) == ($t.modules | map(.name)) and most($t; $k; 30) and close(.base_ms; at($t; [0, 0, 0, 0])) and
    close(.ms; at($t; $k)) and close(.slower; ([at($t; $k) / at($t; [0, 0, 0, 0]) - 1, 0] | max))' tune.json
# the first k that all may have, behind which the next is too long
ok "tune: common k" json --slurpfile t t/dec-profile.json "$TIMES"' $t[0] as $t | limit($t; 30) as $limit | [.modules[].k > 0] as $in |
    .common == ([range(1; 1025) | . as $n | select(at($t; [$in[] | if . then $n else 0 end]) > $limit)] | min // 1025) - 1' tune.json
ok "tune: knee" json --slurpfile t t/dec-profile.json "$TIMES"' $t[0] as $t | if $t.host_gbps then
    close(.knee; 1024 * $t.bits / 4 * $t.host_gbps / $t.device_gbps) else has("knee") | not end' tune.json
jq -r 'select(.name | test("_in[.]lost$")) | "\(.name) \(.from) \(.bytes)"' kept | while read -r name from bytes; do
    od -A n -t f4 -v -w4 -j "$from" -N "$bytes" "$FILE" | jq -s --arg n "$name" '{site: ($n | capture("[.](?<s>[a-z]+)_in[.]lost").s), v: .}'
done | jq -s . >lost
ok "tune: all sites" json 'length == 24' lost
ok "tune: the share that stays lost" json --slurpfile r tune.json '. as $all | ($r[0].modules | map({(.name): .k}) | add) as $k |
    ([$all[].v[]] | add) as $was | ([$all[] | $k[{attn: "qkv", o: "o", ffn: "gate_up", down: "down"}[.site]] as $n |
        (.v | sort | reverse)[($n * (.v | length) / 1024 | floor):][]] | add // 0) as $left | ($left / $was - $r[0].lost | fabs) < 1e-6' lost
finish
