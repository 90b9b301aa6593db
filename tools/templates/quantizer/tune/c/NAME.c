/* @NAME@ - a quantizer that packs the linears of a block together (tessera/quantizer_tune.h).  Each weight has an offset
 * of up to half a step that moves it to the other neighbour.  A trial gives the derivatives of the block's error, and the
 * offsets go against their sign.  The layout is tessera.int/1. */
#include <math.h>
#include <string.h>
#include <tessera/quantizer_tune.h>

struct options {
    int64_t bits, group, steps;
};

struct quantizer {
    const struct tsr_host *host;
    const struct options  *o; /* the host keeps both until destroy() */
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct quantizer *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *q);
    *q = (struct quantizer){ host, opts };
    *self = q;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct quantizer *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static tsr_status plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *p,
                       struct tsr_err *err)
{
    const struct options *o = ((const struct quantizer *)self)->o;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: no weights, or too many", w->name);
    p->format.id = TSR_FORMAT_INT;
    p->format.bits = (uint32_t)o->bits;
    p->format.group = (uint64_t)o->group;
    p->format.scale_dtype = TSR_F32;
    p->rows_per_unit = 1; /* any run of rows may come on its own */
    p->code_bytes = tsr_format_int_code_bytes(&p->format, w->cols);
    p->meta_bytes = tsr_format_int_meta_bytes(&p->format, w->cols);
    return TSR_OK;
}

/* The step of a group: its largest weight takes the outermost code. */
static float step_of(const float *w, uint64_t n, float top)
{
    float largest = 0.0f;
    for (uint64_t k = 0; k < n; k++)
        largest = fmaxf(largest, fabsf(w[k]));
    return largest > 0.0f ? largest / top : 1.0f;
}

/* Steps of a row. */
static tsr_status steps_of(const struct options *o, const struct tsr_matrix *m, uint64_t r,
                           unsigned long long row, float *step, struct tsr_err *err)
{
    const float *w = (float *)((char *)m->data + r * m->row_stride);
    uint64_t     cols = m->cols, group = (uint64_t)o->group;
    float        top = (float)((1 << (o->bits - 1)) - 1);
    for (unsigned long long k = 0; k < cols; k++)
        if (!isfinite(w[k]))
            return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, column %llu is not finite", m->name,
                            row, k);
    for (uint64_t k = 0; k < cols; k += group, step++) {
        *step = step_of(w + k, cols - k < group ? cols - k : group, top);
        if (!isnormal(*step) || !isnormal(*step * top))
            return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, group %llu: no F32 step fits",
                            m->name, row, (unsigned long long)(k / group));
    }
    return TSR_OK;
}

/* Codes of a row.  offset: in steps, or NULL. */
static void pack(const struct options *o, const float *w, const float *offset, uint64_t cols,
                 const float *step, unsigned char *codes)
{
    uint64_t bits = (uint64_t)o->bits;
    float    top = (float)((1 << (bits - 1)) - 1);
    memset(codes, 0, (cols * bits + 7) / 8);
    for (uint64_t k = 0, bit = 0; k < cols; k++, bit += bits) {
        float    x = w[k] / step[k / (uint64_t)o->group] + (offset ? offset[k] : 0.0f);
        unsigned code = (unsigned)(fminf(fmaxf(rintf(x), -top), top) + top + 1.0f) << bit % 8;
        codes[bit / 8] |= (unsigned char)code; /* in up to two bytes */
        if (bit % 8 + bits > 8)
            codes[bit / 8 + 1] |= (unsigned char)(code >> 8);
    }
}

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct quantizer  *q = self;
    const struct tsr_matrix *m = job->src;
    uint64_t                 groups = tsr_format_groups(
        &(struct tsr_format){ .group = (uint64_t)q->o->group }, m->cols);
    for (uint64_t r = 0; r < m->rows; r++) {
        float     *step = (float *)job->meta + r * groups;
        tsr_status st = q->host->cancelled(q->host->ctx)
                            ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                            : steps_of(q->o, m, r, job->first_row + r, step, err);
        if (st != TSR_OK)
            return st;
        pack(q->o, (float *)((char *)m->data + r * m->row_stride), NULL, m->cols, step,
             (unsigned char *)job->codes + r * ((m->cols * (uint64_t)q->o->bits + 7) / 8));
    }
    return TSR_OK;
}

