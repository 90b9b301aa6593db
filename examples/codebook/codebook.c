/* codebook.c - weights of two bits by a codebook, with a kernel of its own: four weights are one byte, the number of
 * one of 256 vectors.
 *
 * A code's high four bits choose magnitudes from a table of 16, its low four bits their signs.  64 columns share a
 * scale, an F16 number.  The format is "org.example.codebook/1", which no backend reads: without the table of
 * tessera/kernel.h a host would decode it row by row.  Its product looks up a vector for each byte, and
 * multiplies it with four inputs.  When weights are loaded, each scale moves next to the codes of its group, so that a
 * product reads a row in one stream; inputs are padded with zeros once for all rows.  codebook.cu has the same product for a CUDA device.
 *
 * examples/README.md has the command that builds it. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tessera/draft/kernel_device.h>
#include <tessera/f16.h>
#include <tessera/kernel.h>
#include <tessera/quantizer.h>

#include "codebook.h"
#include "codebook_rows.h"

static const float magnitudes[16][EACH] = MAGNITUDES;

static float scale_at(const unsigned char *row, uint64_t cols, uint64_t g)
{
    uint16_t h;
    memcpy(&h, row + CODES_OF(cols) + 2 * g, sizeof h);
    return tsr_f16_f32(h);
}

static tsr_status create(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err)
{
    struct quantizer *q = host->alloc(host->ctx, sizeof *q, 64);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "codebook: out of memory: %zu bytes", sizeof *q);
    memset(q, 0, sizeof *q);
    q->host = host;
    q->o = opts;
#if defined __x86_64__
    q->wide = q->o->avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    for (unsigned code = 0; code < 256; code++)
        for (unsigned i = 0; i < EACH; i++) {
            float m = magnitudes[code >> 4][i];
            q->vector[code][i] = code >> i & 1 ? -m : m;
        }
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
    p->rows_per_unit = 1;
    p->code_bytes = ROW_BYTES(w->cols);
    tsr_format_store(&p->format, &(struct tsr_format){ .id = "org.example.codebook/1" });
    return TSR_OK;
}

/* The code of the vector that is closest to v times `inverse`; columns that are not there count as zero weights. */
static unsigned nearest(const float *v, uint64_t n, float inverse)
{
    unsigned best = 0, signs = 0;
    float    least = INFINITY, u[EACH] = { 0 };
    for (uint64_t i = 0; i < n; i++) {
        u[i] = fabsf(v[i]) * inverse;
        signs |= (unsigned)(v[i] < 0.0f) << i;
    }
    for (unsigned m = 0; m < 16; m++) {
        float d = 0.0f;
        for (uint64_t i = 0; i < n; i++)
            d += (u[i] - magnitudes[m][i]) * (u[i] - magnitudes[m][i]);
        if (d < least) {
            least = d;
            best = m;
        }
    }
    return best << 4 | signs;
}

/* Codes of a group, and the scale that fits them best: from the mean square, then once by least squares. */
static int pack_group(const struct quantizer *q, const float *w, uint64_t n, unsigned char *codes,
                      uint16_t *h)
{
    double square = 0.0;
    for (uint64_t k = 0; k < n; k++)
        square += (double)w[k] * (double)w[k];
    float scale = square > 0.0 ? (float)(sqrt(square / (double)n) / 0.85) : 0.0f;
    for (int round = 0; round < 2; round++) {
        double dot = 0.0, self = 0.0;
        for (uint64_t k = 0; k < n; k += EACH) {
            uint64_t some = n - k < EACH ? n - k : EACH;
            unsigned code = nearest(w + k, some, scale > 0.0f ? 1.0f / scale : 0.0f);
            codes[k / EACH] = (unsigned char)code;
            for (uint64_t i = 0; i < some; i++) {
                dot += (double)w[k + i] * (double)q->vector[code][i];
                self += (double)q->vector[code][i] * (double)q->vector[code][i];
            }
        }
        if (round == 0 && dot > 0.0)
            scale = (float)(dot / self);
    }
    *h = tsr_f32_f16(scale);
    return isfinite(tsr_f16_f32(*h)) && (square <= 0.0 || (*h & 0x7c00));
}

