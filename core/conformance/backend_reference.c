/* Backends: what each operation gives, in double, straight from the list in tessera/backend.h.
 * room is the magnitude of what a number was made of, times the device's eps. */
#include "conformance/backend.h"

#include "base/f16.h"

#include <math.h>
#include <string.h>

static void set(const struct tsr_device *d, struct tsr_trial *t, uint64_t i, double value,
                double magnitude)
{
    t->want[i] = value;
    t->room[i] = d->eps * (magnitude + fabs(value)) + 1e-30; /* a denormal may be lost */
}

static void linear(struct tsr_device *d, struct tsr_trial *t)
{
    uint64_t T = t->out.t.rows, N = t->w_rows, K = t->w_cols;
    for (uint64_t i = 0; i < T * N; i++) {
        const float *x = t->x[0] + i / N * K, *w = t->w + i % N * K;
        double       sum = t->op.in[1] ? t->x[1][i % N] : 0, magnitude = fabs(sum);
        for (uint64_t k = 0; k < K; k++) {
            sum += (double)x[k] * w[k];
            magnitude += fabs((double)x[k] * w[k]);
        }
        set(d, t, i, sum, magnitude);
    }
}

static void embed(struct tsr_device *d, struct tsr_trial *t)
{
    for (uint64_t i = 0; i < t->n; i++)
        set(d, t, i, (double)t->w[t->ids[i / t->w_cols] * t->w_cols + i % t->w_cols] * t->op.scale,
            0);
}

static void norm(struct tsr_device *d, struct tsr_trial *t)
{
    uint64_t n = t->out.t.cols;
    for (uint64_t r = 0; r < t->out.t.rows; r++) {
        const float *x = t->x[0] + r * n;
        double       mean = 0, var = 0, most = 0;
        for (uint64_t i = 0; t->op.norm == TSR_NORM_LAYER && i < n; i++)
            mean += x[i] / (double)n;
        for (uint64_t i = 0; i < n; i++) {
            var += (x[i] - mean) * (x[i] - mean) / (double)n;
            most = fmax(most, fabs((double)x[i]));
        }
        double scale = 1 / sqrt(var + (double)t->op.eps);
        for (uint64_t i = 0; i < n; i++) {
            double gain = (double)t->x[1][i] + (double)t->op.gain_offset;
            double bias = t->op.in[2] ? t->x[2][i] : 0;
            set(d, t, r * n + i, (x[i] - mean) * scale * gain + bias,
                most * scale * (fabs((double)t->x[1][i]) + fabs((double)t->op.gain_offset)) +
                    fabs(bias));
        }
    }
}

static void rope(struct tsr_device *d, struct tsr_trial *t)
{
    uint64_t half = t->op.rotary_dim / 2, hd = t->op.head_dim, n = t->out.t.cols;
    for (uint64_t i = 0; i < t->n; i++) {
        uint64_t     row = i / n, at = i % n % hd, pair = at < half ? at + half : at - half;
        const float *x = t->x[0] + i - at; /* the head */
        if (at >= 2 * half) {
            set(d, t, i, x[at], 0);
            continue;
        }
        double c = t->x[1][row * half + at % half], s = t->x[2][row * half + at % half];
        double b = at < half ? -(x[pair] * s) : x[pair] * s;
        set(d, t, i, x[at] * c + b, fabs(x[at] * c) + fabs(b));
    }
}

static void kv_store(struct tsr_device *d, struct tsr_trial *t)
{
    uint64_t n = (uint64_t)t->op.kv_heads * t->op.head_dim, hd = t->op.head_dim;
    uint32_t dtype = t->out.t.dtype;
    (void)d; /* what is stored depends on no arithmetic */
    for (uint64_t i = 0; i < t->n; i++) {
        t->want[i] = t->x[4][i]; /* rows that are not stored stay */
        t->room[i] = 0;
    }
    for (uint64_t k = 0; k < t->in[0].t.rows; k++)
        for (uint64_t h = 0; h < t->op.kv_heads; h++) {
            const float *x = t->x[0] + k * n + h * hd;
            double       amax = 0;
            for (uint64_t i = 0; i < hd; i++)
                amax = fmax(amax, fabs((double)x[i]));
            for (uint64_t i = 0; i < hd; i++) {
                uint64_t at = t->ids[k] * n + h * hd + i;
                t->want[at] = x[i];
                /* half a step of the code, a hundredth of a step for the rounding of the scale */
                t->room[at] = dtype == TSR_F32   ? 0
                              : dtype == TSR_F16 ? fabs((double)x[i]) * 0x1p-11 + 0x1p-25
                                                 : 0.51 * amax / 127;
            }
        }
}

