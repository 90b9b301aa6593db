/* Indicators: the recorded omegas, ranks, and on the demo model the losses that an engine gives. */
#include "checkpoint/tokenizer.h"
#include "eval/eval.h"
#include "quant/gram.h"
#include "quant/indicator.h"
#include "quant_golden.h"

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "config/config.h"

#include <unistd.h>

#define DEMO    TSR_SOURCE_ROOT "/configs/demo"
#define SAMPLES 4 /* sequences of the recorded inputs */
#define SEQLEN  24

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

static struct tsr_model     *model;
static struct tsr_tokenizer *tokenizer;
static struct tsr_registry  *registry[2]; /* 1 and 3 threads */
static struct tsr_pool      *pool[2];

static int setup(void **state)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    (void)state;
    for (int i = 0; i < 2; i++)
        if (tsr_pool_create(&pool[i], i ? 3 : 1, &e.err) != TSR_OK ||
            tsr_plugin_registry_create(&registry[i], pool[i], &e.err) != TSR_OK ||
            tsr_plugin_registry_add_path(registry[i], TSR_TEST_PLUGINS, &e.err) != TSR_OK) {
            print_error("%s\n", e.text);
            return -1;
        }
    if (tsr_model_load(&model, DEMO, false, &e.err) != TSR_OK ||
        tsr_checkpoint_tokenizer_load(&tokenizer, DEMO, &e.err) != TSR_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_tokenizer_destroy(tokenizer);
    tsr_model_destroy(model);
    for (int i = 0; i < 2; i++) {
        tsr_plugin_registry_destroy(registry[i]);
        tsr_pool_destroy(pool[i]);
    }
    return 0;
}

static void close_to(const char *what, double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%s: %.17g instead of %.17g", what, got, want);
}

/* ---- schemes of one width ------------------------------------------------------------------- */

struct parsed {
    struct tsr_config_doc   *doc;
    struct tsr_quant_scheme *s;
};

static struct parsed scheme(struct tsr_registry *r, const char *yaml)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct tsr_diag  *d;
    struct parsed     p = { 0 };
    OK(tsr_config_diag_create(&d, &err.err));
    OK(tsr_config_doc_parse(&p.doc, "scheme.yaml", yaml, strlen(yaml), d, &err.err));
    OK(tsr_quant_scheme_create(&p.s, r, tsr_config_doc_root(p.doc), NULL, "test", d, &err.err));
    OK(tsr_config_diag_status(d, &err.err));
    tsr_config_diag_destroy(d);
    assert_non_null(p.s);
    return p;
}

static void parsed_free(struct parsed *p)
{
    tsr_quant_scheme_destroy(p->s);
    tsr_config_doc_destroy(p->doc);
}

/* ---- recorded omegas ------------------------------------------------------------------------ */

struct linear {
    const char *name;
    uint64_t    rows, cols, tokens; /* tokens of all samples */
    float      *w, *x;
};

static struct linear read_linear(const struct golden *g, const json_t *c)
{
    struct linear                        l = { .name = golden_str(c, "name") };
    const struct tsr_safetensors_tensor *x = tsr_safetensors_find(&g->st, golden_str(c, "X"));
    assert_true(x && x->rank == 3 && x->shape[0] == SAMPLES);
    l.cols = (uint64_t)golden_real(c, "in_features");
    l.rows = (uint64_t)golden_real(c, "out_features");
    l.tokens = x->shape[0] * x->shape[1];
    l.w = golden_tensor(g, golden_str(c, "W"), l.rows * l.cols);
    l.x = golden_tensor(g, golden_str(c, "X"), l.tokens * l.cols);
    return l;
}

static void linear_free(struct linear *l)
{
    free(l->w);
    free(l->x);
}

static struct tsr_matrix matrix(const struct linear *l)
{
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = l->name,
                                .data = l->w,
                                .rows = l->rows,
                                .cols = l->cols,
                                .row_stride = l->cols * sizeof(float) };
}

/* Mean and variance over all channels, in double. */
static void moments_overall(const struct tsr_quant_moments *m, double *mean, double *variance)
{
    double sum = 0, square = 0, n = (double)m->rows * (double)m->cols;
    for (uint64_t c = 0; c < m->cols; c++) {
        sum += m->sum[c];
        square += m->square[c];
    }
    *mean = sum / n;
    *variance = fmax(square / n - *mean * *mean, 0);
}

