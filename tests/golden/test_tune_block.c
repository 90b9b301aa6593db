/* Quantizers that pack blocks, the host's side: what trials compute, with gradients and without; what is counted and
 * refused; what a plugin writes is checked. */
#include "golden.h"

#include "base/mem.h"
#include "engine/stream.h"
#include "quant/tune.h"

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
#define SEQUENCES 3
#define TOKENS    12
#define BUDGET    40
#define SEVERAL   5 /* trials of a call */

static double noise(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    return (double)(int32_t)(z >> 32) * 0x1p-31;
}

/* ---- a quantizer whose tune() is a function of the test ------------------------------- */

struct fake {
    void (*check)(const struct tsr_tune_block *b);
    float      scale;   /* of each row that it decodes */
    float      written; /* instead of it; 0: the same */
    tsr_status status;
};

static tsr_status fake_plan(const void *self, const struct tsr_matrix *w,
                            struct tsr_quant_plan *plan, struct tsr_err *err)
{
    const struct tsr_format f = {
        .struct_size = sizeof f, .id = TSR_FORMAT_INT, .bits = 8, .scale_dtype = TSR_F32
    };
    (void)self;
    (void)err;
    plan->rows_per_unit = 1;
    plan->code_bytes = tsr_format_int_code_bytes(&f, w->cols);
    plan->meta_bytes = tsr_format_int_meta_bytes(&f, w->cols);
    tsr_format_store(&plan->format, &f);
    return TSR_OK;
}

static tsr_status fake_dequantize(const void *self, const struct tsr_quant_job *job,
                                  struct tsr_err *err)
{
    (void)err;
    for (uint64_t r = 0; r < job->dst->rows; r++)
        for (uint64_t c = 0; c < job->dst->cols; c++)
            ((float *)job->dst->data)[r * job->dst->cols + c] =
                (float)(((const uint8_t *)job->codes)[r * job->dst->cols + c] - 128) *
                ((const struct fake *)self)->scale;
    return TSR_OK;
}

static uint64_t fake_budget(const void *self)
{
    (void)self;
    return BUDGET;
}

static tsr_status fake_tune(const void *self, const struct tsr_tune_block *b,
                            struct tsr_tune_packed *const *packed, struct tsr_err *err)
{
    const struct fake *f = self;
    if (f->check)
        f->check(b);
    if (f->status != TSR_OK)
        return tsr_fail(err, f->status, "it does not work");
    float scale = f->written != 0.0f ? f->written : f->scale;
    for (uint64_t i = 0; i < b->n_linears; i++)
        for (uint64_t r = 0; r < b->linears[i]->rows; r++) {
            memcpy((float *)packed[i]->meta + r, &scale, sizeof scale);
            memset((uint8_t *)packed[i]->codes + r * b->linears[i]->cols, 129, b->linears[i]->cols);
        }
    return TSR_OK;
}

static const struct tsr_quantizer_tune_v1 fake_tuner = { .struct_size = sizeof fake_tuner,
                                                         .budget = fake_budget,
                                                         .tune = fake_tune };
static const void                        *fake_extension(const void *self, const char *id)
{
    (void)self;
    return strcmp(id, TSR_QUANTIZER_TUNE) == 0 ? &fake_tuner : NULL;
}
static const struct tsr_quantizer_v1 fake_table = { .struct_size = sizeof fake_table,
                                                    .src_dtypes = 1u << TSR_F32,
                                                    .plan = fake_plan,
                                                    .dequantize = fake_dequantize,
                                                    .extension = fake_extension };

/* ---- a layer with recorded inputs and outputs ------------------------------------------- */

struct layer {
    struct golden               g;
    struct tsr_registry        *registry;
    struct tsr_pool            *pool;
    struct tsr_stream          *s;
    const struct tsr_quantizer *q[TSR_MODEL_EXPERTS + 64];
    struct tsr_quant_recording  recording;
    struct tsr_quant_tune_job   job;
};

