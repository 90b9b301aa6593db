/* pack.c - a row of a tile as the bytes of its layout. */
#include "gptq.h"

/* Meta of tessera.int/1. */
static void put_meta(const struct gptq_tile *t, const struct tsr_format *f, uint64_t lane,
                     unsigned char *meta)
{
    uint64_t zeros = t->groups * (f->scale_dtype == TSR_F32 ? 4u : 2u);
    memset(meta, 0, tsr_format_int_meta_bytes(f, t->cols));
    for (uint64_t g = 0; g < t->groups; g++) {
        wt_scale_put(meta, g, f->scale_dtype, t->scale[g * GPTQ_LANES + lane]);
        if (f->zero == TSR_ZERO_STORED)
            meta[zeros + g] = (unsigned char)t->zero[g * GPTQ_LANES + lane];
    }
}

/* Row `lane` of the tile into its bytes. */
void gptq_pack(const struct gptq_tile *t, const struct tsr_format *f, uint64_t lane,
               unsigned char *codes, unsigned char *meta)
{
    if (t->q->rule.fp4) {
        gptq_fp4_meta(t, lane, meta);
    } else if (!t->q->rule.minimum) {
        put_meta(t, f, lane, meta);
    } else if (f->scale_bits == 0) { /* else written by gptq_params_codes() */
        gptq_row_params(t, lane);
        (void)wt_affine_meta(f, t->cols, t->p, meta); /* rounded before */
    }
    for (uint64_t k = 0; k < t->cols; k++)
        t->out[k] = t->codes[k * GPTQ_LANES + lane];
    wt_pack(codes, t->out, t->cols, f->bits);
}
