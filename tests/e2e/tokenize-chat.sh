#!/bin/bash
# tests/e2e/tokenize-chat.sh TESSERA - `tokenize --jsonl` with conversations: the texts, and the messages of raise_exception(),
# are those that Jinja2 recorded (tests/golden/template); the ids are those of the text, and wrong lines and templates get
# one sentence.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
GOLDEN=$ROOT/tests/golden/template
mkdir "$WORK/bare"
cp "$STORIES/tokenizer.json" "$WORK/bare/"

# answers ARGUMENT...: what the program says to the lines in $WORK/lines
answers() {
    rc=0
    (cd "$WORK" && exec "$TESSERA" tokenize bare --jsonl "$@") <"$WORK/lines" >"$WORK/out" 2>"$WORK/err" || rc=$?
}

# lines FILE: a line for each recorded case of a template, with its special tokens as variables (jq would write 1.0 as 1)
lines() {
    python3 - "$GOLDEN" "$1" <<'PY'
import json, sys
golden = json.load(open(sys.argv[1] + "/cases.json"))
contexts = {c["name"]: c["values"] for c in json.load(open(sys.argv[1] + "/contexts.json"))}
for case in golden["cases"]:
    if case.get("file") == sys.argv[2]:
        print(json.dumps({**contexts[case["context"]], **golden["own"]}))
PY
}
cases=0
for template in "$GOLDEN"/templates/*.jinja; do
    name=$(basename "$template")
    lines "$name" >"$WORK/lines"
    answers --template "$template"
    cases=$((cases + $(wc -l <"$WORK/out")))
    ok "$name: each conversation is what Jinja2 makes of it" json -s --arg file "$name" --slurpfile golden "$GOLDEN/cases.json" '
        [$golden[0].cases[] | select(.file == $file)] as $want | length == ($want | length) and
        all(range(length) as $i | [.[$i], $want[$i]]; .[0] as $got | .[1] as $w |
            if $w.text then $got.text == $w.text and ($got.ids | length > 0) == ($w.text != "")
            elif $w.refuses then $got == {error: $w.refuses} else ($got.error | length > 0) end)' "$WORK/out"
done
ok "all recorded cases of the files, got $cases" test "$cases" = "$(jq '[.cases[] | select(.file)] | length' "$GOLDEN/cases.json")"
ok "some of them are refused" test "$(jq '[.cases[] | select(.file and .refuses)] | length' "$GOLDEN/cases.json")" -gt 0

echo '{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}answer: {% endif %}' >"$WORK/own.jinja"
talk='"messages":[{"role":"user","content":"Once upon"}]'
printf '%s\n' "{$talk}" "{$talk,\"add_generation_prompt\":true}" '{"messages":3}' '{"text":"a","more":1}' >"$WORK/lines"
answers --template own.jinja
ok "lines that are wrong: exit code 2, got $rc" test "$rc" = 2
ok "no beginning of an answer unless asked for" json -s '.[0].text == "user: Once upon\n" and
    .[1].text == "user: Once upon\nanswer: " and (.[0].ids | length) < (.[1].ids | length)' "$WORK/out"
ok "wrong lines say what is wrong" json -s '(.[2].error | test("^line 3: \"messages\" is not a list$")) and
    (.[3].error | test("^line 4: unknown key \"more\""))' "$WORK/out"
jq -c 'select(.text) | {text}' "$WORK/out" >"$WORK/lines"
jq -c 'select(.text) | .ids' "$WORK/out" >"$WORK/ids"
answers
ok "the ids are those of the text" diff "$WORK/ids" <(jq -c .ids "$WORK/out")

echo '{% if' >"$WORK/bad.jinja"
fails_with "a template that is none" 2 '*' 'bad\.jinja:1:' tokenize bare --jsonl --template bad.jinja
fails_with "no such template" 2 '*' '"nope"' tokenize bare --jsonl --template nope
fails_with "a template for one text" 2 '*' '--template goes with --jsonl' tokenize bare --text a --template own.jinja
fails_with "no date" 2 '*' "'x' is not a date" tokenize bare --jsonl --template own.jinja --date x
echo "{$talk}" >"$WORK/lines"
answers
ok "a model without a template says so" json '.error | test("the model has no chat template")' "$WORK/out"
finish
