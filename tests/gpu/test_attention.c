/* ATTENTION's launches and its scratch, over a device that runs none of them: three launches, whose arguments stay
 * as they are while a sequence grows by 256 tokens; scratch of the size that tessera.sizes/1 gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"

/* ---- a host and a device ------------------------------------------------------------------ */

static void *host_alloc(void *ctx, uint64_t size, uint64_t align)
{
    void *p = NULL;
    (void)ctx;
    return posix_memalign(&p, align < sizeof p ? sizeof p : align, size) == 0 ? p : NULL;
}
static void host_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}
static int logged;

static void host_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    logged += strstr(msg, "ATTENTION runs on the exact kernels: its cache is F32") != NULL;
}
static int32_t host_cancelled(void *ctx)
{
    (void)ctx;
    return 0;
}
static const struct tsr_host host = { .struct_size = sizeof host,
                                      .log = host_log,
                                      .alloc = host_alloc,
                                      .release = host_release,
                                      .cancelled = host_cancelled };

#define LARGE      (UINT64_C(64) << 20) /* such memory has an address only */
#define LARGE_AT   (UINT64_C(1) << 44)
#define LAUNCHES   64
#define ROWS       UINT64_C(500000)
#define POSITIONS  UINT64_C(450000)
#define MANY_HEADS 64u

static struct {
    struct tsr_cuda_launch l[LAUNCHES];
    struct k_attention     a[LAUNCHES];
    int                    n, allocs;
} seen;

static tsr_status launch(void *d, void *s, const struct tsr_cuda_launch *l, struct tsr_err *err)
{
    (void)d;
    (void)s;
    (void)err;
    assert_true(seen.n < LAUNCHES && l->args_bytes == sizeof seen.a[0]);
    memcpy(&seen.a[seen.n], l->args, sizeof seen.a[0]);
    seen.l[seen.n++] = *l;
    return TSR_OK;
}
static tsr_status alloc(void *d, uint64_t bytes, enum tsr_cuda_memory kind, uint64_t *address,
                        struct tsr_err *err)
{
    seen.allocs++;
    if (bytes < LARGE)
        return tsr_cuda_simt.alloc(d, bytes, kind, address, err);
    *address = LARGE_AT;
    return TSR_OK;
}
static void release(void *d, uint64_t address, enum tsr_cuda_memory kind)
{
    if (address != LARGE_AT)
        tsr_cuda_simt.release(d, address, kind);
}

/* ---- operations --------------------------------------------------------------------------- */

struct rig {
    void             *self;
    struct tsr_tensor out, q, cache, spans;
    struct tsr_op     op;
    struct tsr_err    err;
    char              text[400];
};

static void make(struct rig *r, struct tsr_tensor *t, uint32_t dtype, uint64_t rows, uint64_t cols)
{
    *t = (struct tsr_tensor){
        .struct_size = sizeof *t, .dtype = dtype, .rows = rows, .cols = cols, .row_stride = cols * 4
    };
    assert_int_equal(tsr_cuda_buffer_alloc(r->self, rows * cols * 4, &t->buffer, &r->err), TSR_OK);
}

static void begin_as(struct rig *r, uint64_t tokens, uint32_t heads, uint32_t dim, uint32_t dtype,
                     int fast)
{
    static struct tsr_cuda_api api;
    struct tsr_cuda_options    o = { .launching = TSR_CUDA_ONE_BY_ONE,
                                     .numerics = fast ? TSR_CUDA_FAST : TSR_CUDA_EXACT };
    api = tsr_cuda_simt;
    api.launch = launch;
    api.alloc = alloc;
    api.release = release;
    memset(&seen, 0, sizeof seen);
    r->err =
        (struct tsr_err){ .struct_size = sizeof r->err, .cap = sizeof r->text, .text = r->text };
    assert_int_equal(tsr_cuda_create(&host, &api, &o, &r->self, &r->err), TSR_OK);
    make(r, &r->out, TSR_F32, tokens, (uint64_t)heads * dim);
    make(r, &r->q, TSR_F32, tokens, (uint64_t)heads * dim);
    make(r, &r->cache, dtype, ROWS, dim);
    make(r, &r->spans, TSR_U32, tokens, 2);
    r->op = (struct tsr_op){ .struct_size = sizeof r->op,
                             .kind = TSR_OP_ATTENTION,
                             .out = &r->out,
                             .in = { &r->q, &r->cache, &r->cache, &r->spans },
                             .heads = heads,
                             .kv_heads = 1,
                             .head_dim = dim,
                             .scale = 1.0f };
}

static void begin(struct rig *r, uint64_t tokens, uint32_t heads, uint32_t dim)
{
    begin_as(r, tokens, heads, dim, TSR_F32, 0);
}

static void end(struct rig *r)
{
    tsr_cuda_buffer_free(r->self, r->out.buffer);
    tsr_cuda_buffer_free(r->self, r->q.buffer);
    tsr_cuda_buffer_free(r->self, r->cache.buffer);
    tsr_cuda_buffer_free(r->self, r->spans.buffer);
    tsr_cuda_destroy(r->self);
}

/* Token t is at position p + t * each of the sequence at row t * apart; launches are those of this run. */
static void attend(struct rig *r, uint32_t p, uint32_t each, uint32_t apart)
{
    uint32_t spans[2 * 64];
    for (uint32_t t = 0; t < r->spans.rows; t++) {
        spans[2 * t] = t * apart;
        spans[2 * t + 1] = p + t * each;
    }
    assert_int_equal(tsr_cuda_upload(r->self, r->spans.buffer, 0, spans, r->spans.rows * 8,
                                     &r->err),
                     TSR_OK);
    seen.n = 0;
    assert_int_equal(tsr_cuda_run(r->self, NULL, &r->op, &r->err), TSR_OK);
}

