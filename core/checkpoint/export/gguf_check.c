/* Whether a GGUF file would be read as the model that it is written from: the metadata that are ready to be written are
 * read as those of any file, and the numbers of the two models are compared. */
#include "checkpoint/export/gguf_out.h"

#include "checkpoint/gguf/gguf.h"
#include "model/bind.h"
#include "model/config.h"

#include <stdlib.h>
#include <string.h>

static bool is_same(double a, double b)
{
    return (float)a == (float)b; /* reals are F32 in the file */
}

/* The part of rope that differs, or NULL. */
static const char *rope_differs(const struct tsr_model_rope *a, const struct tsr_model_rope *b)
{
    if (!is_same(a->theta, b->theta) || a->dim != b->dim)
        return "its rope";
    if (tsr_export_gguf_rope_tensors(a, NULL)) /* they are not there yet */
        return NULL;
    if (a->scaling != b->scaling || !is_same(a->factor, b->factor) ||
        !is_same(a->attention_factor, b->attention_factor))
        return "its scaling of rope";
    if (a->scaling != TSR_MODEL_ROPE_YARN)
        return NULL;
    return is_same(a->beta_fast, b->beta_fast) && is_same(a->beta_slow, b->beta_slow) &&
                   a->original_positions == b->original_positions && a->whole_ramp == b->whole_ramp
               ? NULL
               : "yarn";
}

static const char *layers_differ(const struct tsr_model_hparams *a,
                                 const struct tsr_model_hparams *b, bool windows)
{
    for (uint64_t l = 0; l < a->layers; l++) {
        if (windows && (a->window ? a->window[l] : 0) != (b->window ? b->window[l] : 0))
            return "the windows of its layers";
        if (tsr_model_is_recurrent(a, l) != tsr_model_is_recurrent(b, l))
            return "which of its layers have the delta rule";
        if ((a->rope_of ? a->rope_of[l] : 0) != (b->rope_of ? b->rope_of[l] : 0))
            return "the positions of its layers";
        if ((a->sparse && a->sparse[l]) != (b->sparse && b->sparse[l]))
            return "which of its layers have experts";
    }
    return NULL;
}

static bool latents_differ(const struct tsr_model_latent *a, const struct tsr_model_latent *b)
{
    return a->rank != b->rank || a->q_rank != b->q_rank || a->nope != b->nope ||
           a->rope != b->rope || a->v != b->v || a->eps != b->eps;
}

static bool routers_differ(const struct tsr_model_hparams *a, const struct tsr_model_hparams *b)
{
    return a->router != b->router || a->router_normalize != b->router_normalize ||
           a->router_jitter != b->router_jitter || a->router_groups != b->router_groups ||
           a->router_groups_used != b->router_groups_used ||
           a->router_group_score != b->router_group_score ||
           !is_same((double)a->router_scale, (double)b->router_scale);
}

/* What of a model with a the file would say otherwise, b; NULL: nothing. */
static const char *differs(const struct tsr_model_hparams *a, const struct tsr_model_hparams *b,
                           bool windows)
{
    if (a->vocab != b->vocab || a->hidden != b->hidden || a->layers != b->layers ||
        a->ffn != b->ffn || a->heads != b->heads || a->kv_heads != b->kv_heads ||
        a->head_dim != b->head_dim || a->embed_dim != b->embed_dim)
        return "its sizes";
    if (a->delta.key_heads != b->delta.key_heads || a->delta.value_heads != b->delta.value_heads ||
        a->delta.key_dim != b->delta.key_dim || a->delta.value_dim != b->delta.value_dim ||
        a->delta.kernel != b->delta.kernel || a->attn_gate != b->attn_gate)
        return "its delta rule";
    if (latents_differ(&a->latent, &b->latent))
        return "its latent attention";
    if (a->tied != b->tied)
        return "a head that is the embedding";
    if (a->positions != b->positions)
        return "its positions";
    if (a->rope_adjacent != b->rope_adjacent)
        return "the pairs of columns that rotate";
    if (a->experts != b->experts || a->experts_used != b->experts_used ||
        a->expert_ffn != b->expert_ffn || a->shared_ffn != b->shared_ffn)
        return "the number or the width of its experts";
    if (routers_differ(a, b))
        return "how its experts are chosen";
    if (a->norm != b->norm || a->norm_place != b->norm_place || a->qk_norm != b->qk_norm ||
        !is_same((double)a->norm_eps, (double)b->norm_eps) ||
        a->norm_gain_offset != b->norm_gain_offset ||
        a->residual_from_norm != b->residual_from_norm)
        return "its norms";
    if (a->func != b->func || a->gated != b->gated || a->func_alpha != b->func_alpha ||
        a->func_limit != b->func_limit)
        return "its feed-forward";
    if (a->attn_scale != b->attn_scale || a->attn_softcap != b->attn_softcap ||
        a->logit_softcap != b->logit_softcap || a->logit_scale != b->logit_scale ||
        a->embed_scale != b->embed_scale || a->residual_scale != b->residual_scale)
        return "its scales or soft-caps";
    const char *what = layers_differ(a, b, windows);
    return what ? what : rope_differs(&a->rope, &b->rope);
}