static void layer_open(struct layer *l, const char *name, const struct tsr_quantizer *q)
{
    struct tsr_errbuf err = TSR_ERRBUF(err);
    *l = (struct layer){ 0 };
    golden_load(&l->g, name);
    l->registry = golden_registry(2, NULL, &l->pool);
    uint64_t hidden = l->g.model->hp.hidden, step = hidden * TOKENS;
    OK(tsr_engine_stream_create(&l->s, l->registry, l->g.model, TOKENS, TSR_ACT_F32, NULL,
                                &err.err));
    OK(tsr_engine_stream_open_layer(l->s, LAYER, NULL, &err.err));
    l->recording = (struct tsr_quant_recording){ .sequences = SEQUENCES,
                                                 .tokens = TOKENS,
                                                 .hidden = hidden,
                                                 .in = tsr_new(SEQUENCES * step, sizeof(float)),
                                                 .out = tsr_new(SEQUENCES * step, sizeof(float)) };
    assert_true(l->recording.in && l->recording.out);
    for (uint64_t i = 0; i < SEQUENCES * step; i++)
        l->recording.in[i] = (float)noise(i);
    for (uint64_t i = 0; i < SEQUENCES; i++)
        OK(tsr_engine_stream_run(l->s, l->recording.in + i * step, TOKENS,
                                 l->recording.out + i * step, &err.err));
    assert_true(l->g.model->hp.linears <= sizeof l->q / sizeof *l->q);
    for (uint64_t i = 0; i < l->g.model->hp.linears; i++)
        l->q[i] = l->g.model->layers[LAYER].lin[i].w.rows ? q : NULL;
    l->job = (struct tsr_quant_tune_job){ .registry = l->registry,
                                          .model = l->g.model,
                                          .layer = LAYER,
                                          .q = l->q,
                                          .recording = &l->recording,
                                          .stream = l->s };
}

static void layer_close(struct layer *l)
{
    tsr_quant_recording_free(&l->recording);
    tsr_engine_stream_destroy(l->s);
    golden_registry_close(l->registry, l->pool);
    golden_free(&l->g);
}

/* Tunes a layer of the model with f; the status and sentence as given. */
static void tuned(const char *name, struct fake *f, tsr_status status, const char *says)
{
    struct tsr_errbuf        err = TSR_ERRBUF(err);
    struct tsr_quantizer     q = { .iface = &fake_table, .self = f, .name = "fake" };
    struct layer             l;
    struct tsr_model_packed *out[TSR_MODEL_EXPERTS + 64] = { 0 };
    layer_open(&l, name, &q);
    tsr_status st = tsr_quant_tune(&l.job, &q, out, &err.err);
    if (st != status || (says && !strstr(err.text, says)))
        fail_msg("%s: status %d: %s; expected %d: %s", name, st, err.text, status, says);
    for (uint64_t i = 0; i < l.g.model->hp.linears; i++) {
        const struct tsr_matrix *w = &l.g.model->layers[LAYER].lin[i].w;
        assert_true((out[i] != NULL) == (st == TSR_OK && w->rows != 0));
        if (!out[i])
            continue;
        float *row = tsr_new(w->cols, sizeof *row);
        assert_non_null(row);
        tsr_model_format_decode_row(&out[i]->format, w->cols, out[i]->codes, out[i]->meta, row);
        assert_true(row[0] == f->scale && row[w->cols - 1] == f->scale);
        free(row);
        tsr_model_packed_destroy(out[i]);
    }
    layer_close(&l);
}

/* ---- trials -------------------------------------------------------------------------------- */

/* Matrices of a trial: each weight plus `step` times a direction, and room for gradients. */
struct changed {
    uint64_t                 n;
    struct tsr_matrix        m[TSR_MODEL_LINEARS];
    const struct tsr_matrix *list[TSR_MODEL_LINEARS];
    float                   *gradients[TSR_MODEL_LINEARS];
};

