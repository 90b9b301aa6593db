/* codebook.c - weights of two bits by a codebook, with a kernel of its own: four weights are one byte, the number of
 * one of 256 vectors.
 *
 * A code's high four bits choose magnitudes from a table of 16, its low four bits their signs.  64 columns share a
 * scale, an F16 number.  The format is "org.example.codebook/1", which no backend reads: without the table of
 * tessera/kernel.h a host would decode it row by row.  Its product looks up a vector for each byte, and
 * multiplies it with four inputs.  codebook.cu has the same product for a CUDA device.
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

#if defined __x86_64__
#include <immintrin.h>
#endif

#define ROWS      2u /* that share the load of an input */
#define PADDED(n) (((n) + LANES - 1) / LANES * LANES)

static const float magnitudes[16][EACH] = MAGNITUDES;

struct options {
    int32_t kernel, columns, avx2, device;
};

struct quantizer {
    float                  vector[256][4]; /* each aligned to 16 bytes */
    const struct tsr_host *host;
    const struct options  *o;
    int                    wide; /* this CPU has AVX2 and FMA */
};

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

/* ---- the product ------------------------------------------------------------------------------
 *
 * A group adds vector * input into eight sums, in the order of columns; the group's sums times its scale go into the
 * row's eight sums, which are added at the end.  Both forms below do these operations, so their results are equal.
 * A run of columns begins where eight sums begin, but may begin and end inside a group. */

struct columns {
    uint64_t first, end; /* that are multiplied */
    uint64_t all;        /* of the matrix */
};

/* The columns of group g that are among them. */
#define BEGIN(c, g) ((g)*GROUP > (c)->first ? (g)*GROUP : (c)->first)
#define END(c, g)   (((g) + 1) * GROUP < (c)->end ? ((g) + 1) * GROUP : (c)->end)

