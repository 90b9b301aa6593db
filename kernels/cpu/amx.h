/* amx.h - LINEAR with int8 activations on the tile registers of AMX: sums of products of bytes, which are exact
 * as those of vpdpbusd are, so that the results are bit-identical. */
#ifndef TSR_CPU_AMX_H
#define TSR_CPU_AMX_H

#include "kernels.h"

#define AMX_TOKENS 16u /* tokens in a tile */
#define AMX_STEP   32u /* columns of one product */

struct tsr_cpu_amx_digits {
    /* As digits_a8 in extra.h, where tsr_cpu_amx_takes_digits(); a->q: tiles as pack() makes them. */
    void (*linear)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1);
};

struct tsr_cpu_amx_kernels {
    /* m tokens (at most AMX_TOKENS) of q, ldq apart (a multiple of AMX_STEP), to
     * [ldq/AMX_STEP][AMX_TOKENS][AMX_STEP]; absent tokens are zeros. */
    void (*pack)(int8_t *dst, const int8_t *q, uint64_t ldq, uint64_t m);
    /* As linear_a8 in kernels.h, where tsr_cpu_amx_takes(); a->qpack: tiles as pack() makes them, a->sa and
     * a->sums: [nblocks] and [nruns][tokens of the tile] for each, the sums of affine weights as F32. */
    void (*linear)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                   uint64_t t1);
    const struct tsr_cpu_amx_digits *digits;
};
extern const struct tsr_cpu_amx_kernels tsr_cpu_amx;

extern const struct tsr_cpu_amx_digits tsr_cpu_amx_digits;

/* The kernels if this CPU has AMX and the system lets the process use it, else NULL. The permission is the
 * process's and stays. */
const struct tsr_cpu_amx_kernels *tsr_cpu_amx_pick(void);

/* Whether this path is the faster one: runs are whole products, and there are enough tokens. Each sum of a run
 * passes through memory, so that short runs gain less. */
static inline int tsr_cpu_amx_takes(const struct tsr_cpu_weight *w, uint64_t tokens)
{
    return cpu_packed(w->layout) && w->aligned && w->cols % AMX_STEP == 0 &&
           w->group % AMX_STEP == 0 &&
           tokens >= (w->group >= 64 ? 16u
                      : w->affine    ? 64u
                                     : 32u);
}

/* The same of small floats: of three digits to base 128, which is all but fp8_e5m2. */
static inline int tsr_cpu_amx_takes_digits(const struct tsr_cpu_weight *w, uint64_t tokens)
{
    return w->layout == W_FPX && w->extra.digits <= 3 && w->aligned && w->cols % AMX_STEP == 0 &&
           w->group % AMX_STEP == 0 && tokens >= AMX_TOKENS;
}

#endif
