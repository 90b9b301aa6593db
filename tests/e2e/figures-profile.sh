#!/bin/bash
# tests/e2e/figures-profile.sh TESSERA FIGURES - a device profile's figures, computed again from the points in the file: shares of
# the peaks, regressions, what they and the table predict, and the errors of `profile --check` from its own workloads.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"

# fit_lines FILE.json: what `profile --fits --json` printed, as lines for figures.
fit_lines() {
    jq -r '.[] | [.kernel, .phase, .more_than, .up_to // "inf", if .shape then 0 else 1 end,
        (.shape // {weights: 0, hidden: 0, attend: 0, kv: 0} | .weights, .hidden, .attend, .kv),
        .points, .error, .coefficients[]] | map(tostring) | join(" ")' "$1"
}

# ---- regressions: this machine's, whose points are many; those of the papers, whose points are few, so that data sheets
# pull; and made-up times of two shapes, where one has too few points and every sign of a coefficient is tempted
cat >made-up.yaml <<'DEVICE'
format: tessera.device/1
name: made-up
memory: {total: 4 GB, source: made up}
bandwidth: {peak: 50 GB/s, source: made up}
overhead: {prefill: 30 us, decode: 70 us, source: made up}
knots: {prefill: [64], decode: [4, 16]}
kernels:
  - {kernel: int4, ops: 2 TOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.3, read: 0.6}, bytes_per_weight: 0.5, convert: 2, source: made up}
  - {kernel: int4, ops: 3 TOP/s, prefill: {compute: 0.6, read: 0.7}, decode: {compute: 0.4, read: 0.5}, bytes_per_weight: 0.7, above: 4, source: made up}
layers:
DEVICE
for shape in '256 512 8 4 32 true' '512 1024 8 8 64 false'; do
    read -r hidden ffn heads kv dim gated <<<"$shape"
    awk -v hidden="$hidden" -v ffn="$ffn" -v heads="$heads" -v kv="$kv" -v dim="$dim" -v gated="$gated" '
        function noise() { seed = (seed * 1103 + 12345) % 65536; return 1 + 0.4 * (seed / 65536 - 0.5) }
        BEGIN { seed = hidden; w = 1e-7 * hidden * ffn
            printf "  - kernel: int4\n    shape: {hidden: %d, ffn: %d, heads: %d, kv_heads: %d, head_dim: %d, gated: %s}\n", hidden, ffn, heads, kv, dim, gated
            sep = ""; printf "    prefill: ["
            for (v = 1; v <= (hidden > 256 ? 1 : 4); v++) for (s = 16; s <= 256; s *= 2) {
                printf "%s[%d, %d, %d, %.5g]", sep, v, s, 16 * (v % 3), w * (1 + 0.02 * v * s + 1e-5 * v * s * s) * noise(); sep = ", " }
            sep = ""; printf "]\n    decode: ["
            for (v = 1; v <= 24; v += (hidden > 256 ? 7 : 2)) for (t = 32; t <= 512; t *= 4) {
                printf "%s[%d, %d, %.5g]", sep, v, t, w * (1 + 0.1 * v - 1e-4 * t) * noise(); sep = ", " }
            printf "]\n    source: \"made up\"\n" }' >>made-up.yaml
done
for file in "$ROOT"/configs/devices/{this-machine,t4,v100-32g,p100,a800-80g}.yaml made-up.yaml; do
    name=$(basename "$file" .yaml)
    run profile --of "$file" --fits --json
    ok "$name: regressions, got $rc" test "$rc" = 0
    cp out fits.json
    device_lines "$file" >device
    fit_lines fits.json >fits
    ok "$name: every point is in the file's lines" test "$(grep -c '^point' device)" -ge 4
    "$FIGURES" fits device fits >again.json
    # the program solves normal equations in double and drops columns that depend on others to within 3e-6
    ok "$name: least squares without negative coefficients" json --slurpfile f fits.json '.complete and (.fits | length) == ($f[0] | length) and
        ([.fits, $f[0]] | transpose | all(.[]; .[0] as $a | .[1] as $f | ($a.negative | not) and $a.points == $f.points and
        $a.sum <= $a.least * (1 + 1e-9) + 1e-12 * ($a.points + $a.pulls) and $a.sum >= $a.least * (1 - 1e-9) - 1e-15 and
        (($a.error - $f.error) | fabs) <= 1e-9 + 1e-9 * $a.error))' again.json
