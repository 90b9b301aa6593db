#!/bin/bash
# tests/e2e/gpu-check.sh BUILD SIMT.so - tools/gpu-check on the emulated device, and without a device.
set -euo pipefail
CHECK=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/gpu-check
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
# in a folder that was made for another machine, which takes nothing from here
"$CHECK" --build "$1" --pack "$WORK/pack"
# it travels as an archive: code for six kinds of devices and recorded cases become small in it
[ "$(tar -C "$WORK/pack" -cz . | wc -c)" -le 50000000 ] || { echo "WRONG: the folder is large"; exit 1; }
env -i PATH=/usr/bin:/bin HOME="$WORK" "$WORK/pack/tools/gpu-check" --emulated "$2" --out "$WORK/out" ||
    { cat "$WORK/out/log"; exit 1; }
if ! grep -q "^== models: $WORK/pack/build/" "$WORK/out/log"; then
    echo "WRONG: it does not run what is in the folder"
    exit 1
fi
# what is recorded is the folder's own
rm -r "$WORK/pack/tests/golden/models" "$WORK/pack/tests/golden/quant"
simt=$(readlink -f "$2")
for words in "test_models simt $simt 14" "test_gptq_device simt $simt"; do
    read -ra words <<<"$words"
    rc=0
    (cd "$WORK/pack" && TSR_CARRIED_ROOT=$WORK/pack TSR_CARRIED_PLUGINS=$WORK/pack/build/plugins \
        LD_LIBRARY_PATH=lib "build/tests/golden/${words[0]}" "${words[@]:1}") >"$WORK/text" 2>&1 || rc=$?
    if [ $rc = 0 ] || ! grep -q "$WORK/pack/tests/golden/" "$WORK/text"; then
        echo "WRONG: ${words[0]} does not look into the folder, exit status $rc"
        exit 1
    fi
done
jq -e '.device == "SIMT emulation" and .copy_gb_per_s > 0 and ([.bench[].numerics] == [range(8) | "exact"] + [range(4) | "fast"]) and .left_out == 0 and
    (.bench | all(.over_cublas > 0 and .of_copy > 0)) and .cublas == "measured" and
    ([.attention[] | [.attention, .numerics, .cache, .sequences]] == [["decode", "exact", "F16", 16], ["decode", "exact", "F16", 1], ["prompt", "exact", "F16", 1], ["prompt", "fast", "F16", 1], ["decode", "exact", "int8", 16], ["prompt", "exact", "F16", 1], ["prompt", "fast", "F16", 1], ["prompt", "exact", "int8", 1], ["prompt", "fast", "int8", 1], ["prompt", "exact", "F16", 1], ["prompt", "fast", "F16", 1]]) and
    (.attention | all(.us > 0 and .gb_per_s > 0 and .of_copy > 0 and .gflop_per_s > 0)) and
    ([.stages[] | select(.verdict == "passed") | .stage] == ["kernels", "fast", "auto", "codecs", "linalg", "gptq", "models", "job", "ranks", "interface", "bench", "model"]) and
    ([.model[].what] == ["prefill", "decode"]) and (.model | all(.value > 0)) and .model[1].share > 0 and
    ([.stages[] | select(.verdict == "skipped" and .why) | .stage] == ["sanitizer", "quickstart", "sums"]) and .sums == []' "$WORK/out/gpu-check.json" >/dev/null
# every row of the table has its nine columns
[ "$(grep -cE '^\| [^|]+ \| (exact|fast) \| [^|]+ x [^|]+ \|( [^|]+ \|){3} [^|]+ % \| [^|]+ \| [^|]+ \|$' "$WORK/out/gpu-results.md")" = 12 ]
[ "$(grep -cE '^\| (decode|prompt) \| (exact|fast) \| (F16|int8) \|( [0-9]+ \|){3} 4, 2, 16 \|( [^|]+ \|){2} [0-9]+ % \| [^|]+ \|$' "$WORK/out/gpu-results.md")" = 11 ]
# what runs at the same time ends within 100 s, what runs alone after it within another 300: less than all may take
limits=$(sed -n 's/^ *part [a-z$]* \([0-9]*\) .*/\1/p' "$CHECK" | sort -n | tail -n 1)
alone=$(sed -n 's/^ *stage [a-z]* \([0-9]*\) .*/\1/p' "$CHECK" | awk '{n += $1} END {print n}')
((limits <= 100 && alone <= 300)) || { echo "WRONG: the parts may take $limits s and $alone s"; exit 1; }
[ "$(find "$WORK/out" -type f | wc -l)" -le 8 ] || { echo "WRONG: more than 8 files of results"; exit 1; }
# and whatever they take, all end in time: what does not fit any more is left out, which is a failure
if ! (
    eval "$(sed -n '/^skipped() {/,/^}/p; /^stage() {/,/^}/p' "$CHECK")"
    # shellcheck disable=SC2317,SC2030
    timeout() { SECONDS=$((SECONDS + $3)) && return 124; } # every part takes all that it has
    # shellcheck disable=SC2034
    OUT=$WORK LOG=$WORK/stages.log SLOW=1 ALL=$((SECONDS + 1000)) failed=0
    for part in first second third; do
        stage $part 600 true
    done >"$WORK/said"
    [ $failed = 3 ] && grep -q '^first  *out of time (6[0-9]* of 600 s)$' "$WORK/said" &&
        grep -q '^second  *out of time (... of 3.. s)$\|^second  *out of time (... of 400 s)$' "$WORK/said" &&
        grep -q '^third  *left out: the [0-9]* s of all parts are over$' "$WORK/said" &&
        [ "$(jq -r .verdict "$WORK/stages.jsonl" | paste -sd,)" = "out of time,out of time,left out" ]
); then
    echo "WRONG: the parts are not bounded together"
    exit 1
