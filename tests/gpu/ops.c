/* ops.c - the operations without weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

static const uint32_t widths[] = { 1, 15, 16, 17, 64, 100, 257, 1030, 4100 };
#define PICK(list) (list)[pair_draw(p, sizeof(list) / sizeof(list)[0])]

static void drop(struct pair *p, struct pair_tensor *x, int n)
{
    for (int i = 0; i < n; i++)
        pair_tensor_free(p, &x[i]);
}

static bool elementwise(struct pair *p)
{
    uint64_t           T = 1 + pair_draw(p, 4), n = PICK(widths);
    struct pair_tensor x[3];
    struct tsr_op      op = { .scale = 0.37f };
    char               what[80];
    op.kind = (uint32_t[]){ TSR_OP_ACT, TSR_OP_ADD, TSR_OP_SCALE }[pair_draw(p, 3)];
    op.func = (uint32_t)pair_draw(p, 5);
    op.softcap = pair_draw(p, 2) ? 30.0f : 0.0f;
    bool clamped = op.kind == TSR_OP_ACT && op.func == TSR_FUNC_CLAMPED;
    if (clamped)
        op.softcap = 0.7f;
    (void)snprintf(what, sizeof what, "operation %u, func %u, %d x %d", op.kind, op.func, (int)T,
                   (int)n);
    bool two = op.kind == TSR_OP_ADD || clamped || (op.kind == TSR_OP_ACT && pair_draw(p, 2));
    bool ok = pair_tensor(p, &x[0], TSR_F32, T, n, NULL) &&
              pair_tensor(p, &x[1], TSR_F32, T, n, NULL) &&
              pair_tensor(p, &x[2], TSR_F32, T, n, NULL);
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { &x[0], &x[1], two ? &x[2] : NULL };
    if (pair_draw(p, 3) == 0) /* in place */
        v[1] = &x[0];
    ok = ok && pair_run(p, what, &op, v, NULL);
    drop(p, x, 3);
    return ok;
}

static bool norm(struct pair *p)
{
    uint64_t           T = 1 + pair_draw(p, 3), n = PICK(widths);
    struct pair_tensor x[4];
    char               what[80];
    struct tsr_op      op = { .kind = TSR_OP_NORM, .eps = 1e-5f };
    op.norm = (uint32_t)pair_draw(p, 2);
    op.gain_offset = pair_draw(p, 2) ? 1.0f : 0.0f;
    (void)snprintf(what, sizeof what, "NORM %s, %d x %d", op.norm ? "layer" : "rms", (int)T,
                   (int)n);
    bool ok =
        pair_tensor(p, &x[0], TSR_F32, T, n, NULL) && pair_tensor(p, &x[1], TSR_F32, T, n, NULL) &&
        pair_tensor(p, &x[2], TSR_F32, 1, n, NULL) && pair_tensor(p, &x[3], TSR_F32, 1, n, NULL);
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { &x[0], pair_draw(p, 2) ? &x[1] : &x[0], &x[2],
                                                 pair_draw(p, 2) ? &x[3] : NULL };
    ok = ok && pair_run(p, what, &op, v, NULL);
    drop(p, x, 4);
    return ok;
}

static bool rope(struct pair *p)
{
    uint64_t           T = 1 + pair_draw(p, 4);
    struct pair_tensor x[4];
    char               what[80];
    struct tsr_op      op = { .kind = TSR_OP_ROPE };
    op.heads = 1 + (uint32_t)pair_draw(p, 4);
    op.head_dim = 2 + (uint32_t)pair_draw(p, 80);
    op.rotary_dim = 2 + 2 * (uint32_t)pair_draw(p, op.head_dim / 2);
    (void)snprintf(what, sizeof what, "ROPE %u of %u, %u heads, %d tokens", op.rotary_dim,
                   op.head_dim, op.heads, (int)T);
    uint64_t n = (uint64_t)op.heads * op.head_dim, half = op.rotary_dim / 2;
    bool     ok = pair_tensor(p, &x[0], TSR_F32, T, n, NULL) &&
              pair_tensor(p, &x[1], TSR_F32, T, n, NULL) &&
              pair_tensor(p, &x[2], TSR_F32, T, half, NULL) &&
              pair_tensor(p, &x[3], TSR_F32, T, half, NULL);
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { &x[0], pair_draw(p, 2) ? &x[1] : &x[0], &x[2],
                                                 &x[3] };
    ok = ok && pair_run(p, what, &op, v, NULL);
    drop(p, x, 4);
    return ok;
}

