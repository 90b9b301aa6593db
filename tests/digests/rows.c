/* rows.c - the operations on rows, the conversion to BF16, and the functions that they are made of. */
#include "digests.h"

#include "../unit/cpu_fixture.h"

#include <math.h>

#define T 3u

struct input {
    const void *data;
    uint32_t    dtype;
    uint64_t    rows, cols;
};

static void begin(const char *what, uint64_t i)
{
    digest_begin("%s %u", what, (unsigned)i);
    seed_state = digest_seed();
}

static void run(struct tsr_cpu *c, struct tsr_op op, uint64_t rows, uint64_t cols,
                const struct input *in, int n)
{
    struct tsr_tensor t[TSR_OP_INPUTS], out = dev(c, NULL, TSR_F32, rows, cols, 8);
    op.struct_size = sizeof op;
    op.out = &out;
    for (int i = 0; i < n; i++)
        if (in[i].data) {
            t[i] = dev(c, in[i].data, in[i].dtype, in[i].rows, in[i].cols, i ? 0 : 4);
            op.in[i] = &t[i];
        }
    run_ok(c, &op);
    float *y = host_of(c, &out);
    digest_floats(y, rows * cols);
    free(y);
    for (int i = 0; i < n; i++)
        if (in[i].data)
            undev(c, &t[i]);
    undev(c, &out);
}

static const uint64_t widths[] = { 1, 2, 15, 16, 17, 48, 172, 300, 1000 };
#define WIDTHS (sizeof widths / sizeof *widths)

/* Every function over numbers of its whole range, and those that are none. */
static void elementwise(struct tsr_cpu *c)
{
    static const float special[] = { NAN,    INFINITY, -INFINITY, 0.0f, -0.0f,
                                     1e-40f, 88.8f,    -90.0f,    1e30f };
    for (uint64_t i = 0; i < WIDTHS; i++) {
        const uint64_t n = widths[i];
        begin("act", i);
        float *x = rnd_new(T * n, 12.0f), *b = rnd_new(T * n, 12.0f);
        for (uint64_t k = 0; k < 9 && k < T * n; k++) {
            x[k] = special[(k + i) % 9];
            b[T * n - 1 - k] = special[(k + 2 * i) % 9];
        }
        struct input  in[] = { { x, TSR_F32, T, n }, { b, TSR_F32, T, n } };
        struct tsr_op op = { .kind = TSR_OP_ACT, .scale = 1.702f, .softcap = 7 };
        for (op.func = TSR_FUNC_SILU; op.func <= TSR_FUNC_CLAMPED; op.func++) {
            run(c, op, T, n, in, 2);
            if (op.func != TSR_FUNC_CLAMPED)
                run(c, op, T, n, in, 1);
        }
        run(c, (struct tsr_op){ .kind = TSR_OP_ADD }, T, n, in, 2);
        run(c, (struct tsr_op){ .kind = TSR_OP_SCALE, .scale = 0.3f }, T, n, in, 1);
        run(c, (struct tsr_op){ .kind = TSR_OP_SCALE, .scale = 0.3f, .softcap = 1.5f }, T, n, in,
            1);
        digest_end();
        free(x);
        free(b);
    }
}

static void norms(struct tsr_cpu *c)
{
    for (uint64_t i = 0; i < 2 * WIDTHS; i++) {
        const uint64_t n = widths[i / 2];
        begin("norm", i);
        float        *x = rnd_new(T * n, 3.0f), *g = rnd_new(n, 1.0f), *b = rnd_new(n, 1.0f);
        struct input  in[] = { { x, TSR_F32, T, n },
                               { g, TSR_F32, 1, n },
                               { i % 3 ? b : NULL, TSR_F32, 1, n } };
        struct tsr_op op = {
            .kind = TSR_OP_NORM, .norm = i % 2, .eps = 1e-5f, .gain_offset = i % 4 ? 0.0f : 1.0f
        };
        run(c, op, T, n, in, 3);
        digest_end();
        free(x);
        free(g);
        free(b);
    }
}

