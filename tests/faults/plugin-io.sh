#!/bin/bash
# tests/faults/plugin-io.sh TESSERA - a plugin in the standard folder that the disk does not give ends a command that reads
# all plugins, with one sentence that names the file; with a warning the job's manifest would list other plugins than before.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/../e2e/lib.sh"
strace -f -qq -o /dev/null -e trace=write true 2>/dev/null || { echo "skipped: strace cannot trace here"; exit 77; }
PLUGIN=$(dirname "$TESSERA")/plugins/rtn.so

# traced ARGUMENT...: lists all plugins, with more arguments of strace
traced() {
    rc=0
    strace -f -qq -o /dev/null -P "$PLUGIN" -e trace=read,pread64 "$@" "$TESSERA" inspect --json \
        >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
}
traced
ok "without a fault: exit code 0, got $rc" test "$rc" = 0
ok "the plugin is listed" json '.plugins | map(.name) | index("rtn")' "$WORK/out"
traced -e inject=read,pread64:error=EIO
ok "EIO: exit code 1, got $rc" test "$rc" = 1
ok "one sentence names it" test "$(grep -c 'rtn.so' "$WORK/err")" = 1
finish