static tsr_status quantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct quantizer *q = self;
    uint64_t                cols = job->src->cols;
    unsigned char          *row = job->codes;
    for (uint64_t r = 0; r < job->src->rows; r++, row += ROW_BYTES(cols)) {
        unsigned long long at = job->first_row + r;
        const float *w = (const float *)((const char *)job->src->data + r * job->src->row_stride);
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        for (unsigned long long k = 0; k < cols; k++)
            if (!isfinite(w[k]))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, column %llu is not finite",
                                job->src->name, at, k);
        for (unsigned long long g = 0; g < GROUPS_OF(cols); g++) {
            uint64_t n = cols - g * GROUP < GROUP ? cols - g * GROUP : GROUP;
            uint16_t h;
            if (!pack_group(q, w + g * GROUP, n, row + g * (GROUP / EACH), &h))
                return tsr_fail(err, TSR_E_NUMERIC, "%s: row %llu, group %llu: no F16 scale fits",
                                job->src->name, at, g);
            memcpy(row + CODES_OF(cols) + 2 * g, &h, sizeof h);
        }
    }
    return TSR_OK;
}

static tsr_status dequantize(const void *self, const struct tsr_quant_job *job, struct tsr_err *err)
{
    const struct quantizer *q = self;
    uint64_t                cols = job->dst->cols;
    const unsigned char    *row = job->codes;
    (void)err;
    for (uint64_t r = 0; r < job->dst->rows; r++, row += ROW_BYTES(cols)) {
        float *w = (float *)((char *)job->dst->data + r * job->dst->row_stride);
        for (uint64_t k = 0; k < cols; k++)
            w[k] = q->vector[row[k / EACH]][k % EACH] * scale_at(row, cols, k / GROUP);
    }
    return TSR_OK;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static tsr_status scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                          uint64_t *bytes, struct tsr_err *err)
{
    const struct quantizer *q = self;
    int whole = w->segment == w->cols, end = w->first_col + w->n_cols == w->cols;
    if (!whole && (!q->o->columns || w->first_col % LANES || w->segment % LANES ||
                   (w->n_cols % LANES && !end)))
        return tsr_fail(err, TSR_E_UNSUPPORTED, "codebook: these columns are not multiplied alone");
    (void)n;
    *bytes = 0;
    return TSR_OK;
}

static tsr_status prepared(const void *self, const struct tsr_kernel_weight *w, uint64_t *bytes,
                           struct tsr_err *err)
{
    (void)self;
    (void)err;
    *bytes = w->n_rows * ROW_BYTES(w->cols);
    return TSR_OK;
}

/* Each scale behind the codes of its group. */
static tsr_status prepare(const void *self, const struct tsr_kernel_weight *w, void *to,
                          struct tsr_err *err)
{
    const unsigned char *row = w->codes;
    unsigned char       *p = to;
    (void)self;
    (void)err;
    for (uint64_t r = 0; r < w->n_rows; r++, row += ROW_BYTES(w->cols))
        for (uint64_t g = 0; g < GROUPS_OF(w->cols); g++) {
            uint64_t left = CODES_OF(w->cols) - g * CODES, n = left < CODES ? left : CODES;
            memcpy(p, row + g * CODES, n);
            memcpy(p + n, row + CODES_OF(w->cols) + 2 * g, 2);
            p += n + 2;
        }
    return TSR_OK;
}

static tsr_status input_bytes(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                              uint64_t *bytes, struct tsr_err *err)
{
    (void)self;
    (void)err;
    *bytes = w->n_cols % LANES ? n * PADDED(w->n_cols) * sizeof(float) : 0;
    return TSR_OK;
}

/* Zeros behind the columns, where they fill no vector. */
static tsr_status inputs(const void *self, const struct tsr_kernel_job *job, void *to,
                         struct tsr_err *err)
{
    uint64_t cols = job->weight->n_cols, stride = PADDED(cols);
    float   *x = to;
    (void)self;
    (void)err;
    for (uint64_t t = 0; cols % LANES && t < job->n; t++, x += stride) {
        memcpy(x, job->in + t * job->in_stride, cols * sizeof *x);
        memset(x + cols, 0, (stride - cols) * sizeof *x);
    }
    return TSR_OK;
}

