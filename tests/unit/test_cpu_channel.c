/* test_cpu_channel.c - keys in blocks with a scale of each channel (TSR_Q4_CHANNEL): on every instruction set the bytes of the
 * reference, and attention over blocks and tails near its value in double, however the tokens come. */
#include "cpu_fixture.h"
#include "reference.h"
#include "tessera/kv_cache.h"

#include <math.h>
#include <stdbool.h>

#define ROW0 64u /* of the sequence; rows before it belong to nobody */

struct shape {
    uint32_t heads, kv_heads, dim, window;
    uint64_t n; /* positions, a token each */
    float    softcap;
    bool     alibi;
};

static const struct shape shapes[] = {
    { 1, 1, 1, 0, 33, 0, false },    { 4, 2, 8, 0, 31, 0, false },   { 8, 2, 64, 0, 100, 0, false },
    { 5, 1, 33, 17, 97, 0, true },   { 2, 2, 80, 40, 128, 3, true }, { 12, 3, 16, 0, 65, 0, false },
    { 8, 1, 128, 50, 64, 0, false },
};
#define SHAPES (sizeof shapes / sizeof *shapes)

struct rig {
    const struct shape *s;
    struct tsr_cpu     *c;
    struct tsr_tensor   keys, values, q, k, v, out, rows, spans, slopes;
    uint64_t            tail; /* row of the tail */
};

/* A cache for the n positions, filled with a mark, and inputs of all of them. */
static void open_rig(struct rig *r, const struct shape *s, struct tsr_cpu *c, const float *q,
                     const float *k, const float *v, const float *slopes)
{
    uint64_t  rows = ROW0 + (s->n + 31) / 32 * 32, kv = (uint64_t)s->kv_heads * s->dim;
    uint32_t *at = malloc(2 * s->n * sizeof *at), *span = malloc(3 * s->n * sizeof *span);
    assert_true(at && span);
    r->s = s;
    r->c = c;
    r->tail = rows;
    for (uint32_t i = 0; i < s->n; i++) {
        at[i] = ROW0 + i;
        at[s->n + i] = span[3 * i + 2] = (uint32_t)r->tail;
        span[3 * i] = ROW0;
        span[3 * i + 1] = i;
    }
    r->keys = dev(c, NULL, TSR_Q4_CHANNEL, rows + tsr_kv_tail_rows(s->dim),
                  s->kv_heads * tsr_kv_head_cols(TSR_Q4_CHANNEL, s->dim), 4);
    r->values = dev(c, NULL, TSR_Q4, rows, s->kv_heads * tsr_kv_head_cols(TSR_Q4, s->dim), 4);
    r->q = dev(c, q, TSR_F32, s->n, (uint64_t)s->heads * s->dim, 8);
    r->out = dev(c, NULL, TSR_F32, s->n, (uint64_t)s->heads * s->dim, 8);
    r->k = dev(c, k, TSR_F32, s->n, kv, 0);
    r->v = dev(c, v, TSR_F32, s->n, kv, 0);
    r->rows = dev(c, at, TSR_U32, 2, s->n, 0);
    r->spans = dev(c, span, TSR_U32, s->n, 3, 0);
    r->slopes = dev(c, slopes, TSR_F32, 1, s->heads, 0);
    free(at);
    free(span);
}

static void close_rig(struct rig *r)
{
    struct tsr_tensor *all[] = { &r->keys, &r->values, &r->q,     &r->out,   &r->k,
                                 &r->v,    &r->rows,   &r->spans, &r->slopes };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        undev(r->c, all[i]);
}

static struct tsr_tensor part(const struct tsr_tensor *t, uint64_t first, uint64_t n)
{
    struct tsr_tensor p = *t;
    p.offset += first * t->row_stride;
    p.rows = n;
    return p;
}

/* Tokens first .. first + n, all of one block. */
static void run_tokens(struct rig *r, uint64_t first, uint64_t n)
{
    struct tsr_tensor k = part(&r->k, first, n), v = part(&r->v, first, n), rows = r->rows, one;
    struct tsr_tensor q = part(&r->q, first, n), out = part(&r->out, first, n);
    struct tsr_tensor spans = part(&r->spans, first, n);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_KV_STORE,
                             .out = &r->keys,
                             .in = { &k, &rows },
                             .heads = r->s->heads,
                             .kv_heads = r->s->kv_heads,
                             .head_dim = r->s->dim,
                             .window = r->s->window,
                             .scale = 0.2f,
                             .softcap = r->s->softcap };
    rows.offset += first * 4;
    rows.cols = n;
    run_ok(r->c, &op);
    one = part(&rows, 0, 1);
    op.out = &r->values;
    op.in[0] = &v;
    op.in[1] = &one;
    run_ok(r->c, &op);
    op.kind = TSR_OP_ATTENTION;
    op.out = &out;
    op.in[0] = &q;
    op.in[1] = &r->keys;
    op.in[2] = &r->values;
    op.in[3] = &spans;
    op.in[4] = r->s->alibi ? &r->slopes : NULL;
    run_ok(r->c, &op);
}

