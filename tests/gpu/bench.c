/* bench.c - times of LINEAR by format, shape and tokens, by the device's own events, beside a copy
 * of a buffer far larger than any cache, which reads and writes each byte once, and beside
 * the device's library on dense F16; LINEARs of more than 8 tokens a second time under numerics: fast, of packed
 * weights with int8 activations both times.
 * Weights that a cache would keep are there several times, in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "bench_attention.h"
#include "pair.h"
#include "quant/quant.h"
#include "tessera/backend_layout.h"

#define ROUNDS  4 /* the best of them counts */
#define FORMATS 11u
#define TOKENS  7u
#define COPIES  32u /* of a weight, at most */

struct bench {
    struct pair                    *p;
    struct pair_device             *d;
    const struct tsr_cuda_bench_v1 *by;
    struct tsr_err                 *err;
    double                          copy, end; /* bytes per second; when to stop */
    double   dense[3][TOKENS];                 /* seconds by shape and tokens; 0: not measured */
    uint64_t left_out;
    bool     small;
    bool     fast; /* d is of numerics: fast */
};

static const uint64_t shapes[3][2] = { { 14336, 4096 }, { 4096, 4096 }, { 1024, 4096 } };
static const uint64_t tokens_of[TOKENS] = { 1, 4, 8, 16, 32, 64, 512 };
#define BY_LIBRARY 3u /* from there on there are enough tokens for numerics: fast */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of one of n operations, `times` over; -1: err. */
static double seconds(struct bench *b, const struct tsr_op *op, uint64_t n, uint64_t times)
{
    double best = -1, s;
    for (int r = 0; r <= ROUNDS; r++) { /* the first warms up */
        if (b->by->ops(b->d->self, op, n, times, &s, b->err) != TSR_OK)
            return -1;
        best = r > 0 && (best < 0 || s < best) ? s : best;
    }
    return best;
}

static bool matrix(struct bench *b, struct tsr_tensor *t, uint64_t rows, uint64_t cols)
{
    *t = (struct tsr_tensor){ .struct_size = sizeof *t,
                              .dtype = TSR_F32,
                              .rows = rows,
                              .cols = cols,
                              .row_stride = cols * 4 };
    return b->d->t->buffer_alloc(b->d->self, rows * cols * 4, &t->buffer, b->err) == TSR_OK;
}

/* Bytes per second that are read and written. */
static double copy_probe(struct bench *b, uint64_t mib)
{
    double best = -1, s;
    for (int r = 0; r < ROUNDS; r++) {
        if (b->by->copy(b->d->self, mib << 20, 4, &s, b->err) != TSR_OK)
            return -1;
        best = best < 0 || s < best ? s : best;
    }
    return best > 0 ? (double)mib * 2 * 1048576 / best : -1;
}

/* ---- a weight of random codes, made fast ------------------------------------------------------ */

static void draw(struct bench *b, uint8_t *p, uint64_t bytes, uint64_t keep, uint64_t set)
{
    uint64_t x = pair_draw(b->p, 1u << 30) * 2 + 1, v;
    for (uint64_t i = 0; i < bytes; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        v = (x & keep) | set;
        memcpy(p + i, &v, bytes - i < 8 ? bytes - i : 8);
    }
}

/* Numbers of a middling size in any of the float types. */
static void draw_floats(struct bench *b, uint8_t *p, uint64_t bytes, uint32_t dtype)
{
    if (dtype == TSR_F32)
        draw(b, p, bytes, UINT64_C(0x807fffff807fffff), UINT64_C(0x3d8000003d800000));
    else if (dtype == TSR_F16)
        draw(b, p, bytes, UINT64_C(0x83ff83ff83ff83ff), UINT64_C(0x2c002c002c002c00));
    else
        draw(b, p, bytes, UINT64_C(0x807f807f807f807f), UINT64_C(0x3d803d803d803d80));
}

/* As many weights with the bytes of the first as no cache holds together: w[1] to w[*n - 1]. */
static bool copies(struct bench *b, struct tsr_weight_desc d, void **w, uint64_t *n)
{
    const struct tsr_backend_layout_v1 *l = b->d->t->extension(b->d->self, TSR_BACKEND_LAYOUT);
    uint64_t                            bytes = b->d->t->weight_bytes(b->d->self, w[0]);
    uint64_t                            want = tsr_cuda_bench_copies(bytes);
    void                               *data = NULL;
    if (want == 1)
        return true;
    if (!l || posix_memalign(&data, 64, bytes) != 0)
        return tsr_fail(b->err, TSR_E_NOMEM, "out of memory: copies of a weight") == TSR_OK;
    d.codes = d.meta = NULL;
    d.code_stride = d.meta_stride = 0;
    bool ok = l->weight_read(b->d->self, w[0], 0, data, bytes, b->err) == TSR_OK;
    while (ok && *n < want) {
        ok = l->weight_borrow(b->d->self, &d, data, bytes, &w[*n], b->err) == TSR_OK;
        *n += ok;
    }
    free(data);
    return ok;
}

