#!/bin/bash
# tests/e2e/resume-journal.sh TESSERA FORGE - journals with right sums and wrong lines, files that change during a run, and what a
# batch says of the records that failed.
# shellcheck source=tests/e2e/resume-lib.sh
. "$(dirname "$0")/resume-lib.sh"

# ---- lines that are no answers ------------------------------------------------------------------
begin m1
line() { sed -n "$1p" "$WORK/clean.jsonl"; }
forged() { # NAME FORGE-ARGUMENT...
    local name=$1
    shift
    half
    "$FORGE" "$J" "$@"
    cp "$J" "$WORK/forged"
    fails "$name" 2 '*/out.jsonl.job/journal' \
        batch job.yaml -i in.jsonl -o out.jsonl -q --threads 1
    ok "$name: the command to go on with" mentions 'journal repair'
    ok "$name: no output" test ! -e "$WORK/out.jsonl"
    ok "$name: the journal is as it was" cmp "$J" "$WORK/forged"
    fails "$name: journal check" 2 'out.jsonl.job/journal' journal check out.jsonl --input in.jsonl
    # what journal repair leaves goes on to the bytes of the run without faults
    run journal repair out.jsonl --input in.jsonl
    ok "$name: repaired" test "$rc" = 0 -a -s "$J.repaired"
    mv "$J.repaired" "$J"
    batch
    ok "$name: whole after it" cmp "$WORK/out.jsonl" "$WORK/clean.jsonl"
}
forged "the line of another record" line 3 "$(line 4)"
forged "another custom_id" line 3 "$(line 3 | jq -c '.custom_id = "x"')"
forged "no custom_id" line 3 "$(line 3 | jq -c '.custom_id = null')"
forged "no JSON" line 3 'hello'
forged "an empty line" line 3 ''
forged "cut JSON" line 3 "$(line 3 | head -c 60)"
forged "two values" line 3 "$(line 3)$(line 3)"
forged "two lines" line 3 "$(line 3)"$'\n'"$(line 3)"
forged "a list" line 3 '[1]'
forged "an error line as a result" type 3
forged "no choices" line 3 "$(line 3 | jq -c 'del(.response.body.choices)')"
forged "two choices" line 3 "$(line 3 | jq -c '.response.body.choices += [1]')"
forged "another member" line 3 "$(line 3 | jq -c '.more = 1')"
forged "both" line 3 "$(line 3 | jq -c '.error = {"code":"a","message":"b"}')"
# The id alone tells jobs and places apart; it is known where the job is, so not to `journal check`.
half
"$FORGE" "$J" line 3 "$(line 3 | jq -c '.id = "batch_req_0123456789abcdef"')"
fails "the id of another job" 2 '*/out.jsonl.job/journal' batch job.yaml -i in.jsonl -o out.jsonl -q
# Error lines: all 17 are in the journal, without the seal.
all() {
    rm -rf "$WORK/out.jsonl" "$WORK/out.jsonl.job"
    batch
    rm "$WORK/out.jsonl" "$WORK/out.jsonl.job/results.json"
    "$FORGE" "$J" first 17
}
all
"$FORGE" "$J" line 17 "$(line 17 | jq -c '.error.code = 3')"
fails "an error without a code" 2 '*/out.jsonl.job/journal' batch job.yaml -i in.jsonl -o out.jsonl -q
all
"$FORGE" "$J" line 17 "$(line 17 | jq -c '.custom_id = "r17"')"
fails "a custom_id that the request does not have" 2 '*/out.jsonl.job/journal' batch job.yaml -i in.jsonl -o out.jsonl -q
all
"$FORGE" "$J" type 15
fails "a result in an error line" 2 '*/out.jsonl.job/journal' batch job.yaml -i in.jsonl -o out.jsonl -q
all
batch
ok "and as they were" cmp "$WORK/out.jsonl" "$WORK/clean.jsonl"
run journal check out.jsonl --input in.jsonl
ok "journal check of a whole one" test "$rc" = 0 -a -n "$(grep '17 lines, all as they should be' "$WORK/out")"
head -n 3 "$WORK/in.jsonl" >"$WORK/good.jsonl"
fails "journal check with another input" 2 'good.jsonl' journal check out.jsonl --input good.jsonl
fails "journal check of nothing" 2 'nothere' journal check nothere
run batch job.yaml -i in.jsonl -o part.jsonl -q --shard 2/3
run journal check part.jsonl --input in.jsonl
ok "journal check of a shard" test "$rc" = 0

