/* Calibration layer by layer: the statistics are those of the engine's own inputs over all
 * samples, Hessians are the sums that the goldens define, stored files come back byte for byte,
 * and quantized layers in front are those of the overlay. */
#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/tokenizer.h"
#include "config/config.h"
#include "quant/calibrate.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DEMO    TSR_SOURCE_ROOT "/configs/demo"
#define SAMPLES 3
#define SEQLEN  20
#define TOKENS  (SAMPLES * SEQLEN)
#define MOMENTS (TSR_NEED_ABSMAX | TSR_NEED_MEAN | TSR_NEED_VARIANCE | TSR_NEED_MEAN_ABS)
#define ALL     (MOMENTS | TSR_NEED_HESSIAN | TSR_NEED_INPUTS | TSR_NEED_TOP)

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

static struct tsr_quant_calibrate_options options(void)
{
    return (struct tsr_quant_calibrate_options){ .text = DEMO "/calibration.txt",
                                                 .samples = SAMPLES,
                                                 .seqlen = SEQLEN,
                                                 .seed = 11,
                                                 .input_rows = TOKENS };
}

static struct tsr_quant_calibration *calibrate(int                                       threads,
                                               const struct tsr_quant_calibrate_options *o)
{
    struct tsr_errbuf             err = TSR_ERRBUF(err);
    struct tsr_quant_calibration *c = NULL;
    OK(tsr_quant_calibrate(&c, registry[threads], model, tokenizer, o, &err.err));
    return c;
}

/* ---- the engine's own inputs ------------------------------------------------------------------ */

/* Inputs of one site of one layer, as an engine that holds the whole model makes them. */
struct seen {
    uint64_t      layer;
    enum tsr_site site;
    float        *x;
    uint64_t      rows, cols;
};

static tsr_status see(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                      uint64_t cols, struct tsr_err *err)
{
    struct seen *s = ctx;
    (void)err;
    if (layer != s->layer || site != s->site)
        return TSR_OK;
    if (!s->x)
        s->x = tsr_new(TOKENS * cols, sizeof *s->x);
    assert_non_null(s->x);
    s->cols = cols;
    memcpy(s->x + s->rows * cols, x, n * cols * sizeof *x);
    s->rows += n;
    return TSR_OK;
}

static struct seen engine_inputs(const struct tsr_quant_calibration *c,
                                 const struct tsr_model_overlay *o, uint64_t layer,
                                 enum tsr_site site)
{
    struct tsr_errbuf         err = TSR_ERRBUF(err);
    struct tsr_engine_options eo = { .kv_dtype = TSR_F32, .slots = 1, .context = SEQLEN };
    struct tsr_engine        *e = NULL;
    struct seen               s = { .layer = layer, .site = site };
    struct tsr_engine_token   t[SEQLEN];
    float                    *logits = tsr_new(model->hp.vocab, sizeof *logits);
    assert_non_null(logits);
    OK(tsr_engine_create(&e, registry[0], model, o, &eo, &err.err));
    tsr_engine_set_tap(e, see, &s);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        for (uint64_t k = 0; k < SEQLEN; k++)
            t[k] = (struct tsr_engine_token){ .id = c->ids[i * SEQLEN + k],
                                              .logits = k + 1 == SEQLEN };
        tsr_engine_reset(e, 0);
        OK(tsr_engine_forward(e, t, SEQLEN, logits, &err.err));
    }
    tsr_engine_destroy(e);
    free(logits);
    assert_int_equal(s.rows, TOKENS);
    return s;
}

/* Statistics over all rows of x in double, one rounding to F32. */
static void check_moments(const struct tsr_quant_stats *s, const struct seen *x)
{
    assert_int_equal(s->cols, x->cols);
    assert_int_equal(s->tokens, TOKENS);
    for (uint64_t c = 0; c < x->cols; c++) {
        double sum = 0, mag = 0, var = 0;
        float  top = 0;
        for (uint64_t r = 0; r < TOKENS; r++) {
            double v = (double)x->x[r * x->cols + c];
            sum += v;
            mag += fabs(v);
            top = fmaxf(top, (float)fabs(v));
        }
        for (uint64_t r = 0; r < TOKENS; r++)
            var += pow((double)x->x[r * x->cols + c] - sum / TOKENS, 2);
        assert_true(s->absmax[c] == top);
        /* 2^-24 from the rounding to F32; sums in double lose far less */
        assert_true(fabs((double)s->mean[c] - sum / TOKENS) <= 1e-7 * (mag / TOKENS));
        assert_true(fabs((double)s->mean_abs[c] - mag / TOKENS) <= 1e-7 * (mag / TOKENS));
        assert_true(fabs((double)s->variance[c] - var / TOKENS) <= 1e-6 * (var / TOKENS));
    }
}

