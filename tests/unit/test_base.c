/* The base library: half-width floats against exact arithmetic, random numbers against the vectors
 * of their paper, threads, files, sealed memory, hashes and JSON errors. */
#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/pool.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static char folder[64];

static char *at(const char *name)
{
    static char path[2][160];
    static int  next;
    char       *p = path[next++ % 2];
    (void)snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

/* ---- half-width floats --------------------------------------------------- */

/* By definition, in double, which holds every value exactly. */
static double exact_f16(uint32_t h)
{
    int    e = (int)(h >> 10 & 31);
    double m = (double)(h & 1023u), v;
    if (e == 31)
        v = h & 1023u ? (double)NAN : (double)INFINITY;
    else
        v = e ? ldexp(1024.0 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000u ? -v : v;
}

static void test_f16_decode(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        double want = exact_f16(h);
        float  got = tsr_f16_f32((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_true(isnan(tsr_f16_f32(tsr_f32_f16(got))));
        } else {
            assert_true((double)got == want && !signbit(got) == !signbit(want));
            assert_int_equal(tsr_f32_f16(got), h); /* every value survives the way back */
        }
    }
}

/* Nearest, ties to even: at the middle of each pair of neighbours and just beside it. */
static void test_f16_encode(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00u; h++) {
        double   lo = exact_f16(h), hi = h == 0x7bffu ? 65536.0 : exact_f16(h + 1);
        float    mid = (float)((lo + hi) / 2); /* exact: 12 bits */
        uint32_t even = h % 2 ? h + 1 : h;
        assert_int_equal(tsr_f32_f16(mid), even);
        assert_int_equal(tsr_f32_f16(nextafterf(mid, 0.0f)), h);
        assert_int_equal(tsr_f32_f16(nextafterf(mid, 1e9f)), h + 1);
        assert_int_equal(tsr_f32_f16(-mid), even | 0x8000u);
    }
    assert_int_equal(tsr_f32_f16(INFINITY), 0x7c00);
    assert_int_equal(tsr_f32_f16(-3e38f), 0xfc00);
    assert_int_equal(tsr_f32_f16(1e-40f), 0);
}

#ifdef __FLT16_MAX__
/* The compiler's own half, over a walk through all of F32. */
__extension__ typedef _Float16 half;

static void test_f16_compiler(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += 6007) {
        float    f = tsr_bits_f32((uint32_t)u);
        half     c = (half)f;
        uint16_t want;
        memcpy(&want, &c, 2);
        if (isnan(f))
            assert_true(isnan(tsr_f16_f32(tsr_f32_f16(f))));
        else
            assert_int_equal(tsr_f32_f16(f), want);
    }
}
#endif

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = tsr_bf16_f32((uint16_t)h);
        assert_int_equal(tsr_f32_bits(f), h << 16);
        if (isnan(f)) {
            assert_true(isnan(tsr_bf16_f32(tsr_f32_bf16(f))));
            continue;
        }
        assert_int_equal(tsr_f32_bf16(f), h);
        if ((h & 0x7f80u) == 0x7f80u)
            continue;
        uint32_t low = h << 16; /* neighbours in magnitude, with the middle between them */
        assert_int_equal(tsr_f32_bf16(tsr_bits_f32(low | 0x8000u)), h % 2 ? h + 1 : h);
        assert_int_equal(tsr_f32_bf16(tsr_bits_f32(low | 0x7fffu)), h);
        assert_int_equal(tsr_f32_bf16(tsr_bits_f32(low | 0x8001u)), h + 1);
    }
    /* a NaN whose payload is in the low half stays a NaN */
    assert_true(isnan(tsr_bf16_f32(tsr_f32_bf16(tsr_bits_f32(0x7f800001u)))));
}

static void test_widen(void **state)
{
    (void)state;
    unsigned char odd[9] = { 0xff, 0x00, 0x3c, 0x80, 0x3f };
    float         f[2];
    tsr_widen(f, odd + 1, TSR_F16, 1);
    assert_true(f[0] == 1.0f);
    tsr_widen(f, odd + 3, TSR_BF16, 1);
    assert_true(f[0] == 1.0f);
    float one = 1.5f;
    memcpy(odd + 1, &one, 4);
    tsr_widen(f, odd + 1, TSR_F32, 1);
    assert_true(f[0] == 1.5f);
    assert_int_equal(tsr_dtype_size(TSR_BF16), 2);
    assert_int_equal(tsr_dtype_size(99), 0);
    assert_string_equal(tsr_dtype_name(TSR_I8), "I8");
}

