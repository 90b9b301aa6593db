#!/bin/bash
# tests/e2e/templates.sh TESSERA - `plugin new` writes folders that build without warnings, in C and in
# C++, by make and by meson, with gcc and clang, and what they build does its work: as the bundled
# plugin does that computes the same.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
umask 022
: "${TSR_TEST_ALL:=0}"
SEED=${TSR_TEST_SEED:-$((SRANDOM % 1000000))}
RANDOM=$SEED

# What an installed tree says of itself, said of the build tree.
mkdir "$WORK/pc"
export PKG_CONFIG_PATH=$WORK/pc
cat >"$WORK/pc/tessera.pc" <<END
includedir=$ROOT/core/include
tessera=$TESSERA
ldflags=-Wl,--version-script=$ROOT/plugins/plugin.map -Wl,-z,defs -Wl,-z,relro -Wl,-z,now
Name: tessera
Description: Headers for plugins
Version: 1
Cflags: -I\${includedir}
END

# ---- what is refused --------------------------------------------------------------
fails "no kind" 2 '' plugin new
fails "no name" 2 '' plugin new codec
fails "one word too many" 2 '' plugin new codec a b
fails "an unknown kind" 2 'codecs' plugin new codecs mine
fails "an unknown subcommand" 2 'nwe' plugin nwe codec mine
for name in Mine 2fast a-b a.b '' _x ../x 'a b' "$(printf 'a%.0s' {1..49})"; do
    fails "the name '$name'" 2 "$name" plugin new codec "$name"
done
fails "a name of meson's" 2 'test' plugin new codec test
fails "a table that no kind has" 2 'streams' plugin new codec mine --table streams
fails "a table of another kind" 2 'stream' plugin new quantizer mine --table stream
fails "an id without a dot" 2 'mine' plugin new codec mine --id mine
fails "an id with a blank" 2 'org.example a' plugin new codec mine --id 'org.example a'
fails "no license" 2 '' plugin new codec mine --license ''
fails "a license that would leave its string" 2 'a"b' plugin new codec mine --license 'a"b'
fails "a folder in a folder that is not there" 2 'nowhere' plugin new codec mine --dir nowhere/mine
ok "nothing was written" test -z "$(find "$WORK" -name '*mine*')"
mkdir "$WORK/mine"
fails "a folder that is there, though empty" 2 'mine' plugin new codec mine
ok "it stays as it was" test -z "$(ls -A "$WORK/mine")"
rmdir "$WORK/mine"
echo kept >"$WORK/mine"
fails "a file of that name" 2 'mine' plugin new codec mine
ok "the file stays as it was" grep -q '^kept$' "$WORK/mine"
fails "a kernel of another kind" 2 'kernel' plugin new codec other --table kernel
fails "a table of a kind that has none" 2 'kernel' plugin new sampler other --table kernel
fails_with "a table with a typing error" 2 'kernal' "mean 'kernel'" plugin new quantizer other --table kernal
for table in kernel device block tune report; do
    fails "a table in C++: $table" 2 "$table" plugin new quantizer other --table "$table" --cxx
done
mkdir "$WORK/closed"
chmod 555 "$WORK/closed"
if ! touch "$WORK/closed/x" 2>"$WORK/err"; then # root may write everywhere
    fails "a folder that may not be written" 2 "Permission denied" plugin new codec mine --dir closed/mine
fi

# ---- what is written -----------------------------------------------------------------
run plugin new quantizer named --dir "$WORK/else where" --id org.acme.named --license 'GPL-2.0-only OR MIT' --json
ok "--dir, --id and --license" test "$rc" = 0
ok "--json lists the folder" json --arg d "$WORK/else where" \
    '.folder == $d and .files == ["Makefile", "meson.build", "named.c"]' "$WORK/out"
ok "id and license are in it" grep -q '"org.acme.named".*"GPL-2.0-only OR MIT"' "$WORK/else where/named.c"
ok "no placeholder is left" test -z "$(grep -rE '@[A-Z]+@' "$WORK/else where")"
ok "nothing else was written" test -z "$(find "$WORK" -name '.*' -type d)"

# ---- each kind in each language ----------------------------------------------------------
declare -A most=([quantizer]=150 [codec]=150 [codec/stream]=200 [solver]=150 [transport]=300 [backend]=300 [sampler]=150 [step]=160 [kv]=150)
compilers=("gcc g++" "clang-14 clang++-14")

