/* Transforms in the answer of a block search: what a site takes, what a plugin may answer, and where it goes. */
#include "quant/block_internal.h"

#include "base/mem.h"
#include "model/online.h"
#include "rotate/online.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a site takes ---------------------------------------------------------- */

/* A linear of the instance whose rows are the site's columns, with nothing added to them. */
static bool follows(const struct block_view *v, uint64_t id, uint64_t rows)
{
    const struct tsr_model_linear *l = &v->job->model->layers[v->job->layer].lin[id];
    return v->job->q[id] == v->q && l->w.data && l->w.rows == rows && !l->bias;
}

static bool takes_order(const struct block_view *v, const struct block_site *s)
{
    const struct tsr_model_hparams *hp = &v->job->model->hp;
    const uint64_t                  up = block_from(s), cols = s->shown.cols;
    if (tsr_model_site_kind(s->id) != TSR_MODEL_SITE_DOWN_IN || hp->online.down ||
        hp->online.expert || hp->online.shared)
        return false;
    return follows(v, up, cols) && (!hp->gated || follows(v, up - 1, cols));
}

static bool takes_matrices(const struct block_view *v, const struct block_site *s)
{
    const struct tsr_model_hparams *hp = &v->job->model->hp;
    return s->id == TSR_MODEL_SITE_O_IN && !tsr_rotate_no_heads(v->job->model) &&
           s->shown.cols == (uint64_t)hp->heads * hp->head_dim &&
           follows(v, TSR_MODEL_V, (uint64_t)hp->kv_heads * hp->head_dim);
}

/* Columns that the order of a Hadamard matrix divides; 0: the site takes none. */
static uint64_t hadamard_of(const struct block_view *v, const struct block_site *s, uint64_t *takes)
{
    const struct tsr_model         *m = v->job->model;
    const struct tsr_model_hparams *hp = &m->hp;
    const bool                      dense = !hp->sparse || !hp->sparse[v->job->layer];
    uint64_t                        n = 0;
    if (s->id == TSR_MODEL_SITE_DOWN_IN && dense && !hp->online.down) {
        n = tsr_model_online_run(s->shown.cols);
        *takes = TSR_TAKES_HADAMARD;
        return n < TSR_ROTATE_LEAST ? 0 : n;
    }
    if (s->id == TSR_MODEL_SITE_ATTN_IN && !tsr_rotate_no_keys(m) && !hp->online.keys) {
        n = tsr_hadamard_divisor(hp->head_dim, TSR_HADAMARD_BASE);
        *takes = TSR_TAKES_KEYS;
    }
    return n > 1 ? n : 0;
}

static bool unit_matrices(struct block_site *s)
{
    const uint64_t n = s->shown.matrix_cols;
    uint64_t       cells;
    if (!tsr_mul(n, n, &cells) || !tsr_mul(cells, s->shown.matrices, &cells) ||
        !(s->choice.matrix = tsr_new(cells, sizeof *s->choice.matrix)))
        return false;
    for (uint64_t i = 0; i < s->shown.matrices * n; i++)
        s->choice.matrix[i * n + i % n] = 1;
    return true;
}

tsr_status block_offer(const struct block_view *v, struct block_site *s, struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &v->job->model->hp;
    uint64_t                        bit = 0;
    bool                            room = true;
    if (!block_owns_site(v, s->id))
        return TSR_OK;
    if ((s->shown.hadamard_cols = hadamard_of(v, s, &bit)))
        s->shown.takes |= bit;
    if (takes_order(v, s)) {
        s->shown.takes |= TSR_TAKES_ORDER;
        room = (s->choice.order = tsr_new(s->shown.cols, sizeof *s->choice.order)) != NULL;
        for (uint64_t i = 0; room && i < s->shown.cols; i++)
            s->choice.order[i] = (uint32_t)i;
    }
    if (takes_matrices(v, s)) {
        s->shown.takes |= TSR_TAKES_MATRIX;
        s->shown.matrix_cols = hp->head_dim;
        s->shown.matrices = hp->kv_heads;
        room = unit_matrices(s);
    }
    return room ? TSR_OK : tsr_fail_nomem(err, s->shown.cols * sizeof(double), s->name);
}

/* ---- what a plugin may answer ---------------------------------------------------- */

static tsr_status check_order(const struct block_site *s, struct tsr_err *err)
{
    uint8_t   *seen = tsr_new(s->shown.cols, 1);
    tsr_status st = seen ? TSR_OK : tsr_fail_nomem(err, s->shown.cols, s->name);
    for (uint64_t i = 0; st == TSR_OK && i < s->shown.cols; i++) {
        uint64_t c = s->choice.order[i];
        if (c >= s->shown.cols || seen[c]++)
            st = tsr_fail(err, TSR_E_UNSUPPORTED,
                          "its order of site %s has column %llu in place %llu, where each column "
                          "below %llu is wanted once; the plugin is broken",
                          s->name, (unsigned long long)c, (unsigned long long)i,
                          (unsigned long long)s->shown.cols);
    }
    free(seen);
    return st;
}

