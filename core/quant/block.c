/* Block searches: which sites of a layer an instance sees, what produces their inputs, and whether
 * its results are valid. */
#include "quant/block_internal.h"

#include "base/f16.h"
#include "base/mem.h"
#include "tessera/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The block table of a quantizer, or NULL. */
static const struct tsr_quantizer_block_v1 *block_table(const struct tsr_quantizer *q)
{
    if (!q || !TSR_HAS(struct tsr_quantizer_v1, q->iface, extension))
        return NULL;
    const struct tsr_quantizer_block_v1 *t = q->iface->extension(q->self, TSR_QUANTIZER_BLOCK);
    return t && TSR_HAS(struct tsr_quantizer_block_v1, t, search) ? t : NULL;
}

bool tsr_quant_block_searches(const struct tsr_quantizer *q)
{
    return block_table(q) != NULL;
}

uint64_t tsr_quant_block_need(const struct tsr_quantizer *const *q, bool *any)
{
    uint64_t need = 0;
    *any = false;
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        const struct tsr_quantizer_block_v1 *t = block_table(q[i]);
        if (!t)
            continue;
        *any = true;
        need |= t->block_need(q[i]->self);
    }
    return need;
}

/* ---- who makes a site's input ------------------------------------------------ */

static bool norm_produces(const struct block_view *v, enum tsr_site site)
{
    const struct tsr_model_hparams *hp = &v->job->model->hp;
    const struct tsr_model_layer   *l = &v->job->model->layers[v->job->layer];
    const struct tsr_model_norm    *n = site == TSR_MODEL_SITE_ATTN_IN ? &l->attn_in : &l->ffn_in;
    /* a norm before attention and feed-forward at once has more inputs than a site's */
    return n->gain && hp->norm_place != TSR_MODEL_NORM_AFTER &&
           hp->norm_place != TSR_MODEL_NORM_PARALLEL && !hp->residual_from_norm;
}

static bool linear_produces(const struct block_view *v, enum tsr_site site)
{
    const struct tsr_model_hparams *hp = &v->job->model->hp;
    const struct tsr_model_linear  *l = v->job->model->layers[v->job->layer].lin;
    enum tsr_linear_id              from = site == TSR_MODEL_SITE_O_IN ? TSR_MODEL_V : TSR_MODEL_UP;
    enum tsr_linear_id              to = site == TSR_MODEL_SITE_O_IN ? TSR_MODEL_O : TSR_MODEL_DOWN;
    if (v->job->q[from] != v->q || l[from].bias || l[from].w.rows != l[to].w.cols)
        return false;
    return site == TSR_MODEL_SITE_O_IN ? hp->heads == hp->kv_heads
                                       : hp->gated || hp->func == TSR_FUNC_RELU;
}

/* All present linears of the site are this instance's. */
static bool owns_site(const struct block_view *v, enum tsr_site site)
{
    const struct tsr_model_linear *l = v->job->model->layers[v->job->layer].lin;
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        if (tsr_model_linear_site((enum tsr_linear_id)i) == site && l[i].w.rows &&
            v->job->q[i] != v->q)
            return false;
    return true;
}

static void find_producer(const struct block_view *v, struct tsr_block_site *s, enum tsr_site site)
{
    s->producer = TSR_PRODUCER_NONE;
    if (!owns_site(v, site))
        return;
    if (site == TSR_MODEL_SITE_ATTN_IN || site == TSR_MODEL_SITE_FFN_IN) {
        if (norm_produces(v, site))
            s->producer = TSR_PRODUCER_NORM;
        return;
    }
    if (!linear_produces(v, site))
        return;
    enum tsr_linear_id from = site == TSR_MODEL_SITE_O_IN ? TSR_MODEL_V : TSR_MODEL_UP;
    s->producer = TSR_PRODUCER_LINEAR;
    for (uint64_t i = 0; i < v->n; i++)
        for (uint64_t k = 0; k < v->site[i].n_linears; k++)
            if (v->lin[i][k] == from) {
                s->producer_site = i;
                s->producer_linear = k;
            }
}

