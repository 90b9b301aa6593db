#!/bin/bash
# tests/unit/family_names.sh ROOT - the C code knows forms, and families are files: the name of no family, architecture or
# model type of configs/families stands in a string or in an identifier of core/, kernels/ and plugins/.
set -euo pipefail
export LC_ALL=C
cd "$1"
# FILE PATTERN, and why.  The pattern is of the line without comments.
ALLOWED='
core/checkpoint/gguf/bpe.c            .                     values of tokenizer.ggml.pre: names that GGUF gives to patterns of words
core/checkpoint/gguf/words.h          bloom                 one of these values, read and written
core/checkpoint/gguf/tokenizer.c      "llama|\\"llama       values of tokenizer.ggml.model: llama is its name of SentencePiece
core/checkpoint/export/gguf_tokens.c  QWEN|"qwen|llama       the same values, written
core/checkpoint/export/gguf_spm.c     "llama"                the same value, written
core/checkpoint/random_model.c        Llama|llama           writes a config.json of made models; some family must be theirs
core/cli/verbs/profile.c              1B.Llama              help of the made model
core/cli/bench/plan.c                 papers/models/        names of files
core/cli/bench/cases.c                papers/models/        names of files
core/conformance/any/file.c           bloom                 the filter of that name in ELF files
'
# names: words that no source may have, one a line.  opt is a family and the usual name of options: only OPT in a
# string counts, which is checked in its place below.
names() {
    cat configs/families/*.yaml | sed -nE 's/^name: (.*)/\1/p; s/^  write: (.*)/\1/p
        s/^ *(architectures|model_types): \[(.*)\]/\2/p' | tr -s ', ' '\n' | sort -u
}
# search NAMES FILE...: "FILE: LINE" of code with such a word, comments aside; programs of llama.cpp are no family.
search() {
    local list=$1
    shift
    awk -v list="$list" '
        BEGIN { while ((getline w <list) > 0) is[tolower(w)] = 1 }
        function words(text, string,    n, i, part) {
            n = split(tolower(text), part, /[^a-z0-9]+/)
            for (i = 1; i <= n; i++)
                if (part[i] in is && (part[i] != "opt" || string))
                    return 1
            return 0
        }
        FNR == 1 { comment = 0 }
        /^#include/ { next }
        {
            line = $0
            strings = code = ""
            if (comment) {
                if (!(at = index(line, "*/")))
                    next
                line = substr(line, at + 2)
                comment = 0
            }
            while (match(line, /"([^"\\]|\\.)*"|\/\*|\/\/|\047([^\047\\]|\\.)\047/)) {
                token = substr(line, RSTART, RLENGTH)
                code = code substr(line, 1, RSTART - 1) " "
                line = substr(line, RSTART + RLENGTH)
                if (token == "//") {
                    line = ""
                } else if (token == "/*") {
                    if (!(at = index(line, "*/"))) {
                        comment = 1
                        line = ""
                    } else {
                        line = substr(line, at + 2)
                    }
                } else {
                    strings = strings " " token
                }
            }
            code = code line
            gsub(/[Ll]lama\.cpp|llama-(quantize|cli|perplexity|gguf-split)/, "", strings)
            if (words(strings, 1) || words(code, 0))
                print FILENAME ": " code strings
        }' "$@"
}
# left: what of the lines on stdin is not allowed.
left() {
    local file pattern line
    while IFS= read -r line; do
        while read -r file pattern _; do
            if [ -n "$file" ] && [ "${line%%: *}" = "$file" ] && [[ ${line#*: } =~ $pattern ]]; then continue 2; fi
        done <<<"$ALLOWED"
        echo "$line"
    done
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
names >"$work/names"
for word in llama gemma3_text LlamaForCausalLM qwen2 Olmo2Model opt; do
    grep -qx "$word" "$work/names" || { echo "$word is not among the names"; exit 1; }
done
mapfile -t files < <(git ls-files -co --exclude-standard core kernels plugins | grep -E '\.(c|h|cu|cuh)$')
[ "${#files[@]}" -gt 300 ] || { echo "only ${#files[@]} files"; exit 1; }
search "$work/names" "${files[@]}" >"$work/found"
left <"$work/found" >"$work/left"
if [ -s "$work/left" ]; then
    cat "$work/left"
    echo "a family is a file of configs/families: say there what differs"
    exit 1
fi
# an exception that nothing needs any more, and one of a file that is gone
while read -r file pattern _; do
    [ -n "$file" ] || continue
    grep -F "$file: " "$work/found" | sed 's/^[^:]*: //' | grep -qE "$pattern" || { echo "no exception is needed: $file"; exit 1; }
done <<<"$ALLOWED"
# it finds them
i=0
while IFS= read -r line; do
    i=$((i + 1))
    printf '%s\n' "$line" >"$work/bad$i.c"
    [ -n "$(search "$work/names" "$work/bad$i.c" | left)" ] || { echo "not found: $line"; exit 1; }
done <<'BAD'
if (strcmp(family, "gemma2") == 0) x();
static const struct name llama[] = { 0 };
int read_qwen2(void);
f("an OPT model");
enum { TSR_BLOOM };
BAD
cat >"$work/good.c" <<'GOOD'
/* as in Gemma 2 and llama */
const char *opt = "llama.cpp has none"; // OPT
int x = opt->optional;
GOOD
[ -z "$(search "$work/names" "$work/good.c")" ] || { echo "found in comments"; exit 1; }
