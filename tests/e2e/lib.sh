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
        [ ! -s "$WORK/err" ] || sed 's/^/    stderr: /' "$WORK/err" | tail -n 5
    fi
}

# run ARGUMENT...: the program, in $WORK; sets rc, leaves $WORK/out and $WORK/err.
run() {
    rc=0
    (cd "$WORK" && exec "$TESSERA" "$@") >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
}

# fails NAME CODE PATTERN ARGUMENT...: the program refuses: this exit code, nothing on stdout,
# one sentence on stderr that matches.
fails() {
    local name=$1 code=$2 pattern=$3
    shift 3
    run "$@"
    ok "$name: exit code $code, got $rc" test "$rc" = "$code"
    ok "$name: stdout stays empty" test ! -s "$WORK/out"
    ok "$name: one sentence" test "$(grep -c '^tessera: error: ' "$WORK/err")" = 1
    ok "$name: says '$pattern'" grep -qiE -- "$pattern" "$WORK/err"
}

# json FILTER... FILE: what the filter gives is true.  (jq 1.6 is content with an empty file.)
json() { [ -s "${*: -1}" ] && jq -e "$@" >/dev/null 2>"$WORK/jq"; }

finish() {
    echo "$checks checks, $wrong wrong"
    [ "$wrong" = 0 ] && [ "$checks" -gt 0 ]
}