static float last_sum(const float s[LANES])
{
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

/* x: inputs, zeros up to a multiple of LANES. */
static float plain_row(const struct quantizer *q, const unsigned char *row, const float *x,
                       const struct columns *c)
{
    float sum[LANES] = { 0 };
    for (uint64_t g = c->first / GROUP; g < GROUPS_OF(c->end); g++) {
        float part[LANES] = { 0 }, scale = scale_at(row, c->all, g);
        for (uint64_t k = BEGIN(c, g); k < END(c, g); k += LANES)
            for (unsigned i = 0; i < LANES; i++) {
                uint64_t code = k / EACH + i / EACH;
                float    v = code < CODES_OF(c->all) ? q->vector[row[code]][i % EACH] : 0.0f;
                part[i] = fmaf(v, x[k - c->first + i], part[i]);
            }
        for (unsigned i = 0; i < LANES; i++)
            sum[i] = fmaf(scale, part[i], sum[i]);
    }
    return last_sum(sum);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static __m256 two_vectors(const struct quantizer *q,
                                                              const unsigned char    *row,
                                                              uint64_t code, uint64_t codes)
{
    __m128 a = _mm_load_ps(q->vector[row[code]]);
    __m128 b = code + 1 < codes ? _mm_load_ps(q->vector[row[code + 1]]) : _mm_setzero_ps();
    return _mm256_set_m128(b, a);
}

/* Some rows with some tokens, both constants where it is called, so that all sums of a group are in registers.  Each
 * result has the operations that it has alone. */
__attribute__((target("avx2,fma"), always_inline)) static inline void tile(
    const struct quantizer *q, const unsigned char *codes, uint64_t bytes, unsigned rows,
    const float *x, uint64_t stride, unsigned tokens, const struct columns *c, float *out,
    uint64_t out_stride)
{
    uint64_t n_codes = CODES_OF(c->all);
    __m256   sum[ROWS][TOKENS];
    for (unsigned r = 0; r < rows; r++)
        for (unsigned t = 0; t < tokens; t++)
            sum[r][t] = _mm256_setzero_ps();
    for (uint64_t g = c->first / GROUP; g < GROUPS_OF(c->end); g++) {
        __m256 part[ROWS][TOKENS];
        for (unsigned r = 0; r < rows; r++)
            for (unsigned t = 0; t < tokens; t++)
                part[r][t] = _mm256_setzero_ps();
        for (uint64_t k = BEGIN(c, g); k < END(c, g); k += LANES) {
            __m256 v[ROWS];
            for (unsigned r = 0; r < rows; r++)
                v[r] = two_vectors(q, codes + r * bytes, k / EACH, n_codes);
            for (unsigned t = 0; t < tokens; t++) {
                __m256 in = _mm256_loadu_ps(x + t * stride + k - c->first);
                for (unsigned r = 0; r < rows; r++)
                    part[r][t] = _mm256_fmadd_ps(v[r], in, part[r][t]);
            }
        }
        for (unsigned r = 0; r < rows; r++) {
            __m256 scale = _mm256_set1_ps(scale_at(codes + r * bytes, c->all, g));
            for (unsigned t = 0; t < tokens; t++)
                sum[r][t] = _mm256_fmadd_ps(scale, part[r][t], sum[r][t]);
        }
    }
    for (unsigned r = 0; r < rows; r++)
        for (unsigned t = 0; t < tokens; t++) {
            float s[LANES];
            _mm256_storeu_ps(s, sum[r][t]);
            out[t * out_stride + r] = last_sum(s);
        }
}

/* ROWS rows. */
__attribute__((target("avx2,fma"))) static void wide_rows(const struct quantizer *q,
                                                          const unsigned char    *codes,
                                                          const float *x, uint64_t stride,
                                                          uint64_t n, const struct columns *c,
                                                          float *out, uint64_t out_stride)
{
    uint64_t bytes = ROW_BYTES(c->all), t = 0;
    for (; t + TOKENS <= n; t += TOKENS)
        tile(q, codes, bytes, ROWS, x + t * stride, stride, TOKENS, c, out + t * out_stride,
             out_stride);
    for (; t < n; t++)
        tile(q, codes, bytes, ROWS, x + t * stride, stride, 1, c, out + t * out_stride, out_stride);
}
#else
#define wide_rows(...) ((void)0) /* q->wide is 0 */
#endif

static tsr_status scratch(const void *self, const struct tsr_kernel_weight *w, uint64_t n,
                          uint64_t *bytes, struct tsr_err *err)
{
    const struct quantizer *q = self;
    int whole = w->segment == w->cols, end = w->first_col + w->n_cols == w->cols;
    if (!whole && (!q->o->columns || w->first_col % LANES || w->segment % LANES ||
                   (w->n_cols % LANES && !end)))
        return tsr_fail(err, TSR_E_UNSUPPORTED, "codebook: these columns are not multiplied alone");
    *bytes = w->n_cols % LANES ? n * PADDED(w->n_cols) * sizeof(float) : 0;
    return TSR_OK;
}

static tsr_status linear(const void *self, const struct tsr_kernel_job *job, struct tsr_err *err)
{
    const struct quantizer         *q = self;
    const struct tsr_kernel_weight *w = job->weight;
    const float                    *x = job->in;
    uint64_t                        cols = w->n_cols, stride = job->in_stride;
    (void)err;
    if (cols % LANES) { /* zeros behind the inputs */
        float *room = job->scratch;
        stride = PADDED(cols);
        for (uint64_t t = 0; t < job->n; t++) {
            memcpy(room + t * stride, job->in + t * job->in_stride, cols * sizeof *room);
            memset(room + t * stride + cols, 0, (stride - cols) * sizeof *room);
        }
        x = room;
    }
    for (uint64_t r = 0, rows; r < w->n_rows; r += rows) { /* a row's bytes in their order */
        const unsigned char *row = (const unsigned char *)w->codes + r * ROW_BYTES(w->cols);
        float               *out = job->out + r;
        rows = q->wide && w->n_rows - r >= ROWS ? ROWS : 1;
        for (uint64_t k = 0; k < cols; k += w->segment, out += job->out_segment) {
            uint64_t       n = cols - k < w->segment ? cols - k : w->segment;
            struct columns c = { w->first_col + k, w->first_col + k + n, w->cols };
            if (rows == ROWS)
                wide_rows(q, row, x + k, stride, job->n, &c, out, job->out_stride);
            else
                for (uint64_t t = 0; t < job->n; t++)
                    out[t * job->out_stride] = plain_row(q, row, x + k + t * stride, &c);
        }
    }
    return TSR_OK;
}

static const struct tsr_quantizer_kernel_v1 kernel = { .struct_size = sizeof kernel,
                                                       .scratch = scratch,
                                                       .linear = linear };

static const void *extension(const void *self, const char *id)
{
    const struct quantizer *q = self;
    if (q->o->kernel && strcmp(id, TSR_QUANTIZER_KERNEL) == 0)
        return &kernel;
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