/* A flag of the family on which tensors depend, by its index: biases. */
static bool has_tensors(const struct tsr_model_family *f, unsigned flag)
{
    uint64_t all = 0;
    for (uint32_t r = 0; r < f->n_roles; r++)
        all |= f->roles[r].weight | f->roles[r].bias;
    return (all & UINT64_C(3) * (TSR_HAS_FLAG << 2 * flag)) != 0;
}

/* False where the family has no such flag, and so no such tensors. */
static bool is_set(const struct tsr_model_config *c, const char *key)
{
    for (unsigned i = 0; i < c->family->n_flags; i++)
        if (strcmp(c->family->flag[i].key, key) == 0)
            return (c->has & TSR_HAS_FLAG << 2 * i) != 0;
    return false;
}

/* Tensors of the model that llama.cpp has no place for, or those that it asks for. */
static tsr_status compare_tensors(struct tsr_export *x, const struct tsr_model_config *b)
{
    struct tsr_model_config a = tsr_model_config(x->m);
    for (unsigned i = 0; i < a.family->n_flags; i++) {
        const char *key = a.family->flag[i].key;
        bool        is = is_set(&a, key);
        if (has_tensors(a.family, i) && is != is_set(b, key))
            return tsr_fail(x->err, TSR_E_INPUT,
                            "%s: \"%s\" is %s in %s, and llama.cpp runs this architecture only "
                            "%s these tensors; export to hf",
                            x->path, key, is ? "true" : "false", x->m->path,
                            is ? "without" : "with");
    }
    return TSR_OK;
}

static tsr_status compare(struct tsr_export *x, const struct tsr_gguf *g)
{
    struct tsr_model_config c = { 0 };
    char                   *text = NULL;
    uint64_t                len = 0;
    bool windows = tsr_export_gguf_takes(x->m->storage->family, "attention.sliding_window");
    TSR_TRY(tsr_gguf_config(g, &text, &len, x->err));
    tsr_status st = tsr_model_config_parse(&c, x->path, text, len, x->err);
    free(text);
    TSR_TRY(st);
    const char *what = differs(&x->m->hp, &c.hp, windows);
    st = what ? tsr_fail(x->err, TSR_E_INPUT,
                         "%s: gguf has no word for %s, as %s has it; export to hf", x->path, what,
                         x->m->path)
              : compare_tensors(x, &c);
    tsr_model_config_free(&c);
    return st;
}

tsr_status tsr_export_gguf_check(struct tsr_export *x, const struct tsr_export_gguf_bytes *head,
                                 uint64_t data_bytes)
{
    struct tsr_gguf g;
    bool            more = false;
    tsr_status      st =
        tsr_gguf_parse(&g, x->path, head->v, head->n, head->n + data_bytes, &more, x->err);
    if (st == TSR_OK)
        st = compare(x, &g);
    tsr_gguf_close(&g);
    return st;
}
