/* squeeze - non-uniform quantization: every row has its own table of 2^bits values, the exact
 * optimum of a k-means whose points are the weights and whose sample weights are the loss per
 * squared error (Kim et al., SqueezeLLM, 2024); a fixed share of the weights can be stored
 * unquantized in addition to the codes.  See README.md. */
#include "../weights.h"

#include "row.h"

struct squeeze_options {
    int64_t bits;
    double  outliers;
    int64_t sensitivity, scale;
    int32_t count_zeros;
};

enum { FROM_AUTO, FROM_GIVEN, FROM_INPUTS, FROM_NONE };

struct squeeze {
    const struct tsr_host *host;
    uint32_t               bits, dtype;
    double                 share;
    int64_t                from;
    int                    count_zeros;
};

static tsr_status squeeze_create(const struct tsr_host *host, const void *opts, void **self,
                                 struct tsr_err *err)
{
    const struct squeeze_options *o = opts;
    struct squeeze               *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for squeeze", sizeof *q);
    *q = (struct squeeze){ .host = host,
                           .bits = (uint32_t)o->bits,
                           .dtype = (uint32_t)o->scale,
                           .share = o->outliers,
                           .from = o->sensitivity,
                           .count_zeros = o->count_zeros };
    *self = q;
    return TSR_OK;
}

static void squeeze_destroy(void *self)
{
    struct squeeze *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static struct tsr_format squeeze_format(const struct squeeze *q, uint64_t cols)
{
    return (struct tsr_format){ .id = TSR_FORMAT_LUT,
                                .bits = q->bits,
                                .scale_dtype = q->dtype,
                                .outliers = (uint64_t)(q->share * (double)cols + 0.5) };
}

static uint64_t squeeze_need(const struct squeeze *q)
{
    switch (q->from) {
    case FROM_AUTO:
        return TSR_NEED_IF_THERE(TSR_NEED_SENSITIVITY | TSR_NEED_MEAN | TSR_NEED_VARIANCE);
    case FROM_GIVEN:
        return TSR_NEED_SENSITIVITY;
    case FROM_INPUTS:
        return TSR_NEED_MEAN | TSR_NEED_VARIANCE;
    default:
        return 0;
    }
}

static tsr_status squeeze_plan(const void *self, const struct tsr_matrix *w,
                               struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct squeeze *q = self;
    uint64_t              scratch = 0;
    if (w->rows && w->cols && w->cols < UINT64_C(1) << 31)
        scratch = row_bytes(w->cols, 1u << q->bits);
    if (scratch == 0)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = squeeze_format(q, w->cols);
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = tsr_format_lut_meta_bytes(&f);
    plan->scratch_bytes = scratch;
    plan->need = squeeze_need(q);
    return TSR_OK;
}

static int32_t stopped(void *arg)
{
    const struct tsr_host *host = arg;
    return host->cancelled(host->ctx);
}

/* ---- sensitivity ----------------------------------------------------------- */

/* Values per weight, or the sensitivities by column in r->column: E[x^2], the diagonal of the
 * Hessian of the layer's error but for a factor that k-means does not see. */
static tsr_status sensitivity_open(const struct squeeze *q, const struct tsr_quant_job *job,
                                   struct row *r, const float **given, struct tsr_err *err)
{
    const struct tsr_quant_stats *s = job->stats;
    const char                   *name = job->src->name ? job->src->name : "?";
    *given = NULL;
    for (uint64_t c = 0; c < r->cols; c++)
        r->column[c] = 1.0;
    if (q->from == FROM_NONE)
        return TSR_OK;
    if (s && s->sensitivity && s->cols == r->cols && q->from != FROM_INPUTS) {
        *given = s->sensitivity;
        return TSR_OK;
    }
    if (!s || !s->mean || !s->variance || s->cols != r->cols || q->from == FROM_GIVEN)
        return tsr_fail(err, TSR_E_NUMERIC,
                        "tensor '%s': what an error in a weight costs is not known; put a "
                        "calibrate step before it, hand in a sensitivity of every weight, or use "
                        "sensitivity: none",
                        name);
    for (uint64_t c = 0; c < r->cols; c++) {
        double m = (double)s->mean[c], e = m * m + (double)s->variance[c];
        if (!isfinite(e) || s->variance[c] < 0.0f)
            return tsr_fail(err, TSR_E_NUMERIC,
                            "tensor '%s': column %llu of the inputs has mean %g and variance %g; "
                            "finite numbers and a variance from 0 were wanted",
                            name, (unsigned long long)c, m, (double)s->variance[c]);
        r->column[c] = e;
    }
    return TSR_OK;
}

static tsr_status sensitivity_row(struct row *r, const float *given, const char *name, uint64_t row,
                                  struct tsr_err *err)
{
    if (!given) {
        memcpy(r->s, r->column, r->cols * sizeof *r->s);
        return TSR_OK;
    }
    given += row * r->cols;
    for (uint64_t c = 0; c < r->cols; c++) {
        if (!isfinite(given[c]) || given[c] < 0.0f)
            return tsr_fail(err, TSR_E_NUMERIC,
                            "tensor '%s': the sensitivity of row %llu column %llu is %g, not a "
                            "finite number from 0",
                            name ? name : "?", (unsigned long long)row, (unsigned long long)c,
                            (double)given[c]);
        r->s[c] = (double)given[c];
    }
    return TSR_OK;
}

/* ---- one row's bytes ------------------------------------------------------- */

static float entry_round(float f, uint32_t dtype)
{
    if (dtype == TSR_F32)
        return f;
    float m = tsr_f16_f32(tsr_f32_f16(fabsf(f)));
    return f < 0.0f ? -m : m;
}

/* Value i of a row's meta; f is one that entry_round() gave, and finite. */
static void entry_put(unsigned char *meta, uint64_t i, uint32_t dtype, float f)
{
    if (dtype == TSR_F32) {
        memcpy(meta + 4 * i, &f, 4);
        return;
    }
    uint16_t h = tsr_f32_f16(fabsf(f));
    if (f < 0.0f)
        h |= 0x8000u;
    memcpy(meta + 2 * i, &h, 2);
}

static tsr_status refuse(const struct squeeze *q, const char *name, uint64_t row, const char *what,
                         struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NUMERIC, "tensor '%s': row %llu: %s a normal %s number%s",
                    name ? name : "?", (unsigned long long)row, what,
                    q->dtype == TSR_F16 ? "F16" : "F32",
                    q->dtype == TSR_F16 ? "; use scale: f32" : "");
}

