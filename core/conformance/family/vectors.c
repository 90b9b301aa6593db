/* Whether the golden's model can tell its vectors apart: a fresh model of many frameworks has gains of 1 and biases of
 * 0, and then any norm can stand in for any other. */
#include "conformance/family/family.h"

#include <stdlib.h>

static void vary(struct tsr_conformance_case *c, const float *v, uint64_t n, uint64_t layer,
                 const char *part)
{
    uint64_t i = 1;
    if (!v || n < 2)
        return;
    while (i < n && v[i] == v[0])
        i++;
    if (i < n)
        return;
    if (layer == UINT64_MAX)
        tsr_conformance_rule_fail(c, "all %llu elements of %s are %g; give the model random ones",
                                  (unsigned long long)n, part, (double)v[0]);
    tsr_conformance_rule_fail(c,
                              "layer %llu: all %llu elements of %s are %g; give the model random "
                              "ones",
                              (unsigned long long)layer, (unsigned long long)n, part, (double)v[0]);
}

static void norm(struct tsr_conformance_case *c, const struct tsr_model_norm *v, uint64_t n,
                 uint64_t layer, const char *part)
{
    char bias[40];
    (void)snprintf(bias, sizeof bias, "the bias of %s", part);
    vary(c, v->gain, n, layer, part);
    vary(c, v->bias, n, layer, bias);
}

static void layer(struct tsr_conformance_case *c, const struct tsr_model *m, uint64_t i)
{
    const struct tsr_model_layer *l = &m->layers[i];
    norm(c, &l->attn_in, m->hp.hidden, i, "attn_in");
    norm(c, &l->attn_out, m->hp.hidden, i, "attn_out");
    norm(c, &l->ffn_in, m->hp.hidden, i, "ffn_in");
    norm(c, &l->ffn_out, m->hp.hidden, i, "ffn_out");
    norm(c, &l->q_norm, m->hp.head_dim, i, "q_norm");
    norm(c, &l->k_norm, m->hp.head_dim, i, "k_norm");
    for (uint64_t k = 0; k < m->hp.linears; k++)
        if (l->lin[k].w.rows)
            vary(c, l->lin[k].bias, l->lin[k].w.rows, i, "a linear's bias");
}

void tsr_family_rule_vectors(struct tsr_conformance_case *c)
{
    struct tsr_model *m = tsr_family_golden_model(c, false);
    norm(c, &m->embed_norm, m->hp.hidden, UINT64_MAX, "embed_norm");
    norm(c, &m->final_norm, m->hp.hidden, UINT64_MAX, "final_norm");
    for (uint64_t i = 0; i < m->hp.layers; i++)
        layer(c, m, i);
}
