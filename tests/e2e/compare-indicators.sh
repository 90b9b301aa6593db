#!/bin/bash
# tests/e2e/compare-indicators.sh TESSERA - tools/compare-indicators on a small model, with fewer samples than it asks for.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# between the tool and the program: what is asked for, with samples that take seconds
cat >"$WORK/few" <<FEW
#!/bin/bash
printf '%s\n' "\$*" >>"$WORK/asked"
args=("\$@")
for ((i = 0; i + 1 < \${#args[@]}; i++)); do
    case \${args[i]} in --samples) args[i + 1]=4 ;; --seqlen) args[i + 1]=32 ;; esac
done
[ "\$1" != compare ] || args+=(--set calibrate.samples=4 --set calibrate.seqlen=32)
exec "$TESSERA" "\${args[@]}"
FEW
chmod +x "$WORK/few"
head -c 7000 "$ROOT/configs/demo/held-out.txt" >"$WORK/text.txt"

rc=0
OUT=$WORK/new/out TESSERA=$WORK/few "$ROOT/tools/compare-indicators" "$STORIES" "$ROOT/configs/demo/calibration.txt" "$WORK/text.txt" \
    >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
ok "it ends well: exit code 0, got $rc" test "$rc" = 0
ok "three times indicators, then one comparison" test "$(cut -d ' ' -f 1 "$WORK/asked" | tr '\n' ' ')" = "indicators indicators indicators compare "
ok "the draws have seeds of their own" test "$(grep -o -- '--seed [0-9]*' "$WORK/asked" | sort -u | wc -l)" = 3
ok "of one of them the others are not measured again" test "$(grep -c -- '--no-measured' "$WORK/asked")" = 2

# widths FILE: those of the layers of a plan
widths() { sed -n 's/.*{layers: [0-9]*, bits: \([0-9]*\)}.*/\1/p' "$1" | tr '\n' ' '; }
R=$WORK/new/out/compare/results.json
while read -r arm plan; do
    file=$WORK/new/out/$plan
    ok "$arm is of $plan" grep -qF -- "compare.arms.$arm.plan=$file" "$WORK/asked"
    w=$(widths "$file" 2>/dev/null || true)
    # five layers of one shape, each of 3, 4 or 8 bits: at most 22 for 4.5 on average; with them go a scale and a
    # zero, of 32 bits at most, for each row of 64 or more
    ok "$arm: widths $w" awk -v w="$w" 'BEGIN { n = split(w, b, " "); for (i = 1; i <= n; i++) { s += b[i]; if (b[i] !~ /^[348]$/) exit 1 }; exit !(n == 5 && s <= 22) }'
    ok "$arm has those bits" json --arg a "$arm" --arg w "$w" '($w | split(" ") | map(select(. != "") | tonumber) | add / 5) as $m |
        .results.compare.arms[] | select(.name == $a) | .bits_per_weight - $m | . >= 0 and . <= 0.5' "$R"
done <<'ARMS'
variance seed-7/plan-variance.yaml
hessian seed-7/plan-hessian.yaml
measured seed-7/plan-measured.yaml
random7 seed-7/plan-random.yaml
random8 seed-8/plan-random.yaml
random9 seed-9/plan-random.yaml
ARMS
ok "three draws are not one" test "$(for s in 7 8 9; do widths "$WORK/new/out/seed-$s/plan-random.yaml"; echo; done | sort -u | wc -l)" -gt 1
ok "a perplexity of each, and of the model in its 32 bits" json '.results.compare.arms | length == 7 and all(.perplexity > 1) and
    (.[0] | .name == "original" and .bits_per_weight == 32)' "$R"
ok "the orders of the paper" grep -qE '[0-7] of 7 orders hold, [0-7] contradicted, [0-7] undecided' "$WORK/out"

rc=0
TESSERA=$WORK/none "$ROOT/tools/compare-indicators" >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "no program: exit code 2, got $rc" test "$rc" = 2
ok "one sentence" test "$(wc -l <"$WORK/err")" = 1
rc=0
TESSERA=$WORK/few "$ROOT/tools/compare-indicators" a b c d >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "too many arguments: exit code 2, got $rc" test "$rc" = 2
ok "says how it is called" grep -q 'compare-indicators \[MODEL' "$WORK/err"
finish
