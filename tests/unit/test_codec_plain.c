/* The codec "plain": exact where it says so, rounded as IEEE 754 says where not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "plugin_open.h"
#include "tessera/codec.h"

#include <math.h>
#include <string.h>

static struct tsr_registry       *registry;
static struct tsr_plugin_found    found;
static const struct tsr_codec_v1 *codec;

static void *make(int64_t dtype)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    struct {
        int64_t dtype;
    } opts = { dtype };
    void *self = NULL;
    assert_int_equal(codec->create(found.host, &opts, &self, &e.err), TSR_OK);
    return self;
}

static struct tsr_codec_job job_of(uint64_t rows, uint64_t cols, const float *src, float *dst,
                                   void *wire, uint64_t bytes)
{
    return (struct tsr_codec_job){ .struct_size = sizeof(struct tsr_codec_job),
                                   .rows = rows,
                                   .cols = cols,
                                   .src = src,
                                   .dst = dst,
                                   .wire = wire,
                                   .wire_bytes = bytes };
}

#if defined(__FLT16_MANT_DIG__)
__extension__ typedef _Float16 half_t;
#endif

/* What the wire must hold; the compiler's own half type where there is one, so that the oracle is
 * not code of ours. */
static uint16_t want_f16(float f)
{
#if defined(__FLT16_MANT_DIG__)
    half_t   h = (half_t)f;
    uint16_t u;
    memcpy(&u, &h, 2);
    return u;
#else
    return tsr_f32_f16(f);
#endif
}

static float want_f32(uint16_t u)
{
#if defined(__FLT16_MANT_DIG__)
    half_t h;
    memcpy(&h, &u, 2);
    return (float)h;
#else
    return tsr_f16_f32(u);
#endif
}

static void same(float a, float b)
{
    if (isnan(b))
        assert_true(isnan(a) && (signbit(a) != 0) == (signbit(b) != 0));
    else
        assert_int_equal(tsr_f32_bits(a), tsr_f32_bits(b));
}

static void test_exact(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = make(TSR_F32);
    uint32_t          bits[9] = { 0,           0x80000000u, 1,           0x7f800000u, 0xff800000u,
                                  0x7fc00001u, 0x7f800001u, 0xffabcdefu, 0x3f800001u },
             back[9];
    float         src[9], dst[9];
    unsigned char wire[37] = { 0 };
    uint64_t      n = 0;
    assert_int_equal(codec->exactness(self), TSR_CODEC_EXACT);
    assert_int_equal(codec->wire_bytes(self, 3, 3, &n, &e.err), TSR_OK);
    assert_int_equal(n, 36);
    memcpy(src, bits, sizeof src);
    struct tsr_codec_job j = job_of(3, 3, src, dst, wire + 1, 36); /* wire need not be aligned */
    assert_int_equal(codec->encode(self, &j, &e.err), TSR_OK);
    assert_memory_equal(wire + 1, bits, 36);
    assert_int_equal(wire[0], 0);
    assert_int_equal(codec->decode(self, &j, &e.err), TSR_OK);
    memcpy(back, dst, sizeof back);
    assert_memory_equal(back, bits, 36);
    codec->destroy(self);
}

/* Every half decodes, every half and its neighbourhood encodes. */
static void test_f16(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = make(TSR_F16);
    assert_int_equal(codec->exactness(self), TSR_CODEC_LOSSY);
    for (uint32_t u = 0; u < 65536; u++) {
        uint16_t             half = (uint16_t)u, wire[8];
        float                got, src[8];
        struct tsr_codec_job j = job_of(1, 1, NULL, &got, &half, 2);
        assert_int_equal(codec->decode(self, &j, &e.err), TSR_OK);
        same(got, want_f32(half));
        /* at, beside and halfway to the next value, where ties are decided */
        uint32_t at = tsr_f32_bits(got);
        for (uint32_t i = 0; i < 8; i++)
            src[i] = tsr_bits_f32(at + (i < 4 ? i - 1u : 0x1000u + i - 6u));
        j = job_of(1, 8, src, NULL, wire, 16);
        assert_int_equal(codec->encode(self, &j, &e.err), TSR_OK);
        for (int i = 0; i < 8; i++)
            if (isnan(src[i]))
                assert_true(isnan(want_f32(wire[i])));
            else
                assert_int_equal(wire[i], want_f16(src[i]));
    }
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += 9973) { /* and floats of all sizes */
        float                src = tsr_bits_f32((uint32_t)u);
        uint16_t             wire;
        struct tsr_codec_job j = job_of(1, 1, &src, NULL, &wire, 2);
        assert_int_equal(codec->encode(self, &j, &e.err), TSR_OK);
        if (isnan(src))
            assert_true(isnan(want_f32(wire)) && wire >> 15 == u >> 31);
        else
            assert_int_equal(wire, want_f16(src));
    }
    codec->destroy(self);
}

