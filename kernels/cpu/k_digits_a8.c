/* k_digits_a8.c - LINEAR with int8 activations on small floats (W_FPX). A value is an integer multiple of
 * its element's smallest step, too large for a byte: the magnitude's base-256 digits come from a table,
 * activations take the sign of their weight, and each digit has a separate sum. A run's sums make one
 * integer, exact for every instruction set, which is rounded to F32 once.
 */
#include "extra.h"
#include "k_codes.h"
#include "k_decl.h"
#include "simd_bytes.h"

#include "k_steps.h"
#include "k_tile_i8.h"
#if TSR_SIMD != 512
#include "k_words_a8.h"
#elif !defined(TSR_SMALL_TILES)
#define ISA_SEVENS /* three digits of 8 tokens */
#include "k_digits_vnni.h"
#endif

/* c0 + 2^8 c1 + 2^16 c2 + 2^24 c3, rounded once.  Sums of a digit are below 2^22 (255 * 127 * 128), so
 * pairs of them fit a lane; what is above the low 16 or 24 bits of the number fits F32, as these do, and
 * the one FMA rounds. */
INLINE v16 digits_f32(const int D, i16v c0, i16v c1, i16v c2, i16v c3)
{
    i16v low = D > 1 ? vi_add(c0, vi_shl(c1, 8)) : c0;
    if (D < 3)
        return vi_cvt(low);
    i16v up = vi_add(D > 3 ? vi_add(c2, vi_shl(c3, 8)) : c2, vi_sar(low, 16));
    low = vi_and(low, 0xffff);
    if (D == 3)
        return v_fma(vi_cvt(up), v_set1(0x1p16f), vi_cvt(low));
    low = vi_or(low, vi_shl(vi_and(up, 255), 16));
    return v_fma(vi_cvt(vi_sar(up, 8)), v_set1(0x1p24f), vi_cvt(low));
}

/* The scales of a run's group for 16 rows: units of the element, NaN where a row has no number. */
INLINE v16 scale_of(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t half, uint64_t group)
{
    return v_mul(element_scale(w, panel, half, group),
                 v_load(w->extra.unit + panel * PANEL + 16 * half));
}

#define DIGITS_SWITCH(n, f)                                                                        \
    switch (n) {                                                                                   \
        TILE_CASE(4, f);                                                                           \
        TILE_CASE(3, f);                                                                           \
        TILE_CASE(2, f);                                                                           \
    default:                                                                                       \
        f(1);                                                                                      \
        break;                                                                                     \
    }

#define TAKE(t) i16v c##t##0 = vi_zero(), c##t##1 = c##t##0, c##t##2 = c##t##0, c##t##3 = c##t##0;
/* one step of a token: w0 to w3 are the digits of `codes` */
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v x = vb_signed(vi_four(q + 4 * t), codes);                                             \
        c##t##0 = vb_dot4(c##t##0, w0, x);                                                         \
        if (D > 1)                                                                                 \
            c##t##1 = vb_dot4(c##t##1, w1, x);                                                     \
        if (D > 2)                                                                                 \
            c##t##2 = vb_dot4(c##t##2, w2, x);                                                     \
        if (D > 3)                                                                                 \
            c##t##3 = vb_dot4(c##t##3, w3, x);                                                     \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        float *to = acc + t * PANEL;                                                               \
        v16    I = digits_f32(D, c##t##0, c##t##1, c##t##2, c##t##3);                              \
        v_store(to, v_fma(I, v_mul(sw, v_set1(sa[t])), v_load(to)));                               \
    }

/* Where digit d of D is not 0 everywhere, in sixteens of the 128 magnitudes: of fp8_e4m3 (two exponents in a
 * sixteen) and of fp8_e5m2 (four) digits have few exponents. */
INLINE uint32_t parts_of(const int D, const int d)
{
    return D == 3   ? (d == 0   ? 0x1f
                       : d == 1 ? 0xf8
                                : 0x80)
           : D == 4 ? (d == 0   ? 0x07
                       : d == 1 ? 0x1e
                       : d == 2 ? 0x78
                                : 0xe0)
                    : 0xff;
}

/* ---- few tokens: looked up and multiplied in registers ----------------------------------- */

/* Bytes between a prefetch of codes and their use, of one stream and of two; the same for scales, in groups. */
#define FEW_AHEAD    4096
#define STREAM_AHEAD 3072
#define SCALES_AHEAD 8u

INLINE void prefetch_scales(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t group)
{
    const uint64_t at = (panel * w->groups + group + SCALES_AHEAD) * PANEL;
    v_prefetch(w->scales + (w->extra.stored ? 4 : 2) * at);
    if (w->extra.stored)
        v_prefetch(w->scales + 4 * at + 64);
}

