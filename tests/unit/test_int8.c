/* int8's modes against recorded runs: LLM.int8's weights (bitsandbytes' CPU operators) and
 * SmoothQuant's scales, folded norms and weights, and 8-bit outputs. */
#include "../fixtures/error_is.h"
#include "quant_golden.h"
#include "tessera/quantizer_block.h"

extern const struct tsr_plugin tsr_builtin_int8;

/* The layout that the option table describes; the offsets are checked against it. */
struct options {
    int64_t mode;
    int32_t clip;
    int64_t scale;
    double  threshold, alpha;
};
enum { PLAIN, LLM, SMOOTH };

static const struct tsr_quantizer_v1 *int8(void)
{
    return tsr_builtin_int8.components[0]->iface;
}

static void *create(const struct options *o)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = NULL;
    if (int8()->create(&golden_host, o, &self, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return self;
}

/* ---- LLM.int8 ------------------------------------------------------------------ */

static void check_llm(const struct golden *g, const json_t *c)
{
    const char                          *name = golden_str(c, "name");
    const struct tsr_safetensors_tensor *w_info = tsr_safetensors_find(&g->st, golden_str(c, "W"));
    const struct tsr_safetensors_tensor *x_info = tsr_safetensors_find(&g->st, golden_str(c, "X"));
    assert_true(w_info && x_info && w_info->rank == 2);
    uint64_t       rows = w_info->shape[0], cols = w_info->shape[1], tokens = x_info->shape[0];
    struct options o = {
        .mode = LLM, .clip = 1, .scale = TSR_F32, .threshold = golden_real(c, "threshold")
    };
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_quant_plan plan;
    unsigned char        *codes, *meta;
    float                *w = golden_tensor(g, golden_str(c, "W"), rows * cols);
    float                *absmax = golden_tensor(g, golden_str(c, "SCB"), rows);
    int32_t              *want = golden_tensor(g, golden_str(c, "CB"), rows * cols);
    int32_t              *inputs = golden_tensor(g, golden_str(c, "CA"), tokens * cols);
    int32_t              *product = golden_tensor(g, golden_str(c, "int32_product"), tokens * rows);
    float                *dense = tsr_new(rows * cols, sizeof *dense);
    assert_non_null(dense);
    struct tsr_matrix m = golden_matrix(name, w, rows, cols);
    void             *self = create(&o);
    if (golden_quantize(int8(), self, &m, &plan, &codes, &meta, dense, &e.err) != TSR_OK)
        fail_msg("%s: %s", name, e.text);
    assert_int_equal(plan.need, 0);
    assert_int_equal(plan.format.act8, TSR_ACT8_LLM);
    assert_true(plan.format.act8_threshold == o.threshold);
    assert_true(plan.format.bits == 8 && plan.format.group == 0 &&
                plan.format.zero == TSR_ZERO_MID);
    for (uint64_t r = 0; r < rows; r++) {
        float scale;
        memcpy(&scale, meta + r * plan.meta_bytes, sizeof scale);
        /* an all-zero row may have any scale */
        if (!(scale == (absmax[r] == 0.0f ? 1.0f : absmax[r] / 127.0f)))
            fail_msg("%s: row %d has scale %.9g", name, (int)r, (double)scale);
        for (uint64_t k = 0; k < cols; k++)
            if ((int)codes[r * cols + k] - 128 != want[r * cols + k])
                fail_msg("%s: row %d column %d: code %d, recorded %d", name, (int)r, (int)k,
                         codes[r * cols + k] - 128, want[r * cols + k]);
    }
    for (uint64_t t = 0; t < tokens; t++)
        for (uint64_t r = 0; r < rows; r++) {
            int32_t sum = 0;
            for (uint64_t k = 0; k < cols; k++)
                sum += inputs[t * cols + k] * ((int)codes[r * cols + k] - 128);
            assert_int_equal(sum, product[t * rows + r]);
        }
    int8()->destroy(self);
    free(codes);
    free(meta);
    free(dense);
    free(product);
    free(inputs);
    free(want);
    free(absmax);
    free(w);
}

static void test_llm(void **state)
{
    (void)state;
    struct golden g;
    size_t        i;
    json_t       *c;
    golden_open(&g, "int8");
    json_array_foreach (json_object_get(g.index, "cases"), i, c)
        check_llm(&g, c);
    assert_int_equal(i, 6);
    golden_close(&g);
}

/* With F16 scales the codes are of the scale as stored. */
static void test_llm_half(void **state)
{
    (void)state;
    struct options        o = { .mode = LLM, .scale = TSR_F16, .threshold = 6.0 };
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_quant_plan plan;
    unsigned char        *codes, *meta;
    float                 w[4 * 33], dense[4 * 33];
    for (int i = 0; i < 4 * 33; i++)
        w[i] = (float)sin(i * 12.9898) * (float)(1 + i % 7);
    struct tsr_matrix m = golden_matrix("w", w, 4, 33);
    void             *self = create(&o);
    if (golden_quantize(int8(), self, &m, &plan, &codes, &meta, dense, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (int i = 0; i < 4 * 33; i++) {
        float    scale;
        uint16_t h;
        memcpy(&h, meta + (uint64_t)(i / 33) * plan.meta_bytes, sizeof h);
        scale = tsr_f16_f32(h);
        float want = fminf(fmaxf(rintf(w[i] / scale), -127.0f), 127.0f);
        assert_int_equal((int)codes[i] - 128, (int)want);
    }
    free(codes);
    free(meta);
    int8()->destroy(self);
}

/* ---- SmoothQuant ------------------------------------------------------------------ */

#define COLS   128
#define TOKENS 40
#define OUT    80

static const uint64_t rows_of[2] = { 48, 32 };

/* The norm's output in double, rounded to F32. */
static void run_norm(const float *hidden, const float *gain, const float *bias, double eps,
                     float *out)
{
    for (int t = 0; t < TOKENS; t++, hidden += COLS, out += COLS) {
        double mean = 0.0, sum = 0.0;
        for (int k = 0; k < COLS && bias; k++)
            mean += (double)hidden[k] / COLS;
        for (int k = 0; k < COLS; k++)
            sum += ((double)hidden[k] - mean) * ((double)hidden[k] - mean);
        for (int k = 0; k < COLS; k++)
            out[k] = (float)(((double)hidden[k] - mean) / sqrt(sum / COLS + eps) * (double)gain[k] +
                             (double)(bias ? bias[k] : 0.0f));
    }
}

/* The recording program's activations: one scale per token, no clamp. */
static void round_tokens(float *x, float *scales)
{
    for (int t = 0; t < TOKENS; t++, x += COLS) {
        float top = 1e-5f;
        for (int k = 0; k < COLS; k++)
            top = fmaxf(top, fabsf(x[k]));
        scales[t] = top / 127.0f;
        for (int k = 0; k < COLS; k++)
            x[k] = rintf(x[k] / scales[t]) * scales[t];
    }
}

/* One site of two linears behind a norm. */
struct layer {
    float *w[2], *bias[2], *gain, *shift, *absmax, *scale;
};

static void layer_read(struct layer *l, const struct golden *g, const json_t *c)
{
    const json_t *biases = json_object_get(c, "biases");
    *l = (struct layer){ 0 };
    for (size_t i = 0; i < 2; i++) {
        l->w[i] =
            golden_tensor(g, json_string_value(json_array_get(json_object_get(c, "weights"), i)),
                          rows_of[i] * COLS);
        if (biases)
            l->bias[i] = golden_tensor(g, json_string_value(json_array_get(biases, i)), rows_of[i]);
    }
    l->gain = golden_tensor(g, golden_str(c, "norm_weight"), COLS);
    if (biases)
        l->shift = golden_tensor(g, golden_str(c, "norm_bias"), COLS);
    l->absmax = golden_tensor(g, golden_str(c, "act_absmax"), COLS);
    l->scale = tsr_new(COLS, sizeof(float));
    assert_non_null(l->scale);
    for (int k = 0; k < COLS; k++)
        l->scale[k] = 1.0f;
}

static void layer_free(struct layer *l)
{
    for (int i = 0; i < 2; i++) {
        free(l->w[i]);
        free(l->bias[i]);
    }
    free(l->gain);
    free(l->shift);
    free(l->absmax);
    free(l->scale);
}

static tsr_status no_loss(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                          double *mse, struct tsr_err *err)
{
    (void)ctx;
    (void)site;
    (void)linears;
    (void)mse;
    return tsr_fail(err, TSR_E_INVAL, "nothing is searched here");
}

/* Lets the plugin choose the site's scale; producer as given. */
static tsr_status search(void *self, struct layer *l, uint32_t producer, struct tsr_err *err)
{
    const struct tsr_quantizer_block_v1 *t = int8()->extension(self, TSR_QUANTIZER_BLOCK);
    struct tsr_matrix                    m[2];
    const struct tsr_matrix             *list[2] = { &m[0], &m[1] };
    assert_non_null(t);
    assert_int_equal(t->block_need(self), TSR_NEED_ABSMAX);
    for (int i = 0; i < 2; i++)
        m[i] = golden_matrix("w", l->w[i], rows_of[i], COLS);
    struct tsr_quant_stats stats = {
        .struct_size = sizeof stats, .cols = COLS, .tokens = TOKENS, .absmax = l->absmax
    };
    struct tsr_block_site        site = { .struct_size = sizeof site,
                                          .producer = producer,
                                          .name = "attn_in",
                                          .cols = COLS,
                                          .n_linears = 2,
                                          .linears = list,
                                          .stats = &stats };
    const struct tsr_block_site *sites[1] = { &site };
    struct tsr_block_choice      choice = { .struct_size = sizeof choice, .scale = l->scale };
    struct tsr_block_choice     *choices[1] = { &choice };
    struct tsr_block             block = { .struct_size = sizeof block,
                                           .name = "model.layers.0",
                                           .n_sites = 1,
                                           .sites = sites,
                                           .loss = no_loss };
    return t->search(self, &block, choices, err);
}

/* Outputs [TOKENS, OUT] of 8-bit inputs and the plugin's weights; scales of rows to row_scale. */
static void run_8bit(void *self, const struct layer *l, float *x, float *token_scale,
                     float *row_scale, double *out)
{
    uint64_t at = 0;
    round_tokens(x, token_scale);
    for (int i = 0; i < 2; at += rows_of[i++]) {
        struct tsr_errbuf     e = TSR_ERRBUF(e);
        struct tsr_matrix     m = golden_matrix("w", l->w[i], rows_of[i], COLS);
        struct tsr_quant_plan plan;
        unsigned char        *codes, *meta;
        float                 dense[48 * COLS] = { 0 };
        if (golden_quantize(int8(), self, &m, &plan, &codes, &meta, dense, &e.err) != TSR_OK)
            fail_msg("%s", e.text);
        assert_true(plan.need == 0 && plan.format.act8 == TSR_ACT8_BLOCKS);
        for (uint64_t r = 0; r < rows_of[i]; r++) {
            memcpy(&row_scale[at + r], meta + r * plan.meta_bytes, 4);
            for (uint64_t t = 0; t < TOKENS; t++) {
                double sum = l->bias[i] ? (double)l->bias[i][r] : 0.0;
                for (uint64_t k = 0; k < COLS; k++)
                    sum += (double)x[t * COLS + k] * (double)dense[r * COLS + k];
                out[t * OUT + at + r] = sum;
            }
        }
        free(codes);
        free(meta);
    }
}

/* Mean difference and mean magnitude; an 8-bit code that flips moves an output. */
static void check_outputs(const char *name, const double *got, const float *want)
{
    double diff = 0.0, size = 0.0;
    for (int i = 0; i < TOKENS * OUT; i++) {
        diff += fabs(got[i] - (double)want[i]);
        size += fabs((double)want[i]);
    }
    if (!(diff <= 0.002 * size))
        fail_msg("%s: outputs differ by %.3g of their size", name, diff / size);
}

static double squared(const double *a, const float *b)
{
    double sum = 0.0;
    for (int i = 0; i < TOKENS * OUT; i++)
        sum += (a[i] - (double)b[i]) * (a[i] - (double)b[i]);
    return sum / (TOKENS * OUT);
}

/* The norm divided and the weights multiplied, as the host does it. */
static void fold(struct layer *l)
{
    for (int k = 0; k < COLS; k++) {
        l->gain[k] /= l->scale[k];
        if (l->shift)
            l->shift[k] /= l->scale[k];
    }
    for (int i = 0; i < 2; i++)
        for (uint64_t n = 0; n < rows_of[i] * COLS; n++)
            l->w[i][n] *= l->scale[n % COLS];
}

static void compare(const struct golden *g, const char *what, const char *name, const float *got,
                    uint64_t n)
{
    float *want = golden_tensor(g, name, n);
    golden_close_to(what, got, want, n, 1e-5);
    free(want);
}

static void check_smooth(const struct golden *g, const json_t *c)
{
    const char    *name = golden_str(c, "name");
    struct options o = {
        .mode = SMOOTH, .clip = 1, .scale = TSR_F32, .alpha = golden_real(c, "alpha")
    };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct layer      l;
    double            eps = golden_real(c, "norm_eps");
    static float      x[TOKENS * COLS];
    static double     plain[TOKENS * OUT], smooth[TOKENS * OUT];
    float             token_scale[TOKENS], row_scale[OUT];
    void             *self = create(&o);
    layer_read(&l, g, c);
    float *hidden = golden_tensor(g, golden_str(c, "hidden"), (uint64_t)TOKENS * COLS);
    float *exact = golden_tensor(g, golden_str(c, "out_fp32"), (uint64_t)TOKENS * OUT);
    float *want = golden_tensor(g, golden_str(c, "out_w8a8"), (uint64_t)TOKENS * OUT);
    float *want_plain =
        golden_tensor(g, golden_str(c, "out_w8a8_unsmoothed"), (uint64_t)TOKENS * OUT);

    run_norm(hidden, l.gain, l.shift, eps, x);
    run_8bit(self, &l, x, token_scale, row_scale, plain);
    check_outputs("unsmoothed", plain, want_plain);

    if (search(self, &l, TSR_PRODUCER_NORM, &e.err) != TSR_OK)
        fail_msg("%s: %s", name, e.text);
    fold(&l);
    compare(g, "scales", golden_str(c, "scales"), l.scale, COLS);
    compare(g, "norm", golden_str(c, "folded_norm_weight"), l.gain, COLS);
    if (l.shift)
        compare(g, "norm bias", golden_str(c, "folded_norm_bias"), l.shift, COLS);
    compare(g, "weights",
            json_string_value(json_array_get(json_object_get(c, "folded_weights"), 0)), l.w[0],
            rows_of[0] * COLS);

    run_norm(hidden, l.gain, l.shift, eps, x);
    run_8bit(self, &l, x, token_scale, row_scale, smooth);
    compare(g, "token scales", golden_str(c, "act_scales_per_token"), token_scale, TOKENS);
    for (size_t i = 0; i < 2; i++)
        compare(g, "row scales",
                json_string_value(json_array_get(json_object_get(c, "weight_scales"), i)),
                row_scale + (i ? rows_of[0] : 0), rows_of[i]);
    check_outputs(name, smooth, want);
    double before = squared(plain, exact), after = squared(smooth, exact);
    if (!(fabs(after - golden_real(c, "mse_w8a8")) <= 0.02 * after) || !(after < 0.2 * before))
        fail_msg("%s: squared error %.6g, %.6g before smoothing", name, after, before);
    free(want_plain);
    free(want);
    free(exact);
    free(hidden);
    layer_free(&l);
    int8()->destroy(self);
}

static void test_smooth(void **state)
{
    (void)state;
    struct golden g;
    size_t        i;
    json_t       *c;
    golden_open(&g, "smoothquant");
    json_array_foreach (json_object_get(g.index, "cases"), i, c)
        check_smooth(&g, c);
    assert_int_equal(i, 6);
    golden_close(&g);
}

static void test_smooth_refusals(void **state)
{
    (void)state;
    struct options    o = { .mode = SMOOTH, .scale = TSR_F32, .alpha = 0.5 };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct golden     g;
    struct layer      l;
    void             *self = create(&o);
    golden_open(&g, "smoothquant");
    layer_read(&l, &g, json_array_get(json_object_get(g.index, "cases"), 0));

    assert_int_equal(search(self, &l, TSR_PRODUCER_LINEAR, &e.err), TSR_OK);
    for (int k = 0; k < COLS; k++)
        assert_true(l.scale[k] == 1.0f); /* only norms take a scale */

    float old = l.absmax[7];
    l.absmax[7] = NAN;
    assert_int_equal(search(self, &l, TSR_PRODUCER_NORM, &e.err), TSR_E_NUMERIC);
    assert_true(error_is(&e.err, "", "column#7"));
    l.absmax[7] = old;
    l.w[1][3 * COLS + 5] = INFINITY;
    assert_int_equal(search(self, &l, TSR_PRODUCER_NORM, &e.err), TSR_E_NUMERIC);
    assert_true(error_is(&e.err, "w", "row#3 column#5"));

    o.mode = PLAIN;
    void *plain = create(&o);
    assert_null(int8()->extension(plain, TSR_QUANTIZER_BLOCK));
    int8()->destroy(plain);
    int8()->destroy(self);
    layer_free(&l);
    golden_close(&g);
}

static void test_options_layout(void **state)
{
    (void)state;
    const struct tsr_component *c = tsr_builtin_int8.components[0];
    static const struct {
        const char *name;
        uint64_t    offset;
    } want[] = { { "mode", offsetof(struct options, mode) },
                 { "clip", offsetof(struct options, clip) },
                 { "scale", offsetof(struct options, scale) },
                 { "threshold", offsetof(struct options, threshold) },
                 { "alpha", offsetof(struct options, alpha) } };
    assert_int_equal(c->options_size, sizeof(struct options));
    assert_int_equal(c->n_options, sizeof want / sizeof *want);
    for (uint64_t i = 0; i < c->n_options; i++) {
        assert_string_equal(c->options[i].name, want[i].name);
        assert_int_equal(c->options[i].offset, want[i].offset);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_layout),  cmocka_unit_test(test_llm),
        cmocka_unit_test(test_llm_half),        cmocka_unit_test(test_smooth),
        cmocka_unit_test(test_smooth_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