/* ---- random numbers ------------------------------------------------------- */

/* Known answers of Random123's kat_vectors for philox4x32-10. */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint64_t c0, c1, key;
        uint32_t want[4];
    } kat[] = {
        { 0, 0, 0, { 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u } },
        { UINT64_MAX,
          UINT64_MAX,
          UINT64_MAX,
          { 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu } },
        { 0x85a308d3243f6a88u,
          0x0370734413198a2eu,
          0x299f31d0a4093822u,
          { 0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u } },
    };
    for (size_t i = 0; i < COUNT(kat); i++) {
        uint32_t out[4];
        tsr_philox(out, kat[i].c0, kat[i].c1, kat[i].key);
        assert_memory_equal(out, kat[i].want, sizeof out);
    }
    /* from the first vector: 53 bits of 6627e8d5 e169c58d */
    assert_true(tsr_uniform(0, 0, 0) == (double)(UINT64_C(0x6627e8d5e169c58d) >> 11) * 0x1p-53);
    /* 20,000 draws: five standard errors are 0.035 for the mean and 0.05 for the variance */
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        double x = tsr_normal(7, 1, i), u = tsr_uniform(7, 1, i);
        assert_true(u >= 0.0 && u < 1.0);
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / 20000) < 0.036);
    assert_true(fabs(squares / 20000 - 1.0) < 0.05);
}

/* ---- threads -------------------------------------------------------------- */

struct loop {
    struct tsr_pool *pool;
    _Atomic uint32_t seen[1000];
    _Atomic uint32_t calls, nested;
    uint64_t         n, grain, fail_at;
};

static tsr_status count_one(void *arg, uint64_t begin, uint64_t end)
{
    _Atomic uint32_t *n = arg;
    atomic_fetch_add(n, (uint32_t)(end - begin));
    return TSR_OK;
}

static tsr_status visit(void *arg, uint64_t begin, uint64_t end)
{
    struct loop *l = arg;
    atomic_fetch_add(&l->calls, 1);
    if (begin % l->grain != 0 || (end - begin != l->grain && end != l->n))
        return TSR_E_BUG;
    for (uint64_t i = begin; i < end; i++) {
        atomic_fetch_add(&l->seen[i], 1);
        if (i == l->fail_at)
            return TSR_E_NUMERIC;
    }
    return tsr_pool_for(l->pool, 3, 1, count_one, &l->nested);
}

static void test_pool(void **state)
{
    (void)state;
    static const unsigned threads[] = { 1, 2, 7 };
    static const uint64_t grains[] = { 1, 7, 64, 5000 };
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    for (size_t t = 0; t < COUNT(threads); t++) {
        struct tsr_pool *pool;
        assert_int_equal(tsr_pool_create(&pool, threads[t], &e.err), TSR_OK);
        assert_int_equal(tsr_pool_threads(pool), threads[t]);
        for (size_t g = 0; g < COUNT(grains); g++) {
            for (int round = 0; round < 50; round++) {
                struct loop l = { .pool = pool, .n = 1000, .grain = grains[g], .fail_at = 9999 };
                assert_int_equal(tsr_pool_for(pool, l.n, l.grain, visit, &l), TSR_OK);
                for (uint64_t i = 0; i < l.n; i++)
                    assert_int_equal(l.seen[i], 1);
                assert_int_equal(l.calls, (l.n + l.grain - 1) / l.grain);
                assert_int_equal(l.nested, 3 * l.calls);
            }
            struct loop l = { .pool = pool, .n = 1000, .grain = grains[g], .fail_at = 500 };
            assert_int_equal(tsr_pool_for(pool, l.n, l.grain, visit, &l), TSR_E_NUMERIC);
        }
        struct loop l = { .pool = pool, .grain = 1, .fail_at = 9999 };
        assert_int_equal(tsr_pool_for(pool, 0, 1, visit, &l), TSR_OK);
        assert_int_equal(l.calls, 0);
        tsr_pool_destroy(pool);
    }
    struct tsr_pool *pool;
    assert_int_equal(tsr_pool_create(&pool, 257, &e.err), TSR_E_INPUT);
    tsr_pool_destroy(NULL);
    _Atomic uint32_t n = 0;
    assert_int_equal(tsr_pool_for(NULL, 10, 3, count_one, &n), TSR_OK);
    assert_int_equal(n, 10);
}

/* One pool with other numbers of threads, to and fro: every chunk runs once, and a number that none can have
 * leaves the pool as it was. */
