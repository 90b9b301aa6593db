#!/bin/bash
# tests/e2e/family.sh TESSERA - family files: what is built in, what a user adds, and what is wrong with a file.
# shellcheck source=tests/e2e/lib.sh
# shellcheck disable=SC2016 # variables of jq
. "$(dirname "$0")/lib.sh"
FAMILIES=$ROOT/configs/families
MODELS=$ROOT/tests/golden/models

# ---- built in ------------------------------------------------------------------------------------
run inspect models --json
ok "every file is built in" test "$(jq -r '.models[].name' "$WORK/out" | sort)" = \
    "$(sed -n 's/^name: //p' "$FAMILIES"/*.yaml | sort)"
for f in "$FAMILIES"/*.yaml; do
    name=$(sed -n 's/^name: //p' "$f")
    run inspect family "$name" --json
    ok "$name: is told" json --arg n "$name" '.family | .name == $n and (.architectures | length) > 0 and
        (.values | length) > 20 and (.tensors | length) > 8 and (.file | endswith(".yaml"))' "$WORK/out"
done
fails "a family that is not there" 2 gema3 inspect family gema3
fails "two names" 2 opt inspect llama opt

# every key of config.json is told of, and none twice
for m in "$MODELS"/*/; do
    m=${m%/}
    run inspect "$m" --json
    jq -r 'to_entries[] | if .key == "text_config" then .value | keys[] else .key end' "$m/config.json" | sort >"$WORK/keys"
    jq -r '.model.config | .used[], .ignored[] | ltrimstr("text_config.")' "$WORK/out" | sort >"$WORK/told"
    ok "$(basename "$m"): all keys are told of" test -z "$(comm -23 <(sort -u "$WORK/keys") <(sort -u "$WORK/told") |
        grep -vxE 'architectures|model_type|eos_token_id|quantization_config|[a-z_]+_token_id|rope_(scaling|parameters)|original_max_position_embeddings')"
    ok "$(basename "$m"): each layer once" json '.model | .layers as $n | [.layer_forms[] | range(.first; .last + 1)] == [range($n)]' "$WORK/out"
done
run inspect "$MODELS/gemma3" --json
ok "windows and rope by layer" json '.model.layer_forms | map([.first, .last, .window, .theta]) ==
    [[0, 1, 10, 10000], [2, 2, 0, 1000000], [3, 3, 10, 10000]]' "$WORK/out"

# ---- added -----------------------------------------------------------------------------------------
mine() { sed 's/^name: .*/name: mine/' "$FAMILIES/$1.yaml" >"$WORK/mine.yaml"; }
for m in qwen3 olmo2 glm4; do
    mine "$m"
    run logits "$MODELS/$m" --tokens 5,17,3,9,20,31,8 -o built-in.st
    run logits "$MODELS/$m" --tokens 5,17,3,9,20,31,8 -o added.st --family mine.yaml
    ok "$m: an added file gives the same bytes" cmp "$WORK/built-in.st" "$WORK/added.st"
    run inspect "$MODELS/$m" --family mine.yaml --json
    ok "$m: the added one wins" json '.model.family == "mine" and (.model.family_file | endswith("mine.yaml"))' "$WORK/out"
done
run inspect "$MODELS/glm4" --json
built_in=$(jq -r .model.hash "$WORK/out")
run logits "$MODELS/glm4" --tokens 5,17 -o halves.st
sed -i 's/pairs: adjacent/pairs: halves/' "$WORK/mine.yaml"
run logits "$MODELS/glm4" --tokens 5,17 -o other.st --family mine.yaml
ok "another form gives other logits" test "$rc" = 0 -a "$(cmp -s "$WORK/halves.st" "$WORK/other.st"; echo $?)" = 1
run inspect "$MODELS/glm4" --family mine.yaml --json
ok "an added family is part of the model's hash" test "$(jq -r .model.hash "$WORK/out")" != "$built_in"

