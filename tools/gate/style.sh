# shellcheck shell=bash
# tools/gate/style.sh - formatting and static checks.

sources() { find core kernels plugins tests -name '*.[ch]' | sort; }

format_clean() { sources | xargs clang-format-14 --dry-run --Werror; }

scripts_clean() {
    { grep -lE '^#!/bin/(ba)?sh' -r tools tests .ci; find tools -name '*.sh'; } | sort -u |
        xargs shellcheck -x
}

phase_style() {
    check "style: clang-format" format_clean
    check "style: shellcheck" scripts_clean
}

# A file is checked again when it, any header, its flags or .clang-tidy changed.
phase_tidy() {
    local db=$GATE/tidy-db/compile_commands.json cache=$GATE/tidy common file key todo=() n=0
    configure_dir build "${RELEASE[@]}" -Dtests=true || return 1
    compile_dir build || return 1
    mkdir -p "$cache" "$GATE/tidy-db"
    # as the product compiles them, not again as each test does; once where a file of several
    # targets has the same flags in each
    jq '[.[] | select(.output | startswith("tests/") | not)] | unique_by(.file,
        (.command | gsub("-I[^ ]*[.]p |-M[QF] [^ ]* |-o [^ ]* "; "")))' build/compile_commands.json >"$db"
    common=$({ clang-tidy-14 --version; cat .clang-tidy tools/gate/analyzer.h
        find core kernels plugins -name '*.h' | sort | xargs cat; } | sha256sum)
    while IFS= read -r file; do
        n=$((n + 1))
        key=$({ echo "$common $file"; cat "$file"
            jq -c --arg f "../$file" '.[] | select(.file == $f) | .command' "$db"; } |
            sha256sum | cut -c 1-40)
        if [ -f "$cache/$key" ]; then
            result pass 0 "tidy: $file"
        else
            todo+=("$key $file")
        fi
    done < <(jq -r '.[].file' "$db" | sed -nE 's#^\.\./((core|kernels|plugins)/.*)#\1#p' |
        sort -u)
    [ $n -gt 0 ] || return 1
    say "tidy: $n files, ${#todo[@]} of them new or changed"
    [ ${#todo[@]} -gt 0 ] || return 0
    printf '%s\n' "${todo[@]}" |
        xargs -P "$(nproc)" -L 1 tools/gate/tidy-one || true
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
