/* gptq - the component: options, sizes, and a run of rows as tiles.  See README.md. */
#include "gptq.h"

#define GROUP         128 /* the defaults */
#define DEFAULT_ALPHA 0.25

struct gptq_options {
    int64_t bits, group;
    int32_t symmetric, mse, act_order, static_groups;
    double  damp;
    int64_t scale, params, refine, block, scale_bits;
    int32_t minimum;
    int64_t element;
    int32_t asymmetric;
    double  alpha;
};

/* Options that FP4 grids leave no choice of. */
static tsr_status check_fp4(const struct gptq_options *o, struct tsr_err *err)
{
    int64_t group = (int64_t)wt_fp4_format((int)o->element).group;
    if (o->bits != 4 || (o->group != GROUP && o->group != group))
        return tsr_fail(err, TSR_E_CONFIG,
                        "element: its numbers have 4 bits in blocks of %lld; leave bits and group "
                        "out",
                        (long long)group);
    if (o->symmetric || o->minimum || o->scale_bits || o->mse || o->params == GPTQ_PARAMS_RANGE)
        return tsr_fail(err, TSR_E_CONFIG,
                        "element: its blocks have no range and no minimum, and scales of their own "
                        "kind; leave symmetric, minimum, scale_bits, mse and params out");
    return TSR_OK;
}

static tsr_status check_options(const struct gptq_options *o, struct tsr_err *err)
{
    if (o->group == 0)
        return tsr_fail(err, TSR_E_CONFIG,
                        "group: 0 columns share no scale; use -1 for the whole row, or 1 or more");
    if (o->params == GPTQ_PARAMS_RANGE && o->group > 0 && o->act_order && !o->static_groups)
        return tsr_fail(err, TSR_E_CONFIG,
                        "act_order with params: range would find a group's range in the middle of "
                        "its columns; add static_groups: true, or use params: weighted");
    if (o->alpha != DEFAULT_ALPHA && !o->asymmetric)
        return tsr_fail(err, TSR_E_CONFIG,
                        "alpha: there is no correction to take a part of; add asymmetric: true");
    if (o->element)
        return check_fp4(o, err);
    if (o->minimum && o->symmetric)
        return tsr_fail(err, TSR_E_CONFIG,
                        "minimum: true stores the lower end of a range; leave symmetric out");
    if (o->scale_bits && o->params == GPTQ_PARAMS_RANGE && !o->static_groups)
        return tsr_fail(err, TSR_E_CONFIG,
                        "scale_bits: the scales of 256 columns are found together; add "
                        "static_groups: true, or use params: weighted");
    return wt_affine_check(o->minimum, o->group, o->scale_bits, err);
}

static tsr_status gptq_create(const struct tsr_host *host, const void *opts, void **self,
                              struct tsr_err *err)
{
    const struct gptq_options *o = opts;
    tsr_status                 st = check_options(o, err);
    if (st != TSR_OK)
        return st;
    struct gptq *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for gptq", sizeof *q);
    int weighted = o->element                      ? 1
                   : o->params == GPTQ_PARAMS_AUTO ? o->group > 0 && !o->static_groups
                                                   : o->params == GPTQ_PARAMS_WEIGHTED;
    *q = (struct gptq){ .host = host,
                        .rule = { .bits = (uint32_t)o->bits,
                                  .scale_dtype = o->scale_bits ? TSR_F32 : (uint32_t)o->scale,
                                  .symmetric = o->symmetric,
                                  .mse = o->mse,
                                  .minimum = o->minimum,
                                  .fp4 = (int)o->element,
                                  .scale_bits = (uint32_t)o->scale_bits,
                                  .range = WT_RANGE_GPTQ },
                        .group = o->element     ? wt_fp4_format((int)o->element).group
                                 : o->group < 0 ? 0
                                                : (uint64_t)o->group,
                        .weighted = weighted,
                        .dynamic = !weighted && o->group > 0 && !o->static_groups,
                        .act_order = o->act_order,
                        .damp = o->damp,
                        .refine = (uint64_t)o->refine,
                        .block = (uint64_t)o->block,
                        .alpha = o->asymmetric ? o->alpha : 0.0,
                        .avx2 = gptq_has_avx2() };
    if (weighted && o->mse)
        host->log(
            host->ctx, TSR_LOG_WARN,
            "gptq: mse is without effect with params: weighted (auto, but for static_groups and "
            "whole rows), whose search of scales takes its place; params: range goes by it");
    *self = q;
    return TSR_OK;
}

