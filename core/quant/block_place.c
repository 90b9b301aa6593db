/* Where the linears of a block belong. */
#include "quant/block_internal.h"

bool block_follows(const struct tsr_quant_block_job *job, enum tsr_linear_id id)
{
    return (id == TSR_MODEL_ROUTER || id == TSR_MODEL_SHARED_ROUTER) && !job->q[id] &&
           job->model->layers[job->layer].lin[id].w.rows;
}

enum tsr_site block_site_of(uint64_t id)
{
    return tsr_model_site_columns(tsr_model_linear_site((enum tsr_linear_id)id));
}

enum tsr_linear_id block_from(const struct block_site *s)
{
    return s->id == TSR_MODEL_SITE_O_IN ? TSR_MODEL_V : (enum tsr_linear_id)(s->lin[0] - 1);
}

bool block_owns_site(const struct block_view *v, enum tsr_site site)
{
    const struct tsr_model_linear *l = v->job->model->layers[v->job->layer].lin;
    for (uint64_t i = 0; i < v->job->model->hp.linears; i++)
        if (block_site_of(i) == site && l[i].w.rows && v->job->q[i] != v->q &&
            !block_follows(v->job, (enum tsr_linear_id)i))
            return false;
    return true;
}
