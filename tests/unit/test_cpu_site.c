/* All of a site, and several products that need nothing of each other, in one call, in any order of its items, against
 * its operations one behind the other. */
#include "compensate_fixture.h"
#include "loop_orders.h"
#include "tessera/draft/linears.h"

struct site_case {
    uint64_t T, cols;
    uint32_t n, act, k; /* k 0: nothing is added */
    uint32_t bits[3];   /* of codes; 3: with stored zero points, which others need not share */
    uint64_t rows[3];
    uint32_t residuals; /* bit per linear */
    int      joined;    /* their rows lie behind each other */
};

/* Rows of n residuals behind each other; d[] are theirs in it, as they come. */
static uint8_t *join_rows(const struct res *r, uint32_t n, struct tsr_residual_desc *d)
{
    uint64_t stride = 0, at = 0;
    uint8_t *all = NULL;
    for (uint32_t j = 0; j < n; j++)
        stride += r[j].d.stride;
    assert_int_equal(posix_memalign((void **)&all, 64, r[0].d.inputs * stride), 0);
    for (uint32_t j = 0; j < n; at += r[j++].d.stride) {
        for (uint64_t i = 0; i < r[j].d.inputs; i++)
            memcpy(all + i * stride + at, r[j].codes + i * r[j].d.stride, r[j].d.stride);
        d[j] = r[j].d;
        d[j].codes = all + at;
        d[j].stride = stride;
    }
    return all;
}

/* All of a site in one call, against its operations one behind the other, which the tests of LINEAR and those above
 * hold to loops of their own. */
static void one_site(struct tsr_cpu *c, const struct site_case *t, uint32_t bits)
{
    float               *x = rnd_new(t->T * t->cols, 2), floors[32];
    struct tsr_tensor    tx = dev(c, x, TSR_F32, t->T, t->cols, 0);
    struct tsr_tensor    tl = dev(c, NULL, TSR_U32, t->T, 1 + t->cols, 0), tb[3], to[3];
    struct wt            w[3];
    struct res           r[3];
    void                *loaded[3], *h[3] = { NULL }, *joined[3] = { NULL };
    uint8_t             *rows = NULL;
    float               *bias[3], *want[3];
    struct tsr_op        op[3];
    char                 text[512] = "";
    struct tsr_err       err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    struct tsr_select_op choose = {
        .struct_size = sizeof choose, .k = t->k, .x = &tx, .floors = floors, .list = &tl
    };
    struct tsr_compensate_op add = { .struct_size = sizeof add, .x = &tx, .list = &tl };
    struct tsr_site_op       site = { .struct_size = sizeof site, .n = t->n };
    floors_of(2, 0.5, floors);
    for (uint32_t j = 0; j < t->n; j++) {
        wt_int(&w[j], t->rows[j], t->cols, t->bits[j], 128, TSR_F16,
               t->bits[j] == 3 ? TSR_ZERO_STORED : TSR_ZERO_MID);
        assert_int_equal(tsr_cpu_weight_load(c, &w[j].desc, &loaded[j], &err), TSR_OK);
        bias[j] = rnd_new(t->rows[j], 1);
        tb[j] = dev(c, bias[j], TSR_F32, 1, t->rows[j], 0);
        to[j] = dev(c, NULL, TSR_F32, t->T, t->rows[j], 0);
        op[j] = (struct tsr_op){ .struct_size = sizeof op[j],
                                 .kind = TSR_OP_LINEAR,
                                 .out = &to[j],
                                 .in = { &tx, j == 1 ? NULL : &tb[j] },
                                 .weight = loaded[j],
                                 .act = t->act };
        site.linear[j] = &op[j];
        r[j] = res_new(bits, t->cols, t->rows[j]);
        if (t->residuals >> j & 1) {
            assert_int_equal(table(c)->residual_load(c, &r[j].d, &h[j], &err), TSR_OK);
            add.residual[add.n] = h[j];
            add.out[add.n++] = &to[j];
        }
        run_ok(c, &op[j]);
    }
    if (t->k) {
        site.select = &choose;
        site.add = &add;
        assert_int_equal(table(c)->select(c, NULL, &choose, &err), TSR_OK);
        assert_int_equal(table(c)->compensate(c, NULL, &add, &err), TSR_OK);
    }
    if (t->joined) {
        struct tsr_residual_desc d[3];
        rows = join_rows(r, t->n, d);
        for (uint32_t j = 0, at = 0; j < t->n; j++)
            if (t->residuals >> j & 1) {
                assert_int_equal(table(c)->residual_load(c, &d[j], &joined[j], &err), TSR_OK);
                add.residual[at++] = joined[j];
            }
    }
    for (uint32_t j = 0; j < t->n; j++)
        want[j] = host_of(c, &to[j]);
    for (size_t order = 0; order < ORDERS; order++) {
        for (uint32_t j = 0; j < t->n; j++) {
            float *nan = rnd_new(t->T * t->rows[j], 1);
            memset(nan, 0xff, t->T * t->rows[j] * 4);
            assert_int_equal(tsr_cpu_upload(c, to[j].buffer, to[j].offset, nan,
                                            t->T * t->rows[j] * 4, &err),
                             TSR_OK);
            free(nan);
        }
        host_for_instead = loop_orders[order];
        tsr_status st = table(c)->site(c, NULL, &site, &err);
        host_for_instead = NULL;
        if (st != TSR_OK)
            fail_msg("%s", text);
        for (uint32_t j = 0; j < t->n; j++) {
            float *got = host_of(c, &to[j]);
            for (uint64_t i = 0; i < t->T * t->rows[j]; i++)
                assert_true(got[i] == got[i]);
            assert_memory_equal(got, want[j], t->T * t->rows[j] * 4);
            free(got);
        }
    }
    for (uint32_t j = 0; j < t->n; j++) {
        free(want[j]);
        free(bias[j]);
        free(r[j].codes);
        free(r[j].scales);
        table(c)->residual_free(c, h[j]);
        table(c)->residual_free(c, joined[j]);
        tsr_cpu_weight_free(c, loaded[j]);
        wt_free(&w[j]);
        undev(c, &tb[j]);
        undev(c, &to[j]);
    }
    free(rows);
    free(x);
    undev(c, &tx);
    undev(c, &tl);
}