static const struct tsr_cuda *backend(const struct rig *r)
{
    return r->self;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void three_launches_that_stay(void **state)
{
    struct rig         r;
    struct k_attention first;
    (void)state;
    begin(&r, 4, 8, 16);
    attend(&r, 512, 0, 1000);
    first = seen.a[2];
    for (uint32_t p = 512; p < 768; p += 51) {
        attend(&r, p, 0, 1000);
        assert_int_equal(seen.n, 3);
        assert_memory_equal(&seen.a[2], &first, sizeof first);
        assert_int_equal(seen.a[0].tile, 1); /* each has its own sequence */
        assert_int_equal(seen.l[0].grid[0], 6);
    }
    attend(&r, 768, 0, 1000);
    assert_int_equal(seen.a[2].blocks, first.blocks + 1);
    /* a window stays for ever */
    r.op.window = 300;
    attend(&r, 1000, 0, 1000);
    first = seen.a[2];
    for (uint32_t p = 1001; p < 20000; p += 777) {
        attend(&r, p, 0, 1000);
        assert_memory_equal(&seen.a[2], &first, sizeof first);
    }
    end(&r);
}

static void a_prompt_has_tiles(void **state)
{
    struct rig r;
    (void)state;
    begin(&r, 50, 4, 16);
    attend(&r, 100, 1, 0);
    assert_int_equal(seen.n, 3);
    assert_int_equal(seen.a[0].tile, 4); /* 16 queries */
    assert_int_equal(seen.l[0].grid[2], 13);
    assert_int_equal(seen.l[1].grid[2], 13);
    assert_int_equal(seen.l[2].grid[1], 50);
    end(&r);
}

/* Under numerics: fast: 64 queries a block, and no scratch; F32 caches keep their three launches, which is logged once. */
static void a_fast_prompt_is_one_launch(void **state)
{
    static const struct {
        uint32_t             tokens, heads, dim, tile, y;
        enum tsr_cuda_kernel kernel;
    } cases[] = { { 50, 4, 16, 16, 1, KERNEL_k_flash64 },
                  { 9, 7, 80, 9, 1, KERNEL_k_flash96 },
                  { 12, 1, 128, 64, 1, KERNEL_k_flash128 },
                  { 11, 71, 136, 1, 2, KERNEL_k_flash256 } };
    struct rig r;
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t tile = cases[i].tile;
        begin_as(&r, cases[i].tokens, cases[i].heads, cases[i].dim, TSR_F16, 1);
        attend(&r, 100, 1, 0);
        assert_int_equal(seen.n, 1);
        assert_int_equal(seen.l[0].kernel, cases[i].kernel);
        assert_int_equal(seen.a[0].tile, tile);
        assert_int_equal(seen.l[0].grid[1], cases[i].y);
        assert_int_equal(seen.l[0].grid[2], (cases[i].tokens + tile - 1) / tile);
        assert_int_equal(backend(&r)->work_bytes, 0);
        attend(&r, 100, 1, 1000); /* decode */
        assert_int_equal(seen.n, 3);
        end(&r);
    }
    begin_as(&r, 8, 4, 16, TSR_F16, 1); /* few tokens */
    attend(&r, 100, 1, 0);
    assert_int_equal(seen.n, 3);
    end(&r);
    logged = 0;
    begin_as(&r, 50, 4, 16, TSR_F32, 1);
    attend(&r, 100, 1, 0);
    attend(&r, 100, 1, 0);
    assert_int_equal(seen.n, 3);
    assert_int_equal(logged, 1);
    end(&r);
}

/* Scratch as an engine takes it holds whatever comes later, and every address lies in it. */
static void scratch_is_that_of_sizes(void **state)
{
    static const struct {
        uint32_t tokens, heads, dim;
        uint64_t positions;
    } cases[] = { { 1, 8, 16, 300 },
                  { 40, 8, 16, 5000 },
                  { 3, MANY_HEADS, 1, POSITIONS },
                  { 13, MANY_HEADS, 1, POSITIONS },
                  { 50, 16, 3, 77 } };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tsr_sizes_v1 *sizes = tsr_cuda_sizes();
        const uint32_t             tokens = cases[i].tokens;
        struct rig                 r;
        uint64_t                   bytes;
        begin(&r, tokens, cases[i].heads, cases[i].dim);
        assert_int_equal(sizes->attention(r.self, tokens, cases[i].positions, cases[i].heads, 1,
                                          cases[i].dim, &bytes, &r.err),
                         TSR_OK);
        assert_int_equal(sizes->reserve(r.self, bytes, &r.err), TSR_OK);
        seen.allocs = 0;
        for (uint64_t p = cases[i].positions - 1; p >= tokens; p = p * 3 / 5) {
            attend(&r, (uint32_t)p - tokens + 1, 1, 0);
            assert_int_equal(seen.allocs, 0);
            assert_int_equal(backend(&r)->work_bytes, bytes);
            for (int l = 0; l < seen.n; l++) {
                const struct k_attention *a = &seen.a[l];
                const uint64_t at = backend(&r)->work, n = (uint64_t)a->tokens * a->heads;
                assert_true(a->scores >= at && a->scores + n * a->blocks * 256 * 4 <= a->tops);
                assert_true(a->tops + n * a->blocks * 2 * 4 <= a->den);
                assert_true(a->den + n * 4 <= a->partial);
                assert_true(a->partial + n * a->blocks * a->head_dim * 4 <= at + bytes);
            }
        }
        end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_launches_that_stay),
        cmocka_unit_test(a_prompt_has_tiles),
        cmocka_unit_test(a_fast_prompt_is_one_launch),
        cmocka_unit_test(scratch_is_that_of_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