/* The table in its type.  A value below F16's normal numbers is stored to the nearest 2^-24; a
 * table of nothing else would have lost its precision. */
static tsr_status put_table(const struct squeeze *q, struct row *r, const char *name, uint64_t row,
                            unsigned char *meta, struct tsr_err *err)
{
    double entry[MAX_TABLE], largest = 0.0;
    float  last = 0.0f;
    for (uint32_t i = 0; i < r->k; i++) {
        if (i < r->n_table) {
            largest = fmax(largest, fabs(r->table[i]));
            last = entry_round((float)r->table[i], q->dtype);
        } /* else: unused, the largest entry again */
        if (!isfinite(last))
            return refuse(q, name, row, "an entry of its table is larger than", err);
        entry_put(meta, i, q->dtype, last);
        entry[i] = (double)last;
    }
    if (q->dtype == TSR_F16 && largest > 0.0 && largest < 0x1p-14)
        return refuse(q, name, row, "the largest entry of its table is below", err);
    row_encode(r, entry, r->n_table);
    return TSR_OK;
}

static tsr_status put_outliers(const struct squeeze *q, const struct row *r, const char *name,
                               uint64_t row, unsigned char *meta, struct tsr_err *err)
{
    uint64_t size = q->dtype == TSR_F32 ? 4 : 2, n = 0;
    uint64_t columns = ((r->k + r->outliers) * size + 3) / 4 * 4;
    for (uint64_t c = 0; c < r->cols; c++) {
        if (!r->out[c])
            continue;
        float f = entry_round(r->w[c], q->dtype);
        if (!isfinite(f))
            return refuse(q, name, row, "an outlier is larger than", err);
        uint32_t column = (uint32_t)c;
        entry_put(meta, r->k + n, q->dtype, f);
        memcpy(meta + columns + 4 * n, &column, 4);
        n++;
    }
    return TSR_OK;
}

