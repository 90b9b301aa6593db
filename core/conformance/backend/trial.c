/* Backends: trials, that is operations on random numbers. */
#include "conformance/backend/backend.h"

#include "base/f16.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <string.h>

#define U(x) ((unsigned long long)(x))

const char *tsr_conformance_op_name(uint32_t op)
{
    static const char *const names[] = { "operation 0", "LINEAR",    "EMBED",   "NORM",    "ROPE",
                                         "KV_STORE",    "ATTENTION", "ACT",     "ADD",     "SCALE",
                                         "GATHER",      "MIX",       "COLUMNS", "HADAMARD" };
    return op <= TSR_OP_HADAMARD ? names[op] : "an unknown operation";
}

static float *numbers(struct tsr_conformance_device *d, uint64_t stream, uint64_t n)
{
    float *x = tsr_conformance_rule_memory(d->c, n * sizeof *x + 4);
    tsr_conformance_rule_normal(d->c, stream, x, n);
    return x;
}

/* Input i of the trial: random numbers, on the host and on the device. */
static void input(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint32_t i,
                  uint64_t rows, uint64_t cols)
{
    t->x[i] = numbers(d, 500 + i, rows * cols);
    tsr_conformance_grid_make(d, &t->in[i], TSR_F32, rows, cols, t->x[i]);
    t->op.in[i] = &t->in[i].t;
}

static void input_ids(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint32_t i,
                      uint64_t rows, uint64_t cols, const uint32_t *ids)
{
    t->ids = tsr_conformance_rule_memory(d->c, rows * cols * 4);
    memcpy(t->ids, ids, rows * cols * 4);
    tsr_conformance_grid_make(d, &t->in[i], TSR_U32, rows, cols, ids);
    t->op.in[i] = &t->in[i].t;
}

/* The output holds numbers before, which must not show afterwards. */
static void output(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint64_t rows,
                   uint64_t cols)
{
    t->n = rows * cols;
    tsr_conformance_grid_make(d, &t->out, TSR_F32, rows, cols, numbers(d, 510, rows * cols));
    t->op.out = &t->out.t;
}

static bool weight(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                   uint32_t dtype, uint64_t rows, uint64_t cols)
{
    void *handle = NULL;
    t->format = (struct tsr_format){ .struct_size = sizeof t->format,
                                     .dtype = dtype,
                                     .id = TSR_FORMAT_FLOAT };
    tsr_conformance_weight_random(d->c, 520, &t->format, rows, cols, &t->weight);
    t->w = tsr_conformance_weight_dense(d->c, &t->weight);
    t->w_rows = rows;
    t->w_cols = cols;
    bool read = tsr_conformance_weight_load(d, &t->weight, &handle);
    t->op.weight = handle;
    return read;
}

/* ---- the operations ----------------------------------------------------------- */

static bool make_linear(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                        uint64_t v)
{
    static const struct {
        uint64_t T, K, N;
        uint32_t dtype, bias;
    } cases[] = { { 1, 64, 32, TSR_F32, 0 },
                  { 5, 130, 33, TSR_F32, 1 },
                  { 3, 257, 17, TSR_BF16, 0 },
                  { 16, 300, 257, TSR_F32, 0 }, /* enough for several threads */
                  { 2, 1, 1, TSR_F16, 1 } };
    uint64_t T = cases[v].T, K = cases[v].K, N = cases[v].N;
    (void)snprintf(t->what, sizeof t->what, "LINEAR of %llu tokens, %llu to %llu columns%s", U(T),
                   U(K), U(N), cases[v].bias ? " with bias" : "");
    input(d, t, 0, T, K);
    if (cases[v].bias)
        input(d, t, 1, 1, N);
    output(d, t, T, N);
    return weight(d, t, cases[v].dtype, N, K);
}

static bool make_embed(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                       uint64_t v)
{
    static const uint32_t ids[] = { 12, 0, 12, 5, 16 };
    (void)snprintf(t->what, sizeof t->what, "EMBED of 5 tokens, 130 columns%s",
                   v ? ", scaled" : "");
    t->op.scale = v ? 11.5f : 1.0f;
    input_ids(d, t, 0, 1, 5, ids);
    output(d, t, 5, 130);
    return weight(d, t, v ? TSR_BF16 : TSR_F32, 17, 130);
}

