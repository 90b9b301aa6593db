/* cpu_fixture.h - the CPU backend in a test: a host of its own, and short ways to make views,
 * weights and operations. */
#ifndef TSR_CPU_FIXTURE_H
#define TSR_CPU_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"
#include "format_ref.h"

/* ---- host: counts its memory; loops run backwards, so that an order is no accident ---- */

static int64_t host_bytes;

static void host_log(void *ctx, int32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)msg;
}
static void *host_alloc(void *ctx, uint64_t size, uint64_t align)
{
    (void)ctx;
    void *p = NULL;
    if (posix_memalign(&p, align < sizeof p ? sizeof p : align, size) != 0)
        return NULL;
    memset(p, 0xa5, size); /* nobody may take it for cleared */
    host_bytes += (int64_t)size;
    return p;
}
static void host_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    if (p)
        host_bytes -= (int64_t)size;
    free(p);
}
/* Another loop than the one below. */
static tsr_status (*host_for_instead)(uint64_t n, uint64_t                                  grain,
                                      tsr_status (*body)(void *, uint64_t, uint64_t), void *arg);

static tsr_status host_for(void *ctx, uint64_t n, uint64_t grain,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    (void)ctx;
    if (host_for_instead)
        return host_for_instead(n, grain, body, arg);
    for (uint64_t i = (n + grain - 1) / grain; i-- > 0;) {
        tsr_status st = body(arg, i * grain, (i + 1) * grain < n ? (i + 1) * grain : n);
        if (st != TSR_OK)
            return st;
    }
    return TSR_OK;
}
static int32_t host_stop; /* what cancelled() says */

static int32_t host_cancelled(void *ctx)
{
    (void)ctx;
    return host_stop;
}
static const struct tsr_host test_host = { .struct_size = sizeof(struct tsr_host),
                                           .abi_major = 1,
                                           .log = host_log,
                                           .alloc = host_alloc,
                                           .release = host_release,
                                           .parallel_for = host_for,
                                           .cancelled = host_cancelled };

/* ---- random numbers ---------------------------------------------------------- */

static uint64_t seed_state = 88172645463325252u;

static inline uint64_t rnd(void)
{
    seed_state ^= seed_state << 13;
    seed_state ^= seed_state >> 7;
    seed_state ^= seed_state << 17;
    return seed_state;
}
static inline float rnd_f32(void)
{
    return (float)((double)(rnd() >> 40) / (1 << 23) - 1.0);
}
static inline float *rnd_new(uint64_t n, float scale)
{
    float *p = malloc(n * 4);
    assert_non_null(p);
    for (uint64_t i = 0; i < n; i++)
        p[i] = scale * rnd_f32();
    return p;
}

/* ---- device ------------------------------------------------------------------ */

static inline struct tsr_cpu *cpu_new(const char *isa)
{
    void          *self = NULL;
    char           text[256] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    setenv("TSR_ISA", isa, 1);
    if (tsr_cpu_create(&test_host, &tsr_cpu_memory_plain, &self, &err) != TSR_OK)
        return NULL;
    return self;
}

/* A view with a buffer of its own; `pad` bytes between rows, filled with a mark. */
static inline struct tsr_tensor dev(struct tsr_cpu *c, const void *data, uint32_t dtype,
                                    uint64_t rows, uint64_t cols, uint64_t pad)
{
    uint64_t          size = dtype == TSR_F32 || dtype == TSR_U32 ? 4 : dtype >= TSR_I8 ? 1 : 2;
    struct tsr_tensor t = { .struct_size = sizeof t,
                            .dtype = dtype,
                            .offset = 64,
                            .rows = rows,
                            .cols = cols,
                            .row_stride = cols * size + pad };
    uint64_t          bytes = 64 + rows * t.row_stride;
    assert_int_equal(tsr_cpu_buffer_alloc(c, bytes, &t.buffer, NULL), TSR_OK);
    for (uint64_t r = 0; data && r < rows; r++)
        assert_int_equal(tsr_cpu_upload(c, t.buffer, 64 + r * t.row_stride,
                                        (const char *)data + r * cols * size, cols * size, NULL),
                         TSR_OK);
    return t;
}

