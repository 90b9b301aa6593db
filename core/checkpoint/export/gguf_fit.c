/* Weights to blocks: for each group the scale and minimum of the least weighted error, then, for types whose scales are small
 * codes, codes and factors in turn, with each weight rounded anew for every candidate. */
#include "checkpoint/export/gguf_super.h"

#include "base/f16.h"

#include <math.h>
#include <string.h>

#define LANES  8  /* sums are of eight lanes, whatever the machine has */
#define SPREAD 12 /* candidates of a group, in each direction */
#define STARTS 4  /* first factors of a block */
#define TURNS  6

struct part {
    const float *x, *w;
    unsigned     n;
};

static float sum8(const float v[LANES])
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static float inverse(float s)
{
    float is = s != 0 ? 1.0f / s : 0.0f;
    return isfinite(is) ? is : 0.0f;
}

/* The weighted error of a group with this scale and minimum, and the nearest codes. */
static float round_part(const struct tsr_export_gguf_levels *k, const struct part *p, float s,
                        float m, unsigned char *code)
{
    const float zero = k->zero, top = k->top, is = inverse(s);
    float       e[LANES] = { 0 };
    for (unsigned i = 0; i < p->n; i += LANES) {
        for (unsigned j = 0; j < LANES; j++) {
            float v = (p->x[i + j] + m) * is + zero;
            v = v > 0 ? v : 0;
            v = v < top ? v : top;
            int   c = (int)(v + 0.5f);
            float r = s * ((float)c - zero) - m - p->x[i + j];
            e[j] += p->w[i + j] * r * r;
            code[i + j] = (unsigned char)c;
        }
    }
    return sum8(e);
}

/* Sums for least squares of x = s * u - m with u = code - zero. */
struct sums {
    double w, u, uu, x, ux;
};

static struct sums sums_of(const struct tsr_export_gguf_levels *k, const struct part *p,
                           const unsigned char *code)
{
    const float zero = k->zero;
    float       w[LANES] = { 0 }, u[LANES] = { 0 }, uu[LANES] = { 0 }, x[LANES] = { 0 },
          ux[LANES] = { 0 };
    for (unsigned i = 0; i < p->n; i += LANES) {
        for (unsigned j = 0; j < LANES; j++) {
            float c = (float)code[i + j] - zero, a = p->w[i + j], ac = a * c;
            w[j] += a;
            u[j] += ac;
            uu[j] += ac * c;
            x[j] += a * p->x[i + j];
            ux[j] += ac * p->x[i + j];
        }
    }
    return (struct sums){ (double)sum8(w), (double)sum8(u), (double)sum8(uu), (double)sum8(x),
                          (double)sum8(ux) };
}

/* Scale and minimum of the least error for these codes; false: any scale has it. */
static bool solve(const struct tsr_export_gguf_levels *k, const struct sums *a, float *s, float *m)
{
    double det = a->w * a->uu - a->u * a->u;
    *m = 0;
    if (k->minimum && det > 1e-9 * a->w * a->uu) {
        *s = (float)((a->w * a->ux - a->u * a->x) / det);
        *m = (float)((a->u * a->ux - a->uu * a->x) / det);
        if (*m >= 0 || k->plain)
            return true;
        *m = 0;
    }
    if (!(a->uu > 0))
        return false;
    *s = (float)(a->ux / a->uu);
    return true;
}

struct best {
    float         e, s, m;
    unsigned char code[TSR_GGUF_SUPER];
};

/* Rounds and solves in turn from a first scale on. */
static void settle(const struct tsr_export_gguf_levels *k, const struct part *p, float s, float m,
                   struct best *b)
{
    unsigned char code[TSR_GGUF_SUPER];
    float         last = INFINITY;
    for (unsigned turn = 0; turn < 3; turn++) {
        float e = round_part(k, p, s, m, code);
        if (e < b->e) {
            b->e = e;
            b->s = s;
            b->m = m;
        }
        if (!(e < last))
            return;
        last = e;
        struct sums a = sums_of(k, p, code);
        if (!solve(k, &a, &s, &m))
            return;
    }
}

