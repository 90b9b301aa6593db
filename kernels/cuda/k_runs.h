/* k_runs.h - LINEAR with int8 activations without matrix units: weights of several digits, and groups that
 * begin anywhere.
 *
 * The product of a run is an exact integer, so that its order is free; runs enter a chain of F32 for
 * each segment.  Small floats are larger integers than a byte holds: their digits to base 128, all with the
 * number's sign, have a sum each.  Runs end where a step or half of one does, if groups begin there; else they are cut
 * column by column.
 */
#ifndef TSR_CUDA_K_RUNS_H
#define TSR_CUDA_K_RUNS_H

#include "k_linear.h"

/* ---- the product of a step ------------------------------------------------------------ */

/* Columns 4j..4j+3 as signed bytes: int8 tables give theirs, integers of 8 bits lose 128. */
DEV uint32_t signed4(const struct step_words *s, const int kind, const int bits, const int j,
                     const int8_t *table, uint32_t stride)
{
    uint32_t c = codes4(s, bits == K_ANY ? 8 : bits, j);
    if (kind == (int)K_INT)
        return bits == 8 ? c ^ 0x80808080u : c;
    uint32_t v = 0;
    UNROLL_LOOP
    for (int i = 0; i < 4; i++)
        v |= ((uint32_t)table[(c >> 8 * i & 255u) * stride] & 255u) << 8 * i;
    return v;
}

DEV const int8_t *table8_of(const struct k_weight *w, uint64_t panel, uint32_t lane)
{
    return w->kind == K_LUT  ? AT(const int8_t, w->table8) + panel * w->entries * K_PANEL + lane
           : w->kind == K_MX ? AT(const int8_t, w->table8)
                             : 0;
}

/* The scale of a run's weights, and the factor of q's sum: columns of step k / 32. */
DEV float run_scale(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane)
{
    if (w->kind == K_INT)
        return scale_of(w, panel, group, lane);
    float unit = AT(const float, w->unit)[panel * K_PANEL + lane];
    return w->kind == K_MX ? scale_of(w, panel, group, lane) * unit : unit;
}

/* The factor of q's sum: the zero point, less the offset that signed4() subtracted. */
DEV int32_t run_zero(const struct k_weight *w, uint64_t panel, uint64_t group, uint32_t lane)
{
    if (w->kind != K_INT)
        return 0;
    return (int32_t)zero_of(w, panel, group, lane) - (w->bits == 8 ? 128 : 0);
}

/* ---- where runs end -------------------------------------------------------------------- */

/* The run that a segment's columns are in: of a group of the weight and a block of activations. */
struct run {
    uint64_t k0, k1; /* the segment */
    uint64_t group, block;
};

DEV void run_begin(const struct k_weight *w, uint32_t s, struct run *r)
{
    segment_of(w, s, &r->k0, &r->k1);
    r->group = r->k0 / w->group;
    r->block = s * ((w->segment + K_BLOCK - 1) / K_BLOCK);
}

/* sum[0] + 128 sum[stride] + ..., rounded once. */
DEV float run_total(const int digits, const int32_t *sum, const int stride)
{
    int64_t total = 0;
    UNROLL_LOOP
    for (int d = digits - 1; d >= 0; d--)
        total = total * 128 + sum[d * stride];
    return (float)total;
}

/* Ends the run if it ends before column `next`: its integers, of each token the product by digits,
 * [digits][tokens], enter the chains. */
DEV void run_step(const struct k_linear *a, const int digits, struct run *r, uint64_t panel,
                  uint32_t lane, uint64_t next, uint32_t t0, const int tokens, int32_t *sum,
                  float *acc)
{
    const struct k_weight *w = &a->w;
    const int              block_ends = (next - r->k0) % K_BLOCK == 0 || next >= r->k1;
    const int              group_ends = next >= (r->group + 1) * w->group;
    if (!block_ends && !group_ends)
        return;
    const float scale = run_scale(w, panel, r->group, lane);
    UNROLL_LOOP
    for (int t = 0; t < tokens; t++) {
        float sa =
            AT(const float, a->sa)[(uint64_t)token_of(a, t0 + (uint32_t)t) * a->blocks + r->block];
        acc[t] = fmaf(run_total(digits, sum + t, tokens), scale * sa, acc[t]);
        UNROLL_LOOP
        for (int d = 0; d < digits; d++)
            sum[d * tokens + t] = 0;
    }
    r->block += (uint64_t)block_ends;
    r->group += (uint64_t)group_ends;
}

/* ---- a few tokens ------------------------------------------------------------------------ */

