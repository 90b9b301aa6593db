/* encode.c - decoded values, checks and the choice of an instruction set. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

/* The magnitude of a code (without its sign) before the block's scale. */
static float magnitude(uint32_t element, uint32_t code)
{
    int      ebits = (int)(element >> 8), mantissa = (int)(element & 0xffu), exponent = 0;
    uint32_t steps = code, bits;
    float    unit;
    if (ebits == 0) { /* 1.xxx */
        mantissa--;
    } else {
        uint32_t field = code >> mantissa, one = 1u << mantissa;
        exponent = 2 - (1 << (ebits - 1)) + (field ? (int)field - 1 : 0);
        steps = (code & (one - 1)) | (field ? one : 0);
    }
    if (element == TSR_MX_FP8_E4M3 && code == 0x7f)
        return NAN;
    if (element == TSR_MX_FP8_E5M2 && code >= 0x7c)
        return code == 0x7c ? INFINITY : NAN;
    bits = (uint32_t)(127 + exponent - mantissa) << 23;
    memcpy(&unit, &bits, sizeof unit);
    return (float)steps * unit;
}

void tsr_decode_mx_init(struct tsr_decode_mx *m, const struct tsr_encode_mx *spec, uint64_t cols)
{
    uint32_t                  bits = tsr_encode_mx_bits(spec->element), n = 1u << (bits - 1);
    struct tsr_encode_element el = tsr_encode_element(spec->element);
    memset(m, 0, sizeof *m);
    m->bits = bits;
    m->lim = (1u << (spec->scale_bits - 1)) - 1;
    m->block = spec->block ? spec->block : cols;
    m->normal = spec->element >> 8 ? 1u << el.mant : n; /* integers are multiples throughout */
    m->max = el.max;
    m->mant = (uint32_t)el.mant;
    m->bias = el.emin + 126;
    for (uint32_t c = 0; c < n; c++) {
        m->value[c] = magnitude(spec->element, c);
        m->value[n + c] = 0.0f - m->value[c]; /* +0 for zero */
    }
}

static int known(uint32_t element)
{
    static const uint32_t floats[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                       TSR_MX_FP6_E2M3, TSR_MX_FP5_E3M1, TSR_MX_FP5_E2M2,
                                       TSR_MX_FP5_E1M3, TSR_MX_FP4_E2M1, TSR_MX_FP4_E1M2,
                                       TSR_MX_FP3_E1M1 };
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        if (floats[i] == element)
            return 1;
    return element >= TSR_MX_INT(2) && element <= TSR_MX_INT(8);
}

tsr_status tsr_encode_mx_check(const struct tsr_encode_mx *spec, struct tsr_err *err)
{
    if (!known(spec->element))
        return tsr_fail(err, TSR_E_CONFIG,
                        "element with %u exponent and %u mantissa bits: none of those that "
                        "tessera.mx/1 has",
                        spec->element >> 8, spec->element & 0xffu);
    if (spec->scale_bits < 4 || spec->scale_bits > 8)
        return tsr_fail(err, TSR_E_CONFIG, "scale_bits: %u is not between 4 and 8",
                        spec->scale_bits);
    if (spec->rounding > TSR_ENCODE_FLOOR)
        return tsr_fail(err, TSR_E_CONFIG, "rounding: %u is not one of nearest, even, floor",
                        spec->rounding);
    if (spec->scale_rule > TSR_ENCODE_SCALE_CEIL)
        return tsr_fail(err, TSR_E_CONFIG, "scale_rule: %u is not one of floor, even, ceil",
                        spec->scale_rule);
    return TSR_OK;
}

#if defined(__aarch64__)
#define NAMES "neon, dotprod or i8mm"
#else
#define NAMES "avx2, avx512 or amx"
#endif

static int always(void)
{
    return 1;
}

#if defined(__x86_64__)
/* clang 14 knows no "f16c"; that the system saves the registers is what "avx2" tells. */
static int has_avx2(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

tsr_status tsr_encode_pick(const struct tsr_encode **e, struct tsr_err *err)
{
    static const struct {
        const struct tsr_encode *e;
        int (*has)(void);
    } sets[] = {
#if defined(__x86_64__)
        { &tsr_encode_avx512, has_avx512 },
        { &tsr_encode_avx2, has_avx2 },
#endif
        { &tsr_encode_scalar, always }
    };
#if defined(__aarch64__)
    static const char *const plain[] = { "neon", "dotprod", "i8mm" }; /* encoders are in plain C */
#endif
    const char *want = getenv("TSR_ISA");
    if (want && strcmp(want, "amx") == 0) /* AVX-512 and more, which is of no use here */
        want = "avx512";
#if defined(__aarch64__)
    for (size_t i = 0; want && i < sizeof plain / sizeof *plain; i++)
        if (strcmp(want, plain[i]) == 0)
            want = "scalar";
#endif
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        int asked = want && strcmp(want, sets[i].e->name) == 0, has = sets[i].has();
        if (asked && !has)
            return tsr_fail(err, TSR_E_CONFIG,
                            "TSR_ISA=%s: this CPU lacks instructions of it; unset TSR_ISA or use "
                            "scalar",
                            want);
        if (asked || ((!want || !*want) && has)) {
            *e = sets[i].e;
            return TSR_OK;
        }
    }
    return tsr_fail(err, TSR_E_CONFIG, "TSR_ISA=%.40s: unknown; use scalar, " NAMES, want);
}