/* The run r of m tokens for half a panel, or for all of it: then a line of memory follows the other. It begins at a
 * multiple of four columns; columns past its end have zeros in q, [k/4][m][4], or do not exist. Unless `apart` is 0, the
 * run r + apart, of as many columns, takes turns with it. */
INLINE void few_run(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t half,
                    const int halves, uint64_t r, uint64_t apart, const int streams, const int D,
                    const int m, const int permute, struct sums seg)
{
    const struct tsr_cpu_weight *w = a->w;
    const struct tsr_cpu_run    *run[2] = { &w->runs[r], &w->runs[r + apart] };
    const uint64_t               k0 = run[0]->k0, k1 = run[0]->k1, far = run[1]->k0 - k0;
    const uint8_t               *p = w->codes + panel * w->panel_bytes + k0 * PANEL + 64 * half;
    const uint8_t               *table = w->extra.table8;
    const int8_t                *q = a->q + k0 * (uint64_t)m;
    const int                    vectors = streams * halves;
    i16v                         c[4][DIRECT_MAX][DIGITS_MAX];
    UNROLL
    for (int i = 0; i < vectors; i++)
        for (int t = 0; t < m; t++)
            for (int d = 0; d < D; d++)
                c[i][t][d] = vi_zero();
    for (int s = 0; s < streams; s++)
        prefetch_scales(w, panel, run[s]->group);
    for (uint64_t k = k0; k < k1; k += 4, p += 128, q += 4 * m) {
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const uint64_t columns = i < halves ? 0 : far;
            const uint8_t *at = p + columns * PANEL + 64 * (i % halves);
            i16v           codes = vi_load(at), digit[DIGITS_MAX];
            v_prefetch(at + (streams == 2 ? STREAM_AHEAD : FEW_AHEAD));
            UNROLL
            for (int d = 0; d < D; d++)
                digit[d] = vb_lookup128(table + 128 * d, codes, parts_of(D, d), permute);
            UNROLL
            for (int t = 0; t < m; t++) {
                i16v x = vb_signed(vi_four(q + columns * (uint64_t)m + 4 * t), codes);
                UNROLL
                for (int d = 0; d < D; d++)
                    c[i][t][d] = vb_dot4(c[i][t][d], digit[d], x);
            }
        }
    }
    UNROLL
    for (int i = 0; i < vectors; i++) {
        const struct tsr_cpu_run *u = run[i >= halves];
        const uint64_t            h = half + (uint64_t)(i % halves);
        const v16                 sw = scale_of(w, panel, h, u->group);
        const float              *sa = a->sa + u->block * a->tokens;
        UNROLL
        for (int t = 0; t < m; t++) {
            float *to = sums_of(seg, u->segment)[t] + 16 * h;
            i16v  *s = c[i][t];
            v16    I = digits_f32(D, s[0], s[D > 1], s[D > 2 ? 2 : 0], s[D > 3 ? 3 : 0]);
            v_store(to, v_fma(I, v_mul(sw, v_set1(sa[t])), v_load(to)));
        }
    }
}

/* Whether the second half of the columns has the segments and runs of the first: each run then has its like nruns / 2
 * runs later, in a chain of its own. */
static int halves_alike(const struct tsr_cpu_weight *w)
{
    return w->cols % (2 * w->seg) == 0 && (w->groups == 1 || w->cols / 2 % w->group == 0);
}

/* Two streams from memory have more lines in flight than one: with one token the lookups alone do not hide the
 * memory's latency. */
INLINE void few(const struct tsr_cpu_linear8 *a, uint64_t panel, const int D, const int m,
                const int permute, struct sums seg)
{
    const struct tsr_cpu_weight *w = a->w;
    const int                    halves = permute && m * D <= 6 ? 2 : 1; /* sums in registers */
    if (permute && m == 1 && halves_alike(w)) {
        for (uint64_t r = 0; r < w->nruns / 2; r++)
            few_run(a, panel, 0, halves, r, w->nruns / 2, 2, D, m, permute, seg);
        return;
    }
    for (uint64_t r = 0; r < w->nruns; r++)
        for (int half = 0; half < 2; half += halves)
            few_run(a, panel, (uint64_t)half, halves, r, 0, 1, D, m, permute, seg);
}

/* ---- many tokens: a run's digits in the first cache ----------------------------------------- */

#if TSR_SIMD == 512
#define STEP_BYTES(D) (64 * (1 + (D)))
#define STEP_MOST     STEP_BYTES(DIGITS_MAX)
/* Tokens whose sums of D digits fit into registers. */
#define SUB(D) ((uint64_t)((D) == 4 ? ISA_TOKENS8 / 2 : ISA_TOKENS8))

