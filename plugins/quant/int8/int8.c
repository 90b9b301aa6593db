/* int8 - one signed 8-bit code per weight, one scale per row.  Three ways to get there:
 *
 *   plain   the row's scale is chosen with the calibrated maxima: among a fixed ladder of clip
 *           ratios the one with the smallest sum_k absmax_k^2 (w_k - w^_k)^2, which bounds the
 *           output error over inputs inside those maxima column by column
 *   llm     LLM.int8 (Dettmers et al., 2022): the row's largest |w|; under `act: a8` inputs of
 *           `threshold` and more stay F32
 *   smooth  SmoothQuant (smooth.c): the row's largest |w| after the norms' scales moved in
 *
 * See README.md for what each is good for. */
#include "int8.h"

struct int8_options {
    int64_t mode;
    int32_t clip;
    int64_t scale;
    double  threshold, alpha;
};

/* Ratios 1, 0.99, ... 0.50 of the row's largest |w|. */
#define LADDER 51

static tsr_status int8_create(const struct tsr_host *host, const void *opts, void **self,
                              struct tsr_err *err)
{
    const struct int8_options *o = opts;
    struct int8               *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for int8", sizeof *q);
    *q = (struct int8){ .host = host,
                        .mode = o->mode,
                        .clip = o->clip && o->mode == MODE_PLAIN,
                        .scale_dtype = (uint32_t)o->scale,
                        .threshold = o->threshold,
                        .alpha = o->alpha };
    *self = q;
    return TSR_OK;
}

