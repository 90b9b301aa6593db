/* AWQ as AutoAWQ's GEMM kernels read it: 4 bits, packed along the outputs.
 *
 *   qweight I32 [K, N/8]   qzeros I32 [groups, N/8]   scales [groups, N]
 *
 * Column 8c+j of a word is the nibble nibble_of[j] of it.  Zero points are stored unchanged. */
#include "base/mem.h"
#include "checkpoint/import/import.h"

#include <stdlib.h>
#include <string.h>

static const unsigned nibble_of[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };

struct awq {
    int64_t group;
};

static tsr_status get_version(struct tsr_import *im)
{
    static const char *const keys[] = { "version", "format", "checkpoint_format" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *v = "gemm";
        TSR_TRY(tsr_json_str(im->config, im->where, keys[i], false, &v, im->err));
        if (strcasecmp(v, "gemm") != 0)
            return tsr_fail(im->err, TSR_E_INPUT,
                            "%s: \"%s\": \"%.40s\" is another layout, which cannot be read; "
                            "\"gemm\" can",
                            im->where, keys[i], v);
    }
    return TSR_OK;
}

static tsr_status awq_open(struct tsr_import *im)
{
    struct awq *a = im->own = tsr_new(1, sizeof *a);
    const char *bits_key = json_object_get(im->config, "bits") ? "bits" : "w_bit";
    const char *group_key =
        json_object_get(im->config, "group_size") ? "group_size" : "q_group_size";
    int64_t bits = 4;
    bool    zero_point = true;
    if (!a)
        return tsr_fail_nomem(im->err, sizeof *a, im->where);
    a->group = 128;
    TSR_TRY(tsr_json_int(im->config, im->where, bits_key, true, 1, 16, &bits, im->err));
    TSR_TRY(tsr_json_int(im->config, im->where, group_key, true, -1, INT64_C(1) << 40, &a->group,
                         im->err));
    TSR_TRY(tsr_json_bool(im->config, im->where, "zero_point", false, &zero_point, im->err));
    if (bits != 4)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%s\" is %lld; AWQ checkpoints of 4 bits can be read", im->where,
                        bits_key, (long long)bits);
    if (a->group == 0 || !zero_point)
        return tsr_fail(im->err, TSR_E_INPUT, "%s: AWQ %s cannot be read", im->where,
                        a->group == 0 ? "with groups of 0 columns" : "without zero points");
    return get_version(im);
}

struct parts {
    uint32_t *words, *zwords;
    float    *stored, *scales;
    uint8_t  *zeros;
    uint64_t  cols, width; /* width: words in a row of qweight */
};

static void parts_free(struct parts *p)
{
    free(p->words);
    free(p->zwords);
    free(p->stored);
    free(p->scales);
    free(p->zeros);
}

static unsigned nibble(const uint32_t *row, uint64_t n)
{
    return row[n / 8] >> 4 * nibble_of[n % 8] & 15;
}

static void columns(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                    uint64_t stride)
{
    const struct parts *p = source;
    for (uint64_t i = 0; i < n; i++)
        memset(dst + i * stride, 0, stride);
    for (uint64_t k = 0; k < p->cols; k++)
        for (uint64_t i = 0; i < n; i++)
            dst[i * stride + k / 2] |=
                (unsigned char)(nibble(p->words + k * p->width, first + i) << 4 * (k % 2));
}

static tsr_status read_parts(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             struct parts *p, struct tsr_import_int *t)
{
    const struct awq *a = im->own;
    uint64_t          group = a->group < 0 ? cols : (uint64_t)a->group;
    uint64_t          groups = cols / group + (cols % group != 0);
    if (rows % 8)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%.200s\" has %llu outputs, no multiple of 8; AWQ cannot hold it",
                        im->where, name, (unsigned long long)rows);
    const uint64_t                shape[2] = { cols, rows / 8 };
    const uint64_t                zshape[2] = { groups, rows / 8 }, sshape[2] = { groups, rows };
    struct tsr_checkpoint_stored *w, *z, *c;
    TSR_TRY(tsr_import_need(im, name, "qweight", "I32", 2, shape, &w));
    TSR_TRY(tsr_import_need(im, name, "qzeros", "I32", 2, zshape, &z));
    TSR_TRY(tsr_import_need(im, name, "scales", "F16 BF16 F32", 2, sshape, &c));
    p->cols = cols;
    p->width = rows / 8;
    TSR_TRY(tsr_import_bytes(im, z, (void **)&p->zwords));
    TSR_TRY(tsr_import_floats(im, c, &p->stored));
    p->zeros = tsr_new(groups * rows, 1);
    p->scales = tsr_new(groups * rows, sizeof *p->scales);
    if (!p->zeros || !p->scales)
        return tsr_fail_nomem(im->err, groups * rows * 5, name);
    for (uint64_t g = 0; g < groups; g++)
        for (uint64_t n = 0; n < rows; n++) {
            p->zeros[n * groups + g] = (uint8_t)nibble(p->zwords + g * p->width, n);
            p->scales[n * groups + g] = p->stored[g * rows + n];
        }
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, w, (void **)&p->words));
    *t = (struct tsr_import_int){ .bits = 4,
                                  .group = group,
                                  .scales = p->scales,
                                  .f16 = c->t->dtype == TSR_F16,
                                  .zeros = p->zeros,
                                  .rows = columns,
                                  .source = p };
    return TSR_OK;
}

static tsr_status awq_read(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                           struct tsr_model_packed **out)
{
    struct parts          p = { 0 };
    struct tsr_import_int t;
    if (!tsr_import_find(im, name, "qweight") && tsr_import_find(im, name, "weight"))
        return TSR_OK; /* one of modules_to_not_convert */
    tsr_status st = read_parts(im, name, rows, cols, &p, &t);
    if (st == TSR_OK)
        st = tsr_import_put_int(im, name, rows, cols, &t, out);
    parts_free(&p);
    return st;
}

const struct tsr_importer tsr_importer_awq = {
    .method = "awq",
    .summary = "AWQ GEMM (AutoAWQ, GPTQModel): 4 bits with zero points",
    .open = awq_open,
    .close = free,
    .read = awq_read,
};
