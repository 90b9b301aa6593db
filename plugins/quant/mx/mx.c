/* mx - block floating point: blocks of a row share a power of two, every weight becomes a small
 * float or integer beside it (OCP Microscaling Formats 1.0, and the narrower elements and scales
 * that follow its rule).  See README.md. */
#include "../weights.h"

#include "element.h"

struct mx_options {
    int64_t element, block, scale_bits, rounding, scale_rule, on_overflow;
};

enum { RULE_FLOOR, RULE_EVEN, RULE_CEIL };
enum { OVERFLOW_ERROR, OVERFLOW_NAN };

struct mx {
    const struct tsr_host *host;
    uint32_t               element, scale_bits;
    uint64_t               block;
    int                    rounding, rule, nan_blocks;
    int                    limit; /* of the shared exponent, both ways */
    struct mx_element      e;
};

static tsr_status mx_create(const struct tsr_host *host, const void *opts, void **self,
                            struct tsr_err *err)
{
    const struct mx_options *o = opts;
    struct mx               *q = host->alloc(host->ctx, sizeof *q, 16);
    if (!q)
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: %zu bytes for mx", sizeof *q);
    *q = (struct mx){ .host = host,
                      .element = (uint32_t)o->element,
                      .scale_bits = (uint32_t)o->scale_bits,
                      .block = (uint64_t)o->block,
                      .rounding = (int)o->rounding,
                      .rule = (int)o->scale_rule,
                      .nan_blocks = o->on_overflow == OVERFLOW_NAN,
                      .limit = (1 << (o->scale_bits - 1)) - 1,
                      .e = mx_element_of((uint32_t)o->element) };
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
                                .bits = q->e.bits,
                                .group = q->block,
                                .element = q->element,
                                .scale_bits = q->scale_bits };
}

static tsr_status mx_plan(const void *self, const struct tsr_matrix *w, struct tsr_quant_plan *plan,
                          struct tsr_err *err)
{
    const struct mx *q = self;
    if (w->rows == 0 || w->cols == 0 || w->cols > UINT64_C(1) << 40)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "a matrix of %llu x %llu cannot be quantized",
                        (unsigned long long)w->rows, (unsigned long long)w->cols);
    struct tsr_format f = mx_format(q);
    f.struct_size = plan->format.struct_size;
    plan->format = f;
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = tsr_format_mx_meta_bytes(&f, w->cols);
    plan->scratch_bytes = w->cols * (sizeof(float) + 1);
    plan->need = 0;
    return TSR_OK;
}

/* The shared exponent of a block whose largest magnitude is `largest`, finite. */
static int block_scale(const struct mx *q, float largest)
{
    uint32_t m, top = q->e.largest;
    if (largest == 0.0f)
        return -q->limit;
    int exponent = mx_exponent(largest, &m);
    int scale = exponent - q->e.emax;
    if (q->rule == RULE_EVEN) { /* rounded to the element's mantissa first, a half upwards */
        if (m + (1u << (22 - q->e.mantissa)) >= 1u << 24)
            scale++;
    } else if (q->rule == RULE_CEIL) { /* up where the largest element would be exceeded */
        float    max = mx_value(&q->e, top);
        uint32_t mm;
        (void)mx_exponent(max, &mm);
        if (m > mm)
            scale++;
    }
    return scale < -q->limit ? -q->limit : scale;
}

static tsr_status refuse(const struct mx *q, const struct tsr_matrix *w, uint64_t row,
                         uint64_t group, int scale, struct tsr_err *err)
{
    return tsr_fail(err, TSR_E_NUMERIC,
                    "tensor '%s': row %llu block %llu needs the scale 2^%d, the largest of "
                    "%u-bit scales is 2^%d; use more scale_bits, or on_overflow: nan",
                    w->name ? w->name : "?", (unsigned long long)row, (unsigned long long)group,
                    scale, q->scale_bits, q->limit);
}

/* Codes of n weights; *stored is the biased scale.  Returns the scale that did not fit, else
 * INT32_MIN. */
static int encode_block(const struct mx *q, const float *w, uint64_t n, uint8_t *codes,
                        unsigned char *stored)
{
    float    largest = 0.0f;
    int      finite = 1;
    uint32_t sign = 1u << (q->e.bits - 1);
    for (uint64_t k = 0; k < n; k++) {
        finite &= isfinite(w[k]) != 0;
        largest = wt_max(largest, fabsf(w[k]));
    }
    int scale = finite ? block_scale(q, largest) : 0;
    if (!finite || scale > q->limit) {
        *stored = (unsigned char)(2 * q->limit + 1);
        memset(codes, 0, n);
        return finite ? scale : INT32_MIN;
    }
    *stored = (unsigned char)(scale + q->limit);
    for (uint64_t k = 0; k < n; k++) {
        uint32_t c = mx_code(&q->e, w[k], scale, q->rounding);
        codes[k] = (uint8_t)(c && w[k] < 0.0f ? c | sign : c); /* zeros have no sign */
    }
    return INT32_MIN;
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
    uint8_t                 *codes = (uint8_t *)(row + w->cols);
    for (uint64_t r = 0; r < w->rows; r++) {
        if (q->host->cancelled(q->host->ctx))
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        unsigned char *meta = (unsigned char *)job->meta + r * meta_bytes;
        wt_row(row, w, r);
        tsr_status st = q->nan_blocks ? TSR_OK : wt_check(w, row, job->first_row + r, err);
        if (st != TSR_OK)
            return st;
        memset(meta, 0, meta_bytes);
        for (uint64_t g = 0, k = 0; k < w->cols; g++, k += q->block) {
            uint64_t n = w->cols - k < q->block ? w->cols - k : q->block;
            int      over = encode_block(q, row + k, n, codes + k, meta + g);
            if (over != INT32_MIN && !q->nan_blocks)
                return refuse(q, w, job->first_row + r, g, over, err);
        }
        wt_pack((unsigned char *)job->codes + r * code_bytes, codes, w->cols, q->e.bits);
    }
    return TSR_OK;
}