/* All tokens, at most `most` at a time.  Returns the outputs. */
static float *run_all(struct rig *r, uint64_t most)
{
    for (uint64_t i = 0, n; i < r->s->n; i += n) {
        n = TSR_KV_BLOCK - i % TSR_KV_BLOCK;
        n = n < most ? n : most;
        n = n < r->s->n - i ? n : r->s->n - i;
        run_tokens(r, i, n);
    }
    return host_of(r->c, &r->out);
}

/* The reference's bytes of block b of KV head h. */
static void want_block(uint8_t *block, const struct shape *s, const float *k, uint64_t b,
                       uint32_t h)
{
    uint16_t tail[TSR_KV_BLOCK * 128];
    for (uint64_t j = 0; j < TSR_KV_BLOCK; j++)
        tsr_ref_head_store(tail + j * s->dim, TSR_F16,
                           k + ((b * TSR_KV_BLOCK + j) * s->kv_heads + h) * s->dim, s->dim);
    tsr_ref_block_store(block, tail, 2 * (uint64_t)s->dim, s->dim);
}

/* Whole blocks, and the tail of the last positions. */
static void check_bytes(struct rig *r, const float *k)
{
    const struct shape *s = r->s;
    uint64_t            each = TSR_KV_BLOCK * tsr_kv_head_bytes(TSR_Q4_CHANNEL, s->dim);
    uint64_t stride = r->keys.row_stride, used = 20 * (uint64_t)s->dim, half = 2 * (uint64_t)s->dim;
    uint64_t rows = r->keys.rows, last = (s->n - 1) / TSR_KV_BLOCK * TSR_KV_BLOCK;
    uint8_t *got = malloc(rows * stride), *want = malloc(each);
    assert_true(got && want);
    assert_true(used <= each);
    assert_int_equal(tsr_cpu_download(r->c, r->keys.buffer, r->keys.offset, got, rows * stride,
                                      NULL),
                     TSR_OK);
    for (uint64_t b = 0; b < s->n / TSR_KV_BLOCK; b++)
        for (uint32_t h = 0; h < s->kv_heads; h++) {
            want_block(want, s, k, b, h);
            assert_memory_equal(got + (ROW0 + b * TSR_KV_BLOCK) * stride + h * each, want, used);
        }
    for (uint64_t i = last; i < s->n; i++)
        for (uint32_t h = 0; h < s->kv_heads; h++) {
            uint16_t head[128];
            tsr_ref_head_store(head, TSR_F16, k + (i * s->kv_heads + h) * s->dim, s->dim);
            assert_memory_equal(got + r->tail * stride + ((i - last) * s->kv_heads + h) * half,
                                head, half);
        }
    free(got);
    free(want);
}

/* What a token at position p sees of key j: [dim] of each KV head. */
static void seen_key(double *x, const struct shape *s, const float *k, uint64_t j, uint64_t p)
{
    uint8_t  block[TSR_KV_BLOCK * 80];
    uint16_t head[128];
    assert_true(s->dim <= 128);
    for (uint32_t h = 0; h < s->kv_heads; h++, x += s->dim) {
        tsr_ref_head_store(head, TSR_F16, k + (j * s->kv_heads + h) * s->dim, s->dim);
        tsr_ref_head_load(x, TSR_F16, head, s->dim);
        if (j / TSR_KV_BLOCK == p / TSR_KV_BLOCK)
            continue;
        want_block(block, s, k, j / TSR_KV_BLOCK, h);
        tsr_ref_block_load(x, block, j % TSR_KV_BLOCK, s->dim);
    }
}

static void check_values(const struct shape *s, const float *q, const float *k, const float *v,
                         const float *slopes, const float *got)
{
    uint64_t kv = (uint64_t)s->kv_heads * s->dim, H = (uint64_t)s->heads * s->dim;
    double  *keys = malloc(s->n * kv * sizeof *keys), *values = malloc(s->n * kv * sizeof *values);
    double  *scores = malloc(s->n * sizeof *scores), *want = malloc(s->dim * sizeof *want);
    uint8_t  head[4 * 128];
    assert_true(keys && values && scores && want);
    for (uint64_t i = 0; i < s->n * s->kv_heads; i++) {
        tsr_ref_head_store(head, TSR_Q4, v + i * s->dim, s->dim);
        tsr_ref_head_load(values + i * s->dim, TSR_Q4, head, s->dim);
    }
    for (uint64_t p = 0; p < s->n; p++) {
        uint64_t first = tsr_ref_first(p, s->window);
        for (uint64_t j = first; j <= p; j++)
            seen_key(keys + j * kv, s, k, j, p);
        for (uint32_t h = 0; h < s->heads; h++) {
            uint64_t at = first * kv + h / (s->heads / s->kv_heads) * s->dim;
            tsr_ref_attention(want, NULL, scores, q + p * H + h * s->dim, keys + at, values + at,
                              p + 1 - first, kv, s->dim, 0.2f, s->softcap, s->alibi ? slopes[h] : 0,
                              -INFINITY);
            /* as in test_cpu_ops.c; (q * scale) * code rounds once more than q * k, and codes are up to 15 scales */
            for (uint32_t d = 0; d < s->dim; d++) {
                double off = fabs((double)got[p * H + h * s->dim + d] - want[d]);
                if (!(off <= 0x1p-23 * (64.0 + s->dim)))
                    fail_msg("position %llu, head %u, channel %u: %g is %g off",
                             (unsigned long long)p, h, d, want[d], off);
            }
        }
    }
    free(keys);
    free(values);
    free(scores);
    free(want);
}

