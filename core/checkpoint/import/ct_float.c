/* compressed-tensors: FP8, and FP4 in both of its layouts. */
#include "base/f16.h"
#include "base/mem.h"
#include "checkpoint/import/ct.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The scales as biased bytes, if all of them are powers of two that E8M0 has. */
static tsr_status find_powers(struct tsr_import *im, struct tsr_import_ct_linear *l)
{
    uint64_t n = l->rows * l->groups;
    if (l->bytes_of_scale)
        return TSR_OK;
    if (!(l->bytes_of_scale = tsr_new(n, 1)))
        return tsr_fail_nomem(im->err, n, l->name);
    for (uint64_t i = 0; i < n; i++) {
        int   e;
        float f = frexpf(l->scales[i], &e);
        if (f != 0.5f || e < -126 || e > 128) {
            free(l->bytes_of_scale);
            l->bytes_of_scale = NULL;
            return TSR_OK;
        }
        l->bytes_of_scale[i] = (uint8_t)(e - 1 + 127);
    }
    return TSR_OK;
}

static void copied_rows(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                        uint64_t stride)
{
    const struct tsr_import_ct_linear *l = source;
    for (uint64_t i = 0; i < n; i++)
        memcpy(dst + i * stride, (const unsigned char *)l->data + (first + i) * l->width, stride);
}

tsr_status tsr_import_ct_fp8(struct tsr_import *im, struct tsr_import_ct_linear *l,
                             struct tsr_model_packed **out)
{
    const uint64_t                shape[2] = { l->rows, l->cols };
    struct tsr_checkpoint_stored *e;
    TSR_TRY(tsr_import_need(im, l->name, "weight", "F8_E4M3", 2, shape, &e));
    TSR_TRY(tsr_import_ct_scales(im, l));
    l->width = l->cols;
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, e, &l->data));
    const uint8_t *v = l->data;
    for (uint64_t i = 0; v && i < l->rows * l->cols; i++)
        if ((v[i] & 0x7f) == 0x7f)
            return tsr_import_fail(im, e, "is NaN at element %llu; the file is damaged",
                                   (unsigned long long)i);
    TSR_TRY(find_powers(im, l));
    return l->bytes_of_scale ? tsr_import_put_mx(im, l->name, l->rows, l->cols, TSR_MX_FP8_E4M3,
                                                 l->group, l->bytes_of_scale, copied_rows, l, out)
                             : tsr_import_put_fp8(im, l->name, l->rows, l->cols, l->group,
                                                  l->scales, copied_rows, l, out);
}

/* ---- FP4 ---------------------------------------------------------------------------------- */

/* The codes of scales, which are values of E4M3. */
static void e4m3_codes(const float *scales, uint64_t n, uint8_t *codes)
{
    for (uint64_t i = 0; i < n; i++) {
        uint8_t low = 0, high = 126; /* values ascend */
        while (low < high) {
            uint8_t mid = (uint8_t)((low + high) / 2);
            if (tsr_import_fp8(mid) < fabsf(scales[i]))
                low = (uint8_t)(mid + 1);
            else
                high = mid;
        }
        codes[i] = signbit(scales[i]) ? low | 0x80u : low;
    }
}

/* w = fp4 * (scale / global). */
static tsr_status put_nvfp4(struct tsr_import *im, struct tsr_import_ct_linear *l,
                            struct tsr_model_packed **out)
{
    static const float            e2m1[16] = { 0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                               0, -0.5f, -1, -1.5f, -2, -3, -4, -6 };
    const uint64_t                one = 1, n = l->rows * l->groups;
    struct tsr_checkpoint_stored *e = tsr_import_find(im, l->name, "weight_global_scale");
    float                        *global;
    TSR_TRY(tsr_import_need(im, l->name, "weight_global_scale", "F32", e ? e->t->rank != 0 : 1,
                            &one, &e));
    TSR_TRY(tsr_import_floats(im, e, &global));
    float divisor = *global;
    free(global);
    if (!(divisor > 0))
        return tsr_import_fail(im, e, "is %g, which is not a divisor of scales", (double)divisor);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(l->scales[i] / divisor))
            return tsr_import_fail(im, e, "is %g, too small for the scales", (double)divisor);
    if (l->groups > 1 && (l->group < 16 || (l->group & (l->group - 1)) != 0))
        return tsr_import_fail(im, l->scale,
                               "has a scale for every %llu columns; NVFP4 has one for 16",
                               (unsigned long long)l->group);
    uint8_t *elements = tsr_new(n, 1);
    if (!elements)
        return tsr_fail_nomem(im->err, n, l->name);
    e4m3_codes(l->scales, n, elements);
    struct tsr_import_table t = { .bits = 4,
                                  .group = l->group,
                                  .table = e2m1,
                                  .elements = elements,
                                  .divisor = divisor,
                                  .rows = copied_rows,
                                  .source = l };
    tsr_status              st = tsr_import_put_table(im, l->name, l->rows, l->cols, &t, out);
    free(elements);
    return st;
}

tsr_status tsr_import_ct_fp4(struct tsr_import *im, struct tsr_import_ct_linear *l,
                             struct tsr_model_packed **out)
{
    const uint64_t                shape[2] = { l->rows, l->cols / 2 };
    struct tsr_checkpoint_stored *e;
    if (l->cols % 2)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%.200s\" has %llu inputs, an odd number; FP4 cannot hold it",
                        im->where, l->name, (unsigned long long)l->cols);
    TSR_TRY(tsr_import_need(im, l->name, "weight_packed", "U8", 2, shape, &e));
    TSR_TRY(tsr_import_ct_check_shape(im, l));
    TSR_TRY(tsr_import_ct_scales(im, l));
    l->width = shape[1];
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, e, &l->data));
    if (l->bytes_of_scale)
        return tsr_import_put_mx(im, l->name, l->rows, l->cols, TSR_MX_FP4_E2M1, l->group,
                                 l->bytes_of_scale, copied_rows, l, out);
    if (strcmp(l->scale->t->dtype_name, "F8_E4M3") != 0)
        return tsr_import_fail(im, l->scale,
                               "has dtype %s; U8 (MXFP4) or F8_E4M3 (NVFP4) is what FP4 weights "
                               "have there",
                               l->scale->t->dtype_name);
    return put_nvfp4(im, l, out);
}
