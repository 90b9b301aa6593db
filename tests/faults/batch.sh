#!/bin/bash
# tests/faults/batch.sh TESSERA PART SAMPLES [GARBLE|FATAL.so|HALT.so] - a batch of 500 records that is killed, stopped, frozen, run
# twice at a time, on a disk that fills up, with system calls that fail: always the bytes of the clean
# run in the end, or an exit that is safe to run again.
#   kill group signal giveup freeze two full errno die ranks garbage soak power
# soak takes thousands of records, power cuts of the power (as root: it mounts a disk of its own; not in the gate).
# The campaign is the parts `kill` and `group` with many samples: tests/faults/batch.sh build/tessera kill 10000
# TSR_TEST_ALL=1 fails every call of `errno` and `die`; TSR_FAULTS="openat:EMFILE ..." only these.
# shellcheck source=tests/faults/lib.sh
. "$(dirname "$0")/lib.sh"
PART=$2
SAMPLES=$3
GARBLE=$(readlink -f "${4:-$(dirname "$TESSERA")/tests/faults/garble}") # for the part `garbage`
FATAL=$(readlink -f "${4:-$(dirname "$TESSERA")/tests/fixtures/fatal.so}") # for the part `giveup`
HALT=$(readlink -f "${4:-$(dirname "$TESSERA")/tests/e2e/halt.so}") # for `signal`, `freeze` and `two`
RECORDS=500
RANDOM=$((SEED % 32768))
echo "seed $SEED"
case $PART in errno | die | giveup) RECORDS=24 ;; group) RECORDS=60 MODEL=$ROOT/configs/demo ;; soak) RECORDS=$((SAMPLES * 1000)) ;; ranks | garbage) RECORDS=24 MODEL=$ROOT/configs/demo ;; esac
# Parts that must catch ranks at work want a job of 2 s, not of 0.2 s: a shell that polls it may
# not run for that long on a busy machine.
MORE=0
case $PART in ranks | garbage) MORE=32 ;; errno | die | power) MORE=24 ;; esac # the last: for syncs during the work

cd "$WORK"
printf 'version: 1\nmodel: "%s"\nseed: 5\n' "$MODEL" >job.yaml
[ "$PART" != giveup ] || echo 'backend: fatal' >>job.yaml
for ((i = 0; i < RECORDS; i++)); do
    prompt="\"Once upon a time $i\""
    [ "$PART" != giveup ] || prompt='[1,502,502,502,502]' # KILLED of FATAL.so
    body='{"prompt":'$prompt',"max_tokens":'$((MORE + 2 + i % 5 * 2))'}'
    [ $((i % 41)) != 40 ] || body='{"prompt":7}'
    printf '{"custom_id":"%d","url":"/v1/completions","body":%s}\n' "$i" "$body"
done >in.jsonl
batch() { "$TESSERA" batch job.yaml -i in.jsonl -o "$1" -q --json --threads 1 "${@:2}"; }
[ "$PART" = giveup ] || batch clean.jsonl >/dev/null

