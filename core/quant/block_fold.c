/* Folding of scales: into the columns of a site's linears, and the rows of the linear or the norm that
 * makes the site's input.  Transforms come after them, and clips last. */
#include "quant/block_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tsr_quant_block_fold_free(struct tsr_quant_block_fold *f)
{
    for (uint64_t i = 0; f->lin && i < f->linears; i++)
        free(f->lin[i].data);
    for (int i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++) {
        free((void *)(uintptr_t)f->norm[i].gain);
        free((void *)(uintptr_t)f->norm[i].bias);
    }
    for (uint64_t i = 0; f->scale && i < f->sites; i++)
        free(f->scale[i]);
    for (uint64_t i = 0; f->turn && i < f->sites; i++)
        tsr_rotate_transform_free(&f->turn[i]);
    free(f->lin);
    free(f->scale);
    free(f->turn);
    *f = (struct tsr_quant_block_fold){ 0 };
}

/* ---- weights -------------------------------------------------------------- */

static float *row_of(const struct tsr_matrix *w, uint64_t r)
{
    return (float *)w->data + r * w->cols;
}

static void scale_columns(const struct tsr_matrix *w, const float *scale)
{
    for (uint64_t r = 0; r < w->rows; r++)
        for (uint64_t c = 0; c < w->cols; c++)
            row_of(w, r)[c] *= scale[c];
}

static void divide_rows(const struct tsr_matrix *w, const float *scale)
{
    for (uint64_t r = 0; r < w->rows; r++)
        for (uint64_t c = 0; c < w->cols; c++)
            row_of(w, r)[c] /= scale[r];
}

static void clamp(const struct tsr_matrix *w, const float *clip, uint64_t group)
{
    if (w->cols == 0)
        return;
    uint64_t width = group && group < w->cols ? group : w->cols;
    uint64_t groups = w->cols / width + (w->cols % width != 0);
    for (uint64_t r = 0; r < w->rows; r++) {
        float *row = row_of(w, r);
        for (uint64_t c = 0; c < w->cols; c++) {
            float limit = clip[r * groups + c / width];
            row[c] = row[c] > limit ? limit : row[c] < -limit ? -limit : row[c];
        }
    }
}

static tsr_status check_finite(const struct tsr_matrix *w, struct tsr_err *err)
{
    for (uint64_t r = 0; r < w->rows; r++)
        for (uint64_t c = 0; c < w->cols; c++)
            if (!isfinite(row_of(w, r)[c]))
                return tsr_fail(err, TSR_E_INPUT,
                                "tensor '%s': row %llu column %llu is %g with the searched scales",
                                w->name, (unsigned long long)r, (unsigned long long)c,
                                (double)row_of(w, r)[c]);
    return TSR_OK;
}

/* ---- norms ---------------------------------------------------------------- */

/* v / scale as fresh memory, for a gain that is used as v + offset. */
static tsr_status divided(const float *v, const float *scale, uint64_t n, double offset,
                          const char *what, uint64_t layer, float **out, struct tsr_err *err)
{
    float *d = tsr_new(n, sizeof *d);
    if (!d)
        return tsr_fail_nomem(err, n * sizeof *d, "a folded norm");
    *out = d; /* freed with the fold */
    for (uint64_t i = 0; i < n; i++) {
        d[i] = (float)(((double)v[i] + offset) / (double)scale[i] - offset);
        if (!isfinite(d[i]))
            return tsr_fail(err, TSR_E_INPUT,
                            "layer %llu: the %s of channel %llu is %g with the searched scales",
                            (unsigned long long)layer, what, (unsigned long long)i, (double)d[i]);
    }
    return TSR_OK;
}

static tsr_status fold_norm(const struct block_view *v, enum tsr_site site, const float *scale,
                            struct tsr_quant_block_fold *f, struct tsr_err *err)
{
    int which = 0;
    while (tsr_model_overlay_norm_site((enum tsr_overlay_norm)which) != site)
        which++;
    const struct tsr_model      *m = v->job->model;
    const struct tsr_model_norm *n =
        tsr_model_overlay_norm_of(&m->layers[v->job->layer], (enum tsr_overlay_norm)which);
    uint64_t   cols = tsr_model_layer_site_cols(m, v->job->layer, site);
    float     *gain = NULL, *bias = NULL;
    tsr_status st = divided(n->gain, scale, cols, (double)m->hp.norm_gain_offset, "norm gain",
                            v->job->layer, &gain, err);
    if (st == TSR_OK && n->bias)
        st = divided(n->bias, scale, cols, 0.0, "norm bias", v->job->layer, &bias, err);
    f->norm[which] = (struct tsr_model_norm){ .gain = gain, .bias = bias };
    return st;
}

/* Routers read the norm, and what they say stays. */
static tsr_status fold_routers(const struct block_view *v, const float *scale,
                               struct tsr_quant_block_fold *f, struct tsr_err *err)
{
    static const enum tsr_linear_id routers[] = { TSR_MODEL_ROUTER, TSR_MODEL_SHARED_ROUTER };
    for (int i = 0; i < 2 && routers[i] < v->job->model->hp.linears; i++) {
        enum tsr_linear_id id = routers[i];
        if (!block_follows(v->job, id))
            continue;
        TSR_TRY(block_widen(&v->job->model->layers[v->job->layer].lin[id].w, &f->lin[id], err));
        scale_columns(&f->lin[id], scale);
        TSR_TRY(check_finite(&f->lin[id], err));
    }
    return TSR_OK;
}

/* ---- all of it -------------------------------------------------------------- */

static bool all_ones(const float *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (v[i] != 1.0f)
            return false;
    return true;
}

tsr_status block_fold(struct block_view *v, struct tsr_quant_block_fold *f, struct tsr_err *err)
{
    for (uint64_t s = 0; s < v->n; s++)
        for (uint64_t i = 0; i < v->sites[s]->n_linears; i++)
            scale_columns(v->sites[s]->linears[i], v->choices[s]->scale);
    for (uint64_t s = 0; s < v->n; s++) {
        const struct tsr_block_site *site = v->sites[s];
        if (site->producer == TSR_PRODUCER_LINEAR)
            divide_rows(v->sites[site->producer_site]->linears[site->producer_linear],
                        v->choices[s]->scale);
    }
    for (uint64_t s = 0; s < v->n; s++)
        TSR_TRY(block_turn(v, s, f, err));
    for (uint64_t s = 0; s < v->n; s++)
        for (uint64_t i = 0; i < v->sites[s]->n_linears; i++) {
            const struct tsr_matrix *w = v->sites[s]->linears[i];
            clamp(w, v->choices[s]->clip[i], v->table->clip_group(v->q->self, w->cols));
            TSR_TRY(check_finite(w, err));
        }
    for (uint64_t s = 0; s < v->n; s++) {
        enum tsr_site id = v->site[s].id;
        if (all_ones(v->choices[s]->scale, v->sites[s]->cols))
            continue;
        if (v->sites[s]->producer == TSR_PRODUCER_NORM)
            TSR_TRY(fold_norm(v, id, v->choices[s]->scale, f, err));
        if (id == TSR_MODEL_SITE_FFN_IN)
            TSR_TRY(fold_routers(v, v->choices[s]->scale, f, err));
        f->scale[id] = v->choices[s]->scale;
        v->choices[s]->scale = NULL;
    }
    for (uint64_t i = 0; i < f->linears; i++)
        if (v->wide[i].data) {
            f->lin[i] = v->wide[i];
            v->wide[i].data = NULL;
        }
    return TSR_OK;
}
