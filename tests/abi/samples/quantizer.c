/* quantizer.c - a quantizer in the words of ABI minor 0: tessera.int/1 of 8 bits, one F32 scale a
 * row.  Built against the headers of every minor. */
#include <math.h>
#include <string.h>
#include <tessera/quantizer.h>

struct opts {
    int64_t     limit;
    double      share;
    const char *note;
    int32_t     centred, pad;
};

struct self {
    const struct tsr_host *host;
    float                  limit;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    const struct opts *o = opts;
    if (o->share <= 0.0 || strcmp(o->note, "") != 0 || !o->centred)
        return tsr_fail(err, TSR_E_CONFIG, "the options are not as the table describes them");
    struct self *s = host->alloc(host->ctx, sizeof *s, 8);
    if (!s)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes", sizeof *s);
    s->host = host;
    s->limit = (float)o->limit * (float)o->share;
    *self = s;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct self *s = self;
    if (s)
        s->host->release(s->host->ctx, s, sizeof *s);
}

static tsr_status plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *p,
                       struct tsr_err *err)
{
    (void)self;
    if (w->dtype != TSR_F32 || w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: is not F32, or of no size", w->name);
    p->rows_per_unit = 1;
    p->code_bytes = w->cols;
    p->meta_bytes = 4;
    p->format.id = TSR_FORMAT_INT; /* one by one: an older host's copy may be shorter */
    p->format.bits = 8;
    p->format.zero = TSR_ZERO_MID;
    p->format.scale_dtype = TSR_F32;
    return TSR_OK;
}

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct self *s = self;
    uint64_t           cols = job->src->cols;
    for (uint64_t r = 0; r < job->src->rows; r++) {
        const void    *at = (const char *)job->src->data + r * job->src->row_stride;
        const float   *w = at;
        unsigned char *codes = (unsigned char *)job->codes + r * cols;
        float          most = 0.0f;
        for (uint64_t k = 0; k < cols; k++) {
            if (!isfinite(w[k]))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu column %llu is not finite",
                                job->src->name, (unsigned long long)(job->first_row + r),
                                (unsigned long long)k);
            most = fmaxf(most, fabsf(w[k]));
        }
        float scale = most > 1e-20f ? most / s->limit : 1.0f;
        for (uint64_t k = 0; k < cols; k++)
            codes[k] = (unsigned char)(rintf(w[k] / scale) + 128.0f);
        memcpy((char *)job->meta + r * 4, &scale, 4);
    }
    return TSR_OK;
}

static tsr_status dequantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    (void)self;
    (void)err;
    uint64_t cols = job->dst->cols;
    for (uint64_t r = 0; r < job->dst->rows; r++) {
        void                *at = (char *)job->dst->data + r * job->dst->row_stride;
        float               *w = at, scale;
        const unsigned char *codes = (const unsigned char *)job->codes + r * cols;
        memcpy(&scale, (const char *)job->meta + r * 4, 4);
        for (uint64_t k = 0; k < cols; k++)
            w[k] = (float)(codes[k] - 128) * scale;
    }
    return TSR_OK;
}

static const struct tsr_quantizer_v1 table = { .struct_size = sizeof table,
                                               .src_dtypes = 1u << TSR_F32,
                                               .promises = TSR_QUANT_DETERMINISTIC,
                                               .create = create,
                                               .destroy = destroy,
                                               .plan = plan,
                                               .quantize = quantize,
                                               .dequantize = dequantize };

/* An option of every type but enum: the host fills each through its offset. */
static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct opts, limit, 127, 1, 127, NULL, "Largest code."),
    TSR_OPTION_REAL(struct opts, share, 1.0, 0.5, 1.0, NULL, "Share of it that is used."),
    TSR_OPTION_STRING(struct opts, note, "", "Nothing."),
    TSR_OPTION_BOOL(struct opts, centred, 1, "Yes."),
};

static const struct tsr_component component = { .struct_size = sizeof component,
                                                .option_stride = sizeof(struct tsr_option),
                                                .kind = TSR_KIND_QUANTIZER,
                                                .name = "sample",
                                                .summary = "8 bits, one F32 scale a row.",
                                                .iface = &table,
                                                .options = options,
                                                .n_options = sizeof options / sizeof *options,
                                                .options_size = sizeof(struct opts) };

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(sample_quantizer) = {
    TSR_PLUGIN_HEADER,    .id = "org.example.sample.quantizer",
    .version = "1.0.0",   .license = "Apache-2.0",
    .build = __VERSION__, .components = components,
    .n_components = 1,
};