more=() # options of all runs of a job; the same for each, or its folder is another job's
bad=0
wrong() {
    bad=$((bad + 1))
    echo "WRONG: $*"
    [ ! -s err ] || tail -n 3 err | sed 's/^/    /'
}
# whole NAME: the output is that of the clean run.
whole() { cmp -s out.jsonl clean.jsonl || wrong "$1: the output differs"; }
# published NAME: a file under the final name is whole at any moment.
published() { [ ! -e out.jsonl ] || cmp -s out.jsonl clean.jsonl || wrong "$1: an output that is not whole"; }
# complete NAME: the same command goes on, to the end.
complete() {
    local rc=0
    timeout -s KILL 600 "$TESSERA" batch job.yaml -i in.jsonl -o out.jsonl -q --json --threads 1 "${more[@]}" >/dev/null 2>err || rc=$?
    [ $rc = 0 ] || wrong "$1: exit $rc in the end"
    whole "$1"
}
start() {
    "$TESSERA" batch job.yaml -i in.jsonl -o out.jsonl -q --json --threads 1 "${more[@]}" >said 2>err &
    pid=$!
}
worker() { awk '{ print $1 }' "/proc/$pid/task/$pid/children" 2>/dev/null; }
anew() { rm -rf out.jsonl out.jsonl.job; }
# caught BYTES: begins anew, and returns when the worker has begun with records
# and written so much.  On a machine so busy that the job was over before: once more.
caught() {
    local i
    for ((i = 0; i < 20; i++)); do
        anew
        start
        while kill -0 "$pid" 2>/dev/null; do
            [ "$(stat -c %s out.jsonl.job/journal 2>/dev/null || echo 0)" -gt "$1" ] && w=$(worker) &&
                [ -n "$w" ] && return 0
            sleep 0.01
        done
        wait "$pid" || true
    done
    wrong "the worker was not seen at work"
    exit 1
}
# left: how many records of the job have no line yet.
left() {
    local lines
    lines=$("$TESSERA" journal show out.jsonl --json 2>/dev/null | jq .lines 2>/dev/null) || true
    echo $((RECORDS - ${lines:-0}))
}
# held BYTES: caught, and now the worker and its ranks, $w and ${ranks[@]}, stand still with half of the
# records before them.  Where the machine let them go on until too few were left: once more.
held() {
    local i p
    for ((i = 0; i < 20; i++)); do
        caught "$1"
        kill -STOP "$w" 2>/dev/null || true
        ranks=()
        read -ra ranks <"/proc/$w/task/$w/children" 2>/dev/null || true # a line without an end
        [ ${#ranks[@]} = 0 ] || kill -STOP "${ranks[@]}" 2>/dev/null || true
        for p in "$w" "${ranks[@]}"; do
            while [[ "$(sed 's/.*) \(.\).*/\1/' "/proc/$p/stat" 2>/dev/null)" = [RSD] ]]; do sleep 0.002; done
        done
        [ "$(worker)" != "$w" ] || [ "$(left)" -lt $((RECORDS / 2)) ] || return 0
        kill -CONT "${ranks[@]}" "$w" 2>/dev/null || true
        wait "$pid" || true
    done
    wrong "the worker was not stopped at work"
    exit 1
}
# stands BYTES: begins anew; the worker, $w, stops itself after the write by which its journal has so much.
stands() {
    local i
    anew
    rm -f halted
    LD_PRELOAD=$HALT TSR_HALT=$1,self TSR_HALT_ONCE=$WORK/halted start
    for ((i = 0; i < 6000; i++)); do
        [ ! -s halted ] || { w=$(cat halted) && [[ "$(sed 's/.*) \(.\).*/\1/' "/proc/$w/stat")" = T ]] && return 0; }
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.02
    done
    wrong "the worker does not stand still at work"
    exit 1
}
nap() { sleep "0.$(printf %03d $((RANDOM % $1)))"; }

part_kill() { # the worker, the supervisor, or both, at any moment
    local kills=0 jobs=0 rc
    while [ $kills -lt "$SAMPLES" ]; do
        anew
        jobs=$((jobs + 1))
        more=(--set run.slots=$((1 + 7 * (jobs % 2)))) # one record alone, or eight at a time
        while [ $kills -lt "$SAMPLES" ]; do
            start
            while :; do
                nap 350
                w=$(worker) || true
                [ -n "$w" ] || { kill -0 "$pid" 2>/dev/null || break; continue; }
                published "kill $kills"
                kills=$((kills + 1))
                [ $((kills % 500)) != 0 ] || echo "$kills kills over $jobs jobs so far"
                case $((RANDOM % 3)) in
                0) kill -9 "$pid" 2>/dev/null || true; break ;;
                1) kill -9 "$w" "$pid" 2>/dev/null || true; break ;;
                *) kill -9 "$w" 2>/dev/null || true ;;
                esac
                [ $kills -lt "$SAMPLES" ] || break
            done
            kill -9 "$pid" 2>/dev/null || true
            rc=0
            wait "$pid" 2>/dev/null || rc=$?
            case $rc in 0 | 75 | 137) ;; *) wrong "kill $kills: exit $rc" ;; esac
            if [ -e out.jsonl ] || [ $bad != 0 ]; then break; fi
        done
        complete "after $kills kills"
        [ $bad = 0 ] || break
    done
    echo "$kills kills over $jobs jobs of $RECORDS records"
}

