/* compressed-tensors: the tensors of one linear.
 *
 *   weight_packed I32 [N, words]     codes q + 2^(bits-1) along K; dense (a bit stream) in newer
 *                                    files, floor(32/bits) to a word in older ones
 *   weight_packed U8 [N, K/2]        FP4, low nibble first
 *   weight I8 or F8_E4M3 [N, K]      as it is
 *   weight_scale, weight_zero_point, weight_global_scale, weight_g_idx, weight_shape */
#include "base/mem.h"
#include "checkpoint/import/ct.h"

#include <stdlib.h>
#include <string.h>

/* ---- scales ----------------------------------------------------------------------------- */

/* Columns that share a scale, and the shape in which scales and zero points are stored. */
static void scale_shape(struct tsr_import_ct_linear *l, uint64_t shape[2])
{
    const struct tsr_import_ct_scheme *s = l->s;
    l->group = s->strategy == TSR_IMPORT_CT_GROUP   ? s->group
               : s->strategy == TSR_IMPORT_CT_BLOCK ? s->block[1]
                                                    : l->cols;
    if (l->group > l->cols)
        l->group = l->cols;
    l->groups = l->cols / l->group + (l->cols % l->group != 0);
    shape[0] = s->strategy == TSR_IMPORT_CT_TENSOR ? 1
               : s->strategy == TSR_IMPORT_CT_BLOCK
                   ? l->rows / s->block[0] + (l->rows % s->block[0] != 0)
                   : l->rows;
    shape[1] = l->groups;
}

/* The tensor, which may have lost dimensions of 1. */
static tsr_status need_shaped(struct tsr_import *im, const struct tsr_import_ct_linear *l,
                              const char *suffix, const char *dtypes, const uint64_t shape[2],
                              struct tsr_checkpoint_stored **e)
{
    const struct tsr_checkpoint_stored *t = tsr_import_find(im, l->name, suffix);
    uint32_t                            rank = 2;
    if (t && t->t->rank < 2 && shape[1] == 1 && (t->t->rank == 1 || shape[0] == 1))
        rank = t->t->rank;
    return tsr_import_need(im, l->name, suffix, dtypes, rank, shape, e);
}

/* Index of a row's scale among the stored ones. */
static uint64_t stored_row(const struct tsr_import_ct_linear *l, uint64_t row)
{
    return l->s->strategy == TSR_IMPORT_CT_TENSOR  ? 0
           : l->s->strategy == TSR_IMPORT_CT_BLOCK ? row / l->s->block[0]
                                                   : row;
}

/* As biased bytes if stored that way (MX), else as floats. */
tsr_status tsr_import_ct_scales(struct tsr_import *im, struct tsr_import_ct_linear *l)
{
    uint64_t shape[2], n;
    float   *v = NULL;
    uint8_t *bytes = NULL;
    scale_shape(l, shape);
    TSR_TRY(need_shaped(im, l, l->scale_name ? l->scale_name : "weight_scale",
                        l->s->is_float ? "F16 BF16 F32 F8_E4M3 U8 F8_E8M0" : "F16 BF16 F32", shape,
                        &l->scale));
    if (!tsr_mul(l->rows, l->groups, &n) || !(l->scales = tsr_new(n, sizeof *l->scales)))
        return tsr_fail_nomem(im->err, l->rows * l->groups * sizeof *l->scales, l->name);
    const char *dtype = l->scale->t->dtype_name;
    if (strcmp(dtype, "U8") == 0 || strcmp(dtype, "F8_E8M0") == 0) {
        l->bytes_of_scale = tsr_new(n, 1);
        tsr_status st = l->bytes_of_scale ? tsr_import_e8m0(im, l->scale, &bytes)
                                          : tsr_fail_nomem(im->err, n, l->name);
        for (uint64_t i = 0; st == TSR_OK && i < n; i++)
            l->bytes_of_scale[i] = bytes[stored_row(l, i / l->groups) * l->groups + i % l->groups];
        free(bytes);
        return st;
    }
    TSR_TRY(tsr_import_floats(im, l->scale, &v));
    for (uint64_t i = 0; i < n; i++)
        l->scales[i] = v[stored_row(l, i / l->groups) * l->groups + i % l->groups];
    free(v);
    return TSR_OK;
}