struct lookups {
    const uint8_t *b;
};

static void lookups_of(const struct tsr_cpu_weight *w, struct lookups *t)
{
    t->b = w->extra.table8;
}

/* The codes of 16 rows of four columns, and their digits. */
INLINE void expand_step(const struct lookups *t, const int D, const int permute, i16v codes,
                        uint8_t *dst)
{
    vb_store(dst, codes);
    for (int d = 0; d < D; d++)
        vb_store(dst + 64 * (1 + d), vb_lookup128(t->b + 128 * d, codes, parts_of(D, d), permute));
}

/* m tokens of a tile of `tile`: q is [k/4][tile][4]. */
INLINE void fold(const int D, const int m, uint64_t tile, const uint8_t *digits, const int8_t *q,
                 uint64_t steps, const v16 sw, const float *sa, float *acc)
{
    TILE8_EACH(TAKE)
    for (uint64_t i = 0; i < steps; i++, digits += STEP_BYTES(D), q += 4 * tile) {
        i16v codes = vi_load(digits), w0 = vi_load(digits + 64), w1 = w0, w2 = w0, w3 = w0;
        if (D > 1)
            w1 = vi_load(digits + 128);
        if (D > 2)
            w2 = vi_load(digits + 192);
        if (D > 3)
            w3 = vi_load(digits + 256);
        TILE8_EACH(STEP)
    }
    TILE8_EACH(GIVE)
}
#endif

#undef TAKE
#undef STEP
#undef GIVE

/* The multipliers of a run of 16 rows: STEP_BYTES(D) for every four columns. */
INLINE void expand(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t half,
                   const struct tsr_cpu_run *u, const struct lookups *t, const int D,
                   const int permute, uint8_t *dst)
{
    const struct steps s = steps_of(u);
    const uint8_t     *p = w->codes + panel * w->panel_bytes + s.first * 128 + 64 * half;
    for (uint64_t i = 0; i < s.n; i++, p += 128, dst += STEP_BYTES(D))
        expand_step(t, D, permute, step_codes(&s, i, p), dst);
}

/* Half a run, expanded to `digits`, for the tokens [t0,t1). */
INLINE void fold_run(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t half,
                     const struct tsr_cpu_run *u, const int D, const uint8_t *digits, uint64_t t0,
                     uint64_t t1, float (*acc)[PANEL])
{
    const uint64_t steps = (u->k1 + 3) / 4 - u->k0 / 4;
    const v16      sw = scale_of(a->w, panel, half, u->group);
    const float   *sa = a->sa + u->block * a->tokens;
    for (uint64_t t = t0; t < t1;) {
        const uint64_t first = t / ISA_TOKENS8 * ISA_TOKENS8;
        const uint64_t tile = a->tokens - first < ISA_TOKENS8 ? a->tokens - first : ISA_TOKENS8;
        const uint64_t left = first + tile - t, m = left < SUB(D) ? left : SUB(D);
        const int8_t  *q = a->q + first * a->ldq + u->k0 / 4 * 4 * tile + 4 * (t - first);
#define CALL(n) fold(D, n, tile, digits, q, steps, sw, sa + t, &acc[t - t0][16 * half])
        TILE8_SWITCH(m, CALL)
#undef CALL
        t += m;
    }
}

/* One function for each number of digits: a single one would need too many registers. */
#define FOLD(D)                                                                                    \
    static                                                                                         \
        __attribute__((noinline)) void fold_##D(const struct tsr_cpu_linear8 *a, uint64_t panel,   \
                                                uint64_t half, const struct tsr_cpu_run *u,        \
                                                const uint8_t *digits, uint64_t t0, uint64_t t1,   \
                                                float(*acc)[PANEL])                                \
    {                                                                                              \
        fold_run(a, panel, half, u, D, digits, t0, t1, acc);                                       \
    }
FOLD(1)
FOLD(2)
FOLD(3)
FOLD(4)

