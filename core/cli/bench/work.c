/* LINEAR over weights in rotation that no cache holds: formats by name, weights of them, activations. */
#include "cli/bench/bench.h"

#include "base/f16.h"
#include "base/mem.h"
#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

tsr_status bench_format_of(const char *s, size_t len, int64_t group, uint64_t cols,
                           struct bench_format *k, struct tsr_err *err)
{
    static const struct {
        const char *name;
        uint32_t    dtype;
    } floats[] = { { "f32", TSR_F32 }, { "f16", TSR_F16 }, { "bf16", TSR_BF16 } };
    *k = (struct bench_format){ .f = { .struct_size = sizeof k->f } };
    if (len < sizeof k->name) {
        memcpy(k->name, s, len);
        for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
            if (strcmp(k->name, floats[i].name) == 0) {
                k->f.id = TSR_FORMAT_FLOAT;
                k->f.dtype = floats[i].dtype;
                return TSR_OK;
            }
        if ((len == 4 || (len == 5 && s[4] == 'z')) && memcmp(s, "int", 3) == 0 && s[3] >= '2' &&
            s[3] <= '8') {
            k->packed = true;
            k->f.id = TSR_FORMAT_INT;
            k->f.bits = (uint32_t)(s[3] - '0');
            k->f.scale_dtype = TSR_F16;
            k->f.group = k->f.bits == 8 && len == 4 ? 0 : (uint64_t)group;
            k->f.zero = len == 5 ? TSR_ZERO_STORED : TSR_ZERO_MID;
            return TSR_OK;
        }
        if (bench_format_parse(k->name, cols, &k->f)) {
            k->packed = true;
            return TSR_OK;
        }
    }
    return tsr_fail(err, TSR_E_INPUT,
                    "--formats: '%.*s' is not one of f32, f16, bf16, int2 to int8, int2z to int8z, "
                    "affine2 to affine8, nf4, iq4_nl, "
                    "iq4_xs, q3_k, q6_k, tq2_0, nvfp4, lut2 to lut8, lut2o to lut8o, llm8, "
                    "fp8_block, fp4_e2m1 and "
                    "its kin, mxint2 to mxint8",
                    (int)(len < 40 ? len : 40), s);
}

/* Random bytes that are sane weights of the format. */
static tsr_status fill(const struct bench_format *k, struct tsr_weight_desc *d, struct tsr_err *err)
{
    uint64_t rows = d->rows, cols = d->cols, x = 88172645463325252u, n = 0, m = 0;
    d->code_stride = tsr_model_format_code_bytes(&k->f, cols);
    d->meta_stride = tsr_model_format_meta_bytes(&k->f, cols);
    if (!tsr_mul(rows, d->code_stride, &n) || n == 0 || !tsr_mul(rows, d->meta_stride, &m))
        return tsr_fail(err, TSR_E_INPUT, "--rows times --cols is zero or too large");
    uint8_t *codes = tsr_new(n, 1), *meta = tsr_new(m, 1);
    uint32_t no_number = k->f.element == TSR_MX_FP8_E4M3   ? 127 /* and above: infinite or NaN */
                         : k->f.element == TSR_MX_FP8_E5M2 ? 124
                                                           : 128;
    d->codes = codes;
    d->meta = k->packed ? meta : NULL;
    if (!codes || !meta) {
        free(codes);
        free(meta);
        d->codes = NULL;
        return tsr_fail_nomem(err, n + m, "a weight");
    }
    for (uint64_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        codes[i] = (uint8_t)(x >> 32);
        if ((codes[i] & 127u) >= no_number)
            codes[i] &= 63u;
    }
    for (uint64_t i = 0; !k->packed && i < rows * cols; i++) { /* -0.02 to 0.02 */
        float    w = ((float)codes[i % n] - 127.5f) * 1.5e-4f;
        uint16_t h = k->f.dtype == TSR_F16 ? tsr_f32_f16(w) : tsr_f32_bf16(w);
        if (k->f.dtype == TSR_F32)
            memcpy(codes + 4 * i, &w, 4);
        else
            memcpy(codes + 2 * i, &h, 2);
    }
    if (k->packed)
        bench_format_fill(&k->f, rows, d->meta_stride, cols, meta);
    if (!k->packed)
        free(meta);
    return TSR_OK;
}

void bench_work_free(struct bench *b, struct bench_work *w)
{
    for (uint64_t i = 0; i < w->n; i++)
        b->iface->weight_free(b->self, w->weights[i]);
    free(w->weights);
    b->iface->buffer_free(b->self, w->in.buffer);
    b->iface->buffer_free(b->self, w->out.buffer);
}

