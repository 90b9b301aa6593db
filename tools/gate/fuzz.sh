# shellcheck shell=bash
# tools/gate/fuzz.sh - libFuzzer targets: fuzz_NAME of tests/fuzz/meson.build with the corpus
# tests/fuzz/corpus/NAME.

# The gate always walks the same way, so that a change fails for what it changed; tools/fuzz
# starts somewhere else each time.
GATE_FUZZ_SEED=1

fuzz_names() { find tests/fuzz/corpus -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort; }

# fuzz_one NAME SECONDS SEED: new inputs go to build-gate/fuzz/NAME, the corpus in the tree stays.
# Fails on a crash, leak, sanitizer report, an input of more than 10 s or 2 GB.
fuzz_one() {
    local dir=$GATE/fuzz/$1
    mkdir -p "$dir/found"
    "$GATE/asan/tests/fuzz/fuzz_$1" -max_total_time="$2" -seed="$3" \
        -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$dir/" "$dir/found" "tests/fuzz/corpus/$1" >"$dir/log" 2>&1
}

phase_fuzz() {
    local names name running=() t0
    sanitize_build fuzz || return 1
    mapfile -t names < <(fuzz_names)
    [ ${#names[@]} -gt 0 ] || return 1
    while [ ${#names[@]} -gt 0 ]; do
        t0=$(now)
        running=()
        for name in "${names[@]:0:$(nproc)}"; do
            fuzz_one "$name" "$FUZZ_SECONDS" "$GATE_FUZZ_SEED" &
            running+=("$name:$!")
        done
        names=("${names[@]:$(nproc)}")
        for name in "${running[@]}"; do
            if wait "${name#*:}"; then
                result pass "$(since "$t0")" "fuzz: ${name%:*}"
                say "fuzz: ${name%:*}: $(sed -n 's/^stat::number_of_executed_units: *//p' \
                    "$GATE/fuzz/${name%:*}/log") inputs"
            else
                grep -v '^#' "$GATE/fuzz/${name%:*}/log" | tail -n 60 >&2
                result fail "$(since "$t0")" "fuzz: ${name%:*}" \
                    "the input is in $GATE/fuzz/${name%:*}"
            fi
        done
    done
}
