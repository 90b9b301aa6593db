#!/bin/bash
# tests/e2e/plugins.sh TESSERA - inspect shows every plugin and why one was refused; a plugin built as
# docs/abi.md says loads; an installed tree finds its own plugins; plan answers as its page says.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/lib.sh"
umask 022
BUILD=$(dirname "$TESSERA")

# ---- what is there ------------------------------------------------------
run inspect --json
ok "inspect succeeds" test "$rc" = 0
for pair in backend:cpu quantizer:rtn quantizer:int8 quantizer:awq quantizer:squeeze quantizer:mx codec:plain transport:local solver:exact solver:uniform; do
    ok "inspect lists $pair" json --arg k "${pair%:*}" --arg n "${pair#*:}" \
        'any(.plugins[]; .kind == $k and .name == $n and .abi == "1.2" and .license == "Apache-2.0")' \
        "$WORK/out"
done
ok "no plugin of the build is refused" json '.refused == []' "$WORK/out"
ok "formats are listed" json '[.formats[].id] | contains(["tessera.float/1", "tessera.int/1", "tessera.lut/1", "tessera.mx/1"])' "$WORK/out"
ok "all families are listed" test "$(jq ".models | length" "$WORK/out")" = "$(find "$ROOT/configs/families" -name "*.yaml" | wc -l)"
ok "the CPU is a device" json 'any(.devices[]; .backend == "cpu" and .memory_bytes > 0)' "$WORK/out"
for word in plugins formats models devices; do
    run inspect "$word" --json
    ok "inspect $word shows that alone" json --arg w "$word" \
        '(keys - ["format", "refused", "absent", "checkpoints"]) == [$w]' "$WORK/out"
    run inspect "$word"
    ok "inspect $word prints a table" test "$(wc -l <"$WORK/out")" -ge 2
done

# A plugin that brings a library with it is there when it is asked for.
if [ -f "$BUILD/plugins/asked/mpi.so" ]; then
    run inspect --json
    ok "inspect does not load mpi" json 'all(.plugins[]; .name != "mpi")' "$WORK/out"
    run inspect mpi
    ok "inspect mpi does" grep -q '^transport mpi' "$WORK/out"
fi

# ---- one of them --------------------------------------------------------
run inspect rtn --json
ok "rtn: type, range, default and unit of bits" json '.components[0].options[]
    | select(.name == "bits") | .type == "int" and .min == 2 and .max == 8 and .default == 4 and .unit == "bits"' \
    "$WORK/out"
run inspect codec:plain
ok "codec:plain shows its choices" grep -q 'bf16 ' "$WORK/out"
run inspect org.tessera.uniform/uniform --json
ok "id/name works" json '.components | length == 1' "$WORK/out"
run inspect "$BUILD/plugins/local.so" --json
ok "a file works" json '.components[0].name == "local"' "$WORK/out"
run inspect "$STORIES" --json
ok "a model: numbers from its headers" json '.model.family == "llama" and .model.layers == 5 and
    .model.vocab == 512 and .model.tokenizer.size == 512' "$WORK/out"
fails "an unknown name" 2 'rtnn' inspect rtnn
fails "a file that is no plugin" 2 "$ROOT/meson.build" inspect "$ROOT/meson.build"
fails "a file that is not there" 2 'nowhere.so' inspect nowhere.so

# ---- one built as docs/abi.md says -----------------------------------------
mkdir "$WORK/mine"
sed 's/org\.tessera\.plain/org.example.mine/; s/\.name = "plain"/.name = "mine"/' \
    "$ROOT/plugins/comm/plain.c" >"$WORK/mine.c"
build() {
    cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I "$ROOT/core/include" \
        "-Wl,--version-script=$ROOT/plugins/plugin.map" -Wl,-z,defs,-z,relro,-z,now "$1" -o "$2"
}
ok "the documented command builds a plugin" build "$WORK/mine.c" "$WORK/mine/mine.so"
run inspect --plugin-path "$WORK/mine" mine --json
ok "it is found by --plugin-path" json '.components[0].id == "org.example.mine"' "$WORK/out"
run inspect --plugin-path "$WORK/mine/mine.so" mine
ok "also when the file is named" test "$rc" = 0
fails "not in the current folder" 2 'mine' inspect mine
cp "$WORK/mine/mine.so" "$WORK/mine/open.so"
echo >>"$WORK/mine/open.so" # other bytes, else it is the same plugin
chmod o+w "$WORK/mine/open.so"
mkdir "$WORK/mine/folder.so"
run inspect --plugin-path "$WORK/mine" --json
ok "what has a plugin's name and cannot be read as a file is refused, with the reason" json \
    'any(.refused[]; (.path | endswith("/mine/folder.so")) and (.why | test("is a folder")))' "$WORK/out"
rmdir "$WORK/mine/folder.so"
run inspect --plugin-path "$WORK/mine" --json
ok "a world-writable one is refused, with the reason" json \
    'any(.refused[]; .path | endswith("/mine/open.so")) and any(.refused[]; .why | test("writable by everybody"))' \
    "$WORK/out"
