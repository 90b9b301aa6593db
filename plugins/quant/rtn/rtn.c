/* rtn - round to nearest: every group of a row gets a scale (and a zero point) from its own
 * weights, every weight the nearest code.  The conventions for the range and the order of the
 * F32 operations are those of GPTQ's quantizer, of AWQ's and of absmax; see README.md. */
#include "../affine.h"

struct rtn_options {
    int64_t bits, group;
    int32_t symmetric, mse;
    int64_t range, scale, rounding, seed;
    /* of gptq, so that one set of options serves both: without effect here */
    int32_t act_order, static_groups;
    double  damp;
    int32_t minimum;
    int64_t scale_bits;
    int32_t weighted;
};
#define ACT_ORDER     1 /* gptq's defaults */
#define STATIC_GROUPS 0
#define DAMP          0.01

enum { ROUND_NEAREST, ROUND_STOCHASTIC };

struct rtn {
    const struct tsr_host *host;
    struct wt_rule         rule;
    uint64_t               group; /* 0: the whole row */
    int                    stochastic, weighted;
    uint64_t               seed;
};

/* Changed options that have no effect here. */
static void say_idle(const struct tsr_host *host, const struct rtn_options *o)
{
    char        text[160];
    const char *name[3];
    int         n = 0;
    if (o->act_order != ACT_ORDER)
        name[n++] = "act_order";
    if (o->static_groups != STATIC_GROUPS)
        name[n++] = "static_groups";
    if (o->damp != DAMP)
        name[n++] = "damp";
    if (n == 0)
        return;
    (void)snprintf(text, sizeof text,
                   "rtn: %s%s%s%s%s %s without effect: rounding to nearest has no order of columns "
                   "and no Hessian",
                   name[0], n > 1 ? ", " : "", n > 1 ? name[1] : "", n > 2 ? ", " : "",
                   n > 2 ? name[2] : "", n > 1 ? "are" : "is");
    host->log(host->ctx, TSR_LOG_WARN, text);
}

static tsr_status check_options(const struct rtn_options *o, struct tsr_err *err)
{
    if (o->group == 0)
        return tsr_fail(err, TSR_E_CONFIG,
                        "group: 0 columns share no scale; use -1 for the whole row, or 1 or more");
    if (o->minimum && (o->symmetric || o->range != WT_RANGE_GPTQ || o->rounding != ROUND_NEAREST))
        return tsr_fail(err, TSR_E_CONFIG,
                        "minimum: true rounds to nearest between a group's smallest and largest "
                        "weight; leave symmetric, range and rounding out");
    return wt_affine_check(o->minimum, o->group, o->scale_bits, err);
}

static tsr_status rtn_create(const struct tsr_host *host, const void *opts, void **self,
                             struct tsr_err *err)
{
    const struct rtn_options *o = opts;
    tsr_status                st = check_options(o, err);
    if (st != TSR_OK)
        return st;
    struct rtn *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for rtn", sizeof *q);
    *q = (struct rtn){ .host = host,
                       .rule = { .bits = (uint32_t)o->bits,
                                 .scale_dtype = o->scale_bits ? TSR_F32 : (uint32_t)o->scale,
                                 .symmetric = o->symmetric || o->range == WT_RANGE_ABSMAX,
                                 .mse = o->mse || o->weighted,
                                 .minimum = o->minimum,
                                 .scale_bits = (uint32_t)o->scale_bits,
                                 .range = o->range },
                       .group = o->group < 0 ? 0 : (uint64_t)o->group,
                       .stochastic = o->rounding == ROUND_STOCHASTIC,
                       .weighted = o->weighted,
                       .seed = (uint64_t)o->seed };
    say_idle(host, o);
    *self = q;
    return TSR_OK;
}

