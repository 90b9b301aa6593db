/* attention.c - drawn cases of KV_STORE and ATTENTION: caches of several sequences, tokens of prompts, of decode
 * and of both, all types and alignments of a cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pair.h"

#define PICK(list) (list)[pair_draw(p, sizeof(list) / sizeof(list)[0])]
#define SEQUENCES  3u
#define TOKENS     40u

struct attention_case {
    struct tsr_op op;
    uint32_t      dtype, length, tokens;
    uint64_t      cache_rows, cache_cols;
    uint32_t      first[SEQUENCES]; /* the cache row of position 0 */
    uint32_t      spans[2 * TOKENS];
    char          what[200];
};

/* Tokens one after the other of one sequence, each of another one, or any. */
static void draw_spans(struct pair *p, struct attention_case *c)
{
    static const char *const names[] = { "a prompt", "decode", "any tokens" };
    const uint64_t           kind = pair_draw(p, 3);
    c->tokens = 1 + (uint32_t)pair_draw(p, kind == 1 ? 4 : TOKENS);
    if (kind == 0 && c->tokens > c->length)
        c->tokens = c->length;
    for (uint32_t t = 0; t < c->tokens; t++) {
        uint64_t sequence = kind == 0 ? 1 : kind == 1 ? t % SEQUENCES : pair_draw(p, 8) * 3 / 8;
        c->spans[2 * t] = c->first[sequence];
        c->spans[2 * t + 1] = kind == 0 ? c->length - c->tokens + t
                              : t == 0  ? c->length - 1
                                        : (uint32_t)pair_draw(p, c->length);
    }
    (void)snprintf(c->what, sizeof c->what,
                   "ATTENTION: cache dtype %u, %u heads, %u kv, dim %u, %u positions, window %u, "
                   "%s of %u",
                   c->dtype, c->op.heads, c->op.kv_heads, c->op.head_dim, c->length, c->op.window,
                   names[kind], c->tokens);
}

static void draw_case(struct pair *p, struct attention_case *c)
{
    static const uint32_t dims[] = { 64, 128, 96, 80, 256, 33, 130, 24, 20, 16, 7, 1 };
    static const uint32_t groups[] = { 1, 4, 7, 2, 8, 3, 16, 19 };
    static const uint32_t dtypes[] = { TSR_F32, TSR_F16, TSR_I8 };
    *c = (struct attention_case){ .op = { .scale = 0.3f } };
    c->dtype = PICK(dtypes);
    c->op.kv_heads = 1 + (uint32_t)pair_draw(p, 3);
    c->op.heads = c->op.kv_heads * PICK(groups);
    c->op.head_dim = PICK(dims);
    c->length = 1 + (uint32_t)pair_draw(p, pair_draw(p, 4) ? 60 : 700);
    c->op.window = pair_draw(p, 3) ? 0 : 1 + (uint32_t)pair_draw(p, c->length + 3);
    c->op.softcap = pair_draw(p, 3) ? 0.0f : 2.0f;
    const uint64_t n = (uint64_t)c->op.kv_heads * c->op.head_dim;
    c->cache_cols = c->dtype == TSR_I8 ? n + UINT64_C(4) * c->op.kv_heads : n;
    for (uint32_t i = 0; i < SEQUENCES; i++)
        c->first[i] = 2 + i * (c->length + (uint32_t)pair_draw(p, 2));
    c->cache_rows = c->first[SEQUENCES - 1] + UINT64_C(1) * c->length;
    draw_spans(p, c);
}

/* Rows of a cache; now and then one that F16 or a score cannot hold: only tokens that attend to it have it. */
static float *draw_rows(struct pair *p, const struct attention_case *c)
{
    const uint64_t n = (uint64_t)c->op.kv_heads * c->op.head_dim, rows = SEQUENCES * c->length;
    float         *x = malloc(rows * n * sizeof *x);
    if (!x)
        abort();
    for (uint64_t i = 0; i < rows * n; i++)
        x[i] = pair_number(p);
    if (pair_draw(p, 4) == 0)
        for (uint64_t i = 0; i < 2; i++) {
            uint64_t at = rows - 1 - pair_draw(p, rows < 20 ? rows : 20);
            x[at * n + pair_draw(p, n)] = pair_draw(p, 2) ? INFINITY : -1e6f;
        }
    return x;
}

/* The cache and its rows, stored by KV_STORE. */
static bool store(struct pair *p, const struct attention_case *c, struct pair_tensor *cache)
{
    const uint64_t     n = (uint64_t)c->op.kv_heads * c->op.head_dim, rows = SEQUENCES * c->length;
    uint32_t          *to = malloc(rows * sizeof *to);
    uint8_t           *zero = calloc(c->cache_rows, c->cache_cols * 4);
    float             *data = draw_rows(p, c);
    struct pair_tensor x, at;
    struct tsr_op      op = c->op;
    if (!to || !zero)
        abort();
    for (uint64_t i = 0; i < rows; i++)
        to[i] = c->first[i / c->length] + (uint32_t)(i % c->length);
    op.kind = TSR_OP_KV_STORE;
    bool ok = pair_tensor(p, cache, c->dtype, c->cache_rows, c->cache_cols, zero);
    ok = pair_tensor(p, &x, TSR_F32, rows, n, data) && ok;
    ok = pair_tensor(p, &at, TSR_U32, 1, rows, to) && ok;
    struct pair_tensor *v[TSR_OP_INPUTS + 1] = { cache, &x, &at };
    ok = ok && pair_run(p, c->what, &op, v, NULL);
    pair_tensor_free(p, &x);
    pair_tensor_free(p, &at);
    free(data);
    free(zero);
    free(to);
    return ok;
}

bool pair_attention(struct pair *p)
{
    struct attention_case c;
    struct pair_tensor    out, q, k, v, spans, slopes;
    draw_case(p, &c);
    const uint64_t n = (uint64_t)c.op.heads * c.op.head_dim;
    bool           ok = store(p, &c, &k);
    ok = store(p, &c, &v) && ok;
    ok = pair_tensor(p, &out, TSR_F32, c.tokens, n, NULL) && ok;
    ok = pair_tensor(p, &q, TSR_F32, c.tokens, n, NULL) && ok;
    ok = pair_tensor(p, &spans, TSR_U32, c.tokens, 2, c.spans) && ok;
    ok = pair_tensor(p, &slopes, TSR_F32, 1 + pair_draw(p, 2), c.op.heads, NULL) && ok;
    struct pair_tensor *x[TSR_OP_INPUTS + 1] = { &out, &q,     &k,
                                                 &v,   &spans, pair_draw(p, 2) ? NULL : &slopes };
    c.op.kind = TSR_OP_ATTENTION;
    ok = ok && pair_run(p, c.what, &c.op, x, NULL);
    for (int i = 0; i < 5; i++)
        pair_tensor_free(p, x[i]);
    pair_tensor_free(p, &slopes);
    return ok;
}

bool pair_check_attention(struct pair *p, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!pair_attention(p))
            return false;
    return true;
}