DEV uint32_t word4(uint4 v, const int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* A segment's chain, runs of whole steps or halves. */
DEV void runs_fast(const struct k_linear *a, const int bits, const int digits, uint64_t panel,
                   uint32_t lane, uint32_t segment, uint32_t t0, const int tokens, float *acc)
{
    const struct k_weight *w = &a->w;
    const int8_t          *table = table8_of(w, panel, lane);
    struct run             r;
    struct step_words      s, ahead;
    int32_t                sum[4 * K_DIGITS] = { 0 };
    run_begin(w, segment, &r);
    const uint8_t *p = step_at(w, panel, r.k0 / K_STEP);
    if (r.k0 < r.k1)
        step_load(&s, bits, w, p, lane);
    for (uint64_t k = r.k0; k < r.k1; k += K_STEP) {
        p += 128u * w->bits;
        if (k + K_STEP < r.k1) /* its bytes are under way while these are used */
            step_load(&ahead, bits, w, p, lane);
        if (bits == K_ANY)
            step_spread(&s, (int)w->bits);
        UNROLL_LOOP
        for (int half = 0; half < 2; half++) {
            uint4 q[4];
            UNROLL_LOOP
            for (int t = 0; t < tokens; t++)
                q[t] = AT(const uint4,
                          a->q)[(token_of(a, t0 + (uint32_t)t) * a->ldq + k) / 16 + (uint64_t)half];
            UNROLL_LOOP
            for (int j = 0; j < 4; j++) {
                UNROLL_LOOP
                for (int d = 0; d < digits; d++) {
                    if (d >= (int)w->digits) /* uniform over all lanes */
                        continue;
                    uint32_t c = signed4(&s, K_MX, bits, 4 * half + j, table + 256 * d, 1);
                    UNROLL_LOOP
                    for (int t = 0; t < tokens; t++)
                        sum[d * tokens + t] =
                            __dp4a((int32_t)c, (int32_t)word4(q[t], j), sum[d * tokens + t]);
                }
            }
            const uint64_t at = k + K_HALF * (uint64_t)half;
            if (at >= w->cols) /* the last step has one half */
                break;
            if (half == 1 || w->regular == 2 || at + K_HALF >= w->cols)
                run_step(a, digits, &r, panel, lane, at + K_HALF, t0, tokens, sum, acc);
        }
        s = ahead;
    }
}

/* A segment's chain, column by column: groups that begin inside of a step. */
DEV_CALL void runs_slow(const struct k_linear *a, uint64_t panel, uint32_t lane, uint64_t k0,
                        uint64_t k1, uint32_t t0, int tokens, float *acc)
{
    const struct k_weight *w = &a->w;
    const int8_t          *table = table8_of(w, panel, lane);
    const uint64_t         per_segment = (w->segment + K_BLOCK - 1) / K_BLOCK;
    uint64_t               block = k0 / w->segment * per_segment;
    float                  part[4] = { 0.0f, 0.0f, 0.0f, 0.0f }; /* with minimums: of the block */
    for (uint64_t k = k0; k < k1;) {
        uint64_t group = k / w->group, end = (group + 1) * w->group;
        uint64_t block_end = k0 + ((k - k0) / K_BLOCK + 1) * K_BLOCK;
        end = end < block_end ? end : block_end;
        end = end < k1 ? end : k1;
        float   scale = run_scale(w, panel, group, lane);
        float   minimum = minimum_of(w, panel, group, lane);
        int32_t zero = w->kind == K_INT ? (int32_t)zero_of(w, panel, group, lane) : 0;
        for (int t = 0; t < tokens; t++) {
            uint32_t      token = token_of(a, t0 + (uint32_t)t);
            const int8_t *q = AT(const int8_t, a->q) + token * a->ldq;
            const float   sa = AT(const float, a->sa)[(uint64_t)token * a->blocks + block];
            int64_t       sum = 0;
            int32_t       ones = 0;
            for (uint64_t i = k; i < end; i++) {
                const uint32_t c = code_at(w, panel, lane, i);
                int64_t        v = table ? 0 : (int32_t)c - zero;
                for (uint32_t d = table ? w->digits : 0; d-- > 0;)
                    v = v * 128 + table[256 * d + c];
                sum += v * q[i];
                ones += q[i];
            }
            if (!w->affine) {
                acc[t] = fmaf((float)sum, scale * sa, acc[t]);
                continue;
            }
            part[t] = fmaf((float)ones, minimum, fmaf((float)sum, scale, part[t]));
            if (end == block_end || end == k1) {
                acc[t] = fmaf(part[t], sa, acc[t]);
                part[t] = 0.0f;
            }
        }
        block += end == block_end;
        k = end;
    }
}

/* Outliers of the lane's row in columns [k0,k1), on activations in F32. */
DEV_CALL void outlier_chain(const struct k_linear *a, uint64_t row, uint64_t k0, uint64_t k1,
                            uint32_t t0, int tokens, float *acc)
{
    const struct k_weight *w = &a->w;
    const uint32_t        *column = AT(const uint32_t, w->column) + row * w->outliers;
    const float           *delta = AT(const float, w->delta) + row * w->outliers;
    float                  o[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    for (uint32_t i = 0; i < w->outliers; i++) {
        if (column[i] < k0 || column[i] >= k1)
            continue;
        for (int t = 0; t < tokens; t++) {
            const float *x =
                AT(const float, a->x) + (uint64_t)token_of(a, t0 + (uint32_t)t) * a->ldx;
            o[t] = fmaf(x[column[i]], delta[i], o[t]);
        }
    }
    for (int t = 0; t < tokens; t++)
        acc[t] = acc[t] + o[t];
}

/* A segment's sums for the tokens of a tile. */
DEV void segment_runs(const struct k_linear *a, const int digits, uint64_t panel, uint32_t lane,
                      uint32_t segment, uint32_t t0, const int tokens, float *acc)
{
    const struct k_weight *w = &a->w;
    uint64_t               k0, k1;
    segment_of(w, segment, &k0, &k1);
#define FAST(bits) runs_fast(a, bits, digits, panel, lane, segment, t0, tokens, acc)
    if (!w->regular)
        runs_slow(a, panel, lane, k0, k1, t0, tokens, acc);
    else if (w->bits == 8)
        FAST(8);
    else
        FAST(K_ANY);
#undef FAST
}

/* ---- many tokens, groups on steps ---------------------------------------------------------- */

/* The codes of four columns of any packed format, a byte each: k and the next three. */
DEV uint32_t codes4_any(const struct k_weight *w, uint64_t panel, uint32_t lane, uint64_t k)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < 4; i++)
        v |= code_at(w, panel, lane, k + i) << 8 * i;
    return v;
}