ok "and told on stderr" grep -q 'warning: .*open\.so' "$WORK/err"
sed 's/org\.example\.mine/org.example.twin/' "$WORK/mine.c" >"$WORK/twin.c"
mkdir "$WORK/twin"
ok "a second one builds" build "$WORK/twin.c" "$WORK/twin/twin.so"
run inspect --plugin-path "$WORK/mine/mine.so" --plugin-path "$WORK/twin" mine --json
ok "both are shown" json '[.components[].id] | sort == ["org.example.mine", "org.example.twin"]' "$WORK/out"

# In a job it is said once, where it stands.
echo text >"$WORK/no.so"
printf '%s\n' 'version: 1' 'model: "@demo"' 'plugins: [no.so]' 'pipeline:' '  - quantize: {use: rtn}' \
    '  - quantize: {use: rtn, bits: 3}' >"$WORK/job.yaml"
run config check job.yaml --json
ok "a bad plugin of a job: exit code 2, got $rc" test "$rc" = 2
ok "at its place and nowhere else" json 'map(select(.message | test("no[.]so")) | "\(.line):\(.column)") | . == ["3:11"]' "$WORK/out"

# ---- an installed tree --------------------------------------------------------
mkdir -p "$WORK/usr/bin" "$WORK/usr/lib/tessera"
cp "$TESSERA" "$WORK/usr/bin/tessera"
cp "$BUILD/plugins/uniform.so" "$WORK/usr/lib/tessera/"
"$WORK/usr/bin/tessera" inspect plugins --json >"$WORK/out" 2>"$WORK/err"
ok "../lib/tessera beside the program" json '[.plugins[].name] == ["uniform"]' "$WORK/out"

# ---- optional plugins that were not built -------------------------------
# The list of the build, next to plugins of which all optional ones are missing.
lib=$WORK/usr/lib/tessera
installed() { "$WORK/usr/bin/tessera" inspect plugins "$@" >"$WORK/out" 2>"$WORK/err"; }
cp "$BUILD/plugins/optional.json" "$lib/"
jq -r '.plugins[].package' "$lib/optional.json" >"$WORK/packages"
ok "the list has entries" test -s "$WORK/packages"
while read -r package; do
    ok "tools/packages.txt has $package" grep -qE "^$package( |\$)" "$ROOT/tools/packages.txt"
done <"$WORK/packages"
installed --json
ok "each is reported with its package" json --slurpfile list "$lib/optional.json" \
    '.absent == [$list[0].plugins[] | {kind, name, package, option}]' "$WORK/out"
installed
ok "the table says what to install" grep -qxF \
    'not built: solver ilp; install the Debian package libglpk-dev and build with -Dglpk=enabled' "$WORK/out"
mkdir "$lib/asked"
touch "$lib/asked/mpi.so"
installed --json
ok "a file that is there is not reported" json \
    '[.absent[].name] as $n | ($n | index("ilp")) and ($n | index("mpi") | not)' "$WORK/out"
rm -r "$lib/asked"
jq 'del(.plugins[].option)' "$BUILD/plugins/optional.json" >"$lib/optional.json"
installed
ok "without an option of meson it is not installed" grep -qxF \
    'not installed: solver ilp; install the Debian package libglpk-dev' "$WORK/out"
for bad in '[' '{"format": "tessera.optional-plugins/2", "plugins": []}' \
    '{"format": "tessera.optional-plugins/1", "plugins": [{"file": "a.so"}]}'; do
    echo "$bad" >"$lib/optional.json"
    rc=0
    installed || rc=$?
    ok "$bad: exit code 2, got $rc" test "$rc" = 2
    ok "$bad: the error names the file" grep -q '^tessera: error: .*/optional\.json' "$WORK/err"
done
rm "$lib/optional.json"

# ---- plan -----------------------------------------------------------------------
PLANNER=$ROOT/tests/golden/planner
run plan --instance "$PLANNER/example-steady.json" --solver uniform --json
ok "plan: one solution as JSON" json '.format == "tessera.solution/1" and .objective == 24 and
    ([.stages[].count] | add) == (.bits | length) and .bound <= .objective' "$WORK/out"
run plan --instance "$PLANNER/llmpq-04-steady.json" --json
ok "plan: exact by itself, with the proof" json '.solver == "exact" and .status == "optimal" and
    (.objective - 31067.4577668 | fabs) < 3.2 and .bound <= 31067.46 and .bound > 31064' "$WORK/out"
run plan --instance "$PLANNER/infeasible-1.json" --json
ok "plan: infeasible is exit code 3, got $rc" test "$rc" = 3
ok "plan: infeasible has no plan" json '.status == "infeasible" and .objective == null and .bits == []' "$WORK/out"
fails "plan: a file that is none" 2 '*/tests/golden/planner/expected.json' plan --instance "$PLANNER/expected.json"
fails "plan: an option that is none" 2 'uniform' plan \
    --instance "$PLANNER/plain-1.json" --solver uniform:label=3
finish