static void rtn_destroy(void *self)
{
    struct rtn *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static struct tsr_format rtn_format(const struct rtn *q)
{
    if (q->rule.minimum)
        return wt_affine_format(q->rule.bits, q->group, q->rule.scale_bits, q->rule.scale_dtype);
    return (struct tsr_format){ .id = TSR_FORMAT_INT,
                                .bits = q->rule.bits,
                                .zero = q->rule.symmetric ? TSR_ZERO_MID : TSR_ZERO_STORED,
                                .group = q->group,
                                .scale_dtype = q->rule.scale_dtype };
}

static tsr_status rtn_plan(const void *self, const struct tsr_matrix *w,
                           struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct rtn *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = rtn_format(q);
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = q->rule.minimum ? tsr_format_affine_meta_bytes(&f, w->cols)
                                       : tsr_format_int_meta_bytes(&f, w->cols);
    /* a widened row, the weights of its columns, its groups and its codes */
    plan->scratch_bytes = w->cols * (2 * sizeof(float) + 1) +
                          tsr_format_groups(&f, w->cols) * sizeof(struct wt_params);
    plan->need = q->weighted ? TSR_NEED_MEAN | TSR_NEED_VARIANCE : 0;
    return TSR_OK;
}

/* Philox 4x32-10, Salmon et al., SC 2011: uniform in [0,1) for (seed, row, column). */
static float uniform(uint64_t seed, uint64_t row, uint64_t col)
{
    uint32_t x0 = (uint32_t)col, x1 = (uint32_t)(col >> 32);
    uint32_t x2 = (uint32_t)row, x3 = (uint32_t)(row >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < 10; r++) {
        uint64_t a = UINT64_C(0xD2511F53) * x0, b = UINT64_C(0xCD9E8D57) * x2;
        uint32_t y0 = (uint32_t)(b >> 32) ^ x1 ^ k0, y2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)b;
        x3 = (uint32_t)a;
        x0 = y0;
        x2 = y2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (float)(x0 >> 8) * 0x1p-24f;
}

/* Rounds up with the probability of the fraction, so that the mean over seeds is w. */
static int code_stochastic(const struct wt_params *p, float w, float u)
{
    float x = wt_min(wt_max(w / p->scale, -1024.0f), 1024.0f);
    float down = floorf(x);
    float c = (x - down > u ? down + 1.0f : down) + (float)p->zero;
    return (int)wt_min(wt_max(c, (float)p->lo), (float)p->hi);
}

/* Codes and meta of tessera.int/1 for groups p; the first group whose scale fits no number, or groups. */
static uint64_t put_int(const struct rtn *q, const struct tsr_format *f, const float *row,
                        uint64_t n_row, uint64_t cols, const struct wt_params *p, uint8_t *codes,
                        unsigned char *meta)
{
    uint64_t groups = tsr_format_groups(f, cols), width = groups == 1 ? cols : f->group;
    uint64_t zeros = groups * (f->scale_dtype == TSR_F32 ? 4u : 2u);
    memset(meta, 0, tsr_format_int_meta_bytes(f, cols));
    for (uint64_t g = 0; g < groups; g++) {
        uint64_t begin = g * width, end = g + 1 == groups ? cols : begin + width;
        if (p[g].scale == 0.0f)
            return g;
        wt_scale_put(meta, g, f->scale_dtype, p[g].scale);
        if (!q->rule.symmetric)
            meta[zeros + g] = (unsigned char)p[g].zero;
        for (uint64_t k = begin; k < end; k++)
            codes[k] =
                (uint8_t)(q->stochastic ? code_stochastic(&p[g], row[k], uniform(q->seed, n_row, k))
                                        : wt_code_nearest(&p[g], row[k]));
    }
    return groups;
}

static tsr_status quantize_row(const struct rtn *q, const struct tsr_quant_job *job, uint64_t r,
                               struct tsr_err *err)
{
    const struct tsr_matrix *w = job->src;
    struct tsr_format        f = rtn_format(q);
    uint64_t groups = tsr_format_groups(&f, w->cols), width = groups == 1 ? w->cols : f.group;
    uint64_t code_bytes = tsr_format_int_code_bytes(&f, w->cols), n_row = job->first_row + r, held;
    float   *row = job->scratch, *v = q->weighted ? row + w->cols : NULL;
    struct wt_params *p = (struct wt_params *)(void *)(row + 2 * w->cols);
    uint8_t          *codes = (uint8_t *)(p + groups);
    unsigned char    *to = (unsigned char *)job->codes + r * code_bytes;
    unsigned char    *meta = job->meta;
    wt_row(row, w, r);
    tsr_status st = wt_check(w, row, n_row, err);
    if (st != TSR_OK)
        return st;
    for (uint64_t g = 0; g < groups; g++)
        p[g] = wt_find_params(&q->rule, row + g * width, v ? v + g * width : NULL,
                              g + 1 == groups ? w->cols - g * width : width);
    if (q->rule.minimum) {
        meta += r * tsr_format_affine_meta_bytes(&f, w->cols);
        held = wt_affine_row(&f, row, w->cols, p, codes, to, meta);
        return held == groups ? TSR_OK : wt_affine_refused(&f, w, n_row, held, err);
    }
    meta += r * tsr_format_int_meta_bytes(&f, w->cols);
    held = put_int(q, &f, row, n_row, w->cols, p, codes, meta);
    if (held != groups)
        return wt_scale_refused(q->rule.scale_dtype, w, n_row, held, err);
    wt_pack(to, codes, w->cols, q->rule.bits);
    return TSR_OK;
}

static tsr_status rtn_quantize(const void *self, const struct tsr_quant_job *job,
                               struct tsr_err *err)
{
    const struct rtn *q = self;
    tsr_status        st =
        q->weighted ? wt_weigh(job, (float *)job->scratch + job->src->cols, err) : TSR_OK;
    for (uint64_t r = 0; r < job->src->rows && st == TSR_OK; r++)
        st = q->host->cancelled(q->host->ctx) ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                                              : quantize_row(q, job, r, err);
    return st;
}

static tsr_status rtn_dequantize(const void *self, const struct tsr_quant_job *job,
                                 struct tsr_err *err)
{
    struct tsr_format f = rtn_format(self);
    (void)err;
    return ((const struct rtn *)self)->rule.minimum ? wt_dequantize_affine(job, &f)
                                                    : wt_dequantize_int(job, &f);
}

/* If the range contains every weight, only the rounding of the scale can push one out of the codes:
 * a normal F16 is off by up to 2^-11, and the range's end by that share of its 2^bits-1 steps.  F32
 * scales may be subnormal, and then the rounding error has no bound in steps. */
static double rtn_max_error_steps(const void *self)
{
    const struct rtn *q = self;
    if (q->rule.mse || q->rule.minimum || q->rule.range == WT_RANGE_AWQ ||
        q->rule.scale_dtype != TSR_F16)
        return 0.0;
    return q->stochastic ? 1.0 : 0.5 + ((1 << q->rule.bits) - 1) * 0x1p-11;
}

/* A group's codes depend only on its own weights, except if they are drawn or weighted by column. */
static uint64_t rtn_columns_alone(const void *self)
{
    const struct rtn *q = self;
    return q->stochastic || q->weighted ? 0 : q->rule.scale_bits ? TSR_AFFINE_SUPER : q->group;
}

static const struct tsr_choice range_choices[] = {
    { "gptq", "0 is always inside the range; asymmetric or symmetric as GPTQ's code",
      WT_RANGE_GPTQ },
    { "awq", "smallest to largest weight, zero point clamped, as AWQ's code", WT_RANGE_AWQ },
    { "absmax", "symmetric, step = largest |w| / (2^(bits-1)-1)", WT_RANGE_ABSMAX },
};
static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes a group; a scale must be a normal F16 number", TSR_F16 },
    { "f32", "4 bytes a group", TSR_F32 },
};
static const struct tsr_choice rounding_choices[] = {
    { "nearest", "nearest code, ties to even", ROUND_NEAREST },
    { "stochastic", "up or down by the fraction, random numbers by (seed, row, column)",
      ROUND_STOCHASTIC },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct rtn_options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct rtn_options, group, 128, -1, INT64_C(1) << 40, "columns",
                   "Columns that share a scale; -1: the whole row."),
    TSR_OPTION_BOOL(struct rtn_options, symmetric, 0,
                    "Range -m..m without a stored zero point (absmax always is)."),
    TSR_OPTION_ENUM(struct rtn_options, range, WT_RANGE_GPTQ, range_choices,
                    "How a group's range is found."),
    TSR_OPTION_BOOL(struct rtn_options, mse, 0,
                    "Search the clipped range with the smallest sum |w - w^|^2.4, 80 trials."),
    TSR_OPTION_ENUM(struct rtn_options, scale, TSR_F16, scale_choices, "Type of the scales."),
    TSR_OPTION_ENUM(struct rtn_options, rounding, ROUND_NEAREST, rounding_choices,
                    "How a weight becomes a code."),
    TSR_OPTION_INT(struct rtn_options, seed, 0, 0, INT64_MAX, NULL, "Seed of stochastic rounding."),
    TSR_OPTION_BOOL(struct rtn_options, act_order, ACT_ORDER,
                    "As gptq has it; without effect: there is no order of columns."),
    TSR_OPTION_BOOL(struct rtn_options, static_groups, STATIC_GROUPS,
                    "As gptq has it; without effect: groups are always of the original weights."),
    TSR_OPTION_REAL(struct rtn_options, damp, DAMP, 0.0, 100.0, NULL,
                    "As gptq has it; without effect: there is no Hessian."),
    TSR_OPTION_BOOL(struct rtn_options, minimum, 0,
                    "Store the range's lower end instead of a zero point: tessera.int/2."),
    TSR_OPTION_INT(
        struct rtn_options, scale_bits, 0, 0, 8, "bits",
        "With minimum: 4, 6 or 8: codes of scales and minimums under two F16 factors for "
        "256 columns; 0: stored as they are."),
    TSR_OPTION_BOOL(
        struct rtn_options, weighted, 0,
        "Search the clipped range with the smallest sum of squares, columns weighted by "
        "the mean square of their inputs."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = rtn_create,
    .destroy = rtn_destroy,
    .plan = rtn_plan,
    .quantize = rtn_quantize,
    .dequantize = rtn_dequantize,
    .max_error_steps = rtn_max_error_steps,
    .columns_alone = rtn_columns_alone,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "rtn",
    .summary = "Round to nearest, per group, 2 to 8 bits.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct rtn_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(rtn) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.rtn",  .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,  .needs_minor = 0,
};