static bool weights(struct bench *b, const struct tsr_format *f, uint64_t rows, uint64_t cols,
                    void **w, uint64_t *n)
{
    bool     plain = strcmp(f->id, TSR_FORMAT_FLOAT) == 0, mx = strcmp(f->id, TSR_FORMAT_MX) == 0;
    uint64_t code =
        plain ? cols * (f->dtype == TSR_F32 ? 4 : 2) : tsr_format_int_code_bytes(f, cols);
    uint64_t meta = plain                                  ? 0
                    : strcmp(f->id, TSR_FORMAT_INT) == 0   ? tsr_format_int_meta_bytes(f, cols)
                    : mx                                   ? tsr_format_mx_meta_bytes(f, cols)
                    : strcmp(f->id, TSR_FORMAT_TABLE) == 0 ? tsr_format_table_meta_bytes(f, cols)
                                                           : tsr_format_lut_meta_bytes(f);
    uint8_t *codes = malloc(rows * code), *metas = malloc(rows * meta + 8);
    *n = 0;
    if (!codes || !metas) {
        free(codes);
        free(metas);
        return tsr_fail(b->err, TSR_E_NOMEM, "out of memory: a weight to measure with") == TSR_OK;
    }
    if (plain)
        draw_floats(b, codes, rows * code, f->dtype);
    else
        draw(b, codes, rows * code, UINT64_MAX, 0);
    if (mx) /* exponents near 0 */
        draw(b, metas, rows * meta, UINT64_C(0x0101010101010101), UINT64_C(0x7a7a7a7a7a7a7a7a));
    else
        draw_floats(b, metas, rows * meta, f->scale_dtype);
    struct tsr_weight_desc d = { .struct_size = sizeof d,
                                 .name = "w",
                                 .format = f,
                                 .rows = rows,
                                 .cols = cols,
                                 .codes = codes,
                                 .meta = plain ? NULL : metas,
                                 .code_stride = code,
                                 .meta_stride = meta };
    *n = b->d->t->weight_load(b->d->self, &d, &w[0], b->err) == TSR_OK;
    free(codes);
    free(metas);
    return *n && copies(b, d, w, n);
}

/* ---- what is measured -------------------------------------------------------------------------- */

/* Of the library, once for all formats; where it has none, the first line says so.  False: it has none. */
static bool measure_dense(struct bench *b)
{
    char           text[300];
    struct tsr_err why = { .struct_size = sizeof why, .cap = sizeof text, .text = text };
    text[0] = '\0';
    for (uint64_t s = 0; s < (b->small ? 1 : 3) && !*text; s++)
        for (uint64_t t = 0; t < (b->small ? BY_LIBRARY + 1 : TOKENS) && !*text; t++) {
            double best = 0, one;
            for (int r = 0; r < ROUNDS && !*text; r++) {
                if (b->by->dense(b->d->self, b->small ? 64 : shapes[s][0],
                                 b->small ? 256 : shapes[s][1], tokens_of[t], 10, &one,
                                 &why) != TSR_OK)
                    break;
                best = best == 0 || one < best ? one : best;
            }
            b->dense[s][t] = best;
        }
    for (char *c = text; *c; c++) /* it goes into a string of JSON */
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = '\'';
    (void)printf("{\"copy_gb_per_s\": %.2f, \"cublas\": \"%s\"}\n", b->copy / 1e9,
                 *text ? text : "measured");
    return !*text;
}

