# shellcheck shell=bash
# tools/gate/meson.sh - the phases that build a folder with meson and run its tests.

# Every report of a sanitizer ends the program; a huge size from a file is answered with NULL,
# as the C library does.
export ASAN_OPTIONS=allocator_may_return_null=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

# meson_tests DIR LABEL [argument of meson test...]: runs them and takes over their results.
meson_tests() {
    local dir=$1 label=$2 log=$1/meson-logs/gate-$2 rc=0 status seconds name
    shift 2
    rm -f "$log.json"
    # half as many more than processors: some wait for a peer that hangs
    meson test -C "$dir" --no-rebuild --num-processes $(($(nproc) * 3 / 2)) --print-errorlogs \
        --logbase "gate-$label" "$@" >"$dir/tessera-tests.log" 2>&1 || rc=$?
    if [ ! -s "$log.json" ]; then
        tail -n 40 "$dir/tessera-tests.log" >&2
        result fail 0 "$label: no test ran"
        return 0
    fi
    [ $rc = 0 ] || sed -n '/^―/,/^Ok:/p' "$dir/tessera-tests.log" | tail -n 200 >&2
    while IFS=$'\t' read -r status seconds name; do
        case $status in
        OK | EXPECTEDFAIL) result pass "$seconds" "$label: $name" ;;
        SKIP) result skip "$seconds" "$label: $name" ;;
        *) result fail "$seconds" "$label: $name" "$status" ;;
        esac
    done < <(jq -r '[.result, .duration, .name] | @tsv' "$log.json")
    [ $rc = 0 ] || wrong_lines "$label" "$log.json"
    # meson itself may have failed without naming a test
    if [ $rc != 0 ] && ! grep -q "^fail.*	$label: " "$RESULTS"; then
        tail -n 40 "$dir/tessera-tests.log" >&2
        result fail 0 "$label: meson test"
    fi
}

