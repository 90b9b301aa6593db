#!/bin/bash
# tools/setup.sh SECTION... - installs the Debian packages of tools/packages.txt that are missing.
# Sections: build (compiler and libraries), plugins, mpi, cuda (libraries of optional plugins), test (the gate), arm64 (its phase),
# disassembler (for tools/sass: pinned wheels, into build-gate/disassembler, nothing outside of the tree but pip).
# Needs nothing but dpkg and apt; uses sudo when not root.
# shellcheck source=/dev/null
. "$(dirname "$0")/help.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- build plugins mpi test

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: this is not Debian; install the packages of tools/packages.txt by hand" >&2
    exit 1
fi

wanted=()
for section in "$@"; do
    found=0
    current=
    while IFS= read -r line; do
        line=${line%%#*}
        line=${line//[[:space:]]/}
        case $line in
        '') ;;
        '['*']')
            current=${line:1:-1}
            [ "$current" = "$section" ] && found=1
            ;;
        *) [ "$current" = "$section" ] && wanted+=("$line") ;;
        esac
    done <tools/packages.txt
    if [ $found = 0 ]; then
        echo "setup: no section [$section] in tools/packages.txt" >&2
        exit 2
    fi
done

# The wheels of section disassembler, once.
wheels() {
    local into=build-gate/disassembler
    [[ " $1 " == *" disassembler "* ]] || return 0
    [ ! -x $into/nvidia/cu13/bin/cuobjdump ] || return 0
    if ! python3 -m pip --quiet --disable-pip-version-check install --target $into --no-deps --only-binary :all: \
        --require-hashes -r tools/gate/disassembler.txt >&2; then
        echo "setup: the wheels of tools/gate/disassembler.txt cannot be installed" >&2
        exit 1
    fi
    echo "setup: cuobjdump and nvdisasm are in $into" >&2
}

missing=()
here=$(dpkg --print-architecture) # a package may be there for another one as well, for cross-compilers
for package in "${wanted[@]}"; do
    dpkg-query -W -f '${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null | grep -qxE "($here|all) installed" ||
        missing+=("$package")
done
# a Python that is not the system's may bring pip along
if [ "${missing[*]}" = python3-pip ] && python3 -m pip --version >/dev/null 2>&1; then
    missing=()
fi
if [ ${#missing[@]} = 0 ]; then
    wheels "$*"
    echo "setup: all ${#wanted[@]} packages are there, nothing installed" >&2
    exit 0
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >"$log" 2>&1 && return
    tail -n 20 "$log" >&2
    echo "setup: apt-get $1 failed" >&2
    exit 1
}
apt update
for package in "${missing[@]}"; do
    policy=$(LC_ALL=C apt-cache policy "$package")
    if [ -n "$policy" ] && [[ $policy != *'Candidate: (none)'* ]]; then
        continue
    fi
    echo "setup: the package sources of this machine lack $package; those of contrib and non-free hold" \
        "what Debian's component main does not" >&2
    exit 1
done
apt install --no-install-recommends "${missing[@]}"
echo "setup: ${#missing[@]} packages installed" >&2
wheels "$*"
