#!/bin/bash
# newer.sh OUT HEADER... - copies of the headers as a later minor could have them: the number is one
# higher, and every struct that may grow has one more member at its end.
set -euo pipefail
out=$1
shift
for header in "$@"; do
    awk '
        /^#define TSR_ABI_MINOR / { $3 = $3 + 1; print; minor++; next }
        /^struct tsr_[a-z0-9_]+ \{$/ { name = $2; members = 0; sized = 0 }
        name != "" && /^ .*;/ && ++members <= 2 && /struct_size[;,]/ { sized = 1 }
        # a plan grows through the format at its end; a choice states no size, an option its stride
        /^};$/ && name != "" {
            if ((sized && name != "tsr_quant_plan") || name == "tsr_option")
                print "    uint64_t later;"
            name = ""
        }
        { print }
    ' "$header" >"$out/$(basename "$header")"
done
grep -q '^#define TSR_ABI_MINOR ' "$out/plugin.h"
grep -q 'later;' "$out/quantizer.h"