static bool gather(struct pair *p)
{
    uint32_t           rows[40];
    struct pair_tensor x[3];
    uint64_t           from = 1 + pair_draw(p, 30), n = 1 + pair_draw(p, 70);
    struct tsr_op      op = { .kind = TSR_OP_GATHER };
    for (int i = 0; i < 40; i++)
        rows[i] = (uint32_t)pair_draw(p, from);
    bool ok = pair_tensor(p, &x[0], TSR_F32, 40, n, NULL) &&
              pair_tensor(p, &x[1], TSR_F32, from, n, NULL) &&
              pair_tensor(p, &x[2], TSR_U32, 1, 40, rows);
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { &x[0], &x[1], &x[2] };
    ok = ok && pair_run(p, "GATHER", &op, v, NULL);
    drop(p, x, 3);
    return ok;
}

static bool columns(struct pair *p)
{
    uint32_t           of[90];
    struct pair_tensor x[3];
    uint64_t           cols = 1 + pair_draw(p, 90), n = 1 + pair_draw(p, 90);
    uint64_t           rows = 1 + pair_draw(p, 40);
    struct tsr_op      op = { .kind = TSR_OP_COLUMNS };
    for (int i = 0; i < 90; i++)
        of[i] = (uint32_t)pair_draw(p, cols);
    bool ok = pair_tensor(p, &x[0], TSR_F32, rows, n, NULL) &&
              pair_tensor(p, &x[1], TSR_F32, rows, cols, NULL) &&
              pair_tensor(p, &x[2], TSR_U32, 1, n, of);
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { &x[0], &x[1], &x[2] };
    ok = ok && pair_run(p, "COLUMNS", &op, v, NULL);
    drop(p, x, 3);
    return ok;
}

static bool hadamard(struct pair *p)
{
    static const uint32_t bases[] = { 1, 3, 12, 28 };
    float                 sign[28 * 28];
    struct pair_tensor    x[3];
    char                  what[80];
    uint32_t              b = bases[pair_draw(p, 4)], run = b << pair_draw(p, b > 1 ? 6 : 11);
    uint64_t              rows = 1 + pair_draw(p, 4), n = run * (1 + pair_draw(p, 3));
    struct tsr_op         op = { .kind = TSR_OP_HADAMARD, .head_dim = run };
    for (uint32_t i = 0; i < b * b; i++)
        sign[i] = pair_draw(p, 2) ? 1.0f : -1.0f;
    (void)snprintf(what, sizeof what, "HADAMARD of %u over %u, %d rows of %d", run, b, (int)rows,
                   (int)n);
    bool ok = pair_tensor(p, &x[0], TSR_F32, rows, n, NULL) &&
              pair_tensor(p, &x[1], TSR_F32, rows, n, NULL) &&
              pair_tensor(p, &x[2], TSR_F32, b, b, sign);
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { &x[0], pair_draw(p, 2) ? &x[1] : &x[0],
                                                 b > 1 ? &x[2] : NULL };
    ok = ok && pair_run(p, what, &op, v, NULL);
    drop(p, x, 3);
    return ok;
}

static bool mix(struct pair *p)
{
    uint32_t           rows[40];
    struct pair_tensor x[4];
    uint64_t           from = 1 + pair_draw(p, 30), n = 1 + pair_draw(p, 70);
    uint64_t           k = 1 + pair_draw(p, 8), m = 1 + pair_draw(p, 5);
    struct tsr_op      op = { .kind = TSR_OP_MIX };
    for (int i = 0; i < 40; i++)
        rows[i] = (uint32_t)pair_draw(p, from);
    bool ok = pair_tensor(p, &x[0], TSR_F32, m, n, NULL) &&
              pair_tensor(p, &x[1], TSR_F32, from, n, NULL) &&
              pair_tensor(p, &x[2], TSR_F32, m, k, NULL) &&
              pair_tensor(p, &x[3], TSR_U32, m, k, rows);
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { &x[0], &x[1], &x[2], &x[3] };
    ok = ok && pair_run(p, "MIX", &op, v, NULL);
    drop(p, x, 4);
    return ok;
}

bool pair_check_ops(struct pair *p, uint64_t count)
{
    bool (*const kinds[])(struct pair *) = { elementwise, norm, pair_attention, rope,
                                             gather,      mix,  columns,        hadamard };
    for (uint64_t i = 0; i < count; i++)
        if (!kinds[i % (sizeof kinds / sizeof kinds[0])](p))
            return false;
    return true;
}