/* The rows of a view, packed. */
static inline void *host_of(struct tsr_cpu *c, const struct tsr_tensor *t)
{
    uint64_t size = t->dtype == TSR_F32 || t->dtype == TSR_U32 ? 4 : t->dtype >= TSR_I8 ? 1 : 2;
    char    *p = malloc(t->rows * t->cols * size);
    assert_non_null(p);
    for (uint64_t r = 0; r < t->rows; r++)
        assert_int_equal(tsr_cpu_download(c, t->buffer, t->offset + r * t->row_stride,
                                          p + r * t->cols * size, t->cols * size, NULL),
                         TSR_OK);
    return p;
}

static inline void undev(struct tsr_cpu *c, struct tsr_tensor *t)
{
    tsr_cpu_buffer_free(c, t->buffer);
}

static inline void run_ok(struct tsr_cpu *c, const struct tsr_op *op)
{
    char           text[512] = "";
    struct tsr_err err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    tsr_status     st = tsr_cpu_run(c, NULL, op, &err);
    if (st != TSR_OK)
        fail_msg("%s", text);
}

/* ---- weights ------------------------------------------------------------------- */

struct wt {
    struct tsr_format      format;
    struct tsr_weight_desc desc;
    uint8_t               *codes, *meta;
};

static inline void wt_free(struct wt *w)
{
    free(w->codes);
    free(w->meta);
}

/* Random bytes of a packed format, with sane scales. */
static inline void wt_int(struct wt *w, uint64_t rows, uint64_t cols, uint32_t bits, uint64_t group,
                          uint32_t scale_dtype, uint32_t zero)
{
    *w = (struct wt){ 0 };
    w->format = (struct tsr_format){ .struct_size = sizeof w->format,
                                     .id = TSR_FORMAT_INT,
                                     .bits = bits,
                                     .zero = zero,
                                     .group = group,
                                     .scale_dtype = scale_dtype };
    uint64_t cb = tsr_format_int_code_bytes(&w->format, cols) + 1;
    uint64_t mb = tsr_format_int_meta_bytes(&w->format, cols) + 4;
    uint64_t groups = tsr_format_groups(&w->format, cols);
    w->codes = malloc(rows * cb);
    w->meta = calloc(rows, mb);
    assert_true(w->codes && w->meta);
    for (uint64_t i = 0; i < rows * cb; i++)
        w->codes[i] = (uint8_t)rnd();
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t g = 0; g < groups; g++) {
            uint8_t *m = w->meta + r * mb;
            float    s = 0.01f + 0.005f * rnd_f32();
            uint16_t h = (uint16_t)(0x1800 + rnd() % 0x600);
            if (scale_dtype == TSR_F32)
                memcpy(m + 4 * g, &s, 4);
            else
                memcpy(m + 2 * g, &h, 2);
            if (zero == TSR_ZERO_STORED)
                m[groups * (scale_dtype == TSR_F32 ? 4 : 2) + g] = (uint8_t)(rnd() % (1u << bits));
        }
    w->desc = (struct tsr_weight_desc){ .struct_size = sizeof w->desc,
                                        .name = "w",
                                        .format = &w->format,
                                        .rows = rows,
                                        .cols = cols,
                                        .codes = w->codes,
                                        .meta = w->meta,
                                        .code_stride = cb,
                                        .meta_stride = mb };
}

