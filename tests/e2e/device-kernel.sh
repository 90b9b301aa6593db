#!/bin/bash
# tests/e2e/device-kernel.sh TESSERA CODEBOOK.so BAD.so SIMT.so - a model in a plugin's own format on an emulated CUDA device, by
# the plugin's code for it: the bytes of the CPU, in prefill and in decode.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
CODEBOOK=$(readlink -f "$2") BAD=$(readlink -f "$3") SIMT=$(readlink -f "$4")
cd "$WORK"
model() { # NAME PLUGIN OPTION...
    run quantize "$STORIES" --use "$2" -o "$1" --plugin-path "$3" --json "${@:4}"
    ok "$1: quantize succeeds, got $rc" test "$rc" = 0
}
TOKENS=1,2,3,4,5,6
logits() { # MODEL OUT PLUGIN OPTION...
    run logits "./$1" --tokens "$TOKENS" --plugin-path "$3" --plugin-path "$SIMT" -o "$2" -v "${@:4}"
    ok "$2: succeeds, got $rc" test "$rc" = 0
}
on=(--backend simt --numerics exact)
model kernel codebook "$CODEBOOK"
logits kernel cpu "$CODEBOOK"
logits kernel device "$CODEBOOK" "${on[@]}"
ok "the plugin's code runs on the device" grep -q "products of org.example.codebook/1 run on SIMT emulation" err
ok "in prefill it gives the bytes of the CPU" cmp cpu device
logits kernel step "$CODEBOOK" "${on[@]}" --step
ok "in decode, too" cmp cpu step
logits kernel some "$CODEBOOK" "${on[@]}" --gpu-layers 2
ok "and for some layers" cmp cpu some
model host codebook "$CODEBOOK" --device=false
logits host host.out "$CODEBOOK" "${on[@]}"
ok "without code for the device its products run on the CPU, and the log says so" grep -q "no code for SIMT emulation" err
ok "with the same bytes" cmp cpu host.out
model whole codebook "$CODEBOOK" --columns=false
logits whole whole.out "$CODEBOOK"
logits whole whole-device.out "$CODEBOOK" "${on[@]}"
ok "whole rows: the bytes of the CPU" cmp whole.out whole-device.out

# A kernel that is wrong for two tokens gives other logits for two: it is the plugin's code that multiplies.
model bad bad_device "$BAD" --fault=same
logits bad bad-cpu "$BAD"
logits bad bad-device "$BAD" "${on[@]}"
ok "a kernel that is right for six tokens" cmp bad-cpu bad-device
TOKENS=1,2
logits bad two-cpu "$BAD"
logits bad two-device "$BAD" "${on[@]}"
ok "and wrong for two" bash -c '! cmp -s two-cpu two-device'
model range bad_device "$BAD" --fault=launch
TOKENS=1,2,3
run logits ./range --tokens 1,2,3 --plugin-path "$BAD" --plugin-path "$SIMT" -o x "${on[@]}"
ok "a launch that is out of range: exit status, got $rc" test "$rc" != 0
ok "is named with its place" grep -q "layers.*a launch of kernel 0 of 1.*2048 threads" err
model code bad_device "$BAD" --fault=code
run logits ./code --tokens 1,2,3 --plugin-path "$BAD" --plugin-path "$SIMT" -o x "${on[@]}"
ok "code that does not load: exit status, got $rc" test "$rc" != 0
ok "is named with its place" grep -q "the image has no kernel 'codebook_convolution'" err

finish
