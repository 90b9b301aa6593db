#!/bin/bash
# tests/e2e/plugin-install.sh TESSERA - plugins of the user: installed once, found by every job, listed and removed.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
umask 022
export HOME=$WORK/home
unset XDG_DATA_HOME
mkdir "$HOME"
MINE=$HOME/.local/share/tessera/plugins
BUILD=$(dirname "$TESSERA")
# make_codec NAME FILE [ID [VERSION]]: the codec plain under another name.
make_codec() {
    sed "s/org\.tessera\.plain/${3:-org.example.$1}/; s/\.name = \"plain\"/.name = \"$1\"/
        s/\.version = \"[0-9.]*\"/.version = \"${4:-1.0.0}\"/" "$ROOT/plugins/comm/plain.c" >"$WORK/codec.c"
    cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I "$ROOT/core/include" \
        "-Wl,--version-script=$ROOT/plugins/plugin.map" -Wl,-z,defs,-z,relro,-z,now "$WORK/codec.c" -o "$2"
}
mkdir "$WORK/repository" "$WORK/empty"
ok "a codec is built" make_codec mine "$WORK/repository/mine.so"

# ---- nothing is installed -------------------------------------------------------------------
run plugin list --json
ok "the bundled plugins are listed" json 'any(.[]; .id == "org.tessera.rtn" and .state == "found" and .license == "Apache-2.0"
    and .components == ["quantizer rtn"])' "$WORK/out"
ok "nothing was made" test ! -e "$HOME/.local"
fails "there is nothing to remove" 2 mine plugin remove mine

# ---- from a folder --------------------------------------------------------------------------
run plugin install "$WORK/repository" --json
ok "the plugin of a folder is installed" json --arg f "$(readlink -f "$WORK")/repository/mine.so" 'length == 1 and (.[0] |
    .id == "org.example.mine" and .version == "1.0.0" and .from == $f and .rules_passed > 20)' "$WORK/out"
ok "it is the same file" cmp "$WORK/repository/mine.so" "$MINE/mine.so"
run inspect mine --json
ok "it is found by its name" json '.components[0].id == "org.example.mine"' "$WORK/out"
run bench comm --ranks 2 --sizes 1 --hidden 64 --codecs mine --repeats 1 --json
ok "it works" test "$rc" = 0
run plugin list --json
ok "it is listed as installed" json '[.[] | select(.state == "installed") | .id] == ["org.example.mine"]' "$WORK/out"

# ---- a newer version under another file name takes its place -----------------------------------
ok "a newer version is built" make_codec mine "$WORK/newer.so" org.example.mine 1.2.0
run plugin install "$WORK/newer.so" --no-rules --json
ok "it is installed without rules" json '.[0] | .version == "1.2.0" and .rules_passed == null' "$WORK/out"
ok "the older file is gone" test "$(find "$MINE" -name '*.so' -printf '%f ')" = "newer.so "
cat "$BUILD/plugins/plain.so" >"$WORK/other"
ok "another version is built" make_codec mine "$WORK/other" org.example.mine 1.3.0
cp "$WORK/other" "$MINE/newer.so"
run plugin list --json
ok "a file that changed is called so" json 'any(.[]; .id == "org.example.mine" and .state == "changed")' "$WORK/out"
rm "$MINE/newer.json"
run plugin list --json
ok "a file without a record is called so" json 'any(.[]; .id == "org.example.mine" and .state == "no record")' "$WORK/out"
run plugin remove newer
ok "it is removed by its file's name" test "$rc" = 0
ok "no file is left" test -z "$(find "$MINE" -type f)"
fails "and is not found any more" 2 '*' inspect mine

# ---- what is refused ------------------------------------------------------------------------
fails "a folder without a plugin" 2 '*empty' plugin install "$WORK/empty"
fails "a file that is not there" 2 '*nowhere.so' plugin install nowhere.so
fails "a file that is no .so" 2 '*meson.build' plugin install "$ROOT/meson.build"
echo text >"$WORK/text.so"
fails "a .so that is no plugin" 2 '*text.so' plugin install "$WORK/text.so"
fails "a bundled plugin" 2 '*plain.so' plugin install "$BUILD/plugins/plain.so"
ok "one with a bundled name is built" make_codec plain "$WORK/taken.so" org.example.taken
fails_with "a name that is taken" 2 '*taken.so' 'plain\.so' plugin install "$WORK/taken.so"
ok "two are built" eval 'make_codec one "$WORK/one.so" && make_codec two "$WORK/empty/one.so"'
run plugin install "$WORK/one.so" --no-rules
ok "the first is installed" test "$rc" = 0
fails "a file name that is taken" 2 '*one.so' plugin install "$WORK/empty/one.so" --no-rules
run plugin remove org.example.one --json
ok "it is removed by its id" json --arg f "$(readlink -f "$MINE")/one.so" '.removed == $f' "$WORK/out"
if [ -e "$BUILD/tests/conformance/bad_leaks.so" ]; then
    fails_with "a plugin that breaks a rule" 1 '*' leaks plugin install "$BUILD/tests/conformance/bad_leaks.so"
    ok "it is not there" test -z "$(find "$MINE" -type f)"
