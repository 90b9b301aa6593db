/* quant_method fp8, as DeepSeek and Qwen publish their models: E4M3 codes with a scale for each block of the matrix,
 * or one for the whole.
 *
 *   weight F8_E4M3 [N, K]
 *   weight_scale_inv F32, BF16 or E8M0 [N/b0, K/b1]   with weight_block_size [b0, b1]; a value is code * scale
 *   weight_scale F32                                  of the matrix, without weight_block_size
 *
 * A linear of another dtype is not quantized, whatever modules_to_not_convert lists. */
#include "base/mem.h"
#include "checkpoint/import/ct.h"

#include <stdlib.h>
#include <string.h>

static tsr_status wrong_block(struct tsr_import *im)
{
    return tsr_fail(im->err, TSR_E_INPUT,
                    "%s: \"weight_block_size\" is not [rows, columns] of a block, such as "
                    "[128, 128]",
                    im->where);
}

static tsr_status fp8_open(struct tsr_import *im)
{
    struct tsr_import_ct_scheme *s = im->own = tsr_new(1, sizeof *s);
    const json_t                *block = json_object_get(im->config, "weight_block_size");
    const char                  *fmt = "e4m3";
    if (!s)
        return tsr_fail_nomem(im->err, sizeof *s, im->where);
    TSR_TRY(tsr_json_str(im->config, im->where, "fmt", false, &fmt, im->err));
    if (strcmp(fmt, "e4m3") != 0)
        return tsr_fail(im->err, TSR_E_INPUT, "%s: \"fmt\" is \"%.40s\"; e4m3 can be read",
                        im->where, fmt);
    *s = (struct tsr_import_ct_scheme){
        .is_float = true, .symmetric = true, .bits = 8, .strategy = TSR_IMPORT_CT_TENSOR
    };
    if (!block || json_is_null(block))
        return TSR_OK;
    s->strategy = TSR_IMPORT_CT_BLOCK;
    if (json_array_size(block) != 2)
        return wrong_block(im);
    for (size_t i = 0; i < 2; i++) {
        json_int_t n = json_integer_value(json_array_get(block, i));
        if (n < 1 || n > INT64_C(1) << 40)
            return wrong_block(im);
        s->block[i] = (uint64_t)n;
    }
    return TSR_OK;
}

static tsr_status fp8_read(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                           struct tsr_model_packed **out)
{
    const struct tsr_import_ct_scheme  *s = im->own;
    struct tsr_import_ct_linear         l = { .s = s,
                                              .name = name,
                                              .scale_name = s->strategy == TSR_IMPORT_CT_BLOCK
                                                                ? "weight_scale_inv"
                                                                : "weight_scale",
                                              .rows = rows,
                                              .cols = cols };
    const struct tsr_checkpoint_stored *w = tsr_import_find(im, name, "weight");
    if (!tsr_import_find(im, name, l.scale_name) &&
        !(w && strcmp(w->t->dtype_name, "F8_E4M3") == 0))
        return TSR_OK;
    tsr_import_ct_leave_activations(im, name);
    tsr_status st = tsr_import_ct_fp8(im, &l, out);
    tsr_import_ct_free(&l);
    return st;
}

const struct tsr_importer tsr_importer_fp8 = {
    .method = "fp8",
    .summary = "DeepSeek, Qwen: FP8 with a scale for each block or matrix",
    .open = fp8_open,
    .close = free,
    .read = fp8_read,
};