/* One line of JSON. */
static bool one(struct bench *b, const struct tsr_format *f, uint64_t shape, uint64_t which,
                const uint64_t size[2], void *const *w, uint64_t n)
{
    struct tsr_tensor in = { 0 }, out = { 0 };
    char              name[64], ratio[64] = "";
    uint64_t          tokens = tokens_of[which];
    double            s = -1, bytes = (double)b->d->t->weight_bytes(b->d->self, w[0]);
    double            dense = b->dense[shape][which];
    if (matrix(b, &in, tokens, size[1]) && matrix(b, &out, tokens, size[0])) {
        struct tsr_op op[COPIES];
        for (uint64_t i = 0; i < n; i++)
            op[i] = (struct tsr_op){ .struct_size = sizeof op[i],
                                     .kind = TSR_OP_LINEAR,
                                     .out = &out,
                                     .in = { &in },
                                     .weight = w[i],
                                     .act = f->id[8] == 'f' ? TSR_ACT_F32 : TSR_ACT_A8 };
        s = seconds(b, op, n, (9 + n) / n); /* ten or more */
    }
    b->d->t->buffer_free(b->d->self, in.buffer);
    b->d->t->buffer_free(b->d->self, out.buffer);
    if (!(s > 0))
        return false;
    if (dense > 0)
        (void)snprintf(ratio, sizeof ratio, ", \"cublas_us\": %.2f, \"over_cublas\": %.3f",
                       dense * 1e6, dense / s);
    tsr_model_format_name(f, name, sizeof name);
    if (f->group)
        (void)snprintf(name + strlen(name), sizeof name - strlen(name), ", group %d",
                       (int)f->group);
    (void)printf("{\"format\": \"%s\", \"numerics\": \"%s\", \"rows\": %d, \"cols\": %d, "
                 "\"tokens\": %d, \"us\": %.2f, "
                 "\"gb_per_s\": %.2f, \"of_copy\": %.4f%s}\n",
                 name, b->fast ? "fast" : "exact", (int)size[0], (int)size[1], (int)tokens, s * 1e6,
                 bytes / s / 1e9, bytes / s / b->copy, ratio);
    return fflush(stdout) == 0;
}

static bool format_of_shape(struct bench *b, const struct tsr_format *f, uint64_t shape)
{
    uint64_t size[2] = { b->small ? 64 : shapes[shape][0], b->small ? 256 : shapes[shape][1] };
    uint64_t first = b->fast ? BY_LIBRARY : 0, end = b->fast && b->small ? BY_LIBRARY + 1
                                                     : b->small          ? 2
                                                                         : TOKENS;
    void    *w[COPIES] = { NULL };
    uint64_t made;
    if (now() > b->end) {
        char name[64];
        tsr_model_format_name(f, name, sizeof name);
        (void)printf("{\"left\": \"%s, %d x %d, %s\"}\n", name, (int)size[0], (int)size[1],
                     b->fast ? "fast" : "exact");
        b->left_out += end - first;
        return true;
    }
    bool ok = weights(b, f, size[0], size[1], w, &made);
    for (uint64_t t = first; ok && t < end; t++)
        ok = one(b, f, shape, t, size, w, made);
    for (uint64_t i = 0; i < made; i++)
        b->d->t->weight_free(b->d->self, w[i]);
    return ok;
}

/* All formats at one shape. */
static bool shape_of(struct bench *b, uint64_t shape)
{
    struct tsr_format f;
    for (uint64_t i = 0; i < (b->small ? 4 : FORMATS) && pair_format_at(i, &f); i++)
        if (!format_of_shape(b, &f, shape))
            return false;
    return true;
}

bool pair_bench(struct pair *p, struct pair *fast, uint64_t for_seconds)
{
    struct bench b = { .p = p,
                       .d = &p->d[1],
                       .err = &p->err.err,
                       .small = for_seconds == 0,
                       .end = now() + (for_seconds ? (double)for_seconds : 1e9) };
    b.by = b.d->t->extension ? b.d->t->extension(b.d->self, TSR_CUDA_BENCH) : NULL;
    if (!b.by)
        return tsr_fail(b.err, TSR_E_UNSUPPORTED, "the backend has no extension " TSR_CUDA_BENCH) ==
               TSR_OK;
    b.copy = copy_probe(&b, b.small ? 1 : 256);
    if (!(b.copy > 0))
        return false;
    const struct attention_bench attention = {
        .d = b.d, .fast = &fast->d[1], .by = b.by, .copy = b.copy, .small = b.small, .err = b.err
    };
    bool library = measure_dense(&b); /* or both would be the same kernels */
    if (!pair_bench_attention(&attention))
        return false;
    for (uint64_t shape = 0; shape < (b.small ? 1 : 3); shape++) {
        b.fast = false;
        b.d = &p->d[1];
        bool ok = shape_of(&b, shape);
        b.fast = true;
        b.d = &fast->d[1];
        if (!ok || (library && !shape_of(&b, shape)))
            return false;
    }
    (void)printf("{\"left_out\": %d}\n", (int)b.left_out);
    return true;
}
