/* rtn against recorded outputs of the programs whose conventions it follows, and its own
 * promises: refusals, half-width scales, stochastic rounding, rows independent. */
#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "tessera/quantizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const struct tsr_plugin tsr_builtin_rtn;

/* The layout that the option table describes; the offsets are checked against it. */
struct options {
    int64_t bits, group;
    int32_t symmetric, mse;
    int64_t range, scale, rounding, seed;
    int32_t act_order, static_groups; /* these and damp: gptq's */
    double  damp;
    int32_t minimum;
    int64_t scale_bits;
    int32_t weighted;
};
enum { GPTQ, AWQ, ABSMAX };

static const struct tsr_quantizer_v1 *rtn(void)
{
    return tsr_builtin_rtn.components[0]->iface;
}

static void *host_alloc(void *ctx, uint64_t size, uint64_t align)
{
    (void)ctx;
    (void)align;
    return malloc(size);
}
static void host_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}
static int32_t host_cancelled(void *ctx)
{
    (void)ctx;
    return 0;
}
static int  logged;
static char last_line[512];
static void host_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    assert_int_equal(level, TSR_LOG_WARN);
    (void)snprintf(last_line, sizeof last_line, "%s", msg);
    logged++;
}
static const struct tsr_host host = { .struct_size = sizeof host,
                                      .abi_major = TSR_ABI_MAJOR,
                                      .log = host_log,
                                      .alloc = host_alloc,
                                      .release = host_release,
                                      .cancelled = host_cancelled };

/* A quantized matrix, unpacked. */
struct result {
    tsr_status        status;
    struct tsr_format format;
    uint64_t          groups;
    uint8_t          *codes;
    float            *scale, *dense;
    int              *zero;
    struct tsr_errbuf err;
};

static void result_free(struct result *r)
{
    free(r->codes);
    free(r->scale);
    free(r->dense);
    free(r->zero);
}

static struct tsr_matrix matrix(const float *w, uint64_t rows, uint64_t cols)
{
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = "w",
                                .data = (void *)(uintptr_t)w,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * 4 };
}

/* Reads the layout by the words of format.h, bit by bit. */
static void unpack(struct result *r, const unsigned char *codes, const unsigned char *meta,
                   uint64_t rows, uint64_t cols)
{
    uint64_t cb = tsr_format_int_code_bytes(&r->format, cols);
    uint64_t mb = tsr_format_int_meta_bytes(&r->format, cols);
    uint32_t bits = r->format.bits, wide = r->format.scale_dtype == TSR_F32 ? 4 : 2;
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t k = 0; k < cols; k++) {
            unsigned c = 0;
            for (uint64_t b = 0; b < bits; b++) {
                uint64_t bit = k * bits + b;
                c |= (unsigned)(codes[i * cb + bit / 8] >> (bit % 8) & 1) << b;
            }
            r->codes[i * cols + k] = (uint8_t)c;
        }
        for (uint64_t g = 0; g < r->groups; g++) {
            const unsigned char *m = meta + i * mb;
            uint16_t             h;
            if (wide == 4) {
                memcpy(&r->scale[i * r->groups + g], m + 4 * g, 4);
            } else {
                memcpy(&h, m + 2 * g, 2);
                r->scale[i * r->groups + g] = tsr_f16_f32(h);
            }
            r->zero[i * r->groups + g] =
                r->format.zero == TSR_ZERO_STORED ? m[r->groups * wide + g] : 1 << (bits - 1);
        }
    }
}

