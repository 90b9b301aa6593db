# tools/papers.jq - printed figures and predictions side by side: input configs/papers/printed.json,
# $predicted[0] {job: {scheme: plan or null}}, $p a part of the tables' names.

def round2: if . == null then null else (. * 100 | round) / 100 end;
def geomean: if length == 0 then null else (map(log) | add / length | exp) end;
def number: if . == null then "no plan" else (if . >= 100 then round else round2 end | tostring) end;
def shown: if . == null then "†" else tostring end;
# throughput for comparisons: a scheme that does not fit has none
def speed: . // 0;

# Do two schemes stand in the same order?  A printed tie (within 1 %) asks for 2 %.
def agrees($a; $b; $x; $y):
    if ($a - $b | fabs) <= 0.01 * ([$a, $b] | max) then ($x - $y | fabs) <= 0.02 * ([$x, $y] | max)
    else ($a > $b) == ($x > $y) and $x != $y end;

def pairs: . as $l | [range(0; length) as $i | range($i + 1; length) as $j | [$l[$i], $l[$j]]];

# Table 8 (SplitQuant has its rows again in VI) compares settings of the authors' solver under a time limit, the others ways to serve.
def settings: .table | test("Table (8|VI)$");
def orders: {rows: length, equal: ([.[] | select(.ordered)] | length)};
def row_of($r; $s): "| \($r.row) | \($s) | " +
    (if $r.planned[$s].width then "\($r.planned[$s].width)" else "" end) + " | " +
    (if $r.printed | has($s) then ($r.printed[$s] | shown) else "" end) + " | " +
    (if $r.planned | has($s) then ($r.predicted[$s] | number) else "not modelled" end) + " | " +
    (if $r.printed[$s] and $r.predicted[$s] then ($r.predicted[$s] / $r.printed[$s] | round2 | tostring) else "" end) + " | " +
    "\($r.seconds[$s] // "") | " +
    (if $r.planned[$s].seconds then ($r.planned[$s].seconds | round2 | tostring) else "" end) + " |";

[.rows[] | select(.table | contains($p)) | . as $r | ($predicted[0][.job] // {}) as $plans |
    [.printed | keys_unsorted[] | . as $k | select($plans | has($k))] as $names |
    . + {
        predicted: ($plans | map_values(if . == null then null else .tokens_per_second end)),
        planned: $plans,
        compared: $names,
        wrong: [$names | pairs[] | select(agrees($r.printed[.[0]] | speed; $r.printed[.[1]] | speed;
            $plans[.[0]].tokens_per_second | speed; $plans[.[1]].tokens_per_second | speed) | not)]
    } |
    . + {ordered: (if ($names | length) < 2 then null else (.wrong | length) == 0 end)} |
    . + (if .table | startswith("SplitQuant") then {ours: "splitquant",
            base: (if $names | index("het") then "het" else "uniform" end)}
         else {ours: "llm-pq", base: (if .printed | has("pipeedge") then "pipeedge" else "adabits" end)} end) |
    . + {speedup: (if .printed[.ours] and .printed[.base] and .predicted[.ours] and .predicted[.base] then
        {printed: (.printed[.ours] / .printed[.base]), predicted: (.predicted[.ours] / .predicted[.base])}
        else null end)}] as $rows |
([$rows[] | select(.speedup and (.table | test("Fig") | not)) | .speedup]) as $sp |
([$rows[].table] | reduce .[] as $t ([]; if index($t) then . else . + [$t] end)) as $tables |
{
    rows: $rows,
    orders: ([$rows[] | select(.ordered != null and (settings | not))] | orders),
    settings: ([$rows[] | select(.ordered != null and settings)] | orders),
    speedups: {rows: ($sp | length), printed: ([$sp[].printed] | geomean), predicted: ([$sp[].predicted] | geomean)},
    gains: [$rows[] | select(.mean_gain) | .mean_gain as $g | select(.predicted[$g.of] and .predicted[$g.over]) |
        {table, row, printed: $g.printed, predicted: (.predicted[$g.of] / .predicted[$g.over] - 1)}],
    misses: [$rows[] | select(.ordered == false) | {table, row, wrong}]
} |
. + {markdown: ([
    ($tables[] as $t |
        "\n### \($t)\n",
        "| | scheme | width | printed tokens/s | predicted | predicted over printed | solving, printed s | here |",
        "|---|---|---|---|---|---|---|---|",
        ($rows[] | select(.table == $t) | . as $r | ((.printed | keys_unsorted) as $k |
            $k + ((.seconds | keys_unsorted) + (.also // []) - $k) + (if .predicted | has("tessera") then ["tessera"] else [] end))[] as $s |
            row_of($r; $s))
    ),
    "\nOrders of schemes: \(.orders.equal) of \(.orders.rows) rows as printed; of settings (Table 8): \(.settings.equal) of \(.settings.rows).",
    "Speed-up over the baseline, geometric mean of \(.speedups.rows) rows: \(.speedups.predicted | round2) predicted, \(.speedups.printed | round2) printed.\n",
    (if .gains == [] then empty else
        "\(.gains[0].table): mean gain \([.gains[].predicted] | add / length * 100 | round) % predicted, " +
        "\(.gains[0].printed * 100 | round) % printed (" +
        ([.gains[] | "\(.row): \(.predicted * 100 | round) %"] | join(", ")) + ").\n" end),
    (.misses[] | "- \(.table), \(.row): \([.wrong[] | join(" against ")] | join("; "))")
] | join("\n"))}
