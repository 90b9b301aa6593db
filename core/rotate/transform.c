/* Transforms of inputs: into the columns of what reads them and the rows of what produces them. */
#include "rotate/transform.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void tsr_rotate_transform_free(struct tsr_rotate_transform *t)
{
    for (uint64_t i = 0; t->matrix && i < t->matrices; i++)
        tsr_orthogonal_free(&t->matrix[i]);
    if (t->online)
        tsr_orthogonal_free(t->online);
    free(t->matrix);
    free(t->online);
    free(t->order);
    *t = (struct tsr_rotate_transform){ 0 };
}

bool tsr_rotate_transform_is_set(const struct tsr_rotate_transform *t)
{
    return t->order || t->matrix || t->online;
}

static tsr_status order_columns(const uint32_t *order, float *x, uint64_t rows, uint64_t cols,
                                struct tsr_err *err)
{
    float *was = tsr_new(cols, sizeof *was);
    if (!was)
        return tsr_fail_nomem(err, cols * sizeof *was, "columns in another order");
    for (uint64_t r = 0; r < rows; r++, x += cols) {
        memcpy(was, x, cols * sizeof *x);
        for (uint64_t k = 0; k < cols; k++)
            x[k] = was[order[k]];
    }
    free(was);
    return TSR_OK;
}

tsr_status tsr_rotate_transform_inputs(const struct tsr_rotate_transform *t, struct tsr_pool *pool,
                                       float *x, uint64_t rows, uint64_t cols, const float *gain,
                                       float offset, struct tsr_err *err)
{
    if (t->order)
        TSR_TRY(order_columns(t->order, x, rows, cols, err));
    if (t->matrix)
        TSR_TRY(
            tsr_orthogonal_runs(t->matrix, t->matrices, pool, x, rows, cols, gain, offset, err));
    return t->online ? tsr_orthogonal_rows(t->online, pool, x, rows, cols, NULL, 0, err) : TSR_OK;
}

/* Row at[k] takes the place of row at[order[k]], cycle by cycle; a large matrix is in memory once. */
static tsr_status order_rows(const uint32_t *order, float *w, const uint64_t *at, uint64_t n,
                             uint64_t cols, struct tsr_err *err)
{
    float   *first = tsr_new(cols, sizeof *first);
    uint8_t *done = tsr_new(n, 1);
    for (uint64_t k = 0; first && done && k < n; k++) {
        uint64_t to = k;
        if (done[k])
            continue;
        memcpy(first, w + at[k] * cols, cols * sizeof *w);
        for (; order[to] != k; to = order[to]) {
            memcpy(w + at[to] * cols, w + at[order[to]] * cols, cols * sizeof *w);
            done[to] = 1;
        }
        memcpy(w + at[to] * cols, first, cols * sizeof *w);
        done[to] = 1;
    }
    bool ok = first && done;
    free(first);
    free(done);
    return ok ? TSR_OK : tsr_fail_nomem(err, cols * sizeof *w + n, "rows in another order");
}

tsr_status tsr_rotate_transform_producer(const struct tsr_rotate_transform *t,
                                         struct tsr_pool *pool, float *w, const uint64_t *at,
                                         uint64_t n, uint64_t cols, struct tsr_err *err)
{
    if (t->order)
        TSR_TRY(order_rows(t->order, w, at, n, cols, err));
    for (uint64_t r = 0; t->matrix && r < n; r += t->matrix->n) {
        const uint64_t size = t->matrix->n, i = r / size * t->matrices / (n / size);
        TSR_TRY(tsr_orthogonal_columns(&t->matrix[i], pool, w, at + r, cols, err));
    }
    return TSR_OK;
}

const char *tsr_rotate_no_heads(const struct tsr_model *m)
{
    const struct tsr_model_hparams *hp = &m->hp;
    if (hp->latent.rank)
        return "its values are part of a latent row (latent attention)";
    if (hp->attn_gate)
        return "the output of its attention is multiplied by a gate, column by column";
    for (uint64_t l = 0; l < hp->layers; l++)
        if (tsr_model_is_recurrent(hp, l))
            return "it has layers of the delta rule, which normalize their values";
    return NULL;
}

const char *tsr_rotate_no_keys(const struct tsr_model *m)
{
    if (m->hp.latent.rank)
        return "they are part of a latent row (latent attention)";
    for (uint64_t l = 0; l < m->hp.layers; l++)
        if (tsr_model_is_recurrent(&m->hp, l))
            return "it has layers of the delta rule, which keep no keys";
    return NULL;
}