static void changed_new(struct changed *x, const struct tsr_tune_block *b, double step,
                        float *const *direction)
{
    *x = (struct changed){ .n = b->n_linears };
    assert_true(b->n_linears <= TSR_MODEL_LINEARS);
    for (uint64_t i = 0; i < b->n_linears; i++) {
        uint64_t size = b->linears[i]->rows * b->linears[i]->cols;
        float   *v = tsr_new(size, sizeof *v);
        x->gradients[i] = tsr_new(size, sizeof *v);
        assert_true(v && x->gradients[i]);
        for (uint64_t k = 0; k < size; k++)
            v[k] = (float)((double)((const float *)b->linears[i]->data)[k] +
                           step * (direction ? (double)direction[i][k] : noise(k + i * 7919)));
        x->m[i] = *b->linears[i];
        x->m[i].data = v;
        x->list[i] = &x->m[i];
    }
}

static void changed_free(struct changed *x)
{
    for (uint64_t i = 0; i < x->n; i++) {
        free(x->m[i].data);
        free(x->gradients[i]);
    }
}

static double error_of(const struct tsr_tune_block *b, const struct tsr_matrix *const *list,
                       float *const *gradients, const uint64_t *sequence, uint64_t n)
{
    struct tsr_errbuf     err = TSR_ERRBUF(err);
    struct tsr_tune_trial t = {
        .struct_size = sizeof t, .linears = list, .gradients = gradients, .mse = NAN
    };
    struct tsr_tune_trial *const all[] = { &t };
    OK(b->run(b->ctx, sequence, n, all, 1, &err.err));
    return t.mse;
}

static void near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s: %.9g, expected %.9g", what, got, want);
}

static void outputs_are_as_recorded(const struct tsr_tune_block *b)
{
    struct tsr_errbuf            err = TSR_ERRBUF(err);
    uint64_t                     step = b->tokens * b->hidden;
    const uint64_t               last[] = { b->sequences - 1 };
    float                       *out = tsr_new(step, sizeof *out);
    struct tsr_tune_trial        t = { .struct_size = sizeof t, .output = out, .mse = NAN };
    struct tsr_tune_trial *const all[] = { &t };
    assert_non_null(out);
    assert_true(error_of(b, NULL, NULL, NULL, 0) == 0.0);
    OK(b->run(b->ctx, last, 1, all, 1, &err.err));
    assert_true(t.mse == 0.0);
    assert_memory_equal(out, b->outputs + last[0] * step, step * sizeof *out);
    free(out);
}

static void several_trials_are_those_of_one(const struct tsr_tune_block *b)
{
    struct tsr_errbuf            err = TSR_ERRBUF(err);
    struct changed               small, large;
    struct tsr_tune_trial        t[3] = { { .struct_size = sizeof *t },
                                          { .struct_size = sizeof *t },
                                          { .struct_size = sizeof *t } };
    struct tsr_tune_trial *const all[] = { &t[0], &t[1], &t[2] };
    const uint64_t               some[] = { 2, 0 }, first[] = { 0 }, third[] = { 2 };
    changed_new(&small, b, 0.01, NULL);
    changed_new(&large, b, 0.03, NULL);
    t[0].linears = small.list;
    t[2].linears = large.list;
    OK(b->run(b->ctx, some, 2, all, 3, &err.err));
    assert_true(t[1].mse == 0.0 && t[2].mse > t[0].mse && t[0].mse > 0.0);
    assert_true(t[0].mse == error_of(b, small.list, NULL, some, 2));
    near("two sequences", t[0].mse,
         0.5 * (error_of(b, small.list, NULL, first, 1) + error_of(b, small.list, NULL, third, 1)),
         1e-12);
    /* the originals are back, and one linear may stay */
    large.list[0] = NULL;
    assert_true(error_of(b, large.list, NULL, some, 2) < t[2].mse);
    assert_true(error_of(b, NULL, NULL, some, 2) == 0.0);
    changed_free(&small);
    changed_free(&large);
}