static void overall(const struct linear *l, uint64_t first, uint64_t n, double *mean, double *var,
                    struct tsr_quant_stats *stats)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_quant_moments m;
    OK(tsr_quant_moments_create(&m, l->cols, &err.err));
    for (uint64_t at = first; at < first + n; at += l->tokens / SAMPLES) /* sample by sample */
        OK(tsr_quant_moments_add(&m, pool[1], l->x + at * l->cols, l->tokens / SAMPLES, &err.err));
    moments_overall(&m, mean, var);
    if (stats)
        OK(tsr_quant_moments_finish(&m, stats, &err.err));
    tsr_quant_moments_free(&m);
}

static void check_variances(const struct linear *l, const json_t *c, const json_t *bits, uint32_t b,
                            double mean, double var, double sums[2][2][2])
{
    static const char *const names[2][2] = { { "tensor_asym", "tensor_sym" },
                                             { "row_asym", "row_sym" } };
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_quant_extents e;
    struct tsr_matrix        w = matrix(l);
    (void)c;
    OK(tsr_quant_extents_of(&w, &e, &err.err));
    for (int step = 0; step < 2; step++)
        for (int sym = 0; sym < 2; sym++) {
            const json_t *o = json_object_get(json_object_get(bits, "omega"), names[step][sym]);
            double        sq =
                tsr_quant_extents_step_sq(&e, b, step ? TSR_QUANT_STEP_ROW : TSR_QUANT_STEP_TENSOR,
                                          sym);
            double nearest = tsr_quant_omega_variance(l->cols, sq, mean, var, false);
            double stochastic = tsr_quant_omega_variance(l->cols, sq, mean, var, true);
            close_to(names[step][sym], sq, golden_real(o, "S_squared"), 1e-12);
            close_to(names[step][sym], nearest, golden_real(o, "omega_deterministic"), 1e-12);
            close_to(names[step][sym], stochastic, golden_real(o, "omega_stochastic"), 1e-12);
            sums[step][sym][0] += nearest;
            sums[step][sym][1] += stochastic;
        }
}

static void recorded_variances(void **state)
{
    (void)state;
    static const uint32_t widths[] = { 3, 4, 8 };
    double                sums[3][2][2][2] = { 0 };
    struct golden         g;
    size_t                i;
    json_t               *c;
    golden_open(&g, "indicator");
    json_array_foreach (json_object_get(g.index, "cases"), i, c) {
        struct linear          l = read_linear(&g, c);
        double                 mean, var, m, v;
        const json_t          *last = json_object_get(c, "last_sample_only");
        struct tsr_quant_stats s;
        overall(&l, 0, l.tokens, &mean, &var, &s);
        close_to("mean", mean, golden_real(c, "mean_X"), 1e-12);
        close_to("variance", var, golden_real(c, "var_X"), 1e-12);
        /* columns are kept as F32: half a unit of 2^-23 each, some of it in squares */
        tsr_quant_stats_overall(&s, &m, &v);
        assert_true(fabs(m - mean) <= 1e-7 * (fabs(mean) + sqrt(var)));
        close_to("variance from F32", v, var, 3e-7);
        free((void *)(uintptr_t)s.absmax);
        free((void *)(uintptr_t)s.mean);
        free((void *)(uintptr_t)s.variance);
        free((void *)(uintptr_t)s.mean_abs);
        /* the trap: statistics that forget all samples but the last are others, and are not ours */
        overall(&l, l.tokens - l.tokens / SAMPLES, l.tokens / SAMPLES, &m, &v, NULL);
        close_to("last mean", m, golden_real(last, "mean_X"), 1e-12);
        close_to("last variance", v, golden_real(last, "var_X"), 1e-12);
        assert_true(fabs(v - var) > 1e-3 * var);
        for (int k = 0; k < 3; k++) {
            char key[8];
            (void)snprintf(key, sizeof key, "%u", widths[k]);
            check_variances(&l, c, json_object_get(json_object_get(c, "bits"), key), widths[k],
                            mean, var, sums[k]);
        }
        linear_free(&l);
    }
    for (int k = 0; k < 3; k++) {
        static const char *const names[2][2] = { { "tensor_asym", "tensor_sym" },
                                                 { "row_asym", "row_sym" } };
        char                     key[8];
        (void)snprintf(key, sizeof key, "%u", widths[k]);
        const json_t *layer = json_object_get(json_object_get(g.index, "layer_sums"), key);
        for (int step = 0; step < 2; step++)
            for (int sym = 0; sym < 2; sym++) {
                const json_t *o = json_object_get(layer, names[step][sym]);
                close_to("sum", sums[k][step][sym][0], golden_real(o, "omega_deterministic"),
                         1e-12);
                close_to("sum", sums[k][step][sym][1], golden_real(o, "omega_stochastic"), 1e-12);
            }
    }
    golden_close(&g);
}

