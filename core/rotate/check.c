/* Which models can be rotated. */
#include "rotate/rotate.h"

#include "model/bind.h"
#include "model/family.h"
#include "rotate/online.h"
#include "rotate/transform.h"

/* Why the hidden state of a model cannot be rotated, or NULL. */
static const char *not_residual(const struct tsr_model *m)
{
    const struct tsr_model_hparams *hp = &m->hp;
    const struct tsr_model_family  *f = m->storage->family;
    if (hp->norm != TSR_NORM_RMS)
        return "its norms subtract the mean of the hidden state (LayerNorm), which a rotation "
               "changes";
    if (hp->norm_place != TSR_MODEL_NORM_BEFORE && hp->norm_place != TSR_MODEL_NORM_PARALLEL)
        return "it has norms after its sub-layers, whose gains multiply columns of the hidden "
               "state itself";
    if (m->embed_norm.gain)
        return "it has a norm after the embedding, whose gains multiply columns of the hidden "
               "state itself";
    if (hp->embed_dim != hp->hidden || m->project_in.w.rows)
        return "its embedding is narrower than its hidden state";
    if (hp->positions == TSR_MODEL_POSITIONS_LEARNED)
        return "it adds learned positions to the hidden state";
    if (hp->tied && f && !f->tied.n_keys)
        return "its LM head is the embedding in every model of its family, and norm gains go into "
               "one of them alone";
    return NULL;
}

static tsr_status size_is_known(const struct tsr_model *m, enum tsr_orthogonal_kind kind,
                                uint64_t n, const char *what, struct tsr_err *err)
{
    struct tsr_hadamard h;
    if (kind != TSR_ORTHOGONAL_HADAMARD)
        return TSR_OK;
    tsr_status st = tsr_hadamard_create(&h, n, err);
    tsr_hadamard_free(&h);
    return st == TSR_OK ? TSR_OK
                        : tsr_err_prefix(err, st,
                                         "%s: %s cannot be rotated with kind: hadamard "
                                         "(kind: random takes any size)",
                                         m->path, what);
}

tsr_status tsr_rotate_check(const struct tsr_model *m, const struct tsr_rotate_options *o,
                            struct tsr_err *err)
{
    const char *why;
    TSR_TRY(tsr_model_plain(m, "rotated", err));
    if (m->packed)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: its weights are packed; rotate the original and quantize the result",
                        m->path);
    if (tsr_model_is_online(&m->hp))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: it is rotated already, with transforms that run with it; rotate the "
                        "original",
                        m->path);
    if (!o->sites)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: `sites: none` and `online: none` leave it as it is; choose one of the "
                        "others",
                        m->path);
    struct tsr_model_online online;
    TSR_TRY(tsr_rotate_online(m, o->sites, &online, err));
    if (o->sites & TSR_ROTATE_RESIDUAL && (why = not_residual(m)))
        return tsr_fail(err, TSR_E_INPUT, "%s: the hidden state cannot be rotated: %s", m->path,
                        why);
    if (o->sites & TSR_ROTATE_HEADS && (why = tsr_rotate_no_heads(m)))
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: the values of heads cannot be rotated: %s; `sites: residual` leaves "
                        "them",
                        m->path, why);
    if (o->sites & TSR_ROTATE_RESIDUAL)
        TSR_TRY(size_is_known(m, o->kind, m->hp.hidden, "the hidden state", err));
    return o->sites & TSR_ROTATE_HEADS
               ? size_is_known(m, o->kind, m->hp.head_dim, "the values of heads", err)
               : TSR_OK;
}
