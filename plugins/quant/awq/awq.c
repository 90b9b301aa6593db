/* awq - activation-aware weight quantization: columns with large inputs are scaled up before
 * rounding and their inputs down; ranges are clipped by the effect on the output.  The searches use
 * a whole block (search.c, clip.c); this file packs plain groups with a scale and a zero point.
 * See README.md. */
#include "awq.h"

struct awq_options {
    int64_t bits, group;
    int32_t clip, minimum;
    int64_t scale, scale_bits;
};

static tsr_status awq_create(const struct tsr_host *host, const void *opts, void **self,
                             struct tsr_err *err)
{
    const struct awq_options *o = opts;
    if (o->group == 0)
        return tsr_fail(err, TSR_E_CONFIG,
                        "group: 0 columns share no scale; use -1 for the whole row, or 1 or more");
    tsr_status st = wt_affine_check(o->minimum, o->group, o->scale_bits, err);
    if (st != TSR_OK)
        return st;
    struct awq *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for awq", sizeof *q);
    *q = (struct awq){ .host = host,
                       .bits = (uint32_t)o->bits,
                       .scale_dtype = o->scale_bits ? TSR_F32 : (uint32_t)o->scale,
                       .minimum = o->minimum,
                       .scale_bits = (uint32_t)o->scale_bits,
                       .group = o->group < 0 ? 0 : (uint64_t)o->group,
                       .clip = o->clip };
    *self = q;
    return TSR_OK;
}

