/* The inputs of a layer's linears. */
#include "model/model.h"

#include <stdio.h>

#define EXPERT_SITES 2

enum tsr_site tsr_model_site_kind(enum tsr_site site)
{
    return site == TSR_MODEL_SITE_SHARED_DOWN_IN            ? TSR_MODEL_SITE_DOWN_IN
           : site < TSR_MODEL_SITE_EXPERTS                  ? site
           : (site - TSR_MODEL_SITE_EXPERTS) % EXPERT_SITES ? TSR_MODEL_SITE_DOWN_IN
                                                            : TSR_MODEL_SITE_FFN_IN;
}

uint64_t tsr_model_site_expert(enum tsr_site site)
{
    return (uint64_t)(site - TSR_MODEL_SITE_EXPERTS) / EXPERT_SITES;
}

enum tsr_site tsr_model_site_columns(enum tsr_site site)
{
    return site >= TSR_MODEL_SITE_EXPERTS && tsr_model_site_kind(site) == TSR_MODEL_SITE_FFN_IN
               ? TSR_MODEL_SITE_FFN_IN
               : site;
}

const char *tsr_model_site_name(enum tsr_site site, char buf[TSR_MODEL_SITE_TEXT])
{
    static const char *const names[TSR_MODEL_SITE_EXPERTS] = {
        "attn_in", "o_in", "ffn_in", "down_in", "shared.down_in", "q_b_in", "kv_b_in"
    };
    if (site < TSR_MODEL_SITE_EXPERTS)
        (void)snprintf(buf, TSR_MODEL_SITE_TEXT, "%s", names[site]);
    else
        (void)snprintf(buf, TSR_MODEL_SITE_TEXT, "experts.%u.%s",
                       (unsigned)tsr_model_site_expert(site), names[tsr_model_site_kind(site)]);
    return buf;
}

enum tsr_site tsr_model_expert_site(uint64_t expert, enum tsr_site kind)
{
    return (enum tsr_site)(TSR_MODEL_SITE_EXPERTS + EXPERT_SITES * expert +
                           (kind == TSR_MODEL_SITE_DOWN_IN));
}

enum tsr_site tsr_model_linear_site(enum tsr_linear_id id)
{
    uint64_t expert =
        id < TSR_MODEL_EXPERTS ? 0 : (uint64_t)(id - TSR_MODEL_EXPERTS) / TSR_EXPERT_LINEARS;
    bool down = tsr_model_linear_kind(id) == TSR_MODEL_DOWN;
    if (id >= TSR_MODEL_EXPERTS)
        return tsr_model_expert_site(expert, down ? TSR_MODEL_SITE_DOWN_IN : TSR_MODEL_SITE_FFN_IN);
    switch (id) {
    case TSR_MODEL_Q:
    case TSR_MODEL_K:
    case TSR_MODEL_V:
    case TSR_MODEL_Q_A:
    case TSR_MODEL_KV_A:
    case TSR_MODEL_Z:
    case TSR_MODEL_B:
    case TSR_MODEL_A:
        return TSR_MODEL_SITE_ATTN_IN;
    case TSR_MODEL_Q_B:
        return TSR_MODEL_SITE_Q_B_IN;
    case TSR_MODEL_KV_B:
        return TSR_MODEL_SITE_KV_B_IN;
    case TSR_MODEL_O:
        return TSR_MODEL_SITE_O_IN;
    case TSR_MODEL_DOWN:
        return TSR_MODEL_SITE_DOWN_IN;
    case TSR_MODEL_SHARED_DOWN:
        return TSR_MODEL_SITE_SHARED_DOWN_IN;
    default:
        return TSR_MODEL_SITE_FFN_IN;
    }
}

uint64_t tsr_model_layer_site_cols(const struct tsr_model *m, uint64_t layer, enum tsr_site site)
{
    switch (tsr_model_site_kind(site)) {
    case TSR_MODEL_SITE_O_IN:
        return tsr_model_attended_width(&m->hp, layer);
    case TSR_MODEL_SITE_Q_B_IN:
        return m->hp.latent.q_rank;
    case TSR_MODEL_SITE_KV_B_IN:
        return m->hp.latent.rank;
    case TSR_MODEL_SITE_DOWN_IN:
        return site == TSR_MODEL_SITE_DOWN_IN          ? m->hp.ffn
               : site == TSR_MODEL_SITE_SHARED_DOWN_IN ? m->hp.shared_ffn
                                                       : m->hp.expert_ffn;
    default:
        return m->hp.hidden;
    }
}

uint64_t tsr_model_site_cols(const struct tsr_model *m, enum tsr_site site)
{
    uint64_t most = tsr_model_layer_site_cols(m, m->hp.layers, site); /* of attention */
    for (uint64_t i = 0; i < m->hp.layers && site == TSR_MODEL_SITE_O_IN; i++) {
        uint64_t n = tsr_model_layer_site_cols(m, i, site);
        most = n > most ? n : most;
    }
    return most;
}

bool tsr_model_layer_has_site(const struct tsr_model *m, uint64_t layer, enum tsr_site site)
{
    bool sparse = m->hp.sparse && m->hp.sparse[layer];
    if (site == TSR_MODEL_SITE_SHARED_DOWN_IN)
        return sparse && m->hp.shared_ffn;
    if (site == TSR_MODEL_SITE_Q_B_IN)
        return m->hp.latent.q_rank != 0;
    if (site == TSR_MODEL_SITE_KV_B_IN)
        return m->hp.latent.rank != 0;
    return site == TSR_MODEL_SITE_DOWN_IN ? !sparse : site < TSR_MODEL_SITE_EXPERTS || sparse;
}
