#!/bin/bash
# tests/e2e/input-change.sh TESSERA - an input that changes after it was read and before the job says what it was made
# of: the manifest must not give the hash of bytes that nobody used.
set -euo pipefail
export LC_ALL=C
TESSERA=$(readlink -f "$1")
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"
cat >job.yaml <<JOB
version: 1
model: $ROOT/configs/demo
pipeline:
  - calibrate: {text: text, samples: 8, seqlen: 64}
  - quantize: {use: gptq, bits: 4, group: 32}
JOB
for ((turn = 0; turn < 5; turn++)); do # until the change comes before the end
    rm -rf out
    cp "$ROOT/configs/demo/calibration.txt" text
    "$TESSERA" run job.yaml --out out --threads 1 >said 2>&1 &
    pid=$!
    until [ -e out/calibration/layer-00001.safetensors ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill -STOP $pid 2>/dev/null || true
    until grep -q '^State:[[:space:]]*[TZ]' /proc/$pid/status; do sleep 0.01; done
    over=0 # the last manifest alone speaks of inputs
    ! grep -q '"inputs"' out/manifest.json || over=1
    echo "one more line" >>text
    kill -CONT $pid 2>/dev/null || true
    rc=0
    wait $pid || rc=$?
    [ $over = 0 ] || continue
    [ $rc = 2 ] || { cat said; echo "exit $rc with an input that changed"; exit 1; }
    grep -q 'text: changed during the run' said || { cat said; exit 1; }
    echo "turn $turn: refused"
    exit 0
done
echo "the job was always over before its input changed"
exit 1