static struct result quantize(const struct options *o, const struct tsr_matrix *w,
                              uint64_t first_row)
{
    struct result r = { .err = TSR_ERRBUF(r.err) };
    void         *self = NULL;
    r.err.err.text = r.err.text;
    r.status = rtn()->create(&host, o, &self, &r.err.err);
    if (r.status != TSR_OK)
        return r;
    struct tsr_quant_plan plan = { .struct_size = sizeof plan };
    plan.format.struct_size = sizeof plan.format;
    assert_int_equal(rtn()->plan(self, w, &plan, &r.err.err), TSR_OK);
    assert_int_equal(plan.rows_per_unit, 1);
    r.format = plan.format;
    r.groups = tsr_format_groups(&r.format, w->cols);
    assert_int_equal(plan.code_bytes, (w->cols * r.format.bits + 7) / 8);
    unsigned char *codes = tsr_new(w->rows, plan.code_bytes);
    unsigned char *meta = tsr_new(w->rows, plan.meta_bytes);
    void          *scratch = tsr_new_aligned(1, plan.scratch_bytes);
    assert_true(codes && meta && scratch);
    memset(codes, 0xa5, w->rows * plan.code_bytes);
    memset(meta, 0xa5, w->rows * plan.meta_bytes);
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .first_row = first_row,
                                 .src = w,
                                 .codes = codes,
                                 .meta = meta,
                                 .scratch = scratch };
    r.status = rtn()->quantize(self, &job, &r.err.err);
    if (r.status == TSR_OK) {
        r.codes = tsr_new(w->rows, w->cols);
        r.dense = tsr_new(w->rows * w->cols, sizeof(float));
        r.scale = tsr_new(w->rows * r.groups, sizeof(float));
        r.zero = tsr_new(w->rows * r.groups, sizeof(int));
        assert_true(r.codes && r.dense && r.scale && r.zero);
        unpack(&r, codes, meta, w->rows, w->cols);
        struct tsr_matrix dst = matrix(r.dense, w->rows, w->cols);
        job.src = NULL;
        job.dst = &dst;
        assert_int_equal(rtn()->dequantize(self, &job, &r.err.err), TSR_OK);
        for (uint64_t i = 0; i < w->rows * w->cols; i++) {
            uint64_t g = r.format.group && r.groups > 1 ? i % w->cols / r.format.group : 0;
            uint64_t s = i / w->cols * r.groups + g;
            float    v = (float)((int)r.codes[i] - r.zero[s]) * r.scale[s];
            assert_true(r.dense[i] == v);
        }
    }
    free(codes);
    free(meta);
    free(scratch);
    rtn()->destroy(self);
    return r;
}

static struct options defaults(void)
{
    return (
        struct options){ .bits = 4, .group = 128, .scale = TSR_F16, .act_order = 1, .damp = 0.01 };
}

/* ---- recorded vectors ---------------------------------------------------- */

