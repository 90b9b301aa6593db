/* The reads of a binding and their destinations: tensors, and pointers that are set once memory exists. */
#include "model/bind_internal.h"

#include "base/f16.h"
#include "base/mem.h"

#include <string.h>

bool tsr_model_bind_holds(const struct tsr_model_binding *b, uint64_t needs)
{
    return (needs & ~b->config->has) == 0;
}

tsr_status tsr_model_bind_name(struct tsr_model_binding *b, const struct tsr_model_role *r,
                               uint64_t layer, const char *suffix, char name[TSR_BIND_NAME])
{
    return tsr_model_role_name(name, TSR_BIND_NAME, r, b->prefix, layer,
                               tsr_model_role_suffix(r, suffix))
               ? TSR_OK
               : tsr_fail(b->err, TSR_E_BUG, "tensor name too long");
}

tsr_status tsr_model_bind_find(struct tsr_model_binding *b, const struct tsr_model_role *r,
                               const char *name, uint32_t rank, const uint64_t *shape,
                               struct tsr_checkpoint_stored **out)
{
    struct tsr_checkpoint_stored *e = tsr_checkpoint_shards_find(b->shards, name);
    if (!e)
        return tsr_model_bind_missing(b, r, name);
    if (e->t->dtype != TSR_F32 && e->t->dtype != TSR_F16 && e->t->dtype != TSR_BF16)
        return tsr_fail(b->err, TSR_E_INPUT,
                        "%s: tensor \"%s\" has dtype %s; F32, F16 and BF16 are supported",
                        tsr_checkpoint_shards_path(b->shards, e), name, e->t->dtype_name);
    bool same = e->t->rank == rank;
    for (uint32_t d = 0; same && d < rank; d++)
        same = e->t->shape[d] == shape[d];
    if (!same)
        return tsr_model_bind_misshapen(b, r, e, rank, shape);
    e->used = true;
    *out = e;
    return TSR_OK;
}

tsr_status tsr_model_bind_find_part(struct tsr_model_binding *b, enum tsr_model_part part,
                                    char name[TSR_BIND_NAME], struct tsr_checkpoint_stored **e)
{
    const struct tsr_model_family *f = b->config->family;
    *e = NULL;
    for (uint32_t r = 0; r < f->n_roles && !*e; r++) {
        if (f->roles[r].part != part)
            continue;
        TSR_TRY(tsr_model_bind_name(b, &f->roles[r], 0, ".weight", name));
        *e = tsr_checkpoint_shards_find(b->shards, name);
    }
    return TSR_OK;
}

static tsr_status room(void **v, uint64_t n, uint64_t *cap, uint64_t size, struct tsr_err *err)
{
    if (n < *cap)
        return TSR_OK;
    uint64_t want = *cap ? *cap * 2 : 256;
    void    *p = tsr_renew(*v, want, size);
    if (!p)
        return tsr_fail_nomem(err, want * size, "a model's plan");
    *v = p;
    *cap = want;
    return TSR_OK;
}

tsr_status tsr_model_bind_add_load(struct tsr_model_binding *b, struct tsr_model_tensor_load l)
{
    TSR_TRY(room((void **)&b->loads, b->n_loads, &b->cap_loads, sizeof *b->loads, b->err));
    b->loads[b->n_loads++] = l;
    return TSR_OK;
}

tsr_status tsr_model_bind_add_patch(struct tsr_model_binding *b, struct tsr_model_patch p)
{
    TSR_TRY(room((void **)&b->patches, b->n_patches, &b->cap_patches, sizeof *b->patches, b->err));
    b->patches[b->n_patches++] = p;
    return TSR_OK;
}

static tsr_status too_large(struct tsr_model_binding *b)
{
    return tsr_fail(b->err, TSR_E_INPUT, "%s: the model has more than 2^64 bytes", b->folder);
}

/* Counts a tensor that is kept. */
static void count(struct tsr_model_binding *b, const struct tsr_checkpoint_stored *e)
{
    b->model->parameters += (e->t->end - e->t->begin) / tsr_dtype_size(e->t->dtype);
    b->model->bytes += e->t->end - e->t->begin;
}

static struct tsr_model_row_groups groups_of(const struct tsr_model_row_groups *g)
{
    return g ? *g : (struct tsr_model_row_groups){ 0 };
}

