#!/bin/bash
# tests/e2e/descriptors.sh TESSERA FIXTURES - a plugin that closes a descriptor of the host, or gives its number to
# another file: the run fails with the plugin's name, nothing wrong appears under a final name, and the other file
# stays as it is.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
cp "$2/harm.so" "$2/fatal.so" "$WORK"
echo "somebody else's" >"$WORK/other"
export TSR_TEST_FILE TSR_TEST_OTHER=$WORK/other
CLOSES=504 SWAPS=505 # ids of fatal.so, four in a row; "<" and ">" as text
# the host's next file has the number of one that was closed
declare -A SAYS=([close_file]='(closed|put another file in the place of) descriptor [0-9]+'
    [swap_file]='put another file in the place of descriptor [0-9]+')

# untouched NAME: the other file has its bytes
untouched() { ok "$1: the other file stays" test "$(cat "$WORK/other")" = "somebody else's"; }

# ---- a step's inputs and its folder ------------------------------------------------
# files FOLDER: names of what is in a packed model, with hashes of the tensors; the header has the plugin's options
files() {
    local f n
    for f in "$WORK/$1"/packed/*.safetensors; do
        [ -e "$f" ] || continue
        n=$(od -An -tu8 -N8 "$f")
        echo "${f##*/} $(tail -c +$((n + 9)) "$f" | md5sum)"
    done
}
job() {
    cat >"$WORK/$1.yaml" <<YAML
version: 1
model: $STORIES
plugins: {paths: harm.so}
pipeline:
  - calibrate: {text: $DEMO/calibration.txt, samples: 2, seqlen: 64}
  - quantize: {use: harm$2}
YAML
}
job clean ''
run run clean.yaml --out clean
ok "a plugin that does nothing: got $rc" test "$rc" = 0
files clean >"$WORK/clean.md5"
ok "files are compared" test "$(wc -l <"$WORK/clean.md5")" -gt 3
# FILE and how it is called
for act in close_file swap_file; do
    while read -r file name; do
        rm -rf "$WORK/job"
        job job ", act: $act, file: \"$file\", other: \"$WORK/other\""
        # the results may be printed before: the job's end is one of the places that notice
        run run job.yaml --out job
        ok "$act of $name: exit code 1, got $rc" test "$rc" = 1
        ok "$act of $name: who, where and what" grep -qE "harm\.so: quantizer \"harm\" of org\.example\.harm: [a-z]+\(\) (or a call before it )?${SAYS[$act]} \(.*$name\), which is the host's" "$WORK/err"
        ok "$act of $name: whole files alone" test -z "$(files job | grep -vxFf "$WORK/clean.md5" || true)"
        untouched "$act of $name"
    done <<'FILES'
/job$ job
/memfd:tessera the model's weights
/stories260k/ model.safetensors
FILES
done

# ---- an output that is open while the backend works ------------------------------------
for act in close_file swap_file; do
    sign='<<<<'
    [ "$act" = close_file ] || sign='>>>>'
    { head -c 1500 "$DEMO/held-out.txt" && printf '%s ' "$sign" && tail -c 3000 "$DEMO/held-out.txt"; } >"$WORK/text.txt"
    for TSR_TEST_FILE in '.part$' 'base.kld.lock$' "$WORK\$"; do
        fails "$act of $TSR_TEST_FILE" 1 '*/fatal.so: backend "fatal" of org.tessera.test.fatal' \
            eval "$STORIES" --backend fatal --plugin-path fatal.so --text text.txt --protocol llamacpp-512 --window 64 \
            --max-windows 20 --save-kld base.kld --threads 1
        ok "$act of $TSR_TEST_FILE: no output" test ! -e "$WORK/base.kld"
        untouched "$act of $TSR_TEST_FILE"
    done
done

# ---- the journal of a batch ---------------------------------------------------------------
printf 'version: 1\nmodel: %s\nbackend: fatal\nseed: 5\n' "$STORIES" >"$WORK/batch.yaml"
input() {
    local i prompt
    for i in {1..8}; do
        prompt="\"Once upon a time $i\""
        [ "$i" != 5 ] || prompt="[1,403,$1,$1,$1,$1]"
        printf '{"custom_id":"r%d","url":"/v1/completions","body":{"prompt":%s,"max_tokens":%d}}\n' "$i" "$prompt" $((2 + i % 4))
    done
}
batch=(batch batch.yaml --plugin-path fatal.so -i in.jsonl --threads 1)
for act in close_file swap_file; do
    id=$CLOSES
    [ "$act" = close_file ] || id=$SWAPS
    input "$id" >"$WORK/in.jsonl"
    rm -rf "$WORK"/whole.jsonl*
    TSR_TEST_HARMLESS=1 run "${batch[@]}" -o whole.jsonl
    ok "a batch without harm: got $rc" test "$rc" = 0
    for file in journal lock; do
        TSR_TEST_FILE="/$file\$"
        rm -rf "$WORK"/answers.jsonl*
        fails "$act of the $file" 1 '*/fatal.so: backend "fatal" of org.tessera.test.fatal' \
            "${batch[@]}" -o answers.jsonl -q
        ok "$act of the $file: no output" test ! -e "$WORK/answers.jsonl"
        untouched "$act of the $file"
        TSR_TEST_HARMLESS=1 run "${batch[@]}" -o answers.jsonl
        ok "$act of the $file: the next run ends it, got $rc" test "$rc" = 0
        ok "$act of the $file: the bytes of a run without harm" cmp "$WORK/whole.jsonl" "$WORK/answers.jsonl"
    done
done
finish