static bool make_norm(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint64_t v)
{
    (void)snprintf(t->what, sizeof t->what, "NORM %s of 3 x 130", v ? "layer" : "rms");
    t->op.norm = v ? TSR_NORM_LAYER : TSR_NORM_RMS;
    t->op.eps = 1e-5f;
    t->op.gain_offset = v ? 0.0f : 1.0f;
    input(d, t, 0, 3, 130);
    input(d, t, 1, 1, 130);
    if (v)
        input(d, t, 2, 1, 130);
    output(d, t, 3, 130);
    return true;
}

static bool make_rope(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint64_t v)
{
    t->op.heads = 3;
    t->op.head_dim = 10;
    t->op.rotary_dim = v ? 6 : 10;
    t->op.func = v == 2 ? TSR_ROPE_ADJACENT : TSR_ROPE_HALVES;
    (void)snprintf(t->what, sizeof t->what, "ROPE of 3 heads of 10, %u of them turned%s",
                   t->op.rotary_dim, v == 2 ? ", in adjacent pairs" : "");
    uint64_t half = t->op.rotary_dim / 2;
    input(d, t, 0, 4, 30);
    for (uint32_t i = 1; i <= 2; i++) { /* cosines and sines of angles */
        t->x[i] = numbers(d, 530, 4 * half);
        for (uint64_t j = 0; j < 4 * half; j++)
            t->x[i][j] = i == 1 ? cosf(t->x[i][j]) : sinf(t->x[i][j]);
        tsr_conformance_grid_make(d, &t->in[i], TSR_F32, 4, half, t->x[i]);
        t->op.in[i] = &t->in[i].t;
    }
    output(d, t, 4, 30);
    return true;
}

static const uint32_t cache_dtypes[] = { TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4 };

/* A cache of random numbers as grid g; x gets its content, rounded to the dtype. */
static void cache(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                  struct tsr_conformance_grid *g, uint32_t dtype, uint64_t rows, uint64_t stream,
                  float **x)
{
    uint64_t n = (uint64_t)t->op.kv_heads * t->op.head_dim;
    uint64_t cols = t->op.kv_heads * tsr_kv_head_cols(dtype, t->op.head_dim);
    void    *bytes = tsr_conformance_rule_memory(d->c, rows * cols * tsr_dtype_size(dtype));
    double  *held = tsr_conformance_rule_memory(d->c, rows * n * sizeof *held);
    *x = numbers(d, stream, rows * n);
    tsr_conformance_cache_encode(dtype, rows, t->op.kv_heads, t->op.head_dim, *x, bytes);
    tsr_conformance_cache_decode(dtype, rows, t->op.kv_heads, t->op.head_dim, bytes, held);
    for (uint64_t i = 0; i < rows * n; i++)
        (*x)[i] = (float)held[i];
    tsr_conformance_grid_make(d, g, dtype, rows, cols, bytes);
}

static bool make_kv_store(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                          uint64_t v)
{
    static const uint32_t rows[] = { 4, 0, 8 };
    (void)snprintf(t->what, sizeof t->what, "KV_STORE of 3 tokens into 9 rows of %s",
                   tsr_dtype_name(cache_dtypes[v]));
    t->op.kv_heads = 2;
    t->op.head_dim = 12;
    input(d, t, 0, 3, 24);
    input_ids(d, t, 1, 1, 3, rows);
    cache(d, t, &t->out, cache_dtypes[v], 9, 540, &t->x[4]); /* x[4]: earlier content */
    t->n = 9 * UINT64_C(24);
    t->op.out = &t->out.t;
    return true;
}

/* Zeros as slopes, and sinks from far below the scores to far above them. */
static void input_sinks(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    static const float rows[] = { 0, 0, 0, 0, -40, -1, 1.5f, 9 };
    t->x[4] = tsr_conformance_rule_memory(d->c, sizeof rows);
    memcpy(t->x[4], rows, sizeof rows);
    tsr_conformance_grid_make(d, &t->in[4], TSR_F32, 2, 4, t->x[4]);
    t->op.in[4] = &t->in[4].t;
}

