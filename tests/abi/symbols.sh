#!/bin/bash
# A plugin exports tsr_plugin_v1 and nothing else, and asks for no symbol of ours.
#   symbols.sh PLUGIN_DIR NAME...      the names that must be there
set -u
dir=$1
shift
failed=0
bad() {
    echo "$1"
    failed=1
}
for name in "$@"; do
    [ -f "$dir/$name.so" ] || bad "$dir/$name.so is missing"
done
for so in "$dir"/*.so; do
    exported=$(nm -D --defined-only "$so" | awk '{print $NF}')
    [ "$exported" = tsr_plugin_v1 ] || bad "$so exports: $exported"
    ours=$(nm -D --undefined-only "$so" | awk '{print $NF}' | grep -i '^_*tsr\|tessera')
    [ -z "$ours" ] || bad "$so asks the host for: $ours"
    code=$(readelf -lW "$so" | awk '$1 == "GNU_STACK" && $7 ~ /E/')
    [ -z "$code" ] || bad "$so has an executable stack"
done
exit $failed
