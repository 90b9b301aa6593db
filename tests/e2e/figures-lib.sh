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

# part LINEAR: its codes, stride, scales and outputs in a file of residuals, whose tensors are in the file `kept`, those of the
# model in `demo`; linears with one input lie in one row, each a multiple of 64 bytes.
part() {
    jq -s -r --arg l "$1" --slurpfile demo demo '($l | capture("(?<layer>.*layers[.][0-9]+)[.](?<name>.*)")) as $n |
        {"self_attn.q_proj": ["attn_in", []], "self_attn.k_proj": ["attn_in", ["self_attn.q_proj"]],
         "self_attn.v_proj": ["attn_in", ["self_attn.q_proj", "self_attn.k_proj"]], "mlp.gate_proj": ["ffn_in", []],
         "mlp.up_proj": ["ffn_in", ["mlp.gate_proj"]]}[$n.name] as $joint |
        def outputs($x): $demo[] | select(.name == "\($n.layer).\($x).weight").shape[0];
        (.[] | select(.name == "\($n.layer).\($joint[0] // $n.name).residual")) as $codes |
        (.[] | select(.name == "\($l).scales")) as $scales |
        "\($codes.from + ([($joint[1] // [])[] | outputs(.) / 2 / 64 | ceil * 64] | add // 0)) \($codes.shape[1]) \($scales.from) \(outputs($n.name))"' kept
}

