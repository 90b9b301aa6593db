#!/bin/bash
# tests/e2e/prepacked.sh TESSERA - a prepacked file wherever a model may stand, with the bytes of its
# source; what is damaged, foreign or taken away is said in one sentence.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
TOKENS=1,403,407,261,378
SOURCE=$ROOT/tests/golden/models/stories260k

# same NAME ARGUMENT...: stdout of a command on the folder and on the file, @ for the model
same() {
    local name=$1
    shift
    run "${@/@/$SOURCE}"
    ok "$name: exit code 0, got $rc" test "$rc" = 0
    mv "$WORK/out" "$WORK/of-folder"
    run "${@/@/m.tsr}"
    ok "$name of the file: exit code 0, got $rc" test "$rc" = 0
    ok "$name: the same" cmp "$WORK/out" "$WORK/of-folder"
}

run convert "$SOURCE" -o m.tsr --to prepacked --json
ok "convert: exit code 0, got $rc" test "$rc" = 0
ok "its report" json --argjson n "$(stat -c %s "$WORK/m.tsr")" '.output == "m.tsr" and .bytes == $n and .packed == 0' "$WORK/out"
ok "nothing else is left" test "$(find "$WORK" -name 'm.tsr*' | wc -l)" = 1
fails "a name that is taken" 2 'm.tsr' convert "$SOURCE" -o m.tsr --to prepacked
run convert "$SOURCE" -o again.tsr --to prepacked
ok "the same file again" cmp "$WORK/m.tsr" "$WORK/again.tsr"

run logits "$SOURCE" --tokens $TOKENS -o a.st
for isa in '' scalar avx2; do
    export TSR_ISA=$isa
    [ -n "$isa" ] || unset TSR_ISA
    run logits m.tsr --tokens $TOKENS -o b.st
    ok "logits, ${isa:-as detected}: exit code 0, got $rc" test "$rc" = 0
    ok "logits, ${isa:-as detected}: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
done
unset TSR_ISA
same "a generated text" generate @ --prompt "Once upon a time" --max-tokens 12 --greedy
same "a sampled text" generate @ --prompt "Once upon a time" --max-tokens 12 --seed 3
same "tokens" tokenize @ --text "Once upon a time" --special
head -c 3000 "$ROOT/configs/demo/held-out.txt" >"$WORK/text.txt"
same_eval() { jq -S 'del(.. | .model?, .path?, .model_hash?, .hash?, .seconds?, .tokens_per_second?)' "$1"; }
run eval "$SOURCE" --text text.txt --window 128 --json
same_eval "$WORK/out" >"$WORK/of-folder"
run eval m.tsr --text text.txt --window 128 --json
ok "eval: exit code 0, got $rc" test "$rc" = 0
ok "eval: the same figures" cmp <(same_eval "$WORK/out") "$WORK/of-folder"
run eval m.tsr --against "$SOURCE" --text text.txt --window 128 --json
ok "no divergence from its source" json '.kl.mean == 0 and .kl.max == 0 and .top1 == 1 and .scored > 100' "$WORK/out"

run inspect m.tsr --verify --json
ok "inspect: exit code 0, got $rc" test "$rc" = 0
ok "inspect tells layout, source and that it is whole" json '.model | .family == "llama" and (.prepacked | .layout == "tessera.cpu.panels" and .revision == 3 and .verified) and .tokenizer.size > 0' "$WORK/out"
run inspect m.tsr
ok "in words" grep -q 'prepacked as tessera.cpu.panels revision 3, from xxh3:' "$WORK/out"
fails "--verify of a folder" 2 '*/tests/golden/models/stories260k' inspect "$SOURCE" --verify

# packed with several widths, through a job; its export step writes the same file
cat >"$WORK/job.yaml" <<JOB
version: 1
model: $SOURCE
pipeline:
  - quantize:
      use: rtn
      bits: 4
      group: 32
      rules:
        - {layers: 1-2, bits: 3}
        - {tensors: "*.down_proj", bits: 8}
  - export: {to: q.tsr, format: prepacked}
  - eval: {text: text.txt, window: 128}