/* H = 2 / sequences * sum of x x^T.  A chain of TOKENS multiply-adds in F32 is off by at most
 * TOKENS * 2^-24 * sum |x_i x_j|, which is at most sqrt(H_ii H_jj) by Cauchy; the factor is rounded
 * too, and the exact sum is taken in double. */
static void check_hessian(const struct tsr_quant_stats *s, const struct seen *x)
{
    uint64_t n = x->cols;
    double  *h = tsr_new(n * n, sizeof *h);
    assert_non_null(h);
    for (uint64_t r = 0; r < TOKENS; r++)
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < n; j++)
                h[i * n + j] += 2.0 / SAMPLES * (double)x->x[r * n + i] * (double)x->x[r * n + j];
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < n; j++) {
            double bound = (TOKENS + 4) * 6e-8 * sqrt(h[i * n + i] * h[j * n + j]);
            assert_true(fabs((double)s->hessian[i * n + j] - h[i * n + j]) <= bound);
            assert_true(s->hessian[i * n + j] == s->hessian[j * n + i]);
        }
    free(h);
}

/* The same of the differences to the original model's inputs: 2 / sequences * sum of d x^T, with d in F32
 * as it is subtracted. */
static void check_cross(const struct tsr_quant_stats *s, const struct seen *x,
                        const struct seen *original)
{
    uint64_t n = x->cols;
    double  *c = tsr_new(2 * n * n, sizeof *c), *size = c + n * n;
    assert_non_null(c);
    for (uint64_t r = 0; r < TOKENS; r++)
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < n; j++) {
                float  d = original->x[r * n + i] - x->x[r * n + i];
                double v = 2.0 / SAMPLES * (double)d * (double)x->x[r * n + j];
                c[i * n + j] += v;
                size[i * n + j] += fabs(v);
            }
    for (uint64_t i = 0; i < n * n; i++)
        if (!(fabs((double)s->cross[i] - c[i]) <= (TOKENS + 4) * 6e-8 * size[i]))
            fail_msg("cross term %llu is %g instead of %g", (unsigned long long)i,
                     (double)s->cross[i], c[i]);
    free(c);
}

/* No vector has a larger quotient v H v / v v than the largest eigenvalue (but for sums of n squares in
 * double), and the one that many products with H turn a vector to comes as close to it. */
static void check_top(double top, const struct seen *x)
{
    uint64_t n = x->cols;
    double  *v = tsr_new(2 * n, sizeof *v), *y = v + n, quotient = 0;
    assert_non_null(v);
    for (uint64_t i = 0; i < n; i++)
        v[i] = 1 + (double)(i % 7) / 7;
    for (int step = 0; step < 2000 && !(quotient >= top * (1 - 1e-12)); step++) {
        double vy = 0, vv = 0, yy = 0;
        memset(y, 0, n * sizeof *y);
        for (uint64_t r = 0; r < TOKENS; r++) { /* X^T (X v) */
            double dot = 0;
            for (uint64_t i = 0; i < n; i++)
                dot += (double)x->x[r * n + i] * v[i];
            for (uint64_t i = 0; i < n; i++)
                y[i] += 2.0 / SAMPLES * dot * (double)x->x[r * n + i];
        }
        for (uint64_t i = 0; i < n; i++) {
            vy += v[i] * y[i];
            vv += v[i] * v[i];
            yy += y[i] * y[i];
        }
        quotient = vy / vv;
        if (!(quotient <= top * (1 + 1e-12)))
            fail_msg("a quotient of %.17g, the largest eigenvalue %.17g", quotient, top);
        for (uint64_t i = 0; i < n; i++)
            v[i] = y[i] / sqrt(yy);
    }
    if (!(quotient >= top * (1 - 1e-12)))
        fail_msg("no quotient above %.17g, the largest eigenvalue %.17g", quotient, top);
    free(v);
}