static bool make_attention(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                           uint64_t v)
{
    static const uint32_t spans[] = { 0, 0, 3, 5, 3, 6, 0, 9 };
    uint32_t dtype = cache_dtypes[v < 2 || v == 4 || v == 5 ? 0 : v < 4 ? v - 1 : v - 3];
    (void)snprintf(t->what, sizeof t->what, "ATTENTION over a cache of %s%s%s%s",
                   tsr_dtype_name(dtype), v == 1 || v == 5 ? " with window and softcap" : "",
                   v == 2 || v == 5 ? " with slopes" : "", v == 4 || v == 5 ? " with sinks" : "");
    t->op.heads = 4;
    t->op.kv_heads = 2;
    t->op.head_dim = 12;
    t->op.scale = 0.3f;
    t->op.window = v == 1 || v == 5 ? 3 : 0;
    t->op.softcap = v == 1 || v == 5 ? 2.5f : 0;
    input(d, t, 0, 4, 48);
    cache(d, t, &t->in[1], dtype, 10, 541, &t->x[1]);
    cache(d, t, &t->in[2], dtype, 10, 542, &t->x[2]);
    t->op.in[1] = &t->in[1].t;
    t->op.in[2] = &t->in[2].t;
    input_ids(d, t, 3, 4, 2, spans);
    if (v == 2 || v == 5)
        input(d, t, 4, v == 2 ? 1 : 2, 4);
    if (v == 4) /* no slopes */
        input_sinks(d, t);
    output(d, t, 4, 48);
    return true;
}

static bool make_act(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint64_t v)
{
    static const char *const names[] = { "silu", "gelu tanh", "gelu erf", "relu", "clamped" };
    t->op.func = v < 8 ? (uint32_t)(v % 4) : TSR_FUNC_CLAMPED;
    (void)snprintf(t->what, sizeof t->what, "ACT %s of 3 x 130%s", names[t->op.func],
                   v < 4 ? "" : ", gated");
    if (v == 8) {
        t->op.scale = 1.7f;
        t->op.softcap = 0.8f; /* a part of the numbers is beyond it */
    }
    input(d, t, 0, 3, 130);
    if (v >= 4)
        input(d, t, 1, 3, 130);
    output(d, t, 3, 130);
    return true;
}

static bool make_plain(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                       uint64_t v)
{
    bool add = t->op.kind == TSR_OP_ADD;
    t->op.scale = -1.75f;
    t->op.softcap = v && !add ? 1.5f : 0;
    (void)snprintf(t->what, sizeof t->what, "%s of 3 x 130%s", tsr_conformance_op_name(t->op.kind),
                   t->op.softcap > 0 ? ", softcap" : "");
    input(d, t, 0, 3, 130);
    if (add)
        input(d, t, 1, 3, 130);
    output(d, t, 3, 130);
    return true;
}

static bool make_gather(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                        uint64_t v)
{
    static const uint32_t rows[] = { 6, 2, 2, 0 };
    (void)v;
    (void)snprintf(t->what, sizeof t->what, "GATHER of 4 rows of 7 x 130");
    input(d, t, 0, 7, 130);
    input_ids(d, t, 1, 1, 4, rows);
    output(d, t, 4, 130);
    return true;
}

static bool make_columns(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                         uint64_t v)
{
    static const uint32_t of[] = { 6, 2, 129, 0, 2 };
    (void)v;
    (void)snprintf(t->what, sizeof t->what, "COLUMNS, 5 of 4 x 130");
    input(d, t, 0, 4, 130);
    input_ids(d, t, 1, 1, 5, of);
    output(d, t, 4, 5);
    return true;
}

/* in1 in the trials with one: of 1 and -1, and orthogonal in the second alone, which no backend needs to know. */
static const float signs4[] = { 1, 1, 1, 1, 1, -1, 1, -1, 1, 1, -1, -1, 1, -1, -1, 1 };

