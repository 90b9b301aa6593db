/* What an instance sees of a layer: its sites, and what produces their inputs. */
#include "quant/block_internal.h"

#include "base/f16.h"
#include "base/mem.h"
#include "tessera/backend.h"

#include <math.h>
#include <stdlib.h>

/* ---- who makes a site's input ------------------------------------------------ */

static bool norm_produces(const struct block_view *v, enum tsr_site site)
{
    const struct tsr_model_hparams *hp = &v->job->model->hp;
    const struct tsr_model_layer   *l = &v->job->model->layers[v->job->layer];
    for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++) {
        enum tsr_overlay_norm which = (enum tsr_overlay_norm)i;
        bool latent = which == TSR_MODEL_OVERLAY_Q_B_IN || which == TSR_MODEL_OVERLAY_KV_B_IN;
        if (tsr_model_overlay_norm_site(which) == site)
            /* a norm before attention and feed-forward at once has more inputs than a site's */
            return tsr_model_overlay_norm_of(l, which)->gain &&
                   (latent ||
                    (hp->norm_place != TSR_MODEL_NORM_AFTER &&
                     hp->norm_place != TSR_MODEL_NORM_PARALLEL && !hp->residual_from_norm));
    }
    return false;
}

/* A scale passes from the rows of v or up to the columns of o or down: nothing between them but products with other
 * rows, or a ReLU. */
static bool linear_produces(const struct block_view *v, const struct block_site *s)
{
    const struct tsr_model_hparams *hp = &v->job->model->hp;
    const struct tsr_model_linear  *l = v->job->model->layers[v->job->layer].lin;
    bool                            down = tsr_model_site_kind(s->id) == TSR_MODEL_SITE_DOWN_IN;
    if (!down && s->id != TSR_MODEL_SITE_O_IN)
        return false;
    if (down && (hp->online.down || hp->online.expert || hp->online.shared))
        return false; /* a transform mixes the columns in between */
    const struct tsr_model_linear *from = &l[block_from(s)];
    if (v->job->q[block_from(s)] != v->q || from->bias || from->w.rows != s->shown.cols)
        return false;
    if (down) /* the clamped function adds 1 to what up says */
        return hp->gated ? hp->func != TSR_FUNC_CLAMPED : hp->func == TSR_FUNC_RELU;
    return hp->heads == hp->kv_heads && !tsr_model_is_recurrent(hp, v->job->layer);
}

static void find_producer(const struct block_view *v, struct block_site *s)
{
    s->shown.producer = TSR_PRODUCER_NONE;
    if (!block_owns_site(v, s->id))
        return;
    if (norm_produces(v, s->id))
        s->shown.producer = TSR_PRODUCER_NORM;
    if (!linear_produces(v, s))
        return;
    s->shown.producer = TSR_PRODUCER_LINEAR;
    for (uint64_t i = 0; i < v->n; i++)
        for (uint64_t k = 0; k < v->site[i].shown.n_linears; k++)
            if (v->site[i].lin[k] == block_from(s)) {
                s->shown.producer_site = i;
                s->shown.producer_linear = k;
            }
}

/* ---- the view ---------------------------------------------------------------- */

tsr_status block_widen(const struct tsr_matrix *w, struct tsr_matrix *wide, struct tsr_err *err)
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

/* A linear of the instance in a site. */
static bool belongs(const struct block_view *v, uint64_t id, enum tsr_site site)
{
    return v->job->q[id] == v->q && block_site_of(id) == site &&
           v->job->model->layers[v->job->layer].lin[id].w.data;
}

static tsr_status add_linear(struct block_view *v, struct block_site *s, enum tsr_linear_id id,
                             struct tsr_err *err)
{
    const struct tsr_matrix *w = &v->job->model->layers[v->job->layer].lin[id].w;
    struct tsr_format        f = { .group = v->table->clip_group(v->q->self, w->cols) };
    uint64_t                 i = s->shown.n_linears++;
    s->lin[i] = id;
    TSR_TRY(block_widen(w, &v->wide[id], err));
    s->list[i] = &v->wide[id];
    s->clip[i] = filled(w->rows, tsr_format_groups(&f, w->cols), INFINITY);
    if (!s->clip[i])
        return tsr_fail_nomem(err, w->rows * sizeof(float), "the clips of a block search");
    s->shown.cols = w->cols;
    return TSR_OK;
}

