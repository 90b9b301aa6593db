# shellcheck shell=bash
# tools/families/checks.sh - the checks of tools/check-families, one function each.  They run in a shell of their own for each
# model, in the folder $D: m is the recorded model, w a wider one of random weights, both with a tokenizer.
# ORIGINAL is m, or o where m is packed as published and o has its weights in 16 bits.
# shellcheck disable=SC2154 # MODEL, IDS, LAYERS, EXPERTS, ORIGINAL, QUANTIZERS, CUDA: the tool's

# Logits of every recorded case, whole and token by token, and the continuation.
check_logits() {
    local name ids only greedy
    while IFS=$'\t' read -r name ids only greedy; do
        t logits m --tokens "$ids" -o whole.st
        did logits "$name" || continue
        differs "$MODEL/expected.safetensors:$name.logits" "$D/whole.st"
        under "$worst" 5e-5 || { record logits "$name" FAILED "$worst of the range, 5e-5 is allowed"; continue; }
        if [ "$only" != true ]; then
            t logits m --tokens "$ids" -o step.st --step
            did logits "$name" || continue
            cmp -s "$D/whole.st" "$D/step.st" || { record logits "$name" FAILED "other bytes token by token"; continue; }
        fi
        t logits m --tokens "$ids" -o layers.st --by-layers
        did logits "$name by layers" || continue
        cmp -s "$D/whole.st" "$D/layers.st" || { record logits "$name" FAILED "other bytes by layers"; continue; }
        t generate m --tokens "$ids" --greedy --ignore-eos --act f32 --max-tokens "$(jq length <<<"$greedy")"
        did logits "$name" || continue
        holds logits "$name" "greedy: $(jq -c .tokens "$D/out") is not the recorded $greedy" \
            test "$(jq -c .tokens "$D/out")" = "$greedy"
    done < <(jq -r '.cases[] | [.name, (.prompt | map(tostring) | join(",")), (.whole_prompt_only // false | tostring),
        (.greedy | tojson)] | @tsv' "$MODEL/cases.json")
}

# Statistics of every layer, finite.
check_calibrate() {
    printf 'version: 1\nmodel: %s\npipeline:\n  - calibrate: {text: text.txt, samples: 4, seqlen: 48}\n  - quantize: {use: gptq, bits: 4, group: 32}\n  - export: {format: imatrix, to: i.gguf}\n' "$ORIGINAL" >"$D/calibrate.yaml"
    t run calibrate.yaml --out calibrated
    did calibrate '' || return 0
    holds calibrate '' "$(find "$D/calibrated/calibration" -name 'layer-*' | wc -l) layers of $LAYERS" \
        test "$(find "$D/calibrated/calibration" -name 'layer-*.safetensors' | wc -l)" = "$LAYERS"
    t quantize "$ORIGINAL" --use rtn --weighted --bits 4 --group 32 --imatrix calibrated/i.gguf -o by-imatrix
    did calibrate imatrix && record calibrate imatrix ok
    return 0
}

# Every quantizer packs the model; prefill and decode agree, and the logits are near the original's.
check_quantize() {
    local part bound use options error
    if [ "$ORIGINAL" != m ]; then
        t quantize m --use rtn -o q-again
        did quantize again && record quantize again FAILED "packed weights were packed again"
    fi
    logits_of quantize original "$ORIGINAL" original.st || return 0
    while read -r part bound use options; do
        rm -rf "$D/q-$part"
        # shellcheck disable=SC2086
        t quantize "$ORIGINAL" --use "$use" -o "q-$part" $options
        if ! did quantize "$part"; then
            # statistics that experts do not have: a rule for them, as the page of the plugin says
            [[ $EXPERTS != 0 && $options == *--asymmetric* ]] || continue
            rm -rf "$D/q-$part"
            # shellcheck disable=SC2086
            t quantize "$ORIGINAL" --use "$use" -o "q-$part" $options --rules '[{tensors: "*.experts.*", asymmetric: false}]'
            did quantize "$part with a rule" || continue
        fi
        logits_of quantize "$part" "q-$part" q.st || continue
        differs "$D/original.st" "$D/q.st"
        error=$mean
        under "$error" "$bound" || record quantize "$part" FAILED "the logits differ by $error of the range in the mean, $bound is allowed"
        one_by_one "packed" "$part f32" "q-$part" --act f32
        one_by_one "packed" "$part a8" "q-$part" --act a8
        t eval "q-$part" --text text.txt --window 48 --max-windows 2
        did packed "$part eval" || continue
        holds packed "$part eval" "perplexity $(jq .perplexity "$D/out")" jq -e '.perplexity > 1 and .perplexity < 1e30' "$D/out" >/dev/null
        record quantize "$part" ok "$error"
        rm -rf "$D/q-$part"
    done < <(drawn 4 <<<"$QUANTIZERS")
}

