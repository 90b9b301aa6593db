/* What the kernels ask of memory, counted by the emulation (simt_trace.h): wavefronts of shared memory for those that a
 * request takes without a conflict of banks, and sectors of global memory for those whose bytes are all used.
 *
 *   test_traffic TRAFFIC.tsv [--write]
 *
 * Shapes are those of a model with aligned rows.  Fails where a figure is above TRAFFIC.tsv, and says which kernels are
 * above 1.05. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "host.h"
#include "simt/simt.h"
#include "simt/simt_trace.h"
#include "tessera/format.h"

#define AIM    1.05
#define COLS   UINT64_C(1024) /* eight segments of a block of activations */
#define ROWS   UINT64_C(128)
#define TOKENS UINT64_C(128)
#define HEADS  8u
#define KV     2u
#define DIM    64u
#define CACHE  UINT64_C(600) /* positions */
#define BLOCKS 1000u         /* of a launch that are counted: all */

static char           text[400];
static struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };

struct rig {
    void             *self;
    struct tsr_tensor x, y, z, gain, angles, rows, keys, values, spans;
};

static int tensor(void *self, struct tsr_tensor *t, uint32_t dtype, uint64_t rows, uint64_t cols)
{
    const uint64_t each = dtype == TSR_F16 ? 2 : 4;
    *t = (struct tsr_tensor){ .struct_size = sizeof *t,
                              .dtype = dtype,
                              .rows = rows,
                              .cols = cols,
                              .row_stride = cols * each };
    if (tsr_cuda_buffer_alloc(self, rows * cols * each, &t->buffer, &err) != TSR_OK)
        return 0;
    if (dtype == TSR_U32) /* rows of the cache; spans begin at 0 */
        return 1;
    uint8_t   *p = malloc(rows * cols * each);
    tsr_status st = p ? TSR_OK : tsr_fail(&err, TSR_E_NOMEM, "out of memory: a tensor");
    for (uint64_t i = 0; p && i < rows * cols; i++) {
        const float    f = (float)(int)(i * 7919u % 1009u) / 300.0f - 1.5f;
        const uint16_t half = (uint16_t)(0x2c00u + i % 1000u);
        memcpy(p + i * each, each == 2 ? (const void *)&half : (const void *)&f, each);
    }
    if (st == TSR_OK)
        st = tsr_cuda_upload(self, t->buffer, 0, p, rows * cols * each, &err);
    free(p);
    return st == TSR_OK;
}

static int indices(struct rig *r)
{
    uint32_t rows[TOKENS], spans[2 * TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) {
        rows[i] = i;
        spans[2 * i] = 0;
        spans[2 * i + 1] = (uint32_t)(CACHE - TOKENS) + i;
    }
    return tsr_cuda_upload(r->self, r->rows.buffer, 0, rows, sizeof rows, &err) == TSR_OK &&
           tsr_cuda_upload(r->self, r->spans.buffer, 0, spans, sizeof spans, &err) == TSR_OK;
}

/* Few, so that one large block of tokens fills the device. */
static uint32_t units(const void *device)
{
    (void)device;
    return 1;
}

static int open_rig(struct rig *r)
{
    static struct tsr_cuda_api api;
    struct tsr_cuda_options    o = { .launching = TSR_CUDA_ONE_BY_ONE };
    api = tsr_cuda_simt;
    api.units = units;
    return tsr_cuda_create(&host, &api, &o, &r->self, &err) == TSR_OK &&
           tensor(r->self, &r->x, TSR_F32, TOKENS, COLS) &&
           tensor(r->self, &r->y, TSR_F32, TOKENS, COLS) &&
           tensor(r->self, &r->z, TSR_F32, TOKENS, COLS) &&
           tensor(r->self, &r->gain, TSR_F32, 1, COLS) &&
           tensor(r->self, &r->angles, TSR_F32, TOKENS, DIM / 2) &&
           tensor(r->self, &r->keys, TSR_F16, CACHE, (uint64_t)KV * DIM) &&
           tensor(r->self, &r->values, TSR_F16, CACHE, (uint64_t)KV * DIM) &&
           tensor(r->self, &r->rows, TSR_U32, 1, TOKENS) &&
           tensor(r->self, &r->spans, TSR_U32, TOKENS, 2) && indices(r);
}

static void close_rig(struct rig *r)
{
    struct tsr_tensor *all[] = { &r->x,    &r->y,      &r->z,    &r->gain, &r->angles,
                                 &r->keys, &r->values, &r->rows, &r->spans };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        tsr_cuda_buffer_free(r->self, all[i]->buffer);
    tsr_cuda_destroy(r->self);
}

/* The first rows of t, and the first columns. */
static struct tsr_tensor part(const struct tsr_tensor *t, uint64_t rows, uint64_t cols)
{
    struct tsr_tensor v = *t;
    v.rows = rows;
    v.cols = cols;
    return v;
}

