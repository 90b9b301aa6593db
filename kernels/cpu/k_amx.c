/* k_amx.c - LINEAR with int8 activations, many tokens, on tile registers: a tile's sums over one run are 16 tokens
 * by 16 rows, exact; then one FMA by weight scale times activation scale for each, in the order of
 * k_linear_a8.c (docs/decisions/numerics.md). */
#include "k_amx.h"
#include "k_part.h"
#include "k_tile_a8.h"

/* Which codes a part has. */
enum codes {
    CODES_SIGNED, /* less the zero point */
    CODES_STORED, /* unsigned, with zero points of their own */
    CODES_AFFINE  /* unsigned, with minimums */
};

static void pack(int8_t *dst, const int8_t *q, uint64_t ldq, uint64_t m)
{
    for (uint64_t k = 0; k < ldq; k += AMX_STEP, dst += AMX_STEP * AMX_TOKENS) {
        for (uint64_t t = 0; t < m; t++)
            memcpy(dst + t * AMX_STEP, q + t * ldq + k, AMX_STEP);
        memset(dst + m * AMX_STEP, 0, (AMX_TOKENS - m) * AMX_STEP);
    }
}

/* The codes of a part as bytes. */
INLINE void unpack_of(const struct tsr_cpu_weight *w, const enum tsr_cpu_layout l,
                      const enum run_kind kind, struct part *p)
{
    const uint64_t step = cpu_step(l), unit = cpu_unit(l);
    const int      looked_up = kind == RUN_MAPPED && cpu_looked_up(l);
    /* the zero point of the affine is 0 */
    const i16v     all = vi_set1((int32_t)(w->mid * 0x01010101u));
    const i16v     mid = looked_up || w->zeros ? vi_zero() : all;
    const i16v     table = _mm512_sub_epi8(run_table(w, kind), all);
    const uint8_t *c = p->packed;
    uint8_t       *to = p->buffer;
    for (uint64_t k = 0; k < 4 * p->steps; k += step, c += 2 * unit) {
        struct code_step a = code_load(l, c), b = code_load(l, c + unit);
        UNROLL
        for (int j = 0; j < (int)step / 4; j++, to += 128) {
            vb_store(to, _mm512_sub_epi8(run_four(kind, l, &a, j, table), mid));
            vb_store(to + 64, _mm512_sub_epi8(run_four(kind, l, &b, j, table), mid));
        }
    }
}

/* A function for each layout. */
#define UNPACK(kind, l)                                                                            \
    static __attribute__((noinline)) void unpack_##kind##_##l(const struct tsr_cpu_weight *w,      \
                                                              struct part                 *p)      \
    {                                                                                              \
        unpack_of(w, l, kind, p);                                                                  \
    }
UNPACK(RUN_PLAIN, W_I8)
UNPACK(RUN_PLAIN, W_I6)
UNPACK(RUN_PLAIN, W_I5)
UNPACK(RUN_PLAIN, W_I4)
UNPACK(RUN_PLAIN, W_I3)
UNPACK(RUN_PLAIN, W_I2)
UNPACK(RUN_MAPPED, W_I4)
UNPACK(RUN_MAPPED, W_I3)
UNPACK(RUN_MAPPED, W_I2)

static void (*const unpacks[2][W_I2 + 1])(const struct tsr_cpu_weight *w, struct part *p) = {
    { [W_I8] = unpack_RUN_PLAIN_W_I8,
      [W_I6] = unpack_RUN_PLAIN_W_I6,
      [W_I5] = unpack_RUN_PLAIN_W_I5,
      [W_I4] = unpack_RUN_PLAIN_W_I4,
      [W_I3] = unpack_RUN_PLAIN_W_I3,
      [W_I2] = unpack_RUN_PLAIN_W_I2 },
    { [W_I4] = unpack_RUN_MAPPED_W_I4,
      [W_I3] = unpack_RUN_MAPPED_W_I3,
      [W_I2] = unpack_RUN_MAPPED_W_I2 },
};

