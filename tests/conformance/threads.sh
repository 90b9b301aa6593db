#!/usr/bin/env bash
# threads.sh TESSERA PLUGINS RACY.so SANITIZER - the rules that use one instance, or one group of ranks, from several
# threads: the plugins of the tree keep them, and under ThreadSanitizer (SANITIZER is thread) a codec whose instances
# write to one place is found.  Its results are right, so that without ThreadSanitizer it keeps the rule.
set -euo pipefail
tessera=$1 plugins=$2 racy=$3 sanitizer=$4
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() {
    echo "threads.sh: $1" >&2
    cat "$out" >&2
    exit 1
}
# rule FILE RULE [ARGUMENT...]: runs it; the verdict.
rule() {
    "$tessera" plugin check "$1" --only "$2" --no-model --json "${@:3}" >"$out" 2>&1 </dev/null || true
    jq -rs --arg r "$2" '.[0].rules | map(select(.rule == $r) | .verdict) | unique | join(" ")' "$out" 2>/dev/null || echo none
}

n=0
while read -r name rule; do
    [ "$(rule "$plugins/$name.so" "$rule")" = passed ] || fail "$name does not keep $rule"
    n=$((n + 1))
done <<'END'
plain codec-threads
mx_codec codec-threads
int4_bf16 codec-threads
rtn rows-split
mx rows-split
cpu backend-repeats
local transport-sums
local transport-two-groups
END
[ $n = 8 ] || fail "only $n rules ran"

[ "$(rule "$racy" codec-threads --component bad --set fault=none)" = passed ] || fail "a good codec does not keep the rule"
verdict=$(rule "$racy" codec-threads --component bad --set fault=races)
if [ "$sanitizer" = thread ]; then
    [ "$verdict" = crashed ] || fail "the race is not found: $verdict"
    jq -es '.[0].rules[0].text | test("ThreadSanitizer: data race")' "$out" >/dev/null || fail "the race is not named"
else
    [ "$verdict" = passed ] || fail "a race that shows in no result: $verdict"
fi
[ "$(rule "$racy" codec-threads --component bad --set fault=threads)" = failed ] || fail "a codec that threads confuse keeps the rule"
