/* The row operations and attention: near double precision, and the same bytes on every
 * instruction set.  Tolerances are in units of the result's own size; the reason stands
 * beside each. */
#include "cpu_fixture.h"
#include "reference.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <stdio.h>

/* Runs op with F32 inputs on every instruction set; all results must be the same bytes.
 * Returns the result (malloc'd). */
struct input {
    const void *data;
    uint32_t    dtype;
    uint64_t    rows, cols;
};

static float *run_all(struct tsr_op op, uint64_t rows, uint64_t cols, const struct input *in, int n,
                      uint64_t pad)
{
    float *first = NULL;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        struct tsr_tensor t[TSR_OP_INPUTS], out = dev(c, NULL, TSR_F32, rows, cols, pad);
        op.struct_size = sizeof op;
        op.out = &out;
        for (int i = 0; i < n; i++)
            if (in[i].data) {
                t[i] = dev(c, in[i].data, in[i].dtype, in[i].rows, in[i].cols, i == 0 ? pad : 0);
                op.in[i] = &t[i];
            }
        run_ok(c, &op);
        float *got = host_of(c, &out);
        if (first) {
            if (memcmp(first, got, rows * cols * 4) != 0)
                fail_msg("op %u: %s differs from scalar", op.kind, test_isas[isa]);
            free(got);
        } else {
            first = got;
        }
        for (int i = 0; i < n; i++)
            if (in[i].data)
                undev(c, &t[i]);
        undev(c, &out);
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
    return first;
}

static void near(double got, double want, double tol, const char *what)
{
    if (!(fabs(got - want) <= tol))
        fail_msg("%s: %.9g, wanted %.9g within %.3g", what, got, want, tol);
}

static const uint64_t widths[] = { 1, 2, 15, 16, 17, 48, 172, 300, 1000 };

static void norms(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 36; i++) {
        uint64_t      T = 1 + i % 3, n = widths[i % 9];
        uint32_t      kind = i % 2;
        float        *x = rnd_new(T * n, 3.0f), *g = rnd_new(n, 1.0f), *b = rnd_new(n, 1.0f);
        float         off = i % 4 == 0 ? 1.0f : 0.0f;
        int           bias = i % 3 != 0;
        struct tsr_op op = { .kind = TSR_OP_NORM, .norm = kind, .eps = 1e-5f, .gain_offset = off };
        struct input  in[] = { { x, TSR_F32, T, n },
                               { g, TSR_F32, 1, n },
                               { bias ? b : NULL, TSR_F32, 1, n } };
        float        *y = run_all(op, T, n, in, 3, 8);
        double       *want = malloc(n * sizeof *want), *size = malloc(n * sizeof *size);
        assert_true(want && size);
        for (uint64_t t = 0; t < T; t++) {
            tsr_ref_norm(want, size, x + t * n, g, bias ? b : NULL, n, kind, 1e-5f, off);
            /* sums of n/16 + 4 steps in F32, for the mean and for the scale */
            for (uint64_t k = 0; k < n; k++)
                near((double)y[t * n + k], want[k], 2 * (double)(n / 16 + 16) * 0x1p-24 * size[k],
                     "norm");
        }
        free(size);
        free(want);
        free(x);
        free(g);
        free(b);
        free(y);
    }
}

static void rope_turns(void **state)
{
    (void)state;
    static const uint32_t dims[][3] = { { 1, 2, 2 },   { 2, 8, 8 },   { 3, 64, 64 },
                                        { 2, 80, 32 }, { 4, 96, 96 }, { 1, 256, 128 },
                                        { 2, 34, 34 } };
    for (uint32_t i = 0; i < 7; i++) {
        uint32_t      heads = dims[i][0], dim = dims[i][1], rot = dims[i][2], half = rot / 2;
        uint64_t      T = 3, n = heads * dim;
        float        *x = rnd_new(T * n, 1), *c = rnd_new(T * half, 1), *s = rnd_new(T * half, 1);
        struct tsr_op op = {
            .kind = TSR_OP_ROPE, .heads = heads, .head_dim = dim, .rotary_dim = rot
        };
        struct input in[] = { { x, TSR_F32, T, n },
                              { c, TSR_F32, T, half },
                              { s, TSR_F32, T, half } };
        float       *y = run_all(op, T, n, in, 3, 4);
        for (uint64_t t = 0; t < T; t++)
            for (uint32_t h = 0; h < heads; h++)
                for (uint32_t d = 0; d < dim; d++) {
                    const float *xh = x + t * n + h * dim;
                    float        want = xh[d];
                    if (d < half) /* the page, to the bit */
                        want = fmaf(xh[d], c[t * half + d], -(xh[d + half] * s[t * half + d]));
                    else if (d < rot)
                        want = fmaf(xh[d], c[t * half + d - half],
                                    xh[d - half] * s[t * half + d - half]);
                    assert_true(y[t * n + h * dim + d] == want);
                }
        free(x);
        free(c);
        free(s);
        free(y);
    }
}