/* ---- packed integers ---------------------------------------------------------------------- */

/* How `n` codes are packed into words: words is the stored number.  known: l->per_word says it where the number
 * does not. */
static tsr_status find_packing(struct tsr_import *im, struct tsr_import_ct_linear *l,
                               const struct tsr_checkpoint_stored *e, uint64_t n, uint64_t words,
                               bool known)
{
    uint32_t per = 32 / l->s->bits;
    uint64_t dense = (n * l->s->bits + 31) / 32, old = n / per + (n % per != 0);
    if (words != dense && words != old)
        return tsr_import_fail(im, e,
                               "has %llu words for %llu codes of %u bits, which take %llu (or %llu "
                               "in older files)",
                               (unsigned long long)words, (unsigned long long)n, l->s->bits,
                               (unsigned long long)dense, (unsigned long long)old);
    if (dense == old && 32 % l->s->bits != 0 && n > per && known)
        return TSR_OK;
    if (dense == old && 32 % l->s->bits != 0 && n > per)
        return tsr_import_fail(im, e,
                               "may be packed in either of two ways, which %llu codes of %u bits "
                               "do not tell apart",
                               (unsigned long long)n, l->s->bits);
    l->per_word = words == dense ? 0 : per;
    return TSR_OK;
}

static void unpack_words(const struct tsr_import_ct_linear *l, const uint32_t *words, uint64_t n,
                         uint8_t *codes)
{
    uint32_t bits = l->s->bits, mask = (1u << bits) - 1u;
    if (!l->per_word) {
        tsr_import_unpack(words, 0, bits, n, codes);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(words[i / l->per_word] >> i % l->per_word * bits & mask);
}

static void packed_rows(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                        uint64_t stride)
{
    const struct tsr_import_ct_linear *l = source;
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char *row = (const unsigned char *)l->data + (first + i) * l->width;
        if (!l->per_word) {
            memcpy(dst + i * stride, row, stride);
            continue;
        }
        const uint32_t *words = (const uint32_t *)(const void *)row;
        uint32_t        bits = l->s->bits, mask = (1u << bits) - 1u, acc = 0, have = 0;
        unsigned char  *p = dst + i * stride;
        for (uint64_t k = 0; k < l->cols; k++) {
            acc |= (words[k / l->per_word] >> k % l->per_word * bits & mask) << have;
            have += bits;
            if (have >= 8) {
                *p++ = (unsigned char)acc;
                acc >>= 8;
                have -= 8;
            }
        }
        if (have)
            *p = (unsigned char)acc;
    }
}

/* Zero points packed along the outputs: a column of words for each group. */
static tsr_status unpack_zeros(struct tsr_import *im, struct tsr_import_ct_linear *l,
                               struct tsr_checkpoint_stored *e)
{
    uint64_t   words = e->t->shape[0];
    uint32_t  *raw = NULL, *column = tsr_new(words + 1, sizeof *column);
    uint8_t   *codes = tsr_new(l->rows, 1);
    uint32_t   per_word = l->per_word;
    tsr_status st = column && codes ? tsr_import_bytes(im, e, (void **)&raw)
                                    : tsr_fail_nomem(im->err, words * 4 + l->rows, l->name);
    if (st == TSR_OK)
        st = find_packing(im, l, e, l->rows,
                          words, /* as the weights, if these fill more than a word */
                          tsr_import_find(im, l->name, "weight_packed") &&
                              l->cols > 32 / l->s->bits);
    for (uint64_t g = 0; st == TSR_OK && g < l->groups; g++) {
        for (uint64_t w = 0; w < words; w++)
            column[w] = raw[w * l->groups + g];
        unpack_words(l, column, l->rows, codes);
        for (uint64_t n = 0; n < l->rows; n++)
            l->zeros[n * l->groups + g] = codes[n];
    }
    l->per_word = per_word;
    free(raw);
    free(column);
    free(codes);
    return st;
}