static void attention(struct tsr_device *d, struct tsr_trial *t)
{
    uint64_t hd = t->op.head_dim, kv = (uint64_t)t->op.kv_heads * hd;
    uint64_t share = t->op.heads / t->op.kv_heads;
    double   s[16]; /* positions: the caches of the trials have 10 rows */
    for (uint64_t i = 0; i < t->n; i++) {
        uint64_t row = i / t->out.t.cols, h = i % t->out.t.cols / hd, e = i % hd;
        uint64_t base = t->ids[2 * row], p = t->ids[2 * row + 1];
        uint64_t lo = t->op.window && p + 1 > t->op.window ? p + 1 - t->op.window : 0;
        double   max = -HUGE_VAL, den = 0, sum = 0, most = 0, size = 1;
        for (uint64_t j = lo; j <= p; j++) {
            const float *q = t->x[0] + row * t->out.t.cols + h * hd;
            const float *k = t->x[1] + (base + j) * kv + h / share * hd;
            double       dot = 0, magnitude = 0;
            for (uint64_t n = 0; n < hd; n++) {
                dot += (double)q[n] * k[n];
                magnitude += fabs((double)q[n] * k[n]);
            }
            s[j] = dot * (double)t->op.scale;
            if (t->op.softcap > 0)
                s[j] = t->op.softcap * tanh(s[j] / t->op.softcap);
            if (t->op.in[4])
                s[j] += (double)t->x[4][h] * ((double)j - (double)p);
            max = fmax(max, s[j]);
            size = fmax(size, 1 + magnitude * (double)t->op.scale + fabs(s[j]));
        }
        for (uint64_t j = lo; j <= p; j++) {
            double v = t->x[2][(base + j) * kv + h / share * hd + e];
            s[j] = exp(s[j] - max);
            den += s[j];
            sum += s[j] * v;
            most = fmax(most, fabs(v));
        }
        /* an error in a score is one in the exponent: it scales the weight of its value */
        set(d, t, i, sum / den, 2 * size * most);
    }
}

static double func(uint32_t f, double x)
{
    switch (f) {
    case TSR_FUNC_SILU:
        return x / (1 + exp(-x));
    case TSR_FUNC_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case TSR_FUNC_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    default:
        return fmax(x, 0);
    }
}

static void elementwise(struct tsr_device *d, struct tsr_trial *t)
{
    for (uint64_t i = 0; i < t->n; i++) {
        double a = t->x[0][i], b = t->op.in[1] ? (double)t->x[1][i] : 1;
        double y = a + b, magnitude = fabs(a) + fabs(b);
        if (t->op.kind == TSR_OP_ACT) {
            y = func(t->op.func, a) * b;
            magnitude = fabs(a * b); /* 1 + tanh() cancels */
        } else if (t->op.kind == TSR_OP_SCALE) {
            y = a * (double)t->op.scale;
            if (t->op.softcap > 0)
                y = t->op.softcap * tanh(y / t->op.softcap);
        }
        set(d, t, i, y, magnitude);
    }
}

static void gather(struct tsr_device *d, struct tsr_trial *t)
{
    uint64_t n = t->out.t.cols;
    (void)d;
    for (uint64_t i = 0; i < t->n; i++) {
        t->want[i] = t->x[0][t->ids[i / n] * n + i % n];
        t->room[i] = 0;
    }
}

void tsr_trial_reference(struct tsr_device *d, struct tsr_trial *t)
{
    static void (*const f[])(struct tsr_device *, struct tsr_trial *) = {
        [TSR_OP_LINEAR] = linear,   [TSR_OP_EMBED] = embed,       [TSR_OP_NORM] = norm,
        [TSR_OP_ROPE] = rope,       [TSR_OP_KV_STORE] = kv_store, [TSR_OP_ATTENTION] = attention,
        [TSR_OP_ACT] = elementwise, [TSR_OP_ADD] = elementwise,   [TSR_OP_SCALE] = elementwise,
        [TSR_OP_GATHER] = gather,
    };
    f[t->op.kind](d, t);
}

/* ---- caches -------------------------------------------------------------------- */

void tsr_cache_encode(uint32_t dtype, uint64_t rows, uint32_t kv_heads, uint32_t head_dim,
                      const float *x, void *cache)
{
    unsigned char *p = cache;
    for (uint64_t h = 0; h < rows * kv_heads; h++, x += head_dim) {
        float amax = 0;
        for (uint32_t i = 0; i < head_dim; i++)
            amax = fmaxf(amax, fabsf(x[i]));
        float scale = amax / 127;
        if (dtype == TSR_I8) {
            memcpy(p, &scale, 4);
            p += 4;
        }
        for (uint32_t i = 0; i < head_dim; i++, p += tsr_dtype_size(dtype)) {
            uint16_t half = tsr_f32_f16(x[i]);
            int8_t   code = (int8_t)(scale > 0 ? rintf(x[i] / scale) : 0);
            if (dtype == TSR_F32)
                memcpy(p, &x[i], 4);
            else if (dtype == TSR_F16)
                memcpy(p, &half, 2);
            else
                memcpy(p, &code, 1);
        }
    }
}

void tsr_cache_decode(uint32_t dtype, uint64_t rows, uint32_t kv_heads, uint32_t head_dim,
                      const void *cache, double *x)
{
    const unsigned char *p = cache;
    for (uint64_t h = 0; h < rows * kv_heads; h++) {
        float scale = 0;
        if (dtype == TSR_I8) {
            memcpy(&scale, p, 4);
            p += 4;
        }
        for (uint32_t i = 0; i < head_dim; i++, p += tsr_dtype_size(dtype), x++) {
            float f;
            if (dtype == TSR_I8) {
                *x = (double)(scale * (float)(int8_t)*p);
                continue;
            }
            tsr_widen(&f, p, dtype, 1);
            *x = f;
        }
    }
}
