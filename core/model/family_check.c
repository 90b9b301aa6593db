/* What a family file says must fit together: every part that its forms need is named once, and none that they do
 * not use. */
#include "model/family_internal.h"

#include <string.h>

static uint64_t count(const struct tsr_model_family *f, enum tsr_model_part part)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n_roles; i++)
        n += f->roles[i].part == part;
    return n;
}

/* Times that a linear of a layer of this form is named, alone or with others. */
static uint64_t linear_of(const struct tsr_model_family *f, enum tsr_linear_id id, bool delta)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n_roles; i++) {
        const struct tsr_model_role *r = &f->roles[i];
        enum tsr_linear_id           ids[TSR_MODEL_FUSED];
        uint32_t                     groups;
        unsigned several = tsr_model_fused(&(struct tsr_model_hparams){ 0 }, r->part, ids, &groups);
        if (r->delta != delta)
            continue;
        n += r->part == TSR_MODEL_PART_LINEAR && r->lin == id;
        for (unsigned k = 0; k < several; k++)
            n += ids[k] == id;
    }
    return n;
}

static uint64_t linear(const struct tsr_model_family *f, enum tsr_linear_id id)
{
    return linear_of(f, id, false);
}

struct norm_use {
    enum tsr_model_part part;
    const char         *name;
    unsigned            places; /* bits 1 << TSR_MODEL_NORM_*, of those that use it */
};
#define AT(place) (1u << (TSR_MODEL_NORM_##place))
static const struct norm_use norms[] = {
    { TSR_MODEL_PART_ATTN_IN, "attn_in", AT(BEFORE) | AT(AFTER) | AT(AROUND) | AT(PARALLEL) },
    { TSR_MODEL_PART_ATTN_OUT, "attn_out", AT(AROUND) | AT(OUT) },
    { TSR_MODEL_PART_FFN_IN, "ffn_in", AT(BEFORE) | AT(AFTER) | AT(AROUND) },
    { TSR_MODEL_PART_FFN_OUT, "ffn_out", AT(AROUND) | AT(OUT) },
};

static void need(struct tsr_family_reading *r, const struct tsr_config_mark *at, const char *name,
                 uint64_t named, bool used, const char *why)
{
    if (used && named == 0)
        tsr_config_diag_error(r->d, at, NULL, "'tensors' lacks '%s', which %s needs", name, why);
    else if (!used && named > 0)
        tsr_config_diag_error(r->d, at, NULL, "'tensors' has '%s', which %s does not use", name,
                              why);
    else if (named > 1)
        tsr_config_diag_error(r->d, at, NULL, "'tensors' has '%s' twice, alone and with others",
                              name);
}

static void check_norms(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    const struct tsr_model_family *f = r->f;
    for (size_t i = 0; i < TSR_COUNT(norms); i++) {
        bool used = (norms[i].places & (1u << f->norms | 1u << f->norms_unless)) != 0;
        need(r, at, norms[i].name, count(f, norms[i].part), used, "the place of its norms");
    }
    bool qk = f->qk_norm != TSR_MODEL_QK_NORM_NONE;
    need(r, at, "q_norm", count(f, TSR_MODEL_PART_Q_NORM), qk, "qk_norm");
    need(r, at, "k_norm", count(f, TSR_MODEL_PART_K_NORM), qk, "qk_norm");
}

static uint64_t expert_linear(const struct tsr_model_family *f, enum tsr_linear_id id)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n_roles; i++)
        n += (f->roles[i].part == TSR_MODEL_PART_EXPERT ||
              f->roles[i].part == TSR_MODEL_PART_EXPERTS) &&
             f->roles[i].lin == id;
    return n + (id == TSR_MODEL_DOWN ? 0 : count(f, TSR_MODEL_PART_EXPERTS_GATE_UP));
}

/* What every token takes besides, and what of an expert's score only counts in the choice. */
static void check_shared(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    static const char *const       names[] = { "shared_gate", "shared_up", "shared_down" };
    const struct tsr_model_family *f = r->f;
    for (int i = 0; i < (int)TSR_COUNT(names); i++)
        need(r, at, names[i], linear(f, (enum tsr_linear_id)(TSR_MODEL_SHARED_GATE + i)),
             f->experts.shared, "'shared' of 'experts'");
    if (!f->experts.shared)
        need(r, at, "shared_router", linear(f, TSR_MODEL_SHARED_ROUTER), false,
             "'shared' of 'experts'");
    if (!f->experts.is || (f->experts.router != TSR_MODEL_ROUTER_SIGMOID &&
                           f->experts.router != TSR_MODEL_ROUTER_SOFTMAX))
        need(r, at, "router_correction", count(f, TSR_MODEL_PART_ROUTER_CORRECTION), false,
             "the choice of experts");
}

