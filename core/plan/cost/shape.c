#include "plan/cost/shape.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/delta.h"
#include "model/bind.h"
#include "plan/cost/shape_internal.h"
#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_CAP   (UINT64_C(16) << 20)
#define CONFIG_DEPTH 64

struct build {
    struct tsr_plan_shape         *s;
    const struct tsr_model_config *c;
    const struct tsr_model        *m; /* NULL: of a config alone */
    uint32_t                       dtype;
    uint64_t                       at;       /* the layer that is described */
    uint8_t                       *group_of; /* [layers][experts] by layout, or NULL; owned */
    bool                           grouped;  /* some layer's experts differ */
    bool            too_many; /* those of a layer, in more groups than there may be */
    uint64_t        many;     /* that layer */
    struct tsr_err *err;
};

static bool holds(const struct build *b, uint64_t needs)
{
    return (needs & ~b->c->has) == 0;
}

/* F32 numbers of a norm, as bind.c makes it: one without gains is made of ones and zeros. */
static uint64_t norm_floats(const struct build *b, const struct tsr_model_role *r)
{
    uint64_t row, n = tsr_model_norm_width(&b->c->hp, r->part, &row);
    if (!holds(b, r->weight & ~(uint64_t)TSR_HAS_AFFINE))
        return 0;
    if (!holds(b, r->weight) || holds(b, r->bias))
        return 2 * n;
    return n;
}

static struct tsr_plan_shape_matrix matrix(const struct build *b, const struct tsr_matrix *of,
                                           uint64_t rows, uint64_t cols)
{
    return (struct tsr_plan_shape_matrix){
        .rows = rows, .cols = cols, .count = 1, .dtype = of ? of->dtype : b->dtype
    };
}

static void linear(struct build *b, struct tsr_plan_shape_layer *l,
                   const struct tsr_model_layer *of, enum tsr_linear_id id,
                   const struct tsr_model_role *r)
{
    uint64_t rows, cols;
    tsr_model_bind_shape(&b->c->hp, b->at, id, &rows, &cols);
    l->lin[id] = matrix(b, of ? &of->lin[id].w : NULL, rows, cols);
    l->lin[id].bias = holds(b, r->bias);
    if (of && b->m->packed)
        tsr_plan_shape_put_packed(b->s, &l->lin[id], b->m->packed->lin[of - b->m->layers][id]);
}

/* A linear of every expert: those of one layer have one shape; the layout is the first's. */
static void expert(struct build *b, struct tsr_plan_shape_layer *l,
                   const struct tsr_model_layer *of, enum tsr_linear_id kind,
                   const struct tsr_model_role *r)
{
    struct tsr_plan_shape_matrix *m = &l->lin[kind];
    enum tsr_linear_id            id = tsr_model_expert_linear(0, kind);
    uint64_t                      rows, cols;
    tsr_model_bind_shape(&b->c->hp, b->at, id, &rows, &cols);
    *m = matrix(b, of ? &of->lin[id].w : NULL, rows, cols);
    m->bias = holds(b, r->bias);
    m->count = b->c->hp.experts;
    if (of && b->m->packed)
        tsr_plan_shape_put_packed(b->s, m, b->m->packed->lin[of - b->m->layers][id]);
}

static struct tsr_plan_shape_matrix router(struct build *b, const struct tsr_model_layer *of,
                                           const struct tsr_model_role *r)
{
    uint64_t rows, cols;
    tsr_model_bind_shape(&b->c->hp, b->at, r->lin, &rows, &cols);
    struct tsr_plan_shape_matrix   m = matrix(b, of ? &of->lin[r->lin].w : NULL, rows, cols);
    const struct tsr_model_packed *p =
        of && b->m->packed ? b->m->packed->lin[of - b->m->layers][r->lin] : NULL;
    if (p && strcmp(p->format.id, TSR_FORMAT_FLOAT) == 0) /* a search scaled its columns */
        m.dtype = p->format.dtype;
    m.bias = holds(b, r->bias);
    return m;
}

/* Several linears of one tensor; false: the role is not such. */
static bool several(struct build *b, const struct tsr_model_role *r, struct tsr_plan_shape_layer *l,
                    const struct tsr_model_layer *of)
{
    enum tsr_linear_id ids[TSR_MODEL_FUSED];
    uint32_t           groups;
    unsigned           n = tsr_model_fused(&b->c->hp, r->part, ids, &groups);
    for (unsigned i = 0; i < n; i++)
        linear(b, l, of, ids[i], r);
    return n > 0;
}

