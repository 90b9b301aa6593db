#!/bin/bash
# tests/faults/campaign/sample.sh CAMPAIGN INJECT.so TESSERA RANDOM_MODEL TRIALS [OPTION...] - the campaign on cases that the
# seed chooses; all cases where TSR_TEST_ALL is set.  The seed is the same until TSR_TEST_SEED is set, so that a change is
# measured against the trials of the one before; new ones are for tools/faults.
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
    --seed "${TSR_TEST_SEED:-21}" --trials "$5" "${sample[@]}" "${@:6}"