static void the_engine_s_inputs(void **state)
{
    (void)state;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibrate_options o = options();
    struct tsr_quant_calibration      *c = calibrate(1, &o);
    for (uint64_t l = 0; l < c->layers; l += c->layers - 1) {
        struct tsr_quant_layer_stats s;
        OK(tsr_quant_calibration_layer(c, l, ALL, NULL, &s, &err.err));
        assert_int_equal(s.sequence, SEQLEN);
        for (int i = 0; i < TSR_MODEL_SITES; i++) {
            struct seen x = engine_inputs(c, NULL, l, (enum tsr_site)i);
            check_moments(&s.site[i], &x);
            check_moments(&c->site[l][i], &x);
            check_hessian(&s.site[i], &x);
            check_top(s.top[i], &x);
            assert_int_equal(s.site[i].input_rows, TOKENS);
            assert_memory_equal(s.site[i].inputs, x.x, TOKENS * x.cols * sizeof(float));
            free(x.x);
        }
        tsr_quant_layer_stats_free(&s);
    }
    tsr_quant_calibration_destroy(c);
}

static bool same(const float *a, const float *b, uint64_t n)
{
    return (!a && !b) || (a && b && memcmp(a, b, n * sizeof *a) == 0);
}

static void check_same(const struct tsr_quant_layer_stats *a, const struct tsr_quant_layer_stats *b)
{
    for (int i = 0; i < TSR_MODEL_SITES; i++) {
        const struct tsr_quant_stats *x = &a->site[i], *y = &b->site[i];
        assert_int_equal(x->cols, y->cols);
        assert_int_equal(x->tokens, y->tokens);
        assert_int_equal(x->input_rows, y->input_rows);
        assert_true(same(x->absmax, y->absmax, x->cols) && same(x->mean, y->mean, x->cols));
        assert_true(same(x->variance, y->variance, x->cols));
        assert_true(same(x->mean_abs, y->mean_abs, x->cols));
        assert_true(same(x->hessian, y->hessian, x->cols * x->cols));
        assert_true(same(x->inputs, y->inputs, x->input_rows * x->cols));
        assert_memory_equal(&a->top[i], &b->top[i], sizeof a->top[i]);
    }
}

/* Same bytes on any number of threads, deferred or not, in any order of layers; and only what
 * was asked for. */
static void same_whatever_the_way(void **state)
{
    (void)state;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibrate_options o = options();
    o.input_rows = SEQLEN + 1; /* one whole sequence fits */
    struct tsr_quant_calibration *a = calibrate(0, &o);
    o.defer = true;
    struct tsr_quant_calibration *b = calibrate(1, &o);
    const uint64_t                order[] = { 2, 3, 0, 2, a->layers - 1 };
    assert_null(b->site);
    assert_string_equal(a->hash, b->hash);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        struct tsr_quant_layer_stats x, y;
        uint64_t                     need = i % 2 ? ALL : MOMENTS;
        OK(tsr_quant_calibration_layer(a, order[i], need, NULL, &x, &err.err));
        OK(tsr_quant_calibration_layer(b, order[i], need, NULL, &y, &err.err));
        check_same(&x, &y);
        assert_true((x.site[0].hessian != NULL) == (i % 2 == 1));
        assert_int_equal(x.site[1].input_rows, i % 2 ? SEQLEN : 0);
        tsr_quant_layer_stats_free(&x);
        tsr_quant_layer_stats_free(&y);
        OK(tsr_quant_calibration_layer(b, order[i], TSR_NEED_MEAN, NULL, &y, &err.err));
        assert_true(y.site[0].mean && !y.site[0].absmax && !y.site[0].variance);
        tsr_quant_layer_stats_free(&y);
    }
    struct tsr_quant_layer_stats x;
    assert_int_equal(tsr_quant_calibration_layer(a, a->layers, MOMENTS, NULL, &x, &err.err),
                     TSR_E_INVAL);
    assert_int_equal(tsr_quant_calibration_layer(a, 0, TSR_NEED_SENSITIVITY, NULL, &x, &err.err),
                     TSR_E_INPUT);
    assert_true(error_is(&err.err, "", NULL));
    tsr_quant_calibration_destroy(a);
    tsr_quant_calibration_destroy(b);
}

