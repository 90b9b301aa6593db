/* k_half.h - products of 16-bit matrices on matrix units: a packed weight becomes F16 or BF16 in registers, activations
 * come in 16 bits (k_narrow), sums are F32.
 *
 * A warp takes a panel and 8 nt tokens.  The weight is operand A of mma.m16n8k16.  Columns inside a step are permuted
 * alike on both sides: lane 4 g + t takes columns 8t..8t+7 of a step, for rows g, g + 8, g + 16, g + 24 and for token g
 * of each tile of 8.  A row's eight columns are one word of 4 bits, two of 8 and four of 16.
 *
 * A block has wm panels, wn times 8 nt tokens, and wk warps that share the steps of each.  Stages of `ks` steps come
 * through a ring in shared memory by asynchronous copies.
 */
#ifndef TSR_CUDA_K_HALF_H
#define TSR_CUDA_K_HALF_H

#include "k_half_row.h"
#include "k_mma.h"

#if !(defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)

#define HALF_NT 16 /* tiles of tokens of a warp, at most */

/* The shape of a block; all constants. */
struct half_shape {
    int nt, wm, wn, wk, ks, stages;
};
#define HALF_THREADS(s) ((s).wm * (s).wn * (s).wk * 32)
#define HALF_TOKENS(s)  ((uint32_t)((s).wn * (s).nt * 8))
#define HALF_W(bits)    ((bits) == K_ANY ? 896u : 128u * (uint32_t)(bits))
#define HALF_STAGE(s, b)                                                                           \
    ((uint32_t)(s).ks * ((uint32_t)(s).wm * HALF_W(b) + (uint32_t)HALF_TOKENS(s) * 64u))

/* Bytes of tables in shared memory, before the ring: 256 values, or those of the panels' rows. */
#define HALF_TABLE(kind, s)                                                                        \
    ((kind) == (int)K_MX    ? 1024u                                                                \
     : (kind) == (int)K_LUT ? (uint32_t)(s).wm * (4u << K_HALF_LUT) * K_PANEL                      \
                            : 0u)

struct half_place {
    uint64_t panel0, token0;
    uint32_t lane, g, t, warp, m, n, k; /* k: of wk */
};

/* The step in a slot of a stage; n_steps: none.  Warps of other steps have runs of `each` steps, so that groups last. */
DEV uint32_t half_slot(const struct half_shape s, uint32_t i, uint32_t each, uint32_t n_steps,
                       uint32_t slot)
{
    const uint32_t own = (uint32_t)(s.ks / s.wk), at = i * own + slot % own;
    const uint32_t step = slot / own * each + at;
    return at < each && step < n_steps ? step : n_steps;
}

DEV void half_copy(const struct k_half_linear *a, const struct half_shape s, const int bits,
                   const struct half_place *p, uint32_t i_stage, uint32_t each, uint32_t n_steps,
                   uint8_t *stage)
{
    const struct k_weight *w = &a->w;
    const uint32_t         threads = (uint32_t)HALF_THREADS(s), tokens = (uint32_t)HALF_TOKENS(s);
    const uint32_t         width = bits == K_ANY ? w->bits : (uint32_t)bits, pieces = 8 * width;
    const uint64_t         last = (w->rows - 1) / K_PANEL;
    uint8_t               *x = stage + (uint32_t)(s.ks * s.wm) * HALF_W(bits);
    UNROLL_LOOP
    for (uint32_t i = 0;
         i < ((uint32_t)s.ks * (uint32_t)s.wm * HALF_W(bits) / 16 + threads - 1) / threads; i++) {
        const uint32_t at = i * threads + threadIdx.x, piece = at % (HALF_W(bits) / 16),
                       of = at / (HALF_W(bits) / 16), panel = of / (uint32_t)s.ks,
                       step = of % (uint32_t)s.ks;
        const uint32_t from = half_slot(s, i_stage, each, n_steps, step);
        if (panel < (uint32_t)s.wm && piece < pieces && from < n_steps) {
            const uint64_t row = p->panel0 + panel < last ? p->panel0 + panel : last;
            copy_async(stage + of * HALF_W(bits) + 16 * piece, step_at(w, row, from) + 16 * piece);
        }
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < (uint32_t)s.ks * tokens * 4 / threads; i++) {
        const uint32_t at = i * threads + threadIdx.x, piece = at % (4u * (uint32_t)s.ks),
                       token = at / (4u * (uint32_t)s.ks), step = piece / 4;
        const uint32_t from = half_slot(s, i_stage, each, n_steps, step);
        if (p->token0 + token < a->tokens && from < n_steps)
            copy_async(x + (step * tokens + token) * 64 + piece % 4 * 16,
                       AT(const uint8_t, a->x) + (p->token0 + token) * a->ldx * 2 + from * 64u +
                           piece % 4 * 16);
    }
}

