/* fp4 - two quantizers of 4-bit floats: nvfp4, whose blocks of 16 columns have E4M3 scales, and mxfp4, whose
 * blocks of 32 have powers of two.  Each block takes the scale with the least squared error.  See README.md. */
#include "../fp4.h"

enum { SEARCH_NONE, SEARCH_ERROR, SEARCH_INPUTS };

struct fp4_options {
    int64_t search;
};

struct fp4 {
    const struct tsr_host *host;
    int                    kind;
    int64_t                search;
};

static tsr_status create(const struct tsr_host *host, const struct fp4_options *o, int kind,
                         void **self, struct tsr_err *err)
{
    struct fp4 *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for fp4", sizeof *q);
    *q = (struct fp4){ .host = host, .kind = kind, .search = o->search };
    *self = q;
    return TSR_OK;
}

static tsr_status nvfp4_create(const struct tsr_host *host, const void *opts, void **self,
                               struct tsr_err *err)
{
    return create(host, opts, WT_FP4_NV, self, err);
}

static tsr_status mxfp4_create(const struct tsr_host *host, const void *opts, void **self,
                               struct tsr_err *err)
{
    return create(host, opts, WT_FP4_MX, self, err);
}

static void fp4_destroy(void *self)
{
    struct fp4 *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static tsr_status fp4_plan(const void *self, const struct tsr_matrix *w,
                           struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct fp4 *q = self;
    struct tsr_format f = wt_fp4_format(q->kind);
    uint64_t          bytes;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40 ||
        __builtin_mul_overflow(w->rows, 8 * w->cols, &bytes))
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    /* the divisor of NVFP4 is the tensor's */
    uint64_t rows = q->kind == WT_FP4_NV ? w->rows : 1;
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = q->kind == WT_FP4_NV ? 0 : 1;
    plan->code_bytes = rows * tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = rows * wt_fp4_meta_bytes(q->kind, w->cols);
    /* a widened row, the weights of its columns, codes, scales */
    plan->scratch_bytes = w->cols * (2 * sizeof(float) + 2);
    plan->need = q->search == SEARCH_INPUTS ? TSR_NEED_MEAN | TSR_NEED_VARIANCE : 0;
    return TSR_OK;
}

/* Checks all rows, and finds the largest magnitude. */
static tsr_status look(const struct tsr_quant_job *job, float *row, float *largest,
                       struct tsr_err *err)
{
    const struct tsr_matrix *w = job->src;
    *largest = 0.0f;
    for (uint64_t r = 0; r < w->rows; r++) {
        wt_row(row, w, r);
        tsr_status st = wt_check(w, row, job->first_row + r, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t k = 0; k < w->cols; k++)
            *largest = wt_max(*largest, fabsf(row[k]));
    }
    return TSR_OK;
}

static void quantize_row(const struct fp4 *q, const struct wt_fp4 *grid, const float *row,
                         const float *v, uint64_t cols, uint8_t *codes, uint8_t *scales)
{
    uint64_t group = wt_fp4_format(q->kind).group;
    for (uint64_t begin = 0, g = 0; begin < cols; begin += group, g++) {
        uint64_t n = cols - begin < group ? cols - begin : group;
        unsigned byte = q->search == SEARCH_NONE
                            ? wt_fp4_plain(grid, row + begin, n)
                            : wt_fp4_search(grid, row + begin, v ? v + begin : NULL, n);
        float    scale = wt_fp4_scale(grid, byte);
        scales[g] = (uint8_t)byte;
        for (uint64_t k = begin; k < begin + n; k++)
            codes[k] = scale > 0.0f ? (uint8_t)wt_e2m1_code(row[k] / scale) : 0;
    }
}

static tsr_status fp4_quantize(const void *self, const struct tsr_quant_job *job,
                               struct tsr_err *err)
{
    const struct fp4        *q = self;
    const struct tsr_matrix *w = job->src;
    struct tsr_format        f = wt_fp4_format(q->kind);
    uint64_t                 code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    uint64_t                 meta_bytes = wt_fp4_meta_bytes(q->kind, w->cols);
    float                   *row = job->scratch, *v = row + w->cols, largest;
    uint8_t                 *codes = (uint8_t *)(v + w->cols), *scales = codes + w->cols;
    tsr_status               st = look(job, row, &largest, err);
    if (st == TSR_OK && q->search == SEARCH_INPUTS)
        st = wt_weigh(job, v, err);
    struct wt_fp4 grid = wt_fp4_of(q->kind, largest);
    for (uint64_t r = 0; r < w->rows && st == TSR_OK; r++) {
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        wt_row(row, w, r);
        quantize_row(q, &grid, row, q->search == SEARCH_INPUTS ? v : NULL, w->cols, codes, scales);
        wt_pack((unsigned char *)job->codes + r * code_bytes, codes, w->cols, f.bits);
        wt_fp4_meta(&grid, w->cols, scales, (unsigned char *)job->meta + r * meta_bytes);
    }
    return st;
}

static tsr_status fp4_dequantize(const void *self, const struct tsr_quant_job *job,
                                 struct tsr_err *err)
{
    (void)err;
    return wt_dequantize_fp4(job, ((const struct fp4 *)self)->kind);
}

/* The divisor of NVFP4 depends on all columns. */
static uint64_t fp4_columns_alone(const void *self)
{
    const struct fp4 *q = self;
    return q->kind == WT_FP4_MX && q->search != SEARCH_INPUTS ? wt_fp4_format(q->kind).group : 0;
}

static const struct tsr_choice search_choices[] = {
    { "none", "the scale of the block's largest weight", SEARCH_NONE },
    { "error", "the scale with the least squared error", SEARCH_ERROR },
    { "inputs", "the same, columns weighted by the mean square of their inputs", SEARCH_INPUTS },
};

static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct fp4_options, search, SEARCH_ERROR, search_choices,
                    "How a block's scale is found."),
};

#define QUANTIZER(name)                                                                            \
    static const struct tsr_quantizer_v1 name##_table = {                                          \
        .struct_size = sizeof(struct tsr_quantizer_v1),                                            \
        .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,                              \
        .promises = TSR_QUANT_DETERMINISTIC,                                                       \
        .create = name##_create,                                                                   \
        .destroy = fp4_destroy,                                                                    \
        .plan = fp4_plan,                                                                          \
        .quantize = fp4_quantize,                                                                  \
        .dequantize = fp4_dequantize,                                                              \
        .columns_alone = fp4_columns_alone,                                                        \
    }
QUANTIZER(nvfp4);
QUANTIZER(mxfp4);

static const struct tsr_component nvfp4 = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "nvfp4",
    .summary = "NVFP4: E2M1 in blocks of 16 with searched E4M3 scales.",
    .iface = &nvfp4_table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct fp4_options),
};
static const struct tsr_component mxfp4 = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "mxfp4",
    .summary = "MXFP4: E2M1 in blocks of 32 with searched powers of two.",
    .iface = &mxfp4_table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct fp4_options),
};

static const struct tsr_component *const components[] = { &nvfp4, &mxfp4 };

TSR_PLUGIN_SYMBOL(fp4) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.fp4",  .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 2,  .needs_minor = 0,
};