/* ---- the view ---------------------------------------------------------------- */

static tsr_status widen(const struct tsr_matrix *w, struct tsr_matrix *wide, struct tsr_err *err)
{
    uint64_t n;
    float   *data = tsr_mul(w->rows, w->cols, &n) ? tsr_new_aligned(n, sizeof *data) : NULL;
    if (!data)
        return tsr_fail_nomem(err, w->rows * w->cols * sizeof *data, w->name);
    for (uint64_t r = 0; r < w->rows; r++)
        tsr_widen(data + r * w->cols, (const unsigned char *)w->data + r * w->row_stride, w->dtype,
                  w->cols);
    *wide = *w;
    wide->dtype = TSR_F32;
    wide->data = data;
    wide->row_stride = w->cols * sizeof *data;
    return TSR_OK;
}

static float *filled(uint64_t a, uint64_t b, float value)
{
    uint64_t n;
    float   *v = tsr_mul(a, b, &n) ? tsr_new(n, sizeof *v) : NULL;
    for (uint64_t i = 0; v && i < n; i++)
        v[i] = value;
    return v;
}

static tsr_status add_linear(struct block_view *v, uint64_t at, enum tsr_linear_id id,
                             struct tsr_err *err)
{
    struct tsr_block_site   *s = &v->site[at];
    const struct tsr_matrix *w = &v->job->model->layers[v->job->layer].lin[id].w;
    uint64_t                 group = v->table->clip_group(v->q->self, w->cols), i = s->n_linears++;
    struct tsr_format        f = { .group = group };
    v->lin[at][i] = id;
    TSR_TRY(widen(w, &v->wide[id], err));
    v->list[at][i] = &v->wide[id];
    v->clip[at][i] = filled(w->rows, tsr_format_groups(&f, w->cols), INFINITY);
    if (!v->clip[at][i])
        return tsr_fail_nomem(err, w->rows * sizeof(float), "the clips of a block search");
    s->cols = w->cols;
    return TSR_OK;
}

static tsr_status add_site(struct block_view *v, enum tsr_site site, struct tsr_err *err)
{
    const struct tsr_model_linear *l = v->job->model->layers[v->job->layer].lin;
    uint64_t                       at = v->n;
    struct tsr_block_site         *s = &v->site[at];
    uint64_t                       need = v->table->block_need(v->q->self);
    *s = (struct tsr_block_site){ .struct_size = sizeof *s,
                                  .name = tsr_model_site_name(site, v->name[at]),
                                  .linears = v->list[at],
                                  .stats = &v->stats[at] };
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        if (tsr_model_linear_site((enum tsr_linear_id)i) == site && l[i].w.data &&
            v->job->q[i] == v->q)
            TSR_TRY(add_linear(v, at, (enum tsr_linear_id)i, err));
    if (s->n_linears == 0)
        return TSR_OK;
    const struct tsr_quant_stats *stats = v->job->stats ? &v->job->stats[site] : NULL;
    TSR_TRY(tsr_quant_need_check(need, stats, s->cols, v->q->name, v->list[at][0]->name, err));
    v->stats[at] = tsr_quant_stats_for(need, stats);
    v->id[at] = site;
    v->sites[at] = s;
    v->choice[at] = (struct tsr_block_choice){ .struct_size = sizeof v->choice[at],
                                               .scale = filled(1, s->cols, 1.0f),
                                               .clip = v->clip[at] };
    v->choices[at] = &v->choice[at];
    v->n++;
    if (!v->choice[at].scale)
        return tsr_fail_nomem(err, s->cols * sizeof(float), "the scales of a block search");
    find_producer(v, s, site); /* makers come before their users in the order of sites */
    return TSR_OK;
}

