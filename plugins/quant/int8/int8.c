/* int8 - one signed 8-bit code per weight, one scale per row.  The scale is chosen with the
 * calibrated maxima: among a fixed ladder of clip ratios the one with the smallest
 * sum_k absmax_k^2 (w_k - w^_k)^2, which bounds the output error over inputs inside those
 * maxima column by column.  See README.md for what that is good for. */
#include "../weights.h"

struct int8_options {
    int32_t clip;
    int64_t scale;
};

struct int8 {
    const struct tsr_host *host;
    int                    clip;
    uint32_t               scale_dtype;
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
    *q = (struct int8){ .host = host, .clip = o->clip, .scale_dtype = (uint32_t)o->scale };
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
                                .scale_dtype = q->scale_dtype };
}

static tsr_status int8_plan(const void *self, const struct tsr_matrix *w,
                            struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct int8 *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = int8_format(q);
    f.struct_size = plan->format.struct_size;
    plan->format = f;
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = tsr_format_int_meta_bytes(&f, w->cols);
    plan->scratch_bytes = w->cols * (sizeof(float) + 1);
    plan->need = q->clip ? TSR_NEED_ABSMAX : 0;
    return TSR_OK;
}

static float code_of(float w, float scale)
{
    return wt_min(wt_max(rintf(w / scale), -127.0f), 127.0f);
}

/* The scale of a row; 0 where its type cannot hold one.  absmax NULL: no clip search. */
static float row_scale(const struct int8 *q, const float *w, uint64_t n, const float *absmax)
{
    float largest = 0.0f;
    for (uint64_t k = 0; k < n; k++)
        largest = wt_max(largest, fabsf(w[k]));
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
        for (uint64_t k = 0; k < w->cols; k++)
            codes[k] = (unsigned char)((int)code_of(row[k], scale) + 128);
    }
    return TSR_OK;
}

static tsr_status int8_dequantize(const void *self, const struct tsr_quant_job *job,
                                  struct tsr_err *err)
{
    const struct int8 *q = self;
    struct tsr_format  f = int8_format(q);
    uint64_t           cols = job->dst->cols, meta_bytes = tsr_format_int_meta_bytes(&f, cols);
    (void)err;
    for (uint64_t r = 0; r < job->dst->rows; r++)
        wt_decode_row((float *)(void *)((char *)job->dst->data + r * job->dst->row_stride),
                      (const unsigned char *)job->codes + r * cols,
                      (const unsigned char *)job->meta + r * meta_bytes, &f, cols, job->scratch);
    return TSR_OK;
}

static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes a row; a scale must be a normal F16 number", TSR_F16 },
    { "f32", "4 bytes a row", TSR_F32 },
};

static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(struct int8_options, clip, 1,
                    "Choose each row's clip with the calibrated input maxima; false: none."),
    TSR_OPTION_ENUM(struct int8_options, scale, TSR_F16, scale_choices, "Type of the scales."),
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
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "int8",
    .summary = "8 bits per weight, one scale per row, clipped with the calibrated input maxima.",
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
