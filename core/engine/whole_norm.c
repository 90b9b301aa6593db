/* A norm of queries and keys over all heads, of which each rank has some:
 *
 *   own columns of q and k, zeros for the others' --sum over ranks--> whole rows -> NORM -> own columns again
 *
 * Its sum of squares is one chain for each lane over all columns (docs/decisions/numerics.md), so that parts of it
 * would not add up to its bits.  Whole rows do: adding zeros does not round. */
#include "engine/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct tsr_engine_whole_norm {
    struct tsr_tensor rows; /* [chunk, queries and keys of all heads] */
    float            *sum;  /* the same in host memory; owned */
    float            *own;  /* [chunk, this rank's queries]; owned */
};

static uint64_t all_columns(const struct tsr_model_hparams *hp)
{
    return ((uint64_t)hp->heads + hp->kv_heads) * hp->head_dim;
}

tsr_status tsr_engine_whole_norm_create(struct tsr_engine *e, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &e->model->hp;
    uint64_t all = all_columns(hp), own = (uint64_t)e->share.heads * hp->head_dim;
    if (e->tp.ranks <= 1 || hp->qk_norm != TSR_MODEL_QK_NORM_WIDTH)
        return TSR_OK;
    e->whole_norm = tsr_new(1, sizeof *e->whole_norm);
    if (!e->whole_norm)
        return tsr_fail_nomem(err, sizeof *e->whole_norm, "whole queries and keys");
    e->whole_norm->sum = tsr_new_aligned(e->chunk, all * sizeof(float));
    e->whole_norm->own = tsr_new_aligned(e->chunk, own * sizeof(float));
    if (!e->whole_norm->sum || !e->whole_norm->own)
        return tsr_fail_nomem(err, e->chunk * (all + own) * sizeof(float),
                              "whole queries and keys");
    return tsr_engine_device_tensor(e->dev, TSR_F32, e->chunk, all, 0, "activations",
                                    &e->whole_norm->rows, err);
}

void tsr_engine_whole_norm_destroy(struct tsr_engine *e)
{
    if (!e->whole_norm)
        return;
    free(e->whole_norm->sum);
    free(e->whole_norm->own);
    free(e->whole_norm);
    e->whole_norm = NULL;
}

static struct tsr_tensor columns(const struct tsr_tensor *t, uint64_t first, uint64_t n)
{
    struct tsr_tensor v = *t;
    v.offset += first * sizeof(float);
    v.cols = n;
    return v;
}

/* This rank's columns to their place among all. */
static tsr_status put(struct tsr_engine *e, const struct tsr_tensor *t, uint64_t at,
                      struct tsr_err *err)
{
    const struct tsr_engine_whole_norm *w = e->whole_norm;
    uint64_t                            all = all_columns(&e->model->hp);
    TSR_TRY(tsr_engine_device_download(e->dev, t, w->own, err));
    for (uint64_t r = 0; r < t->rows; r++)
        memcpy(w->sum + r * all + at, w->own + r * t->cols, t->cols * sizeof(float));
    return TSR_OK;
}

tsr_status tsr_engine_whole_norm_run(struct tsr_engine *e, uint64_t layer, struct tsr_tensor *q,
                                     struct tsr_tensor *k, struct tsr_err *err)
{
    const struct tsr_model_hparams    *hp = &e->model->hp;
    const struct tsr_engine_layer_dev *l = &e->layers[layer];
    struct tsr_engine_whole_norm      *w = e->whole_norm;
    uint64_t all = all_columns(hp), queries = (uint64_t)hp->heads * hp->head_dim, n = q->rows;
    uint64_t at_q = (uint64_t)e->share.head * hp->head_dim,
             at_k = queries + (uint64_t)e->share.kv_head * hp->head_dim;
    struct tsr_tensor rows = tsr_engine_rows(&w->rows, 0, n);
    memset(w->sum, 0, n * all * sizeof *w->sum);
    TSR_TRY(tsr_engine_device_sync(e->dev, err));
    TSR_TRY(put(e, q, at_q, err));
    TSR_TRY(put(e, k, at_k, err));
    TSR_TRY(e->tp.sum(e->tp.ctx, (uint32_t)(2 * layer), w->sum, n, all, err));
    TSR_TRY(tsr_engine_device_upload(e->dev, &rows, w->sum, err));
    struct tsr_tensor both[2] = { columns(&rows, 0, queries),
                                  columns(&rows, queries, all - queries) };
    TSR_TRY(tsr_engine_run_norm(e, &l->q_norm, &both[0], &both[0], err));
    TSR_TRY(tsr_engine_run_norm(e, &l->k_norm, &both[1], &both[1], err));
    *q = columns(&rows, at_q, q->cols);
    *k = columns(&rows, at_k, k->cols);
    return TSR_OK;
}