/* A model whose layers are in memory only while they are open: the same, and at most one is open. */
static void a_model_read_layer_by_layer(void **state)
{
    (void)state;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibrate_options o = options();
    struct tsr_model                  *streamed = NULL;
    struct tsr_quant_calibration      *a = calibrate(0, &o), *b = NULL;
    OK(tsr_model_load_streamed(&streamed, DEMO, &err.err));
    o.defer = true;
    OK(tsr_quant_calibrate(&b, registry[1], streamed, tokenizer, &o, &err.err));
    assert_string_equal(a->hash, b->hash);
    for (uint64_t l = 0; l < a->layers; l += 2) {
        struct tsr_quant_layer_stats x, y;
        OK(tsr_quant_calibration_layer(a, l, ALL, NULL, &x, &err.err));
        OK(tsr_quant_calibration_layer(b, l, ALL, NULL, &y, &err.err));
        check_same(&x, &y);
        tsr_quant_layer_stats_free(&x);
        tsr_quant_layer_stats_free(&y);
        for (uint64_t k = 0; k < a->layers; k++)
            assert_true(k == l || !streamed->layers[k].lin[TSR_MODEL_Q].w.data);
    }
    tsr_quant_calibration_destroy(b);
    for (uint64_t k = 0; k < a->layers; k++)
        assert_null(streamed->layers[k].lin[TSR_MODEL_Q].w.data);
    tsr_quant_calibration_destroy(a);
    tsr_model_destroy(streamed);
}

/* ---- quantized layers in front ---------------------------------------------------------------- */

static void pack(struct tsr_model_overlay *o, uint64_t layer)
{
    struct tsr_errbuf       err = TSR_ERRBUF(err);
    struct tsr_plugin_found found;
    void                   *self = NULL, *opts;
    OK(tsr_plugin_registry_find(registry[0], TSR_KIND_QUANTIZER, "rtn", &found, &err.err));
    opts = calloc(1, found.component->options_size);
    assert_non_null(opts);
    struct tsr_config_optset set = { .options = found.component->options,
                                     .n = found.component->n_options,
                                     .stride = found.component->option_stride,
                                     .into = opts };
    tsr_config_options_defaults(&set);
    struct tsr_quantizer q = { .iface = found.iface, .name = "rtn" };
    OK(q.iface->create(tsr_plugin_registry_host(registry[0]), opts, &self, &err.err));
    q.self = self;
    for (int id = 0; id < TSR_MODEL_LINEARS; id++)
        if (model->layers[layer].lin[id].w.data)
            OK(tsr_quantize_matrix(registry[0], &q, &model->layers[layer].lin[id].w, NULL,
                                   &o->lin[layer][id], &err.err));
    q.iface->destroy(self);
    free(opts);
}

static void quantized_layers_in_front(void **state)
{
    (void)state;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibrate_options o = options();
    struct tsr_model_overlay          *before = NULL;
    struct tsr_quant_layer_stats       s, plain, again;
    o.defer = true;
    struct tsr_quant_calibration *c = calibrate(1, &o);
    OK(tsr_model_overlay_create(&before, model->hp.layers, model->hp.linears, &err.err));
    for (uint64_t l = 0; l < 3; l++) { /* as a quantizer goes through the model */
        OK(tsr_quant_calibration_layer(c, l, ALL | TSR_NEED_CROSS, before, &s, &err.err));
        OK(tsr_quant_calibration_layer(c, l, ALL | TSR_NEED_CROSS, before, &again,
                                       &err.err)); /* the same layer twice */
        check_same(&s, &again);
        for (int i = 0; i < TSR_MODEL_SITES; i++) {
            struct seen x = engine_inputs(c, before, l, (enum tsr_site)i);
            assert_memory_equal(s.site[i].inputs, x.x, TOKENS * x.cols * sizeof(float));
            check_moments(&s.site[i], &x);
            check_hessian(&s.site[i], &x);
            struct seen original = engine_inputs(c, NULL, l, (enum tsr_site)i);
            check_cross(&s.site[i], &x, &original);
            bool differs = !same(x.x, original.x, TOKENS * x.cols);
            assert_true(differs == (l > 0));
            assert_true(same(s.site[i].cross, again.site[i].cross, x.cols * x.cols));
            free(original.x);
            free(x.x);
        }
        tsr_quant_layer_stats_free(&again);
        if (l < 2)
            tsr_quant_layer_stats_free(&s);
        pack(before, l);
    }
    /* a layer that the original model has not reached, and one without layers before it */
    OK(tsr_quant_calibration_layer(c, 2, TSR_NEED_HESSIAN, before, &again, &err.err));
    assert_null(again.site[0].cross);
    tsr_quant_layer_stats_free(&again);
    OK(tsr_quant_calibration_layer(c, 2, TSR_NEED_CROSS, before, &again, &err.err));
    assert_true(same(again.site[0].cross, s.site[0].cross, s.site[0].cols * s.site[0].cols));
    tsr_quant_layer_stats_free(&again);
    assert_int_equal(tsr_quant_calibration_layer(c, 2, TSR_NEED_CROSS, NULL, &again, &err.err),
                     TSR_E_INPUT);
    assert_true(error_is(&err.err, "", "2 sequential"));
    /* another way: the original again, which differs behind a packed layer */
    OK(tsr_quant_calibration_layer(c, 2, ALL, NULL, &plain, &err.err));
    assert_false(same(plain.site[0].inputs, s.site[0].inputs, TOKENS * s.site[0].cols));
    /* and back, from the embedding: a resumed run */
    OK(tsr_quant_calibration_layer(c, 2, ALL, before, &again, &err.err));
    assert_true(same(again.site[0].inputs, s.site[0].inputs, TOKENS * s.site[0].cols));
    tsr_quant_layer_stats_free(&again);
    tsr_quant_layer_stats_free(&plain);
    tsr_quant_layer_stats_free(&s);
    tsr_quant_calibration_destroy(c);
    tsr_model_overlay_destroy(before);
}

