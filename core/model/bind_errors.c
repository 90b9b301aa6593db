/* Tensors that are not as config.json and the family's file describe them: which of the two says what. */
#include "model/bind_internal.h"

#include <string.h>

/* The values that a part's shape follows from; bits of the table below. */
enum {
    VOCAB = 1,
    HIDDEN = 2,
    FFN = 4,
    HEADS = 8,
    KV = 16,
    DIM = 32,
    EMBED = 64,
    POSITIONS = 128,
    Q_RANK = 256,
    RANK = 512,
    NOPE = 1024,
    ROPE = 2048,
    V = 4096,
    EXPERTS = 8192,
    SHARED = 16384,
    KEY_HEADS = 1 << 15,
    VALUE_HEADS = 1 << 16,
    KEY_DIM = 1 << 17,
    VALUE_DIM = 1 << 18,
    KERNEL = 1 << 19
};

/* Those of a linear that a layer has in place of others. */
static unsigned values_of_other(enum tsr_linear_id id)
{
    switch (id) {
    case TSR_MODEL_Q_A:
        return HIDDEN | Q_RANK;
    case TSR_MODEL_Q_B:
        return HEADS | NOPE | ROPE | Q_RANK;
    case TSR_MODEL_KV_A:
        return HIDDEN | RANK | ROPE;
    case TSR_MODEL_KV_B:
        return HEADS | NOPE | V | RANK;
    case TSR_MODEL_SHARED_GATE:
    case TSR_MODEL_SHARED_UP:
    case TSR_MODEL_SHARED_DOWN:
        return HIDDEN | SHARED;
    case TSR_MODEL_ROUTER:
        return HIDDEN | EXPERTS;
    default:
        return HIDDEN;
    }
}

static unsigned values_of_delta(const struct tsr_model_role *r)
{
    unsigned keys = KEY_HEADS | KEY_DIM, values = VALUE_HEADS | VALUE_DIM;
    switch (r->part) {
    case TSR_MODEL_PART_CONV:
        return keys | values | KERNEL;
    case TSR_MODEL_PART_DECAY:
    case TSR_MODEL_PART_STEP:
        return VALUE_HEADS;
    case TSR_MODEL_PART_DELTA_NORM:
        return VALUE_DIM;
    case TSR_MODEL_PART_BA_HEADS:
        return HIDDEN | VALUE_HEADS;
    case TSR_MODEL_PART_LINEAR:
        return HIDDEN | (r->lin == TSR_MODEL_Q || r->lin == TSR_MODEL_K   ? keys
                         : r->lin == TSR_MODEL_B || r->lin == TSR_MODEL_A ? VALUE_HEADS
                                                                          : values);
    default:
        return HIDDEN | keys | values;
    }
}

static unsigned values_of(const struct tsr_model_role *r)
{
    if (r->delta)
        return values_of_delta(r);
    switch (r->part) {
    case TSR_MODEL_PART_EMBED:
    case TSR_MODEL_PART_HEAD:
        return VOCAB | HIDDEN | EMBED;
    case TSR_MODEL_PART_POSITIONS:
        return POSITIONS | HIDDEN;
    case TSR_MODEL_PART_PROJECT_IN:
    case TSR_MODEL_PART_PROJECT_OUT:
        return HIDDEN | EMBED;
    case TSR_MODEL_PART_Q_A_NORM:
        return Q_RANK;
    case TSR_MODEL_PART_KV_A_NORM:
        return RANK;
    case TSR_MODEL_PART_ROUTER_CORRECTION:
        return EXPERTS;
    case TSR_MODEL_PART_Q_NORM:
        return HEADS | DIM;
    case TSR_MODEL_PART_K_NORM:
        return KV | DIM;
    case TSR_MODEL_PART_QKV_ROWS:
    case TSR_MODEL_PART_QKV_HEADS:
        return HIDDEN | HEADS | KV | DIM;
    case TSR_MODEL_PART_QZ_HEADS:
        return HIDDEN | HEADS | DIM;
    case TSR_MODEL_PART_GATE_UP_ROWS:
        return HIDDEN | FFN;
    case TSR_MODEL_PART_LINEAR:
        if (r->lin >= TSR_MODEL_ROUTER)
            return values_of_other(r->lin);
        return HIDDEN |
               (r->lin == TSR_MODEL_Q || r->lin == TSR_MODEL_O   ? HEADS | DIM | NOPE | ROPE | V
                : r->lin == TSR_MODEL_K || r->lin == TSR_MODEL_V ? KV | DIM
                                                                 : FFN);
    default:
        return HIDDEN;
    }
}