by_make() {
    local cc cxx
    read -r cc cxx <<<"$2"
    make -s -B -C "$WORK/$1" CC="$cc" CXX="$cxx" CFLAGS="-O2 -Wall -Wextra -Werror" >"$WORK/log" 2>&1 ||
        { cat "$WORK/log"; return 1; }
}

by_meson() {
    local cc cxx
    read -r cc cxx <<<"$2"
    rm -rf "$WORK/$1/b"
    { CC=$cc CXX=$cxx meson setup "$WORK/$1/b" "$WORK/$1" -Dwerror=true &&
        ninja -C "$WORK/$1/b" && meson test -C "$WORK/$1/b" && cp "$WORK/$1/b/$1.so" "$WORK/$1/"; } >"$WORK/log" 2>&1 ||
        { cat "$WORK/log"; return 1; }
}

passes() { make -s -C "$WORK/$1" check CHECKFLAGS=--no-model >"$WORK/err" 2>&1; }

n=0
picked=$((RANDOM % 18))
for part in quantizer codec codec/stream solver transport backend sampler step kv; do
    for lang in c cxx; do
        kind=${part%/*}
        name=${part/\//_}_$lang
        flag=()
        [ $lang = c ] || flag=(--cxx)
        [ "$kind" = "$part" ] || flag+=(--table "${part#*/}")
        run plugin new "$kind" "$name" "${flag[@]}"
        ok "$name is written" test "$rc" = 0
        ok "$name: fewer than ${most[$part]} lines in all its files" \
            test "$(cat "$WORK/$name"/* | wc -l)" -lt "${most[$part]}"
        if [ "$TSR_TEST_ALL" = 1 ]; then
            for cc in "${compilers[@]}"; do
                ok "$name: meson with $cc" by_meson "$name" "$cc"
                ok "$name: make with $cc" by_make "$name" "$cc"
            done
        else
            ok "$name: make" by_make "$name" "${compilers[RANDOM % 2]}"
            [ $n != $picked ] || ok "$name: meson" by_meson "$name" "${compilers[RANDOM % 2]}"
        fi
        ok "$name: one symbol is exported" \
            test "$(nm -D --defined-only "$WORK/$name/$name.so" | awk '{print $3}')" = tsr_plugin_v1
        run inspect "$WORK/$name/$name.so" --json
        ok "$name: loads as what it is" json --arg k "$kind" --arg n "$name" \
            '.components[0] | .kind == $k and .name == $n and .id == "org.example." + $n' "$WORK/out"
        ok "$name: make check" passes "$name"
        n=$((n + 1))
    done
done

# ---- a kernel of its own
run plugin new quantizer own --table kernel
ok "own is written" test "$rc" = 0
ok "own: fewer than 230 lines in all its files" test "$(cat "$WORK/own"/* | wc -l)" -lt 230
ok "own: make" by_make own "${compilers[RANDOM % 2]}"
ok "own: make check" passes own
run plugin check own/own.so --only 'kernel-*' --json
ok "own: every rule of kernels is kept, none left out but those of functions that it lacks" json '
    [.rules[] | select(.verdict != "passed") | {rule, verdict}] ==
        [("prepared", "inputs", "adds", "pairs") | {rule: "kernel-\(.)", verdict: "skipped"}] and (.rules | length) == 10' "$WORK/out"
run quantize @demo --use own --plugin-path own/own.so -o own-demo --json
ok "own: a model is packed, got $rc" test "$rc" = 0
run generate ./own-demo --prompt "Once" --max-tokens 4 --plugin-path own/own.so
ok "own: and runs, got $rc" test "$rc" = 0
ok "own: by its kernel" test "$(grep -c 'does not read' "$WORK/err")" = 0

# ---- an exception becomes a status with its sentence
for what in 'std::runtime_error("row 100")' 'std::bad_alloc()'; do
    rm -rf "$WORK/throws"
    run plugin new quantizer throws --cxx
    sed -i "s|^#include <tessera/guard.hpp>|&\n#include <stdexcept>|; s|^    const tsr_matrix &m = .job->src;|&\n    if (m.rows > 0) throw $what;|" \
        "$WORK/throws/throws.cpp"
    ok "throws: make" by_make throws "${compilers[RANDOM % 2]}"
    ok "it throws $what" grep -q "throw $what" "$WORK/throws/throws.cpp"
    case $what in
    *row*) fails_with "quantize() that throws $what" 70 "quantizer 'throws'" 'row 100' quantize @demo --use throws --plugin-path throws/throws.so -o thrown ;;
    *) fails_with "quantize() that throws $what" 4 "quantizer 'throws'" memory quantize @demo --use throws --plugin-path throws/throws.so -o thrown ;;
    esac
done