static void elementwise(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 18; i++) {
        uint64_t     T = 1 + i % 3, n = widths[i % 9];
        float       *x = rnd_new(T * n, 8.0f), *b = rnd_new(T * n, 2.0f);
        struct input in[] = { { x, TSR_F32, T, n }, { b, TSR_F32, T, n } };
        for (uint32_t f = 0; f < 4; f++) {
            struct tsr_op op = { .kind = TSR_OP_ACT, .func = f };
            float        *y = run_all(op, T, n, in, 2, 16), *z = run_all(op, T, n, in, 1, 0);
            for (uint64_t k = 0; k < T * n; k++) {
                double want = tsr_ref_func(f, (double)x[k]);
                /* a few ulp of x, which the functions multiply; the tail cancels 1 + erf */
                near((double)z[k], want, 8 * 0x1p-24 * fabs((double)x[k]), "act");
                assert_true(y[k] == z[k] * b[k]);
            }
            free(y);
            free(z);
        }
        struct tsr_op add = { .kind = TSR_OP_ADD };
        float        *y = run_all(add, T, n, in, 2, 0);
        for (uint64_t k = 0; k < T * n; k++)
            assert_true(y[k] == x[k] + b[k]);
        free(y);
        struct tsr_op scale = { .kind = TSR_OP_SCALE, .scale = 0.3f };
        y = run_all(scale, T, n, in, 1, 4);
        for (uint64_t k = 0; k < T * n; k++)
            assert_true(y[k] == x[k] * 0.3f);
        free(y);
        scale.softcap = 1.5f;
        y = run_all(scale, T, n, in, 1, 4);
        for (uint64_t k = 0; k < T * n; k++) /* a few ulp of the cap */
            near((double)y[k], tsr_ref_scale((double)(x[k] * 0.3f), 1, 1.5), 1.5 * 6 * 0x1p-24,
                 "softcap");
        free(y);
        free(x);
        free(b);
    }
}

static void clamped_gates(void **state)
{
    (void)state;
    static const float special[][2] = { { NAN, 1 },        { 1, NAN },       { INFINITY, 1 },
                                        { 1, INFINITY },   { 1, -INFINITY }, { -90, 1 },
                                        { -1e30f, 1e30f }, { 7, -7 },        { 0, 2 } };
    const double       alpha = (double)1.702f, limit = 7;
    for (uint32_t i = 0; i < 9; i++) {
        uint64_t      T = 1 + i % 3, n = widths[i];
        float        *x = rnd_new(T * n, 12.0f), *b = rnd_new(T * n, 12.0f);
        struct input  in[] = { { x, TSR_F32, T, n }, { b, TSR_F32, T, n } };
        struct tsr_op op = {
            .kind = TSR_OP_ACT, .func = TSR_FUNC_CLAMPED, .scale = 1.702f, .softcap = 7
        };
        for (uint64_t k = 0; k < T * n && k < 9; k++) {
            x[k] = special[(k + i) % 9][0];
            b[k] = special[(k + i) % 9][1];
        }
        float *y = run_all(op, T, n, in, 2, 8);
        for (uint64_t k = 0; k < T * n; k++) {
            double g = (double)x[k], u = (double)b[k];
            if (isnan(x[k]) || isnan(b[k])) {
                assert_true(isnan(y[k]));
                continue;
            }
            /* a few ulp of the gate and of the exponent, which is alpha times the gate; exp overflows below
             * -89 and leaves nothing */
            double size = fmin(fabs(g), 89) * (1 + fmin(fabs(u), limit));
            near((double)y[k], tsr_ref_clamped(g, u, alpha, limit), 16 * 0x1p-24 * size, "clamped");
        }
        free(x);
        free(b);
        free(y);
    }
}