# ---- what failed, by code ------------------------------------------------------------------------
rm -rf "$WORK/out.jsonl" "$WORK/out.jsonl.job"
run batch job.yaml -i in.jsonl -o out.jsonl
ok "records that failed: 0" test "$rc" = 0
said() {
    ok "$1: counts by code" grep -q 'out\.jsonl: 3 of 17 .*\b2 invalid_request\b.*\b1 invalid_json\b' "$WORK/err"
    ok "$1: the first of each" grep -q '^  invalid_request.*\b15\b.*"prompt"' "$WORK/err"
    ok "$1: its line" grep -q '^  invalid_json.*\b17\b' "$WORK/err"
}
said "at the end"
ok "in the results" json '.results.run.errors_by_code | map([.code, .records, .line]) == [["invalid_request", 2, 15], ["invalid_json", 1, 17]]' "$WORK/out.jsonl.job/results.json"
ok "as in the output" json -s '[.[] | .error | objects | .code] | length == 3 and (map(select(. == "invalid_json")) | length) == 1' "$WORK/out.jsonl"
run batch job.yaml -i in.jsonl -o out.jsonl
said "a batch that was done"
run batch job.yaml -i in.jsonl -o out.jsonl --fail-on-errors
ok "--fail-on-errors of a batch that was done: 1, got $rc" test "$rc" = 1
said "--fail-on-errors"
rm -rf "$WORK/out.jsonl" "$WORK/out.jsonl.job"
run batch job.yaml -i in.jsonl -o out.jsonl --fail-on-errors -q --json
ok "--fail-on-errors: 1, got $rc" test "$rc" = 1
ok "the output is whole all the same" cmp "$WORK/out.jsonl" "$WORK/clean.jsonl"
ok "and it is said why, also with -q" mentions '\b3 of 17\b.*\b2 invalid_request\b.*\b1 invalid_json\b'
run batch job.yaml -i good.jsonl -o good.out --fail-on-errors
ok "--fail-on-errors where none failed: 0" test "$rc" = 0 -a -z "$(grep failed "$WORK/err")"
tail -n 1 "$WORK/in.jsonl" >"$WORK/bad.jsonl"
run batch job.yaml -i bad.jsonl -o bad.out
ok "nothing but error lines: 0, and it is said" test "$rc" = 0 -a -n "$(grep 'no record has an answer' "$WORK/err")"
run batch job.yaml -i bad.jsonl -o bad.out --fail-on-errors
ok "nothing but error lines, --fail-on-errors: 1" test "$rc" = 1
printf 'version: 1\nmodel: m1\npipeline:\n  - run: {input: bad.jsonl, output: a.jsonl, fail_on_errors: true}\n' >"$WORK/step.yaml"
run run step.yaml --out steps
ok "the same as a step: 1" test "$rc" = 1 -a -s "$WORK/steps/a.jsonl"

# ---- files that change during a run --------------------------------------------------------------
for i in 1 2; do
    printf '{"custom_id":"s%s","url":"/v1/completions","body":{"prompt":"The %s","max_tokens":400,"ignore_eos":true}}\n' "$i" "$i"
done >"$WORK/slow.jsonl"
for i in $(seq 1 4); do
    printf '{"custom_id":"f%s","url":"/v1/completions","body":{"prompt":"The %s","max_tokens":2}}\n' "$i" "$i"
