# shellcheck shell=bash
# tools/families/lib.sh - runs commands for tools/check-families and records what came of them: one line for each part of a
# check in $D/verdicts: CHECK, PART, ok|refused|FAILED, sentence; tabs between.
# shellcheck disable=SC2154,SC2034 # TESSERA, D, REFUSALS: the tool's; mean: read by the checks

record() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(tr '\t\n' '  ' <<<"${4:-}")" >>"$D/verdicts"; }

# t ARGUMENT...: the program, in $D; sets rc, leaves $D/out and $D/err.
t() {
    rc=0
    (cd "$D" && exec timeout 120 "$TESSERA" "$@" --json -q) >"$D/out" 2>"$D/err" </dev/null || rc=$?
}

# sentence: the first error of the last command, without the folder of the family.
sentence() {
    grep -a '^{"format":"tessera.error/1"' "$D/err" | head -n 1 |
        jq -r '.error | if (.diagnostics // []) == [] then .message else .diagnostics[0].message end' | sed "s,$D/,,g"
}

# is_listed SENTENCE: a row of the refusals covers it, and the page of that row has the words it is named with.
is_listed() {
    local pattern page words
    while IFS='|' read -r pattern page words; do
        [[ $pattern != '#'* && -n $pattern && $1 =~ $pattern ]] || continue
        tr -s ' \n' ' ' <"$ROOT/$page" | grep -qF -- "$words" && return
    done <"$REFUSALS"
    return 1
}

# did CHECK PART: the last command succeeded; if not, records what happened and returns 1.  A refusal is exit code 2 or 3 with
# one error that the documentation names.
did() {
    local text
    [ "$rc" != 0 ] || return 0
    text=$(sentence)
    if { [ "$rc" = 2 ] || [ "$rc" = 3 ]; } && [ "$(grep -ac '^{"format":"tessera.error/1"' "$D/err")" = 1 ] &&
        is_listed "$text"; then
        record "$1" "$2" refused "$text"
    else
        record "$1" "$2" FAILED "exit code $rc: ${text:-$(tail -n 1 "$D/err")}"
    fi
    return 1
}

# holds CHECK PART SENTENCE COMMAND...: records ok, or the sentence if the command says no.
holds() {
    local check=$1 part=$2 text=$3
    shift 3
    if "$@"; then record "$check" "$part" ok; else record "$check" "$part" FAILED "$text"; fi
}

# differs A B: the largest difference and the root mean square of two files of logits, into worst and mean.
differs() { read -r worst mean < <(python3 "$ROOT/tools/families/logits.py" "$@"); }
# under X BOUND: false where X is no number.
under() { awk -v x="$1" -v b="$2" 'BEGIN { exit !(x ~ /^[0-9.e+-]+$/ && x + 0 <= b) }'; }

# logits_of CHECK PART MODEL OUT OPTION...: writes $D/OUT.
logits_of() {
    rm -f "$D/$4"
    t logits "$3" --tokens "$IDS" -o "$4" "${@:5}"
    did "$1" "$2"
}
# same_logits CHECK PART A B OPTION...: two models give the same bytes, or differ by NEAR of the range where the caller says so.
same_logits() {
    logits_of "$1" "$2" "$3" same-a.st "${@:5}" && logits_of "$1" "$2" "$4" same-b.st "${@:5}" || return 0
    differs "$D/same-a.st" "$D/same-b.st"
    if [ -n "${NEAR:-}" ]; then
        holds "$1" "$2" "logits of $4 differ from those of $3 by $worst of the range, $NEAR is allowed" under "$worst" "$NEAR"
    else
        holds "$1" "$2" "logits of $4 are not the bytes of $3: $worst of the range" cmp -s "$D/same-a.st" "$D/same-b.st"
    fi
}
# one_by_one CHECK PART MODEL OPTION...: the prompt whole and token by token: the same bytes of logits, the same greedy tokens.
one_by_one() {
    local whole step
    logits_of "$1" "$2" "$3" whole.st "${@:4}" && logits_of "$1" "$2" "$3" step.st --step "${@:4}" || return 0
    if ! cmp -s "$D/whole.st" "$D/step.st"; then
        differs "$D/whole.st" "$D/step.st"
        record "$1" "$2" FAILED "token by token differs: $worst of the range"
        return 0
    fi
    t generate "$3" --tokens "$IDS" --greedy --ignore-eos --max-tokens 8 "${@:4}"
    did "$1" "$2" || return 0
    whole=$(jq -c .tokens "$D/out")
    t generate "$3" --tokens "$IDS" --greedy --ignore-eos --max-tokens 8 --chunk 1 "${@:4}"
    did "$1" "$2" || return 0
    step=$(jq -c .tokens "$D/out")
    holds "$1" "$2" "greedy: $whole whole, $step in chunks of 1" \
        test "$whole" = "$step" -a "$(jq length <<<"$whole")" = 8
}