/* One instruction set: outputs of tokens by the block, in threes and one by one are the same bytes. */
static float *outputs(const struct shape *s, struct tsr_cpu *c, const float *q, const float *k,
                      const float *v, const float *slopes)
{
    static const uint64_t most[] = { TSR_KV_BLOCK, 3, 1 };
    float                *first = NULL;
    for (size_t i = 0; i < 3; i++) {
        struct rig r;
        open_rig(&r, s, c, q, k, v, slopes);
        float *y = run_all(&r, most[i]);
        check_bytes(&r, k);
        close_rig(&r);
        if (!first) {
            first = y;
            continue;
        }
        assert_memory_equal(y, first, s->n * s->heads * s->dim * 4);
        free(y);
    }
    return first;
}

static void every_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        uint64_t            kv = s->n * s->kv_heads * s->dim, H = s->n * s->heads * s->dim;
        float              *q = rnd_new(H, 1), *k = rnd_new(kv, 1), *v = rnd_new(kv, 1);
        float              *slopes = rnd_new(s->heads, 0.3f), *first = NULL;
        for (uint64_t j = 0; j < kv; j += s->dim) /* a channel far from zero, and one of zeros */
            k[j] = j / s->dim % 2 ? 0 : k[j] + 30;
        for (int isa = 0; isa < ISAS; isa++) {
            struct tsr_cpu *c = cpu_new(test_isas[isa]);
            if (!c)
                continue;
            float *y = outputs(s, c, q, k, v, slopes);
            if (!first)
                first = y;
            else if (memcmp(y, first, H * 4) != 0)
                fail_msg("shape %zu: %s differs", i, test_isas[isa]);
            if (y != first)
                free(y);
            tsr_cpu_destroy(c);
        }
        assert_non_null(first);
        check_values(s, q, k, v, slopes, first);
        free(q);
        free(k);
        free(v);
        free(slopes);
        free(first);
        assert_int_equal(host_bytes, 0);
    }
}

/* A row whose block or tail is not inside the cache, a sequence that begins inside a block, and values by channel. */
static void bad_places_are_refused(void **state)
{
    static const struct shape s = { 2, 1, 16, 0, 40, 0, false };
    float *q = rnd_new(40 * 32, 1), *k = rnd_new(40 * 16, 1), slopes[2] = { 0, 0 };
    (void)state;
    struct tsr_cpu *c = cpu_new(test_isas[0]);
    struct rig      r;
    open_rig(&r, &s, c, q, k, k, slopes);
    struct tsr_op     op = { .struct_size = sizeof op,
                             .kind = TSR_OP_KV_STORE,
                             .out = &r.keys,
                             .in = { &r.k, &r.rows },
                             .heads = 2,
                             .kv_heads = 1,
                             .head_dim = 16 };
    struct tsr_tensor keys = r.keys, one = part(&r.rows, 0, 1);
    keys.rows--;
    op.out = &keys;
    assert_int_equal(tsr_cpu_run(c, NULL, &op, NULL), TSR_E_INVAL);
    op.out = &r.keys;
    op.in[1] = &one;
    assert_int_equal(tsr_cpu_run(c, NULL, &op, NULL), TSR_E_INVAL);
    op.kind = TSR_OP_ATTENTION;
    op.out = &r.out;
    op.in[0] = &r.q;
    op.in[1] = &r.keys;
    op.in[2] = &r.values;
    op.in[3] = &r.spans;
    run_ok(c, &op);
    op.in[2] = &r.keys;
    assert_int_equal(tsr_cpu_run(c, NULL, &op, NULL), TSR_E_INVAL);
    op.in[2] = &r.values;
    uint32_t odd[] = { ROW0 + 1, 0, (uint32_t)r.tail };
    assert_int_equal(tsr_cpu_upload(c, r.spans.buffer, r.spans.offset, odd, sizeof odd, NULL),
                     TSR_OK);
    assert_int_equal(tsr_cpu_run(c, NULL, &op, NULL), TSR_E_INVAL);
    odd[0]--;
    odd[2]++;
    assert_int_equal(tsr_cpu_upload(c, r.spans.buffer, r.spans.offset, odd, sizeof odd, NULL),
                     TSR_OK);
    assert_int_equal(tsr_cpu_run(c, NULL, &op, NULL), TSR_E_INVAL);
    close_rig(&r);
    tsr_cpu_destroy(c);
    free(q);
    free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape),
        cmocka_unit_test(bad_places_are_refused),
    };
    return cmocka_run_group_tests_name("cpu channel", tests, NULL, NULL);
}
