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
finish
