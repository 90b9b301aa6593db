/* @NAME@ - a quantizer with a format of its own and kernels for the CPU (tessera/kernel.h) and for CUDA devices
 * (tessera/draft/kernel_device.h, a draft: it may change).  32 columns are a record.  No backend reads "@ID@/1", so linear()
 * multiplies with it, and on a device @NAME@.cu to the same bits.  With a GPU:
 * make check CHECKFLAGS="--on PREFIX/lib/tessera/cuda.so" */
#include <math.h>
#include <string.h>
#include <tessera/draft/kernel_device.h>

#include "@NAME@.h"
#ifdef IMAGE /* a file with the array image, which nvcc and bin2c make of @NAME@.cu */
#include IMAGE
#endif

struct quantizer {
    const struct tsr_host *host;
};

static uint64_t records(uint64_t cols)
{
    return (cols + GROUP - 1) / GROUP;
}

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct quantizer *q = host->alloc(host->ctx, sizeof *q, 16);
    (void)opts;
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "@NAME@: out of memory: %zu bytes", sizeof *q);
    *q = (struct quantizer){ host };
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
    (void)self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: no weights, or too many", w->name);
    tsr_format_store(&p->format, &(struct tsr_format){ .id = "@ID@/1" });
    p->rows_per_unit = 1; /* any run of rows may come on its own */
    p->code_bytes = records(w->cols) * sizeof(struct record);
    return TSR_OK;
}

/* Fills a record; returns the column that it cannot hold, or n. */
static uint64_t pack(const float *w, uint64_t n, struct record *to)
{
    uint64_t top = 0; /* of the largest weight */
    for (uint64_t k = 0; k < n; k++)
        if (!isfinite(w[k]))
            return k;
        else if (fabsf(w[k]) > fabsf(w[top]))
            top = k;
    memset(to, 0, sizeof *to);
    to->step = w[top] != 0.0f ? fabsf(w[top]) / 7.0f : 1.0f;
    if (!isnormal(to->step) || !isfinite(to->step * 8.0f))
        return top;
    for (uint64_t k = 0; k < n; k++) {
        float code = fminf(fmaxf(rintf(w[k] / to->step), -7.0f), 7.0f) + 8.0f;
        to->codes[k / 2] |= (unsigned char)((unsigned)code << k % 2 * 4);
    }
    return n;
}

static float value(const struct record *r, uint64_t k)
{
    return (float)((r->codes[k / 2] >> k % 2 * 4 & 15) - 8);
}

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct quantizer *q = self;
    uint64_t                cols = job->src->cols;
    struct record          *to = job->codes;
    for (uint64_t r = 0; r < job->src->rows; r++) {
        const float *w = (float *)((char *)job->src->data + r * job->src->row_stride);
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        for (uint64_t k = 0; k < cols; k += GROUP, to++) {
            uint64_t n = cols - k < GROUP ? cols - k : GROUP, at = pack(w + k, n, to);
            if (at < n)
                return tsr_fail(err, TSR_E_NUMERIC,
                                "%s: row %llu, column %llu is not finite, or fits no step",
                                job->src->name, (unsigned long long)(job->first_row + r),
                                (unsigned long long)(k + at));
        }
    }
    return TSR_OK;
}

static tsr_status dequantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    uint64_t             cols = job->dst->cols;
    const struct record *from = job->codes;
    (void)self;
    (void)err;
    for (uint64_t r = 0; r < job->dst->rows; r++, from += records(cols)) {
        float *w = (float *)((char *)job->dst->data + r * job->dst->row_stride);
        for (uint64_t k = 0; k < cols; k++)
            w[k] = value(from + k / GROUP, k % GROUP) * from[k / GROUP].step;
    }
    return TSR_OK;
}

/* ---- the kernel ---- */

static tsr_status scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                          uint64_t *bytes, struct tsr_err *err)
{
    uint64_t end = w->first_col + w->n_cols;
    (void)self;
    (void)n;
    *bytes = 0;
    if (w->first_col % GROUP || (end % GROUP && end < w->cols) ||
        (w->segment % GROUP && w->segment < w->n_cols))
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: columns that are part of a record");
    return TSR_OK;
}