/* The scale and minimum of a group in real numbers. */
static void fit_part(const struct tsr_export_gguf_levels *k, const struct part *p, struct best *b)
{
    float lo = p->x[0], hi = p->x[0];
    for (unsigned i = 1; i < p->n; i++) {
        lo = fminf(lo, p->x[i]);
        hi = fmaxf(hi, p->x[i]);
    }
    if (!k->plain && k->minimum)
        lo = fminf(lo, 0);
    b->s = 0;
    b->m = k->minimum ? -lo : 0;
    b->e = round_part(k, p, b->s, b->m, b->code);
    if (k->minimum) {
        for (int t = -SPREAD; hi > lo && t <= SPREAD; t++)
            settle(k, p, (hi - lo) / ((float)k->top + 0.125f * (float)t), -lo, b);
        return;
    }
    float most = -lo > hi ? lo : hi, below = k->zero, above = (float)(k->top - k->zero);
    for (int t = -SPREAD; most != 0 && t <= SPREAD; t++) {
        settle(k, p, most / -(below + 0.1f * (float)t), 0, b);
        settle(k, p, most / (above + 0.1f * (float)t), 0, b);
    }
}

/* ---- scales that are codes ------------------------------------------------------------------ */

static float f16(float v)
{
    return tsr_f16_f32(tsr_f32_f16(v));
}

static int nearest(float v, int lo, int hi)
{
    return v >= (float)hi ? hi : v <= (float)lo ? lo : (int)lrintf(v);
}

/* The scale's code near a wish, and the minimum's, with the least error.  Returns it. */
static float choose(const struct tsr_export_gguf_levels *k, const struct part *p, float d, float m,
                    float want_s, float want_m, unsigned g, struct tsr_export_gguf_super *out)
{
    const int     lo = k->negative ? -(int)k->steps - 1 : 0, hi = k->steps;
    int           at = nearest(want_s * inverse(d), lo, hi);
    unsigned char code[TSR_GGUF_SUPER];
    float         best = INFINITY;
    for (int a = at - 1; a <= at + 1; a++) {
        if (a < lo || a > hi)
            continue;
        float s = d * (float)a, minimum = want_m;
        int   b = nearest(minimum * inverse(m), 0, hi);
        for (unsigned turn = 0; turn < (k->minimum ? 3u : 1u); turn++) {
            float e = round_part(k, p, s, m * (float)b, code);
            if (e < best) {
                best = e;
                out->scale[g] = (int8_t)a;
                out->minimum[g] = (uint8_t)b;
                memcpy(out->code + (size_t)g * k->group, code, p->n);
            }
            struct sums u = sums_of(k, p, code);
            int         next =
                u.w > 0 ? nearest((float)(((double)s * u.u - u.x) / u.w) * inverse(m), 0, hi) : b;
            if (next == b)
                break;
            b = next;
        }
    }
    return best;
}

/* The factors of the least error for these codes. */
static void solve_factors(const struct tsr_export_gguf_levels *k, const struct part *p,
                          const struct tsr_export_gguf_super *s, float *d, float *m)
{
    double dd = 0, dm = 0, mm = 0, dx = 0, mx = 0; /* of x = d * (scale * u) - m * minimum */
    for (unsigned g = 0; g < tsr_export_gguf_groups(k); g++) {
        struct sums a = sums_of(k, &p[g], s->code + (size_t)g * k->group);
        double      c = s->scale[g], b = k->minimum ? s->minimum[g] : 0;
        dd += c * c * a.uu;
        dm += c * b * a.u;
        mm += b * b * a.w;
        dx += c * a.ux;
        mx += b * a.x;
    }
    double det = dd * mm - dm * dm;
    if (mm > 0 && det > 1e-9 * dd * mm) {
        *d = f16((float)((dx * mm - dm * mx) / det));
        *m = f16((float)((dx * dm - dd * mx) / det));
    } else if (dd > 0)
        *d = f16((float)(dx / dd));
}