/* 2^e for -127 <= e <= 127. */
static float power_of_two(int e)
{
    return wt_bits_f32(e < -126 ? UINT32_C(0x400000) : (uint32_t)(e + 127) << 23);
}

static tsr_status mx_dequantize(const void *self, const struct tsr_quant_job *job,
                                struct tsr_err *err)
{
    const struct mx  *q = self;
    struct tsr_format f = mx_format(q);
    uint64_t          cols = job->dst->cols;
    uint64_t          code_bytes = tsr_format_int_code_bytes(&f, cols);
    uint64_t          meta_bytes = tsr_format_mx_meta_bytes(&f, cols);
    uint32_t          sign = 1u << (q->e.bits - 1);
    float             value[256] = { 0 };
    uint8_t          *codes = job->scratch;
    (void)err;
    for (uint32_t c = 0; c < 2 * sign; c++)
        value[c] = c & sign ? -mx_value(&q->e, c ^ sign) : mx_value(&q->e, c);
    for (uint64_t r = 0; r < job->dst->rows; r++) {
        const unsigned char *meta = (const unsigned char *)job->meta + r * meta_bytes;
        float *dst = (float *)(void *)((char *)job->dst->data + r * job->dst->row_stride);
        wt_unpack(codes, (const unsigned char *)job->codes + r * code_bytes, cols, q->e.bits);
        for (uint64_t k = 0; k < cols; k++) {
            int stored = meta[k / q->block];
            dst[k] =
                stored > 2 * q->limit ? NAN : value[codes[k]] * power_of_two(stored - q->limit);
        }
    }
    return TSR_OK;
}

static const struct tsr_choice element_choices[] = {
    { "fp8_e4m3", "8 bits, to 448", TSR_MX_FP8_E4M3 },
    { "fp8_e5m2", "8 bits, to 57344", TSR_MX_FP8_E5M2 },
    { "fp6_e3m2", "6 bits, to 28", TSR_MX_FP6_E3M2 },
    { "fp6_e2m3", "6 bits, to 7.5", TSR_MX_FP6_E2M3 },
    { "fp5_e3m1", "5 bits, to 24", TSR_MX_FP5_E3M1 },
    { "fp5_e2m2", "5 bits, to 7", TSR_MX_FP5_E2M2 },
    { "fp5_e1m3", "5 bits, to 3.75", TSR_MX_FP5_E1M3 },
    { "fp4_e2m1", "4 bits, to 6: MXFP4", TSR_MX_FP4_E2M1 },
    { "fp4_e1m2", "4 bits, to 3.5", TSR_MX_FP4_E1M2 },
    { "fp3_e1m1", "3 bits, to 3", TSR_MX_FP3_E1M1 },
    { "int8", "sign and 1.xxxxxx", TSR_MX_INT(8) },
    { "int6", "sign and 1.xxxx", TSR_MX_INT(6) },
    { "int5", "sign and 1.xxx", TSR_MX_INT(5) },
    { "int4", "sign and 1.xx", TSR_MX_INT(4) },
    { "int3", "sign and 1.x", TSR_MX_INT(3) },
    { "int2", "sign and 1", TSR_MX_INT(2) },
};
static const struct tsr_choice rounding_choices[] = {
    { "even", "nearest, a half to the even code", MX_EVEN },
    { "nearest", "nearest, a half away from zero", MX_NEAREST },
    { "floor", "toward zero", MX_FLOOR },
};
static const struct tsr_choice rule_choices[] = {
    { "floor", "the exponent of the block's largest weight; what is above the grid saturates",
      RULE_FLOOR },
    { "even", "the same after rounding that weight to the element's mantissa", RULE_EVEN },
    { "ceil", "the smallest scale at which nothing saturates", RULE_CEIL },
};
static const struct tsr_choice overflow_choices[] = {
    { "error", "stop with row and block", OVERFLOW_ERROR },
    { "nan", "the block becomes NaN, also where a weight is not finite", OVERFLOW_NAN },
};

static const struct tsr_option options[] = {
    TSR_OPTION_ENUM(struct mx_options, element, TSR_MX_FP4_E2M1, element_choices,
                    "Type of the elements."),
    TSR_OPTION_INT(struct mx_options, block, 32, 1, 4096, "columns", "Columns that share a scale."),
    TSR_OPTION_INT(struct mx_options, scale_bits, 8, 4, 8, "bits",
                   "Width of the shared exponent: 8 is E8M0, 4 is E4M0; stored in a byte."),
    TSR_OPTION_ENUM(struct mx_options, rounding, MX_EVEN, rounding_choices,
                    "How a weight becomes an element."),
    TSR_OPTION_ENUM(struct mx_options, scale_rule, RULE_FLOOR, rule_choices,
                    "How a block's scale is found."),
    TSR_OPTION_ENUM(struct mx_options, on_overflow, OVERFLOW_ERROR, overflow_choices,
                    "What to do with a scale above scale_bits."),
};

static const struct tsr_quantizer_v1 table = {
    .struct_size = sizeof(struct tsr_quantizer_v1),
    .src_dtypes = 1u << TSR_F32 | 1u << TSR_F16 | 1u << TSR_BF16,
    .promises = TSR_QUANT_DETERMINISTIC,
    .create = mx_create,
    .destroy = mx_destroy,
    .plan = mx_plan,
    .quantize = mx_quantize,
    .dequantize = mx_dequantize,
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
