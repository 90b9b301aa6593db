/* The section `latent` of a family file. */
#include "model/family_internal.h"

struct latent {
    const struct tsr_config_node *q_rank, *rank, *nope, *rope, *v, *eps;
};
static const struct tsr_option latent_options[] = {
    TSR_OPTION_NODE(struct latent, q_rank, "Rank of the queries; 0: they are not latent."),
    TSR_OPTION_NODE(struct latent, rank, "Rank of keys and values."),
    TSR_OPTION_NODE(struct latent, nope, "Columns of a head that do not rotate."),
    TSR_OPTION_NODE(struct latent, rope, "Columns of a head that rotate."),
    TSR_OPTION_NODE(struct latent, v, "Columns of a head's value."),
    TSR_OPTION_NODE(struct latent, eps, "Epsilon of the norms of both rows."),
};

static struct tsr_model_value of_key(const char *key)
{
    return (struct tsr_model_value){ .keys = { key }, .n_keys = 1 };
}

void tsr_family_latent(struct tsr_family_reading *r, const struct tsr_config_node *map)
{
    struct tsr_model_family *f = r->f;
    struct latent            l = { 0 };
    if (!map)
        return;
    TSR_FAMILY_FILL(r, latent_options, map, "'latent'", &l);
    f->latent.is = true;
    f->latent.q_rank = of_key("q_lora_rank");
    f->latent.q_rank.has_null = true; /* null: queries are not latent */
    f->latent.rank = of_key("kv_lora_rank");
    f->latent.nope = of_key("qk_nope_head_dim");
    f->latent.rope = of_key("qk_rope_head_dim");
    f->latent.v = of_key("v_head_dim");
    f->latent.eps = (struct tsr_model_value){ .has_def = true, .def = 1e-6 };
    const struct {
        const struct tsr_config_node *n;
        const char                   *name;
        struct tsr_model_value       *v;
    } of[] = { { l.q_rank, "q_rank", &f->latent.q_rank },
               { l.rank, "rank", &f->latent.rank },
               { l.nope, "nope", &f->latent.nope },
               { l.rope, "rope", &f->latent.rope },
               { l.v, "v", &f->latent.v },
               { l.eps, "eps", &f->latent.eps } };
    for (size_t i = 0; i < TSR_COUNT(of); i++)
        tsr_family_value(r, of[i].n, of[i].name, false, of[i].v);
    f->latent.q_rank.has_null = true;
}
