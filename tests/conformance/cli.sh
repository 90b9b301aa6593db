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
# check STATUS FILTER ARGUMENTS...: the exit status, and what jq finds in the JSON on stdout.
check() {
    local want=$1 filter=$2 rc=0
    shift 2
    "$tessera" plugin check "$@" --json >"$out" 2>"$err" </dev/null || rc=$?
    [ "$rc" = "$want" ] || fail "plugin check $*: exit status $rc, not $want"
    if [ ! -s "$out" ] || ! jq -e "$rules $filter" "$out" >/dev/null; then fail "plugin check $*: not so: $filter"; fi
}
# refused OBJECT FACTS ARGUMENTS...: exit status 2, nothing on stdout, and an error about this (a pattern of bash) with
# these names and numbers.
refused() {
    local object=$1 facts=$2 rc=0 got
    shift 2
    "$tessera" plugin check "$@" --json >"$out" 2>"$err" </dev/null || rc=$?
    [ "$rc" = 2 ] || fail "plugin check $*: exit status $rc, not 2"
    [ ! -s "$out" ] || fail "plugin check $*: prints something"
    got=$(jq -r '.error.object // ""' "$err") || fail "plugin check $*: no error"
    # shellcheck disable=SC2053
    [[ $got == $object ]] || fail "plugin check $*: an error about '$got', not '$object'"
    jq -e --arg f "$facts" '.error.message | test($f)' "$err" >/dev/null || fail "plugin check $*: the error lacks '$facts'"
}
# is($rule; $verdict): of this rule, for one component; says($rule; $facts): its text has these names and numbers.
# shellcheck disable=SC2016
rules='def of($r): .rules | map(select(.rule == $r)); def is($r; $v): of($r) | length == 1 and .[0].verdict == $v;
    def says($r; $f): of($r)[0].text | test($f);'

check 0 '.failed == 0 and .passed > 1 and all(.rules[]; .rule | startswith("plan-"))' "$plugins/rtn.so" --only 'plan-*'
check 0 '(.rules | length) == 1 and is("plan-pure"; "passed") and .rules[0].component == "quantizer rtn"' "$plugins/rtn.so" --only plan-pure
check 0 'is("plan-answers"; "passed") and of("plan-pure") == []' "$plugins/rtn.so" --only 'plan-*' --skip plan-pure
check 0 '.format == "tessera.check/1"' "$plugins/rtn.so" --only semver
check 0 'any(.[]; .rule == "one-symbol" and .wants)' --list
check 0 'is("works"; "passed")' "$plugins/rtn.so" --only works --in-process
check 0 'is("works"; "passed")' "$plugins/rtn.so" --only works --set bits=8 --set group=-1
check 1 '.failed == 1 and is("leaks"; "failed") and says("leaks"; "32 bytes")' "$bad/bad_leaks.so" --only leaks
jq -e '.error | .status == "check" and (.object | endswith("/bad_leaks.so"))' "$err" >/dev/null || fail "the error is not about the plugin"
check 1 'is("leaks"; "failed") and says("leaks"; "32 bytes")' "$bad/bad_leaks.so" --only leaks --in-process
# the table is the same results
"$tessera" plugin check "$plugins/rtn.so" --only 'plan-*' >"$out" 2>"$err" || fail "the table: exit status $?"
[ "$(grep -c '^passed .*quantizer rtn: plan-' "$out")" -gt 1 ] || fail "the table lacks the rules"
"$tessera" plugin check --list >"$out" 2>"$err" || fail "the list: exit status $?"
grep -q one-symbol "$out" || fail "the list lacks a rule"

# reports: the documented keys, as --json prints them, and a page on its own
report() { "$tessera" plugin check "$@" >"$out" 2>"$err" </dev/null; }
report "$plugins/rtn.so" --only 'f*' --seed 9 --report "$folder/r.json" --json || fail "a report: exit status $?"
jq -e --slurpfile r "$folder/r.json" '. == $r[0]' "$out" >/dev/null || fail "the report is not what --json prints"
jq -e '(keys | join(" ")) == "failed format passed plugin rules seed skipped version warnings" and .format == "tessera.check/1"
    and .seed == 9 and (.rules | length) == .passed + .skipped + .failed + .warnings and (.rules | length) > 2 and all(.rules[];
    (keys | join(" ")) == "component figures rule seconds seed text verdict wants" and .seed == 9 and .seconds >= 0
    and (.verdict | IN("passed", "skipped")) and all(.figures[]; (keys | join(" ")) == "name unit value"))' "$folder/r.json" >/dev/null ||
    fail "the report has other keys than docs/formats/check.md"
jq -e '[.rules[] | select(.rule == "fidelity") | .figures[].value] | length == 1 and .[0] > 0.001 and .[0] < 0.2' "$folder/r.json" >/dev/null ||
    fail "the figure of 4 bits is no error of 4 bits"
