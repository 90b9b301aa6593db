#!/bin/bash
# tests/e2e/outside.sh TESSERA - plugins from outside: one in C and one in C++, built with gcc and with
# clang from an installed prefix and nothing else; each keeps every rule, and a job runs with both.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/lib.sh"
umask 022
# shellcheck source=tests/e2e/prefix.sh
. "$(dirname "$0")/prefix.sh"
install_into "$WORK/root"
mv "$prefix" "$WORK/prefix"
TESSERA=$WORK/prefix/bin/tessera
export PKG_CONFIG_PATH="$WORK/prefix/share/pkgconfig"

# ---- building them -------------------------------------------------------------
# A copy, so that no header is found beside the sources.
cp -r "$ROOT/tests/outside" "$WORK/sources"
compilers=0
for cc in gcc clang-14; do
    cxx=${cc/gcc/g++}
    cxx=${cxx/clang/clang++}
    if ! command -v "$cc" >/dev/null || ! command -v "$cxx" >/dev/null; then
        echo "there is no $cc with $cxx here: not built with them"
        continue
    fi
    compilers=$((compilers + 1))
    mkdir "$WORK/$cc"
    ok "$cc builds both" make -s -C "$WORK/sources" CC="$cc" CXX="$cxx" OUT="$WORK/$cc" 2>"$WORK/err"
    for plugin in rows_c rows_cxx; do
        so=$WORK/$cc/$plugin.so
        ok "$cc: $plugin exports one symbol" test "$(nm -D --defined-only "$so" | awk '{print $NF}')" = tsr_plugin_v1
        ok "$cc: $plugin asks for nothing of ours" test -z "$(nm -D --undefined-only "$so" | grep -i 'tsr_\|tessera')"
        run plugin check "$so" --json --no-model
        ok "$cc: $plugin keeps every rule" json '.failed == 0 and .passed > 50' "$WORK/out"
        run inspect "$so" --probe --json
        ok "$cc: $plugin loads and answers" json --arg n "${plugin/_/-}" '.components[0] |
            .name == $n and .abi == "1.2" and .probe.packs_as != null and .probe.needs == []' "$WORK/out"
    done
    ok "$cc: the one in C++ brings its library" json \
        '.components[0].libraries | any(startswith("libstdc++.so"))' "$WORK/out"
done
ok "gcc is there" test "$compilers" -ge 1

# ---- a job with both --------------------------------------------------------------
cat >"$WORK/job.yaml" <<'JOB'
version: 1
model: "@demo"
plugins: [gcc]
pipeline:
  - compare:
      arms:
        c: {quantize: {use: rows-c}}
        cxx: {quantize: {use: rows-cxx}}
        coarse: {quantize: {use: rows-c, bits: 3}}
      measure:
        perplexity: {text: prefix/share/tessera/demo/held-out.txt, protocol: gptq-2048, max_windows: 1}
JOB
run run job.yaml --out job
ok "a job with both succeeds" test "$rc" = 0
# Rounding to 255 levels costs next to nothing, to 7 levels much; C and C++ give the same codes.
ok "they quantize, and alike" json '[.results.compare.arms[] | {(.name): .perplexity}] | add |
    .c == .cxx and .c > .original * 0.98 and .c < .original * 1.02 and .coarse > .original * 1.1' \
    "$WORK/job/results.json"
ok "the manifest names both by id" json '[.plugins[].id] |
    contains(["org.example.rows-c", "org.example.rows-cxx"])' "$WORK/job/manifest.json"

# The same weights from each compiler and language.
for cc in gcc clang-14; do
    [ -d "$WORK/$cc" ] || continue
    for name in rows-c rows-cxx; do
        run roundtrip "$name:bits=5" "$STORIES/model.safetensors" -o "$name-$cc.safetensors" \
            --plugin-path "$WORK/$cc"
        ok "$cc: $name takes every tensor there and back" test "$rc" = 0
        ok "$cc: $name gives the same weights as the first" cmp "$WORK/rows-c-gcc.safetensors" \
            "$WORK/$name-$cc.safetensors"
    done
done

# ---- what `plugin new` writes, in an empty folder -------------------------------------
run plugin new quantizer fresh --cxx
ok "plugin new works from the prefix" test "$rc" = 0
make -s -C "$WORK/fresh" check >"$WORK/err" 2>&1 || made=no
ok "make check builds it and it keeps every rule" test "${made:-yes}" = yes
{ meson setup "$WORK/fresh/build" "$WORK/fresh" && meson test -C "$WORK/fresh/build"; } \
    >"$WORK/err" 2>&1 || tested=no
ok "so does meson test" test "${tested:-yes}" = yes

# ---- as a user puts them in place ---------------------------------------------------
cp "$WORK/gcc/rows_c.so" "$(pkg-config --variable=plugindir tessera)/"
run inspect rows-c --json
ok "one that is copied to plugindir is there" json --arg path "$WORK/prefix/lib/tessera/rows_c.so" \
    '.components[0].path == $path' "$WORK/out"

finish