# split_plan TP STAGES: of the demo's six layers.
split_plan() {
    local stage
    cat <<PLAN
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 12, batch: 8, chunk: 8, kv: f32}
micro_batches: {prefill: 2, decode: 4}
quality: {source: prior}
objective: steady
accounting: exact
stages:
PLAN
    for stage in $([ "$2" = 1 ] && echo 0-5 || echo 0-2 3-5); do
        echo "  - {layers: $stage, node: here, device: this-machine, tp: $1, schemes: [{layers: $stage, use: rtn, bits: 4, group: 32}]}"
    done
}
answers() { jq -c '[.custom_id, .response.body.choices, .error]' "$1"; }
# ours PROCESS: it is there, and of this job.
ours() { { tr '\0' ' ' <"/proc/$1/cmdline" | grep -qF -- " -o out.jsonl "; } 2>/dev/null; }

part_group() { # any processes of a plan whose ranks are processes: two in a stage, two stages, both
    local kills=0 jobs=0 rc kind p i seen victims ranks
    local kinds=(2-1 1-2 2-2)
    rm -r clean.jsonl*
    for kind in 1-1 "${kinds[@]}"; do
        split_plan "${kind%-*}" "${kind#*-}" >"plan-$kind.yaml"
        batch "clean-$kind.jsonl" --set run.plan="plan-$kind.yaml" >/dev/null
        answers "clean-$kind.jsonl" | cmp -s - <(answers clean-1-1.jsonl) || wrong "plan $kind answers otherwise than one rank"
    done
    while [ $kills -lt "$SAMPLES" ]; do
        kind=${kinds[RANDOM % 3]}
        anew
        jobs=$((jobs + 1))
        cp "clean-$kind.jsonl" clean.jsonl
        more=(--set run.plan="plan-$kind.yaml" --set run.stall=600) # nobody is taken for frozen
        seen=()
        while [ $kills -lt "$SAMPLES" ]; do
            start
            while :; do
                nap 400
                w=$(worker) || true
                [ -n "$w" ] || { kill -0 "$pid" 2>/dev/null || break; continue; }
                ranks=()
                read -ra ranks 2>/dev/null <"/proc/$w/task/$w/children" || true # a line without an end
                seen+=("$w" "${ranks[@]}")
                published "kill $kills"
                kills=$((kills + 1))
                [ $((kills % 100)) != 0 ] || echo "$kills kills over $jobs jobs so far"
                victims=()
                for p in "${ranks[@]}" "$w" "$pid"; do [ $((RANDOM % 3)) != 0 ] || victims+=("$p"); done
                [ ${#victims[@]} -gt 0 ] || victims=("${ranks[RANDOM % (${#ranks[@]} + 1)]:-$w}")
                kill -9 "${victims[@]}" 2>/dev/null || true
                [[ " ${victims[*]} " != *" $pid "* ]] || break
                [ $kills -lt "$SAMPLES" ] || break
            done
            kill -9 "$pid" 2>/dev/null || true
            rc=0
            wait "$pid" 2>/dev/null || rc=$?
            case $rc in 0 | 75 | 137) ;; *) wrong "kill $kills of plan $kind: exit $rc" ;; esac
            for p in "${seen[@]}"; do
                for ((i = 0; i < 1000; i++)); do ours "$p" || break; sleep 0.02; done
                [ $i -lt 1000 ] || wrong "kill $kills of plan $kind: process $p is still there"
            done
            seen=()
            if [ -e out.jsonl ] || [ $bad != 0 ]; then break; fi
        done
        complete "after $kills kills, plan $kind"
        [ $bad = 0 ] || break
    done
    echo "$kills kills over $jobs jobs of $RECORDS records, by two to four ranks"
}

