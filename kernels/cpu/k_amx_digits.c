/* k_amx_digits.c - LINEAR with int8 activations on small floats (W_FPX), many tokens, on tile registers: a number is
 * three signed digits to base 128, each with a tile of its own. The integer of a run is that of k_digits_a8.c. */
#include "extra.h"
#include "k_amx.h"
#include "k_codes.h"
#include "k_tile_i8.h"
#include "simd_bytes.h"

#define DIGITS 3u
#define PLANE  (BLOCK * 16u) /* bytes of a digit of a run of 16 rows */

struct lookups {
    _Alignas(64) uint8_t b[DIGITS][128]; /* of a magnitude */
};

static void lookups_of(const struct tsr_cpu_weight *w, struct lookups *t)
{
    const struct tsr_cpu_extra *e = &w->extra;
    for (uint32_t i = 0; i < 128; i++) {
        uint32_t v = 0;
        for (uint32_t d = 0; d < e->digits; d++)
            v |= (uint32_t)e->table8[128 * d + i] << 8 * d;
        for (uint32_t d = 0; d < DIGITS; d++, v >>= 7)
            t->b[d][i] = v & 127u;
    }
}

/* The digits of a run of 16 rows, [DIGITS][columns/4][16 rows][4]. */
INLINE void expand(const struct lookups *t, const int permute, const uint8_t *codes, uint64_t steps,
                   uint8_t *dst)
{
    for (uint64_t i = 0; i < steps; i++, codes += 4 * PANEL, dst += 64) {
        i16v c = vi_load(codes);
        v_prefetch(codes + 4096);
        UNROLL
        for (uint32_t d = 0; d < DIGITS; d++)
            vb_store(dst + PLANE * d, vb_signed(vb_lookup128(t->b[d], c, 0xff, permute), c));
    }
}

/* The sums of a run, [DIGITS][AMX_TOKENS][16 rows]. */
INLINE void products(const uint8_t *digits, const int8_t *q, uint64_t steps,
                     int32_t (*c)[AMX_TOKENS * 16])
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    for (; steps; steps--, digits += AMX_STEP * 16, q += AMX_STEP * AMX_TOKENS) {
        TILE_LOAD(3, q, AMX_STEP);
        TILE_LOAD(4, digits, 64);
        TILE_LOAD(5, digits + PLANE, 64);
        TILE_LOAD(6, digits + (uint64_t)2 * PLANE, 64);
        TILE_DOT(0, 4, 3);
        TILE_DOT(1, 5, 3);
        TILE_DOT(2, 6, 3);
    }
    TILE_STORE(0, c[0]);
    TILE_STORE(1, c[1]);
    TILE_STORE(2, c[2]);
}

/* Adds the sums c0 + 2^7 c1 + 2^14 c2 of m tokens, rounded once, to acc[m][PANEL]. A digit's sums are below
 * 2^21 in magnitude. */
INLINE void fold(int32_t (*c)[AMX_TOKENS * 16], uint64_t m, const v16 sw, const float *sa,
                 float *acc)
{
    for (uint64_t t = 0; t < m; t++, acc += PANEL) {
        i16v low = vi_add(vi_load(c[0] + 16 * t), vi_shl(vi_load(c[1] + 16 * t), 7));
        i16v up = vi_add(vi_load(c[2] + 16 * t), vi_sar(low, 14));
        v16  I = v_fma(vi_cvt(up), v_set1(0x1p14f), vi_cvt(vi_and(low, 0x3fff)));
        v_store(acc, v_fma(I, v_mul(sw, v_set1(sa[t])), v_load(acc)));
    }
}

/* A run of half a panel for the tokens [t0,t1). */
INLINE void run_half(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t half,
                     const struct tsr_cpu_run *u, const struct lookups *t, uint64_t t0, uint64_t t1,
                     float (*acc)[PANEL])
{
    _Alignas(64) uint8_t         digits[DIGITS * PLANE];
    _Alignas(64) int32_t         c[2][DIGITS][AMX_TOKENS * 16];
    const struct tsr_cpu_weight *w = a->w;
    const uint64_t               steps = (u->k1 - u->k0) / AMX_STEP;
    const uint8_t *codes = w->codes + panel * w->panel_bytes + u->k0 * PANEL + 64 * half;
    const v16      sw = v_mul(element_scale(w, panel, half, u->group),
                              v_load(w->extra.unit + panel * PANEL + 16 * half));
    const float   *sa = a->sa + u->block * a->tokens;
    const int8_t  *q = a->q + u->k0 * AMX_TOKENS;
    if (a->permute)
        expand(t, 1, codes, steps * (AMX_STEP / 4), digits);
    else
        expand(t, 0, codes, steps * (AMX_STEP / 4), digits);
    products(digits, q + t0 * a->ldq, steps, c[0]);
    for (uint64_t i = 0, at = t0; at < t1; i++, at += AMX_TOKENS) {
        if (at + AMX_TOKENS < t1) /* the next tile's products overlap the work on this one */
            products(digits, q + (at + AMX_TOKENS) * a->ldq, steps, c[(i + 1) % 2]);
        fold(c[i % 2], t1 - at < AMX_TOKENS ? t1 - at : AMX_TOKENS, sw, sa + at,
             &acc[at - t0][16 * half]);
    }
}

static void digits(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    float                        v[SEGMENTS * TOKENS_MAX][PANEL];
    const struct sums            seg = { v, t1 - t0 };
    struct lookups               t;
    memset(v, 0, SEGMENTS * (t1 - t0) * sizeof v[0]);
    lookups_of(w, &t);
    tiles_begin();
    for (uint64_t r = 0; r < w->nruns; r++)
        for (uint64_t half = 0; half < 2; half++)
            run_half(a, panel, half, &w->runs[r], &t, t0, t1, sums_of(seg, w->runs[r].segment));
    tiles_end();
    i8_finish(a, panel, t0, t1, seg);
}

const struct tsr_cpu_amx_digits tsr_cpu_amx_digits = { digits };