static void int8_destroy(void *self)
{
    struct int8 *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static struct tsr_format int8_format(const struct int8 *q)
{
    return (struct tsr_format){ .id = TSR_FORMAT_INT,
                                .bits = 8,
                                .zero = TSR_ZERO_MID,
                                .group = 0,
                                .scale_dtype = q->scale_dtype,
                                .act8 = q->mode == MODE_LLM ? TSR_ACT8_LLM : TSR_ACT8_BLOCKS,
                                .act8_threshold = q->mode == MODE_LLM ? q->threshold : 0.0 };
}

static tsr_status int8_plan(const void *self, const struct tsr_matrix *w,
                            struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct int8 *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = int8_format(q);
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = tsr_format_int_meta_bytes(&f, w->cols);
    plan->scratch_bytes = w->cols * (sizeof(float) + 1);
    plan->need = q->clip ? TSR_NEED_ABSMAX : 0;
    return TSR_OK;
}

/* The largest magnitude of a row. */
static float row_largest(const float *w, uint64_t n)
{
    float largest = 0.0f;
    for (uint64_t k = 0; k < n; k++)
        largest = wt_max(largest, fabsf(w[k]));
    return largest;
}

static float code_of(float w, float scale)
{
    return wt_min(wt_max(rintf(w / scale), -127.0f), 127.0f);
}

/* The scale of a row; 0 if its type cannot represent it.  absmax NULL: no clip search. */
static float row_scale(const struct int8 *q, const float *w, uint64_t n, const float *absmax)
{
    float largest = row_largest(w, n);
    if (largest == 0.0f)
        return 1.0f; /* any scale decodes zero codes to 0 */
    float full = wt_scale_round(largest / 127.0f, q->scale_dtype);
    if (!absmax || full == 0.0f)
        return full;
    float  best = full;
    double least = INFINITY;
    for (int i = 0; i < LADDER; i++) {
        float scale = wt_scale_round((float)(1.0 - i / 100.0) * largest / 127.0f, q->scale_dtype);
        if (scale == 0.0f)
            break;
        double error = 0.0;
        for (uint64_t k = 0; k < n && error < least; k++) {
            double d = (double)absmax[k] * ((double)w[k] - (double)(code_of(w[k], scale) * scale));
            error += d * d;
        }
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

/* Codes of a row by its scale.  LLM.int8's code multiplies by 127 * (1/largest), two roundings, which
 * is another number than the quotient at near-ties; an F16 scale is its own number and divides. */
static void row_codes(const struct int8 *q, const float *w, uint64_t n, float scale,
                      unsigned char *codes)
{
    float largest = row_largest(w, n), inverse = 127.0f * (1.0f / largest);
    int   multiply =
        q->mode == MODE_LLM && q->scale_dtype == TSR_F32 && largest > 0.0f && isfinite(inverse);
    for (uint64_t k = 0; k < n; k++)
        codes[k] =
            (unsigned char)(128 + (int)(multiply ? rintf(w[k] * inverse) : code_of(w[k], scale)));
}

static tsr_status check_maxima(const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct tsr_quant_stats *s = job->stats;
    const char                   *name = job->src->name ? job->src->name : "?";
    if (!s || !s->absmax || s->cols != job->src->cols)
        return tsr_fail(err, TSR_E_INVAL, "tensor '%s': the input maxima are missing", name);
    for (uint64_t k = 0; k < s->cols; k++)
        if (!isfinite(s->absmax[k]) || s->absmax[k] < 0.0f)
            return tsr_fail(err, TSR_E_NUMERIC,
                            "tensor '%s': the input maximum of column %llu is %g, not a finite "
                            "number from 0",
                            name, (unsigned long long)k, (double)s->absmax[k]);
    return TSR_OK;
}

static tsr_status int8_quantize(const void *self, const struct tsr_quant_job *job,
                                struct tsr_err *err)
{
    const struct int8       *q = self;
    const struct tsr_matrix *w = job->src;
    struct tsr_format        f = int8_format(q);
    uint64_t                 meta_bytes = tsr_format_int_meta_bytes(&f, w->cols);
    float                   *row = job->scratch;
    if (q->clip) {
        tsr_status st = check_maxima(job, err);
        if (st != TSR_OK)
            return st;
    }
    for (uint64_t r = 0; r < w->rows; r++) {
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        unsigned char *codes = (unsigned char *)job->codes + r * w->cols;
        unsigned char *meta = (unsigned char *)job->meta + r * meta_bytes;
        wt_row(row, w, r);
        tsr_status st = wt_check(w, row, job->first_row + r, err);
        if (st != TSR_OK)
            return st;
        float scale = row_scale(q, row, w->cols, q->clip ? job->stats->absmax : NULL);
        if (scale == 0.0f)
            return tsr_fail(err, TSR_E_NUMERIC,
                            "tensor '%s': row %llu group 0: the scale is not a normal %s number%s",
                            w->name ? w->name : "?", (unsigned long long)(job->first_row + r),
                            q->scale_dtype == TSR_F16 ? "F16" : "F32",
                            q->scale_dtype == TSR_F16 ? "; use scale: f32" : "");
        memset(meta, 0, meta_bytes);
        wt_scale_put(meta, 0, q->scale_dtype, scale);
        row_codes(q, row, w->cols, scale, codes);
    }
    return TSR_OK;
}

static tsr_status int8_dequantize(const void *self, const struct tsr_quant_job *job,
                                  struct tsr_err *err)
{
    struct tsr_format f = int8_format(self);
    (void)err;
    return wt_dequantize_int(job, &f);
}

static const void *int8_extension(const void *self, const char *id)
{
    const struct int8 *q = self;
    return q->mode == MODE_SMOOTH && strcmp(id, TSR_QUANTIZER_BLOCK) == 0 ? &int8_smooth : NULL;
}

static const struct tsr_choice mode_choices[] = {
    { "plain", "weights only; scales by the calibrated input maxima", MODE_PLAIN },
    { "llm", "LLM.int8: under act a8 large inputs are kept in F32", MODE_LLM },
    { "smooth", "SmoothQuant: large inputs are moved into the weights first", MODE_SMOOTH },
};
static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes a row; a scale must be a normal F16 number", TSR_F16 },
    { "f32", "4 bytes a row", TSR_F32 },
};

static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct int8_options, mode, MODE_PLAIN, mode_choices,
                    "How weights and inputs become 8 bits."),
    TSR_OPTION_BOOL(struct int8_options, clip, 1,
                    "plain: choose each row's clip with the calibrated input maxima; false: none."),
    TSR_OPTION_ENUM(struct int8_options, scale, TSR_F16, scale_choices, "Type of the scales."),
    TSR_OPTION_REAL(struct int8_options, threshold, 6.0, 0.0, 1e30, NULL,
                    "llm: inputs of this magnitude and more stay F32; 0: none do."),
    TSR_OPTION_REAL(struct int8_options, alpha, 0.5, 0.0, 1.0, NULL,
                    "smooth: how much of an outlier moves into the weights."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = int8_create,
    .destroy = int8_destroy,
    .plan = int8_plan,
    .quantize = int8_quantize,
    .dequantize = int8_dequantize,
    .extension = int8_extension,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "int8",
    .summary = "8 bits per weight, one scale per row: plain, LLM.int8 or SmoothQuant.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct int8_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(int8) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.int8", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,  .needs_minor = 0,
};