# a job, and its family changed
mine qwen3
cat >"$WORK/job.yaml" <<Y
version: 1
model: $MODELS/qwen3
families: [mine.yaml]
pipeline:
  - logits: {tokens: "5,17,3", output: l.st}
Y
run run job.yaml --out j
ok "a job with a family" test "$rc" = 0
run run job.yaml --out j
ok "is done, seen again" is_done j
echo "# changed" >>"$WORK/mine.yaml"
fails "a changed family is another model" 2 '*j' run job.yaml --out j
sed -i 's/mine.yaml/none.yaml/' "$WORK/job.yaml"
fails "a family file that is not there" 2 'job.yaml:3:12' run job.yaml --out j2

# ---- a model that is not as the file says ------------------------------------------------------------
# against NAME MESSAGE SED: a model whose tensors are not those of qwen3's file so changed
against() {
    mine qwen3
    sed -i -E "$3" "$WORK/mine.yaml"
    fails "$1" 2 "$MODELS/qwen3*" inspect "$MODELS/qwen3" --family mine.yaml
    ok "$1: part and place" mentions "$2"
}
place() { grep -nE "$1" "$FAMILIES/qwen3.yaml" | head -n 1 | cut -d: -f1; }
against "a tensor that is not there" "part 'q_norm' of mine.yaml:$(place '^  q_norm:'):11\\b" 's/(q_norm: .*)q_norm/\1query_norm/'
against "a tensor that the file does not name" 'unknown: mine.yaml has no part' 's/norm$/&/; /^  qk_norm:/d; /^  [qk]_norm:/d'
against "a size from another key" "part 'gate' of mine.yaml:$(($(place '^  gate:') + 1)):9\\b asks for .*hidden_size, max_position_embeddings of config.json" \
    's/^config:/config:\n  ffn: max_position_embeddings/'