static void view_free(struct block_view *v)
{
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        free(v->wide[i].data);
    for (int s = 0; s < TSR_MODEL_SITES; s++) {
        free(v->choice[s].scale);
        for (int i = 0; i < TSR_MODEL_LINEARS; i++)
            free(v->clip[s][i]);
    }
    free(v->original[0]);
    free(v->original[1]);
}

/* ---- the search ---------------------------------------------------------------- */

/* What a plugin answers is outside input like any other. */
static tsr_status check_choice(const struct block_view *v, uint64_t at, struct tsr_err *err)
{
    const struct tsr_block_site *s = &v->site[at];
    for (uint64_t c = 0; c < s->cols; c++) {
        float x = v->choice[at].scale[c];
        bool  wrong = s->producer == TSR_PRODUCER_NONE ? x != 1.0f : !(x > 0.0f && isfinite(x));
        if (wrong)
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "its scale of column %llu of site %s is %g, where %s is wanted; the "
                            "plugin is broken",
                            (unsigned long long)c, s->name, (double)x,
                            s->producer == TSR_PRODUCER_NONE ? "1" : "a positive number");
    }
    for (uint64_t i = 0; i < s->n_linears; i++) {
        const struct tsr_matrix *w = v->list[at][i];
        struct tsr_format        f = { .group = v->table->clip_group(v->q->self, w->cols) };
        uint64_t                 groups = tsr_format_groups(&f, w->cols);
        for (uint64_t k = 0; k < w->rows * groups; k++)
            if (!(v->clip[at][i][k] >= 0.0f))
                return tsr_fail(err, TSR_E_UNSUPPORTED,
                                "its clip of '%s', row %llu group %llu, is %g, where a number from "
                                "0 is wanted; the plugin is broken",
                                w->name, (unsigned long long)(k / groups),
                                (unsigned long long)(k % groups), (double)v->clip[at][i][k]);
    }
    return TSR_OK;
}

static tsr_status search_view(struct block_view *v, struct tsr_quant_block_fold *f,
                              struct tsr_err *err)
{
    char name[48];
    for (int s = 0; s < TSR_MODEL_SITES; s++)
        TSR_TRY(add_site(v, (enum tsr_site)s, err));
    (void)snprintf(name, sizeof name, "model.layers.%llu", (unsigned long long)v->job->layer);
    struct tsr_block b = { .struct_size = sizeof b,
                           .name = name,
                           .n_sites = v->n,
                           .sites = v->sites,
                           .ctx = v,
                           .loss = block_loss };
    tsr_status       st = v->table->search(v->q->self, &b, v->choices, err);
    if (st == TSR_E_NUMERIC) /* weights or statistics of the user's that cannot work */
        st = TSR_E_INPUT;
    for (uint64_t s = 0; s < v->n && st == TSR_OK; s++)
        st = check_choice(v, s, err);
    return st == TSR_OK ? block_fold(v, f, err) : st;
}

tsr_status tsr_quant_block_search(const struct tsr_quant_block_job *job,
                                  struct tsr_quant_block_fold *f, struct tsr_err *err)
{
    *f = (struct tsr_quant_block_fold){ 0 };
    for (int i = 0; i < TSR_MODEL_LINEARS; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen = seen || job->q[k] == job->q[i];
        const struct tsr_quantizer_block_v1 *t = block_table(job->q[i]);
        if (!t || seen)
            continue;
        struct block_view *v = tsr_new(1, sizeof *v);
        if (!v) {
            tsr_quant_block_fold_free(f);
            return tsr_fail_nomem(err, sizeof *v, "a block search");
        }
        v->job = job;
        v->q = job->q[i];
        v->table = t;
        tsr_status st = search_view(v, f, err);
        view_free(v);
        free(v);
        if (st != TSR_OK) {
            tsr_quant_block_fold_free(f);
            return tsr_err_prefix(err, st, "quantizer '%s'", job->q[i]->name);
        }
    }
    return TSR_OK;
}
