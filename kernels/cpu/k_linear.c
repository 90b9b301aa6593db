/* k_linear.c - LINEAR with F32 activations: chains of FMA, lanes are output rows. */
#include "k_decl.h"

#define COLS 256u /* columns widened at once: 32 KiB, so that they stay in the first cache */

/* ---- widening: columns [k0,k1) of a panel to [k][PANEL] F32 ------------------ */

INLINE v16 wide(enum tsr_cpu_layout kind, const uint8_t *panel, uint64_t k, uint64_t half)
{
    uint64_t i = k * PANEL + 16 * half;
    if (kind == W_F32)
        return v_load((const float *)(const void *)panel + i);
    return kind == W_BF16 ? v_load_bf16(panel + 2 * i) : v_load_f16(panel + 2 * i);
}

INLINE v16 group_scale(const struct tsr_cpu_weight *w, uint64_t at)
{
    return w->scale_f16 ? v_load_f16(w->scales + 2 * at)
                        : v_load((const float *)(const void *)w->scales + at);
}

INLINE void widen_codes(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t half, uint64_t k0,
                        uint64_t k1, const int low, float *dst)
{
    const uint8_t *codes = w->codes + panel * w->panel_bytes + 64 * half;
    const uint64_t step = low ? 8 : 4;
    for (uint64_t k = k0; k < k1;) {
        uint64_t g = k / w->group, end = (g + 1) * w->group < k1 ? (g + 1) * w->group : k1;
        uint64_t at = (panel * w->groups + g) * PANEL + 16 * half;
        v16      scale = group_scale(w, at);
        i16v     zero = w->zeros ? vi_load_u8(w->zeros + at) : vi_set1((int32_t)w->mid);
        for (; k < end; k++) {
            i16v v = vi_load(codes + k / step * 128);
            if (low)
                v = k & 4 ? vi_nib_hi(v) : vi_nib_lo(v);
            v = vi_sub(vi_byte(v, (uint32_t)(k & 3)), zero);
            v_store(dst + (k - k0) * PANEL + 16 * half, v_mul(vi_cvt(v), scale));
        }
    }
}

static void widen(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                  float *dst)
{
    const uint8_t *p = w->codes + panel * w->panel_bytes;
    for (uint64_t half = 0; half < 2; half++) {
        if (w->layout == W_I8)
            widen_codes(w, panel, half, k0, k1, 0, dst);
        else if (w->layout == W_I4)
            widen_codes(w, panel, half, k0, k1, 1, dst);
        else
            for (uint64_t k = k0; k < k1; k++)
                v_store(dst + (k - k0) * PANEL + 16 * half, wide(w->layout, p, k, half));
    }
}

/* ---- tiles ----------------------------------------------------------------- */

/* m tokens by ISA_VECS vectors of rows over n columns: acc[t][PANEL] continues its chains.
 * w is [k][PANEL] F32, x is [k][m]. */
INLINE void tile_packed(const int m, const float *w, const float *x, uint64_t n, float *acc)
{
    v16 c[ISA_TOKENS][ISA_VECS];
    UNROLL
    for (int t = 0; t < m; t++)
        UNROLL
        for (int v = 0; v < ISA_VECS; v++)
            c[t][v] = v_load(acc + t * (int)PANEL + 16 * v);
    for (uint64_t k = 0; k < n; k++, w += PANEL, x += m) {
        v16 b[ISA_VECS];
        UNROLL
        for (int v = 0; v < ISA_VECS; v++)
            b[v] = v_load(w + 16 * v);
        UNROLL
        for (int t = 0; t < m; t++) {
            v16 xt = v_set1(x[t]);
            UNROLL
            for (int v = 0; v < ISA_VECS; v++)
                c[t][v] = v_fma(xt, b[v], c[t][v]);
        }
    }
    UNROLL
    for (int t = 0; t < m; t++)
        UNROLL
        for (int v = 0; v < ISA_VECS; v++)
            v_store(acc + t * (int)PANEL + 16 * v, c[t][v]);
}

static void tile_any(uint64_t m, const float *w, const float *x, uint64_t n, float *acc)
{
    for (uint64_t v = 0; v < PANEL / 16; v += ISA_VECS, w += 16 * ISA_VECS, acc += 16 * ISA_VECS)
        switch (m) {
#if ISA_TOKENS > 6
        case 12: tile_packed(12, w, x, n, acc); break;
        case 11: tile_packed(11, w, x, n, acc); break;
        case 10: tile_packed(10, w, x, n, acc); break;
        case 9: tile_packed(9, w, x, n, acc); break;
        case 8: tile_packed(8, w, x, n, acc); break;
        case 7: tile_packed(7, w, x, n, acc); break;
#endif
#if ISA_TOKENS > 4
        case 6: tile_packed(6, w, x, n, acc); break;
        case 5: tile_packed(5, w, x, n, acc); break;
#endif
        case 4: tile_packed(4, w, x, n, acc); break;
        case 3: tile_packed(3, w, x, n, acc); break;
        case 2: tile_packed(2, w, x, n, acc); break;
        default: tile_packed(1, w, x, n, acc); break;
        }
}

/* ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)), then the bias; seg is [SEGMENTS][stride]. */
INLINE void finish(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t token, const float *seg,
                   uint64_t stride)
{
    for (uint64_t half = 0; half < 2; half++) {
        uint64_t row = panel * PANEL + 16 * half;
        if (row >= a->w->rows)
            return;
        uint64_t n = a->w->rows - row < 16 ? a->w->rows - row : 16;
        v16      s[SEGMENTS];
        for (uint64_t i = 0; i < SEGMENTS; i++)
            s[i] = i < a->w->nseg ? v_load(seg + i * stride + 16 * half) : v_set1(0.0f);
        v16 y = v_add(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])),
                      v_add(v_add(s[4], s[5]), v_add(s[6], s[7])));
        if (a->bias)
            y = v_add(y, v_loadn(a->bias + row, n));
        v_storen(a->out + token * a->ldo + row, y, n);
    }
}

static void linear_tiles(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    const struct tsr_cpu_weight *w = a->w;
    float seg[SEGMENTS][TOKENS_MAX][PANEL], block[COLS * PANEL];
    for (uint64_t s = 0; s < w->nseg; s++) {
        memset(seg[s], 0, (t1 - t0) * sizeof seg[s][0]);
        uint64_t begin = s * w->seg, end = w->cols - begin < w->seg ? w->cols : begin + w->seg;
        for (uint64_t k = begin; k < end; k += COLS) {
            uint64_t     n = end - k < COLS ? end - k : COLS;
            const float *b = block;
            if (w->layout == W_F32)
                b = (const float *)(const void *)(w->codes + panel * w->panel_bytes) + k * PANEL;
            else
                widen(w, panel, k, k + n, block);
            for (uint64_t t = t0; t < t1; t += ISA_TOKENS) {
                uint64_t m = a->tokens - t < ISA_TOKENS ? a->tokens - t : ISA_TOKENS;
                tile_any(m, b, a->xpack + t * w->cols + k * m, n, seg[s][t - t0]);
            }
        }
    }
    for (uint64_t t = t0; t < t1; t++)
        finish(a, panel, t, &seg[0][t - t0][0], TOKENS_MAX * PANEL);
}

/* Few tokens: the weights are read once, widened in registers. */
INLINE void linear_few(const struct tsr_cpu_linear *a, uint64_t panel, enum tsr_cpu_layout kind,
                       const int m)
{
    const struct tsr_cpu_weight *w = a->w;
    const uint8_t *p = w->codes + panel * w->panel_bytes;
    float seg[DIRECT_MAX][SEGMENTS][PANEL];
    for (uint64_t s = 0; s < w->nseg; s++) {
        uint64_t begin = s * w->seg, end = w->cols - begin < w->seg ? w->cols : begin + w->seg;
        v16      c[DIRECT_MAX][2];
        UNROLL
        for (int t = 0; t < m; t++)
            c[t][0] = c[t][1] = v_set1(0.0f);
        for (uint64_t k = begin; k < end; k++) {
            v16 b0 = wide(kind, p, k, 0), b1 = wide(kind, p, k, 1);
            v_prefetch(p + k * (kind == W_F32 ? 128 : 64) + 4096);
            if (kind == W_F32)
                v_prefetch(p + k * 128 + 4096 + 64);
            UNROLL
            for (int t = 0; t < m; t++) {
                v16 xt = v_set1(a->x[(uint64_t)t * a->ldx + k]);
                c[t][0] = v_fma(xt, b0, c[t][0]);
                c[t][1] = v_fma(xt, b1, c[t][1]);
            }
        }
        UNROLL
        for (int t = 0; t < m; t++) {
            v_store(seg[t][s], c[t][0]);
            v_store(seg[t][s] + 16, c[t][1]);
        }
    }
    for (int t = 0; t < m; t++)
        finish(a, panel, (uint64_t)t, &seg[t][0][0], PANEL);
}

INLINE void linear_few_kind(const struct tsr_cpu_linear *a, uint64_t panel,
                            enum tsr_cpu_layout kind)
{
    switch (a->tokens) {
    case 1: linear_few(a, panel, kind, 1); break;
    case 2: linear_few(a, panel, kind, 2); break;
    case 3: linear_few(a, panel, kind, 3); break;
    default: linear_few(a, panel, kind, 4); break;
    }
}

void K(linear)(const struct tsr_cpu_linear *a, uint64_t panel, uint64_t t0, uint64_t t1)
{
    if (a->xpack)
        linear_tiles(a, panel, t0, t1);
    else if (a->w->layout == W_F32)
        linear_few_kind(a, panel, W_F32);
    else if (a->w->layout == W_BF16)
        linear_few_kind(a, panel, W_BF16);
    else
        linear_few_kind(a, panel, W_F16);
}
