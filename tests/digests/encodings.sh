#!/bin/bash
# tests/digests/encodings.sh AVXVNNI VNNI256 - the kernels of AVX-VNNI are those that run here in the encoding of AVX-512: the same
# instructions, but for the encoding of vpdpbusd, and none that needs AVX-512.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong() {
    echo "WRONG: $*"
    exit 1
}
# instructions ARCHIVE: without places, padding, names of the set and targets of calls that are not linked yet
instructions() {
    objdump -d --no-show-raw-insn "$1" | sed -E '
        /file format|^In archive/d
        s/^ +[0-9a-f]+:\t//
        s/\{(vex|evex)\} //
        s/avxvnni|vnni256/SET/g
        s/^[0-9a-f]+ </</
        s/(call|jmp) +[0-9a-f]+ .*/\1/
        s/(j[a-z]+) +[0-9a-f]+ </\1 </
        s/\+0x[0-9a-f]+>/>/
        s/# [0-9a-f]+/#/
        s/ +$//
        /^(nop|cs nop|data16|xchg +%ax,%ax)/d'
}
instructions "$1" >"$work/vex"
instructions "$2" >"$work/evex"
n=$(grep -c vpdpbusd "$work/vex" || true)
[ "$n" -gt 1000 ] || wrong "there are $n products of bytes"
diff "$work/vex" "$work/evex" >"$work/diff" || wrong "the instructions differ: $(head -n 4 "$work/diff")"
[ "$(objdump -d --no-show-raw-insn "$1" | grep -c '{vex} vpdpbusd')" = "$n" ] || wrong "a product has the encoding of AVX-512"
if objdump -d --no-show-raw-insn "$1" | grep -Eq '%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|\{%k[0-7]\}'; then
    wrong "there are registers of AVX-512"
fi
echo "$n products of bytes, the rest equal"
