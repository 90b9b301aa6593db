#!/bin/bash
# tests/e2e/cuda.sh TESSERA GPU_CHECK STAND-IN PLUGINS GPTQ - the backend cuda itself, over a driver, a
# cuBLASLt, a cuBLAS and a cuSOLVER of the tests that do their work late (tests/gpu/standin): the CPU's bytes,
# graphs for decode, under numerics: fast products and gptq by the libraries, and what is said where one of
# them is missing or fails.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CHECK=$(readlink -f "$2") STANDIN=$(readlink -f "$3") PLUGINS=$(readlink -f "$4") GPTQ=$(readlink -f "$5")
MODEL=$ROOT/tests/golden/models/llama2
export TSR_STANDIN_LOG=$WORK/counts
export LD_LIBRARY_PATH=$STANDIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

count() { awk -v n="$1" '$1 == n {print $2}' "$WORK/counts"; }
# check COMMAND... : gpu_check on the backend cuda
check() {
    rc=0
    "$CHECK" "$1" cuda "$PLUGINS/cuda.so" "$PLUGINS" "${@:2}" >"$WORK/out" 2>"$WORK/err" || rc=$?
}

check kernels 40 7
ok "kernels give the CPU's bytes, got $rc" test "$rc" = 0
ok "nothing is left allocated" test "$(count allocated)" = 0

for kernel in k_norm_step k_act_step k_heads_step k_combine_step; do
    ok "$kernel ran, for operations that follow each other" test "$(count $kernel)" -ge 1
done

check codecs 60 7 "$ROOT/tests/golden"
ok "messages are the codecs' own, on streams of their own, got $rc" test "$rc" = 0
ok "nothing is left allocated" test "$(count allocated)" = 0

# Models: a prompt whole, then token by token.
run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --output cpu
run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --output cuda --numerics exact --backend cuda
ok "logits: the bytes of the CPU" cmp -s "$WORK/cpu" "$WORK/cuda"
ok "and no memory is taken or freed after the first launch" test "$(count late)" = 0
run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --step --output step --numerics exact --backend cuda
ok "token by token: the same, got $rc" cmp -s "$WORK/cpu" "$WORK/step"
ok "and no memory is taken or freed after the first launch" test "$(count late)" = 0
ok "one graph for decode, recorded once" test "$(count captured)" = 1
ok "which ran for six of eight tokens or more" test "$(count graphs)" -ge 6
# kernels that begin before the one before has ended: where device and driver have it, else a line says so
overlap() { run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --step --output step --numerics exact --backend cuda:launching=overlap; }
overlap
early=$(count early)
ok "overlapping: the same bytes, got $rc" cmp -s "$WORK/cpu" "$WORK/step"
ok "one graph" test "$(count captured)" = 1
[ -z "$early" ] || ok "of launches that overlap, got $early" test "$early" -ge 20 # else: a toolkit before CUDA 12.3
for option in arch=86 noearly; do
    TSR_STANDIN=$option overlap
    ok "$option: the same bytes, got $rc" cmp -s "$WORK/cpu" "$WORK/step"
    ok "$option: one line says so" test "$(grep -c 'begin one after the other' "$WORK/err")" = 1
    ok "$option: one graph" test "$(count captured):${early:+$(count early)}" = "1:${early:+0}"
done
# models of every kind of layer, in chunks
for model in bloom deepseek_v2-lite gemma2 mixtral opt-350m-style qwen3_next; do
    run logits "$ROOT/tests/golden/models/$model" --tokens 1,5,9,2,7,30,4,11 --chunk 3 --output some --backend cuda
    ok "$model: no memory is taken after the first launch, got $rc" test "$rc:$(count late)" = 0:0
done
# a capture that fails, a driver without graphs: the same bytes, by single launches
TSR_STANDIN=capture=1 run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --step --output step --numerics exact --backend cuda
ok "a capture fails: the same bytes, got $rc" cmp -s "$WORK/cpu" "$WORK/step"
ok "and one line says so" test "$(grep -c "Stand-in: making a graph.*one by one" "$WORK/err")" = 1
ok "no graph ran" test "$(count graphs)" = 0
LD_LIBRARY_PATH=$STANDIN/old run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --step --output step \
    --numerics exact --backend cuda -v
