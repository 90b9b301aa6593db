/* Backends: docs/decisions/numerics.md, operation by operation, in the order that it fixes. */
#include "conformance/backend/backend.h"

#include "base/f16.h"

#include <math.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

/* Fails at the first number whose bits differ; one that is plainly wrong is its operation's rule's. */
static void same(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                 const float *want)
{
    const float *got = tsr_conformance_grid_rows(d, &t->out);
    for (uint64_t i = 0; i < t->n; i++)
        if (tsr_f32_bits(got[i]) != tsr_f32_bits(want[i]) &&
            fabs((double)got[i] - t->want[i]) <= t->room[i])
            tsr_conformance_rule_fail(
                d->c,
                "%s: number %llu of the output is %.9g (0x%08x), in the order of "
                "docs/decisions/numerics.md it is %.9g (0x%08x)",
                t->what, U(i), (double)got[i], tsr_f32_bits(got[i]), (double)want[i],
                tsr_f32_bits(want[i]));
}

static float linear(const float *x, const float *w, uint64_t K, const float *bias)
{
    uint64_t S = 32 * ((K + 255) / 256);
    float    s[8] = { 0 };
    for (uint64_t k = 0; k < K; k++)
        s[k / S] = fmaf(x[k], w[k], s[k / S]);
    float y = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])) + 0.0f;
    return bias ? y + *bias : y;
}

static float tree16(float *l)
{
    for (uint32_t n = 8; n > 0; n /= 2)
        for (uint32_t i = 0; i < n; i++)
            l[i] = l[i] + l[i + n];
    return l[0];
}

static void norm(const struct tsr_conformance_trial *t, uint64_t row, float *y)
{
    uint64_t     n = t->out.t.cols;
    const float *x = t->x[0] + row * n;
    float        lane[16] = { 0 }, mean = 0, count = (float)n;
    if (t->op.norm == TSR_NORM_LAYER) {
        for (uint64_t i = 0; i < n; i++)
            lane[i % 16] = lane[i % 16] + x[i];
        mean = tree16(lane) / count;
        memset(lane, 0, sizeof lane);
    }
    for (uint64_t i = 0; i < n; i++) {
        float v = t->op.norm == TSR_NORM_LAYER ? x[i] - mean : x[i];
        lane[i % 16] = fmaf(v, v, lane[i % 16]);
    }
    float r = 1 / sqrtf(tree16(lane) / count + t->op.eps);
    for (uint64_t i = 0; i < n; i++) {
        float v = t->op.norm == TSR_NORM_LAYER ? x[i] - mean : x[i];
        y[i] = (v * r) * (t->x[1][i] + t->op.gain_offset);
        if (t->op.in[2])
            y[i] = y[i] + t->x[2][i];
    }
}

static void rope(const struct tsr_conformance_trial *t, uint64_t row, float *y)
{
    uint64_t     half = t->op.rotary_dim / 2, hd = t->op.head_dim;
    const float *x = t->x[0] + row * t->out.t.cols;
    memcpy(y, x, t->out.t.cols * 4);
    for (uint64_t h = 0; h < t->op.heads; h++)
        for (uint64_t i = 0; i < half; i++) {
            float    c = t->x[1][row * half + i], s = t->x[2][row * half + i];
            bool     adjacent = t->op.func == TSR_ROPE_ADJACENT;
            uint64_t p = h * hd + (adjacent ? 2 * i : i), q = adjacent ? p + 1 : p + half;
            float    a = x[p], b = x[q];
            y[p] = fmaf(a, c, -(b * s));
            y[q] = fmaf(b, c, a * s);
        }
}

/* One run: the stages of 1, 2, 4, ..., then the chains across the parts, then the scale. */
static void hadamard(const struct tsr_conformance_trial *t, const float *x, float *y)
{
    uint64_t n = t->op.head_dim, b = t->op.in[1] ? t->op.in[1]->rows : 1, part = n / b;
    float    scale = (float)(1 / sqrt((double)n)), v[1024];
    memcpy(v, x, n * sizeof *v);
    for (uint64_t half = 1; half < part; half *= 2)
        for (uint64_t i = 0; i < n; i++)
            if ((i % part & half) == 0) {
                float lo = v[i], hi = v[i + half];
                v[i] = lo + hi;
                v[i + half] = lo - hi;
            }
    for (uint64_t j = 0; j < n; j++) {
        float sum = b > 1 ? 0 : v[j];
        for (uint64_t k = 0; k < b && b > 1; k++)
            sum = fmaf(v[k * part + j % part], t->x[1][k * b + j / part], sum);
        y[j] = sum * scale;
    }
}

/* False where the page fixes more than a reader can repeat: polynomials are the CPU backend's. */
static bool in_order(const struct tsr_conformance_trial *t, float *y)
{
    uint64_t n = t->out.t.cols;
    for (uint64_t i = 0; i < t->n; i++)
        switch (t->op.kind) {
        case TSR_OP_LINEAR:
            y[i] = linear(t->x[0] + i / n * t->w_cols, t->w + i % n * t->w_cols, t->w_cols,
                          t->op.in[1] ? &t->x[1][i % n] : NULL);
            break;
        case TSR_OP_EMBED:
            y[i] = t->w[t->ids[i / n] * n + i % n];
            if (t->op.scale != 1.0f)
                y[i] = y[i] * t->op.scale;
            break;
        case TSR_OP_NORM:
            if (i % n == 0)
                norm(t, i / n, y + i);
            break;
        case TSR_OP_ROPE:
            if (i % n == 0)
                rope(t, i / n, y + i);
            break;
        case TSR_OP_HADAMARD:
            if (i % t->op.head_dim == 0)
                hadamard(t, t->x[0] + i, y + i);
            break;
        case TSR_OP_ADD:
            y[i] = t->x[0][i] + t->x[1][i];
            break;
        case TSR_OP_SCALE:
            if (t->op.softcap > 0)
                return false;
            y[i] = t->x[0][i] * t->op.scale;
            break;
        case TSR_OP_GATHER:
            y[i] = t->x[0][t->ids[i / n] * n + i % n];
            break;
        case TSR_OP_COLUMNS:
            y[i] = t->x[0][i / n * t->op.in[0]->cols + t->ids[i % n]];
            break;
        case TSR_OP_MIX: {
            uint64_t k = t->op.in[1]->cols, at = i / n * k;
            y[i] = 0;
            for (uint64_t j = at; j < at + k; j++)
                y[i] = fmaf(t->x[1][j], t->x[0][t->ids[j] * n + i % n], y[i]);
            break;
        }
        default:
            return false;
        }
    return true;
}

void tsr_backend_rule_numerics(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    uint64_t                      taken = 0;
    tsr_conformance_device_make(&d, c);
    if (!d.exact)
        tsr_conformance_rule_skip(c, "the backend does not say that it is deterministic");
    for (uint32_t op = TSR_OP_LINEAR; op <= TSR_OP_HADAMARD; op++)
        for (uint64_t v = 0; v < tsr_conformance_trial_count(op); v++) {
            struct tsr_conformance_trial t;
            if (!tsr_conformance_trial_make(&d, &t, op, v))
                continue;
            float *want = tsr_conformance_rule_memory(c, t.n * sizeof *want);
            if (!in_order(&t, want) || !tsr_conformance_trial_run(&d, &t))
                continue;
            taken++;
            same(&d, &t, want);
        }
    if (taken == 0)
        tsr_conformance_rule_skip(
            c, "the backend declines every operation that the page fixes to the bit");
}