/* What rounding really costs, as the record's simulation has it: the stochastic form is that within its
 * sampling error (5 standard errors); a quarter of the variance is above it only where the inputs have
 * little mean, which is why omega ranks and is nowhere said to bound. */
static void beside_simulated_rounding(void **state)
{
    (void)state;
    static const uint32_t widths[] = { 3, 4, 8 };
    struct golden         g;
    size_t                i;
    json_t               *c;
    unsigned              above = 0, below = 0;
    golden_open(&g, "indicator");
    json_array_foreach (json_object_get(g.index, "cases"), i, c) {
        struct tsr_errbuf        err = TSR_ERRBUF(err);
        struct linear            l = read_linear(&g, c);
        struct tsr_matrix        w = matrix(&l);
        struct tsr_quant_extents e;
        double                   mean, var;
        overall(&l, 0, l.tokens, &mean, &var, NULL);
        OK(tsr_quant_extents_of(&w, &e, &err.err));
        for (int k = 0; k < 3; k++) {
            char key[8];
            (void)snprintf(key, sizeof key, "%u", widths[k]);
            const json_t *b = json_object_get(json_object_get(c, "bits"), key),
                         *m = json_object_get(b, "monte_carlo_row_sym"),
                         *nearest = json_object_get(m, "nearest"),
                         *stochastic = json_object_get(m, "stochastic");
            double sq = tsr_quant_extents_step_sq(&e, widths[k], TSR_QUANT_STEP_ROW, true);
            double is = golden_real(stochastic, "mean_squared_output_error"),
                   room = 5 * golden_real(stochastic, "standard_error");
            double omega = tsr_quant_omega_variance(l.cols, sq, mean, var, true);
            if (!(fabs(omega - is) <= room))
                fail_msg("%s, %u bits: stochastic %g, simulated %g", l.name, widths[k], omega, is);
            omega = tsr_quant_omega_variance(l.cols, sq, mean, var, false);
            is = golden_real(nearest, "mean_squared_output_error");
            bool bound = mean * mean <= 2 * var;
            if (!(bound ? omega > is : omega < is))
                fail_msg("%s, %u bits: nearest %g, simulated %g", l.name, widths[k], omega, is);
            *(bound ? &above : &below) += 1;
        }
        linear_free(&l);
    }
    assert_true(above > 0 && below > 0); /* both kinds of inputs are recorded */
    golden_close(&g);
}

/* The largest eigenvalue of 2 / samples * X^T X, and what the indicator makes of it on the recorded
 * weight errors. */
static void recorded_hessians(void **state)
{
    (void)state;
    static const char *const widths[] = { "3", "4", "8" };
    static const char *const grids[] = { "gptq_sym_grid", "row_absmax_grid" };
    struct golden            g;
    size_t                   i;
    json_t                  *c;
    golden_open(&g, "indicator");
    json_array_foreach (json_object_get(g.index, "cases"), i, c) {
        struct tsr_errbuf     err = TSR_ERRBUF(err);
        struct linear         l = read_linear(&g, c);
        struct tsr_quant_gram gram;
        bool                  settled = false;
        double                top[2] = { NAN, NAN };
        for (int p = 0; p < 2; p++) { /* sample by sample on one thread, all at once on three */
            uint64_t n = p ? l.tokens : l.tokens / SAMPLES;
            OK(tsr_quant_gram_create(&gram, l.cols, &err.err));
            for (uint64_t at = 0; at < l.tokens; at += n)
                OK(tsr_quant_gram_add(&gram, pool[p], l.x + at * l.cols, n, &err.err));
            OK(tsr_quant_gram_top(&gram, pool[p], &top[p], &settled, &err.err));
            assert_true(settled);
            tsr_quant_gram_free(&gram);
        }
        assert_true(top[0] == top[1]);
        close_to("lambda", 2.0 / SAMPLES * top[0], golden_real(c, "lambda_max_H"), 1e-12);
        for (int k = 0; k < 3; k++)
            for (int grid = 0; grid < 2; grid++) {
                const json_t *b = json_object_get(json_object_get(c, "bits"), widths[k]);
                const json_t *o = json_object_get(json_object_get(b, "hessian"), grids[grid]);
                close_to("hessian", 2.0 / SAMPLES * top[0] * golden_real(o, "sum_sq_weight_error"),
                         golden_real(o, "omega"), 1e-12);
            }
        linear_free(&l);
    }
    assert_int_equal(i, 3);
    golden_close(&g);
}