/* Zero points of one byte each, signed. */
static tsr_status widen_zeros(struct tsr_import *im, struct tsr_import_ct_linear *l,
                              struct tsr_checkpoint_stored *e)
{
    int     half = 1 << (l->s->bits - 1);
    int8_t *raw;
    TSR_TRY(tsr_import_bytes(im, e, (void **)&raw));
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; st == TSR_OK && i < l->rows * l->groups; i++) {
        int8_t one = raw[stored_row(l, i / l->groups) * l->groups + i % l->groups];
        int    v = (int)one;
        if (v < -half || v >= half)
            st = tsr_import_fail(im, e, "has the zero point %d, outside of %u bits", v, l->s->bits);
        l->zeros[i] = (uint8_t)(v + half);
    }
    free(raw);
    return st;
}

static tsr_status read_zeros(struct tsr_import *im, struct tsr_import_ct_linear *l)
{
    uint64_t                      shape[2];
    struct tsr_checkpoint_stored *e = tsr_import_find(im, l->name, "weight_zero_point");
    if (!e && l->s->symmetric)
        return TSR_OK;
    if (!(l->zeros = tsr_new(l->rows * l->groups, 1)))
        return tsr_fail_nomem(im->err, l->rows * l->groups, l->name);
    if (e && strcmp(e->t->dtype_name, "I32") == 0 && e->t->rank == 2) {
        shape[0] = e->t->shape[0]; /* find_packing() says if that is wrong */
        shape[1] = l->groups;
        TSR_TRY(tsr_import_need(im, l->name, "weight_zero_point", "I32", 2, shape, &e));
        return unpack_zeros(im, l, e);
    }
    scale_shape(l, shape);
    TSR_TRY(need_shaped(im, l, "weight_zero_point", "I8", shape, &e));
    return widen_zeros(im, l, e);
}

static tsr_status read_order(struct tsr_import *im, struct tsr_import_ct_linear *l)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, l->name, "weight_g_idx");
    int32_t                      *g = NULL;
    if (!e && !l->s->by_order)
        return TSR_OK;
    TSR_TRY(tsr_import_need(im, l->name, "weight_g_idx", "I32 I64", 1, &l->cols, &e));
    if (strcmp(e->t->dtype_name, "I32") != 0)
        return tsr_import_fail(im, e, "is I64; I32 is what older files have");
    TSR_TRY(tsr_import_bytes(im, e, (void **)&g));
    tsr_status st = TSR_OK;
    uint64_t   none = 0;
    bool       plain = true;
    if (!(l->order = tsr_new(l->cols, sizeof *l->order)))
        st = tsr_fail_nomem(im->err, l->cols * sizeof *l->order, l->name);
    for (uint64_t k = 0; st == TSR_OK && k < l->cols; k++) {
        none += g[k] == -1;
        l->order[k] = (uint32_t)g[k];
        plain = plain && l->order[k] == k / l->group;
    }
    for (uint64_t k = 0; st == TSR_OK && none < l->cols && k < l->cols; k++)
        if (l->order[k] >= l->groups)
            st = tsr_import_fail(im, e, "has group %d for column %llu; there are %llu groups", g[k],
                                 (unsigned long long)k, (unsigned long long)l->groups);
    free(g);
    if (plain || none == l->cols) { /* -1 throughout: no order was set */
        free(l->order);
        l->order = NULL;
    }
    return st;
}