static tsr_status tensor(struct bench *b, uint64_t rows, uint64_t cols, struct tsr_tensor *t,
                         struct tsr_err *err)
{
    uint64_t n;
    if (!tsr_mul(rows, cols, &n) || !tsr_mul(n, 4, &n))
        return tsr_fail(err, TSR_E_INPUT, "--m times --rows or --cols is too large");
    *t = (struct tsr_tensor){ .struct_size = sizeof *t,
                              .dtype = TSR_F32,
                              .rows = rows,
                              .cols = cols,
                              .row_stride = cols * 4 };
    TSR_TRY(b->iface->buffer_alloc(b->self, n, &t->buffer, err));
    float *x = tsr_new(cols, 4);
    if (!x)
        return tsr_fail_nomem(err, cols * 4, "activations");
    tsr_status st = TSR_OK;
    for (uint64_t r = 0; r < rows && st == TSR_OK; r++) {
        for (uint64_t i = 0; i < cols; i++)
            x[i] = (float)((int64_t)((i * 7919 + r * 104729) % 2001) - 1000) * 1e-3f;
        st = b->iface->upload(b->self, t->buffer, r * cols * 4, x, cols * 4, err);
    }
    free(x);
    return st;
}

/* At least `rotate` bytes of weights on the device, all equal in shape. */
tsr_status bench_work_make(struct bench *b, const struct bench_format *k, uint64_t m,
                           uint64_t rotate, struct bench_work *w, struct tsr_err *err)
{
    struct tsr_weight_desc d = { .struct_size = sizeof d,
                                 .name = "bench",
                                 .format = &k->f,
                                 .rows = (uint64_t)b->o->rows,
                                 .cols = (uint64_t)b->o->cols,
                                 .segment = (uint64_t)b->o->segment };
    if (d.segment % 32 != 0 || (d.segment > 0 && (d.cols - 1) / d.segment >= 8))
        return tsr_fail(
            err, TSR_E_INPUT,
            "--segment %llu: give a multiple of 32 that cuts %llu columns into at most 8 "
            "segments, or 0",
            (unsigned long long)d.segment, (unsigned long long)d.cols);
    TSR_TRY(fill(k, &d, err));
    tsr_status st = TSR_OK;
    uint64_t   want = 1;
    w->weights = tsr_new(4096, sizeof *w->weights);
    if (!w->weights)
        st = tsr_fail_nomem(err, 4096 * sizeof *w->weights, "weights");
    while (st == TSR_OK && w->n < want) {
        st = b->iface->weight_load(b->self, &d, &w->weights[w->n], err);
        if (st != TSR_OK)
            break;
        w->bytes = b->iface->weight_bytes(b->self, w->weights[w->n++]);
        want = rotate / w->bytes + (rotate % w->bytes != 0);
        want = want < 1 ? 1 : want > 4096 ? 4096 : want;
    }
    free((void *)(uintptr_t)d.codes);
    free((void *)(uintptr_t)d.meta);
    if (st == TSR_OK)
        st = tensor(b, m, d.cols, &w->in, err);
    if (st == TSR_OK)
        st = tensor(b, m, d.rows, &w->out, err);
    return st;
}

struct tsr_op bench_work_op(const struct bench_work *w, uint64_t i)
{
    return (struct tsr_op){ .struct_size = sizeof(struct tsr_op),
                            .kind = TSR_OP_LINEAR,
                            .out = &w->out,
                            .in = { &w->in },
                            .weight = w->weights[i],
                            .act = w->act };
}

/* Unpacked weights run as f32 under a8: returns the actual act. */
uint32_t bench_format_act(const struct bench *b, const struct bench_format *k)
{
    uint32_t act = b->o->act != BENCH_ACT_AUTO ? (uint32_t)b->o->act
                   : k->packed                 ? TSR_ACT_A8
                                               : TSR_ACT_F32;
    return act == TSR_ACT_A8 && !tsr_model_format_a8(&k->f, (uint64_t)b->o->cols) ? TSR_ACT_F32
                                                                                  : act;
}

tsr_status bench_work_named(struct bench *b, const char *format, uint64_t m, uint64_t rotate,
                            struct bench_work *w, struct tsr_err *err)
{
    struct bench_format k;
    TSR_TRY(bench_format_of(format, strlen(format), b->o->group, (uint64_t)b->o->cols, &k, err));
    w->act = bench_format_act(b, &k);
    return bench_work_make(b, &k, m, rotate, w, err);
}

bool bench_next_format(const struct bench *b, const char *otherwise, const char **list,
                       char name[24])
{
    bool        bits = *b->o->bits != '\0';
    const char *s = *list;
    if (!s)
        s = bits ? b->o->bits : *b->o->formats ? b->o->formats : otherwise;
    else if (*s == ',')
        s++;
    else
        return false;
    size_t len = strcspn(s, ",");
    (void)snprintf(name, 24, "%s%.*s", bits ? "int" : "", (int)(len < 16 ? len : 16), s);
    *list = s + len;
    return true;
}
