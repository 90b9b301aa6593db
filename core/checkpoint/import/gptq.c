/* GPTQ (AutoGPTQ, GPTQModel): codes packed along the inputs, a column for each output.
 *
 *   qweight I32 [K*bits/32, N]   qzeros I32 [groups, N*bits/32]   scales [groups, N]   g_idx I32 [K]
 *
 * A column of qweight, word after word, is the bit stream of an output's row, also for 3 bits.
 * Zero points come in two versions: v1 stores one less than v2. */
#include "checkpoint/import/gptq.h"
#include "base/f16.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLE       UINT64_C(65536) /* codes whose mean is known to a twentieth of a step */
#define SAMPLE_ROWS  64u             /* of a matrix */
#define SAMPLE_WORDS 4096u           /* of a row */

/* ---- zero points ---------------------------------------------------------------------- */

/* Adds 1 to every field of a row of words, each word on its own and modulo 2^32: what undoes a
 * subtraction that was done so. */
static void add_by_word(uint32_t *words, uint64_t n, uint32_t bits)
{
    for (uint64_t w = 0; w < n; w++) {
        uint32_t one = 0;
        for (uint32_t i = 0; i < 32; i++)
            if ((32 * w + i) % bits == 0)
                one |= 1u << i;
        words[w] += one;
    }
}

/* How many fields of the raw zero points have a value. */
static void count_fields(const uint8_t *raw, uint64_t n, uint32_t bits, uint64_t *middle,
                         uint64_t *below, uint64_t *ones)
{
    uint8_t mid = (uint8_t)(1u << (bits - 1)), all = (uint8_t)((1u << bits) - 1u);
    *middle = *below = *ones = 0;
    for (uint64_t i = 0; i < n; i++) {
        *middle += raw[i] == mid;
        *below += raw[i] == mid - 1;
        *ones += raw[i] == all;
    }
}

/* Which version these are.  The data of a symmetric matrix say it; otherwise the header does. */
static bool is_v2(struct tsr_import *im, const struct tsr_import_gptq_scheme *s,
                  const struct tsr_checkpoint_stored *e, uint64_t n, uint64_t middle,
                  uint64_t below)
{
    struct tsr_import_gptq *g = im->own;
    bool known = s->sym && (middle == n || below == n), v2 = known ? middle == n : g->v2;
    if (g->said || (known ? v2 == g->v2 : !s->sym))
        return v2;
    if (known)
        tsr_logf(TSR_LOG_WARN,
                 "%s says that zero points are stored as %s, but those of \"%s\" are %s; the data "
                 "are believed",
                 im->where, g->v2 ? "v2" : "v1", e->t->name, v2 ? "v2" : "v1");
    else
        tsr_logf(TSR_LOG_WARN,
                 "%s says that the weights are symmetric, but zero points of \"%s\" differ; they "
                 "are read as they are stored",
                 im->where, e->t->name);
    g->said = true;
    return v2;
}

/* words [groups, N*bits/32] -> zeros [N, groups] */
static void read_zeros(struct tsr_import *im, const struct tsr_import_gptq_scheme *s,
                       const struct tsr_checkpoint_stored *e, uint32_t *words, uint64_t groups,
                       uint64_t rows, uint8_t *raw, uint8_t *zeros)
{
    const struct tsr_import_gptq *g = im->own;
    uint32_t                      bits = (uint32_t)s->bits, mask = (1u << bits) - 1u;
    uint64_t                      width = rows * bits / 32, middle, below, ones;
    for (uint64_t i = 0; i < groups; i++)
        tsr_import_unpack(words + i * width, 0, bits, rows, raw + i * rows);
    count_fields(raw, groups * rows, bits, &middle, &below, &ones);
    uint32_t add = is_v2(im, s, e, groups * rows, middle, below) ? 0 : 1;
    if (add && ones) { /* a zero point of 0 went below 0: into its neighbour, or round */
        tsr_import_note(im, g->by_word
                                ? "zero points of 0 were stored by subtracting from whole words "
                                  "(GPTQModel, v1); the words are restored"
                                : "zero points of 0 were stored as all ones (v1); they are read "
                                  "field by field");
        for (uint64_t i = 0; g->by_word && i < groups; i++) {
            add_by_word(words + i * width, width, bits);
            tsr_import_unpack(words + i * width, 0, bits, rows, raw + i * rows);
        }
        add = g->by_word ? 0 : 1;
    }
    for (uint64_t i = 0; i < groups; i++)
        for (uint64_t n = 0; n < rows; n++)
            zeros[n * groups + i] = (uint8_t)((raw[i * rows + n] + add) & mask);
}

