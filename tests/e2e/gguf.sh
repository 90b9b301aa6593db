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