# Types of the cache, for all layers or by layers: the prompt whole, token by token, in chunks of 5 and on one thread gives the same
# bytes, near those of f32.  A bound is of the root mean square over the range of the logits: keys and values keep 11 bits in
# f16, about 7 in int8 and 4 in fp8 and int4, and the bounds are 4 times 2^-11 and 2^-7, and less than twice 2^-4.
check_kv() {
    local name type some bound args
    logits_of KV f32 m kv-f32.st || return 0
    while read -r name type some bound; do
        args=(--kv "$type")
        [ "$some" = - ] || args+=(--kv-layers "$some")
        one_by_one KV "$name" m "${args[@]}"
        logits_of KV "$name" m kv.st "${args[@]}" || continue
        logits_of KV "$name" m kv-chunks.st "${args[@]}" --chunk 5 --threads 1 || continue
        holds KV "$name in chunks" "logits in chunks of 5 differ from those of the whole prompt" cmp -s "$D/kv.st" "$D/kv-chunks.st"
        differs "$D/kv-f32.st" "$D/kv.st"
        holds KV "$name near f32" "$mean of the range, $bound is allowed" under "$mean" "$bound"
        t eval m --text text.txt --window 48 --max-windows 2 "${args[@]}"
        did KV "$name eval" || continue
        holds KV "$name eval" "perplexity $(jq .perplexity "$D/out")" jq -e '.perplexity > 1 and .perplexity < 1e30' "$D/out" >/dev/null
    done <<TYPES
f32 f32 - 0
f16 f16 - 2e-3
int8 int8 - 3e-2
fp8 fp8 - 1e-1
int4 int4 - 1e-1
layers int4 0=fp8,$((LAYERS - 1))=f16 1e-1
TYPES
}

# requests FILE: the recorded prompts, a text and a prompt that ends at once.
requests() {
    jq -c '.cases | to_entries[] | {custom_id: "r\(.key)", method: "POST", url: "/v1/completions",
        body: {prompt: .value.prompt, max_tokens: (8 + .key), logprobs: 5, ignore_eos: true}}' "$MODEL/cases.json" >"$1"
    printf '{"custom_id": "text", "method": "POST", "url": "/v1/completions", "body": {"prompt": "It was so.", "max_tokens": 9, "logprobs": 5}}\n' >>"$1"
}
choices() { jq -cS '[.custom_id, .response.body.choices, .error]' "$1"; }

# Several requests at once, and each alone.
check_batch() {
    local n i
    requests "$D/requests.jsonl"
    rm -f "$D"/many.jsonl* "$D"/alone*
    t batch m -i requests.jsonl -o many.jsonl --temperature 0 --slots 3 --fail-on-errors
    did batch many || return 0
    n=$(wc -l <"$D/requests.jsonl")
    for ((i = 1; i <= n; i++)); do
        sed -n "${i}p" "$D/requests.jsonl" >"$D/alone-$i.in"
        t batch m -i "alone-$i.in" -o "alone-$i.jsonl" --temperature 0 --fail-on-errors
        did batch alone || return 0
        cat "$D/alone-$i.jsonl" >>"$D/alone.jsonl"
    done
    holds batch bytes "answers of a batch differ from those alone" cmp -s <(choices "$D/many.jsonl") <(choices "$D/alone.jsonl")
    # and the recorded continuation
    t generate m --tokens "$(jq -r '.cases[1].prompt | map(tostring) | join(",")' "$MODEL/cases.json")" --greedy --ignore-eos --max-tokens 9
    did batch generate || return 0
    holds batch generate "the second answer is not what generate writes" test "$(jq -r 'select(.custom_id == "r1") | .response.body.choices[0].text' "$D/many.jsonl")" = "$(jq -r .text "$D/out")"
}

