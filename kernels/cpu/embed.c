/* embed.c - single rows out of panels: EMBED. */
#include "../tensor/tensor.h"
#include "../weight/weight.h"
#include "backend.h"
#include "codes.h"
#include "weight_extra.h"

#include <string.h>

static float half_at(const uint8_t *p, int bf16)
{
    uint16_t h;
    memcpy(&h, p, 2);
    if (!bf16)
        return tsr_weight_f16(h);
    uint32_t u = (uint32_t)h << 16;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}

void tsr_cpu_weight_row(const struct tsr_cpu_weight *w, uint64_t row, float *out)
{
    uint64_t       panel = row / PANEL, r = row % PANEL;
    const uint8_t *p = w->codes + panel * w->panel_bytes;
    if (w->layout >= W_TAB) {
        tsr_cpu_extra_row(w, row, out);
        return;
    }
    if (w->layout == W_F32) {
        for (uint64_t k = 0; k < w->cols; k++)
            memcpy(&out[k], p + (k * PANEL + r) * 4, 4);
        return;
    }
    if (w->layout == W_F16 || w->layout == W_BF16) {
        for (uint64_t k = 0; k < w->cols; k++)
            out[k] = half_at(p + (k * PANEL + r) * 2, w->layout == W_BF16);
        return;
    }
    for (uint64_t k = 0; k < w->cols;) {
        uint64_t g = k / w->group, end = cpu_min((g + 1) * w->group, w->cols);
        uint64_t at = (panel * w->groups + g) * PANEL + r;
        int32_t  zero = w->zeros ? w->zeros[at] : (int32_t)w->mid;
        float    scale;
        if (w->scale_f16)
            scale = half_at(w->scales + 2 * at, 0);
        else
            memcpy(&scale, w->scales + 4 * at, 4);
        for (; k < end; k++) {
            int32_t code = (int32_t)cpu_code_get(w->layout, p, r, k);
            out[k] = (float)(code - zero) * scale;
        }
    }
}

struct embed {
    const struct tsr_cpu        *c;
    const struct tsr_cpu_weight *w;
    struct tsr_view              out, ids;
    float                        scale;
};

static uint32_t id_at(const struct embed *e, uint64_t t)
{
    uint32_t id;
    memcpy(&id, e->ids.p + 4 * t, 4);
    return id;
}

static tsr_status embed_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct embed *e = arg;
    for (uint64_t t = begin; t < end; t++) {
        float *row = (float *)(void *)(e->out.p + t * e->out.stride);
        tsr_cpu_weight_row(e->w, id_at(e, t), row);
        if (e->scale != 1.0f)
            e->c->k->scale(row, row, e->w->cols, e->scale, 0.0f);
    }
    return TSR_OK;
}

tsr_status tsr_cpu_embed_op(struct tsr_cpu *c, const struct tsr_op *op, struct tsr_err *err)
{
    struct embed e = { .c = c, .w = op->weight, .scale = op->scale };
    tsr_status   st;
    if (!e.w)
        return tsr_fail(err, TSR_E_INVAL, "EMBED: the weight is NULL");
    if ((st = tsr_cpu_view(&e.out, op->out, "EMBED", "out", TSR_F32, 0, e.w->cols, err)) !=
            TSR_OK ||
        (st = tsr_cpu_view(&e.ids, op->in[0], "EMBED", "ids", TSR_U32, 1, e.out.rows, err)) !=
            TSR_OK ||
        (st = tsr_tensor_apart(op->out, op->in[0], 0, "EMBED", err)) != TSR_OK)
        return st;
    for (uint64_t t = 0; t < e.out.rows; t++)
        if (id_at(&e, t) >= e.w->rows)
            return tsr_fail(err, TSR_E_INVAL, "EMBED: id %u of token %llu is not below %llu",
                            id_at(&e, t), (unsigned long long)t, (unsigned long long)e.w->rows);
    return tsr_cpu_for(c, e.out.rows, e.w->cols * 8, embed_rows, &e);
}