fi
# ---- families and tasks -----------------------------------------------------------------------
run plugin new family mine
run plugin new task quiz
fails "a family that is not known yet" 2 '*mine*' inspect "$WORK/mine"
run plugin install mine/mine.yaml --json
ok "a family is installed" json --arg f "$(readlink -f "$WORK")/mine/mine.yaml" 'length == 1 and (.[0] | .kind == "family" and .name == "mine"
    and .from == $f and .rules_passed == 8)' "$WORK/out"
ok "it is the same file" cmp "$WORK/mine/mine.yaml" "$MINE/families/mine.yaml"
run logits mine --tokens 8 -o l.st
ok "a model of it runs without --family" test "$rc" = 0
run logits mine --tokens 8 -o given.st --family mine/mine.yaml
ok "with it the bytes are the same" cmp "$WORK/l.st" "$WORK/given.st"
run inspect mine --json
hash=$(jq -r .model.hash "$WORK/out")
ok "inspect names family and file" json '.model | .family == "mine" and (.family_file | endswith("/families/mine.yaml"))' "$WORK/out"
run inspect mine --family mine/mine.yaml --json
ok "the model's hash is that of the added file" test "$(jq -r .model.hash "$WORK/out")" = "$hash"
run inspect models --json
ok "it is among the models" json '.models[-1].name == "mine"' "$WORK/out"
run plugin check mine/mine.yaml --json
ok "installed, it still keeps the rules" json '.failed == 0' "$WORK/out"
run plugin install quiz --json
ok "a task is installed from its folder, and the harness's file is left alone" json 'map([.kind, .name]) == [["task", "quiz"]]' "$WORK/out"
run eval @demo --task quiz --data "$WORK/quiz" --json
ok "a task runs by its name" test "$rc" = 0
run plugin list --json
ok "both are listed" json '[.[] | select(.state == "installed") | .components[0]] == ["family mine", "task quiz"]' "$WORK/out"
run plugin list
ok "and in the table" grep -q '^installed  *mine: family mine; ' "$WORK/out"
echo '# other' >>"$MINE/tasks/quiz.yaml"
run plugin list --json
ok "a changed one is called so" json 'any(.[]; .id == "quiz" and .state == "changed")' "$WORK/out"
sed -i 's/^summary: .*/summary: Newer/' "$WORK/quiz/quiz.yaml"
run plugin install quiz/quiz.yaml --json
ok "a newer one takes its place" grep -q '^summary: Newer' "$MINE/tasks/quiz.yaml"
cp -r "$WORK/mine" "$WORK/another"
sed -i 's/^name: .*/name: other/' "$WORK/another/mine.yaml"
fails_with "a second family of the same models" 2 '*mine.yaml' 'mineForCausalLM' plugin install another/mine.yaml
sed -i 's/mineForCausalLM/otherForCausalLM/; s/\[mine\]/[other]/' "$WORK/another/mine.yaml"
fails_with "a family whose golden is of another" 1 '*' 'of its kind' plugin install another/mine.yaml
run plugin install another/mine.yaml --no-rules --json
ok "it is installed without rules, by its own name" json '.[0].rules_passed == null and .[0].name == "other"' "$WORK/out"
ok "as a file of that name" test -e "$MINE/families/other.yaml"
sed 's/^name: .*/name: llama/' "$WORK/mine/mine.yaml" >"$WORK/llama.yaml"
fails "a built-in name, also without rules" 1 '*' plugin install llama.yaml --no-rules
sed 's/^name: .*/name: mine/' "$WORK/quiz/quiz.yaml" >"$WORK/mine/task.yaml"
run plugin install mine/task.yaml --no-rules
fails_with "a name of two" 2 '*' 'family/mine or task/mine' plugin remove mine
run plugin remove task/mine
ok "the kind decides" test "$rc" = 0 -a ! -e "$MINE/tasks/mine.yaml"
# a broken file in the folder is named by what would use it, and by nothing else
echo 'family: tessera.family/1' >"$MINE/families/broken.yaml"
run inspect @demo
ok "a model of a built-in family does not mind it" test "$rc" = 0
fails "one that might be of it does" 2 '*broken.yaml*' inspect "$WORK/another"
run plugin remove broken.yaml
run plugin remove other
run plugin remove family/mine
run plugin remove quiz.yaml
ok "all are removed" test -z "$(find "$MINE" -type f)"
fails "and the model is not known any more" 2 '*' inspect "$WORK/mine"
fails "and the task neither" 2 '*' eval @demo --task quiz --data "$WORK/quiz"
fails "a word that is none" 2 '*' plugin instal x
HOME='' fails "no home" 2 '*' plugin install "$WORK/one.so"
finish