done
ok "made-up: points that a data sheet pulls, and coefficients that end at 0" json --slurpfile f fits.json \
    'any(.fits[]; .pulls > 0) and any($f[0][]; .coefficients[1:4] | any(. == 0))' again.json
run profile --of made-up.yaml --fits
ok "made-up: the table has a line for each" test "$(wc -l <out)" = $(($(jq length fits.json) + 1))
ok "made-up: errors of the table" json --rawfile table out '[$table | split("\n")[1:-1][] | capture("(?<e>[0-9.]+) %").e | tonumber] as $e |
    ([., [$e]] | length) == 2 and ([[.[].error], $e] | transpose | all(.[]; 100 * .[0] - .[1] | fabs < 0.00501))' fits.json

# ---- a profile of here: shares from the points, in the file's three digits
# a share above 1 is capped, and then says nothing: the probe of a busy machine is slow, so it has three chances
for try in 1 2 3; do
    rm -f here.yaml times.jsonl
    run profile -o here.yaml --model @demo --scheme original --scheme rtn:bits=4 --quick --repeats 3 --rounds 2 --positions 64 \
        --sequences 4 --check 6 --times times.jsonl --json
    ok "profile $try succeeds, got $rc" test "$rc" = 0
    ! grep -q 'read: 1}' here.yaml || continue
    break
done
cp out check.json
tensors "$ROOT/configs/demo/model.safetensors" >demo
LAYER=$(jq -s 'map(select(.name | test("layers[.]0[.].*_proj")) | .shape[0] * .shape[1]) | add' demo)
# 4 bits, and for each group of 128 a scale of 2 bytes and a zero point
echo '{"bf16": 2, "int4": 0.5234375}' >widths.json
device_lines here.yaml >device
ok "the share of the bandwidth that is read" awk -v w="$LAYER" '$1 == "peak" { peak = $2 }
    $1 == "kernel" { n++; share[$2] = $6; again[$2] = $8; bytes[$2] = $9 }
    $1 == "point" && $3 == "decode" && !($13 >= least[$2] && least[$2] > 0) { least[$2] = $13 }
    END { if (n != 2) exit 1
        for (k in share) {
            width = k == "bf16" ? 2 : 0.5234375; got = width * w / (least[k] * 1e-3 * peak); got = got > 1 ? 1 : got
            if (!(got > 0 && share[k] == again[k] && share[k] / got > 0.994 && share[k] / got < 1.006 && bytes[k] / width < 1.0002 && bytes[k] / width > 0.9998)) exit 1 } }' device

# ---- the same profile from its repeats and probes: rate of memory, peaks, times and spreads of points and ends, powers
cat >times.jq <<'JQ'
def near($b; $r): (. - $b | fabs) <= $r * ($b | fabs); # false for a NaN
def mean: add / length;
def median: sort | length as $n | (.[($n - 1) / 2 | floor] + .[$n / 2 | floor]) / 2;
def spread: sort as $v | length as $n | ($v[[3 * $n / 4 | floor, $n - 1] | min] - $v[$n / 4 | floor]) / ($v | median);
def blocks($pattern): [$file | match($pattern; "gs").captures | map(.string)];
def numbers: "[\(.)]" | fromjson;
# a time: the repeats that were interrupted least, the earlier ones first
def counted: [.repeats | to_entries | sort_by(.value.interrupted, .key)[:$repeats][].value.ms];
map(select(.time_of == "layer")) as $lines |
([$lines[] | (.before, .after) | max] | median) as $peak |
([$lines[] | counted as $ms | {scheme, kernel, phase, grid, layer_bytes, at: [.sequences, .tokens, .past], ms: ($ms | median),
    spread: ($ms | spread), probe: (.before + .after | max)}] | group_by(.scheme, .phase, .at) | map({scheme: .[0].scheme,
    kernel: .[0].kernel, phase: .[0].phase, grid: .[0].grid, at: .[0].at, bytes: .[0].layer_bytes, rounds: map({ms, probe}), spread: (map(.spread) | max),
    range: (.[0].at as $a | if .[0].phase == "prefill" then (if $a[0] * $a[1] <= 96 then 0 else 1 end)
        elif $a[0] <= 4 then 2 elif $a[0] <= 16 then 3 else 4 end)})) as $points |
