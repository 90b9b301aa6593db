/* isa_arm.c - the kernels that an arm64 processor runs: NEON is part of each, products of bytes are not. */
#include <asm/hwcap.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "backend.h"
#include "bf16.h"
#include "compensate.h"
#include "tile_words.h"

static int always(void)
{
    return 1;
}

static int has_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static int has_i8mm(void)
{
    return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

/* From the widest on. */
static const struct set {
    const struct tsr_cpu_kernels *k;
    int (*has)(void);
    const char *device, *lacks, *instead;
} sets[] = {
    { &tsr_cpu_kernels_i8mm, has_i8mm, "cpu neon i8mm", "I8MM or dotprod", "neon" },
    { &tsr_cpu_kernels_dotprod, has_dotprod, "cpu neon dotprod", "dotprod", "neon" },
    { &tsr_cpu_kernels_neon, always, "cpu neon", "", "" },
    { &tsr_cpu_kernels_scalar, always, "cpu scalar", "", "" },
};
#define SETS (sizeof sets / sizeof *sets)

tsr_status tsr_cpu_pick(const struct tsr_cpu_kernels **k, const struct tsr_cpu_amx_kernels **amx,
                        struct tsr_err *err)
{
    const char *want = getenv("TSR_ISA");
    *amx = NULL;
    for (const struct set *s = sets; s < sets + SETS; s++) {
        const int asked = want && *want;
        if (asked && strcmp(want, s->k->name) != 0)
            continue;
        if (s->has()) {
            *k = s->k;
            return TSR_OK;
        }
        if (asked)
            return tsr_fail(err, TSR_E_CONFIG, "TSR_ISA=%s: this CPU lacks %s; unset it or use %s",
                            want, s->lacks, s->instead);
    }
    return tsr_fail(err, TSR_E_CONFIG, "TSR_ISA=%.40s: unknown; use scalar, neon, dotprod or i8mm",
                    want);
}

tsr_cpu_pack_opposed *tsr_cpu_packs_opposed(const struct tsr_cpu_kernels *k)
{
    (void)k;
    return NULL;
}

int tsr_cpu_permutes(const struct tsr_cpu_kernels *k)
{
    (void)k;
    return 0;
}

const char *tsr_cpu_device(const struct tsr_cpu_kernels *k, const struct tsr_cpu_amx_kernels *amx)
{
    const struct set *s = sets;
    (void)amx;
    while (s + 1 < sets + SETS && s->k != k)
        s++;
    return s->device;
}

const struct tsr_cpu_compensate_kernels *tsr_cpu_compensate_of(const struct tsr_cpu_kernels *k)
{
    return k == &tsr_cpu_kernels_scalar ? &tsr_cpu_compensate_scalar : &tsr_cpu_compensate_neon;
}

/* Cores differ in their FMAs a cycle: none has a fixed rate. */
enum tsr_cpu_set tsr_cpu_set_of(const struct tsr_cpu_kernels *k)
{
    (void)k;
    return TSR_CPU_SCALAR;
}

const struct tsr_cpu_kernels *tsr_cpu_half(const struct tsr_cpu_kernels *k)
{
    (void)k;
    return NULL;
}

tsr_status tsr_cpu_set_fast(struct tsr_cpu *c, struct tsr_err *err)
{
    (void)c;
    return tsr_fail(err, TSR_E_CONFIG,
                    "numerics: fast needs a CPU with AVX512-BF16, which this one is not; use "
                    "numerics: exact");
}
