/* k_part.h - columns of a panel as tiles of tokens take them, whatever the layout: codes as bytes, scales as
 * F32. The first tile unpacks the codes, the others read them out of the first cache. */
#ifndef TSR_K_PART_H
#define TSR_K_PART_H

#include "k_codes.h"

#define PART_COLUMNS 512u /* a multiple of every step */
#define PART_RUNS    32u

struct part {
    uint64_t       panel;
    uint64_t       run, end;  /* the runs [run,end), of one segment */
    uint64_t       k0, steps; /* the first column; steps of four columns */
    const uint8_t *packed;    /* their codes, */
    uint64_t       bytes;     /* how many bytes, */
    const uint8_t *codes;     /* and unpacked: [steps][2][16 rows][4 columns] */
    _Alignas(64) uint8_t buffer[PART_COLUMNS * PANEL];
    _Alignas(64) float scale[PART_RUNS][PANEL];
    union {
        float   minimum[PART_RUNS][PANEL]; /* tessera.int/2 */
        int32_t zero[PART_RUNS][PANEL];    /* where the weight stores zero points */
    };
};

/* Where the part after one is: of the same segment in this panel, else in the next. */
struct next {
    uint64_t panel, run;
};

/* The codes from column k on, where a step begins. */
INLINE const uint8_t *codes_at(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k)
{
    return w->codes + panel * w->panel_bytes + k / cpu_step(w->layout) * 2 * cpu_unit(w->layout);
}

/* The columns from the run p->run on, as many of its segment as there is room for; of affine weights whole blocks
 * of activations. */
static void part_take(const struct tsr_cpu_weight *w, uint64_t panel, struct part *p)
{
    p->panel = panel;
    const struct tsr_cpu_run *u = &w->runs[p->run];
    const uint64_t            step = cpu_step(w->layout);
    uint64_t                  n = 1;
    while (n < PART_RUNS && p->run + n < w->nruns && u[n].segment == u->segment &&
           u[n].k1 - u->k0 <= PART_COLUMNS)
        n++;
    while (w->affine && !block_ends(w, p->run + n - 1)) /* its sums stay in registers until then */
        n--;
    p->end = p->run + n;
    p->k0 = u->k0;
    p->steps = (u[n - 1].k1 - u->k0 + 3) / 4;
    p->packed = codes_at(w, panel, p->k0);
    p->bytes = (4 * p->steps + step - 1) / step * 2 * cpu_unit(w->layout);
    p->codes = w->layout == W_I8 ? p->packed : p->buffer;
}

INLINE void prefetch_share(const uint8_t *from, uint64_t bytes, uint64_t i, uint64_t n)
{
    for (uint64_t b = bytes * i / n; b < bytes * (i + 1) / n; b += 64)
        v_prefetch_l2(from + b);
}

/* The scales of as many runs from `run` on as p has, share i of n of them. */
static void part_prefetch(const struct tsr_cpu_weight *w, const struct part *p, uint64_t panel,
                          uint64_t run, uint64_t i, uint64_t n)
{
    const uint64_t size = w->affine >= AFFINE_BYTES || w->mapped >= MAPPED_BYTES ? 1
                          : w->scale_f16                                         ? 2
                                                                                 : 4;
    const uint64_t at = (panel * w->groups + w->runs[run].group) * PANEL;
    const uint64_t bytes = (p->end - p->run) * PANEL;
    prefetch_share(w->scales + at * size, bytes * size, i, n);
    if (w->minimums)
        prefetch_share(w->minimums + at * size, bytes * size, i, n);
    if (w->zeros)
        prefetch_share(w->zeros + at, bytes, i, n);
}

#endif
