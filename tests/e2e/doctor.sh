#!/bin/bash
# tests/e2e/doctor.sh TESSERA [mpi ELSEWHERE.so LATER] - a fleet is looked over: this host, hosts that are not there, links, memory
# and models that are not as the file says, several ranks under mpirun, hosts that differ.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/lib.sh"

mkdir "$WORK/devices"
device() { # NAME MEMORY
    cat >"$WORK/devices/$1.yaml" <<DEVICE
format: tessera.device/1
name: $1
backend: cpu
memory: {total: $2, source: made up}
bandwidth: {peak: 10 GB/s, source: made up}
kernels:
  - {kernel: f32, ops: 100 GFLOP/s, prefill: {compute: 0.5, read: 0.8}, decode: {compute: 0.5, read: 0.8}, source: made up}
DEVICE
}
cluster() { # NAME DEVICE BANDWIDTH LATENCY
    printf 'version: 1\nnodes:\n  - {name: here, devices: [{profile: %s, count: 2}], link: {bandwidth: %s, latency: %s}}\n' \
        "$2" "$3" "$4" >"$WORK/$1.yaml"
}
device small "1 MiB"
device vast "1000 TB"
cluster slow small "1 MB/s" "5 s"
cluster fast small "1000 TB/s" "5 s"
cluster large vast "1 MB/s" "5 s"

run doctor slow.yaml --model @demo --json
ok "all is well: exit code 0, got $rc" test "$rc" = 0
ok "version, plugins, model, memory and both ways of a link" json '.bad == 0 and .ranks == 1 and
    ([.checks[].check] == ["version", "plugins", "model", "memory", "link"]) and
    all(.checks[]; .verdict == "ok")' "$WORK/out"
run doctor fast.yaml
ok "a link that is slower than the file says: exit code 1, got $rc" test "$rc" = 1
ok "it is named" grep -qE '^BAD +link .*wanted: 1000000000.0 MB/s' "$WORK/out"
ok "and no other" test "$(grep -c '^BAD' "$WORK/out")" = 1
run doctor large.yaml
ok "memory that is not there" grep -qE '^BAD +memory .* wanted: ' "$WORK/out"
run doctor slow.yaml --model /nowhere
ok "a model that is not there: exit code 1, got $rc" test "$rc" = 1
ok "with the reason" grep -qE '^BAD +model .*/nowhere' "$WORK/out"
run doctor t4x3-v100 --json
ok "a host without a process" json 'any(.checks[]; .check == "host" and .verdict == "BAD")' "$WORK/out"

printf 'version: 1\nmodel: "@demo"\ncluster: slow.yaml\npipeline:\n  - eval: {text: x.txt}\n' >"$WORK/job.yaml"
run doctor job.yaml --headers --json
ok "a job names cluster and model, got $rc" json '.cluster == "slow" and .bad == 0 and any(.checks[]; .check == "model")' "$WORK/out"
sed -i '/^cluster/d' "$WORK/job.yaml"
fails "a job without a cluster" 2 'job.yaml' doctor job.yaml
fails "a cluster that is not there" 2 'nowhere.yaml' doctor nowhere.yaml