static void *tensor(const struct tsr_safetensors *st, const char *name, uint64_t *n)
{
    struct tsr_errbuf                    e = TSR_ERRBUF(e);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, name);
    if (!t)
        fail_msg("no tensor %s", name);
    void *p = tsr_new(1, t->end - t->begin);
    assert_non_null(p);
    if (tsr_safetensors_read(st, t, p, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    *n = (t->end - t->begin) / 4;
    return p;
}

static bool listed(const json_t *c, const char *key, uint64_t row, uint64_t g)
{
    size_t  i;
    json_t *item;
    json_array_foreach (json_object_get(c, key), i, item)
        if ((uint64_t)json_integer_value(json_array_get(item, 0)) == row &&
            (uint64_t)json_integer_value(json_array_get(item, 1)) == g)
            return true;
    return false;
}

static void check_case(const struct tsr_safetensors *st, const json_t *c)
{
    const char       *name = json_string_value(json_object_get(c, "name"));
    const char       *convention = json_string_value(json_object_get(c, "convention"));
    struct options    o = { .bits = json_integer_value(json_object_get(c, "bits")),
                            .group = json_integer_value(json_object_get(c, "group")),
                            .symmetric = strstr(convention, "_sym") != NULL,
                            .mse = strstr(convention, "_mse") != NULL,
                            .range = convention[1] == 'p'   ? GPTQ
                                     : convention[1] == 'w' ? AWQ
                                                            : ABSMAX,
                            .scale = TSR_F32,
                            .act_order = 1,
                            .damp = 0.01 };
    uint64_t          n, n_codes, n_scales, n_zeros;
    float            *w = tensor(st, json_string_value(json_object_get(c, "tensor")), &n);
    int32_t          *codes = tensor(st, json_string_value(json_object_get(c, "codes")), &n_codes);
    float            *scale = tensor(st, json_string_value(json_object_get(c, "scale")), &n_scales);
    float            *zero = tensor(st, json_string_value(json_object_get(c, "zero")), &n_zeros);
    uint64_t          cols = 256, rows = n / cols, groups = n_scales / rows;
    struct tsr_matrix m = matrix(w, rows, cols);
    struct result     r = quantize(&o, &m, 0);
    if (r.status != TSR_OK)
        fail_msg("%s: %s", name, r.err.text);
    assert_int_equal(n_codes, n);
    assert_int_equal(r.groups, groups);
    int mid = 1 << (o.bits - 1);
    for (uint64_t i = 0; i < rows * groups; i++) {
        uint64_t       row = i / groups, g = i % groups, width = cols / groups;
        const uint8_t *got = r.codes + row * cols + g * width;
        const int32_t *want = codes + row * cols + g * width;
        if (listed(c, "saturating_one_sided_groups", row, g)) {
            /* the recorded defect: ours has two sides and so twice the step */
            assert_true(fabsf(r.scale[i] - 2 * scale[i]) <= 1e-6f * scale[i]);
            continue;
        }
        if (listed(c, "undefined_groups", row, g)) { /* ours: everything becomes 0 */
            for (uint64_t k = 0; k < width; k++)
                assert_true(r.dense[row * cols + g * width + k] == 0.0f);
            continue;
        }
        int shift = o.range == ABSMAX ? mid : 0; /* recorded codes are signed there */
        if (!(r.scale[i] == scale[i] && (float)r.zero[i] == zero[i] + (float)shift))
            fail_msg("%s: row %d group %d: scale %.9g zero %d, recorded %.9g %g", name, (int)row,
                     (int)g, (double)r.scale[i], r.zero[i], (double)scale[i], (double)zero[i]);
        for (uint64_t k = 0; k < width; k++)
            if ((int)got[k] != want[k] + shift)
                fail_msg("%s: row %d column %d: code %d, recorded %d", name, (int)row,
                         (int)(g * width + k), got[k], want[k] + shift);
    }
    result_free(&r);
    free(w);
    free(codes);
    free(scale);
    free(zero);
}

static void test_recorded(void **state)
{
    (void)state;
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    json_t                *index;
    if (tsr_safetensors_open(&st, TEST_GOLDEN "/quant/rtn.safetensors", &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    if (tsr_json_load(&index, TEST_GOLDEN "/quant/rtn.json", 1 << 20, 16, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    size_t  i;
    json_t *c;
    json_array_foreach (json_object_get(index, "cases"), i, c)
        check_case(&st, c);
    assert_int_equal(i, 76);
    json_decref(index);
    tsr_safetensors_close(&st);
}

/* ---- our own promises ----------------------------------------------------- */

static float noise(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

static void test_options_layout(void **state)
{
    (void)state;
    const struct tsr_component *c = tsr_builtin_rtn.components[0];
    static const struct {
        const char *name;
        uint64_t    offset;
    } want[] = { { "bits", offsetof(struct options, bits) },
                 { "group", offsetof(struct options, group) },
                 { "symmetric", offsetof(struct options, symmetric) },
                 { "range", offsetof(struct options, range) },
                 { "mse", offsetof(struct options, mse) },
                 { "scale", offsetof(struct options, scale) },
                 { "rounding", offsetof(struct options, rounding) },
                 { "seed", offsetof(struct options, seed) },
                 { "act_order", offsetof(struct options, act_order) },
                 { "static_groups", offsetof(struct options, static_groups) },
                 { "damp", offsetof(struct options, damp) },
                 { "minimum", offsetof(struct options, minimum) },
                 { "scale_bits", offsetof(struct options, scale_bits) },
                 { "weighted", offsetof(struct options, weighted) } };
    assert_int_equal(c->options_size, sizeof(struct options));
    assert_int_equal(c->n_options, sizeof want / sizeof *want);
    for (uint64_t i = 0; i < c->n_options; i++) {
        assert_string_equal(c->options[i].name, want[i].name);
        assert_int_equal(c->options[i].offset, want[i].offset);
    }
}

/* gptq's options are taken, change no byte, and those that are set to something are named in one line. */
static void test_idle_options(void **state)
{
    (void)state;
    static const char *const says[] = { "act_order is",
                                        "static_groups is",
                                        "act_order, static_groups are",
                                        "damp is",
                                        "act_order, damp are",
                                        "static_groups, damp are",
                                        "act_order, static_groups, damp are" };
    float                    w[2 * 64];
    struct tsr_matrix        m = matrix(w, 2, 64);
    struct options           o = defaults();
    for (uint64_t i = 0; i < 128; i++)
        w[i] = noise(i);
    o.group = 16;
    logged = 0;
    struct result want = quantize(&o, &m, 0);
    assert_int_equal(want.status, TSR_OK);
    assert_int_equal(logged, 0);
    for (int set = 1; set < 8; set++) {
        char text[600];
        o.act_order = !(set & 1);
        o.static_groups = !!(set & 2);
        o.damp = set & 4 ? 0.02 : 0.01;
        logged = 0;
        struct result r = quantize(&o, &m, 0);
        assert_int_equal(r.status, TSR_OK);
        assert_int_equal(logged, 1);
        (void)snprintf(text, sizeof text,
                       "rtn: %s without effect: rounding to nearest has no order of columns and no "
                       "Hessian",
                       says[set - 1]);
        assert_string_equal(last_line, text);
        assert_memory_equal(r.codes, want.codes, 128);
        assert_memory_equal(r.dense, want.dense, sizeof w);
        result_free(&r);
    }
    result_free(&want);
}

static void test_refusals(void **state)
{
    (void)state;
    float             w[3 * 8];
    struct options    o = defaults();
    struct tsr_matrix m = matrix(w, 3, 8);
    o.group = 4;
    for (int bad = 0; bad < 2; bad++) {
        for (uint64_t i = 0; i < 24; i++)
            w[i] = noise(i);
        w[8 + 5] = bad ? INFINITY : NAN;
        struct result r = quantize(&o, &m, 10);
        assert_int_equal(r.status, TSR_E_NUMERIC);
        assert_true(moved_error_is(r.err.err, r.err.text, "w", "row 11 column 5"));
    }
    for (uint64_t i = 0; i < 24; i++)
        w[i] = noise(i);
    for (int i = 20; i < 24; i++)
        w[i] = 1e-6f * (float)(i - 21); /* the step is far below 2^-14 */
    struct result r = quantize(&o, &m, 0);
    assert_int_equal(r.status, TSR_E_NUMERIC);
    assert_true(moved_error_is(r.err.err, r.err.text, "w", "row 2 group 1"));
    assert_true(moved_error_is(r.err.err, r.err.text, "w", "f32"));
    o.scale = TSR_F32;
    r = quantize(&o, &m, 0);
    assert_int_equal(r.status, TSR_OK);
    result_free(&r);
    w[3] = 3e38f;
    w[2] = -3e38f; /* hi - lo is infinite */
    r = quantize(&o, &m, 0);
    assert_int_equal(r.status, TSR_E_NUMERIC);
    assert_true(moved_error_is(r.err.err, r.err.text, "w", "row 0 group"));
    o.group = 0;
    r = quantize(&o, &m, 0);
    assert_int_equal(r.status, TSR_E_CONFIG);
}

/* Every width, odd columns, short last group, both scale types: no weight is further from its
 * code than half a step, but for what a half-width scale and zero point can cost. */
static void test_error_bound(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 77 };
    float             w[ROWS * COLS];
    struct tsr_matrix m = matrix(w, ROWS, COLS);
    for (uint64_t i = 0; i < ROWS * COLS; i++)
        w[i] = noise(i);
    for (int64_t bits = 2; bits <= 8; bits++)
        for (int variant = 0; variant < 8; variant++) {
            struct options o = { .bits = bits,
                                 .group = variant & 1 ? 10 : -1,
                                 .symmetric = variant >> 1 & 1,
                                 .scale = variant & 4 ? TSR_F16 : TSR_F32 };
            struct result  r = quantize(&o, &m, 0);
            assert_int_equal(r.status, TSR_OK);
            assert_int_equal(r.groups, variant & 1 ? 8 : 1);
            for (uint64_t i = 0; i < ROWS * COLS; i++) {
                uint64_t g = i / COLS * r.groups + (variant & 1 ? i % COLS / 10 : 0);
                /* half a step, also for a symmetric +absmax, which lies half a step above the
                 * largest code; a stored scale is off by 2^-11, over 2^bits codes */
                float slack = variant & 4 ? (float)(1 << bits) * 0x1p-11f : 1e-4f;
                assert_true(fabsf(r.dense[i] - w[i]) <= (0.5f + slack) * r.scale[g]);
            }
            result_free(&r);
        }
}

/* The promise to the host, where one is made: on noise, and on rows made so that both ends of
 * the range round outwards. */
static void test_promised_error(void **state)
{
    (void)state;
    enum { ROWS = 40, COLS = 33 };
    float             w[ROWS * COLS];
    struct tsr_matrix m = matrix(w, ROWS, COLS);
    unsigned          promised = 0;
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t k = 0; k < COLS; k++)
            w[r * COLS + k] = noise(r * COLS + k) * (r % 2 ? 1.0f : (float)(r + 1));
    for (uint64_t r = 1; r < ROWS; r += 2) { /* -lo/scale and hi/scale end in a half */
        w[r * COLS] = -((float)r + 0.5f) / 63.0f;
        w[r * COLS + 1] = (63.0f - (float)r - 0.5f) / 63.0f;
    }
    for (int64_t bits = 2; bits <= 8; bits++)
        for (int variant = 0; variant < 48; variant++) {
            struct options    o = { .bits = bits,
                                    .group = variant & 1 ? 10 : -1,
                                    .symmetric = variant >> 1 & 1,
                                    .scale = variant & 4 ? TSR_F16 : TSR_F32,
                                    .rounding = variant >> 3 & 1,
                                    .range = variant / 16 };
            struct tsr_errbuf e = TSR_ERRBUF(e);
            void             *self = NULL;
            assert_int_equal(rtn()->create(&host, &o, &self, &e.err), TSR_OK);
            double steps = rtn()->max_error_steps(self);
            rtn()->destroy(self);
            assert_true(steps == 0.0 || (steps >= 0.5 && steps <= 1.0));
            if (o.scale == TSR_F32 || o.range == AWQ) {
                assert_true(steps == 0.0);
                continue;
            }
            assert_true(steps > 0.0);
            promised++;
            struct result r = quantize(&o, &m, 0);
            assert_int_equal(r.status, TSR_OK);
            for (uint64_t i = 0; i < ROWS * COLS; i++) {
                uint64_t g = i / COLS * r.groups + (variant & 1 ? i % COLS / 10 : 0);
                double   error = fabs((double)r.dense[i] - (double)w[i]);
                assert_true(error <= (steps + 0x1p-12) * (double)r.scale[g]);
            }
            result_free(&r);
        }
    assert_int_equal(promised, 7 * 16);
}

static void test_half_inputs(void **state)
{
    (void)state;
    enum { N = 64 };
    float          w[N];
    uint16_t       h[N];
    struct options o = defaults();
    o.group = 16;
    for (int t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < N; i++) {
            h[i] = t ? tsr_f32_bf16(noise(i)) : tsr_f32_f16(noise(i) * (i < 16 ? 0x1p-12f : 1.0f));
            w[i] = t ? tsr_bf16_f32(h[i]) : tsr_f16_f32(h[i]);
        }
        o.scale = TSR_F32;
        struct tsr_matrix wide = matrix(w, 2, N / 2), half = wide;
        half.dtype = t ? TSR_BF16 : TSR_F16;
        half.data = h;
        half.row_stride = N;
        struct result a = quantize(&o, &wide, 0), b = quantize(&o, &half, 0);
        assert_int_equal(a.status, TSR_OK);
        assert_int_equal(b.status, TSR_OK);
        assert_memory_equal(a.dense, b.dense, sizeof w);
        result_free(&a);
        result_free(&b);
    }
}

/* Half-width scales round as the core's own conversion does, ties and carries included. */
static void test_half_scales(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4000; i++) {
        float          w[2] = { 0.0f, ldexpf(1.0f + fabsf(noise(i)), (int)(i % 28) - 12) };
        struct options o = { .bits = 2, .group = -1, .scale = TSR_F16 };
        if (i < 1000) /* a tie of the scale: 11 bits and a half */
            w[1] = ldexpf((float)(3 * (2 * (1024 + i) + 1)), -10);
        struct tsr_matrix m = matrix(w, 1, 2);
        struct result     r = quantize(&o, &m, 0);
        float             want = tsr_f16_f32(tsr_f32_f16(w[1] / 3.0f));
        if (want < 0x1p-14f || !isfinite(want)) {
            assert_int_equal(r.status, TSR_E_NUMERIC);
            continue;
        }
        assert_int_equal(r.status, TSR_OK);
        assert_true(r.scale[0] == want);
        result_free(&r);
    }
}

static void test_stochastic(void **state)
{
    (void)state;
    enum { COLS = 40, SEEDS = 2000 };
    float             w[2 * COLS];
    double            sum[2 * COLS] = { 0 };
    struct tsr_matrix m = matrix(w, 2, COLS), second = matrix(w + COLS, 1, COLS);
    struct options    o = { .bits = 3, .group = -1, .scale = TSR_F32, .rounding = 1 };
    for (uint64_t i = 0; i < 2 * COLS; i++)
        w[i] = noise(i);
    float lo[2], hi[2], step[2];
    for (o.seed = 0; o.seed < SEEDS; o.seed++) {
        struct result r = quantize(&o, &m, 0);
        assert_int_equal(r.status, TSR_OK);
        for (int row = 0; row < 2; row++) {
            step[row] = r.scale[row];
            lo[row] = (float)(0 - r.zero[row]) * r.scale[row];
            hi[row] = (float)(7 - r.zero[row]) * r.scale[row];
        }
        for (uint64_t i = 0; i < 2 * COLS; i++)
            sum[i] += (double)r.dense[i];
        if (o.seed < 5) { /* a row alone gives what it gives among others */
            struct result alone = quantize(&o, &second, 1);
            assert_int_equal(alone.status, TSR_OK);
            assert_memory_equal(alone.codes, r.codes + COLS, COLS);
            result_free(&alone);
        }
        result_free(&r);
    }
    /* the mean over seeds is w, where the codes reach (the zero point is rounded, so one end
     * lies up to half a step outside): 5 standard errors of at most step/2 each */
    for (uint64_t i = 0; i < 2 * COLS; i++) {
        uint64_t row = i / COLS;
        float    want = fminf(fmaxf(w[i], lo[row]), hi[row]);
        double   off = fabs(sum[i] / SEEDS - (double)want);
        assert_true(off <= 5 * 0.5 * (double)step[row] / sqrt((double)SEEDS));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),       cmocka_unit_test(test_options_layout),
        cmocka_unit_test(test_idle_options),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_error_bound),    cmocka_unit_test(test_half_inputs),
        cmocka_unit_test(test_half_scales),    cmocka_unit_test(test_stochastic),
        cmocka_unit_test(test_promised_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