tsr_status tsr_model_bind_plan_floats(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                      uint64_t layer, const char *suffix, uint64_t n,
                                      uint64_t width, const struct tsr_model_row_groups *groups,
                                      uint64_t *at)
{
    char                          name[TSR_BIND_NAME];
    struct tsr_checkpoint_stored *e = NULL;
    bool                          deep = r->part == TSR_MODEL_PART_CONV; /* [channels, 1, kernel] */
    const uint64_t                shape[3] = { width ? n / width : n, deep ? 1 : width, width };
    TSR_TRY(tsr_model_bind_name(b, r, layer, suffix, name));
    TSR_TRY(tsr_model_bind_find(b, r, name, deep ? 3 : width ? 2 : 1, shape, &e));
    if (!e)
        return tsr_fail(b->err, TSR_E_BUG, "%s was not found", name);
    *at = b->floats;
    if (!tsr_add(b->floats, (n + 15) / 16 * 16, &b->floats))
        return too_large(b);
    count(b, e);
    return tsr_model_bind_add_load(b,
                                   (struct tsr_model_tensor_load){ .src = e,
                                                                   .at = *at,
                                                                   .widen = true,
                                                                   .groups = groups_of(groups),
                                                                   .interleaved = r->interleaved });
}

/* Matrices of decoder layers may be read one layer at a time. */
static bool is_layered(const struct tsr_model_binding *b, const struct tsr_model_role *r)
{
    return b->layer_bytes && strchr(r->name, '#');
}

tsr_status tsr_model_bind_plan_matrix(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                      uint64_t layer, uint64_t rows, uint64_t cols, uint32_t *dtype,
                                      uint64_t *at)
{
    return tsr_model_bind_plan_stack(b, r, layer, 0, rows, cols, NULL, dtype, at);
}

/* Whether the tensor of all experts is stored as [experts, out, in]. */
static bool is_upright(struct tsr_model_binding *b, const char *name, uint64_t stack, uint64_t rows,
                       uint64_t cols)
{
    const struct tsr_checkpoint_stored *e = tsr_checkpoint_shards_find(b->shards, name);
    return e && e->t->rank == 3 && e->t->shape[0] == stack && e->t->shape[1] == rows &&
           e->t->shape[2] == cols;
}

tsr_status tsr_model_bind_plan_stack(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                     uint64_t layer, uint32_t stack, uint64_t rows, uint64_t cols,
                                     const struct tsr_model_row_groups *groups, uint32_t *dtype,
                                     uint64_t *at)
{
    char                          name[TSR_BIND_NAME];
    struct tsr_checkpoint_stored *e = NULL;
    const uint64_t                shape[2] = { rows, cols }, each = stack ? rows / stack : 0;
    TSR_TRY(tsr_model_bind_name(b, r, layer, ".weight", name));
    bool           turned = r->transposed && !(r->either && is_upright(b, name, stack, each, cols));
    const uint64_t stacked[3] = { stack, turned ? cols : each, turned ? each : cols };
    TSR_TRY(tsr_model_bind_find(b, r, name, stack ? 3 : 2, stack ? stacked : shape, &e));
    if (!e)
        return tsr_fail(b->err, TSR_E_BUG, "%s was not found", name);
    bool      layered = is_layered(b, r);
    uint64_t *total = layered ? &b->layer_bytes[layer] : &b->bytes;
    *at = *total;
    *dtype = e->t->dtype;
    if (!tsr_add(*total, e->t->end - e->t->begin, total) || !tsr_add(*total, 63, total))
        return too_large(b);
    *total -= *total % 64;
    count(b, e);
    return tsr_model_bind_add_load(b, (struct tsr_model_tensor_load){ .src = e,
                                                                      .at = *at,
                                                                      .groups = groups_of(groups),
                                                                      .interleaved = r->interleaved,
                                                                      .transposed = turned,
                                                                      .layered = layered,
                                                                      .layer = layer });
}

void tsr_model_bind_set_shape(struct tsr_matrix *m, uint32_t dtype, uint64_t rows, uint64_t cols)
{
    m->struct_size = sizeof *m;
    m->dtype = dtype;
    m->rows = rows;
    m->cols = cols;
    m->row_stride = cols * tsr_dtype_size(dtype);
}

tsr_status tsr_model_bind_set_matrix(struct tsr_model_binding *b, const struct tsr_model_role *r,
                                     uint64_t layer, struct tsr_matrix *m, uint32_t dtype,
                                     uint64_t rows, uint64_t cols, uint64_t at)
{
    tsr_model_bind_set_shape(m, dtype, rows, cols);
    return tsr_model_bind_add_patch(b, (struct tsr_model_patch){ .data = &m->data,
                                                                 .at = at,
                                                                 .layered = r && is_layered(b, r),
                                                                 .layer = layer });
}