if [ "${2:-}" = mpi ]; then
    mpi() { # RANKS ARGUMENT...
        local n=$1
        shift
        rc=0
        (cd "$WORK" && mpirun --allow-run-as-root --oversubscribe -n "$n" "$TESSERA" "$@") \
            >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    }
    mpi 3 doctor slow.yaml --model @demo --headers --json
    ok "three ranks under mpirun: exit code 0, got $rc" test "$rc" = 0
    ok "six links, one clock, one report" json '.ranks == 3 and .bad == 0 and
        ([.checks[] | select(.check == "link")] | length) == 6 and
        ([.checks[] | select(.check == "clock" and .verdict == "ok")] | length) == 1' "$WORK/out"
    mpi 2 doctor fast.yaml
    ok "a slow link under mpirun: not 0, got $rc" test "$rc" != 0
    ok "it is named there too" grep -qE '^BAD +link .*ranks 0 and 1' "$WORK/out"
    # the second process of the job never comes: MPI itself would wait for it
    rc=0
    (cd "$WORK" && mpirun --allow-run-as-root --oversubscribe -n 1 "$TESSERA" doctor slow.yaml --deadline 1.5 : -n 1 sleep 600) \
        >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    ok "a rank that does not come: exit code 6, got $rc" test "$rc" = 6
    ok "it is waited for as long as was said" grep -q "^tessera: error: rank 0 .*\b1\.5 s\b" "$WORK/err"
    mpi 2 profile --links --transport mpi --json
    ok "links of MPI ranks, got $rc" json '(.pairs | length) == 2 and all(.pairs[]; .mb_per_s > 0)' "$WORK/out"

    # Two hosts, first alike, then each time with one difference, which is found and nothing else is.
    SHIM=$(readlink -f "$3")
    BUILD=$(dirname "$TESSERA")
    printf 'version: 1\nnodes:\n' >"$WORK/two.yaml"
    for host in first second; do
        printf '  - {name: n-%s, host: %s, model_at: %s, devices: [{profile: small, count: 1}], link: {bandwidth: 1 MB/s, latency: 5 s}}\n' \
            $host $host "$WORK/$host" >>"$WORK/two.yaml"
        cp -r "$STORIES" "$WORK/$host"
    done
    echo 'network: {bandwidth: 1 MB/s, latency: 5 s}' >>"$WORK/two.yaml"
    hosts() { # TESSERA of the second host, SETTING...
        local there=$1
        shift
        rc=0
        (cd "$WORK" && mpirun --allow-run-as-root --oversubscribe \
            -n 1 env LD_PRELOAD="$SHIM" TSR_ELSEWHERE_HOST=first "$TESSERA" doctor two.yaml --model /nowhere --json : \
            -n 1 env LD_PRELOAD="$SHIM" TSR_ELSEWHERE_HOST=second "$@" "$there" doctor two.yaml --model /nowhere --json) \
            >"$WORK/out" 2>"$WORK/err" </dev/null || rc=$?
    }
    # bad CHECK: it is the one thing that is not as it should be, on the second host.
    bad() {
        ok "another $1: not 0, got $rc" test "$rc" != 0
        ok "another $1 is found: $(jq -c '[.checks[] | select(.verdict != "ok")]' "$WORK/out")" json --arg check "$1" '.bad == 1 and
            ([.checks[] | select(.verdict == "BAD") | [.check, .where]] == [[$check, "second"]])' "$WORK/out"
    }
    hosts "$TESSERA" TSR_NOTHING=1
    ok "two hosts that are alike: exit code 0, got $rc" test "$rc" = 0
    ok "all of both is looked at" json '.bad == 0 and .ranks == 2 and
        ([.checks[] | select(.where == "second") | .check] == ["version", "plugins", "model", "clock", "memory"])' "$WORK/out"
    hosts "$TESSERA" TSR_ELSEWHERE_CLOCK=3
    bad clock
    ok "how far it is ahead" json 'any(.checks[]; .check == "clock" and (.found | test("^\\+(29|30)[0-9]{2}[.]")))' "$WORK/out"
    hosts "$TESSERA" TSR_ELSEWHERE_KIB=512
    bad memory
    mkdir "$WORK/build" # a build of another version, with plugins of its own
    cp -r "$BUILD/plugins" "$WORK/build"
    rm -rf "$WORK/build/plugins"/*.p
    cp "$4" "$WORK/build/tessera"
    ok "the other build says its version" grep -q '0\.1\.7' <("$WORK/build/tessera" --version)
    hosts "$WORK/build/tessera"
    bad version
    cp "$TESSERA" "$WORK/build/tessera"
    hosts "$WORK/build/tessera"
    ok "a copy of the build is the same: exit code 0, got $rc" test "$rc" = 0
    byte() { # FILE PLACE: another byte there
        local old
        old=$(od -An -tu1 -j "$2" -N 1 "$1")
        # shellcheck disable=SC2059 # the format is the byte
        printf "$(printf '\\%o' $((old ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
    }
    plugin=$WORK/build/plugins/rtn.so # a letter of its licence
    byte "$plugin" "$(LC_ALL=C grep -abo 'Apache-2.0' "$plugin" | head -n 1 | cut -d : -f 1)"
    hosts "$WORK/build/tessera"
    bad plugins
    weights=$WORK/second/model.safetensors
    byte "$weights" $(($(stat -c %s "$weights") / 2))
    hosts "$TESSERA" TSR_NOTHING=1
    bad model
fi
finish
