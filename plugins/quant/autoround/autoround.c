/* autoround - rounding offsets and ranges that are learned block by block: signed gradient descent on the error of the
 * block's output (tune.c).  This file has the options and the packing of single matrices, which are rounded to
 * nearest.  See README.md. */
#include "autoround.h"

struct autoround_options {
    int64_t bits, group, scale, steps, batch, seed;
    double  lr;
    int32_t minimum;
};

static tsr_status ar_create(const struct tsr_host *host, const void *opts, void **self,
                            struct tsr_err *err)
{
    const struct autoround_options *o = opts;
    if (o->group == 0)
        return tsr_fail(err, TSR_E_CONFIG,
                        "group: 0 columns share no scale; use -1 for the whole row, or 1 or more");
    tsr_status st = wt_affine_check(o->minimum, o->group, 0, err);
    if (st != TSR_OK)
        return st;
    struct autoround *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for autoround", sizeof *q);
    *q = (struct autoround){ .host = host,
                             .rule = { .bits = (uint32_t)o->bits,
                                       .scale_dtype = (uint32_t)o->scale,
                                       .minimum = o->minimum,
                                       .range = WT_RANGE_GPTQ },
                             .group = o->group < 0 ? 0 : (uint64_t)o->group,
                             .steps = (uint64_t)o->steps,
                             .batch = (uint64_t)o->batch,
                             .seed = (uint64_t)o->seed,
                             .lr = o->lr > 0.0    ? o->lr
                                   : o->steps > 0 ? 1.0 / (double)o->steps
                                                  : 0.0 };
    *self = q;
    return TSR_OK;
}

static void ar_destroy(void *self)
{
    struct autoround *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static tsr_status ar_plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                          struct tsr_err *err)
{
    const struct autoround *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = ar_format(q);
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = ar_meta_bytes(q, w->cols);
    plan->scratch_bytes = ar_scratch(q, w->cols) + w->cols * sizeof(float) +
                          ar_groups(q, w->cols) * sizeof(struct ar_range);
    plan->need = 0;
    return TSR_OK;
}

static tsr_status ar_quantize(const void *self, const struct tsr_quant_job *job,
                              struct tsr_err *err)
{
    const struct autoround  *q = self;
    const struct tsr_matrix *w = job->src;
    struct tsr_format        f = ar_format(q);
    uint64_t                 code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    uint64_t                 meta_bytes = ar_meta_bytes(q, w->cols), groups = ar_groups(q, w->cols);
    struct ar_range         *ranges = job->scratch;
    float                   *row = (float *)(void *)(ranges + groups);
    for (uint64_t r = 0; r < w->rows; r++) {
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        wt_row(row, w, r);
        tsr_status st = wt_check(w, row, job->first_row + r, err);
        if (st != TSR_OK)
            return st;
        ar_ranges(q, row, w->cols, ranges);
        uint64_t held = ar_pack(q, row, NULL, w->cols, ranges, row + w->cols,
                                (unsigned char *)job->codes + r * code_bytes,
                                (unsigned char *)job->meta + r * meta_bytes);
        if (held != groups)
            return wt_affine_refused(&f, w, job->first_row + r, held, err);
    }
    return TSR_OK;
}

static tsr_status ar_dequantize(const void *self, const struct tsr_quant_job *job,
                                struct tsr_err *err)
{
    const struct autoround *q = self;
    struct tsr_format       f = ar_format(q);
    if (f.bits == 0)
        return tsr_fail(err, TSR_E_INVAL, "autoround: an instance without bits");
    return q->rule.minimum ? wt_dequantize_affine(job, &f) : wt_dequantize_int(job, &f);
}

static const struct tsr_quantizer_tune_v1 tune_table = {
    .struct_size = sizeof tune_table,
    .budget = ar_budget,
    .tune = ar_tune,
};

/* Without steps there is nothing to tune, and no calibration is needed. */
static const void *ar_extension(const void *self, const char *id)
{
    const struct autoround *q = self;
    return q->steps && strcmp(id, TSR_QUANTIZER_TUNE) == 0 ? &tune_table : NULL;
}

/* ---- description ----------------------------------------------------------- */

static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes a group; a scale must be a normal F16 number", TSR_F16 },
    { "f32", "4 bytes a group", TSR_F32 },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct autoround_options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct autoround_options, group, 128, -1, INT64_C(1) << 40, "columns",
                   "Columns that share a scale; -1: the whole row."),
    TSR_OPTION_ENUM(struct autoround_options, scale, TSR_F16, scale_choices, "Type of the scales."),
    TSR_OPTION_BOOL(struct autoround_options, minimum, 0,
                    "Store the range's lower end instead of a zero point: tessera.int/2."),
    TSR_OPTION_INT(struct autoround_options, steps, 200, 0, 100000, "steps",
                   "Steps of descent for each block; 0: round to nearest."),
    TSR_OPTION_REAL(struct autoround_options, lr, 0, 0, 1, "",
                    "Size of the first step, falling to 0 at the last one; 0: one over steps."),
    TSR_OPTION_INT(struct autoround_options, batch, 8, 1, 65536, "sequences",
                   "Recorded sequences of one step."),
    TSR_OPTION_INT(struct autoround_options, seed, 0, 0, INT64_MAX, "",
                   "Seed of the choice of sequences."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = ar_create,
    .destroy = ar_destroy,
    .plan = ar_plan,
    .quantize = ar_quantize,
    .dequantize = ar_dequantize,
    .extension = ar_extension,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "autoround",
    .summary = "Rounding and ranges learned per block by the sign of the gradient, 2 to 8 bits.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct autoround_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(autoround) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.autoround",
    .version = "1.0.0",   .license = "Apache-2.0",
    .build = __VERSION__, .components = components,
    .n_components = 1,    .needs_minor = 1,
};