/* As signed bytes, by the table of a digit. */
DEV uint32_t signed4_any(uint32_t codes, const int8_t *table)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < 4; i++)
        v |= ((uint32_t)table[codes >> 8 * i & 255u] & 255u) << 8 * i;
    return v;
}

/* A GEMM's chains over segment s.  A run's integers stay in registers until it ends.  ws: eight words of
 * a step for each digit. */
DEV void gemm_runs(const struct k_linear *a, const int digits, uint32_t        s,
                   uint32_t (*ws)[K_PANEL + 1], uint32_t (*qs)[K_GEMM], float *acc)
{
    const struct k_weight *w = &a->w;
    const uint32_t         lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint64_t         panel = blockIdx.x;
    const uint32_t         t0 = blockIdx.y * K_GEMM, mine = warp * GEMM_EACH;
    struct run             r;
    const int8_t          *table = table8_of(w, panel, lane);
    int32_t                sum[GEMM_EACH * K_DIGITS] = { 0 };
    run_begin(w, s, &r);
    for (uint64_t k = r.k0; k < r.k1; k += K_STEP) {
        __syncthreads();
        const uint32_t codes = codes4_any(w, panel, lane, k + 4 * warp);
        UNROLL_LOOP
        for (int d = 0; d < digits; d++)
            if (d < (int)w->digits)
                ws[8 * (uint32_t)d + warp][lane] = signed4_any(codes, table + 256 * d);
        for (uint32_t i = threadIdx.x; i < 8 * K_GEMM; i += 256)
            qs[i % 8][i / 8] =
                AT(const uint32_t, a->q)[(token_of(a, t0 + i / 8) * a->ldq + k) / 4 + i % 8];
        __syncthreads();
        for (uint32_t half = 0; half < 2 && k + K_HALF * half < w->cols; half++) {
            UNROLL_LOOP
            for (int d = 0; d < digits; d++) {
                if (d >= (int)w->digits) /* uniform over all lanes */
                    continue;
                for (uint32_t j = 4 * half; j < 4 * half + 4; j++) {
                    int32_t c = (int32_t)ws[8 * (uint32_t)d + j][lane];
                    UNROLL_LOOP
                    for (int t = 0; t < GEMM_EACH; t++)
                        sum[d * GEMM_EACH + t] =
                            __dp4a(c, (int32_t)qs[j][mine + (uint32_t)t], sum[d * GEMM_EACH + t]);
                }
            }
            const uint64_t next = k + K_HALF * (half + 1);
            if (half == 1 || w->regular == 2 || next >= w->cols)
                run_step(a, digits, &r, panel, lane, next, t0 + mine, GEMM_EACH, sum, acc);
        }
    }
}

#endif
