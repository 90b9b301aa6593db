/* The loss of a block search: the layer's own half over the recorded inputs, with some linears
 * replaced, against the original.  The output of o is that of the attention and the output of
 * down that of the feed-forward, so both halves serve two sites each. */
#include "block_internal.h"

#include "base/mem.h"

#include <stdlib.h>

static const struct part {
    enum tsr_stream_part part;
    enum tsr_site        input;
} parts[2] = { { TSR_PART_ATTENTION, TSR_SITE_ATTN_IN },
               { TSR_PART_FEED_FORWARD, TSR_SITE_FFN_IN } };

static tsr_status run(const struct block_view *v, int half, float *out, struct tsr_err *err)
{
    const struct tsr_block_job   *job = v->job;
    const struct tsr_quant_stats *in = &job->stats[parts[half].input];
    uint64_t                      hidden = job->model->hp.hidden;
    for (uint64_t first = 0; first < in->input_rows; first += job->sequence) {
        uint64_t left = in->input_rows - first, n = left < job->sequence ? left : job->sequence;
        TSR_TRY(tsr_stream_run_part(job->stream, parts[half].part, in->inputs + first * in->cols, n,
                                    out + first * hidden, err));
    }
    return TSR_OK;
}

static tsr_status check_inputs(const struct block_view *v, int half, struct tsr_err *err)
{
    const struct tsr_quant_stats *in = &v->job->stats[parts[half].input];
    if (v->job->stream && in->inputs && in->input_rows > 0 && v->job->sequence > 0 &&
        in->cols == v->job->model->hp.hidden)
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
    for (uint64_t i = 0; i < v->site[site].n_linears && st == TSR_OK; i++)
        st = tsr_stream_set_linear(s, v->lin[site][i], linears[i], err);
    if (st == TSR_OK)
        st = run(v, half, out, err);
    for (uint64_t i = 0; i < v->site[site].n_linears; i++) {
        struct tsr_errbuf e = TSR_ERRBUF(e);
        tsr_status        back = tsr_stream_set_linear(s, v->lin[site][i], NULL, &e.err);
        if (back != TSR_OK && st == TSR_OK)
            st = tsr_fail(err, back, "%s", e.text);
    }
    return st;
}

tsr_status block_loss(void *ctx, uint64_t site, const struct tsr_matrix *const *linears,
                      double *mse, struct tsr_err *err)
{
    struct block_view *v = ctx;
    uint64_t           n;
    if (site >= v->n)
        return tsr_fail(err, TSR_E_INVAL, "a loss of site %llu, the block shows %llu",
                        (unsigned long long)site, (unsigned long long)v->n);
    int half = v->id[site] == TSR_SITE_ATTN_IN || v->id[site] == TSR_SITE_O_IN ? 0 : 1;
    TSR_TRY(check_inputs(v, half, err));
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
