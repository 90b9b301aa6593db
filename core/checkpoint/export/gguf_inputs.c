/* What the search for blocks minimises: statistics of the inputs. */
#include "checkpoint/export/gguf_super.h"

#include "base/mem.h"
#include "checkpoint/gguf/imatrix.h"

#include <string.h>

/* Of the mean of the Hessian's diagonal, added to it: the text does not say all about an input. */
#define DAMPING 0.01

bool tsr_export_gguf_has_inputs(const struct tsr_export *x)
{
    return x->imatrix || x->opt->inputs.layer;
}

static tsr_status of_imatrix(const struct tsr_export *x, const struct tsr_model_stored_view *v,
                             const char *name, uint64_t expert, float *square,
                             struct tsr_export_gguf_inputs *in)
{
    const struct tsr_gguf_imatrix_entry *e = tsr_gguf_imatrix_find(x->imatrix, name);
    if (!e)
        return TSR_OK;
    uint64_t want = v->cols * (v->stack ? v->stack : 1);
    if (e->n != want)
        return tsr_fail(x->err, TSR_E_INPUT, "%s: \"%s\" has %llu columns; the model's has %llu",
                        x->imatrix->path, name, (unsigned long long)e->n, (unsigned long long)want);
    memcpy(square, e->square + expert * v->cols, v->cols * sizeof *square);
    in->square = square;
    return TSR_OK;
}

static double damping_of(const float *hessian, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)hessian[i * n + i];
    return DAMPING * sum / (double)n;
}

static tsr_status of_calibration(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                 uint64_t expert, float *square, struct tsr_export_gguf_inputs *in)
{
    const struct tsr_quant_stats *sites = NULL;
    enum tsr_site                 at = tsr_model_linear_site(v->id);
    if (at >= TSR_MODEL_SITE_EXPERTS)
        at = tsr_model_expert_site(expert, tsr_model_site_kind(at));
    TSR_TRY(x->opt->inputs.layer(x->opt->inputs.ctx, v->layer, &sites, x->err));
    const struct tsr_quant_stats *s = &sites[at];
    if (s->cols != v->cols || !s->mean || !s->variance)
        return tsr_fail(x->err, TSR_E_INPUT,
                        "%s: \"%s\": the calibration has no moments of its %llu inputs", x->path,
                        v->module, (unsigned long long)v->cols);
    for (uint64_t k = 0; k < v->cols; k++)
        square[k] = s->mean[k] * s->mean[k] + s->variance[k];
    in->square = square;
    in->tokens = s->tokens;
    if (s->hessian) {
        in->hessian = s->hessian;
        in->damping = (float)damping_of(s->hessian, v->cols);
    }
    return TSR_OK;
}

static const struct tsr_model_overlay *overlay_of(const struct tsr_export *x)
{
    return x->o ? x->o : x->m->packed;
}

/* Whether a factor of a layer's norms or columns, or a transform, is folded into its weights. */
static bool is_folded(const struct tsr_export *x, uint64_t layer)
{
    const struct tsr_model_overlay *o = overlay_of(x);
    if (!o || layer >= x->m->hp.layers)
        return false;
    bool folded = tsr_model_overlay_turned(o, layer) != NULL;
    for (unsigned i = 0; i < TSR_MODEL_OVERLAY_NORMS; i++)
        folded = folded || o->norm[layer][i].gain || o->norm[layer][i].bias;
    for (uint64_t i = 0; i < o->sites; i++)
        folded = folded || o->scale[layer][i];
    return folded;
}

tsr_status tsr_export_gguf_inputs_of(struct tsr_export *x, const struct tsr_model_stored_view *v,
                                     const char *name, uint64_t expert, float *square,
                                     struct tsr_export_gguf_inputs *in)
{
    *in = (struct tsr_export_gguf_inputs){ 0 };
    if (is_folded(x, v->layer)) /* statistics are of inputs before it */
        return TSR_OK;
    if (x->imatrix)
        return of_imatrix(x, v, name, expert, square, in);
    if (!x->opt->inputs.layer || v->kind != TSR_MODEL_STORED_LINEAR)
        return TSR_OK;
    return of_calibration(x, v, expert, square, in);
}