static void gather_takes_rows(void **state)
{
    (void)state;
    float        *x = rnd_new(7 * 33, 1);
    uint32_t      rows[4] = { 6, 0, 6, 3 };
    struct input  in[] = { { x, TSR_F32, 7, 33 }, { rows, TSR_U32, 1, 4 } };
    struct tsr_op op = { .kind = TSR_OP_GATHER };
    float        *y = run_all(op, 4, 33, in, 2, 0);
    for (int t = 0; t < 4; t++)
        assert_memory_equal(y + t * 33, x + rows[t] * 33, 33 * 4);
    free(x);
    free(y);
}

static void columns_in_another_order(void **state)
{
    (void)state;
    float        *x = rnd_new(7 * 33, 1);
    uint32_t      of[5] = { 32, 0, 6, 3, 6 };
    struct input  in[] = { { x, TSR_F32, 7, 33 }, { of, TSR_U32, 1, 5 } };
    struct tsr_op op = { .kind = TSR_OP_COLUMNS };
    float        *y = run_all(op, 7, 5, in, 2, 0);
    for (int t = 0; t < 7; t++)
        for (int i = 0; i < 5; i++)
            assert_memory_equal(y + t * 5 + i, x + (uint32_t)t * 33 + of[i], 4);
    free(x);
    free(y);
}

/* Runs of a power of two alone, and across 3, 12 and 28 rows, whose entries need be no Hadamard matrix here.  Every number
 * passes log2(part) additions and, with rows, a chain of them, each of at most the magnitude of all terms. */
static void hadamard_is_the_matrix(void **state)
{
    static const struct {
        uint32_t run, base, runs;
    } cases[] = { { 1, 1, 3 },   { 2, 1, 5 },      { 8, 1, 4 },       { 16, 1, 1 },   { 32, 1, 3 },
                  { 64, 1, 2 },  { 128, 1, 1 },    { 512, 1, 2 },     { 2048, 1, 1 }, { 12, 12, 2 },
                  { 96, 12, 3 }, { 3 * 64, 3, 2 }, { 28 * 64, 28, 1 } };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const uint64_t n = cases[k].run, b = cases[k].base, T = 3, cols = n * cases[k].runs;
        float         *x = rnd_new(T * cols, 1), *sign = rnd_new(b * b, 1);
        double        *want = malloc(n * sizeof *want), *size = malloc(n * sizeof *size);
        assert_true(want && size);
        for (uint64_t i = 0; i < b * b; i++)
            sign[i] = sign[i] < 0 ? -1.0f : 1.0f;
        struct tsr_op op = { .kind = TSR_OP_HADAMARD, .head_dim = (uint32_t)n };
        struct input  in[] = { { x, TSR_F32, T, cols }, { b > 1 ? sign : NULL, TSR_F32, b, b } };
        float        *y = run_all(op, T, cols, in, 2, 4);
        for (uint64_t i = 0; i < T * cols; i += n) {
            tsr_ref_hadamard(want, size, x + i, n, b > 1 ? sign : NULL, b);
            for (uint64_t j = 0; j < n; j++)
                near((double)y[i + j], want[j],
                     (log2((double)(n / b)) + (double)b + 2) * 0x1p-24 * size[j], "hadamard");
        }
        free(x);
        free(sign);
        free(want);
        free(size);
        free(y);
    }
}

static void mix_adds_rows_in_order(void **state)
{
    (void)state;
    float        *x = rnd_new(7 * 33, 1), *w = rnd_new(4 * 3, 2);
    uint32_t      rows[12] = { 6, 0, 6, 3, 3, 1, 2, 5, 4, 0, 0, 0 };
    struct input  in[] = { { x, TSR_F32, 7, 33 }, { w, TSR_F32, 4, 3 }, { rows, TSR_U32, 4, 3 } };
    struct tsr_op op = { .kind = TSR_OP_MIX };
    float        *y = run_all(op, 4, 33, in, 3, 0);
    for (int t = 0; t < 4; t++)
        for (int c = 0; c < 33; c++) {
            float want = 0;
            for (int j = 0; j < 3; j++)
                want = fmaf(w[t * 3 + j], x[rows[t * 3 + j] * 33 + (uint32_t)c], want);
            assert_true(y[t * 33 + c] == want);
        }
    free(x);
    free(w);
    free(y);
}

/* ---- cache and attention ------------------------------------------------------ */

