/* caches.c - KV_STORE in every type of a cache, and ATTENTION over it: all tokens at once, and each alone. */
#include "digests.h"

#include "../unit/cpu_fixture.h"
#include "tessera/kv_cache.h"

#define ROW0 64u /* of the sequence; a multiple of the blocks of TSR_Q4_CHANNEL */

struct shape {
    uint32_t heads, kv_heads, dim, window;
    uint64_t n; /* positions, a token each */
    float    softcap;
    int      slopes;
};

static const struct shape shapes[] = { { 4, 2, 8, 0, 35, 0, 0 },
                                       { 8, 2, 64, 0, 70, 0, 2 },
                                       { 5, 1, 33, 17, 66, 0, 1 },
                                       { 2, 2, 80, 40, 64, 3, 1 },
                                       { 3, 1, 128, 0, 33, 0, 0 } };
#define SHAPES (sizeof shapes / sizeof *shapes)

struct rig {
    struct tsr_tensor keys, values, q, k, v, out, rows, spans, slopes;
};

static void open_rig(struct rig *r, struct tsr_cpu *c, const struct shape *s, uint32_t keys,
                     uint32_t values)
{
    const uint64_t rows = ROW0 + (s->n + 31) / 32 * 32, kv = (uint64_t)s->kv_heads * s->dim,
                   H = (uint64_t)s->heads * s->dim, per = keys == TSR_Q4_CHANNEL ? 3 : 2;
    uint32_t *at = malloc(2 * s->n * sizeof *at), *span = malloc(per * s->n * sizeof *span);
    float    *q = rnd_new(s->n * H, 1), *k = rnd_new(s->n * kv, 1), *v = rnd_new(s->n * kv, 1),
          *slopes = rnd_new(2 * (uint64_t)s->heads, 0.3f);
    assert_true(at && span);
    for (uint64_t j = 0; j < s->n * kv; j += s->dim) /* a channel far from zero, and one of zeros */
        k[j] = j / s->dim % 2 ? 0 : k[j] + 30;
    for (uint32_t i = 0; i < s->n; i++) {
        at[i] = ROW0 + i;
        at[s->n + i] = (uint32_t)rows;
        span[per * i] = ROW0;
        span[per * i + 1] = i;
        span[per * i + per - 1] = per == 3 ? (uint32_t)rows : i;
    }
    r->keys = dev(c, NULL, keys, rows + (per == 3 ? tsr_kv_tail_rows(s->dim) : 0),
                  s->kv_heads * tsr_kv_head_cols(keys, s->dim), 4);
    r->values = dev(c, NULL, values, rows, s->kv_heads * tsr_kv_head_cols(values, s->dim), 4);
    r->q = dev(c, q, TSR_F32, s->n, H, 8);
    r->out = dev(c, NULL, TSR_F32, s->n, H, 8);
    r->k = dev(c, k, TSR_F32, s->n, kv, 0);
    r->v = dev(c, v, TSR_F32, s->n, kv, 0);
    r->rows = dev(c, at, TSR_U32, per == 3 ? 2 : 1, s->n, 0);
    r->spans = dev(c, span, TSR_U32, s->n, per, 0);
    r->slopes = dev(c, slopes, TSR_F32, s->slopes > 1 ? 2 : 1, s->heads, 0);
    free(at);
    free(span);
    free(q);
    free(k);
    free(v);
    free(slopes);
}

static struct tsr_tensor part(const struct tsr_tensor *t, uint64_t first, uint64_t n)
{
    struct tsr_tensor p = *t;
    p.offset += first * t->row_stride;
    p.rows = n;
    return p;
}

/* Tokens first .. first + n. */
static void tokens(struct rig *r, struct tsr_cpu *c, const struct shape *s, uint64_t first,
                   uint64_t n)
{
    struct tsr_tensor k = part(&r->k, first, n), v = part(&r->v, first, n), rows = r->rows;
    struct tsr_tensor q = part(&r->q, first, n), out = part(&r->out, first, n),
                      spans = part(&r->spans, first, n), one;
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_KV_STORE,
                         .out = &r->keys,
                         .in = { &k, &rows },
                         .heads = s->heads,
                         .kv_heads = s->kv_heads,
                         .head_dim = s->dim,
                         .window = s->window,
                         .scale = 0.2f,
                         .softcap = s->softcap };
    rows.offset += first * 4;
    rows.cols = n;
    run_ok(c, &op);
    one = part(&rows, 0, 1);
    op.out = &r->values;
    op.in[0] = &v;
    op.in[1] = &one;
    run_ok(c, &op);
    op.kind = TSR_OP_ATTENTION;
    op.out = &out;
    op.in[0] = &q;
    op.in[1] = &r->keys;
    op.in[2] = &r->values;
    op.in[3] = &spans;
    op.in[4] = s->slopes ? &r->slopes : NULL;
    run_ok(c, &op);
}

/* `most` tokens at a time, which end with blocks. */
static void attend(struct tsr_cpu *c, const struct shape *s, uint32_t keys, uint32_t values,
                   uint64_t most)
{
    struct rig r;
    seed_state = digest_seed();
    open_rig(&r, c, s, keys, values);
    for (uint64_t i = 0, n; i < s->n; i += n) {
        n = TSR_KV_BLOCK - i % TSR_KV_BLOCK;
        n = n < most ? n : most;
        n = n < s->n - i ? n : s->n - i;
        tokens(&r, c, s, i, n);
    }
    float *y = host_of(c, &r.out);
    digest_floats(y, s->n * s->heads * s->dim);
    free(y);
    struct tsr_tensor *all[] = { &r.keys, &r.values, &r.q,     &r.k,     &r.v,
                                 &r.out,  &r.rows,   &r.spans, &r.slopes };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        undev(c, all[i]);
}

void cache_cases(struct tsr_cpu *c)
{
    static const uint32_t kinds[] = { TSR_F32, TSR_F16, TSR_I8, TSR_E4M3, TSR_Q4, TSR_Q4_CHANNEL };
    for (size_t i = 0; i < SHAPES; i++)
        for (size_t d = 0; d < sizeof kinds / sizeof *kinds; d++) {
            const uint32_t values = kinds[d] == TSR_Q4_CHANNEL ? TSR_Q4 : kinds[d];
            digest_begin("attention %u over type %u", (unsigned)i, kinds[d]);
            attend(c, &shapes[i], kinds[d], values, TSR_KV_BLOCK);
            attend(c, &shapes[i], kinds[d], values, 1);
            digest_end();
        }
}