/* ---- a matrix ------------------------------------------------------------------------- */

struct parts {
    uint32_t *words;  /* qweight */
    uint32_t *zwords; /* qzeros */
    uint8_t  *raw, *zeros;
    float    *stored, *scales;
    int32_t  *g_idx;
    uint32_t *order;
    uint64_t  rows, height; /* columns and rows of qweight */
};

static void parts_free(struct parts *p)
{
    free(p->words);
    free(p->zwords);
    free(p->raw);
    free(p->zeros);
    free(p->stored);
    free(p->scales);
    free(p->g_idx);
    free(p->order);
}

static void columns(const void *source, uint64_t first, uint64_t n, unsigned char *dst,
                    uint64_t stride)
{
    const struct parts *p = source;
    for (uint64_t w = 0; w < p->height; w++)
        for (uint64_t i = 0; i < n; i++)
            memcpy(dst + i * stride + 4 * w, &p->words[w * p->rows + first + i], 4);
}

/* The group of each column.  order stays NULL if it is k / group. */
static tsr_status read_order(struct tsr_import *im, const char *name, struct parts *p,
                             uint64_t cols, uint64_t group, uint64_t groups)
{
    struct tsr_checkpoint_stored *e = tsr_import_find(im, name, "g_idx");
    bool                          plain = true;
    if (!e)
        return TSR_OK;
    TSR_TRY(tsr_import_need(im, name, "g_idx", "I32", 1, &cols, &e));
    TSR_TRY(tsr_import_bytes(im, e, (void **)&p->g_idx));
    if (!(p->order = tsr_new(cols, sizeof *p->order)))
        return tsr_fail_nomem(im->err, cols * sizeof *p->order, name);
    for (uint64_t k = 0; k < cols; k++) {
        int64_t g = p->g_idx[k];
        g += g < 0 ? (int64_t)groups : 0;
        if (g < 0 || (uint64_t)g >= groups)
            return tsr_import_fail(im, e, "has group %d for column %llu; there are %llu groups",
                                   p->g_idx[k], (unsigned long long)k, (unsigned long long)groups);
        p->order[k] = (uint32_t)g;
        plain = plain && (uint64_t)g == k / group;
    }
    if (plain) {
        free(p->order);
        p->order = NULL;
    }
    return TSR_OK;
}

static tsr_status read_parts(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                             const struct tsr_import_gptq_scheme *s, struct parts *p,
                             struct tsr_import_int *t)
{
    uint64_t bits = (uint64_t)s->bits, group = s->group < 0 ? cols : (uint64_t)s->group;
    uint64_t groups = cols / group + (cols % group != 0);
    if (cols * bits % 32 || rows * bits % 32)
        return tsr_fail(im->err, TSR_E_INPUT,
                        "%s: \"%.200s\" is [%llu, %llu], which %llu bits do not fill whole words "
                        "with; GPTQ cannot hold it",
                        im->where, name, (unsigned long long)rows, (unsigned long long)cols,
                        (unsigned long long)bits);
    const uint64_t shape[2] = { cols * bits / 32, rows };
    const uint64_t zshape[2] = { groups, rows * bits / 32 }, sshape[2] = { groups, rows };
    struct tsr_checkpoint_stored *w, *z, *c;
    TSR_TRY(tsr_import_need(im, name, "qweight", "I32", 2, shape, &w));
    TSR_TRY(tsr_import_need(im, name, "qzeros", "I32", 2, zshape, &z));
    TSR_TRY(tsr_import_need(im, name, "scales", "F16 BF16 F32", 2, sshape, &c));
    p->rows = rows;
    p->height = shape[0];
    TSR_TRY(read_order(im, name, p, cols, group, groups));
    TSR_TRY(tsr_import_bytes(im, z, (void **)&p->zwords));
    TSR_TRY(tsr_import_floats(im, c, &p->stored));
    p->raw = tsr_new(groups * rows, 1);
    p->zeros = tsr_new(groups * rows, 1);
    p->scales = tsr_new(groups * rows, sizeof *p->scales);
    if (!p->raw || !p->zeros || !p->scales)
        return tsr_fail_nomem(im->err, groups * rows * 6, name);
    read_zeros(im, s, z, p->zwords, groups, rows, p->raw, p->zeros);
    for (uint64_t g = 0; g < groups; g++)
        for (uint64_t n = 0; n < rows; n++)
            p->scales[n * groups + g] = p->stored[g * rows + n];
    if (!im->headers_only)
        TSR_TRY(tsr_import_bytes(im, w, (void **)&p->words));
    *t = (struct tsr_import_int){ .bits = (uint32_t)bits,
                                  .group = group,
                                  .scales = p->scales,
                                  .f16 = c->t->dtype == TSR_F16,
                                  .zeros = p->zeros,
                                  .order = p->order,
                                  .rows = columns,
                                  .source = p };
    return TSR_OK;
}

