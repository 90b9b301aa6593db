#!/bin/bash
# tests/e2e/config.sh TESSERA - job files: every mistake with its place, overrides, origins, the schema,
# and what a job folder remembers.  `UPDATE=1 tests/e2e/config.sh TESSERA` writes bad-yaml/*.places and
# *.expected anew, to be read before they are committed.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

BAD=$ROOT/tests/e2e/bad-yaml
cp "$BAD"/*.yaml "$WORK/"
ln -s "$STORIES" "$WORK/m"
printf 'Once upon a time there was a little girl.%.0s\n' {1..200} >"$WORK/t.txt"

# The examples that ship are good ones.
for file in "$ROOT"/configs/*.yaml; do
    run config check "$file"
    ok "$(basename "$file") is a good job file" test "$rc" = 0
done

# Every file of bad-yaml is refused, quickly, with the errors of its .places: LINE:COLUMN+WIDTH of the caret, the
# object, and what the hint puts between quotation marks.  Two have an .expected, which is all that is printed.
PLACES='"\(.file):\(.line):\(.column)+\(.length)\(if .severity == "error" then "" else " " + .severity end)" +
    " \(.object // "-")" + ([.hint // "" | scan("\u0027[^\u0027]+\u0027")] | map(" -> " + .) | join(""))'
rendered=0
for file in "$BAD"/*.yaml; do
    name=$(basename "$file" .yaml)
    start=${EPOCHREALTIME/./}
    run config check "$name.yaml" --format json
    micros=$((${EPOCHREALTIME/./} - start))
    ok "$name: exit code 2, got $rc" test "$rc" = 2
    jq -r ".[] | $PLACES" "$WORK/out" >"$WORK/places"
    [ -z "${UPDATE:-}" ] || cp "$WORK/places" "$BAD/$name.places"
    ok "$name: each error at its place" diff -u "$BAD/$name.places" "$WORK/places"
    run config check "$name.yaml"
    ok "$name: exit code 2 in words, got $rc" test "$rc" = 2
    ok "$name: stdout stays empty" test ! -s "$WORK/out"
    ok "$name: as many errors are printed" test "$(grep -c "^$name.yaml:" "$WORK/err")" = "$(wc -l <"$WORK/places")"
    if [ -e "$BAD/$name.expected" ]; then
        rendered=$((rendered + 1))
        [ -z "${UPDATE:-}" ] || cp "$WORK/err" "$BAD/$name.expected"
        ok "$name: printed with lines, carets and hints" diff -u "$BAD/$name.expected" "$WORK/err"
    fi
    [ "$micros" -lt 1000000 ] || echo "$name took $((micros / 1000)) ms"
done
ok "two are compared as they are printed" test "$rendered" = 2

cat >"$WORK/job.yaml" <<'END'
version: 1
model: m
seed: 7
pipeline:
  - calibrate: {text: t.txt, samples: 2, seqlen: 32}
  - quantize: {use: rtn, bits: 4, group: 32}
END
run config check job.yaml
ok "a good job is ok" test "$rc" = 0
ok "a good job: one line" test "$(cat "$WORK/out")" = "job.yaml: ok"
run config check job.yaml types.yaml --format json
ok "check --format json: exit code 2" test "$rc" = 2
ok "check --format json: places" json 'any(.file == "types.yaml" and .line == 3 and .column == 7)' "$WORK/out"
run config check no-such.yaml --json
ok "check of a file that is not there: exit code 2, got $rc" test "$rc" = 2
ok "check of a file that is not there: its name" json 'length == 1 and .[0].object == "no-such.yaml"' "$WORK/out"
run config check types.yaml --format github
ok "check --format github" grep -q '^::error file=types.yaml,line=3,col=7::' "$WORK/out"
fails "check without a file" 2 '' config check
fails "an unknown action" 2 'chekc' config chekc job.yaml

# Overrides and where values come from.
run config show job.yaml --set quantize.bits=3 --origin
ok "show: an override with its origin" grep -qE '^ +bits: 3 +# --set quantize.bits=3$' "$WORK/out"
ok "show: a value of the file" grep -qE '^ +samples: 2 +# job.yaml:5$' "$WORK/out"
ok "show: a default" grep -qE '^ +seed: -1 +# default$' "$WORK/out"
run config show job.yaml
cp "$WORK/out" "$WORK/again.yaml"
run config show again.yaml
ok "show prints a job that shows the same" cmp -s "$WORK/out" "$WORK/again.yaml"
run config show job.yaml --json
ok "show --json" json '.pipeline[1].quantize.bits == 4' "$WORK/out"
fails "an override of nothing" 2 '--set nope=1:1:1' config show job.yaml --set nope=1
fails "an override out of range" 2 '--set quantize.bits=12:1:15' config show job.yaml --set quantize.bits=12
run config schema
ok "schema: the job" json '.properties.pipeline.items.anyOf | length > 3' "$WORK/out"
ok "schema: with a step that a plugin brings" json 'any(.properties.pipeline.items.anyOf[].properties.claims; .required == ["source"])' "$WORK/out"
run config schema claims
ok "schema: that step" json '.properties.figure.enum == ["perplexity", "increase"] and (.properties | has("order"))' "$WORK/out"
fails "schema of nothing near a plugin's step" 2 'claim' config schema claim
run config schema calibrate
ok "schema: a step" json '.required == ["text"] and .properties.samples.minimum == 1' "$WORK/out"
fails "schema of nothing" 2 'calibrat' config schema calibrat

# The job folder.
run run job.yaml --out o --json
ok "a job runs" test "$rc" = 0
ok "run --json: the results" json '.format == "tessera.results/1" and .results.quantize.bits_per_weight > 4' \
    "$WORK/out"
cp "$WORK/out" "$WORK/first"
ok "the manifest" json '.format == "tessera.manifest/1" and .options.seed == 7 and
    .options.pipeline[1].quantize.bits == 4 and (.model.hash | startswith("xxh3:")) and
    (.inputs | length) == 1 and (.plugins | any(.id == "org.tessera.rtn")) and .machine.threads >= 1' \
    "$WORK/o/manifest.json"
ok "the results file is what was printed" test "$(jq -cS . "$WORK/o/results.json")" = "$(jq -cS . "$WORK/first")"
run run job.yaml --out o --json
ok "the second run: done" is_done o
ok "the second run prints the same results" test "$(jq -cS . "$WORK/out")" = "$(jq -cS . "$WORK/first")"
run run job.yaml --out words
ok "a job speaks of its result" grep -q '4\.[0-9]* bits per weight' "$WORK/out"
cp "$WORK/out" "$WORK/first"
run run job.yaml --out words
ok "the second run says the same" cmp -s "$WORK/out" "$WORK/first"
# Threads: of the head, of the command line before it, of a step before both; no part of what a job is.
threads() { json ".machine.threads == $1" "$WORK/$2/manifest.json"; }
run run job.yaml --out t1 --set threads=1
ok "threads of the head" threads 1 t1
run run job.yaml --out t1 --threads 3
ok "another number resumes the job" is_done t1
run run job.yaml --out t3 --set threads=1 --threads 3
ok "threads of the command line" threads 3 t3
sed 's/- quantize: .*/- eval: {text: t.txt, window: 32, max_windows: 1, threads: 2}/' "$WORK/job.yaml" >"$WORK/eval.yaml"
run run eval.yaml --out t2 --threads 3
ok "threads of a step" threads 2 t2
fails "threads out of range" 2 '--set threads=257:1:9' run job.yaml --out t4 --set threads=257
fails "another option in the same folder" 2 'o' run job.yaml --out o --set quantize.bits=3
fails "another seed in the same folder" 2 'o' run job.yaml --out o --set seed=8
echo "and another line" >>"$WORK/t.txt"
fails "another text behind the same name" 2 'o' run job.yaml --out o
run run job.yaml --out o --again
ok "--again starts anew" test "$rc" = 0
rm "$WORK/o/results.json"
run run job.yaml --out o
ok "a job without results is run again" test "$rc" = 0
ok "and has them then" test -s "$WORK/o/results.json"
mkdir "$WORK/mine"
echo mine >"$WORK/mine/file"
fails "a stranger's folder" 2 'mine' run job.yaml --out mine
fails "a file as a folder" 2 't.txt' run job.yaml --out t.txt
ln -s o "$WORK/link"
mkfifo "$WORK/taken" "$WORK/over"
# shellcheck disable=SC2016 # $0 and $1 are of the inner shell
(cd "$WORK" && exec flock o bash -c 'echo >"$0"; read -r <"$1"' taken over) &
read -r <"$WORK/taken"
fails "two at once in one folder" 2 'o' run job.yaml --out o
echo >"$WORK/over"
wait
mkdir -p "$WORK/sub/configs"
sed -e 's|model: m|model: ../../m|' -e 's|t.txt|../../t.txt|' "$WORK/job.yaml" >"$WORK/sub/configs/far.yaml"
rc=0
(cd "$WORK/sub" && exec "$TESSERA" run configs/far.yaml) >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "paths are relative to the job file" test "$rc" = 0
ok "and the folder to the current one" test -s "$WORK/sub/out/far/results.json"