/* The squared error of rounding to the recorded symmetric grid: steps and values in double as it was
 * recorded, or in F32 as they are packed. */
static double grid_error(const struct linear *l, int bits, bool packed)
{
    double sum = 0, levels = (double)((1 << bits) - 1), middle = (double)(1 << (bits - 1));
    for (uint64_t r = 0; r < l->rows; r++) {
        const float *w = l->w + r * l->cols;
        double       top = 0;
        for (uint64_t c = 0; c < l->cols; c++)
            top = fmax(top, fabs((double)w[c]));
        double step = packed ? (double)(2 * (float)top / (float)levels) : 2 * top / levels;
        for (uint64_t c = 0; c < l->cols; c++) {
            double at = packed ? (double)(w[c] / (float)step) : (double)w[c] / step;
            double code = fmin(fmax(rint(at) + middle, 0), levels) - middle;
            double value = packed ? (double)((float)code * (float)step) : code * step;
            sum += ((double)w[c] - value) * ((double)w[c] - value);
        }
    }
    return sum;
}

/* The quantizer's own error, which the indicator takes: in double over values that are F32.  The recorded
 * one has steps and values in double; rounding both to F32 moves a value by 1.2e-7 of itself at most, 128
 * steps at 8 bits, so 1.5e-5 of a step where errors are 0.3 steps: by chance up or down, 1e-6 of the sum. */
static void errors_of_the_grid(void **state)
{
    (void)state;
    static const int       widths[] = { 3, 4, 8 };
    struct golden          g;
    size_t                 i;
    json_t                *c;
    const struct tsr_host *host = tsr_plugin_registry_host(registry[1]);
    golden_open(&g, "indicator");
    json_array_foreach (json_object_get(g.index, "cases"), i, c) {
        struct linear     l = read_linear(&g, c);
        struct tsr_matrix w = matrix(&l);
        for (int k = 0; k < 3; k++) {
            struct tsr_errbuf       err = TSR_ERRBUF(err);
            char                    key[8], yaml[96];
            struct tsr_plugin_found found;
            struct tsr_config_doc  *doc;
            struct tsr_diag        *d;
            (void)snprintf(key, sizeof key, "%d", widths[k]);
            const json_t *b = json_object_get(json_object_get(c, "bits"), key);
            const json_t *o = json_object_get(json_object_get(b, "hessian"), "gptq_sym_grid");
            double        recorded = golden_real(o, "sum_sq_weight_error");
            close_to("recorded grid", grid_error(&l, widths[k], false), recorded, 1e-12);
            OK(tsr_plugin_registry_find(registry[1], TSR_KIND_QUANTIZER, "rtn", &found, &err.err));
            void *opts = calloc(1, found.component->options_size), *self = NULL;
            assert_non_null(opts);
            (void)snprintf(yaml, sizeof yaml, "{bits: %d, group: -1, symmetric: true, scale: f32}",
                           widths[k]);
            OK(tsr_config_diag_create(&d, &err.err));
            OK(tsr_config_doc_parse(&doc, "o.yaml", yaml, strlen(yaml), d, &err.err));
            struct tsr_config_optset set = { found.component->options, found.component->n_options,
                                             found.component->option_stride, opts };
            tsr_config_options_fill(&set, 1, NULL, tsr_config_doc_root(doc), "rtn", d);
            OK(tsr_config_diag_status(d, &err.err));
            struct tsr_quantizer q = { .iface = found.iface, .name = "rtn" };
            OK(q.iface->create(host, opts, &self, &err.err));
            q.self = self;
            struct tsr_model_packed *p = NULL;
            OK(tsr_quantize_matrix(registry[1], &q, &w, NULL, &p, &err.err));
            close_to("packed grid", p->squared_error, grid_error(&l, widths[k], true), 1e-12);
            close_to("squared error", p->squared_error, recorded, 1e-6);
            tsr_model_packed_destroy(p);
            q.iface->destroy(self);
            tsr_config_diag_destroy(d);
            tsr_config_doc_destroy(doc);
            free(opts);
        }
        linear_free(&l);
    }
    assert_int_equal(i, 3);
    golden_close(&g);
}

/* ---- random and ranks ------------------------------------------------------------------------ */

