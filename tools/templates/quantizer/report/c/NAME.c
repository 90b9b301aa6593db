/* @NAME@ - a quantizer that reports its losses (tessera/quantizer_report.h).  A group takes the one of eight steps that
 * moves outputs least, by the diagonal of the Hessian.  The layout is tessera.int/1. */
#include <math.h>
#include <string.h>
#include <tessera/quantizer_report.h>

struct options {
    int64_t bits, group;
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
    p->need = TSR_NEED_HESSIAN;
    p->scratch_bytes = w->cols * sizeof(float); /* the error of a row */
    return TSR_OK;
}

/* w as a multiple of the step. */
static float code_of(float w, float step, float top)
{
    return fminf(fmaxf(rintf(w / step), -top), top);
}

/* The step that lets the largest weight keep its value. */
static float widest(const float *w, uint64_t n, float top)
{
    float largest = 0.0f;
    for (uint64_t k = 0; k < n; k++)
        largest = fmaxf(largest, fabsf(w[k]));
    return largest > 0.0f ? largest / top : 1.0f;
}

/* The best of eight steps for the columns from `at` on: an error in column k counts by hessian[k][k]. */
static float step_of(const float *w, uint64_t at, uint64_t n, float top, const float *hessian,
                     uint64_t cols)
{
    float  wide = widest(w + at, n, top), best = wide;
    double least = INFINITY;
    for (int i = 0; i < 8; i++) {
        float  step = wide * (1.0f - 0.05f * (float)i);
        double sum = 0.0;
        for (uint64_t k = at; k < at + n; k++) {
            double e = (double)(w[k] - code_of(w[k], step, top) * step);
            sum += e * e * (double)hessian[k * cols + k];
        }
        if (sum < least) {
            least = sum;
            best = step;
        }
    }
    return best;
}

/* e H e^T */
static double loss_of(const float *e, const float *hessian, uint64_t cols)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < cols; i++)
        for (uint64_t j = 0; j < cols && e[i] != 0.0f; j++)
            sum += (double)e[i] * (double)e[j] * (double)hessian[i * cols + j];
    return sum > 0.0 ? sum : 0.0; /* a sum of rounded products may be a little below */
}

/* The loss of rounding to nearest with the widest steps. */
static double rtn_of(const float *w, uint64_t cols, uint64_t group, float top, const float *hessian,
                     float *e)
{
    for (uint64_t k = 0; k < cols; k += group) {
        uint64_t n = cols - k < group ? cols - k : group;
        float    step = widest(w + k, n, top);
        for (uint64_t i = k; i < k + n; i++)
            e[i] = w[i] - code_of(w[i], step, top) * step;
    }
    return loss_of(e, hessian, cols);
}

/* One row: its steps, its codes, and in e what they leave. */
static tsr_status pack(const struct options *o, const struct tsr_quant_job *job, uint64_t r,
                       float *step, unsigned char *codes, struct tsr_err *err)
{
    uint64_t     cols = job->src->cols, group = (uint64_t)o->group, bits = (uint64_t)o->bits;
    float        top = (float)((1 << (bits - 1)) - 1), *e = job->scratch;
    const float *w = (float *)((char *)job->src->data + r * job->src->row_stride);
    unsigned long long row = job->first_row + r;
    for (unsigned long long k = 0; k < cols; k++)
        if (!isfinite(w[k]))
            return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, column %llu is not finite",
                            job->src->name, row, k);
    memset(codes, 0, (cols * bits + 7) / 8);
    for (uint64_t k = 0, bit = 0; k < cols; k++, bit += bits) {
        if (k % group == 0)
            *step++ = step_of(w, k, cols - k < group ? cols - k : group, top,
                              job->stats->hessian, cols);
        if (!isnormal(step[-1]) || !isnormal(step[-1] * top))
            return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, group %llu: no F32 step fits",
                            job->src->name, row, (unsigned long long)(k / group));
        float    n = code_of(w[k], step[-1], top);
        unsigned code = (unsigned)(n + top + 1.0f) << bit % 8; /* in up to two bytes */
        codes[bit / 8] |= (unsigned char)code;
        if (bit % 8 + bits > 8)
            codes[bit / 8 + 1] |= (unsigned char)(code >> 8);
        e[k] = w[k] - n * step[-1];
    }
    return TSR_OK;
}

/* quantize() of the report: the same bytes, and the losses of each row where they are wanted. */
static tsr_status report_quantize(const void *self, const struct tsr_quant_job *job, double *loss,
                                  double *rtn_loss, struct tsr_err *err)
{
    const struct quantizer *q = self;
    uint64_t cols = job->src->cols, group = (uint64_t)q->o->group, bits = (uint64_t)q->o->bits;
    float         *step = job->meta;
    unsigned char *codes = job->codes;
    if (!job->stats || !job->stats->hessian || job->stats->cols != cols)
        return tsr_fail(err, TSR_E_INVAL, "%s: the Hessian of its inputs is missing",
                        job->src->name);
    for (uint64_t r = 0; r < job->src->rows; r++) {
        const float *w = (float *)((char *)job->src->data + r * job->src->row_stride);
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        tsr_status st = pack(q->o, job, r, step, codes, err);
        if (st != TSR_OK)
            return st;
        if (loss)
            loss[r] = loss_of(job->scratch, job->stats->hessian, cols);
        if (rtn_loss)
            rtn_loss[r] = rtn_of(w, cols, group, (float)((1 << (bits - 1)) - 1),
                                 job->stats->hessian, job->scratch);
        step += (cols + group - 1) / group;
        codes += (cols * bits + 7) / 8;
    }
    return TSR_OK;
}

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    return report_quantize(self, job, NULL, NULL, err);
}

/* There is no prepare(), so nothing was damped. */
static void prepared(const void *self, const void *made, struct tsr_quant_prepare_report *out)
{
    (void)self;
    (void)made;
    out->damping = 0.0;
    out->retries = 0;
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

static const void *extension(const void *self, const char *id)
{
    static const struct tsr_quantizer_report_v1 report = { .struct_size = sizeof report,
                                                           .quantize = report_quantize,
                                                           .prepared = prepared };
    (void)self;
    return strcmp(id, TSR_QUANTIZER_REPORT) == 0 ? &report : NULL;
}

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof table, .src_dtypes = 1u << TSR_F32, .promises = TSR_QUANT_DETERMINISTIC,
    .create = create, .destroy = destroy, .plan = plan, .quantize = quantize,
    .dequantize = dequantize, .extension = extension,
};
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct options, group, 128, 1, 65536, "columns", "Columns that share a step."),
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof options[0],
    .kind = TSR_KIND_QUANTIZER, .name = "@NAME@", .iface = &table,
    .summary = "Steps by the Hessian of the inputs, with a report of the losses.",
    .options = options, .n_options = 2, .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
