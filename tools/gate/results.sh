# shellcheck shell=bash
# tools/gate/results.sh - one line per test, and the summary.  A line is
# pass|fail|skip <tab> seconds <tab> name.

GATE=build-gate
RESULTS=$GATE/results.tsv
PHASE_TIMES=$GATE/phases
WRONG_LINES=$GATE/wrong # of failed tests: name <tab> line of output

results_start() {
    mkdir -p "$GATE"
    : >"$RESULTS"
    : >"$PHASE_TIMES"
    : >"$WRONG_LINES"
    GATE_START=$(now)
}

# sampled N WORD...: one word of N, chosen by the seed and the word alone; one a line.
sampled() {
    local n=$1
    shift
    printf '%s\n' "$@" | awk -v n="$n" -v seed="$TSR_TEST_SEED" '
        BEGIN { for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i }
        { h = seed % 1000003; for (i = 1; i <= length($0); i++) h = (h * 31 + code[substr($0, i, 1)]) % 1000003
          if (int(h / 7) % n == 0) print }'
}

# rotated N: N of the lines on stdin, from the one that the seed chooses.
rotated() {
    awk -v n="$1" -v seed="$TSR_TEST_SEED" '{ line[NR - 1] = $0 }
        END { for (i = 0; i < n && i < NR; i++) print line[(seed + i) % NR] }'
}

# result pass|fail|skip SECONDS NAME [REASON]
result() {
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$RESULTS"
    [ "$1" = pass ] || say "$1: $3${4:+: $4}"
}

# check NAME COMMAND...: one test that is a command; its output is shown if it fails.
check() {
    local name=$1 t0 out
    shift
    t0=$(now)
    if out=$("$@" 2>&1); then
        result pass "$(since "$t0")" "$name"
    else
        printf '%s\n' "$out" | tail -n 60 >&2
        printf '%s\n' "$out" | tail -n 10 | awk -v name="$name" '{ print name "\t" $0 }' >>"$WRONG_LINES"
        result fail "$(since "$t0")" "$name"
    fi
}

results_end() {
    local passed failed skipped
    passed=$(grep -c '^pass' "$RESULTS" || true)
    failed=$(grep -c '^fail' "$RESULTS" || true)
    skipped=$(grep -c '^skip' "$RESULTS" || true)
    echo "slowest tests:"
    # awk reads to the end: a reader that stops early would kill sort, and pipefail the gate.
    sort -t $'\t' -k2,2 -rn "$RESULTS" |
        awk -F '\t' 'NR <= 10 { printf "  %8.1f s  %s\n", $2, $3 }'
    echo "phases:"
    awk '{ t = $1; sub(/^[^ ]+ /, ""); printf "  %8.1f s  %s\n", t, $0 }' "$PHASE_TIMES"
    echo "  $(since "$GATE_START") s in all, seed $TSR_TEST_SEED"
    # The lines again: who reads only the end of a long log sees what failed.
    awk -F '\t' -v wrong="$WRONG_LINES" 'FILENAME == wrong { of[$1] = of[$1] "    " substr($0, length($1) + 2) "\n"; next }
        $1 == "fail" { printf "failed: %s\n%s", $3, of[$3] }' "$WRONG_LINES" "$RESULTS"
    if [ "$skipped" -gt 0 ]; then
        awk -F '\t' '$1 == "skip" { print "skipped: " $3 }' "$RESULTS"
        echo "$skipped skipped"
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
