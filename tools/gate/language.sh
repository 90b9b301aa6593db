#!/bin/bash
# tools/gate/language.sh [--prune | --self-test | --show | PAGE...] - the language of what users read:
#
# - README.md has at most 100 lines, a page of docs/guide at most 150.
# - No sentence has more than 35 words, and the mean of a page is at most 20.  language.awk says how a
#   sentence is counted.
# - No page has a phrase of tools/gate/forbidden.txt.
#
# Checked are README.md, CONTRIBUTING.md, CHANGELOG.md, ARCHITECTURE.md, SECURITY.md, docs/ and what
# `tessera help VERB` prints for each verb (TESSERA=build/tessera).  Left out: docs/lab, which is not
# written for users, and docs/reference, whose text is that of `tessera help` and of headers.
#
#   --prune      takes pages that pass off the list of exceptions
#   --self-test  bad pages fail, each by its own rule, and a good one passes
#   --show       prints the mean of every page
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C.UTF-8
tessera=${TESSERA:-build/tessera}

# Pages and verbs that are still to be rewritten.  One that passes must leave this list (--prune).
EXCEPTIONS=(
)

# lines PAGE MOST
lines() {
    local n
    n=$(wc -l <"$1")
    [ "$n" -le "$2" ] || { echo "$1: $n lines, at most $2"; return 1; }
}

# page FILE KIND NAME: every rule for one text; says what is wrong
page() {
    local rc=0
    case $3 in
    README.md) lines "$1" 100 || rc=1 ;;
    docs/guide/*) lines "$1" 150 || rc=1 ;;
    esac
    awk -v page="$3" -v kind="$2" -v longest=35 -v mean=20 -v forbidden=tools/gate/forbidden.txt \
        -v show="${show:-}" -f tools/gate/language.awk "$1" || rc=1
    return $rc
}

self_test() {
    local dir rc=0 many
    dir=$(mktemp -d)
    # shellcheck disable=SC2064 # now, not at the end
    trap "rm -rf '$dir'" EXIT
    many=$(printf 'word %.0s' {1..36})
    # expect NAME STATUS PATTERN KIND: the page in $dir/page under this name
    expect() {
        local got=0
        page "$dir/page" "$4" "$1" >"$dir/out" || got=$?
        if [ "$got" != "$2" ] || { [ -n "$3" ] && ! grep -qF -- "$3" "$dir/out"; }; then
            echo "self-test: $1 with '$3': status $got, expected $2"
            cat "$dir/out"
            rc=1
        fi
    }
    printf '# T\n\nA sentence of seven words stands here. And one more.\n' >"$dir/page"
    show=1 expect docs/good.md 0 'docs/good.md: 2 sentences, mean 5.0' page
    printf '%s.\n' "$many" >"$dir/page"
    expect docs/long.md 1 '36 words, at most 35' page
    printf -- '- a\n- %s\n' "$many" >"$dir/page"
    expect docs/item.md 1 '36 words, at most 35' page
    printf '%s. Short. Short again.\n' "$(printf 'w %.0s' {1..35})" >"$dir/page"
    expect docs/mean.md 0 '' page
    printf '%s.\n' "$(printf 'w %.0s' {1..21})" >"$dir/page"
    expect docs/mean.md 1 '21.0 words in a sentence' page
    printf '| %s |\n\n```\n%s\n```\n' "$many" "$many" >"$dir/page"
    expect docs/table.md 0 '' page
    printf 'The user is\ntold so.\n' >"$dir/page"
    expect docs/phrase.md 1 '"is told" in:' page
    printf 'Use `it is told` and [text](is-told.md) of it.\n' >"$dir/page"
    expect docs/code.md 0 '' page
    printf 'usage: x\n\noptions:\n  --use TEXT    Much of this %s\n' "$many" >"$dir/page"
    expect 'help use' 1 '39 words' help
    printf '```\n' >"$dir/page"
    expect docs/fence.md 1 'no end' page
    printf 'Line %d.\n' {1..101} >"$dir/page"
    expect README.md 1 '101 lines, at most 100' page
    printf 'Line %d.\n' {1..151} >"$dir/page"
    expect docs/guide/long.md 1 '151 lines, at most 150' page
    return $rc
}

# texts: NAME, KIND and file of everything that is checked
texts() {
    local f verb
    for f in README.md CONTRIBUTING.md CHANGELOG.md ARCHITECTURE.md SECURITY.md; do
        [ ! -f $f ] || printf '%s\tpage\t%s\n' $f $f
    done
    find docs -name '*.md' ! -path 'docs/lab/*' ! -path 'docs/reference/*' | sort |
        awk '{ print $0 "\tpage\t" $0 }'
    "$tessera" help >"$work/verbs"
    sed -n '/^options of every verb:/q;s/^  \([a-z][a-z-]*\)  *[a-z].*/\1/p' "$work/verbs" >"$work/names"
    [ "$(wc -l <"$work/names")" -ge 12 ] || { echo "$tessera help lists no verbs" >&2; return 1; }
    while IFS= read -r verb; do
        "$tessera" help "$verb" >"$work/help-$verb"
        printf 'help %s\thelp\t%s\n' "$verb" "$work/help-$verb"
    done <"$work/names"
}

[ "${1:-}" != --self-test ] || { self_test; exit; }
prune='' show=''
case ${1:-} in
--prune) prune=1; shift ;;
--show) show=1; shift ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
texts >"$work/texts"
bad=0
printf '%s\n' "${EXCEPTIONS[@]:-}" >"$work/exceptions"
while IFS=$'\t' read -r name kind file; do
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    rc=0
    page "$file" "$kind" "$name" >"$work/out" || rc=$?
    if ! grep -qxF -- "$name" "$work/exceptions"; then
        cat "$work/out"
        [ $rc = 0 ] || bad=$((bad + 1))
    elif [ $rc = 0 ] && [ -n "$prune" ]; then
        sed -i "\\#^    '$name'\$#d" tools/gate/language.sh
    elif [ $rc = 0 ]; then
        echo "$name: passes; take it off the list of exceptions (tools/gate/language.sh --prune)"
        bad=$((bad + 1))
    fi
done <"$work/texts"
if [ $# = 0 ]; then # an exception for what is gone
    while IFS= read -r name; do
        [ -z "$name" ] || cut -f 1 "$work/texts" | grep -qxF -- "$name" ||
            { echo "exception '$name': there is no such page or verb"; bad=$((bad + 1)); }
    done <"$work/exceptions"
fi
[ $bad = 0 ]
