#!/bin/bash
# tests/e2e/solvers.sh TESSERA [ilp] - the solvers by name; the integer programs of `ilp` as files, solved by
# programs that are not ours.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
PLANNER=$ROOT/tests/golden/planner
with_ilp=${2:-}

# golden NAME: its optimum
golden() { jq -r ".instances[\"$1\"].objective" "$PLANNER/expected.json"; }
# near A B: equal within 1e-4, the gap of the optima (and no NaN)
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !((d < 0 ? -d : d) <= 1e-4 * b + 1e-6) }'; }

for solver in uniform pipeedge het adabits transfer; do
    run plan --instance "$PLANNER/plain-1.json" --solver $solver --json
    ok "$solver: a plan" test "$rc" = 0
    ok "$solver: says so" json --arg s $solver '.status == "feasible" or .status == "optimal"
        and .solver == $s and .bound <= .objective' "$WORK/out"
    run plan --instance "$PLANNER/infeasible-1.json" --solver $solver --json
    ok "$solver: no plan is exit code 3, got $rc" test "$rc" = 3
    ok "$solver: one error, and its status" failure '.status == "infeasible"'
done
fails "an option that it has not" 2 'uniform' plan \
    --instance "$PLANNER/plain-1.json" --solver uniform:lables=2

if [ -z "$with_ilp" ]; then
    fails "without GLPK there is no ilp" 2 ilp plan \
        --instance "$PLANNER/plain-1.json" --solver ilp
    echo "built without GLPK: neither the solver ilp nor its files for other programs are tested"
    finish
    exit
fi

# A machine without the library: the plugin says what it needs, and everything else works.
mkdir "$WORK/bin" "$WORK/few"
cp "$TESSERA" "$WORK/bin/"
cp "$(dirname "$TESSERA")/plugins/exact.so" "$WORK/few/"
sed 's/libglpk\.so\.[0-9]/libglpk.so.x/' "$(dirname "$TESSERA")/plugins/ilp.so" >"$WORK/few/ilp.so"
rc=0
"$WORK/bin/tessera" --plugin-path "$WORK/few" plan --instance "$PLANNER/plain-1.json" --solver ilp --json \
    >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "no libglpk is exit code 2, got $rc" test "$rc" = 2
ok "the error names the solver, got $(object)" test "$(object)" = ilp
ok "and the file and the library" mentions 'ilp[.]so\b.*libglpk[.]so'
rc=0
"$WORK/bin/tessera" --plugin-path "$WORK/few" plan --instance "$PLANNER/plain-1.json" --json >"$WORK/out" 2>"$WORK/err" ||
    rc=$?
ok "without libglpk the default solver works, got $rc" json '.status == "optimal" and .solver == "exact"' "$WORK/out"

# ---- ilp -------------------------------------------------------------------------------
run plan --instance "$PLANNER/medium-06.json" --solver ilp --json
ok "ilp proves a plan" json '.status == "optimal"' "$WORK/out"
ok "and it is the optimum" near "$(jq .objective "$WORK/out")" "$(golden medium-06)"
run plan --instance "$PLANNER/infeasible-4.json" --solver ilp --json
ok "no plan is exit code 3, got $rc" test "$rc" = 3
fails "an export that is no .lp" 2 x.txt plan --instance "$PLANNER/plain-1.json" \
    --solver ilp:export=x.txt
fails "a folder that is not there" 2 'solver "ilp"' plan --instance "$PLANNER/plain-1.json" \
    --solver ilp:export=nowhere/x.lp
# GLPK stops itself where it has no memory: what the heuristic began with stays, honest.
run plan --instance "$PLANNER/llmpq-05-paper.json" --solver ilp:memory=16 --time-limit 1 --json
ok "with too little memory there is a plan" test "$rc" = 0
ok "and it is not called optimal" json '.status == "feasible" and .bound < .objective' "$WORK/out"

# The files: one for each device order and option, the best of them is the optimum.
for form in strong paper; do
    names='fixed-1 fixed-4 comm-4 classes-3 kitchen-sink-1 max-omega-3' programs='cbc glpsol'
    [ $form = strong ] || names='fixed-4 comm-4 kitchen-sink-1' programs=cbc
    for name in $names; do
        rm -f "$WORK"/*.lp
        run plan --instance "$PLANNER/$name.json" --solver "ilp:form=$form,export=$name.lp" --json
        for program in $programs; do
            best=
            for file in "$WORK"/*.lp; do
                case $program in
                cbc)
                    cbc "$file" ratio 1e-9 solve solution "$WORK/sol" >"$WORK/log" 2>&1
                    value=$(sed -n '1s/^Optimal - objective value *//p' "$WORK/sol")
                    ;;
                glpsol)
                    glpsol --lp "$file" --mipgap 1e-9 -o "$WORK/sol" >"$WORK/log" 2>&1
                    value=$(awk '/^Status:/ && /OPTIMAL/ { ok = 1 } /^Objective:/ && ok { print $4 }' "$WORK/sol")
                    ;;
                esac
                [ -z "$value" ] || best=$(printf '%s\n' ${best:+"$best"} "$value" | sort -g | head -n 1)
            done
            ok "$program on $name, form $form: $best, the optimum is $(golden "$name")" near "${best:-nan}" \
                "$(golden "$name")"
        done
    done
done

# The printed form has the sizes of the authors' logs: 48 layers, 4 devices, 4 bits are 1162 columns
# (z, y, u, the stage times and two maxima), and 840 rows less (7), (15), which this problem lacks: the
# pairwise (16) 47 * 6, (9) to (11) 48 * (1 + 4 + 4 + 2), memory 4, times and maxima 16.
rm -f "$WORK"/*.lp
jq '.order = [0, 0, 0, 1] | .options = .options[:1] | .kinds[].capacity_bytes = 9000000000000' \
    "$PLANNER/llmpq-03-paper.json" >"$WORK/large.json"
run plan --instance "$WORK/large.json" --solver ilp:form=paper,export=large.lp --time-limit 1 --json
glpsol --lp "$WORK/large.lp" --check >"$WORK/log"
ok "columns of the printed form" grep -qE ', 1162 columns' "$WORK/log"
ok "rows of the printed form" grep -qE "^$((47 * 6 + 48 * 11 + 4 + 16)) rows" "$WORK/log"
finish
