#!/bin/bash
# tests/e2e/acts.sh TESSERA - run and sweep state what packed linears ran with: int8 activations where the format has
# them, F32 for the format of a plugin that no backend knows.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo

cp "$ROOT/tests/fixtures/foreign.c" "$WORK"
cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I "$ROOT/core/include" -I "$ROOT/tests/fixtures" \
    "-Wl,--version-script=$ROOT/plugins/plugin.map" -Wl,-z,defs,-z,relro,-z,now "$WORK/foreign.c" -o "$WORK/foreign.so" -lm
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 3, "temperature": 0}}' >"$WORK/in.jsonl"
for use in rtn foreign; do
    cat >"$WORK/$use.yaml" <<END
version: 1
model: $STORIES
plugins: [foreign.so]
pipeline:
  - quantize: {use: $use}
  - compensate: {text: $DEMO/calibration.txt, samples: 1, seqlen: 16}
  - sweep: {text: $DEMO/held-out.txt, window: 64, max_windows: 1, channels: "0,64", act: a8}
  - run: {input: in.jsonl, output: out.jsonl, act: a8}
END
    run run "$use.yaml" --out "$use"
    ok "$use: exit code 0, got $rc" test "$rc" = 0
    cp "$WORK/out" "$WORK/$use.said"
done
ok "int8 where there is a form for it" json '.results | [.sweep, .run] |
    all(.act == "a8" and .packed_linears == {f32: 0, a16: 0, a8: 35})' "$WORK/rtn/results.json"
ok "F32 where there is none" json '.results | [.sweep, .run] |
    all(.act == "f32" and .packed_linears == {f32: 35, a16: 0, a8: 0})' "$WORK/foreign/results.json"
ok "printed, a8" test "$(grep -cE '(records|residuals of 4 bits).*act a8\)?$' "$WORK/rtn.said")" = 2
ok "printed, f32" test "$(grep -cE '(records|residuals of 4 bits).*act f32\)?$' "$WORK/foreign.said")" = 2
sed 's/use: foreign/use: rtn, rules: [{tensors: "*.down_proj", use: foreign}]/' "$WORK/foreign.yaml" >"$WORK/both.yaml"
run run both.yaml --out both
ok "both: exit code 0, got $rc" test "$rc" = 0
ok "both are counted" json '.results | [.sweep, .run] | all(.act == "a8" and .packed_linears == {f32: 5, a16: 0, a8: 30})' \
    "$WORK/both/results.json"
ok "and said" test "$(grep -cE 'act a8, f32 on 5 packed linears' "$WORK/out")" = 2

# on ranks: each linear counts once, whatever shares it, and in every replica
sed -e 's/^model:.*/model: "@demo"/' -e 's/use: rtn/use: rtn, group: 32, to: packed/' -e '/compensate:/,$d' "$WORK/both.yaml" >"$WORK/pack.yaml"
run run pack.yaml --out pack
ok "packed: exit code 0, got $rc" test "$rc" = 0
cat >"$WORK/plan.yaml" <<'END'
format: tessera.plan/1
layers: 6
workload: {prompt: 32, generate: 16, batch: 2, kv: f32}
micro_batches: {prefill: 1, decode: 1}
stages:
  - {layers: 0-2, node: n, device: a, tp: 2, schemes: [{layers: 0-2, bits: 4}],
     collective: {prefill: {codec: plain, algorithm: all-gather}, decode: {codec: plain, algorithm: all-gather}}}
  - {layers: 3-5, node: n, device: b, schemes: [{layers: 3-5, bits: 4}]}
END
sed 's/^micro/replicas: 2\nmicro/' "$WORK/plan.yaml" >"$WORK/twice.yaml"
for kind in threads processes; do
    run batch pack/packed -i in.jsonl -o "$kind.jsonl" --plugin-path foreign.so --set run.act=a8 --set run.plan=plan.yaml --set "run.ranks=$kind"
    ok "$kind: exit code 0, got $rc" test "$rc" = 0
    ok "$kind: both are counted" json '.results.run | .act == "a8" and .packed_linears == {f32: 6, a16: 0, a8: 36}' "$WORK/$kind.jsonl.job/results.json"
    ok "$kind: and said" grep -q 'act a8, f32 on 6 packed linears' "$WORK/out"
done
run batch pack/packed -i in.jsonl -o twice.jsonl --plugin-path foreign.so --set run.act=a8 --set run.plan=twice.yaml --set run.ranks=threads
ok "replicas: exit code 0, got $rc" test "$rc" = 0
ok "replicas: both are counted" json '.results.run | .packed_linears == {f32: 12, a16: 0, a8: 72} and .packed_linears[.act] > 0' "$WORK/twice.jsonl.job/results.json"
run batch pack/packed -i in.jsonl -o plain.jsonl --plugin-path foreign.so --set run.act=f32 --set run.plan=plan.yaml --set run.ranks=threads
ok "f32 on ranks" json '.results.run | .act == "f32" and .packed_linears == {f32: 42, a16: 0, a8: 0}' "$WORK/plain.jsonl.job/results.json"
finish