part_signal() { # a clean stop and the way on
    local s rc i signals=(TERM INT USR1 HUP)
    # where this runs with SIGHUP ignored, so does what it starts
    [[ "$(awk '/^SigIgn/ { print $2 }' /proc/self/status)" != *[13579bdf] ]] || signals=(TERM INT USR1)
    for s in "${signals[@]}"; do
        stands $((RANDOM % 40000))
        kill -"$s" "$pid"
        [ "$s" != HUP ] || kill -HUP "$pid" || true # a terminal and its shell both say so
        rc=0
        wait "$pid" || rc=$?
        [ $rc = 75 ] || wrong "SIG$s: exit $rc instead of 75"
        failure '.status == "cancelled" and .exit_code == 75' || wrong "SIG$s: no error says that it was interrupted"
        published "SIG$s"
    done
    complete "after signals"
    trap '' HUP # nohup
    stands $((RANDOM % 40000))
    trap - HUP
    kill -HUP "$pid" "$w"
    kill -CONT "$w"
    wait "$pid" || wrong "SIGHUP under nohup: exit $? instead of 0"
    whole "SIGHUP under nohup"
    mkdir bin # a child that dies of being asked to stop
    cat >bin/mpirun <<'MPIRUN'
#!/bin/bash
trap 'kill -9 $$' TERM
: >begun
while :; do sleep 0.05; done
MPIRUN
    chmod +x bin/mpirun
    anew
    PATH=$PWD/bin:$PATH "$TESSERA" batch job.yaml -i in.jsonl -o out.jsonl -q --json --mpirun "-n 2" >said 2>err &
    pid=$!
    for ((i = 0; i < 3000; i++)); do [ ! -e begun ] || break; sleep 0.02; done
    kill "$pid"
    rc=0
    wait "$pid" || rc=$?
    [ $rc = 75 ] || wrong "a worker that dies of SIGTERM: exit $rc instead of 75"
    event '.kind == "worker-ended" and .signal == 9 and .then == "stop"' || wrong "a worker that dies of SIGTERM: $(tail -n 1 err)"
    ! event '.then == "give-up"' || wrong "a worker that dies of SIGTERM is said to have come to nothing"
}

part_giveup() { # workers that come to nothing, one behind the other: 75, and the way on
    local rc=0
    more=(--plugin-path "$FATAL")
    TSR_TEST_HARMLESS=1 batch clean.jsonl "${more[@]}" >/dev/null
    start # each dies of the first prompt as if somebody had killed it
    wait "$pid" || rc=$?
    published "workers that come to nothing"
    [ $rc = 75 ] || wrong "workers that come to nothing: exit $rc instead of 75"
    [ "$(left)" = $RECORDS ] || wrong "workers that come to nothing: $(left) of $RECORDS records are left"
    event '.kind == "worker-ended" and .then == "give-up"' || wrong "does not say that it gives up"
    [ "$(events '.then == "restart"')" = 5 ] || wrong "$(events '.then == "restart"') restarts instead of 5"
    TSR_TEST_HARMLESS=1 complete "after workers that came to nothing"
}

part_freeze() { # a worker that stands still is replaced; how soon is a matter of benchmarks
    more=(--set run.stall=1)
    stands $((3000 + RANDOM % 40000))
    wait "$pid" || wrong "the supervisor does not go on behind a frozen worker"
    event ".kind == \"worker-stalled\" and .process == $w" || wrong "the frozen worker is not named"
    whole "frozen"
    local all
    all=$(jq -s 'map(.response.body.usage.completion_tokens // 0) | add' clean.jsonl)
    jq -e --argjson all "$all" 'first(.. | objects | select(has("journal_s"))) | .tokens == $all and
        .seconds > .journal_s' said >/dev/null || wrong "both workers together: not $all tokens but $(jq -c . said)"
}

plan_of_four() { # two stages of two ranks, which are processes
    cat >plan.yaml <<'PLAN'
format: tessera.plan/1
layers: 6
workload: {prompt: 16, generate: 56, batch: 8, chunk: 8, kv: f32}
micro_batches: {prefill: 2, decode: 4}
quality: {source: prior}
objective: steady
accounting: exact
stages:
  - {layers: 0-2, node: here, device: this-machine, tp: 2, schemes: [{layers: 0-2, use: rtn, bits: 4, group: 32}]}
  - {layers: 3-5, node: here, device: this-machine, tp: 2, schemes: [{layers: 3-5, use: rtn, bits: 4, group: 32}]}
PLAN
    more=(--set run.plan=plan.yaml --set run.stall=600) # nobody is taken for frozen
    rm -r clean.jsonl*
    batch clean.jsonl "${more[@]}" >/dev/null
}

