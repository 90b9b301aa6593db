#!/bin/bash
# stored.sh SOURCE_ROOT NEWER_INCLUDE - the public tables are those of stored.abixml (tools/gate/abi.sh); a table that
# grew, one with a member in front of another or in its padding, one that lost a member and one of another type are
# found, and growth is told from the rest.
set -euo pipefail
root=$1 newer=$2
check=$root/tools/gate/abi.sh
rc=0
"$check" || rc=$?
[ $rc = 0 ] || exit $rc
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

# differs NAME INCLUDE_DIR WORDS... - the check fails, with these words.
differs() {
    local name=$1 include=$2 rc=0 words
    shift 2
    "$check" "$include" >"$tmp/out" || rc=$?
    [ $rc = 1 ] || { echo "$name: exit status $rc, wanted 1"; failed=1; }
    for words in "$@"; do
        grep -q "$words" "$tmp/out" || { echo "$name: nothing about '$words':"; cat "$tmp/out"; failed=1; }
    done
}

# changed NAME SED_SCRIPT WORDS... - codec.h after the script.
changed() {
    local name=$1 script=$2
    shift 2
    rm -rf "$tmp/include"
    mkdir "$tmp/include"
    cp -r "$root/core/include/tessera" "$tmp/include/"
    sed -i "$script" "$tmp/include/tessera/codec.h"
    ! cmp -s "$root/core/include/tessera/codec.h" "$tmp/include/tessera/codec.h" ||
        { echo "$name: the script changes nothing"; failed=1; }
    differs "$name" "$tmp/include" "$@"
}

differs newer "$newer" 'grew at their end' later
changed append 's/^    void \*state;/&\n    uint64_t later;/' 'grew at their end' tsr_codec_job later
changed table 's/^struct tsr_codec_v1 {/struct tsr_more {\n    uint64_t one;\n};\n&/' 'grew at their end' tsr_more
changed insert 's/^    uint64_t     rows, cols;/    uint64_t early;\n&/' 'breaks plugins' tsr_codec_job early
changed remove 's/^    uint64_t     wire_bytes;.*//' 'breaks plugins' tsr_codec_job wire_bytes
changed retype 's/^    uint32_t (\*exactness)/    uint64_t (*exactness)/' 'breaks plugins' tsr_codec_v1 exactness
changed swap 's/^    uint64_t     rows, cols;/    uint64_t cols, rows;/' 'breaks plugins' tsr_codec_job rows
exit $failed
