/* Trials: a layer with other weights over recorded inputs. */
#include "quant/tune_internal.h"

#include "base/mem.h"
#include "base/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the plugin asks for ------------------------------------------------------ */

static tsr_status check_linear(const struct tune *t, uint64_t i, const struct tsr_matrix *w,
                               struct tsr_err *err)
{
    const struct tsr_matrix *own = t->list[i];
    if (!w || (w->dtype == TSR_F32 && w->data && w->rows == own->rows && w->cols == own->cols &&
               w->row_stride == own->cols * sizeof(float)))
        return TSR_OK;
    return tsr_fail(err, TSR_E_INVAL,
                    "run() of %s: linear %llu is %llux%llu of type %u with rows of %llu bytes; "
                    "expected '%s', %llux%llu of F32 without gaps",
                    t->block.name, (unsigned long long)i, (unsigned long long)w->rows,
                    (unsigned long long)w->cols, w->dtype, (unsigned long long)w->row_stride,
                    own->name, (unsigned long long)own->rows, (unsigned long long)own->cols);
}

static tsr_status check(const struct tune *t, const uint64_t *sequence, uint64_t n_sequences,
                        struct tsr_tune_trial *const *trials, uint64_t n_trials,
                        struct tsr_err *err)
{
    if (n_trials > t->block.budget - t->used)
        return tsr_fail(err, TSR_E_INVAL,
                        "run() of %s: %llu trials, and %llu of the %llu that budget() named are "
                        "left",
                        t->block.name, (unsigned long long)n_trials,
                        (unsigned long long)(t->block.budget - t->used),
                        (unsigned long long)t->block.budget);
    for (uint64_t i = 0; sequence && i < n_sequences; i++)
        if (sequence[i] >= t->block.sequences)
            return tsr_fail(err, TSR_E_INVAL, "run() of %s: sequence %llu, %llu are recorded",
                            t->block.name, (unsigned long long)sequence[i],
                            (unsigned long long)t->block.sequences);
    if (sequence ? n_sequences == 0 || n_sequences > t->block.sequences : n_sequences != 0)
        return tsr_fail(err, TSR_E_INVAL,
                        "run() of %s: a list of %llu sequences; expected 1 to %llu, or 0 without a "
                        "list",
                        t->block.name, (unsigned long long)n_sequences,
                        (unsigned long long)t->block.sequences);
    for (uint64_t k = 0; k < n_trials; k++) {
        for (uint64_t i = 0; trials[k]->linears && i < t->n; i++)
            TSR_TRY(check_linear(t, i, trials[k]->linears[i], err));
        if (trials[k]->gradients && t->block.no_gradients)
            return tsr_fail(err, TSR_E_UNSUPPORTED, "%s", t->block.no_gradients);
    }
    return TSR_OK;
}

/* ---- without gradients: the engine --------------------------------------------------- */

static tsr_status through_engine(struct tune *t, uint64_t sequences, float *out,
                                 struct tsr_err *err)
{
    uint64_t step = t->block.tokens * t->block.hidden;
    for (uint64_t i = 0; i < sequences; i++)
        TSR_TRY(tsr_engine_stream_run(t->job->stream, t->in + i * step, t->block.tokens,
                                      out + i * step, err));
    return TSR_OK;
}

/* Puts the originals back, whatever happened. */
static tsr_status forward(struct tune *t, struct tsr_tune_trial *trial, uint64_t sequences,
                          struct tsr_err *err)
{
    struct tsr_stream *s = t->job->stream;
    float             *out = trial->output ? trial->output : t->out;
    uint64_t           size = sequences * t->block.tokens * t->block.hidden;
    double             sum = 0.0;
    tsr_status         st = TSR_OK;
    for (uint64_t i = 0; trial->linears && i < t->n && st == TSR_OK; i++)
        if (trial->linears[i])
            st = tsr_engine_stream_set_linear(s, t->id[i], trial->linears[i], err);
    if (st == TSR_OK)
        st = through_engine(t, sequences, out, err);
    for (uint64_t i = 0; trial->linears && i < t->n; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        if (!trial->linears[i])
            continue;
        tsr_status back = tsr_engine_stream_set_linear(s, t->id[i], NULL, &e.err);
        if (back != TSR_OK && st == TSR_OK)
            st = tsr_err_copy(err, back, &e.err);
    }
    for (uint64_t i = 0; i < size && st == TSR_OK; i++) {
        double d = (double)out[i] - (double)t->target[i];
        sum += d * d;
    }
    trial->mse = sum / (double)size;
    if (st == TSR_OK && !isfinite(trial->mse))
        return tsr_fail(err, TSR_E_NUMERIC, "run() of %s: the error of the output is %g",
                        t->block.name, trial->mse);
    return st;
}

/* ---- with gradients ------------------------------------------------------------------- */

