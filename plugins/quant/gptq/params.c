/* params.c - scales and zero points of the groups of a tile. */
#include "gptq.h"

#include <stdlib.h>

#define TRIALS 20 /* both ends of the range shrink by 1/25 per trial */
#define GRID   25.0

static uint64_t group_end(const struct gptq_tile *t, uint64_t g)
{
    return g + 1 == t->groups ? t->cols : (g + 1) * t->width;
}

static tsr_status put(struct gptq_tile *t, uint64_t g, uint64_t lane, struct wt_params p,
                      struct tsr_err *err)
{
    if (p.scale == 0.0f && !t->q->rule.scale_bits)
        return wt_scale_refused(t->q->rule.scale_dtype, t->src, t->n_row + lane, g, err);
    t->scale[g * GPTQ_LANES + lane] = p.scale;
    t->zero[g * GPTQ_LANES + lane] = t->q->rule.minimum ? p.minimum : (float)p.zero;
    return TSR_OK;
}

/* Groups of one row by range.  A whole row's range counts dead columns, a group's does not. */
static tsr_status params_of_row(struct gptq_tile *t, uint64_t lane, struct tsr_err *err)
{
    const struct gptq *q = t->q;
    tsr_status         st = TSR_OK;
    if (q->weighted || q->dynamic)
        return TSR_OK;
    for (uint64_t g = 0; g < t->groups && st == TSR_OK; g++) {
        uint64_t begin = g * t->width, n = group_end(t, g) - begin;
        st = put(t, g, lane, wt_find_params(&q->rule, t->row + begin, NULL, n), err);
    }
    return st;
}

static tsr_status load_row(struct gptq_tile *t, uint64_t lane, struct tsr_err *err)
{
    const struct gptq_site *s = t->site;
    tsr_status              st;
    if (s->shift) {
        for (uint64_t k = 0; k < t->cols; k++)
            t->row[k] = t->w[k * GPTQ_LANES + lane];
        st = TSR_OK;
    } else {
        wt_row(t->row, t->src, t->first + lane);
        st = wt_check(t->src, t->row, t->n_row + lane, err);
    }
    if (st == TSR_OK && t->q->group == 0)
        st = params_of_row(t, lane, err);
    if (st != TSR_OK)
        return st;
    for (uint64_t k = 0; k < t->cols; k++) {
        if (s->weight[k] == 0.0f)
            t->row[k] = 0.0f;
        t->w[k * GPTQ_LANES + lane] = t->row[k];
    }
    return t->q->group == 0 ? TSR_OK : params_of_row(t, lane, err);
}

tsr_status gptq_load(struct gptq_tile *t, struct tsr_err *err)
{
    tsr_status st = TSR_OK;
    memset(t->w, 0, t->cols * GPTQ_LANES * sizeof *t->w);
    memset(t->zero, 0, t->groups * GPTQ_LANES * sizeof *t->zero);
    for (uint64_t i = 0; i < t->groups * GPTQ_LANES; i++)
        t->scale[i] = 1.0f;
    if (t->site->shift)
        st = gptq_shift_load(t, err);
    for (uint64_t lane = 0; lane < t->rows && st == TSR_OK; lane++)
        st = load_row(t, lane, err);
    return st;
}

/* ---- weighted ----------------------------------------------------------------------- */

struct search {
    float lo[GPTQ_LANES], hi[GPTQ_LANES];
    float scale[GPTQ_LANES], zero[GPTQ_LANES], least[GPTQ_LANES];
    int   flat[GPTQ_LANES]; /* nothing but zeros */
};

static void ranges(const struct gptq_tile *t, uint64_t g, struct search *s)
{
    for (uint32_t r = 0; r < GPTQ_LANES; r++)
        s->lo[r] = s->hi[r] = 0.0f;
    for (uint64_t k = g * t->width; k < group_end(t, g); k++) {
        const float *w = gptq_at(t->w, k);
        for (uint32_t r = 0; r < GPTQ_LANES; r++) {
            s->lo[r] = wt_min(s->lo[r], w[r]);
            s->hi[r] = wt_max(s->hi[r], w[r]);
        }
    }
    for (uint32_t r = 0; r < GPTQ_LANES; r++) {
        if (t->q->rule.symmetric) {
            s->hi[r] = wt_max(-s->lo[r], s->hi[r]);
            s->lo[r] = -s->hi[r];
        }
        s->flat[r] = wt_range_vanishes(&t->q->rule, s->lo[r], s->hi[r]);
        if (s->flat[r]) {
            s->lo[r] = -1.0f;
            s->hi[r] = 1.0f;
        }
    }
}

int gptq_has_avx2(void)
{
#ifdef __x86_64__
    const char *isa = getenv("TSR_ISA");
    return __builtin_cpu_supports("avx2") && !(isa && strcmp(isa, "scalar") == 0);
#else
    return 0;
#endif
}