/* Errors, outputs and gradients of trials in calls of `at` each, from sequence 1. */
static void in_calls_of(const struct tsr_tune_block *b, struct changed *x, uint64_t n, uint64_t at,
                        float *outputs, double *mse)
{
    struct tsr_errbuf      err = TSR_ERRBUF(err);
    const uint64_t         second[] = { 1 };
    struct tsr_tune_trial  t[SEVERAL];
    struct tsr_tune_trial *all[SEVERAL];
    for (uint64_t i = 0; i < n; i++) {
        t[i] = (struct tsr_tune_trial){ .struct_size = sizeof t[i],
                                        .linears = x[i].list,
                                        .gradients = b->no_gradients ? NULL : x[i].gradients,
                                        .output = outputs + i * b->tokens * b->hidden,
                                        .mse = NAN };
        all[i] = &t[i];
    }
    for (uint64_t i = 0; i < n; i += at)
        OK(b->run(b->ctx, second, 1, all + i, n - i < at ? n - i : at, &err.err));
    for (uint64_t i = 0; i < n; i++)
        mse[i] = t[i].mse;
}

/* Two threads: calls of 2 and more run two trials at once, and one of an odd number has a rest. */
static void calls_of_any_size_give_the_same(const struct tsr_tune_block *b)
{
    struct changed x[SEVERAL], y[SEVERAL];
    uint64_t       step = b->tokens * b->hidden;
    double         want[SEVERAL], got[SEVERAL];
    float         *out = tsr_new(SEVERAL * step, sizeof *out),
          *again = tsr_new(SEVERAL * step, sizeof *out);
    assert_true(out && again);
    for (uint64_t i = 0; i < SEVERAL; i++) {
        changed_new(&x[i], b, 0.004 * (double)(i + 1), NULL);
        changed_new(&y[i], b, 0.004 * (double)(i + 1), NULL);
    }
    in_calls_of(b, x, SEVERAL, 1, out, want);
    for (uint64_t at = 2; at <= SEVERAL; at++) {
        in_calls_of(b, y, SEVERAL, at, again, got);
        assert_memory_equal(got, want, sizeof got);
        assert_memory_equal(again, out, SEVERAL * step * sizeof *out);
        for (uint64_t i = 0; i < SEVERAL; i++)
            for (uint64_t k = 0; k < b->n_linears; k++)
                assert_memory_equal(y[i].gradients[k], x[i].gradients[k],
                                    b->linears[k]->rows * b->linears[k]->cols * sizeof(float));
    }
    for (uint64_t i = 0; i < SEVERAL; i++) {
        assert_true(want[i] > 0.0 && (i == 0 || want[i] != want[i - 1]));
        changed_free(&x[i]);
        changed_free(&y[i]);
    }
    free(out);
    free(again);
}

/* Against a finite difference of trials without gradients. */
static void gradients_are_slopes(const struct tsr_tune_block *b)
{
    struct changed at, up, down;
    double         square = 0.0;
    changed_new(&at, b, 0.02, NULL);
    double mse = error_of(b, at.list, at.gradients, NULL, 0);
    near("the error", mse, error_of(b, at.list, NULL, NULL, 0), 1e-5);
    for (uint64_t i = 0; i < b->n_linears; i++)
        for (uint64_t k = 0; k < b->linears[i]->rows * b->linears[i]->cols; k++)
            square += (double)at.gradients[i][k] * (double)at.gradients[i][k];
    struct tsr_tune_block moved = *b;
    moved.linears = at.list;
    double step = 3e-3 * mse / square;
    changed_new(&up, &moved, step, at.gradients);
    changed_new(&down, &moved, -step, at.gradients);
    near("the slope",
         (error_of(b, up.list, NULL, NULL, 0) - error_of(b, down.list, NULL, NULL, 0)) / (2 * step),
         square, 3e-3);
    changed_free(&at);
    changed_free(&up);
    changed_free(&down);
}

static void refuses(const struct tsr_tune_block *b, struct tsr_tune_trial *t,
                    const uint64_t *sequence, uint64_t n, uint64_t trials, tsr_status status,
                    const char *says)
{
    struct tsr_errbuf      err = TSR_ERRBUF(err);
    struct tsr_tune_trial *all[BUDGET + 1];
    for (uint64_t i = 0; i <= BUDGET; i++)
        all[i] = t;
    tsr_status st = b->run(b->ctx, sequence, n, all, trials, &err.err);
    if (st != status || !strstr(err.text, says))
        fail_msg("status %d: %s; expected %d: %s", st, err.text, status, says);
}