struct shape {
    uint32_t heads, kv_heads, dim, window;
    uint64_t past, tokens; /* the tokens stand behind `past` positions */
    float    softcap;
    int      alibi;
    float    sink; /* sinks of the heads are about this; 0: none */
    uint64_t back; /* the second half of the tokens stands this many positions earlier */
};

static uint64_t position_of(const struct shape *s, uint64_t token)
{
    return s->past + token - (token > s->tokens / 2 ? s->back : 0);
}

static uint64_t cache_cols(const struct shape *s, uint32_t dtype)
{
    return s->kv_heads * tsr_kv_head_cols(dtype, s->dim);
}

/* What the cache keeps of x, [n][kv_heads * dim]. */
static double *kept(const float *x, uint64_t n, const struct shape *s, uint32_t dtype)
{
    uint64_t heads = n * s->kv_heads;
    double  *v = malloc(heads * s->dim * sizeof *v);
    uint8_t  head[4 + 4 * 256];
    assert_non_null(v);
    for (uint64_t h = 0; h < heads; h++) {
        tsr_ref_head_store(head, dtype, x + h * s->dim, s->dim);
        tsr_ref_head_load(v + h * s->dim, dtype, head, s->dim);
    }
    return v;
}

static void attention_in_double(const struct shape *s, const float *q, const double *k,
                                const double *v, const float *slopes, uint64_t token, uint32_t head,
                                double *out)
{
    uint64_t p = position_of(s, token), first = tsr_ref_first(p, s->window);
    uint64_t kv = (uint64_t)s->kv_heads * s->dim;
    uint64_t at = first * kv + head / (s->heads / s->kv_heads) * s->dim;
    double  *scores = malloc((p + 1) * sizeof *scores);
    assert_non_null(scores);
    tsr_ref_attention(out, NULL, scores, q + (token * s->heads + head) * s->dim, k + at, v + at,
                      p + 1 - first, kv, s->dim, 0.2f, s->softcap, s->alibi ? slopes[head] : 0,
                      s->sink != 0 ? slopes[s->heads + head] : -INFINITY);
    free(scores);
}

/* Stores all keys and values at rows row0.., then attends with all tokens at once and one by
 * one: the same bytes.  Returns the result of one instruction set. */
static float *attend_on(struct tsr_cpu *c, const struct shape *s, const float *q, const float *k,
                        const float *v, const float *slopes, uint32_t dtype)
{
    enum { ROW0 = 5 };
    uint64_t n = s->past + s->tokens, kv = (uint64_t)s->kv_heads * s->dim,
             H = (uint64_t)s->heads * s->dim;
    struct tsr_tensor kc = dev(c, NULL, dtype, n + ROW0 + 2, cache_cols(s, dtype), 4);
    struct tsr_tensor vc = dev(c, NULL, dtype, n + ROW0 + 2, cache_cols(s, dtype), 4);
    struct tsr_tensor kt = dev(c, k, TSR_F32, n, kv, 0), vt = dev(c, v, TSR_F32, n, kv, 0);
    uint32_t         *rows = malloc(n * 4), *spans = malloc(s->tokens * 8);
    assert_true(rows && spans);
    for (uint64_t i = 0; i < n; i++)
        rows[i] = (uint32_t)(i + ROW0);
    for (uint64_t t = 0; t < s->tokens; t++) {
        spans[2 * t] = ROW0;
        spans[2 * t + 1] = (uint32_t)position_of(s, t);
    }
    struct tsr_tensor rt = dev(c, rows, TSR_U32, 1, n, 0),
                      st = dev(c, spans, TSR_U32, s->tokens, 2, 0);
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_KV_STORE,
                         .out = &kc,
                         .in = { &kt, &rt },
                         .kv_heads = s->kv_heads,
                         .head_dim = s->dim };
    run_ok(c, &op);
    op.out = &vc;
    op.in[0] = &vt;
    run_ok(c, &op);
    struct tsr_tensor qt = dev(c, q, TSR_F32, s->tokens, H, 8),
                      ot = dev(c, NULL, TSR_F32, s->tokens, H, 8);
    struct tsr_tensor al = dev(c, slopes, TSR_F32, s->sink != 0 ? 2 : 1, s->heads, 12);
    struct tsr_op     at = { .struct_size = sizeof at,
                             .kind = TSR_OP_ATTENTION,
                             .out = &ot,
                             .in = { &qt, &kc, &vc, &st, s->alibi || s->sink != 0 ? &al : NULL },
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .head_dim = s->dim,
                             .window = s->window,
                             .scale = 0.2f,
                             .softcap = s->softcap };
    run_ok(c, &at);
    float *all = host_of(c, &ot);
    for (uint64_t t = 0; t < s->tokens; t++) { /* a batch of one gives the same bytes */
        struct tsr_tensor q1 = qt, o1 = ot, s1 = st;
        q1.rows = o1.rows = s1.rows = 1;
        q1.offset += t * qt.row_stride;
        o1.offset += t * ot.row_stride;
        s1.offset += t * st.row_stride;
        struct tsr_op one = at;
        one.out = &o1;
        one.in[0] = &q1;
        one.in[3] = &s1;
        run_ok(c, &one);
        float *got = host_of(c, &o1);
        assert_memory_equal(got, all + t * H, H * 4);
        free(got);
    }
    struct tsr_tensor *dead[] = { &kc, &vc, &kt, &vt, &rt, &st, &qt, &ot, &al };
    for (size_t i = 0; i < sizeof dead / sizeof *dead; i++)
        undev(c, dead[i]);
    free(rows);
    free(spans);
    return all;
}