/* What a role adds to a layer. */
static void in_layer(struct build *b, const struct tsr_model_role *r,
                     struct tsr_plan_shape_layer *l, const struct tsr_model_layer *of)
{
    if (several(b, r, l, of))
        return;
    switch (r->part) {
    case TSR_MODEL_PART_ATTN_IN:
    case TSR_MODEL_PART_ATTN_OUT:
    case TSR_MODEL_PART_FFN_IN:
    case TSR_MODEL_PART_FFN_OUT:
    case TSR_MODEL_PART_Q_A_NORM:
    case TSR_MODEL_PART_KV_A_NORM:
    case TSR_MODEL_PART_Q_NORM:
    case TSR_MODEL_PART_K_NORM:
        l->norms += norm_floats(b, r);
        break;
    case TSR_MODEL_PART_SINKS: /* a row of slopes is with them on the device */
        l->norms += holds(b, r->weight) ? 2 * (uint64_t)b->c->hp.heads : 0;
        break;
    case TSR_MODEL_PART_LINEAR:
        if (!holds(b, r->weight))
            break;
        if (r->lin == TSR_MODEL_ROUTER)
            l->router = router(b, of, r);
        else if (r->lin == TSR_MODEL_SHARED_ROUTER)
            l->shared_router = router(b, of, r);
        else
            linear(b, l, of, r->lin, r);
        break;
    case TSR_MODEL_PART_EXPERT:
    case TSR_MODEL_PART_EXPERTS:
        expert(b, l, of, r->lin, r);
        break;
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        expert(b, l, of, TSR_MODEL_GATE, r);
        expert(b, l, of, TSR_MODEL_UP, r);
        break;
    case TSR_MODEL_PART_CONV: /* kept by the engine in an order of its own */
        l->rule += holds(b, r->weight)
                       ? tsr_delta_channels(&b->c->hp.delta) * (uint64_t)b->c->hp.delta.kernel
                       : 0;
        break;
    case TSR_MODEL_PART_DECAY:
        l->rule += holds(b, r->weight) ? b->c->hp.delta.value_heads : 0;
        break;
    default:
        break;
    }
}

static void at_ends(struct build *b, const struct tsr_model_role *r)
{
    const struct tsr_model_hparams *hp = &b->c->hp;
    struct tsr_plan_shape          *s = b->s;
    const struct tsr_model         *m = b->m;
    if (r->part == TSR_MODEL_PART_EMBED_NORM)
        s->embed_norm = norm_floats(b, r);
    else if (r->part == TSR_MODEL_PART_FINAL_NORM)
        s->final_norm = norm_floats(b, r);
    else if (!holds(b, r->weight))
        return;
    else if (r->part == TSR_MODEL_PART_EMBED)
        s->embed = matrix(b, m ? &m->embed : NULL, hp->vocab, hp->embed_dim);
    else if (r->part == TSR_MODEL_PART_POSITIONS)
        s->positions = matrix(b, m ? &m->positions : NULL, hp->max_positions + hp->position_offset,
                              hp->hidden);
    else if (r->part == TSR_MODEL_PART_PROJECT_IN)
        s->project_in = matrix(b, m ? &m->project_in.w : NULL, hp->hidden, hp->embed_dim);
    else if (r->part == TSR_MODEL_PART_PROJECT_OUT)
        s->project_out = matrix(b, m ? &m->project_out.w : NULL, hp->embed_dim, hp->hidden);
    else if (r->part == TSR_MODEL_PART_HEAD)
        s->head = matrix(b, m ? &m->head.w : NULL, hp->vocab, hp->embed_dim);
}

static bool same_layer(const struct tsr_plan_shape_layer *a, const struct tsr_plan_shape_layer *b)
{
    for (int i = 0; i < TSR_PLAN_LINEARS; i++)
        if (a->lin[i].rows != b->lin[i].rows || a->lin[i].ordered != b->lin[i].ordered ||
            a->lin[i].cols != b->lin[i].cols || a->lin[i].dtype != b->lin[i].dtype ||
            a->lin[i].bias != b->lin[i].bias || a->lin[i].count != b->lin[i].count ||
            !tsr_plan_shape_same_format(&a->lin[i].packed, &b->lin[i].packed))
            return false;
    for (int i = 0; i < (TSR_PLAN_GROUPS - 1) * TSR_EXPERT_LINEARS; i++) {
        const struct tsr_plan_shape_stored
            *x = &a->further[i / TSR_EXPERT_LINEARS][i % TSR_EXPERT_LINEARS],
            *y = &b->further[i / TSR_EXPERT_LINEARS][i % TSR_EXPERT_LINEARS];
        if (x->ordered != y->ordered || !tsr_plan_shape_same_format(&x->format, &y->format))
            return false;
    }
    return a->norms == b->norms && a->rule == b->rule && a->window == b->window &&
           a->recurrent == b->recurrent && a->router.rows == b->router.rows &&
           a->router.dtype == b->router.dtype && a->shared_router.rows == b->shared_router.rows &&
           a->shared_router.dtype == b->shared_router.dtype;
}

