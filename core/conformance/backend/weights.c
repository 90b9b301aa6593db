/* Backends: the rules about weights. */
#include "conformance/backend/backend.h"

#include "quant/quant.h"

#include <math.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

bool tsr_conformance_weight_load(struct tsr_conformance_device *d, const struct tsr_weight_desc *w,
                                 void **weight)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              name[128];
    tsr_status        st = d->t->weight_load(d->self, w, weight, &e.err);
    tsr_model_format_name(w->format, name, sizeof name);
    if (st == TSR_E_UNSUPPORTED) {
        tsr_conformance_rule_refused(d->c, st, TSR_E_UNSUPPORTED, &e, "weight_load() of %s", name);
        return false;
    }
    tsr_conformance_rule_ok(d->c, st, &e, "weight_load() of %llu x %llu in %s", U(w->rows),
                            U(w->cols), name);
    return true;
}

float *tsr_conformance_weight_dense(struct tsr_conformance_case *c, const struct tsr_weight_desc *w)
{
    float *x = tsr_conformance_rule_memory(c, w->rows * w->cols * sizeof *x);
    for (uint64_t r = 0; r < w->rows; r++)
        tsr_model_format_decode_row(w->format, w->cols,
                                    (const unsigned char *)w->codes + r * w->code_stride,
                                    w->meta ? (const unsigned char *)w->meta + r * w->meta_stride
                                            : NULL,
                                    x + r * w->cols);
    return x;
}

/* ---- reading a loaded matrix back ------------------------------------------------- */

/* LINEAR on the rows of the identity: out [cols][rows] is the matrix transposed.  False when LINEAR
 * is declined. */
static bool read_back(struct tsr_conformance_device *d, void *weight, uint64_t rows, uint64_t cols,
                      float **w)
{
    struct tsr_errbuf           e = TSR_ERRBUF(e);
    struct tsr_conformance_grid in, out;
    float                      *one = tsr_conformance_rule_memory(d->c, cols * cols * 4);
    float                      *none = tsr_conformance_rule_memory(d->c, cols * rows * 4);
    for (uint64_t i = 0; i < cols; i++)
        one[i * cols + i] = 1;
    tsr_conformance_grid_make(d, &in, TSR_F32, cols, cols, one);
    tsr_conformance_grid_make(d, &out, TSR_F32, cols, rows, none);
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &out.t,
                         .in = { &in.t },
                         .weight = weight };
    tsr_status    st = d->t->run(d->self, NULL, &op, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        return false;
    tsr_conformance_rule_ok(d->c, st, &e, "LINEAR of the identity");
    tsr_conformance_rule_ok(d->c, d->t->sync(d->self, NULL, &e.err), &e, "sync()");
    *w = tsr_conformance_grid_rows(d, &out);
    return true;
}

/* The rules check weights through LINEAR: if LINEAR is wrong, they prove nothing about weights. */
static void need_linear(struct tsr_conformance_device *d)
{
    struct tsr_weight_desc w;
    void                  *weight = NULL;
    float                 *got;
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    tsr_conformance_weight_random(d->c, 606, &f, 6, 40, &w);
    float *want = tsr_conformance_weight_dense(d->c, &w);
    if (!tsr_conformance_weight_load(d, &w, &weight))
        tsr_conformance_rule_skip(d->c, "the backend does not read F32");
    if (!read_back(d, weight, 6, 40, &got))
        tsr_conformance_rule_skip(d->c,
                                  "the backend declines LINEAR, so its weights cannot be read");
    for (uint64_t i = 0; i < 240; i++)
        if (!(fabs((double)got[i % 40 * 6 + i / 40] - want[i]) <= d->eps * fabs((double)want[i])))
            tsr_conformance_rule_skip(
                d->c, "LINEAR on weights in F32 is wrong, which is backend-linear's");
    d->t->weight_free(d->self, weight);
}

#define F_ROWS UINT64_C(18)
#define F_COLS UINT64_C(140)

