/* mx - block floating point: blocks of a row share a power of two, and every weight is a small
 * float or integer (OCP Microscaling Formats 1.0, and the narrower elements and scales that follow
 * its rule).  See README.md. */
#include "../weights.h"

#include "choices.h"
#include "transform.h"

struct mx_options {
    int64_t element, block, scale_bits, rounding, scale_rule, on_overflow, transform;
};

enum { OVERFLOW_ERROR, OVERFLOW_NAN };

struct mx {
    const struct tsr_host   *host;
    const struct tsr_encode *encode;
    struct tsr_encode_mx     spec;
    uint32_t                 bits; /* of a code */
    int                      nan_blocks;
    int                      limit; /* of the shared exponent, both ways */
    int64_t                  transform;
};

static tsr_status mx_create(const struct tsr_host *host, const void *opts, void **self,
                            struct tsr_err *err)
{
    const struct mx_options *o = opts;
    struct mx               *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for mx", sizeof *q);
    *q = (struct mx){ .host = host,
                      .spec = { .element = (uint32_t)o->element,
                                .scale_bits = (uint32_t)o->scale_bits,
                                .rounding = (uint32_t)o->rounding,
                                .scale_rule = (uint32_t)o->scale_rule,
                                .block = (uint64_t)o->block },
                      .bits = tsr_encode_mx_bits((uint32_t)o->element),
                      .nan_blocks = o->on_overflow == OVERFLOW_NAN,
                      .limit = (1 << (o->scale_bits - 1)) - 1,
                      .transform = o->transform };
    tsr_status st = tsr_encode_pick(&q->encode, err);
    if (st == TSR_OK)
        st = tsr_encode_mx_check(&q->spec, err);
    if (st != TSR_OK) {
        host->release(host->ctx, q, sizeof *q);
        return st;
    }
    *self = q;
    return TSR_OK;
}

static void mx_destroy(void *self)
{
    struct mx *q = self;
    if (q)
        q->host->release(q->host->ctx, q, sizeof *q);
}

static struct tsr_format mx_format(const struct mx *q)
{
    return (struct tsr_format){ .id = TSR_FORMAT_MX,
                                .bits = q->bits,
                                .group = q->spec.block,
                                .element = q->spec.element,
                                .scale_bits = q->spec.scale_bits };
}

static tsr_status mx_plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                          struct tsr_err *err)
{
    const struct mx *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = mx_format(q);
    tsr_format_store(&plan->format, &f);
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = tsr_format_mx_meta_bytes(&f, w->cols);
    plan->scratch_bytes = w->cols * sizeof(float);
    plan->need = 0;
    return TSR_OK;
}

static tsr_status refuse(const struct mx *q, const struct tsr_matrix *w, const float *row,
                         uint64_t n_row, uint64_t block, struct tsr_err *err)
{
    uint64_t begin = block * q->spec.block, end = begin + q->spec.block;
    float    largest = 0.0f;
    for (uint64_t k = begin; k < end && k < w->cols; k++)
        largest = wt_max(largest, fabsf(row[k]));
    return tsr_fail(err, TSR_E_NUMERIC,
                    "tensor '%s': row %llu block %llu: its largest weight, %g, needs a scale above "
                    "2^%d, the largest of %u bits; use more scale_bits, or on_overflow: nan",
                    w->name ? w->name : "?", (unsigned long long)n_row, (unsigned long long)block,
                    (double)largest, q->limit, q->spec.scale_bits);
}

static tsr_status mx_quantize(const void *self, const struct tsr_quant_job *job,
                              struct tsr_err *err)
{
    const struct mx         *q = self;
    const struct tsr_matrix *w = job->src;
    struct tsr_format        f = mx_format(q);
    uint64_t                 code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    uint64_t                 meta_bytes = tsr_format_mx_meta_bytes(&f, w->cols);
    float                   *row = job->scratch;
    for (uint64_t r = 0; r < w->rows; r++) {
        unsigned char *codes = (unsigned char *)job->codes + r * code_bytes;
        unsigned char *meta = (unsigned char *)job->meta + r * meta_bytes;
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        wt_row(row, w, r);
        tsr_status st = q->nan_blocks ? TSR_OK : wt_check(w, row, job->first_row + r, err);
        if (st != TSR_OK)
            return st;
        memset(meta, 0, meta_bytes);
        uint64_t over = q->encode->mx_row(&q->spec, w->cols, row, codes, meta);
        if (over != TSR_ENCODE_NONE && !q->nan_blocks)
            return refuse(q, w, row, job->first_row + r, over, err);
    }
    return TSR_OK;
}

