#!/bin/bash
# tests/e2e/inspect.sh TESSERA - inspect tells all of every kind without running it; --probe asks the
# code and outlives what it does; --exists answers by exit code.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/lib.sh"
umask 022
BUILD=$(dirname "$TESSERA")

# ---- what the tables say --------------------------------------------------------
for so in "$BUILD"/plugins/*.so; do
    name=$(basename "$so" .so)
    licence=Apache-2.0
    [ "$name" != ilp ] || licence=GPL-3.0-or-later
    run inspect "$so" --json
    cp "$WORK/out" "$WORK/$name.json"
    ok "$name: every component has its facts" json '.components | length > 0 and all(
        (.kind | test("^(quantizer|codec|transport|solver|backend|sampler|step|kv)$")) and
        (.version | test("^[0-9]+\\.[0-9]+\\.[0-9]+$")) and (.abi | test("^1\\.[0-9]+$")) and
        (.needs_abi | test("^1\\.[0-9]+$")) and .license == "'$licence'" and
        (.hash | test("^xxh3:[0-9a-f]{32}$")) and (.build | length > 0) and
        (.promises | type == "array") and (.functions | type == "array") and
        all(.options[]; has("type") and has("default") and has("unit") and has("help")))' "$WORK/out"
    ok "$name: the libraries are those of the file" test \
        "$(readelf -d "$so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort)" = \
        "$(jq -r '.components[0].libraries[]' "$WORK/out" | sort)"
    run inspect "$so"
    for word in "^Plugin org\\.tessera\\.$name\$" "^  license +$licence\$" '^  hash +xxh3:' '^  libraries +' '^  options( +none)?$'; do
        ok "$name: the text has '$word'" grep -qE -- "$word" "$WORK/out"
    done
    run inspect "$so" --probe --json
    # a backend whose device is not here answers with that, and so does one whose option must be given
    ok "$name: its code answers" json '.components | length > 0 and all((.probe.error as $why | .probe != null and
        ($why == null or ($why | contains("there is no CUDA device")) or any(.options[] | select(.required);
            . as $o | $why | contains("option \u0027" + $o.name + "\u0027 must be given")))))' "$WORK/out"
    jq -r '.components[0].probe' "$WORK/out" >"$WORK/$name.probe"
done
ok "rtn promises the same bytes" json '.components[0] | .promises | index("deterministic")' "$WORK/rtn.json"
ok "rtn takes three types" json '.components[0].dtypes == ["F32", "F16", "BF16"]' "$WORK/rtn.json"
ok "uniform supports optional parts" json '.components[0].supports | length > 0' "$WORK/uniform.json"
ok "nccl states threads and static memory" json '.components[0].states == ["threads", "static memory"]' "$WORK/nccl.json"
ok "local states neither" json '.components[0].states == []' "$WORK/local.json"
ok "no need is told without asking" json '.components[0].probe == null' "$WORK/gptq.json"
ok "rtn needs nothing" json '.needs == [] and .packs_as != null and .bits_per_weight == 4.1875' "$WORK/rtn.probe"
ok "gptq needs a Hessian" json '.needs == ["hessian"]' "$WORK/gptq.probe"
ok "squeeze needs sensitivities" json '.needs + .needs_if_there | index("sensitivity") != null' "$WORK/squeeze.probe"
ok "awq looks at the block" json '.needs_of_block | index("inputs") != null' "$WORK/awq.probe"
ok "plain is exact by default" json '.exact == true and .wire_bytes == 4096' "$WORK/plain.probe"
ok "local shares memory" json '.shared_bytes["2"] > 0 and .shared_bytes["8"] > .shared_bytes["2"]' "$WORK/local.probe"
ok "cpu is reproducible" json '.deterministic == true and .memory_bytes > 0' "$WORK/cpu.probe"
run inspect gptq
ok "the text says how to ask for needs" grep -qE '^  needs +.*--probe' "$WORK/out"
run inspect gptq --probe
ok "the text tells the needs" grep -qE '^  needs +hessian$' "$WORK/out"

# ---- a model of which only config.json is there
mkdir "$WORK/alone"
cp "$STORIES/config.json" "$WORK/alone/"
for model in alone alone/config.json; do
    run inspect $model --json
    ok "$model: sizes and family, got $rc" json --slurpfile c "$STORIES/config.json" '.model | .config_alone and
        .family == "llama" and .hidden == $c[0].hidden_size and .layers == $c[0].num_hidden_layers and
        .kv_heads == $c[0].num_key_value_heads and .config.values.vocab_size == $c[0].vocab_size' "$WORK/out"
    run inspect $model
    ok "$model: the text says that there are no weights" grep -qE 'llama, 5 layers, .*without weights$' "$WORK/out"
done
run inspect "$STORIES" --json
ok "what scripts ask for is on top, too" json '.family == "llama" and .family_file == .model.family_file and
    .stored_bytes == .model.stored_bytes and .resident_bytes == .model.resident_bytes and .resident_bytes > 0 and .stored_bytes > 0' "$WORK/out"
run inspect "$STORIES"
ok "and the text has no page of a family" test "$(grep -c '^  part \|^  file:' "$WORK/out")" = 0
fails "a configuration is not verified" 2 'alone' inspect alone --verify
: >"$WORK/alone/model-00001-of-00002.safetensors"
fails "a part of the weights" 2 'alone' inspect alone
rm "$WORK/alone/model-00001-of-00002.safetensors"
echo '{"model_type": ' >"$WORK/alone/config.json"
fails "a configuration that is damaged" 2 'alone/config.json*' inspect alone

# ---- plans and device profiles
cat >"$WORK/job.yaml" <<END
version: 1
model: $STORIES
cluster: $ROOT/configs/plan/boards.yaml
workload: {prompt: 32, generate: 8, batch: 4}
pipeline:
  - plan: {use: rtn, group: 32, bits: [4, 8], baselines: none}
END
run plan job.yaml -o plan.yaml --json
ok "a plan to look at, got $rc" test "$rc" = 0
cp "$WORK/out" "$WORK/planned.json"
run inspect plan.yaml --json
ok "its keys, got $rc" json --slurpfile p "$WORK/planned.json" '.plan | .path == "plan.yaml" and .format == "tessera.plan/1" and
    .layers == 5 and (.stages | length) == ($p[0].plan.stages | length) and .workload.batch == 4 and
    (.predicted.latency_ms / $p[0].plan.latency_ms - 1 | fabs) < 1e-6' "$WORK/out"
run inspect plan.yaml
ok "as text, in a terminal" awk 'length > 100 {exit 1}' "$WORK/out"
ok "with its stages" test "$(grep -c '^  stage ' "$WORK/out")" = "$(jq '.plan.stages | length' "$WORK/planned.json")"
ok "and its time" grep -qE '^  predicted +[0-9.]+ m?s, prompts done after ' "$WORK/out"
for name in RTX-4090 rtx-4090; do
    run inspect device $name --json
    ok "$name: a profile by its name, got $rc" json '.device | .name == "RTX-4090" and .points == 0 and .measured == "not measured" and
        .memory.total == "24564 MiB" and ([.kernels[].kernel] | index("int4"))' "$WORK/out"
done
run inspect "$ROOT/configs/devices/t4.yaml"
ok "a profile by its file: whose times" grep -qE '^  measured +.*LLM-PQ' "$WORK/out"
fails "no such profile" 2 '*' inspect device nope
fails "a job" 2 'job.yaml' inspect job.yaml
sed 's/^layers: .*//' "$WORK/plan.yaml" >"$WORK/bad.yaml"
fails "a plan with an error" 2 'bad.yaml:*' inspect bad.yaml
fails "a plan is not probed" 2 'plan.yaml' inspect plan.yaml --probe