/* The codes of a part, and its scales, minimums and zero points as F32 and integers. */
static void unpack(const struct tsr_cpu_weight *w, struct part *p)
{
    unpacks[w->mapped && cpu_looked_up(w->layout)][w->layout](w, p);
    part_scales(w, p);
}

/* A tile of tokens in a part of a panel. */
struct tokens {
    uint64_t       m;    /* the tokens that there are */
    const int8_t  *q;    /* pack(), from column 0 on */
    const int32_t *sums; /* [nruns][m], of affine weights F32 */
    const float   *sa;   /* [nblocks][m] */
};

/* Where the products of a run begin: codes of half a panel, and activations. */
struct place {
    const uint8_t *codes;
    const int8_t  *q;
};

/* The sums of a run of half a panel, [AMX_TOKENS][16 rows]; on to the next one. */
INLINE void products(const enum codes kind, const struct tsr_cpu_run *u, struct place *at,
                     int32_t *to)
{
    TILE_ZERO(0);
    for (uint32_t n = (u->k1 - u->k0) / AMX_STEP; n; n--) {
        TILE_LOAD(3, at->q, AMX_STEP);
        TILE_LOAD(4, at->codes, 128);
        if (kind == CODES_SIGNED)
            TILE_DOT(0, 4, 3);
        else
            TILE_DOT_UNSIGNED(0, 4, 3);
        at->codes += AMX_STEP * PANEL;
        at->q += AMX_STEP * AMX_TOKENS;
    }
    TILE_STORE(0, to);
}

/* Runs whose products are issued before a run is folded: a load waits until the tile that it reads is stored. */
#define AHEAD 2u
#define RING  4u

#define EACH(X)                                                                                    \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

/* acc[AMX_TOKENS][PANEL] with the runs of a part, of half v of the rows. Tokens that the tile does not have are
 * computed and not used. */
INLINE void fold(const struct tsr_cpu_weight *w, const enum codes kind, const struct part *p,
                 const uint64_t v, const struct tokens *tile, float *acc)
{
    _Alignas(64) int32_t c[RING][AMX_TOKENS * 16];
#define BEGIN(t) v16 f##t = kind == CODES_AFFINE ? v_set1(0.0f) : v_load(acc + t * PANEL);
#define FOLD(t)                                                                                    \
    {                                                                                              \
        i16v sum = vi_load(c[r % RING] + 16 * t);                                                  \
        if (kind == CODES_STORED)                                                                  \
            sum = vi_add(sum, vi_mul16(zero, vi_set1(sums[t])));                                   \
        if (kind == CODES_AFFINE)                                                                  \
            f##t = v_fma(vi_bits_f32(vi_set1(sums[t])), minimum, v_fma(vi_cvt(sum), scale, f##t)); \
        else                                                                                       \
            f##t = v_fma(vi_cvt(sum), v_mul(scale, v_set1(sa[t])), f##t);                          \
    }
/* the block's sums enter the chain */
#define FINISH(t)                                                                                  \
    v_store(acc + t * PANEL, v_fma(f##t, v_set1(sa[t]), v_load(acc + t * PANEL)));                 \
    f##t = v_set1(0.0f);
#define GIVE(t) v_store(acc + t * PANEL, f##t);
    EACH(BEGIN)
    const struct tsr_cpu_run *u = &w->runs[p->run];
    const uint64_t            n = p->end - p->run, m = tile->m;
    const int32_t            *sums = tile->sums + p->run * m;
    struct place              at = { p->buffer + 64 * v, tile->q + p->k0 * AMX_TOKENS };
    for (uint64_t r = 0; r < n && r < AHEAD; r++)
        products(kind, &u[r], &at, c[r % RING]);
    for (uint64_t r = 0; r < n; r++, sums += m) {
        const float *sa = tile->sa + u[r].block * m;
        const v16    scale = v_load(&p->scale[r][16 * v]);
        v16          minimum = scale;
        i16v         zero = vi_zero();
        if (kind == CODES_AFFINE)
            minimum = v_load(&p->minimum[r][16 * v]);
        if (kind == CODES_STORED)
            zero = vi_load(&p->zero[r][16 * v]);
        if (r + AHEAD < n)
            products(kind, &u[r + AHEAD], &at, c[(r + AHEAD) % RING]);
        EACH(FOLD)
        if (kind == CODES_AFFINE && block_ends(w, p->run + r)) {
            EACH(FINISH)
        }
    }
    if (kind != CODES_AFFINE) {
        EACH(GIVE)
    }
#undef BEGIN
#undef FOLD
#undef FINISH
#undef GIVE
}

/* A function for each kind of codes, with a frame of its own. */
#define TILE(kind)                                                                                 \
    static __attribute__((noinline)) void tile_##kind(const struct tsr_cpu_weight *w,              \
                                                      const struct part           *p,              \
                                                      const struct tokens *tile, float *acc)       \
    {                                                                                              \
        for (uint64_t v = 0; v < 2; v++)                                                           \
            fold(w, kind, p, v, tile, acc + 16 * v);                                               \
    }
TILE(CODES_SIGNED)
TILE(CODES_STORED)
TILE(CODES_AFFINE)

/* All tokens [t0,t1) through a part: acc[t1 - t0][PANEL], with room for whole tiles. */
static void part_of(const struct tsr_cpu_linear *a, struct part *p, struct next next, uint64_t t0,
                    uint64_t t1, float (*acc)[PANEL])
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               tiles = (t1 - t0 + AMX_TOKENS - 1) / AMX_TOKENS;
    struct ahead                 ahead = { .n = 0 };
    ahead_add(&ahead, codes_at(w, next.panel, w->runs[next.run].k0), p->bytes, tiles);
    ahead_scales(w, p, next, tiles, &ahead);
    unpack(w, p);
    for (uint64_t i = 0; i < tiles; i++) {
        const uint64_t t = t0 + i * AMX_TOKENS, m = t1 - t < AMX_TOKENS ? t1 - t : AMX_TOKENS;
        struct tokens  tile = { .m = m,
                                .q = a->qpack + t * a->ldq,
                                .sums = a->sums + t * w->nruns,
                                .sa = a->sa + t * w->nblocks };
        ahead_prefetch(&ahead, i);
        (w->affine  ? tile_CODES_AFFINE
         : w->zeros ? tile_CODES_STORED
                    : tile_CODES_SIGNED)(w, p, &tile, acc[i * AMX_TOKENS]);
    }
}