# whose N: one of the three ranks that are processes beside the worker.
whose() {
    [ ${#ranks[@]} = 3 ] || { wrong "${#ranks[@]} processes of ranks beside the worker instead of 3"; exit 1; }
    hit=${ranks[$1]}
}
# goes_on_without PROCESS: all that were held but that one.
goes_on_without() {
    local p
    for p in "${ranks[@]}" "$w"; do
        [ "$p" = "$1" ] || kill -CONT "$p" || wrong "process $p has ended while it was held"
    done
}

# no_sockets: no process of the job has a socket, but for those that this shell was given: nobody listens.
no_sockets() {
    local p at
    for p in "$pid" "$w" "${ranks[@]}"; do
        [ -n "$(ls "/proc/$p/fd")" ] || wrong "process $p shows no files"
        for at in "/proc/$p/fd/"*; do
            at=$(readlink "$at") || continue
            [[ $at != socket:* ]] || [[ " $(readlink /proc/$$/fd/* | tr '\n' ' ') " = *" $at "* ]] ||
                wrong "process $p has a socket: $at"
        done
    done
}

part_ranks() { # a rank is killed, or stands still; it is named, and all begin anew
    local i how hit
    plan_of_four
    # rank 0 waits for rank 1 in a sum, and would for twice the stall, when that is killed
    held 0
    no_sockets
    whose 2
    goes_on_without "$hit"
    sleep 0.3
    kill -KILL "$hit"
    wait "$pid" || wrong "a rank that others wait for: the supervisor does not go on"
    event ".kind == \"rank-failed\" and .rank == 1 and .process == $hit" || wrong "the rank that others wait for is not named"
    whole "a rank that others wait for"
    for how in KILL STOP; do
        [ $how = KILL ] || more=(--set run.plan=plan.yaml)
        for ((i = 0; i < SAMPLES; i++)); do
            held 0
            whose $((RANDOM % 3))
            [ $how = STOP ] || kill -$how "$hit"
            goes_on_without "$hit"
            wait "$pid" || wrong "SIG$how of a rank: the supervisor does not go on"
            event ".kind == \"rank-failed\" and .rank >= 1 and .rank <= 3 and .process == $hit" || wrong "SIG$how: the rank of process $hit is not named"
            event '.then == "restart"' || wrong "SIG$how: nobody says that another one goes on"
            whole "SIG$how of a rank"
        done
    done
}

part_garbage() { # wrong frames between ranks at work: refused, and all begin anew
    local kind seed i try rc runs=0
    local kinds=(noise magic sum length epoch again payload words)
    plan_of_four
    for ((i = 0; i < (ALL == 1 ? ${#kinds[@]} * SAMPLES : SAMPLES); i++)); do
        kind=${kinds[(SEED + i) % ${#kinds[@]}]}
        for ((try = 0; try < 20; try++)); do # until one is met: a message may lie over it before it is read
            held 0
            seed=$((RANDOM * 32768 + RANDOM))
            rc=0
            "$GARBLE" "$w" $seed "$kind" >garbled || rc=$?
            [ $rc != 2 ] || wrong "seed $seed: garble cannot"
            kill -CONT "${ranks[@]}" "$w" 2>/dev/null || true
            rc=0
            wait "$pid" || rc=$?
            published "$kind, seed $seed"
            case $rc in 0 | 4 | 6 | 75) ;; *) wrong "$kind, seed $seed: exit $rc; $(cat garbled)" ;; esac
            # what is refused is an error of the ranks that wait, none of which has died
            ! failure '.status == "device" and (.message | test("rank [0-3]"))' || event '.kind == "rank-failed"' || break
        done
        [ $try -lt 20 ] || wrong "$kind, seed $seed: never met"
        complete "$kind, seed $seed"
        runs=$((runs + 1))
        echo "seed $seed, $(cat garbled)"
    done
    echo "$runs wrong frames"
}

part_two() { # two at a time: one of them works
    local rc=0
    more=(--set run.stall=600) # it is not replaced meanwhile
    stands 0
    batch out.jsonl "${more[@]}" >/dev/null 2>err2 || rc=$?
    kill -CONT "$w"
    [ $rc = 2 ] || wrong "a second run: exit $rc instead of 2"
    failure '.status == "input" and (.object | test("/out[.]jsonl([.]job)?$"))' err2 || wrong "a second run: $(tail -n 1 err2)"
    wait "$pid" || wrong "the first run fails"
    whole "two runs"
}

# room PROCESS: KiB of its own memory, how many files it has open.
room() { echo "$(awk '/^RssAnon/ { print $2 }' "/proc/$1/status" 2>/dev/null)" "$(find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l)"; }

part_soak() { # at three quarters of a long job its worker has the memory and the files of its first tenth
    local all first last try
    all=$(stat -c %s clean.jsonl.job/journal)
    for ((try = 0; try < 20; try++)); do # a machine may leave this shell no time
        caught $((all / 10))
        first=$(room "$w")
        while kill -0 "$pid" 2>/dev/null && [ "$(stat -c %s out.jsonl.job/journal)" -lt $((all * 3 / 4)) ]; do sleep 0.05; done
        last=$(room "$w")
        wait "$pid" || wrong "a long job: exit $?"
        whole "a long job"
        [ "${last% *}" = "" ] || break
    done
    echo "$RECORDS records: KiB and files ${first% *} ${first#* }, later ${last% *} ${last#* }"
    [ "${last#* }" = "${first#* }" ] || wrong "files stay open"
    [ $((100 * ${last% *})) -le $((101 * ${first% *})) ] || wrong "memory grows"
}

# off: unmounts mnt, which processes that are being killed still hold.
off() {
    local i
    for ((i = 0; i < 200; i++)); do
        ! umount mnt 2>/dev/null || return 0
        sleep 0.05
    done
    umount mnt
}

part_power() { # the disk at any moment, as it is without what was not written: the job goes on from there
    local n rc p i ended done=0 kept=0 lines
    mkdir mnt
    truncate -s 24M disk.img
    mkfs.ext4 -q -F disk.img
    mount -o loop,commit=300 disk.img mnt 2>/dev/null || { echo "skipped: no disk can be mounted here"; exit 77; }
    trap 'umount -q mnt; rm -rf "$WORK"' EXIT
    for ((n = 0; n < SAMPLES && bad == 0; n++)); do
        rm -rf mnt/out*
        more=(--set run.slots=$((1 + 7 * (n % 2))))
        "$TESSERA" batch job.yaml -i in.jsonl -o mnt/out.jsonl -q --threads 1 "${more[@]}" >/dev/null 2>err &
        pid=$!
        ended=0
        if [ $((RANDOM % 4)) = 0 ]; then # right behind the end, which has been said
            wait "$pid" || wrong "cut $n: exit $? before it"
            ended=1
            done=$((done + 1))
        else
            nap 999
        fi
        w=$(worker) || true
        # stopped, and no commit by the clock: what is copied is the disk at one moment
        kill -STOP "$pid" ${w:+"$w"} 2>/dev/null || true
        for p in "$pid" ${w:+"$w"}; do
            while [[ "$(sed 's/.*) \(.\).*/\1/' "/proc/$p/stat" 2>/dev/null)" = [RSD] ]]; do sleep 0.002; done
        done
        for ((i = 0; i < 1000; i++)); do # the kernel writes by itself, too
            cat disk.img >"cut.$n" # another file each time: a loop device may keep what the last one held
            ! cmp -s disk.img "cut.$n" || break
        done
        [ $i -lt 1000 ] || wrong "cut $n: the disk does not stand still"
        kill -9 "$pid" ${w:+"$w"} 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        off
        mount -o loop "cut.$n" mnt
        lines=$("$TESSERA" journal show mnt/out.jsonl --json 2>/dev/null | jq .lines) || true
        kept=$((kept + ${lines:-0}))
        [ $ended = 0 ] || [ -e mnt/out.jsonl ] || wrong "cut $n: an output that was there is gone"
        [ ! -e mnt/out.jsonl ] || cmp -s mnt/out.jsonl clean.jsonl || wrong "cut $n: an output that is not whole"
        rc=0
        "$TESSERA" batch job.yaml -i in.jsonl -o mnt/out.jsonl -q --threads 1 "${more[@]}" >/dev/null 2>err || rc=$?
        [ $rc = 0 ] || wrong "cut $n: exit $rc behind it"
        cmp -s mnt/out.jsonl clean.jsonl || wrong "cut $n: the output differs"
        off
        rm "cut.$n"
        mount -o loop,commit=300 disk.img mnt
    done
    [ $kept -gt 0 ] || wrong "no line was ever on the disk"
    echo "$n cuts of the power, $done of them behind the end, $kept lines were on the disk"
}

part_full() { # no room: exit 4, and room later
    local rc kib n=0 step
    step=$(($(stat -c %s clean.jsonl) / 1024 / SAMPLES + 1))
    for ((kib = RANDOM % step; n < SAMPLES; kib += step, n++)); do
        anew
        rc=0
        (ulimit -f "$kib"; batch out.jsonl >/dev/null 2>err) || rc=$?
        published "$kib KiB"
        [ $rc = 4 ] || [ $rc = 0 ] || wrong "$kib KiB of room: exit $rc"
        complete "after $kib KiB"
    done
}

tracing() {
    if ! strace -f -qq -o /dev/null -e trace=write true 2>/dev/null; then
        echo "skipped: strace is not here or cannot trace"
        exit 77
    fi
}
# numbers CALL: which of its calls are hit: about SAMPLES of those in a clean run, or all.
numbers() {
    awk -v n="$(grep -c " $1(" trace || true)" -v want="$SAMPLES" -v seed="$((SEED + ${#1}))" -v all="$ALL" \
        'BEGIN { srand(seed); for (i = 1; i <= n; i++) if (all || rand() * n < want) print i }' >numbers
}
trace_clean() {
    anew
    strace -f -qq -o trace -e trace=openat,read,pread64,write,pwrite64,fdatasync,fsync,rename,ftruncate,close,mkdir,newfstatat,getdents64,readlink \
        "$TESSERA" batch job.yaml -i in.jsonl -o out.jsonl -q --threads 1 >/dev/null 2>err
    whole "under strace"
}

part_errno() { # each call fails once
    local fault faults call n rc runs=0
    tracing
    trace_clean
    read -ra faults <<<"newfstatat:EIO read:EIO getdents64:EIO readlink:EIO"
    [ "$ALL" = 1 ] || faults=("${faults[RANDOM % 4]}") # of reads, which change no file, one kind each time
    faults+=(pwrite64:ENOSPC pwrite64:EIO fdatasync:EIO fsync:EIO rename:EIO ftruncate:EIO openat:EMFILE pread64:EIO
        close:EIO mkdir:ENOSPC)
    for fault in ${TSR_FAULTS:-"${faults[@]}"}; do
        call=${fault%:*}
        numbers "$call"
        while read -r n <&3; do
            anew
            rc=0
            timeout -s KILL 300 strace -f -qq -o /dev/null -e trace="$call" -e inject="$call:error=${fault#*:}:when=$n" \
                "$TESSERA" batch job.yaml -i in.jsonl -o out.jsonl -q --threads 1 >/dev/null 2>err || rc=$?
            case $rc in
            0) whole "$fault at $n, exit 0" ;;
            1 | 2 | 4 | 75) published "$fault at $n" ;;
            127) ;; # the loader of the system
            *) wrong "$fault at $n: exit $rc" ;;
            esac
            complete "after $fault at $n"
            runs=$((runs + 1))
        done 3<numbers
        echo "$fault: $(wc -l <numbers) calls"
    done
    echo "$runs runs"
}

part_die() { # killed at each call of the durable path
    local call n rc
    tracing
    trace_clean
    for call in pwrite64 fdatasync rename ftruncate fsync; do
        numbers "$call"
        while read -r n <&3; do
            anew
            rc=0
            timeout -s KILL 300 strace -f -qq -o /dev/null -e trace="$call" -e inject="$call:signal=SIGKILL:when=$n" \
                "$TESSERA" batch job.yaml -i in.jsonl -o out.jsonl -q --threads 1 >/dev/null 2>err || rc=$?
            case $rc in 0 | 75 | 137) ;; *) wrong "SIGKILL at $call $n: exit $rc" ;; esac
            published "SIGKILL at $call $n"
            complete "after SIGKILL at $call $n"
        done 3<numbers
    done
}

"part_$PART"
[ $bad = 0 ]