/* Two rows: slopes, zeros where there are none, and sinks. */
static float *slopes_new(const struct shape *s)
{
    float *x = rnd_new(2 * s->heads, 0.3f);
    for (uint32_t h = 0; h < s->heads; h++) {
        x[h] = s->alibi ? x[h] : 0.0f;
        x[s->heads + h] += s->sink;
    }
    return x;
}

static void attention_is_near_double(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        { 1, 1, 16, 0, 0, 1, 0, 0, 0, 0 },       { 4, 2, 8, 0, 0, 9, 0, 0, 0, 0 },
        { 2, 2, 80, 0, 40, 5, 0, 1, 0, 0 },      { 8, 2, 64, 100, 270, 3, 50, 0, 0, 0 },
        { 3, 1, 33, 17, 0, 40, 0, 0, 0, 0 },     { 2, 1, 128, 0, 600, 2, 0, 0, 0, 0 },
        { 2, 1, 256, 300, 700, 2, 30, 1, 0, 0 }, { 8, 2, 64, 0, 270, 3, 0, 0, -2, 0 },
        { 5, 1, 33, 17, 0, 40, 0, 1, 3, 0 },     { 3, 3, 8, 0, 20, 2, 2, 0, -60, 0 },
        { 2, 1, 16, 0, 20, 2, 0, 0, 40, 0 },     { 4, 2, 32, 0, 230, 40, 0, 0, 0, 7 },
        { 2, 2, 96, 45, 480, 70, 0, 1, 0, 0 },   { 8, 2, 72, 0, 60, 37, 5, 0, 2, 0 },
    };
    static const uint32_t dtypes[] = { TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dt = 0; dt < 5; dt++) {
            const struct shape *s = &shapes[i];
            uint64_t            n = s->past + s->tokens, H = (uint64_t)s->heads * s->dim;
            float *q = rnd_new(s->tokens * H, 1), *k = rnd_new(n * s->kv_heads * s->dim, 1);
            float *v = rnd_new(n * s->kv_heads * s->dim, 1), *slopes = slopes_new(s);
            float *first = NULL;
            for (int isa = 0; isa < ISAS; isa++) {
                struct tsr_cpu *c = cpu_new(test_isas[isa]);
                if (!c)
                    continue;
                float *y = attend_on(c, s, q, k, v, slopes, dtypes[dt]);
                if (first) {
                    if (memcmp(first, y, s->tokens * H * 4) != 0)
                        fail_msg("shape %zu dtype %d: %s differs", i, dt, test_isas[isa]);
                    free(y);
                } else {
                    first = y;
                }
                tsr_cpu_destroy(c);
            }
            double *want = malloc(s->dim * sizeof *want);
            double *k_kept = kept(k, n, s, dtypes[dt]), *v_kept = kept(v, n, s, dtypes[dt]);
            assert_non_null(want);
            for (uint64_t t = 0; t < s->tokens; t++)
                for (uint32_t h = 0; h < s->heads; h++) {
                    attention_in_double(s, q, k_kept, v_kept, slopes, t, h, want);
                    /* scores err by dim/16 + a few ulp of sums up to 0.2 dim / 3; outputs are
                     * averages of values below 1 */
                    for (uint32_t d = 0; d < s->dim; d++)
                        near((double)first[t * H + h * s->dim + d], want[d],
                             0x1p-24 * (64.0 + s->dim), "attention");
                }
            free(want);
            free(k_kept);
            free(v_kept);
            free(first);
            free(q);
            free(k);
            free(v);
            free(slopes);
            assert_int_equal(host_bytes, 0);
        }
}

