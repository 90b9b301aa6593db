#!/bin/bash
# tests/e2e/device-kernel-cuda.sh TESSERA CODEBOOK.so STAND-IN CUDA.so - a plugin's code for CUDA devices, which nvcc made, through the
# backend cuda over a driver of the tests (tests/gpu/standin) that has the kernel as C and works late: the bytes of the CPU, graphs, and
# no memory taken after the first launch.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CODEBOOK=$(readlink -f "$2") STANDIN=$(readlink -f "$3") CUDA=$(readlink -f "$4")
export TSR_STANDIN_LOG=$WORK/counts
export LD_LIBRARY_PATH=$STANDIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cd "$WORK"
count() { awk -v n="$1" '$1 == n {print $2}' "$WORK/counts"; }
run quantize "$STORIES" --use codebook -o kernel --plugin-path "$CODEBOOK"
ok "quantize succeeds, got $rc" test "$rc" = 0
logits() { # OUT OPTION...
    run logits ./kernel --tokens 1,2,3,4,5,6,7 --plugin-path "$CODEBOOK" --plugin-path "$CUDA" -o "$@" --numerics exact
    ok "$1: succeeds, got $rc" test "$rc" = 0
}
logits cpu --backend cpu
for launching in graphs single overlap; do
    rm -f counts
    logits "$launching" --backend "cuda:launching=$launching"
    ok "$launching: prefill gives the bytes of the CPU" cmp cpu "$launching"
    rm -f counts
    logits "$launching-step" --backend "cuda:launching=$launching" --step
    ok "$launching: decode, too" cmp cpu "$launching-step"
    ok "$launching: the plugin's kernel ran for each token" test "$(count codebook_linear)" -ge 7
    ok "$launching: with a launch that adds its segments" test "$(count k_segments)" = "$(count codebook_linear)"
    ok "$launching: no memory is taken after the first launch" test "$(count late)" = 0
    ok "$launching: nothing is left allocated" test "$(count allocated)" = 0
    [ "$launching" = single ] || ok "$launching: in graphs" test "$(count graphs)" -ge 1
done
run plugin check "$CODEBOOK" --no-model --only 'device-*' --on "$CUDA" --json
ok "it keeps the rules, got $rc" json '.rules | map(.verdict) == ["passed", "passed", "passed", "passed"]' out
finish
