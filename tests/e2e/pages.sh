#!/bin/bash
# tests/e2e/pages.sh TESSERA TUTORIAL [--write] - what the pages for users show is so.
#
# README.md and docs/guide: every ```yaml block that begins with `version:` is a valid job where the files
# that it names exist.
# docs/tutorial.md: a ```yaml NAME or ```json NAME block is written to that file, a ```sh block is run, and
# the ```text block after it is what it printed, byte for byte: stdout, or stderr after ```sh fails.
# --write puts what was printed into the page.  README shows the tutorial's job and lines of its output.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
TUTORIAL=$(readlink -f "$2")
PAGE=$ROOT/docs/tutorial.md
umask 022

# ---- jobs ---------------------------------------------------------------------------
JOBS=$WORK/jobs
mkdir -p "$JOBS/models/opt-30b"
cp "$ROOT"/configs/demo/{held-out,calibration}.txt "$TUTORIAL/clip.so" "$JOBS"
cp "$ROOT/configs/plan/opt-30b/config.json" "$JOBS/models/opt-30b"
ln -s "$ROOT/configs/demo" "$JOBS/other-model"
echo '{"context": "The sky is", "choices": ["blue", "green"], "answer": 0}' >"$JOBS/questions.jsonl"
echo '{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "Once"}}' >"$JOBS/prompts.jsonl"
printf 'version: 1\nmodel: "@demo"\npipeline:\n  - calibrate: {text: calibration.txt}\n  - quantize: {use: rtn, bits: 4}\n' \
    >"$JOBS/quantize-rtn.yaml"
run plan "$ROOT/configs/plan/demo.yaml" -o "$JOBS/plan.yaml" -q
ok "a plan for the jobs" test -s "$JOBS/plan.yaml"
jobs=0
for page in "$ROOT"/README.md "$ROOT"/docs/guide/*.md; do
    name=$(basename "$page" .md)
    awk -v stem="$JOBS/$name" -v models="$JOBS/models/" '
        /^```yaml/ { file = stem "-" ++n ".yaml"; on = 1; next }
        /^```/ { on = 0 }
        on { gsub("/models/", models); print >file }' "$page"
    for job in "$JOBS/$name"-[0-9].yaml; do
        grep -qs '^version:' "$job" || continue
        jobs=$((jobs + 1))
        run config check "$job"
        ok "$name: job $(basename "$job" .yaml) is valid: $(head -n 3 "$WORK/err")" test "$rc" = 0
    done
done
ok "the pages have jobs" test $jobs -ge 8

# ---- the tutorial ----------------------------------------------------------------------
mkdir "$WORK/reader" "$WORK/bin"
ln -s "$TESSERA" "$WORK/bin/tessera"
export PATH=$WORK/bin:$PATH
cd "$WORK/reader"
cp "$ROOT"/configs/demo/{held-out,calibration}.txt .
shells=0 shown=0 kind='' printed=$WORK/log
while IFS= read -r line; do
    if [ -z "$kind" ] && [[ $line == '```'* ]]; then
        kind=${line#'```'}
        : >"$WORK/block"
        printf '%s\n' "$line"
        [ "$kind" != text ] || { cat "$printed"; shown=$((shown + 1)); }
    elif [ "$line" = '```' ]; then
        case $kind in
        sh | 'sh fails')
            shells=$((shells + 1)) rc=0
            bash -e "$WORK/block" >"$WORK/log" 2>"$WORK/err" </dev/null || rc=$?
            printed=$WORK/log
            if [ "$kind" = sh ]; then
                ok "the commands: $(tr '\n' ';' <"$WORK/block")" test $rc = 0 >&2
            else
                printed=$WORK/err
                ok "these commands fail: $(tr '\n' ';' <"$WORK/block")" test $rc != 0 >&2
            fi
            ;;
        'yaml '* | 'json '*) cp "$WORK/block" "${kind#* }" ;;
        esac
        kind=''
        printf '%s\n' "$line"
    elif [ "$kind" != text ]; then
        printf '%s\n' "$line"
        [ -z "$kind" ] || printf '%s\n' "$line" >>"$WORK/block"
    fi
done <"$PAGE" >"$WORK/page"
if [ "${3:-}" = --write ]; then
    cat "$WORK/page" >"$PAGE"
fi
ok "the tutorial has commands and output" test $shells -ge 6 -a $shown -ge 5
ok "the output is what the page shows (tests/e2e/pages.sh TESSERA TUTORIAL --write)" diff -u "$PAGE" "$WORK/page"

# ---- what README shows is the tutorial's ---------------------------------------------------
block() { awk -v kind="$1" '$0 ~ "^```" kind { on = 1; next } /^```/ { on = 0 } on' "$2"; }
ok "README: the job is the tutorial's" diff <(block yaml "$ROOT/README.md" | sed 's/ *#.*//') compare.yaml
block text "$ROOT/README.md" >"$WORK/lines"
ok "README: it shows a table" test "$(wc -l <"$WORK/lines")" -ge 6
while IFS= read -r line; do
    ok "README: the tutorial prints '$line'" grep -qxF -- "$line" "$WORK/page"
done <"$WORK/lines"
finish
