#!/bin/bash
# tests/bench/guard.sh TESSERA COUNTED BENCH UNRULY.so PLUGINS - what the guard around plugins' calls takes of a short
# run of a small model: how many calls there are (COUNTED), what each costs (BENCH), and how long the run takes
# (TESSERA).  Looks come with the time, so they count per second.  The time is the shortest of 7, or the least
# processor time on one thread where that is less: other work on the machine must not flatter the share.
# Exit code 1: LIMIT percent or more.
set -euo pipefail
export LC_ALL=C
LIMIT=0.1 ROUNDS=7
tessera=$1 counted=$2 bench=$3 unruly=$4 plugins=$5
run=(generate @demo --prompt hello --max-tokens 200)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT='%R %U %S'
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), Linux $(uname -r)"
"$bench" "$unruly" | tee "$work/costs"
{ time "$counted" "${run[@]}" --plugin-path "$plugins" >"$work/out" 2>"$work/calls"; } 2>"$work/counted"
grep '^calls ' "$work/calls"
for ((i = 0; i < ROUNDS; i++)); do
    { time "$tessera" "${run[@]}" >"$work/same" 2>"$work/err"; } 2>>"$work/times"
    cmp "$work/out" "$work/same" # the same run
    { time "$tessera" "${run[@]}" --threads 1 >"$work/same" 2>"$work/err"; } 2>>"$work/alone"
done
awk -v limit="$LIMIT" '
    FILENAME ~ /counted$/ { counted = $1; next }
    FILENAME ~ /times$/ { if (!wall || $1 < wall) wall = $1; next }
    FILENAME ~ /alone$/ { if (!cpu || $2 + $3 < cpu) cpu = $2 + $3; next }
    FILENAME ~ /calls$/ { if ($1 == "calls") n[$2] = $3; next }
    { cost[$1] = $2 }
    END {
        time = wall < cpu ? wall : cpu
        split("queued mode few look umask", order)
        for (i = 1; i <= 5; i++) {
            k = order[i]
            c = cost[k]
            if ((k "-held") in cost) c += (cost[k "-held"] - c) * n["files"] / 20
            if (!(c > 0) || !(time > 0)) { print "no cost of " k " or no time"; exit 2 }
            share = i <= 3 ? n[k] * c / time / 1e7 : n[k] / counted * c / 1e7
            printf "%-6s %6d calls x %8.1f ns: %.4f %%\n", k, n[k], c, share
            sum += share
        }
        printf "in all %.3f %% of the time, limit %s %% (shortest run %.0f ms, one thread alone %.0f ms, counted %.0f ms)\n", sum, limit, wall * 1000, cpu * 1000, counted * 1000
        exit !(n["queued"] > 1000 && sum < limit)
    }' "$work/counted" "$work/times" "$work/alone" "$work/calls" "$work/costs"