/* The experts of a packed layer, in groups of one layout. */
static void group_experts(struct build *b, struct tsr_plan_shape_layer *l)
{
    uint64_t experts = b->c->hp.experts;
    uint32_t n = tsr_plan_shape_group_packed(b->s, l, b->m->packed->lin[b->at], experts,
                                             b->group_of + b->at * experts);
    if (n == 0 && !b->too_many) {
        b->too_many = true;
        b->many = b->at;
    }
    b->grouped = b->grouped || n > 1;
}

static void layers(struct build *b)
{
    const struct tsr_model_family *a = b->c->family;
    struct tsr_plan_shape         *s = b->s;
    for (uint64_t l = 0; l < s->layers; l++) {
        bool                        recurrent = tsr_model_is_recurrent(&b->c->hp, l);
        struct tsr_plan_shape_layer one = {
            .window = b->c->hp.window && !recurrent ? b->c->hp.window[l] : 0, .recurrent = recurrent
        };
        b->at = l;
        for (uint32_t i = 0; i < a->n_roles; i++)
            if (tsr_model_role_in_layer(&b->c->hp, &a->roles[i], l))
                in_layer(b, &a->roles[i], &one, b->m ? &b->m->layers[l] : NULL);
        if (b->group_of && one.router.rows)
            group_experts(b, &one);
        uint64_t cls = 0;
        while (cls < s->classes && !same_layer(&s->layer[cls], &one))
            cls++;
        s->layer[cls] = one;
        s->layer_class[l] = (uint32_t)cls;
        s->classes += cls == s->classes;
    }
}

static tsr_status build(struct build *b, const char *name)
{
    const struct tsr_model_hparams *hp = &b->c->hp;
    struct tsr_plan_shape          *s = b->s;
    *s = (struct tsr_plan_shape){ .layers = hp->layers,
                                  .vocab = hp->vocab,
                                  .hidden = hp->hidden,
                                  .ffn = hp->ffn,
                                  .embed_dim = hp->embed_dim,
                                  .expert_ffn = hp->expert_ffn,
                                  .shared_ffn = hp->shared_ffn,
                                  .latent = hp->latent,
                                  .delta = hp->delta,
                                  .attn_gate = hp->attn_gate,
                                  .experts = hp->experts,
                                  .experts_used = hp->experts_used,
                                  .max_positions = hp->max_positions,
                                  .heads = hp->heads,
                                  .kv_heads = hp->kv_heads,
                                  .head_dim = hp->head_dim,
                                  .rotary_dim =
                                      hp->positions == TSR_MODEL_POSITIONS_ROPE ? hp->rope.dim : 0,
                                  .sliding_rope = hp->rope_sliding.dim > 0,
                                  .whole_qk_norm = hp->qk_norm == TSR_MODEL_QK_NORM_WIDTH,
                                  .gated = hp->gated,
                                  .tied = hp->tied,
                                  .alibi = hp->positions == TSR_MODEL_POSITIONS_ALIBI };
    (void)snprintf(s->family, sizeof s->family, "%s", b->c->family->name);
    s->name = tsr_strdup(name);
    s->layer_class = tsr_new(s->layers, sizeof *s->layer_class);
    s->layer = tsr_new(s->layers, sizeof *s->layer);
    bool stored = hp->experts && b->m && b->m->packed;
    if (stored)
        b->group_of = tsr_new(s->layers * s->experts, sizeof *b->group_of);
    if (!s->name || !s->layer_class || !s->layer || (stored && !b->group_of))
        return tsr_fail_nomem(b->err, s->layers * sizeof *s->layer, "the shape of a model");
    TSR_TRY(tsr_plan_shape_keep_ids(s, b->m ? b->m->packed : NULL, b->err));
    layers(b);
    if (b->too_many)
        return tsr_fail(b->err, TSR_E_INPUT,
                        "%s: layer %llu: its experts are packed in more than %d layouts", name,
                        (unsigned long long)b->many, TSR_PLAN_GROUPS);
    if (b->grouped) {
        uint8_t *of = b->group_of;
        b->group_of = NULL; /* taken over */
        (void)snprintf(s->packed, sizeof s->packed, "%s", b->m->packed_as ? b->m->packed_as : "?");
        TSR_TRY(tsr_plan_shape_put_groups(s, of, b->err));
    }
    for (uint32_t i = 0; i < b->c->family->n_roles; i++)
        at_ends(b, &b->c->family->roles[i]);
    tsr_plan_shape_put_ends(s, b->m ? b->m->packed : NULL);
    return TSR_OK;
}