/* The same for tessera.int/2; scale_bits 0: scales of scale_dtype. */
static inline void wt_affine(struct wt *w, uint64_t rows, uint64_t cols, uint32_t bits,
                             uint64_t group, uint32_t scale_dtype, uint32_t scale_bits)
{
    *w = (struct wt){ 0 };
    w->format = (struct tsr_format){ .struct_size = sizeof w->format,
                                     .id = TSR_FORMAT_AFFINE,
                                     .bits = bits,
                                     .group = group,
                                     .scale_dtype = scale_bits ? 0 : scale_dtype,
                                     .scale_bits = scale_bits };
    uint64_t cb = tsr_format_int_code_bytes(&w->format, cols) + 1;
    uint64_t mb = tsr_format_affine_meta_bytes(&w->format, cols) + 4;
    uint64_t values = 2 * tsr_format_groups(&w->format, cols);
    w->codes = malloc(rows * cb);
    w->meta = malloc(rows * mb);
    assert_true(w->codes && w->meta);
    for (uint64_t i = 0; i < rows * cb; i++)
        w->codes[i] = (uint8_t)rnd();
    for (uint64_t i = 0; i < rows * mb; i++)
        w->meta[i] = (uint8_t)rnd();
    for (uint64_t r = 0; r < rows; r++) {
        uint8_t *m = w->meta + r * mb;
        uint64_t record = tsr_format_affine_record_bytes(&w->format);
        for (uint64_t i = 0; i < (scale_bits ? (cols + 255) / 256 * 2 : values); i++) {
            float    s = 0.05f * rnd_f32();
            uint16_t h = (uint16_t)((rnd() & 0x8000) | (0x1800 + rnd() % 0x600));
            if (scale_bits)
                memcpy(m + i / 2 * record + i % 2 * 2, &h, 2);
            else if (scale_dtype == TSR_F32)
                memcpy(m + 4 * i, &s, 4);
            else
                memcpy(m + 2 * i, &h, 2);
        }
    }
    w->desc = (struct tsr_weight_desc){ .struct_size = sizeof w->desc,
                                        .name = "w",
                                        .format = &w->format,
                                        .rows = rows,
                                        .cols = cols,
                                        .codes = w->codes,
                                        .meta = w->meta,
                                        .code_stride = cb,
                                        .meta_stride = mb };
}

/* One of every kind of tessera.int/2: i from 0. */
static inline void wt_affine_any(struct wt *w, uint64_t rows, uint64_t cols, uint32_t i)
{
    static const uint64_t groups[] = { 16, 32, 64, 128, 0 };
    static const uint32_t levels[] = { 0, 4, 6, 8 };
    uint32_t              level = levels[i / 7 % 4];
    wt_affine(w, rows, cols, 2 + i % 7, groups[rnd() % (level ? 4 : 5)],
              rnd() & 1 ? TSR_F32 : TSR_F16, level);
}

/* The same for tessera.mx/1: mostly scales near 1, sometimes any byte. */
static inline void wt_mx(struct wt *w, uint64_t rows, uint64_t cols, uint32_t element,
                         uint64_t group, uint32_t scale_bits)
{
    *w = (struct wt){ 0 };
    w->format = (struct tsr_format){ .struct_size = sizeof w->format,
                                     .id = TSR_FORMAT_MX,
                                     .bits = 1 + (element >> 8) + (element & 255),
                                     .element = element,
                                     .group = group,
                                     .scale_bits = scale_bits };
    uint64_t cb = tsr_format_int_code_bytes(&w->format, cols) + 1;
    uint64_t mb = tsr_format_mx_meta_bytes(&w->format, cols) + 4;
    uint32_t lim = (1u << (scale_bits - 1)) - 1u;
    w->codes = malloc(rows * cb);
    w->meta = malloc(rows * mb);
    assert_true(w->codes && w->meta);
    for (uint64_t i = 0; i < rows * cb; i++)
        w->codes[i] = (uint8_t)rnd();
    for (uint64_t i = 0; i < rows * mb; i++)
        w->meta[i] = (uint8_t)(rnd() % 512 ? lim - 4 + rnd() % 8 : rnd());
    w->desc = (struct tsr_weight_desc){ .struct_size = sizeof w->desc,
                                        .name = "w",
                                        .format = &w->format,
                                        .rows = rows,
                                        .cols = cols,
                                        .codes = w->codes,
                                        .meta = w->meta,
                                        .code_stride = cb,
                                        .meta_stride = mb };
}