static int run(struct rig *r, struct tsr_op *op)
{
    op->struct_size = sizeof *op;
    return tsr_cuda_run(r->self, NULL, op, &err) == TSR_OK &&
           tsr_cuda_sync(r->self, NULL, &err) == TSR_OK;
}

/* ---- cases -------------------------------------------------------------------------------- */

static int linear_of(struct rig *r, const struct tsr_format *f, uint32_t act, uint64_t tokens,
                     uint64_t cols)
{
    const int      plain = strcmp(f->id, TSR_FORMAT_FLOAT) == 0;
    const uint64_t code = plain ? cols * 4 : cols * f->bits / 8;
    const uint64_t meta =
        plain ? 0 : (cols + f->group - 1) / f->group * (f->zero == TSR_ZERO_STORED ? 3 : 2);
    uint8_t               *codes = calloc(ROWS, code), *metas = calloc(ROWS, meta + 1);
    void                  *w = NULL;
    struct tsr_weight_desc d = { .struct_size = sizeof d,
                                 .name = "w",
                                 .format = f,
                                 .rows = ROWS,
                                 .cols = cols,
                                 .codes = codes,
                                 .meta = plain ? NULL : metas,
                                 .code_stride = code,
                                 .meta_stride = meta };
    struct tsr_tensor      x = part(&r->x, tokens, cols), out = part(&r->y, tokens, ROWS);
    struct tsr_op          op = { .kind = TSR_OP_LINEAR, .out = &out, .in = { &x }, .act = act };
    int ok = codes && metas && tsr_cuda_weight_load(r->self, &d, &w, &err) == TSR_OK;
    op.weight = w;
    ok = ok && run(r, &op);
    if (w)
        tsr_cuda_weight_free(r->self, w);
    free(codes);
    free(metas);
    return ok;
}

static int linear(struct rig *r, const struct tsr_format *f, uint32_t act, uint64_t tokens)
{
    return linear_of(r, f, act, tokens, COLS);
}

#define FORMAT(...) ((struct tsr_format){ .struct_size = sizeof(struct tsr_format), __VA_ARGS__ })
static int linears(struct rig *r)
{
    const struct tsr_format f32 = FORMAT(.id = TSR_FORMAT_FLOAT, .bits = 32, .dtype = TSR_F32);
    const struct tsr_format formats[] = {
        FORMAT(.id = TSR_FORMAT_INT, .bits = 4, .group = 128, .scale_dtype = TSR_F16),
        FORMAT(.id = TSR_FORMAT_INT, .bits = 8, .group = 128, .scale_dtype = TSR_F16),
        FORMAT(.id = TSR_FORMAT_TABLE, .bits = 4, .group = 64, .scale_dtype = TSR_F16,
               .table = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 }),
    };
    const struct tsr_format zeros = FORMAT(.id = TSR_FORMAT_INT, .bits = 4, .group = 128,
                                           .zero = TSR_ZERO_STORED, .scale_dtype = TSR_F16);
    const struct tsr_format quarters =
        FORMAT(.id = TSR_FORMAT_INT, .bits = 4, .group = 32, .scale_dtype = TSR_F16);
    const uint64_t tokens[] = { 1, 16, 32 };
    for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++)
        for (unsigned j = 0; j < sizeof tokens / sizeof *tokens; j++)
            if (!linear(r, &formats[i], TSR_ACT_A8, tokens[j]))
                return 0;
    /* the last segment is no whole block */
    return linear_of(r, &formats[0], TSR_ACT_A8, 1, COLS - 32) &&
           linear_of(r, &quarters, TSR_ACT_A8, 1, COLS - 64) &&
           linear(r, &quarters, TSR_ACT_A8, 8) && linear(r, &zeros, TSR_ACT_A8, 1) &&
           linear(r, &formats[0], TSR_ACT_A8, TOKENS) &&
           linear(r, &formats[1], TSR_ACT_A8, TOKENS) && linear(r, &f32, TSR_ACT_F32, 1) &&
           linear(r, &f32, TSR_ACT_F32, 8) && linear(r, &f32, TSR_ACT_F32, 16) &&
           linear(r, &f32, TSR_ACT_F32, 32) && linear(r, &f32, TSR_ACT_F32, 64);
}

static int elements(struct rig *r)
{
    struct tsr_tensor x = part(&r->x, 4, COLS), y = part(&r->y, 4, COLS), z = part(&r->z, 4, COLS);
    struct tsr_op     add = { .kind = TSR_OP_ADD, .out = &z, .in = { &x, &y } };
    struct tsr_op     norm = {
            .kind = TSR_OP_NORM, .out = &z, .in = { &x, &r->gain }, .norm = TSR_NORM_RMS, .eps = 1e-5f
    };
    struct tsr_op act = { .kind = TSR_OP_ACT, .out = &z, .in = { &x, &y }, .func = TSR_FUNC_SILU };
    return run(r, &add) && run(r, &norm) && run(r, &act);
}

