#!/bin/bash
# tests/e2e/compensated-lib.sh - sourced: error compensation of a model whose layers have another form of attention.
# Of the caller: TEXT, and a model of 320 ids in WORK.
# shellcheck disable=SC2154 # rc is that of run, in lib.sh

# compensated MODEL LINEARS NAMES: LINEARS with residuals; NAMES, of joined residuals in its file, separated by blanks
compensated() {
    local m=$1 ids=1,5,9,30,77,12,13 name
    local text=(--text "$TEXT" --samples 4 --seqlen 32)
    run quantize "$m" -o "$m-2" --use rtn --bits 2 --group 8
    run compensate "$m" --packed "$m-2" "${text[@]}" --bits 16 -o "$m-c16"
    ok "$m: residuals of 16 bits, got $rc" test "$rc" = 0
    run eval "$m" --text "$TEXT" --window 64 --max-windows 2 --json
    jq .perplexity "$WORK/out" >"$WORK/original"
    run eval "$m-2" --text "$TEXT" --window 64 --max-windows 2 --json --compensate 1024 --positions all
    ok "$m: all of them are the original" jq -en --slurpfile a "$WORK/out" --slurpfile b "$WORK/original" \
        '($a[0].perplexity / $b[0] - 1) | fabs < 2e-3'

    run quantize "$m" -o "$m-3" --use awq --bits 3 --group 8 "${text[@]}"
    run compensate "$m" --packed "$m-3" "${text[@]}" -o "$m-c4" --json
    ok "$m: residuals of scaled weights, got $rc" test "$rc" = 0
    ok "$m: of all linears but routers" json --argjson n "$2" '.results.compensate | .linears == $n
        and .compensated_error < .squared_error / 50' "$WORK/$m-c4/results.json"
    for name in $3; do
        ok "$m: $name" grep -qa "\"model.layers.0.$name\"" "$WORK/$m-3/compensation.safetensors"
    done
    run convert "$m-3" --to prepacked -o "$m-3.pre"
    run logits "$m-3" --tokens $ids -o a.st --compensate 256 --positions all
    ok "$m: logits, got $rc" test "$rc" = 0
    run logits "$m-3" --tokens $ids -o b.st
    ok "$m: not those without" test "$(cmp -s "$WORK/a.st" "$WORK/b.st" || echo other)" = other
    while read -r what file more; do
        # shellcheck disable=SC2086 # several words
        run logits "$file" --tokens $ids -o b.st --compensate 256 --positions all $more
        ok "$m, $what: the same bytes" cmp -s "$WORK/a.st" "$WORK/b.st"
    done <<WAYS
prepacked $m-3.pre
steps $m-3 --step
chunks $m-3 --chunk 3
WAYS
    compensated_steps "$m"
}

# The steps that measure, and a plan of the tuner.
compensated_steps() {
    local m=$1 n
    job "$m-3" "  - tune: {slower: 400, repeats: 2}
  - sweep: {text: $TEXT, window: 64, max_windows: 1, channels: '0,256', select: 'dynamic,static-hessian', targets: '400', repeats: 2}
  - outliers: {tokens: 6, at: 3, layer: 0}"
    run run job.yaml --out "$m-measured"
    ok "$m: tune, sweep and outliers, got $rc" test "$rc" = 0
    ok "$m: what they say" json '.results | (.tune.modules | length == 4 and all(.[]; .base_ms > 0)) and
        (.sweep.points | length > 3) and ([.outliers.sites[].name] == ["qkv", "o", "gate_up", "down"])' \
        "$WORK/$m-measured/results.json"
    run logits "$m-3" --tokens 1,5,9 -o b.st --compensate-plan "$m-measured/tuned.yaml" --positions all
    ok "$m: the tuned plan is taken, got $rc" test "$rc" = 0
    n=$(jq .num_hidden_layers "$WORK/$m/config.json")
    printf 'format: tessera.plan/1\nlayers: %s\nstages:\n  - {layers: 0-%s, schemes: [{layers: 0-%s, keep: true}], compensation: [%s]}\n' \
        "$n" $((n - 1)) $((n - 1)) '{k: 16}, {tensors: "*.k*_proj", k: 8}' >"$WORK/two.yaml"
    fails "$m: one k before attention" 2 two.yaml logits "$m-3" --tokens 1 -o x.st --compensate-plan two.yaml
}
