/* Backends: the result of each operation, by kernels/reference. room is the magnitude of a number's terms,
 * times the device's eps. */
#include "conformance/backend/backend.h"
#include "tessera/kv_cache.h"

#include <math.h>

#include "reference.h"

static void set(const struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint64_t i,
                double value, double magnitude)
{
    t->want[i] = value;
    t->room[i] = d->eps * (magnitude + fabs(value)) + 1e-30; /* a denormal may be lost */
}

/* n results and their magnitudes are in want and room from `first` on. */
static void set_row(const struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                    uint64_t first, uint64_t n)
{
    for (uint64_t i = first; i < first + n; i++)
        set(d, t, i, t->want[i], t->room[i]);
}

static void linear(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t T = t->out.t.rows, N = t->w_rows, K = t->w_cols;
    for (uint64_t i = 0; i < T * N; i++) {
        double bias = t->op.in[1] ? (double)t->x[1][i % N] : 0, size;
        double sum = tsr_ref_linear(t->x[0] + i / N * K, t->w + i % N * K, K, bias, &size);
        set(d, t, i, sum, size);
    }
}

static void embed(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    for (uint64_t i = 0; i < t->n; i++)
        set(d, t, i, (double)t->w[t->ids[i / t->w_cols] * t->w_cols + i % t->w_cols] * t->op.scale,
            0);
}

static void norm(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t n = t->out.t.cols;
    for (uint64_t r = 0; r < t->out.t.rows; r++) {
        tsr_ref_norm(t->want + r * n, t->room + r * n, t->x[0] + r * n, t->x[1],
                     t->op.in[2] ? t->x[2] : NULL, n, t->op.norm, t->op.eps, t->op.gain_offset);
        set_row(d, t, r * n, n);
    }
}

static void rope(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t half = t->op.rotary_dim / 2, hd = t->op.head_dim, n = t->out.t.cols;
    for (uint64_t i = 0; i < t->n; i += hd) {
        uint64_t row = i / n;
        tsr_ref_rope(t->want + i, t->room + i, t->x[0] + i, t->x[1] + row * half,
                     t->x[2] + row * half, hd, t->op.rotary_dim, t->op.func == TSR_ROPE_ADJACENT);
        set_row(d, t, i, hd);
    }
}

/* How far what a cache keeps of x[i] may be from it: half a step, a hundredth of a step or what F16 rounds of a minimum
 * for the rounding of scales. */
static double cache_room(uint32_t dtype, const float *x, uint64_t hd, uint64_t i)
{
    double   amax = 0, low = INFINITY, high = -INFINITY, size = fabs((double)x[i]);
    uint64_t group = i / TSR_KV_GROUP;
    for (uint64_t k = 0; k < hd; k++)
        amax = fmax(amax, fabs((double)x[k]));
    for (uint64_t k = group * TSR_KV_GROUP; k < hd && k < (group + 1) * TSR_KV_GROUP; k++) {
        low = fmin(low, (double)x[k]);
        high = fmax(high, (double)x[k]);
    }
    switch (dtype) {
    case TSR_F32:
        return 0;
    case TSR_F16:
        return size * 0x1p-11 + 0x1p-25;
    case TSR_I8:
        return 0.51 * amax / 127;
    case TSR_E4M3: /* 3 bits of a mantissa, or a multiple of the smallest number */
        return 0.51 * fmax(size / 8, amax / 448 / 512);
    default:
        return 0.52 * (high - low) / 15 + fabs(low) * 0x1p-11;
    }
}

static void kv_store(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t n = (uint64_t)t->op.kv_heads * t->op.head_dim, hd = t->op.head_dim;
    uint32_t dtype = t->out.t.dtype;
    (void)d; /* stores involve no arithmetic */
    for (uint64_t i = 0; i < t->n; i++) {
        t->want[i] = t->x[4][i]; /* rows that are not stored stay */
        t->room[i] = 0;
    }
    for (uint64_t k = 0; k < t->in[0].t.rows; k++)
        for (uint64_t h = 0; h < t->op.kv_heads; h++) {
            const float *x = t->x[0] + k * n + h * hd;
            for (uint64_t i = 0; i < hd; i++) {
                uint64_t at = t->ids[k] * n + h * hd + i;
                t->want[at] = x[i];
                t->room[at] = cache_room(dtype, x, hd, i);
            }
        }
}

