# shellcheck shell=bash
# tools/gate/style.sh - formatting, static checks, and the language and links of pages.

sources() { find core kernels plugins tests tools/chart -name '*.[ch]' | sort; }

format_clean() { sources | xargs -P "$(nproc)" -n 64 clang-format-14 --dry-run --Werror; }

scripts_clean() {
    { grep -lE '^#!/bin/(ba)?sh' -r tools tests .ci; find tools -name '*.sh'; } | sort -u |
        xargs -P "$(nproc)" -n 8 shellcheck -x
}

# What may lie at the root of the tree, and nowhere an empty file or a folder without files.
ROOT_ENTRIES='^(\.ci|\.clang-format|\.clang-tidy|\.gitignore|\.shellcheckrc|ARCHITECTURE\.md|CHANGELOG\.md|'\
'CONTRIBUTING\.md|Containerfile|LICENSE|NOTICE|README\.md|SECURITY\.md|configs|core|docs|examples|http|kernels|meson\.build|'\
'meson_options\.txt|plugins|tests|tools)$'

# Of what git knows, or would with the next commit; without git, of all that is there.
tree_files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard
    else
        find . -type f ! -path './build*' ! -path './out/*' -printf '%P\n'
    fi
}

root_clean() {
    local bad
    bad=$(tree_files | cut -d / -f 1 | sort -u | grep -vE "$ROOT_ENTRIES" || true)
    [ -z "$bad" ] || { sed 's/$/: is at the root and not in ROOT_ENTRIES of tools\/gate\/style.sh/' <<<"$bad"; return 1; }
}

# An empty file says nothing; a meson.build without a statement neither.  A file of the tests' data may be empty.
no_empty_files() {
    local file bad=0
    while IFS= read -r file; do
        [ -f "$file" ] || continue
        case $file in
        tests/*/corpus/* | tests/golden/* | tests/e2e/bad-yaml/*) continue ;;
        */meson.build) grep -qvE '^[[:space:]]*(#|$)' "$file" && continue ;;
        *) [ ! -s "$file" ] || continue ;;
        esac
        echo "$file: is empty; write what it is for or remove it"
        bad=1
    done < <(tree_files)
    while IFS= read -r file; do
        echo "$file: is a folder without files; remove it"
        bad=1
    done < <(find . -mindepth 1 \( -path ./.git -o -path './build*' -o -path ./out \) -prune -o -type d -empty -print)
    [ $bad = 0 ]
}

# A file of the product has one idea; more than 400 lines are more than one.
short_files() {
    tree_files | grep -E '^(core|kernels|plugins)/.*\.(c|h|cu|cuh)$' | xargs awk '
        FNR == 401 { print FILENAME ": has more than 400 lines; move a part that stands alone to a file of its own"; bad = 1 }
        END { exit bad }'
}

# What `tessera help` prints is checked too, so the program must be there.
language_clean() {
    { [ -f build/build.ninja ] || configure_dir build "${RELEASE[@]}" -Dtests=false; } &&
        compile_dir build tessera && tools/gate/language.sh
}

# Every tool says what it is for, in the form "tools/NAME ...", and does nothing else then.
tools_help() {
    local tool bad=0 text
    while IFS= read -r tool; do
        [ "$tool" != tools/embed ] || continue # the build calls it, people do not
        text=$(timeout 10 "$tool" --help </dev/null 2>&1) && [[ $text == "$tool"* || $text == "usage: $tool"* ]] &&
            continue
        echo "$tool: --help must print a text that begins with the name; source tools/help.sh"
        bad=1
    done < <(find tools -maxdepth 1 -type f -perm -100 | sort)
    [ $bad = 0 ]
}

phase_style() {
    check "style: clang-format" format_clean
    check "style: shellcheck" scripts_clean
    check "style: links of pages" tools/gate/links.sh
    check "style: links, self-test" tools/gate/links.sh --self-test
    check "style: language, self-test" tools/gate/language.sh --self-test
    check "style: language" language_clean
    check "style: layers of the core" tools/layers --check
    check "style: the root of the tree" root_clean
    check "style: no empty files or folders" no_empty_files
    check "style: lengths of files" short_files
    check "style: help of the tools" tools_help
}

# Lines "FILE <tab> what it includes", without the system's headers, from what the compiler wrote down.
tidy_includes() {
    ninja -C build -t deps | awk '
        /^[^ ].*: #deps/ { first = ""; next }
        /^ +[^ \/]/ {
            name = $1
            if (!sub(/^\.\.\//, "", name)) name = "build/" name
            if (first == "") first = name
            print first "\t" name
        }' | sort -u
}

# A file is checked again when it, a file that it includes, its flags or .clang-tidy changed.  TSR_TIDY_CACHE: a folder
# for what was checked, also in other checkouts.
phase_tidy() {
    local db=$GATE/tidy-db/compile_commands.json cache=${TSR_TIDY_CACHE:-$GATE/tidy} common file key text
    local todo=() n=0
    declare -A flags includes
    configure_dir build "${RELEASE[@]}" -Dtests=true || return 1
    build_for tidy build || return 1
    mkdir -p "$cache" "$GATE/tidy-db"
    # as the product compiles them, not again as each test does; once where a file of several
    # targets has the same flags in each
    jq '[.[] | select(.output | startswith("tests/") | not)] | unique_by(.file,
        (.command | gsub("-I[^ ]*[.]p |-M[QF] [^ ]* |-o [^ ]* "; "")))' build/compile_commands.json >"$db"
    common=$({ clang-tidy-14 --version; cat .clang-tidy tools/gate/analyzer.h; } | sha256sum)
    while IFS=$'\t' read -r file text; do
        includes[$file]+=" $text"
    done < <(tidy_includes)
    while IFS=$'\t' read -r file text; do
        flags[$file]+="$text"$'\n'
    done < <(jq -r '.[] | [.file, .command] | @tsv' "$db" | sed -nE 's#^\.\./((core|kernels|plugins)/)#\1#p')
    while IFS= read -r file; do
        n=$((n + 1))
        # shellcheck disable=SC2086 # a list of files, none of which has a blank in its name
        key=$({ echo "$common $file ${flags[$file]}"; cat "$file" ${includes[$file]:-}; } | sha256sum | cut -c 1-40)
        if [ -f "$cache/$key" ]; then
            result pass 0 "tidy: $file"
        else
            todo+=("$key $file")
        fi
    done < <(printf '%s\n' "${!flags[@]}" | sort)
    [ $n -gt 0 ] || return 1
    say "tidy: $n files, ${#todo[@]} of them new or changed"
    if [ ${#todo[@]} -gt $((n / 2)) ] && [ -z "${TSR_TEST_ALL:-}" ]; then # a fresh clone: a twelfth, as the seed picks
        mapfile -t todo < <(sampled 12 "${todo[@]}")
        say "tidy: a sample of ${#todo[@]}; tools/test --all tidy looks at every file"
    fi
    [ ${#todo[@]} -gt 0 ] || return 0
    printf '%s\n' "${todo[@]}" |
        xargs -P "$(nproc)" -L 1 tools/gate/tidy-one "$cache" || true
    for key in "${todo[@]}"; do
        file=${key#* }
        key=${key%% *}
        if [ -f "$cache/$key" ]; then
            result pass "$(cat "$cache/$key")" "tidy: $file"
        else
            cat "$cache/$key.log" >&2 || true
            result fail 0 "tidy: $file"
        fi
    done
}