static void gptq_destroy(void *self)
{
    struct gptq *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

/* ---- scratch ------------------------------------------------------------------------- */

/* Assigns the tile's arrays one after the other; returns the bytes.  base may be NULL. */
static uint64_t lay_out(struct gptq_tile *t, unsigned char *base)
{
    uint64_t       lanes = GPTQ_LANES, at = 0, block = t->q->block;
    const uint64_t size[] = { t->cols * lanes * 4,
                              t->cols * lanes * 4,
                              t->groups * lanes * 4,
                              t->groups * lanes * 4,
                              block * lanes * 4,
                              block * block * 4,
                              t->cols * 4,
                              t->cols * lanes,
                              t->cols,
                              t->groups * sizeof *t->p,
                              gptq_meta_bytes(t->q, t->cols),
                              block * lanes * 4 };
    void          *part[sizeof size / sizeof *size];
    for (uint64_t i = 0; i < sizeof size / sizeof *size; i++) {
        part[i] = base ? base + at : NULL;
        at += (size[i] + 63) / 64 * 64;
    }
    t->w = part[0];
    t->e = part[1];
    t->scale = part[2];
    t->zero = part[3];
    t->side = part[4];
    t->tri = part[5];
    t->row = part[6];
    t->codes = part[7];
    t->out = part[8];
    t->p = part[9];
    t->spare = part[10];
    t->before = part[11];
    return at;
}

static struct gptq_tile tile_of(const struct gptq *q, uint64_t cols)
{
    struct tsr_format f = gptq_format(q);
    uint64_t          groups = tsr_format_groups(&f, cols);
    return (struct gptq_tile){
        .q = q, .cols = cols, .groups = groups, .width = groups == 1 ? cols : f.group
    };
}

static tsr_status gptq_plan(const void *self, const struct tsr_matrix *w,
                            struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct gptq *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 24)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "a matrix of %llu x %llu cannot be quantized by its Hessian",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = gptq_format(q);
    struct gptq_tile  t = tile_of(q, w->cols);
    uint64_t          rows = q->rule.fp4 == WT_FP4_NV ? w->rows : 1;
    if (rows > UINT64_C(1) << 36)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%llu rows are too many for one divisor",
                        (unsigned long long)rows);
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = q->rule.fp4 == WT_FP4_NV ? 0 : 1; /* a divisor of the whole tensor */
    plan->code_bytes = rows * tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = rows * gptq_meta_bytes(q, w->cols);
    plan->scratch_bytes = lay_out(&t, NULL);
    plan->need = TSR_NEED_HESSIAN | (q->alpha > 0.0 ? TSR_NEED_CROSS : 0);
    return TSR_OK;
}

/* ---- a run of rows --------------------------------------------------------------------- */

static tsr_status gptq_prepare(void *self, const struct tsr_quant_stats *stats, void **prepared,
                               struct tsr_err *err)
{
    struct gptq_site *s = NULL;
    tsr_status        st = gptq_site_create(self, stats, &s, err);
    if (st == TSR_OK)
        *prepared = s;
    return st;
}

static void gptq_unprepare(void *self, void *prepared)
{
    gptq_site_destroy(self, prepared);
}

static tsr_status quantize_tile(struct gptq_tile *t, double *loss, double *rtn_loss,
                                struct tsr_err *err)
{
    tsr_status st = gptq_load(t, err);
    if (st == TSR_OK && t->q->weighted)
        st = t->q->rule.fp4 ? gptq_fp4_params(t, err) : gptq_params_weighted(t, err);
    if (st == TSR_OK && t->q->rule.scale_bits)
        st = gptq_params_codes(t, err);
    if (st == TSR_OK)
        st = gptq_columns(t, err);
    if (st == TSR_OK)
        st = gptq_refine(t, loss, err);
    if (st == TSR_OK && rtn_loss) {
        gptq_nearest(t);
        st = gptq_push(t, 0, t->cols, err);
    }
    if (st == TSR_OK && rtn_loss)
        st = gptq_loss(t, rtn_loss, err);
    return st;
}

