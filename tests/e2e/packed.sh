#!/bin/bash
# tests/e2e/packed.sh TESSERA - tessera quantize: a packed model, its resumption and its memory.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
EVAL=(--text "$DEMO/held-out.txt" --protocol llamacpp-512 --max-windows 2)

# same A B: the packed models are the same bytes.
same() {
    local f
    for f in "$WORK/$1"/*.safetensors "$WORK/$1"/{packed,fingerprint,config,tokenizer}.json; do
        cmp "$f" "$WORK/$2/${f##*/}" || return 1
    done
    [ "$(find "$WORK/$1" -name '*.safetensors' | wc -l)" = "$(find "$WORK/$2" -name '*.safetensors' | wc -l)" ]
}

# ---- a model that loads --------------------------------------------------------------------
run quantize @demo --use rtn --bits 4 -o q4 --json
ok "quantize succeeds" test "$rc" = 0
ok "every linear is told of" json '.results.quantize | (.linears | length) == 42 and .bits_per_weight < 4.5 and .layers_resumed == 0' "$WORK/out"
ok "nothing is left half done" test -z "$(find "$WORK/q4" -name '.*')"
cat >"$WORK/job.yaml" <<JOB
version: 1
model: "@demo"
pipeline:
  - quantize: {use: rtn, bits: 4}
  - eval: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 2, act: f32}
JOB
run run job.yaml --out job --json
ok "the job succeeds" test "$rc" = 0
want=$(jq '.results.eval.perplexity' "$WORK/out")
ok "a job stores the packed model too" same q4 job/packed
run eval q4 "${EVAL[@]}" --json --against @demo
ok "the packed model is evaluated" test "$rc" = 0
ok "to the same number as in the job" json --argjson want "$want" '.perplexity == $want and .kl.mean > 0' "$WORK/out"
run logits q4 --tokens 1,5,9 -o l.st
ok "logits of it" test "$rc" = 0
run logits q4 --tokens 1,5,9 -o l2.st --step
ok "step by step the same" cmp "$WORK/l.st" "$WORK/l2.st"
run generate q4 --tokens 1,5,9 --max-tokens 4 --greedy --ignore-eos --json
ok "generation" json '.tokens | length == 4' "$WORK/out"
run inspect q4 --json
ok "inspect shows the format" json '.model.packed == "tessera.packed/1" and (.model.tensors[1].format == "tessera.int/1 with 4 bits")' "$WORK/out"
fails "packing twice" 2 'q4' quantize q4 --use rtn -o q44
run quantize @demo --use rtn --bits 4 -o q4
ok "the same command again says that all is done" is_done q4

# rules: mixed bits, a kept linear, a packed head
cat >"$WORK/mixed.yaml" <<JOB
version: 1
model: "@demo"
pipeline:
  - quantize:
      use: rtn
      bits: 3
      to: mixed
      rules: [{layers: 0, bits: 8}, {tensors: "*.o_proj", keep: true}, {tensors: lm_head, bits: 4}]
  - eval: {text: $DEMO/held-out.txt, protocol: llamacpp-512, max_windows: 2, act: f32}
JOB
run run mixed.yaml --out mixed --json
want=$(jq '.results.eval.perplexity' "$WORK/out")
run eval mixed/mixed "${EVAL[@]}" --json
ok "mixed bits, kept linears and a packed head come back" json --argjson want "$want" '.perplexity == $want' "$WORK/out"

