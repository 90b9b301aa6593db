/* hqq - half-quadratic quantization (Badri & Shaji, "Half-Quadratic Quantization of Large Machine Learning
 * Models", 2023): the minimum of each group is moved until the p-norm of its errors, p below 1, stops
 * falling.  No calibration.  Layout tessera.int/2.  See README.md. */
#include "../affine.h"

struct hqq_options {
    int64_t bits, group, scale, scale_bits;
    double  norm, beta, kappa;
    int64_t iterations;
};

struct hqq {
    const struct tsr_host *host;
    struct tsr_format      format;
    struct wt_rule         rule;
    double                 norm, beta, kappa;
    int64_t                iterations;
};

static tsr_status hqq_create(const struct tsr_host *host, const void *opts, void **self,
                             struct tsr_err *err)
{
    const struct hqq_options *o = opts;
    tsr_status                st = wt_affine_check(1, o->group, o->scale_bits, err);
    if (st != TSR_OK)
        return st;
    struct hqq *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for hqq", sizeof *q);
    *q = (struct hqq){ .host = host,
                       .format = wt_affine_format((uint32_t)o->bits,
                                                  o->group < 0 ? 0 : (uint64_t)o->group,
                                                  (uint32_t)o->scale_bits, (uint32_t)o->scale),
                       .rule = { .bits = (uint32_t)o->bits,
                                 .scale_dtype = o->scale_bits ? TSR_F32 : (uint32_t)o->scale,
                                 .minimum = 1,
                                 .scale_bits = (uint32_t)o->scale_bits },
                       .norm = o->norm,
                       .beta = o->beta,
                       .kappa = o->kappa,
                       .iterations = o->iterations };
    *self = q;
    return TSR_OK;
}

static void hqq_destroy(void *self)
{
    struct hqq *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static tsr_status hqq_plan(const void *self, const struct tsr_matrix *w,
                           struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct hqq *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    tsr_format_store(&plan->format, &q->format);
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&q->format, w->cols);
    plan->meta_bytes = tsr_format_affine_meta_bytes(&q->format, w->cols);
    /* a widened row, its groups and its codes */
    plan->scratch_bytes = w->cols * (sizeof(float) + 1) +
                          tsr_format_groups(&q->format, w->cols) * sizeof(struct wt_params);
    plan->need = 0;
    return TSR_OK;
}

/* Errors below beta^(-1/(2-p)) become 0, as all are on most groups. */
static double all_zero_below(double beta, double p)
{
    return pow(beta, -1.0 / (2.0 - p)) * (1.0 - 1e-9); /* pow() is exact to far less */
}

/* Larger errors shrink a little: the proximal step of the p-norm, with its derivative taken where the error is. */
static double shrink(double x, double beta, double p, double zero_below)
{
    double a = fabs(x);
    if (a < zero_below || a == 0.0)
        return 0.0;
    a -= pow(a, p - 1.0) / beta;
    return a > 0.0 ? copysign(a, x) : 0.0;
}

/* What the codes at zero point z leave of the group: the mean magnitude of the errors, and the zero point
 * of the next step: the mean of what is best for each weight once outliers are set apart. */
static double step(const struct hqq *q, const float *w, uint64_t n, double inverse, double z,
                   double beta, double *next)
{
    double top = (double)((1u << q->rule.bits) - 1u), error = 0.0, sum = 0.0;
    double zero_below = all_zero_below(beta, q->norm);
    for (uint64_t k = 0; k < n; k++) {
        double scaled = (double)w[k] * inverse, code = rint(scaled + z);
        code = code > 0.0 ? code < top ? code : top : 0.0;
        double e = (double)w[k] - (code - z) / inverse;
        error += fabs(e);
        sum += code - (scaled - shrink(e, beta, q->norm, zero_below) * inverse);
    }
    *next = sum / (double)n;
    return error / (double)n;
}

static void range_of(const struct hqq *q, const float *w, uint64_t n, float *lo, float *hi)
{
    *lo = *hi =
        q->rule.scale_bits ? 0.0f : w[0]; /* codes under M stand for minimums of at most 0 */
    for (uint64_t k = 0; k < n; k++) {
        *lo = wt_min(*lo, w[k]);
        *hi = wt_max(*hi, w[k]);
    }
}

