/* The model for a plugin's step: its shape, and its weights by rows. */
#include "pipeline/steps/external_step.h"

#include "base/f16.h"
#include "base/mem.h"

#include <string.h>

/* ---- matrices ---------------------------------------------------------------------------------- */

static void add(struct external_call *c, const struct tsr_matrix *w, const char *name,
                uint64_t layer, const struct tsr_model_packed *stored,
                const struct tsr_model_packed *now)
{
    if (w->rows > 0)
        c->matrices[c->n_matrices++] =
            (struct external_matrix){ w, stored, now, name ? name : w->name, layer };
}

static const struct tsr_model_packed *packed_linear(const struct tsr_model_overlay *o,
                                                    uint64_t layer, uint64_t id)
{
    return o ? o->lin[layer][id] : NULL;
}

static tsr_status list_matrices(struct external_call *c, struct tsr_err *err)
{
    const struct tsr_model         *m = c->job->model;
    const struct tsr_model_overlay *stored = m->packed, *now = c->job->overlay;
    uint64_t                        most;
    if (c->matrices)
        return TSR_OK;
    TSR_TRY(tsr_model_plain(m, "read by a step", err));
    if (!tsr_mul(m->hp.layers, m->hp.linears, &most) ||
        !(c->matrices = tsr_new(most + 2, sizeof *c->matrices)))
        return tsr_fail(err, TSR_E_NOMEM, "out of memory: a list of the model's matrices");
    add(c, &m->embed, "model.embed_tokens", UINT64_MAX, stored ? stored->embed : NULL,
        now ? now->embed : NULL);
    for (uint64_t l = 0; l < m->hp.layers; l++)
        for (uint64_t i = 0; i < m->hp.linears; i++)
            add(c, &m->layers[l].lin[i].w, NULL, l, packed_linear(stored, l, i),
                packed_linear(now, l, i));
    if (!m->hp.tied)
        add(c, &m->head.w, "lm_head", UINT64_MAX, stored ? stored->head : NULL,
            now ? now->head : NULL);
    return TSR_OK;
}

static tsr_status declared(const struct external_call *c, const char *function, struct tsr_err *err)
{
    if (c->table->needs & TSR_STEP_MODEL)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INVAL, "%s of step '%s': its table does not need TSR_STEP_MODEL",
                    function, c->name);
}

static tsr_status find(struct external_call *c, const char *function, uint64_t i,
                       const struct external_matrix **out, struct tsr_err *err)
{
    TSR_TRY(declared(c, function, err));
    TSR_TRY(list_matrices(c, err));
    if (i >= c->n_matrices)
        return tsr_fail(err, TSR_E_INVAL, "%s of step '%s': matrix %llu; the model has %llu",
                        function, c->name, (unsigned long long)i,
                        (unsigned long long)c->n_matrices);
    *out = &c->matrices[i];
    return TSR_OK;
}

/* ---- what it is --------------------------------------------------------------------------------- */

/* Fills what the caller's struct has room for. */
static void give(void *to, const void *from, uint32_t size)
{
    uint32_t room;
    memcpy(&room, to, sizeof room);
    memcpy((char *)to + sizeof room, (const char *)from + sizeof room,
           (room < size ? room : size) - sizeof room);
}

static tsr_status tell_model(struct external_call *c, struct tsr_step_model *out,
                             struct tsr_err *err)
{
    const struct tsr_model *m;
    TSR_TRY(declared(c, "model()", err));
    TSR_TRY(list_matrices(c, err));
    m = c->job->model;
    struct tsr_step_model s = { .struct_size = sizeof s,
                                .family = m->family,
                                .hash = m->hash,
                                .layers = m->hp.layers,
                                .hidden = m->hp.hidden,
                                .vocab = m->hp.vocab,
                                .heads = m->hp.heads,
                                .kv_heads = m->hp.kv_heads,
                                .head_dim = m->hp.head_dim,
                                .positions = m->hp.max_positions,
                                .parameters = m->parameters,
                                .matrices = c->n_matrices };
    give(out, &s, sizeof s);
    return TSR_OK;
}

static tsr_status model(void *ctx, struct tsr_step_model *m, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "model()", true, tell_model(c, m, err));
}

static tsr_status tell_matrix(struct external_call *c, uint64_t i, struct tsr_step_matrix *out,
                              struct tsr_err *err)
{
    const struct external_matrix *x = NULL;
    TSR_TRY(find(c, "matrix()", i, &x, err));
    const struct tsr_model_packed *p = x->now ? x->now : x->stored;
    struct tsr_step_matrix         s = { .struct_size = sizeof s,
                                         .dtype = x->w->dtype,
                                         .name = x->name,
                                         .format = p ? p->format.id : NULL,
                                         .layer = x->layer,
                                         .rows = x->w->rows,
                                         .cols = x->w->cols };
    give(out, &s, sizeof s);
    return TSR_OK;
}

static tsr_status matrix(void *ctx, uint64_t i, struct tsr_step_matrix *m, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "matrix()", true, tell_matrix(c, i, m, err));
}

/* ---- its weights -------------------------------------------------------------------------------- */

static tsr_status read_rows(struct external_call *c, uint64_t i, uint32_t which, uint64_t first,
                            uint64_t n, float *out, struct tsr_err *err)
{
    const struct external_matrix *x = NULL;
    TSR_TRY(find(c, "rows()", i, &x, err));
    if (n > x->w->rows || first > x->w->rows - n)
        return tsr_fail(err, TSR_E_INVAL,
                        "rows() of step '%s': rows %llu to %llu of '%s', which has %llu", c->name,
                        (unsigned long long)first, (unsigned long long)(first + n), x->name,
                        (unsigned long long)x->w->rows);
    if (which > TSR_STEP_PACKED || !out)
        return tsr_fail(err, TSR_E_INVAL,
                        "rows() of step '%s': weights %u; expected TSR_STEP_ORIGINAL or "
                        "TSR_STEP_PACKED, and memory for them",
                        c->name, which);
    const struct tsr_model_packed *p = which == TSR_STEP_PACKED && x->now ? x->now : x->stored;
    if (p)
        return tsr_model_packed_dequantize(p, first, n, out, err);
    if (!x->w->data)
        return tsr_fail(err, TSR_E_UNSUPPORTED, "'%s' is not in memory", x->name);
    for (uint64_t r = 0; r < n; r++)
        tsr_widen(out + r * x->w->cols, (const char *)x->w->data + (first + r) * x->w->row_stride,
                  x->w->dtype, x->w->cols);
    return TSR_OK;
}

static tsr_status rows(void *ctx, uint64_t i, uint32_t which, uint64_t first, uint64_t n,
                       float *out, struct tsr_err *err)
{
    struct external_call *c = ctx;
    EXTERNAL_CALL(c, "rows()", true, read_rows(c, i, which, first, n, out, err));
}

void external_model_functions(struct tsr_step_job *j)
{
    j->model = model;
    j->matrix = matrix;
    j->rows = rows;
}