# powers: latency-rounds.md
([$points[] | select(.grid)] | group_by(.scheme, .range) | map(. as $group |
    ([.[] | [.rounds[].probe | log] as $x | ($x | mean) as $m | $x[] - $m | . * .] | add) as $xx |
    ([.[] | [.rounds[].probe | log] as $x | [.rounds[].ms | log] as $y | ($x | mean) as $mx | ($y | mean) as $my |
        range($x | length) | ($x[.] - $mx) * ($my - $y[.])] | add) as $xy |
    ([.[].rounds | length] | add * 0.0025) as $weight | # probes differ by 5 % where memory does not
    (if .[0].range == 2 then [.[] | [1e3 * .bytes / $peak / ([.rounds[].ms | log] | mean | exp), 1] | min] | mean else 0 end) as $prior |
    {key: "\(.[0].scheme) \(.[0].range)", value: ([[($weight * $prior + $xy) / ($weight + $xx), 1] | min, -1] | max)}) | from_entries) as $power |
[$points[] | . + {power: ($power["\(.scheme) \(.range)"] // 0)} |
    .ms = (([.rounds[].ms | log] | mean) + .power * ([.rounds[].probe / $peak | log] | mean) | exp)] as $points |
def same_points($kernel; $phase; $text): ($text | numbers) as $got |
    [$points[] | select(.grid and .kernel == $kernel and .phase == $phase)] as $want | ($got | length) == ($want | length) and ($got | length) > 3 and
    all($got[]; (if $phase == "decode" then [.[0], 1, .[1]] else .[:3] end) as $at | .[-2] as $ms | .[-1] as $spread |
        [$want[] | select(.at == $at)] | length == 1 and ($ms | near($want | map(select(.at == $at))[0].ms; 5.1e-5)) and
        (.[0].spread as $s | $spread | near($s; 0.051)));
def unit: {"M": 1e6, "G": 1e9, "T": 1e12}[.];
($file | capture("peak: (?<v>[0-9.e+]+) (?<u>.)B/s, source: \"read probe, median of (?<n>[0-9]+)")) as $rate |
[["rate of memory", (($rate.v | tonumber) * ($rate.u | unit) | near($peak; 5.1e-6))],
 ["number of probes", ($rate.n | tonumber) == 2 * ($lines | length)],
 ["rounds", ($points | length) > 20 and all($points[]; .rounds | length == $rounds)],
 ["repeats until enough were not interrupted", all($lines[]; ([.repeats[] | select(.interrupted == 0)] | length) as $clean |
    .warm_up_ms < 300 and (.before + .after | length) == 4 and ($clean == $repeats or ($clean < $repeats and (.repeats | length) == 4 * $repeats)))],
 ["points", (blocks("- kernel: (\\w+)\n    shape: [^\n]*\n    prefill: \\[(.*?)\\]\n    decode: \\[(.*?)\\]\n    source") | length == 2 and
    all(.[]; . as $b | same_points($b[0]; "prefill"; $b[1]) and same_points($b[0]; "decode"; $b[2])))],
 ["ends", (. as $all | blocks("- part: (\\w+)\n[^[]*points: \\[(.*?)\\]\n    source") | length == 2 and all(.[]; .[0] as $part | .[1] | numbers | . as $got |
    [$all[] | select(.time_of == $part)] | length == ($got | length) and length > 3 and ([., $got] | transpose |
    all(.[]; .[0] as $w | .[1] as $g | $w.tokens == $g[0] and ($g[1] as $x | ($w.repeats | median) as $m | $x | near($m; 5.1e-5)) and
        ($w.repeats | spread) as $s | $g[2] | near($s; 0.051)))))],
 ["peaks", (. as $all | blocks("- kernel: (\\w+)\n    ops: ([0-9.e+]+) (.)FLOP/s") | length == 2 and all(.[]; . as $b |
    [$all[] | select(.time_of == "peak" and .probe == (if $b[0] | test("^[fb]") then "fma" else "int8" end))] | length == 1 and
    (.[0].rates | length == 3 and (max as $m | $b[1] | tonumber * ($b[2] | unit) | near(2 * $m; 5.1e-6)))))],
 ["powers, and rounds of the check", ([$check[0][].checked[]] | length) == ([$points[] | select(.grid | not)] | length) and
    all($check[0][]; . as $row | all(.checked[]; . as $c | [$points[] | select((.grid | not) and .scheme == $row.scheme and .phase == $row.phase and
        .at == [$c.sequences, $c.tokens, $c.past])] | length == 1 and (.[0].power - $c.power | fabs < 1e-9) and (.[0].ms as $m | $c.ms | near($m; 1e-9)) and
        ([.[0].rounds, $c.rounds] | transpose | all(.[]; .[0].ms == .[1].ms and .[0].probe == .[1].bytes_per_s))))]] |
map(select(.[1] | not)[0]) | if length == 0 then true else error(join("; ")) end
JQ
ok "a profile from its repeats and probes" json -s --rawfile file here.yaml --slurpfile check check.json --argjson repeats 3 --argjson rounds 2 \
    -f times.jq times.jsonl
fails "times of nothing" 2 --times profile --of here.yaml --fits --times none.jsonl
fails "times of links" 2 --times profile --links --times none.jsonl
ok "nothing is written then" test ! -e none.jsonl

# ---- its check: predictions from the file, errors from the workloads
# workloads CHECK.json: a line each for figures, of demo's layers
SHAPE=$(sed -nE '0,/shape:/s/.*hidden: ([0-9]+), ffn: ([0-9]+), heads: ([0-9]+), kv_heads: ([0-9]+), head_dim: ([0-9]+), gated: true.*/\1 \2 \3 \4 \5 1/p' here.yaml)
workloads() {
    jq -r --arg shape "$SHAPE" '.[] | .kernel as $k | .phase as $p | .checked[] | "\($k) \($p) \($shape) \(.sequences) \(.tokens) \(.past)"' "$1"
}
cat >check.jq <<'JQ'
def near($b; $r): (. - $b | fabs) <= $r * ($b | fabs); # false for a NaN
def mean: add / length;
def apart($a; $b): $a / $b - 1 | fabs;
([.[].checked[]] | length) == ($predicted | length) and
# predictions
([[.[].checked[] | [.fit_ms, .table_ms]], $predicted] | transpose |
    all(.[]; .[0] as $got | .[1] as $want | ($got[0] | near($want[0]; 1e-9)) and ($got[1] | near($want[1]; 1e-9)))) and
# times: geometric means of the rounds, and those at the profile's rate of memory
all(.[].checked[]; . as $c | (.rounds | length) == $rounds and (.power | . >= -1 and . <= 1) and
    (.raw_ms | near([$c.rounds[].ms | log] | mean | exp; 1e-9)) and
    (.ms | near($c.raw_ms * ($c.power * ([$c.rounds[].bytes_per_s / $peak | log] | mean) | exp); $off))) and
# errors and their means
all(.[]; . as $r | .workloads == (.checked | length) and
    (.error_normalised | near([$r.checked[] | apart(.fit_ms; .ms)] | mean; 1e-9)) and
    (.error_raw | near([$r.checked[] | apart(.fit_ms; .raw_ms)] | mean; 1e-9)) and
    (.error_table | near([$r.checked[] | apart(.table_ms; .ms)] | mean; 1e-9)) and
    (.worst | near([$r.checked[] | apart(.fit_ms; .ms)] | max; 1e-9)))
JQ
# checks NAME FILE ROUNDS OFF: the figures of a check against here.yaml.  OFF: a new profile's rate of memory is in the file to six
# digits, half of the last is 5e-6, and a time goes with at most its first power; an earlier profile's rate is the file's.
checks() {
    run profile --of here.yaml --fits --json
    fit_lines out >fits
    workloads "$2" >workload
    "$FIGURES" predict device fits workload | jq -s . >predicted.json
    ok "$1: predictions, times and errors" json --argjson predicted "$(cat predicted.json)" --argjson rounds "$3" --argjson off "$4" \
        --argjson peak "$(sed -n 's/^peak //p' device)" -f check.jq "$2"
}
checks "a profile's own check" check.json 2 5.1e-6
ok "one power for each range of tokens" json 'all(group_by(.scheme)[]; [.[] | .phase as $p | .checked[] |
    {range: (if $p == "prefill" then .sequences * .tokens <= 96 else 0 end), phase: $p, power}] | group_by([.phase, .range]) |
    all(.[]; map(.power) | unique | length == 1))' check.json
