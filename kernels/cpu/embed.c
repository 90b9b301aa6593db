/* embed.c - single rows out of panels: EMBED. */
#include "backend.h"
#include "codes.h"
#include "tessera/f16.h"
#include "weight_affine.h"
#include "weight_extra.h"
#include "weight_mapped.h"

#include <string.h>

static float half_at(const uint8_t *p, int bf16)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return bf16 ? tsr_bf16_f32(h) : tsr_f16_f32_quiet(h);
}

void tsr_cpu_weight_row(const struct tsr_cpu_weight *w, uint64_t row, float *out)
{
    uint64_t       panel = row / PANEL, r = row % PANEL;
    const uint8_t *p = w->codes + panel * w->panel_bytes;
    if (w->layout >= W_TAB) {
        tsr_cpu_extra_row(w, row, out);
        return;
    }
    if (w->affine) {
        tsr_cpu_affine_row(w, row, out);
        return;
    }
    if (w->mapped) {
        tsr_cpu_mapped_row(w, row, out);
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
    struct tsr_view              out;
    const uint32_t              *ids;
    float                        scale;
};

static tsr_status embed_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct embed *e = arg;
    for (uint64_t t = begin; t < end; t++) {
        float *row = (float *)(void *)(e->out.p + t * e->out.stride);
        tsr_cpu_weight_row(e->w, e->ids[t], row);
        if (e->scale != 1.0f)
            e->c->k->scale(row, row, e->w->cols, e->scale, 0.0f);
    }
    return TSR_OK;
}

tsr_status tsr_cpu_embed_op(struct tsr_cpu *c, const struct tsr_op *op,
                            const struct tsr_op_parts *parts, struct tsr_err *err)
{
    struct embed e = { .c = c,
                       .w = op->weight,
                       .out = tsr_cpu_at(&parts->out),
                       .ids = parts->index,
                       .scale = op->scale };
    (void)err;
    return tsr_cpu_for(c, e.out.rows, e.w->cols * 8, embed_rows, &e);
}