static bool check_format(struct tsr_conformance_device *d, const struct tsr_format *f)
{
    struct tsr_weight_desc w;
    void                  *weight = NULL;
    float                 *got;
    char                   name[128];
    tsr_conformance_weight_random(d->c, 600, f, F_ROWS, F_COLS, &w);
    if (!tsr_conformance_weight_load(d, &w, &weight))
        return false;
    float *want = tsr_conformance_weight_dense(d->c, &w);
    tsr_model_format_name(f, name, sizeof name);
    if (!read_back(d, weight, F_ROWS, F_COLS, &got))
        tsr_conformance_rule_skip(d->c,
                                  "the backend declines LINEAR, so its weights cannot be read");
    for (uint64_t r = 0; r < F_ROWS; r++)
        for (uint64_t k = 0; k < F_COLS; k++) {
            double a = got[k * F_ROWS + r], b = want[r * F_COLS + k];
            /* times 1, plus zeros: exact in F32 */
            if (!(fabs(a - b) <= (d->exact ? 0 : d->eps * fabs(b))))
                tsr_conformance_rule_fail(
                    d->c,
                    "weights in %s (group %llu, zero %u): row %llu, column %llu is "
                    "%.9g, wanted %.9g",
                    name, U(f->group), f->zero, U(r), U(k), a, b);
        }
    d->t->weight_free(d->self, weight);
    return true;
}