/* Weights average 0.  Zero points of the other version would move all of them by a step, which no
 * header can be believed against in silence. */
static void watch_mean(struct tsr_import *im, const struct tsr_import_gptq_scheme *s,
                       const struct parts *p, uint64_t cols, uint64_t groups, uint8_t *codes)
{
    struct tsr_import_gptq *g = im->own;
    uint64_t                before = g->n, group = s->group < 0 ? cols : (uint64_t)s->group;
    uint32_t                column[SAMPLE_WORDS];
    if (im->again || s->sym || !p->words || p->order || p->height > SAMPLE_WORDS)
        return;
    for (uint64_t n = 0; n < p->rows; n += 1 + p->rows / SAMPLE_ROWS) {
        for (uint64_t w = 0; w < p->height; w++)
            column[w] = p->words[w * p->rows + n];
        tsr_import_unpack(column, 0, (uint32_t)s->bits, cols, codes);
        for (uint64_t k = 0; k < cols; k++) {
            uint64_t at = n * groups + k / group;
            g->sum += (double)codes[k] - (double)p->zeros[at];
        }
        g->n += cols;
    }
    double mean = g->sum / (double)g->n;
    if (before < SAMPLE && g->n >= SAMPLE && (g->v2 ? mean > 0.5 : mean < -0.5))
        tsr_logf(TSR_LOG_WARN,
                 "%s: with zero points of %s the weights average %+.2f steps, with those of %s "
                 "%+.2f; if the model talks nonsense, \"checkpoint_format\" is wrong",
                 im->where, g->v2 ? "v2" : "v1", mean, g->v2 ? "v1" : "v2",
                 g->v2 ? mean - 1 : mean + 1);
}

static tsr_status gptq_read(struct tsr_import *im, const char *name, uint64_t rows, uint64_t cols,
                            struct tsr_model_packed **out)
{
    struct tsr_import_gptq_scheme s;
    struct parts                  p = { 0 };
    struct tsr_import_int         t;
    if (!tsr_import_find(im, name, "qweight") && tsr_import_find(im, name, "weight"))
        return TSR_OK; /* left as it was */
    TSR_TRY(tsr_import_gptq_scheme_of(im, name, &s));
    uint8_t   *codes = tsr_new(cols, 1);
    tsr_status st =
        codes ? read_parts(im, name, rows, cols, &s, &p, &t) : tsr_fail_nomem(im->err, cols, name);
    if (st == TSR_OK)
        watch_mean(im, &s, &p, cols, cols / t.group + (cols % t.group != 0), codes);
    if (st == TSR_OK)
        st = tsr_import_put_int(im, name, rows, cols, &t, out);
    free(codes);
    parts_free(&p);
    return st;
}

const struct tsr_importer tsr_importer_gptq = {
    .method = "gptq",
    .summary = "GPTQ v1 and v2 (AutoGPTQ, GPTQModel): 2, 3, 4 and 8 bits, g_idx, dynamic rules",
    .open = tsr_import_gptq_open,
    .close = tsr_import_gptq_close,
    .read = gptq_read,
};