tsr_status tsr_import_ct_check_shape(struct tsr_import *im, const struct tsr_import_ct_linear *l)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, l->name, "weight_shape");
    const uint64_t                two = 2;
    void                         *raw;
    if (!e)
        return TSR_OK;
    TSR_TRY(tsr_import_need(im, l->name, "weight_shape", "I64 I32", 1, &two, &e));
    TSR_TRY(tsr_import_bytes(im, e, &raw));
    int64_t v[2];
    for (size_t i = 0; i < 2; i++) {
        int32_t narrow;
        memcpy(&narrow, (char *)raw + 4 * i, 4);
        v[i] = narrow;
        if (strcmp(e->t->dtype_name, "I64") == 0)
            memcpy(&v[i], (char *)raw + 8 * i, 8);
    }
    free(raw);
    if (v[0] != (int64_t)l->rows || v[1] != (int64_t)l->cols)
        return tsr_import_fail(im, e, "says [%lld, %lld]; config.json asks for [%llu, %llu]",
                               (long long)v[0], (long long)v[1], (unsigned long long)l->rows,
                               (unsigned long long)l->cols);
    return TSR_OK;
}

static tsr_status put_int(struct tsr_import *im, struct tsr_import_ct_linear *l,
                          tsr_import_rows rows, struct tsr_model_packed **out)
{
    struct tsr_import_int t = { .bits = l->s->bits,
                                .group = l->group,
                                .scales = l->scales,
                                .f16 = l->scale->t->dtype == TSR_F16,
                                .zeros = l->zeros,
                                .order = l->order,
                                .rows = rows,
                                .source = l };
    return tsr_import_put_int(im, l->name, l->rows, l->cols, &t, out);
}

static tsr_status read_packed(struct tsr_import *im, struct tsr_import_ct_linear *l,
                              struct tsr_model_packed **out)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, l->name, "weight_packed");
    uint64_t                      shape[2] = { l->rows, e->t->rank == 2 ? e->t->shape[1] : 0 };
    TSR_TRY(tsr_import_need(im, l->name, "weight_packed", "I32", 2, shape, &e));
    TSR_TRY(tsr_import_ct_check_shape(im, l));
    TSR_TRY(find_packing(im, l, e, l->cols, shape[1], false));
    TSR_TRY(tsr_import_ct_scales(im, l));
    TSR_TRY(read_zeros(im, l));
    TSR_TRY(read_order(im, l));
    l->width = 4 * shape[1];
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, e, &l->data));
    return put_int(im, l, packed_rows, out);
}

/* ---- bytes -------------------------------------------------------------------------------- */

static void int8_rows(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                      uint64_t stride)
{
    const struct tsr_import_ct_linear *l = source;
    uint8_t                            half = (uint8_t)(1u << (l->s->bits - 1)), codes[8];
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *row = (const uint8_t *)l->data + (first + i) * l->cols;
        for (uint64_t k = 0; k < l->cols; k += 8) { /* 8 codes fill whole bytes at any width */
            uint64_t m = l->cols - k < 8 ? l->cols - k : 8;
            for (uint64_t j = 0; j < m; j++)
                codes[j] = (uint8_t)(row[k + j] + half);
            tsr_import_pack(codes, l->s->bits, m, dst + i * stride + k / 8 * l->s->bits);
        }
    }
}

static tsr_status read_int8(struct tsr_import *im, struct tsr_import_ct_linear *l,
                            struct tsr_model_packed **out)
{
    const uint64_t                shape[2] = { l->rows, l->cols };
    int                           half = 1 << (l->s->bits - 1);
    struct tsr_checkpoint_stored *e;
    TSR_TRY(tsr_import_need(im, l->name, "weight", "I8", 2, shape, &e));
    TSR_TRY(tsr_import_ct_scales(im, l));
    TSR_TRY(read_zeros(im, l));
    TSR_TRY(read_order(im, l));
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, e, &l->data));
    const int8_t *v = l->data;
    for (uint64_t i = 0; v && half < 128 && i < l->rows * l->cols; i++)
        if (v[i] < -half || v[i] >= half)
            return tsr_import_fail(im, e, "has %d at element %llu, outside of %u bits", v[i],
                                   (unsigned long long)i, l->s->bits);
    return put_int(im, l, int8_rows, out);
}

tsr_status tsr_import_ct_int(struct tsr_import *im, struct tsr_import_ct_linear *l,
                             struct tsr_model_packed **out)
{
    return tsr_import_find(im, l->name, "weight_packed") ? read_packed(im, l, out)
                                                         : read_int8(im, l, out);
}
