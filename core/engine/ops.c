/* Single operations of the backend table, with shapes from their tensors. */
#include "engine/internal.h"

struct tsr_tensor tsr_rows(const struct tsr_tensor *t, uint64_t first, uint64_t n)
{
    struct tsr_tensor v = *t;
    v.offset += first * t->row_stride;
    v.rows = n;
    return v;
}

static const struct tsr_tensor *or_null(const struct tsr_tensor *t)
{
    return t->buffer ? t : NULL;
}

tsr_status tsr_run_linear(struct tsr_engine *e, const struct tsr_linear_dev *l,
                          const struct tsr_tensor *in, const struct tsr_tensor *out,
                          struct tsr_err *err)
{
    struct tsr_op op = {
        .kind = TSR_OP_LINEAR, .out = out, .in = { in, or_null(&l->bias) }, .act = l->act
    };
    return tsr_device_run(e->dev, &op, l->w, err);
}

tsr_status tsr_run_embed(struct tsr_engine *e, struct tsr_weight *w, const struct tsr_tensor *ids,
                         float scale, const struct tsr_tensor *out, struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_EMBED, .out = out, .in = { ids }, .scale = scale };
    return tsr_device_run(e->dev, &op, w, err);
}

tsr_status tsr_run_norm(struct tsr_engine *e, const struct tsr_norm_dev *norm,
                        const struct tsr_tensor *in, const struct tsr_tensor *out,
                        struct tsr_err *err)
{
    const struct tsr_hparams *hp = &e->model->hp;
    struct tsr_op             op = { .kind = TSR_OP_NORM,
                                     .out = out,
                                     .in = { in, &norm->gain, or_null(&norm->bias) },
                                     .norm = hp->norm,
                                     .eps = hp->norm_eps,
                                     .gain_offset = hp->norm_gain_offset };
    return tsr_device_run(e->dev, &op, NULL, err);
}

tsr_status tsr_run_add(struct tsr_engine *e, const struct tsr_tensor *a, const struct tsr_tensor *b,
                       const struct tsr_tensor *out, struct tsr_err *err)
{
    struct tsr_op op = { .kind = TSR_OP_ADD, .out = out, .in = { a, b } };
    return tsr_device_run(e->dev, &op, NULL, err);
}