static tsr_status add_linears(struct block_view *v, struct block_site *s, struct tsr_err *err)
{
    uint64_t n = 0, linears = v->job->model->hp.linears;
    for (uint64_t i = 0; i < linears; i++)
        n += belongs(v, i, s->id);
    if (n == 0)
        return TSR_OK;
    s->lin = tsr_new(n, sizeof *s->lin);
    s->list = tsr_new(n, sizeof *s->list);
    s->clip = tsr_new(n, sizeof *s->clip);
    if (!s->lin || !s->list || !s->clip)
        return tsr_fail_nomem(err, n * sizeof *s->list, "the linears of a block search");
    for (uint64_t i = 0; i < linears; i++)
        if (belongs(v, i, s->id))
            TSR_TRY(add_linear(v, s, (enum tsr_linear_id)i, err));
    return TSR_OK;
}

static tsr_status add_site(struct block_view *v, enum tsr_site site, struct tsr_err *err)
{
    struct block_site *s = &v->site[v->n];
    uint64_t           need = v->table->block_need(v->q->self);
    s->id = site;
    s->shown = (struct tsr_block_site){ .struct_size = sizeof s->shown,
                                        .name = tsr_model_site_name(site, s->name),
                                        .stats = &s->stats };
    TSR_TRY(add_linears(v, s, err));
    if (s->shown.n_linears == 0)
        return TSR_OK;
    uint64_t at = v->n++;
    s->shown.linears = s->list;
    const struct tsr_quant_stats *in = v->in ? &v->in[site] : NULL;
    TSR_TRY(tsr_quant_need_check(need, in, s->shown.cols, v->q->name, s->list[0]->name, err));
    s->stats = tsr_quant_stats_for(need, in);
    s->choice = (struct tsr_block_choice){ .struct_size = sizeof s->choice,
                                           .scale = filled(1, s->shown.cols, 1.0f),
                                           .clip = s->clip };
    v->sites[at] = &s->shown;
    v->choices[at] = &s->choice;
    if (!s->choice.scale)
        return tsr_fail_nomem(err, s->shown.cols * sizeof(float), "the scales of a block search");
    find_producer(v, s); /* makers come before their users in the order of sites */
    return block_offer(v, s, err);
}

tsr_status block_view_new(struct block_view *v, struct tsr_err *err)
{
    uint64_t linears = v->job->model->hp.linears, sites = v->job->model->hp.sites;
    v->wide = tsr_new(linears, sizeof *v->wide);
    v->recorded = tsr_new(sites, sizeof *v->recorded);
    v->site = tsr_new(sites, sizeof *v->site);
    v->sites = tsr_new(sites, sizeof *v->sites);
    v->choices = tsr_new(sites, sizeof *v->choices);
    if (v->job->stats)
        v->in = tsr_new(sites, sizeof *v->in);
    if (!v->wide || !v->recorded || !v->site || !v->sites || !v->choices ||
        (v->job->stats && !v->in))
        return tsr_fail_nomem(err, sites * sizeof *v->site, "a block search");
    for (uint64_t i = 0; v->job->stats && i < sites; i++)
        v->in[i] = v->job->stats[i];
    TSR_TRY(block_inputs(v, err));
    for (uint64_t s = 0; s < sites; s++)
        TSR_TRY(add_site(v, (enum tsr_site)s, err));
    return TSR_OK;
}

void block_view_free(struct block_view *v)
{
    for (uint64_t i = 0; v->wide && i < v->job->model->hp.linears; i++)
        free(v->wide[i].data);
    for (uint64_t i = 0; v->site && i < v->job->model->hp.sites; i++) {
        for (uint64_t k = 0; v->site[i].clip && k < v->site[i].shown.n_linears; k++)
            free(v->site[i].clip[k]);
        free(v->site[i].choice.scale);
        free(v->site[i].choice.order);
        free(v->site[i].choice.matrix);
        free(v->site[i].lin);
        free(v->site[i].list);
        free(v->site[i].clip);
    }
    for (uint64_t i = 0; v->recorded && i < v->job->model->hp.sites; i++)
        free(v->recorded[i]);
    free(v->wide);
    free(v->in);
    free(v->recorded);
    free(v->site);
    free(v->sites);
    free(v->choices);
    free(v->original[0]);
    free(v->original[1]);
}
