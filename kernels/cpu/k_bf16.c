/* k_bf16.c - LINEAR and its probe on vdpbf16ps. */
#include "bf16.h"
#include "k_ahead.h"
#include "k_tile.h"

#define COLS                                                                                       \
    256u /* columns that are paired at once: 16 KiB, so that they stay in the first cache */
#define X_AHEAD 64u /* pairs between a prefetch of activations and their use */

/* In assembly, so that the accumulator stays in its register, as with vpdpbusd. */
static inline v16 dot2(v16 acc, i16v w, i16v x)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}

static void pack(uint32_t *dst, const float *x, uint64_t ldx, uint64_t m, uint64_t cols)
{
    uint64_t pairs = (cols + 1) / 2;
    for (uint64_t t = 0; t < m; t++, x += ldx) {
        uint64_t p = 0;
        for (; p + 16 <= pairs; p += 16) {
            uint64_t n = cols - 2 * p < 32 ? cols - 2 * p : 32;
            v16      a = v_load(x + 2 * p);
            v16      b = n == 32 ? v_load(x + 2 * p + 16) : v_loadn(x + 2 * p + 16, n - 16);
            uint32_t q[16];
            __m512i  h = (__m512i)_mm512_cvtne2ps_pbh(b, a);
            memcpy(q, &h, sizeof q);
            for (uint64_t i = 0; i < 16; i++)
                dst[(p + i) * m + t] = q[i];
        }
        for (; p < pairs; p++) {
            v16      a = v_loadn(x + 2 * p, cols - 2 * p < 2 ? 1 : 2);
            __m512i  h = (__m512i)_mm512_cvtne2ps_pbh(a, a);
            uint32_t q[16];
            memcpy(q, &h, sizeof q);
            dst[p * m + t] = q[0];
        }
    }
}

/* Columns [k, k+n) of a panel, [k][PANEL] BF16, to [pair][PANEL][2]; an odd last one with zeros. */
static void pair_up(uint32_t *dst, const uint16_t *w, uint64_t n)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (uint64_t k = 0; k < n; k += 2, w += 2 * PANEL, dst += PANEL) {
        __m512i a = _mm512_loadu_si512(w), b = _mm512_setzero_si512();
        if (k + 1 < n)
            b = _mm512_loadu_si512(w + PANEL);
        _mm512_storeu_si512(dst, _mm512_permutex2var_epi16(a, low, b));
        _mm512_storeu_si512(dst + 16, _mm512_permutex2var_epi16(a, high, b));
    }
}

/* m tokens by ISA_VECS vectors of rows over n pairs: acc[t][PANEL] continues its sums. */
INLINE void tile(const int m, const uint32_t *w, const uint32_t *x, uint64_t n, float *acc)
{
#define TAKE(t)                                                                                    \
    v16 c##t##a = v_set1(0.0f);                                                                    \
    SECOND(v16 c##t##b = c##t##a;)                                                                 \
    if (t < m) {                                                                                   \
        c##t##a = v_load(acc + t * PANEL);                                                         \
        SECOND(c##t##b = v_load(acc + t * PANEL + 16);)                                            \
    }
#define STEP(t)                                                                                    \
    if (t < m) {                                                                                   \
        i16v xt = vi_set1((int32_t)x[t]);                                                          \
        c##t##a = dot2(c##t##a, wa, xt);                                                           \
        SECOND(c##t##b = dot2(c##t##b, wb, xt);)                                                   \
    }
#define GIVE(t)                                                                                    \
    if (t < m) {                                                                                   \
        v_store(acc + t * PANEL, c##t##a);                                                         \
        SECOND(v_store(acc + t * PANEL + 16, c##t##b);)                                            \
    }
    TILE_EACH(TAKE)
    for (uint64_t k = 0; k < n; k++, w += PANEL, x += m) {
        i16v wa = vi_load(w);
        SECOND(i16v wb = vi_load(w + 16);)
        v_prefetch(x + X_AHEAD * (uint64_t)m);
        TILE_EACH(STEP)
    }
    TILE_EACH(GIVE)
#undef TAKE
#undef STEP
#undef GIVE
}

static void tile_any(uint64_t m, const uint32_t *w, const uint32_t *x, uint64_t n, float *acc)
{
    for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS, w += 16 * ISA_VECS, acc += 16 * ISA_VECS) {
#define CALL(i) tile(i, w, x, n, acc)
        TILE_SWITCH(m, CALL)
#undef CALL
    }
}

static void put(const struct tsr_cpu_linear *a, uint64_t row, float *out, const float *acc)
{
    for (uint64_t v = 0; v < PANEL && row + v < a->w->rows; v += 16) {
        uint64_t n = a->w->rows - row - v < 16 ? a->w->rows - row - v : 16;
        v16      y = v_load(acc + v);
        if (a->bias)
            y = v_add(y, v_loadn(a->bias + row + v, n));
        v_storen(out + row + v, y, n);
    }
}

static void linear(const struct tsr_cpu_linear *a, const uint32_t *pairs, uint64_t panel,
                   uint64_t np, uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    uint64_t                     all = (w->cols + 1) / 2;
    float                        acc[GROUP][BF16_TOKENS][PANEL];
    uint32_t                     block[COLS / 2 * PANEL];
    for (uint64_t p = 0; p < np; p++)
        memset(acc[p], 0, (t1 - t0) * sizeof acc[p][0]);
    for (uint64_t k = 0; k < w->cols; k += COLS) {
        uint64_t n = w->cols - k < COLS ? w->cols - k : COLS;
        for (uint64_t p = 0; p < np; p++) {
            const uint8_t *codes = w->codes + (panel + p) * w->panel_bytes;
            pair_up(block, (const uint16_t *)(const void *)codes + k * PANEL, n);
            struct ahead f = look_ahead(w, panel + p, np, k, n, COLS);
            for (uint64_t t = t0; t < t1; t += ISA_TOKENS) {
                fetch_share(&f, (t1 - t0 + ISA_TOKENS - 1) / ISA_TOKENS);
                uint64_t m = a->tokens - t < ISA_TOKENS ? a->tokens - t : ISA_TOKENS;
                tile_any(m, block, pairs + t * all + k / 2 * m, (n + 1) / 2, acc[p][t - t0]);
            }
        }
    }
    for (uint64_t p = 0; p < np; p++)
        for (uint64_t t = t0; t < t1; t++)
            put(a, (panel + p) * PANEL, a->out + t * a->ldo, acc[p][t - t0]);
}

#define CHAINS 16

static float probe(uint64_t rounds)
{
    v16  c[CHAINS];
    i16v w = vi_set1(0x3f803f00), x = vi_set1(0x3e803f00); /* 1, 0.5; 0.25, 0.5 */
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        c[i] = v_set1((float)i);
    for (uint64_t r = 0; r < rounds; r += CHAINS) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            c[i] = dot2(c[i], w, x);
    }
    UNROLL
    for (int i = 1; i < CHAINS; i++)
        c[0] = v_add(c[0], c[i]);
    return v_tree16(c[0]);
}

const struct tsr_cpu_bf16_kernels tsr_cpu_bf16 = {
    .tile = ISA_TOKENS,
    .pack = pack,
    .linear = linear,
    .pair_rows = tsr_k_bf16_pair_rows,
    .gram = tsr_k_bf16_gram,
    .probe = probe,
};