# plan FILE STAGES TP SCHEME EXPERTS
plan() {
    local i first last
    printf 'format: tessera.plan/1\nlayers: %d\nworkload: {prompt: 80, generate: 16, batch: 5, chunk: 16, kv: f32}\nmicro_batches: {prefill: 2, decode: 2}\nmaster: {head: last}\nstages:\n' "$LAYERS"
    for ((i = 0; i < $2; i++)); do
        first=$((LAYERS * i / $2)) last=$((LAYERS * (i + 1) / $2 - 1))
        printf '  - layers: %d-%d\n    node: here\n    device: this-machine\n    tp: %d\n    schemes: [{layers: %d-%d, %s}]\n' \
            $first $last "$3" $first $last "$4"
        [ -z "$5" ] || printf '    experts: %s\n' "$5"
    done
}
# on_ranks CHECK PART MODEL ONE STAGES TP SCHEME EXPERTS KIND [KV]: the answers of ranks are those in ONE.
on_ranks() {
    local kv=${10:-f32}
    rm -rf "$D"/ranks.jsonl* "$D/ranks"
    plan - "$5" "$6" "$7" "$8" | sed "s/kv: f32/kv: $kv/" >"$D/plan.yaml"
    printf 'version: 1\nmodel: %s\npipeline:\n  - run: {plan: plan.yaml, input: requests.jsonl, output: ranks.jsonl, temperature: 0, ranks: %s, threads: 1, kv: %s}\n' \
        "$3" "$9" "$kv" >"$D/ranks.yaml"
    t run ranks.yaml --out ranks
    did "$1" "$2" || return 0
    holds "$1" "$2" "answers differ from those of one engine" cmp -s <(choices "$D/ranks/ranks.jsonl") <(choices "$D/$4")
}
# one_engine CHECK MODEL OUT OPTION...
one_engine() {
    rm -rf "${D:?}/$3" "${D:?}/$3.job"
    t batch "$2" -i requests.jsonl -o "$3" --temperature 0 "${@:4}"
    did "$1" "one engine"
}
RTN='use: rtn, bits: 4, group: 32, symmetric: true'

# Stages, of the recorded model; ranks that share layers, of the wide one; both, packed.
check_ranks() {
    local whole=
    [ "$EXPERTS" = 0 ] || whole=whole
    requests "$D/requests.jsonl"
    one_engine PP m m.jsonl || return 0
    on_ranks PP threads m m.jsonl 2 1 'keep: true' '' threads
    on_ranks PP processes m m.jsonl 2 1 'keep: true' '' processes
    one_engine TP w w.jsonl || return 0
    on_ranks TP 2 w w.jsonl 1 2 'keep: true' "$whole" threads
    on_ranks TP '2 in 2 stages' w w.jsonl 2 2 'keep: true' "$whole" processes
    t quantize w --use rtn --bits 4 --group 32 --symmetric -o w-rtn
    did TP quantize || return 0
    one_engine TP w-rtn w-rtn.jsonl || return 0
    one_engine KV w w-int8.jsonl --kv int8 || return 0
    on_ranks KV 'int8 on 2 ranks' w w-int8.jsonl 1 2 'keep: true' "$whole" threads int8
    on_ranks KV 'int8 in 2 stages' w w-int8.jsonl 2 1 'keep: true' '' threads int8
    on_ranks TP '2, packed' w-rtn w-rtn.jsonl 1 2 'keep: true' "$whole" threads
    on_ranks TP '2, packed by the plan' w w-rtn.jsonl 1 2 "$RTN" "$whole" threads
    # rows of every expert: rounded otherwise, near all the same
    [ "$EXPERTS" = 0 ] || {
        t eval w --text text.txt --window 48 --max-windows 2
        did TP simulated || return 0
        local want
        want=$(jq .perplexity "$D/out")
        t eval w --text text.txt --window 48 --max-windows 2 --simulate-tp 2
        did TP simulated || return 0
        holds TP simulated "perplexity $(jq .perplexity "$D/out"), $want of one engine" \
            jq -e --argjson w "$want" '(.perplexity / $w | log | fabs) < 1e-3' "$D/out" >/dev/null
        return 0
    }
}

# Two arms end with a verdict.
check_compare() {
    rm -rf "$D/compared"
    t compare "$ORIGINAL" --arms '{a: {quantize: {use: rtn, bits: 8, group: 32}}, b: {quantize: {use: rtn, bits: 3, group: 32}}}' \
        --measure '{perplexity: {text: text.txt, window: 48, max_windows: 6}}' -o compared
    did compare '' || return 0
    holds compare '' "no verdict for each arm" jq -e '[.results.compare.arms[] | select(.name != "original") |
        .verdict.text | type] == ["string", "string"]' "$D/out" >/dev/null
}

# What is exported: a name, the plugin, its options.
SOURCES="rtn4 rtn --bits 4 --group 32 --symmetric
rtn4-asym rtn --bits 4 --group 32
fp8 mx --element fp8_e4m3
mxfp4 mxfp4
nvfp4 nvfp4"

