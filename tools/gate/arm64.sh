# shellcheck shell=bash
# tools/gate/arm64.sh - the CPU kernels of arm64: cross-compiled, run under qemu-user, compared with this processor's.

# Processors of QEMU, and the set of kernels that each must choose by itself.  On one without an instruction, a
# kernel that has it ends with SIGILL.
ARM64_PROCESSORS=(cortex-a53:neon neoverse-n1:dotprod max:i8mm)

# arm64_one PROCESSOR SET: the lines of tests/digests there are those in build-gate/arm64/here.
arm64_one() {
    local there=$GATE/arm64/there-$2
    if ! qemu-aarch64 -cpu "$1" "$GATE/arm64/tests/digests/digests" >"$there" 2>"$there.err"; then
        tail -n 5 "$there.err"
        echo "arm64: the program fails on $1"
        return 1
    fi
    if [ "$(cat "$there.err")" != "set $2" ]; then
        echo "arm64: on $1 it says '$(tail -n 1 "$there.err")'; expected was 'set $2'"
        return 1
    fi
    cmp "$GATE/arm64/here" "$there" && return
    echo "arm64: other bytes than on this processor, by $2:"
    diff "$GATE/arm64/here" "$there" | sed -n 's/^> /    /p' | head -n 20
    return 1
}

phase_arm64() {
    local each
    tools/setup.sh arm64 || return 1
    configure_dir build "${RELEASE[@]}" -Dtests=true && build_for arm64 build tests/digests/digests || return 1
    # -O1 and rolled loops (TSR_ROLLED in kernels/cpu/simd.h): tools/check-arm64 has whole models
    configure_dir "$GATE/arm64" --cross-file tools/cross/aarch64.ini --buildtype=release -Doptimization=1 -Db_pie=false \
        -Dparts=kernels && build_for arm64 "$GATE/arm64" || return 1
    result pass 0 "arm64: cross build without warnings"
    build/tests/digests/digests >"$GATE/arm64/here" || return 1
    [ "$(wc -l <"$GATE/arm64/here")" -gt 200 ] || return 1
    for each in "${ARM64_PROCESSORS[@]}"; do
        check "arm64: ${each#*:} gives the same bytes" arm64_one "${each%:*}" "${each#*:}" &
    done
    wait
}
