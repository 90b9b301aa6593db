/* The linears of a layer, each in a tensor of its own or several in one. */
#include "model/bind_internal.h"

#include "base/f16.h"
#include "base/mem.h"
#include "model/packed.h"

#include <stdlib.h>
#include <string.h>

static const struct tsr_model_packed *packed_of(const struct tsr_model_binding *b, uint64_t layer,
                                                enum tsr_linear_id id)
{
    return b->packed ? b->packed->lin[layer][id] : NULL;
}

/* Linears in one tensor, one below the other or with rows in turns. */
struct pieces {
    unsigned                    n;
    enum tsr_linear_id         *ids;
    uint64_t                   *rows, cols;
    uint32_t                    stack; /* the tensor is [stack, rows, cols]; 0: [rows, cols] */
    struct tsr_model_row_groups groups;
};

/* Several linears of one input in one tensor: a matrix and perhaps a bias, cut by rows. */
static tsr_status bind_fused(struct tsr_model_binding *b, const struct tsr_model_role *r,
                             uint64_t layer, const struct pieces *of)
{
    struct tsr_model_layer *l = &b->model->layers[layer];
    uint64_t                total = 0, at = 0, bias_at = 0;
    uint32_t                dtype = 0;
    bool                    bias = tsr_model_bind_holds(b, r->bias), packed = true;
    for (unsigned i = 0; i < of->n; i++) {
        total += of->rows[i];
        packed = packed && packed_of(b, layer, of->ids[i]);
    }
    if (packed) /* all of them: the tensor is not needed */
        TSR_TRY(tsr_model_bind_leave(b, r, layer));
    else
        TSR_TRY(tsr_model_bind_plan_stack(b, r, layer, of->stack, total, of->cols, &of->groups,
                                          &dtype, &at));
    if (bias)
        TSR_TRY(tsr_model_bind_plan_floats(b, r, layer, ".bias", total,
                                           of->stack ? total / of->stack : 0, &of->groups,
                                           &bias_at));
    for (unsigned i = 0; i < of->n; i++) {
        struct tsr_model_linear       *lin = &l->lin[of->ids[i]];
        const struct tsr_model_packed *p = packed_of(b, layer, of->ids[i]);
        if (p)
            TSR_TRY(tsr_model_bind_set_packed(b, &lin->w, p, of->rows[i], of->cols));
        else
            TSR_TRY(
                tsr_model_bind_set_matrix(b, r, layer, &lin->w, dtype, of->rows[i], of->cols, at));
        at += packed ? 0 : of->rows[i] * of->cols * tsr_dtype_size(dtype);
        if (bias)
            TSR_TRY(tsr_model_bind_set_floats(b, &lin->bias, bias_at));
        bias_at += of->rows[i];
    }
    return TSR_OK;
}

static tsr_status bind_several(struct tsr_model_binding *b, const struct tsr_model_role *r,
                               uint64_t layer)
{
    const struct tsr_model_hparams *hp = &b->config->hp;
    enum tsr_linear_id              ids[TSR_MODEL_FUSED];
    uint64_t                        rows[TSR_MODEL_FUSED];
    struct pieces                   of = { .ids = ids, .rows = rows };
    of.n = of.groups.parts = tsr_model_fused(hp, r->part, ids, &of.groups.n);
    for (unsigned i = 0; i < of.n; i++) {
        tsr_model_bind_shape(hp, layer, ids[i], &rows[i], &of.cols);
        of.groups.rows[i] = of.groups.n ? (uint32_t)(rows[i] / of.groups.n) : 0;
    }
    return bind_fused(b, r, layer, &of);
}

/* Whether a container has a tensor of the role, such as the stack of a kind of experts. */
static tsr_status is_there(struct tsr_model_binding *b, const struct tsr_model_role *r,
                           uint64_t layer, bool *is)
{
    static const char *const suffixes[] = { ".weight", ".bias" };
    char                     name[TSR_BIND_NAME];
    *is = false;
    for (size_t i = 0; i < 2; i++) {
        TSR_TRY(tsr_model_bind_name(b, r, layer, suffixes[i], name));
        *is = *is || tsr_checkpoint_shards_find(b->shards, name);
    }
    return TSR_OK;
}

/* A container may have the parts of one stored tensor as several. */
static tsr_status bind_split(struct tsr_model_binding *b, const struct tsr_model_role *r,
                             uint64_t layer)
{
    struct tsr_model_role one;
    bool                  is = false;
    TSR_TRY(tsr_model_role_split(r, 1, &one) ? is_there(b, &one, layer, &is) : TSR_OK);
    if (!tsr_model_role_split(r, 1, &one) || !is)
        return bind_several(b, r, layer);
    for (unsigned i = 0; tsr_model_role_split(r, i, &one); i++)
        TSR_TRY(tsr_model_bind_linears(b, &one, layer));
    return TSR_OK;
}

static tsr_status bind_linear(struct tsr_model_binding *b, const struct tsr_model_role *r,
                              uint64_t layer)
{
    struct tsr_model_linear       *lin = &b->model->layers[layer].lin[r->lin];
    const struct tsr_model_packed *p = packed_of(b, layer, r->lin);
    uint64_t                       rows, cols, at;
    tsr_model_bind_shape(&b->config->hp, layer, r->lin, &rows, &cols);
    if (p) {
        TSR_TRY(tsr_model_bind_set_packed(b, &lin->w, p, rows, cols));
        TSR_TRY(tsr_model_bind_leave(b, r, layer));
    } else {
        TSR_TRY(tsr_model_bind_whole_matrix(b, r, layer, &lin->w, rows, cols));
    }
    if (!tsr_model_bind_holds(b, r->bias))
        return TSR_OK;
    TSR_TRY(tsr_model_bind_plan_floats(b, r, layer, ".bias", rows, 0, NULL, &at));
    return tsr_model_bind_set_floats(b, &lin->bias, at);
}