ok "without graphs: the same bytes, got $rc" cmp -s "$WORK/cpu" "$WORK/step"
ok "and that is said" grep -q "Stand-in: .*graphs" "$WORK/err"
ok "no graph ran" test "$(count graphs)" = 0

# Launches of a token: a layer of Llama has 10 with int8 activations (docs/decisions/cuda.md), embedding, head and the
# norm in front of it have one each.
PACKED=$ROOT/tests/golden/checkpoints/gptq4-g128 # two layers
a8() { run logits "$PACKED" --tokens "$1" --step --act a8 --numerics exact --output "$2" --backend "$3"; }
runs() { awk -v k="${1:-}" '$1 ~ "^k_" k {n += $2} END {print n + 0}' "$WORK/counts"; }
a8 1,5,9,2,7 token cuda
shorter=$(runs) less=$(runs quantize)
a8 1,5,9,2,7,30 a8-cuda cuda
ok "a token of two layers has 2 * 10 + 3 launches, got $(($(runs) - shorter))" test $(($(runs) - shorter)) = 23
ok "nothing is quantized alone" test $(($(runs quantize) - less)) = 0
a8 1,5,9,2,7,30 a8-cpu cpu
ok "the bytes of the CPU, got $rc" cmp -s "$WORK/a8-cpu" "$WORK/a8-cuda"
a8 1,5,9,2,7 token cuda:launching=single
shorter=$(runs) less=$(runs quantize)
a8 1,5,9,2,7,30 a8-single cuda:launching=single
ok "one by one: 2 * 23 + 3, got $(($(runs) - shorter))" test $(($(runs) - shorter)) = 49
ok "four quantizations a layer: q, k and v share one, and so do gate and up" test $(($(runs quantize) - less)) = 8
ok "the same bytes, got $rc" cmp -s "$WORK/a8-cpu" "$WORK/a8-single"

# A kernel that fails: the device, what happened, and the kernels since the last wait; no graph either.
TSR_STANDIN=fail=5 fails "a kernel fails" 6 Stand-in logits "$MODEL" --tokens 1,5,9 --output x --backend cuda
ok "what the driver said" mentions 'illegal memory access'
ok "the kernels are named" mentions '\bk_[a-z]'
TSR_STANDIN=memory=3 fails "a small memory" 4 Stand-in logits "$MODEL" --tokens 1,5,9 --output x --backend cuda
TSR_STANDIN=driver=12040 fails "an old driver" 6 Stand-in logits "$MODEL" --tokens 1 --output x --backend cuda
ok "with both versions" mentions 'CUDA 12\.4\b.*\b13\.'
TSR_STANDIN=arch=70 fails "an old device" 6 Stand-in logits "$MODEL" --tokens 1 --output x --backend cuda
ok "with its version and those of the kernels" mentions '\bsm_70\b.*\bsm_75\b'

# auto where there is a driver that is of no use: the CPU, and why, without being asked for it.
while read -r name option why; do
    TSR_STANDIN=$option run logits "$MODEL" --tokens 1,5,9,2,7,30,4,11 --output auto --backend auto
    ok "auto, $name: the bytes of the CPU, got $rc" cmp -s "$WORK/cpu" "$WORK/auto"
    ok "auto, $name: one line says why" test "$(grep -cE "^tessera: warning: .*'cuda'.*$why" "$WORK/err")" = 1
done <<'WAYS'
no-device devices=0 CUDA device
no-device-by-init init=100 CUDA device
a-driver-of-another-kernel init=803 CUDA_ERROR_STANDIN
an-old-driver driver=12040 CUDA 12\.4
an-old-device arch=70 Stand-in .*sm_70
WAYS

