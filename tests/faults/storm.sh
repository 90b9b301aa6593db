#!/bin/bash
# tests/faults/storm.sh TESSERA STORM.so - commands whose reads and writes are interrupted or move a few bytes,
# under a signal every millisecond: what they leave is what they leave in peace.
# shellcheck source=tests/faults/lib.sh
. "$(dirname "$0")/lib.sh"
STORM=$(readlink -f "$2")
bad=0

# attempt DIR COMMAND...: one run in DIR.
attempt() {
    local dir=$1 rc=0
    shift
    mkdir -p "$dir"
    (
        cd "$dir"
        input_of "$NAME" | timeout -k 1 100 "$@" >stdout 2>stderr
    ) || rc=$?
    [ $rc = 0 ] || { echo "WRONG: $NAME: exit $rc: $(tail -n 1 "$dir/stderr")"; bad=1; }
}
# storm DIR COMMAND...: likewise, disturbed.
storm() {
    local dir=$1
    shift
    attempt "$dir" env LD_PRELOAD="$STORM" TSR_STORM_PROGRAM="${TESSERA##*/}" TSR_STORM_COUNT="$WORK/count.$NAME" "$@"
    # calls that were interrupted, and that were short
    awk -v name="$NAME" '{ n += $1; i += $2; c += $3 } END { printf "%s: %d signals, %d calls interrupted, %d cut short\n", name, n, i, c
        exit !(i > 5 && c > 5) }' "$WORK/count.$NAME" || { echo "WRONG: $NAME: no storm"; bad=1; }
}

for NAME in logits generate check run compare convert mapped cluster; do
    read -ra ARGS <<<"$(command_of "$NAME")"
    attempt "$WORK/$NAME.clean" "$TESSERA" "${ARGS[@]}"
    storm "$WORK/$NAME" "$TESSERA" "${ARGS[@]}"
    [ -n "$(result_of "$WORK/$NAME.clean" "$NAME")" ] || { echo "WRONG: $NAME: no result"; bad=1; }
    [ "$(result_of "$WORK/$NAME" "$NAME")" = "$(result_of "$WORK/$NAME.clean" "$NAME")" ] ||
        { echo "WRONG: $NAME: another result"; bad=1; }
done

# a batch by four ranks that are processes, and its journal
NAME="batch"
cd "$WORK"
cat >plan.yaml <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 24, batch: 8, chunk: 8, kv: f32}
micro_batches: {prefill: 2, decode: 4}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - {layers: 0-2, node: here, device: this-machine, tp: 2, schemes: [{layers: 0-2, use: rtn, bits: 4, group: 32}]}
  - {layers: 3-5, node: here, device: this-machine, tp: 2, schemes: [{layers: 3-5, use: rtn, bits: 4, group: 32}]}
PLAN
printf 'version: 1\nmodel: "%s"\nseed: 5\n' "$ROOT/configs/demo" >job.yaml
for ((i = 0; i < 40; i++)); do
    printf '{"custom_id":"%d","url":"/v1/completions","body":{"prompt":"Once upon a time %d","max_tokens":%d}}\n' $i $i $((2 + i % 20))
done >in.jsonl
ARGS=(batch "$WORK/job.yaml" -i "$WORK/in.jsonl" -o out.jsonl -q --threads 1 --set run.plan="$WORK/plan.yaml" --set run.stall=600)
attempt "$WORK/batch.clean" "$TESSERA" "${ARGS[@]}"
storm "$WORK/batch" "$TESSERA" "${ARGS[@]}"
cmp batch.clean/out.jsonl batch/out.jsonl || { echo "WRONG: batch: another output"; bad=1; }
NAME="export"
attempt "$WORK/export.clean" "$TESSERA" journal export "$WORK/batch/out.jsonl"
storm "$WORK/export" "$TESSERA" journal export "$WORK/batch/out.jsonl"
cmp export.clean/stdout batch/out.jsonl || { echo "WRONG: export: another output in peace"; bad=1; }
cmp export/stdout batch/out.jsonl || { echo "WRONG: export: another output"; bad=1; }
[ $bad = 0 ]
