#!/bin/bash
# tests/gpu/sass.sh - tools/gate/sass.awk on a listing with planted faults, and tools/sass without a disassembler.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
wrong() { echo "WRONG: $*"; exit 1; }
cd "$ROOT"
awk -f tools/gate/sass.awk tests/gpu/sass/listing.txt >"$WORK/rows"
diff tests/gpu/sass/expected.tsv "$WORK/rows" || wrong "the rows of the listing are other ones"
# of a kernel with loops of several widths each step is that of the loop with the fragments of its width, even if the
# loop of another width is shorter and has as many copies without a predicate
awk -F '\t' '$2 == "three_widths" { print $9, $10, $11, $12 }' "$WORK/rows" >"$WORK/steps"
[ "$(cat "$WORK/steps")" = "7 8 7 7" ] || wrong "the steps of three_widths are $(cat "$WORK/steps"), expected 7 8 7 7"
# loops of four steps have the longest way, and no step
awk -F '\t' '$2 == "blocks_at_once" { print $9, $11, $13, $14, $18, $15 }' "$WORK/rows" >"$WORK/steps"
[ "$(cat "$WORK/steps")" = "- - 10 12 13 14" ] || wrong "the runs of blocks_at_once are $(cat "$WORK/steps"), expected 10 12 13 14"
# so have loops of eight steps, with zero points
awk -F '\t' '$2 == "zeros_at_once" { print $9, $11, $13, $14, $15, $16, $17 }' "$WORK/rows" >"$WORK/steps"
[ "$(cat "$WORK/steps")" = "- - - - - 15 18" ] || wrong "the runs of zeros_at_once are $(cat "$WORK/steps"), expected 15 18"
# and loops of eight steps that are a run each, of which half counts
awk -F '\t' '$2 == "quarters_at_once" { print $9, $11, $13, $14, $15, $16, $17, $18 }' "$WORK/rows" >"$WORK/steps"
[ "$(cat "$WORK/steps")" = "- - - - 12.5 - - -" ] || wrong "the runs of quarters_at_once are $(cat "$WORK/steps"), expected 12.5"
# without fragments no loop has a width
sed 's/LDSM\.[0-9A-Z.]*/LDS.128/' tests/gpu/sass/listing.txt | awk -f tools/gate/sass.awk >"$WORK/rows"
awk -F '\t' '$9 != "-" || $11 != "-" || $13 != "-" || $14 != "-" || $15 != "-" || $16 != "-" || $17 != "-" || $18 != "-" { print $2 }' "$WORK/rows" >"$WORK/steps"
[ ! -s "$WORK/steps" ] || wrong "loops without fragments have a step: $(cat "$WORK/steps")"

# a disassembler that gives the listing, so that each figure can be made worse
mkdir "$WORK/bin"
touch "$WORK/a.fatbin"
cat >"$WORK/bin/cuobjdump" <<'SCRIPT'
#!/bin/bash
[ $# = 4 ] || exit 9
case $1 in
-sass) sed "s/^arch = .*/arch = $3/" "$LISTING" ;;
-elf) echo "64-bit ELF: type=ET_EXEC, ABI=8, sm=90, toolkit=13.0, flags=0x0" ;;
-res-usage)
    awk '/Function : / { printf " Function %s:\n  REG:40 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:792\n", $3 }' "$LISTING" ;;
esac
SCRIPT
cp "$WORK/bin/cuobjdump" "$WORK/bin/nvdisasm"
chmod +x "$WORK/bin/"*
export PATH=$WORK/bin:$PATH LISTING=$ROOT/tests/gpu/sass/listing.txt TSR_SASS_TABLE=$WORK/table.tsv
# run WANTED ARG...: the exit status, and what is said in $WORK/said
run() {
    local rc=0 wanted=$1
    shift
    tools/sass "$@" "$WORK/a.fatbin" >"$WORK/said" 2>&1 || rc=$?
    [ $rc = "$wanted" ] || { cat "$WORK/said"; wrong "exit status $rc of tools/sass $*, expected $wanted"; }
}
run 1 --check
grep -q 'table.tsv: is not there' "$WORK/said" || wrong "a table that is not there is not named"
run 0 --write
run 0 --check
# worse COLUMN ROW VALUE: the table has VALUE in that column for the kernel `ROW`
worse() {
    awk -F '\t' -v OFS='\t' -v c="$1" -v k="$2" -v v="$3" '
        $1 == "arch" { for (i = 1; i <= NF; i++) at[$i] = i } $2 == k { $at[c] = v } { print }' \
        "$WORK/table.tsv" >"$WORK/changed.tsv"
    TSR_SASS_TABLE=$WORK/changed.tsv run 1 --check
    grep -q "$2: $1 is" "$WORK/said" || { cat "$WORK/said"; wrong "$2: a worse $1 is not named"; }
}
worse local spills 1
worse divisions divides_and_reads_bytes 1
worse bytes divides_and_reads_bytes 1
worse step right 7
worse whole right 10
worse registers right 39
worse step8 two_copies 7
worse whole8 two_copies 8
worse step three_widths 6
worse step8 three_widths 6
worse run1 blocks_at_once 9
worse run2 blocks_at_once 11
worse run3 blocks_at_once 12
worse run4 blocks_at_once 13
worse run4 quarters_at_once 12
worse zero1 zeros_at_once 14
worse zero2 zeros_at_once 17
# a hot loop that had a matrix product, and reads of 16 bytes
sed '/IMMA.*R38.COL, R20 ; \/\* 0x0000002618147237/s/IMMA.16832.S8.S8/IDP.4A.S8.S8/' "$LISTING" >"$WORK/listing"
LISTING=$WORK/listing run 1 --check
grep -q 'right: products is 0' "$WORK/said" || wrong "products on other units are not named"
sed 's/LDGSTS.E.BYPASS.128/LDGSTS.E.64/' "$ROOT/tests/gpu/sass/listing.txt" >"$WORK/listing"
LISTING=$WORK/listing run 1 --check
grep -q 'right: wide is 0' "$WORK/said" || wrong "narrow loads are not named"
# a kernel that nobody knows, one that is gone, and a table of another nvcc
grep -v 'spills' "$WORK/table.tsv" >"$WORK/changed.tsv"
TSR_SASS_TABLE=$WORK/changed.tsv run 1 --check
grep -q 'spills: is not in' "$WORK/said" || wrong "a kernel that is not in the table is not named"
{ cat "$WORK/table.tsv"; grep 'spills' "$WORK/table.tsv" | sed 's/spills/gone/'; } >"$WORK/changed.tsv"
TSR_SASS_TABLE=$WORK/changed.tsv run 1 --check
grep -q 'gone: is in .* and not in the images' "$WORK/said" || wrong "a kernel that is gone is not named"
sed '1s/13.0/11.8/' "$WORK/table.tsv" >"$WORK/changed.tsv"
TSR_SASS_TABLE=$WORK/changed.tsv run 77 --check
rc=0
tools/sass "$WORK/nothing" >"$WORK/said" 2>&1 || rc=$?
[ $rc = 2 ] || wrong "an image that is not there gives exit status $rc"
echo "tools/sass finds each planted fault"