static void test_bf16(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = make(TSR_BF16);
    /* by hand: 1, ties to even both ways, above a tie, carry into the exponent, overflow, NaN */
    static const struct {
        uint32_t f;
        uint16_t b;
    } cases[] = {
        { 0x3f800000u, 0x3f80 }, { 0x3f808000u, 0x3f80 }, { 0x3f818000u, 0x3f82 },
        { 0x3f808001u, 0x3f81 }, { 0x3fffffffu, 0x4000 }, { 0x7f7fffffu, 0x7f80 },
        { 0x7f800001u, 0x7fc0 }, { 0xff800000u, 0xff80 }, { 0x80000001u, 0x8000 },
        { 0x00018000u, 0x0002 }, { 0xffffffffu, 0xffff },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float                src = tsr_bits_f32(cases[i].f), dst = 0;
        uint16_t             wire;
        struct tsr_codec_job j = job_of(1, 1, &src, &dst, &wire, 2);
        assert_int_equal(codec->encode(self, &j, &e.err), TSR_OK);
        assert_int_equal(wire, cases[i].b);
        assert_int_equal(codec->decode(self, &j, &e.err), TSR_OK);
        assert_int_equal(tsr_f32_bits(dst), (uint32_t)cases[i].b << 16);
    }
    codec->destroy(self);
}

static void test_add(void **state)
{
    (void)state;
    static const int64_t dtypes[] = { TSR_F32, TSR_BF16, TSR_F16 };
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    for (int d = 0; d < 3; d++) {
        void    *self = make(dtypes[d]);
        float    src[6], dst[6], plain[6];
        uint32_t wire[6];
        uint64_t bytes = d == 0 ? 24 : 12;
        for (int i = 0; i < 6; i++) {
            src[i] = 0.1f * (float)i - 0.3f;
            dst[i] = 100.0f / (float)(i + 3);
        }
        struct tsr_codec_job j = job_of(2, 3, src, plain, wire, bytes);
        assert_int_equal(codec->encode(self, &j, &e.err), TSR_OK);
        assert_int_equal(codec->decode(self, &j, &e.err), TSR_OK);
        float before[6];
        memcpy(before, dst, sizeof dst);
        j.dst = dst;
        assert_int_equal(codec->decode_add(self, &j, &e.err), TSR_OK);
        for (int i = 0; i < 6; i++) {
            float sum = before[i] + plain[i]; /* one F32 addition */
            assert_int_equal(tsr_f32_bits(dst[i]), tsr_f32_bits(sum));
        }
        codec->destroy(self);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct tsr_errbuf e = TSR_ERRBUF(e);
    void             *self = make(TSR_F32);
    uint64_t          n = 77;
    float             v[2] = { 1, 2 };
    unsigned char     wire[8];
    assert_int_equal(codec->wire_bytes(self, UINT64_MAX / 4, 2, &n, &e.err), TSR_E_UNSUPPORTED);
    assert_int_equal(codec->wire_bytes(self, 0, UINT64_MAX, &n, &e.err), TSR_OK);
    assert_int_equal(n, 0);
    struct tsr_codec_job j = job_of(1, 2, v, v, wire, 7);
    assert_int_equal(codec->encode(self, &j, &e.err), TSR_E_INVAL);
    assert_int_equal(codec->decode(self, &j, &e.err), TSR_E_INVAL);
    assert_int_equal(codec->decode_add(self, &j, &e.err), TSR_E_INVAL);
    assert_true(error_is(&e.err, "", "7 1 2 8"));
    codec->destroy(self);
    codec->destroy(NULL);
}

static int open_all(void **state)
{
    (void)state;
    registry = open_plugin(TSR_KIND_CODEC, "plain", &found);
    codec = found.iface;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    uint64_t now, peak;
    tsr_plugin_registry_memory(registry, &now, &peak);
    tsr_plugin_registry_destroy(registry);
    return now != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact), cmocka_unit_test(test_f16),      cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_add),   cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
