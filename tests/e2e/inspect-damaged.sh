#!/bin/bash
# tests/e2e/inspect-damaged.sh TESSERA FIXTURES [SEED [TRIALS]] - inspect, and plugin check, of plugin
# files that are cut, garbled, or do harm in their constructors: a sentence and exit code 2, never a crash.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
umask 022
HARM=$2
SEED=${3:-20261124}
TRIALS=${4:-60}
BUILD=$(dirname "$TESSERA")
SO=$BUILD/plugins/rtn.so
SIZE=$(stat -c %s "$SO")
RANDOM=$SEED
# in this shell: a subshell has random numbers of its own
draw() { drawn=$((((RANDOM << 15 | RANDOM) & 0x3fffffff) % $1)); }
drawn=0

# ---- constructors ---------------------------------------------------------------
for act in crash exit _exit; do
    cp "$HARM/load_$act.so" "$WORK/$act.so"
done
fails "a constructor that crashes" 2 './crash.so' inspect ./crash.so
fails "a constructor that calls exit" 2 './exit.so' inspect ./exit.so
fails "a constructor that calls _exit" 2 './_exit.so' inspect ./_exit.so
fails "a constructor that crashes, asked" 2 './crash.so' inspect ./crash.so --probe
run inspect ./exit.so --exists
ok "there is no such plugin" test "$rc" = 1
run plugin check ./crash.so --only 'loads'
ok "plugin check outlives it, exit code $rc" test "$rc" = 1
run plugin check ./exit.so --only 'loads'
ok "plugin check outlives an exit, exit code $rc" test "$rc" = 1

# ---- damage -----------------------------------------------------------------------
# 0: whole, 1: --exists says no, 2: refused; nothing else, and never more than a sentence
odd=0
refused=0
for ((i = 0; i < TRIALS; i++)); do
    cp "$SO" "$WORK/d.so"
    if ((i % 4 == 0)); then
        draw "$SIZE"
        truncate -s "$drawn" "$WORK/d.so"
    else
        # most bytes of a file do nothing: the head, the dynamic section and its tables do
        draw 12
        n=$((drawn + 1))
        where=$((SIZE < 28672 ? SIZE : 28672)) # behind it is what a debugger reads
        ((i % 4 != 1)) || where=1024
        ((i % 4 != 2)) || where=4096
        for ((k = 0; k < n; k++)); do
            draw 256
            byte=$(printf '\\x%02x' "$drawn")
            draw "$where"
            # shellcheck disable=SC2059 # it is one byte
            printf "$byte" | dd of="$WORK/d.so" bs=1 seek="$drawn" conv=notrunc status=none
        done
    fi
    run inspect ./d.so --json
    # a segment may have become larger than the memory
    ((rc != 4)) || [ "$(object)" != ./d.so ] || rc=2
    ((rc != 2)) || refused=$((refused + 1))
    if ((rc != 0 && rc != 2)) || { ((rc == 2)) && ! failure '.object'; } || ((rc == 2 && $(wc -l <"$WORK/err") > 1)); then
        odd=$((odd + 1))
        cp "$WORK/d.so" "${KEEP:-$WORK}/odd-$i.so"
        echo "seed $SEED, trial $i: exit code $rc: $(tail -n 3 "$WORK/err")"
    fi
done
ok "of $TRIALS damaged files none ends inspect otherwise" test "$odd" = 0
ok "most of them are refused: $refused" test "$refused" -gt $((TRIALS / 4))
finish
