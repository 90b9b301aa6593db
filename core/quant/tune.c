/* Quantizers that pack a whole layer at once: the block that they see, and the check of what they wrote. */
#include "quant/block_internal.h"
#include "quant/matrix_internal.h"
#include "quant/tune_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

static const struct tsr_quantizer_tune_v1 *tune_table(const struct tsr_quantizer *q)
{
    if (!q || !TSR_HAS(struct tsr_quantizer_v1, q->iface, extension))
        return NULL;
    const struct tsr_quantizer_tune_v1 *t = q->iface->extension(q->self, TSR_QUANTIZER_TUNE);
    return t && TSR_HAS(struct tsr_quantizer_tune_v1, t, tune) ? t : NULL;
}

bool tsr_quant_tunes(const struct tsr_quantizer *q)
{
    return tune_table(q) != NULL;
}

/* ---- the block -------------------------------------------------------------------------- */

/* F32 copies: of the instance's linears, and for gradients of all. */
static tsr_status widen_all(struct tune *t, struct tsr_err *err)
{
    const struct tsr_model_linear *lin = t->job->model->layers[t->job->layer].lin;
    for (uint64_t i = 0; i < t->job->model->hp.linears; i++) {
        bool mine = t->job->q[i] == t->q && lin[i].w.rows;
        if (!lin[i].w.rows || (!mine && t->block.no_gradients))
            continue;
        if (!lin[i].w.data)
            return tsr_fail(err, TSR_E_INPUT,
                            "'%s' has no full-precision weights: the model is packed already; "
                            "quantize the original",
                            lin[i].w.name);
        TSR_TRY(block_widen(&lin[i].w, &t->wide[i], err));
        if (!mine)
            continue;
        t->id[t->n] = (enum tsr_linear_id)i;
        t->list[t->n++] = &t->wide[i];
    }
    return TSR_OK;
}

static tsr_status tune_new(struct tune *t, const char *name, struct tsr_err *err)
{
    const struct tsr_quant_recording *r = t->job->recording;
    uint64_t    linears = t->job->model->hp.linears, size = r->sequences * r->tokens * r->hidden;
    const char *refusal = tsr_gradient_refusal(t->job->model, t->job->layer);
    if (!t->table)
        return tsr_fail(err, TSR_E_INVAL, "%s: its quantizer packs no blocks", name);
    if (refusal)
        (void)snprintf(t->refusal, sizeof t->refusal, "%s has no gradients: %s", name, refusal);
    t->block = (struct tsr_tune_block){ .struct_size = sizeof t->block,
                                        .name = name,
                                        .sequences = r->sequences,
                                        .tokens = r->tokens,
                                        .hidden = r->hidden,
                                        .inputs = r->in,
                                        .outputs = r->out,
                                        .budget = t->table->budget(t->q->self),
                                        .no_gradients = refusal ? t->refusal : NULL,
                                        .ctx = t,
                                        .run = tune_run };
    t->wide = tsr_new(linears, sizeof *t->wide);
    t->id = tsr_new(linears, sizeof *t->id);
    t->list = tsr_new(linears, sizeof *t->list);
    t->in = tsr_new_aligned(size, sizeof *t->in);
    t->target = tsr_new_aligned(size, sizeof *t->target);
    t->out = tsr_new_aligned(size, sizeof *t->out);
    if (!t->wide || !t->id || !t->list || !t->in || !t->target || !t->out)
        return tsr_fail_nomem(err, 3 * size * sizeof *t->in, "the activations of a layer");
    TSR_TRY(widen_all(t, err));
    t->block.n_linears = t->n;
    t->block.linears = t->list;
    return TSR_OK;
}

static void tune_free(struct tune *t)
{
    for (uint64_t i = 0; t->wide && i < t->job->model->hp.linears; i++)
        free(t->wide[i].data);
    free(t->wide);
    free(t->id);
    free(t->list);
    free(t->in);
    free(t->target);
    free(t->out);
}

/* ---- the result --------------------------------------------------------------------------- */

/* Decodes what the plugin wrote, compares it with the layout, and sums its errors. */
static tsr_status take(const struct tune *t, const struct tsr_matrix *w, struct tsr_model_packed *p,
                       struct tsr_err *err)
{
    struct tsr_quant_matrix_work k = { .q = t->q, .whole = w, .w = w, .p = p };
    TSR_TRY(tsr_quant_matrix_plan(&k, err));
    void  *scratch = tsr_new_aligned(1, k.plan.scratch_bytes);
    float *dense = p->dense ? p->dense : tsr_new_aligned(w->rows * w->cols, sizeof *dense);
    k.row_error = tsr_new(w->rows, sizeof *k.row_error);
    tsr_status           st = scratch && dense && k.row_error
                                  ? TSR_OK
                                  : tsr_fail_nomem(err, w->rows * w->cols * sizeof *dense, w->name);
    struct tsr_matrix    dst = *w;
    struct tsr_quant_job job = { .struct_size = sizeof job,
                                 .dst = &dst,
                                 .codes = p->codes,
                                 .meta = p->meta,
                                 .scratch = scratch };
    dst.data = dense;
    if (st == TSR_OK)
        st = t->q->iface->dequantize(t->q->self, &job, err);
    if (st == TSR_OK)
        st = tsr_quant_matrix_check_run(&k, 0, w->rows, dense, err);
    for (uint64_t r = 0; st == TSR_OK && r < w->rows; r++)
        p->squared_error += k.row_error[r];
    if (p->dense) { /* the layout is not read again */
        free(p->codes);
        free(p->meta);
        p->codes = p->meta = NULL;
    } else {
        free(dense);
    }
    free(k.row_error);
    free(scratch);
    return st;
}

