# shellcheck shell=bash
# tests/e2e/figures-lib.sh - for the scripts that compute printed figures again (docs/decisions/figures.md).

# near FILTER RELATIVE ABSOLUTE WANT GOT: every number in the file WANT is at the same place in what FILTER makes
# of the file GOT, to within RELATIVE of it or ABSOLUTE.  What differs goes to stderr.
near() {
    [ -s "$4" ] && [ -s "$5" ] && jq -e -n --argjson r "$2" --argjson a "$3" --slurpfile want "$4" --slurpfile got "$5" '
        def size: if . < 0 then -. else . end;
        ($got[0] | '"$1"') as $g | $want[0] as $w | [$w | paths(type == "number")] |
        if length == 0 then error("nothing to compare") else . end |
        map(. as $p | ($w | getpath($p)) as $x | ($g | getpath($p)) as $y |
            select(($y | type) != "number" or (($x - $y | size) > $a and ($x - $y | size) > ($x | size) * $r)) |
            "\($p | map(tostring) | join(".")): \($y), computed again \($x)") |
        if length == 0 then true else error(join("; ")) end' >/dev/null 2>"$WORK/err"
}

# ids MODEL TEXT: its token ids with what the tokenizer adds, one a line.
token_ids() {
    jq -n --arg text "$2" '{text: $text, special: true}' -c | "$TESSERA" tokenize "$1" --jsonl | jq '.ids[]'
}

# tensors FILE.safetensors...: {file, name, dtype, shape, from, bytes} of every tensor, one a line, as the headers say;
# `from` counts from the file's first byte.
tensors() {
    local file n
    for file in "$@"; do
        n=$(od -A n -t u8 -N 8 "$file" | tr -d ' ')
        head -c "$((n + 8))" "$file" | tail -c +9 | jq -c --arg file "$file" --argjson at "$((n + 8))" 'to_entries[] |
            select(.key != "__metadata__") | {file: $file, name: .key, dtype: .value.dtype, shape: .value.shape,
                from: ($at + .value.data_offsets[0]), bytes: (.value.data_offsets[1] - .value.data_offsets[0])}' || return 1
    done
}

# of NAME MODEL OPTION...: the logits of $WINDOWS windows of $WINDOW ids of the file `ids` into NAME.0, NAME.1, ...
of() {
    local name=$1 model=$2 i
    shift 2
    for ((i = 0; i < WINDOWS; i++)); do
        "$TESSERA" logits "$model" "$@" -o "$name.$i" \
            --tokens "$(tail -n +$((i * WINDOW + 1)) ids | head -n "$WINDOW" | paste -sd,)" || return 1
    done
}
