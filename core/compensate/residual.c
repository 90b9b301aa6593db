/* The residual quantizer: a grid of scales per output channel, and codes by input channel. */
#include "compensate/residual.h"

#include "base/f16.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 64u /* output channels that are made together: whole bytes of a row at every width */
#define LANES 8u  /* partial sums of a loss */
#define ALIGN 64u

bool tsr_compensate_residual_bits_known(uint32_t bits)
{
    return bits == 2 || bits == 4 || bits == 8 || bits == 16;
}

uint64_t tsr_compensate_residual_stride(uint32_t bits, uint64_t outputs)
{
    uint64_t bytes = (outputs * bits + 7) / 8;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t tsr_compensate_residual_bytes(const struct tsr_compensate_residual *r)
{
    return r->inputs * tsr_compensate_residual_stride(r->bits, r->outputs) +
           (r->scales ? r->outputs * sizeof *r->scales : 0);
}

void tsr_compensate_residual_free(struct tsr_compensate_residual *r)
{
    free(r->codes);
    free(r->scales);
    *r = (struct tsr_compensate_residual){ 0 };
}

/* ---- one output channel --------------------------------------------------------------------- */

/* rint() of |v| < 2^22, ties to even, in a form that compilers turn into vectors. */
static inline float nearest(float v)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: above it floats are whole numbers */
    return (v + magic) - magic;
}

static inline float code_of(float r, float s, float qmax)
{
    float v = r / s;
    return nearest(v > qmax ? qmax : v < -qmax ? -qmax : v);
}

/* Errors in F32, their squares in double: lane k mod 8 in ascending k, then the lanes. */
static double loss_of(const float *r, uint64_t n, float s, float qmax)
{
    double   sum[LANES] = { 0 }, total = 0;
    uint64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (uint64_t j = 0; j < LANES; j++) {
            float  e = code_of(r[k + j], s, qmax) * s - r[k + j];
            double d = (double)e;
            sum[j] += d * d;
        }
    for (uint64_t j = 0; k < n; k++, j++) {
        float e = code_of(r[k], s, qmax) * s - r[k];
        sum[j] += (double)e * (double)e;
    }
    for (uint64_t j = 0; j < LANES; j++)
        total += sum[j];
    return total;
}

/* Candidate i of equal F32 steps, from both ends to the middle as torch.linspace goes. */
static float candidate(float low, float high, uint32_t i)
{
    float step = (high - low) / (float)(TSR_RESIDUAL_CANDIDATES - 1);
    return i < TSR_RESIDUAL_CANDIDATES / 2 ? low + step * (float)i
                                           : high - step * (float)(TSR_RESIDUAL_CANDIDATES - 1 - i);
}

tsr_status tsr_compensate_residual_fit(const float *r, uint64_t n, uint32_t bits, int8_t *q,
                                       struct tsr_compensate_residual_fit *fit, struct tsr_err *err)
{
    float qmax = (float)((1 << (bits - 1)) - 1), most = 0;
    *fit = (struct tsr_compensate_residual_fit){ .loss = INFINITY };
    for (uint64_t k = 0; k < n; k++)
        most = fabsf(r[k]) > most ? fabsf(r[k]) : most;
    float high = tsr_f16_f32(tsr_f32_f16(most / qmax)), low = tsr_f16_f32(tsr_f32_f16(high / 32));
    if (!isfinite(high))
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "a residual of %g is more than %u bits with a scale of F16 can hold",
                        (double)most, bits);
    for (uint32_t i = 0; high > 0 && i < TSR_RESIDUAL_CANDIDATES; i++) {
        float s = candidate(low, high, i);
        if (!(s > 0)) /* the smallest rounded to 0 */
            continue;
        double loss = loss_of(r, n, s, qmax);
        if (loss < fit->loss)
            *fit = (struct tsr_compensate_residual_fit){ i, s, tsr_f32_f16(s), loss };
    }
    if (!(fit->scale > 0)) { /* nothing that F16 can scale */
        memset(q, 0, n);
        fit->loss = 0;
        for (uint64_t k = 0; k < n; k++)
            fit->loss += (double)r[k] * (double)r[k];
        return TSR_OK;
    }
    for (uint64_t k = 0; k < n; k++)
        q[k] = (int8_t)code_of(r[k], fit->scale, qmax);
    return TSR_OK;
}

/* ---- a linear -------------------------------------------------------------------------------- */

struct making {
    struct tsr_compensate_residual              *out;
    const struct tsr_compensate_residual_source *from;
    double                                      *energy;         /* [blocks][inputs] or NULL */
    double                                      *before, *after; /* [blocks] */
    struct tsr_errbuf                           *why;            /* [blocks] */
};

