#!/bin/bash
# tests/e2e/export-unused.sh TESSERA - tensors that a model does not run (an encoder for images, layers for multi-token
# prediction) are in what is written from it, byte for byte.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
GOLDEN=$ROOT/tests/golden/models

# part FILE AT BYTES
part() { dd if="$1" iflag=skip_bytes,count_bytes skip="$2" count="$3" status=none; }
# sums FOLDER REGEX: name, dtype, shape and hash of each tensor whose name matches, sorted
sums() {
    local f n
    for f in "$1"/model*.safetensors "$1"/kept.safetensors; do
        [ -f "$f" ] || continue
        n=$(od -An -t u8 -N 8 "$f" | tr -d ' ')
        part "$f" 8 "$n" | jq -r --arg p "$2" 'to_entries[] | select(.key | test($p)) |
            "\(.key) \(.value.dtype) \(.value.shape | tojson) \(.value.data_offsets[0]) \(.value.data_offsets[1])"' |
            while read -r name dtype shape begin end; do
                echo "$name $dtype $shape $(part "$f" $((8 + n + begin)) $((end - begin)) | sha256sum)"
            done
    done | sort
}
# kept NAME MODEL COPY REGEX COUNT
kept() {
    sums "$2" "$4" >"$WORK/want"
    sums "$3" "$4" >"$WORK/got"
    ok "$1: $5 tensors in the original" test "$(wc -l <"$WORK/want")" = "$5"
    ok "$1: the same bytes" cmp -s "$WORK/want" "$WORK/got"
}
# written MODEL REGEX COUNT
written() {
    local m=$1
    run convert "$GOLDEN/$m" --to hf -o "$m-hf"
    ok "$m: written, got $rc" test "$rc" = 0
    kept "$m" "$GOLDEN/$m" "$WORK/$m-hf" "$2" "$3"
    run convert "$m-hf" --to hf -o "$m-hf-2" --shard-size 1
    kept "$m: written again" "$GOLDEN/$m" "$WORK/$m-hf-2" "$2" "$3"
    run quantize "$GOLDEN/$m" -q -o "$m-packed" --set quantize.use=rtn
    ok "$m: quantized, got $rc" test "$rc" = 0
    kept "$m: packed" "$GOLDEN/$m" "$WORK/$m-packed" "$2" "$3"
    run convert "$m-packed" --to compressed-tensors -o "$m-ct"
    ok "$m: packed, written, got $rc" test "$rc" = 0
    kept "$m: packed, written" "$GOLDEN/$m" "$WORK/$m-ct" "$2" "$3"
    run logits "$m-packed" --tokens 1,5,9,30 -o a.logits
    run logits "$m-ct" --tokens 1,5,9,30 -o b.logits
    ok "$m: read again, got $rc" cmp -s "$WORK/a.logits" "$WORK/b.logits"
}
written mistral3 '^(vision_tower|multi_modal_projector)[.]' 15
written qwen3_5 '^model[.]visual[.]' 21
written deepseek_v3 '^model[.]layers[.]3[.]' 13

# a reader of the format must not look for packed weights in them
ok "compressed-tensors: they are none of its linears" json \
    '.quantization_config.ignore | index("re:.*vision_tower.*") != null' "$WORK/mistral3-ct/config.json"

# Weights of another program: how it stores such a tensor is not known.
run convert mistral3-ct --to hf -o imported
ok "imported: written, got $rc" test "$rc" = 0
ok "imported: a log line" grep -q "tensors that it does not run are left out" "$WORK/err"
ok "imported: they are not there" test -z "$(sums "$WORK/imported" '^vision_tower')"

# An encoder for images does not fit a rotated hidden state.
run rotate "$GOLDEN/mistral3" -o turned
ok "rotated: written, got $rc" test "$rc" = 0
ok "rotated: a log line" grep -q "do not fit its rotated hidden state" "$WORK/err"
ok "rotated: they are not there" test -z "$(sums "$WORK/turned" '^vision_tower')"
finish
