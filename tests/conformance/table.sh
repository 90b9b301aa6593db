#!/bin/bash
# table.sh TESSERA - every kind and optional table of the public headers has something to start from, a rule, a plugin
# that breaks the rule, and a user in the tree. What has no line here fails, and so does a line whose files are gone.
#   id: the macro; start: a template, or the page that shows the code; rule: of `plugin check`; broken: FILE:FAULT of
#   tests/fixtures, or list:NAME of meson.build here; user: a file or folder
# What the host offers, and drafts of the backends in the tree, have no rule: their rule is test:FILE, a test that uses it, and "-" is
# broken.  Tables of draft/ that a third party may have are held like public ones.
set -euo pipefail
export LC_ALL=C
tessera=$(realpath "$1")
cd "$(dirname "$0")/../.."
failed=0
wrong() { echo "$*"; failed=1; }
# the table's struct, by its id: tessera.probe/1 is struct tsr_probe_v1
struct_of() { sed -nE "s|^#define $1 +\"tessera\.([a-z._]+)/([0-9]+)\"|tsr_\1_v\2|p" "${headers[@]}" | tr . _; }

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
TSR_CODEC_COUPLED      docs/reference/headers/codec.md       codec-rows               bad_codec.c:rows               plugins/comm/int4_channel.c
TSR_BACKEND_LAYOUT     docs/reference/headers/backend_layout.md backend-layout        bad_backend.c:layout           kernels/cpu
TSR_BACKEND_CANDIDATES docs/reference/headers/backend_candidates.md backend-candidates bad_backend.c:candidates      kernels/cuda
TSR_BACKEND_CODEC      docs/reference/headers/backend_codec.md backend-codec          bad_backend.c:codec            kernels/cuda
TSR_TRANSPORT_COUNTS   docs/reference/headers/transport.md   transport-counts         bad_transport.c:counts         plugins/comm/local
TSR_TRANSPORT_DEVICE   docs/reference/headers/transport.md   test:tests/nccl/test_nccl.c -                           plugins/comm/nccl
TSR_LINALG             docs/reference/headers/linalg.md      test:tests/unit/test_cpu_linalg.c -                     plugins/quant/gptq
TSR_HERE               docs/reference/headers/here.md        test:tests/unit/test_service.c -                        kernels/cuda
TSR_THREADS            docs/reference/headers/threads.md     test:tests/unit/test_cpu_gated.c -                      kernels/cpu
TSR_QUANTIZER_KERNEL_DEVICE tools/templates/quantizer/device/c/NAME.c device-same   bad_device.c:same              examples/codebook
TSR_BACKEND_LAUNCH     core/include/tessera/draft/launch.h   device-launch            bad_device.c:launch            kernels/cuda
TSR_BACKEND_COMPENSATE core/include/tessera/draft/compensate.h test:tests/golden/test_compensate_held.c -              kernels/cpu
TSR_BACKEND_LINEARS    core/include/tessera/draft/linears.h  test:tests/unit/test_cpu_gated.c -                      kernels/cpu
TSR_BACKEND_WINDOW     core/include/tessera/draft/window.h   test:tests/nccl/test_window.c -                         kernels/cuda
TSR_TRANSPORT_WINDOW   core/include/tessera/draft/window.h   test:tests/nccl/test_window.c -                         plugins/comm/nccl
TSR_SOLVER_LINES       core/include/tessera/draft/lines.h    test:tests/unit/test_lines.c -                          plugins/solver/exact
TSR_PEAKS              core/include/tessera/draft/peaks.h    test:tests/e2e/cuda.sh -                              kernels/cuda
TSR_PROBE_EXTENSION    core/include/tessera/draft/probe.h    test:tests/unit/test_cpu_probe.c -                      kernels/cpu
TSR_SIZES_EXTENSION    core/include/tessera/draft/sizes.h    test:tests/unit/test_cost_memory.c -                    kernels/cuda
'
headers=(core/include/tessera/*.h core/include/tessera/draft/*.h)
list=$(mktemp)
trap 'rm -f "$list"' EXIT
"$tessera" plugin check --list --json >"$list"
while read -r id start rule broken user; do
    [ -n "$id" ] || continue
    grep -qsE "^#define $id " "${headers[@]}" || wrong "$id is in no header"
    grep -qsw "$id" "$start" || wrong "$id: $start is not there, or lacks it"
    case $rule in
    test:*) grep -qsw -e "$id" -e "$(struct_of "$id")" "${rule#test:}" || wrong "$id: ${rule#test:} is not there, or does not use it" ;;
    *) jq -e --arg rule "$rule" 'any(.. | .name? // .rule? // empty; . == $rule)' "$list" >/dev/null ||
        wrong "$id: there is no rule $rule" ;;
    esac
    case $broken in
    -) [ "${rule#test:}" != "$rule" ] || wrong "$id: no plugin breaks $rule" ;;
    list:*) grep -q "'${broken#*:}'" tests/conformance/meson.build || wrong "$id: no plugin breaks ${broken#*:}" ;;
    *)
        grep -qsE "X\(${broken#*:}\)|\b${broken#*:}\b" "tests/fixtures/${broken%:*}" ||
        wrong "$id: tests/fixtures/${broken%:*} has no fault ${broken#*:}" ;;
    esac
    grep -qsrw "$id" "$user" || wrong "$id: $user does not use it"
done <<<"$table"
while read -r id; do
    grep -q "^$id " <<<"$table" || wrong "$id is a kind or table of the headers, and has no line here"
done < <(grep -hoE '^#define TSR_[A-Z_]+ +"tessera\.[a-z._]+/[0-9]+"' "${headers[@]}" | awk '$2 !~ /^TSR_FORMAT_/ { print $2 }' | sort -u)
exit $failed