static int attention(struct rig *r, uint64_t tokens)
{
    struct tsr_tensor q = part(&r->x, tokens, (uint64_t)HEADS * DIM),
                      out = part(&r->y, tokens, (uint64_t)HEADS * DIM),
                      k = part(&r->z, tokens, (uint64_t)KV * DIM),
                      angles = part(&r->angles, tokens, DIM / 2), rows = part(&r->rows, 1, tokens),
                      spans = part(&r->spans, tokens, 2);
    struct tsr_op rope = { .kind = TSR_OP_ROPE,
                           .out = &q,
                           .in = { &q, &angles, &angles },
                           .heads = HEADS,
                           .head_dim = DIM,
                           .rotary_dim = DIM };
    struct tsr_op store = { .kind = TSR_OP_KV_STORE,
                            .out = &r->keys,
                            .in = { &k, &rows },
                            .kv_heads = KV,
                            .head_dim = DIM };
    struct tsr_op attend = { .kind = TSR_OP_ATTENTION,
                             .out = &out,
                             .in = { &q, &r->keys, &r->values, &spans },
                             .heads = HEADS,
                             .kv_heads = KV,
                             .head_dim = DIM,
                             .scale = 0.125f };
    return run(r, &rope) && run(r, &store) && run(r, &attend);
}

/* ---- the table ---------------------------------------------------------------------------- */

static double over(uint64_t n, uint64_t least)
{
    return least ? (double)n / (double)least : 1.0;
}

/* Of the table: 1, 0 where the kernel is not there. */
static int known(const char *path, const char *kernel, double *wavefronts, double *sectors)
{
    char  line[300], name[64];
    FILE *f = fopen(path, "r");
    int   found = 0;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%63s %lf %lf", name, wavefronts, sectors) == 3 &&
                strcmp(name, kernel) == 0;
    if (f)
        (void)fclose(f);
    return found;
}

static int compare(const struct simt_trace *t, const char *path, FILE *to)
{
    unsigned above = 0, bad = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct simt_traffic *k = &t->of[i];
        const double               w = over(k->wavefronts, k->least_wavefronts);
        const double               s = over(k->sectors, k->least_sectors);
        double                     w0 = 0, s0 = 0;
        if (k->cut) {
            (void)fprintf(stderr, "%s: a block has more accesses than the trace has room for\n",
                          k->kernel);
            bad++;
        }
        if (k->least_sectors == 0) {
            (void)fprintf(stderr, "%s: no access was seen: these kernels have no hooks\n",
                          k->kernel);
            bad++;
        }
        if (!(w <= AIM) || !(s <= AIM)) {
            above++;
            (void)printf("%s: %.2f wavefronts and %.2f sectors for each that is needed\n",
                         k->kernel, w, s);
        }
        if (to) {
            (void)fprintf(to, "%s\t%.2f\t%.2f\n", k->kernel, w, s);
        } else if (!known(path, k->kernel, &w0, &s0)) {
            (void)fprintf(stderr, "%s: is not in %s\n", k->kernel, path);
            bad++;
        } else if (!(w <= w0 + 0.02) || !(s <= s0 + 0.02)) {
            (void)fprintf(stderr,
                          "%s: %.2f wavefronts and %.2f sectors for each that is needed, the table "
                          "has %.2f and %.2f\n",
                          k->kernel, w, s, w0, s0);
            bad++;
        }
    }
    (void)printf("%u kernels; %u are above %.2f\n", t->n, above, AIM);
    return bad == 0 && t->n > 0;
}

int main(int argc, char **argv)
{
    static struct rig        r;
    static struct simt_trace t = { .blocks = BLOCKS };
    if (argc < 2)
        return 2;
    FILE *to = argc > 2 && strcmp(argv[2], "--write") == 0 ? fopen(argv[1], "w") : NULL;
    if (argc > 2 && !to) {
        (void)fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    int ok = open_rig(&r) && simt_trace(&t) && linears(&r) && elements(&r) && attention(&r, 1) &&
             attention(&r, 40);
    (void)simt_trace(NULL);
    if (!ok)
        (void)fprintf(stderr, "%s\n", *text ? text : "out of memory");
    if (to)
        (void)fprintf(to, "# written by test_traffic TRAFFIC.tsv --write\n"
                          "# kernel, wavefronts for each that is needed, sectors for each that is "
                          "needed\n");
    ok = ok && compare(&t, argv[1], to);
    if (to)
        ok &= fclose(to) == 0;
    close_rig(&r);
    return ok ? 0 : 1;
}
