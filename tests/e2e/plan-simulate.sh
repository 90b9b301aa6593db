#!/bin/bash
# tests/e2e/plan-simulate.sh TESSERA - a plan played event by event agrees with its objective, and
# becomes a picture.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
PLANNER=$ROOT/tests/golden/planner

cat >"$WORK/agree.jq" <<'JQ'
# objective less theta * omega is the time with the phase barrier
def omega: [range(0; $in[0].layers) as $l | $in[0].omega[$l][$s.bits[$l]]] | add;
. as $s | ($s.objective - $in[0].theta * omega) as $ms |
($s.simulation.barrier_ms - $ms | fabs) <= 1e-9 * $ms and
$s.simulation.no_barrier_ms <= $s.simulation.barrier_ms * (1 + 1e-12) and
($s.simulation.stages | length) == ($s.stages | length) and
all($s.simulation.stages[]; .busy > 0 and .busy <= 1 + 1e-12)
JQ
sed -i 's/^def omega:/. as $s | def omega:/' "$WORK/agree.jq"
for name in example-steady llmpq-03-steady llmpq-07-steady llmpq-10-steady; do
    run plan --instance "$PLANNER/$name.json" --solver uniform --simulate --json
    ok "$name: a plan" test "$rc" = 0
    ok "$name: simulated as the objective has it" json --slurpfile in "$PLANNER/$name.json" \
        -f "$WORK/agree.jq" "$WORK/out"
done

run plan --instance "$PLANNER/llmpq-03-steady.json" --solver uniform --simulate --gantt run.svg
ok "for people, got $rc" test "$rc" = 0
ok "says what was simulated" grep -qE '^simulated  [0-9.]+ ms: prefill [0-9.]+, decode' "$WORK/out"
ok "says who is busy" grep -qE '^busy       stage 0 [0-9]+ %, stage 1' "$WORK/out"
ok "the picture is whole" grep -q '^</svg>$' "$WORK/run.svg"
ok "names the devices" grep -q '>V100</text>' "$WORK/run.svg"
ok "in 80 columns" awk 'length > 80 { exit 1 }' "$WORK/out"
fails "a picture in no folder" 2 'none/run.svg' plan --instance \
    "$PLANNER/example-steady.json" --solver uniform --gantt none/run.svg

# a made-up profile with speeds of a codec: 128 rows of 256 numbers are a large message, 2 rows a small one
mkdir -p "$WORK/devices"
sed 's/^name:.*/name: coded/; /^codecs:/,/^[^ ]/{/^codecs:/d;/^ /d}' "$ROOT/configs/devices/this-machine.yaml" >"$WORK/devices/coded.yaml"
cat >>"$WORK/devices/coded.yaml" <<'YAML'
codecs:
  - {codec: "plain:dtype=bf16", encode: 1 MB/s, decode: 2 MB/s, source: made up}
  - {codec: "plain:dtype=bf16", above: 8 KiB, encode: 4 MB/s, decode: 8 MB/s, source: made up}
YAML
cat >"$WORK/coded.yaml" <<'YAML'
version: 1
nodes:
  - {name: a, devices: [{profile: coded}]}
  - {name: b, devices: [{profile: coded}]}
network: {bandwidth: 1 GB/s, latency: 1 ms}
YAML
run plan @demo --cluster coded.yaml --workload '{prompt: 128, generate: 8, batch: 8}' --use rtn --group 128 --bits '[4]' \
    --use-all --prefill-mb 1 --decode-mb 2 --baselines none --simulate --json -o coded-plan.yaml
ok "a plan over a slow codec, got $rc" test "$rc" = 0
ok "its links take latency, wire and the codec at that size" json '
    def near($a): . / $a - 1 | fabs < 1e-9;
    .plan.stages[0] | (.send_prefill_ms | near(1 + 128 * 256 * (2 / 1e9 + 4 / 4e6 + 4 / 8e6) * 1e3)) and
        (.send_decode_ms | near(1 + 2 * 256 * (2 / 1e9 + 4 / 1e6 + 4 / 2e6) * 1e3))' "$WORK/out"
ok "and the simulator plays them so" json '(.simulation.barrier_ms / .plan.latency_ms - 1 | fabs) < 1e-9 and
    (.simulation.links[0].prefill_ms / (8 * .plan.stages[0].send_every_prefill_ms) - 1 | fabs) < 1e-9 and
    (.simulation.links[0].decode_ms / (4 * 7 * .plan.stages[0].send_every_decode_ms) - 1 | fabs) < 1e-9' "$WORK/out"
# 64 KiB and 1 KiB on the wire, which need no receiver: the encoding of the next message takes longest
ok "encoding, wire and decoding overlap" json '
    def near($a): . / $a - 1 | fabs < 1e-9;
    .plan.stages[0] | (.send_every_prefill_ms | near(128 * 256 * 4 / 4e6 * 1e3)) and
        (.send_every_decode_ms | near(2 * 256 * 4 / 1e6 * 1e3))' "$WORK/out"
finish