/* All tiles of a run, one after the other. */
static tsr_status quantize_tiles(struct gptq_tile *t, const struct tsr_quant_job *job, double *loss,
                                 double *rtn_loss, struct tsr_err *err)
{
    struct tsr_format f = gptq_format(t->q);
    uint64_t          code_bytes = tsr_format_int_code_bytes(&f, t->cols);
    uint64_t          meta_bytes = gptq_meta_bytes(t->q, t->cols);
    if (t->q->rule.fp4)
        t->grid = gptq_fp4_grid(t->q, t->src, t->row);
    for (t->first = 0; t->first < t->src->rows; t->first += GPTQ_LANES) {
        t->rows = gptq_min(GPTQ_LANES, t->src->rows - t->first);
        t->n_row = job->first_row + t->first;
        t->meta = (unsigned char *)job->meta + t->first * meta_bytes;
        tsr_status st = quantize_tile(t, loss ? loss + t->first : NULL,
                                      rtn_loss ? rtn_loss + t->first : NULL, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t lane = 0; lane < t->rows; lane++)
            gptq_pack(t, &f, lane, (unsigned char *)job->codes + (t->first + lane) * code_bytes,
                      t->meta + lane * meta_bytes);
    }
    return TSR_OK;
}

static tsr_status quantize_reporting(const void *self, const struct tsr_quant_job *job,
                                     double *loss, double *rtn_loss, struct tsr_err *err)
{
    const struct gptq       *q = self;
    const struct gptq_site  *s = job->prepared;
    const struct tsr_matrix *w = job->src;
    if (!s || !job->stats || !job->stats->hessian || s->cols != w->cols)
        return tsr_fail(err, TSR_E_INVAL, "gptq was prepared for other inputs");
    struct gptq_tile t = tile_of(q, w->cols);
    tsr_status       st = TSR_OK;
    t.site = s;
    t.hessian = job->stats->hessian;
    t.src = w;
    (void)lay_out(&t, job->scratch);
    if (gptq_can_move(s->la)) { /* one place on the device for all tiles */
        uint64_t n = t.cols * GPTQ_LANES;
        memset(t.e, 0, n * sizeof *t.e);
        if ((st = s->la->hold(s->la->ctx, t.e, n, err)) != TSR_OK)
            return st;
        t.held = 1;
    }
    st = quantize_tiles(&t, job, loss, rtn_loss, err);
    if (t.held)
        (void)s->la->drop(s->la->ctx, t.e, 0, NULL);
    return st;
}

static tsr_status gptq_quantize(const void *self, const struct tsr_quant_job *job,
                                struct tsr_err *err)
{
    return quantize_reporting(self, job, NULL, NULL, err);
}

static tsr_status gptq_dequantize(const void *self, const struct tsr_quant_job *job,
                                  struct tsr_err *err)
{
    struct tsr_format f = gptq_format(self);
    (void)err;
    const struct wt_rule *q = &((const struct gptq *)self)->rule;
    if (q->fp4)
        return wt_dequantize_fp4(job, q->fp4);
    return q->minimum ? wt_dequantize_affine(job, &f) : wt_dequantize_int(job, &f);
}

static void report_prepared(const void *self, const void *prepared,
                            struct tsr_quant_prepare_report *out)
{
    const struct gptq_site *s = prepared;
    (void)self;
    out->damping = s->damping;
    out->retries = s->retries;
}

static const struct tsr_quantizer_report_v1 report = {
    .struct_size = sizeof report,
    .quantize = quantize_reporting,
    .prepared = report_prepared,
};

static const void *gptq_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_QUANTIZER_REPORT) == 0 ? &report : NULL;
}

/* ---- descriptor ------------------------------------------------------------------------ */

