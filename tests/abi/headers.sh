#!/bin/bash
# Every SDK header compiles alone, without a warning, as C and as C++, and so does the frozen
# layout; with nvcc too where that is installed.   headers.sh SOURCE_ROOT
set -u
root=$1
failed=0
ran=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for compiler in gcc g++ clang-14 clang++-14; do
    command -v "$compiler" >/dev/null ||
        { echo "$compiler is not installed; run tools/setup.sh test"; exit 1; }
done

# verdict WHAT SOURCE COMMAND...
verdict() {
    local what=$1 source=$2
    shift 2
    ran=$((ran + 1))
    if ! "$@" "$source" >"$tmp/log" 2>&1; then
        echo "$(head -1 "$source" | cut -c1-60): $what:"
        head -5 "$tmp/log"
        failed=$((failed + 1))
    fi
}

compile() { # compiler language standard source
    verdict "$1 -std=$3" "$4" "$1" -x "$2" -std="$3" -Wall -Wextra -Wpedantic -Wconversion -Werror \
        -fsyntax-only -I"$root/core/include"
}

sources=0
for header in "$root"/core/include/tessera/*.h "$root"/core/include/tessera/draft/*.h; do
    name=${header#"$root/core/include/"}
    echo "#include \"$name\"" >"$tmp/$(basename "$name" .h).c"
    echo "#include \"$name\"" >>"$tmp/all.cu"
    sources=$((sources + 1))
done
# What a plugin in C++ uses too; the macros of descriptors are for .c files.
cat >"$tmp/macros.c" <<'C'
#include "tessera/backend.h"
#include "tessera/quantizer.h"
double macros(const struct tsr_quantizer_v1 *q, struct tsr_backend_props *p,
              struct tsr_quant_plan *plan, struct tsr_err *err);
double macros(const struct tsr_quantizer_v1 *q, struct tsr_backend_props *p,
              struct tsr_quant_plan *plan, struct tsr_err *err)
{
    struct tsr_format f = plan->format;
    f.element = TSR_MX_INT(4);
    tsr_format_store(&plan->format, &f);
    plan->need = TSR_NEED_IF_THERE(TSR_NEED_MEAN);
    TSR_SET(struct tsr_backend_props, p, free_bytes, tsr_format_mx_meta_bytes(&f, 100));
    if (tsr_fail(err, TSR_E_CONFIG, "%d", 1) == TSR_OK)
        return 0;
    return TSR_HAS(struct tsr_quantizer_v1, q, max_error_steps) ? q->max_error_steps(NULL) : 0;
}
C
sources=$((sources + 1))
cp "$root/tests/abi/layout_v1.c" "$tmp/layout.c"
cat "$tmp/macros.c" "$tmp/layout.c" >>"$tmp/all.cu"

for source in "$tmp"/*.c; do
    for standard in c11 c17; do
        compile gcc c $standard "$source"
        compile clang-14 c $standard "$source"
    done
    for standard in c++11 c++20; do
        compile g++ c++ $standard "$source"
        compile clang++-14 c++ $standard "$source"
    done
done
[ "$ran" = $((8 * (sources + 1))) ] || failed=$((failed + 1))

# What C++ plugins alone use, and what becomes of an exception.
cat >"$tmp/guard.cpp" <<'C'
#include "tessera/guard.hpp"
#include <cstring>
#include <stdexcept>
static tsr_status f(int what, tsr_err *)
{
    if (what == 1)
        throw std::bad_alloc();
    if (what == 2)
        throw std::runtime_error("two");
    if (what == 3)
        throw 3;
    return TSR_OK;
}
static tsr_status body(void *, uint64_t, uint64_t) { throw 1; }
int main()
{
    char    text[32] = "";
    tsr_err err = {};
    err.struct_size = sizeof err;
    err.cap = sizeof text;
    err.text = text;
    bool ok = tsr_guard<f>(0, &err) == TSR_OK && *text == 0;
    ok = ok && tsr_guard<f>(1, &err) == TSR_E_NOMEM && std::strstr(text, "memory");
    ok = ok && tsr_guard<f>(2, &err) == TSR_E_INVAL && std::strstr(text, "two");
    ok = ok && tsr_guard<f>(3, nullptr) == TSR_E_INVAL && tsr_guard<body>(nullptr, 0, 1) == TSR_E_INVAL;
    return ok ? 0 : 1;
}
C
for compiler in g++ clang++-14; do
    for standard in c++17 c++20; do
        verdict "$compiler -std=$standard" "$tmp/guard.cpp" "$compiler" -std=$standard -Wall -Wextra -Wpedantic -Wconversion \
            -Werror -I"$root/core/include" -o "$tmp/guard-$compiler-$standard"
        verdict "$compiler -std=$standard, run" "$tmp/guard.cpp" "$tmp/guard-$compiler-$standard"
    done
done

# An option whose field has another type does not compile.
cat >"$tmp/option" <<'C'
#include "tessera/plugin.h"
struct o { int64_t n; double r; int32_t b; const char *s; };
const struct tsr_option table[] = { TSR_OPTION_INT(struct o, n, 1, 0, 2, NULL, "."),
    TSR_OPTION_REAL(struct o, r, 1, 0, 2, NULL, "."), TSR_OPTION_BOOL(struct o, b, 0, "."),
    TSR_OPTION_STRING(struct o, s, "", ".") };
C
for edit in '' 's/struct o, n/struct o, r/' 's/struct o, r/struct o, n/' 's/struct o, b/struct o, n/' 's/struct o, s/struct o, r/'; do
    sed "$edit" "$tmp/option" >"$tmp/field.c"
    for compiler in gcc clang-14; do
        ran=$((ran + 1)) status=0
        "$compiler" -std=c11 -fsyntax-only -I"$root/core/include" "$tmp/field.c" 2>/dev/null || status=1
        if [ $status != "$([ -z "$edit" ] && echo 0 || echo 1)" ]; then
            echo "$compiler: options with '$edit': compiling ends with $status"
            failed=$((failed + 1))
        fi
    done
done

# The layout is that of aarch64 too; of its C library the headers need these.
mkdir "$tmp/libc"
echo '#include <stdarg.h>
#include <stddef.h>
int vsnprintf(char *, size_t, const char *, va_list);' >"$tmp/libc/stdio.h"
echo '#include <stddef.h>
void *memcpy(void *, const void *, size_t);' >"$tmp/libc/string.h"
verdict "clang-14 for aarch64" "$tmp/layout.c" clang-14 --target=aarch64-linux-gnu -std=c11 \
    -ffreestanding -nostdlibinc -isystem "$tmp/libc" -Wall -Wextra -Werror -fsyntax-only \
    -I"$root/core/include"

if command -v nvcc >/dev/null; then
    verdict nvcc "$tmp/all.cu" nvcc -std=c++17 -Werror all-warnings -I"$root/core/include" -c \
        -o "$tmp/all.o"
else
    echo "nvcc is not installed: no compilation as CUDA"
fi
echo "$ran compilations, $failed failed"
[ "$failed" -eq 0 ] && [ "$sources" -ge 10 ]
