/* rows.c - a quantizer as somebody outside would write it in C: a scale per row, 2 to 8 bits. */
#include <tessera/quantizer.h>

#include <float.h>
#include <math.h>
#include <string.h>

struct options {
    int64_t bits;
};

struct rows {
    const struct tsr_host *host;
    struct tsr_format      format;
};

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    const struct options *o = opts;
    struct rows          *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes", sizeof *q);
    *q = (struct rows){ .host = host,
                        .format = { .struct_size = sizeof(struct tsr_format),
                                    .id = TSR_FORMAT_INT,
                                    .bits = (uint32_t)o->bits,
                                    .zero = TSR_ZERO_MID,
                                    .scale_dtype = TSR_F32 } };
    *self = q;
    return TSR_OK;
}

static void destroy(void *self)
{
    struct rows *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static tsr_status plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *p,
                       struct tsr_err *err)
{
    const struct rows *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    tsr_format_store(&p->format, &q->format);
    p->rows_per_unit = 1;
    p->code_bytes = tsr_format_int_code_bytes(&q->format, w->cols);
    p->meta_bytes = tsr_format_int_meta_bytes(&q->format, w->cols);
    return TSR_OK;
}

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct rows       *q = self;
    const struct tsr_matrix *w = job->src;
    uint64_t                 bytes = tsr_format_int_code_bytes(&q->format, w->cols);
    float                    middle = (float)(1 << (q->format.bits - 1));
    for (uint64_t r = 0; r < w->rows; r++) {
        const float *x = (const float *)((const char *)w->data + r * w->row_stride);
        uint8_t     *codes = (uint8_t *)job->codes + r * bytes;
        float        largest = 0;
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        for (uint64_t k = 0; k < w->cols; k++) {
            if (!isfinite(x[k]))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, column %llu is not finite",
                                w->name, (unsigned long long)(job->first_row + r),
                                (unsigned long long)k);
            largest = fmaxf(largest, fabsf(x[k]));
        }
        float scale = largest / (middle - 1);
        if (scale < FLT_MIN) /* then every code is the middle one, or nearly so */
            scale = FLT_MIN;
        memcpy((char *)job->meta + r * sizeof scale, &scale, sizeof scale);
        memset(codes, 0, bytes);
        for (uint64_t k = 0, bit = 0; k < w->cols; k++, bit += q->format.bits) {
            uint32_t code = (uint32_t)(nearbyintf(x[k] / scale) + middle);
            uint32_t at = code << bit % 8;
            codes[bit / 8] |= (uint8_t)at;
            if (bit % 8 + q->format.bits > 8)
                codes[bit / 8 + 1] |= (uint8_t)(at >> 8);
        }
    }
    return TSR_OK;
}

static tsr_status dequantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct rows *q = self;
    uint64_t           bytes = tsr_format_int_code_bytes(&q->format, job->dst->cols);
    uint32_t           bits = q->format.bits;
    (void)err;
    for (uint64_t r = 0; r < job->dst->rows; r++) {
        const uint8_t *codes = (const uint8_t *)job->codes + r * bytes;
        float         *y = (float *)((char *)job->dst->data + r * job->dst->row_stride), scale;
        memcpy(&scale, (const char *)job->meta + r * sizeof scale, sizeof scale);
        for (uint64_t k = 0, bit = 0; k < job->dst->cols; k++, bit += bits) {
            uint32_t two = codes[bit / 8];
            if (bit % 8 + bits > 8)
                two |= (uint32_t)codes[bit / 8 + 1] << 8;
            uint32_t code = two >> bit % 8 & ((1u << bits) - 1);
            y[k] = (float)((int32_t)code - (1 << (bits - 1))) * scale;
        }
    }
    return TSR_OK;
}

static const struct tsr_option options[] = {
    TSR_OPTION_INT(struct options, bits, 8, 2, 8, "bits", "Width of a code."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = create,
    .destroy = destroy,
    .plan = plan,
    .quantize = quantize,
    .dequantize = dequantize,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "rows-c",
    .summary = "A scale per row, in C.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(rows_c) = {
    TSR_PLUGIN_HEADER,    .id = "org.example.rows-c", .version = "1.2.0", .license = "MIT",
    .build = __VERSION__, .components = components,   .n_components = 1,
};