static void test_pool_resize(void **state)
{
    (void)state;
    static const unsigned threads[] = { 3, 1, 1, 8, 2 };
    struct tsr_errbuf     e = TSR_ERRBUF(e);
    struct tsr_pool      *pool;
    assert_int_equal(tsr_pool_create(&pool, 2, &e.err), TSR_OK);
    for (size_t t = 0; t < COUNT(threads); t++) {
        assert_int_equal(tsr_pool_resize(pool, threads[t], &e.err), TSR_OK);
        assert_int_equal(tsr_pool_threads(pool), threads[t]);
        assert_int_equal(tsr_pool_resize(pool, 257, &e.err), TSR_E_INPUT);
        assert_int_equal(tsr_pool_threads(pool), threads[t]);
        struct loop l = { .pool = pool, .n = 1000, .grain = 7, .fail_at = 9999 };
        assert_int_equal(tsr_pool_for(pool, l.n, l.grain, visit, &l), TSR_OK);
        for (uint64_t i = 0; i < l.n; i++)
            assert_int_equal(l.seen[i], 1);
    }
    tsr_pool_destroy(pool);
    assert_int_equal(tsr_pool_resize(NULL, 2, &e.err), TSR_OK);
}

struct late {
    pthread_t        caller;
    _Atomic int      begun, done;
    _Atomic uint32_t elsewhere; /* chunks on other threads */
};