run profile --of here.yaml --model @demo --scheme original --scheme rtn:bits=4 --repeats 1 --rounds 2 --positions 64 --sequences 32 \
    --check 16 --json
ok "an earlier profile is checked, got $rc" test "$rc" = 0
cp out check.json
checks "an earlier profile's check" check.json 2 2e-6
# no grid is measured beside it, so the powers come from these rounds: latency-rounds.md
cat >power.jq <<'JQ'
def mean: add / length;
all(group_by(.scheme)[]; .[0].layer_bytes as $bytes | [.[] | .phase as $p | .checked[] | . as $c |
    {power, range: (if $p == "prefill" then (if .sequences * .tokens <= 96 then 0 else 1 end)
        elif .sequences <= 4 then 2 elif .sequences <= 16 then 3 else 4 end),
     reads: ([1e3 * $bytes / $peak / ([$c.rounds[].ms | log] | mean | exp), 1] | min),
     x: [.rounds[].bytes_per_s | log], y: [.rounds[].ms | log]}] | group_by(.range) | all(.[]; . as $points |
        ([.[] | .x as $x | ($x | mean) as $m | $x[] - $m | . * .] | add) as $xx |
        ([.[] | .x as $x | .y as $y | ($x | mean) as $mx | ($y | mean) as $my | range($x | length) | ($x[.] - $mx) * ($my - $y[.])] | add) as $xy |
        ([.[].x | length] | add * 0.0025) as $weight | # probes differ by 5 % where memory does not
        (if .[0].range == 2 then [.[].reads] | mean else 0 end) as $prior |
        ([[($weight * $prior + $xy) / ($weight + $xx), 1] | min, -1] | max) as $power |
        all(.[]; .power - $power | fabs < 1e-6))) and
