/* The codecs mx, int4_bf16, int4_channel and topk: against recorded vectors that are not ours, against
 * plain loops over what the pages say, and on every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fixtures/error_is.h"
#include "base/f16.h"
#include "base/json.h"
#include "base/mem.h"
#include "plugin/spec.h"
#include "plugin_open.h"
#include "tessera/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tsr_registry *registry;

static uint64_t state_ = 88172645463325252u;
static uint64_t rnd(void)
{
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
}
/* About normal: the sum of four uniforms. */
static float rnd_f32(void)
{
    double s = 0;
    for (int i = 0; i < 4; i++)
        s += (double)(rnd() >> 11) * 0x1p-53 - 0.5;
    return (float)(s * 1.7);
}

/* ---- a codec ------------------------------------------------------------------ */

struct codec {
    struct tsr_plugin_spec     spec;
    const struct tsr_codec_v1 *t;
    void                      *self;
};

static struct codec open_codec(const char *text)
{
    struct codec      c = { 0 };
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_plugin_spec_open(&c.spec, registry, TSR_KIND_CODEC, text, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    c.t = c.spec.found.iface;
    if (c.t->create(tsr_plugin_registry_host(registry), c.spec.options, &c.self, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return c;
}

static void close_codec(struct codec *c)
{
    c->t->destroy(c->self);
    tsr_plugin_spec_close(&c->spec);
}

static struct tsr_codec_job job_of(uint32_t site, uint32_t source, uint64_t rows, uint64_t cols)
{
    return (struct tsr_codec_job){ .struct_size = sizeof(struct tsr_codec_job),
                                   .site = site,
                                   .source = source,
                                   .rows = rows,
                                   .cols = cols };
}

static void observe(const struct codec *c, uint32_t site, uint32_t source, const float *x,
                    uint64_t rows, uint64_t cols)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = job_of(site, source, rows, cols);
    j.src = x;
    if (c->t->observe(c->self, &j, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static void *encode(const struct codec *c, uint32_t site, uint32_t source, const float *x,
                    uint64_t rows, uint64_t cols, uint64_t *bytes)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = job_of(site, source, rows, cols);
    assert_int_equal(c->t->wire_bytes(c->self, rows, cols, bytes, &e.err), TSR_OK);
    void *wire = malloc(*bytes);
    assert_non_null(wire);
    memset(wire, 0xa5, *bytes);
    j.src = x;
    j.wire = wire;
    j.wire_bytes = *bytes;
    if (c->t->encode(c->self, &j, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return wire;
}

static void decode(const struct codec *c, uint32_t site, uint32_t source, void *wire,
                   uint64_t bytes, uint64_t rows, uint64_t cols, float *dst, bool add)
{
    struct tsr_errbuf    e = TSR_ERRBUF(e);
    struct tsr_codec_job j = job_of(site, source, rows, cols);
    j.dst = dst;
    j.wire = wire;
    j.wire_bytes = bytes;
    if ((add ? c->t->decode_add : c->t->decode)(c->self, &j, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
}

static json_t *vectors(const char *folder)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s/vectors.json", TEST_GOLDEN, folder);
    json_t *j = json_load_file(path, 0, NULL);
    if (!j)
        fail_msg("cannot read %s", path);
    return j;
}

/* ---- int4_bf16: recorded -------------------------------------------------------- */

static double real_at(const json_t *list, uint64_t i)
{
    return json_number_value(json_array_get(list, i));
}

static float *rows_of(const json_t *matrix, uint64_t *rows, uint64_t cols)
{
    *rows = json_array_size(matrix);
    float *x = malloc(*rows * cols * sizeof *x);
    assert_non_null(x);
    for (uint64_t r = 0; r < *rows; r++)
        for (uint64_t j = 0; j < cols; j++)
            x[r * cols + j] = (float)real_at(json_array_get(matrix, r), j);
    return x;
}

#define E          192u
#define N          3u
#define STATE_HEAD (24 + 16)

/* Ranges and features as the state has them (docs/formats/codecs.md). */
static void check_state(const struct codec *c, const json_t *v)
{
    const json_t  *kept = json_object_get(v, "selected_bf16_features");
    uint64_t       k = json_array_size(kept), bytes = c->t->state_bytes(c->self);
    unsigned char *state = malloc(bytes), *p = state + STATE_HEAD;
    assert_int_equal(k, E / 64);
    assert_int_equal(bytes, STATE_HEAD + 4 * k + N * (4 + 4 * E));
    assert_int_equal(c->t->save(c->self, state, NULL), TSR_OK);
    for (uint64_t i = 0; i < k; i++) {
        uint32_t f;
        memcpy(&f, p + 4 * i, 4);
        assert_int_equal(f, json_integer_value(json_array_get(kept, i)));
    }
    p += 4 * k;
    for (uint64_t r = 0; r < N; r++, p += 4 + 4 * E)
        for (uint64_t j = 0; j < E; j++) {
            double want = real_at(json_array_get(json_object_get(v, "R"), r), j);
            float  got;
            memcpy(&got, p + 4 + 4 * j, 4);
            if (!(fabs(got - want) <= 1e-6 * want))
                fail_msg("range of rank %d, feature %d is %.9g, recorded %.9g", (int)r, (int)j,
                         (double)got, want);
        }
    free(state);
}

static void int4_bf16_is_as_recorded(void **unused)
{
    (void)unused;
    json_t       *v = vectors("int4_bf16");
    struct codec  c = open_codec("int4_bf16");
    const json_t *texts = json_object_get(v, "calibration_sequences");
    const json_t *probe = json_object_get(v, "probe_partial_sums");
    const json_t *want = json_object_get(v, "dequantized"), *R = json_object_get(v, "R");
    double        sum[E] = { 0 };
    uint64_t      rows, bytes;
    for (uint64_t s = 0; s < json_array_size(texts); s++)
        for (uint32_t r = 0; r < N; r++) {
            float *x = rows_of(json_array_get(json_array_get(texts, s), r), &rows, E);
            observe(&c, 0, r, x, rows, E);
            free(x);
        }
    assert_int_equal(c.t->freeze(c.self, NULL), TSR_OK);
    check_state(&c, v);
    for (uint32_t r = 0; r < N; r++) {
        float x[E], y[E];
        for (uint64_t j = 0; j < E; j++)
            x[j] = (float)real_at(json_array_get(probe, r), j);
        void *wire = encode(&c, 0, r, x, 1, E, &bytes);
        assert_true((double)bytes * 8 / E >= 4.1875 && (double)bytes * 8 / E < 4.1875 + 8.0 / E);
        decode(&c, 0, r, wire, bytes, 1, E, y, false);
        for (uint64_t j = 0; j < E; j++) {
            double w = real_at(json_array_get(want, r), j);
            double scale = real_at(json_array_get(R, r), j) / 14;
            bool   kept = j == 17 || j == 90 || j == 150;
            if (!(fabs(y[j] - w) <= 1e-6 * fabs(w)) ||
                (!kept && rint(y[j] / scale) != rint(w / scale)))
                fail_msg("rank %u, feature %d: %.9g, recorded %.9g", r, (int)j, (double)y[j], w);
            sum[j] += (double)tsr_bf16_f32(tsr_f32_bf16(y[j]));
        }
        free(wire);
    }
    for (uint64_t j = 0; j < E; j++)
        if (sum[j] != real_at(json_object_get(v, "reduced_sum_of_bf16_rounded"), j))
            fail_msg("the sum of feature %d is %.9g", (int)j, sum[j]);
    close_codec(&c);
    json_decref(v);
}

/* ---- mx: recorded ----------------------------------------------------------------- */

static void mx_is_as_recorded(void **unused)
{
    (void)unused;
    json_t  *list = vectors("mx");
    json_t  *all = json_object_get(list, "vectors"), *v;
    size_t   i;
    uint64_t bytes, elements = 0;
    assert_true(json_array_size(all) >= 57);
    json_array_foreach (all, i, v) {
        const json_t *input = json_object_get(v, "input_bits");
        const json_t *expected = json_object_get(v, "expected_bits");
        uint64_t      n = json_array_size(input);
        float        *x = malloc(n * 4), *y = malloc(n * 4);
        char          text[128];
        (void)snprintf(text, sizeof text, "mx:element=%s,block=%d,scale_bits=%d,rounding=%s",
                       json_string_value(json_object_get(v, "elem_format")),
                       (int)json_integer_value(json_object_get(v, "block_size")),
                       (int)json_integer_value(json_object_get(v, "scale_bits")),
                       json_string_value(json_object_get(v, "rounding")));
        for (uint64_t k = 0; k < n; k++)
            x[k] = tsr_bits_f32(
                (uint32_t)strtoul(json_string_value(json_array_get(input, k)), NULL, 16));
        struct codec c = open_codec(text);
        void        *wire = encode(&c, 0, 0, x, 1, n, &bytes);
        decode(&c, 0, 0, wire, bytes, 1, n, y, false);
        for (uint64_t k = 0; k < n; k++, elements++) {
            const char *e = json_string_value(json_array_get(expected, k));
            float want = strcmp(e, "nan") == 0 ? NAN : tsr_bits_f32((uint32_t)strtoul(e, NULL, 16));
            if (!(isnan(y[k]) && isnan(want)) && !(y[k] == want))
                fail_msg("%s: element %d: %a becomes %a, recorded %a",
                         json_string_value(json_object_get(v, "name")), (int)k, (double)x[k],
                         (double)y[k], (double)want);
        }
        free(wire);
        free(x);
        free(y);
        close_codec(&c);
    }
    assert_true(elements >= 1504);
    json_decref(list);
}

static double bits_of(const char *text, uint64_t rows, uint64_t cols)
{
    struct codec c = open_codec(text);
    uint64_t     bytes;
    assert_int_equal(c.t->wire_bytes(c.self, rows, cols, &bytes, NULL), TSR_OK);
    close_codec(&c);
    return 8.0 * (double)bytes / (double)(rows * cols);
}

/* Bits a number, where no row needs padding. */
static void widths_are_those_of_the_papers(void **unused)
{
    (void)unused;
    char text[64];
    assert_true(bits_of("int4_bf16", 3, 4096) == 4.1875);
    assert_true(bits_of("int4_bf16", 3, 4608) == 4.1875);
    assert_true(bits_of("int4_bf16:features=random", 3, 4096) == 4.1875);
    assert_true(bits_of("int4_bf16:features=none", 3, 4096) == 4);
    for (int b = 2; b <= 8; b++) {
        (void)snprintf(text, sizeof text, "int4_bf16:bits=%d", b);
        assert_true(bits_of(text, 1, 4096) == (63 * b + 16) / 64.0);
    }
    assert_true(bits_of("mx", 5, 4096) == 4.25);
    assert_true(bits_of("mx:scale_bits=5", 1, 4096) == 4.15625);
    assert_true(bits_of("mx:scale_bits=5,block=16", 1, 4096) == 4.3125);
    assert_true(bits_of("mx:scale_bits=5,block=8,element=fp3_e1m1", 1, 4096) == 3.625);
    assert_true(bits_of("mx:scale_bits=5,block=32,element=fp5_e2m2", 1, 4096) == 5.15625);
    assert_true(bits_of("int4_channel", 64, 4096) == 4.25);
    double b = bits_of("topk", 1, 4096); /* one number less may be there */
    assert_true(b <= 16.0 / 3 && b > 16.0 / 3 - 28.0 / 4096);
}

/* ---- against plain loops ------------------------------------------------------------ */

static float scaled(float x, float range, uint32_t bits)
{
    float q = (float)((1 << (bits - 1)) - 1), scale = range / 2 / q, inv = 1 / scale;
    if (!isfinite(x))
        return NAN;
    if (!isfinite(inv))
        return 0;
    float code = rintf(x * inv);
    return (code > q ? q : code < -q ? -q : code) * scale;
}

static void same(const float *got, const float *want, uint64_t n, const char *what)
{
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) != 0 && !(isnan(got[i]) && isnan(want[i])) &&
            !(got[i] == 0 && want[i] == 0))
            fail_msg("%s: number %d is %a, wanted %a", what, (int)i, (double)got[i],
                     (double)want[i]);
}

static const char *const isas[] = { "scalar", "avx2", "avx512" };

static bool use_isa(const char *isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(isa, "avx512") == 0 &&
        !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")))
        return false;
    if (strcmp(isa, "avx2") == 0 && !__builtin_cpu_supports("avx2"))
        return false;
#else
    if (strcmp(isa, "scalar") != 0)
        return false;
#endif
    return setenv("TSR_ISA", isa, 1) == 0;
}

/* Rows of cols features through int4_bf16 of these options, features in BF16 by a sort. */
static void check_int4(uint32_t bits, uint64_t one_in, uint64_t cols)
{
    uint64_t k = one_in ? cols / one_in : 0, rows = 3, bytes[3] = { 0 };
    float   *cal = malloc(4 * cols * 4), *x = malloc(rows * cols * 4), *want = malloc(cols * 4);
    float   *y = malloc(rows * cols * 4), *sum = malloc(rows * cols * 4);
    void    *wire[3] = { NULL };
    bool    *kept = calloc(cols, sizeof *kept);
    char     text[96];
    assert_true(cal && x && want && y && sum && kept);
    (void)snprintf(text, sizeof text, "int4_bf16:bits=%u%s", bits, one_in ? "" : ",features=none");
    if (one_in)
        (void)snprintf(text + strlen(text), 32, ",one_in=%d", (int)one_in);
    for (uint64_t i = 0; i < 4 * cols; i++)
        cal[i] = rnd_f32() * (i % cols % 7 == 3 ? 8 : 1) * (i % cols % 31 == 5 ? 0 : 1);
    for (uint64_t i = 0; i < rows * cols; i++)
        x[i] = rnd() % 97 ? rnd_f32() * 1.2f : rnd() & 1 ? NAN : -INFINITY;
    float *range = calloc(cols, sizeof *range);
    assert_non_null(range);
    for (uint64_t j = 0; j < cols; j++)
        for (uint64_t r = 0; r < 4; r++)
            range[j] = fmaxf(range[j], 2 * fabsf(cal[r * cols + j]));
    for (uint64_t i = 0; i < k; i++) {
        uint64_t best = cols;
        for (uint64_t j = 0; j < cols; j++)
            if (!kept[j] && (best == cols || range[j] > range[best]))
                best = j;
        kept[best] = true;
    }
    for (int isa = 0; isa < 3; isa++) {
        if (!use_isa(isas[isa]))
            continue;
        struct codec c = open_codec(text);
        observe(&c, 7, 2, cal, 4, cols);
        assert_int_equal(c.t->freeze(c.self, NULL), TSR_OK);
        wire[isa] = encode(&c, 7, 2, x, rows, cols, &bytes[isa]);
        assert_int_equal(bytes[isa], rows * (2 * k + ((cols - k) * bits + 7) / 8));
        decode(&c, 7, 2, wire[isa], bytes[isa], rows, cols, y, false);
        memcpy(sum, x, rows * cols * 4);
        decode(&c, 7, 2, wire[isa], bytes[isa], rows, cols, sum, true);
        for (uint64_t r = 0; r < rows; r++) {
            for (uint64_t j = 0; j < cols; j++) {
                float v = x[r * cols + j];
                want[j] = kept[j] ? tsr_bf16_f32(tsr_f32_bf16(v)) : scaled(v, range[j], bits);
            }
            same(y + r * cols, want, cols, text);
            for (uint64_t j = 0; j < cols; j++)
                want[j] = x[r * cols + j] + y[r * cols + j];
            same(sum + r * cols, want, cols, text);
        }
        if (wire[0] && isa)
            assert_memory_equal(wire[isa], wire[0], bytes[0]);
        close_codec(&c);
    }
    unsetenv("TSR_ISA");
    for (int i = 0; i < 3; i++)
        free(wire[i]);
    free(range);
    free(kept);
    free(cal);
    free(x);
    free(want);
    free(y);
    free(sum);
}

static void int4_bf16_is_what_its_page_says(void **unused)
{
    (void)unused;
    static const uint64_t cols[] = { 1, 9, 64, 130, 600, 4100, 8 * 256 + 40 };
    static const uint64_t one_in[] = { 0, 1, 2, 5, 64 };
    for (uint32_t bits = 2; bits <= 8; bits++)
        for (int i = 0; i < 7; i++)
            check_int4(bits, one_in[rnd() % 5], cols[i]);
    check_int4(4, 64, 4096);
    check_int4(4, 1, 70);
}

static void int4_channel_is_what_its_page_says(void **unused)
{
    (void)unused;
    static const uint64_t cols[] = { 1, 33, 520, 1030 };
    for (uint32_t bits = 2; bits <= 8; bits++)
        for (int i = 0; i < 4; i++) {
            uint64_t n = cols[i], rows = 1 + rnd() % 9, bytes;
            float   *x = malloc(rows * n * 4), *y = malloc(rows * n * 4);
            char     text[64];
            (void)snprintf(text, sizeof text, "int4_channel:bits=%u", bits);
            for (uint64_t k = 0; k < rows * n; k++)
                x[k] = rnd() % 400 ? rnd_f32() * (k % n % 5 ? 1 : 40) : INFINITY;
            struct codec c = open_codec(text);
            assert_non_null(c.t->extension(c.self, TSR_CODEC_COUPLED));
            void *wire = encode(&c, 0, 0, x, rows, n, &bytes);
            decode(&c, 0, 0, wire, bytes, rows, n, y, false);
            for (uint64_t j = 0; j < n; j++) {
                float amax = 0, q = (float)((1 << (bits - 1)) - 1);
                bool  finite = true;
                for (uint64_t r = 0; r < rows; r++) {
                    amax = fmaxf(amax, fabsf(x[r * n + j]));
                    finite &= isfinite(x[r * n + j]) != 0;
                }
                float scale = tsr_bf16_f32(tsr_f32_bf16(amax / q));
                for (uint64_t r = 0; r < rows; r++) {
                    float code = rintf(x[r * n + j] * (1 / scale));
                    float want = finite ? fmaxf(-q, fminf(q, code)) * scale : NAN;
                    same(&y[r * n + j], &want, 1, text);
                }
            }
            free(wire);
            free(x);
            free(y);
            close_codec(&c);
        }
}

static int by_magnitude(const void *a, const void *b)
{
    const float *const *x = a, *const *y = b;
    uint32_t            u = tsr_f32_bits(**x) & 0x7fffffff, v = tsr_f32_bits(**y) & 0x7fffffff;
    if (u != v)
        return u > v ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

static void topk_keeps_the_largest(void **unused)
{
    (void)unused;
    static const uint64_t cols[] = { 1, 2, 33, 257, 4096 };
    for (int i = 0; i < 5; i++) {
        uint64_t      n = cols[i], bytes, ib = 1, k;
        float        *x = malloc(n * 4), *y = malloc(n * 4), *want = calloc(n, 4);
        const float **order = malloc(n * sizeof *order);
        struct codec  c = open_codec("topk");
        while ((n - 1) >> ib)
            ib++;
        k = (uint64_t)((double)n * 16 / 3 / (double)(16 + ib));
        k = k ? k : 1;
        for (uint64_t j = 0; j < n; j++) {
            x[j] = rnd() % 3 ? rnd_f32() : (float)(int)(rnd() % 5) - 2; /* many are alike */
            order[j] = &x[j];
        }
        x[n / 2] = NAN;
        qsort(order, n, sizeof *order, by_magnitude);
        for (uint64_t j = 0; j < k; j++)
            want[order[j] - x] = tsr_bf16_f32(tsr_f32_bf16(*order[j]));
        void *wire = encode(&c, 0, 0, x, 1, n, &bytes);
        assert_int_equal(bytes, 2 * k + (k * ib + 7) / 8);
        decode(&c, 0, 0, wire, bytes, 1, n, y, false);
        same(y, want, n, "topk");
        free(wire);
        free(order);
        free(x);
        free(y);
        free(want);
        close_codec(&c);
    }
}

/* mx: every instruction set writes the same bytes and reads the same numbers. */
static void mx_is_the_same_everywhere(void **unused)
{
    (void)unused;
    static const char *const elements[] = { "fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp5_e2m2",
                                            "fp4_e2m1", "fp4_e1m2", "fp3_e1m1", "int8",
                                            "int4",     "int2" };
    static const int         blocks[] = { 1, 8, 12, 16, 32, 100, 512 };
    for (int i = 0; i < 60; i++) {
        uint64_t rows = 2, cols = 1 + rnd() % 3000, bytes, n = rows * cols;
        float   *x = malloc(n * 4), *y[3] = { NULL };
        void    *wire[3] = { NULL };
        char     text[96];
        (void)snprintf(text, sizeof text, "mx:element=%s,block=%d,scale_bits=%d,rounding=%s",
                       elements[i % 10], blocks[rnd() % 7], 4 + (int)(rnd() % 5),
                       i % 3 == 0   ? "even"
                       : i % 3 == 1 ? "nearest"
                                    : "floor");
        for (uint64_t k = 0; k < n; k++)
            x[k] = rnd() % 501 ? rnd_f32() * ldexpf(1, (int)(rnd() % 9) - 4) : NAN;
        for (int isa = 0; isa < 3; isa++) {
            if (!use_isa(isas[isa]))
                continue;
            struct codec c = open_codec(text);
            float       *sum = malloc(n * 4), *want = malloc(n * 4);
            wire[isa] = encode(&c, 0, 0, x, rows, cols, &bytes);
            y[isa] = malloc(n * 4);
            decode(&c, 0, 0, wire[isa], bytes, rows, cols, y[isa], false);
            memcpy(sum, x, n * 4);
            decode(&c, 0, 0, wire[isa], bytes, rows, cols, sum, true);
            for (uint64_t k = 0; k < n; k++)
                want[k] = x[k] + y[isa][k];
            same(sum, want, n, text);
            if (isa) {
                assert_memory_equal(wire[isa], wire[0], bytes);
                same(y[isa], y[0], n, text);
            }
            free(sum);
            free(want);
            close_codec(&c);
        }
        unsetenv("TSR_ISA");
        for (int isa = 0; isa < 3; isa++) {
            free(wire[isa]);
            free(y[isa]);
        }
        free(x);
    }
}

/* ---- what is refused ------------------------------------------------------------------- */

static void random_features_are_a_draw(void **unused)
{
    (void)unused;
    float    x[256];
    uint32_t kept[2][4];
    for (int s = 0; s < 2; s++) {
        struct codec c =
            open_codec(s ? "int4_bf16:features=random,seed=1" : "int4_bf16:features=random");
        for (int i = 0; i < 256; i++)
            x[i] = (float)i;
        observe(&c, 0, 0, x, 1, 256);
        assert_int_equal(c.t->freeze(c.self, NULL), TSR_OK);
        uint64_t       n = c.t->state_bytes(c.self);
        unsigned char *state = malloc(n);
        assert_int_equal(c.t->save(c.self, state, NULL), TSR_OK);
        memcpy(kept[s], state + STATE_HEAD, sizeof kept[s]);
        for (int i = 0; i < 4; i++)
            assert_true(kept[s][i] < 256 && (i == 0 || kept[s][i] > kept[s][i - 1]));
        free(state);
        close_codec(&c);
    }
    assert_memory_not_equal(kept[0], kept[1], sizeof kept[0]);
}

static void states_are_checked(void **unused)
{
    (void)unused;
    struct codec a = open_codec("int4_bf16:one_in=8");
    float        x[2 * 40];
    for (int i = 0; i < 80; i++)
        x[i] = rnd_f32();
    observe(&a, 0, 0, x, 2, 40);
    observe(&a, 3, 1, x, 1, 24);
    assert_int_equal(a.t->freeze(a.self, NULL), TSR_OK);
    uint64_t       n = a.t->state_bytes(a.self);
    unsigned char *state = malloc(n), *bad = malloc(n);
    assert_int_equal(a.t->save(a.self, state, NULL), TSR_OK);
    for (uint64_t i = 0; i < n; i++)
        for (int b = 0; b < 8; b += 3) { /* taken or refused, with a sentence */
            struct codec      c = open_codec("int4_bf16:one_in=8");
            struct tsr_errbuf e = TSR_ERRBUF(e);
            e.text[0] = '\0';
            memcpy(bad, state, n);
            bad[i] ^= (unsigned char)(1 << b);
            tsr_status st = c.t->load(c.self, bad, n, &e.err);
            if (st != TSR_OK)
                assert_true(st == TSR_E_INVAL && e.text[0] != '\0');
            close_codec(&c);
        }
    struct codec      c = open_codec("int4_bf16:one_in=4");
    struct tsr_errbuf e = TSR_ERRBUF(e);
    assert_int_equal(c.t->load(c.self, state, n, &e.err), TSR_E_INVAL);
    assert_true(error_is(&e.err, "", "4 one_in 8"));
    close_codec(&c);
    /* an uncalibrated one, and a message of another site, say what is missing */
    c = open_codec("int4_bf16");
    unsigned char        wire[128];
    struct tsr_codec_job j = job_of(0, 0, 1, 40);
    j.src = x;
    j.wire = wire;
    assert_int_equal(c.t->wire_bytes(c.self, 1, 40, &j.wire_bytes, NULL), TSR_OK);
    assert_int_equal(c.t->encode(c.self, &j, &e.err), TSR_E_CONFIG);
    assert_true(error_is(&e.err, "", "int4_bf16"));
    close_codec(&c);
    j.site = 3;
    assert_int_equal(a.t->wire_bytes(a.self, 1, 40, &j.wire_bytes, NULL), TSR_OK);
    assert_int_equal(a.t->encode(a.self, &j, &e.err), TSR_E_CONFIG);
    assert_true(error_is(&e.err, "", "3 0 40"));
    close_codec(&a);
    free(state);
    free(bad);
}

static int setup(void **unused)
{
    struct tsr_plugin_found found;
    const char             *seed = getenv("TSR_TEST_SEED");
    (void)unused;
    if (seed)
        state_ ^= strtoull(seed, NULL, 10) * UINT64_C(0x9e3779b97f4a7c15);
    registry = open_plugin(TSR_KIND_CODEC, "mx", &found);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    tsr_plugin_registry_destroy(registry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int4_bf16_is_as_recorded),
        cmocka_unit_test(mx_is_as_recorded),
        cmocka_unit_test(widths_are_those_of_the_papers),
        cmocka_unit_test(int4_bf16_is_what_its_page_says),
        cmocka_unit_test(int4_channel_is_what_its_page_says),
        cmocka_unit_test(topk_keeps_the_largest),
        cmocka_unit_test(mx_is_the_same_everywhere),
        cmocka_unit_test(random_features_are_a_draw),
        cmocka_unit_test(states_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