static const struct tsr_choice scale_choices[] = {
    { "f16", "2 bytes a group; a scale must be a normal F16 number", TSR_F16 },
    { "f32", "4 bytes a group", TSR_F32 },
};
static const struct tsr_choice params_choices[] = {
    { "auto", "weighted for groups that are not static, else range", GPTQ_PARAMS_AUTO },
    { "range", "from the range of the weights, as GPTQ's code", GPTQ_PARAMS_RANGE },
    { "weighted", "the clipped range with the least error, columns weighted by 1/(H^-1)_kk",
      GPTQ_PARAMS_WEIGHTED },
};

static const struct tsr_choice element_choices[] = {
    { "int", "a whole number", WT_FP4_NONE },
    { "nvfp4", "E2M1 in blocks of 16 with E4M3 scales", WT_FP4_NV },
    { "mxfp4", "E2M1 in blocks of 32 with powers of two", WT_FP4_MX },
};

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct gptq_options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct gptq_options, group, GROUP, -1, INT64_C(1) << 40, "columns",
                   "Columns that share a scale; -1: the whole row."),
    TSR_OPTION_BOOL(struct gptq_options, symmetric, 0, "Range -m..m without a stored zero point."),
    TSR_OPTION_BOOL(struct gptq_options, mse, 0,
                    "With params by range: search the clipped range with the smallest sum "
                    "|w - w^|^2.4, 80 trials."),
    TSR_OPTION_BOOL(struct gptq_options, act_order, 1,
                    "Quantize columns in descending order of the Hessian's diagonal."),
    TSR_OPTION_BOOL(struct gptq_options, static_groups, 0,
                    "With params by range: ranges of the original weights, not of those that carry "
                    "the errors of earlier columns."),
    TSR_OPTION_REAL(struct gptq_options, damp, 0.01, 0.0, 100.0, NULL,
                    "Added to the Hessian's diagonal, in units of its mean; doubled until it can "
                    "be factored."),
    TSR_OPTION_ENUM(struct gptq_options, scale, TSR_F16, scale_choices, "Type of the scales."),
    TSR_OPTION_ENUM(struct gptq_options, params, GPTQ_PARAMS_AUTO, params_choices,
                    "How scales and zero points are found."),
    TSR_OPTION_INT(struct gptq_options, refine, 1, 0, 100, "sweeps",
                   "Sweeps of coordinate descent over the codes afterwards; 0: GPTQ as published."),
    { .name = "block",
      .help = "Columns that are quantized before their errors are spread over the rest.",
      .unit = "columns",
      .type = TSR_OPT_INT,
      .flags = TSR_OPT_ADVANCED,
      .offset = TSR_FIELD(struct gptq_options, block, int64_t),
      .def = { .i = 128 },
      .min = { .i = 16 },
      .max = { .i = 1024 } },
    TSR_OPTION_BOOL(struct gptq_options, minimum, 0,
                    "Store the range's lower end instead of a zero point: tessera.int/2."),
    TSR_OPTION_INT(
        struct gptq_options, scale_bits, 0, 0, 8, "bits",
        "With minimum: 4, 6 or 8: codes of scales and minimums under two F16 factors for "
        "256 columns; 0: stored as they are."),
    TSR_OPTION_ENUM(struct gptq_options, element, WT_FP4_NONE, element_choices,
                    "What a code is; nvfp4 and mxfp4 have their own bits, groups and scales."),
    TSR_OPTION_BOOL(struct gptq_options, asymmetric, 0,
                    "Aim at the outputs of the original model on its own inputs: needs "
                    "`sequential`."),
    TSR_OPTION_REAL(struct gptq_options, alpha, DEFAULT_ALPHA, 0.0, 1.0, NULL,
                    "With asymmetric: the part of the correction that is applied."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = gptq_create,
    .destroy = gptq_destroy,
    .plan = gptq_plan,
    .quantize = gptq_quantize,
    .dequantize = gptq_dequantize,
    .prepare = gptq_prepare,
    .unprepare = gptq_unprepare,
    .extension = gptq_extension,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "gptq",
    .summary = "GPTQ: rounding errors spread by the inputs' Hessian, 2 to 8 bits.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct gptq_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(gptq) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.gptq", .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,  .needs_minor = 0,
};