/* The same for tessera.lut/1. */
static inline void wt_lut(struct wt *w, uint64_t rows, uint64_t cols, uint32_t bits,
                          uint64_t outliers, uint32_t dtype)
{
    *w = (struct wt){ 0 };
    w->format = (struct tsr_format){ .struct_size = sizeof w->format,
                                     .id = TSR_FORMAT_LUT,
                                     .bits = bits,
                                     .outliers = outliers,
                                     .scale_dtype = dtype };
    uint64_t cb = tsr_format_int_code_bytes(&w->format, cols) + 1;
    uint64_t mb = tsr_format_lut_meta_bytes(&w->format) + 4;
    uint64_t values = (UINT64_C(1) << bits) + outliers, size = dtype == TSR_F32 ? 4 : 2;
    w->codes = malloc(rows * cb);
    w->meta = calloc(rows, mb);
    assert_true(w->codes && w->meta && outliers <= cols);
    for (uint64_t i = 0; i < rows * cb; i++)
        w->codes[i] = (uint8_t)rnd();
    for (uint64_t r = 0; r < rows; r++) {
        uint8_t *m = w->meta + r * mb, *columns = m + (values * size + 3) / 4 * 4;
        uint64_t left = outliers;
        for (uint64_t i = 0; i < values; i++) {
            float    v = 0.1f * rnd_f32();
            uint16_t h = (uint16_t)((rnd() & 0x8000) | (0x2000 + rnd() % 0xc00));
            if (dtype == TSR_F32)
                memcpy(m + 4 * i, &v, 4);
            else
                memcpy(m + 2 * i, &h, 2);
        }
        for (uint32_t k = 0; k < cols && left; k++) /* each set of columns alike */
            if (rnd() % (cols - k) < left) {
                memcpy(columns + 4 * (outliers - left), &k, 4);
                left--;
            }
    }
    w->desc = (struct tsr_weight_desc){ .struct_size = sizeof w->desc,
                                        .name = "w",
                                        .format = &w->format,
                                        .rows = rows,
                                        .cols = cols,
                                        .codes = w->codes,
                                        .meta = w->meta,
                                        .code_stride = cb,
                                        .meta_stride = mb };
}

static inline void wt_float(struct wt *w, uint64_t rows, uint64_t cols, uint32_t dtype)
{
    *w = (struct wt){ 0 };
    w->format = (struct tsr_format){ .struct_size = sizeof w->format,
                                     .id = TSR_FORMAT_FLOAT,
                                     .dtype = dtype };
    uint64_t size = dtype == TSR_F32 ? 4 : 2;
    w->codes = malloc(rows * cols * size);
    assert_non_null(w->codes);
    for (uint64_t i = 0; i < rows * cols; i++) {
        float    f = 0.1f * rnd_f32();
        uint16_t h = (uint16_t)((rnd() & 0x8000) | (0x2000 + rnd() % 0xc00));
        uint32_t u;
        memcpy(&u, &f, 4);
        if (dtype == TSR_BF16)
            h = (uint16_t)(u >> 16);
        if (dtype == TSR_F32)
            memcpy(w->codes + 4 * i, &f, 4);
        else
            memcpy(w->codes + 2 * i, &h, 2);
    }
    w->desc = (struct tsr_weight_desc){ .struct_size = sizeof w->desc,
                                        .name = "w",
                                        .format = &w->format,
                                        .rows = rows,
                                        .cols = cols,
                                        .codes = w->codes,
                                        .code_stride = cols * size };
}

/* The dequantized matrix [rows][cols], by the reference decoder. */
static inline float *wt_dense(const struct wt *w)
{
    float *d = malloc(w->desc.rows * w->desc.cols * 4);
    assert_non_null(d);
    for (uint64_t r = 0; r < w->desc.rows; r++)
        assert_int_equal(tsr_ref_decode_row(&w->format, w->desc.cols,
                                            w->codes + r * w->desc.code_stride,
                                            w->meta ? w->meta + r * w->desc.meta_stride : NULL,
                                            d + r * w->desc.cols),
                         TSR_OK);
    return d;
}

#if defined(__aarch64__)
static const char *const test_isas[] = { "scalar", "neon", "dotprod", "i8mm" };
#else
static const char *const test_isas[] = { "scalar", "avx2", "avxvnni", "avx512", "amx" };
#endif
#define ISAS ((int)(sizeof test_isas / sizeof *test_isas))

#endif