/* sum over the group of weight * (w - w^)^2, rounding to nearest */
GPTQ_INLINE void trial_error(const struct gptq_tile *t, uint64_t g, const float *scale,
                             const float *zero, float *restrict error)
{
    float code[GPTQ_LANES], value[GPTQ_LANES];
    for (uint32_t r = 0; r < GPTQ_LANES; r++)
        error[r] = 0.0f;
    for (uint64_t k = g * t->width; k < group_end(t, g); k++) {
        const float *w = gptq_at(t->w, k), v = t->site->weight[k];
        gptq_round(&t->q->rule, code, value, w, scale, zero);
        for (uint32_t r = 0; r < GPTQ_LANES; r++) {
            float d = value[r] - w[r];
            error[r] += v * (d * d);
        }
    }
}

GPTQ_FOR_AVX2(trial_error,
              (const struct gptq_tile *t, uint64_t g, const float *scale, const float *zero,
               float *restrict error),
              (t, g, scale, zero, error))

static void try_shrink(const struct gptq_tile *t, uint64_t g, float shrink, struct search *s)
{
    float scale[GPTQ_LANES], zero[GPTQ_LANES], error[GPTQ_LANES];
    for (uint32_t r = 0; r < GPTQ_LANES; r++) {
        struct wt_params p = wt_params_of_range(&t->q->rule, shrink * s->lo[r], shrink * s->hi[r]);
        scale[r] = p.scale;
        zero[r] = t->q->rule.minimum ? p.minimum : (float)p.zero;
        if (p.scale == 0.0f)
            scale[r] = 1.0f;
        error[r] = p.scale == 0.0f ? INFINITY : 0.0f;
    }
    float sum[GPTQ_LANES];
    GPTQ_CALL(t->q, trial_error, (t, g, scale, zero, sum));
    for (uint32_t r = 0; r < GPTQ_LANES; r++)
        if (sum[r] + error[r] < s->least[r]) {
            s->least[r] = sum[r];
            s->scale[r] = scale[r];
            s->zero[r] = zero[r];
        }
}

tsr_status gptq_params_weighted(struct gptq_tile *t, struct tsr_err *err)
{
    const struct wt_rule *q = &t->q->rule;
    struct search         s;
    for (uint64_t g = 0; g < t->groups; g++) {
        if (t->q->host->cancelled(t->q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        ranges(t, g, &s);
        for (uint32_t r = 0; r < GPTQ_LANES; r++) {
            s.least[r] = INFINITY;
            s.scale[r] = 0.0f;
            s.zero[r] = 0.0f;
        }
        for (int i = 0; i < TRIALS; i++)
            try_shrink(t, g, (float)(1.0 - i / GRID), &s);
        for (uint64_t lane = 0; lane < t->rows; lane++) {
            struct wt_params p = { .scale = s.scale[lane] };
            if (!q->minimum)
                p.zero = (int)s.zero[lane];
            else if (s.flat[lane])
                p = wt_params_flat(q);
            else
                p.minimum = s.zero[lane];
            if (p.scale == 0.0f && !s.flat[lane])
                return wt_scale_refused(q->scale_dtype, t->src, t->n_row + lane, g, err);
            tsr_status st = put(t, g, lane, p, err);
            if (st != TSR_OK)
                return st;
        }
    }
    return TSR_OK;
}

/* ---- codes of scales ----------------------------------------------------------------- */

void gptq_row_params(const struct gptq_tile *t, uint64_t lane)
{
    for (uint64_t g = 0; g < t->groups; g++)
        t->p[g] = (struct wt_params){ .scale = t->scale[g * GPTQ_LANES + lane],
                                      .minimum = t->zero[g * GPTQ_LANES + lane] };
}

tsr_status gptq_params_codes(struct gptq_tile *t, struct tsr_err *err)
{
    struct tsr_format f = gptq_format(t->q);
    uint64_t          meta_bytes = gptq_meta_bytes(t->q, t->cols);
    for (uint64_t lane = 0; lane < t->rows; lane++) {
        gptq_row_params(t, lane);
        uint64_t held = wt_affine_meta(&f, t->cols, t->p, t->meta + lane * meta_bytes);
        if (held != t->groups)
            return wt_affine_refused(&f, t->src, t->n_row + lane, held, err);
        for (uint64_t g = 0; g < t->groups; g++) {
            t->scale[g * GPTQ_LANES + lane] = t->p[g].scale;
            t->zero[g * GPTQ_LANES + lane] = t->p[g].minimum;
        }
    }
    return TSR_OK;
}

/* ---- dynamic ------------------------------------------------------------------------ */

tsr_status gptq_params_dynamic(struct gptq_tile *t, uint64_t g, struct tsr_err *err)
{
    uint64_t   begin = g * t->width, n = group_end(t, g) - begin;
    tsr_status st = TSR_OK;
    for (uint64_t lane = 0; lane < t->rows && st == TSR_OK; lane++) {
        for (uint64_t k = 0; k < n; k++)
            t->row[k] = t->e[(begin + k) * GPTQ_LANES + lane];
        st = put(t, g, lane, wt_find_params(&t->q->rule, t->row, NULL, n), err);
    }
    return st;
}
