/* k_llm8.c - LLM.int8 (arXiv 2208.07339) of one token row at a time: one scale per row, the columns
 * where |x| reaches the threshold in F32.  docs/decisions/numerics.md fixes the order. */
#include <math.h>

#include "extra.h"
#include "k_decl.h"
#include "simd_bytes.h"

#include "k_tile_i8.h"

uint64_t K(llm_prepare)(const float *x, uint64_t cols, float threshold, int8_t *q, uint64_t ldq,
                        float *sa, int32_t *sum, uint32_t *found)
{
    const v16 zero = v_set1(0.0f), limit = v_set1(threshold > 0.0f ? threshold : INFINITY);
    v16       top = zero, bad = zero;
    uint64_t  n = 0;
    memset(q, 0, ldq);
    *sum = 0;
    for (uint64_t k = 0; k < cols; k += 16) {
        v16 v = v_loadn(x + k, cols - k < 16 ? cols - k : 16), m = v_abs(v);
        bad = v_fma(v, zero, bad);
        top = v_max(v_sel(v_lt(m, limit), m, zero), top);
    }
    if (!v_all_finite(bad)) {
        *sa = NAN;
        return 0;
    }
    for (uint64_t k = 0; threshold > 0.0f && k < cols; k++)
        if (fabsf(x[k]) >= threshold)
            found[n++] = (uint32_t)k;
    float amax = v_hmax(top), inv = 127.0f * (1.0f / amax);
    *sa = 0.0f;
    if (!(inv <= FLT_MAX)) /* all zero, or too small to divide by */
        return n;
    *sa = amax / 127.0f;
    for (uint64_t k = 0; k < cols; k += 16) {
        uint64_t c = cols - k < 16 ? cols - k : 16;
        v16      v = v_loadn(x + k, c);
        int8_t   t[16];
        v = v_sel(v_lt(v_abs(v), limit), v, zero);
        v_store_i8(t, v_rint(v_mul(v, v_set1(inv))));
        memcpy(q + k, t, c);
    }
    for (uint64_t k = 0; k < cols; k++)
        *sum += q[k];
    *sum *= -128;
    return n;
}

/* The tree over segments of o = FMA(x[k], w[k], o) for 16 rows and one token. */
static v16 outlier_part(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t half,
                        uint64_t token, v16 scale)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint8_t               *codes = w->codes + panel * w->panel_bytes + 64 * half;
    const uint32_t              *found = a->found + token * w->cols;
    v16                          s[SEGMENTS];
    for (uint64_t i = 0; i < SEGMENTS; i++)
        s[i] = v_set1(0.0f);
    for (uint64_t i = 0; i < a->nfound[token]; i++) {
        uint64_t k = found[i];
        i16v     c = vi_byte(vi_load(codes + k / 4 * 128), (uint32_t)(k % 4));
        v16      v = v_mul(vi_cvt(vi_sub(c, vi_set1(128))), scale);
        v16     *o = &s[k / w->seg];
        *o = v_fma(v_set1(a->x[token * a->ldx + k]), v, *o);
    }
    return i8_tree(s);
}

void K(llm_a8)(const struct tsr_cpu_linear8 *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    int32_t                      sum[TOKENS_MAX][PANEL];
    memset(sum, 0, (t1 - t0) * sizeof sum[0]);
    for (uint64_t s = 0; s < w->nseg; s++) {
        uint64_t k0 = s * w->seg, n = w->cols - k0 < w->seg ? w->cols - k0 : w->seg;
        for (uint64_t t = t0; t < t1; t += ISA_TOKENS8) {
            uint64_t m = a->tokens - t < ISA_TOKENS8 ? a->tokens - t : ISA_TOKENS8;
            for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS) {
                const uint8_t *codes = w->codes + panel * w->panel_bytes + k0 * PANEL + 64 * v;
#define CALL(i) i8_sums(i, codes, a->q + t * a->ldq + k0 * m, (n + 3) / 4, &sum[t - t0][16 * v])
                TILE8_SWITCH(m, CALL)
#undef CALL
            }
        }
    }
    for (uint64_t half = 0; half < 2; half++) {
        uint64_t at = panel * PANEL + 16 * half;
        v16      scale = w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                                      : v_load((const float *)(const void *)w->scales + at);
        for (uint64_t t = t0; t < t1; t++) {
            i16v n = vi_add(vi_load(&sum[t - t0][16 * half]), vi_set1(a->sums[t]));
            v16  y = v_mul(vi_cvt(n), v_mul(scale, v_set1(a->sa[t])));
            if (a->nfound[t])
                y = v_add(y, outlier_part(a, panel, half, t, scale));
            i8_put(a, at, t, y);
        }
    }
}
