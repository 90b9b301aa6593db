#!/bin/bash
# tests/e2e/steps.sh TESSERA - a job with third-party steps that are built from the installed tree alone: what they read is what
# the program's own steps and files have, what they produce is in the results, the folder and the page, and what a host must
# refuse is one sentence.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/e2e/prefix.sh
. "$(dirname "$0")/prefix.sh"
demo=$ROOT/configs/demo

install_into "$WORK/root"
export PKG_CONFIG_PATH=$prefix/share/pkgconfig
sed -i "s#^prefix=.*#prefix=$prefix#" "$prefix/share/pkgconfig/tessera.pc"
cp "$ROOT/tests/e2e/steps.c" "$WORK/"
# shellcheck disable=SC2046 # words
ok "built with the installed headers" gcc -std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden $(pkg-config --cflags tessera) \
    -shared "$WORK/steps.c" $(pkg-config --variable=ldflags tessera) -lm -o "$WORK/steps.so"

printf 'two\nlines\n' >"$WORK/notes.txt"
cp "$demo/held-out.txt" "$WORK/text.txt"
cat >"$WORK/job.yaml" <<YAML
version: 1
model: "@demo"
plugins: [steps.so]
pipeline:
  - quantize: {use: rtn, bits: 4}
  - eval: {text: text.txt, window: 64, max_windows: 4, kl: true}
  - probe:
      text: text.txt
      notes: notes.txt
      tree: {a: 1, "7": 2.5}
  - after: {}
  - report: {html: page.html}
YAML
run run job.yaml --out job
ok "the job succeeds" test "$rc" = 0
R=$WORK/job/results.json

# ---- what it read ------------------------------------------------------------
ok "the result of an earlier step" json '.results | .probe.eval_perplexity == .eval.perplexity' "$R"
ok "evaluate() is the step eval" json '.results | .probe.perplexity == .eval.perplexity and .probe.kl == .eval.kl.mean' "$R"
ok "the model's configuration" json '.results.probe.family == "llama" and .results.probe.layers == 6' "$R"
ok "a tree of its options" json '.results.probe.tree == {a: 1, "7": 2.5}' "$R"
ok "a file of the user's" cmp "$WORK/notes.txt" "$WORK/job/notes.copy"
ok "which the manifest lists" json 'any(.inputs[]; .path | endswith("notes.txt"))' "$WORK/job/manifest.json"
# tensor FILE NAME: the bytes of a tensor of a safetensors file, which has 8 bytes with the length of its header, the header, the
# data.
tensor() {
    local head from to
    head=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    read -r from to < <(head -c $((8 + head)) "$1" | tail -c "$head" | jq -r --arg n "$2" '.[$n].data_offsets | @tsv')
    head -c $((8 + head + to)) "$1" | tail -c $((to - from))
}
tensor "$demo/model.safetensors" model.layers.1.mlp.up_proj.weight >"$WORK/want"
ok "rows of the original weights, in two blocks" cmp "$WORK/want" "$WORK/job/sub/up.bf16"
run roundtrip rtn:bits=4 "$demo/model.safetensors" -o rt.safetensors
tensor "$WORK/rt.safetensors" model.layers.1.mlp.up_proj.weight >"$WORK/want"
ok "rows of the packed weights" cmp "$WORK/want" "$WORK/job/packed.f32"
ok "which it knows to be packed" json '.results.probe.format == true' "$R"
run logits "$WORK/job/packed" --tokens "$(jq -r '.results.probe.ids | join(",")' "$R")" -o want.safetensors
tensor "$WORK/want.safetensors" logits >"$WORK/want"
ok "logits are those of the step logits" cmp "$WORK/want" "$WORK/job/logits.f32"
ok "the next step read its products" json '.results | .after.sum == (.probe.ids | add) and .after.bytes == 10' "$R"

# ---- what it made ------------------------------------------------------------
ok "files are listed" json '.results.probe.files | .up == "sub/up.bf16" and .file == "empty" and length == 5' "$R"
ok "an empty file" test -f "$WORK/job/empty" -a ! -s "$WORK/job/empty"
ok "its section on the page" grep -q '<p>A paragraph of &lt;probe&gt;.</p>' "$WORK/job/page.html"
ok "with its table" grep -q '<tr><td>&lt;one&gt;</td><td>two</td></tr>' "$WORK/job/page.html"
run run job.yaml --out job
ok "a finished job prints the section again" grep -q '^A paragraph of <probe>\.$' "$WORK/out"
run inspect "$WORK/steps.so" --json
ok "inspect lists what a step reads and makes" json '.components[0] | .kind == "step" and .inputs == ["eval"] and .needs == ["model", "tokenizer"] and (.products | length == 14)' "$WORK/out"