static void check_latent(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    static const struct {
        const char        *name;
        enum tsr_linear_id id;
    } of[] = { { "q_a", TSR_MODEL_Q_A },
               { "q_b", TSR_MODEL_Q_B },
               { "kv_a", TSR_MODEL_KV_A },
               { "kv_b", TSR_MODEL_KV_B } };
    const struct tsr_model_family *f = r->f;
    for (size_t i = 0; i < TSR_COUNT(of); i++)
        need(r, at, of[i].name, linear(f, of[i].id), f->latent.is, "'latent'");
    need(r, at, "q_a_norm", count(f, TSR_MODEL_PART_Q_A_NORM), f->latent.is, "'latent'");
    need(r, at, "kv_a_norm", count(f, TSR_MODEL_PART_KV_A_NORM), f->latent.is, "'latent'");
    if (f->latent.is &&
        (f->position_form != TSR_MODEL_POSITIONS_ROPE || f->qk_norm != TSR_MODEL_QK_NORM_NONE ||
         f->rope.partial_allowed || f->attn_gate || f->delta.is))
        tsr_config_diag_error(r->d, at, NULL,
                              "'latent' needs positions rope, without qk_norm, partial, attention "
                              "gated and delta");
}

static void check_linears(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    static const char *const names[TSR_MODEL_LINEARS] = {
        "q", "k", "v", "o", "gate", "up", "down"
    };
    const struct tsr_model_family *f = r->f;
    bool all_sparse = f->experts.is && f->experts.layers.kind == TSR_MODEL_LAYERS_ALL &&
                      !f->experts.layers.except && !f->experts.layers.list;
    for (int i = 0; i < TSR_MODEL_LINEARS; i++)
        need(r, at, names[i], linear(f, (enum tsr_linear_id)i),
             (i != TSR_MODEL_GATE || f->gated) && (i < TSR_MODEL_GATE || !all_sparse) &&
                 ((i != TSR_MODEL_K && i != TSR_MODEL_V) || !f->latent.is),
             i < TSR_MODEL_GATE ? f->latent.is ? "a layer with latent attention" : "a layer"
             : all_sparse       ? "a layer with experts"
                                : "its feed-forward");
    need(r, at, "router", linear(f, TSR_MODEL_ROUTER), f->experts.is, "the choice of experts");
    for (int i = TSR_MODEL_GATE; i <= TSR_MODEL_DOWN; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "expert_%s", names[i]);
        need(r, at, name, expert_linear(f, (enum tsr_linear_id)i), f->experts.is && f->gated,
             "a layer with experts");
    }
    if (f->experts.is && !f->gated)
        tsr_config_diag_error(r->d, at, NULL, "'experts' needs feed_forward gated");
    check_shared(r, at);
    check_latent(r, at);
}

static const char *suffix_of(const struct tsr_model_role *r)
{
    return r->suffixes[0] ? r->suffixes[0] : ".weight";
}

static bool by_windows(const struct tsr_model_layer_rule *rule)
{
    return rule->kind == TSR_MODEL_LAYERS_SLIDING || rule->kind == TSR_MODEL_LAYERS_SLIDING_OR_ALL;
}

/* Of windows or ropes. */
static bool follows(const struct tsr_model_layer_rule *rule)
{
    return by_windows(rule) || rule->kind == TSR_MODEL_LAYERS_UNROTATED;
}

static void check_delta(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    static const struct {
        const char        *name;
        enum tsr_linear_id id;
    } linears[] = { { "delta_qkv", TSR_MODEL_Q }, { "delta_qkv", TSR_MODEL_K },
                    { "delta_qkv", TSR_MODEL_V }, { "delta_z", TSR_MODEL_Z },
                    { "delta_b", TSR_MODEL_B },   { "delta_a", TSR_MODEL_A },
                    { "delta_o", TSR_MODEL_O } };
    static const struct {
        const char         *name;
        enum tsr_model_part part;
    } vectors[] = { { "delta_conv", TSR_MODEL_PART_CONV },
                    { "delta_decay", TSR_MODEL_PART_DECAY },
                    { "delta_step", TSR_MODEL_PART_STEP },
                    { "delta_norm", TSR_MODEL_PART_DELTA_NORM } };
    const struct tsr_model_family *f = r->f;
    for (size_t i = 0; i < TSR_COUNT(linears); i++)
        need(r, at, linears[i].name, linear_of(f, linears[i].id, true), f->delta.is,
             f->delta.is ? "a layer of 'delta'" : "a family without 'delta'");
    for (size_t i = 0; i < TSR_COUNT(vectors); i++)
        need(r, at, vectors[i].name, count(f, vectors[i].part), f->delta.is,
             f->delta.is ? "a layer of 'delta'" : "a family without 'delta'");
    need(r, at, "q_gate", linear(f, TSR_MODEL_Z), f->attn_gate, "the form of its attention");
    if (f->delta.layers.list || f->delta.layers.except || follows(&f->delta.layers))
        tsr_config_diag_error(r->d, at, "all, none, even, from, every or except_every",
                              "'layers' of 'delta' cannot be sliding or unrotated, or name a list");
    if (f->delta.is && f->position_form == TSR_MODEL_POSITIONS_ALIBI)
        tsr_config_diag_error(r->d, at, NULL, "'delta' does not go with positions alibi");
}