static void test_site(void **state)
{
    static const struct site_case cases[] = {
        { 1, 512, 3, TSR_ACT_A8, 64, { 4, 4, 4 }, { 1100, 128, 96 }, 7, 0 }, /* pairs and panels */
        { 1, 512, 3, TSR_ACT_A8, 64, { 4, 3, 8 }, { 96, 1100, 40 }, 7, 0 },  /* no common codes */
        { 1, 1300, 2, TSR_ACT_A8, 32, { 2, 2 }, { 2100, 1056 }, 2, 0 }, /* one with residuals */
        { 1, 1300, 2, TSR_ACT_A8, 64, { 3, 4 }, { 2100, 1056 }, 3, 0 }, /* wide pieces */
        { 1, 512, 2, TSR_ACT_A8, 0, { 4, 4 }, { 1100, 128 }, 0, 0 },    /* nothing is added */
        { 1, 100, 1, TSR_ACT_A8, 1024, { 3 }, { 7 }, 1, 0 },
        { 1, 512, 2, TSR_ACT_F32, 64, { 4, 4 }, { 1100, 128 }, 3, 0 }, /* one behind the other */
        { 3, 512, 2, TSR_ACT_A8, 64, { 4, 4 }, { 96, 128 }, 3, 0 },    /* the same */
        /* rows that end within lines and pieces; several wide pieces */
        { 1, 512, 3, TSR_ACT_A8, 64, { 4, 4, 4 }, { 1100, 8, 97 }, 7, 1 },
        { 1, 300, 2, TSR_ACT_A8, 128, { 4, 4 }, { 4500, 4200 }, 3, 1 },
        /* without the middle one; two of three together; one behind the other */
        { 1, 512, 3, TSR_ACT_A8, 64, { 4, 4, 4 }, { 600, 128, 1500 }, 5, 1 },
        { 1, 512, 3, TSR_ACT_A8, 64, { 4, 4, 4 }, { 600, 130, 1500 }, 6, 1 },
        { 2, 512, 3, TSR_ACT_A8, 64, { 4, 4, 4 }, { 1100, 8, 97 }, 7, 1 },
        /* large enough for items of their own: an odd number of panels, all with and without a bias */
        { 1, 1536, 3, TSR_ACT_A8, 64, { 4, 4, 4 }, { 2090, 2080, 300 }, 7, 1 },
        { 1, 1536, 2, TSR_ACT_A8, 64, { 4, 8 }, { 4520, 2090 }, 3, 0 },
    };
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (uint32_t bits = 2; bits <= 16; bits *= 2)
                if (cases[i].joined || bits == 4)
                    one_site(c, &cases[i], bits);
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

/* ---- several products ----------------------------------------------------------------------------------- */

/* One product of a call: its weight and its input, which may be that of the product before. */
struct product {
    uint64_t T, rows, cols;
    uint32_t bits, act; /* bits: of integers; or an MX element; or LUT of a table with outliers */
    int      same;      /* the input of the product before it */
};
#define LUT      1000u
#define PRODUCTS 12u

static const struct product mixed[PRODUCTS] = {
    { 1, 768, 512, 4, TSR_ACT_A8, 0 },
    { 1, 768, 512, 4, TSR_ACT_A8, 1 },
    { 1, 1100, 512, 3, TSR_ACT_A8, 1 },
    { 1, 2090, 512, 4, TSR_ACT_A8, 1 }, /* other runs; in pairs */
    { 1, 96, 300, 8, TSR_ACT_A8, 0 },
    { 3, 128, 512, 4, TSR_ACT_A8, 0 }, /* several tokens */
    { 1, 128, 512, 4, TSR_ACT_F32, 0 },
    { 7, 64, 96, 2, TSR_ACT_A16, 0 },
    { 1, 320, 512, TSR_MX_FP4_E2M1, TSR_ACT_A8, 0 },
    { 1, 320, 512, TSR_MX_FP4_E2M1, TSR_ACT_A8, 1 },
    { 1, 96, 300, TSR_MX_FP8_E4M3, TSR_ACT_A8, 0 },
    { 1, 200, 300, LUT, TSR_ACT_A8, 1 },
};

static void product_weight(struct wt *w, const struct product *p)
{
    if (p->bits == LUT)
        wt_lut(w, p->rows, p->cols, 4, 2, TSR_F16);
    else if (p->bits > 8)
        wt_mx(w, p->rows, p->cols, p->bits, 32, 8);
    else
        wt_int(w, p->rows, p->cols, p->bits, 128, TSR_F16,
               p->bits == 3 ? TSR_ZERO_STORED : TSR_ZERO_MID);
}

static void one_call(struct tsr_cpu *c, const struct product *p, uint32_t n)
{
    const struct tsr_backend_linears_v1 *t = tsr_cpu_extension(c, TSR_BACKEND_LINEARS);
    struct tsr_tensor                    x[PRODUCTS], y[PRODUCTS];
    struct wt                            w[PRODUCTS];
    void                                *loaded[PRODUCTS];
    float                               *want[PRODUCTS];
    struct tsr_op                        op[PRODUCTS];
    const struct tsr_op                 *list[PRODUCTS];
    assert_non_null(t);
    for (uint32_t j = 0; j < n; j++) {
        float *in = rnd_new(p[j].T * p[j].cols, 2);
        x[j] = j > 0 && p[j].same ? x[j - 1] : dev(c, in, TSR_F32, p[j].T, p[j].cols, 0);
        y[j] = dev(c, NULL, TSR_F32, p[j].T, p[j].rows, 0);
        free(in);
        product_weight(&w[j], &p[j]);
        assert_int_equal(tsr_cpu_weight_load(c, &w[j].desc, &loaded[j], NULL), TSR_OK);
        op[j] = (struct tsr_op){ .struct_size = sizeof op[j],
                                 .kind = TSR_OP_LINEAR,
                                 .out = &y[j],
                                 .in = { &x[j] },
                                 .weight = loaded[j],
                                 .act = p[j].act };
        list[j] = &op[j];
        run_ok(c, &op[j]);
        want[j] = host_of(c, &y[j]);
    }
    for (size_t order = 0; order < ORDERS; order++) {
        for (uint32_t j = 0; j < n; j++) {
            float *none = calloc(p[j].T * p[j].rows, 4);
            assert_int_equal(tsr_cpu_upload(c, y[j].buffer, y[j].offset, none,
                                            p[j].T * p[j].rows * 4, NULL),
                             TSR_OK);
            free(none);
        }
        host_for_instead = loop_orders[order];
        assert_int_equal(t->linears(c, NULL, list, n, NULL), TSR_OK);
        host_for_instead = NULL;
        for (uint32_t j = 0; j < n; j++) {
            float *got = host_of(c, &y[j]);
            assert_memory_equal(got, want[j], p[j].T * p[j].rows * 4);
            free(got);
        }
    }
    for (uint32_t j = 0; j < n; j++) {
        free(want[j]);
        tsr_cpu_weight_free(c, loaded[j]);
        wt_free(&w[j]);
        undev(c, &y[j]);
        if (j + 1 == n || !p[j + 1].same)
            undev(c, &x[j]);
    }
}

static void test_linears(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        struct tsr_op   add = { .struct_size = sizeof add, .kind = TSR_OP_ADD };
        if (!c)
            continue;
        const struct tsr_backend_linears_v1 *t = tsr_cpu_extension(c, TSR_BACKEND_LINEARS);
        one_call(c, mixed, PRODUCTS);
        one_call(c, mixed, 1);
        one_call(c, mixed + 5, 3); /* none that goes together */
        one_call(c, mixed + 8, 4);
        assert_int_equal(t->linears(c, NULL, NULL, 0, NULL), TSR_OK);
        assert_int_equal(t->linears(c, NULL, (const struct tsr_op *const[]){ &add }, 1, NULL),
                         TSR_E_INVAL);
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_site),
                                        cmocka_unit_test(test_linears) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