/* Rows [n0, n0+m) of what was lost. */
static tsr_status lost(const struct tsr_compensate_residual_source *f, uint64_t n0, uint64_t m,
                       float *r, struct tsr_err *err)
{
    const struct tsr_matrix *w = f->w;
    float                   *row = tsr_new(w->cols, sizeof *row);
    if (!row)
        return tsr_fail_nomem(err, w->cols * sizeof *row, "a row of weights");
    tsr_status st = tsr_model_packed_dequantize(f->packed, n0, m, r, err);
    for (uint64_t j = 0; st == TSR_OK && j < m; j++) {
        float *to = r + j * w->cols;
        tsr_widen(row, (const char *)w->data + (n0 + j) * w->row_stride, w->dtype, w->cols);
        for (uint64_t k = 0; k < w->cols; k++) {
            float v = f->columns ? row[k] * f->columns[k] : row[k];
            v = f->rows ? v / f->rows[n0 + j] : v;
            to[k] = v - to[k];
            if (!isfinite(to[k])) {
                st = tsr_fail(err, TSR_E_INPUT, "row %llu column %llu: what was lost is %g",
                              (unsigned long long)(n0 + j), (unsigned long long)k, (double)to[k]);
                break;
            }
        }
    }
    free(row);
    return st;
}

/* Codes [channel][input] of a block into its bytes of each row. */
static void put_codes(const struct tsr_compensate_residual *o, uint64_t n0, uint64_t m,
                      const int8_t *q)
{
    uint32_t       bits = o->bits, per = 8 / bits, mid = 1u << (bits - 1);
    unsigned char *to = o->codes + n0 * bits / 8;
    for (uint64_t k = 0; k < o->inputs; k++, to += o->stride)
        for (uint64_t j = 0; j < m; j++) {
            uint32_t code = (uint32_t)((int32_t)q[j * o->inputs + k] + (int32_t)mid);
            to[j / per] = (unsigned char)(to[j / per] | code << (j % per * bits));
        }
}

static tsr_status put_halves(const struct tsr_compensate_residual *o, uint64_t n0, uint64_t m,
                             const float *r, double *after, struct tsr_err *err)
{
    for (uint64_t j = 0; j < m; j++)
        for (uint64_t k = 0; k < o->inputs; k++) {
            float    v = r[j * o->inputs + k];
            uint16_t h = tsr_f32_f16(v);
            double   e = (double)v - (double)tsr_f16_f32(h);
            if (!isfinite(tsr_f16_f32(h)))
                return tsr_fail(err, TSR_E_UNSUPPORTED,
                                "row %llu column %llu: a residual of %g is more than F16 holds",
                                (unsigned long long)(n0 + j), (unsigned long long)k, (double)v);
            memcpy(o->codes + k * o->stride + (n0 + j) * 2, &h, 2);
            *after += e * e;
        }
    return TSR_OK;
}

/* The remaining squared error: codes times the stored scale. */
static double left(const float *r, const int8_t *q, uint64_t n, float s)
{
    double sum = 0;
    for (uint64_t k = 0; k < n; k++) {
        double e = (double)r[k] - (double)q[k] * (double)s;
        sum += e * e;
    }
    return sum;
}

static tsr_status make_block(const struct making *x, uint64_t b, float *r, int8_t *q,
                             struct tsr_err *err)
{
    struct tsr_compensate_residual *o = x->out;
    uint64_t n0 = b * BLOCK, m = o->outputs - n0 < BLOCK ? o->outputs - n0 : BLOCK;
    double  *energy = x->energy ? x->energy + b * o->inputs : NULL;
    TSR_TRY(lost(x->from, n0, m, r, err));
    for (uint64_t j = 0; j < m; j++)
        for (uint64_t k = 0; k < o->inputs; k++) {
            double v = (double)r[j * o->inputs + k];
            x->before[b] += v * v;
            if (energy)
                energy[k] += v * v;
        }
    if (o->bits == 16)
        return put_halves(o, n0, m, r, &x->after[b], err);
    for (uint64_t j = 0; j < m; j++) {
        struct tsr_compensate_residual_fit fit;
        float                             *row = r + j * o->inputs;
        int8_t                            *code = q + j * o->inputs;
        tsr_status st = tsr_compensate_residual_fit(row, o->inputs, o->bits, code, &fit, err);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "row %llu", (unsigned long long)(n0 + j));
        o->scales[n0 + j] = fit.stored;
        x->after[b] += left(row, code, o->inputs, tsr_f16_f32(fit.stored));
    }
    put_codes(o, n0, m, q);
    return TSR_OK;
}

static tsr_status make_blocks(void *arg, uint64_t begin, uint64_t end)
{
    const struct making *x = arg;
    uint64_t             n = 0;
    bool                 fits = tsr_mul(x->out->inputs, BLOCK, &n);
    float               *r = fits ? tsr_new_aligned(n, sizeof *r) : NULL;
    int8_t              *q = fits ? tsr_new_aligned(n, sizeof *q) : NULL;
    tsr_status           st =
        r && q ? TSR_OK : tsr_fail_nomem(&x->why[begin].err, n * 5, "a block of residuals");
    for (uint64_t b = begin; b < end && st == TSR_OK; b++)
        st = make_block(x, b, r, q, &x->why[b].err);
    free(r);
    free(q);
    return st;
}

