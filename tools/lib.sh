# shellcheck shell=bash
# tools/lib.sh - what the tools share: where the tree is, saying things, building a folder.
# Source it; it changes into the root of the tree.

set -euo pipefail
export LC_ALL=C.UTF-8
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Seconds since the epoch with microseconds, and the seconds since such a value.
now() { printf '%s' "${EPOCHREALTIME/,/.}"; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

# The build that users get: optimized, with line tables.
# shellcheck disable=SC2034 # read by the scripts that source this
RELEASE=(--buildtype=release -Ddebug=true)

# configure_dir DIR [meson option...]: configures DIR, or adds options it was not given before.
configure_dir() {
    local dir=$1 known=$1/tessera-options log=$1/tessera-build.log opts
    shift
    opts="CC=${CC:-cc} $*"
    if [ -f "$dir/build.ninja" ] && grep -qxF -- "$opts" "$known" 2>/dev/null; then
        return 0
    fi
    mkdir -p "$dir"
    if [ -f "$dir/build.ninja" ]; then
        set -- --reconfigure "$@"
    fi
    if ! meson setup "$dir" "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        return 1
    fi
    printf '%s\n' "$opts" >>"$known"
}

# compile_dir DIR [target...]
compile_dir() {
    local dir=$1 t0 log=$1/tessera-build.log
    shift
    t0=$(now)
    if ! ninja -C "$dir" "$@" >"$log" 2>&1; then
        grep -v '^\[[0-9/]*\] ' "$log" | tail -n 60 >&2
        return 1
    fi
    if grep -q 'no work to do' "$log"; then
        say "build: $dir is up to date, nothing rebuilt"
    else
        say "build: $dir in $(since "$t0") s"
    fi
}