void tsr_backend_rule_formats(struct tsr_conformance_case *c)
{
    static const uint32_t         elements[] = { TSR_MX_FP8_E4M3, TSR_MX_FP8_E5M2, TSR_MX_FP6_E3M2,
                                                 TSR_MX_FP6_E2M3, TSR_MX_FP4_E2M1, TSR_MX_INT(8),
                                                 TSR_MX_INT(4) };
    static const uint64_t         groups[] = { 0, 32, 48, 128 };
    struct tsr_conformance_device d;
    uint64_t                      read = 0;
    void                         *plain = NULL;
    tsr_conformance_device_make(&d, c);
    struct tsr_weight_desc w;
    struct tsr_format f32 = { .struct_size = sizeof f32, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    tsr_conformance_weight_random(c, 607, &f32, 4, 4, &w);
    if (!tsr_conformance_weight_load(&d, &w, &plain))
        tsr_conformance_rule_fail(c, "weight_load() declines F32, which the host falls back to");
    need_linear(&d);
    struct tsr_format f = { .struct_size = sizeof f, .id = TSR_FORMAT_FLOAT };
    for (f.dtype = TSR_F32; f.dtype <= TSR_BF16; f.dtype++)
        read += check_format(&d, &f);
    f = (struct tsr_format){ .struct_size = sizeof f, .id = TSR_FORMAT_INT };
    for (f.bits = 2; f.bits <= 8; f.bits++)
        for (f.zero = TSR_ZERO_MID; f.zero <= TSR_ZERO_STORED; f.zero++)
            for (uint32_t g = 0; g < 4; g++) {
                f.group = groups[g];
                f.scale_dtype = (g + f.bits) % 2 ? TSR_F16 : TSR_F32;
                read += check_format(&d, &f);
            }
    f = (struct tsr_format){ .struct_size = sizeof f, .id = TSR_FORMAT_AFFINE };
    for (f.bits = 2; f.bits <= 8; f.bits++)
        for (uint32_t i = 0; i < 4; i++) {
            f.scale_bits = i < 2 ? 0 : 2 * i;
            f.group = UINT64_C(16) << (f.bits + i) % 4;
            f.scale_dtype = i == 0 ? TSR_F16 : i == 1 ? TSR_F32 : 0;
            read += check_format(&d, &f);
        }
    f = (struct tsr_format){ .struct_size = sizeof f, .id = TSR_FORMAT_TABLE };
    for (f.bits = 2; f.bits <= 8; f.bits++) {
        memset(f.table, 0, sizeof f.table); /* more than 4 bits have no table */
        for (uint32_t i = 0; f.bits <= 4 && i < 1u << f.bits;
             i++) /* halves; of 3 bits numbers that are rounded */
            f.table[i] = f.bits == 3 ? 0.1f * (float)(i + 1) : 0.5f * ((float)i - 7);
        for (uint32_t i = 0; i < 5; i++) { /* F16, F32, 6 and 8 bits, elements */
            f.scale_bits = i < 2 ? 0 : i == 2 ? 6 : 8;
            f.element = i == 4 ? TSR_MX_FP8_E4M3 : 0;
            f.group = UINT64_C(16) << (f.bits + i) % 4;
            f.scale_dtype = i == 0 ? TSR_F16 : i == 1 ? TSR_F32 : 0;
            read += check_format(&d, &f);
        }
    }
    f = (struct tsr_format){ .struct_size = sizeof f, .id = TSR_FORMAT_LUT };
    for (f.bits = 2; f.bits <= 8; f.bits++) {
        f.outliers = UINT64_C(2) * (f.bits % 3);
        f.scale_dtype = f.bits % 2 ? TSR_F16 : TSR_F32;
        read += check_format(&d, &f);
    }
    f = (struct tsr_format){ .struct_size = sizeof f, .id = TSR_FORMAT_MX, .scale_bits = 8 };
    for (uint64_t i = 0; i < sizeof elements / sizeof elements[0]; i++) {
        f.element = elements[i];
        f.bits = 1 + (f.element >> 8) + (f.element & 255);
        f.group = i % 2 ? 32 : 48;
        read += check_format(&d, &f);
    }
    f = (struct tsr_format){ .struct_size = sizeof f, .id = TSR_FORMAT_FP8, .bits = 8 };
    for (uint64_t i = 0; i < 4; i++) {
        f.element = elements[i % 2];
        f.scale_dtype = i < 2 ? TSR_F32 : TSR_BF16;
        f.group = i == 3 ? 0 : UINT64_C(32) << i;
        read += check_format(&d, &f);
    }
    if (read == 0)
        tsr_conformance_rule_fail(c, "the backend reads no format");
}

/* ---- the rest ------------------------------------------------------------------------ */

void tsr_backend_rule_unknown_format(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_errbuf             e = TSR_ERRBUF(e);
    struct tsr_weight_desc        w;
    void                         *weight = NULL;
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    tsr_conformance_device_make(&d, c);
    tsr_conformance_weight_random(c, 601, &f, 4, 64, &w);
    f.id = "org.example.unheard-of/1";
    tsr_conformance_rule_refused(c, d.t->weight_load(d.self, &w, &weight, &e.err),
                                 TSR_E_UNSUPPORTED, &e, "weight_load() of format \"%s\"", f.id);
}

void tsr_backend_rule_borrowed(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_weight_desc        w;
    void                         *weight = NULL;
    float                        *got;
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    tsr_conformance_device_make(&d, c);
    need_linear(&d);
    tsr_conformance_weight_random(c, 602, &f, 6, 70, &w);
    float *want = tsr_conformance_weight_dense(c, &w);
    if (!tsr_conformance_weight_load(&d, &w, &weight))
        tsr_conformance_rule_skip(c, "the backend does not read F32");
    memset((void *)(uintptr_t)w.codes, 0,
           w.rows * w.code_stride); /* of tsr_conformance_weight_random() */
    if (!read_back(&d, weight, 6, 70, &got))
        tsr_conformance_rule_skip(c, "the backend declines LINEAR, so its weights cannot be read");
    for (uint64_t i = 0; i < UINT64_C(6) * 70; i++) {
        double a = got[i % 70 * 6 + i / 70], b = want[i];
        if (!(fabs(a - b) <= d.eps * fabs(b)))
            tsr_conformance_rule_fail(
                c,
                "row %llu, column %llu is %.9g once the host has changed its copy, "
                "wanted %.9g as it was loaded",
                U(i / 70), U(i % 70), a, b);
    }
}

void tsr_backend_rule_weight_bytes(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_format f = { .struct_size = sizeof f, .dtype = TSR_F32, .id = TSR_FORMAT_FLOAT };
    tsr_conformance_device_make(&d, c);
    for (uint64_t i = 0; i < 2; i++) {
        struct tsr_weight_desc w;
        void                  *weight = NULL;
        uint64_t               rows = i ? 300 : 5, cols = i ? 260 : 33;
        tsr_conformance_weight_random(c, 603, &f, rows, cols, &w);
        if (!tsr_conformance_weight_load(&d, &w, &weight))
            tsr_conformance_rule_skip(c, "the backend does not read F32");
        /* narrowed to a byte and no less; padded to tiles or pages of 2 MiB and no more */
        uint64_t n = d.t->weight_bytes(d.self, weight);
        if (n < rows * cols || n > UINT64_C(8) << 20)
            tsr_conformance_rule_fail(c, "weight_bytes() of %llu x %llu in F32 is %llu", U(rows),
                                      U(cols), U(n));
    }
}

/* ---- narrow activations ----------------------------------------------------------------- */

/* Returns how many of a16 and a8 the backend takes, 3 where it does not read the format. */
static uint64_t check_act(struct tsr_conformance_device *d, const struct tsr_format *f)
{
    struct tsr_conformance_case *c = d->c;
    struct tsr_weight_desc       w;
    struct tsr_conformance_grid  in, out;
    void                        *weight = NULL;
    char                         name[128];
    const uint64_t               T = 3, K = 200, N = 20;
    uint64_t                     taken = 0;
    tsr_conformance_weight_random(c, 604, f, N, K, &w);
    if (!tsr_conformance_weight_load(d, &w, &weight))
        return 3;
    tsr_model_format_name(f, name, sizeof name);
    float *x = tsr_conformance_rule_memory(c, T * K * 4),
          *dense = tsr_conformance_weight_dense(c, &w);
    tsr_conformance_rule_normal(c, 605, x, T * K);
    tsr_conformance_grid_make(d, &in, TSR_F32, T, K, x);
    for (uint32_t act = TSR_ACT_A16; act <= TSR_ACT_A8; act++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_conformance_grid_make(d, &out, TSR_F32, T, N,
                                  tsr_conformance_rule_memory(c, T * N * 4));
        struct tsr_op op = { .struct_size = sizeof op,
                             .kind = TSR_OP_LINEAR,
                             .out = &out.t,
                             .in = { &in.t },
                             .weight = weight,
                             .act = act };
        tsr_status    st = d->t->run(d->self, NULL, &op, &e.err);
        if (st == TSR_E_UNSUPPORTED)
            continue;
        taken++;
        tsr_conformance_rule_ok(c, st, &e, "LINEAR with act %u", act);
        tsr_conformance_rule_ok(c, d->t->sync(d->self, NULL, &e.err), &e, "sync()");
        const float *got = tsr_conformance_grid_rows(d, &out);
        for (uint64_t i = 0; i < T * N; i++) {
            const float *row = x + i / N * K, *v = dense + i % N * K;
            double       sum = 0, size = 0, weights = 0, amax = 0;
            for (uint64_t k = 0; k < K; k++) {
                sum += (double)row[k] * v[k];
                size += fabs((double)row[k] * v[k]);
                weights += fabs((double)v[k]);
                amax = fmax(amax, fabs((double)row[k]));
            }
            /* half a unit of BF16's 8 bits of every factor; half a step of at most the token's
             * scale of every activation, and its rounding */
            double room =
                d->eps * size + (act == TSR_ACT_A16 ? size * 0x1p-8 : weights * amax / 127 * 0.51);
            if (!(fabs(got[i] - sum) <= room))
                tsr_conformance_rule_fail(
                    c,
                    "LINEAR with act %s on %s: token %llu, output %llu is %.9g, "
                    "wanted %.9g +- %.2g",
                    act == TSR_ACT_A16 ? "a16" : "a8", name, U(i / N), U(i % N), (double)got[i],
                    sum, room);
        }
    }
    return taken;
}

void tsr_backend_rule_act(struct tsr_conformance_case *c)
{
    struct tsr_conformance_device d;
    struct tsr_format             f = { .struct_size = sizeof f,
                                        .id = TSR_FORMAT_INT,
                                        .bits = 4,
                                        .group = 32,
                                        .scale_dtype = TSR_F16 };
    struct tsr_format             affine = { .struct_size = sizeof affine,
                                             .id = TSR_FORMAT_AFFINE,
                                             .bits = 4,
                                             .group = 32,
                                             .scale_bits = 6 };
    struct tsr_format             table = { .struct_size = sizeof table,
                                            .id = TSR_FORMAT_TABLE,
                                            .bits = 2,
                                            .group = 32,
                                            .scale_dtype = TSR_F16,
                                            .table = { -1.0f, -0.3f, 0.3f, 1.0f } };
    /* whole numbers that a byte does not hold */
    struct tsr_format fp8 = { .struct_size = sizeof fp8,
                              .id = TSR_FORMAT_MX,
                              .bits = 8,
                              .element = TSR_MX_FP8_E4M3,
                              .group = 32,
                              .scale_bits = 8 };
    struct tsr_format stored = { .struct_size = sizeof stored,
                                 .id = TSR_FORMAT_FP8,
                                 .bits = 8,
                                 .element = TSR_MX_FP8_E4M3,
                                 .group = 128,
                                 .scale_dtype = TSR_F32 };
    tsr_conformance_device_make(&d, c);
    need_linear(&d);
    uint64_t taken = check_act(&d, &f);
    if (taken == 3)
        tsr_conformance_rule_skip(c, "the backend does not read packed integers");
    if (taken == 0)
        tsr_conformance_rule_skip(c, "the backend declines act a16 and a8");
    (void)check_act(&d, &affine);
    (void)check_act(&d, &table);
    (void)check_act(&d, &fp8);
    (void)check_act(&d, &stored);
}
