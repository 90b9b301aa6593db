#!/bin/bash
# tests/e2e/completions.sh TESSERA [small] - the scripts that `help --completions` prints: bash's completes what a user
# types, zsh's and fish's are read by their shells where they are installed.  small (sanitized
# builds): without a look for each option.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

for shell in bash zsh fish; do
    run help --completions "$shell"
    ok "$shell: succeeds" test "$rc" = 0
    cp "$WORK/out" "$WORK/$shell"
done
fails "a shell of no name" 2 '--completions' help --completions tcsh
fails "completions of one verb" 2 '--completions' help run --completions bash

# ---- bash -------------------------------------------------------------------
ok "bash: shellcheck has nothing against it" shellcheck -s bash "$WORK/bash"
# shellcheck source=/dev/null
. "$WORK/bash"
mkdir "$WORK/here" "$WORK/here/folder"
touch "$WORK/here/my job.yaml" "$WORK/here/model.gguf"
cd "$WORK/here"

# completes NAME WANTED WORD...: what stands for the last word, sorted and on one line
completes() {
    local name=$1 wanted=$2 got
    shift 2
    COMP_WORDS=(tessera "$@")
    COMP_CWORD=$#
    _tessera
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd ' ')
    [ "$got" = "$wanted" ] || echo "    got: $got" >&2
    ok "bash: $name" test "$got" = "$wanted"
}
verbs=$("$TESSERA" help --json | jq -r '.verbs[].name' | sort | paste -sd ' ')
completes "an empty word is any verb" "$verbs" ''
completes "the start of a verb" "quantize" qu
completes "several verbs" "compare compensate config convert" co
completes "no verb of that start" "" xyz
completes "a verb after common options" "quantize" --color never -v qu
completes "an option of the verb" "--again" run --ag
completes "a common option" "--plugin-path" run --pl
completes "a switch that is on" "--no-hessian" indicators --no-h
completes "--set of a verb that runs jobs" "--set" run --se
completes "and of no other" "--seed --select --set" generate --se
completes "an option of another verb" "" tokenize --again
completes "values of an option" "f16 f32 fp8" generate --kv f
completes "values behind =" "f16 f32 fp8" generate --kv = f
completes "values right behind =" "auto f16 f32 fp8 int4 int8 kivi" generate --kv =
completes "values of a common option" "always auto" generate --color a
completes "a job's file" "my job.yaml" run my
completes "files and folders for a model" "folder model.gguf my job.yaml" generate ''
completes "a folder for --out" "folder" run --out ''
completes "the letter of --out" "folder" run -o ''
completes "a file for --of" "model.gguf" profile --of mod
completes "nothing for a number" "" generate --max-tokens ''
completes "words of a verb" "e2e encode experts" bench e
completes "verbs to explain" "tokenize tune" help t
cd "$ROOT"

# ---- zsh and fish -----------------------------------------------------------
if command -v zsh >/dev/null; then
    ok "zsh reads it" zsh -f -n "$WORK/zsh"
fi
if command -v fish >/dev/null; then
    ok "fish reads it" fish --no-config --no-execute "$WORK/fish"
    fish --no-config -c "source $WORK/fish; complete -C 'tessera generate --kv f'" >"$WORK/fish-out" 2>"$WORK/err"
    ok "fish completes values" test "$(cut -f 1 "$WORK/fish-out" | sort | paste -sd ' ')" = "f16 f32 fp8"
fi
# Each verb and each option of one is in both scripts, which these shells need not be there for.
ok "zsh: is a completion of tessera" grep -qx '#compdef tessera' "$WORK/zsh"
if [ "${2:-}" = small ]; then
    finish
    exit
fi
while read -r verb flag; do
    ok "zsh: $verb --$flag" grep -qE -- "^ +.*--(no-)?${flag}[='}]" \
        <(sed -n "/^    $verb)\$/,/;;/p" "$WORK/zsh")
    ok "fish: $verb --$flag" grep -qE -- "subcommand_from $verb' -l (no-)?$flag( |\$)" "$WORK/fish"
done < <("$TESSERA" help --json | jq -r '.verbs[] | .name as $v | .options[] | $v + " " + .flag')

finish