static tsr_status make(struct tsr_plan_shape **out, struct build *b, const char *name)
{
    b->s = tsr_new(1, sizeof *b->s);
    if (!b->s)
        return tsr_fail_nomem(b->err, sizeof *b->s, "the shape of a model");
    tsr_status st = build(b, name);
    free(b->group_of);
    if (st != TSR_OK) {
        tsr_plan_shape_destroy(b->s);
        return st;
    }
    *out = b->s;
    return TSR_OK;
}

tsr_status tsr_plan_shape_of(struct tsr_plan_shape **s, const struct tsr_model *m,
                             struct tsr_err *err)
{
    struct tsr_model_config c = tsr_model_config(m);
    struct build            b = { .c = &c, .m = m, .err = err };
    TSR_TRY(make(s, &b, m->path));
    if (m->packed)
        (void)snprintf((*s)->packed, sizeof(*s)->packed, "%s", m->packed_as ? m->packed_as : "?");
    (void)snprintf((*s)->hash, sizeof(*s)->hash, "%s", m->hash);
    return TSR_OK;
}

/* The dtype that a config says its weights are stored as. */
static tsr_status config_dtype(const char *name, const char *text, uint64_t len, uint32_t *dtype,
                               struct tsr_err *err)
{
    json_t     *j;
    const char *says = NULL;
    TSR_TRY(tsr_json_parse(&j, name, text, len, CONFIG_DEPTH, err));
    tsr_status st = tsr_json_str(j, name, json_object_get(j, "dtype") ? "dtype" : "torch_dtype",
                                 false, &says, err);
    *dtype = TSR_F16;
    if (st == TSR_OK && says && strcmp(says, "bfloat16") == 0)
        *dtype = TSR_BF16;
    else if (st == TSR_OK && says && strcmp(says, "float32") == 0)
        *dtype = TSR_F32;
    else if (st == TSR_OK && says && strcmp(says, "float16") != 0)
        st = tsr_fail(err, TSR_E_INPUT,
                      "%s: \"torch_dtype\" is \"%.40s\"; float32, float16 and bfloat16 are "
                      "supported",
                      name, says);
    json_decref(j);
    return st;
}

tsr_status tsr_plan_shape_config(struct tsr_plan_shape **s, const char *name, const char *text,
                                 uint64_t len, struct tsr_err *err)
{
    struct tsr_model_config c;
    struct build            b = { .c = &c, .err = err };
    TSR_TRY(tsr_model_config_parse(&c, name, text, len, err));
    tsr_status st = config_dtype(name, text, len, &b.dtype, err);
    if (st == TSR_OK)
        st = make(s, &b, name);
    tsr_model_config_free(&c);
    if (st == TSR_OK)
        tsr_hash_bytes(text, len, (*s)->hash);
    return st;
}

tsr_status tsr_plan_shape_load(struct tsr_plan_shape **s, const char *path, struct tsr_err *err)
{
    struct tsr_model *m = NULL;
    char             *config = NULL, *text = NULL;
    uint64_t          len;
    TSR_TRY(tsr_model_config_alone(path, &config, err));
    if (config) {
        tsr_status st = tsr_file_slurp(config, CONFIG_CAP, &text, &len, err);
        if (st == TSR_OK)
            st = tsr_plan_shape_config(s, config, text, len, err);
        free(text);
        free(config);
        return st;
    }
    TSR_TRY(tsr_model_load(&m, path, true, err));
    tsr_status st = tsr_plan_shape_of(s, m, err);
    tsr_model_destroy(m);
    return st;
}

void tsr_plan_shape_destroy(struct tsr_plan_shape *s)
{
    if (!s)
        return;
    free(s->name);
    free(s->layer_class);
    free(s->layer);
    free(s->routing);
    free(s->suffers);
    free(s->group_of);
    for (uint64_t i = 0; i < s->n_ids; i++)
        free(s->ids[i]);
    free(s->ids);
    free(s);
}
