#!/bin/bash
# tests/e2e/limits.sh TESSERA - few descriptors and little memory: every verb does its work, or exits with 4 and says
# one sentence, and leaves nothing under the name of its output.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
head -c 20000 "$DEMO/held-out.txt" >"$WORK/text.txt"
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 2}}' >"$WORK/in.jsonl"
run quantize @demo --use rtn --bits 4 -o packed -q
ok "a packed model, got $rc" test "$rc" = 0
cat >"$WORK/job.yaml" <<JOB
version: 1
model: '@demo'
pipeline:
  - eval: {text: text.txt, protocol: gptq-2048, max_windows: 1}
JOB
cat >"$WORK/compare.yaml" <<JOB
version: 1
model: '@demo'
pipeline:
  - eval: {text: text.txt, protocol: gptq-2048, max_windows: 1}
  - compare: {arms: {a: {quantize: {use: rtn, bits: 4}}}}
JOB
cat >"$WORK/plan.yaml" <<JOB
version: 1
model: '@demo'
cluster: t4x3-v100
workload: {prompt: 16, generate: 8, batch: 2}
pipeline:
  - plan: {bits: [4, 8]}
JOB

# under LIMIT ARGUMENT...: as run, within a limit of the shell
under() {
    local limit=$1
    shift
    rc=0
    # shellcheck disable=SC2086 # an option and its value
    (cd "$WORK" && ulimit $limit && exec timeout 60 "$TESSERA" "$@" -q) >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
}

verbs=(
    "generate @demo --prompt Once --max-tokens 2"
    "generate packed --tokens 1,2 --max-tokens 2"
    "logits @demo --tokens 1,2 -o new"
    "tokenize @demo --text Once"
    "inspect @demo"
    "inspect"
    "plan plan.yaml -o new"
    "eval @demo --text text.txt --max-windows 1"
    "quantize @demo --use rtn --bits 4 -o new"
    "convert packed --to gguf -o new"
    "convert @demo --to hf -o new"
    "convert @demo --to prepacked -o new"
    "add-outliers @demo -o new --triples 1"
    "export @demo --to exported -o new"
    "run job.yaml -o new"
    "batch @demo -i in.jsonl -o new"
    "compare compare.yaml -o new"
)
# each LIMIT CODES: every verb ends with one of the codes; if not with 0, with one sentence and without an output
each() {
    local line words
    for line in "${verbs[@]}"; do
        read -ra words <<<"$line"
        under "$1" "${words[@]}"
        ok "ulimit $1: ${words[*]}: exit code $rc" grep -qw -- "$rc" <<<"$2"
        if [ "$rc" != 0 ]; then
            ok "ulimit $1: ${words[*]}: one sentence" test "$(wc -l <"$WORK/err")" = 1
            ok "ulimit $1: ${words[*]}: it is an error" grep -q '^tessera: error: ' "$WORK/err"
        else
            ok "ulimit $1: ${words[*]}: nothing is refused" test "$(grep -c 'warning: .*\.so' "$WORK/err")" = 0
        fi
        case ${words[0]} in
        quantize | run | plan | batch | compare | export) ;; # a job folder that is gone on with may stand
        *) [ "$rc" = 0 ] || ok "ulimit $1: ${words[*]}: no output" test ! -e "$WORK/new" ;;
        esac
        rm -rf "$WORK"/new "$WORK"/new.job
        ok "ulimit $1: ${words[*]}: nothing is left beside it" test -z "$(find "$WORK" -maxdepth 1 -name '.*part*' -o -maxdepth 1 -name '.new*')"
    done
}
each "-n 16" "0"
each "-n 7" "0 4"
if [ "$2" = whole ]; then # sanitizers take address space of their own
    each "-v 24576" "0 4"
    each "-v 40000" "0 4"
fi

# a disk that is full while the weights are written, as the limit of a file's size
while read -r line; do
    read -ra words <<<"$line"
    under "-f 3000" "${words[@]}" --json
    ok "full disk: $line: exit code 4, got $rc" test "$rc" = 4
    ok "full disk: $line: one error" failure '.status == "disk-full" and .object'
    ok "full disk: $line: no part is left" test -z "$(find "$WORK" -maxdepth 1 -name '*new*')"
    rm -rf "$WORK/new"
done <<VERBS
convert @demo --to hf -o new
convert @demo --to gguf -o new
convert packed --to gguf --type f16 -o new
convert @demo --to prepacked -o new
add-outliers @demo -o new
VERBS
finish
