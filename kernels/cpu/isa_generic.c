/* isa_generic.c - the kernels of a processor that has no set of its own here: those in plain C. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "bf16.h"
#include "compensate.h"
#include "tile_words.h"

tsr_status tsr_cpu_pick(const struct tsr_cpu_kernels **k, const struct tsr_cpu_amx_kernels **amx,
                        struct tsr_err *err)
{
    const char *want = getenv("TSR_ISA");
    *amx = NULL;
    *k = &tsr_cpu_kernels_scalar;
    if (!want || !*want || strcmp(want, "scalar") == 0)
        return TSR_OK;
    return tsr_fail(err, TSR_E_CONFIG,
                    "TSR_ISA=%.40s: this program has no such kernels; use scalar", want);
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
    (void)k;
    (void)amx;
    return "cpu scalar";
}

const struct tsr_cpu_compensate_kernels *tsr_cpu_compensate_of(const struct tsr_cpu_kernels *k)
{
    (void)k;
    return &tsr_cpu_compensate_scalar;
}

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