# A step as a verb.
run quantize m --use rtn --bits 3 --group 32 --out q --json
ok "quantize as a verb" test "$rc" = 0
ok "quantize as a verb: 3 bits" json '.results.quantize.bits_per_weight | . > 3 and . < 4' "$WORK/out"
fails "a plugin's option, misspelt" 2 '--bitz 3:1:10' quantize m --use rtn --bitz 3 --out q2

# Ctrl-C: the first ends the run cleanly with 75, and the same command goes on.
cat >"$WORK/long.yaml" <<'END'
version: 1
model: m
pipeline:
  - calibrate: {text: t.txt, samples: 100000, seqlen: 64}
END
rc=0
(cd "$WORK" && exec "$TESSERA" run long.yaml --out long --json) >"$WORK/out" 2>"$WORK/err" </dev/null &
pid=$!
while [ ! -e "$WORK/long/manifest.json" ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -INT $pid
wait $pid || rc=$?
ok "Ctrl-C: exit code 75, got $rc" test "$rc" = 75
ok "Ctrl-C: a status" failure '.status == "cancelled"'
ok "Ctrl-C: no results" test ! -e "$WORK/long/results.json"
# Nothing was finished there, so a mended job may take the folder; then it is taken.
run run long.yaml --out long --set calibrate.samples=2
ok "a job that never finished may be mended" test "$rc" = 0
ok "... and has its results" test -e "$WORK/long/results.json"
run run long.yaml --out long --set calibrate.samples=3
ok "another number of samples is another job" test "$rc" = 2

finish
