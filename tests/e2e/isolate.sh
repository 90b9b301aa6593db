#!/bin/bash
# tests/e2e/isolate.sh TESSERA FIXTURES [small] - `plugins: {isolate: true}`: the same bytes as without, and whatever
# a quantizer does in its process is one sentence, while the program goes on.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
umask 022
DEMO=$ROOT/configs/demo
cp "$2/harm.so" "$2/../fixtures/foreign.so" "$WORK"

# job NAME PLUGINS STEPS: writes NAME.yaml
job() {
    printf 'version: 1\nmodel: %s\nplugins: {%s}\npipeline:\n%b' "$STORIES" "$2" "$3" >"$WORK/$1.yaml"
}
# same A B: the packed models of two jobs are the same bytes
same() {
    local f n=0
    for f in "$WORK/$1"/packed/*.safetensors "$WORK/$1"/packed/{packed,fingerprint}.json; do
        cmp "$f" "$WORK/$2/packed/${f##*/}" || return 1
        n=$((n + 1))
    done
    [ "$n" -gt 3 ]
}
REPORT='.results.quantize | del(.packed_model, .peak_memory_bytes) | walk(if type == "object" then del(.seconds) else . end)'
CALIBRATE="  - calibrate: {text: $DEMO/calibration.txt, samples: 4, seqlen: 64}\n"

# ---- the same bytes ---------------------------------------------------------------
ask=(rtn 'use: rtn, bits: 4, group: 32' gptq 'use: gptq, bits: 3, group: 32' awq 'use: awq, bits: 4, group: 32'
    squeeze 'use: squeeze, bits: 4' mx 'use: mx, transform: both' foreign 'use: foreign'
    mixed 'use: rtn, bits: 4, rules: [{tensors: "*.down_proj", use: gptq, bits: 4, group: 16}, {tensors: lm_head, bits: 8}]')