static tsr_status check_matrix(const struct block_site *s, uint64_t at, struct tsr_err *err)
{
    const uint64_t n = s->shown.matrix_cols;
    const double  *m = s->choice.matrix + at * n * n;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j <= i; j++) {
            double dot = i == j ? -1 : 0;
            for (uint64_t k = 0; k < n; k++)
                dot += m[i * n + k] * m[j * n + k];
            if (!(fabs(dot) <= TSR_BLOCK_ORTHOGONAL))
                return tsr_fail(err, TSR_E_UNSUPPORTED,
                                "its matrix %llu of site %s is not orthogonal: the product of rows "
                                "%llu and %llu is %g off, where at most %g is wanted; the plugin "
                                "is broken",
                                (unsigned long long)at, s->name, (unsigned long long)i,
                                (unsigned long long)j, dot, TSR_BLOCK_ORTHOGONAL);
        }
    return TSR_OK;
}

tsr_status block_check_turn(const struct block_view *v, uint64_t at, struct tsr_err *err)
{
    const struct block_site *s = &v->site[at];
    const uint64_t           n = s->choice.hadamard, cols = s->shown.hadamard_cols;
    if (n && !cols)
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "it has a Hadamard transform of %llu columns for site %s, which takes "
                        "none; the plugin is broken",
                        (unsigned long long)n, s->name);
    if (n && (cols % n || !tsr_model_online_known(n)))
        return tsr_fail(err, TSR_E_UNSUPPORTED,
                        "its Hadamard transform of site %s has %llu columns, where the order of a "
                        "Hadamard matrix that divides %llu is wanted; the plugin is broken",
                        s->name, (unsigned long long)n, (unsigned long long)cols);
    if (s->choice.order)
        TSR_TRY(check_order(s, err));
    for (uint64_t i = 0; s->choice.matrix && i < s->shown.matrices; i++)
        TSR_TRY(check_matrix(s, i, err));
    return TSR_OK;
}

/* ---- where it goes ----------------------------------------------------------------- */

static bool orders(const struct block_site *s)
{
    for (uint64_t i = 0; s->choice.order && i < s->shown.cols; i++)
        if (s->choice.order[i] != i)
            return true;
    return false;
}

static bool multiplies(const struct block_site *s)
{
    const uint64_t n = s->shown.matrix_cols;
    for (uint64_t i = 0; s->choice.matrix && i < s->shown.matrices * n * n; i++)
        if (s->choice.matrix[i] != (double)(i / n % n == i % n))
            return true;
    return false;
}

static tsr_status transform_of(struct block_site *s, struct tsr_rotate_transform *t,
                               struct tsr_err *err)
{
    const uint64_t n = s->shown.matrix_cols;
    if (orders(s)) {
        t->order = s->choice.order;
        s->choice.order = NULL;
    }
    if (multiplies(s)) {
        if (!(t->matrix = tsr_new(s->shown.matrices, sizeof *t->matrix)))
            return tsr_fail_nomem(err, s->shown.matrices * sizeof *t->matrix, s->name);
        for (; t->matrices < s->shown.matrices; t->matrices++)
            TSR_TRY(tsr_orthogonal_copy(&t->matrix[t->matrices],
                                        s->choice.matrix + t->matrices * n * n, n, err));
    }
    if (!s->choice.hadamard || s->id == TSR_MODEL_SITE_ATTN_IN)
        return TSR_OK;
    if (!(t->online = tsr_new(1, sizeof *t->online)))
        return tsr_fail_nomem(err, sizeof *t->online, s->name);
    return tsr_orthogonal_plain(t->online, s->choice.hadamard, err);
}

static tsr_status turn_producer(const struct block_view *v, const struct tsr_rotate_transform *t,
                                uint64_t id, struct tsr_err *err)
{
    const struct tsr_matrix *w = &v->wide[id];
    uint64_t                *at = tsr_new(w->rows, sizeof *at);
    if (!at)
        return tsr_fail_nomem(err, w->rows * sizeof *at, w->name);
    for (uint64_t r = 0; r < w->rows; r++)
        at[r] = r;
    tsr_status st = tsr_rotate_transform_producer(t, tsr_plugin_registry_pool(v->job->registry),
                                                  (float *)w->data, at, w->rows, w->cols, err);
    free(at);
    return st;
}

tsr_status block_turn(struct block_view *v, uint64_t at, struct tsr_quant_block_fold *f,
                      struct tsr_err *err)
{
    struct block_site           *s = &v->site[at];
    struct tsr_rotate_transform *t = &f->turn[s->id];
    struct tsr_pool             *pool = tsr_plugin_registry_pool(v->job->registry);
    if (s->id == TSR_MODEL_SITE_ATTN_IN && s->choice.hadamard)
        f->keys = (uint32_t)s->choice.hadamard;
    TSR_TRY(transform_of(s, t, err));
    if (!tsr_rotate_transform_is_set(t))
        return TSR_OK;
    for (uint64_t i = 0; i < s->shown.n_linears; i++) {
        const struct tsr_matrix *w = s->shown.linears[i];
        TSR_TRY(
            tsr_rotate_transform_inputs(t, pool, (float *)w->data, w->rows, w->cols, NULL, 0, err));
    }
    if (t->order || t->matrix)
        TSR_TRY(turn_producer(v, t, block_from(s), err));
    return t->order && v->job->model->hp.gated ? turn_producer(v, t, block_from(s) - 1, err)
                                               : TSR_OK;
}