done >"$WORK/quick.jsonl"
cat "$WORK/quick.jsonl" "$WORK/slow.jsonl" >"$WORK/long.jsonl"
long() { (cd "$WORK" && exec "$TESSERA" batch job.yaml -i long.jsonl -o long.out -q --json --threads 1 --set run.slots=1 --set run.stall=600) >"$WORK/out" 2>"$WORK/err" </dev/null; }
# caught: a run whose worker stands still, with 4 lines and before its end; sets pid and worker.  Once more where the machine is so
# busy that the run was over before.
caught() {
    local i
    for ((i = 0; i < 10; i++)); do
        rm -rf "$WORK/long.out" "$WORK/long.out.job"
        long &
        pid=$!
        while kill -0 "$pid" 2>/dev/null; do
            if grep -qa '"custom_id":"f4"' "$WORK/long.out.job/journal" 2>/dev/null; then
                worker=$(awk '{ print $1 }' "/proc/$pid/task/$pid/children" 2>/dev/null)
                [ -n "$worker" ] && kill -STOP "$worker" 2>/dev/null && [ ! -e "$WORK/long.out" ] && return 0
                break
            fi
            sleep 0.01
        done
        [ -z "${worker:-}" ] || kill -CONT "$worker" 2>/dev/null || true
        wait "$pid" || true
    done
    return 1
}
# during NAME FILE COMMAND...: the command is run while the worker stands still in the middle of its work
during() {
    local name=$1 file=$2 pid='' worker='' seen=0
    shift 2
    caught || seen=1
    ok "$name: the worker stands still before its end" test "$seen" = 0
    "$@"
    [ -z "$worker" ] || kill -CONT "$worker"
    rc=0
    wait "$pid" || rc=$?
    ok "$name: 2, got $rc" test "$rc" = 2
    ok "$name: one error, about $file, got $(object)" eval '[[ /$(object) == */$file ]]'
    ok "$name: and the output" mentions 'long[.]out'
    ok "$name: no output" test ! -e "$WORK/long.out"
}
again() { # NAME: what was done is kept, and goes on to the bytes of the run without faults
    long || true
    ok "$1: whole in the end" cmp "$WORK/long.out" "$WORK/long.clean"
}
run convert m1 -o a.tsr --to prepacked
job a.tsr
long
mv "$WORK/long.out" "$WORK/long.clean"
during "a bit of a prepacked file" a.tsr flip "$WORK/a.tsr" 4196
lines=$("$TESSERA" journal show "$WORK/long.out" --json | jq .lines)
ok "lines of changed weights are not in the journal: $lines of 4" test "$lines" = 4
fails "the next start" 2 'a.tsr' batch job.yaml -i long.jsonl -o long.out -q
flip "$WORK/a.tsr" 4196
again "a bit that was put back"
cp "$WORK/a.tsr" "$WORK/b.tsr"
during "another file in its place" a.tsr mv "$WORK/b.tsr" "$WORK/a.tsr"
again "another file with the same content"
job m1
rm -rf "$WORK/long.out" "$WORK/long.out.job"
long
mv "$WORK/long.out" "$WORK/long.clean"
shard=$(basename "$(find "$WORK/m1" -name '*.safetensors' | head -n 1)")
during "a bit of safetensors" "$shard" flip "$WORK/m1/$shard" "$(last "$WORK/m1/$shard")"
flip "$WORK/m1/$shard" "$(last "$WORK/m1/$shard")"
again "a bit of safetensors that was put back"
during "tokenizer.json" tokenizer.json touch "$WORK/m1/tokenizer.json"
again "a file that was touched"
during "a text that was not there" chat_template.jinja cp "$WORK/job.yaml" "$WORK/m1/chat_template.jinja"
fails "the next start" 2 '*/long.out.job' batch job.yaml -i long.jsonl -o long.out -q --set run.slots=1
rm "$WORK/m1/chat_template.jinja"
during "the requests" long.jsonl touch "$WORK/long.jsonl"
again "requests that were touched"
finish
