#!/bin/bash
# tests/faults/campaign/test.sh CAMPAIGN INJECT.so CARELESS - the campaign finds the faults of programs that have them,
# and none in one that has none.
set -euo pipefail
export LC_ALL=C
CAMPAIGN=$(readlink -f "$1") INJECT=$(readlink -f "$2") CARELESS=$(readlink -f "$3")
CASES=$(dirname "$(readlink -f "$0")")/careless.txt
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir "$WORK/in"
printf 'seed of the careless program\n' >"$WORK/in/seed"
wrong=0

# campaign SEED CASE [OPTION...]: sets rc, leaves $WORK/out.
campaign() {
    rc=0
    "$CAMPAIGN" --tessera "$CARELESS" --inject "$INJECT" --inputs "$WORK/in" --cases "$CASES" --seed "$1" --case "${@:2}" \
        >"$WORK/out" 2>&1 || rc=$?
}
# finds WAY PATTERN [OPTION...]: the campaign fails, and says this; on a busy machine a fault may come too late for the
# program, so that more seeds are tried.
finds() {
    local seed
    for seed in 1 2 3 4 5 6; do
        campaign $seed "$1" "${@:3}"
        if [ $rc = 1 ] && grep -q -- "$2" "$WORK/out"; then return; fi
    done
    echo "WRONG: $1: exit $rc, not '$2'"
    grep -v 'trials/hit' "$WORK/out" | head -n 8
    wrong=1
}
finds in-place 'out/file differs' --fault kill --trials 8
finds follows 'writes through the link' --fault place --trials 8 --slow 0.05
finds fixed 'out/file differs' --fault race-other --trials 8
finds fixed 'hangs' --fault place --trials 12 --slow 0.05
finds leaves 'is left' --fault full --trials 8
finds mute 'without a sentence' --fault full --trials 8
finds bug 'exit 70' --fault call --trials 8
finds crashes 'signal 6' --fault memory --trials 4
finds ignores 'out/file differs' --fault full --trials 8
finds orphan 'leaves a process behind' --fault freeze --trials 1 --slow 0.05
finds mixes 'out/file differs' --fault input --trials 14
finds prints 'standard output that is full' --fault stdout --trials 2
campaign 1 careful --trials 40
[ $rc = 0 ] || { echo "WRONG: careful: exit $rc"; grep -A 2 'WRONG\|campaign:' "$WORK/out"; wrong=1; }
exit $wrong
