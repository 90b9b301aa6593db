# results.json of a job of configs/papers/qdec -> Markdown, beside what the paper prints.
def r($n): if . == null then "" else (. * pow(10; $n) | round / pow(10; $n) | tostring) end;
def p: if . == null then "" elif . < 0.001 then "< 0.001" else r(3) end;
def row: "| " + (map(if . == null then "" else tostring end) | join(" | ")) + " |";
def sweeps: [.results | to_entries[] | select(.key | startswith("sweep")) | .value];
def at($s; $select; $k): first($s.points[] | select(.select == $select and .k == $k)) // null;
def pct: if . == null then "" else 100 * . | r(1) end;
def head: row, (map("---") | row);
# one window has no interval
def interval: if .low == null or .high == null then .mean | r(4) else "\(.mean | r(4)) (\(.low | r(4)) to \(.high | r(4)))" end;
($printed[0]) as $paper |
(sweeps) as $s |
(if ($s | length) == 3 then
    "Perplexity, and difference of the mean log likelihood from k = 0 with its 95 % interval over windows:", "",
    (["k"] + [$s[] | "\(.bits_per_weight | r(2)) bits", "nll less that of k = 0", "p"] + $paper.table1.models | head),
    ([$s[0].points[] | select(.select == "dynamic" or (.k == 0 and .select != null)) | .k] | unique[] as $k |
        [$k] + [$s[] | at(.; "dynamic"; $k) as $x | ($x.perplexity | r(2)), (if $x.delta then ($x.delta | interval) else "" end), ($x.delta.p | p)]
        + ($paper.table1["4"][$k | tostring] // ["", "", "", ""]) | row),
    "", "Does it fall as k grows? Slope of the mean negative log likelihood per step of k (95 % interval, p), and steps at which it rises:", "",
    (["bits", "verdict", "slope", "p", "rises", "beyond chance (95 % over all steps)"] | head),
    ($s[] | .bits_per_weight as $b | .trends[] | select(.select == "dynamic") | [($b | r(2)), (if .verdict == "open" then "not told apart" else .verdict end),
        (.slope | interval), (.slope.p | p), "\(.rises) of \(.steps | length)", .proven] | row),
    (if any($s[].points[]; .agreement) then
        "", "Answers: tokens that the original, reading the same, ranks first, too, in percent, and difference from k = 0 with its 95 % interval over prompts:", "",
        (["k"] + [$s[] | "\(.bits_per_weight | r(2)) bits", "difference"] | head),
        ([$s[0].points[] | select(.select == "dynamic" or (.k == 0 and .select != null)) | .k] | unique[] as $k |
            [$k] + [$s[] | at(.; "dynamic"; $k) as $x | ($x.agreement | pct), (if $x.agreement_delta then ($x.agreement_delta | "\(.mean | pct)" + if .low == null or .high == null then "" else " (\(.low | pct) to \(.high | pct))" end) else "" end)] | row)
    else empty end),
    "", "Ways to select at 3 bits, with recall in percent:", "",
    (["k", "dynamic", "exact", "random", "static, mean square", "static, Hessian"] | head),
    ([$s[0].points[] | select(.select == "dynamic" and .k > 0) | .k] | unique[] as $k |
        [$k] + [["dynamic", "exact", "random", "static-meansq", "static-hessian"][] as $w | at($s[0]; $w; $k) |
            if . then "\(.perplexity | r(2)) (\(.recall | pct))" else "" end] | row),
    "", "Targets, found by the tuner from times of this machine (k of qkv, o, gate and up, down):", "",
    (["target %", ([$s[] | "\(.bits_per_weight | r(2)) bits: k", "perplexity", "linears slower %", "tokens slower %"][])] +
        (if $paper.slower["4090"][$name] then ["printed tokens slower %, 4090 to 4050M"] else [] end) | head),
    ([$s[0].points[] | select(.target) | .target] | to_entries[] as $t |
        [$t.value] + [$s[] | first(.points[] | select(.target == $t.value)) | "\(.channels.qkv), \(.channels.o), \(.channels.gate_up), \(.channels.down)",
            (.perplexity | r(2)), (.slower | pct), (.decode_slower | pct)] +
        (if $paper.slower["4090"][$name] then [[$paper.slower[] | .[$name][$t.key] | tostring] | join(", ")] else [] end) | row)
elif ($s | length) == 4 then
    "Perplexity by bits of residuals; rows with the same bytes per token are k, k/2, k/4 and k/8 at 2, 4, 8 and 16 bits.", "",
    (["k", "2 bits", "4 bits", "8 bits", "16 bits"] + [$paper.table1.models[0] + ": 2, 4, 8, 16 bits"] | head),
    ([$s[].points[] | .k] | unique[] as $k | [$k] + [$s[] | at(.; "dynamic"; $k) | .perplexity | r(2)] +
        [[("2", "4", "8", "16") as $b | $paper.table1[$b][$k | tostring][0] // "-" | tostring] | join(", ")] | row)
elif ($s | length) == 1 then
    (["k", "dynamic", "static, mean square", "static, Hessian"] | head),
    ([$s[0].points[] | .k] | unique[] as $k | [$k] + [["dynamic", "static-meansq", "static-hessian"][] as $w | at($s[0]; $w; $k) | .perplexity | r(2)] | row)
else
    "Share of the channels that halves the error of the outputs, in percent: by magnitude (at random).", "",
    (["model", "token", "qkv", "o", "gate and up", "down"] | head),
    (.results as $all | ["awq 3", "awq 3, 1 %", "awq 4", "squeeze 3", "squeeze 4"] | to_entries[] |
        ($all[if .key == 0 then "outliers" else "outliers[\(.key + 1)]" end]) as $o | select($o) |
        [.value, $o.at] + [$o.sites[] | "\(.half_sorted | pct) (\(.half_random | pct))"] | row),
    "", "Largest channels of down over tokens:", "",
    (["model", "share %", "same as at the token before %", "found by the calibration %", "large half of the time"] | head),
    (.results as $all | ["awq 3", "awq 3, 1 %", "awq 4", "squeeze 3", "squeeze 4"] | to_entries[] |
        ($all[if .key == 0 then "outliers" else "outliers[\(.key + 1)]" end]) as $o | select($o) |
        [.value, $o.share, ($o.again | pct), ($o.recall | pct), $o.often] | row)
end),
(if any($s[]; (.quarter | length) > 0) then "", "Dynamic selection of k less a static one of 4k (difference of log likelihood, 95 % interval, p):", "",
    (["k", "against", "difference", "p"] | head),
    ($s[0].quarter[] | [.k, "\(.against) \(.against_k)", (.delta | interval), (.delta.p | p)] | row) else empty end)
