#!/bin/bash
# tests/faults/iosweep.sh TESSERA COMMAND SAMPLES - every n-th call of a command that writes, opens
# or renames fails with an errno, injected by strace.  Exit 77 (skipped) where tracing is denied.
# shellcheck source=tests/faults/lib.sh
. "$(dirname "$0")/lib.sh"
NAME=$2
read -ra ARGS <<<"$(command_of "$NAME")"

command -v strace >/dev/null || { echo "skipped: strace is not installed"; exit 77; }
strace -f -qq -o /dev/null -e trace=write true 2>"$WORK/why" ||
    { echo "skipped: strace cannot trace here: $(head -n 1 "$WORK/why")"; exit 77; }

# attempt DIR [argument of strace...]
attempt() {
    local dir=$1 rc=0
    shift
    mkdir -p "$dir"
    (
        cd "$dir"
        input_of "$NAME" | timeout -k 1 60 strace -f -qq -o "$dir.trace" "$@" \
            "$TESSERA" "${ARGS[@]}" >stdout 2>stderr
    ) || rc=$?
    echo "$rc"
}

# The calls that a fault is injected into, with what they can meet in life.
faults=(write:ENOSPC write:EIO openat:EMFILE openat:EIO read:EIO pread64:EIO rename:EIO
    renameat:EIO renameat2:EIO fsync:EIO fdatasync:ENOSPC close:EIO mkdir:ENOSPC mkdirat:ENOSPC flock:EINTR)

rc=$(attempt "$WORK/clean" -e trace=write,openat,read,pread64,rename,renameat,renameat2,fsync,fdatasync,close,mkdir,mkdirat,flock)
[ "$rc" = 0 ] || { cat "$WORK/clean/stderr"; echo "$NAME: the clean run exits with $rc"; exit 1; }
clean=$(result_of "$WORK/clean" "$NAME")
[ -n "$clean" ] || { echo "$NAME: the clean run has no result"; exit 1; }

# an arm of a comparison fails alone, and then fail_if does not pass
codes="1 2 4"
[ "$NAME" != compare ] || codes="1 2 4 5"
runs=0
for fault in "${faults[@]}"; do
    call=${fault%:*}
    error=${fault#*:}
    count=$(grep -c " $call(" "$WORK/clean.trace" || true)
    for n in $(samples "$count" "$3"); do
        # The program loader is not ours: a failure of its calls ends with 127 before main.
        dir=$WORK/$call.$error.$n
        rc=$(attempt "$dir" -e trace="$call" -e inject="$call:error=$error:when=$n")
        echo "$rc" >>"$WORK/codes"
        if [ "$rc" = 127 ] && grep -q 'error while loading shared libraries' "$dir/stderr"; then
            rc=loader
        else
            verdict "$dir" "$NAME" "$rc" "$clean" "$codes" | sed "s/^/$call $n $error: /" >>"$WORK/bad"
        fi
        rm -rf "$dir"
        runs=$((runs + 1))
    done
done
echo "seed $SEED"
summary "$NAME" $runs "$WORK/codes" "$WORK/bad"
