#!/bin/bash
# tests/e2e/bench.sh TESSERA - bench measures every format, in three forms, and a random model.
# Sizes are tiny: what is tested is that the figures exist, not what they are.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

small=(--rows 64 --cols 320 --mib 4 --repeats 1)
run bench gemv "${small[@]}" --json
ok "gemv runs" test "$rc" = 0
ok "gemv measures five formats" test "$(jq length "$WORK/out")" = 5
ok "gemv gives times" jq -e 'all(.[]; .ms > 0 and .value > 0 and .probe > 0)' "$WORK/out"
run bench gemm "${small[@]}" --m 7 --bits 2,3,5 --act a16 --output csv
ok "gemm runs" test "$rc" = 0
ok "gemm prints a line per format" test "$(wc -l <"$WORK/out")" = 4
ok "gemm says what ran" grep -q '^gemm,int3,a16,64,320,7,' "$WORK/out"
run bench e2e --shape tiny --layers 1 --prompt 5 --tokens 2 --repeats 1 --mib 4
ok "e2e runs a random model" test "$rc" = 0
ok "e2e prints prefill and decode" test "$(grep -cE '^\| (prefill|decode) ' "$WORK/out")" = 2
run bench e2e --shape tiny --layers 1 --prompt 5 --tokens 2 --repeats 1 --mib 4 --quantizer rtn:bits=3 \
    --checkpoint "$WORK/random" --json
ok "e2e packs it" test "$rc" = 0
ok "e2e with packed weights takes a8" jq -e 'all(.[]; .act == "a8")' "$WORK/out"
ok "--checkpoint keeps the model" test -s "$WORK/random/model.safetensors"
run bench syrk "${small[@]}" --m 9 --json
ok "syrk runs" jq -e 'length == 1 and all(.[]; .what == "syrk" and .value > 0 and .m == 9)' "$WORK/out"
run bench cholesky "${small[@]}" --json
ok "cholesky runs" jq -e 'length == 1 and all(.[]; .value > 0 and .probe > 0)' "$WORK/out"
run bench encode --repeats 1 --json
ok "encode runs" jq -e 'length > 8 and all(.[]; .value > 0 and .threads == 1)' "$WORK/out"
fails "an unknown bench" 2 "gemv, gemm, syrk, cholesky, encode, e2e" bench gemx
fails "an unknown format" 2 "int9" bench gemv --formats int9
fails "an unknown shape" 2 "tiny, 1b, 8b" bench e2e --shape 2b
TSR_ISA=neon fails "an unknown instruction set" 2 "TSR_ISA=neon" bench gemv "${small[@]}"

finish
