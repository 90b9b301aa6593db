#!/bin/bash
# tests/abi/refused.sh TESSERA FIXTURE_DIR NAME... - every plugin that is wrong in one way: the program names it
# in one sentence and exits with 2; a job that asks for it ends there.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/../e2e/lib.sh"
FIXTURES=$(readlink -f "$2")
umask 022

shift 2
for name in "$@"; do
    so=$FIXTURES/$name.so
    fails "$name" 2 "$so*" inspect "$so"
done
ok "$# plugins that do not fit, 24 at least" test $# -ge 24

cat >"$WORK/job.yaml" <<JOB
version: 1
model: "@demo"
plugins: [$FIXTURES/bad_needs.so]
pipeline:
  - quantize: {use: good}
JOB
fails "a job with one of them" 2 "job.yaml:3:11" run job.yaml --out out

# In a folder the others are taken, and it is told what was not.
mkdir "$WORK/folder"
cp "$FIXTURES"/{good,bad_twice,bad_major}.so "$WORK/folder/"
run inspect --plugin-path "$WORK/folder" --json
ok "the good one of a folder is there" json 'any(.plugins[]; .id == "org.example.fixture" and .name == "good")' "$WORK/out"
ok "the others are listed with the reason" json '[.refused[].why] | length == 2 and
    any(.[]; test("appears twice in this plugin")) and any(.[]; test("built for ABI 2.3"))' "$WORK/out"
finish
