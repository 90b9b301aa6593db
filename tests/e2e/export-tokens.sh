#!/bin/bash
# tests/e2e/export-tokens.sh TESSERA - tokenizers of SentencePiece's kind in a GGUF file: a text has the ids that it has
# beside the folder; what such a file cannot say is refused.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
TOKENIZERS=$ROOT/tests/golden/tokenizers
run convert @demo -o plain --to hf
ok "a folder, got $rc" test "$rc" = 0
rm -f "$WORK/plain/chat_template.jinja"

# folder NAME JQ: the demo model beside a tokenizer.json that the program makes
folder() {
    cp -r "$WORK/plain" "$WORK/$1"
    jq -c "$2" >"$WORK/$1/tokenizer.json"
}
complete() { jq -c -f "$ROOT/tests/e2e/spm-merges.jq" "$TOKENIZERS/$1/tokenizer.json"; }
ids() { # MODEL: of the lines of JSON on standard input
    "$TESSERA" tokenize "$1" --jsonl 2>"$WORK/err"
}
# same NAME TEXTS: the ids are those beside the folder
same() {
    run convert "$1" -o "$1.gguf" --to gguf
    ok "$1 to gguf, got $rc" test "$rc" = 0
    (cd "$WORK" && ids "$1" <"$2" >"$1.want" && ids "$1.gguf" <"$2" >"$1.got")
    ok "$1: $(wc -l <"$WORK/$2") texts, the same ids" cmp "$WORK/$1.want" "$WORK/$1.got"
    ok "$1: texts have ids" test "$(grep -c '"ids": \[[0-9]' "$WORK/$1.want")" -gt 4
}
texts() { # NAME SKIPPED: texts of its cases without a pattern
    jq -c --arg no "$2" '.encode[] | select(.text | test($no) | not) | {text, special: true}' \
        "$TOKENIZERS/$1/cases.json" >"$WORK/$1.jsonl"
}
texts llama2 '^$'
complete llama2 | folder llama2 .
same llama2 llama2.jsonl
run convert llama2.gguf -o again.gguf --to gguf
ok "gguf to gguf, got $rc" test "$rc" = 0
ok "the file of a file has the same ids" cmp "$WORK/llama2.want" <(cd "$WORK" && ids again.gguf <llama2.jsonl)
# What a file cannot say: that a text with a space in front of it, or after a special token, gets no other one; and that
# special tokens take spaces.
texts mistral $'<s>|</s>|<unk>|INST|^ |^\xe2\x96\x81'
complete mistral | folder mistral .
same mistral mistral.jsonl
texts phi3 '<[|]|<s>|</s>|<unk>'
complete phi3 | folder phi3 .
same phi3 phi3.jsonl
# added tokens of spaces, which merges make as Gemma's do: a file has them as a text has spaces
# shellcheck disable=SC2016 # jq reads it
spaces='("\u2581" * 2) as $two | .model.vocab += (.added_tokens | map({ (.content): .id }) | add)
    | .model.merges = [["\u2581", "\u2581"], [$two, $two]] + .model.merges'
printf '%s\n' 'a  b' 'a   b     c' '    x' 'x      ' 'a b' ' ' '' | jq -cR '{text: .}' >"$WORK/spaces"
texts gemma $'\xe2\x96\x81'
cat "$WORK/spaces" "$WORK/gemma.jsonl" >"$WORK/gemma.all"
complete gemma | folder gemma "$spaces"
same gemma gemma.all

refused() { # NAME: its file
    fails "$1" 2 "$1.gguf" convert "$1" -o "$1.gguf" --to gguf
    ok "$1: no file" test ! -e "$WORK/$1.gguf"
}
complete gemma | folder unmade .
refused unmade # an added token has spaces that no merge makes
folder few . <"$TOKENIZERS/llama2/tokenizer.json"
refused few # it lacks merges that llama.cpp would make of its tokens
complete llama2 | folder apart '.model.merges |= (.[1:] + .[:1] + .[3:4])'
refused apart # merges do not follow from scores of tokens
complete llama2 | folder unknown '.model.merges[7] = ["no such", "token"]'
refused unknown
complete llama2 | folder lower '.normalizer.normalizers += [{type: "Lowercase"}]'
refused lower
complete llama2 | folder whole '.model.ignore_merges = true'
refused whole
complete llama2 | folder unigram '.model.type = "WordLevel"'
refused unigram
finish
