#!/bin/bash
# tests/e2e/hub.sh TESSERA - models by their name on the hub, from a cache as its library lays it out.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
export HOME=$WORK/user
CACHE=$HOME/.cache/huggingface/hub
MODEL=$ROOT/tests/golden/models/qwen3
COMMIT=0123456789abcdef0123456789abcdef01234567
M=$CACHE/models--acme--tiny-qwen
mkdir -p "$M/refs" "$M/blobs" "$M/snapshots/$COMMIT"
i=0
for f in "$MODEL"/*; do
    i=$((i + 1))
    cp "$f" "$M/blobs/$i"
    ln -s "../../blobs/$i" "$M/snapshots/$COMMIT/$(basename "$f")"
done
printf %s $COMMIT >"$M/refs/main"
mkdir -p "$M/refs/pr"
printf %s $COMMIT >"$M/refs/pr/1"

run logits "$MODEL" --tokens 5,17,3 -o folder.st
for name in hf:acme/tiny-qwen hf:acme/tiny-qwen@main hf:acme/tiny-qwen@$COMMIT hf:acme/tiny-qwen@pr/1 "$M" "$M/" "$M/snapshots/$COMMIT"; do
    run logits "$name" --tokens 5,17,3 -o hub.st
    ok "$name: the same bytes, got $rc" cmp "$WORK/folder.st" "$WORK/hub.st"
    rm -f "$WORK/hub.st"
done
run inspect hf:acme/tiny-qwen --json
ok "inspect" json '.model.family == "qwen3"' "$WORK/out"
mkdir -p "$WORK/other" && cp -r "$M" "$WORK/other/"
mv "$M" "$WORK/aside"
(export HF_HUB_CACHE="$WORK/other" HF_HOME="$WORK" && run logits hf:acme/tiny-qwen --tokens 5 -o env.st && test "$rc" = 2)
ok "no variable moves the cache" test ! -e "$WORK/env.st"
run logits hf:acme/tiny-qwen --tokens 5,17,3 -o option.st --hf-cache "$WORK/other"
ok "--hf-cache" cmp "$WORK/folder.st" "$WORK/option.st"
mv "$WORK/aside" "$M"
cat >"$WORK/job.yaml" <<'Y'
version: 1
model: hf:acme/tiny-qwen
pipeline:
  - logits: {tokens: "5,17,3", output: l.st}
Y
run run job.yaml --out j
ok "a job" test "$rc" = 0
ok "its logits" cmp "$WORK/folder.st" "$WORK/j/l.st"

fails "a model that is not in the cache" 2 'hf:acme/other' inspect hf:acme/other
ok "the command that gets it" mentions 'hf download acme/other'
fails "a revision that is not" 2 'hf:acme/tiny-qwen@v2' logits hf:acme/tiny-qwen@v2 --tokens 1 -o x.st
ok "its command" mentions 'hf download acme/tiny-qwen --revision v2'
for bad in hf: hf:/x hf:acme/ hf:acme/../x hf:a/b@ "hf:a b" hf:a/b/c hf:acme/tiny-qwen@../x hf:acme/tiny-qwen@..; do
    fails "$bad" 2 '*' inspect "$bad"
done
rm "$M/refs/main"
fails "no main" 2 'hf:acme/tiny-qwen' inspect hf:acme/tiny-qwen
printf '../../../etc' >"$M/refs/main"
fails "a reference elsewhere" 2 'hf:acme/tiny-qwen' inspect hf:acme/tiny-qwen
finish