static tsr_status pack(struct tune *t, struct tsr_model_packed **p, struct tsr_err *err)
{
    struct tsr_tune_packed  *to = tsr_new(t->n, sizeof *to);
    struct tsr_tune_packed **list = tsr_new(t->n, sizeof *list);
    tsr_status st = to && list ? TSR_OK : tsr_fail_nomem(err, t->n * sizeof *to, "packed weights");
    for (uint64_t i = 0; i < t->n && st == TSR_OK; i++) {
        st = quant_room(t->q, t->list[i], t->list[i], 0, &p[i], err);
        if (st != TSR_OK)
            break;
        to[i] = (struct tsr_tune_packed){ .struct_size = sizeof to[i],
                                          .codes = p[i]->codes,
                                          .meta = p[i]->meta };
        list[i] = &to[i];
    }
    if (st == TSR_OK)
        st = t->table->tune(t->q->self, &t->block, list, err);
    if (st == TSR_E_NUMERIC) /* weights or options of the user's that cannot work */
        st = TSR_E_INPUT;
    for (uint64_t i = 0; i < t->n && st == TSR_OK; i++)
        st = take(t, t->list[i], p[i], err);
    free(to);
    free(list);
    return st;
}

tsr_status tsr_quant_tune(const struct tsr_quant_tune_job *job, const struct tsr_quantizer *one,
                          struct tsr_model_packed **out, struct tsr_err *err)
{
    struct tune t = { .job = job, .q = one, .table = tune_table(one) };
    char        name[48];
    double      start = tsr_now_s();
    (void)snprintf(name, sizeof name, "model.layers.%llu", (unsigned long long)job->layer);
    struct tsr_model_packed **p = tsr_new(job->model->hp.linears, sizeof *p);
    tsr_status st = p ? tune_new(&t, name, err) : tsr_fail_nomem(err, sizeof *p, "packed weights");
    if (st == TSR_OK)
        st = pack(&t, p, err);
    double seconds = tsr_now_s() - start;
    for (uint64_t i = 0; i < t.n && p; i++) {
        if (st != TSR_OK) {
            tsr_model_packed_destroy(p[i]);
            continue;
        }
        p[i]->report.seconds = seconds / (double)t.n;
        p[i]->source_dtype = job->model->layers[job->layer].lin[t.id[i]].w.dtype;
        out[t.id[i]] = p[i];
    }
    if (st == TSR_OK)
        tsr_logf(TSR_LOG_INFO,
                 "layer %llu, quantizer '%s': %llu trials on %llu sequences of %llu tokens, "
                 "%.1f s",
                 (unsigned long long)job->layer, one->name, (unsigned long long)t.used,
                 (unsigned long long)t.block.sequences, (unsigned long long)t.block.tokens,
                 seconds);
    free(p);
    tune_free(&t);
    return tsr_err_prefix(err, st, "quantizer '%s'", one->name);
}

uint64_t tsr_quant_tune_bytes(const struct tsr_model *m, uint64_t sequences, uint64_t tokens,
                              uint64_t threads)
{
    uint64_t most = 0, size, bytes = tsr_gradient_bytes(m, sequences, tokens, threads);
    for (uint64_t l = 0; l < m->hp.layers; l++) {
        uint64_t weights = 0;
        for (uint64_t i = 0; i < m->hp.linears; i++) {
            const struct tsr_matrix *w = &m->layers[l].lin[i].w;
            if (!tsr_mul(w->rows, w->cols, &size) || !tsr_add(weights, size, &weights))
                return UINT64_MAX;
        }
        most = weights > most ? weights : most;
    }
    /* a copy of the host's, five of the plugin's, and one that is decoded */
    if (!tsr_mul(most, 7 * sizeof(float), &most) || !tsr_mul(sequences, tokens, &size) ||
        !tsr_mul(size, 3 * m->hp.hidden * sizeof(float), &size) || !tsr_add(most, size, &most) ||
        !tsr_add(most, bytes, &most))
        return UINT64_MAX;
    return most;
}