/* Adds sums over blocks in block order, independent of the thread that computed them. */
static void add_up(const struct making *x, uint64_t blocks, double *energy,
                   struct tsr_compensate_residual_report *report)
{
    *report = (struct tsr_compensate_residual_report){ 0 };
    for (uint64_t b = 0; b < blocks; b++) {
        report->before += x->before[b];
        report->after += x->after[b];
        for (uint64_t k = 0; energy && k < x->out->inputs; k++)
            energy[k] = (b ? energy[k] : 0) + x->energy[b * x->out->inputs + k];
    }
}

static tsr_status shape(struct tsr_compensate_residual              *o,
                        const struct tsr_compensate_residual_source *f, uint32_t bits,
                        struct tsr_err *err)
{
    uint64_t wide, bytes;
    if (!tsr_compensate_residual_bits_known(bits))
        return tsr_fail(err, TSR_E_INVAL, "residuals of %u bits; write 2, 4, 8 or 16", bits);
    if (f->packed->rows != f->w->rows || f->packed->cols != f->w->cols || f->w->rows == 0)
        return tsr_fail(err, TSR_E_INVAL, "%s: packed as %llux%llu, the model has %llux%llu",
                        f->w->name, (unsigned long long)f->packed->rows,
                        (unsigned long long)f->packed->cols, (unsigned long long)f->w->rows,
                        (unsigned long long)f->w->cols);
    *o = (struct tsr_compensate_residual){ .bits = bits,
                                           .inputs = f->w->cols,
                                           .outputs = f->w->rows };
    if (!tsr_mul(o->outputs, UINT64_C(16) * BLOCK, &wide))
        return tsr_fail(err, TSR_E_NOMEM, "%s: its size overflows", f->w->name);
    o->stride = tsr_compensate_residual_stride(bits, o->outputs);
    o->codes = tsr_mul(o->inputs, o->stride, &bytes) ? tsr_new_aligned(bytes, 1) : NULL;
    o->scales = bits == 16 ? NULL : tsr_new(o->outputs, sizeof *o->scales);
    if (!o->codes || (bits != 16 && !o->scales))
        return tsr_fail_nomem(err, o->inputs * o->stride, "residuals");
    memset(o->codes, 0, bytes);
    return TSR_OK;
}

tsr_status tsr_compensate_residual_make(struct tsr_compensate_residual *out, struct tsr_pool *pool,
                                        const struct tsr_compensate_residual_source *from,
                                        uint32_t bits, double *energy,
                                        struct tsr_compensate_residual_report *report,
                                        struct tsr_err                        *err)
{
    struct making x = { .out = out, .from = from };
    uint64_t      n = 0;
    tsr_status    st = shape(out, from, bits, err);
    uint64_t      blocks = (out->outputs + BLOCK - 1) / BLOCK;
    if (st == TSR_OK) {
        x.before = tsr_new(blocks, 2 * sizeof *x.before);
        x.energy = energy && tsr_mul(blocks, out->inputs, &n) ? tsr_new(n, sizeof *x.energy) : NULL;
        x.why = tsr_new(blocks, sizeof *x.why);
        if (!x.before || !x.why || (energy && !x.energy))
            st = tsr_fail_nomem(err, n * sizeof *x.energy, "residuals");
    }
    if (st == TSR_OK) {
        x.after = x.before + blocks;
        for (uint64_t b = 0; b < blocks; b++)
            x.why[b] = (struct tsr_errbuf)TSR_ERRBUF(x.why[b]);
        st = tsr_pool_for(pool, blocks, 1, make_blocks, &x);
        for (uint64_t b = 0; st != TSR_OK && b < blocks; b++)
            if (x.why[b].text[0]) {
                (void)tsr_fail(err, st, "%s: %s", from->w->name, x.why[b].text);
                break;
            }
    }
    if (st == TSR_OK)
        add_up(&x, blocks, energy, report);
    else
        tsr_compensate_residual_free(out);
    free(x.before);
    free(x.energy);
    free(x.why);
    return st;
}

float tsr_compensate_residual_value(const struct tsr_compensate_residual *r, uint64_t i, uint64_t n)
{
    const unsigned char *row = r->codes + i * r->stride;
    if (r->bits == 16) {
        uint16_t h;
        memcpy(&h, row + 2 * n, 2);
        return tsr_f16_f32(h);
    }
    uint32_t per = 8 / r->bits, code = (uint32_t)row[n / per] >> (n % per * r->bits);
    int32_t  q = (int32_t)(code & ((1u << r->bits) - 1)) - (int32_t)(1u << (r->bits - 1));
    return (float)q * tsr_f16_f32(r->scales[n]);
}