static tsr_status squeeze_quantize(const void *self, const struct tsr_quant_job *job,
                                   struct tsr_err *err)
{
    const struct squeeze    *q = self;
    const struct tsr_matrix *w = job->src;
    struct tsr_format        f = squeeze_format(q, w->cols);
    uint64_t                 code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    uint64_t                 meta_bytes = tsr_format_lut_meta_bytes(&f);
    const float             *given;
    struct row               r;
    row_place(&r, job->scratch, w->cols, 1u << q->bits, f.outliers);
    tsr_status st = sensitivity_open(q, job, &r, &given, err);
    for (uint64_t i = 0; i < w->rows && st == TSR_OK; i++) {
        uint64_t       row = job->first_row + i;
        unsigned char *meta = (unsigned char *)job->meta + i * meta_bytes;
        memset(meta, 0, meta_bytes);
        wt_row(r.w, w, i);
        st = wt_check(w, r.w, row, err);
        if (st == TSR_OK)
            st = sensitivity_row(&r, given, w->name, row, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t c = 0; c < w->cols; c++)
            r.w[c] = r.w[c] == 0.0f ? 0.0f : r.w[c];
        row_weigh(&r, q->count_zeros);
        if (stopped((void *)(uintptr_t)q->host) ||
            !row_solve(&r, stopped, (void *)(uintptr_t)q->host))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        st = put_table(q, &r, w->name, row, meta, err);
        if (st == TSR_OK)
            st = put_outliers(q, &r, w->name, row, meta, err);
        wt_pack((unsigned char *)job->codes + i * code_bytes, r.codes, w->cols, q->bits);
    }
    return st;
}

static float entry_get(const unsigned char *meta, uint64_t i, uint32_t dtype)
{
    return wt_scale_get(meta, i, dtype); /* any sign */
}

static tsr_status squeeze_dequantize(const void *self, const struct tsr_quant_job *job,
                                     struct tsr_err *err)
{
    const struct squeeze *q = self;
    uint64_t              cols = job->dst->cols;
    struct tsr_format     f = squeeze_format(q, cols);
    uint64_t              code_bytes = tsr_format_int_code_bytes(&f, cols);
    uint64_t              meta_bytes = tsr_format_lut_meta_bytes(&f);
    uint64_t              columns = meta_bytes - 4 * f.outliers, k = UINT64_C(1) << q->bits;
    uint8_t              *codes = job->scratch;
    (void)err;
    for (uint64_t r = 0; r < job->dst->rows; r++) {
        const unsigned char *meta = (const unsigned char *)job->meta + r * meta_bytes;
        float *dst = (float *)(void *)((char *)job->dst->data + r * job->dst->row_stride);
        wt_unpack(codes, (const unsigned char *)job->codes + r * code_bytes, cols, q->bits);
        for (uint64_t c = 0; c < cols; c++)
            dst[c] = entry_get(meta, codes[c], q->dtype);
        for (uint64_t i = 0; i < f.outliers; i++) {
            uint32_t column;
            memcpy(&column, meta + columns + 4 * i, 4);
            if (column < cols)
                dst[column] = entry_get(meta, k + i, q->dtype);
        }
    }
    return TSR_OK;
}

static const struct tsr_choice sensitivity_choices[] = {
    { "auto", "a value per weight where one is given, else from the calibrated inputs", FROM_AUTO },
    { "given", "a value per weight, given with it (the Fisher information, say)", FROM_GIVEN },
    { "inputs", "the mean square of the weight's input, the Hessian's diagonal", FROM_INPUTS },
    { "none", "all weights count the same", FROM_NONE },
};
static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes an entry; a row's table must reach F16's normal numbers", TSR_F16 },
    { "f32", "4 bytes an entry", TSR_F32 },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct squeeze_options, bits, 4, 2, 8, "bits",
                   "Width of a code; a row's table has 2^bits entries."),
    TSR_OPTION_REAL(struct squeeze_options, outliers, 0.0, 0.0, 0.25, NULL,
                    "Share of a row's weights stored next to the codes (0.0045: the paper's)."),
    TSR_OPTION_ENUM(struct squeeze_options, sensitivity, FROM_AUTO, sensitivity_choices,
                    "What an error in a weight costs."),
    TSR_OPTION_ENUM(struct squeeze_options, scale, TSR_F16, scale_choices,
                    "Type of table entries and outliers."),
    TSR_OPTION_BOOL(struct squeeze_options, count_zeros, 0,
                    "Weights of exactly 0 count too; false: they take no part, as in the paper's "
                    "code."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = squeeze_create,
    .destroy = squeeze_destroy,
    .plan = squeeze_plan,
    .quantize = squeeze_quantize,
    .dequantize = squeeze_dequantize,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "squeeze",
    .summary = "A table of values per row by exact sensitivity-weighted k-means, 2 to 8 bits.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct squeeze_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(squeeze) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.squeeze", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components,    .n_components = 1,  .needs_minor = 0,
};
