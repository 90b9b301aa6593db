/* The loss of a block search: for linears that read the norm of a half (q, k, v; gate, up), that half of the layer over
 * the recorded inputs, with some linears replaced, against the original; for a linear whose own output counts (o, down,
 * q_b, kv_b), the product of the inputs and the change of the weights. */
#include "quant/block_internal.h"

#include "base/mem.h"
#include "tessera/linalg.h"

#include <stdlib.h>
#include <string.h>

#define STEP UINT64_C(512) /* rows of inputs at a time */

static const struct part {
    enum tsr_engine_stream_part part;
    enum tsr_site               input;
} parts[2] = { { TSR_ENGINE_STREAM_ATTENTION, TSR_MODEL_SITE_ATTN_IN },
               { TSR_ENGINE_STREAM_FEED_FORWARD, TSR_MODEL_SITE_FFN_IN } };

static tsr_status run(const struct block_view *v, int half, float *out, struct tsr_err *err)
{
    const struct tsr_quant_block_job *job = v->job;
    const struct tsr_quant_stats     *in = &job->stats[parts[half].input];
    uint64_t                          hidden = job->model->hp.hidden;
    for (uint64_t first = 0; first < in->input_rows; first += job->sequence) {
        uint64_t left = in->input_rows - first, n = left < job->sequence ? left : job->sequence;
        TSR_TRY(tsr_engine_stream_run_part(job->stream, parts[half].part,
                                           in->inputs + first * in->cols, n, out + first * hidden,
                                           err));
    }
    return TSR_OK;
}

static tsr_status check_inputs(const struct block_view *v, enum tsr_site site, struct tsr_err *err)
{
    const struct tsr_quant_stats *in = v->in ? &v->in[site] : NULL;
    if (v->job->stream && in && in->inputs && in->input_rows > 0 && v->job->sequence > 0)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "layer %llu: the loss of a block search needs recorded inputs, which the "
                    "statistics lack",
                    (unsigned long long)v->job->layer);
}

static tsr_status need_original(struct block_view *v, int half, uint64_t n, struct tsr_err *err)
{
    if (v->original[half])
        return TSR_OK;
    v->original[half] = tsr_new_aligned(n, sizeof(float));
    if (!v->original[half])
        return tsr_fail_nomem(err, n * sizeof(float), "the outputs of a layer");
    return run(v, half, v->original[half], err);
}

static tsr_status replaced(struct block_view *v, uint64_t site, int half, float *out,
                           const struct tsr_matrix *const *linears, struct tsr_err *err)
{
    struct tsr_stream *s = v->job->stream;
    tsr_status         st = TSR_OK;
    for (uint64_t i = 0; i < v->sites[site]->n_linears && st == TSR_OK; i++)
        st = tsr_engine_stream_set_linear(s, v->site[site].lin[i], linears[i], err);
    if (st == TSR_OK)
        st = run(v, half, out, err);
    for (uint64_t i = 0; i < v->sites[site]->n_linears; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_status back = tsr_engine_stream_set_linear(s, v->site[site].lin[i], NULL, &e.err);
        if (back != TSR_OK && st == TSR_OK)
            st = tsr_err_copy(err, back, &e.err);
    }
    return st;
}

static tsr_status loss_of_half(struct block_view *v, uint64_t site, int half,
                               const struct tsr_matrix *const *linears, double *mse,
                               struct tsr_err *err)
{
    uint64_t n;
    TSR_TRY(check_inputs(v, parts[half].input, err));
    if (!tsr_mul(v->job->stats[parts[half].input].input_rows, v->job->model->hp.hidden, &n))
        return tsr_fail(err, TSR_E_NOMEM, "the sizes of a layer's outputs overflow");
    TSR_TRY(need_original(v, half, n, err));
    float *out = tsr_new_aligned(n, sizeof *out);
    if (!out)
        return tsr_fail_nomem(err, n * sizeof *out, "the outputs of a layer");
    tsr_status st = replaced(v, site, half, out, linears, err);
    double     sum = 0.0;
    for (uint64_t i = 0; i < n && st == TSR_OK; i++) {
        double d = (double)out[i] - (double)v->original[half][i];
        sum += d * d;
    }
    *mse = sum / (double)n;
    free(out);
    return st;
}

/* Sum of (x dW^T)^2 over the inputs; y has room for STEP rows. */
static tsr_status square_change(const struct block_view *v, const struct tsr_quant_stats *in,
                                uint64_t rows, const float *dw, float *y, double *sum,
                                struct tsr_err *err)
{
    const struct tsr_host      *host = tsr_plugin_registry_host(v->job->registry);
    const struct tsr_linalg_v1 *la = host->service(host->ctx, TSR_LINALG);
    if (!la)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "no backend offers " TSR_LINALG);
    *sum = 0.0;
    for (uint64_t first = 0; first < in->input_rows; first += STEP) {
        uint64_t left = in->input_rows - first, n = left < STEP ? left : STEP;
        memset(y, 0, n * rows * sizeof *y);
        TSR_TRY(la->gemm(la->ctx, n, rows, in->cols, 1.0f, in->inputs + first * in->cols, in->cols,
                         dw, in->cols, 1, y, rows, err));
        for (uint64_t i = 0; i < n * rows; i++)
            *sum += (double)y[i] * (double)y[i];
    }
    return TSR_OK;
}

static tsr_status loss_of_linear(struct block_view *v, uint64_t site,
                                 const struct tsr_matrix *linear, double *mse, struct tsr_err *err)
{
    const struct tsr_quant_stats *in = &v->in[v->site[site].id];
    const struct tsr_matrix      *w = v->sites[site]->linears[0];
    uint64_t                      size, step;
    TSR_TRY(check_inputs(v, v->site[site].id, err));
    if (!tsr_mul(w->rows, w->cols, &size) || !tsr_mul(w->rows, STEP, &step))
        return tsr_fail(err, TSR_E_NOMEM, "the sizes of '%s' overflow", w->name);
    float     *dw = tsr_new_aligned(size, sizeof *dw), *y = tsr_new_aligned(step, sizeof *y);
    double     sum = 0.0;
    tsr_status st = dw && y ? TSR_OK : tsr_fail_nomem(err, size * sizeof *dw, w->name);
    for (uint64_t r = 0; r < w->rows && st == TSR_OK; r++) {
        const float *was = (const float *)w->data + r * w->cols;
        const float *is =
            (const float *)(const void *)((const char *)linear->data + r * linear->row_stride);
        for (uint64_t c = 0; c < w->cols; c++)
            dw[r * w->cols + c] = is[c] - was[c];
    }
    if (st == TSR_OK)
        st = square_change(v, in, w->rows, dw, y, &sum, err);
    *mse = sum / (double)in->input_rows / (double)w->rows;
    free(dw);
    free(y);
    return st;
}

tsr_status block_loss(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                      double *mse, struct tsr_err *err)
{
    struct block_view *v = ctx;
    if (site >= v->n)
        return tsr_fail(err, TSR_E_INVAL, "a loss of site %llu, the block shows %llu",
                        (unsigned long long)site, (unsigned long long)v->n);
    enum tsr_site id = v->site[site].id;
    return id == TSR_MODEL_SITE_ATTN_IN || id == TSR_MODEL_SITE_FFN_IN
               ? loss_of_half(v, site, id == TSR_MODEL_SITE_FFN_IN, linears, mse, err)
               : loss_of_linear(v, site, linears[0], mse, err);
}
