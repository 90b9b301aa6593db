/* A row under rounding offsets and ranges.  With s the scale, m the minimum, z the zero point and V the offset,
 *
 *   w' = w + V s    c = clamp(rne((w' - m) / s) + z, 0, top)    value = (c - z) s + m
 *
 * Rounding counts as the identity in derivatives, as in the published method:
 *
 *   inside of the codes   dvalue/dV = s   dvalue/ds = c - z - (w - m) / s         dvalue/dlo = 0
 *   cut off               dvalue/dV = 0   dvalue/ds = c - z - lo / s, or c of m   dvalue/dlo = 1
 *
 * with s = (alpha hi - beta lo) / top, and z = -lo / s or m = lo, lo meaning beta times the lowest weight. */
#include "autoround.h"

struct tsr_format ar_format(const struct autoround *q)
{
    if (q->rule.minimum)
        return wt_affine_format(q->rule.bits, q->group, 0, q->rule.scale_dtype);
    return (struct tsr_format){ .id = TSR_FORMAT_INT,
                                .bits = q->rule.bits,
                                .zero = TSR_ZERO_STORED,
                                .group = q->group,
                                .scale_dtype = q->rule.scale_dtype };
}

uint64_t ar_meta_bytes(const struct autoround *q, uint64_t cols)
{
    struct tsr_format f = ar_format(q);
    return q->rule.minimum ? tsr_format_affine_meta_bytes(&f, cols)
                           : tsr_format_int_meta_bytes(&f, cols);
}

uint64_t ar_groups(const struct autoround *q, uint64_t cols)
{
    struct tsr_format f = ar_format(q);
    return tsr_format_groups(&f, cols);
}

/* The first and the last column + 1 of a group. */
static void span_of(const struct autoround *q, uint64_t cols, uint64_t groups, uint64_t g,
                    uint64_t *begin, uint64_t *end)
{
    uint64_t width = groups == 1 ? cols : q->group;
    *begin = g * width;
    *end = g + 1 == groups ? cols : *begin + width;
}

void ar_ranges(const struct autoround *q, const float *w, uint64_t cols, struct ar_range *r)
{
    uint64_t groups = ar_groups(q, cols), begin, end;
    for (uint64_t g = 0; g < groups; g++) {
        span_of(q, cols, groups, g, &begin, &end);
        r[g] = (struct ar_range){ .alpha = 1.0f, .beta = 1.0f };
        wt_find_range(&q->rule, w + begin, end - begin, &r[g].lo, &r[g].hi);
    }
}

/* *moves: the range can be narrowed.  Not that of zeros, and not to where the scale's type has no number. */
static struct wt_params params_of(const struct autoround *q, const struct ar_range *r, int *moves)
{
    *moves = 0;
    if (wt_range_vanishes(&q->rule, r->lo, r->hi))
        return q->rule.minimum ? wt_params_flat(&q->rule)
                               : wt_params_of_range(&q->rule, -1.0f, 1.0f);
    struct wt_params p = wt_params_of_range(&q->rule, r->beta * r->lo, r->alpha * r->hi);
    *moves = p.scale != 0.0f;
    return p.scale != 0.0f ? p : wt_params_of_range(&q->rule, r->lo, r->hi);
}

static float moved(float w, float v, float scale)
{
    return w + v * scale;
}

void ar_round(const struct autoround *q, const float *w, const float *v, uint64_t cols,
              const struct ar_range *r, float *value)
{
    uint64_t groups = ar_groups(q, cols), begin, end;
    int      moves;
    for (uint64_t g = 0; g < groups; g++) {
        struct wt_params p = params_of(q, &r[g], &moves);
        span_of(q, cols, groups, g, &begin, &end);
        for (uint64_t k = begin; k < end; k++)
            value[k] = p.scale == 0.0f
                           ? 0.0f
                           : wt_value(&p, wt_code_nearest(&p, moved(w[k], v[k], p.scale)));
    }
}

static float sign_of(double x)
{
    return x > 0.0 ? 1.0f : x < 0.0 ? -1.0f : 0.0f;
}

