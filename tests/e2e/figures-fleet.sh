#!/bin/bash
# tests/e2e/figures-fleet.sh TESSERA FIGURES - a fleet's bound and objective, computed again: every group of up to two nodes is
# planned alone with every share, and `figures fleet` tries all ways to form groups and to share the batch among them.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
cd "$WORK"
mkdir devices clusters
cat >devices/small.yaml <<'DEVICE'
format: tessera.device/1
name: small
memory: {total: 400 KiB, source: made up}
bandwidth: {peak: 6 GB/s, source: made up}
kernels:
DEVICE
for k in f16 bf16 f32 int4; do
    echo "  - {kernel: $k, ops: 20 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
done >>devices/small.yaml
sed 's/small/large/; s/400 KiB/1500 KiB/; s/6 GB/3 GB/; s/20 GFLOP/30 GFLOP/' devices/small.yaml >devices/large.yaml

# cluster NAME SMALL LARGE
cluster() {
    local i
    printf 'version: 1\nnodes:\n' >"clusters/$1.yaml"
    for ((i = 0; i < $2 + $3; i++)); do
        printf '  - {name: n%d, devices: [{profile: %s}], link: {bandwidth: 10 GB/s, latency: 5 us}}\n' $i "$([ $i -lt "$2" ] && echo small || echo large)"
    done >>"clusters/$1.yaml"
    echo 'network: {bandwidth: 100 MB/s, latency: 20 us}' >>"clusters/$1.yaml"
}
# job NAME CLUSTER BATCH CONCURRENCY OPTIONS
job() {
    cat >"$1.yaml" <<JOB
version: 1
model: $STORIES
cluster: clusters/$2.yaml
workload: {prompt: 32, generate: 16, batch: $3, concurrency: $4}
pipeline:
  - plan: {use: rtn, group: 32, bits: [4, 16], $5}
JOB
}
cluster whole 5 3
SHAPES=$'0 1\n0 2\n1 0\n1 1\n2 0'
UNITS=8 UNIT=2

# costs CONCURRENCY GAP: lines "small large units objective" into objectives, with proved bounds into bounds.  A group alone has
# decode micro-batches of all its requests, or of a half where it has two nodes (replicas.md: parts of 1, 2, 4 ...).
costs() {
    local small large u share once size parts
    : >objectives
    : >bounds
    while read -r small large; do
        cluster group "$small" "$large"
        for ((u = 1; u <= UNITS; u++)); do
            share=$((u * UNIT)) once=$((($1 * u + UNITS - 1) / UNITS))
            : >sizes
            for ((parts = 1; parts <= small + large; parts++)); do
                size=$(((once + parts - 1) / parts))
                job group group $share $once "decode_mb: $size, gap: $2, copy_nodes: 0"
                run plan group.yaml -o group-plan.yaml --json --baselines none
                cat out >>sizes
                [ "$rc" = 0 ] || [ "$rc" = 3 ] || { cat err; return 1; }
            done
            # no plan is proved where the solver says so
            jq -r -s --arg group "$small $large $u" 'map(.plan | if .status == "infeasible" then {}
                elif .status == "optimal" then {o: (.rounds * .objective_ms), b: (.rounds * .bound_ms)} else error("not settled") end) |
                "\($group) \(map(.o // infinite) | min | if . > 1e300 then "inf" else . end)",
                "\($group) \(map(.b // infinite) | min | if . > 1e300 then "inf" else . end)"' sizes >two || return 1
            head -1 two >>objectives
            tail -1 two >>bounds
        done
    done <<<"$SHAPES"
}

# fleet NAME CONCURRENCY GAP: the fleet's figures against all ways.
fleet() {
    job "$1" whole $((UNITS * UNIT)) "$2" "share_unit: $UNIT, gap: $3, copy_nodes: 2"
    run plan "$1.yaml" -o "$1-plan.yaml" --json
    ok "$1: succeeds, got $rc" test "$rc" = 0
    cp out fleet.json
    costs "$2" "$3" || ok "$1: groups alone" false
    "$FIGURES" fleet 5 3 $UNITS objectives >optimum.json
    "$FIGURES" fleet 5 3 $UNITS bounds >bound.json
    ok "$1: some groups cannot, and there are many ways" test "$(grep -c inf objectives)" -gt 0 -a "$(jq .ways optimum.json)" -gt 100
    ok "$1: more than one kind of copies" json '.fleet | .kinds | length > 1' fleet.json
    # the bisection ends within a quarter of the gap, at least 1e-6, below the bounds' least time
    ok "$1: the bound is the groups' bounds'" json --argjson gap "$3" --slurpfile b bound.json '.fleet.bound_ms as $bound | $b[0].best as $best |
        ([$gap, 1e-6] | max / 4) as $slack | $bound <= $best * (1 + 1e-9) and $bound >= $best * (1 - $slack) * (1 - 1e-9)' fleet.json
    ok "$1: bound, optimum, objective" json --argjson gap "$3" --slurpfile o optimum.json '.fleet as $f | $o[0].best as $best |
        $f.bound_ms <= $best * (1 + 1e-9) and $best <= $f.objective_ms * (1 + 1e-9) and
        $f.objective_ms <= $best * (1 + 2 * ([$gap, 1e-6] | max))' fleet.json
    ok "$1: types and unit" json --argjson unit $UNIT '.fleet | .types == 2 and .unit == $unit and .status == "optimal"' fleet.json
    run plan "$1.yaml" -o "$1-plan.yaml"
    # "nothing is below 12.3 ms (gap 0.0012 %)": four digits of the time, two of the gap
    ok "$1: the line of the table" json --rawfile table out '.fleet as $f | ($table | gsub("\n +"; " ") |
        capture("nothing is below (?<t>[0-9.]+) (?<u>ms|s) \\(gap (?<g>[0-9.e-]+) %\\)")) as $said |
        (($said.t | tonumber) * (if $said.u == "s" then 1000 else 1 end) / $f.bound_ms - 1 | fabs) < 0.005 and
        (100 * ($f.objective_ms - $f.bound_ms) / $f.objective_ms) as $gap | (($said.g | tonumber) - $gap | fabs) <= 0.05 * $gap + 1e-9' fleet.json
}
fleet proved 16 0
fleet loose 16 0.02
fleet rounds 7 0.0001
finish
