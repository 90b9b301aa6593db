#!/bin/bash
# tests/unit/waits.sh ROOT - docs/decisions/waits.md lists every function of core/ and plugins/comm that waits, and
# no other: a call that may block in a function that the table does not have is an error.
set -euo pipefail
export LC_ALL=C
cd "$1"
TABLE=docs/decisions/waits.md
# Calls that wait, and the tree's own functions that do nothing but nap.
CALLS='(nanosleep|clock_nanosleep|usleep|p?poll|select|pause|wait(pid|id)|sched_yield|sem_(timed)?wait|sigwait(info)?|flock|popen'
CALLS+='|pthread_(cond_(timed|clock)?wait|(timed|clock)?join(_np)?|barrier_wait|mutex_(try|timed|clock)lock)|MPI_(Wait[a-z]*|Barrier|Finalize|Init_thread|Recv|Send|Probe)'
CALLS+='|tsr_runtime_group_nap|mpi_nap|tsr_runtime_peers_wait_news|nap|wait_round|tsr_comm_link_wait_for|tsr_comm_flow_wait|tsr_runtime_queue_take(_for)?)[(]'
MORE='->wait[(]|FUTEX_WAIT,|F_(OFD_)?SETLKW'
find core plugins/comm -name '*.c' ! -path 'core/conformance/*' ! -path 'core/cli/bench/*' | sort | while read -r file; do
    awk -v file="$file" -v calls="(^|[^A-Za-z0-9_.>])$CALLS|$MORE" '
        /^ \*|^\/\*|^ *\/\*/ { next }
        /^[A-Za-z_].*\(/ && !/;$/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
        /^[ \t]/ && $0 ~ calls && name != "" && !seen[name]++ { print file ":" name }' "$file"
done | sort -u >"${TMPDIR:-/tmp}/waits.$$"
trap 'rm -f "${TMPDIR:-/tmp}/waits.$$"' EXIT
# a row begins with | `file`: `name`, `name` |
awk -F'|' '/^\| `/ { cell = $2; match(cell, /`[^`]*`/); file = substr(cell, RSTART + 1, RLENGTH - 2)
    cell = substr(cell, RSTART + RLENGTH)
    while (match(cell, /`[^`]*`/)) { print file ":" substr(cell, RSTART + 1, RLENGTH - 2); cell = substr(cell, RSTART + RLENGTH) } }' \
    "$TABLE" | sort -u | comm -3 - "${TMPDIR:-/tmp}/waits.$$" | awk -F'\t' '
    $1 != "" { print "no longer waits, but is in the table: " $1 }
    $2 != "" { print "waits and is not in '$TABLE': " $2 }
    { bad = 1 } END { exit bad }'
n=$(wc -l <"${TMPDIR:-/tmp}/waits.$$")
[ "$n" -gt 40 ] || { echo "only $n functions wait: the search finds nothing"; exit 1; }
echo "$n functions that wait"