static tsr_status backward(const struct tune *t, struct tsr_tune_trial *trial, uint64_t sequences,
                           struct tsr_err *err)
{
    const struct tsr_host  *host = tsr_plugin_registry_host(t->job->registry);
    struct tsr_gradient_job g = { .host = host,
                                  .linalg = host->service(host->ctx, TSR_LINALG),
                                  .model = t->job->model,
                                  .layer = t->job->layer,
                                  .sequences = sequences,
                                  .tokens = t->block.tokens,
                                  .in = t->in,
                                  .target = t->target,
                                  .out = trial->output };
    if (!g.linalg)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "no backend offers " TSR_LINALG);
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        g.w[i] = t->wide[i].data;
    for (uint64_t i = 0; i < t->n; i++) {
        if (trial->linears && trial->linears[i])
            g.w[t->id[i]] = trial->linears[i]->data;
        g.dw[t->id[i]] = trial->gradients[i];
    }
    return tsr_gradient_run(&g, &trial->mse, err);
}

/* Trials that run at once, each on a thread: the first that failed is the answer. */
struct group {
    const struct tune            *t;
    struct tsr_tune_trial *const *trials;
    uint64_t                      sequences;
    struct tsr_errbuf            *e;  /* [trials] */
    tsr_status                   *st; /* [trials] */
};

static tsr_status run_one(void *arg, uint64_t begin, uint64_t end)
{
    struct group *g = arg;
    for (uint64_t i = begin; i < end; i++) /* loops inside of a loop run on its thread */
        g->st[i] = backward(g->t, g->trials[i], g->sequences, &g->e[i].err);
    return TSR_OK;
}

static tsr_status together(const struct tune *t, struct tsr_tune_trial *const *trials, uint64_t n,
                           uint64_t sequences, struct tsr_err *err)
{
    const struct tsr_host *host = tsr_plugin_registry_host(t->job->registry);
    struct group           g = { .t = t, .trials = trials, .sequences = sequences };
    tsr_status             st;
    g.e = tsr_new(n, sizeof *g.e);
    g.st = tsr_new(n, sizeof *g.st);
    if (!g.e || !g.st) {
        st = tsr_fail_nomem(err, n * sizeof *g.e, "the trials of a call");
    } else {
        for (uint64_t i = 0; i < n; i++)
            g.e[i] = (struct tsr_errbuf)TSR_ERRBUF(g.e[i]);
        st = host->parallel_for(host->ctx, n, 1, run_one, &g);
        for (uint64_t i = 0; st == TSR_OK && i < n; i++)
            if (g.st[i] != TSR_OK)
                st = tsr_err_copy(err, g.st[i], &g.e[i].err);
    }
    free(g.e);
    free(g.st);
    return st;
}

/* How many of the next trials run at once: as many as there are threads, where together they have no more sequences than
 * the block, whose memory is counted.  One after the other the threads wait for each other in every loop of a layer;
 * docs/lab/autoround.md has the times.  The bytes are the same. */
static uint64_t at_once(const struct tune *t, struct tsr_tune_trial *const *trials, uint64_t n,
                        uint64_t sequences)
{
    uint64_t threads = tsr_pool_threads(tsr_plugin_registry_pool(t->job->registry));
    if (n < threads || threads * sequences > t->block.sequences)
        return 1;
    for (uint64_t i = 0; i < threads; i++)
        if (!trials[i]->gradients)
            return 1;
    return threads;
}

/* The listed sequences, one after the other. */
static void gather(struct tune *t, const uint64_t *sequence, uint64_t n)
{
    uint64_t step = t->block.tokens * t->block.hidden;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = sequence ? sequence[i] : i;
        memcpy(t->in + i * step, t->block.inputs + from * step, step * sizeof *t->in);
        memcpy(t->target + i * step, t->block.outputs + from * step, step * sizeof *t->in);
    }
}

tsr_status tune_run(void *ctx, const uint64_t *sequence, uint64_t n_sequences,
                    struct tsr_tune_trial *const *trials, uint64_t n_trials, struct tsr_err *err)
{
    struct tune *t = ctx;
    TSR_TRY(check(t, sequence, n_sequences, trials, n_trials, err));
    uint64_t n = sequence ? n_sequences : t->block.sequences;
    gather(t, sequence, n);
    for (uint64_t i = 0, k; i < n_trials; i += k) {
        if (tsr_plugin_cancelled())
            return tsr_fail(err, TSR_E_CANCELLED, "stopped");
        k = at_once(t, trials + i, n_trials - i, n);
        t->used += k;
        TSR_TRY(k > 1                  ? together(t, trials + i, k, n, err)
                : trials[i]->gradients ? backward(t, trials[i], n, err)
                                       : forward(t, trials[i], n, err));
    }
    return TSR_OK;
}
