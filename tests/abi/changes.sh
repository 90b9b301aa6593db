#!/bin/bash
# changes.sh SOURCE_ROOT NEWER_INCLUDE - docs/abi.md has a line for the headers as they are and as
# they were in every minor: what was declared is known by its digest, comments and spaces apart.
set -euo pipefail
root=$1 newer=$2
page=$root/docs/abi.md
failed=0

digest() { # INCLUDE_DIR
    cat "$1"/tessera/*.h | awk '
        { text = text $0 "\n" }
        END {
            while ((i = index(text, "/*")) > 0) {
                j = index(substr(text, i + 2), "*/")
                text = substr(text, 1, i - 1) " " substr(text, i + j + 3)
            }
            gsub(/[ \t\n\\]/, "", text)
            printf "%s", text
        }' | sha256sum | cut -c 1-16
}
minor_of() { sed -n 's/^#define TSR_ABI_MINOR *//p' "$1/tessera/plugin.h"; }
recorded() { sed -nE "s/^\| 1\.$1 \| \`([0-9a-f]{16})\` \| .{10,}/\1/p" "$page"; }

# look INCLUDE_DIR: nothing, or what is wrong.
look() {
    local minor got was
    minor=$(minor_of "$1") got=$(digest "$1") was=$(recorded "$minor")
    if [ -z "$was" ]; then
        echo "docs/abi.md, Changes, has no line for ABI 1.$minor; say what came, with \`$got\`"
    elif [ "$was" != "$got" ]; then
        echo "the headers of ABI 1.$minor are not those that docs/abi.md, Changes, tells of ($was);" \
            "say there what changed, and put \`$got\`"
    fi
}

for dir in "$root/core/include" "$root"/tests/abi/headers-1.*; do
    wrong=$(look "$dir")
    [ -z "$wrong" ] || { echo "${dir#"$root"/}: $wrong"; failed=1; }
done
# Every minor before today's is kept.
for ((minor = 0; minor < $(minor_of "$root/core/include"); minor++)); do
    [ -d "$root/tests/abi/headers-1.$minor" ] ||
        { echo "tests/abi/headers-1.$minor is missing"; failed=1; }
    [ "$(minor_of "$root/tests/abi/headers-1.$minor")" = "$minor" ] || failed=1
done
# Headers that nobody told of are noticed.
[ -n "$(look "$newer")" ] || { echo "a later minor without a line passes"; failed=1; }
exit $failed
