#!/bin/bash
# tests/faults/campaign/sample.sh CAMPAIGN INJECT.so TESSERA RANDOM_MODEL TRIALS [OPTION...] - the campaign on cases that the
# seed chooses; all cases where TSR_TEST_ALL is set.
set -euo pipefail
export LC_ALL=C
HERE=$(dirname "$(readlink -f "$0")")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
TESSERA=$(readlink -f "$3")
"$HERE/inputs.sh" "$TESSERA" "$4" "$WORK/in"
sample=(--sample 12)
[ -z "${TSR_TEST_ALL:-}" ] || sample=()
"$1" --tessera "$TESSERA" --inject "$(readlink -f "$2")" --inputs "$WORK/in" --cases "$HERE/cases.txt" \
    --seed "${TSR_TEST_SEED:-$((SRANDOM % 1000000))}" --trials "$5" "${sample[@]}" "${@:6}"