# read_back PART SOURCE FORMAT OPTION...: writes SOURCE as FORMAT to export.  IDS of the caller are cut to the positions that it
# has: GGUF has no window for some families, and the width of the window as its context instead.
read_back() {
    rm -rf "$D/export"
    t convert "$2" -o export --to "${@:3}"
    did export "$1" || return 1
    t inspect export
    did export "$1" || return 1
    IDS=$(cut -d, -f"1-$(jq .model.max_positions "$D/out")" <<<"$IDS")
}
# back PART SOURCE FORMAT OPTION...: written as FORMAT and read again: the bytes of SOURCE.
back() {
    local IDS=$IDS NEAR=''
    # the page on exports: the base of rope and a factor of long rope are F32 there
    # shellcheck disable=SC2034 # read by same_logits
    [ "$3" != gguf ] || ! grep -qE 'longrope|"rope_theta": [0-9]+\.[0-9]*[1-9]' "$MODEL/config.json" || NEAR=1e-6
    read_back "$@" && same_logits export "$1" "$2" export
    return 0
}
# back_near PART SOURCE BOUND FORMAT OPTION...: the same, where 16 bits round.
back_near() {
    local IDS=$IDS
    read_back "$1" "$2" "${@:4}" || return 0
    logits_of export "$1" "$2" same-a.st || return 0
    logits_of export "$1" export same-b.st || return 0
    differs "$D/same-a.st" "$D/same-b.st"
    holds export "$1" "the logits differ by $mean of the range in the mean, $3 is allowed" under "$mean" "$3"
}
check_export() {
    local part use options to formats
    # 16 bits, so that nothing is rounded on the way; and the wider one, for formats of blocks
    rm -rf "$D/m16" "$D/w16"
    for part in m w; do
        t convert $part -o ${part}16 --to hf
        did export "hf of $part" || return 0
        same_logits export "hf of $part again" ${part}16 ${part}16
        back "hf of ${part}16" ${part}16 hf
        back "gguf of $part" ${part}16 gguf
        [ ! -e "$D/export" ] || {
            rm -f "$D/p.tsr"
            t convert export -o p.tsr --to prepacked
            did export "prepacked of gguf of $part" && same_logits export "prepacked of gguf of $part" export p.tsr
        }
    done
    while read -r part use options; do
        rm -rf "$D/x-$part"
        # shellcheck disable=SC2086
        t quantize w16 -o "x-$part" --use "$use" $options
        did export "$part" || continue
        # 16 bits may turn a router's choice between two experts
        back_near "hf of $part" "x-$part" "$([ "$EXPERTS" = 0 ] && echo 1e-2 || echo 3e-2)" hf
        case $part in
        rtn4) formats=(gptq awq compressed-tensors gguf) ;;
        rtn4-asym) formats=(gptq awq compressed-tensors) ;;
        fp8) formats=(fp8 compressed-tensors) ;;
        mxfp4) formats=(mxfp4 compressed-tensors gguf) ;;
        *) formats=(compressed-tensors) ;;
        esac
        for to in "${formats[@]}"; do back "$to of $part" "x-$part" "$to"; done
    done < <(drawn 2 <<<"$SOURCES")
    for part in q8_0 q4_k_m; do
        back_near "gguf $part" w16 0.2 gguf --type $part
    done
}

# Prepacked: the bytes of the source.
check_prepacked() {
    local source
    for source in m w-rtn; do
        if [ ! -e "$D/$source" ]; then
            t quantize w --use rtn --bits 4 --group 32 --symmetric -o $source
            did prepacked quantize || continue
        fi
        rm -f "$D/p.tsr"
        t convert $source -o p.tsr --to prepacked
        did prepacked $source || continue
        same_logits prepacked $source $source p.tsr
        same_logits prepacked "$source a8" $source p.tsr --act a8 --step
        one_by_one prepacked "$source steps" p.tsr
    done
}

# The backend cuda over a driver of the tests; left out where the build has none.
check_cuda() {
    local source options
    [ -n "$CUDA" ] || return 0
    for source in m m-rtn; do
        if [ $source = m-rtn ]; then
            t quantize "$ORIGINAL" --use rtn --bits 4 --group 32 --symmetric -o m-rtn
            did CUDA quantize || continue
        fi
        for options in '--act f32' '--act a8 --step' '--kv int8'; do
            # shellcheck disable=SC2086
            logits_of CUDA "$source $options" $source cpu.st $options || continue
            rm -f "$D/cuda.st"
            # shellcheck disable=SC2086
            LD_LIBRARY_PATH=$CUDA t logits $source --tokens "$IDS" -o cuda.st --numerics exact --backend cuda $options
            did CUDA "$source $options" || continue
            holds CUDA "$source $options" "other bytes than the CPU's" cmp -s "$D/cpu.st" "$D/cuda.st"
        done
    done
}
