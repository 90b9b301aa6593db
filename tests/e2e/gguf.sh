#!/bin/bash
# tests/e2e/gguf.sh TESSERA - a GGUF file wherever a model may stand.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CASES=$ROOT/tests/golden/checkpoints
TOKENS=1,176,261,235,246
Q=$CASES/gguf-q4_k_m/model.gguf

run inspect "$Q" --json
ok "inspect: exit code 0, got $rc" test "$rc" = 0
ok "inspect tells what runs packed" json '.model | .family == "llama" and .packed == "GGUF" and .tokenizer.size == 288 and .tensors[3].format == "tessera.table/1 with 6 bits" and .tensors[1].format == "tessera.int/2 with 4 bits" and .resident_bytes <= .stored_bytes * 1.03 and .resident_bytes > .stored_bytes * 0.97' "$WORK/out"
run logits "$Q" --tokens $TOKENS -o a.st -v
ok "logits: exit code 0, got $rc" test "$rc" = 0
ok "nothing is widened" bash -c '! grep -q widened "$0"' "$WORK/err"
run inspect "$Q" --json
ok "the embedding stays packed" json '.model.tensors | any(.name == "embedding" and .format == "tessera.table/1 with 6 bits")' "$WORK/out"
run logits "$Q" --tokens $TOKENS -o b.st --step
ok "step by step the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
run generate "$Q" --prompt "hello" --max-tokens 4 --greedy --ignore-eos --json
ok "generation from a text, by its tokenizer" json '.tokens | length == 4' "$WORK/out"
run tokenize "$Q" --text "hello" --special
ok "tokenize: BOS first" grep -q '^1,' "$WORK/out"
cp "$WORK/out" "$WORK/ids"

# ---- what auto writes: the type of each matrix, and the number that names it to other programs ------
# file_type FILE: general.file_type, a U32 after the key and its type
file_type() {
    local at
    at=$(LC_ALL=C grep -abom 1 general.file_type "$1" | cut -d: -f1)
    od -An -tu4 -j $((at + 21)) -N 4 "$1" | tr -d ' '
}
for one in f32:0 f16:1 q4_0:2 q4_1:3 q8_0:7 q5_0:8 q5_1:9 q2_k:10 q4_k_m:15 iq4_nl:25 bf16:32 gpt-oss-mxfp4:38; do
    name=${one%:*}
    run convert "$CASES/gguf-$name/model.gguf" -o "auto-$name.gguf" --to gguf
    ok "$name: file_type is ${one#*:}, got $(file_type "$WORK/auto-$name.gguf")" \
        test "$(file_type "$WORK/auto-$name.gguf")" = "${one#*:}"
    rm -f "$WORK/auto-$name.gguf"
done
run convert "$CASES/gguf-q5_0/model.gguf" -o five.gguf --to gguf --json
ok "Q5_0 keeps its bytes" test "$(stat -c %s "$WORK/five.gguf")" -lt $(($(stat -c %s "$CASES/gguf-q5_0/model.gguf") * 103 / 100))

# a relative path in a job, and the same name under a folder that links to it
cp "$CASES/gguf-f16/model.gguf" "$WORK/small.gguf"
cat >"$WORK/job.yaml" <<JOB
version: 1
model: small.gguf
pipeline:
  - quantize: {use: rtn, bits: 4, group: 32}
JOB
run run job.yaml --out job --json
ok "a job quantizes it: exit code 0, got $rc" test "$rc" = 0
ok "all linears are packed" json '.results.quantize.linears | length == 14' "$WORK/out"
run logits job/packed --tokens $TOKENS -o c.st
ok "what it wrote is a model: exit code 0, got $rc" test "$rc" = 0
run tokenize job/packed --text "hello" --special
ok "with the tokenizer of the file" cmp "$WORK/out" "$WORK/ids"
run run job.yaml --out job --json
ok "run again, nothing is left to do" is_done job
fails "what is packed is not packed again" 2 '*/tests/golden/checkpoints/gguf-q4_k_m/model.gguf' quantize "$Q" --use rtn -o again

head -c 5000 "$Q" >"$WORK/cut.gguf"
fails "cut off" 2 'cut.gguf' logits cut.gguf --tokens 1 -o x.st
fails "inspect of it" 2 'cut.gguf' inspect cut.gguf
mkdir "$WORK/folder"
cp "$Q" "$WORK/folder/m.gguf"
fails "a folder with it" 2 'folder' logits folder --tokens 1 -o x.st
finish
