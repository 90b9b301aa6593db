#!/bin/bash
# tests/e2e/no-model.sh TESSERA - where a MODEL is no model, every verb says what stands there in its place; what is
# refused leaves no file and no folder.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
DEMO=$ROOT/configs/demo
mkdir "$WORK/empty" "$WORK/bare"
echo 'not a model' >"$WORK/prose"
cp "$DEMO"/model.safetensors "$DEMO"/tokenizer*.json "$WORK/bare/"
head -c 20000 "$DEMO/held-out.txt" >"$WORK/text.txt"
echo short >"$WORK/short.txt"
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 2}}' >"$WORK/in.jsonl"
run quantize @demo --use rtn --bits 4 -o packed -q
ok "a packed model, got $rc" test "$rc" = 0

names() { (cd "$WORK" && find . ! -name out ! -name err ! -name names | sort); }
# leaves NAME: what lies in $WORK is what lay there, without the two files of `run`
leaves() { ok "$1: nothing is left" diff "$WORK/names" <(names); }

# each MODEL FILE: every verb that takes a model names the file that is wrong, the job files at their place
each() {
    local line words said=0 object
    cat >"$WORK/job.yaml" <<JOB
version: 1
model: $1
pipeline:
  - eval: {text: text.txt}
JOB
    { cat "$WORK/job.yaml" && echo '  - compare: {arms: {a: {quantize: {use: rtn, bits: 4}}}}'; } >"$WORK/compare.yaml"
    names >"$WORK/names"
    while read -r line; do
        said=$((said + 1))
        read -ra words <<<"$line"
        object=$2
        [[ $1 != nothere ]] || case $line in
            'compare compare.yaml'*) object=compare.yaml:2:8 ;;
            run*) object=job.yaml:2:8 ;;
        esac
        [[ $1 != bare || $line != tokenize* ]] || continue # it has a tokenizer
        fails "$line" 2 "$object" "${words[@]}"
        leaves "$line"
    done <<VERBS
generate $1 --prompt x
generate $1 --tokens 1
generate $1 --prompt x --chat
logits $1 --tokens 1 -o new
tokenize $1 --text x
inspect $1
inspect $1 --verify
eval $1 --text text.txt
eval @demo --text text.txt --against $1
quantize $1 --use rtn -o new
convert $1 --to hf -o new
convert $1 --to gguf -o new
convert $1 --to prepacked -o new
add-outliers $1 -o new
profile --model $1 -o new
indicators $1 --text text.txt -o new
tune $1 -o new
sweep $1 --text text.txt -o new
outliers $1 -o new
export $1 --to x -o new
compare compare.yaml -o new
compare $1 --arms {"a":{"quantize":{"use":"rtn"}}} -o new
plan $1 --cluster $ROOT/configs/clusters/llmpq-1.yaml --workload {"prompt":64,"generate":32,"batch":8} -o new
compensate $1 --packed packed --text text.txt -o new
search-codec $1 --choose text.txt --confirm text.txt
run job.yaml -o new
batch $1 -i in.jsonl -o new
bench e2e $1
bench dec $1
bench load $1
VERBS
    ok "$1: $said verbs" test "$said" = 30
}
each nothere nothere
each prose prose
each empty 'empty*'
each bare 'bare*'

# ---- the folder of a job ---------------------------------------------------------------------
cat >"$WORK/two.yaml" <<JOB
version: 1
model: '@demo'
pipeline:
  - quantize: {use: rtn, bits: 4}
  - export: {to: m.tsr, format: prepacked}
JOB
run run two.yaml -o job
ok "a job, got $rc" test "$rc" = 0
for verb in inspect "generate --tokens 1"; do
    # shellcheck disable=SC2086 # a verb and its options
    fails "$verb of a job folder" 2 'job' $verb job
    ok "$verb: the packed one" grep -q 'job/packed[,;]' "$WORK/err"
    ok "$verb: and the file" grep -q 'job/m.tsr[,;]' "$WORK/err"
done
sed '/export/d' "$WORK/two.yaml" >"$WORK/one.yaml"
run run one.yaml -o one
run inspect one --json
ok "inspect shows the one model of a job, got $rc" test "$rc" = 0
ok "and says which" test "$(jq -r .model.path "$WORK/out")" = one/packed
cp "$WORK/out" "$WORK/by-job"
run inspect one/packed --json
ok "as it shows that model" cmp -s "$WORK/out" "$WORK/by-job"
run inspect job/packed
ok "what it names is one, got $rc" test "$rc" = 0

# ---- what is refused leaves nothing ----------------------------------------------------------
cat >"$WORK/hessian.yaml" <<JOB
version: 1
model: '@demo'
pipeline:
  - quantize: {use: gptq, bits: 4}
JOB
cat >"$WORK/short.yaml" <<JOB
version: 1
model: '@demo'
pipeline:
  - calibrate: {text: short.txt}
  - quantize: {use: gptq, bits: 4}
JOB
cp -r "$WORK/packed" "$WORK/cut"
truncate -s 1000 "$WORK/cut/layer-00003.safetensors"
names >"$WORK/names"
while IFS='#' read -r object facts line; do
    read -ra words <<<"$line"
    fails_with "$line" 2 "$object" "$facts" "${words[@]}"
    leaves "$line"
done <<'CASES'
gptq#layers.0.self_attn.q_proj.*calibrate#quantize @demo --use gptq --bits 4 -o new
gptq#layers.0.self_attn.q_proj.*calibrate#run hessian.yaml -o new
short.txt# 4 .*seqlen 1024#run short.yaml -o new/deeper
short.txt# 4 .*seqlen 1024#quantize @demo --use gptq --text short.txt -o new
*/empty#folder#batch @demo -i in.jsonl -o empty
packed#compensation.json#sweep packed --text text.txt -o new
--type q4_x_m:1:8#q4_x_m#convert packed --to gguf --type q4_x_m -o new
new#@demo#convert @demo --to gptq -o new
cut/layer-00003.safetensors# 992 #convert cut --to hf -o new
cut/layer-00003.safetensors# 992 #batch cut -i in.jsonl -o new
cut/layer-00003.safetensors# 992 #export cut --to x -o new
#999999.* 4096 #logits @demo --tokens 999999 -o new
nothing#gptq.*rtn#roundtrip nothing bare/model.safetensors -o new
nothing#gptq.*rtn#profile --scheme nothing -o new
CASES

# ---- an add-outliers that would take hours can be stopped ---------------------------------------------
# --foreground: else the group gets the signal too, and a second one ends the program at once
rc=0
(cd "$WORK" && exec timeout --foreground --preserve-status -s INT 1 "$TESSERA" add-outliers @demo -o new --triples 16777216) >"$WORK/out" 2>"$WORK/err" || rc=$?
ok "it stops when it is asked to, got $rc" test "$rc" = 75
leaves "add-outliers, stopped"
finish
