/* MXFP4 as in gpt-oss checkpoints: blocks of 32 values along the inputs.
 *
 *   NAME_blocks U8 [..., N, K/32, 16]   NAME_scales U8 [..., N, K/32]
 *
 * The low nibble is the even column, so a row's bytes are the code stream of tessera.mx/1.  Leading
 * dimensions (experts) count as rows. */
#include "base/mem.h"
#include "checkpoint/import/import.h"

#include <stdlib.h>
#include <string.h>

static tsr_status mxfp4_open(struct tsr_import *im)
{
    (void)im;
    return TSR_OK;
}

struct source {
    const unsigned char *bytes;
    uint64_t             width;
};

static void copy(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                 uint64_t stride)
{
    const struct source *s = source;
    for (uint64_t i = 0; i < n; i++)
        memcpy(dst + i * stride, s->bytes + (first + i) * s->width, s->width);
}

/* The shape without its leading dimensions: [rows, ...]. */
static bool shape_is(const struct tsr_checkpoint_stored *e, uint64_t rows, uint64_t groups,
                     uint64_t bytes)
{
    uint32_t tail = bytes ? 2 : 1, rank = e->t->rank;
    if (rank < tail + 1 || e->t->dtype != TSR_U8)
        return false;
    if (bytes && e->t->shape[rank - 1] != bytes)
        return false;
    return e->t->shape[rank - tail] == groups &&
           tsr_import_elements(e) == rows * groups * (bytes ? bytes : 1);
}

tsr_status tsr_import_e8m0(struct tsr_import *im, const struct tsr_checkpoint_stored *e,
                           uint8_t **out)
{
    uint64_t n = tsr_import_elements(e);
    TSR_TRY(tsr_import_bytes(im, e, (void **)out));
    for (uint64_t i = 0; i < n; i++)
        if ((*out)[i] == 255)
            return tsr_import_fail(im, e,
                                   "has 255 at element %llu, which is not a scale; the file is "
                                   "damaged",
                                   (unsigned long long)i);
    return TSR_OK;
}

static tsr_status put(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                      struct tsr_checkpoint_stored *b, struct tsr_checkpoint_stored *c,
                      struct tsr_model_packed **out)
{
    uint8_t      *scales = NULL;
    void         *bytes = NULL;
    struct source s = { .width = cols / 2 };
    tsr_import_take(im, b);
    tsr_import_take(im, c);
    tsr_status st = tsr_import_e8m0(im, c, &scales);
    if (st == TSR_OK && !im->headers_only)
        st = tsr_import_bytes(im, b, &bytes);
    s.bytes = bytes;
    if (st == TSR_OK)
        st = tsr_import_put_mx(im, name, rows, cols, TSR_MX_FP4_E2M1, 32, scales, copy, &s, out);
    free(scales);
    free(bytes);
    return st;
}

static tsr_status mxfp4_read(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             struct tsr_model_packed **out)
{
    struct tsr_checkpoint_stored *b = tsr_import_find(im, name, "_blocks");
    struct tsr_checkpoint_stored *c = tsr_import_find(im, name, "_scales");
    if (!b && !c)
        return TSR_OK;
    if (!b || !c)
        return tsr_import_fail(im, b ? b : c, "has no \"_%s\" next to it", b ? "scales" : "blocks");
    if (cols % 32 || !shape_is(b, rows, cols / 32, 16))
        return tsr_import_fail(im, b,
                               "is not U8 [..., %llu, %llu, 16] for %llu rows of %llu columns",
                               (unsigned long long)rows, (unsigned long long)(cols / 32),
                               (unsigned long long)rows, (unsigned long long)cols);
    if (!shape_is(c, rows, cols / 32, 0))
        return tsr_import_fail(im, c, "is not U8 [..., %llu, %llu]", (unsigned long long)rows,
                               (unsigned long long)(cols / 32));
    return put(im, name, rows, cols, b, c, out);
}

const struct tsr_importer tsr_importer_mxfp4 = {
    .method = "mxfp4",
    .summary = "MXFP4 tensors as gpt-oss has them (_blocks, _scales)",
    .open = mxfp4_open,
    .close = NULL,
    .read = mxfp4_read,
};
