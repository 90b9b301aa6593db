/* isa_x86.c - the kernels that an x86-64 processor runs. */
#include <cpuid.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "bf16.h"
#include "compensate.h"
#include "tile_words.h"

#ifndef bit_AVXVNNI
#define bit_AVXVNNI (1u << 4) /* leaf 7, subleaf 1, EAX */
#endif
#ifndef bit_AVX512BF16
#define bit_AVX512BF16 (1u << 5) /* leaf 7, subleaf 1, EAX */
#endif

/* clang 14 knows no "f16c"; that the system saves the registers is what "avx2" tells. */
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

static int has_avxvnni(void)
{
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVXVNNI);
}

static int always(void)
{
    return 1;
}

/* From the widest on. `vnni256` is `avxvnni` in the encoding of AVX-512, for CPUs that have this one alone: nothing picks
 * it but TSR_ISA=avxvnni, so that tests and measurements of those loops run there. */
static const struct set {
    const char                   *name;
    const struct tsr_cpu_kernels *k;
    int (*has)(void);
    enum tsr_cpu_set of;
    const char      *device, *lacks, *instead;
} sets[] = {
    { "avx512", &tsr_cpu_kernels_avx512, has_avx512, TSR_CPU_AVX512, "cpu avx512 vnni",
      "AVX-512 F, BW, VL, DQ or VNNI", "avx2" },
    { "avxvnni", &tsr_cpu_kernels_avxvnni, has_avxvnni, TSR_CPU_AVX2, "cpu avx2 vnni",
      "AVX2, FMA, F16C or AVX-VNNI", "avx2" },
    { "avx2", &tsr_cpu_kernels_avx2, has_avx2, TSR_CPU_AVX2, "cpu avx2", "AVX2, FMA or F16C",
      "scalar" },
    { "scalar", &tsr_cpu_kernels_scalar, always, TSR_CPU_SCALAR, "cpu scalar", "", "" },
    { "avxvnni", &tsr_cpu_kernels_vnni256, has_avx512, TSR_CPU_AVX2, "cpu avx2 vnni of avx512", "",
      "" },
};
#define SETS (sizeof sets / sizeof *sets)

static const struct set *set_of(const struct tsr_cpu_kernels *k)
{
    const struct set *s = sets;
    while (s + 1 < sets + SETS && s->k != k)
        s++;
    return s;
}

tsr_status tsr_cpu_pick(const struct tsr_cpu_kernels **k, const struct tsr_cpu_amx_kernels **amx,
                        struct tsr_err *err)
{
    const char       *want = getenv("TSR_ISA");
    const int         asked = want && *want, tiles = asked && strcmp(want, "amx") == 0;
    const struct set *lacking = NULL;
    __builtin_cpu_init();
    *amx = NULL;
    for (const struct set *s = sets; s < sets + SETS; s++) {
        if (asked && strcmp(tiles ? "avx512" : want, s->name) != 0)
            continue;
        if (!s->has()) {
            lacking = lacking ? lacking : s;
            continue;
        }
        *k = s->k;
        if (s->of == TSR_CPU_AVX512 && (!asked || tiles))
            *amx = tsr_cpu_amx_pick();
        if (tiles && !*amx)
            return tsr_fail(err, TSR_E_CONFIG,
                            "TSR_ISA=amx: this CPU lacks AMX-INT8, or the system does not let "
                            "the process use it; unset it or use avx512");
        return TSR_OK;
    }
    return lacking
               ? tsr_fail(err, TSR_E_CONFIG, "TSR_ISA=%s: this CPU lacks %s; unset it or use %s",
                          want, lacking->lacks, lacking->instead)
               : tsr_fail(err, TSR_E_CONFIG,
                          "TSR_ISA=%.40s: unknown; use scalar, avx2, avxvnni, avx512 or amx", want);
}

tsr_cpu_pack_opposed *tsr_cpu_packs_opposed(const struct tsr_cpu_kernels *k)
{
    return k == &tsr_cpu_kernels_avx2 ? tsr_k_pack_opposed_avx2 : NULL;
}

int tsr_cpu_permutes(const struct tsr_cpu_kernels *k)
{
    return k == &tsr_cpu_kernels_avx512 && __builtin_cpu_supports("avx512vbmi");
}

const char *tsr_cpu_device(const struct tsr_cpu_kernels *k, const struct tsr_cpu_amx_kernels *amx)
{
    return amx ? "cpu avx512 vnni amx" : set_of(k)->device;
}

const struct tsr_cpu_compensate_kernels *tsr_cpu_compensate_of(const struct tsr_cpu_kernels *k)
{
    const enum tsr_cpu_set of = set_of(k)->of;
    return of == TSR_CPU_AVX512 ? &tsr_cpu_compensate_avx512
           : of == TSR_CPU_AVX2 ? &tsr_cpu_compensate_avx2
                                : &tsr_cpu_compensate_scalar;
}

enum tsr_cpu_set tsr_cpu_set_of(const struct tsr_cpu_kernels *k)
{
    return set_of(k)->of;
}

const struct tsr_cpu_kernels *tsr_cpu_half(const struct tsr_cpu_kernels *k)
{
    return k == &tsr_cpu_kernels_avx512 ? &tsr_cpu_kernels_avx2 : NULL;
}

static int has_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVX512BF16);
}

tsr_status tsr_cpu_set_fast(struct tsr_cpu *c, struct tsr_err *err)
{
    if (!has_bf16())
        return tsr_fail(err, TSR_E_CONFIG,
                        "numerics: fast needs a CPU with AVX512-BF16, which this one is not; use "
                        "numerics: exact");
    if (c->k != &tsr_cpu_kernels_avx512)
        return tsr_fail(err, TSR_E_CONFIG,
                        "numerics: fast needs AVX-512, but TSR_ISA=%s; unset it or use numerics: "
                        "exact",
                        c->k->name);
    c->bf16 = &tsr_cpu_bf16;
    c->device = "cpu avx512 bf16, numerics fast";
    return TSR_OK;
}