static void random_falls_with_the_bits(void **state)
{
    (void)state;
    const uint32_t bits[5] = { 2, 3, 4, 8, 16 };
    double         first = 0;
    for (uint64_t l = 0; l < 200; l++) {
        double a[5], b[5];
        tsr_quant_omega_random(7, l, bits, 5, a);
        tsr_quant_omega_random(7, l, bits, 5, b);
        assert_memory_equal(a, b, sizeof a);
        for (int i = 0; i < 4; i++)
            assert_true(a[i] > a[i + 1] && a[i] < 1);
        assert_true(a[4] == 0);
        tsr_quant_omega_random(8, l, bits, 5, b);
        assert_true(a[0] != b[0]);
        first += a[0] / 200;
    }
    /* the largest of 5 uniform draws: mean 5/6, standard deviation 0.141 / sqrt(200) = 0.01 */
    assert_true(fabs(first - 5.0 / 6) < 0.05);
}

static void kendall(void **state)
{
    (void)state;
    const double a[] = { 1, 2, 3, 4, 5 }, r[] = { 9, 7, 5, 3, 1 }, same[] = { 2, 2, 2, 2, 2 };
    /* the example of scipy.stats.kendalltau: -0.4714045207910317 */
    const double x[] = { 12, 2, 1, 12, 2 }, y[] = { 1, 4, 7, 1, 0 };
    const double swapped[] = { 1, 2, 3, 5, 4 }; /* 9 pairs agree, 1 does not */
    assert_true(tsr_quant_kendall_tau(a, a, 5) == 1);
    assert_true(tsr_quant_kendall_tau(a, r, 5) == -1);
    close_to("scipy", tsr_quant_kendall_tau(x, y, 5), -0.47140452079103168, 1e-14);
    close_to("one swap", tsr_quant_kendall_tau(a, swapped, 5), 0.8, 1e-14);
    assert_true(isnan(tsr_quant_kendall_tau(a, same, 5)));
    assert_true(isnan(tsr_quant_kendall_tau(a, a, 0)));
}

static void wrong_weights(void **state)
{
    (void)state;
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    float                    v[6] = { 1, 2, 3, 4, NAN, 6 };
    struct linear            l = { .name = "x.proj", .rows = 2, .cols = 3, .w = v };
    struct tsr_matrix        w = matrix(&l);
    struct tsr_quant_extents e;
    assert_int_equal(tsr_quant_extents_of(&w, &e, &err.err), TSR_E_NUMERIC);
    assert_true(error_is(&err.err, "x.proj", "1"));
    v[4] = -5;
    OK(tsr_quant_extents_of(&w, &e, &err.err));
    assert_true(e.range == 11 && e.absmax == 6);
    assert_true(e.row_range_sq == (4.0 + 121.0) / 2 && e.row_absmax_sq == (9.0 + 36.0) / 2);
}

/* ---- a model ---------------------------------------------------------------------------------- */

static struct tsr_quant_calibration *calibrate(struct tsr_registry *r)
{
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibration      *c = NULL;
    struct tsr_quant_calibrate_options o = { .text = DEMO "/calibration.txt",
                                             .samples = 3,
                                             .seqlen = SEQLEN,
                                             .seed = 2,
                                             .input_rows = 3 * SEQLEN,
                                             .defer = true };
    OK(tsr_quant_calibrate(&c, r, model, tokenizer, &o, &err.err));
    return c;
}

/* Mean loss over the first two sequences of an engine that holds the whole model. */
static double engine_loss(const struct tsr_quant_calibration *c, const struct tsr_model_overlay *o)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_options eo = { .kv_dtype = TSR_F32, .slots = 1, .context = SEQLEN };
    struct tsr_engine        *e = NULL;
    struct tsr_engine_token   t[SEQLEN];
    uint64_t                  vocab = model->hp.vocab;
    float                    *logits = tsr_new(SEQLEN * vocab, sizeof *logits);
    double                    sum = 0, lse;
    assert_non_null(logits);
    OK(tsr_engine_create(&e, registry[0], model, o, &eo, &err.err));
    for (uint64_t i = 0; i < 2; i++) {
        const uint32_t *ids = c->ids + i * SEQLEN;
        for (uint64_t k = 0; k < SEQLEN; k++)
            t[k] = (struct tsr_engine_token){ .id = ids[k], .logits = true };
        tsr_engine_reset(e, 0);
        OK(tsr_engine_forward(e, t, SEQLEN, logits, &err.err));
        for (uint64_t k = 0; k + 1 < SEQLEN; k++)
            sum += tsr_eval_nll(logits + k * vocab, vocab, ids[k + 1], &lse);
    }
    tsr_engine_destroy(e);
    free(logits);
    return sum / (2 * (SEQLEN - 1));
}

