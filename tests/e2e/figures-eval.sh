#!/bin/bash
# tests/e2e/figures-eval.sh TESSERA FIGURES - eval's figures, computed again in long double from what logits and
# tokenize give (figures.c); who runs with --kv, --act and the like: the model, never the reference.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
FIGURES=$(readlink -f "$2")
# shellcheck source=tests/e2e/figures-lib.sh
. "$(dirname "$0")/figures-lib.sh"
cd "$WORK"
WINDOW=48 WINDOWS=3
head -c 1200 "$ROOT/configs/demo/held-out.txt" >text.txt
run quantize @demo --use rtn --bits 4 -o q4
token_ids @demo "$(cat text.txt)" | head -n $((WINDOW * WINDOWS)) >ids
ok "the text is long enough" test "$(wc -l <ids)" = $((WINDOW * WINDOWS))

# again NAME A B OPTION...: what eval prints with the options against what the logits in A and B give.
again() {
    local name=$1 a=$2 b=$3
    shift 3
    "$FIGURES" eval "$WINDOW" ids "$a" "$b" | jq 'del(.delta_p, .hit) | .kl |= {mean, median, p99, max}' >want.json
    run eval "$@" --text text.txt --window "$WINDOW" --max-windows "$WINDOWS" --json
    ok "$name: eval succeeds" test "$rc" = 0
    ok "$name: the figures" near . 1e-4 1e-7 want.json out
}
of plain @demo
of a8 q4 --act a8
of int8 @demo --kv int8
of both q4 --act a8 --kv int8

again "a packed model, a8" a8 plain q4 --act a8 --against @demo
ok "it differs" json '.kl.mean > 0.001' out
ok "what both ran with" json '.act == "a8" and .packed_linears.a8 == 42 and .kv == "f32" and .numerics == "exact" and
    (.reference | .model == "@demo" and .act == "f32" and .kv == "f32" and .numerics == "exact" and .packed_linears.a8 == 0)' out
again "an int8 cache" int8 plain @demo --kv int8 --against @demo
ok "the reference has none" json '.kl.mean > 0 and .kv == "int8" and .reference.kv == "f32"' out
again "chunks change nothing" int8 plain @demo --kv int8 --chunk 7 --against @demo
again "by layers" a8 plain q4 --act a8 --against @demo --by-layers 2
ok "linears of several passes are counted once" json '.packed_linears.a8 == 42 and .device != null' out
of q4 q4
again "a packed model against itself: a8 and the cache are the model's" both q4 q4 --act a8 --kv int8 --against q4
ok "the packed reference ran in f32" json '.kl.mean > 0 and .reference.packed_linears == {f32: 42, a16: 0, a8: 0}' out
run eval @demo --simulate-tp 2 --text text.txt --window "$WINDOW" --max-windows "$WINDOWS" --against @demo --json
ok "ranks that lose nothing" json '.kl.max < 1e-6 and .top1 == 1' out
run eval @demo --simulate-tp 2 --codec mx:scale_bits=5 --text text.txt --window "$WINDOW" --max-windows "$WINDOWS" --against @demo --json
ok "the reference is not split" json '.kl.mean > 0' out

# ---- the printed lines -------------------------------------------------------------------------
run eval q4 --act a8 --kv int8 --text text.txt --window "$WINDOW" --max-windows "$WINDOWS" --against q4 --json
p=$(jq -r .perplexity out) kl=$(jq -r .kl.mean out) top=$(jq -r .top1 out)
run eval q4 --act a8 --kv int8 --text text.txt --window "$WINDOW" --max-windows "$WINDOWS" --against q4
ok "perplexity and settings" grep -qF "$(printf 'perplexity %.6g  (gptq-2048 on text.txt: %d tokens, %d windows of %d' "$p" $((WINDOW * WINDOWS)) "$WINDOWS" "$WINDOW")" out
ok "the model's settings" grep -qF 'act a8, KV int8, numerics exact)' out
ok "the reference's settings" grep -qF "$(printf 'KL to q4 (act f32, KV f32, numerics exact): mean %.6g, ' "$kl")" out
ok "top-1" grep -qF "$(printf 'same top-1 %.2f %%' "$(jq -n "100 * $top")")" out

# ---- per word, per byte ---------------------------------------------------------------------------
printf 'The old man went down to the river, and he looked at the water for a long time.' >page.txt
token_ids @demo "$(cat page.txt)" >page.ids
run logits @demo --tokens "$(paste -sd, page.ids)" -o page.st
"$FIGURES" likelihood 1 page.ids page.st | jq --argjson words "$(wc -w <page.txt)" --argjson bytes "$(wc -c <page.txt)" --argjson n "$(wc -l <page.ids)" '
    (0 - .) as $sum | {words: $words, bytes: $bytes, tokens: $words, scored: ($n - 1), mean_nll: ($sum / ($n - 1)), perplexity: ($sum / $words | exp),
        word_perplexity: ($sum / $words | exp), byte_perplexity: ($sum / $bytes | exp), bits_per_byte: ($sum / $bytes / (2 | log))}' >want.json
run eval @demo --text page.txt --protocol lm-eval-wikitext --no-add-bos --json
ok "words, bytes and what is said per word and byte" near . 1e-5 1e-9 want.json out