static void attention(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t hd = t->op.head_dim, kv = (uint64_t)t->op.kv_heads * hd, positions = t->in[1].t.rows;
    uint64_t share = t->op.heads / t->op.kv_heads;
    double  *k = tsr_conformance_rule_memory(d->c, positions * kv * sizeof *k);
    double  *v = tsr_conformance_rule_memory(d->c, positions * kv * sizeof *v);
    double  *scores = tsr_conformance_rule_memory(d->c, positions * sizeof *scores);
    for (uint64_t i = 0; i < positions * kv; i++) {
        k[i] = (double)t->x[1][i];
        v[i] = (double)t->x[2][i];
    }
    for (uint64_t i = 0; i < t->n; i += hd) {
        uint64_t row = i / t->out.t.cols, h = i % t->out.t.cols / hd;
        uint64_t base = t->ids[2 * row], p = t->ids[2 * row + 1];
        uint64_t first = tsr_ref_first(p, t->op.window);
        uint64_t at = (base + first) * kv + h / share * hd;
        tsr_ref_attention(t->want + i, t->room + i, scores, t->x[0] + i, k + at, v + at,
                          p + 1 - first, kv, hd, t->op.scale, t->op.softcap,
                          t->op.in[4] ? t->x[4][h] : 0,
                          t->op.in[4] && t->op.in[4]->rows == 2 ? t->x[4][t->op.heads + h]
                                                                : -INFINITY);
        set_row(d, t, i, hd);
    }
}

static void elementwise(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    for (uint64_t i = 0; i < t->n; i++) {
        double a = (double)t->x[0][i], b = t->op.in[1] ? (double)t->x[1][i] : 1;
        double y = a + b, magnitude = fabs(a) + fabs(b);
        if (t->op.kind == TSR_OP_ACT && t->op.func == TSR_FUNC_CLAMPED) {
            y = tsr_ref_clamped(a, b, (double)t->op.scale, (double)t->op.softcap);
            magnitude = fabs(a) * (1 + fabs(b)); /* u + 1 cancels */
        } else if (t->op.kind == TSR_OP_ACT) {
            y = tsr_ref_func(t->op.func, a) * b;
            magnitude = fabs(a * b); /* 1 + tanh() cancels */
        } else if (t->op.kind == TSR_OP_SCALE) {
            y = tsr_ref_scale(a, (double)t->op.scale, (double)t->op.softcap);
        }
        set(d, t, i, y, magnitude);
    }
}

static void gather(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t n = t->out.t.cols;
    (void)d;
    for (uint64_t i = 0; i < t->n; i++) {
        t->want[i] = t->x[0][t->ids[i / n] * n + i % n];
        t->room[i] = 0;
    }
}

static void columns(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t n = t->out.t.cols, h = t->op.in[0]->cols;
    (void)d;
    for (uint64_t i = 0; i < t->n; i++) {
        t->want[i] = t->x[0][i / n * h + t->ids[i % n]];
        t->room[i] = 0;
    }
}

static void hadamard(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t n = t->op.head_dim, b = t->op.in[1] ? t->op.in[1]->rows : 1;
    for (uint64_t i = 0; i < t->n; i += n) {
        tsr_ref_hadamard(t->want + i, t->room + i, t->x[0] + i, n, t->op.in[1] ? t->x[1] : NULL, b);
        set_row(d, t, i, n);
    }
}

static void mix(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    uint64_t n = t->out.t.cols, k = t->op.in[1]->cols;
    for (uint64_t i = 0; i < t->n; i++) {
        double y = 0, size = 0;
        for (uint64_t j = 0; j < k; j++) {
            uint64_t at = i / n * k + j;
            double   x = (double)t->x[1][at] * (double)t->x[0][t->ids[at] * n + i % n];
            y += x;
            size += fabs(x);
        }
        set(d, t, i, y, size);
    }
}

void tsr_conformance_trial_reference(struct tsr_conformance_device *d,
                                     struct tsr_conformance_trial  *t)
{
    static void (*const f[])(struct tsr_conformance_device *, struct tsr_conformance_trial *) = {
        [TSR_OP_LINEAR] = linear,     [TSR_OP_EMBED] = embed,       [TSR_OP_NORM] = norm,
        [TSR_OP_ROPE] = rope,         [TSR_OP_KV_STORE] = kv_store, [TSR_OP_ATTENTION] = attention,
        [TSR_OP_ACT] = elementwise,   [TSR_OP_ADD] = elementwise,   [TSR_OP_SCALE] = elementwise,
        [TSR_OP_GATHER] = gather,     [TSR_OP_MIX] = mix,           [TSR_OP_COLUMNS] = columns,
        [TSR_OP_HADAMARD] = hadamard,
    };
    f[t->op.kind](d, t);
}

/* ---- caches -------------------------------------------------------------------- */

void tsr_conformance_cache_encode(uint32_t dtype, uint64_t rows, uint32_t kv_heads,
                                  uint32_t head_dim, const float *x, void *cache)
{
    uint64_t bytes = tsr_ref_head_bytes(dtype, head_dim);
    for (uint64_t h = 0; h < rows * kv_heads; h++)
        tsr_ref_head_store((char *)cache + h * bytes, dtype, x + h * head_dim, head_dim);
}

void tsr_conformance_cache_decode(uint32_t dtype, uint64_t rows, uint32_t kv_heads,
                                  uint32_t head_dim, const void *cache, double *x)
{
    uint64_t bytes = tsr_ref_head_bytes(dtype, head_dim);
    for (uint64_t h = 0; h < rows * kv_heads; h++)
        tsr_ref_head_load(x + h * head_dim, dtype, (const char *)cache + h * bytes, head_dim);
}