/* "hidden_size, num_attention_heads": the keys of these values. */
static void keys_of(const struct tsr_model_family *f, unsigned values, char *text, size_t cap)
{
    const struct tsr_model_value *const all[] = { &f->vocab,
                                                  &f->hidden,
                                                  &f->ffn,
                                                  &f->heads,
                                                  &f->kv_heads,
                                                  &f->head_dim,
                                                  &f->embed_dim,
                                                  &f->positions,
                                                  &f->latent.q_rank,
                                                  &f->latent.rank,
                                                  &f->latent.nope,
                                                  &f->latent.rope,
                                                  &f->latent.v,
                                                  &f->experts.count,
                                                  &f->experts.shared_width,
                                                  &f->delta.key_heads,
                                                  &f->delta.value_heads,
                                                  &f->delta.key_dim,
                                                  &f->delta.value_dim,
                                                  &f->delta.kernel };
    size_t                              at = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < sizeof all / sizeof *all && at < cap; i++)
        if ((values >> i & 1) && all[i]->n_keys)
            at += (size_t)snprintf(text + at, cap - at, "%s%s", at ? ", " : "", all[i]->keys[0]);
}

tsr_status tsr_model_bind_missing(const struct tsr_model_binding *b, const struct tsr_model_role *r,
                                  const char *name)
{
    const struct tsr_model_family *f = b->config->family;
    char                           place[TSR_FAMILY_PLACE];
    return tsr_fail(b->err, TSR_E_INPUT,
                    "%s: tensor \"%s\" is missing, which is part '%s' of %s; a model has it as %s "
                    "describes it",
                    b->folder, name, r->key, tsr_model_family_place(f, r->at, place), b->says);
}

tsr_status tsr_model_bind_misshapen(const struct tsr_model_binding     *b,
                                    const struct tsr_model_role        *r,
                                    const struct tsr_checkpoint_stored *e, uint32_t rank,
                                    const uint64_t *shape)
{
    const struct tsr_model_family *f = b->config->family;
    char                           has[200], want[200], keys[300], place[TSR_FAMILY_PLACE];
    tsr_safetensors_shape_text(has, sizeof has, e->t->rank, e->t->shape);
    tsr_safetensors_shape_text(want, sizeof want, rank, shape);
    keys_of(f, values_of(r), keys, sizeof keys);
    return tsr_fail(b->err, TSR_E_INPUT,
                    "%s: tensor \"%s\" has shape %s; part '%s' of %s asks for %s, from %s of %s",
                    tsr_checkpoint_shards_path(b->shards, e), e->t->name, has, r->key,
                    tsr_model_family_place(f, r->at, place), want, keys, b->says);
}

tsr_status tsr_model_bind_unknown(const struct tsr_model_binding     *b,
                                  const struct tsr_checkpoint_stored *e)
{
    const struct tsr_model_family *f = b->config->family;
    char                           place[TSR_FAMILY_PLACE];
    return tsr_fail(b->err, TSR_E_INPUT,
                    "%s: tensor \"%.200s\" is unknown: %s has no part and no pattern of 'ignored' "
                    "of that name, as %s describes the model",
                    tsr_checkpoint_shards_path(b->shards, e), e->t->name,
                    tsr_model_family_place(f, NULL, place), b->says);
}
