#!/bin/bash
# table.sh TESSERA - every kind and optional table of the public headers has something to start from, a rule, a plugin
# that breaks the rule, and a user in the tree. What has no line here fails, and so does a line whose files are gone.
#   id: the macro; start: a template, or the page that shows the code; rule: of `plugin check`; broken: FILE:FAULT of
#   tests/fixtures, or list:NAME of meson.build here; user: a file or folder
# "-" in rule and broken: a service of the host, or a statement that unit tests hold (test_codecs, test_transport, test_nccl).
set -euo pipefail
export LC_ALL=C
tessera=$(realpath "$1")
cd "$(dirname "$0")/../.."
failed=0
wrong() { echo "$*"; failed=1; }

table='
TSR_KIND_QUANTIZER     tools/templates/quantizer/c/NAME.c    writes-every-byte        list:writes-every-byte         plugins/quant/rtn
TSR_KIND_CODEC         tools/templates/codec/c/NAME.c        codec-wire-bytes         bad_codec.c:wire_bytes         plugins/comm/plain.c
TSR_KIND_TRANSPORT     tools/templates/transport/c/NAME.c    transport-sums           bad_transport.c:sums           plugins/comm/local
TSR_KIND_SOLVER        tools/templates/solver/c/NAME.c       solver-constraints       bad_solver.c:constraints       plugins/solver/transfer.c
TSR_KIND_BACKEND       tools/templates/backend/c/NAME.c      backend-linear           bad_backend.c:linear           kernels/cpu
TSR_KIND_SAMPLER       tools/templates/sampler/c/NAME.c      sampler-resumes          bad_sampler.c:resumes          plugins/sample/min_p.c
TSR_KIND_STEP          tools/templates/step/c/NAME.c         step-products            bad_step.c:products            plugins/step/claims
TSR_KIND_KV            tools/templates/kv/c/NAME.c           kv-error                 bad_kv.c:error                 plugins/kv/kivi.c
TSR_QUANTIZER_BLOCK    tools/templates/quantizer/block/c/NAME.c block-transforms      list:block-transforms         plugins/quant/mx
TSR_QUANTIZER_REPORT   tools/templates/quantizer/report/c/NAME.c report-same          list:report-same              plugins/quant/gptq
TSR_QUANTIZER_TUNE     tools/templates/quantizer/tune/c/NAME.c tune-budget            list:tune-budget              plugins/quant/autoround
TSR_QUANTIZER_KERNEL   tools/templates/quantizer/kernel/c/NAME.c kernel-columns   list:kernel-columns            examples/codebook
TSR_CODEC_STREAM       tools/templates/codec/stream/c/NAME.c codec-stream-replay      bad_codec.c:stream_replay      plugins/comm/mx_codec.c
TSR_CODEC_WIRE         docs/reference/headers/codec.md       codec-wire               bad_codec.c:wire               plugins/comm/plain.c
TSR_CODEC_COUPLED      docs/reference/headers/codec.md       -                        -                              plugins/comm
TSR_BACKEND_LAYOUT     docs/reference/headers/backend_layout.md backend-layout        bad_backend.c:layout           kernels/cpu
TSR_BACKEND_CANDIDATES docs/reference/headers/backend_candidates.md backend-candidates bad_backend.c:candidates      kernels/cuda
TSR_BACKEND_CODEC      docs/reference/headers/backend_codec.md backend-codec          bad_backend.c:codec            kernels/cuda
TSR_TRANSPORT_COUNTS   docs/reference/headers/transport.md   -                        -                              plugins/comm
TSR_TRANSPORT_DEVICE   docs/reference/headers/transport.md   -                        -                              plugins/comm/nccl
TSR_LINALG             docs/reference/headers/linalg.md      -                        -                              plugins/quant/gptq
TSR_HERE               docs/reference/headers/here.md        -                        -                              kernels/cuda
TSR_THREADS            docs/reference/headers/threads.md     -                        -                              kernels/cpu
'
list=$(mktemp)
trap 'rm -f "$list"' EXIT
"$tessera" plugin check --list --json >"$list"
while read -r id start rule broken user; do
    [ -n "$id" ] || continue
    grep -qsE "^#define $id " core/include/tessera/*.h || wrong "$id is in no public header"
    grep -qsw "$id" "$start" || wrong "$id: $start is not there, or lacks it"
    [ "$rule" = - ] || jq -e --arg rule "$rule" 'any(.. | .name? // .rule? // empty; . == $rule)' "$list" >/dev/null ||
        wrong "$id: there is no rule $rule"
    case $broken in
    -) ;;
    list:*) grep -q "'${broken#*:}'" tests/conformance/meson.build || wrong "$id: no plugin breaks ${broken#*:}" ;;
    *)
        grep -qsE "X\(${broken#*:}\)|\b${broken#*:}\b" "tests/fixtures/${broken%:*}" ||
        wrong "$id: tests/fixtures/${broken%:*} has no fault ${broken#*:}" ;;
    esac
    grep -qsrw "$id" "$user" || wrong "$id: $user does not use it"
done <<<"$table"
while read -r id; do
    grep -q "^$id " <<<"$table" || wrong "$id is a kind or table of the public headers, and has no line here"
done < <(grep -hoE '^#define TSR_[A-Z_]+ +"tessera\.[a-z._]+/[0-9]+"' core/include/tessera/*.h | awk '$2 !~ /^TSR_FORMAT_/ { print $2 }' | sort -u)
exit $failed
