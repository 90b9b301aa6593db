#!/usr/bin/env bash
# threads.sh TESSERA PLUGINS FIXTURES SANITIZER - the rules that use one instance, or one group of ranks, from several
# threads: the plugins of the tree keep them, and under ThreadSanitizer (SANITIZER is thread) a quantizer, a codec, a sampler and a
# KV-cache codec whose instances write to one place are found.  Their results are right, so that without ThreadSanitizer they keep the rule.
set -euo pipefail
tessera=$1 plugins=$2 fixtures=$3 sanitizer=$4
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
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
rtn deterministic
rtn quantize-threads
mx quantize-threads
gptq quantize-threads
cpu backend-repeats
local transport-sums
local transport-two-groups
grammar sampler-threads
min_p sampler-threads
kivi kv-threads
kv8 kv-threads
END
[ $n = 14 ] || fail "only $n rules ran"

# found KIND RULE [ARGUMENT...]: a race that shows in no result.  It is seen only where two threads were at work, which a busy
# machine may not give a short run.
found() {
    local kind=$1 verdict try
    verdict=$(rule "$fixtures/racy_$kind.so" "${@:2}")
    if [ "$sanitizer" = thread ]; then
        for try in 2 3 4 5; do
            [ "$verdict" != passed ] || verdict=$(rule "$fixtures/racy_$kind.so" "${@:2}" --seed $try)
        done
        [ "$verdict" = crashed ] || fail "$kind: the race is not found: $verdict"
        jq -es '.[0].rules[0].text | test("ThreadSanitizer: data race")' "$out" >/dev/null || fail "$kind: the race is not named"
    else
        [ "$verdict" = passed ] || fail "$kind: a race that shows in no result: $verdict"
    fi
}
found quantizer deterministic
found quantizer quantize-threads
for kind in codec sampler kv; do
    racy=$fixtures/racy_$kind.so rule=$kind-threads
    [ "$(rule "$racy" "$rule" --component bad --set fault=none)" = passed ] || fail "a good $kind does not keep the rule"
    found "$kind" "$rule" --component bad --set fault=races
    [ "$(rule "$racy" "$rule" --component bad --set fault=threads)" = failed ] || fail "a $kind that threads confuse keeps the rule"
done