# numerics: fast
check fast 41 3
ok "products are within their bounds, got $rc" test "$rc" = 0
ok "some of them by the library, got $(count products)" test "$(count products)" -ge 5
TSR_STANDIN=arch=75 check fast 41 4
ok "without matrix units of BF16: within their bounds, got $rc" test "$rc" = 0
ok "all of F32 by the library, got $(count products)" test "$(count products)" -ge 15
cat >"$WORK/fast.yaml" <<JOB
version: 1
numerics: fast
backend: cuda
model: $ROOT/tests/golden/models/stories260k
pipeline:
  - quantize: {use: rtn, bits: 4, group: 32}
  - generate: {prompts: ["Once upon a time there was a little girl who"], max_tokens: 6, temperature: 0, act: f32}
JOB
run run fast.yaml --out half
ok "a fast job runs, got $rc" test "$rc" = 0
TSR_STANDIN=arch=75 run run fast.yaml --out fast
ok "on an older device, too, got $rc" test "$rc" = 0
ok "its prompt by the library" test "$(count products)" -gt 0
products=$(count products)
ok "an algorithm is chosen once per shape" test "$(count heuristics)" -lt "$products"
LD_LIBRARY_PATH=$STANDIN/old run run fast.yaml --out without
ok "without cuBLASLt it runs, got $rc" test "$rc" = 0
# a real one may be installed: it does not start without a device
ok "and says so" grep -q "Stand-in: .*[bB][lL][aA][sS]Lt" "$WORK/err"
TSR_STANDIN=arch=75,none run run fast.yaml --out none
ok "without an algorithm it runs, got $rc" test "$rc" = 0
ok "and says so once" test "$(grep -c "Stand-in: .*LINEAR" "$WORK/err")" = 1

# Draws: logits stay on the device unless someone takes them; the tokens are those of the CPU.
draw() { # BACKEND SETTINGS
    cat >"$WORK/draw.yaml" <<JOB
version: 1
backend: $1
numerics: exact
model: $ROOT/tests/golden/models/stories260k
pipeline:
  - generate: {prompts: ["Once upon a time", "The dog"], max_tokens: 6, seed: 11, act: a8, $2}
JOB
    rm -rf "$WORK/draw-$1"
    run run draw.yaml --out "draw-$1"
    jq -S .results.generate.samples "$WORK/draw-$1/results.json" >"$WORK/draw-$1.json"
}
logits=$((512 * 4)) # bytes of a row
while read -r which settings; do
    draw cpu "$settings"
    draw cuda "$settings"
    ok "$settings: the CPU's tokens, got $rc" cmp -s "$WORK/draw-cpu.json" "$WORK/draw-cuda.json"
    case $which in
    best)
        ok "$settings: no copy of logits" test "$(count fetched)" -lt $logits
        ok "$settings: nothing is allocated late" test "$(count late)" = 0
        ok "$settings: the device found the best tokens" test "$(count k_candidates)" -ge 6
        ;;
    logits) ok "$settings: logits are copied" test "$(count fetched)" -ge $logits ;;
    esac
done <<'DRAWS'
best temperature: 0
best temperature: 0.8, top_k: 20
best temperature: 0.8, top_k: 40, top_p: 0.9, min_p: 0.02
logits temperature: 0, repetition_penalty: 1.1
logits temperature: 0.8, top_k: 300
DRAWS

# A bench of a model by TSR_PEAKS: against the device's copy rate and its stated peak, without a copy of logits.
run bench e2e --backend cuda --quantizer rtn:bits=4,group=64 --layers 1 --hidden 64 --ffn 64 --prompt 8 --tokens 4 --repeats 1 \
    --mib 1 --output json
ok "bench e2e runs, got $rc" test "$rc" = 0
ok "both rows have a peak and a share of it" \
    jq -e 'length == 2 and all(.[]; .probe > 0 and .share > 0)' "$WORK/out"
ok "no copy of logits" test "$(count fetched)" -lt $logits

