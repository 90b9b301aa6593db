/* The backward pass of a layer: derivatives as torch's autograd has them in double precision; forward as the engine;
 * derivatives along their own direction as finite differences of the engine's output; the same bytes for any number
 * of threads; families without one are refused with the reason. */
#include "golden.h"
#include "place.h"

#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "engine/stream.h"
#include "gradient/gradient.h"
#include "plugin/registry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TSR_OK)                                                                      \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

#define LAYER     1
#define SEQUENCES 2
#define TOKENS    12
#define STEP      5 /* rows that make.py recorded */

static double noise(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    return (double)(int32_t)(z >> 32) * 0x1p-31;
}

/* A layer of a golden model with its weights as F32, and room for derivatives. */
struct layer {
    struct golden           g;
    struct tsr_registry    *registry;
    struct tsr_pool        *pool;
    struct tsr_gradient_job job;
    uint64_t                size; /* of in, target and out */
    float                  *in, *target, *out;
};

static void layer_open(struct layer *l, const char *name, unsigned threads)
{
    golden_load(&l->g, name);
    l->registry = golden_registry(threads, NULL, &l->pool);
    const struct tsr_host *host = tsr_plugin_registry_host(l->registry);
    l->job = (struct tsr_gradient_job){ .host = host,
                                        .linalg = host->service(host->ctx, TSR_LINALG),
                                        .model = l->g.model,
                                        .layer = LAYER,
                                        .sequences = SEQUENCES,
                                        .tokens = TOKENS };
    assert_non_null(l->job.linalg);
    l->size = (uint64_t)SEQUENCES * TOKENS * l->g.model->hp.hidden;
    l->job.in = l->in = tsr_new(l->size, sizeof *l->in);
    l->job.target = l->target = tsr_new(l->size, sizeof *l->target);
    l->job.out = l->out = tsr_new(l->size, sizeof *l->out);
    assert_true(l->in && l->target && l->out);
    for (uint64_t i = 0; i < l->size; i++) {
        l->in[i] = (float)noise(i);
        l->target[i] = (float)noise(i + 100000);
    }
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_matrix *w = &l->g.model->layers[LAYER].lin[i].w;
        if (!w->rows)
            continue;
        float *v = tsr_new(w->rows * w->cols, sizeof *v);
        l->job.dw[i] = tsr_new(w->rows * w->cols, sizeof **l->job.dw);
        assert_true(v && l->job.dw[i]);
        for (uint64_t r = 0; r < w->rows; r++)
            tsr_widen(v + r * w->cols, (const unsigned char *)w->data + r * w->row_stride, w->dtype,
                      w->cols);
        l->job.w[i] = v;
    }
}

static void layer_close(struct layer *l)
{
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        free((void *)(uintptr_t)l->job.w[i]);
        free(l->job.dw[i]);
    }
    free(l->in);
    free(l->target);
    free(l->out);
    golden_registry_close(l->registry, l->pool);
    golden_free(&l->g);
}

/* ---- torch ---------------------------------------------------------------------- */

static float *tensor(const struct tsr_safetensors *st, const char *name, uint64_t *n)
{
    struct tsr_errbuf                    err = TSR_ERRBUF(err);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, name);
    if (!t)
        return NULL;
    *n = (t->end - t->begin) / sizeof(float);
    float *v = tsr_new(*n, sizeof *v);
    assert_non_null(v);
    OK(tsr_safetensors_read(st, t, v, &err.err));
    return v;
}

/* The largest difference within `tolerance` of the largest number. */
static void near(const char *what, const float *got, const float *want, uint64_t n,
                 double tolerance)
{
    double top = 0.0, most = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        top = fmax(top, fabs((double)want[i]));
        double d = fabs((double)got[i] - (double)want[i]);
        most = d > most || isnan(d) ? d : most;
    }
    if (!(most <= tolerance * top && top > 0.0))
        fail_msg("%s: off by %g, the largest number is %g", what, most, top);
}

static void as_recorded(const char *name)
{
    static const char *const linears[TSR_MODEL_LINEARS] = { "q_proj",   "k_proj",    "v_proj",
                                                            "o_proj",   "gate_proj", "up_proj",
                                                            "down_proj" };
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct layer             l;
    struct tsr_safetensors   st;
    char                     path[512], what[64];
    uint64_t                 n;
    double                   mse = NAN;
    (void)snprintf(path, sizeof path, "%s/tests/golden/gradient/%s.safetensors", TEST_ROOT, name);
    OK(tsr_safetensors_open(&st, path, &err.err));
    layer_open(&l, name, 2);
    float *h = tensor(&st, "h", &n), *target = tensor(&st, "target", &n);
    assert_true(h && target && n == l.size);
    memcpy(l.in, h, n * sizeof *h);
    memcpy(l.target, target, n * sizeof *target);
    OK(tsr_gradient_run(&l.job, &mse, &err.err));
    float *out = tensor(&st, "out", &n), *recorded = tensor(&st, "mse", &n);
    assert_true(out && recorded);
    near(name, l.out, out, l.size, 1e-6);
    near("mse", &(float){ (float)mse }, recorded, 1, 1e-6);
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_matrix *w = &l.g.model->layers[LAYER].lin[i].w;
        float                   *d = tensor(&st, linears[i], &n);
        assert_true((d != NULL) == (w->rows != 0));
        if (!d)
            continue;
        uint64_t rows = (w->rows + STEP - 1) / STEP;
        assert_int_equal(n, rows * w->cols);
        for (uint64_t r = 0; r < rows; r++)
            memmove(l.job.dw[i] + r * w->cols, l.job.dw[i] + r * STEP * w->cols,
                    w->cols * sizeof(float));
        (void)snprintf(what, sizeof what, "%s %s", name, linears[i]);
        near(what, l.job.dw[i], d, n, 5e-6); /* F32 against double; 1e-6 is usual */
        free(d);
    }
    free(h);
    free(target);
    free(out);
    free(recorded);
    tsr_safetensors_close(&st);
    layer_close(&l);
}

