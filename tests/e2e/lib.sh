# shellcheck shell=bash
# tests/e2e/lib.sh - end-to-end tests: runs the program as a user does and looks at what comes out.
# A test script is called as NAME.sh TESSERA and ends with `finish`.

set -euo pipefail
export LC_ALL=C NO_COLOR=1
unset TSR_LOG TSR_ISA
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TESSERA=$(readlink -f "$1")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
# shellcheck disable=SC2034 # used by the scripts
STORIES=$ROOT/tests/golden/models/stories260k
checks=0
wrong=0

# ok NAME COMMAND...: one check; the command's exit status decides.
ok() {
    local name=$1
    shift
    checks=$((checks + 1))
    if ! "$@"; then
        wrong=$((wrong + 1))
        echo "WRONG: $name"
        [ ! -s "$WORK/err" ] || tail -n 12 "$WORK/err" | sed 's/^/    stderr: /'
    fi
}

# run ARGUMENT...: the program, in $WORK; sets rc, leaves $WORK/out and $WORK/err.
run() {
    rc=0
    (cd "$WORK" && exec "$TESSERA" "$@") >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
}

# object: what the one error in $WORK/err is about, from a run with --json: OBJECT, with :LINE:COLUMN where they are known.
object() {
    grep -a '^{"format":"tessera.error/1"' "$WORK/err" |
        jq -r '.error | [.object, .line, .column | select(. != null)] | map(tostring) | join(":")' || echo none
}

# failure FILTER...: what the filter gives for the one error in $WORK/err, from a run with --json, is true.
failure() {
    [ "$(grep -ac '^{"format":"tessera.error/1"' "$WORK/err")" = 1 ] &&
        grep -a '^{"format":"tessera.error/1"' "$WORK/err" | jq -e ".error | $*" >/dev/null
}

# mentions PATTERN: a sentence of that error has this name or number.
mentions() {
    grep -a '^{"format":"tessera.error/1"' "$WORK/err" |
        jq -e --arg p "$1" '.error | any(.message, .diagnostics[]?.message; test($p))' >/dev/null
}

# is_done FOLDER: the last run found the job in this folder finished.
is_done() { [ "$rc" = 0 ] && grep -qE "^tessera: (.*/)?$1: .*done" "$WORK/err"; }

# fails NAME CODE OBJECT ARGUMENT...: the program refuses: this exit code, nothing on stdout, and one error on stderr
# with the object that it is about (a pattern of bash; '' where none is named).  Words of sentences are not compared.
fails() {
    local name=$1 code=$2 object=$3 got more=--json
    shift 3
    [[ " $* " != *" --json "* ]] || more=
    run "$@" $more
    got=$(object)
    [ -z "${FAILS_LOG:-}" ] || printf '%s\t%s\t%s\t%s\n' "$0" "${BASH_LINENO[0]}" "$got" "$object" >>"$FAILS_LOG"
    ok "$name: exit code $code, got $rc" test "$rc" = "$code"
    ok "$name: stdout stays empty" test ! -s "$WORK/out"
    ok "$name: one error" test "$(grep -ac '^{"format":"tessera.error/1"' "$WORK/err")" = 1
    # shellcheck disable=SC2053 # a pattern
    ok "$name: it is about '$object', got '$got'" eval '[[ $got == $object ]]'
}

# fails_with NAME CODE OBJECT FACTS ARGUMENT...: the same, and a sentence of the error has these names and numbers, a pattern:
# facts that no field holds, such as the signal that ended a plugin's process.
fails_with() {
    fails "$1" "$2" "$3" "${@:5}"
    ok "$1: mentions '$4'" mentions "$4"
}

# json FILTER... FILE: what the filter gives is true.  (jq 1.6 is content with an empty file.)
json() { [ -s "${*: -1}" ] && jq -e "$@" >/dev/null 2>"$WORK/jq"; }

finish() {
    echo "$checks checks, $wrong wrong"
    [ "$wrong" = 0 ] && [ "$checks" -gt 0 ]
}
