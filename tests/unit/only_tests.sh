#!/bin/bash
# tests/unit/only_tests.sh ROOT BUILD CC - every function of the core has a caller in the product: what tests alone
# call is deleted, or moved to the tests.  Looks at the objects of BUILD: a function that no other object of the core
# or the program needs, and that the sources of core and tools name only where it is defined, is an error.  So is one
# that its own file alone names, which is to be static; docs/decisions/tree.md says what tests may call.
set -euo pipefail
export LC_ALL=C
cd "$1"
BUILD=$2
CC=$3
# FUNCTION, and why it stays
ALLOWED='
_Exit                     takes the place of the one of the C library, for plugins
tsr_engine_create_on      engines on backends that tests make without a file: one whose memory the host cannot read
tsr_engine_stream_memory  what a stream took at most is compared with tsr_engine_stream_estimate()
tsr_plugin_cancel_reset   one process of a test is interrupted several times
tsr_plugin_guard_forget   one process of a test sees several plugins at fault, the product stops at the first
'
# own OBJECT...: functions of those objects that no other one needs, and that one source of core, tests and tools names.
own() {
    nm "$@" | awk '
        NF == 2 && $1 == "U" { needed[$2] = 1 }
        NF == 3 && $2 == "T" { defined[$3] = 1 }
        END { for (f in defined) if (!(f in needed) && f != "main") print f }' | sort >"$work/alone"
    find core kernels plugins tests tools -name '*.c' | sort | xargs grep -oFwf "$work/alone" -- | sort -u |
        awk -F: '{ files[$2]++ } END { for (f in files) if (files[f] == 1) print f }' | sort
}
# search OBJECT...: functions of those objects that no other one needs, and that core and tools here name once.
search() {
    nm "$@" | awk '
        NF == 2 && $1 == "U" { needed[$2] = 1 }
        NF == 3 && $2 == "T" { defined[$3] = 1 }
        END { for (f in defined) if (!(f in needed) && f != "main") print f }' | sort >"$work/alone"
    find core tools -name '*.c' | sort | xargs awk -v alone="$work/alone" '
        BEGIN { while ((getline f <alone) > 0) times[f] = 0 }
        function count(text,    word) {
            while (match(text, /[A-Za-z_][A-Za-z0-9_]*/)) {
                word = substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
                if (word in times) times[word]++
            }
        }
        FNR == 1 { comment = 0 }
        {
            line = $0
            gsub(/"([^"\\]|\\.)*"/, "", line)
            if (comment) { if (!sub(/^.*\*\//, "", line)) next; comment = 0 }
            gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, " ", line)
            if (sub(/\/\*.*/, "", line)) comment = 1
            sub(/\/\/.*/, "", line)
            count(line)
        }
        END { for (f in times) if (times[f] == 1) print f }' | sort
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# a planted one is found, and no other
mkdir "$work"/{core,kernels,plugins,tests,tools}
echo 'void needed(void), own(void), caller(void), planted(void);' >"$work/core/a.h"
printf '%s\n' '#include "a.h"' 'void needed(void) { own(); }' '/* planted() is named here, too */' 'void own(void) {}' \
    'void planted(void) {}' >"$work/core/a.c"
printf '%s\n' '#include "a.h"' 'static const char *text = "planted";' 'void (*table)(void) = caller;' \
    'void caller(void) { if (text) needed(); }' >"$work/core/b.c"
for f in a b; do "$CC" -c -o "$work/$f.o" "$work/core/$f.c"; done
found=$(cd "$work" && search a.o b.o)
[ "$found" = planted ] || { echo "of a planted function the search says: ${found:-nothing}"; exit 1; }
found=$(cd "$work" && own a.o b.o)
[ "$found" = $'caller\nown' ] || { echo "of functions that their own files call the search says: ${found:-nothing}"; exit 1; }

mapfile -t objects < <(find "$BUILD/tessera.p" -name '*.o' | sort)
search "$BUILD/core/libtessera-core.a" "${objects[@]}" >"$work/found"
printf '%s' "$ALLOWED" | awk 'NF > 1 { print $1 }' | sort >"$work/allowed"
comm -23 "$work/found" "$work/allowed" >"$work/wrong"
comm -13 "$work/found" "$work/allowed" >"$work/stale"
own "$BUILD/core/libtessera-core.a" "${objects[@]}" | comm -23 - "$work/allowed" >"$work/own"
while read -r f; do echo "$f(): nothing but tests calls it"; done <"$work/wrong"
while read -r f; do echo "$f(): its own file alone calls it; make it static"; done <"$work/own"
while read -r f; do echo "$f(): has a caller or is gone, and is still on the list of this test"; done <"$work/stale"
[ ! -s "$work/wrong" ] && [ ! -s "$work/own" ] && [ ! -s "$work/stale" ] || exit 1
echo "$(nm "$BUILD/core/libtessera-core.a" | grep -c ' T ') functions, $(wc -l <"$work/allowed") on the list"
