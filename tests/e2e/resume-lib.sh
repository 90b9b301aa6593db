# shellcheck shell=bash
# tests/e2e/resume-lib.sh - what the tests of batches that go on share: a batch of 17 lines, and what a run of it left that
# was cut after 9.  Called as NAME.sh TESSERA FORGE.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FORGE=$(readlink -f "$2")
cp -r "$ROOT/configs/demo" "$WORK/m1"
job() { printf 'version: 1\nmodel: "%s"\nseed: 3\n' "$1" >"$WORK/job.yaml"; }
job m1
{
    for i in $(seq 1 14); do
        printf '{"custom_id":"r%s","url":"/v1/completions","body":{"prompt":"The %s","max_tokens":%s}}\n' "$i" "$i" $((i % 5 + 2))
    done
    echo '{"custom_id":"r15","url":"/v1/completions","body":{"prompt":7}}'
    echo '{"custom_id":"r16","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hi"}],"max_tokens":3}}'
    echo 'no request'
} >"$WORK/in.jsonl"
J=$WORK/out.jsonl.job/journal
batch() { run batch job.yaml -i in.jsonl -o out.jsonl -q --threads 1 "$@"; }
# half: the batch of job.yaml as a run left it that was cut after 9 lines.
half() {
    cp -r "$WORK/kept.job" "$WORK/out.jsonl.job.new"
    rm -rf "$WORK/out.jsonl" "$WORK/out.jsonl.job"
    mv "$WORK/out.jsonl.job.new" "$WORK/out.jsonl.job"
}
# begin MODEL: a whole run, as clean.jsonl, and what a cut one left, for half.
begin() {
    job "$1"
    rm -rf "$WORK"/out.jsonl "$WORK"/out.jsonl.job "$WORK/kept.job"
    batch
    ok "a batch of $1" test "$rc" = 0
    mv "$WORK/out.jsonl" "$WORK/clean.jsonl"
    "$FORGE" "$J" first 9
    rm -f "$WORK/out.jsonl.job/results.json"
    mv "$WORK/out.jsonl.job" "$WORK/kept.job"
}
goes_on() { # NAME OPTION...
    local name=$1
    shift
    half
    batch "$@"
    ok "$name: 0, got $rc" test "$rc" = 0
    ok "$name: the bytes of the run without faults" cmp "$WORK/out.jsonl" "$WORK/clean.jsonl"
}
differs() { # NAME FACTS OPTION...: a job of another model, option or input, with the keys and values that differ
    differs_in '*/out.jsonl.job' "$@"
}
differs_in() { # OBJECT NAME FACTS OPTION...
    local object=$1 name=$2 facts=$3
    shift 3
    half
    fails_with "$name" 2 "$object" "$facts" batch job.yaml -i in.jsonl -o out.jsonl -q --threads 1 "$@"
    ok "$name: no output" test ! -e "$WORK/out.jsonl"
}
flip() { # FILE BYTE: one bit, and the file is as old as before
    local b
    touch -r "$1" "$WORK/then"
    b=$(od -An -tu1 -j"$2" -N1 "$1")
    # shellcheck disable=SC2059 # the byte
    printf "\\$(printf %03o $((b ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
    touch -r "$WORK/then" "$1"
}
last() { echo $(($(stat -c %s "$1") - ${2:-1})); }