fi
# what is short of half the copy probe at 14336 x 4096 and one token is listed, and nothing else
if ! (
    eval "$(sed -n '/^tables() {/,/^}/p' "$CHECK")"
    # rows FORMAT ROWS TOKENS SHARE...
    rows() { printf '%s %s %s %s\n' "$@" | jq -R 'split(" ") | {format: .[0], numerics: "exact", rows: (.[1] | tonumber),
        cols: 4096, tokens: (.[2] | tonumber), us: 1, gb_per_s: 1, of_copy: (.[3] | tonumber)}' | jq -s .; }
    made() { rows "$@" | jq '{device: "none", date: "never", stages: [], copy_gb_per_s: 1, cublas: "measured", left_out: 0, left: [], bench: .}'; }
    made a 14336 1 0.49 b 14336 1 0.5 c 14336 4 0.1 d 4096 1 0.1 e 14336 1 0.02 >"$WORK/made.json"
    tables "$WORK/made.json" >"$WORK/made.md"
    [ "$(grep '^Short' "$WORK/made.md")" = "Short of half the copy probe at 14336 x 4096 and one token: a, e." ]
    made b 14336 1 0.5 >"$WORK/made.json"
    tables "$WORK/made.json" >"$WORK/made.md"
    ! grep -q '^Short' "$WORK/made.md"
); then
    echo "WRONG: what is short is not listed"
    exit 1
fi
# ranks: a NCCL that lets no two share a device is said, and is no failure; what fails otherwise is one
if ! (
    eval "$(sed -n '/^skipped() {/,/^}/p; /^stage() {/,/^}/p' "$CHECK")"
    # shellcheck disable=SC2034,SC2031
    OUT=$WORK LOG=$WORK/ranks.log SLOW=1 ALL=$((SECONDS + 1000)) failed=0
    : >"$WORK/stages.jsonl"
    stage ranks 10 bash -c 'exit 3' >"$WORK/said"
    [ $failed = 0 ] && grep -q '^ranks  *skipped: this NCCL lets no two ranks share a device$' "$WORK/said" || exit 1
    stage ranks 10 bash -c 'exit 1' >"$WORK/said"
    [ $failed = 1 ] && grep -q '^ranks  *failed ' "$WORK/said" || exit 1
    # so is a machine with one device, or whose devices do not see each other
    stage sums 10 bash -c 'exit 4' >"$WORK/said"
    [ $failed = 1 ] && grep -q '^sums  *skipped: they are measured over two devices, and there is one$' "$WORK/said" || exit 1
    stage sums 10 bash -c 'exit 5' >"$WORK/said"
    [ $failed = 1 ] && grep -q "^sums  *skipped: the two devices do not see each other's memory$" "$WORK/said" || exit 1
    stage sums 10 bash -c 'exit 1' >"$WORK/said"
    [ $failed = 2 ] && grep -q '^sums  *failed ' "$WORK/said" || exit 1
); then
    echo "WRONG: what NCCL refuses and what fails are not told apart"
    exit 1
fi
# a library at the head of a long list is found, one that is not in it is not
if ! (
    eval "$(sed -n '/^found() {/,/^}/p' "$CHECK")"
    # shellcheck disable=SC2317
    ldconfig() { printf 'libcublas.so.13 (libc6,x86-64)\n' && seq -f 'libother%.0f.so.1' 50000; }
    # shellcheck disable=SC2034
    BACKEND=cuda LD_LIBRARY_PATH=''
    found libcublas && ! found libnothing
); then
    echo "WRONG: gpu-check does not see what the loader knows"
    exit 1
fi
# a plugin that is not what it should be is seen
rc=0
"$CHECK" --build "$1" --emulated "$1/plugins/plain.so" --out "$WORK/bad" >/dev/null 2>&1 || rc=$?
[ $rc = 1 ] || { echo "WRONG: a backend that is not there: exit status $rc"; exit 1; }
jq -e '[.stages[] | select(.verdict == "failed")] | length > 3' "$WORK/bad/gpu-check.json" >/dev/null
if [ -e "$1/plugins/cuda.so" ] && [[ "$(ldconfig -p)" != *libcuda.so.1* ]]; then
    rc=0
    "$CHECK" --build "$1" --out "$WORK/none" >"$WORK/text" 2>&1 || rc=$?
    [ $rc = 6 ] && grep -q '^gpu-check: there is no CUDA device' "$WORK/text"
fi