DEV void half_tables(const struct k_weight *w, const struct half_shape s, const int kind,
                     uint64_t panel0, float *table)
{
    const uint64_t last = (w->rows - 1) / K_PANEL;
    if (kind == (int)K_MX)
        for (uint32_t i = threadIdx.x; i < 256; i += (uint32_t)HALF_THREADS(s))
            table[i] = AT(const float, w->table)[i];
    if (kind == (int)K_LUT)
        for (uint32_t m = 0; m < (uint32_t)s.wm; m++) {
            const uint64_t panel = panel0 + m < last ? panel0 + m : last;
            for (uint32_t i = threadIdx.x; i < w->entries * K_PANEL; i += (uint32_t)HALF_THREADS(s))
                table[(m << K_HALF_LUT) * K_PANEL + i] =
                    AT(const float, w->table)[panel * w->entries * K_PANEL + i];
        }
}

DEV void half_step(const struct k_half_linear *a, const struct half_shape s, const int kind,
                   const int bits, const int fast4, const int bf16, const struct half_place *p,
                   const struct half_meta *m, uint32_t group, const float *table, const uint8_t *wp,
                   const uint8_t *xp, float (*acc)[HALF_NT][4])
{
    uint32_t f[4][4];
    UNROLL_LOOP
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = p->g + 8 * i;
        if (kind == (int)K_FLOAT) {
            const uint4 v = *(const uint4 *)(const void *)(wp + p->t * 512 + row * 16);
            f[i][0] = v.x;
            f[i][1] = v.y;
            f[i][2] = v.z;
            f[i][3] = v.w;
        } else if (fast4) {
            half_row4(wp, row, p->t, m->scale[i] * 0x10001u, 0xe400e400u + m->zero[i] * 0x10001u,
                      f[i]);
        } else {
            const uint64_t panel = p->panel0 + p->m;
            const float    scale =
                kind == (int)K_LUT ? 1.0f : scale_from(&a->w, m->scale[i], panel, group, row);
            const float minimum = minimum_from(&a->w, m->minimum[i], panel, group, row);
            half_row(&a->w, kind, bits, bf16, wp, row, p->t, scale, (float)m->zero[i], minimum,
                     kind == (int)K_LUT ? table + row : table, kind == (int)K_LUT ? K_PANEL : 1,
                     f[i]);
        }
    }
    UNROLL_LOOP
    for (int n = 0; n < s.nt; n++) {
        const uint4 v =
            *(const uint4 *)(const void *)(xp + (8 * n + (int)p->g) * 64 + 16 * (int)p->t);
        const uint32_t b[4] = { v.x, v.y, v.z, v.w };
        UNROLL_LOOP
        for (int r = 0; r < 2; r++) {
            UNROLL_LOOP
            for (int h = 0; h < 2; h++) {
                const uint32_t f4[4] = { f[2 * r][2 * h], f[2 * r + 1][2 * h], f[2 * r][2 * h + 1],
                                         f[2 * r + 1][2 * h + 1] };
                mma_half(acc[r][n], f4, b + 2 * h, bf16);
            }
        }
    }
}

