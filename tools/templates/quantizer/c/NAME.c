/* @NAME@ - round to nearest: groups of columns share a step, a weight becomes its nearest multiple.
 * The layout is tessera.int/1 (see tessera/format.h), so that every backend can read it. */
#include <math.h>
#include <string.h>
#include <tessera/quantizer.h>

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

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct quantizer *q = self;
    uint64_t cols = job->src->cols, group = (uint64_t)q->o->group, bits = (uint64_t)q->o->bits;
    float    top = (float)((1 << (bits - 1)) - 1), *step = job->meta;
    unsigned char *codes = job->codes;
    for (uint64_t r = 0; r < job->src->rows; r++, codes += (cols * bits + 7) / 8) {
        unsigned long long row = job->first_row + r;
        const float       *w = (float *)((char *)job->src->data + r * job->src->row_stride);
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        for (unsigned long long k = 0; k < cols; k++)
            if (!isfinite(w[k]))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, column %llu is not finite",
                                job->src->name, row, k);
        memset(codes, 0, (cols * bits + 7) / 8);
        for (uint64_t k = 0, bit = 0; k < cols; k++, bit += bits) {
            if (k % group == 0)
                *step++ = step_of(w + k, cols - k < group ? cols - k : group, top);
            if (!isnormal(step[-1]) || !isnormal(step[-1] * top))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, group %llu: no F32 step fits",
                                job->src->name, row, (unsigned long long)(k / group));
            float    n = fminf(fmaxf(rintf(w[k] / step[-1]), -top), top);
            unsigned code = (unsigned)(n + top + 1.0f) << bit % 8; /* in up to two bytes */
            codes[bit / 8] |= (unsigned char)code;
            if (bit % 8 + bits > 8)
                codes[bit / 8 + 1] |= (unsigned char)(code >> 8);
        }
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

static double max_error_steps(const void *self) { (void)self; return 0.5; } /* a promise, too */

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof table, .src_dtypes = 1u << TSR_F32, .promises = TSR_QUANT_DETERMINISTIC,
    .create = create, .destroy = destroy, .plan = plan, .quantize = quantize,
    .dequantize = dequantize, .max_error_steps = max_error_steps,
};
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct options, group, 128, 1, 65536, "columns", "Columns that share a step."),
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof options[0],
    .kind = TSR_KIND_QUANTIZER, .name = "@NAME@", .iface = &table,
    .summary = "Round to nearest, a step for each group of columns.",
    .options = options, .n_options = 2, .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
