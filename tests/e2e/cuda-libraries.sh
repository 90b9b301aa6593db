#!/bin/bash
# tests/e2e/cuda-libraries.sh TESSERA STAND-IN NCCL-STAND-IN PLUGINS - libcuda, cuBLASLt, cuBLAS, cuSOLVER and NCCL,
# each missing and each without what is looked for in it: one sentence, the status of its kind, and where the CPU
# can do the work it does.  What the machine has installed is not looked at: a library that it has is not missing.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
STANDIN=$(readlink -f "$2") NCCL=$(readlink -f "$3") PLUGINS=$(readlink -f "$4")
MODEL=$ROOT/tests/golden/models/llama2

# libraries NAME=FROM...: a folder of them alone, which the loader looks into first
libraries() {
    local one
    rm -rf "${WORK:?}/lib"
    mkdir "$WORK/lib"
    for one in "$@"; do
        ln -s "${one#*=}/${one%%=*}" "$WORK/lib/${one%%=*}"
    done
    export LD_LIBRARY_PATH=$WORK/lib
}
# Not through a pipe: grep -q ends before ldconfig has written all, which then fails of it.
installed() { [[ "$(ldconfig -p 2>/dev/null)" == *"$1.so."* ]]; }

run logits "$MODEL" --tokens 1,5,9 --output cpu

# libcuda
if ! installed libcuda; then
    libraries
    fails "no libcuda" 6 "backend 'cuda'" \
        logits "$MODEL" --tokens 1 --output x --backend cuda
    run logits "$MODEL" --tokens 1,5,9 --output auto --backend auto -v
    ok "no libcuda: auto takes the CPU, got $rc" cmp -s "$WORK/cpu" "$WORK/auto"
    ok "and says why" grep -q "warning: .*libcuda\.so\.1\b" "$WORK/err"
fi
libraries libcuda.so.1="$STANDIN/empty"
fails "a libcuda without functions" 6 "backend 'cuda'" \
    logits "$MODEL" --tokens 1 --output x --backend cuda
run logits "$MODEL" --tokens 1,5,9 --output auto --backend auto -v
ok "auto takes the CPU, got $rc" cmp -s "$WORK/cpu" "$WORK/auto"
ok "and says why" grep -q "warning: .*\bcu[A-Z][A-Za-z]*\b" "$WORK/err"

# cuBLASLt: prompts run on the exact kernels
cat >"$WORK/fast.yaml" <<JOB
version: 1
numerics: fast
backend: cuda
model: $STORIES
pipeline:
  - generate: {prompts: ["Once upon a time there was a little girl who"], max_tokens: 1, temperature: 0, act: f32}
JOB
without() { # NAME SENTENCE
    rm -rf "$WORK/out-fast"
    run run fast.yaml --out out-fast
    ok "$1: the job runs, got $rc" test "$rc" = 0
    ok "$1: says so once" test "$(grep -cE "numerics: fast .*$2" "$WORK/err")" = 1
}
if ! installed libcublasLt; then
    libraries libcuda.so.1="$STANDIN"
    without "no cuBLASLt" "libcublasLt.so.13 or .12 is not found; install cuBLAS, or put its folder into LD_LIBRARY_PATH"
fi
libraries libcuda.so.1="$STANDIN" libcublasLt.so.13="$STANDIN/empty"
without "a cuBLASLt without functions" "libcublasLt has no cublasLtCreate: it is too old; install that of CUDA 12 or newer"

# cuBLAS and cuSOLVER: linear algebra stays on the CPU
linalg() { # NAME SENTENCE
    run bench syrk --backend cuda --numerics fast -v
    ok "$1: the backend has none, got $rc" test "$rc" = 2
    ok "$1: says why, once" test "$(grep -cE "linear algebra .*CPU.*$2" "$WORK/err")" = 1
}
if ! installed libcublas; then
    libraries libcuda.so.1="$STANDIN" libcublasLt.so.13="$STANDIN"
    linalg "no cuBLAS" "libcublas.so.13 or .12 is not found"
fi
libraries libcuda.so.1="$STANDIN" libcublasLt.so.13="$STANDIN" libcublas.so.13="$STANDIN/empty"
linalg "a cuBLAS without functions" "libcublas has no cublasCreate_v2: it is too old"
if ! installed libcusolver; then
    libraries libcuda.so.1="$STANDIN" libcublasLt.so.13="$STANDIN" libcublas.so.13="$STANDIN"
    linalg "no cuSOLVER" "libcusolver.so.12 or .11 is not found"
fi
libraries libcuda.so.1="$STANDIN" libcublasLt.so.13="$STANDIN" libcublas.so.13="$STANDIN" libcusolver.so.12="$STANDIN/empty"
linalg "a cuSOLVER without functions" "libcusolver has no cusolverDnCreate: it is too old"

# NCCL and its libcuda
links() { # NAME FACTS
    fails_with "$1" 6 "" "nccl.*$2" profile --links -o links.yaml --transport nccl --plugin-path "$PLUGINS"
}
if ! installed libcuda; then
    libraries
    links "nccl without libcuda" "libcuda[.]so[.]1 "
fi
libraries libcuda.so.1="$STANDIN/empty"
links "nccl with a libcuda without functions" "cuInit\\b"
if ! installed libnccl; then
    libraries libcuda.so.1="$NCCL"
    links "no libnccl" "libnccl[.]so[.]2 .* 2[.]18 "
fi
libraries libcuda.so.1="$NCCL" libnccl.so.2="$STANDIN/empty"
links "a libnccl without functions" "libnccl[.]so[.]2 .*ncclGetVersion.* 2[.]18 "
finish