# ---- what is wrong is said ------------------------------------------------------------------
fails "no folder" 2 '' quantize @demo --use rtn
fails "no calibration" 2 'int8' quantize @demo --use int8 -o q8
run quantize @demo --use rtn --bits 8 -o q8
ok "what stopped before its first layer is not in the way, got $rc" test "$rc" = 0
fails "samples without a text" 2 '' quantize @demo --use rtn --samples 4 -o q9
fails "other options" 2 'q4' quantize @demo --use rtn --bits 3 -o q4
cp -r "$WORK/q4" "$WORK/bad"
printf '\001' | dd of="$WORK/bad/layer-00002.safetensors" bs=1 seek=100000 conv=notrunc 2>/dev/null
fails "a flipped bit in a layer" 2 'bad/layer-00002.safetensors' eval bad "${EVAL[@]}"
cp "$WORK/q4/layer-00001.safetensors" "$WORK/bad/layer-00002.safetensors"
fails "a layer of another place" 2 'bad/layer-00002.safetensors' eval bad "${EVAL[@]}"
truncate -s 1000 "$WORK/bad/layer-00002.safetensors"
fails "a layer cut off" 2 'bad/layer-00002.safetensors' eval bad "${EVAL[@]}"
rm "$WORK/bad/layer-00002.safetensors"
fails "a layer missing" 2 'bad/layer-00002.safetensors' eval bad "${EVAL[@]}"
cp "$WORK/q4/layer-00002.safetensors" "$WORK/bad/"
sed -i 's/"rms_norm_eps": [0-9.e-]*/"rms_norm_eps": 0.5/' "$WORK/bad/config.json"
fails "another config" 2 'bad' eval bad "${EVAL[@]}"
cp "$WORK/q4/config.json" "$WORK/bad/"
sed -i 's/packed\/1/packed\/7/' "$WORK/bad/packed.json"
fails "another version" 2 'bad/packed.json' eval bad "${EVAL[@]}"
echo '{' >"$WORK/bad/packed.json"
fails "a broken index" 2 'bad/packed.json:2' eval bad "${EVAL[@]}"
rm "$WORK/bad/packed.json"
fails "a model that is not finished" 2 'bad' eval bad "${EVAL[@]}"
rm "$WORK/bad/tokenizer.json"
fails "nor begun with its tokenizer" 2 'bad' generate bad --prompt "It was"

