/* Whole numbers under a table as tessera.int/1: the same values, and the same sums under a8. */
#include "table_fixture.h"

#include <math.h>

#include "engine/device_internal.h"
#include "exact.h"

static int same(float a, float b)
{
    return memcmp(&a, &b, 4) == 0 || (isnan(a) && isnan(b)) || (a == 0.0f && b == 0.0f);
}

static void check_rows(const struct wt *w, const struct tsr_engine_integers *i)
{
    uint64_t cols = w->desc.cols;
    float   *a = malloc(cols * 4), *b = malloc(cols * 4), *x = rnd_new(cols, 2.0f);
    assert_true(a && b);
    assert_true(tsr_model_format_known(&i->format));
    for (uint64_t r = 0; r < w->desc.rows; r++) {
        struct tsr_ref_row table, whole;
        const uint8_t     *codes = w->codes + r * w->desc.code_stride;
        const uint8_t     *meta = w->meta + r * w->desc.meta_stride;
        const uint8_t     *c = i->codes + r * i->desc.code_stride;
        const uint8_t     *m = i->meta + r * i->desc.meta_stride;
        assert_int_equal(tsr_ref_decode_row(&w->format, cols, codes, meta, a), TSR_OK);
        assert_int_equal(tsr_ref_decode_row(&i->format, cols, c, m, b), TSR_OK);
        for (uint64_t k = 0; k < cols; k++)
            if (!same(a[k], b[k]))
                fail_msg("row %d column %d is %a, of the table %a", (int)r, (int)k, (double)b[k],
                         (double)a[k]);
        assert_int_equal(tsr_ref_row_make(&table, &w->format, cols, codes, meta), TSR_OK);
        assert_int_equal(tsr_ref_row_make(&whole, &i->format, cols, c, m), TSR_OK);
        assert_true(same(tsr_ref_exact_a8(x, &table, cols), tsr_ref_exact_a8(x, &whole, cols)));
        tsr_ref_row_free(&table);
        tsr_ref_row_free(&whole);
    }
    free(a);
    free(b);
    free(x);
}

static void whole_numbers(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 140; n++) {
        struct wt                  w;
        struct tsr_engine_integers i;
        wt_table_any(&w, 3, 1 + rnd() % 700, n);
        /* tables of any numbers are every fourth; wider codes have none */
        bool       whole = n % 4 != 0 || w.format.bits > 4;
        tsr_status st = tsr_engine_integers_make(&i, &w.desc, NULL);
        assert_int_equal(st, whole ? TSR_OK : TSR_E_UNSUPPORTED);
        if (st == TSR_OK) {
            check_rows(&w, &i);
            tsr_engine_integers_free(&i);
        }
        wt_free(&w);
    }
}

static void other_formats(void **state)
{
    struct wt                  w;
    struct tsr_engine_integers i;
    (void)state;
    wt_affine(&w, 3, 64, 4, 32, 0, 6);
    assert_int_equal(tsr_engine_integers_make(&i, &w.desc, NULL), TSR_E_UNSUPPORTED);
    wt_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(whole_numbers),
                                        cmocka_unit_test(other_formats) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