static struct tsr_quant_indicators indicators(int threads, struct tsr_quant_calibration *c)
{
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_indicators        t;
    struct parsed                      s3 = scheme(registry[threads], "{use: rtn, bits: 3}");
    struct parsed                      s8 = scheme(registry[threads], "{use: rtn, bits: 8}");
    struct tsr_quant_scheme           *list[TSR_INDICATOR_BITS] = { s3.s, s8.s, NULL };
    struct tsr_quant_indicator_options o = { .bits = { 3, 8, 16 },
                                             .n_bits = 3,
                                             .schemes = list,
                                             .kinds = (1u << TSR_QUANT_INDICATORS) - 1,
                                             .step = TSR_QUANT_STEP_ROW,
                                             .seed = 3,
                                             .sequences = 2 };
    OK(tsr_quant_indicators_run(&t, registry[threads], model, c, &o, &err.err));
    json_t *q = json_pack("{s:s}", "use", "rtn"),
           *j = tsr_quant_indicators_json(&t, model, c, &o, q);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "format")), "tessera.indicators/1");
    assert_int_equal(json_array_size(json_object_get(j, "tables")), TSR_QUANT_INDICATORS);
    const json_t *v = json_array_get(json_object_get(j, "tables"), TSR_QUANT_IND_MEASURED);
    v = json_array_get(json_array_get(json_object_get(v, "omega"), 1), 0);
    assert_true(json_real_value(v) == t.omega[TSR_QUANT_IND_MEASURED][1 * 3 + 0]);
    json_decref(j);
    json_decref(q);
    parsed_free(&s3);
    parsed_free(&s8);
    return t;
}

/* The variance indicator of a layer from all recorded rows. */
static double plain_variance(struct tsr_quant_calibration *c, uint64_t layer, uint32_t bits)
{
    struct tsr_errbuf            err = TSR_ERRBUF(err);
    struct tsr_quant_layer_stats s;
    double                       sum = 0;
    OK(tsr_quant_calibration_layer(c, layer, TSR_NEED_INPUTS, NULL, &s, &err.err));
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_matrix      *w = &model->layers[layer].lin[i].w;
        const struct tsr_quant_stats *q = &s.site[tsr_model_linear_site((enum tsr_linear_id)i)];
        struct tsr_quant_extents      e;
        double                        total = 0, square = 0, n = (double)(q->input_rows * q->cols);
        if (!w->data)
            continue;
        assert_int_equal(q->input_rows, 3 * SEQLEN);
        for (uint64_t k = 0; k < q->input_rows * q->cols; k++)
            total += (double)q->inputs[k];
        for (uint64_t k = 0; k < q->input_rows * q->cols; k++)
            square += pow((double)q->inputs[k] - total / n, 2);
        OK(tsr_quant_extents_of(w, &e, &err.err));
        sum +=
            tsr_quant_omega_variance(w->cols,
                                     tsr_quant_extents_step_sq(&e, bits, TSR_QUANT_STEP_ROW, false),
                                     total / n, square / n, false);
    }
    tsr_quant_layer_stats_free(&s);
    return sum;
}

