/* @NAME@ - a quantizer that scales the inputs of a block (tessera/quantizer_block.h) before it rounds to nearest.  Each
 * site takes the scale whose rounded weights move its output least; with `hadamard` the input of down_proj is transformed
 * as well.  The layout is tessera.int/1. */
#include <math.h>
#include <string.h>
#include <tessera/quantizer_block.h>

struct options {
    int64_t bits, group;
    int32_t hadamard;
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

/* ---- the block ---- */

#define TRIES 5 /* scale = (largest input of the column)^(i / (TRIES + 1)) */

static uint64_t block_need(const void *self)
{
    (void)self;
    return TSR_NEED_ABSMAX | TSR_NEED_INPUTS; /* loss() runs on the inputs */
}

static uint64_t clip_group(const void *self, uint64_t cols)
{
    (void)self;
    (void)cols;
    return 0; /* it clips nothing */
}

/* Rows [begin, end) of a linear as they decode under the scale, into a matrix without gaps. */
struct trial {
    const struct options    *o;
    const struct tsr_matrix *w;
    const float             *scale;
    float                   *out;
};

static tsr_status round_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct trial *t = arg;
    uint64_t            cols = t->w->cols, group = (uint64_t)t->o->group;
    float               top = (float)((1 << (t->o->bits - 1)) - 1);
    for (uint64_t r = begin; r < end; r++) {
        const float *w = (float *)((char *)t->w->data + r * t->w->row_stride);
        float       *out = t->out + r * cols, step = 1.0f;
        for (uint64_t k = 0; k < cols; k++)
            out[k] = w[k] * t->scale[k];
        for (uint64_t k = 0; k < cols; k++) {
            if (k % group == 0)
                step = step_of(out + k, cols - k < group ? cols - k : group, top);
            out[k] = fminf(fmaxf(rintf(out[k] / step), -top), top) * step / t->scale[k];
        }
    }
    return TSR_OK;
}

/* The scale of try i. */
static void scale_of(float *scale, const struct tsr_block_site *s, int i)
{
    for (uint64_t k = 0; k < s->cols; k++)
        scale[k] = s->stats->absmax[k] > 0.0f
                       ? powf(s->stats->absmax[k], (float)i / (TRIES + 1))
                       : 1.0f;
}

/* The best scale of a site.  memory: its linears, then a scale. */
static tsr_status scale_site(const struct quantizer *q, const struct tsr_block *b, uint64_t site,
                             struct tsr_matrix *m, const struct tsr_matrix **list, float *memory,
                             float *best, struct tsr_err *err)
{
    const struct tsr_host       *host = q->host;
    const struct tsr_block_site *s = b->sites[site];
    float                       *at = memory;
    double                       least = INFINITY, loss;
    for (uint64_t i = 0; i < s->n_linears; i++, at += s->cols * s->linears[i - 1]->rows) {
        m[i] = *s->linears[i];
        m[i].data = at;
        m[i].row_stride = s->cols * sizeof(float);
        list[i] = &m[i];
    }
    for (int try = 0; try < TRIES; try++) {
        scale_of(at, s, try);
        for (uint64_t i = 0; i < s->n_linears; i++) {
            struct trial t = { q->o, s->linears[i], at, m[i].data };
            tsr_status   st = host->parallel_for(host->ctx, m[i].rows, 8, round_rows, &t);
            if (st != TSR_OK)
                return tsr_fail(err, st, "stopped");
        }
        tsr_status st = host->cancelled(host->ctx) ? tsr_fail(err, TSR_E_CANCELLED, "stopped")
                                                   : b->loss(b->ctx, site, list, &loss, err);
        if (st != TSR_OK)
            return st;
        if (loss < least) {
            least = loss;
            memcpy(best, at, s->cols * sizeof *best);
        }
    }
    return TSR_OK;
}

static tsr_status search_site(const struct quantizer *q, const struct tsr_block *b, uint64_t site,
                              float *best, struct tsr_err *err)
{
    const struct tsr_host       *host = q->host;
    const struct tsr_block_site *s = b->sites[site];
    uint64_t                     rows = 1, bytes;
    if (!s->stats || !s->stats->absmax || s->stats->cols != s->cols)
        return tsr_fail(err, TSR_E_INVAL, "%s, site %s: statistics of its inputs are missing",
                        b->name, s->name);
    for (uint64_t k = 0; k < s->cols; k++)
        if (!isfinite(s->stats->absmax[k]))
            return tsr_fail(err, TSR_E_NUMERIC, "%s, site %s: inputs of column %llu are not finite",
                            b->name, s->name, (unsigned long long)k);
    for (uint64_t i = 0; i < s->n_linears; i++)
        rows += s->linears[i]->rows;
    bytes = s->n_linears * (sizeof(struct tsr_matrix) + sizeof(void *)) +
            rows * s->cols * sizeof(float);
    struct tsr_matrix *m = host->alloc(host->ctx, bytes, 64);
    if (!m)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %llu bytes for %s, site %s",
                        (unsigned long long)bytes, b->name, s->name);
    const struct tsr_matrix **list = (const struct tsr_matrix **)(m + s->n_linears);
    tsr_status st = scale_site(q, b, site, m, list, (float *)(list + s->n_linears), best, err);
    host->release(host->ctx, m, bytes);
    return st;
}

static tsr_status search(const void *self, const struct tsr_block *block,
                         struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    const struct quantizer *q = self;
    for (uint64_t i = 0; i < block->n_sites; i++) {
        const struct tsr_block_site *s = block->sites[i];
        tsr_status                   st = TSR_OK;
        if (s->producer != TSR_PRODUCER_NONE)
            st = search_site(q, block, i, choices[i]->scale, err);
        if (st != TSR_OK)
            return st;
        if (q->o->hadamard && TSR_HAS(struct tsr_block_site, s, takes) &&
            s->takes & TSR_TAKES_HADAMARD)
            choices[i]->hadamard = s->hadamard_cols;
    }
    return TSR_OK;
}

static const void *extension(const void *self, const char *id)
{
    static const struct tsr_quantizer_block_v1 block = { .struct_size = sizeof block,
                                                         .block_need = block_need,
                                                         .clip_group = clip_group,
                                                         .search = search };
    (void)self;
    return strcmp(id, TSR_QUANTIZER_BLOCK) == 0 ? &block : NULL;
}

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof table, .src_dtypes = 1u << TSR_F32, .promises = TSR_QUANT_DETERMINISTIC,
    .create = create, .destroy = destroy, .plan = plan, .quantize = quantize,
    .dequantize = dequantize, .extension = extension, .max_error_steps = max_error_steps,
};
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct options, bits, 4, 2, 8, "bits", "Width of a code."),
    TSR_OPTION_INT(struct options, group, 128, 1, 65536, "columns", "Columns that share a step."),
    TSR_OPTION_BOOL(struct options, hadamard, 0, "Transform the inputs of down_proj in every pass."),
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .option_stride = sizeof options[0],
    .kind = TSR_KIND_QUANTIZER, .name = "@NAME@", .iface = &table,
    .summary = "Round to nearest, with scales of the block's inputs.",
    .options = options, .n_options = 3, .options_size = sizeof(struct options),
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