/* Slopes of zero and sinks of -inf give the bytes of none, and a sink of NaN NaNs. */
static void sinks_are_dropped(void **state)
{
    (void)state;
    struct shape s = { 4, 2, 24, 20, 40, 3, 0, 0, 0, 0 };
    uint64_t     n = s.past + s.tokens, H = (uint64_t)s.heads * s.dim;
    float       *q = rnd_new(s.tokens * H, 1), *k = rnd_new(n * s.kv_heads * s.dim, 1);
    float       *v = rnd_new(n * s.kv_heads * s.dim, 1);
    float        sinks[8] = { 0, 0, 0, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        s.sink = 0;
        float *without = attend_on(c, &s, q, k, v, sinks, TSR_F32);
        s.sink = -INFINITY;
        float *with = attend_on(c, &s, q, k, v, sinks, TSR_F32);
        assert_memory_equal(with, without, s.tokens * H * 4);
        free(with);
        sinks[6] = NAN;
        with = attend_on(c, &s, q, k, v, sinks, TSR_F32);
        for (uint64_t i = 0; i < s.tokens * H; i++)
            assert_true(i % H / s.dim == 2 ? isnan(with[i]) : with[i] == without[i]);
        sinks[6] = -INFINITY;
        free(with);
        free(without);
        tsr_cpu_destroy(c);
    }
    free(q);
    free(k);
    free(v);
}

static void math_is_near_double(void **state)
{
    (void)state;
    enum { N = 200000 };
    float *x = malloc(N * 4), *y = malloc(N * 4), *z = malloc(N * 4);
    assert_true(x && y && z);
    for (int i = 0; i < N; i++)
        x[i] = i < N / 2 ? 110.0f * rnd_f32() : ldexpf(rnd_f32(), (int)(rnd() % 40) - 30);
    static const float special[] = { 0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,
                                     88.8f,  88.72f, -103.9f,  -104.1f,   -87.4f,
                                     1e-45f, 0.625f, 0.92773f, 1e38f,     -1e38f };
    memcpy(x, special, sizeof special);
    double worst[3] = { 0 };
    for (uint32_t f = 0; f < 3; f++) {
        tsr_cpu_kernels_scalar.math(y, x, N, f);
        for (int isa = 1; isa < ISAS; isa++) {
            struct tsr_cpu *c = cpu_new(test_isas[isa]);
            if (!c)
                continue;
            c->k->math(z, x, N, f);
            assert_memory_equal(y, z, N * 4);
            tsr_cpu_destroy(c);
        }
        for (int i = 0; i < N; i++) {
            double d = (double)x[i], want = f == 0 ? exp(d) : f == 1 ? tanh(d) : erf(d);
            if (isnan(want)) {
                assert_true(isnan(y[i]));
                continue;
            }
            if (isinf((float)want) || want == 0) {
                assert_true((double)y[i] == (double)(float)want);
                continue;
            }
            int e;
            (void)frexp(want, &e);
            double ulp = ldexp(1.0, (e < -125 ? -125 : e) - 24),
                   off = fabs((double)y[i] - want) / ulp;
            worst[f] = off > worst[f] ? off : worst[f];
        }
    }
    print_message("worst ulp: exp %.2f tanh %.2f erf %.2f\n", worst[0], worst[1], worst[2]);
    assert_true(worst[0] <= 1.5 && worst[1] <= 2.5 && worst[2] <= 1.5);
    free(x);
    free(y);
    free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(math_is_near_double),
        cmocka_unit_test(norms),
        cmocka_unit_test(rope_turns),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(clamped_gates),
        cmocka_unit_test(gather_takes_rows),
        cmocka_unit_test(columns_in_another_order),
        cmocka_unit_test(hadamard_is_the_matrix),
        cmocka_unit_test(mix_adds_rows_in_order),
        cmocka_unit_test(attention_is_near_double),
        cmocka_unit_test(sinks_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
