#!/bin/bash
# tests/faults/mallocsweep.sh TESSERA MALLOCFAIL.so COMMAND SAMPLES - every n-th allocation of a
# command fails, alone and with all after it.  Sampled by seed unless TSR_TEST_ALL=1.
# shellcheck source=tests/faults/lib.sh
. "$(dirname "$0")/lib.sh"
PRELOAD=$(readlink -f "$2")
NAME=$3
read -ra ARGS <<<"$(command_of "$NAME")"
# its work is done by a process that is forked
[ "$NAME" != cluster ] || export TSR_MF_SHARED=1

# attempt DIR [VAR=VALUE...]: one run in DIR; prints its exit status.
attempt() {
    local dir=$1 rc=0
    shift
    mkdir -p "$dir"
    (
        cd "$dir"
        input_of "$NAME" | timeout -k 1 30 env "$@" TSR_MF_PROGRAM="${TESSERA##*/}" \
            LD_PRELOAD="$PRELOAD" "$TESSERA" "${ARGS[@]}" >stdout 2>stderr
    ) || rc=$?
    echo "$rc"
}

rc=$(attempt "$WORK/clean" TSR_MF_COUNT="$WORK/count")
[ "$rc" = 0 ] || { cat "$WORK/clean/stderr"; echo "$NAME: the clean run exits with $rc"; exit 1; }
clean=$(result_of "$WORK/clean" "$NAME")
[ -n "$clean" ] || { echo "$NAME: the clean run has no result"; exit 1; }
count=$(cat "$WORK/count")
[ "$count" -gt 10 ] || { echo "$NAME: only $count allocations counted"; exit 1; }

runs=0
for n in $(samples "$count" "$4"); do
    for mode in once from; do
        dir=$WORK/$n.$mode
        if [ $mode = once ]; then
            rc=$(attempt "$dir" TSR_MF_AT="$n")
        else
            rc=$(attempt "$dir" TSR_MF_AT="$n" TSR_MF_FROM=1)
        fi
        echo "$rc" >>"$WORK/codes"
        # 4 is "out of memory or disk": nothing else may be blamed
        verdict "$dir" "$NAME" "$rc" "$clean" 4 | sed "s/^/allocation $n, $mode: /" >>"$WORK/bad"
        rm -rf "$dir"
        runs=$((runs + 1))
    done
done
echo "seed $SEED, $count allocations"
summary "$NAME" $runs "$WORK/codes" "$WORK/bad"