static struct wt_params params_of(const struct hqq *q, const float *w, uint64_t n)
{
    struct wt_params p = wt_params_flat(&q->rule);
    float            lo, hi;
    range_of(q, w, n, &lo, &hi);
    if (lo == hi) {
        p.minimum = lo;
    } else {
        p.scale = wt_scale_round((hi - lo) / (float)p.hi, q->rule.scale_dtype);
        if (p.scale == 0.0f)
            return p;
        double inverse = 1.0 / (double)p.scale, z = -(double)lo * inverse, beta = q->beta;
        double best = z, next;
        float  least = INFINITY; /* errors that differ in F64 alone are equal */
        for (int64_t i = 0; i < q->iterations; i++) {
            float error = (float)step(q, w, n, inverse, z, beta, &next);
            if (error < least) {
                least = error;
                best = z;
            }
            z = next;
            beta *= q->kappa;
        }
        p.minimum = (float)(-best / inverse);
    }
    if (q->rule.scale_dtype == TSR_F16)
        p.minimum = tsr_f16_f32(tsr_f32_f16(p.minimum));
    return p;
}

static tsr_status hqq_quantize(const void *self, const struct tsr_quant_job *job,
                               struct tsr_err *err)
{
    const struct hqq        *q = self;
    const struct tsr_matrix *w = job->src;
    const struct tsr_format *f = &q->format;
    uint64_t groups = tsr_format_groups(f, w->cols), width = groups == 1 ? w->cols : f->group;
    uint64_t code_bytes = tsr_format_int_code_bytes(f, w->cols);
    uint64_t meta_bytes = tsr_format_affine_meta_bytes(f, w->cols);
    float   *row = job->scratch;
    struct wt_params *p = (struct wt_params *)(void *)(row + w->cols);
    for (uint64_t r = 0; r < w->rows; r++) {
        uint64_t n_row = job->first_row + r, held;
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        wt_row(row, w, r);
        tsr_status st = wt_check(w, row, n_row, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t g = 0; g < groups; g++)
            p[g] = params_of(q, row + g * width, g + 1 == groups ? w->cols - g * width : width);
        held = wt_affine_row(f, row, w->cols, p, (uint8_t *)(p + groups),
                             (unsigned char *)job->codes + r * code_bytes,
                             (unsigned char *)job->meta + r * meta_bytes);
        if (held != groups)
            return wt_affine_refused(f, w, n_row, held, err);
    }
    return TSR_OK;
}

static tsr_status hqq_dequantize(const void *self, const struct tsr_quant_job *job,
                                 struct tsr_err *err)
{
    (void)err;
    return wt_dequantize_affine(job, &((const struct hqq *)self)->format);
}

/* A group's codes are its own weights'; a record's scales are found together. */
static uint64_t hqq_columns_alone(const void *self)
{
    const struct hqq *q = self;
    return q->rule.scale_bits ? TSR_AFFINE_SUPER : q->format.group;
}

static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes each; a scale must be a normal F16 number", TSR_F16 },
    { "f32", "4 bytes each", TSR_F32 },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct hqq_options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(
        struct hqq_options, group, 64, -1, 128, "columns",
        "Columns that share a scale and a minimum: 16, 32, 64 or 128; -1: the whole row."),
    TSR_OPTION_ENUM(struct hqq_options, scale, TSR_F16, scale_choices,
                    "Type of scales and minimums."),
    TSR_OPTION_INT(struct hqq_options, scale_bits, 0, 0, 8, "bits",
                   "4, 6 or 8: codes of scales and minimums under two F16 factors for 256 columns; "
                   "0: stored as they are."),
    TSR_OPTION_REAL(struct hqq_options, norm, 0.7, 0.1, 1.0, NULL,
                    "p of the norm of the errors; below 1 outliers count less."),
    TSR_OPTION_REAL(struct hqq_options, beta, 10.0, 1e-3, 1e9, NULL,
                    "Weight of the quadratic term in the first step."),
    TSR_OPTION_REAL(struct hqq_options, kappa, 1.01, 1.0, 100.0, NULL,
                    "Factor of beta from step to step."),
    TSR_OPTION_INT(struct hqq_options, iterations, 20, 1, 10000, NULL,
                   "Steps; a group takes the zero point of the one with the least mean error."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = hqq_create,
    .destroy = hqq_destroy,
    .plan = hqq_plan,
    .quantize = hqq_quantize,
    .dequantize = hqq_dequantize,
    .columns_alone = hqq_columns_alone,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "hqq",
    .summary = "Half-quadratic quantization: minimums by a p-norm, no calibration, 2 to 8 bits.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct hqq_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(hqq) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.hqq",  .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,  .needs_minor = 0,
};