static int alike(const void *self, const struct tsr_kernel_weight *w, const void *other,
                 const struct tsr_kernel_weight *its, uint64_t n)
{
    (void)self;
    (void)other;
    (void)n;
    return w->n_cols == its->n_cols;
}

static tsr_status linear(const void *self, const struct tsr_kernel_job *job, struct tsr_err *err)
{
    const struct quantizer         *q = self;
    const struct tsr_kernel_weight *w = job->weight;
    const float                    *x = job->in;
    uint64_t                        cols = w->n_cols, stride = job->in_stride;
    const unsigned char            *first = w->codes;
    (void)err;
    if (cols % LANES) { /* padded with zeros */
        stride = PADDED(cols);
        x = (const float *)job->inputs + job->first * stride;
    }
    if (w->prepared)
        first = (const unsigned char *)w->prepared +
                (w->first_row - w->prepared_row) * ROW_BYTES(w->cols);
    for (uint64_t r = 0, rows; r < w->n_rows; r += rows) { /* a row's bytes in their order */
        const unsigned char *row = first + r * ROW_BYTES(w->cols);
        float               *out = job->out + r;
        rows = q->wide && w->n_rows - r >= ROWS ? ROWS : 1;
        for (uint64_t k = 0; k < cols; k += w->segment, out += job->out_segment) {
            uint64_t       n = cols - k < w->segment ? cols - k : w->segment;
            struct columns c = { w->first_col + k, w->first_col + k + n, w->cols,
                                 w->prepared != NULL };
            if (rows == ROWS)
                wide_rows(q, row, x + k, stride, job->n, &c, out, job->out_stride);
            else
                for (uint64_t t = 0; t < job->n; t++)
                    out[t * job->out_stride] = plain_row(q, row, x + k + t * stride, &c);
        }
    }
    return TSR_OK;
}

#define KERNEL                                                                                     \
    .struct_size = sizeof(struct tsr_quantizer_kernel_v1), .scratch = scratch, .linear = linear,   \
    .input_bytes = input_bytes, .inputs = inputs, .alike = alike

static const struct tsr_quantizer_kernel_v1 kernel = { KERNEL, .prepared = prepared,
                                                       .prepare = prepare };
static const struct tsr_quantizer_kernel_v1 kernel_of_stored = { KERNEL };

static const void *extension(const void *self, const char *id)
{
    const struct quantizer *q = self;
    if (q->o->kernel && strcmp(id, TSR_QUANTIZER_KERNEL) == 0)
        return q->o->prepare ? &kernel : &kernel_of_stored;
    return q->o->kernel && q->o->device && strcmp(id, TSR_QUANTIZER_KERNEL_DEVICE) == 0
               ? &codebook_device
               : NULL;
}

/* ---- the plugin --------------------------------------------------------------------------------- */

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof table,
    .src_dtypes = 1u << TSR_F32,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = create,
    .destroy = destroy,
    .plan = plan,
    .quantize = quantize,
    .dequantize = dequantize,
    .extension = extension,
};

static const struct tsr_option options[] = {
    TSR_OPTION_BOOL(struct options, kernel, 1, "Offer the kernel; false: dequantize alone."),
    TSR_OPTION_BOOL(struct options, columns, 1,
                    "Multiply runs of columns; false: whole rows alone."),
    TSR_OPTION_BOOL(struct options, avx2, 1, "Use AVX2 where the CPU has it."),
    TSR_OPTION_BOOL(struct options, device, 1,
                    "Offer the kernel for devices; false: they multiply on the CPU."),
    TSR_OPTION_BOOL(struct options, prepare, 1,
                    "Rearrange weights when they are loaded; false: multiply with them as stored."),
};

static const struct tsr_component component = {
    .struct_size = sizeof component,
    .option_stride = sizeof options[0],
    .kind = TSR_KIND_QUANTIZER,
    .name = "codebook",
    .summary = "Two bits a weight: a byte names one of 256 vectors of four.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct options),
};

TSR_PLUGIN_SYMBOL(codebook) = {
    TSR_PLUGIN_HEADER,    .id = "org.example.codebook",
    .version = "0.1.0",   .license = "Apache-2.0",
    .build = __VERSION__, .components = &(const struct tsr_component *const){ &component },
    .n_components = 1,
};