static void a_model(void **state)
{
    (void)state;
    struct tsr_errbuf             err = TSR_ERRBUF(err);
    struct tsr_quant_calibration *c = calibrate(registry[0]), *c2 = calibrate(registry[1]);
    struct tsr_quant_indicators   t = indicators(0, c), u = indicators(1, c2);
    double                        original = engine_loss(c, NULL);
    assert_true(t.loss == original); /* the same logits, the same order of the sum */
    assert_int_equal(t.tokens, 2 * (SEQLEN - 1));
    for (int i = 0; i < TSR_QUANT_INDICATORS; i++) {
        assert_memory_equal(t.omega[i], u.omega[i], t.layers * 3 * sizeof(double));
        for (uint64_t l = 0; l < t.layers; l++)
            assert_true(t.omega[i][l * 3 + 2] == 0); /* 16 bits: nothing changes */
    }
    for (uint64_t l = 0; l < t.layers; l += 2) {
        struct tsr_model_overlay *o = NULL;
        char                      yaml[160];
        (void)snprintf(yaml, sizeof yaml,
                       "{use: rtn, bits: 3, rules: [{layers: 0-%llu, keep: true}, "
                       "{layers: %llu, bits: 3}%s",
                       (unsigned long long)t.layers - 1, (unsigned long long)l, "]}");
        struct parsed s = scheme(registry[0], yaml);
        OK(tsr_quant_scheme_apply(s.s, registry[0], model, NULL, &o, &err.err));
        for (uint64_t k = 0; k < t.layers; k++)
            assert_true((o->lin[k][TSR_MODEL_UP] != NULL) == (k == l));
        assert_true(t.omega[TSR_QUANT_IND_MEASURED][l * 3] == engine_loss(c, o) - original);
        tsr_model_overlay_destroy(o);
        parsed_free(&s);
        /* columns' moments are F32 */
        close_to("variance", t.omega[TSR_QUANT_IND_VARIANCE][l * 3], plain_variance(c, l, 3), 1e-6);
        assert_true(t.omega[TSR_QUANT_IND_HESSIAN][l * 3] >
                    100 * t.omega[TSR_QUANT_IND_HESSIAN][l * 3 + 1]);
        assert_true(t.omega[TSR_QUANT_IND_HESSIAN][l * 3 + 1] > 0);
    }
    assert_true(tsr_quant_indicators_tau(&t, TSR_QUANT_IND_MEASURED, -1) == 1);
    assert_true(tsr_quant_indicators_tau(&t, TSR_QUANT_IND_VARIANCE, -1) >= -1);
    assert_true(isnan(
        tsr_quant_indicators_tau(&t, TSR_QUANT_IND_VARIANCE, 2))); /* 16 bits: nothing to rank */
    assert_true(t.seconds[TSR_QUANT_IND_MEASURED] > 0 && t.seconds[TSR_QUANT_IND_VARIANCE] > 0);
    tsr_quant_indicators_free(&t);
    tsr_quant_indicators_free(&u);
    tsr_quant_calibration_destroy(c);
    tsr_quant_calibration_destroy(c2);
}

/* ---- experts ---------------------------------------------------------------------------- */

#define MOE   TEST_GOLDEN "/models/qwen3_moe"
#define SMALL TEST_GOLDEN "/models/stories260k"

/* Indicators of a model with experts at 3 and 8 bits, and how many tokens each expert of layer 1 took, 0: none. */
static struct tsr_quant_indicators of_experts(struct tsr_model *m, const struct tsr_tokenizer *tok,
                                              const char *text, uint64_t *taken)
{
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibration      *c = NULL;
    struct tsr_quant_indicators        t;
    struct tsr_quant_layer_stats       s;
    struct parsed                      s3 = scheme(registry[0], "{use: rtn, bits: 3, group: 8}");
    struct parsed                      s8 = scheme(registry[0], "{use: rtn, bits: 8, group: 8}");
    struct tsr_quant_scheme           *list[TSR_INDICATOR_BITS] = { s3.s, s8.s };
    struct tsr_quant_calibrate_options co = {
        .text = text, .samples = 2, .seqlen = SEQLEN, .seed = 2, .defer = true
    };
    struct tsr_quant_indicator_options o = { .bits = { 3, 8 },
                                             .n_bits = 2,
                                             .schemes = list,
                                             .kinds = 1u << TSR_QUANT_IND_VARIANCE |
                                                      1u << TSR_QUANT_IND_HESSIAN,
                                             .step = TSR_QUANT_STEP_ROW };
    OK(tsr_quant_calibrate(&c, registry[0], m, tok, &co, &err.err));
    OK(tsr_quant_indicators_run(&t, registry[0], m, c, &o, &err.err));
    OK(tsr_quant_calibration_layer(c, 1, TSR_NEED_MEAN, NULL, &s, &err.err));
    for (uint64_t e = 0; e < m->hp.experts; e++) {
        enum tsr_site site = tsr_model_expert_site(e, TSR_MODEL_SITE_FFN_IN);
        taken[e] = s.borrowed[site] ? 0 : s.site[site].tokens;
    }
    tsr_quant_layer_stats_free(&s);
    json_t *q = json_pack("{s:s}", "use", "rtn"), *j = tsr_quant_indicators_json(&t, m, c, &o, q);
    for (size_t i = 0; i < 2; i++) { /* the file has them */
        const json_t *x = json_array_get(json_object_get(j, "tables"), i);
        x = json_array_get(json_array_get(json_object_get(x, "experts"), 1), 3);
        assert_true(
            json_real_value(json_array_get(x, 0)) ==
            t.expert[i ? TSR_QUANT_IND_HESSIAN : TSR_QUANT_IND_VARIANCE][(m->hp.experts + 3) * 2]);
    }
    json_decref(j);
    json_decref(q);
    tsr_quant_calibration_destroy(c);
    parsed_free(&s3);
    parsed_free(&s8);
    return t;
}