for ((i = 0; i < ${#ask[@]}; i += 2)); do
    name=${ask[i]}
    steps="$CALIBRATE  - quantize: {${ask[i + 1]}}\n"
    job here 'paths: foreign.so' "$steps"
    job there 'paths: foreign.so, isolate: true, time_limit: 100' "$steps"
    run run here.yaml --out "here-$name"
    ok "$name runs, got $rc" test "$rc" = 0
    cp "$WORK/err" "$WORK/err-here"
    run run there.yaml --out "there-$name"
    ok "$name runs isolated, got $rc" test "$rc" = 0
    ok "$name: isolated the same bytes" same "here-$name" "there-$name"
    ok "$name: the same report" test "$(jq -cS "$REPORT" "$WORK/here-$name/results.json")" = \
        "$(jq -cS "$REPORT" "$WORK/there-$name/results.json")"
    ok "$name: the same remarks" test "$(grep -c warning "$WORK/err-here")" = "$(grep -c warning "$WORK/err")"
done

# ---- solvers ------------------------------------------------------------------------
mkdir "$WORK/devices"
while read -r name memory rate ops; do
    cat >"$WORK/devices/$name.yaml" <<DEVICE
format: tessera.device/1
name: $name
memory: {total: $memory MiB, source: made up}
bandwidth: {peak: $rate GB/s, source: made up}
kernels:
$(for k in f16 bf16 f32 int3 int4 int8; do
        echo "  - {kernel: $k, ops: $ops GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}"
    done)
DEVICE
done <<<$'small 1 1 100\nlarge 2 3 400'
cat >"$WORK/cluster.yaml" <<CLUSTER
version: 1
nodes:
  - name: a
    devices: [{profile: small, count: 2}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
  - name: b
    devices: [{profile: large}]
    link: {bandwidth: 10 GB/s, latency: 5 us}
network: {bandwidth: 1 GB/s, latency: 20 us}
CLUSTER
for solver in exact het uniform pipeedge; do
    for where in here there; do
        isolate=false
        [ "$where" = here ] || isolate=true
        printf 'version: 1\nmodel: %s\ncluster: cluster.yaml\nworkload: {prompt: 64, generate: 32, batch: 8}\nplugins: {isolate: %s}\npipeline:\n  - plan: {use: rtn, group: 32, bits: [3, 4, 8, 16], solver: %s}\n' \
            "$STORIES" "$isolate" "$solver" >"$WORK/plan.yaml"
        run run plan.yaml --out "plan-$solver-$where"
        ok "$solver plans $where, got $rc" test "$rc" = 0
    done
    ok "$solver: isolated the same plan" test "$(grep -v seconds "$WORK/plan-$solver-here/plan.yaml" | md5sum)" = \
        "$(grep -v seconds "$WORK/plan-$solver-there/plan.yaml" | md5sum)"
done

# ---- what a process does ------------------------------------------------------------
# harm NAME CODE OBJECT FACTS OPTIONS [PLUGINS]: the run is refused so, nothing runs on, no part is left
harm() {
    job harm "paths: harm.so, isolate: true${6:+, $6}" "$CALIBRATE  - quantize: {use: harm, $5}\n"
    rm -rf "$WORK/harm"
    fails_with "$1" "$2" "$3" "$4" run harm.yaml --out harm
    ok "$1: no part is left" test -z "$(find "$WORK/harm" -name '*.part*' -o -name '.*.tmp*' 2>/dev/null)"
    ok "$1: no process is left" test -z "$(pgrep -f "$WORK/harm.yaml" || true)"
}
H="quantizer 'harm'" P="/harm[.]so$" # whom it is about, and whose fault
harm "a crash in quantize" 1 "$H" "quantize\(\) .*'model[.]layers[.]0[.][a-z_.]+' .* signal 11 .*$P" 'act: crash'
harm "a crash in prepare" 1 "$H" "prepare\(\) .* signal 11 .*$P" 'act: crash, at: prepare_'
harm "a crash in dequantize" 1 "$H" " signal 11 .*$P" 'act: crash, at: dequantize_'
harm "a crash in search" 1 "$H" "search\(\) .*'model[.]layers[.]0' .* signal 11 .*$P" 'act: crash, at: search_, searches: 1'
harm "abort()" 1 "$H" "quantize\(\) .* signal 6 .*$P" 'act: abort_'
harm "exit(0)" 1 "$H" "quantize\(\) .* status [0-9]+; .*$P" 'act: exit_0'
harm "_exit(0)" 1 "$H" "quantize\(\) .* status [0-9]+; .*$P" 'act: exit_now'
harm "a loop without end" 1 "$H" "quantize\(\) .* 0[.]3 s .*$P" 'act: hang' 'time_limit: 0.3'
harm "memory without end" 1 "$H" "quantize\(\) .* 64 MiB .*$P" 'act: hog' 'memory_limit: 64 MiB'
harm "bytes beyond the codes" 1 "$H" "quantize\(\) .* (signal (11|7|6)|status) .*$P" 'act: spill'
harm "a status that is none" 1 '*/harm.so: quantizer "harm" *' "quantize\(\) .*-77" 'act: status'
harm "a positive status" 1 '*/harm.so: quantizer "harm" *' "quantize\(\) .* 5\\b" 'act: positive'
harm "sizes that are none" 2 'model.layers.0.*' "$H" 'act: sizes'
harm "scales that are none" 1 'model.layers.0.*' "$H.* 0 .* 0 .*nan" 'act: scales'
harm "a crash in create" 1 "$H" "create\(\) .* signal 11 .*$P" 'act: crash, at: create_'
harm "a crash in plan" 1 "$H" "plan\(\) .* signal 11 .*$P" 'act: crash, at: plan_'
harm "a crash in destroy" 1 "$H" "destroy\(\) .* signal 11 .*$P" 'act: crash, at: destroy_'

# What an error is about comes with it: a file, a line and a column, from each call.
for at in create_ plan_ prepare_ quantize_ dequantize_ search_; do
    for where in false true; do
        job refuse "paths: harm.so, isolate: $where" "$CALIBRATE  - quantize: {use: harm, act: damaged, at: $at, searches: 1}\n"
        rm -rf "$WORK/refuse"
        fails "refused in $at, isolate $where" 1 'table.bin:3:7' run refuse.yaml --out refuse
    done
done

# ---- files that harm when they are loaded ---------------------------------------------
cp "$2/load_crash.so" "$2/load_exit.so" "$WORK"
for act in crash exit; do
    job load "paths: load_$act.so, isolate: true" '  - quantize: {use: rtn}\n'
    fails "a file that does $act when it is loaded" 2 'load.yaml:3:18' run load.yaml --out load
done

# ---- the key ----------------------------------------------------------------------------
job key 'isolate: true, time: 3' '  - quantize: {use: rtn}\n'
fails "an unknown key" 2 'key.yaml:3:26' run key.yaml --out key
job key 'isolate: true, time_limit: -1' '  - quantize: {use: rtn}\n'
fails "a limit below 0" 2 'key.yaml:3:38' run key.yaml --out key
finish