#ifdef ISA_SEVENS
/* The whole tiles of weights of three digits: returns the token after them. */
static __attribute__((noinline)) uint64_t many_sevens(const struct tsr_cpu_linear8 *a,
                                                      uint64_t panel, uint64_t t0, uint64_t t1,
                                                      struct sums seg)
{
    const struct tsr_cpu_weight *w = a->w;
    struct sevens                table;
    _Alignas(64) uint8_t         digits[2][(BLOCK / 4 + 1) * SEVENS_STEP], q[(BLOCK / 4 + 1) * 32];
    if (!sevens_of(w->extra.table8, &table))
        return t0;
    for (const struct tsr_cpu_run *u = w->runs; u < w->runs + w->nruns; u++) {
        const struct steps s = steps_of(u);
        const uint8_t     *p = w->codes + panel * w->panel_bytes + s.first * 128;
        const float       *sa = a->sa + u->block * a->tokens;
        i16v               base[2][3];
        v16                sw[2];
        for (uint64_t half = 0; half < 2; half++) {
            sw[half] = scale_of(w, panel, half, u->group);
            base[half][0] = base[half][1] = base[half][2] = vi_zero();
            for (uint64_t i = 0; i < s.n; i++) {
                i16v     codes = step_codes(&s, i, p + 128 * i + 64 * half);
                uint8_t *to = digits[half] + SEVENS_STEP * i;
                if (a->permute)
                    sevens_step(&table, 1, codes, to, base[half]);
                else
                    sevens_step(&table, 0, codes, to, base[half]);
            }
            for (int d = 0; d < 3; d++)
                base[half][d] = vi_sub(vi_zero(), base[half][d]);
        }
        for (uint64_t t = t0; t + ISA_TOKENS8 <= t1; t += ISA_TOKENS8) {
            sevens_activations(q, a->q + t * a->ldq + s.first * 32, s.n);
            for (int half = 0; half < 2; half++)
                sevens_tile(digits[half], q, s.n, base[half], &sw[half], sa + t,
                            &sums_of(seg, u->segment)[t - t0][16 * half]);
        }
    }
    return t0 + (t1 - t0) / ISA_TOKENS8 * ISA_TOKENS8;
}
#endif

INLINE void many(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1,
                 struct sums seg)
{
    uint64_t from = t0;
#ifdef ISA_SEVENS
    if (a->w->extra.digits == 3)
        from = many_sevens(a, panel, t0, t1, seg);
    if (from == t1)
        return;
#endif
    const struct tsr_cpu_weight *w = a->w;
    struct lookups               t;
    uint8_t                      digits[(BLOCK / 4 + 1) * STEP_MOST] __attribute__((aligned(64)));
    lookups_of(w, &t);
    for (uint64_t r = 0; r < w->nruns; r++)
        for (uint64_t half = 0; half < 2; half++) {
            const struct tsr_cpu_run *u = &w->runs[r];
#define CALL(D)                                                                                    \
    do {                                                                                           \
        if (TSR_SIMD == 512 && a->permute)                                                         \
            expand(w, panel, half, u, &t, D, 1, digits);                                           \
        else                                                                                       \
            expand(w, panel, half, u, &t, D, 0, digits);                                           \
        fold_##D(a, panel, half, u, digits, from, t1, sums_of(seg, u->segment) + (from - t0));     \
    } while (0)
            DIGITS_SWITCH(w->extra.digits, CALL)
#undef CALL
        }
}

/* ---- both -------------------------------------------------------------------------------------- */

/* A large frame is touched page by page on entry: decode has its own. */
static __attribute__((noinline)) void large(const struct tsr_cpu_linear8 *a, uint64_t panel,
                                            uint64_t t0, uint64_t t1)
{
    float             v[SEGMENTS * TOKENS_MAX][PANEL];
    const struct sums seg = { v, t1 - t0 };
    memset(v, 0, SEGMENTS * (t1 - t0) * sizeof v[0]);
    many(a, panel, t0, t1, seg);
    i8_finish(a, panel, t0, t1, seg);
}

INLINE void small_of(const struct tsr_cpu_linear8 *a, uint64_t panel, const int D,
                     const int permute, struct sums seg)
{
#define CALL(m) few(a, panel, D, m, permute, seg)
    FEW_SWITCH(a->tokens, CALL)
#undef CALL
}

static __attribute__((noinline)) void small(const struct tsr_cpu_linear8 *a, uint64_t panel)
{
    float             v[SEGMENTS * DIRECT_MAX][PANEL];
    const struct sums seg = { v, a->tokens };
    memset(v, 0, SEGMENTS * a->tokens * sizeof v[0]);
#define CALL(D)                                                                                    \
    do {                                                                                           \
        if (TSR_SIMD == 512 && a->permute)                                                         \
            small_of(a, panel, D, 1, seg);                                                         \
        else                                                                                       \
            small_of(a, panel, D, 0, seg);                                                         \
    } while (0)
    DIGITS_SWITCH(a->w->extra.digits, CALL)
#undef CALL
    i8_finish(a, panel, 0, a->tokens, seg);
}

void K(digits_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    if (a->tokens <= DIRECT_MAX && a->w->aligned)
        small(a, panel);
    else
        large(a, panel, t0, t1);
}
