/* layers.c - decoder layers, operation by operation, without a wait between them: what a device keeps from one
 * operation for the next, and operations that it runs together.
 *
 * Between the operations of a layer come others, drawn: parts of tensors are overwritten, operations are left out
 * or run twice. A device that keeps or fuses wrongly gives other bytes than the CPU, which does neither. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

/* Tensors of a layer: h, x, y [T,N]; q, a [T,heads*dim]; k, v [T,kv*dim]; gate, up [T,M]; caches. */
enum {
    H,
    X,
    Y,
    Q,
    A,
    K,
    V,
    GATE,
    UP,
    GAIN,
    BIAS,
    COSINE,
    SINE,
    ROWS,
    SPANS,
    KEYS,
    VALUES,
    TENSORS
};
enum { WQ, WK, WV, WO, WGATE, WUP, WDOWN, WEIGHTS };

#define CACHE_ROWS 40u
#define WRITTEN    9 /* H to UP: F32 that an operation between may overwrite */

struct layer {
    struct pair       *p;
    struct pair_tensor t[TENSORS];
    void              *weight[WEIGHTS][2];
    uint32_t           heads, kv, dim, rotary, act, norm, func, adjacent;
    uint64_t           tokens;
    bool               biased, gated;
    bool               plain; /* all joins of a layer apply, and nothing comes between */
    char               what[200];
};

static bool made(struct layer *l, int i, uint32_t dtype, uint64_t rows, uint64_t cols,
                 const void *data)
{
    return pair_tensor(l->p, &l->t[i], dtype, rows, cols, data);
}