# ---- a base file --------------------------------------------------------------------------------
# 16 bits a log-probability: near, not equal
run eval @demo --text text.txt --protocol llamacpp-512 --window "$WINDOW" --max-windows 2 --save-kld base.kld --json
ok "a base file is written" test "$rc" = 0
mine=$(jq .perplexity out)
run eval q4 --against base.kld --json
cp out by-file
run eval q4 --text text.txt --protocol llamacpp-512 --window "$WINDOW" --max-windows 2 --against @demo --json
ok "a base file says what its model says" json --slurpfile f by-file '(.kl.mean - $f[0].kl.mean | fabs) < 1e-4 and .perplexity == $f[0].perplexity and .top1 == $f[0].top1 and .scored == $f[0].scored' out
ok "of the same perplexity" json --argjson p "$mine" '((.delta.mean | exp) * $p / .perplexity - 1 | fabs) < 1e-5' out

# ---- a step of a job ------------------------------------------------------------------------------
cat >step.yaml <<JOB
version: 1
model: q4
pipeline:
  - eval: {text: text.txt, window: $WINDOW, max_windows: $WINDOWS, act: a8, kl: true}
JOB
run run step.yaml --out step --json
"$FIGURES" eval "$WINDOW" ids a8 q4 | jq '{perplexity, mean_nll, tokens, scored, kl: (.kl | {mean, median, p99, max}), top1}' >want.json
ok "step eval: the original is as it is" near .results.eval 1e-4 1e-7 want.json out

# ---- questions --------------------------------------------------------------------------------------
# what stands behind a NUL character counts
cat >q.jsonl <<'Q'
{"context": "The capital of France is", "choices": ["Paris", "a very long river in the north"], "answer": 0}
{"context": "One, two, three,", "choices": ["purple", "four"], "answer": "B"}
{"context": "x\u0000One, two, three,", "choices": ["four", "president"], "answer": 0}
{"context": "x\u0000In the year 19", "choices": ["the\u0000 ", "80"], "answer": 1}
Q
# What is tokenized: the context, and the context with each choice.
jq -c '.context as $c | {text: $c, special: true}, (.choices[] | {text: ($c + " " + .), special: true})' q.jsonl |
    "$TESSERA" tokenize @demo --jsonl | jq -r '.ids | map(tostring) | join(" ")' >texts
# answers MODEL OPTION...: marks by likelihood, and by likelihood for each character of a choice
answers() {
    local model=$1 from
    shift
    while read -r from; do
        for _ in 1 2; do
            read -r line
            tr ' ' '\n' <<<"$line" >all
            "$TESSERA" logits "$model" "$@" --tokens "${line// /,}" -o l.st || return 1
            "$FIGURES" likelihood "$(wc -w <<<"$from")" all l.st
        done
    done <texts | jq -s '[., [range(0; length; 2)] | .] | .[0] as $l | .[1] | map([$l[.], $l[. + 1]])' >sums
    jq -s --slurpfile sums sums '. as $q | $sums[0] as $l | range($q | length) | . as $i |
        ($q[$i].answer | if type == "string" then explode[0] - 65 else . end) as $right |
        def best: if .[1] > .[0] then 1 else 0 end;
        [($l[$i] | best), ([range(2) | $l[$i][.] / ($q[$i].choices[.] | length)] | best)] |
        map(if . == $right then 1 else 0 end) | "\(.[0]) \(.[1])"' -r q.jsonl >marks
}
answers @demo
cp marks plain.marks
answers q4 --act a8 --kv int8
# Wilson's interval at 95 % and McNemar's exact test, from the marks
paste -d' ' marks plain.marks | jq -s -R '
    def wilson: 1.959963984540054 as $z | . as [$k, $n] | ($k / $n) as $p |
        ($p + $z * $z / (2 * $n)) as $m | ($z * (($p * (1 - $p) / $n + $z * $z / (4 * $n * $n)) | sqrt)) as $h |
        {low: (if $k == 0 then 0 else ($m - $h) / (1 + $z * $z / $n) end),
         high: (if $k == $n then 1 else ($m + $h) / (1 + $z * $z / $n) end)};
    def choose($n; $k): reduce range($k) as $i (1; . * ($n - $i) / ($i + 1));
    [split("\n")[] | select(. != "") | split(" ") | map(tonumber)] as $m | ($m | length) as $n |
    ([$m[][0]] | add) as $right | ([$m[][1]] | add) as $by |
    ([$m[] | select(.[0] == 1 and .[2] == 0)] | length) as $a | ([$m[] | select(.[0] == 0 and .[2] == 1)] | length) as $b |
    {questions: $n, right: $right, accuracy: ($right / $n), normalized: {right: $by, accuracy: ($by / $n)},
     only_arm: $a, only_reference: $b,
     p: ([1, 2 * ([range([$a, $b] | min + 1) as $k | choose($a + $b; $k)] | add) / pow(2; $a + $b)] | min)} +
    ([$right, $n] | wilson)' >want.json
run eval q4 --act a8 --kv int8 --choices q.jsonl --against @demo --json
ok "questions are answered" test "$rc" = 0
ok "accuracy, its interval and p" near .choices 1e-9 1e-12 want.json out
ok "of questions, too, each side's settings" json '.act == "a8" and .kv == "int8" and .reference.act == "f32" and .reference.kv == "f32"' out
run eval @demo --choices q.jsonl --json
ok "behind a NUL character the text goes on" json --argjson right "$(cut -d' ' -f1 plain.marks | grep -c 1)" '.choices.right == $right' out
finish