/* ---- stored files ----------------------------------------------------------------------------- */

static char folder[] = "/tmp/tsr-calibration-XXXXXX";

static char *layer_file(uint64_t layer)
{
    static char path[sizeof folder + 40];
    (void)snprintf(path, sizeof path, "%s/layer-%05llu.safetensors", folder,
                   (unsigned long long)layer);
    return path;
}

static void slurp(uint64_t layer, char **data, uint64_t *n)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    OK(tsr_file_slurp(layer_file(layer), 1u << 30, data, n, &err.err));
}

static void put(uint64_t layer, const char *data, uint64_t n)
{
    FILE *f = fopen(layer_file(layer), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void remove_folder(void)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    char           path[400];
    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            assert_int_equal(unlink(path), 0);
        }
    if (d)
        assert_int_equal(closedir(d), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* The damaged file is told in one sentence that names it. */
static void refused(const struct tsr_quant_calibrate_options *o, const char *facts)
{
    struct tsr_errbuf             err = TSR_ERRBUF(err);
    struct tsr_quant_calibration *c = NULL;
    assert_int_equal(tsr_quant_calibrate(&c, registry[0], model, tokenizer, o, &err.err),
                     TSR_E_INPUT);
    assert_null(c);
    assert_true(error_is(&err.err, layer_file(1), facts));
}

static void stored_files(void **state)
{
    (void)state;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibrate_options o = options();
    struct tsr_quant_layer_stats       a, b;
    char                              *first, *second;
    uint64_t                           n, n2;
    assert_non_null(mkdtemp(folder));
    struct tsr_quant_calibration *plain = calibrate(0, &o);
    o.folder = folder;
    o.need = TSR_NEED_HESSIAN;
    struct tsr_quant_calibration *c = calibrate(1, &o);
    tsr_quant_calibration_destroy(c);
    slurp(3, &first, &n);

    /* cut short by a kill: the files that are there are used, the others made */
    for (uint64_t l = 2; l < plain->layers; l++)
        assert_int_equal(unlink(layer_file(l)), 0);
    c = calibrate(0, &o);
    slurp(3, &second, &n2);
    assert_int_equal(n, n2);
    assert_memory_equal(first, second, n);
    free(second);
    for (uint64_t l = 0; l < c->layers; l++)
        for (int i = 0; i < TSR_MODEL_SITES; i++)
            assert_true(
                same(c->site[l][i].variance, plain->site[l][i].variance, c->site[l][i].cols));
    /* from the file, and from a run */
    OK(tsr_quant_calibration_layer(c, 3, TSR_NEED_HESSIAN, NULL, &a, &err.err));
    OK(tsr_quant_calibration_layer(plain, 3, TSR_NEED_HESSIAN, NULL, &b, &err.err));
    check_same(&a, &b);
    tsr_quant_layer_stats_free(&a);
    tsr_quant_layer_stats_free(&b);
    /* what the file lacks is made, and the file has it from then on beside what it had */
    OK(tsr_quant_calibration_layer(c, 3, ALL, NULL, &a, &err.err));
    tsr_quant_calibration_destroy(c);
    o.need = 0;
    c = calibrate(0, &o);
    OK(tsr_quant_calibration_layer(c, 3, ALL, NULL, &b, &err.err));
    check_same(&a, &b);
    tsr_quant_layer_stats_free(&a);
    tsr_quant_layer_stats_free(&b);
    tsr_quant_calibration_destroy(c);

    /* other text, model or options: made again, and not mixed */
    o.seed++;
    o.need = TSR_NEED_HESSIAN;
    c = calibrate(0, &o);
    assert_string_not_equal(c->hash, plain->hash);
    assert_false(same(c->site[3][0].mean, plain->site[3][0].mean, c->site[3][0].cols));
    tsr_quant_calibration_destroy(c);
    o.seed--;
    c = calibrate(0, &o);
    slurp(3, &second, &n2);
    assert_int_equal(n, n2);
    assert_memory_equal(first, second, n);
    free(second);
    free(first);
    tsr_quant_calibration_destroy(c);

    slurp(1, &first, &n);
    first[n - 5] ^= 1; /* within the last tensor, a part of the moments or of a Hessian */
    put(1, first, n);
    c = NULL;
    {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_status        st = tsr_quant_calibrate(&c, registry[0], model, tokenizer, &o, &e.err);
        if (st == TSR_OK) { /* the moments are whole: the Hessian is found out when it is read */
            st = tsr_quant_calibration_layer(c, 1, TSR_NEED_HESSIAN, NULL, &a, &e.err);
            tsr_quant_calibration_destroy(c);
        }
        assert_int_equal(st, TSR_E_INPUT);
        assert_true(error_is(&e.err, "layer-00001.safetensors", "down_in.hessian"));
    }
    put(1, first, n / 2);
    refused(&o, "down_in.hessian 1855488 926304");
    put(1, first, 3);
    refused(&o, "3");
    char *at = memmem(first, n, "tessera.calibration/1", 21);
    assert_non_null(at);
    at[20] = '7';
    put(1, first, n);
    refused(&o, "tessera.calibration/1");
    free(first);
    tsr_quant_calibration_destroy(plain);
    remove_folder();
}

/* The stated memory holds: the sum of what is allocated in one place and another. */
static void memory_is_stated(void **state)
{
    (void)state;
    struct tsr_errbuf                  err = TSR_ERRBUF(err);
    struct tsr_quant_calibrate_options o = options();
    struct tsr_quant_calibration      *c;
    struct tsr_stream                 *s;
    uint64_t few, many, hidden = TOKENS * model->hp.hidden * sizeof(float);
    o.defer = true;
    c = calibrate(0, &o);
    OK(tsr_quant_calibration_memory(model, &o, MOMENTS, &few, &err.err));
    OK(tsr_quant_calibration_memory(model, &o, ALL, &many, &err.err));
    OK(tsr_quant_calibration_stream(c, 1, &s, &err.err));
    assert_true(few >= hidden + tsr_engine_stream_memory(s));
    uint64_t squares = 0, rows = 0;
    for (int i = 0; i < TSR_MODEL_SITES; i++) {
        uint64_t cols = i == TSR_MODEL_SITE_DOWN_IN ? model->hp.ffn : model->hp.hidden;
        squares += cols * cols * (sizeof(float) + sizeof(double));
        rows += cols * TOKENS * sizeof(float);
    }
    assert_true(many - few == squares + rows);
    o.samples = UINT64_MAX / 4;
    assert_int_equal(tsr_quant_calibration_memory(model, &o, ALL, &many, &err.err), TSR_E_NOMEM);
    tsr_quant_calibration_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_s_inputs),       cmocka_unit_test(same_whatever_the_way),
        cmocka_unit_test(quantized_layers_in_front), cmocka_unit_test(stored_files),
        cmocka_unit_test(memory_is_stated),          cmocka_unit_test(a_model_read_layer_by_layer),
    };
    return cmocka_run_group_tests_name("calibrate", tests, setup, teardown);
}
