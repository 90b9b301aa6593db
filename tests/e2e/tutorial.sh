#!/bin/bash
# tests/e2e/tutorial.sh TESSERA TUTORIAL - the tutorial plugins keep the rules and do their work; the page
# about writing one quotes them, and who follows it word for word, with nothing but an installed
# tree and an empty folder, ends with the same file and a better model.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/e2e/prefix.sh
. "$(dirname "$0")/prefix.sh"
umask 022
BUILT=$(readlink -f "$2")

# ---- the three ------------------------------------------------------------------
for name in clip rows8 descent; do
    ok "$name: 150 lines at most" test "$(wc -l <"$ROOT/plugins/tutorial/$name.c")" -le 150
    run plugin check --no-model "$BUILT/$name.so"
    ok "$name keeps the rules" test "$rc" = 0
done
MODEL=$STORIES/model.safetensors
error() { jq '[.tensors[].squared_error] | add' "$WORK/$1"; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0 && a + 0 > 0) }'; }
run roundtrip rtn:bits=3,range=absmax,scale=f32 "$MODEL" -o x.st --json
mv "$WORK/out" "$WORK/rtn.json"
run roundtrip clip:bits=3 --plugin-path "$BUILT/clip.so" "$MODEL" -o x.st --json
ok "clip: less error than without clipping" less "$(error out)" "$(error rtn.json)"
run roundtrip rows8:block=32 --kind codec --plugin-path "$BUILT/rows8.so" "$MODEL" -o x.st --json
# half a step of 1/127 of the largest of 32, over their root mean square: below 1 % for such weights
ok "rows8: codes within a percent" json 'all(.tensors[]; .relative_error > 0 and .relative_error < 0.01)' "$WORK/out"
found=0
for instance in "$ROOT"/tests/golden/planner/llmpq-*.json; do
    id=$(basename "$instance" .json)
    run plan --instance "$instance" --solver descent --plugin-path "$BUILT/descent.so" --json
    best=$(jq --arg n "$id" '.instances[$n].objective' "$ROOT/tests/golden/planner/expected.json")
    ok "descent on $id: a plan, not below the optimum" json --argjson best "$best" \
        '.status == "feasible" and .objective >= $best * (1 - 1e-6)' "$WORK/out"
    found=$((found + 1))
done
ok "there were instances" test "$found" -ge 10
run plan --instance "$ROOT/tests/golden/planner/fixed-1.json" --solver descent --plugin-path "$BUILT/descent.so"
ok "descent: a part that it lacks is refused" test "$rc" = 2
# Chunks alone are not: it decides without them, and the times are those of the chunks.
mkdir "$WORK/large"
echo '{"model_type":"llama","architectures":["LlamaForCausalLM"],"torch_dtype":"float16","vocab_size":32000,"hidden_size":4096,
    "intermediate_size":11008,"num_hidden_layers":8,"num_attention_heads":32,"rms_norm_eps":1e-5,"hidden_act":"silu"}' >"$WORK/large/config.json"
chunks() {
    run plan large --cluster llmpq-3 --workload '{prompt: 256, generate: 8, batch: 8, chunk: 64, concurrency: 0, kv: f16}' \
        --baselines none --json "$@"
}
chunks --solver descent --plugin-path "$BUILT/descent.so" -o descent.yaml
ok "descent with chunks: a plan without a bound" json '.plan.status == "feasible" and .plan.bound_ms == null' "$WORK/out"
ok "descent with chunks: a log line" grep -q "as if prompts ran whole" "$WORK/err"
jq '.plan.latency_ms' "$WORK/out" >"$WORK/latency"
chunks --check descent.yaml
ok "descent with chunks: the time of the plan as it is priced" json --argjson want "$(cat "$WORK/latency")" \
    '.plan.latency_ms - $want | fabs <= 1e-9 * $want' "$WORK/out"
chunks --solver exact -o exact.yaml
ok "descent with chunks: not below the optimum" json --argjson want "$(cat "$WORK/latency")" \
    '.plan.status == "optimal" and .plan.latency_ms <= $want * (1 + 1e-6)' "$WORK/out"

# ---- the page ----------------------------------------------------------------------
ok "the page quotes the files as they are" "$ROOT/tools/docs" --check >"$WORK/err"
install_into "$WORK/root"
export CHECKFLAGS=--no-model # a reader sees that too, and waits for it
export PATH=$prefix/bin:$PATH PKG_CONFIG_PATH=$prefix/share/pkgconfig
PAGE=$prefix/share/doc/tessera/writing-a-plugin.md
for name in clip rows8 descent; do
    ok "$name.c is an example of the installed tree" cmp "$ROOT/plugins/tutorial/$name.c" \
        "$(pkg-config --variable=exampledir tessera)/$name.c"
done
ok "what is installed has no plugin of the tutorial" test ! -e "$prefix/lib/tessera/clip.so"
mkdir "$WORK/reader"
cd "$WORK/reader"

# block KIND FILE LINE...: one fenced block of the page, done as a reader would
shells=0
block() {
    local kind=$1 rc=0
    case $kind in
    'sh' | 'sh fails')
        shells=$((shells + 1))
        { echo 'set -e'; cat "$2"; echo 'pwd >"$PLACE"'; } >"$WORK/script"
        PLACE=$WORK/place bash "$WORK/script" >"$WORK/log" 2>"$WORK/err" </dev/null || rc=$?
        if [ "$kind" = sh ]; then
            ok "the commands: $(tr '\n' ';' <"$2")" test "$rc" = 0
            cd "$(cat "$WORK/place")"
        else
            ok "these commands fail: $(tr '\n' ';' <"$2")" test "$rc" != 0
            ok "the promise is what is broken, and nothing else" \
                test "$(grep -o '^FAILED.*: error-steps\|^failed.*: error-steps' "$WORK/log" | wc -l)" = 1
            # "take out the function and its place in the table"
            sed -i '/^static double max_error_steps/,/^$/d; s/ \.max_error_steps = max_error_steps,//' clip.c
        fi
        ;;
    yaml*) cp "$2" "${kind#yaml }" ;;
    c) # "replace step_of by this": the only function that the file has otherwise
        if grep -q '^static float step_of' "$2"; then
            awk -v by="$2" '/^\/\* The step of a group/ { skip = 1; while ((getline line <by) > 0) print line }
                !skip { print } /^}/ { skip = 0 }' clip.c >"$WORK/clip.c"
            cp "$WORK/clip.c" clip.c
        fi
        ;;
    esac
}
kind=
while IFS= read -r line; do
    if [ -z "$kind" ] && [[ $line == '```'* ]]; then
        kind=${line#'```'}
        : >"$WORK/block"
    elif [ "$line" = '```' ]; then
        block "$kind" "$WORK/block"
        kind=
    elif [ -n "$kind" ]; then
        printf '%s\n' "$line" >>"$WORK/block"
    fi
done <"$PAGE"
ok "the page has commands" test "$shells" -ge 5
ok "the reader's file is the example" diff clip.c "$prefix/share/tessera/examples/clip.c"
# the figures of both arms: rtn with these options is what the template computes
ok "clipping pays" json '[.results.compare.arms[] | select(.name == "rtn" or .name == "clip")]
    | .[0].name == "rtn" and .[1].perplexity < .[0].perplexity and .[1].kl.mean < .[0].kl.mean
      and .[1].top1 > .[0].top1 and .[0].bits_per_weight == .[1].bits_per_weight' out/job/results.json
finish