# compensated SEED STEP...: a job quantizes the demo model into q4 and compensates it, then does STEPs; its results lie in
# job.json, tensors of the model in `demo`, those of the residuals in `kept`, and what `forward` reads in `model`.
compensated() {
    local seed=$1 name
    shift
    head -c 3000 "$ROOT/configs/demo/calibration.txt" >cal.txt
    {
        printf '%s\n' 'version: 1' 'model: "@demo"' "seed: $seed" 'pipeline:' \
            '  - quantize: {use: rtn, bits: 4, group: 32, to: q4}' '  - compensate: {text: cal.txt, samples: 2, seqlen: 64}'
        [ $# = 0 ] || printf '  - %s\n' "$@"
    } >job.yaml
    run run job.yaml --out job --json
    # shellcheck disable=SC2154 # run sets it
    ok "the job succeeds, got $rc" test "$rc" = 0
    cp out job.json
    mv job/q4 .
    # what q4 holds, as numbers (e2e-figures-quant)
    run roundtrip rtn:bits=4,group=32 "$ROOT/configs/demo/model.safetensors" -o rtn.st
    tensors "$ROOT/configs/demo/model.safetensors" >demo
    tensors rtn.st >rtn
    tensors q4/compensation.safetensors >kept
    {
        jq -r '"shape \(.hidden_size) \(.intermediate_size) \(.num_hidden_layers) \(.num_attention_heads) \(.num_key_value_heads) \(.rms_norm_eps) \(.rope_theta) \(.vocab_size)"' \
            "$ROOT/configs/demo/config.json"
        jq -r 'select((.file == "rtn.st") == (.name | test("_proj[.]weight$"))) | select(.dtype | test("^B?F(16|32)$")) |
            "tensor \(.name) \(.file) \(.from) \(.dtype) \(.shape | reduce .[] as $n (1; . * $n))"' demo rtn kept
        jq -r 'select(.name | test("_proj[.]weight$")) | .name | rtrimstr(".weight")' rtn | while read -r name; do
            echo "part $name q4/compensation.safetensors $(part "$name")"
        done
    } >model
}

# For jq: what a table of times $t (tessera.dec-profile/1, one row of blocks) says of $k, the channels of its four modules.
# shellcheck disable=SC2034 # used by the scripts
TIMES='def close($a; $b): ($a - $b | fabs) <= 1e-6 * ($b | fabs);
def at($t; $k): reduce range(4) as $i (0; . + if $k[$i] == 0 then $t.modules[$i].base_ms else $t.modules[$i].ms[0][$k[$i]] end);
def limit($t; $percent): at($t; [0, 0, 0, 0]) * (1 + $percent / 100) * (1 + 1e-9);
# they fit, and one more of any does not
def most($t; $k; $percent): limit($t; $percent) as $limit | ($k | add) > 0 and at($t; $k) <= $limit and
    all(range(4); . as $i | $k[$i] == 1024 or $k[$i] == 0 or at($t; $k | .[$i] += 1) > $limit);'

# device_lines FILE.yaml: a device profile as lines of words (figures_device.h).
device_lines() {
    awk '
    function unit(text,   n, u) { # "40 GB/s", "300 us" to ms
        n = text + 0; u = text; sub(/^[0-9.e+-]+ */, "", u)
        if (u ~ /^(us|ms|s|ns)$/) return n * (u == "s" ? 1e3 : u == "us" ? 1e-3 : u == "ns" ? 1e-6 : 1)
        return n * (u ~ /^K/ ? 1e3 : u ~ /^M/ ? 1e6 : u ~ /^G/ ? 1e9 : u ~ /^T/ ? 1e12 : u ~ /^P/ ? 1e15 : 1)
    }
    function field(text, key, missing) {
        if (!match(text, "(^|[{, ;])" key ": *[^],{};]+")) return missing
        text = substr(text, RSTART, RLENGTH); sub("^.*" key ": *", "", text); sub(/ +$/, "", text)
        return text
    }
    function part(text, key, close_) { # the text behind the key up to what closes it
        if (!match(text, "(^|[{, ;])" key ": *[[{]")) return ""
        text = substr(text, RSTART + RLENGTH - 1)
        return substr(text, 1, index(text, close_))
    }
    function rates(text, phase,   p) { p = part(text, phase, "}"); return field(p, "compute", 1) " " field(p, "read", 1) }
    function points_of(text, phase,   list, i, n, v, each) {
        list = part(text, phase, "]]"); gsub(/[[ ;]/, "", list); n = split(list, each, "]")
        for (i = 1; i <= n; i++) {
            sub(/^,/, "", each[i]); if (each[i] == "") continue
            split(each[i], v, ",")
            printf "point %s %s %s %s\n", field(text, "kernel"), phase, shape,
                phase == "prefill" ? v[1] " " v[2] " " v[3] " " v[4] : v[1] " 1 " v[2] " " v[3]
        }
    }
    function flush_() {
        if (item ~ /kernel:/ && section == "kernels")
            printf "kernel %s %s %.17g %s %s %s %s\n", field(item, "kernel"), field(item, "above", 0), unit(field(item, "ops")),
                rates(item, "prefill"), rates(item, "decode"), field(item, "bytes_per_weight", 0), field(item, "convert", 0)
        if (section == "layers" && item ~ /kernel:/) {
            shape = field(item, "hidden") " " field(item, "ffn") " " field(item, "heads") " " field(item, "kv_heads") " " \
                field(item, "head_dim") " " (field(item, "gated", "false") == "true" ? 1 : 0)
            points_of(item, "prefill"); points_of(item, "decode")
        }
        if (section == "bandwidth") printf "peak %.17g\n", unit(field(item, "peak"))
        if (section == "overhead") printf "overhead %.17g %.17g\n", unit(field(item, "prefill", "0 ms")), unit(field(item, "decode", "0 ms"))
        if (section == "knots") for (p = 1; p <= 2; p++) {
            phase = p == 1 ? "prefill" : "decode"; list = part(item, phase, "]"); gsub(/[][ ;]/, "", list)
            n = split(list, v, ","); for (i = 1; i <= n; i++) print "knot", phase, v[i]
        }
        item = ""
    }
    /^ *#/ { next }
    { gsub(/source: *"([^"\\]|\\.)*"/, ""); gsub(/source: made up/, ""); sub(/ #.*/, "") }
    /^[a-z]/ { flush_(); section = $1; sub(/:.*/, "", section) }
    /^  - / { flush_() }
    { item = item ";" $0 }
    END { flush_() }' "$1"
}