# ---- yes or no --------------------------------------------------------------------
# answers CODE ARGUMENT...: this exit code and not a word
answers() {
    local code=$1
    shift
    run inspect "$@"
    ok "inspect $*: exit code $code, got $rc" test "$rc" = "$code"
    ok "inspect $*: says nothing" test ! -s "$WORK/out" -a ! -s "$WORK/err"
}
answers 0 rtn --exists
answers 0 quantizer:rtn --exists
answers 0 org.tessera.rtn/rtn --exists
answers 0 "$BUILD/plugins/rtn.so" --exists
answers 0 "$STORIES" --exists
answers 1 rtnn --exists
answers 1 codec:rtn --exists
answers 1 nowhere.so --exists
answers 1 "$ROOT/meson.build" --exists
answers 0 rtn --atleast-version 1
answers 0 rtn --atleast-version 1.0.0
answers 0 rtn --exists --atleast-version 0.9
answers 1 rtn --atleast-version 1.0.1
answers 1 rtn --atleast-version 2.0.0-rc.1
answers 1 rtnn --atleast-version 1
run inspect rtnn --exists --json
ok "as JSON: no, with the reason" json '.exists == false and (.reason | test("did you mean .rtn"))' "$WORK/out"
ok "as JSON: exit code 1, got $rc" test "$rc" = 1
run inspect rtn --exists --json
ok "as JSON: yes" json '.exists == true and .name == "rtn"' "$WORK/out"
run inspect rtnn --exists -v
ok "-v tells the reason: both names" grep -q "rtnn.*'rtn'" "$WORK/err"
fails "a version that is none" 2 '--atleast-version' inspect rtn --atleast-version 1.x
fails "a version of a model" 2 '--atleast-version' inspect "$STORIES" --atleast-version 1
fails "nothing to ask for" 2 '--exists' inspect --exists
fails "a probe of nothing" 2 '--probe' inspect --probe
fails "a probe of a list" 2 '--probe' inspect plugins --probe
fails "a probe of a model" 2 '*/tests/golden/models/stories260k' inspect "$STORIES" --probe
fails "a probe of what is not there" 2 'rtnn' inspect rtnn --probe
fails "both" 2 '--probe' inspect rtn --probe --exists