static tsr_status linear(const void *self, const struct tsr_kernel_job *job, struct tsr_err *err)
{
    const struct tsr_kernel_weight *w = job->weight;
    const struct record            *row = w->codes;
    (void)self;
    (void)err;
    row += w->first_col / GROUP;
    for (uint64_t r = 0; r < w->n_rows; r++, row += records(w->cols))
        for (uint64_t t = 0; t < job->n; t++) {
            const float *x = job->in + t * job->in_stride;
            float       *out = job->out + t * job->out_stride + r, sum = 0.0f;
            for (uint64_t k = 0; k < w->n_cols; k += GROUP) {
                uint64_t n = w->n_cols - k < GROUP ? w->n_cols - k : GROUP;
                float    part = 0.0f;
                for (uint64_t i = 0; i < n; i++)
                    part += x[k + i] * value(row + k / GROUP, i);
                sum += part * row[k / GROUP].step;
                if ((k + n) % w->segment == 0 || k + n == w->n_cols) { /* the end of a segment */
                    *out = sum;
                    out += job->out_segment;
                    sum = 0.0f;
                }
            }
        }
    return TSR_OK;
}

/* ---- the same on a device ---- */

static tsr_status device_code(const void *self, const char *target,
                              const struct tsr_device_code **code, struct tsr_err *err)
{
    (void)self;
#ifdef IMAGE
    static const char *const            kernels[] = { "@NAME@_linear" };
    static const struct tsr_device_code cuda = {
        .struct_size = sizeof cuda, .n_kernels = 1, .image = image, .bytes = sizeof image,
        .kernels = kernels,
    };
    if (strcmp(target, "cuda") == 0) {
        *code = &cuda;
        return TSR_OK;
    }
#endif
    *code = NULL;
    return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: built without code for %s", target);
}

static tsr_status device_scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                                 uint64_t *bytes, struct tsr_err *err)
{
    (void)self;
    *bytes = 0;
    if (n > 65535 || w->n_rows / BLOCK >= INT32_MAX)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "@NAME@: more tokens or rows than a launch has");
    return TSR_OK;
}

static tsr_status launch(const void *self, const struct tsr_device_job *job,
                         struct tsr_device_launch *l, struct tsr_err *err)
{
    const struct tsr_kernel_weight *w = job->weight;
    const struct @NAME@_args a = {
        .codes = job->codes, .in = job->in, .out = job->out, .in_stride = job->in_stride,
        .out_stride = job->out_stride, .out_segment = job->out_segment,
        .records = records(w->cols), .first_col = w->first_col, .n_cols = w->n_cols,
        .segment = w->segment, .rows = w->n_rows,
    };
    (void)self;
    (void)err;
    l->threads = BLOCK;
    l->grid[0] = (uint32_t)((w->n_rows + BLOCK - 1) / BLOCK);
    l->grid[1] = (uint32_t)job->n;
    l->grid[2] = (uint32_t)((w->n_cols + w->segment - 1) / w->segment);
    l->args_bytes = sizeof a;
    memcpy(l->args, &a, sizeof a);
    return TSR_OK;
}

static const void *extension(const void *self, const char *id)
{
    static const struct tsr_quantizer_kernel_v1 kernel = { .struct_size = sizeof kernel,
                                                           .scratch = scratch, .linear = linear };
    static const struct tsr_quantizer_kernel_device_v1 device = {
        .struct_size = sizeof device, .code = device_code, .scratch = device_scratch,
        .launch = launch,
    };
    (void)self;
    return strcmp(id, TSR_QUANTIZER_KERNEL) == 0          ? (const void *)&kernel
           : strcmp(id, TSR_QUANTIZER_KERNEL_DEVICE) == 0 ? (const void *)&device
                                                          : NULL;
}

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof table, .src_dtypes = 1u << TSR_F32, .promises = TSR_QUANT_DETERMINISTIC,
    .create = create, .destroy = destroy, .plan = plan, .quantize = quantize,
    .dequantize = dequantize, .extension = extension,
};
static const struct tsr_component component = {
    .struct_size = sizeof component, .kind = TSR_KIND_QUANTIZER, .name = "@NAME@",
    .iface = &table, .summary = "Round to nearest in a format of its own, with kernels for CPU and GPU.",
};
TSR_PLUGIN_SYMBOL(@NAME@) = {
    TSR_PLUGIN_HEADER, .id = "@ID@", .version = "0.1.0", .license = "@LICENSE@",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