static void what_does_not_exist_is_refused(const struct tsr_tune_block *b)
{
    struct tsr_tune_trial t = { .struct_size = sizeof t };
    const uint64_t        none[] = { SEQUENCES }, many[] = { 0, 1, 2, 0 };
    struct changed        x;
    refuses(b, &t, none, 1, 1, TSR_E_INVAL, "sequence 3, 3 are recorded");
    refuses(b, &t, none, 0, 1, TSR_E_INVAL, "a list of 0 sequences");
    refuses(b, &t, many, 4, 1, TSR_E_INVAL, "a list of 4 sequences");
    refuses(b, &t, NULL, 0, BUDGET + 1, TSR_E_INVAL, "41 trials, and 40 of the 40");
    changed_new(&x, b, 0.0, NULL);
    t.linears = x.list;
    x.m[0].rows--;
    refuses(b, &t, NULL, 0, 1, TSR_E_INVAL, "of F32 without gaps");
    x.m[0].rows++;
    x.m[1].dtype = TSR_BF16;
    refuses(b, &t, NULL, 0, 1, TSR_E_INVAL, "without gaps");
    changed_free(&x);
    /* nothing of this counted */
    for (int i = 0; i < BUDGET; i++)
        (void)error_of(b, NULL, NULL, NULL, 0);
    t.linears = NULL;
    refuses(b, &t, NULL, 0, 1, TSR_E_INVAL, "1 trials, and 0 of the 40");
}

static void gradients_are_refused(const struct tsr_tune_block *b)
{
    float                *none[TSR_MODEL_EXPERTS + 64] = { 0 };
    struct tsr_tune_trial t = { .struct_size = sizeof t, .gradients = none };
    assert_non_null(b->no_gradients);
    refuses(b, &t, NULL, 0, 1, TSR_E_UNSUPPORTED,
            "model.layers.1 has no gradients: it has experts");
    assert_true(error_of(b, NULL, NULL, NULL, 0) == 0.0);
}

/* ---- tests ------------------------------------------------------------------------------------ */

static void trials_compute_the_block(void **state)
{
    static const char *const names[] = { "llama3", "qwen2", "opt" };
    struct fake              f = { .scale = 0.5f };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        f.check = outputs_are_as_recorded;
        tuned(names[i], &f, TSR_OK, NULL);
        f.check = several_trials_are_those_of_one;
        tuned(names[i], &f, TSR_OK, NULL);
        f.check = calls_of_any_size_give_the_same;
        tuned(names[i], &f, TSR_OK, NULL);
        f.check = gradients_are_slopes;
        tuned(names[i], &f, TSR_OK, NULL);
    }
}

static void every_trial_is_counted_and_checked(void **state)
{
    struct fake f = { .scale = 0.5f, .check = what_does_not_exist_is_refused };
    (void)state;
    tuned("llama3", &f, TSR_OK, NULL);
}

static void a_block_without_gradients_has_trials(void **state)
{
    struct fake f = { .scale = 0.5f, .check = gradients_are_refused };
    (void)state;
    tuned("mixtral", &f, TSR_OK, NULL);
}

static void what_is_written_is_checked(void **state)
{
    struct fake f = { .scale = 0.5f, .written = 0.25f };
    (void)state;
    tuned("llama3", &f, TSR_E_UNSUPPORTED, "the plugin decodes its own bytes to 0.5");
    f = (struct fake){ .scale = NAN };
    tuned("llama3", &f, TSR_E_NUMERIC, "row 0 column 0 became nan");
    f = (struct fake){ .scale = 0.5f, .status = TSR_E_UNSUPPORTED };
    tuned("llama3", &f, TSR_E_UNSUPPORTED, "quantizer 'fake': it does not work");
    f.status = TSR_E_NUMERIC;
    tuned("llama3", &f, TSR_E_INPUT, "it does not work");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trials_compute_the_block),
        cmocka_unit_test(every_trial_is_counted_and_checked),
        cmocka_unit_test(a_block_without_gradients_has_trials),
        cmocka_unit_test(what_is_written_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
