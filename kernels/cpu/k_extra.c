/* k_extra.c - panels of looked-up and of small-float weights to F32, [k][PANEL]; and the table of
 * the kernels of extra.h. */
#include <math.h>

#include "extra.h"
#include "k_codes.h"
#include "k_decl.h"
#include "simd_bytes.h"

/* ---- W_TAB ------------------------------------------------------------------- */

/* 16 columns of 16 rows, from nibbles.  codes: the step's 512 bytes. */
INLINE void widen_nibbles(const struct tsr_cpu_weight *w, uint64_t row0, const uint8_t *codes,
                          uint64_t half, const int high, v16 a[16])
{
    const struct tsr_cpu_extra *e = &w->extra;
    for (uint64_t r = 0; r < 16; r++) {
        const float *table = e->table + (e->shared ? 0 : (row0 + r) * 16);
        a[r] = v_lookup16(table, codes + (half * 4 + r % 4) * 64 + r / 4 * 16, high);
    }
    v_transpose16(a);
}

static void widen_table4(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                         float *dst)
{
    const uint8_t *codes = w->codes + panel * w->panel_bytes;
    for (uint64_t k = k0; k < k1; k += 16)
        for (uint64_t half = 0; half < 2; half++) {
            const uint8_t *p = codes + k / TABLE_STEP * 512;
            uint64_t       n = k1 - k < 16 ? k1 - k : 16, last = UINT64_MAX;
            v16            a[16], scale = v_set1(1.0f);
            if (k % TABLE_STEP)
                widen_nibbles(w, panel * PANEL + 16 * half, p, half, 1, a);
            else
                widen_nibbles(w, panel * PANEL + 16 * half, p, half, 0, a);
            for (uint64_t c = 0; c < n; c++) {
                v16 v = a[c];
                if (w->extra.shared) {
                    uint64_t g = (k + c) / w->group;
                    if (g != last)
                        scale = v_load_bf16(w->scales +
                                            2 * ((panel * w->groups + g) * PANEL + 16 * half));
                    last = g;
                    v = v_mul(v, scale);
                }
                v_store(dst + (k + c - k0) * PANEL + 16 * half, v);
            }
        }
}

/* Codes of a byte: [k/16][8][4 rows][16]. */
static void widen_table8(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                         float *dst)
{
    for (uint64_t r = 0; r < PANEL; r++) {
        const float   *table = w->extra.table + (panel * PANEL + r) * 256;
        const uint8_t *p =
            w->codes + panel * w->panel_bytes + (r / 16 * 4 + r % 4) * 64 + r % 16 / 4 * 16;
        for (uint64_t k = k0; k < k1; k++)
            dst[(k - k0) * PANEL + r] = table[p[k / 16 * 512 + k % 16]];
    }
}

static void put_outliers(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                         float *dst)
{
    const struct tsr_cpu_extra *e = &w->extra;
    for (uint64_t r = 0; r < PANEL; r++) {
        uint64_t        row = panel * PANEL + r;
        const uint32_t *column = e->column + row * e->outliers;
        const uint32_t *first = e->first + row * (SEGMENTS + 1);
        for (uint64_t i = first[k0 / w->seg]; i < first[SEGMENTS] && column[i] < k1; i++)
            if (column[i] >= k0)
                dst[(column[i] - k0) * PANEL + r] = e->value[row * e->outliers + i];
    }
}

/* ---- W_FPX ------------------------------------------------------------------- */

/* One column of 16 rows: byte j of each lane. Exponent and mantissa, moved to their F32 positions, are the
 * value divided by a power of two, also for denormals. special: some codes may not be numbers. */
