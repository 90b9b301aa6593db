/* quantizer_fixture.h - one matrix through a quantizer that is linked into the test: options as
 * text, sizes checked against the format's, every byte of the result kept. */
#ifndef TSR_TEST_QUANTIZER_FIXTURE_H
#define TSR_TEST_QUANTIZER_FIXTURE_H

#include "base/err.h"
#include "base/mem.h"
#include "checkpoint/safetensors/safetensors.h"
#include "config/config.h"
#include "tessera/quantizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *fixture_alloc(void *ctx, uint64_t size, uint64_t align)
{
    (void)ctx;
    (void)align;
    return malloc(size);
}
static void fixture_release(void *ctx, void *p, uint64_t size)
{
    (void)ctx;
    (void)size;
    free(p);
}
static int32_t fixture_cancelled(void *ctx)
{
    int *left = ctx; /* asks until the user stops; NULL: never */
    return left && (*left)-- <= 0;
}

struct made {
    tsr_status            status;
    struct tsr_quant_plan plan;
    unsigned char        *codes, *meta; /* [rows] of plan.code_bytes, plan.meta_bytes */
    float                *dense;        /* [rows, cols], the plugin's own decoding */
    struct tsr_errbuf     err;
};

static inline void made_free(struct made *m)
{
    free(m->codes);
    free(m->meta);
    free(m->dense);
}

static struct tsr_matrix f32_matrix(const float *w, uint64_t rows, uint64_t cols)
{
    return (struct tsr_matrix){ .struct_size = sizeof(struct tsr_matrix),
                                .dtype = TSR_F32,
                                .name = "w",
                                .data = (void *)(uintptr_t)w,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = cols * 4 };
}

/* Fills the option struct from "key=value,key=value". */
static void *fixture_options(const struct tsr_component *c, const char *text)
{
    struct tsr_errbuf        e = TSR_ERRBUF(e);
    char                     copy[256], *rest = NULL;
    void                    *into = calloc(1, c->options_size);
    struct tsr_config_optset set = { c->options, c->n_options, c->option_stride, into };
    assert_non_null(into);
    tsr_config_options_defaults(&set);
    assert_true(strlen(text) < sizeof copy);
    memcpy(copy, text, strlen(text) + 1);
    for (char *key = strtok_r(copy, ",", &rest); key; key = strtok_r(NULL, ",", &rest)) {
        char    *value = strchr(key, '=');
        uint64_t i = 0;
        assert_non_null(value);
        *value++ = '\0';
        while (i < c->n_options && strcmp(c->options[i].name, key) != 0)
            i++;
        if (i == c->n_options ||
            tsr_config_option_set(&c->options[i], into, value, &e.err) != TSR_OK)
            fail_msg("option %s: %s", key, i == c->n_options ? "unknown" : e.text);
    }
    return into;
}

/* Quantizes the rows of w in runs of `run` rows (0: all), dequantizes; fails the test on sizes
 * that are not the format's.  left: calls of cancelled() until the user stops, or NULL. */
static struct made quantize_in_runs(const struct tsr_plugin *plugin, const char *text,
                                    const struct tsr_matrix *w, const struct tsr_quant_stats *stats,
                                    uint64_t first_row, uint64_t run, int *left)
{
    const struct tsr_component    *c = plugin->components[0];
    const struct tsr_quantizer_v1 *q = c->iface;
    struct tsr_host                host = { .struct_size = sizeof host,
                                            .abi_major = TSR_ABI_MAJOR,
                                            .ctx = left,
                                            .alloc = fixture_alloc,
                                            .release = fixture_release,
                                            .cancelled = fixture_cancelled };
    struct made                    m = { .plan = { .struct_size = sizeof m.plan } };
    void                          *options = fixture_options(c, text), *self = NULL;
    struct tsr_matrix              shape = *w;
    m.err =
        (struct tsr_errbuf){ .err = { .struct_size = sizeof m.err.err, .cap = sizeof m.err.text } };
    m.err.err.text = m.err.text;
    m.plan.format.struct_size = sizeof m.plan.format;
    m.status = q->create(&host, options, &self, &m.err.err);
    if (m.status != TSR_OK) {
        free(options);
        return m;
    }
    shape.data = NULL;
    assert_int_equal(q->plan(self, &shape, &m.plan, &m.err.err), TSR_OK);
    assert_int_equal(m.plan.rows_per_unit, 1);
    m.codes = tsr_new(w->rows, m.plan.code_bytes);
    m.meta = tsr_new(w->rows, m.plan.meta_bytes);
    void *scratch = tsr_new_aligned(1, m.plan.scratch_bytes);
    assert_true(m.codes && m.meta && scratch);
    memset(m.codes, 0xa5, w->rows * m.plan.code_bytes);
    memset(m.meta, 0xa5, w->rows * m.plan.meta_bytes);
    memset(scratch, 0x5a, m.plan.scratch_bytes);
    for (uint64_t r = 0; r < w->rows && m.status == TSR_OK; r += run ? run : w->rows) {
        struct tsr_matrix    part = *w;
        struct tsr_quant_job job = { .struct_size = sizeof job,
                                     .first_row = first_row + r,
                                     .src = &part,
                                     .codes = m.codes + r * m.plan.code_bytes,
                                     .meta = m.meta + r * m.plan.meta_bytes,
                                     .scratch = scratch,
                                     .stats = stats };
        part.data = (char *)w->data + r * w->row_stride;
        part.rows = run && run < w->rows - r ? run : w->rows - r;
        m.status = q->quantize(self, &job, &m.err.err);
    }
    if (m.status == TSR_OK) {
        m.dense = tsr_new(w->rows * w->cols, sizeof(float));
        assert_non_null(m.dense);
        struct tsr_matrix    dst = f32_matrix(m.dense, w->rows, w->cols);
        struct tsr_quant_job job = { .struct_size = sizeof job,
                                     .dst = &dst,
                                     .codes = m.codes,
                                     .meta = m.meta,
                                     .scratch = scratch };
        assert_int_equal(q->dequantize(self, &job, &m.err.err), TSR_OK);
    }
    free(scratch);
    q->destroy(self);
    free(options);
    return m;
}

static inline struct made quantize(const struct tsr_plugin *plugin, const char *text,
                                   const struct tsr_matrix *w, const struct tsr_quant_stats *stats)
{
    return quantize_in_runs(plugin, text, w, stats, 0, 0, NULL);
}

/* Code k of a row, read by the words of format.h, bit by bit. */
static inline unsigned fixture_code(const unsigned char *row, uint64_t k, uint32_t bits)
{
    unsigned c = 0;
    for (uint64_t b = 0; b < bits; b++)
        c |= (unsigned)(row[(k * bits + b) / 8] >> ((k * bits + b) % 8) & 1) << b;
    return c;
}

static inline float fixture_noise(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

#endif