static tsr_status mx_dequantize(const void *self, const struct tsr_quant_job *job,
                                struct tsr_err *err)
{
    const struct mx     *q = self;
    struct tsr_format    f = mx_format(q);
    uint64_t             cols = job->dst->cols;
    uint64_t             code_bytes = tsr_format_int_code_bytes(&f, cols);
    uint64_t             meta_bytes = tsr_format_mx_meta_bytes(&f, cols);
    struct tsr_decode_mx m;
    (void)err;
    tsr_decode_mx_init(&m, &q->spec, cols);
    for (uint64_t r = 0; r < job->dst->rows; r++)
        q->encode->mx_decode(&m, cols, (const unsigned char *)job->codes + r * code_bytes,
                             (const unsigned char *)job->meta + r * meta_bytes,
                             (float *)(void *)((char *)job->dst->data + r * job->dst->row_stride),
                             0);
    return TSR_OK;
}

static const struct tsr_choice overflow_choices[] = {
    { "error", "stop with row and block", OVERFLOW_ERROR },
    { "nan", "the block becomes NaN, also where a weight is not finite", OVERFLOW_NAN },
};

static const struct tsr_choice transform_choices[] = {
    { "none", "none", MX_TRANSFORM_NONE },
    { "heads", "Hadamard matrices for the values of heads, in the weights of v and o",
      MX_TRANSFORM_HEADS },
    { "down", "a Hadamard transform of the input of down_proj, which runs with the model",
      MX_TRANSFORM_DOWN },
    { "both", "both of them", MX_TRANSFORM_BOTH },
};

static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct mx_options, element, TSR_MX_FP4_E2M1, element_choices,
                    "Type of the elements."),
    TSR_OPTION_INT(struct mx_options, block, 32, 1, 4096, "columns", "Columns that share a scale."),
    TSR_OPTION_INT(struct mx_options, scale_bits, 8, 4, 8, "bits",
                   "Width of the shared exponent: 8 is E8M0, 4 is E4M0; stored in a byte."),
    TSR_OPTION_ENUM(struct mx_options, rounding, TSR_ENCODE_EVEN, rounding_choices,
                    "How a weight becomes an element."),
    TSR_OPTION_ENUM(struct mx_options, scale_rule, TSR_ENCODE_SCALE_FLOOR, rule_choices,
                    "How a block's scale is found."),
    TSR_OPTION_ENUM(struct mx_options, on_overflow, OVERFLOW_ERROR, overflow_choices,
                    "What to do with a scale above scale_bits."),
    TSR_OPTION_ENUM(struct mx_options, transform, MX_TRANSFORM_NONE, transform_choices,
                    "What spreads outliers before the weights are rounded."),
};

/* ---- tessera.quantizer.block/1 ------------------------------------------------------- */

static uint64_t block_need(const void *self)
{
    (void)self;
    return 0;
}

static uint64_t clip_group(const void *self, uint64_t cols)
{
    (void)self;
    (void)cols;
    return 0;
}

static tsr_status search(const void *self, const struct tsr_block *block,
                         struct tsr_block_choice *const *choices, struct tsr_err *err)
{
    const struct mx *q = self;
    (void)err;
    return mx_transform_block(q->host, q->transform, block, choices);
}

static const struct tsr_quantizer_block_v1 block_table = {
    .struct_size = sizeof block_table,
    .block_need = block_need,
    .clip_group = clip_group,
    .search = search,
};

static const void *mx_extension(const void *self, const char *id)
{
    const struct mx *q = self;
    return q->transform && strcmp(id, TSR_QUANTIZER_BLOCK) == 0 ? &block_table : NULL;
}

/* A block's codes are its own weights'. */
static uint64_t mx_columns_alone(const void *self)
{
    return ((const struct mx *)self)->spec.block;
}

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = mx_create,
    .destroy = mx_destroy,
    .plan = mx_plan,
    .quantize = mx_quantize,
    .dequantize = mx_dequantize,
    .extension = mx_extension,
    .columns_alone = mx_columns_alone,
};

static const struct tsr_component component = {
    .struct_size = sizeof(struct tsr_component),
    .option_stride = sizeof(struct tsr_option),
    .kind = TSR_KIND_QUANTIZER,
    .name = "mx",
    .summary = "MX block formats: FP8 to FP3 and integers with a shared power of two.",
    .iface = &table,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .options_size = sizeof(struct mx_options),
};

static const struct tsr_component *const components[] = { &component };

TSR_PLUGIN_SYMBOL(mx) = {
    TSR_PLUGIN_HEADER,    .id = "org.tessera.mx",   .version = "1.0.0", .license = "Apache-2.0",
    .build = __VERSION__, .components = components, .n_components = 1,  .needs_minor = 0,
};