# wrong_lines LABEL JSON: for the summary, what failed in the failed tests.  Those of e2e and cmocka say which check;
# of the others, the last lines.
wrong_lines() {
    jq -r --arg l "$1" 'select(.result | IN("OK", "EXPECTEDFAIL", "SKIP") | not) | .name as $n |
        ((.stdout // "") + "\n" + (.stderr // "") | split("\n") | map(select(. != ""))) as $all |
        [$all[] | select(test("^(WRONG:|    stderr: |\\[  ERROR|.*(ERROR: |runtime error:|WARNING: ThreadSanitizer))"))] |
        (if length > 0 then .[:40] else $all[-10:] end)[] | "\($l): \($n)\t\(.)"' "$2" >>"$WRONG_LINES"
}

# build_for PHASE DIR [target...]: compile_dir, whose time is a line of its own in the summary.
build_for() {
    local t0 rc=0
    t0=$(now)
    compile_dir "${@:2}" || rc=$?
    printf '%s   %s: build\n' "$(since "$t0")" "$1" >>"$PHASE_TIMES"
    return $rc
}

# For clang, which meson does not put ccache in front of.
CLANG=clang-14
! command -v ccache >/dev/null || CLANG="ccache clang-14"

# The developer's loop: what the suites unit and abi need, and their tests but those of the suite slow.
phase_quick() {
    local names slow targets
    configure_dir build "${RELEASE[@]}" -Dtests=true || return 1
    mapfile -t names < <(suite_tests build false)
    mapfile -t slow < <(suite_tests build true)
    [ ${#names[@]} -gt 0 ] || return 1
    mapfile -t targets < <(targets_of build "${names[@]}")
    build_for quick build tessera "${targets[@]}" || return 1
    say "quick: ${#names[@]} tests of the suites unit and abi; left out as slow: ${slow[*]}"
    meson_tests build quick --suite unit --suite abi --no-suite slow --timeout-multiplier 4
}

# suite_tests DIR true|false: names of the tests of unit and abi that are, or are not, of the suite slow.
suite_tests() {
    meson introspect --tests "$1" | jq -r --argjson slow "$2" '.[] | [.suite[] | sub(".*:"; "")] as $of |
        select(any($of[]; . == "unit" or . == "abi") and any($of[]; . == "slow") == $slow) | .name'
}

# Tests of 15 s and more that go over many models, sizes, pages or verbs; one gate runs half of them in the release build, neighbours
# in this list together.
LONG=(e2e-experts e2e-doctor e2e-layers e2e-bench e2e-no-model e2e-memory e2e-templates e2e-hosts e2e-verified e2e-cuda-ranks
    e2e-compare-tasks gpu-check e2e-cuda e2e-compensate conformance-gptq-asymmetric e2e-pages e2e-export-mixes
    conformance-gptq-minimum e2e-inspect e2e-reference e2e-figures-profile awq-demo e2e-plan-job e2e-recurrent freeze e2e-scoring
    quantizers e2e-figures-sweep conformance-bad solver-peers e2e-tutorial e2e-plan-fleet
    e2e-serve experts-host-vault e2e-export-chat e2e-rotate conformance-solver e2e-families compensate e2e-imatrix models-simt
    e2e-isolate simt-fast-hooked batch-mutants e2e-packed compensate-ranks solver-relations e2e-outside cpu_one
    e2e-experts-compensate invariance e2e-figures-fleet models-vault e2e-resume-journal e2e-gptq e2e-figures-plugin)

# The same under ASan, of 14 s and more.
LONG_SANITIZED=(cpu_one joint serve_prompts solver-transfer simt-attention-31 cuda-nccl-models calibrate
    solver-exact simt-kernels cpu_linear cuda-host-kernels joint-relations simt-attention-33 planning cuda-nccl-token lines)

# resting NAME...: the half of them that this gate leaves out, by the seed; one a line.
resting() { printf '%s\n' "$@" | rotated $(($# / 2)); }

phase_release() {
    configure_dir build "${RELEASE[@]}" -Dtests=true && build_for release build || return 1
    result pass 0 "release: gcc build without warnings"
    local why
    why=$(sed -n 's/^Message: backend cuda is left out: //p' build/meson-logs/meson-log.txt | tail -n 1)
    if [ -n "$why" ]; then
        result skip 0 "release: CUDA code compiled by nvcc" "$why; its emulation is run"
    elif ! command -v cuobjdump >/dev/null || ! command -v nvdisasm >/dev/null; then
        # for the test cuda-sass, which is skipped without them
        tools/setup.sh disassembler || say "release: no disassembler, the test cuda-sass is skipped"
    fi
    local names=() there left_out=()
    mapfile -t names < <(meson introspect --tests build |
        jq -r '.[] | select([.suite[] | sub(".*:"; "")] | index("faults") | not) | .name' | sort -u)
    [ ${#names[@]} -gt 0 ] || return 1
    if [ -z "${TSR_TEST_ALL:-}" ]; then
        # of those that this build has
        mapfile -t there < <(printf '%s\n' "${LONG[@]}" | grep -Fxf <(printf '%s\n' "${names[@]}"))
        mapfile -t left_out < <(resting "${there[@]}")
        mapfile -t names < <(printf '%s\n' "${names[@]}" | grep -vFxf <(printf '%s\n' "${left_out[@]}"))
        say "release: ${#names[@]} tests; left out by the seed: ${left_out[*]}; --all: all"
    fi
    meson_tests build release --timeout-multiplier 4 "${names[@]}"
}

# Reports of sanitizers need lines and names of functions; the rest of what -g writes is a tenth of the build's time.
LINES='-Dc_args=-gline-tables-only'

# clang builds everything here too; the fuzz targets share these objects.
SANITIZE=(--buildtype=debugoptimized '-Db_sanitize=address,undefined' -Db_lundef=false
    "$LINES" -Dfuzz=true)
# sanitize_build PHASE
sanitize_build() {
    CC=$CLANG configure_dir "$GATE/asan" "${SANITIZE[@]}" && build_for "$1" "$GATE/asan"
}

phase_sanitize() {
    sanitize_build sanitize || return 1
    result pass 0 "sanitize: clang build without warnings"
    local names=() whole third few there left_out
    # tests of a part run whole but half of the longest, of whole models a third, of whole jobs a twentieth; the release build
    # runs all
    mapfile -t whole < <(asan_tests '(index("unit") or index("abi") or index("fuzz")) and (index("slow") | not)')
    mapfile -t third < <(asan_tests 'index("golden") or index("conformance") or index("slow")')
    mapfile -t few < <(asan_tests 'index("e2e")')
    [ ${#whole[@]} -gt 0 ] && [ ${#third[@]} -gt 0 ] && [ ${#few[@]} -gt 0 ] || return 1
    names=("${whole[@]}" "${third[@]}" "${few[@]}")
    if [ -z "${TSR_TEST_ALL:-}" ]; then
        mapfile -t there < <(printf '%s\n' "${LONG_SANITIZED[@]}" | grep -Fxf <(printf '%s\n' "${whole[@]}"))
        mapfile -t left_out < <(resting "${there[@]}")
        mapfile -t names < <(printf '%s\n' "${whole[@]}" | grep -vFxf <(printf '%s\n' "${left_out[@]}"); sampled 3 "${third[@]}"
            sampled 20 "${few[@]}")
        say "sanitize: left out by the seed: ${left_out[*]}"
    fi
    say "sanitize: ${#names[@]} of $((${#whole[@]} + ${#third[@]} + ${#few[@]})) tests; the release build runs all; --all: all"
    meson_tests "$GATE/asan" sanitize --timeout-multiplier 4 "${names[@]}"
}

# asan_tests FILTER: names of the tests whose suites are so.
asan_tests() {
    meson introspect --tests "$GATE/asan" |
        jq -r ".[] | select([.suite[] | sub(\".*:\"; \"\")] | $1) | .name" | sort -u
}

# Names of the tests that run code in threads; those of whole engines take a minute each under TSan, so one gate
# runs a third of them.
THREADED='^(base|batch-journal|comm|comm_auto|conformance-threads|cpu_gated|edge|nccl|nccl-device|nccl-hang|nccl-setup|nccl-wrong|serve|simulate-tp|transport)$'
THREADED_ENGINES=(compensate engine group invariance loader shares)

# targets_of DIR NAME...: what the named tests need, as ninja calls it.
targets_of() {
    local dir=$1
    shift
    jq -rn --arg root "$(readlink -f "$dir")/" \
        --slurpfile tests <(meson introspect --tests "$dir") \
        --slurpfile targets <(meson introspect --targets "$dir") '
        [$tests[0][] | select(.name | IN($ARGS.positional[])) | .depends[]] as $ids |
        $targets[0][] | select(.id | IN($ids[])) | .filename[] | ltrimstr($root)' --args "$@"
}

phase_threads() {
    local names targets engines
    CC=$CLANG configure_dir "$GATE/tsan" --buildtype=debugoptimized -Db_sanitize=thread \
        "$LINES" -Db_lundef=false || return 1
    ninja -C "$GATE/tsan" build.ninja >/dev/null || return 1 # else new targets are missing below
    mapfile -t names < <(meson introspect --tests "$GATE/tsan" |
        jq -r --arg re "$THREADED" '.[].name | select(test($re))')
    [ ${#names[@]} -gt 0 ] || return 1
    engines=("${THREADED_ENGINES[@]}")
    [ -n "${TSR_TEST_ALL:-}" ] || mapfile -t engines < <(printf '%s\n' "${engines[@]}" | rotated 2)
    say "threads: tests of engines: ${engines[*]}; --all: all"
    names+=("${engines[@]}")
    mapfile -t targets < <(targets_of "$GATE/tsan" "${names[@]}")
    build_for threads "$GATE/tsan" "${targets[@]}" || return 1
    meson_tests "$GATE/tsan" threads --timeout-multiplier 6 "${names[@]}"
}

phase_faults() {
    configure_dir build "${RELEASE[@]}" -Dtests=true && build_for faults build || return 1
    if [ -n "${TSR_TEST_ALL:-}" ]; then
        meson_tests build faults --suite faults --timeout-multiplier 0
    else
        meson_tests build faults --suite faults --timeout-multiplier 4
    fi
}