/* A text whose tokens are bytes, which the small tokenizer gives numbers below those of the model. */
static void write_bytes(char *path)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    for (unsigned i = 0; i < 4 * SEQLEN; i++) /* of three bytes each, from U+4E00 on */
        (void)fprintf(f, "%c%c%c", 0xE4 + (int)(i % 5), 0xB8 + (int)(i * i % 8),
                      0x80 + (int)(i * 29 % 64));
    assert_int_equal(fclose(f), 0);
}

/* An expert whose weights have outliers has a larger indicator, and nothing else of its layer has another. */
static void experts_apart(void **state)
{
    (void)state;
    struct tsr_errbuf     err = TSR_ERRBUF(err);
    struct tsr_model     *m = NULL;
    struct tsr_tokenizer *tok = NULL;
    uint64_t              taken[16], planted = 0;
    char                  text[] = "/tmp/tessera-experts-XXXXXX";
    write_bytes(text);
    OK(tsr_model_load(&m, MOE, false, &err.err));
    OK(tsr_checkpoint_tokenizer_load(&tok, SMALL, &err.err));
    uint64_t experts = m->hp.experts, at = experts * 2; /* of layer 1 */
    assert_in_range(experts, 4, 16);
    struct tsr_quant_indicators t = of_experts(m, tok, text, taken);
    for (uint64_t e = 1; e < experts; e++) /* one that few tokens take, but some */
        if (taken[e] && (!taken[planted] || taken[e] < taken[planted]))
            planted = e;
    struct tsr_matrix *w = &m->layers[1].lin[tsr_model_expert_linear(planted, TSR_MODEL_DOWN)].w;
    const void        *was = w->data;
    float             *copy = tsr_new(w->rows * w->cols, sizeof *copy);
    assert_non_null(copy);
    for (uint64_t r = 0; r < w->rows; r++)
        tsr_widen(copy + r * w->cols, (const unsigned char *)was + r * w->row_stride, w->dtype,
                  w->cols);
    for (uint64_t r = 0; r < w->rows; r++)
        for (uint64_t c = 0; c < w->cols; c += 8)
            copy[r * w->cols + c] *= 200;
    const struct tsr_matrix stored = *w;
    w->data = copy;
    w->dtype = TSR_F32;
    w->row_stride = w->cols * sizeof *copy;
    struct tsr_quant_indicators u = of_experts(m, tok, text, taken);
    *w = stored;
    free(copy);
    for (int k = 0; k < 2; k++) {
        enum tsr_indicator i = k ? TSR_QUANT_IND_HESSIAN : TSR_QUANT_IND_VARIANCE;
        const double      *a = t.expert[i] + at, *b = u.expert[i] + at;
        double             sum = 0;
        for (uint64_t e = 0; e < experts; e++) {
            sum += b[e * 2];
            assert_true(taken[e] ? a[e * 2] > a[e * 2 + 1] && a[e * 2 + 1] > 0 : a[e * 2] == 0);
            if (e == planted)
                continue;
            assert_true(b[e * 2] == a[e * 2]);
            assert_true(b[planted * 2] > b[e * 2]);
        }
        assert_true(b[planted * 2] > 10 * a[planted * 2]);
        /* what is left of the layer is what it was */
        close_to("the rest", u.omega[i][2] - b[planted * 2], t.omega[i][2] - a[planted * 2], 1e-9);
        assert_true(sum < u.omega[i][2]);
        assert_null(t.expert[TSR_QUANT_IND_MEASURED]);
    }
    tsr_quant_indicators_free(&t);
    tsr_quant_indicators_free(&u);
    tsr_tokenizer_destroy(tok);
    tsr_model_destroy(m);
    assert_int_equal(unlink(text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_variances),
        cmocka_unit_test(beside_simulated_rounding),
        cmocka_unit_test(recorded_hessians),
        cmocka_unit_test(errors_of_the_grid),
        cmocka_unit_test(random_falls_with_the_bits),
        cmocka_unit_test(kendall),
        cmocka_unit_test(wrong_weights),
        cmocka_unit_test(a_model),
        cmocka_unit_test(experts_apart),
    };
    return cmocka_run_group_tests_name("indicator", tests, setup, teardown);
}
