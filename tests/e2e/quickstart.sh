#!/bin/bash
# tests/e2e/quickstart.sh TESSERA [small] - configs/quickstart.yaml into a folder of its own: the
# table, the files of the job folder, the second run.  small (sanitized builds): two windows of the
# text, so another perplexity.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
args=("$ROOT/configs/quickstart.yaml" --out job)
reference='. > 49.46535 and . < 49.46545' # transformers, float32, the same text and protocol
if [ "${2:-}" = small ]; then
    args+=(--set calibrate.samples=4 --set compare.measure.perplexity.max_windows=2
        --set compare.measure.speed.repeats=1 --set compare.measure.speed.generate=8)
    reference='. > 20 and . < 100'
fi

start=$SECONDS
run run "${args[@]}"
ok "the job succeeds" test "$rc" = 0
echo "quickstart: $((SECONDS - start)) s"
cp "$WORK/out" "$WORK/table"

for word in original int8 rtn4 bits bytes perplexity gptq-2048 KL top-1 prefill decode tokens/s; do
    ok "the table has '$word'" grep -qi -- "$word" "$WORK/table"
done
ok "samples of all three" test "$(grep -c 'It was the best of times' "$WORK/table")" -ge 3

ok "the manifest is JSON of ours" json '.format | startswith("tessera.manifest/")' "$WORK/job/manifest.json"
ok "the manifest names its inputs by hash" json '[.. | strings | select(test("^xxh3:[0-9a-f]{32}$"))] | length > 1' \
    "$WORK/job/manifest.json"
ok "the results are JSON of ours" json '.format | startswith("tessera.results/")' "$WORK/job/results.json"
ok "the original's perplexity is the reference's 49.4654" json \
    ".results.compare.arms[] | select(.name == \"original\") | .perplexity | $reference" \
    "$WORK/job/results.json"
ok "int8 activations cost the packed arms something, and little" json \
    '[.results.compare.arms[] | select(.a8) | .a8.perplexity / .perplexity] |
     length == 2 and all(. > 0.99 and . < 1.01 and . != 1)' "$WORK/job/results.json"
ok "every number is finite" test "$(grep -ciE '(: |, |\[)-?(nan|inf|infinity)\b' "$WORK/job/results.json" || true)" = 0
ok "no half file is left" test -z "$(find "$WORK/job" -name '.*')"
ok "the report is there" test -s "$WORK/job/report.html"

# The same command again says that all is done, and does nothing.
before=$(cd "$WORK/job" && find . -type f -exec sha256sum {} + | sort)
run run "${args[@]}"
ok "the second run succeeds" test "$rc" = 0
ok "the second run says that it is done" is_done job
ok "the second run leaves the folder as it was" test "$before" = \
    "$(cd "$WORK/job" && find . -type f -exec sha256sum {} + | sort)"

# Other options in the same folder are refused, with the key.
fails "another seed in the same folder" 2 job run "${args[@]}" --set seed=8

finish
