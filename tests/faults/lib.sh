# shellcheck shell=bash
# tests/faults/lib.sh - what the fault sweeps share: the commands that are swept, the verdict on
# one run, the choice of samples.

set -euo pipefail
export LC_ALL=C
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # read by the scripts that source this
TESSERA=$(readlink -f "$1")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
ALL=${TSR_TEST_ALL:-0}
SEED=${TSR_TEST_SEED:-$((SRANDOM % 1000000))}
MODEL=$ROOT/tests/golden/models/stories260k

# Commands by name.  One thread, so that the n-th event is the same in every run.  Each writes its
# result to stdout or below the folder it runs in.
command_of() {
    case $1 in
    logits) echo "logits $MODEL --tokens 1,403,407 -o logits.safetensors --threads 1" ;;
    generate) echo "generate $MODEL --prompt Once --max-tokens 4 --greedy --json --threads 1" ;;
    convert) echo "convert $MODEL -o m.tsr --to prepacked --threads 1" ;;
    mapped)
        [ -e "$WORK/m.tsr" ] || "$TESSERA" convert "$MODEL" -o "$WORK/m.tsr" --to prepacked >&2
        echo "logits $WORK/m.tsr --tokens 1,403,407 -o logits.safetensors --threads 1"
        ;;
    tokenize) echo "tokenize $MODEL --jsonl" ;;
    inspect) echo "inspect $(dirname "$TESSERA")/plugins/awq.so --probe --json --threads 1" ;;
    model) echo "inspect $MODEL --json --threads 1" ;;
    check) echo "config check $ROOT/configs/quickstart.yaml" ;;
    new) echo "plugin new solver mine" ;;
    run) echo "run $ROOT/tests/faults/job.yaml --out out --threads 1" ;;
    cluster) echo "run $ROOT/tests/faults/cluster/job.yaml --out out --threads 1 --json" ;;
    compare) echo "run $ROOT/tests/faults/ab.yaml --out out --threads 1" ;;
    *) echo "no such command: $1" >&2; return 1 ;;
    esac
}
input_of() {
    if [ "$1" = tokenize ]; then
        printf '%s\n' '{"text": "Once upon a time", "special": true}' '{"ids": [1, 403]}'
    fi
}

# What a run left, apart from times: stdout and the files that must be whole.  A job's results
# hold seconds and dates, so of those files only that they are JSON counts.
# result_of FOLDER: prints a digest.
result_of() {
    local f
    (
        cd "$1"
        case $2 in
        run | compare)
            for f in out/manifest.json out/results.json; do
                jq -e 'type == "object"' "$f" >/dev/null 2>&1 && echo "$f whole"
            done
            find out -name '*.part' -o -name '.*.lock' | sed 's/^/left: /'
            jq -S '.. | objects | .perplexity? // empty' out/results.json 2>/dev/null || true
            ;;
        cluster)
            jq -c '.response.body.choices' out/answers.jsonl 2>/dev/null || true
            find out -name '*.part' -o -name '.*.lock' | sed 's/^/left: /'
            ;;
        new)
            cat stdout
            cat mine/*
            ;;
        convert)
            cat stdout
            [ ! -e m.tsr ] || sha256sum <m.tsr
            find . -name '*.part' -o -name '.*.lock' | sed 's/^/left: /'
            ;;
        *)
            cat stdout
            [ ! -e logits.safetensors ] || sha256sum <logits.safetensors
            ;;
        esac
    )
}

# samples COUNT HOW_MANY: that many of 1..COUNT, all if TSR_TEST_ALL or if there are fewer; the
# first ten always.
samples() {
    awk -v n="$1" -v want="$2" -v seed="$SEED" -v all="$ALL" 'BEGIN {
        srand(seed)
        if (all || want >= n) { for (i = 1; i <= n; i++) print i; exit }
        for (i = 1; i <= 10; i++) pick[i] = 1
        for (k = 10; k < want; ) { i = 1 + int(rand() * n); if (!(i in pick)) { pick[i] = 1; k++ } }
        for (i = 1; i <= n; i++) if (i in pick) print i
    }'
}

# verdict FOLDER COMMAND RC CLEAN CODES: says what is wrong with a run that met a fault, or
# nothing.  0 only with the clean result; else one of CODES with one sentence on stderr.
verdict() {
    local dir=$1 name=$2 rc=$3 clean=$4 lines workers
    case " $5 " in
    *" $rc "*)
        lines=$(grep -cE '^(tessera: error: |[{]"format":"tessera.error/1")' "$dir/stderr" || true)
        # a worker that ends says why, and so does the one that takes its place; where no memory is
        # left for the event, its text is printed instead
        workers=$(grep -cE '^([{]"format":"tessera.event/1",.*"then":"restart"|tessera: warning: the worker .*; another one goes on$)' "$dir/stderr" || true)
        [ "$lines" = $((1 + workers)) ] || echo "exit $rc with $lines sentences on stderr of 1 + $workers workers"
        if [ "$name" = new ]; then # whole (it was stdout that failed) or not at all
            find "$dir" -mindepth 1 -maxdepth 1 ! -name stdout ! -name stderr ! -name mine \
                -printf "exit $rc, left: %f\n"
            [ ! -e "$dir/mine" ] || [ "$(cat "$dir"/mine/*)" = "$(grep -v '^mine/' <<<"$clean")" ] ||
                echo "exit $rc with a folder that is not whole"
        fi
        if [ "$name" = convert ]; then # likewise
            find "$dir" -name '.m.tsr.*' -printf "exit $rc, left: %f\n"
            [ ! -e "$dir/m.tsr" ] || grep -qxF "$(sha256sum <"$dir/m.tsr")" <<<"$clean" ||
                echo "exit $rc with a file that is not whole"
        fi
        if grep -q 'bug' "$dir/stderr"; then echo "exit $rc: $(tail -n 1 "$dir/stderr")"; fi
        return
        ;;
    esac
    case $rc in
    # the system's loader could not map a plugin, and did not always tell it why
    2) grep -qE '^(tessera: error: .*\.so: |[{]"format":"tessera.error/1".*"object":"[^"]*\.so")' "$dir/stderr" ||
        echo "exit 2: $(tail -n 1 "$dir/stderr" | cut -c 1-200)" ;;
    0) [ "$(result_of "$dir" "$name")" = "$clean" ] || echo "exit 0 with another result" ;;
    124 | 137) echo "hangs" ;;
    *) echo "exit $rc: $(tail -n 1 "$dir/stderr" | cut -c 1-200)" ;;
    esac
}

# event FILTER: an event in ./err, from a run with --json, is so; events FILTER: how many are.
events() { { grep -a '^{"format":"tessera.event/1"' err || true; } | jq -s "map(.event | select($1)) | length"; }
event() { [ "$(events "$1")" -gt 0 ]; }
# failure FILTER [FILE]: an error in ./err, or this file, is so.
failure() { grep -a '^{"format":"tessera.error/1"' "${2:-err}" | jq -s -e "any(.[].error; $1)" >/dev/null; }

# summary NAME RUNS CODES_FILE BAD_FILE
summary() {
    echo "$1: $2 runs, exit codes: $(sort "$3" | uniq -c | awk '{ printf "%s%s x%s", s, $2, $1; s = ", " }')"
    if [ -s "$4" ]; then
        head -n 20 "$4"
        echo "$1: $(wc -l <"$4") of $2 runs are wrong"
        return 1
    fi
}