JOB
run run job.yaml --out job --json
ok "a job: exit code 0, got $rc" test "$rc" = 0
run convert job/packed -o q.tsr --to prepacked
ok "of a packed folder: exit code 0, got $rc" test "$rc" = 0
for act in f32 a16 a8; do
    run logits job/packed --tokens $TOKENS --act $act -o a.st
    run logits q.tsr --tokens $TOKENS --act $act -o b.st
    ok "packed, $act: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
    run logits job/q.tsr --tokens $TOKENS --act $act -o b.st
    ok "the job's file, $act: the same bytes" cmp "$WORK/a.st" "$WORK/b.st"
done
run inspect q.tsr --json
ok "inspect tells the packed formats" json '.model | .packed == "tessera.packed/1" and (.tensors[] | select(.name == "q_proj") | .format == "tessera.int/1 with 4 bits")' "$WORK/out"
cat >"$WORK/ab.yaml" <<AB
version: 1
model: $SOURCE
pipeline:
  - compare:
      arms:
        folder: {model: job/packed}
        file: {model: q.tsr}
      measure: {perplexity: {text: text.txt, window: 64}}
AB
run run ab.yaml --out ab --json
ok "arms of a comparison: exit code 0, got $rc" test "$rc" = 0
ok "both arms say the same" json '.results.compare.arms | map({(.name): .}) | add | .folder.perplexity as $p | ($p | type) == "number" and $p == .file.perplexity and .file.bits_per_weight == .folder.bits_per_weight' "$WORK/out"
run bench e2e m.tsr --prompt 8 --tokens 2 --repeats 1 --mib 16 --json
ok "bench: exit code 0, got $rc" test "$rc" = 0

run bench load m.tsr --repeats 2 --mib 16 --json
ok "bench load: exit code 0, got $rc" test "$rc" = 0
ok "a start beside reading, in seconds and in processor time" json 'map(.format) == ["file", "cpu", "hash", "memory"] and all(.[]; .what == "load" and .value > 0 and .probe > 0 and .rows > 500000)' "$WORK/out"
fails "bench load of a folder" 2 '*/tests/golden/models/stories260k' bench load "$SOURCE"

# it runs, and that is all
fails "converted again" 2 'm.tsr' convert m.tsr -o x --to gptq
fails "quantized" 2 'm.tsr' quantize m.tsr --use rtn -o y
ok "nothing was left" test ! -e "$WORK/x"

head -c 100000 "$WORK/m.tsr" >"$WORK/cut.tsr"
fails "cut off" 2 'cut.tsr' logits cut.tsr --tokens 1 -o x.st
fails "inspect of it" 2 'cut.tsr' inspect cut.tsr
head -c 100 "$WORK/m.tsr" >"$WORK/cut.tsr"
fails "cut in its head" 2 'cut.tsr' logits cut.tsr --tokens 1 -o x.st
fails "no model at all" 2 'job.yaml' logits job.yaml --tokens 1 -o x.st
cp "$WORK/m.tsr" "$WORK/changed.tsr"
printf 'x' | dd of="$WORK/changed.tsr" bs=1 seek=6000 conv=notrunc status=none
fails "a changed byte" 2 'changed.tsr' inspect changed.tsr --verify

# taken away while it is in use: the signal names the file
cp "$WORK/m.tsr" "$WORK/gone.tsr"
(cd "$WORK" && exec "$TESSERA" -v bench e2e gone.tsr --prompt 8 --tokens 400 --repeats 10000 --mib 16) \
    >"$WORK/out" 2>"$WORK/err" &
pid=$!
until grep -q 'of cache on' "$WORK/err" || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
: >"$WORK/gone.tsr"
rc=0
wait $pid || rc=$?
ok "a file that is cut while it runs: exit code 2, got $rc" test "$rc" = 2
ok "the sentence names it, once" test "$(grep -cE '^tessera: error: gone\.tsr: byte [0-9]+ ' "$WORK/err")" = 1
finish