static void derivatives_are_those_of_torch(void **state)
{
    static const char *const names[] = {
        "llama3", "qwen2", "qwen3", "opt", "starcoder2", "granite"
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        as_recorded(names[i]);
}

/* ---- the engine ------------------------------------------------------------------- */

/* Mean squared error of the engine's output with weights w + step * d, and the largest difference to l->out. */
static double engine_error(struct layer *l, double step, double *most)
{
    struct tsr_errbuf  err = TSR_ERRBUF(err);
    struct tsr_stream *s;
    struct tsr_matrix  m[TSR_MODEL_LINEARS] = { 0 };
    double             sum = 0.0;
    float             *out = tsr_new(l->size, sizeof *out);
    assert_non_null(out);
    OK(tsr_engine_stream_create(&s, l->registry, l->g.model, TOKENS, TSR_ACT_F32, NULL, &err.err));
    OK(tsr_engine_stream_open_layer(s, LAYER, NULL, &err.err));
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        if (!l->job.w[i])
            continue;
        m[i] = l->g.model->layers[LAYER].lin[i].w;
        float *v = tsr_new(m[i].rows * m[i].cols, sizeof *v);
        assert_non_null(v);
        for (uint64_t k = 0; k < m[i].rows * m[i].cols; k++)
            v[k] = (float)((double)l->job.w[i][k] + step * (double)l->job.dw[i][k]);
        m[i].data = v;
        m[i].dtype = TSR_F32;
        m[i].row_stride = m[i].cols * sizeof *v;
        OK(tsr_engine_stream_set_linear(s, (enum tsr_linear_id)i, &m[i], &err.err));
    }
    for (uint64_t i = 0, n = l->size / SEQUENCES; i < SEQUENCES; i++)
        OK(tsr_engine_stream_run(s, l->in + i * n, TOKENS, out + i * n, &err.err));
    *most = 0.0;
    for (uint64_t i = 0; i < l->size; i++) {
        double d = (double)out[i] - (double)l->target[i];
        sum += d * d;
        *most = fmax(*most, fabs((double)out[i] - (double)l->out[i]));
    }
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        free(m[i].data);
    tsr_engine_stream_destroy(s);
    free(out);
    return sum / (double)l->size;
}

static void as_the_engine(const char *name, struct layer *l)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    double            mse = NAN, most, moved, square = 0.0;
    OK(tsr_gradient_run(&l->job, &mse, &err.err));
    double engine = engine_error(l, 0.0, &most);
    if (!(most <= 2e-5 && fabs(engine - mse) <= 1e-5 * mse))
        fail_msg("%s: an output is off by %g; the error is %.9g, the engine's %.9g", name, most,
                 mse, engine);
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        for (uint64_t k = 0; l->job.dw[i] && k < l->g.model->layers[LAYER].lin[i].w.rows *
                                                     l->g.model->layers[LAYER].lin[i].w.cols;
             k++)
            square += (double)l->job.dw[i][k] * (double)l->job.dw[i][k];
    double step = 3e-3 * mse / square; /* the error moves by so much of itself */
    double slope = (engine_error(l, step, &moved) - engine_error(l, -step, &moved)) / (2 * step);
    if (!(fabs(slope - square) <= 2e-3 * square && square > 0.0))
        fail_msg("%s: along the derivative the error rises by %.9g, expected %.9g", name, slope,
                 square);
}

static void every_family_is_as_the_engine_or_refused(void **state)
{
    uint64_t passed = 0, refused = 0;
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct layer      l = { 0 };
        struct tsr_errbuf err = TSR_ERRBUF(err);
        double            mse;
        layer_open(&l, *name, 2);
        const char *why = tsr_gradient_refusal(l.g.model, LAYER);
        if (why) {
            assert_int_equal(tsr_gradient_run(&l.job, &mse, &err.err), TSR_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, why));
            refused++;
        } else {
            as_the_engine(*name, &l);
            passed++;
        }
        layer_close(&l);
    }
    print_message("%d families have a backward pass, %d are refused\n", (int)passed, (int)refused);
    assert_true(passed >= 10 && refused >= 10);
}

static void threads_change_nothing(void **state)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    struct layer      one, four;
    double            a = NAN, b = NAN;
    (void)state;
    layer_open(&one, "llama3", 1);
    layer_open(&four, "llama3", 4);
    OK(tsr_gradient_run(&one.job, &a, &err.err));
    OK(tsr_gradient_run(&four.job, &b, &err.err));
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_equal(one.out, four.out, one.size * sizeof(float));
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_matrix *w = &one.g.model->layers[LAYER].lin[i].w;
        if (w->rows)
            assert_memory_equal(one.job.dw[i], four.job.dw[i], w->rows * w->cols * sizeof(float));
    }
    layer_close(&one);
    layer_close(&four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derivatives_are_those_of_torch),
        cmocka_unit_test(every_family_is_as_the_engine_or_refused),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