/* One start: scales and minimums as codes under d and m, then the factors anew, as long as it helps.  One that is far from
 * the best of the others ends at once. */
static float fit_factors(const struct tsr_export_gguf_levels *k, const struct part *p,
                         const struct best *real, float d, float m, float others,
                         struct tsr_export_gguf_super *out)
{
    struct tsr_export_gguf_super s = { 0 };
    float                        best = INFINITY;
    const unsigned               groups = tsr_export_gguf_groups(k);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        float e = 0;
        for (unsigned g = 0; g < groups; g++)
            e += choose(k, &p[g], d, m, real[g].s, real[g].m, g, &s);
        if (!(e < best) || e > 1.02f * others)
            return best;
        best = e;
        s.d = tsr_f32_f16(d);
        s.m = tsr_f32_f16(m);
        *out = s;
        solve_factors(k, p, &s, &d, &m);
        if (!(m >= 0))
            return best;
    }
    return best;
}

/* False: no start has an error that is a number. */
static bool fit_codes(const struct tsr_export_gguf_levels *k, const struct part *p,
                      const struct best *real, struct tsr_export_gguf_super *out)
{
    struct tsr_export_gguf_super s;
    float                        scale = 0, minimum = 0, best = INFINITY;
    for (unsigned g = 0; g < tsr_export_gguf_groups(k); g++) {
        scale = fabsf(real[g].s) > fabsf(scale) ? real[g].s : scale;
        minimum = fmaxf(minimum, real[g].m);
    }
    for (unsigned t = 0; t < STARTS; t++) {
        float cut = 1.0f - 0.04f * (float)t, steps = (float)k->steps * cut;
        float d = k->negative ? scale / -(steps + 1) : scale / steps;
        float e = fit_factors(k, p, real, f16(d), f16(minimum / steps), best, &s);
        if (e < best) {
            best = e;
            *out = s;
        }
    }
    return best < INFINITY;
}

static bool fit_block(const struct tsr_export_gguf_levels *k, const float *x, const float *w,
                      struct tsr_export_gguf_super *out)
{
    struct best    real[16] = { { 0 } };
    struct part    p[16] = { { 0 } };
    const unsigned groups = tsr_export_gguf_groups(k);
    memset(out, 0, sizeof *out);
    for (unsigned g = 0; g < groups; g++) {
        p[g] = (struct part){ x + (size_t)g * k->group, w + (size_t)g * k->group, k->group };
        fit_part(k, &p[g], &real[g]);
        if (!isfinite(real[g].e))
            return false;
    }
    if (k->steps > 1)
        return fit_codes(k, p, real, out);
    out->scale[0] = 1;
    out->minimum[0] = k->minimum;
    out->d = tsr_f32_f16(real[0].s);
    out->m = tsr_f32_f16(real[0].m);
    (void)round_part(k, &p[0], tsr_f16_f32(out->d), tsr_f16_f32(out->m), out->code);
    return isfinite(tsr_f16_f32(out->d)) && isfinite(tsr_f16_f32(out->m));
}

bool tsr_export_gguf_fit_row(const struct tsr_export_gguf_levels *k, const float *x,
                             const float *square, uint64_t cols, struct tsr_export_gguf_super *s)
{
    for (uint64_t at = 0; at < cols; at += k->elements, s++) {
        float  w[TSR_GGUF_SUPER];
        double mean = 0;
        for (unsigned i = 0; i < k->elements; i++) {
            if (!isfinite(x[at + i]))
                return false;
            w[i] = square ? square[at + i] : 1;
            mean += (double)w[i];
        }
        mean /= k->elements;
        for (unsigned i = 0; i < k->elements; i++) /* a column without inputs counts a little */
            w[i] = mean > 0 ? w[i] / (float)mean + 1e-4f : 1;
        if (!fit_block(k, x + at, w, s))
            return false;
    }
    return true;
}
