/* autoround's rows against the published code: what weights become under offsets and ranges, and the signs of the
 * derivatives by which both move. */
#include "../../plugins/quant/autoround/autoround.h"
#include "checkpoint/safetensors/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROWS 4
#define COLS 48
#define RATE 0.001f

struct recorded {
    float *w, *v, *alpha, *beta, *g, *values, *dv, *dalpha, *dbeta;
};

static float *tensor(const struct tsr_safetensors *st, unsigned bits, unsigned group,
                     const char *name)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              key[64];
    (void)snprintf(key, sizeof key, "b%u.g%u.%s", bits, group, name);
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, key);
    assert_non_null(t);
    float *v = malloc(t->end - t->begin);
    assert_non_null(v);
    if (tsr_safetensors_read(st, t, v, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    return v;
}

/* A step against d moves x by RATE; where d is nothing but rounding any direction is right. */
static void moved(const char *what, float now, float was, float d, float noise)
{
    float step = d > noise ? -RATE : d < -noise ? RATE : 0.0f;
    if (step != 0.0f ? !(fabsf(now - was - step) <= 1e-6f) : !(fabsf(now - was) <= RATE + 1e-6f))
        fail_msg("%s: from %g to %g, the derivative is %g", what, (double)was, (double)now,
                 (double)d);
}

static void row(const struct autoround *q, const struct recorded *k, uint64_t r)
{
    uint64_t        groups = ar_groups(q, COLS);
    struct ar_range range[COLS];
    float           value[COLS], v[COLS];
    const float    *w = k->w + r * COLS;
    ar_ranges(q, w, COLS, range);
    for (uint64_t g = 0; g < groups; g++) {
        range[g].alpha = k->alpha[r * groups + g];
        range[g].beta = k->beta[r * groups + g];
    }
    memcpy(v, k->v + r * COLS, sizeof v);
    ar_round(q, w, v, COLS, range, value);
    for (uint64_t c = 0; c < COLS; c++)
        if (!(fabsf(value[c] - k->values[r * COLS + c]) <= 1e-6f))
            fail_msg("%u bits, row %llu column %llu: %g, recorded %g", q->rule.bits,
                     (unsigned long long)r, (unsigned long long)c, (double)value[c],
                     (double)k->values[r * COLS + c]);
    ar_descend(q, w, k->g + r * COLS, COLS, RATE, v, range);
    for (uint64_t c = 0; c < COLS; c++)
        moved("an offset", v[c], k->v[r * COLS + c], k->dv[r * COLS + c], 0.0f);
    for (uint64_t g = 0; g < groups; g++) {
        moved("alpha", range[g].alpha, k->alpha[r * groups + g], k->dalpha[r * groups + g], 1e-5f);
        moved("beta", range[g].beta, k->beta[r * groups + g], k->dbeta[r * groups + g], 1e-5f);
    }
}

static void rows_are_those_of_the_published_code(void **state)
{
    static const unsigned  bits[] = { 2, 3, 4, 8 }, group[] = { 16, 48 };
    struct tsr_errbuf      e = TSR_ERRBUF(e);
    struct tsr_safetensors st;
    char                   path[512];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/quant/autoround.safetensors", TEST_GOLDEN);
    if (tsr_safetensors_open(&st, path, &e.err) != TSR_OK)
        fail_msg("%s", e.text);
    for (int i = 0; i < 8; i++) {
        unsigned         b = bits[i / 2], n = group[i % 2];
        struct autoround q = {
            .rule = { .bits = b, .scale_dtype = TSR_F32, .range = WT_RANGE_GPTQ }, .group = n
        };
        struct recorded k = { tensor(&st, b, n, "w"),     tensor(&st, b, n, "v"),
                              tensor(&st, b, n, "alpha"), tensor(&st, b, n, "beta"),
                              tensor(&st, b, n, "g"),     tensor(&st, b, n, "values"),
                              tensor(&st, b, n, "dv"),    tensor(&st, b, n, "dalpha"),
                              tensor(&st, b, n, "dbeta") };
        for (uint64_t r = 0; r < ROWS; r++)
            row(&q, &k, r);
        float *all[] = { k.w, k.v, k.alpha, k.beta, k.g, k.values, k.dv, k.dalpha, k.dbeta };
        for (size_t a = 0; a < sizeof all / sizeof *all; a++)
            free(all[a]);
    }
    tsr_safetensors_close(&st);
}

/* What is packed decodes to what the steps saw, in both layouts. */
static void packed_rows_decode_to_the_same_values(void **state)
{
    (void)state;
    for (int minimum = 0; minimum < 2; minimum++)
        for (int f16 = 0; f16 < 2; f16++) {
            struct autoround  q = { .rule = { .bits = 3,
                                              .scale_dtype = f16 ? TSR_F16 : TSR_F32,
                                              .minimum = minimum,
                                              .range = WT_RANGE_GPTQ },
                                    .group = 16 };
            struct tsr_format f = ar_format(&q);
            float             w[COLS], v[COLS], value[COLS], decoded[COLS];
            struct ar_range   range[COLS];
            unsigned char     codes[COLS], meta[8 * COLS], scratch[COLS];
            float             room[4 * COLS];
            for (int c = 0; c < COLS; c++) {
                w[c] = sinf((float)(c * c)) * 0.3f;
                v[c] = 0.5f * sinf((float)(7 * c));
            }
            ar_ranges(&q, w, COLS, range);
            range[0].alpha = 0.8f;
            range[1].beta = 0.6f;
            ar_round(&q, w, v, COLS, range, value);
            assert_true(ar_scratch(&q, COLS) <= sizeof room);
            assert_int_equal(ar_pack(&q, w, v, COLS, range, room, codes, meta), 3);
            struct tsr_matrix    dst = { .dtype = TSR_F32,
                                         .data = decoded,
                                         .rows = 1,
                                         .cols = COLS,
                                         .row_stride = sizeof decoded };
            struct tsr_quant_job job = {
                .dst = &dst, .codes = codes, .meta = meta, .scratch = scratch
            };
            assert_int_equal(minimum ? wt_dequantize_affine(&job, &f) : wt_dequantize_int(&job, &f),
                             TSR_OK);
            assert_memory_equal(decoded, value, sizeof value);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_the_published_code),
        cmocka_unit_test(packed_rows_decode_to_the_same_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