static float within(float x, float lo, float hi)
{
    return wt_min(wt_max(x, lo), hi);
}

static void descend_group(const struct autoround *q, const float *w, const float *g, uint64_t n,
                          float rate, float *v, struct ar_range *r)
{
    int              moves;
    struct wt_params p = params_of(q, r, &moves);
    double           ds = 0.0, dlo = 0.0, top = (double)p.hi, scale = (double)p.scale;
    double           low = (double)r->beta * (double)r->lo;
    if (p.scale == 0.0f)
        return;
    for (uint64_t k = 0; k < n; k++) {
        float  x = rintf((moved(w[k], v[k], p.scale) - p.minimum) / p.scale) + (float)p.zero;
        double c = (double)(wt_code_nearest(&p, moved(w[k], v[k], p.scale)) - p.zero);
        if (x >= 0.0f && x <= (float)p.hi) {
            ds += (double)g[k] * (c - ((double)w[k] - (double)p.minimum) / scale);
            v[k] = within(v[k] - rate * sign_of((double)g[k]), -0.5f, 0.5f);
        } else {
            ds += (double)g[k] * (q->rule.minimum ? c : c - low / scale);
            dlo += (double)g[k];
        }
    }
    if (!moves)
        return;
    r->alpha = within(r->alpha - rate * sign_of(ds * (double)r->hi / top), 0.0f, 1.0f);
    r->beta = within(r->beta - rate * sign_of((dlo - ds / top) * (double)r->lo), 0.0f, 1.0f);
}

void ar_descend(const struct autoround *q, const float *w, const float *g, uint64_t cols,
                float rate, float *v, struct ar_range *r)
{
    uint64_t groups = ar_groups(q, cols), begin, end;
    for (uint64_t i = 0; i < groups; i++) {
        span_of(q, cols, groups, i, &begin, &end);
        descend_group(q, w + begin, g + begin, end - begin, rate, v + begin, &r[i]);
    }
}

/* A row, its groups and its codes. */
uint64_t ar_scratch(const struct autoround *q, uint64_t cols)
{
    return cols * (sizeof(float) + 1) + ar_groups(q, cols) * sizeof(struct wt_params);
}

static uint64_t pack_int(const struct autoround *q, const float *row, uint64_t cols,
                         const struct wt_params *p, uint8_t *codes, unsigned char *to,
                         unsigned char *meta)
{
    uint64_t groups = ar_groups(q, cols), begin, end;
    uint64_t zeros = groups * (q->rule.scale_dtype == TSR_F32 ? 4u : 2u);
    memset(meta, 0, ar_meta_bytes(q, cols));
    for (uint64_t g = 0; g < groups; g++) {
        if (p[g].scale == 0.0f)
            return g;
        span_of(q, cols, groups, g, &begin, &end);
        wt_scale_put(meta, g, q->rule.scale_dtype, p[g].scale);
        meta[zeros + g] = (unsigned char)p[g].zero;
        for (uint64_t k = begin; k < end; k++)
            codes[k] = (uint8_t)wt_code_nearest(&p[g], row[k]);
    }
    wt_pack(to, codes, cols, q->rule.bits);
    return groups;
}

uint64_t ar_pack(const struct autoround *q, const float *w, const float *v, uint64_t cols,
                 const struct ar_range *r, void *scratch, unsigned char *codes, unsigned char *meta)
{
    uint64_t          groups = ar_groups(q, cols), begin, end;
    struct wt_params *p = scratch;
    float            *row = (float *)(void *)(p + groups);
    uint8_t          *loose = (uint8_t *)(row + cols);
    struct tsr_format f = ar_format(q);
    int               moves;
    for (uint64_t g = 0; g < groups; g++) {
        p[g] = params_of(q, &r[g], &moves);
        span_of(q, cols, groups, g, &begin, &end);
        for (uint64_t k = begin; k < end; k++)
            row[k] = v ? moved(w[k], v[k], p[g].scale) : w[k];
    }
    return q->rule.minimum ? wt_affine_row(&f, row, cols, p, loose, codes, meta)
                           : pack_int(q, row, cols, p, loose, codes, meta);
}