/* The caller's chunk ends when a worker has one, which goes on for longer than callers spin. */
static tsr_status one_is_late(void *arg, uint64_t begin, uint64_t end)
{
    struct late *l = arg;
    (void)begin;
    (void)end;
    if (pthread_equal(pthread_self(), l->caller)) {
        while (!atomic_load(&l->begun))
            (void)sched_yield();
        return TSR_OK;
    }
    atomic_store(&l->begun, 1);
    (void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    atomic_store(&l->done, 1);
    return TSR_OK;
}

static tsr_status count_elsewhere(void *arg, uint64_t begin, uint64_t end)
{
    struct late *l = arg;
    (void)begin;
    (void)end;
    if (!pthread_equal(pthread_self(), l->caller))
        atomic_fetch_add(&l->elsewhere, 1);
    return TSR_OK;
}

static void test_pool_waits(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_pool  *pool;
    assert_int_equal(tsr_pool_create(&pool, 2, &e.err), TSR_OK);
    for (int round = 0; round < 20; round++) {
        struct late l = { .caller = pthread_self() };
        assert_int_equal(tsr_pool_for(pool, 2, 1, one_is_late, &l), TSR_OK);
        assert_true(l.done);
    }
    struct late l = { .caller = pthread_self() };
    tsr_pool_set_serial(true);
    assert_int_equal(tsr_pool_for(pool, 10000, 1, count_elsewhere, &l), TSR_OK);
    tsr_pool_set_serial(false);
    assert_int_equal(l.elsewhere, 0);
    l = (struct late){ .caller = pthread_self() };
    assert_int_equal(tsr_pool_for(pool, 2, 1, one_is_late, &l), TSR_OK);
    assert_true(l.done);
    tsr_pool_destroy(pool);
}

/* ---- sizes, files, memory ------------------------------------------------- */

static void test_mem(void **state)
{
    (void)state;
    uint64_t v;
    char     text[TSR_BYTES_TEXT];
    assert_true(tsr_mul(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &v));
    assert_false(tsr_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
    assert_false(tsr_add(UINT64_MAX, 1, &v));
    assert_null(tsr_new(UINT64_MAX, 2));
    assert_null(tsr_new(UINT64_MAX / 2 + 1, 1));
    assert_null(tsr_new_aligned(UINT64_MAX - 10, 1));
    assert_null(tsr_renew(NULL, UINT64_MAX, 2));
    void *p = tsr_new_aligned(3, 5);
    assert_int_equal((uintptr_t)p % 64, 0);
    free(p);
    free(tsr_new(0, 8));
    assert_string_equal(tsr_format_bytes(text, sizeof text, 17), "17 B");
    assert_string_equal(tsr_format_bytes(text, sizeof text, UINT64_C(4831838208)), "4.5 GiB");
}

static void test_files(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_file   f;
    char             *data, byte[8];
    uint64_t          n;
    assert_int_equal(tsr_file_open(&f, at("none"), &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_file_open(&f, folder, &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_file_open(&f, "/dev/zero", &e.err), TSR_E_INPUT);
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(tsr_file_open(&f, at("pipe"), &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "pipe", "FIFO"));
    assert_int_equal(unlink(at("pipe")), 0);

    int fd = open(at("c"), O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abcdef", 6), 6);
    assert_int_equal(tsr_file_open(&f, at("c"), &e.err), TSR_OK);
    assert_int_equal(f.size, 6);
    assert_int_equal(tsr_file_read(&f, 2, byte, 4, &e.err), TSR_OK);
    assert_memory_equal(byte, "cdef", 4);
    assert_int_equal(tsr_file_read(&f, 4, byte, 4, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "c", "6"));
    assert_int_equal(tsr_file_unchanged(&f, &e.err), TSR_OK);
    assert_int_equal(write(fd, "g", 1), 1);
    assert_int_equal(tsr_file_unchanged(&f, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "c", NULL));
    tsr_file_close(&f);
    assert_int_equal(close(fd), 0);
    assert_int_equal(tsr_file_slurp(at("c"), 6, &data, &n, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, "c", "6"));
    assert_int_equal(tsr_make_dirs(at("x/y/z"), &e.err), TSR_OK);
    assert_true(tsr_path_is_dir(at("x/y/z")));
    assert_int_equal(tsr_make_dirs(at("x/y/z"), &e.err), TSR_OK);
    assert_int_equal(tsr_make_dirs(at("c/d"), &e.err), TSR_E_INPUT);
    assert_int_equal(rmdir(at("x/y/z")) | rmdir(at("x/y")) | rmdir(at("x")), 0);
    char *p = tsr_path_join("a/", "b"), *q = tsr_path_join("a", "/b"), *r = tsr_path_dir("/a");
    assert_string_equal(p, "a/b");
    assert_string_equal(q, "/b");
    assert_string_equal(r, "/");
    free(p);
    free(q);
    free(r);
}

static void test_sealed(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct tsr_sealed s;
    assert_int_equal(tsr_sealed_create(&s, 10000, "test", &e.err), TSR_OK);
    memset(s.data, 0x5a, 10000);
    assert_int_equal(tsr_sealed_seal(&s, &e.err), TSR_OK);
    assert_int_equal(((unsigned char *)s.data)[9999], 0x5a);
    assert_int_equal(pwrite(s.fd, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(s.fd, 10), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0), MAP_FAILED);
    tsr_sealed_destroy(&s);
    assert_int_equal(tsr_sealed_create(&s, 0, "nothing", &e.err), TSR_OK);
    assert_int_equal(tsr_sealed_seal(&s, &e.err), TSR_OK);
    tsr_sealed_destroy(&s);
    assert_int_equal(tsr_sealed_create(&s, UINT64_MAX, "all", &e.err), TSR_E_NOMEM);
}

static void test_hash(void **state)
{
    (void)state;
    struct tsr_errbuf  e = TSR_ERRBUF(e);
    struct tsr_hasher *h;
    char               a[TSR_HASH_TEXT], b[TSR_HASH_TEXT], c[TSR_HASH_TEXT];
    tsr_hash_bytes("", 0, a);
    assert_string_equal(a, "xxh3:99aa06d3014798d86001c324468d497f"); /* xxh128sum of nothing */
    tsr_hash_bytes("abcdefg", 7, a);
    assert_int_equal(tsr_hasher_create(&h, &e.err), TSR_OK);
    tsr_hasher_update(h, "abc", 3);
    tsr_hasher_update(h, "defg", 4);
    tsr_hasher_finish(h, b);
    assert_string_equal(a, b);
    assert_int_equal(tsr_hash_file(at("c"), c, &e.err), TSR_OK);
    assert_string_equal(a, c);
    tsr_hasher_finish(NULL, b);
}

/* ---- errors ---------------------------------------------------------------- */

static void expect_json(const char *text, const char *about, const char *facts)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    assert_int_equal(tsr_json_parse(&j, "f.json", text, strlen(text), 4, &e.err), TSR_E_INPUT);
    assert_true(error_is(&e.err, about, facts));
}

static void test_json(void **state)
{
    (void)state;
    expect_json("{\"a\":\n 1,}", "f.json:2:4", NULL);
    expect_json("{\"a\":1,\"a\":2}", "f.json:1:10", "duplicate");
    expect_json("[[[[[1]]]]]", "f.json", "4");
    expect_json("\"\xff\"", "f.json:1:1", "0xff");
    expect_json("", "f.json:1", NULL);
    expect_json("{} x", "f.json:1:4", NULL);
    expect_json("[NaN]", "f.json:1:4", NULL);
    expect_json("[1e999]", "f.json:1:6", NULL);

    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    static const char text[] = "{\"i\":9007199254740993,\"r\":4.0,\"h\":1.5,\"s\":\"x\\u0000y\","
                               "\"n\":null,\"b\":true,\"brackets\":\"[[[[[[\\\"{{{\"}";
    assert_int_equal(tsr_json_parse(&j, "f", text, sizeof text - 1, 2, &e.err), TSR_OK);
    int64_t     i = 7;
    double      r;
    bool        b;
    const char *s = "kept";
    assert_int_equal(tsr_json_int(j, "f", "i", true, 0, INT64_MAX, &i, &e.err), TSR_OK);
    assert_int_equal(i, INT64_C(9007199254740993)); /* not through a double */
    assert_int_equal(tsr_json_int(j, "f", "r", true, 0, 64, &i, &e.err), TSR_OK);
    assert_int_equal(i, 4);
    assert_int_equal(tsr_json_int(j, "f", "n", false, 0, 64, &i, &e.err), TSR_OK);
    assert_int_equal(i, 4); /* null is absent */
    assert_int_equal(tsr_json_int(j, "f", "n", true, 0, 64, &i, &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_json_int(j, "f", "h", true, 1, 64, &i, &e.err), TSR_E_INPUT);
    assert_string_equal(e.text, "f: \"h\": 1.5 is not an integer from 1 to 64");
    assert_int_equal(tsr_json_int(j, "f", "i", true, 0, 64, &i, &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_json_real(j, "f", "h", true, 0.0, 1.0, &r, &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_json_real(j, "f", "r", true, 0.0, 4.0, &r, &e.err), TSR_OK);
    assert_int_equal(tsr_json_bool(j, "f", "i", true, &b, &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_json_str(j, "f", "s", true, &s, &e.err), TSR_E_INPUT);
    assert_int_equal(tsr_json_str(j, "f", "absent", false, &s, &e.err), TSR_OK);
    assert_string_equal(s, "kept");
    json_decref(j);
}

static void test_err(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(tsr_fail_errno(&e.err, ENOSPC, "f", "write"), TSR_E_FULL);
    assert_string_equal(e.text, "f: cannot write: No space left on device");
    assert_int_equal(tsr_err_prefix(&e.err, TSR_E_FULL, "job %d", 3), TSR_E_FULL);
    assert_string_equal(e.text, "job 3: f: cannot write: No space left on device");
    assert_int_equal(tsr_fail_errno(NULL, ENOENT, "f", "open"), TSR_E_INPUT);
    assert_int_equal(tsr_exit_code(TSR_E_INPUT), 2);
    assert_int_equal(tsr_exit_code(TSR_E_NOMEM), 4);
    assert_int_equal(tsr_exit_code(TSR_E_CANCELLED), 75);
    assert_int_equal(tsr_exit_code(TSR_E_BUG), 70);
    char           small[8];
    struct tsr_err tiny = { .struct_size = sizeof tiny, .cap = sizeof small, .text = small };
    assert_int_equal(tsr_fail(&tiny, TSR_E_IO, "a long sentence"), TSR_E_IO);
    assert_int_equal(tsr_err_prefix(&tiny, TSR_E_IO, "prefix prefix"), TSR_E_IO);
    assert_in_range(strlen(small), 0, 7);
    /* names out of files: one line all the same, and what is not ASCII stays */
    assert_int_equal(tsr_fail(&e.err, TSR_E_INPUT, "\"%s\" is no \x7f", "a\n\tb\xc3\xa4"),
                     TSR_E_INPUT);
    assert_string_equal(e.text, "\"a??b\xc3\xa4\" is no ?");
    assert_int_equal(tsr_err_prefix(&e.err, TSR_E_INPUT, "tensor \"%s\"", "c\rd"), TSR_E_INPUT);
    assert_string_equal(e.text, "tensor \"c?d\": \"a??b\xc3\xa4\" is no ?");
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/tessera-base-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    int fd = open(at("c"), O_WRONLY | O_CREAT, 0600); /* whatever tests ran, both can go */
    if (fd >= 0)
        close(fd);
    (void)unlink(at("a"));
    (void)unlink(at("c"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_decode),   cmocka_unit_test(test_f16_encode),
#ifdef __FLT16_MAX__
        cmocka_unit_test(test_f16_compiler),
#endif
        cmocka_unit_test(test_bf16),         cmocka_unit_test(test_widen),
        cmocka_unit_test(test_philox),       cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_resize),  cmocka_unit_test(test_pool_waits),
        cmocka_unit_test(test_mem),          cmocka_unit_test(test_files),
        cmocka_unit_test(test_sealed),       cmocka_unit_test(test_hash),
        cmocka_unit_test(test_json),         cmocka_unit_test(test_err),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
