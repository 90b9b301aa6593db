/* algebra.c - tessera.linalg/1, and the selection and the sums of error compensation. */
#include "digests.h"

#include "../unit/compensate_fixture.h"
#include "tessera/linalg.h"

static void begin(const char *what, uint32_t i)
{
    digest_begin("%s %u", what, i);
    seed_state = digest_seed();
}

static void matrices(const struct tsr_linalg_v1 *l)
{
    const uint64_t M = 57, N = 75, K = 130;
    float         *a = rnd_new(M * K, 1), *b = rnd_new(K * N, 1), *y = rnd_new(M * N, 1);
    assert_int_equal(l->gemm(l->ctx, M, N, K, -0.5f, a, K, b, N, 0, y, N, NULL), TSR_OK);
    digest_floats(y, M * N);
    assert_int_equal(l->gemm(l->ctx, M, N, K, 1.5f, a, K, b, K, 1, y, N, NULL), TSR_OK);
    digest_floats(y, M * N);
    free(a);
    free(b);
    free(y);
}

/* n is more than a block of the factorization for the last one. */
static void factors(const struct tsr_linalg_v1 *l, uint64_t n)
{
    const uint64_t rows = n + 9;
    float         *x = rnd_new(rows * n, 1), *a = calloc(n * n, 4);
    uint64_t       pivot = 0;
    double         largest = 0;
    assert_non_null(a);
    assert_int_equal(l->syrk(l->ctx, n, rows, 2.0f, x, n, a, n, NULL), TSR_OK);
    digest_floats(a, n * n);
    assert_int_equal(l->largest_eigenvalue(l->ctx, n, a, n, 20, 1e-6, &largest, NULL), TSR_OK);
    digest_bytes(&largest, sizeof largest);
    for (uint64_t i = 0; i < n; i++)
        a[i * n + i] += 1.0f;
    assert_int_equal(l->cholesky(l->ctx, n, a, n, &pivot, NULL), TSR_OK);
    digest_floats(a, n * n);
    assert_int_equal(l->cholesky_inverse(l->ctx, n, a, n, NULL), TSR_OK);
    digest_floats(a, n * n);
    free(x);
    free(a);
}

/* Channels of 2,100 by buckets, and what three linears of them add. */
static void compensation(struct tsr_cpu *c, uint32_t bits)
{
    const uint64_t    TOKENS = 3, CHANNELS = 2100;
    const uint32_t    TAKE = 64;
    const uint64_t    outputs[] = { 40, 1025, 300 };
    const uint64_t    room = 1 + CHANNELS;
    float            *x = rnd_new(TOKENS * CHANNELS, 1), floors[32];
    char              text[512] = "";
    struct tsr_err    err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    struct tsr_tensor tx = dev(c, x, TSR_F32, TOKENS, CHANNELS, 0), to[3],
                      tl = dev(c, NULL, TSR_U32, TOKENS, room, 0);
    struct tsr_compensate_op op = { .struct_size = sizeof op, .n = 3, .x = &tx, .list = &tl };
    struct res               r[3];
    floors_of(0.99, 0.5, floors);
    if (select_on(c, &tx, NULL, TAKE, floors, &tl, text) != TSR_OK)
        fail_msg("%s", text);
    uint32_t *list = host_of(c, &tl);
    for (uint64_t t = 0; t < TOKENS; t++)
        digest_bytes(list + t * room, 4 * (1 + (uint64_t)list[t * room]));
    free(list);
    for (uint32_t j = 0; j < 3; j++) {
        void  *h = NULL;
        float *y = rnd_new(TOKENS * outputs[j], 1);
        r[j] = res_new(bits, CHANNELS, outputs[j]);
        assert_int_equal(table(c)->residual_load(c, &r[j].d, &h, &err), TSR_OK);
        op.residual[j] = h;
        to[j] = dev(c, y, TSR_F32, TOKENS, outputs[j], 12);
        op.out[j] = &to[j];
        free(y);
    }
    if (table(c)->compensate(c, NULL, &op, &err) != TSR_OK)
        fail_msg("%s", text);
    for (uint32_t j = 0; j < 3; j++) {
        float *y = host_of(c, &to[j]);
        digest_floats(y, TOKENS * outputs[j]);
        free(y);
        table(c)->residual_free(c, (void *)(uintptr_t)op.residual[j]);
        free(r[j].codes);
        free(r[j].scales);
        undev(c, &to[j]);
    }
    undev(c, &tx);
    undev(c, &tl);
    free(x);
}

void algebra_cases(struct tsr_cpu *c)
{
    const struct tsr_linalg_v1 *l = tsr_cpu_extension(c, TSR_LINALG);
    static const uint64_t       sizes[] = { 7, 33, 150 };
    assert_non_null(l);
    begin("gemm", 0);
    matrices(l);
    digest_end();
    for (uint32_t i = 0; i < 3; i++) {
        begin("factors of", (uint32_t)sizes[i]);
        factors(l, sizes[i]);
        digest_end();
    }
    for (uint32_t bits = 2; bits <= 16; bits *= 2) {
        begin("compensation of bits", bits);
        compensation(c, bits);
        digest_end();
    }
}