static bool make_hadamard(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                          uint64_t v)
{
    static const struct {
        uint32_t rows, cols, run, base;
    } cases[] = { { 3, 24, 8, 1 },
                  { 2, 128, 64, 1 },
                  { 1, 1024, 512, 1 },
                  { 3, 40, 20, 5 },
                  { 2, 256, 128, 4 } };
    uint32_t b = cases[v].base;
    t->op.head_dim = cases[v].run;
    (void)snprintf(t->what, sizeof t->what, "HADAMARD of %u x %u, runs of %u over %u rows",
                   cases[v].rows, cases[v].cols, cases[v].run, b);
    input(d, t, 0, cases[v].rows, cases[v].cols);
    if (b > 1) {
        t->x[1] = tsr_conformance_rule_memory(d->c, (uint64_t)b * b * sizeof(float));
        for (uint32_t i = 0; i < b * b; i++)
            t->x[1][i] = b == 4 ? signs4[i] : i % 3 ? 1.0f : -1.0f;
        tsr_conformance_grid_make(d, &t->in[1], TSR_F32, b, b, t->x[1]);
        t->op.in[1] = &t->in[1].t;
    }
    output(d, t, cases[v].rows, cases[v].cols);
    return true;
}

static bool make_mix(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint64_t v)
{
    static const uint32_t rows[] = { 6, 2, 2, 0, 5, 6, 1, 1, 3, 4, 0, 2 };
    uint64_t              terms = v ? 1 : 3;
    (void)snprintf(t->what, sizeof t->what, "MIX of 4 rows of 7 x 130, %llu terms", U(terms));
    input(d, t, 0, 7, 130);
    input(d, t, 1, 4, terms);
    input_ids(d, t, 2, 4, terms, rows);
    output(d, t, 4, 130);
    return true;
}

static const struct {
    uint64_t n;
    bool (*make)(struct tsr_conformance_device *d, struct tsr_conformance_trial *t, uint64_t v);
} makers[] = {
    [TSR_OP_LINEAR] = { 5, make_linear },     [TSR_OP_EMBED] = { 2, make_embed },
    [TSR_OP_NORM] = { 2, make_norm },         [TSR_OP_ROPE] = { 3, make_rope },
    [TSR_OP_KV_STORE] = { 5, make_kv_store }, [TSR_OP_ATTENTION] = { 8, make_attention },
    [TSR_OP_ACT] = { 9, make_act },           [TSR_OP_ADD] = { 1, make_plain },
    [TSR_OP_SCALE] = { 2, make_plain },       [TSR_OP_GATHER] = { 1, make_gather },
    [TSR_OP_MIX] = { 2, make_mix },           [TSR_OP_COLUMNS] = { 1, make_columns },
    [TSR_OP_HADAMARD] = { 5, make_hadamard },
};

uint64_t tsr_conformance_trial_count(uint32_t op)
{
    return makers[op].n;
}

bool tsr_conformance_trial_make(struct tsr_conformance_device *d, struct tsr_conformance_trial *t,
                                uint32_t op, uint64_t variant)
{
    memset(t, 0, sizeof *t);
    t->op.struct_size = sizeof t->op;
    t->op.kind = op;
    if (!makers[op].make(d, t, variant))
        return false;
    t->want = tsr_conformance_rule_memory(d->c, t->n * sizeof *t->want);
    t->room = tsr_conformance_rule_memory(d->c, t->n * sizeof *t->room);
    tsr_conformance_trial_reference(d, t);
    return true;
}

bool tsr_conformance_trial_run(struct tsr_conformance_device *d, struct tsr_conformance_trial *t)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    tsr_status        st = d->t->run(d->self, NULL, &t->op, &e.err);
    if (st == TSR_E_UNSUPPORTED)
        return false;
    tsr_conformance_rule_ok(d->c, st, &e, "%s", t->what);
    tsr_conformance_rule_ok(d->c, d->t->sync(d->self, NULL, &e.err), &e, "sync() after %s",
                            t->what);
    return true;
}

void tsr_conformance_trial_values(const struct tsr_conformance_trial *t, const void *rows,
                                  double *v)
{
    if (t->op.kind == TSR_OP_KV_STORE) {
        tsr_conformance_cache_decode(t->out.t.dtype, t->out.t.rows, t->op.kv_heads, t->op.head_dim,
                                     rows, v);
        return;
    }
    for (uint64_t i = 0; i < t->n; i++)
        v[i] = ((const float *)rows)[i];
}
