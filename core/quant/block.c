/* Block searches: every instance that has one sees its sites of a layer, and what it answers is checked. */
#include "quant/block_internal.h"

#include "base/log.h"
#include "base/mem.h"

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

uint64_t tsr_quant_block_need(const struct tsr_quantizer *const *q, uint64_t linears, bool *any)
{
    uint64_t need = 0;
    *any = false;
    for (uint64_t i = 0; i < linears; i++) {
        const struct tsr_quantizer_block_v1 *t = block_table(q[i]);
        if (!t)
            continue;
        *any = true;
        need |= t->block_need(q[i]->self);
    }
    return need;
}

/* ---- the search ---------------------------------------------------------------- */

/* What a plugin answers is outside input like any other. */
static tsr_status check_choice(const struct block_view *v, uint64_t at, struct tsr_err *err)
{
    const struct tsr_block_site   *s = v->sites[at];
    const struct tsr_block_choice *choice = v->choices[at];
    for (uint64_t c = 0; c < s->cols; c++) {
        float x = choice->scale[c];
        bool  wrong = s->producer == TSR_PRODUCER_NONE ? x != 1.0f : !(x > 0.0f && isfinite(x));
        if (wrong)
            return tsr_fail(err, TSR_E_UNSUPPORTED,
                            "its scale of column %llu of site %s is %g, where %s is wanted; the "
                            "plugin is broken",
                            (unsigned long long)c, s->name, (double)x,
                            s->producer == TSR_PRODUCER_NONE ? "1" : "a positive number");
    }
    for (uint64_t i = 0; i < s->n_linears; i++) {
        const struct tsr_matrix *w = s->linears[i];
        struct tsr_format        f = { .group = v->table->clip_group(v->q->self, w->cols) };
        uint64_t                 groups = tsr_format_groups(&f, w->cols);
        for (uint64_t k = 0; k < w->rows * groups; k++)
            if (!(choice->clip[i][k] >= 0.0f))
                return tsr_fail(err, TSR_E_UNSUPPORTED,
                                "its clip of '%s', row %llu group %llu, is %g, where a number from "
                                "0 is wanted; the plugin is broken",
                                w->name, (unsigned long long)(k / groups),
                                (unsigned long long)(k % groups), (double)choice->clip[i][k]);
    }
    return TSR_OK;
}

static tsr_status search_view(struct block_view *v, struct tsr_quant_block_fold *f,
                              struct tsr_err *err)
{
    char name[48];
    TSR_TRY(block_view_new(v, err));
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
    for (uint64_t s = 0; s < v->n && st == TSR_OK; s++)
        st = block_check_turn(v, s, err);
    return st == TSR_OK ? block_fold(v, f, err) : st;
}

/* The layer's sites that take no scale. */
static void say_unscaled(const struct block_view *v)
{
    char   text[400] = "";
    size_t n = 0;
    for (uint64_t s = 0; s < v->n; s++)
        if (v->sites[s]->producer == TSR_PRODUCER_NONE && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "",
                                  v->sites[s]->name);
    if (n)
        tsr_logf(
            TSR_LOG_INFO,
            "layer %llu, quantizer '%s': no norm and no linear takes the inverse scale of %s%s; "
            "the scale there is 1",
            (unsigned long long)v->job->layer, v->q->name, text, n < sizeof text ? "" : " ...");
}

static tsr_status fold_new(const struct tsr_quant_block_job *job, struct tsr_quant_block_fold *f,
                           struct tsr_err *err)
{
    const struct tsr_model_hparams *hp = &job->model->hp;
    *f = (struct tsr_quant_block_fold){ .linears = hp->linears, .sites = hp->sites };
    f->lin = tsr_new(f->linears, sizeof *f->lin);
    f->scale = tsr_new(f->sites, sizeof *f->scale);
    f->turn = tsr_new(f->sites, sizeof *f->turn);
    if (f->lin && f->scale && f->turn)
        return TSR_OK;
    tsr_quant_block_fold_free(f);
    return tsr_fail_nomem(err, hp->linears * sizeof *f->lin, "a block search");
}

static tsr_status search_one(const struct tsr_quant_block_job *job, const struct tsr_quantizer *q,
                             const struct tsr_quantizer_block_v1 *t, struct tsr_quant_block_fold *f,
                             struct tsr_err *err)
{
    struct block_view v = { .job = job, .q = q, .table = t };
    tsr_status        st = search_view(&v, f, err);
    if (st == TSR_OK)
        say_unscaled(&v);
    block_view_free(&v);
    return tsr_err_prefix(err, st, "quantizer '%s'", q->name);
}

tsr_status tsr_quant_block_search(const struct tsr_quant_block_job *job,
                                  struct tsr_quant_block_fold *f, struct tsr_err *err)
{
    tsr_status st = fold_new(job, f, err);
    for (uint64_t i = 0; i < f->linears && st == TSR_OK; i++) {
        bool seen = false;
        for (uint64_t k = 0; k < i && !seen; k++)
            seen = job->q[k] == job->q[i];
        const struct tsr_quantizer_block_v1 *t = seen ? NULL : block_table(job->q[i]);
        if (t)
            st = search_one(job, job->q[i], t, f, err);
    }
    if (st != TSR_OK)
        tsr_quant_block_fold_free(f);
    return st;
}
