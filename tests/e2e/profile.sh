#!/bin/bash
# tests/e2e/profile.sh TESSERA - a device profile of this machine: it is written, it reads back, and it
# says nothing about what it could not measure.  Times are not looked at: machines that build are busy.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

run profile -o "$WORK/here.yaml" --model @demo --scheme original --scheme rtn:bits=4 --quick \
    --repeats 1 --rounds 1 --positions 64 --sequences 4 --check 2 --json
ok "a profile" test "$rc" = 0
ok "both schemes and phases were checked" json 'length == 4 and all(.error_raw >= 0 and .workloads == 1)' \
    "$WORK/out"
ok "its format" grep -qx 'format: tessera.device/1' "$WORK/here.yaml"
ok "whose kernels it measured" grep -qE "^measured_on: \"Tessera's own: cpu, .+\"$" "$WORK/here.yaml"
ok "kernels by the layouts that run" test "$(grep -c '  - kernel: \(bf16\|f16\|f32\|int4\)$' "$WORK/here.yaml")" = 4
ok "every block has its source" test "$(grep -c 'source: ' "$WORK/here.yaml")" -ge 8
ok "four codecs at three sizes" test "$(grep -c '^  - codec: ' "$WORK/here.yaml")" = 12
ok "of which two are for larger messages" test "$(grep -cE '^    above: (64|1024) KiB$' "$WORK/here.yaml")" = 8
ok "no part and no lock is left" test -z "$(find "$WORK" -name '.*.part' -o -name '.*.lock')"

run profile --of "$WORK/here.yaml" --model @demo --scheme rtn:bits=4 --repeats 1 --positions 64 --sequences 4 \
    --check 3 --json
ok "an earlier profile is checked" test "$rc" = 0
ok "with workloads of its own" json 'length == 2 and all(.error_raw >= 0) and (map(.workloads) | add) == 3' \
    "$WORK/out"
sed 's/kernel: bf16/kernel: int2/' "$WORK/here.yaml" >"$WORK/less.yaml"
fails "a kernel that the profile does not have" 2 '*/less.yaml' profile --of "$WORK/less.yaml" \
    --model @demo --scheme original --check 2
run profile --of "$WORK/here.yaml" --fits
ok "regressions of the file" grep -qE '^int4 +decode +1 to 4 ' "$WORK/out"
fails "regressions of no file" 2 '--fits' profile --fits -o "$WORK/none.yaml"
fails "regressions of a file that is none" 2 '*/nowhere/bad.yaml' profile --fits --of "$WORK/nowhere/bad.yaml"
run profile --of "$WORK/here.yaml"
ok "without a number of workloads" test "$rc" = 2
fails "a profile that is not there" 2 "$WORK/nowhere.yaml" profile --of "$WORK/nowhere.yaml" --check 2
printf 'format: tessera.device/1\nname: 3\n' >"$WORK/bad.yaml"
fails "a profile that is none" 2 "$WORK/bad.yaml:*:*" profile --of "$WORK/bad.yaml" --check 2
sed 's/^kernels:/kernals:/' "$WORK/here.yaml" >"$WORK/near.yaml"
at=$(grep -n '^kernals:' "$WORK/near.yaml" | cut -d: -f1)
for how in "--check 2" --fits; do
    # shellcheck disable=SC2086 # words
    fails "a key that is none ($how)" 2 "$WORK/near.yaml:$at:1" profile --of "$WORK/near.yaml" $how
    ok "with its place and the nearest key ($how)" failure ".diagnostics | any(.line == $at and .column == 1 and
        .length == 7 and .object == \"kernals\" and (.hint | test(\"'kernels'\")))"
done

run profile -o "$WORK/codec.yaml" --model @demo --scheme original --quick --repeats 1 --rounds 1 --positions 32 \
    --sequences 1 --codec mx:element=fp4_e2m1 --times "$WORK/times"
ok "one codec, got $rc" test "$rc" = 0
ok "with its options" test "$(grep -c '^  - codec: "mx:element=fp4_e2m1"$' "$WORK/codec.yaml")" = 3
ok "its rates are those of --times" bash -c 'jq -r "select(.time_of == \"codec\") | .encode, .decode" "$1" |
    awk "{ n += \$1 > 0 } END { exit n != 6 }"' _ "$WORK/times"
fails "an unknown codec" 2 nonsense profile -o "$WORK/none.yaml" --model @demo --scheme original --quick --repeats 1 \
    --rounds 1 --positions 32 --sequences 1 --codec nonsense
fails "an unknown scheme" 2 nonsense profile -o "$WORK/none.yaml" --model @demo --scheme nonsense
run profile -o "$WORK/none.yaml" --model /nowhere
ok "a model that is not there" test "$rc" = 2
run profile -o "$WORK/no/where.yaml" --model @demo --scheme original --quick --repeats 1 --rounds 1 --positions 32 \
    --sequences 1
ok "a folder that is not there" test "$rc" = 2
run profile
ok "without a file" test "$rc" = 2
ok "nothing was written" test ! -e "$WORK/none.yaml"
finish