# ---- code that misbehaves ------------------------------------------------------------
cat >"$WORK/moody.c" <<'SOURCE'
#include <tessera/codec.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#ifndef N
#define N 2
#endif
static tsr_status create(const struct tsr_host *h, const void *o, void **self, struct tsr_err *err)
{
    (void)h, (void)o, (void)err, *self = &(*self);
    puts("a word on stdout");
    MOOD
    return TSR_OK;
}
static void destroy(void *self) { (void)self; }
static uint32_t exactness(const void *self) { (void)self; return 0; }
static tsr_status wire_bytes(const void *s, uint64_t r, uint64_t c, uint64_t *b, struct tsr_err *err)
{
    (void)s, (void)err, *b = r * c;
    return TSR_OK;
}
static tsr_status code(const void *self, const struct tsr_codec_job *job, struct tsr_err *err)
{
    (void)self, (void)job, (void)err;
    return TSR_OK;
}
static const struct tsr_codec_v1 table = { sizeof table, 0, create, destroy, exactness, wire_bytes,
    code, code, code, 0, 0, 0, 0, 0, 0 };
static const struct tsr_component one = { sizeof one, sizeof(struct tsr_option), TSR_KIND_CODEC, "moody",
    "Depends.", &table, 0, 0, 0 }, two = { sizeof one, sizeof(struct tsr_option), TSR_KIND_CODEC,
    "moody2", "Depends too.", &table, 0, 0, 0 };
static const struct tsr_component *const all[] = { &one, &two };
TSR_PLUGIN_SYMBOL(moody) = { TSR_PLUGIN_HEADER, "org.example.moody", "soon", "MIT", "cc", all, N, 0, 0 };
SOURCE
# mood NAME CODE PATTERN: a plugin that does so when an instance is made
mood() {
    cc -std=gnu11 -fPIC -shared -I "$ROOT/core/include" "-DMOOD=$2" "$WORK/moody.c" -o "$WORK/$1.so"
    run inspect "$WORK/$1.so" --probe --json
    ok "$1: inspect lives" test "$rc" = 0
    ok "$1: both components are told" json '.components | length == 2' "$WORK/out"
    ok "$1: says '$3'" json --arg re "$3" 'all(.components[].probe; (.error // "answered") | test($re))' "$WORK/out"
}
mood fine "" '^answered$'
fails "a version that does not compare" 2 '*/fine.so' inspect "$WORK/fine.so" --atleast-version 1
mood crash 'raise(SIGKILL);' 'signal 9 \(Killed\)' # one that no sanitizer takes for itself
mood leave 'exit(0);' 'exit code 1'
mood vanish '_exit(3);' 'exit code [13]' # a sanitizer has _exit() for itself
mood refuse 'return tsr_fail(err, TSR_E_DEVICE, "no such device: %d", 7);' '^no such device: 7$'
mood silent 'return TSR_E_DEVICE;' 'create.. failed with TSR_E_DEVICE and gave no reason'
run inspect "$WORK/refuse.so" --probe
ok "the text tells the refusal" grep -q 'no answer: no such device: 7' "$WORK/out"
cc -std=gnu11 -fPIC -shared -I "$ROOT/core/include" '-DMOOD=for (;;) pause();' -DN=1 "$WORK/moody.c" \
    -o "$WORK/hang.so"
run inspect "$WORK/hang.so" --probe
ok "one that hangs is ended" grep -q 'no answer: its code did not answer within 10 s' "$WORK/out"

finish
