#!/bin/bash
# tests/faults/poison.sh TESSERA FATAL.so - records that end whoever works on them, by a backend that
# dies of their prompts: by its own fault, beyond their deadline, for memory.  After few tries such a
# record is one error line and all others are as they would be without it; --retry-errors runs it
# again.  What was killed from outside is never blamed.
# shellcheck source=tests/faults/lib.sh
. "$(dirname "$0")/lib.sh"
FATAL=$(readlink -f "$2")
FAULTS=500 STANDS_STILL=501 KILLED=502 EATS=503 # ids of FATAL.so
POISON=(5 17)                                   # lines
RECORDS=24
cd "$WORK"
printf 'version: 1\nmodel: "%s"\nbackend: fatal\nseed: 5\n' "$MODEL" >job.yaml

bad=0
wrong() {
    bad=$((bad + 1))
    echo "WRONG: $*"
    [ ! -s err ] || tail -n 5 err | sed 's/^/    /'
}
# input ID: RECORDS requests; the poisoned ones have the id four times in their prompt.
input() {
    local i prompt
    for ((i = 1; i <= RECORDS; i++)); do
        prompt='"Once upon a time '$i'"'
        case " ${POISON[*]} " in *" $i "*) prompt="[1,403,$1,$1,$1,$1]" ;; esac
        printf '{"custom_id":"r%d","url":"/v1/completions","body":{"prompt":%s,"max_tokens":%d}}\n' \
            "$i" "$prompt" $((2 + i % 4))
    done >in.jsonl
}
batch() { # OUTPUT [argument...]; the exit code is left in rc
    rc=0
    "$TESSERA" batch job.yaml --plugin-path "$FATAL" -i in.jsonl -o "$1" -q --json --threads 1 "${more[@]}" "${@:2}" \
        >/dev/null 2>err || rc=$?
}
more=()
starts=0 # of the job until now
# begin ID [argument...]: input and what would come without poison.
begin() {
    input "$1"
    more=("${@:2}")
    rm -rf out.jsonl* clean.jsonl*
    starts=0
    TSR_TEST_HARMLESS=1 batch clean.jsonl
    [ $rc = 0 ] || wrong "$1: exit $rc without poison"
    [ "$(jq -s 'map(select(.error)) | length' clean.jsonl)" = 0 ] || wrong "$1: errors without poison"
}
# ends_well NAME: exit 0; the poisoned lines are errors of theirs, all others are whole, and it took
# no more starts than the rule allows: one for a group, two for each record alone.
ends_well() {
    local line
    [ $rc = 0 ] || wrong "$1: exit $rc"
    cmp -s <(sed "$(printf '%dd;' "${POISON[@]}")" out.jsonl) \
        <(sed "$(printf '%dd;' "${POISON[@]}")" clean.jsonl) ||
        wrong "$1: other lines are not whole"
    for line in "${POISON[@]}"; do
        sed -n "${line}p" out.jsonl | jq -e --arg id "r$line" '.custom_id == $id and .response == null and
            .error.code == "poison"' >/dev/null ||
            wrong "$1: line $line is $(sed -n "${line}p" out.jsonl | cut -c 1-200)"
    done
    "$TESSERA" journal show out.jsonl --json >state
    jq -e --argjson n ${#POISON[@]} --argjson before "$starts" '.errors == $n and
        (.starts - $before | . >= 1 + 2 * $n and . <= 1 + 4 * $n)' state >/dev/null ||
        wrong "$1: $(jq -c . state), $starts starts before"
    starts=$(jq .starts state)
}
# again NAME: a new epoch in which the record is answered.
again() {
    local before
    before=$(jq .epoch state)
    TSR_TEST_HARMLESS=1 batch out.jsonl --retry-errors
    [ $rc = 0 ] || wrong "$1, --retry-errors: exit $rc"
    cmp -s out.jsonl clean.jsonl || wrong "$1, --retry-errors: the output is not whole"
    "$TESSERA" journal show out.jsonl --json >state
    jq -e --argjson e "$before" '.errors == 0 and .epoch > $e' state >/dev/null ||
        wrong "$1, --retry-errors: $(jq -c . state)"
}

begin $FAULTS
batch out.jsonl
ends_well "a fault"
event '.kind == "worker-ended" and .cause == "own-fault"' || wrong "a fault: nobody says whose"
batch out.jsonl --retry-errors
ends_well "a fault, once more"
again "a fault"

# longer without a beat than the deadline, so that the record is late whenever it stands still
POISON=(5)
begin $STANDS_STILL --set run.deadline=2 --set run.stall=2.5
batch out.jsonl
ends_well "a record that stands still"

POISON=(5 17)
# (limits: 4 GiB of addresses; the record wants 6)
begin $EATS
(ulimit -v 4194304 && batch out.jsonl && exit $rc) || rc=$?
ends_well "no memory for a record"
again "no memory for a record"

# A control group that has less: the system kills the worker.  Where one can be made.
group=/sys/fs/cgroup/memory/tessera-test-$$
limit=memory.limit_in_bytes
[ -d /sys/fs/cgroup/memory ] || { group=/sys/fs/cgroup/tessera-test-$$ && limit=memory.max; }
if mkdir "$group" 2>/dev/null && echo 268435456 2>/dev/null >"$group/$limit" &&
    (echo "$BASHPID" >"$group/cgroup.procs") 2>/dev/null; then
    rm -rf out.jsonl*
    starts=0
    (echo "$BASHPID" >"$group/cgroup.procs" && batch out.jsonl && exit $rc) || rc=$?
    ends_well "over the memory of its group"
    event '.kind == "worker-ended" and .cause == "memory"' || wrong "over the memory of its group: nobody says so"
else
    echo "no control group can be made here: that part is left out"
fi
rmdir "$group" 2>/dev/null || true

# Killed from outside each time: no line is blamed, and later all are answered.
begin $KILLED
batch out.jsonl
[ $rc = 75 ] || wrong "killed from outside: exit $rc instead of 75"
[ ! -e out.jsonl ] || wrong "killed from outside: there is an output"
"$TESSERA" journal show out.jsonl --json >state
jq -e '.errors == 0 and .starts > 3' state >/dev/null || wrong "killed from outside: $(jq -c . state)"
TSR_TEST_HARMLESS=1 batch out.jsonl
[ $rc = 0 ] || wrong "killed from outside: exit $rc in the end"
cmp -s out.jsonl clean.jsonl || wrong "killed from outside: the output is not whole"

[ $bad = 0 ]
