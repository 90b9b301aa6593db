#!/bin/bash
# tests/faults/changesweep.sh TESSERA MALLOCFAIL.so RANDOM_MODEL SAMPLES - a file that stays mapped while a model runs
# changes at every n-th allocation of a command.  Residuals were hashed when they were opened and a mapped model was
# not, so the end must notice: the result is that of the old file, or of the new one from the start, or there is none.
# Sampled by seed unless TSR_TEST_ALL=1.
# shellcheck source=tests/faults/lib.sh
. "$(dirname "$0")/lib.sh"
PRELOAD=$(readlink -f "$2")
SAMPLES=$4
"$ROOT/tests/faults/campaign/inputs.sh" "$1" "$3" "$WORK/in"
cd "$WORK/in"
cat >job.yaml <<'JOB'
version: 1
model: compensated
pipeline:
  - run: {input: fewer, output: answers.jsonl, compensate: 8, temperature: 0}
JOB
sed 's/compensate: 8/compensate: 8, plan: plan.yaml, ranks: threads/' job.yaml >ranks.yaml
sed -i 's/four: .*eight:/mapped: {model: m.tsr}, eight:/; s/pairs: .*/samples: ["Once"]/' ab.yaml

R=compensated/compensation.safetensors
# name, the file that changes, command
COMMANDS="
logits    $R logits compensated --tokens 1,403,407 --compensate 8 --positions all -o out/logits.safetensors
generate  $R generate compensated --prompt Once --max-tokens 4 --greedy --json --compensate 8
eval      $R eval compensated --text text --window 32 --max-windows 1 --compensate 8 --positions all --json
save-kld  $R eval compensated --text text --protocol llamacpp-512 --window 32 --max-windows 1 --compensate 8 --positions all --save-kld out/b.kld --json
sweep     $R sweep compensated --text text --window 32 --max-windows 1 --channels 0,64 -o out/s
tune      $R tune compensated --slower 5 --profile profile.json -o out/t
outliers  $R outliers compensated --tokens 4 --at 2 -o out/o
run       $R run job.yaml --out out/j
ranks     $R run ranks.yaml --out out/j
convert   $R convert compensated -o out/m.tsr --to prepacked
mapped-logits   m.tsr logits m.tsr --tokens 1,403,407 -o out/logits.safetensors
mapped-generate m.tsr generate m.tsr --prompt Once --max-tokens 4 --greedy --json
mapped-eval     m.tsr eval m.tsr --text text --window 32 --max-windows 1 --json
mapped-save     m.tsr eval m.tsr --text text --protocol llamacpp-512 --window 32 --max-windows 1 --save-kld out/b.kld --json
mapped-compare  m.tsr run ab.yaml --out out/j
"

# attempt DIR ARGS... [in the environment: what the preloaded library is to do]: one run; prints its status.
attempt() {
    local dir=$1 rc=0
    shift
    (
        cd "$dir"
        timeout -k 1 30 env TSR_MF_PROGRAM="${TESSERA##*/}" TSR_MF_SHARED=1 LD_PRELOAD="$PRELOAD" \
            "$TESSERA" "$@" --threads 1 >stdout 2>stderr
    ) || rc=$?
    echo "$rc"
}
fresh() { rm -rf "$WORK/run" && cp -r "$WORK/in" "$WORK/run" && mkdir "$WORK/run/out"; }
# What a run left but for times: stdout and the files under final names.
left() {
    (
        cd "$WORK/run"
        for f in out/logits.safetensors out/m.tsr out/b.kld out/j/answers.jsonl; do
            [ ! -e "$f" ] || sha256sum "$f"
        done
        for f in stdout out/*/results.json out/t/*.yaml; do
            [ -e "$f" ] || continue
            jq -S 'walk(if type == "object" then with_entries(select(.key
                | test("second|_s$|_us$|per_s|threads|peak|plugins|device|token$|created|time") | not)) else . end)' \
                "$f" 2>/dev/null || true
        done
    )
}
# The comparison went on without the arm whose file changed.
lacks_arm() {
    [ -e "$WORK/run/out/j/results.json" ] &&
        jq -e '[.. | objects | select(.name? == "mapped" and .failed?)] | length > 0' "$WORK/run/out/j/results.json" >/dev/null
}
# spread COUNT: SAMPLES of 1..COUNT at even distances, as the span in which it matters may be short.
spread() {
    [ "$ALL" = 0 ] || { seq "$1"; return; }
    awk -v n="$1" -v s="$SAMPLES" -v seed="$SEED" 'BEGIN { srand(seed); at = rand()
        for (i = 0; i < s; i++) print 1 + int((i + at) * n / s) }' | uniq
}
published() { find "$WORK/run/out" \( -name '*.safetensors' -o -name m.tsr -o -name '*.kld' -o -name answers.jsonl -o -name results.json \) -printf '%P '; }

while read -r name file command; do
    [ -n "$name" ] || continue
    read -ra args <<<"$command"
    fresh
    rc=$(TSR_MF_COUNT=$WORK/count attempt "$WORK/run" "${args[@]}")
    [ "$rc" = 0 ] || { cat "$WORK/run/stderr"; echo "$name: the clean run exits with $rc"; exit 1; }
    clean=$(left)
    [ -n "$clean" ] || { echo "$name: the clean run has no result"; exit 1; }
    count=$(cat "$WORK/count")
    fresh
    rc=$(TSR_MF_AT=1 TSR_MF_CHANGE=$file attempt "$WORK/run" "${args[@]}")
    new=$clean
    [ "$rc" != 0 ] || new=$(left)
    : >"$WORK/codes"
    noticed=0
    for n in $(spread "$count"); do
        fresh
        rc=$(TSR_MF_AT=$n TSR_MF_CHANGE=$file attempt "$WORK/run" "${args[@]}")
        echo "$rc" >>"$WORK/codes"
        [ "$rc" != 2 ] && ! lacks_arm || noticed=$((noticed + 1))
        case $rc in
        0) what=$(left)
            # a comparison goes on without the arm, and says so
            [ "$what" = "$clean" ] || [ "$what" = "$new" ] ||
                lacks_arm || echo "$name: allocation $n: exit 0 with a result of two files" ;;
        2) [ "$(grep -cE '^(tessera: error: |[{]"format":"tessera.error/1").*'"${file##*/}" "$WORK/run/stderr")" = 1 ] ||
            echo "$name: allocation $n: exit 2: $(tail -n 1 "$WORK/run/stderr")"
            what=$(published)
            [ -z "$what" ] || echo "$name: allocation $n: exit 2 and there is $what" ;;
        *) echo "$name: allocation $n: exit $rc: $(tail -n 1 "$WORK/run/stderr")" ;;
        esac
    done >"$WORK/bad.$name"
    cat "$WORK/bad.$name" >>"$WORK/bad"
    echo "$name: $count allocations, exit codes: $(sort "$WORK/codes" | uniq -c | awk '{ printf "%s%s x%s", s, $2, $1; s = ", " }')"
    # a sweep of which no run noticed has tested nothing
    # (convert reads residuals at once: no allocation is between)
    [ "$noticed" -gt 0 ] || [ "$name" = convert ] || echo "$name: no run noticed" >>"$WORK/bad"
done <<<"$COMMANDS"
[ ! -s "$WORK/bad" ] || { head -n 40 "$WORK/bad"; exit 1; }
