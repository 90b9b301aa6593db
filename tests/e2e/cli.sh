#!/bin/bash
# tests/e2e/cli.sh TESSERA - rules that hold for every verb: data on stdout, talk on stderr, fixed
# exit codes, help from the tables, JSON that parses.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

run --version
ok "--version succeeds" test "$rc" = 0
ok "--version is one line" test "$(wc -l <"$WORK/out")" = 1
ok "--version names the program and the ABI" grep -qiE '^tessera [0-9]+\.[0-9]+\.[0-9]+.*abi' "$WORK/out"
ok "--version says nothing on stderr" test ! -s "$WORK/err"

# Every verb that the program lists has a help of its own.
run --help
ok "--help succeeds" test "$rc" = 0
ok "--help says nothing on stderr" test ! -s "$WORK/err"
cp "$WORK/out" "$WORK/help"
for verb in run logits generate tokenize eval roundtrip plan bench inspect config; do
    ok "--help lists $verb" grep -qE "^ +$verb( |$)" "$WORK/help"
    start=${EPOCHREALTIME/./}
    run "$verb" --help
    micros=$((${EPOCHREALTIME/./} - start))
    ok "$verb --help succeeds" test "$rc" = 0
    ok "$verb --help says nothing on stderr" test ! -s "$WORK/err"
    ok "$verb --help names the verb" grep -q "tessera $verb" "$WORK/out"
    ok "$verb --help lists --json" grep -q -- '--json' "$WORK/out"
    echo "$verb --help: $((micros / 1000)) ms"
done

# Every verb is in one group of `help`, and every line of help fits into a terminal.
run help --json
ok "help --json: every verb has a group" json '.format == "tessera.help/1" and (.verbs | length > 20) and all(.verbs[]; .group)' \
    "$WORK/out"
mapfile -t verbs < <(jq -r '.verbs[].name' "$WORK/out")
run help
ok "help lists every verb once" test "$(printf '%s\n' "${verbs[@]}" | sort)" = \
    "$(sed -n '/^usage/,/^options/s/^  \([a-z][a-z-]*\)\( .*\|$\)/\1/p' "$WORK/out" | sort)"
for verb in '' "${verbs[@]}"; do
    run help ${verb:+"$verb" --all}
    ok "help $verb: no line of more than 80 columns" test -z "$(grep -E '.{81}' "$WORK/out" | tee /dev/stderr)"
done
run help quantize
ok "a file is FILE" grep -q -- '--text FILE ' "$WORK/out"
ok "a folder is FOLDER" grep -q -- '-o, --out FOLDER ' "$WORK/out"

# Usage errors: exit code 2, one sentence, the nearest name.
fails "an unknown verb" 2 'genrate' genrate
fails "an unknown option" 2 '--tokns' logits "$STORIES" --tokns 1,2
fails "a missing argument" 2 'generate' generate
fails "a number out of range" 2 '--max-tokens -1:1:21' generate "$STORIES" --prompt a --max-tokens -1
fails "tokens that are none" 2 '' logits "$STORIES" --tokens 1,2x -o l.safetensors
fails "a token past the vocabulary" 2 '' logits "$STORIES" --tokens 99999999 -o l.safetensors
fails "a name that is no UTF-8" 2 'no-?-such' eval $'no-\xb5-such'
fails "a folder that is not there" 2 'no-such' logits no-such --tokens 1 -o l.safetensors
fails "an output folder that is not there" 2 'nowhere/l.safetensors' logits "$STORIES" --tokens 1 \
    -o nowhere/l.safetensors
fails "a job that is not there" 2 'no-such.yaml' run no-such.yaml
fails "an unknown plugin" 2 nosuch roundtrip nosuch in.safetensors -o o.safetensors
fails "an unknown solver or file" 2 'no-such.json' plan --instance no-such.json --solver uniform --json
ok "a failing command leaves no output" test ! -e "$WORK/l.safetensors"

# Output that cannot be written is a failure, never silence.
if [ -w /dev/full ]; then
    rc=0
    "$TESSERA" --help >/dev/full 2>"$WORK/err" || rc=$?
    ok "a full disk behind stdout is exit code 4, got $rc" test "$rc" = 4
fi

# JSON on stdout is one value, and stays so when everything talks.
run generate "$STORIES" --tokens 1 --max-tokens 8 --greedy --ignore-eos --json -v -v
ok "generate --json -v -v succeeds" test "$rc" = 0
ok "generate --json -v -v: stdout is JSON" json '(.tokens | length) == 8 and (.text | type) == "string"' "$WORK/out"
ok "generate --json -v -v: talk is on stderr" test -s "$WORK/err"
run generate "$STORIES" --tokens 1 --max-tokens 8 --greedy --ignore-eos --json --quiet
ok "--quiet: nothing on stderr" test ! -s "$WORK/err"
run logits "$STORIES" --tokens 1,5,9 -o l.safetensors --json
ok "logits --json succeeds" test "$rc" = 0
run inspect --json
ok "inspect --json: stdout is JSON" json . "$WORK/out"
run config schema
ok "config schema: stdout is JSON" json 'type == "object"' "$WORK/out"

# No escape sequences without a terminal.
run logits "$STORIES" --tokns 1
ok "no colour in a pipe" test "$(grep -c $'\033' "$WORK/err" || true)" = 0

# Input that is no regular file must not hang.
mkfifo "$WORK/fifo"
fails "a FIFO as a job" 2 'fifo' run fifo
mkdir "$WORK/model"
cp "$STORIES"/*.json "$WORK/model/"
mkfifo "$WORK/model/model.safetensors"
fails "a FIFO as weights" 2 'model/model.safetensors' logits model --tokens 1 -o l.safetensors

# a program whose file was replaced while it started: its plugins would be of another build
cp "$TESSERA" "$WORK/gone"
rc=0
(exec 9<"$WORK/gone" && rm "$WORK/gone" && exec /proc/self/fd/9 inspect rtn --json) >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "a program without its file fails, got $rc" test "$rc" = 1
ok "and says so" mentions "program's own file"

finish