rc=0
report "$bad/bad_leaks.so" --only 'l*s' --report "$folder/r.html" || rc=$?
[ $rc = 1 ] || fail "a report of a broken rule: exit status $rc, not 1"
grep -q '<td class="failed">failed</td><td><code>leaks</code>' "$folder/r.html" || fail "the page lacks the verdict"
[ "$(head -c 15 "$folder/r.html")" = '<!DOCTYPE html>' ] || fail "the page is no HTML"
if grep -qiE '<script|<link|<img|https?://|url\(' "$folder/r.html"; then fail "the page needs another file"; fi
for tag in html head body table tr td th h1 h2 p code b small style title; do
    [ "$(grep -oE "<${tag}[ >]" "$folder/r.html" | wc -l)" = "$(grep -o "</$tag>" "$folder/r.html" | wc -l)" ] || fail "the page leaves <$tag> open"
done
[ "$(grep -c '<tr><td class=' "$folder/r.html")" = "$("$tessera" plugin check "$bad/bad_leaks.so" --only 'l*s' --json 2>/dev/null | jq '.rules | length')" ] ||
    fail "the page has another number of rules"
refused --report 'r[.]txt' "$plugins/rtn.so" --report "$folder/r.txt"
refused '*/nowhere/*' '' "$plugins/rtn.so" --only semver --report "$folder/nowhere/r.json"

# a layout of the plugin's own
check 0 '.failed == 0 and .passed > 20' "$foreign" --no-model

# what a quantizer does to the bundled model is told, and is no verdict
if [ "$size" = whole ]; then
    check 0 '.models | length == 1 and (.[0] | .component == "quantizer rtn" and .model == "@demo" and
        (.bits_per_weight - 4.236 | fabs < 0.001) and .perplexity > .original_perplexity)' "$plugins/rtn.so"
    check 0 '.failed == 0 and (.models | length == 1 and .[0].component == "quantizer sinner" and
        (.[0].failed | test("model[.]layers[.]0[.]self_attn[.]q_proj")))' "$bad/bad_strangers.so"
fi

# a warning is no failure
check 0 '.warnings == 1 and .failed == 0 and is("unloads"; "warning")' "$bad/bad_unloads.so" --only unloads

# what the process does is seen from outside
check 1 'is("works"; "crashed") and says("works"; "status 0\\b")' "$bad/bad_exits.so" --only works
check 1 'is("works"; "hung") and says("works"; " 1 second")' "$bad/bad_hangs.so" --only works --limit 1
check 1 'is("writes-exactly"; "crashed") and says("writes-exactly"; "5121 .*codes.* 5120\\b")' "$bad/bad_writes-exactly.so" --only writes-exactly
# an end is told with the call, by the rule that is about it
check 1 'is("no-exit"; "failed") and says("no-exit"; "create\\(\\) .* exit\\(\\)")' "$bad/bad_exits.so" --only no-exit
check 0 'is("no-crash"; "skipped") and says("no-crash"; "no-exit")' "$bad/bad_exits.so" --only no-crash
if [ "$size" = whole ]; then
    check 1 'is("no-exit"; "failed")' "$bad/bad_no-exit.so"
    check 1 'is("no-exit"; "failed") and says("no-exit"; "quantize\\(\\) .* _exit\\(\\)")' "$bad/bad_no-exit.so" --only no-exit
    check 1 'is("no-crash"; "failed") and says("no-crash"; "quantize\\(\\) .* signal 11\\b")' "$bad/bad_no-crash.so" --only no-crash
    check 0 'is("no-exit"; "skipped") and says("no-exit"; "quantize\\(\\) .* signal 11 .*no-crash")' "$bad/bad_no-crash.so" --only no-exit
    check 0 'is("no-exit"; "passed")' "$bad/bad_no-forks.so" --only no-exit # its child's is its own
fi
# ... and the other rules go on
check 1 'is("leaks"; "hung") and is("loads"; "passed")' "$bad/bad_hangs.so" --only 'l[eo]a*s' --limit 1

# mistakes of the caller's
refused '' FILE
refused '' '--list .*FILE' --list "$plugins/rtn.so"
refused --only "'none-of-them'" "$plugins/rtn.so" --only none-of-them
refused --in-process --only "$plugins/rtn.so" --in-process
refused '*/rtn.so' "'gptq'" "$plugins/rtn.so" --component gptq
refused --set "'width=3'" "$plugins/rtn.so" --set width=3
refused '' "'bits' .* 2 .* 8\b.*'99'" "$plugins/rtn.so" --set bits=99
refused --set key=value "$plugins/rtn.so" --set bits
refused '*/nothing.so' '' "$plugins/nothing.so"
refused '*/nothing.so' '' "$plugins/rtn.so" --on "$plugins/nothing.so"
refused --on cli.sh "$plugins/rtn.so" --on "$0"
refused "$folder" '' "$folder"
# a file that anybody may write is not even loaded
cp "$bad/bad_none.so" "$folder/open.so"
chmod o+w "$folder/open.so"
check 1 'is("loads"; "failed") and says("loads"; "/open[.]so") and is("no-constructors"; "skipped")' "$folder/open.so"
# a file that is no plugin has a verdict
check 1 'is("loads"; "failed") and says("loads"; "/cli[.]sh")' "$0"
