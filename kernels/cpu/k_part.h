/* k_part.h - columns of a panel as tiles of tokens take them, whatever the layout: codes as bytes, scales as
 * F32. They are unpacked once, and all tiles read them out of the first cache. */
#ifndef TSR_K_PART_H
#define TSR_K_PART_H

#include "k_codes.h"
#include "tile_many.h"
#include "tile_words.h"

#define PART_COLUMNS 512u /* a multiple of every step */
#define PART_RUNS    32u

/* tokens of a tile */
#define ISA_TOKENS_MANY CPU_TILE_MANY(ISA_TOKENS8)

struct part {
    uint64_t       panel;
    uint64_t       run, end;  /* the runs [run,end), of one segment */
    uint64_t       k0, steps; /* the first column; steps of four columns */
    const uint8_t *packed;    /* their codes, */
    uint64_t       bytes;     /* how many bytes, */
    /* and unpacked: [steps][2][16 rows][4 columns], or in each half of the buffer [steps][4 versions][16 rows][4 columns]:
     * as they are, with 255 less those of the second column, of the fourth, and of both */
    const uint8_t *codes;
    _Alignas(64) uint8_t buffer[PART_COLUMNS * PANEL];
    _Alignas(64) float scale[PART_RUNS][PANEL];
    union {
        float   minimum[PART_RUNS][PANEL]; /* tessera.int/2 */
        int32_t zero[PART_RUNS][PANEL];    /* where the weight stores zero points */
    };
    uint64_t fours[PART_RUNS]; /* in versions: steps of a run */
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
 * of activations. wide: of one block, and each becomes four. */
static void part_take(const struct tsr_cpu_weight *w, const int wide, uint64_t panel,
                      struct part *p)
{
    p->panel = panel;
    const struct tsr_cpu_run *u = &w->runs[p->run];
    const uint64_t            step = cpu_step(w->layout);
    uint64_t                  n = 1;
    while (n < PART_RUNS && p->run + n < w->nruns && u[n].segment == u->segment &&
           u[n].k1 - u->k0 <= PART_COLUMNS / (wide ? 4 : 1) && (!wide || u[n].block == u->block))
        n++;
    while (w->affine && !block_ends(w, p->run + n - 1)) /* its sums stay in registers until then */
        n--;
    p->end = p->run + n;
    p->k0 = u->k0;
    p->steps = (u[n - 1].k1 - u->k0 + 3) / 4;
    p->packed = codes_at(w, panel, p->k0);
    p->bytes = (4 * p->steps + step - 1) / step * 2 * cpu_unit(w->layout);
    p->codes = w->layout == W_I8 && !wide ? p->packed : p->buffer;
    for (uint64_t i = 0; wide && i < n; i++)
        p->fours[i] = (u[i].k1 - u[i].k0 + 3) / 4;
}

/* Scales, minimums and zero points of a part. */
INLINE void part_scales(const struct tsr_cpu_weight *w, struct part *p)
{
    const enum run_kind kind = kind_of(w);
    for (uint64_t r = p->run; r < p->end; r++)
        for (uint64_t v = 0; v < 2; v++) {
            const uint64_t group = w->runs[r].group;
            struct affine  g = group_of(w, p->panel, group, v, kind);
            v_store(&p->scale[r - p->run][16 * v], g.scale);
            if (w->affine)
                v_store(&p->minimum[r - p->run][16 * v], g.minimum);
            else if (w->zeros)
                vb_store(&p->zero[r - p->run][16 * v],
                         vi_load_u8(w->zeros + (p->panel * w->groups + group) * PANEL + 16 * v));
        }
}

/* A tile of m tokens in a part of a panel. */
struct part_tile {
    const int8_t  *q; /* [k/4][m][4] from the part's first column on, or as tile_words.h has it */
    uint64_t       size;   /* of opposed activations: bytes from a tile to the next */
    const int32_t *sums;   /* [nruns][m]; of affine weights their F32 */
    const int32_t *starts; /* [nruns][m]: tile_words.h */
    const float   *sa;     /* [nblocks][m] */
    const uint8_t *ahead;  /* codes of the next part, and how far apart from step to step */
    uint64_t       stride;
};

/* Bytes of the next part that the tiles of this one prefetch in equal shares. */
struct ahead {
    struct {
        const uint8_t *from;
        uint64_t       bytes, share;
    } of[5];
    uint32_t n;
};

INLINE void ahead_add(struct ahead *a, const uint8_t *from, uint64_t bytes, uint64_t tiles)
{
    a->of[a->n].from = from;
    a->of[a->n].bytes = bytes;
    a->of[a->n++].share = (bytes + 64 * tiles - 1) / (64 * tiles) * 64;
}

/* The scales of as many runs from `next` on as p has, and what belongs to them. */
static void ahead_scales(const struct tsr_cpu_weight *w, const struct part *p, struct next next,
                         uint64_t tiles, struct ahead *a)
{
    const int      coded = w->affine >= AFFINE_BYTES || w->mapped >= MAPPED_BYTES;
    const uint64_t size = coded ? 1 : w->scale_f16 ? 2 : 4, n = p->end - p->run;
    const uint64_t group = w->runs[next.run].group, at = (next.panel * w->groups + group) * PANEL;
    ahead_add(a, w->scales + at * size, n * PANEL * size, tiles);
    if (w->minimums)
        ahead_add(a, w->minimums + at * size, n * PANEL * size, tiles);
    if (w->zeros)
        ahead_add(a, w->zeros + at, n * PANEL, tiles);
    if (w->factors && w->mapped != MAPPED_ELEMENTS) {
        const uint64_t bytes = 2 * PANEL * (w->affine ? 2 : 1);
        const uint64_t record = next.panel * w->records + (group >> w->record_shift);
        ahead_add(a, w->factors + record * bytes, ((n - 1) >> w->record_shift) * bytes + bytes,
                  tiles);
    }
}

/* The share of tile i. */
INLINE void ahead_prefetch(const struct ahead *a, uint64_t i)
{
    for (uint32_t k = 0; k < a->n; k++) {
        uint64_t b = a->of[k].share * i, end = b + a->of[k].share;
        for (end = end < a->of[k].bytes ? end : a->of[k].bytes; b < end; b += 64)
            v_prefetch_l2(a->of[k].from + b);
    }
}

#endif