static tsr_status dequantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct options *o = ((const struct quantizer *)self)->o;
    uint64_t cols = job->dst->cols, group = (uint64_t)o->group, bits = (uint64_t)o->bits;
    const unsigned char *codes = job->codes;
    const float         *step = job->meta;
    (void)err;
    for (uint64_t r = 0; r < job->dst->rows; r++, codes += (cols * bits + 7) / 8) {
        float *w = (float *)((char *)job->dst->data + r * job->dst->row_stride);
        for (uint64_t k = 0, bit = 0; k < cols; k++, bit += bits) {
            int code = codes[bit / 8] >> bit % 8;
            if (bit % 8 + bits > 8)
                code |= codes[bit / 8 + 1] << (8 - bit % 8);
            step += k % group == 0;
            w[k] = (float)((code & ((1 << bits) - 1)) - (1 << (bits - 1))) * step[-1];
        }
    }
    return TSR_OK;
}

/* ---- the block ---- */

/* A linear of the block, all arrays [rows, cols]. */
struct linear {
    const struct tsr_matrix *w;
    struct tsr_matrix        trial; /* its data: the weights as they decode */
    float                   *offset, *best, *gradient;
};

struct tuning {
    const struct quantizer      *q;
    const struct tsr_tune_block *b;
    struct tsr_tune_packed *const *packed;
    struct linear               *lin;
    const struct tsr_matrix    **list;
    float                      **gradients;
    double                       least;
};

/* Steps, a trial for each, and one at the end. */
static uint64_t budget(const void *self)
{
    return (uint64_t)((const struct quantizer *)self)->o->steps + 1;
}

/* The weights under the offsets, decoded. */
static void decode(const struct tuning *t, uint64_t i)
{
    const struct options *o = t->q->o;
    struct linear        *l = &t->lin[i];
    uint64_t              cols = l->w->cols, group = (uint64_t)o->group;
    uint64_t              groups = (cols + group - 1) / group;
    float                 top = (float)((1 << (o->bits - 1)) - 1);
    for (uint64_t r = 0; r < l->w->rows; r++) {
        const float *w = (float *)((char *)l->w->data + r * l->w->row_stride);
        const float *step = (float *)t->packed[i]->meta + r * groups;
        for (uint64_t k = 0; k < cols; k++) {
            float s = step[k / group], x = w[k] / s + l->offset[r * cols + k];
            ((float *)l->trial.data)[r * cols + k] = fminf(fmaxf(rintf(x), -top), top) * s;
        }
    }
}

/* A trial of the offsets; the best ones are kept. */
static tsr_status try_offsets(struct tuning *t, int gradients, struct tsr_err *err)
{
    struct tsr_tune_trial  trial = { .struct_size = sizeof trial, .linears = t->list,
                                     .gradients = gradients ? t->gradients : NULL };
    struct tsr_tune_trial *trials[] = { &trial };
    for (uint64_t i = 0; i < t->b->n_linears; i++)
        decode(t, i);
    tsr_status st = t->q->host->cancelled(t->q->host->ctx)
                        ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                        : t->b->run(t->b->ctx, NULL, 0, trials, 1, err);
    if (st != TSR_OK || !(trial.mse < t->least))
        return st;
    t->least = trial.mse;
    for (uint64_t i = 0; i < t->b->n_linears; i++)
        memcpy(t->lin[i].best, t->lin[i].offset,
               t->lin[i].w->rows * t->lin[i].w->cols * sizeof(float));
    return TSR_OK;
}

static tsr_status descend(struct tuning *t, struct tsr_err *err)
{
    int64_t steps = t->b->no_gradients ? 0 : t->q->o->steps;
    for (int64_t s = 0; s < steps; s++) {
        float      rate = (float)(steps - s) / (float)(steps * steps); /* together half a step */
        tsr_status st = try_offsets(t, 1, err);
        if (st != TSR_OK)
            return st;
        for (uint64_t i = 0; i < t->b->n_linears; i++)
            for (uint64_t k = 0; k < t->lin[i].w->rows * t->lin[i].w->cols; k++) {
                float g = t->lin[i].gradient[k], v = t->lin[i].offset[k];
                v -= g > 0.0f ? rate : g < 0.0f ? -rate : 0.0f;
                t->lin[i].offset[k] = fminf(fmaxf(v, -0.5f), 0.5f);
            }
    }
    if (t->b->no_gradients)
        t->q->host->log(t->q->host->ctx, TSR_LOG_WARN, t->b->no_gradients);
    return try_offsets(t, 0, err);
}

