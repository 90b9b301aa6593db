/* Latent attention: the ranks of its rows, and the columns of a head. */
#include "model/config_internal.h"

static tsr_status read_one(const struct tsr_model_config_source *s, const struct tsr_model_value *v,
                           const char *what, uint32_t *out)
{
    uint64_t n = 0;
    TSR_TRY(tsr_model_config_size(s, v, MAX_WIDTH, &n));
    *out = (uint32_t)n;
    return n ? TSR_OK
             : tsr_model_family_fail(s->config->family, v->at, s->err,
                                     "'%s' of 'latent' of the family is 0", what);
}

tsr_status tsr_model_config_latent(const struct tsr_model_config_source *s, uint64_t *head_dim)
{
    const struct tsr_model_family *f = s->config->family;
    struct tsr_model_latent       *l = &s->config->hp.latent;
    uint64_t                       q_rank = 0;
    TSR_TRY(tsr_model_config_size(s, &f->latent.q_rank, MAX_WIDTH, &q_rank));
    l->q_rank = (uint32_t)q_rank;
    TSR_TRY(read_one(s, &f->latent.rank, "rank", &l->rank));
    TSR_TRY(read_one(s, &f->latent.nope, "nope", &l->nope));
    TSR_TRY(read_one(s, &f->latent.rope, "rope", &l->rope));
    TSR_TRY(read_one(s, &f->latent.v, "v", &l->v));
    TSR_TRY(tsr_model_config_float(s, &f->latent.eps, 0.0, 1.0, &l->eps));
    uint64_t qk = (uint64_t)l->nope + l->rope;
    *head_dim = qk > l->v ? qk : l->v;
    return TSR_OK;
}
