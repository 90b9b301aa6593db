/* The inputs of experts' downs.  Calibration records those of the layer alone, so the original feed-forward runs over
 * them once more and the rows that each expert gets are kept.  An expert that gets none is shown the first sequence. */
#include "quant/block_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct recording {
    struct block_view *v;
    uint64_t          *cap;    /* [experts]: rows that there is room for */
    uint8_t           *unused; /* [experts]: got no rows */
    float             *out;    /* [sequence, hidden] */
    bool               borrowing;
};

static tsr_status keep(void *ctx, uint64_t layer, enum tsr_site site, const float *x, uint64_t n,
                       uint64_t cols, struct tsr_err *err)
{
    struct recording  *r = ctx;
    struct block_view *v = r->v;
    (void)layer;
    if (site < TSR_MODEL_SITE_EXPERTS || tsr_model_site_kind(site) != TSR_MODEL_SITE_DOWN_IN)
        return TSR_OK;
    uint64_t expert = tsr_model_site_expert(site), have = v->in[site].input_rows, size;
    if (r->borrowing && !r->unused[expert])
        return TSR_OK;
    if (have + n > r->cap[expert]) {
        uint64_t cap = have + n > 2 * have ? have + n : 2 * have;
        float   *more = tsr_mul(cap, cols, &size) ? tsr_new_aligned(size, sizeof *more) : NULL;
        if (!more)
            return tsr_fail_nomem(err, cap * cols * sizeof *more, "recorded inputs of experts");
        if (have)
            memcpy(more, v->recorded[site], have * cols * sizeof *more);
        free(v->recorded[site]);
        v->recorded[site] = more;
        r->cap[expert] = cap;
    }
    memcpy(v->recorded[site] + have * cols, x, n * cols * sizeof *x);
    v->in[site].input_rows = have + n;
    v->in[site].inputs = v->recorded[site];
    return TSR_OK;
}

/* The feed-forward over the first `rows` recorded inputs, sequence by sequence. */
static tsr_status run(struct recording *r, uint64_t rows, struct tsr_err *err)
{
    const struct tsr_quant_block_job *job = r->v->job;
    const struct tsr_quant_stats     *in = &job->stats[TSR_MODEL_SITE_FFN_IN];
    for (uint64_t first = 0, n; first < rows; first += n) {
        n = rows - first < job->sequence ? rows - first : job->sequence;
        TSR_TRY(tsr_engine_stream_run_part(job->stream, TSR_ENGINE_STREAM_FEED_FORWARD,
                                           in->inputs + first * in->cols, n, r->out, err));
    }
    return TSR_OK;
}

static tsr_status record(struct recording *r, struct tsr_err *err)
{
    const struct tsr_quant_block_job *job = r->v->job;
    uint64_t                          rows = job->stats[TSR_MODEL_SITE_FFN_IN].input_rows, n = 0;
    TSR_TRY(run(r, rows, err));
    for (uint64_t i = 0; i < job->model->hp.experts; i++) {
        r->unused[i] = !r->cap[i];
        n += r->unused[i];
    }
    if (n == 0)
        return TSR_OK;
    r->borrowing = true;
    tsr_engine_stream_show_experts(job->stream, r->unused);
    tsr_status st = run(r, rows < job->sequence ? rows : job->sequence, err);
    tsr_engine_stream_show_experts(job->stream, NULL);
    return st;
}

static bool searches_experts(const struct block_view *v)
{
    for (uint64_t i = TSR_MODEL_EXPERTS; i < v->job->model->hp.linears; i++)
        if (v->job->q[i] == v->q && tsr_model_linear_kind((enum tsr_linear_id)i) == TSR_MODEL_DOWN)
            return true;
    return false;
}

tsr_status block_inputs(struct block_view *v, struct tsr_err *err)
{
    const struct tsr_quant_block_job *job = v->job;
    const struct tsr_model_hparams   *hp = &job->model->hp;
    uint64_t                          need = v->table->block_need(v->q->self);
    if (!(tsr_quant_need_collect(need) & TSR_NEED_INPUTS) || !searches_experts(v) || !v->in ||
        !v->in[TSR_MODEL_SITE_FFN_IN].inputs || !job->stream || !job->sequence)
        return TSR_OK; /* what is missing is an error where it is needed */
    struct recording r = { .v = v };
    r.cap = tsr_new(hp->experts, sizeof *r.cap);
    r.unused = tsr_new(hp->experts, sizeof *r.unused);
    r.out = tsr_new_aligned(job->sequence * hp->hidden, sizeof *r.out);
    tsr_status st = TSR_OK;
    if (r.cap && r.unused && r.out) {
        tsr_engine_stream_set_tap(job->stream, keep, &r);
        st = record(&r, err);
        tsr_engine_stream_set_tap(job->stream, NULL, NULL);
    } else {
        st = tsr_fail_nomem(err, job->sequence * hp->hidden * sizeof *r.out, "inputs of experts");
    }
    free(r.cap);
    free(r.unused);
    free(r.out);
    return st;
}