# Linear algebra: by the libraries under numerics: fast alone.
check linalg 8 5
ok "linear algebra is within its bounds, got $rc" test "$rc" = 0
ok "by the libraries" test "$(count linalg)" -ge 48
ok "and nothing is left allocated" test "$(count allocated)" = 0
ok "gptq: layer errors within 1.001 of the CPU's" "$GPTQ" cuda "$PLUGINS/cuda.so" >"$WORK/out" 2>&1
ok "by the libraries" test "$(count linalg)" -ge 200
pack() { # OUT NUMERICS BACKEND
    cat >"$WORK/pack.yaml" <<JOB
version: 1
numerics: $2
backend: $3
model: $ROOT/tests/golden/models/stories260k
pipeline:
  - calibrate: {text: $ROOT/configs/demo/calibration.txt, samples: 2, seqlen: 32}
  - quantize: {use: gptq, bits: 3, group: 32, rules: [{tensors: "*.v_proj", act_order: false}]}
JOB
    run run pack.yaml --out "$1" -v
    ok "$1: the job runs, got $rc" test "$rc" = 0
}
# Calibration by what the device has summed: each linear's loss, which is under its own Hessian.
near() {
    jq -e --slurpfile a "$WORK/pack-cpu/results.json" '[[.results.quantize.linears[].loss],
        [$a[0].results.quantize.linears[].loss]] | transpose |
        length == 35 and all(.[0] <= 1.001 * .[1] and .[0] > 0)' "$WORK/$1/results.json" >"$WORK/out"
}
pack pack-cpu exact cpu
pack pack-exact exact cuda
ok "exact: no library" test "$(count linalg)" = 0
ok "and the weights of the CPU" diff -rq -x journal "$WORK/pack-cpu/packed" "$WORK/pack-exact/packed"
pack pack-fast fast cuda
ok "fast: Hessians, factors and updates by the libraries" test "$(count linalg)" -ge 200
ok "which is said" grep -q "Stand-in: .*cuBLAS.*cuSOLVER" "$WORK/err"
ok "no linear costs more than 1.001 times the CPU's" near pack-fast
TSR_STANDIN=noblas pack pack-none fast cuda
ok "cuBLAS does not start: the CPU does it" test "$(count linalg)" = 0
ok "which is said once" test "$(grep -c "Stand-in: .*CPU.*cuBLAS" "$WORK/err")" = 1
ok "the losses are the CPU's" near pack-none

run inspect
ok "inspect names the device" grep -q "cuda .*Stand-in" "$WORK/out"
run inspect "$PLUGINS/cuda.so"
# built FATBIN: 2:ARCH for the code of a device, 1:ARCH for PTX
built() {
    local at=16 end kind head size arch
    end=$(stat -c %s "$1")
    while [ "$at" -lt "$end" ]; do
        read -r kind <<<"$(od -An -tu2 -j "$at" -N 2 "$1")"
        read -r head <<<"$(od -An -tu4 -j "$((at + 4))" -N 4 "$1")"
        read -r size <<<"$(od -An -tu8 -j "$((at + 8))" -N 8 "$1")"
        read -r arch <<<"$(od -An -tu4 -j "$((at + 28))" -N 4 "$1")"
        echo "$kind:$arch"
        at=$((at + head + size))
    done
}
for image in "$PLUGINS"/../kernels/cuda/*.fatbin; do
    ok "${image##*/} has that code: $(built "$image" | paste -sd' ')" cmp -s <(built "$image") \
        <(grep -o 'sm_[0-9]*, .* and PTX' "$WORK/out" | grep -o 'sm_[0-9]*' | sed 's/sm_/2:/' | sort -u; echo 1:90)
done
# each file of kernels says what it is held to, where, and what it moves
for file in "$ROOT"/kernels/cuda/*.cu; do
    head=$(sed '/\*\//q' "$file")
    ok "${file##*/} has its reference, its check and its bytes" \
        test "$(grep -cE ' Reference: | Bytes moved' <<<"$head"):$(grep -c 'tests/gpu/[a-z_]*\.c' <<<"$head" | sed 's/[1-9].*/some/')" = 2:some
    ok "${file##*/} takes its workspace from the caller" \
        test -z "$(grep -nE 'malloc *\(|cuMemAlloc|^(static +)?__device__ [^(]*(;|=|\[)' "$file" | grep -v __constant__)"
done
ok "inspect lists what was built" grep -q "sm_75, sm_80, sm_86, sm_89, sm_90 and PTX" "$WORK/out"
ok "and what a device lacks" grep -q "where the device has it (sm_80 and newer" "$WORK/out"
finish
