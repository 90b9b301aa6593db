#!/usr/bin/env bash
# cli.sh TESSERA FOLDER PLUGINS FOREIGN.so quick|whole - `tessera plugin check` as a program: exit
# codes, choice of rules, and what becomes of a plugin that crashes, hangs or ends the process.
set -euo pipefail
tessera=$1 bad=$2 plugins=$3 foreign=$4 size=$5
out=$(mktemp) err=$(mktemp)
folder=$(mktemp -d)
trap 'rm -rf "$out" "$err" "$folder"' EXIT

fail() {
    echo "cli.sh: $1" >&2
    cat "$out" "$err" >&2
    exit 1
}
# check STATUS WORDS ARGUMENTS...: the exit status, and words of stdout or stderr.
check() {
    local want=$1 words=$2 rc=0
    shift 2
    "$tessera" plugin check "$@" >"$out" 2>"$err" </dev/null || rc=$?
    [ "$rc" = "$want" ] || fail "plugin check $*: exit status $rc, not $want"
    grep -qF -- "$words" "$out" "$err" || fail "plugin check $*: does not say '$words'"
}

check 0 '0 failed' "$plugins/rtn.so" --only 'plan-*'
check 0 'quantizer rtn: plan-pure' "$plugins/rtn.so" --only plan-pure
grep -q plan-answers "$out" && fail "--only plan-pure ran plan-answers"
check 0 'plan-answers' "$plugins/rtn.so" --only 'plan-*' --skip plan-pure
grep -q plan-pure "$out" && fail "--skip plan-pure did not"
check 0 '"tessera.check/1"' "$plugins/rtn.so" --only semver --json
check 0 'one-symbol' --list
check 0 '"wants"' --list --json
check 0 'works' "$plugins/rtn.so" --only works --in-process
check 0 'works' "$plugins/rtn.so" --only works --set bits=8 --set group=-1
check 1 'the rule:' "$bad/bad_leaks.so" --only leaks
check 1 'breaks 1 rule of the plugin interface' "$bad/bad_leaks.so" --only leaks
check 1 'are not released' "$bad/bad_leaks.so" --only leaks --in-process

# a layout of the plugin's own
check 0 '0 failed' "$foreign" --no-model

# what a quantizer does to the bundled model is told, and is no verdict
if [ "$size" = whole ]; then
    check 0 'quantizer rtn on @demo: 4.24 bits a weight; perplexity' "$plugins/rtn.so"
    check 0 'quantizer sinner: not measured: ' "$bad/bad_strangers.so"
    grep -q 'no device for ' "$out" || fail "why a model was not measured is not said"
fi

# a warning is no failure
check 0 'warning' "$bad/bad_unloads.so" --only unloads

# what the process does is seen from outside
check 1 'exit status 0' "$bad/bad_exits.so" --only works
check 1 'within 1 seconds' "$bad/bad_hangs.so" --only works --limit 1
check 1 'byte 5121 of codes, which has 5120' "$bad/bad_writes-exactly.so" --only writes-exactly
# an end is told with the call, by the rule that is about it
check 1 'create() called exit()' "$bad/bad_exits.so" --only no-exit
check 0 'skipped  quantizer sinner: no-crash' "$bad/bad_exits.so" --only no-crash
if [ "$size" = whole ]; then
    check 1 'failed   quantizer sinner: no-exit' "$bad/bad_no-exit.so"
    check 1 'quantize() called _exit()' "$bad/bad_no-exit.so" --only no-exit
    check 1 'quantize() ended with signal 11' "$bad/bad_no-crash.so" --only no-crash
    check 0 'quantize() ended with signal 11' "$bad/bad_no-crash.so" --only no-exit
    check 0 'passed   quantizer sinner: no-exit' "$bad/bad_no-forks.so" --only no-exit # its child's is its own
fi
# ... and the other rules go on
check 1 'hung     quantizer sinner: leaks' "$bad/bad_hangs.so" --only 'l[eo]a*s' --limit 1
grep -q 'passed   file: loads' "$out" || fail "a hang stopped the rules that do not call the plugin"

# mistakes of the caller's
check 2 'plugin check needs one FILE' --json
check 2 'takes no FILE' --list "$plugins/rtn.so"
check 2 'no rule has this name' "$plugins/rtn.so" --only none-of-them
check 2 'name it with --only' "$plugins/rtn.so" --in-process
check 2 'has no component' "$plugins/rtn.so" --component gptq
check 2 'no component of' "$plugins/rtn.so" --set width=3
check 2 'bits' "$plugins/rtn.so" --set bits=99
check 2 'key=value' "$plugins/rtn.so" --set bits
check 2 'nothing.so' "$plugins/nothing.so"
# a file that anybody may write is not even loaded
cp "$bad/bad_none.so" "$folder/open.so"
chmod o+w "$folder/open.so"
check 1 'writable by everybody' "$folder/open.so"
grep -q 'skipped  file: no-constructors' "$out" || fail "a file that the host does not trust was loaded"
# a file that is no plugin has a verdict
check 1 'failed   file: loads' "$0"