# ---- what sees a block, and what reports
declare -A rules=([block]=4 [tune]=7 [report]=1)
for table in block tune report; do
    run plugin new quantizer "by_$table" --table "$table"
    ok "by_$table is written" test "$rc" = 0
    ok "by_$table: fewer than 340 lines in all its files" test "$(cat "$WORK/by_$table"/* | wc -l)" -lt 340
    ok "by_$table: make" by_make "by_$table" "${compilers[RANDOM % 2]}"
    ok "by_$table: make check" passes "by_$table"
    run plugin check "by_$table/by_$table.so" --only "$table-*" --json
    ok "by_$table: every rule of its table is kept, none left out" json --argjson n "${rules[$table]}" \
        '[.. | .verdict? // empty] | length == $n and all(. == "passed")' "$WORK/out"
    rm -rf "$WORK/short"
    cp -r "$WORK/by_$table" "$WORK/short"
    sed -i "s/\(struct tsr_quantizer_${table}_v1 [a-z]* = { .struct_size = \)sizeof [a-z]*/\18/" "$WORK/short/by_$table.c"
    ok "by_$table with a table of 8 bytes: make" make -s -B -C "$WORK/short"
    run plugin check "short/by_$table.so" --only "$table-*" --json
    ok "by_$table: every rule of it says so" json --argjson n "${rules[$table]}" \
        '[.rules[] | select(.verdict == "failed") | .text | test("says 8 bytes")] | length == $n and all' "$WORK/out"
done
cat >"$WORK/blocks.yaml" <<END
version: 1
model: "@demo"
plugins: [by_block/by_block.so, by_tune/by_tune.so, by_report/by_report.so]
pipeline:
  - calibrate: {text: $ROOT/configs/demo/calibration.txt, samples: 16, seqlen: 64}
  - compare:
      arms:
        rtn: {quantize: {use: rtn, bits: 3, range: absmax, scale: f32}}
        block: {quantize: {use: by_block, bits: 3, hadamard: true}}
        tune: {quantize: {use: by_tune, bits: 3, steps: 16}}
        report: {quantize: {use: by_report, bits: 3}}
      measure: {perplexity: {text: $ROOT/configs/demo/held-out.txt, window: 64, max_windows: 4}}
END
run run blocks.yaml --out job-blocks --json
ok "all of them in one comparison" test "$rc" = 0
ok "each is nearer to the model than rounding to nearest, in as many bits" json '.results.compare.arms
    | (map(select(.name == "rtn"))[0]) as $rtn | map(select(.name | IN("block", "tune", "report")))
    | length == 3 and all(.kl.mean > 0 and .kl.mean < $rtn.kl.mean and .bits_per_weight == $rtn.bits_per_weight)' "$WORK/out"
mv "$WORK/out" "$WORK/blocks.out"

# ---- they do their work ------------------------------------------------------------------
DEMO=$ROOT/configs/demo/model.safetensors
same() { cmp "$WORK/$1" "$WORK/$2"; }
texts() { jq -r '.. | .text? // empty' "$1"; }
bits=$((2 + RANDOM % 7))
run roundtrip "rtn:bits=$bits,range=absmax,scale=f32" "$DEMO" -o rtn.st
run roundtrip plain:dtype=bf16 --kind codec "$DEMO" -o plain.st
run logits @demo --tokens 1,5,9 -o cpu.st
for lang in c cxx; do
    run roundtrip "quantizer_$lang:bits=$bits" --plugin-path "$WORK/quantizer_$lang/quantizer_$lang.so" "$DEMO" -o q.st
    ok "quantizer_$lang packs as rtn does by the largest weight, $bits bits" same rtn.st q.st
    run roundtrip "codec_$lang" --kind codec --plugin-path "$WORK/codec_$lang/codec_$lang.so" "$DEMO" -o c.st
    ok "codec_$lang codes as plain does with bf16" same plain.st c.st
    run logits @demo --tokens 1,5,9 -o b.st --backend "backend_$lang" --plugin-path "$WORK/backend_$lang/backend_$lang.so"
    ok "backend_$lang gives the bytes of the CPU backend" same cpu.st b.st
    ok "backend_$lang declines what it lacks" grep -q "backend_$lang .*'norm'" "$WORK/err"
    ok "backend_$lang runs what it has" test "$(grep -c "backend_$lang .*'\(linear\|add\|embed\)'" "$WORK/err")" = 0
done
# Sums of two simulated ranks: what one rounds off, the next one adds. The codecs round alike, so the rest is feedback.
for codec in codec_c codec_stream_c codec_stream_cxx; do
    cat >"$WORK/$codec.yaml" <<END