([.[] | .phase as $p | .checked[] | if $p == "decode" then (if .sequences <= 4 then 2 elif .sequences <= 16 then 3 else 4 end) else 0 end] | unique | length) == 4
JQ
ok "powers of the read probe" json --argjson peak "$(sed -n 's/^peak //p' device)" -f power.jq check.json
ok "bytes of a layer" json --argjson w "$LAYER" --slurpfile width widths.json \
    'length == 4 and all(.[]; .layer_bytes / ($width[0][.kernel] * $w) - 1 | fabs < 0.0002)' check.json
# the table: means of what the log says of each workload, to its tenth of a percent
run profile --of here.yaml --model @demo --scheme rtn:bits=4 --repeats 1 --rounds 1 --positions 64 --sequences 32 --check 4 -v -v
ok "a check as a table, got $rc" test "$rc" = 0
ok "means of the table" awk '/normalised [0-9]/ { match($0, /(prefill|decode) v/); phase = substr($0, RSTART, RLENGTH - 2)
        gsub(/%|,/, ""); for (i = 1; i < NF; i++) { if ($(i + 1) == "ms" && $i ~ /^[0-9.e+-]+$/) { if ($(i - 1) == "normalised") norm = $i; else raw = $i }
            if ($i == "fit") fit = $(i + 1); if ($i == "table") table = $(i + 1) }
        n[phase]++; a[phase] += size(fit); b[phase] += size(((1 + fit / 100) * norm / raw - 1) * 100); c[phase] += size(table)
        if (size(fit) > worst[phase]) worst[phase] = size(fit) }
    function size(x) { return x < 0 ? -x : x }
    function off(x, y) { return !(size(x - y) < 0.061) }
    /^rtn:bits=4/ { gsub(/%/, ""); rows++; m = n[$2]; if (m != $3 || off($4, a[$2] / m) || off($5, b[$2] / m) || off($6, c[$2] / m) || off($7, worst[$2])) bad = 1 }
    END { exit !(rows == 2 && !bad) }' err out
finish