mkdir "$WORK/narrow"
cp "$MODELS/qwen3"/* "$WORK/narrow"
jq '.intermediate_size += 1' "$MODELS/qwen3/config.json" >"$WORK/narrow/config.json"
fails "config.json with another size" 2 '*narrow/model.safetensors' inspect narrow
ok "the part of the built-in family, and the keys" mentions "part 'gate' of the family qwen3 asks for .* from hidden_size, intermediate_size of config.json"

# ---- what inspect tells ---------------------------------------------------------------------------------
run inspect "$MODELS/llama3"
ok "the value of a key" grep -qx '    hidden_size = 64' "$WORK/out"
ok "of a key in an object" grep -qx '    rope_scaling.factor = 8' "$WORK/out"
run inspect "$MODELS/gemma3-wrapped" --json
ok "values, of the text model" json '.model.config | .values.sliding_window == 9 and .values.rope_scaling.factor == 8 and
    (.used | index("hidden_size")) != null and (.values | has("text_config") or has("rope_theta") | not)' "$WORK/out"
run inspect family gemma2
ok "the parts of names" grep -qE '^  attn_out +layers.#.post_attention_layernorm +blk.#.post_attention_norm$' "$WORK/out"
run inspect family opt --json
ok "without GGUF none is told" json '.family | .gguf == [] and (.parts | length) == (.tensors | length) and all(.parts[]; .gguf == null)' "$WORK/out"

# ---- a GGUF file of an added family ---------------------------------------------------------------
# other LETTERS: a file of OLMo 2 that says it is of another architecture; names and keys are as long as before
GGUF=$ROOT/tests/golden/checkpoints/gguf-olmo2-q4_1/model.gguf
other() { LC_ALL=C sed "$1" "$GGUF" >"$WORK/other.gguf"; }
other 's/olmo2/mine2/g'
run logits "$GGUF" --tokens 1,176,261,235 -o built-in.st
fails "an architecture that nothing reads" 2 'other.gguf' logits other.gguf --tokens 1,176 -o none.st
ok "it names those that are read" failure '.message | test("mine2.*\\bllama\\b.*\\bolmo2\\b.*--family")'
mine olmo2
sed -i 's/^architectures: .*/architectures: [MineForCausalLM]/; s/\[olmo2\]/[mine2]/' "$WORK/mine.yaml"
run logits other.gguf --tokens 1,176,261,235 -o added.st --family mine.yaml
ok "read as the added family: exit code 0, got $rc" test "$rc" = 0
ok "the same logits" cmp "$WORK/built-in.st" "$WORK/added.st"
run inspect other.gguf --json --family mine.yaml
ok "the family is told" json '.model.family == "mine"' "$WORK/out"
cp "$WORK/out" "$WORK/first"
echo '# changed' >>"$WORK/mine.yaml"
run inspect other.gguf --json --family mine.yaml
ok "its text is part of the hash" test "$(jq .model.hash "$WORK/out")" != "$(jq .model.hash "$WORK/first")"
other 's/olmo2/mine2/g; s/post_ffw_norm/post_mlp_norm/g; s/mine2.rope.freq_base/mine2.turn.freq_base/'
fails "a name that the family does not say" 2 other.gguf logits other.gguf --tokens 1,176 -o none.st --family mine.yaml
ok "with the tensor" failure '.message | test("post_mlp_norm")'
sed -i 's/^gguf:/gguf:\n  tensors: {ffn_out: blk.#.post_mlp_norm}/; s/^  config:/  config:\n    rope_theta: {key: turn.freq_base, default: 3}/' "$WORK/mine.yaml"
run logits other.gguf --tokens 1,176,261,235 -o added.st --family mine.yaml
ok "a name and a key of its own: exit code 0, got $rc" test "$rc" = 0
ok "the same logits again" cmp "$WORK/built-in.st" "$WORK/added.st"
sed -i 's/turn.freq_base/none.freq_base/' "$WORK/mine.yaml"
run logits other.gguf --tokens 1,176,261,235 -o default.st --family mine.yaml
ok "its default, where the key is absent" test "$rc" = 0 -a "$(cmp -s "$WORK/built-in.st" "$WORK/default.st"; echo $?)" = 1
sed -i 's/{key: none.freq_base, default: 3}/none.freq_base/' "$WORK/mine.yaml"
fails "a key that must be there" 2 other.gguf logits other.gguf --tokens 1,176 -o none.st --family mine.yaml
ok "with the key" failure '.message | test("\"mine2.none.freq_base\"")'
# an added family for the same checkpoints, without the section, is not passed over
mine olmo2
sed -i '/^gguf:/,$d' "$WORK/mine.yaml"
fails "a family that reads no GGUF" 2 '*/model.gguf' logits "$GGUF" --tokens 1,176 -o none.st --family mine.yaml
ok "with what to add" failure '.message | test("\\bmine\\b.*gguf: .architectures: .olmo2")'
# written, and read again
mine llama
run convert @demo --to gguf -o built-in.gguf
run convert @demo --to gguf -o mine.gguf --family mine.yaml
ok "GGUF of an added family: the same bytes" cmp "$WORK/built-in.gguf" "$WORK/mine.gguf"
sed -i 's/write: llama/write: mine3/; s/architectures: \[llama\]/architectures: [mine3]/' "$WORK/mine.yaml"
run convert @demo --to gguf -o mine3.gguf --family mine.yaml
ok "with an architecture of its own" test "$(LC_ALL=C sed 's/mine3/llama/g' "$WORK/mine3.gguf" | cmp - "$WORK/built-in.gguf" && echo same)" = same
run logits mine3.gguf --tokens 1,176,261 -o again.st --family mine.yaml
run logits built-in.gguf --tokens 1,176,261 -o first.st
ok "and read again: the same logits" cmp "$WORK/first.st" "$WORK/again.st"
sed -i '/^  write:/d' "$WORK/mine.yaml"
fails "a family that is not written" 2 none.gguf convert @demo --to gguf -o none.gguf --family mine.yaml