# ---- killed and run again --------------------------------------------------------------------
# With calibration, so that its files are cut off too: as soon as the folder is there, or some layers.
QUANTIZE=(quantize @demo --use int8 --text "$DEMO/calibration.txt" --samples 8 --seqlen 64)
run "${QUANTIZE[@]}" -o whole
ok "with calibration" test "$rc" = 0
killed=0
cut() { # FOLDER FILE: ends the run that makes FOLDER as soon as FILE is there, or after it where the shell came too late
    local pid rc=0
    (cd "$WORK" && exec "$TESSERA" "${QUANTIZE[@]}" -o "$1" >/dev/null 2>&1 </dev/null) &
    pid=$!
    while [ ! -e "$WORK/$2" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || rc=$?
    [ $rc != 137 ] || killed=$((killed + 1))
}
moments=(0 2 4)
[ -z "${TSR_TEST_ALL:-}" ] || moments=(0 1 2 3 4 5)
for i in "${moments[@]}"; do
    for ((tries = 0; tries < 20; tries++)); do
        rm -rf "$WORK/cut$i"
        before=$killed
        for hit in 0 1; do # twice, so that a resumed run is killed too
            there=cut$i/layer-0000$((i + hit - 1)).safetensors
            [ $((i + hit)) != 0 ] || there=cut$i
            cut "cut$i" "$there"
        done
        [ "$killed" = "$before" ] || break
    done
    ok "a run was killed behind layer $i" test "$killed" -gt "$before"
    run "${QUANTIZE[@]}" -o "cut$i"
    ok "after kills behind $i and $((i + 1)) layers the run goes on" test "$rc" = 0
    ok "to the same bytes (layer $i)" same whole "cut$i"
done

# Exactly between layers: what a kill leaves when two layers are done.
cp -r "$WORK/whole" "$WORK/two"
rm "$WORK"/two/{results,packed}.json "$WORK"/two/kept.safetensors "$WORK"/two/layer-0000[2-5].safetensors
head -c 4000 "$WORK/whole/layer-00002.safetensors" >"$WORK/two/.layer-00002.safetensors.0123abcd.part"
: >"$WORK/two/.layer-00002.safetensors.lock"
run "${QUANTIZE[@]}" -o two --json
ok "two layers are taken over" json '.results.quantize | .layers_resumed == 2 and (.linears | length == 42 and all(.seconds >= 0))' "$WORK/out"
ok "and the bytes are the same" same whole two
ok "what the killed run left is gone" test -z "$(find "$WORK/two" -name '.*.part' -o -name '.*.lock')"
rm "$WORK"/two/{results,packed}.json
fails "a folder of another text" 2 'two' quantize @demo --use int8 --text "$DEMO/held-out.txt" --samples 8 --seqlen 64 -o two
fails "a folder of other options" 2 'two' quantize @demo --use int8 --text "$DEMO/calibration.txt" --samples 8 --seqlen 64 --sequential -o two
run quantize @demo --use int8 --text "$DEMO/held-out.txt" --samples 8 --seqlen 64 -o two --again
ok "--again starts anew" test "$rc" = 0
ok "with other bytes" test "$(jq -r .calibration "$WORK/two/fingerprint.json")" != "$(jq -r .calibration "$WORK/whole/fingerprint.json")"

# ---- sequential ------------------------------------------------------------------------------
run "${QUANTIZE[@]}" --sequential -o seq
ok "sequential" test "$rc" = 0
cp -r "$WORK/seq" "$WORK/seq3"
rm "$WORK"/seq3/{results,packed}.json "$WORK"/seq3/layer-0000[3-5].safetensors
run "${QUANTIZE[@]}" --sequential -o seq3
ok "sequential resumes" test "$rc" = 0
ok "to the same bytes" same seq seq3

# ---- second order ----------------------------------------------------------------------------
GPTQ=(quantize @demo --use gptq --bits 3 --act-order --group -1 --text "$DEMO/calibration.txt" --samples 8 --seqlen 64)
run "${GPTQ[@]}" -o gptq --json
ok "gptq" test "$rc" = 0
ok "loss, rtn's loss, damping and seconds of every linear" json \
    '.results.quantize.linears | length == 42 and all(.loss > 0 and .loss < .rtn_loss and .damping > 0 and .seconds > 0)' "$WORK/out"
cp "$WORK/out" "$WORK/told"
cp -r "$WORK/gptq" "$WORK/gptq2"
rm "$WORK"/gptq2/{results,packed}.json "$WORK"/gptq2/layer-0000[4-5].safetensors
run "${GPTQ[@]}" -o gptq2 --json
ok "gptq resumes" test "$rc" = 0
ok "to the same bytes" same gptq gptq2
ok "and tells the same of what was done before" test \
    "$(jq -c '[.results.quantize.linears[:28][]]' "$WORK/told")" = "$(jq -c '[.results.quantize.linears[:28][]]' "$WORK/out")"

# killed at any moment: while it calibrates, in a layer and behind it, twice each; a sample by the seed
cut_gptq() { # PATTERN: a file that says how far the run is
    local hit pid
    for hit in 0 1; do
        (cd "$WORK" && exec "$TESSERA" "${GPTQ[@]}" -o gptq3 >/dev/null 2>&1 </dev/null) &
        pid=$!
        until compgen -G "$WORK/gptq3/$1" >/dev/null || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
        kill -9 "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}
moments=('calibration/layer-0000[0-5]*' 'layer-00000*' '.layer-0000[1-5].safetensors.*.part' 'layer-0000[3-5].safetensors')
[ -n "${TSR_TEST_ALL:-}" ] || moments=("${moments[${TSR_TEST_SEED:-$RANDOM} % 4]}")
for moment in "${moments[@]}"; do
    rm -rf "$WORK/gptq3"
    cut_gptq "$moment"
    run "${GPTQ[@]}" -o gptq3
    ok "gptq killed at $moment goes on" test "$rc" = 0
    ok "to the same bytes ($moment)" same gptq gptq3
    ok "and nothing else is left ($moment)" test -z "$(find "$WORK/gptq3" -name '.*')"
done
rm "$WORK"/gptq2/{results,packed}.json
fails "a folder of another model" 2 'gptq2' quantize "$STORIES" "${GPTQ[@]:2}" -o gptq2

# A text that the model lost between an interrupted run and the one that goes on is not the packed model's.
cp -rL "$DEMO" "$WORK/lost"
echo '{"eos_token_id": 2}' >"$WORK/lost/generation_config.json"
run quantize lost --use rtn --bits 4 -o texts
ok "texts come along" test -e "$WORK/texts/generation_config.json"
rm "$WORK"/texts/{results,packed}.json "$WORK/lost/generation_config.json"
run quantize lost --use rtn --bits 4 -o texts
ok "and go when they are gone: exit $rc" test "$rc" = 0
ok "a text of an earlier state of the model is removed" test ! -e "$WORK/texts/generation_config.json"

# ---- memory ----------------------------------------------------------------------------------
before=$(ls "$WORK")
run "${QUANTIZE[@]}" -o dry --dry-run --json
ok "the statement" json '.memory | .peak >= .process and .quantize > 0 and .calibrate > 0' "$WORK/out"
ok "a dry run leaves nothing" test "$before" = "$(ls "$WORK")"
finish