DEV void half_linear(const struct k_half_linear *a, const struct half_shape s, const int kind,
                     const int bits, const int fast4, const int bf16, uint8_t *shared)
{
    const struct k_weight *w = &a->w;
    const uint32_t         n_steps = (uint32_t)steps_of(w), stage = HALF_STAGE(s, bits),
                   tokens = HALF_TOKENS(s);
    const uint32_t own = (uint32_t)(s.ks / s.wk);
    const uint32_t each = (n_steps + (uint32_t)s.wk - 1) / (uint32_t)s.wk,
                   n = (each + own - 1) / own;
    struct half_place p;
    float             acc[2][HALF_NT][4];
    p.lane = threadIdx.x % WARP;
    p.g = p.lane / 4;
    p.t = p.lane % 4;
    p.warp = shfl_u(ALL_LANES, threadIdx.x / WARP, 0);
    p.m = p.warp % (uint32_t)s.wm;
    p.n = p.warp / (uint32_t)s.wm % (uint32_t)s.wn;
    p.k = p.warp / (uint32_t)(s.wm * s.wn);
    p.panel0 = (uint64_t)blockIdx.x * (uint32_t)s.wm;
    p.token0 = (uint64_t)blockIdx.y * tokens;
    UNROLL_LOOP
    for (int r = 0; r < 2; r++) {
        UNROLL_LOOP
        for (int i = 0; i < s.nt; i++) {
            UNROLL_LOOP
            for (int e = 0; e < 4; e++)
                acc[r][i][e] = 0.0f;
        }
    }
    const uint64_t last = (w->rows - 1) / K_PANEL,
                   panel = p.panel0 + p.m < last ? p.panel0 + p.m : last;
    uint8_t           *ring = shared + HALF_TABLE(kind, s);
    float             *table = (float *)(void *)shared;
    struct half_meta   now, next;
    struct half_groups of_lane = { 0, 0, 0 };
    half_tables(w, s, kind, p.panel0, table);
    table += kind == (int)K_LUT ? p.m << K_HALF_LUT << 5 : 0;
    UNROLL_LOOP
    for (int i = 0; i + 1 < s.stages; i++) {
        if ((uint32_t)i < n)
            half_copy(a, s, bits, &p, (uint32_t)i, each, n_steps, ring + (uint32_t)i * stage);
        copy_commit();
    }
    if (kind != (int)K_FLOAT && kind != (int)K_LUT)
        half_meta_begin(w, kind, panel, p.g, each * p.k * K_STEP + 8 * p.t, &of_lane, &next);
    uint32_t from = 0, to = (uint32_t)(s.stages - 1) * stage;
    UNROLL_NOT
    for (uint32_t i = 0; i < n; i++) {
        copy_wait(s.stages - 2);
        __syncthreads();
        if (i + (uint32_t)s.stages - 1 < n)
            half_copy(a, s, bits, &p, i + (uint32_t)s.stages - 1, each, n_steps, ring + to);
        copy_commit();
        UNROLL_LOOP
        for (int j = 0; j < s.ks / s.wk; j++) {
            const uint32_t of = p.k * own + (uint32_t)j, step = half_slot(s, i, each, n_steps, of);
            if (step >= n_steps)
                break;
            if (kind != (int)K_FLOAT && kind != (int)K_LUT)
                half_meta_take(w, kind, panel, p.g, step * K_STEP + 8 * p.t, &of_lane, &now, &next);
            half_step(a, s, kind, bits, fast4, bf16, &p, &now, of_lane.group, table,
                      ring + from + (p.m * (uint32_t)s.ks + of) * HALF_W(bits),
                      ring + from + (uint32_t)(s.ks * s.wm) * HALF_W(bits) +
                          (of * tokens + p.n * (uint32_t)s.nt * 8) * 64,
                      acc);
        }
        from = from + stage == stage * (uint32_t)s.stages ? 0 : from + stage;
        to = to + stage == stage * (uint32_t)s.stages ? 0 : to + stage;
    }
    if (s.wk > 1) { /* sums of the other warps, in order */
        float         *sums = (float *)(void *)shared;
        const uint32_t pair = p.warp % (uint32_t)(s.wm * s.wn);
        UNROLL_NOT
        for (uint32_t k = (uint32_t)s.wk - 1; k > 0; k--) {
            copy_wait(0);
            __syncthreads();
            UNROLL_LOOP
            for (int j = 0; j < s.nt * 8; j++) {
                float *at = sums + ((uint32_t)j * (uint32_t)(s.wm * s.wn) + pair) * 32 + p.lane;
                float *v = &acc[j / 4 / s.nt][j / 4 % s.nt][j % 4];
                if (p.k == k)
                    *at = *v;
            }
            __syncthreads();
            UNROLL_LOOP
            for (int j = 0; j < s.nt * 8; j++) {
                float *at = sums + ((uint32_t)j * (uint32_t)(s.wm * s.wn) + pair) * 32 + p.lane;
                float *v = &acc[j / 4 / s.nt][j / 4 % s.nt][j % 4];
                if (p.k == 0)
                    *v += *at;
            }
        }
        if (p.k > 0)
            return;
    }
    UNROLL_LOOP
    for (int i = 0; i < s.nt; i++) {
        UNROLL_LOOP
        for (uint32_t e = 0; e < 2; e++) {
            const uint64_t token =
                p.token0 + (p.n * (uint32_t)s.nt + (uint32_t)i) * 8 + 2 * p.t + e;
            if (token >= a->tokens)
                continue;
            const float scale = bf16 ? 1.0f : AT(const float, a->scale)[token];
            UNROLL_LOOP
            for (uint32_t r = 0; r < 4; r++) {
                const uint64_t row = (p.panel0 + p.m) * K_PANEL + p.g + 8 * r;
                if (row >= w->rows)
                    continue;
                float y = acc[r / 2][i][2 * (r % 2) + e] * scale;
                y = a->bias ? y + AT(const float, a->bias)[row] : y;
                AT(float, a->out)[token * a->ldo + row] = y;
            }
        }
    }
}

#endif /* from sm_80 on */

#endif