static void check_names(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    const struct tsr_model_family *f = r->f;
    for (uint32_t i = 0; i < f->n_roles; i++) {
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(f->roles[i].name, f->roles[k].name) == 0 &&
                f->roles[i].bare == f->roles[k].bare &&
                strcmp(suffix_of(&f->roles[i]), suffix_of(&f->roles[k])) == 0)
                tsr_config_diag_error(r->d, at, NULL, "'tensors' has the name '%s' twice",
                                      f->roles[i].name);
        char name[512];
        int  n = snprintf(name, sizeof name, "%s%s", f->roles[i].name, suffix_of(&f->roles[i]));
        for (char *c = name; *c; c++)
            *c = *c == '#' || *c == '@' ? '0' : *c;
        for (const char *const *p = f->ignored; n < (int)sizeof name && *p; p++)
            if (tsr_model_tensor_name_matches(*p, name))
                tsr_config_diag_error(r->d, at, NULL,
                                      "'ignored' has '%s', which 'tensors' reads as '%s'", *p,
                                      f->roles[i].name);
        if (strlen(f->roles[i].name) > TSR_FAMILY_NAME)
            tsr_config_diag_error(r->d, at, NULL, "a tensor's name is longer than %d bytes",
                                  TSR_FAMILY_NAME);
    }
    for (const char *const *p = f->ignored; *p; p++)
        if (**p == '*' || !**p)
            tsr_config_diag_error(r->d, at, NULL, "'ignored' has '%s', which is every tensor", *p);
}

/* A name for messages, tables and files of a few columns. */
static void check_texts(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
    const char       *name = r->f->name;
    if (!*name || strlen(name) > TSR_FAMILY_WORD || name[strspn(name, allowed)])
        tsr_config_diag_error(r->d, at, NULL,
                              "'name' must be 1 to %d of a-z, 0-9, '_', '.' and '-'",
                              TSR_FAMILY_WORD);
    for (const char *s = r->f->summary; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f) {
            tsr_config_diag_error(r->d, at, NULL, "'summary' has a control character");
            return;
        }
}

void tsr_family_check(struct tsr_family_reading *r, const struct tsr_config_mark *at)
{
    const struct tsr_model_family *f = r->f;
    check_texts(r, at);
    check_norms(r, at);
    check_linears(r, at);
    check_delta(r, at);
    check_names(r, at);
    need(r, at, "embed", count(f, TSR_MODEL_PART_EMBED), true, "a model");
    need(r, at, "final_norm", count(f, TSR_MODEL_PART_FINAL_NORM), true, "a model");
    need(r, at, "head", count(f, TSR_MODEL_PART_HEAD), true, "a model");
    need(r, at, "positions", count(f, TSR_MODEL_PART_POSITIONS),
         f->position_form == TSR_MODEL_POSITIONS_LEARNED, "the form of its positions");
    if (f->rope.layers.except || f->window.layers.except || f->experts.layers.list)
        tsr_config_diag_error(r->d, at, NULL,
                              "only 'layers' of 'experts' has except, and it has no listed");
    if (follows(&f->experts.layers))
        tsr_config_diag_error(r->d, at, "all, even, from, every or except_every",
                              "'layers' of 'experts' cannot be sliding or unrotated");
    if (f->rope.layers.kind == TSR_MODEL_LAYERS_UNROTATED)
        tsr_config_diag_error(r->d, at, "all, sliding, even, from or except_every",
                              "'layers' of 'rope' cannot be unrotated");
    if (by_windows(&f->window.layers))
        tsr_config_diag_error(r->d, at, "all, unrotated, even, from or except_every",
                              "'layers' of 'window' cannot be sliding");
    if (by_windows(&f->rope.layers) && f->window.layers.kind == TSR_MODEL_LAYERS_UNROTATED)
        tsr_config_diag_error(r->d, at, NULL,
                              "'layers' of 'rope' and of 'window' each follow from the other");
}
