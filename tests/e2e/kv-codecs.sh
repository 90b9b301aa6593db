#!/bin/bash
# tests/e2e/kv-codecs.sh TESSERA - a KV cache of a plugin's codec: in steps, on ranks, in plans and in comparisons.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

# ---- steps ---------------------------------------------------------------------------
texts() { jq -r '.. | .text? // empty' "$1"; }
generate() { # generate KV [ARG...]
    run generate @demo --prompt "The time of the river" --max-tokens 60 --temperature 0 --kv "$@" --json
}
generate f32
texts "$WORK/out" >"$WORK/f32.txt"
for bits in 2 4 8; do
    generate "kivi:bits=$bits"
    ok "kivi of $bits bits runs, got $rc" test "$rc" = 0
    texts "$WORK/out" >"$WORK/kivi$bits.txt"
    generate "kivi:bits=$bits" --chunk 7
    texts "$WORK/out" >"$WORK/chunks.txt"
    ok "chunks change nothing with $bits bits" cmp "$WORK/kivi$bits.txt" "$WORK/chunks.txt"
done
ok "two bits are not F32" test "$(cmp -s "$WORK/f32.txt" "$WORK/kivi2.txt"; echo $?)" = 1
run logits @demo --tokens "$(seq -s, 5 60)" -o f32.st --json
for kv in int4 kivi:bits=4 kivi:bits=8 'kivi:bits=2'; do
    run logits @demo --tokens "$(seq -s, 5 60)" -o "${kv//[:=]/-}.st" --kv "$kv" --json
    ok "logits with $kv" test "$rc" = 0
done
run logits @demo --tokens "$(seq -s, 5 60)" -o some.st --kv f16 --kv-layers 0=kivi:bits=4,1=int8
ok "some layers have a codec" test "$rc" = 0

# ---- errors --------------------------------------------------------------------------
cat >"$WORK/job.yaml" <<'END'
version: 1
model: "@demo"
pipeline:
  - logits:
      tokens: "1, 2"
      kv: kivy
      output: x.st
END
run config check job.yaml
ok "a codec that there is not, got $rc" test "$rc" = 2
ok "it is named at its place" grep -q '^job.yaml:6:11: error: .*kivy' "$WORK/err"
sed -i 's/kivy/"kivi:bits=3"/' "$WORK/job.yaml"
run config check job.yaml
ok "a wrong option, got $rc" test "$rc" = 2
ok "it is named at its place, too" grep -q '^job.yaml:6:11: error: .*bits' "$WORK/err"
sed -i 's/kivi:bits=3/kivi:bits=8/' "$WORK/job.yaml"
run config check job.yaml
ok "the right one is not, got $rc" test "$rc" = 0

# ---- ranks ---------------------------------------------------------------------------
for i in 1 2 3 4 5; do
    jq -nc --arg i "$i" '{custom_id: "r\($i)", method: "POST", url: "/v1/completions",
        body: {prompt: "The \($i). time", max_tokens: 40, temperature: 0}}'
done >"$WORK/in.jsonl"
cat >"$WORK/plan.yaml" <<'END'
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 40, batch: 4, kv: "kivi:bits=4", kv_layers: "5=f16"}
micro_batches: {prefill: 2, decode: 2}
stages:
  - {layers: 0-2, node: n, device: a, tp: 1, schemes: [{layers: 0-2, keep: true}]}
  - {layers: 3-5, node: n, device: b, tp: 1, schemes: [{layers: 3-5, keep: true}]}
END
for ranks in threads processes one; do
    how="plan: plan.yaml, ranks: $ranks"
    [ $ranks != one ] || how='kv: "kivi:bits=4", kv_layers: "5=f16", slots: 3'
    printf 'version: 1\nmodel: "@demo"\npipeline:\n  - run: {input: in.jsonl, output: answers.jsonl, act: f32, %s}\n' "$how" >"$WORK/$ranks.yaml"
    run run "$ranks.yaml" --out "$ranks"
    ok "a batch on $ranks, got $rc" test "$rc" = 0
    jq -cS '[.custom_id, .response.body.choices[0].text]' "$WORK/$ranks/answers.jsonl" | sort >"$WORK/$ranks.txt"
done
ok "five answers" test "$(wc -l <"$WORK/one.txt")" = 5
ok "threads answer as one engine" cmp "$WORK/one.txt" "$WORK/threads.txt"
ok "processes answer as one engine" cmp "$WORK/one.txt" "$WORK/processes.txt"

# ---- inspect -------------------------------------------------------------------------
run inspect kivi --probe --json
ok "inspect prints the units, got $rc" json \
    '.components[0].probe | .keys.positions == 32 and .keys.bytes == 12 * 128 and .values.positions == 1 and .values.bytes == 4 * 4 + 8 * 4' "$WORK/out"
for kv in int8 fp8 int4; do
    run inspect "kv:$kv" --json
    ok "$kv is a codec, got $rc" json '[.components[] | select(.kind == "kv" and .name == "'$kv'")] | length == 1' "$WORK/out"
done

# ---- a codec that is not installed ------------------------------------------------------
mkdir -p "$WORK/less/plugins"
cp "$TESSERA" "$WORK/less/tessera"
for so in "$(dirname "$TESSERA")"/plugins/*.so; do
    [ "$(basename "$so")" = kv8.so ] || cp "$so" "$WORK/less/plugins/"
done
sed -i 's/"kivi:bits=8"/int8/' "$WORK/job.yaml"
for layers in '' '      kv_layers: 0=fp8'; do
    for kv in int8 f16; do
        [ "$kv$layers" != f16 ] || continue
        sed "s/kv: int8/kv: $kv/; /output/i\\$layers" "$WORK/job.yaml" >"$WORK/without.yaml"
        (cd "$WORK" && ./less/tessera config check without.yaml >out 2>err) && rc=0 || rc=$?
        ok "$kv${layers:+ and fp8} without their plugin, got $rc" test "$rc" = 2
        ok "one sentence at its place" test "$(grep -c '^without.yaml:[67]:[0-9]*: error: .*no kv named "\(int8\|fp8\)"' "$WORK/err")" = \
            "$([ "$kv$layers" = int8 ] || [ "$kv" = f16 ] && echo 1 || echo 2)"
        run config check without.yaml
        ok "with it, got $rc" test "$rc" = 0
    done
done
finish