static void awq_destroy(void *self)
{
    struct awq *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static struct tsr_format awq_format(const struct awq *q)
{
    if (q->minimum)
        return wt_affine_format(q->bits, q->group, q->scale_bits, q->scale_dtype);
    return (struct tsr_format){ .id = TSR_FORMAT_INT,
                                .bits = q->bits,
                                .zero = TSR_ZERO_STORED,
                                .group = q->group,
                                .scale_dtype = q->scale_dtype };
}

static uint64_t awq_meta_bytes(const struct awq *q, uint64_t cols)
{
    struct tsr_format f = awq_format(q);
    return q->minimum ? tsr_format_affine_meta_bytes(&f, cols)
                      : tsr_format_int_meta_bytes(&f, cols);
}

static tsr_status awq_plan(const void *self, const struct tsr_matrix *w,
                           struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct awq *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = awq_format(q);
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = awq_meta_bytes(q, w->cols);
    /* a widened row, its groups and its codes */
    plan->scratch_bytes =
        w->cols * (sizeof(float) + 1) + awq_groups(q, w->cols) * sizeof(struct wt_params);
    plan->need = 0;
    return TSR_OK;
}

/* Codes and meta of tessera.int/1; the first group whose scale fits no number, or the number of groups. */
static uint64_t put_int(const struct awq *q, const struct tsr_format *f, const float *row,
                        uint64_t cols, uint8_t *codes, unsigned char *to, unsigned char *meta)
{
    uint64_t groups = awq_groups(q, cols);
    uint64_t zeros = groups * (q->scale_dtype == TSR_F32 ? 4u : 2u);
    memset(meta, 0, tsr_format_int_meta_bytes(f, cols));
    for (uint64_t g = 0; g < groups; g++) {
        struct awq_span   s = awq_span_of(q, cols, g);
        struct awq_params p = awq_params_of(q, row + s.begin, s.end - s.begin);
        if (p.scale == 0.0f)
            return g;
        wt_scale_put(meta, g, q->scale_dtype, p.scale);
        meta[zeros + g] = (unsigned char)p.zero;
        for (uint64_t k = s.begin; k < s.end; k++)
            codes[k] = (uint8_t)awq_code(q, &p, row[k]);
    }
    wt_pack(to, codes, cols, q->bits);
    return groups;
}

/* The same of tessera.int/2. */
static uint64_t put_affine(const struct awq *q, const struct tsr_format *f, const float *row,
                           uint64_t cols, struct wt_params *p, unsigned char *to,
                           unsigned char *meta)
{
    uint64_t groups = awq_groups(q, cols);
    for (uint64_t g = 0; g < groups; g++) {
        struct awq_span   s = awq_span_of(q, cols, g);
        struct awq_params a = awq_params_of(q, row + s.begin, s.end - s.begin);
        p[g] =
            (struct wt_params){ .scale = a.scale, .minimum = a.minimum, .hi = (1 << q->bits) - 1 };
    }
    return wt_affine_row(f, row, cols, p, (uint8_t *)(p + groups), to, meta);
}

static tsr_status awq_quantize(const void *self, const struct tsr_quant_job *job,
                               struct tsr_err *err)
{
    const struct awq        *q = self;
    const struct tsr_matrix *w = job->src;
    struct tsr_format        f = awq_format(q);
    uint64_t                 code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    uint64_t                 meta_bytes = awq_meta_bytes(q, w->cols);
    uint64_t                 groups = awq_groups(q, w->cols), held;
    float                   *row = job->scratch;
    void                    *rest = row + w->cols;
    for (uint64_t r = 0; r < w->rows; r++) {
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        unsigned char *codes = (unsigned char *)job->codes + r * code_bytes;
        unsigned char *meta = (unsigned char *)job->meta + r * meta_bytes;
        uint64_t       n_row = job->first_row + r;
        wt_row(row, w, r);
        tsr_status st = wt_check(w, row, n_row, err);
        if (st != TSR_OK)
            return st;
        held = q->minimum ? put_affine(q, &f, row, w->cols, rest, codes, meta)
                          : put_int(q, &f, row, w->cols, rest, codes, meta);
        if (held != groups)
            return wt_affine_refused(&f, w, n_row, held, err);
    }
    return TSR_OK;
}

static tsr_status awq_dequantize(const void *self, const struct tsr_quant_job *job,
                                 struct tsr_err *err)
{
    struct tsr_format f = awq_format(self);
    (void)err;
    return ((const struct awq *)self)->minimum ? wt_dequantize_affine(job, &f)
                                               : wt_dequantize_int(job, &f);
}

/* ---- the block ------------------------------------------------------------ */

static uint64_t awq_block_need(const void *self)
{
    (void)self;
    return TSR_NEED_MEAN_ABS | TSR_NEED_INPUTS;
}

static uint64_t awq_clip_group(const void *self, uint64_t cols)
{
    const struct awq *q = self;
    (void)cols;
    return q->group;
}

static tsr_status check_weights(const struct tsr_block_site *s, struct tsr_err *err)
{
    for (uint64_t i = 0; i < s->n_linears; i++)
        for (uint64_t r = 0; r < s->linears[i]->rows; r++) {
            tsr_status st = wt_check(s->linears[i], awq_row(s->linears[i], r), r, err);
            if (st != TSR_OK)
                return st;
        }
    return TSR_OK;
}

/* Every scale is found on the original block, every clip with all scales applied. */
static tsr_status awq_search(const void *self, const struct tsr_block *b,
                             struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    const struct awq *q = self;
    tsr_status        st = TSR_OK;
    for (uint64_t i = 0; i < b->n_sites && st == TSR_OK; i++)
        st = check_weights(b->sites[i], err);
    for (uint64_t i = 0; i < b->n_sites && st == TSR_OK; i++)
        st = awq_search_scale(q, b, i, choices[i], err);
    for (uint64_t i = 0; q->clip && i < b->n_sites && st == TSR_OK; i++)
        st = awq_search_clip(q, b, i, choices, err);
    return st;
}

static const struct tsr_quantizer_block_v1 block_table = {
    .struct_size = sizeof block_table,
    .block_need = awq_block_need,
    .clip_group = awq_clip_group,
    .search = awq_search,
};

static const void *awq_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_QUANTIZER_BLOCK) == 0 ? &block_table : NULL;
}

/* ---- description ----------------------------------------------------------- */

static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes a group; a scale must be a normal F16 number", TSR_F16 },
    { "f32", "4 bytes a group", TSR_F32 },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct awq_options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct awq_options, group, 128, -1, INT64_C(1) << 40, "columns",
                   "Columns that share a scale; -1: the whole row."),
    TSR_OPTION_BOOL(struct awq_options, clip, 1,
                    "Search each group's range for the smallest change of the output."),
    TSR_OPTION_ENUM(struct awq_options, scale, TSR_F16, scale_choices, "Type of the scales."),
    TSR_OPTION_BOOL(struct awq_options, minimum, 0,
                    "Store the range's lower end instead of a zero point: tessera.int/2."),
    TSR_OPTION_INT(
        struct awq_options, scale_bits, 0, 0, 8, "bits",
        "With minimum: 4, 6 or 8: codes of scales and minimums under two F16 factors for "
        "256 columns; 0: stored as they are."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = awq_create,
    .destroy = awq_destroy,
    .plan = awq_plan,
    .quantize = awq_quantize,
    .dequantize = awq_dequantize,
    .extension = awq_extension,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "awq",
    .summary = "Activation-aware scales and clips found per block, then groups of 2 to 8 bits.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct awq_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(awq) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.awq",  .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,  .needs_minor = 0,
};