/* As many() of k_tiles_a8.h. */
static void linear(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t np, uint64_t t0,
                   uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               n = t1 - t0;
    _Alignas(64) float           level[GROUP][3][TOKENS_MAX][PANEL], odd[TOKENS_MAX][PANEL];
    struct part                  p;
    uint64_t                     first = 0;
    _Static_assert(TOKENS_MAX % AMX_TOKENS == 0, "room for whole tiles");
    tiles_begin();
    for (uint64_t s = 0; s < SEGMENTS; s++) {
        uint64_t last = first;
        while (last < w->nruns && w->runs[last].segment == s)
            last++;
        for (uint64_t i = 0; i < np; i++) {
            float(*acc)[PANEL] = s % 2 ? odd : level[i][0];
            memset(acc, 0, (n + AMX_TOKENS - 1) / AMX_TOKENS * AMX_TOKENS * sizeof acc[0]);
            for (p.run = first; p.run < last; p.run = p.end) {
                struct next next = { panel + i, 0 };
                part_take(w, 0, panel + i, &p);
                if (p.end < last)
                    next.run = p.end;
                else if (i + 1 < np)
                    next = (struct next){ panel + i + 1, first };
                else if (last < w->nruns)
                    next = (struct next){ panel, last };
                part_of(a, &p, next, t0, t1, acc);
            }
            if (s == 7)
                tree(a, panel + i, t0, n, 3, odd, level[i]);
            else if (s == 3)
                tree(a, panel + i, t0, n, 2, odd, level[i]);
            else if (s % 2)
                tree(a, panel + i, t0, n, 1, odd, level[i]);
        }
        first = last;
    }
    tiles_end();
}

const struct tsr_cpu_amx_kernels tsr_cpu_amx = { pack, linear, &tsr_cpu_amx_digits };