static bool queue(struct layer *l, const char *name, const struct tsr_op *op, int out, int a, int b,
                  int c, void *const weight[2])
{
    char                what[240];
    struct pair_tensor *x[TSR_OP_INPUTS + 1] = { &l->t[out], &l->t[a], b < 0 ? NULL : &l->t[b],
                                                 c < 0 ? NULL : &l->t[c] };
    (void)snprintf(what, sizeof what, "%s, %s", name, l->what);
    return pair_queue(l->p, what, op, x, weight);
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* The weights of the layer; those that share an input mostly have one format. */
static bool load(struct layer *l, uint64_t n, uint64_t m)
{
    const uint64_t    wide = (uint64_t)l->heads * l->dim, narrow = (uint64_t)l->kv * l->dim;
    const uint64_t    shape[WEIGHTS][2] = { { wide, n }, { narrow, n }, { narrow, n }, { n, wide },
                                            { m, n },    { m, n },      { n, m } };
    struct tsr_format f;
    uint64_t          formats = 0, which;
    while (pair_format_at(formats, &f))
        formats++;
    which = pair_draw(l->p, formats);
    for (int i = 0; i < WEIGHTS; i++) {
        if (i == WO || i == WGATE || i == WDOWN || pair_draw(l->p, 5) == 0)
            which = pair_draw(l->p, formats);
        (void)pair_format_at(which, &f);
        if (l->plain || f.outliers > shape[i][1])
            (void)pair_format_at(which = 1, &f);
        if (!pair_weight(l->p, &f, shape[i][0], shape[i][1], l->weight[i]))
            return false;
    }
    return true;
}

static bool make(struct layer *l, uint64_t n, uint64_t m)
{
    uint32_t       rows[32], spans[64];
    const uint64_t t = l->tokens, wide = (uint64_t)l->heads * l->dim,
                   narrow = (uint64_t)l->kv * l->dim;
    const uint32_t dtype = (uint32_t[]){ TSR_F32, TSR_F16, TSR_I8 }[pair_draw(l->p, 3)];
    const uint64_t cols = dtype == TSR_I8 ? narrow + 4 * l->kv : narrow;
    const bool     twice = pair_draw(l->p, 6) == 0; /* two tokens in one row: stored one by one */
    uint8_t       *zero = calloc(CACHE_ROWS, cols * 4);
    if (!zero)
        abort();
    for (uint32_t i = 0; i < t; i++) {
        rows[i] = twice && i == t - 1 && i > 0 ? 2 + i - 1 : 2 + i;
        spans[2 * i] = 2;
        spans[2 * i + 1] = i;
    }
    const uint64_t written[WRITTEN] = { n, n, n, wide, wide, narrow, narrow, m, m };
    bool           ok = true;
    for (int i = 0; i < WRITTEN && ok; i++)
        ok = made(l, i, TSR_F32, t, written[i], NULL);
    ok = ok && made(l, GAIN, TSR_F32, 1, n, NULL) && made(l, BIAS, TSR_F32, 1, n, NULL) &&
         made(l, COSINE, TSR_F32, t, l->rotary / 2, NULL) &&
         made(l, SINE, TSR_F32, t, l->rotary / 2, NULL) && made(l, ROWS, TSR_U32, 1, t, rows) &&
         made(l, SPANS, TSR_U32, t, 2, spans) && made(l, KEYS, dtype, CACHE_ROWS, cols, zero) &&
         made(l, VALUES, dtype, CACHE_ROWS, cols, zero) && load(l, n, m);
    free(zero);
    return ok;
}

/* ---- operations ------------------------------------------------------------------------------ */

static bool linear(struct layer *l, int weight, int out, int in)
{
    struct tsr_op op = { .kind = TSR_OP_LINEAR, .act = l->act };
    return queue(l, "LINEAR", &op, out, in, -1, -1, l->weight[weight]);
}

static bool add(struct layer *l, int out, int a, int b)
{
    struct tsr_op op = { .kind = TSR_OP_ADD };
    return queue(l, "ADD", &op, out, a, b, -1, NULL);
}

static bool norm(struct layer *l, int out, int in)
{
    struct tsr_op op = { .kind = TSR_OP_NORM, .eps = 1e-5f, .norm = l->norm };
    return queue(l, "NORM", &op, out, in, GAIN, l->biased ? BIAS : -1, NULL);
}

static bool rope(struct layer *l, int x, uint32_t heads)
{
    struct tsr_op op = { .kind = TSR_OP_ROPE,
                         .heads = heads,
                         .head_dim = l->dim,
                         .rotary_dim = l->rotary,
                         .func = l->adjacent };
    return queue(l, "ROPE", &op, x, x, COSINE, SINE, NULL);
}

static bool store(struct layer *l, int cache, int x)
{
    struct tsr_op op = { .kind = TSR_OP_KV_STORE, .kv_heads = l->kv, .head_dim = l->dim };
    return queue(l, "KV_STORE", &op, cache, x, ROWS, -1, NULL);
}

static bool attend(struct layer *l)
{
    struct tsr_op       op = { .kind = TSR_OP_ATTENTION,
                               .heads = l->heads,
                               .kv_heads = l->kv,
                               .head_dim = l->dim,
                               .scale = 0.3f };
    struct pair_tensor *x[TSR_OP_INPUTS + 1] = { &l->t[A], &l->t[Q], &l->t[KEYS], &l->t[VALUES],
                                                 &l->t[SPANS] };
    return pair_queue(l->p, "ATTENTION", &op, x, NULL);
}

static bool act(struct layer *l)
{
    struct tsr_op op = { .kind = TSR_OP_ACT, .func = l->func };
    return queue(l, "ACT", &op, GATE, GATE, l->gated ? UP : -1, -1, NULL);
}

/* ---- what comes between ---------------------------------------------------------------------- */

/* A part of a tensor that is written: rows, or columns of all rows. */
static struct pair_tensor part_of(struct layer *l, const struct pair_tensor *x)
{
    struct pair_tensor v = *x;
    uint64_t           rows = x->t[0].rows, cols = x->t[0].cols;
    bool               by_rows = pair_draw(l->p, 2);
    uint64_t           first = pair_draw(l->p, by_rows ? rows : cols);
    uint64_t           n = 1 + pair_draw(l->p, (by_rows ? rows : cols) - first);
    for (int i = 0; i < 2; i++) {
        v.t[i].offset += first * (by_rows ? v.t[i].row_stride : 4);
        if (by_rows)
            v.t[i].rows = n;
        else
            v.t[i].cols = n;
    }
    return v;
}

static bool upload(struct layer *l, const struct pair_tensor *x)
{
    float v[4];
    bool  ok = true;
    for (int i = 0; i < 4; i++)
        v[i] = pair_number(l->p);
    for (int i = 0; i < 2 && ok; i++)
        ok = l->p->d[i].t->upload(l->p->d[i].self, x->t[i].buffer, x->t[i].offset, v,
                                  x->t[i].cols < 4 ? 4 : 16, &l->p->err.err) == TSR_OK;
    return ok;
}

static bool other_scratch(struct layer *l)
{
    struct tsr_op op = { .kind = TSR_OP_LINEAR, .act = TSR_ACT_A16 };
    switch (pair_draw(l->p, 3)) {
    case 0:
        return attend(l);
    case 1:
        return queue(l, "LINEAR", &op, Q, H, -1, -1, l->weight[WQ]);
    default:
        return linear(l, WV, V, H);
    }
}

static bool disturb(struct layer *l)
{
    struct pair_tensor *any = &l->t[pair_draw(l->p, WRITTEN)], part = part_of(l, any);
    struct pair_tensor *x[TSR_OP_INPUTS + 1] = { &part, &part };
    struct tsr_op       op = { .kind = TSR_OP_SCALE, .scale = 0.75f };
    switch (pair_draw(l->p, 7)) {
    case 0:
        return upload(l, &part);
    case 1:
        for (int i = 0; i < 2; i++)
            if (l->p->d[i].t->sync(l->p->d[i].self, NULL, &l->p->err.err) != TSR_OK)
                return false;
        return true;
    case 2:
        return norm(l, H, H);
    case 3:
        return add(l, X, H, X);
    case 4: /* the scratch is taken for something else between linears of one input */
        return linear(l, WGATE, GATE, X) && other_scratch(l) && linear(l, WUP, UP, X);
    default:
        return pair_queue(l->p, "SCALE", &op, x, NULL);
    }
}

/* ---- a layer ---------------------------------------------------------------------------------- */

static bool operation(struct layer *l, int i)
{
    switch (i) {
    case 0:
    case 12:
        return add(l, H, H, Y);
    case 1:
    case 13:
        return norm(l, X, H);
    case 2:
        return linear(l, WQ, Q, X);
    case 3:
        return linear(l, WK, K, X);
    case 4:
        return linear(l, WV, V, X);
    case 5:
        return rope(l, Q, l->heads);
    case 6:
        return rope(l, K, l->kv);
    case 7:
        return store(l, KEYS, K);
    case 8:
        return store(l, VALUES, V);
    case 9:
        return attend(l);
    case 10:
        return linear(l, WO, Y, A);
    case 11: /* as families with a norm behind the sub-layer have it */
        return l->norm ? norm(l, Y, Y) : true;
    case 14:
        return linear(l, WGATE, GATE, X);
    case 15:
        return linear(l, WUP, UP, X);
    case 16:
        return act(l);
    default:
        return linear(l, WDOWN, Y, GATE);
    }
}
#define OPERATIONS 18

static bool run_layers(struct layer *l)
{
    const uint64_t calm = l->plain ? 0 : pair_draw(l->p, 3); /* 0: nothing comes between */
    for (int i = 0; i < 2 * OPERATIONS; i++) {
        if (calm && pair_draw(l->p, 5) == 0 && !disturb(l))
            return false;
        if ((!calm || pair_draw(l->p, 12)) && !operation(l, i % OPERATIONS))
            return false;
    }
    for (int i = 0; i < TENSORS; i++)
        if (!pair_compare(l->p, l->what, &l->t[i]))
            return false;
    return true;
}

static bool one(struct pair *p, bool plain)
{
    static const uint32_t tokens[] = { 1, 1, 1, 2, 3, 5, 9, 17 };
    static const uint32_t widths[] = { 32, 64, 100, 160, 256, 300, 1056 };
    struct layer         *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    *l = (struct layer){ .p = p,
                         .kv = 1 + (uint32_t)pair_draw(p, 3),
                         .dim = 2 + 2 * (uint32_t)pair_draw(p, 40),
                         .tokens = tokens[pair_draw(p, 8)],
                         .act = pair_draw(p, 5) ? TSR_ACT_A8 : (uint32_t)pair_draw(p, 3),
                         .norm = (uint32_t)pair_draw(p, 2),
                         .func = (uint32_t)pair_draw(p, 4),
                         .adjacent = (uint32_t)pair_draw(p, 2),
                         .biased = pair_draw(p, 2),
                         .gated = pair_draw(p, 2),
                         .plain = plain };
    if (plain) {
        l->dim = 64;
        l->act = TSR_ACT_A8;
    }
    uint64_t n = widths[pair_draw(p, 7)], m = widths[pair_draw(p, 7)];
    l->heads = l->kv * (1 + (uint32_t)pair_draw(p, 3));
    l->rotary = 2 + 2 * (uint32_t)pair_draw(p, l->dim / 2);
    (void)snprintf(l->what, sizeof l->what,
                   "two layers of %d tokens, %d and %d columns, %u heads, %u kv, dim %u, act %u",
                   (int)l->tokens, (int)n, (int)m, l->heads, l->kv, l->dim, l->act);
    bool ok = make(l, n, m) && run_layers(l);
    for (int i = 0; i < TENSORS; i++)
        pair_tensor_free(p, &l->t[i]);
    for (int i = 0; i < WEIGHTS; i++)
        pair_weight_free(p, l->weight[i]);
    free(l);
    p->checked++;
    return ok;
}

bool pair_check_layers(struct pair *p, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!one(p, i == 0))
            return false;
    return true;
}