/* Steps into the packed form; lays the arrays of a linear out from `at` on. */
static tsr_status begin(struct tuning *t, uint64_t i, float *at, struct tsr_err *err)
{
    struct linear *l = &t->lin[i];
    uint64_t       n, group = (uint64_t)t->q->o->group;
    l->w = t->b->linears[i];
    n = l->w->rows * l->w->cols;
    l->trial = *l->w;
    l->trial.data = at;
    l->trial.row_stride = l->w->cols * sizeof(float);
    l->gradient = at + n;
    l->offset = at + 2 * n;
    l->best = at + 3 * n;
    memset(l->offset, 0, 2 * n * sizeof(float));
    t->list[i] = &l->trial;
    t->gradients[i] = l->gradient;
    for (uint64_t r = 0; r < l->w->rows; r++) {
        float     *step = (float *)t->packed[i]->meta + r * ((l->w->cols + group - 1) / group);
        tsr_status st = steps_of(t->q->o, l->w, r, r, step, err);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}

static tsr_status tune(const void *self, const struct tsr_tune_block *b,
                       struct tsr_tune_packed *const *packed, struct tsr_err *err)
{
    struct tuning          t = { .q = self, .b = b, .packed = packed, .least = INFINITY };
    const struct tsr_host *host = t.q->host;
    uint64_t               numbers = 0;
    tsr_status             st = TSR_OK;
    for (uint64_t i = 0; i < b->n_linears; i++)
        numbers += 4 * b->linears[i]->rows * b->linears[i]->cols;
    uint64_t bytes = b->n_linears * (sizeof *t.lin + 2 * sizeof(void *)) + numbers * sizeof(float);
    t.lin = host->alloc(host->ctx, bytes, 64);
    if (!t.lin)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for %s",
                        (unsigned long long)bytes, b->name);
    t.list = (const struct tsr_matrix **)(t.lin + b->n_linears);
    t.gradients = (float **)(t.list + b->n_linears);
    float *at = (float *)(t.gradients + b->n_linears);
    for (uint64_t i = 0; i < b->n_linears && st == TSR_OK; i++) {
        st = begin(&t, i, at, err);
        at += 4 * b->linears[i]->rows * b->linears[i]->cols;
    }
    if (st == TSR_OK)
        st = descend(&t, err);
    for (uint64_t i = 0; i < b->n_linears && st == TSR_OK; i++) {
        const struct linear *l = &t.lin[i];
        uint64_t cols = l->w->cols, group = (uint64_t)t.q->o->group;
        for (uint64_t r = 0; r < l->w->rows; r++)
            pack(t.q->o, (float *)((char *)l->w->data + r * l->w->row_stride), l->best + r * cols,
                 cols, (float *)packed[i]->meta + r * ((cols + group - 1) / group),
                 (unsigned char *)packed[i]->codes + r * ((cols * (uint64_t)t.q->o->bits + 7) / 8));
    }
    host->release(host->ctx, t.lin, bytes);
    return st;
}

static const void *extension(const void *self, const char *id)
{
    static const struct tsr_quantizer_tune_v1 table = { .struct_size = sizeof table,
                                                        .budget = budget, .tune = tune };
    (void)self;
    return strcmp(id, TSR_QUANTIZER_TUNE) == 0 ? &table : NULL;
}

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof table, .src_dtypes = 1u << TSR_F32, .promises = TSR_QUANT_DETERMINISTIC,
    .create = create, .destroy = destroy, .plan = plan, .quantize = quantize,
    .dequantize = dequantize, .extension = extension,
};
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct options, group, 128, 1, 65536, "columns", "Columns that share a step."),
    TSR_OPTION_INT(struct options, steps, 32, 1, 1000, NULL, "Steps of the descent over a block."),
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof options[0],
    .kind = TSR_KIND_QUANTIZER, .name = "@NAME@", .iface = &table,
    .summary = "Roundings that are learned block by block.",
    .options = options, .n_options = 3, .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