version: 1
model: "@demo"
plugins: [$codec/$codec.so]
pipeline:
  - eval: {text: $ROOT/configs/demo/held-out.txt, window: 64, max_windows: 8, kl: true, simulate_tp: 2, codec: $codec}
END
    run run "$codec.yaml" --out "job-$codec" --json
    ok "$codec in sums of simulated ranks" test "$rc" = 0
    mv "$WORK/out" "$WORK/kl.$codec"
done
kl() { jq '.results.eval.kl.mean' "$WORK/kl.$1"; }
ok "error feedback lowers the KL divergence: $(kl codec_c), $(kl codec_stream_c)" \
    awk -v none="$(kl codec_c)" -v some="$(kl codec_stream_c)" 'BEGIN { exit !(some > 0 && some < none) }'
ok "codec_stream_c and codec_stream_cxx give the same KL" test "$(kl codec_stream_c)" = "$(kl codec_stream_cxx)"
# A cache of BF16, which rounds keys and values.
for lang in c cxx; do
    run logits @demo --tokens 1,5,9 -o "kv_$lang.st" --kv "kv_$lang" --plugin-path "$WORK/kv_$lang/kv_$lang.so"
    ok "kv_$lang stores a cache" test "$rc" = 0
done
ok "kv_c and kv_cxx give the same logits" same kv_c.st kv_cxx.st
ok "the logits are not those of F32" test "$(cmp "$WORK/cpu.st" "$WORK/kv_c.st" >/dev/null 2>&1; echo $?)" = 1
# A penalty that no logit outweighs: every token comes once.
cat >"$WORK/once.yaml" <<END
version: 1
model: "@demo"
plugins: [sampler_c/sampler_c.so, sampler_cxx/sampler_cxx.so]
pipeline:
  - generate: {prompts: ["The"], max_tokens: 24, temperature: 0, ignore_eos: true}
END
for lang in c cxx; do
    sed "s/ignore_eos/samplers: [{use: sampler_$lang, penalty: 100}], ignore_eos/" "$WORK/once.yaml" >"$WORK/$lang.yaml"
    run run "$lang.yaml" --out "job-$lang" --json
    ok "sampler_$lang in a job" test "$rc" = 0
    mv "$WORK/out" "$WORK/text.$lang"
done
run run once.yaml --out job-once --json
ok "without a sampler the text is another" test "$(texts "$WORK/out")" != "$(texts "$WORK/text.c")"
ok "sampler_c and sampler_cxx give the same text" test "$(texts "$WORK/text.c")" = "$(texts "$WORK/text.cxx")"
# Weights of the demo model are BF16, whose magnitudes are in the order of their lower 15 bits; 2^-7 is 0x3c00.
cat >"$WORK/steps.yaml" <<END
version: 1
model: "@demo"
plugins: [step_c/step_c.so, step_cxx/step_cxx.so]
pipeline:
  - step_c: {below: 0.0078125}
  - step_cxx: {below: 0.0078125}
END
run run steps.yaml --out job-steps --json
ok "step_c and step_cxx in a job" json '.results | (.step_c | del(.section[-1])) == (.step_cxx | del(.section[-1]))' "$WORK/out"
header=$(od -An -tu8 -N8 "$DEMO" | tr -d ' ')
read -r from to < <(head -c $((8 + header)) "$DEMO" | tail -c "$header" | jq -r '."model.embed_tokens.weight".data_offsets | @tsv')
want=$(od -An -v -tu2 -w2 -j$((8 + header + from)) -N$((to - from)) "$DEMO" |
    awk '{ n += $1 % 32768 < 15360 } END { printf "%.4f", n / NR }')
ok "they count what the file has" json --arg want "$want" \
    '.results.step_c.section[0].rows[0] == ["model.embed_tokens", "-", $want]' "$WORK/out"
for instance in "$ROOT"/tests/golden/planner/{comm,fixed,classes}-*.json; do
    id=$(basename "$instance" .json)
    for lang in c cxx; do
        run plan --instance "$instance" --solver "solver_$lang" --plugin-path "$WORK/solver_$lang/solver_$lang.so" --json
        # the program has recomputed the objective and checked every rule
        ok "solver_$lang on $id: a plan, not below the optimum" json \
            --argjson best "$(jq --arg n "$id" '.instances[$n].objective' "$ROOT/tests/golden/planner/expected.json")" \
            '.status == "feasible" and .objective >= $best * (1 - 1e-6)' "$WORK/out"
    done
done

echo "seed $SEED"
finish
