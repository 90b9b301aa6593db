#!/bin/bash
# tests/e2e/template-device.sh TESSERA SIMT.so SIMT.a - `plugin new quantizer NAME --table device`: it builds with nvcc and without it,
# by make and by meson, and keeps the rules; its kernel, compiled as C for the emulated device, keeps those of devices and
# gives a model the bytes of the CPU.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
SIMT=$(readlink -f "$2") EMULATION=$(readlink -f "$3")
umask 022
cd "$WORK"
mkdir pc
export PKG_CONFIG_PATH=$WORK/pc
cat >pc/tessera.pc <<END
includedir=$ROOT/core/include
tessera=$TESSERA
ldflags=-Wl,--version-script=$ROOT/plugins/plugin.map -Wl,-z,defs -Wl,-z,relro -Wl,-z,now
Name: tessera
Description: Headers for plugins
Version: 1
Cflags: -I\${includedir}
END
cc=$([ $((SRANDOM % 2)) = 0 ] || command -v clang-14 || true)
by_make() { # ARGUMENT...
    make -s -B -C mine CC="${cc:-gcc}" CFLAGS="-O2 -Wall -Wextra -Werror" "$@" >log 2>&1 || { cat log; return 1; }
}
# rules PATTERN ARGUMENT...: the verdicts of these rules
rules() {
    run plugin check mine/mine.so --no-model --only "$1" --json "${@:2}"
    jq -c '.rules | map(.verdict)' out
}

fails "the table in C++" 2 device plugin new quantizer mine --table device --cxx
run plugin new quantizer mine --table device --json
ok "it is written" test "$rc" = 0
ok "with a Makefile of its own" json '.files == ["Makefile", "meson.build", "mine.c", "mine.cu", "mine.h"]' out
ok "no placeholder is left" test -z "$(grep -rE '@(NAME|ID|LICENSE)@' mine)"
ok "fewer than 330 lines in all its files" test "$(cat mine/* | wc -l)" -lt 330

# Six rules pass; those of functions that the template lacks are left out.
keeps_kernels() {
    test "$(rules 'kernel-*' | jq -c 'group_by(.) | map([.[0], length])')" = '[["passed",6],["skipped",4]]'
}

# ---- without nvcc: a sentence, and the CPU's kernel alone
ok "without nvcc: make" by_make NVCC=
ok "one sentence says what is missing" test "$(cat log)" = \
    "nvcc is not found: mine.so gets no code for CUDA devices, and its products run on the CPU"
ok "it keeps the rules" make -s -C mine NVCC= check CHECKFLAGS=--no-model >log 2>err
ok "those of kernels, too" keeps_kernels
ok "those of devices are left out" test "$(rules 'device-*' --on "$SIMT")" = '["skipped","skipped","skipped","skipped"]'
run quantize "$STORIES" --use mine -o packed --plugin-path mine
ok "a model is packed, got $rc" test "$rc" = 0
logits() { # OUT OPTION...
    run logits ./packed --tokens 1,2,3,4,5,6 --plugin-path mine --plugin-path "$SIMT" -o "$@" -v
    ok "$1: succeeds, got $rc" test "$rc" = 0
}
logits cpu
logits host --backend simt --numerics exact
ok "on a device it runs on the CPU, and the log says so" grep -q "no code for SIMT emulation" err
ok "with the same bytes" cmp cpu host

# ---- with nvcc: the kernel is in the file
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then
    ok "with nvcc: make" by_make NVCC="$nvcc" NVCCFLAGS=-arch=sm_90
    ok "without a word" test ! -s log
    ok "its code is in the file" grep -qc mine_linear mine/mine.so
    ok "it keeps the rules of kernels" keeps_kernels
    ok "code that is wrong stops make" bash -c '! make -s -B -C mine NVCC=true >log 2>&1' # true makes no file for bin2c
    ok "and leaves no image behind" test ! -e mine/mine_image.h
fi
ok "meson builds it" bash -c 'CC=$1 meson setup mine/b mine -Dwerror=true && ninja -C mine/b' - "${cc:-gcc}" >log 2>&1
ok "to the same plugin" test "$(nm -D --defined-only mine/b/mine.so | awk '{print $3}')" = tsr_plugin_v1

# ---- on the emulated device: the kernel as C, under the name of that device
sed -i 's/"cuda"/"simt"/; s/\.image = image/.image = \&image/' mine/mine.c
sed -e 's/^extern "C" __global__ void __launch_bounds__(BLOCK) \(.*\)(const \(.*\) a)$/TSR_KERNEL(\1, \2, BLOCK)/' -e '/^#define AT/d' \
    -e '1i #include "simt/simt_kernel.h"' mine/mine.cu >mine/kernel.c
cat >mine/emulated.h <<'END'
#include "simt/simt_code.h"
extern const struct simt_kernel mine_linear_simt;
static const struct simt_kernel *const list[] = { &mine_linear_simt };
static const struct simt_code image = SIMT_CODE(list);
END
emulated() {
    "${cc:-gcc}" -std=gnu11 -O2 -Wall -Wextra -ffp-contract=off -fPIC -fvisibility=hidden -shared -pthread -I"$ROOT/core/include" \
        -I"$ROOT/kernels/cuda" -DIMAGE='"emulated.h"' -o mine/mine.so mine/mine.c mine/kernel.c "$EMULATION" \
        -Wl,--version-script="$ROOT/plugins/plugin.map" -lm >log 2>&1 || { cat log; return 1; }
}
ok "the kernel compiles as C" emulated
ok "it keeps the rules of devices" test "$(rules 'device-*' --on "$SIMT")" = '["passed","passed","passed","passed"]'
for how in prefill step; do
    step=()
    [ $how = prefill ] || step=(--step)
    logits "$how" --backend simt --numerics exact "${step[@]}"
    ok "$how: the kernel runs on the device" grep -q "products of org.example.mine/1 run on SIMT emulation" err
    ok "$how: with the bytes of the CPU" cmp cpu "$how"
done
sed -i 's/part \* w->step/part * w->step + 1.0f/' mine/kernel.c
ok "a kernel that is wrong compiles" emulated
ok "and breaks the rule about it" test "$(rules device-same --on "$SIMT")" = '["failed"]'
finish
