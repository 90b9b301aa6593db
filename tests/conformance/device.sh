#!/bin/bash
# device.sh TESSERA CODEBOOK.so BAD.so SIMT.so - kernels of quantizers for devices, on the emulated one: the example keeps
# the rules device-*, each fault of bad_device.c breaks its own one and no other, and without a device they are skipped.
set -euo pipefail
tessera=$1 good=$2 bad=$3 simt=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() { echo "$*"; failed=1; }

# verdicts FILE OPTION...: "RULE VERDICT" of the rules device-*
verdicts() {
    local file=$1
    shift
    "$tessera" plugin check "$file" --no-model --only 'device-*' --json "$@" >"$work/out" 2>"$work/err" || true
    jq -r '.rules[] | "\(.rule) \(.verdict)"' "$work/out" | sort
}
all() { printf "device-%s $1\n" code launch same writes; }

[ "$(verdicts "$good" --on "$simt")" = "$(all passed)" ] || wrong "the example: $(cat "$work/out" "$work/err")"
[ "$(verdicts "$bad" --on "$simt")" = "$(all passed)" ] || wrong "without a fault: $(cat "$work/out" "$work/err")"
[ "$(verdicts "$good")" = "$(all skipped)" ] || wrong "without --on: $(cat "$work/out" "$work/err")"
[ "$(verdicts "$good" --on "$good")" = "$(all skipped)" ] || wrong "--on without a backend: $(cat "$work/out" "$work/err")"
[ "$(verdicts "$good" --on "$simt" --set device=false)" = "$(all skipped)" ] || wrong "without the table: $(cat "$work/out" "$work/err")"
for fault in code launch same writes; do
    got=$(verdicts "$bad" --on "$simt" --set "fault=$fault" | grep -v -e ' passed$' -e ' skipped$' || true)
    [ "$got" = "device-$fault failed" ] || wrong "fault $fault: '$got'; $(cat "$work/out" "$work/err")"
done
exit $failed
