/* k_steps.h - a run of bytes [k/4][2][16 rows][4 k] that begins and ends anywhere. */
#ifndef TSR_K_STEPS_H
#define TSR_K_STEPS_H

#include "kernels.h"
#include "simd_bytes.h"

/* Steps of four columns of a run; columns outside it that share its first or last four. */
struct steps {
    uint64_t first, n;
    uint32_t head, tail;
};

INLINE struct steps steps_of(const struct tsr_cpu_run *u)
{
    const uint64_t first = u->k0 / 4;
    return (struct steps){ first, (u->k1 + 3) / 4 - first, ~0u << u->k0 % 4 * 8,
                           ~0u >> (4 - u->k1 % 4) % 4 * 8 };
}

/* The codes of step i at p; those outside the run become zeros. */
INLINE i16v step_codes(const struct steps *s, uint64_t i, const uint8_t *p)
{
    i16v codes = vi_load(p);
    v_prefetch(p + 4096);
    if (i == 0)
        codes = vi_and(codes, (int32_t)s->head);
    if (i == s->n - 1)
        codes = vi_and(codes, (int32_t)s->tail);
    return codes;
}

#endif