# ---- wrong files --------------------------------------------------------------------------------------
sed '/^  write: /d' "$FAMILIES/qwen3.yaml" >"$WORK/good.yaml"
# wrong NAME PLACE SED: qwen3's file so changed is refused there
wrong() {
    sed -E "$3" "$WORK/good.yaml" >"$WORK/bad.yaml"
    ok "$1: is another file" test "$(cmp -s "$WORK/good.yaml" "$WORK/bad.yaml"; echo $?)" = 1
    fails "$1" 2 "$2" inspect "$MODELS/qwen3" --family bad.yaml
}
line() { grep -nE "$1" "$FAMILIES/qwen3.yaml" | head -n 1 | cut -d: -f1; }
tensors="bad.yaml:$(($(line '^tensors:') + 1)):3"
wrong "no form" 'bad.yaml:1:1' '/^family:/d'
wrong "a later form" 'bad.yaml:1:9' 's,^(family: tessera.family/)1,\12,'
wrong "an unknown key" "bad.yaml:$(line qk_norm):3" 's/qk_norm:/qk_norms:/'
wrong "an unknown word" "bad.yaml:$(line qk_norm):12" 's/(qk_norm: )head/\1haed/'
wrong "an unknown flag" "bad.yaml:$(line '^window:' | awk '{ print $1 + 1 }'):3" 's/when: windowed/when: windows/'
wrong "a default that is no number" "bad.yaml:$(line head_dim):38" 's/(head_dim: .*default: )128/\1wide/'
wrong "a number for a key" "bad.yaml:$(line head_dim):13" 's/head_dim: .*/head_dim: 128/'
wrong "a norm that nothing uses" "$tensors" 's/qk_norm: head/qk_norm: none/'
wrong "a norm that is missing" "$tensors" '/q_norm:/d'
wrong "norms elsewhere" "$tensors" 's/qk_norm: head/norms: around/'
wrong "a linear that is missing" "$tensors" '/  k: /d'
wrong "gates that nothing uses" "bad.yaml:$(($(line '^tensors:') + 2)):3" 's/qk_norm: head/qk_norm: head\n  feed_forward: plain/'
wrong "a name twice" "$tensors" 's/(up: .*)up_proj/\1gate_proj/'
wrong "everything ignored" "$tensors" 's/^ignored: .*/ignored: ["*",/'
wrong "what is read ignored" "$tensors" 's/^ignored: \[/ignored: [layers.#.mlp.*, /'
wrong "a layer's tensor without a number" "bad.yaml:$(line '  o: '):13" 's/(o: .name: layers\.)#/\10/'
wrong "0 heads" "bad.yaml:$(($(line '^config:') + 1)):10" 's/^config:/config:\n  heads: {default: 0}/'
wrong "a pattern of 0" "bad.yaml:$(line '^  layers: .from'):26" 's/^  layers: .from.*/  layers: {except_every: {default: 0}}/'
gguf() { echo "bad.yaml:$(($(line '^gguf:') + $1)):$2"; }
wrong "an unknown key of gguf" "$(gguf 1 3)" 's/^gguf:/gguf:\n  row: pairs/'
ok "with the nearest one" failure '.diagnostics | any(.hint | test("rows"))'
wrong "an unknown rule" "$(gguf 3 15)" 's/^(  config:)$/\1\n    a: {rule: head_width}/'
wrong "a value that is nowhere" "$(gguf 3 8)" 's/^(  config:)$/\1\n    a: {}/'
wrong "an unknown key of a value" "$(gguf 3 9)" 's/^(  config:)$/\1\n    a: {keys: b}/'
wrong "another rule without a number of layers" "$(gguf 3 33)" 's/^(  config:)$/\1\n    a: {rule: head_dim, layers: hidden_by_heads}/'
wrong "a part that is none" "$(gguf 1 13)" 's/^gguf:/gguf:\n  tensors: {ffn_inn: blk.#.a}/'
wrong "a part that the family does not have" "$(gguf 1 13)" 's/^gguf:/gguf:\n  tensors: {ffn_out: blk.#.a}/'
wrong "a name without the layer" "$(gguf 1 21)" 's/^gguf:/gguf:\n  tensors: {ffn_in: blk.0.a}/'
wrong "one name for two" "$(gguf 1 3)" 's/^gguf:/gguf:\n  tensors: {ffn_in: blk.#.attn_q}/'
wrong "gains without an offset" "$(gguf 1 3)" 's/^gguf:/gguf:\n  gains: offset/'
wrong "neither read nor written" "$(gguf 1 3)" '/^  architectures: .qwen3/d'
# Latent attention, groups of experts, and what every token takes.
# latent WHAT PLACE SED
latent() {
    sed -E "$3" "$FAMILIES/deepseek_v3.yaml" >"$WORK/bad.yaml"
    ok "$1: is another file" test "$(cmp -s "$FAMILIES/deepseek_v3.yaml" "$WORK/bad.yaml"; echo $?)" = 1
    fails "$1" 2 "$2" inspect "$MODELS/deepseek_v3" --family bad.yaml
}
of() { grep -nE "$1" "$FAMILIES/deepseek_v3.yaml" | head -n 1 | cut -d: -f1; }
tensors="bad.yaml:$(($(of '^tensors:') + 1)):3"
latent "latent attention without its tensors" "$tensors" '/  kv_b: /d'
latent "latent tensors without latent attention" "bad.yaml:$(($(of '^tensors:') - 5)):3" '/^latent:/,/^  v:/d'
latent "keys next to latent ones" "$tensors" 's/^(  kv_b: .*)/\1\n  k: layers.#.self_attn.k_proj/'
latent "an unknown key of latent" "bad.yaml:$(of '^  nope:'):3" 's/^  nope:/  nopes:/'
latent "a norm of queries" "bad.yaml:$(($(of "^tensors:") + 2)):3" 's/^latent:/block: {qk_norm: head}\nlatent:/; s/^(  kv_b: .*)/\1\n  q_norm: layers.#.qn\n  k_norm: layers.#.kn/'
latent "gates of attention" "bad.yaml:$(($(of "^tensors:") + 2)):3" 's/^latent:/block: {attention: gated}\nlatent:/; s/^(  kv_b: .*)/\1\n  q_gate: layers.#.qg/'
latent "a flag of three words" "bad.yaml:$(of '^  method:'):37" 's/(noaux_tc)/\1, a, b/'
latent "a flag without the word of its default" "bad.yaml:$(of '^  method:'):11" 's/(words: .noaux_tc.)/\1, default: true/'
latent "groups for another router" "bad.yaml:$(of '^  groups:'):11" 's/router: sigmoid/router: chosen/; /router_correction/d'
latent "a correction for another router" "$tensors" 's/router: sigmoid/router: chosen/; s/^  groups:.*/  # none/'
latent "an unknown score of groups" "bad.yaml:$(of '^  groups:'):91" 's/two_largest/two/'
latent "a shared expert that nothing names" "$tensors" '/shared_up:/d'
latent "pairs by a flag that is not there" "bad.yaml:$(of '^  pairs:'):10" 's/if: interleaved/if: adjacent/'
gguf="bad.yaml:$(($(of '^gguf:') + 1)):3"
latent "a GGUF section and a number without a key" "$gguf" 's/^  nope:.*/  nope: {default: 16}/'
head -c 300 /dev/zero >"$WORK/zero.yaml"
fails "NUL bytes" 2 'zero.yaml:1:1' inspect "$MODELS/qwen3" --family zero.yaml
fails "a folder" 2 '*families' inspect "$MODELS/qwen3" --family "$FAMILIES"
: >"$WORK/empty.yaml"
fails "an empty file" 2 'empty.yaml:1:1' inspect "$MODELS/qwen3" --family empty.yaml
finish