run help --json --plugin-path "$WORK/steps.so"
ok "help --json has steps of plugins, with their options" json '.steps | any(.name == "eval" and .plugin == null) and
    (map(select(.name == "probe")) | length == 1 and (.[0] | .plugin == "org.example.steps" and any(.options[]; .name == "tree")))' "$WORK/out"
ok "also those of bundled ones" json 'any(.steps[]; .name == "claims" and .plugin != null)' "$WORK/out"
sed 's/plugins: .*/plugins: {paths: [steps.so], isolate: true}/' "$WORK/job.yaml" >"$WORK/isolate.yaml"
run run isolate.yaml --out isolated
ok "under isolate it runs in this process" test "$rc" = 0
ok "and a warning says so" grep -q "step 'probe' of '$WORK/steps.so' runs in this process" "$WORK/err"
ok "with the same products" test "$(jq -cS '.results.probe | del(.files)' "$WORK/isolated/results.json")" = "$(jq -cS '.results.probe | del(.files)' "$R")"

# ---- what a host refuses --------------------------------------------------------
# refuses FAULT PATTERN: one sentence at the step's place, and no results.
refuses() {
    sed "s/text: text.txt\$/text: text.txt\n      fault: $1/; s/max_windows: 4, kl: true/max_windows: 1/; /quantize:/d" "$WORK/job.yaml" >"$WORK/$1.yaml"
    run run "$1.yaml" --out "out-$1" --json
    ok "$1: exit code ${3:-1}, got $rc" test "$rc" = "${3:-1}"
    ok "$1: one sentence with its place" failure ".message | test(\"$1.yaml:6: step 'probe': .*$2\")"
    ok "$1: no results" test ! -e "$WORK/out-$1/results.json"
}
refuses undeclared "no product 'unknown'"
refuses twice "'eval_perplexity' was given before"
refuses nan "'late' is -?nan; expected a finite number"
refuses text_nan "'late' is not JSON of finite numbers"
refuses figure_nan "'loss' is -inf"
refuses no_json "'late' is not JSON"
refuses leaves "'sub/../../x'"
refuses absolute "'/tmp/x'"
refuses hidden "'\\\\.x'"
refuses results "'results.json'"
refuses as_json "'file' is declared as a file"
refuses missing "without the product 'late'"
refuses input "input 'compare'"
refuses matrix "matrix 1048576"
refuses rows "rows .* of 'model.embed_tokens'"
refuses token "token 4000000000"
refuses protocol "no protocol 'mine'" 2
refuses row_cells "1 cells"
refuses status "-77"
sed 's/text: text.txt$/text: text.txt\n      fault: late/' "$WORK/job.yaml" >"$WORK/late.yaml"
run run late.yaml --out late --json
ok "a call after run() is refused" test "$rc" = 0
ok "and changes nothing" json '.results.probe.late == {of: [1, "two"]}' "$WORK/out"
ok "the plugin saw the refusal" test "$(grep -c 'taken after run' "$WORK/err" || true)" = 0

# ---- what is wrong before anything runs -------------------------------------------
cat >"$WORK/bad.yaml" <<YAML
version: 1
model: "@demo"
plugins: [steps.so]
pipeline:
  - after: {}
  - probe: {tree: {a: 1, b: two, c: [3]}}
  - eval: {text: text.txt}
  - probe: {txt: text.txt}
  - lost: {}
YAML
run config check bad.yaml --json
ok "a job with errors: exit code 2, got $rc" test "$rc" = 2
ok "each at its place" json 'map("\(.line):\(.column)") | . == ["5:5", "5:5", "6:5", "6:29", "6:37", "8:13", "9:5", "9:5"]' "$WORK/out"
ok "a need that nobody makes" json 'any(.[]; .message | test("step .lost. needs .oracle."))' "$WORK/out"
ok "a product that the step lacks" json 'any(.[]; .message | test("needs .probe/nothing., and step .probe. has no such product"))' "$WORK/out"
sed 's/probe:/prob:/' "$WORK/job.yaml" >"$WORK/none.yaml"
run config check none.yaml --json
ok "a step that nobody has" json 'any(.[]; .line == 7 and (.message | test("unknown step .prob.")) and (.hint | test("probe")))' "$WORK/out"

finish