static void rope(struct tsr_cpu *c)
{
    static const uint32_t dims[][3] = { { 1, 2, 2 },   { 2, 8, 8 },   { 3, 64, 64 },
                                        { 2, 80, 32 }, { 4, 96, 96 }, { 1, 256, 128 },
                                        { 2, 34, 34 } };
    for (uint64_t i = 0; i < 14; i++) {
        const uint32_t heads = dims[i / 2][0], dim = dims[i / 2][1], turned = dims[i / 2][2];
        const uint64_t n = (uint64_t)heads * dim;
        begin("rope", i);
        float *x = rnd_new(T * n, 1), *c1 = rnd_new((uint64_t)T * turned / 2, 1),
              *s = rnd_new((uint64_t)T * turned / 2, 1);
        struct input  in[] = { { x, TSR_F32, T, n },
                               { c1, TSR_F32, T, turned / 2 },
                               { s, TSR_F32, T, turned / 2 } };
        struct tsr_op op = { .kind = TSR_OP_ROPE,
                             .heads = heads,
                             .head_dim = dim,
                             .rotary_dim = turned,
                             .func = i % 2 ? TSR_ROPE_ADJACENT : TSR_ROPE_HALVES };
        run(c, op, T, n, in, 3);
        digest_end();
        free(x);
        free(c1);
        free(s);
    }
}

static void hadamard(struct tsr_cpu *c)
{
    static const uint32_t cases[][3] = { { 1, 1, 3 },    { 2, 1, 5 },   { 8, 1, 4 },
                                         { 16, 1, 1 },   { 32, 1, 3 },  { 64, 1, 2 },
                                         { 128, 1, 1 },  { 512, 1, 2 }, { 2048, 1, 1 },
                                         { 12, 12, 2 },  { 96, 12, 3 }, { 192, 3, 2 },
                                         { 1792, 28, 1 } };
    for (uint64_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t n = cases[i][0], b = cases[i][1], cols = n * cases[i][2];
        begin("hadamard", i);
        float *x = rnd_new(T * cols, 1), *sign = rnd_new(b * b, 1);
        for (uint64_t k = 0; k < b * b; k++)
            sign[k] = sign[k] < 0 ? -1.0f : 1.0f;
        struct input in[] = { { x, TSR_F32, T, cols }, { b > 1 ? sign : NULL, TSR_F32, b, b } };
        run(c, (struct tsr_op){ .kind = TSR_OP_HADAMARD, .head_dim = (uint32_t)n }, T, cols, in, 2);
        digest_end();
        free(x);
        free(sign);
    }
}

static void moved(struct tsr_cpu *c)
{
    const uint32_t rows[12] = { 6, 0, 6, 3, 3, 1, 2, 5, 4, 0, 0, 0 };
    begin("rows", 0);
    float       *x = rnd_new((uint64_t)7 * 33, 1), *w = rnd_new(12, 2);
    struct input gather[] = { { x, TSR_F32, 7, 33 }, { rows, TSR_U32, 1, 4 } };
    struct input mix[] = { { x, TSR_F32, 7, 33 }, { w, TSR_F32, 4, 3 }, { rows, TSR_U32, 4, 3 } };
    run(c, (struct tsr_op){ .kind = TSR_OP_GATHER }, 4, 33, gather, 2);
    run(c, (struct tsr_op){ .kind = TSR_OP_COLUMNS }, 7, 4, gather, 2);
    run(c, (struct tsr_op){ .kind = TSR_OP_MIX }, 4, 33, mix, 3);
    digest_end();
    free(x);
    free(w);
}

/* exp, tanh and erf over random bits, which no operation reaches alone. */
static void functions(struct tsr_cpu *c)
{
    enum { N = 5000 };
    static float x[N], y[N];
    for (uint32_t which = 0; which < 3; which++) {
        begin("math", which);
        for (uint64_t i = 0; i < N; i++) {
            const uint32_t any = (uint32_t)rnd();
            x[i] = 20 * rnd_f32();
            if (i % 4 == 0)
                memcpy(x + i, &any, 4);
        }
        c->k->math(y, x, N, which);
        digest_floats(y, N);
        digest_end();
    }
    begin("round_bf16", 0);
    for (uint64_t i = 0; i < N; i++) {
        const uint32_t any = (uint32_t)rnd();
        memcpy(x + i, &any, 4);
    }
    c->k->round_bf16(y, x, N);
    digest_floats(y, N);
    digest_end();
}

void row_cases(struct tsr_cpu *c)
{
    elementwise(c);
    norms(c);
    rope(c);
    hadamard(c);
    moved(c);
    functions(c);
}
