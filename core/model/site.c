/* The inputs of a layer's linears. */
#include "model/model.h"

const char *tsr_model_site_name(enum tsr_site site)
{
    static const char *const names[TSR_SITES] = { "attn_in", "o_in", "ffn_in", "down_in" };
    return names[site];
}

enum tsr_site tsr_model_linear_site(enum tsr_linear_id id)
{
    switch (id) {
    case TSR_Q:
    case TSR_K:
    case TSR_V:
        return TSR_MODEL_SITE_ATTN_IN;
    case TSR_O:
        return TSR_MODEL_SITE_O_IN;
    case TSR_GATE:
    case TSR_UP:
        return TSR_MODEL_SITE_FFN_IN;
    default:
        return TSR_MODEL_SITE_DOWN_IN;
    }
}

uint64_t tsr_model_site_cols(const struct tsr_model *m, enum tsr_site site)
{
    switch (site) {
    case TSR_MODEL_SITE_O_IN:
        return (uint64_t)m->hp.heads * m->hp.head_dim;
    case TSR_MODEL_SITE_DOWN_IN:
        return m->hp.ffn;
    default:
        return m->hp.hidden;
    }
}