static tsr_status bind_each(struct tsr_model_binding *b, const struct tsr_model_role *r,
                            uint64_t layer)
{
    for (uint64_t i = 0; i < b->config->hp.experts; i++) {
        struct tsr_model_role one;
        char                  name[TSR_FAMILY_NAME + 24];
        if (!tsr_model_role_of_expert(r, i, name, &one))
            return tsr_fail(b->err, TSR_E_BUG, "tensor name too long");
        TSR_TRY(bind_linear(b, &one, layer));
    }
    return TSR_OK;
}

/* A linear of all experts, or gate and up of each, in one tensor. */
static tsr_status bind_stack(struct tsr_model_binding *b, const struct tsr_model_role *r,
                             uint64_t layer)
{
    const struct tsr_model_hparams *hp = &b->config->hp;
    unsigned                        each = r->part == TSR_MODEL_PART_EXPERTS ? 1 : 2;
    struct pieces                   of = { .n = each * hp->experts,
                                           .ids = tsr_new(hp->experts, each * sizeof *of.ids),
                                           .rows = tsr_new(hp->experts, each * sizeof *of.rows),
                                           .stack = hp->experts };
    tsr_status                      st =
        of.ids && of.rows ? TSR_OK : tsr_fail_nomem(b->err, of.n * sizeof *of.rows, r->name);
    for (unsigned i = 0; i < of.n && st == TSR_OK; i++) {
        enum tsr_linear_id kind = each == 1 ? r->lin : i % 2 ? TSR_MODEL_UP : TSR_MODEL_GATE;
        of.ids[i] = tsr_model_expert_linear(i / each, kind);
        tsr_model_bind_shape(hp, layer, of.ids[i], &of.rows[i], &of.cols);
    }
    if (st == TSR_OK)
        st = bind_fused(b, r, layer, &of);
    free(of.ids);
    free(of.rows);
    return st;
}

/* Experts that a folder has one by one where the family has them in one tensor; *is: bound so. */
static tsr_status bind_apart(struct tsr_model_binding *b, const struct tsr_model_role *r,
                             uint64_t layer, bool *is)
{
    struct tsr_model_role one, first;
    char                  name[TSR_FAMILY_NAME + 24];
    *is = false;
    for (int kind = TSR_MODEL_GATE; kind <= TSR_MODEL_DOWN; kind++) {
        if (!tsr_model_role_each(r, (enum tsr_linear_id)kind, &one))
            continue;
        if (!*is) { /* as the first of them is, so are all */
            if (!tsr_model_role_of_expert(&one, 0, name, &first))
                return tsr_fail(b->err, TSR_E_BUG, "tensor name too long");
            TSR_TRY(is_there(b, &first, layer, is));
            if (!*is)
                return TSR_OK;
        }
        TSR_TRY(bind_each(b, &one, layer));
    }
    return TSR_OK;
}

static tsr_status bind_experts(struct tsr_model_binding *b, const struct tsr_model_role *r,
                               uint64_t layer)
{
    bool stacked = false, one_is;
    TSR_TRY(bind_apart(b, r, layer, &one_is));
    if (one_is)
        return TSR_OK;
    for (int kind = TSR_MODEL_GATE; kind <= TSR_MODEL_DOWN; kind++) {
        struct tsr_model_role one;
        if (!tsr_model_role_has_expert(r, (enum tsr_linear_id)kind))
            continue;
        tsr_model_role_stacked(r, (enum tsr_linear_id)kind, &one);
        TSR_TRY(is_there(b, &one, layer, &one_is));
        stacked = stacked || one_is;
    }
    for (int kind = TSR_MODEL_GATE; stacked && kind <= TSR_MODEL_DOWN; kind++) {
        struct tsr_model_role one;
        if (!tsr_model_role_has_expert(r, (enum tsr_linear_id)kind))
            continue;
        tsr_model_role_stacked(r, (enum tsr_linear_id)kind, &one);
        TSR_TRY(bind_stack(b, &one, layer));
    }
    if (stacked)
        return TSR_OK;
    return r->part == TSR_MODEL_PART_EXPERT ? bind_each(b, r, layer) : bind_stack(b, r, layer);
}

tsr_status tsr_model_bind_linears(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                  uint64_t layer)
{
    switch (r->part) {
    case TSR_MODEL_PART_LINEAR:
        return bind_linear(b, r, layer);
    case TSR_MODEL_PART_QKV_ROWS:
    case TSR_MODEL_PART_QKV_HEADS:
    case TSR_MODEL_PART_GATE_UP_ROWS:
    case TSR_MODEL_PART_QZ_HEADS:
    case TSR_MODEL_PART_QKVZ_HEADS:
    case TSR_MODEL_PART_BA_HEADS:
        return bind_split(b, r, layer);
    case TSR_MODEL_PART_EXPERT:
    case TSR_MODEL_PART_EXPERTS:
    case TSR_MODEL_PART_EXPERTS_GATE_UP:
        return bind_experts(b, r, layer);
    default:
        return tsr_fail(b->err, TSR_E_BUG, "role %s has no part", r->name);
    }
}