INLINE void widen_float(i16v four, uint32_t j, v16 scale, const int ebits, const int special,
                        float *dst)
{
    const uint32_t up = (uint32_t)(16 + ebits); /* mantissas fill a byte: 7 - ebits bits */
    const int32_t  keep = INT32_MIN | 127 << up;
    const v16      one = v_set1(ldexpf(1.0f, 127 - ((1 << (ebits - 1)) - 1)));
    /* the largest number, and the meaning of the next code */
    const v16 top = v_set1(ebits == 4 ? 448.0f : 57344.0f), next = v_set1(65536.0f);
    const v16 infinite = v_set1(INFINITY), nan = v_set1(NAN), zero = v_set1(0.0f);
    i16v      bits = vi_and(vi_sar(vi_shl(four, 24 - 8 * j), 24 - up), keep);
    v16       v = v_mul(vi_bits_f32(bits), one);
    if (ebits == 4 && special)
        v = v_sel(v_lt(top, v_abs(v)), nan, v);
    if (ebits == 5 && special)
        v = v_sel(v_lt(top, v_abs(v)), v_sel(v_lt(next, v_abs(v)), nan, v_copysign(infinite, v)),
                  v);
    v_store(dst, v_mul(v_add(v, zero), scale)); /* -0 + 0 is +0: a zero has no sign */
}

/* One column of a panel. */
INLINE void widen_column(const uint8_t *codes, uint64_t k, const v16 scale[2], const int ebits,
                         const int special, float *dst)
{
    for (uint64_t half = 0; half < 2; half++)
        widen_float(vi_load(codes + k / 4 * 128 + 64 * half), (uint32_t)(k % 4), scale[half], ebits,
                    special, dst + 16 * half);
}

/* [k/4][2][16 rows][4 k] bytes, the sign on top. */
INLINE void widen_floats(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                         const int ebits, const int special, float *dst)
{
    const uint8_t *codes = w->codes + panel * w->panel_bytes;
    for (uint64_t k = k0; k < k1;) {
        const uint64_t g = k / w->group, end = (g + 1) * w->group < k1 ? (g + 1) * w->group : k1;
        const v16      scale[2] = { element_scale(w, panel, 0, g), element_scale(w, panel, 1, g) };
        for (; k < end && k % 4 != 0; k++, dst += PANEL)
            widen_column(codes, k, scale, ebits, special, dst);
        for (; k + 4 <= end; k += 4, dst += 4 * PANEL) {
            const i16v a = vi_load(codes + k / 4 * 128), b = vi_load(codes + k / 4 * 128 + 64);
            UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                widen_float(a, j, scale[0], ebits, special, dst + j * PANEL);
                widen_float(b, j, scale[1], ebits, special, dst + j * PANEL + 16);
            }
        }
        for (; k < end; k++, dst += PANEL)
            widen_column(codes, k, scale, ebits, special, dst);
    }
}

static void widen_fpx(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                      float *dst)
{
    const float *unit = w->extra.unit + panel * PANEL; /* NaN where the row holds no number */
    const int    special = !v_all_finite(v_load(unit)) || !v_all_finite(v_load(unit + 16));
    if (w->extra.ebits == 5 && special)
        widen_floats(w, panel, k0, k1, 5, 1, dst);
    else if (w->extra.ebits == 5)
        widen_floats(w, panel, k0, k1, 5, 0, dst);
    else if (w->extra.ebits == 4 && special)
        widen_floats(w, panel, k0, k1, 4, 1, dst);
    else if (w->extra.ebits == 4)
        widen_floats(w, panel, k0, k1, 4, 0, dst);
    else
        widen_floats(w, panel, k0, k1, 3, 0, dst);
}

void K(widen_extra)(const struct tsr_cpu_weight *w, uint64_t panel, uint64_t k0, uint64_t k1,
                    float *dst)
{
    if (w->layout == W_FPX) {
        widen_fpx(w, panel, k0, k1, dst);
        return;
    }
    if (w->extra.byte_codes)
        widen_table8(w, panel, k0, k1, dst);
    else
        widen_table4(w, panel, k0, k1, dst);
    if (w->extra.outliers)
        put_outliers(w, panel, k0, k1, dst);
}

#define EXTRA_(isa) tsr_cpu_extra_##isa
#define EXTRA(isa)  EXTRA_(isa)

const struct tsr_cpu_extra_kernels EXTRA(ISA_NAME) = {
    .widen = K(widen_extra),
    .table_prepare = K(table_prepare),
    .table_a8 = K(table_a8),
    .digits_a8 = K(digits_a8),
    .llm_prepare = K(llm_prepare),
    .llm_a8 = K(llm_a8),
};
