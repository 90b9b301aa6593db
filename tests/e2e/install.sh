#!/bin/bash
# tests/e2e/install.sh TESSERA - `meson install` gives a tree that works where it is put and where it
# is moved; it is enough to build plugins with; uninstalling leaves nothing.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/e2e/prefix.sh
. "$(dirname "$0")/prefix.sh"

# every file and folder, with its mode
listing() { (cd "$1" && find . -printf '%y %m %p\n' | sort); }

# ---- what is there ----------------------------------------------------------
install_into "$WORK/root"
ok "one program" test -x "$TESSERA"
ok "nothing outside the prefix" test -z "$(find "$WORK/root" -type f ! -path "$prefix/*")"
ok "the demo model" test -s "$prefix/share/tessera/demo/model.safetensors"
ok "the SDK's headers" diff -r "$ROOT/core/include/tessera" "$prefix/include/tessera"
ok "the rules of the plugin ABI" test -s "$prefix/share/doc/tessera/abi.md"
ok "the page on writing a plugin" test -s "$prefix/share/doc/tessera/writing-a-plugin.md"
ok "the tutorial and the guide" test -s "$prefix/share/doc/tessera/tutorial.md" -a -s "$prefix/share/doc/tessera/guide/models.md"
ok "no page of the laboratory" test ! -e "$prefix/share/doc/tessera/lab"
ok "the examples of that page" test -s "$prefix/share/tessera/examples/clip.c"
# Links between pages hold there too; the job files of the guide lie in share/tessera.
while IFS=: read -r page link; do
    target=$(dirname "$page")/${link%%#*}
    target=${target/doc\/tessera\/..\/configs/tessera}
    target=${target/doc\/tessera\/guide\/..\/..\/configs/tessera}
    ok "${page##*/} links to $link" test -e "$target"
done < <(grep -roE '\]\([^)#:]+[^):]*\)' "$prefix/share/doc/tessera" | sed 's/:](/:/; s/)$//')
ok "the templates" diff -r "$ROOT/tools/templates" "$prefix/share/tessera/templates"
ok "the version script" test -s "$prefix/share/tessera/plugin.map"
ok "nothing is writable by everybody" test -z "$(find "$prefix" ! -type l -perm -o+w)"
for plugin in "$BUILD"/plugins/*.so; do
    ok "plugin ${plugin##*/}" cmp "$plugin" "$prefix/lib/tessera/${plugin##*/}"
done

[ ! -e "$BUILD/http/tessera-http" ] || ok "the HTTP program" test -x "$prefix/lib/tessera/tessera-http"

# Every verb has a man page, and so has the program; they are what `help --man` prints.
run help --json
mapfile -t verbs < <(jq -r '.verbs[].name' "$WORK/out")
ok "there are verbs" test "${#verbs[@]}" -ge 12
for verb in "${verbs[@]}"; do
    run help "$verb" --man
    ok "man page of $verb" cmp "$WORK/out" "$prefix/share/man/man1/tessera-$verb.1"
done
ok "no man page of anything else" test "$(find "$prefix/share/man/man1" -type f | wc -l)" = $((${#verbs[@]} + 1))
ok "man page of plugins" grep -q '^\.TH TESSERA' "$prefix/share/man/man7/tessera-plugin.7"

for file in bash-completion/completions/tessera.bash zsh/site-functions/_tessera fish/vendor_completions.d/tessera.fish; do
    case $file in bash*) shell=bash ;; zsh*) shell=zsh ;; *) shell=fish ;; esac
    run help --completions "$shell"
    ok "completions for $shell" cmp "$WORK/out" "$prefix/share/$file"
done
ok "the list of optional plugins" cmp "$BUILD/plugins/optional.json" "$prefix/lib/tessera/optional.json"

# ---- the program finds what is its own, also after a move ---------------------
works_from() {
    run inspect rtn --json
    ok "$1: a plugin is found in lib/tessera" json --arg path "$2/lib/tessera/rtn.so" \
        '.components[0].path == $path' "$WORK/out"
    run config check "$2/share/tessera/quickstart.yaml"
    ok "$1: the installed quickstart is a good job" test "$rc" = 0
    # a mark on the installed one: that of the sources is a second place to look
    mv "$2/share/tessera/demo/tokenizer.json" "$WORK/tokenizer.json"
    run inspect @demo --json
    mv "$WORK/tokenizer.json" "$2/share/tessera/demo/tokenizer.json"
    ok "$1: @demo is the installed one" json '.model.layers > 0 and .model.tokenizer == null' "$WORK/out"
    echo "# $1" >>"$2/share/tessera/templates/common/c/Makefile"
    rm -rf "$WORK/mine"
    run plugin new codec mine
    ok "$1: the template is the installed one" grep -qx "# $1" "$WORK/mine/Makefile"
}
works_from "installed" "$prefix"
mkdir "$WORK/elsewhere"
mv "$prefix" "$WORK/elsewhere/moved"
prefix="$WORK/elsewhere/moved"
TESSERA=$prefix/bin/tessera
works_from "moved" "$prefix"
ln -s "$TESSERA" "$WORK/link"
TESSERA=$WORK/link
works_from "through a link" "$prefix"
TESSERA=$prefix/bin/tessera
run generate @demo --prompt "It was" --max-tokens 4 --greedy --json
ok "the moved program runs the demo model" json '.tokens | length == 4' "$WORK/out"

# ---- pkg-config -----------------------------------------------------------------
export PKG_CONFIG_PATH="$prefix/share/pkgconfig"
pc() { pkg-config "$@" tessera; }
at() { readlink -f "$(pc --variable="$1")"; }
version=$("$TESSERA" --version)
ok "tessera.pc is found" pc --exists
ok "its version is the program's" grep -q "^tessera $(pc --modversion) (ABI $(pc --variable=abi))$" <<<"$version"
ok "its plugins are the program's" test "$(at plugindir)" = "$(readlink -f "$prefix/lib/tessera")"
ok "it names the program" test "$(at tessera)" = "$(readlink -f "$TESSERA")"
ok "it names the templates" test "$(at templatedir)" = "$(readlink -f "$prefix/share/tessera/templates")"
ok "it names the examples" test "$(at exampledir)" = "$(readlink -f "$prefix/share/tessera/examples")"
ok "it names the version script" test -s "$(at plugin_map)"

# ---- uninstalling -----------------------------------------------------------------
# Into a tree that holds other things: they stay, and nothing else does.
mkdir -p "$WORK/root/usr/local/bin" "$WORK/root/usr/local/share/man/man1"
echo other >"$WORK/root/usr/local/share/man/man1/other.1"
listing "$WORK/root" >"$WORK/before"
install_into "$WORK/root"
listing "$WORK/root" >"$WORK/full"
ok "installing adds to it" test "$(wc -l <"$WORK/full")" -gt $(($(wc -l <"$WORK/before") + 50))
uninstall_last
listing "$WORK/root" >"$WORK/after"
ok "uninstalling leaves nothing" diff "$WORK/before" "$WORK/after"

finish
