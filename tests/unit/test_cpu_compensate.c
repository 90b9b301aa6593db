/* The CPU backend's compensation against the sentences of docs/decisions/numerics.md written as loops,
 * on every instruction set, with the loops of the host backwards; and what it refuses. */
#include "compensate_fixture.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

static float code(const struct res *r, uint64_t i, uint64_t n)
{
    const uint8_t *row = r->codes + i * r->d.stride;
    uint16_t       h;
    memcpy(&h, row + 2 * (r->d.bits == 16 ? n : 0), 2);
    switch (r->d.bits) {
    case 2:
        return (float)(row[n / 4] >> n % 4 * 2 & 3) - 2;
    case 4:
        return (float)(row[n / 2] >> n % 2 * 4 & 15) - 8;
    case 8:
        return (float)row[n] - 128;
    default:
        return f16(h);
    }
}

/* What docs/decisions/numerics.md says of one output: of codes, blocks of 512 channels with exact sums. */
static float brute_codes(const struct res *r, const float *x, const uint32_t *list, uint64_t n)
{
    float all = 0;
    for (uint32_t at = 1; at <= list[0]; at += 512) {
        uint32_t end = list[0] - at < 512 ? list[0] : at + 511;
        float    top = 0;
        int64_t  sum = 0;
        for (uint32_t i = at; i <= end; i++)
            top = fmaxf(top, fabsf(x[list[i]]));
        if (top >= 0x1p-100f)
            for (uint32_t i = at; i <= end; i++)
                sum += (int64_t)rintf(x[list[i]] * (32512 / top)) * (int64_t)code(r, list[i], n);
        float block = (float)sum * (top / 32512);
        all = at == 1 ? block : all + block;
    }
    return all;
}

static float brute(const struct res *r, const float *x, const uint32_t *list, uint64_t n,
                   float base)
{
    float acc = 0;
    if (r->d.bits < 16)
        acc = brute_codes(r, x, list, n);
    else
        for (uint32_t i = 1; i <= list[0]; i++)
            acc = fmaf(x[list[i]], code(r, list[i], n), acc);
    float sum = acc * (r->d.scales ? f16(r->scales[n]) : 1);
    return base + (0.0f + sum);
}

static void one_sum(struct tsr_cpu *c, uint32_t bits, uint64_t channels, const uint64_t *outputs,
                    uint32_t n_out, uint32_t take)
{
    uint64_t                 T = 3, room = 1 + (uint64_t)take;
    float                   *x = rnd_new(T * channels, 1), *y[3];
    uint32_t                *list = calloc(T, room * 4);
    struct res               r[3];
    struct tsr_tensor        tx = dev(c, x, TSR_F32, T, channels, 0), to[3], tl;
    struct tsr_compensate_op op = { .struct_size = sizeof op, .n = n_out, .x = &tx, .list = &tl };
    char                     text[512] = "";
    struct tsr_err           err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    assert_non_null(list);
    for (uint64_t t = 0; t < T; t++) {
        uint32_t *l = list + t * room;
        for (uint64_t i = 0, left = t == 1 ? 0 : take; i < channels && left; i++)
            if (rnd() % (channels - i) < left) {
                l[++l[0]] = (uint32_t)i;
                left--;
            }
    }
    tl = dev(c, list, TSR_U32, T, room, 0);
    for (uint32_t j = 0; j < n_out; j++) {
        void *h = NULL;
        r[j] = res_new(bits, channels, outputs[j]);
        assert_int_equal(table(c)->residual_load(c, &r[j].d, &h, &err), TSR_OK);
        op.residual[j] = h;
        y[j] = rnd_new(T * outputs[j], 1);
        to[j] = dev(c, y[j], TSR_F32, T, outputs[j], 12);
        op.out[j] = &to[j];
    }
    if (table(c)->compensate(c, NULL, &op, &err) != TSR_OK)
        fail_msg("%s", text);
    for (uint32_t j = 0; j < n_out; j++) {
        float *got = host_of(c, &to[j]);
        for (uint64_t t = 0; t < T; t++)
            for (uint64_t n = 0; n < outputs[j]; n++) {
                float want =
                    brute(&r[j], x + t * channels, list + t * room, n, y[j][t * outputs[j] + n]);
                assert_memory_equal(&got[t * outputs[j] + n], &want, 4);
            }
        free(got);
        free(y[j]);
        free(r[j].codes);
        free(r[j].scales);
        table(c)->residual_free(c, (void *)(uintptr_t)op.residual[j]);
        undev(c, &to[j]);
    }
    free(x);
    free(list);
    undev(c, &tx);
    undev(c, &tl);
}

static void test_sums(void **state)
{
    static const uint32_t widths[] = { 2, 4, 8, 16 };
    static const uint64_t few[] = { 40, 1, 300 }, many[] = { 1025, 512, 16 };
    static const uint64_t wide[] = { 2500, 1024 };   /* more than a thread takes at a time */
    static const uint64_t widest[] = { 7000, 1500 }; /* taken in wide pieces */
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        for (int b = 0; b < 4; b++) {
            one_sum(c, widths[b], 100, few, 3, 20);
            one_sum(c, widths[b], 2100, many, 2, 66);
            one_sum(c, widths[b], 2100, many, 2, 1027); /* two blocks and a part */
            one_sum(c, widths[b], 256, many, 3, 128);
            one_sum(c, widths[b], 7, few + 1, 1, 7);
            one_sum(c, widths[b], 1024, wide, 2, 187);
            one_sum(c, widths[b], 260, widest, 2, 41);
        }
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

/* What n inputs, all selected, add to outputs of 0: compared, or not finite at all.  fill: every byte of the codes;
 * below 0: random ones. */
static void one_input(struct tsr_cpu *c, uint32_t bits, const float *x, uint32_t n, int fill,
                      bool finite)
{
    uint32_t          list[601] = { n };
    float             y[100] = { 0 };
    struct tsr_tensor tx = dev(c, x, TSR_F32, 1, n, 0), ty = dev(c, y, TSR_F32, 1, 100, 0);
    struct res        r = res_new(bits, n, 100);
    void             *h = NULL;
    char              text[512] = "";
    struct tsr_err    err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    for (uint32_t i = 0; i < n; i++)
        list[1 + i] = i;
    if (fill >= 0)
        memset(r.codes, fill, n * r.d.stride);
    struct tsr_tensor tl = dev(c, list, TSR_U32, 1, 1 + n, 0);
    assert_int_equal(table(c)->residual_load(c, &r.d, &h, &err), TSR_OK);
    struct tsr_compensate_op op = {
        .struct_size = sizeof op, .n = 1, .x = &tx, .list = &tl, .residual = { h }, .out = { &ty }
    };
    assert_int_equal(table(c)->compensate(c, NULL, &op, &err), TSR_OK);
    float *got = host_of(c, &ty);
    for (uint64_t o = 0; o < 100; o++) {
        if (!finite) {
            assert_true(!(fabsf(got[o]) <= FLT_MAX));
            continue;
        }
        float want = brute(&r, x, list, o, 0);
        assert_memory_equal(&got[o], &want, 4);
    }
    table(c)->residual_free(c, h);
    free(got);
    free(r.codes);
    free(r.scales);
    undev(c, &tx);
    undev(c, &tl);
    undev(c, &ty);
}

/* Magnitudes at the edges of what is made whole numbers, and the largest sums that a block can have. */
static void test_inputs(void **state)
{
    static const float tops[] = { 0, 1e-45f, 0x1.fffffep-101f, 0x1p-100f, 1e-12f, 1, 1e30f };
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        for (uint32_t bits = 2; bits <= 16; bits *= 2) {
            float x[600];
            for (size_t t = 0; t < sizeof tops / sizeof *tops; t++) {
                for (int i = 0; i < 40; i++)
                    x[i] = (float)(i - 20) / 20 * tops[t];
                one_input(c, bits, x, 40, -1, true);
            }
            x[7] = -INFINITY;
            one_input(c, bits, x, 40, -1, false);
            for (int sign = -1; sign < 2 && bits < 16; sign += 2) {
                for (int i = 0; i < 600; i++)
                    x[i] = (float)sign * 3;
                one_input(c, bits, x, 600, 0, true);
                one_input(c, bits, x, 600, 255, true);
            }
        }
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

static void refuse_residual(struct tsr_cpu *c, const struct res *r, uint32_t bits, uint64_t stride,
                            uint64_t skew, tsr_status want)
{
    struct tsr_residual_desc d = r->d;
    void                    *h = NULL;
    char                     text[512] = "";
    struct tsr_err           err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    d.bits = bits;
    d.stride = stride;
    d.codes = r->codes + skew;
    assert_int_equal(table(c)->residual_load(c, &d, &h, &err), want);
    assert_true(text[0] != '\0');
}

static void test_refused(void **state)
{
    struct tsr_cpu   *c = cpu_new("scalar");
    struct res        r = res_new(4, 64, 64);
    float             floors[32], x[128] = { 0 };
    uint32_t          list[2 * 4] = { 3, 0, 1, 64, 2, 5, 5, 0 };
    struct tsr_tensor tx = dev(c, x, TSR_F32, 2, 64, 0), tl = dev(c, list, TSR_U32, 2, 4, 0);
    struct tsr_tensor ty = dev(c, x, TSR_F32, 2, 64, 0);
    void             *h = NULL;
    char              text[512] = "";
    struct tsr_err    err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };
    (void)state;
    refuse_residual(c, &r, 3, 64, 0, TSR_E_UNSUPPORTED);
    refuse_residual(c, &r, 4, 32, 0, TSR_E_INVAL);
    refuse_residual(c, &r, 4, 64, 8, TSR_E_INVAL);
    refuse_residual(c, &r, 16, 64, 0, TSR_E_INVAL);
    floors_of(1, 0.5, floors);
    assert_int_equal(select_on(c, &tx, NULL, 0, floors, &tl, text), TSR_E_INVAL);
    assert_int_equal(select_on(c, &tx, NULL, 1025, floors, &tl, text), TSR_E_INVAL);
    assert_int_equal(select_on(c, &tx, NULL, 64, floors, &tl, text), TSR_E_INVAL); /* 4 of 64 */
    floors[3] = NAN;
    assert_int_equal(select_on(c, &tx, NULL, 16, floors, &tl, text), TSR_E_INVAL);
    assert_int_equal(table(c)->residual_load(c, &r.d, &h, &err), TSR_OK);
    struct tsr_compensate_op op = {
        .struct_size = sizeof op, .n = 1, .x = &tx, .list = &tl, .residual = { h }, .out = { &ty }
    };
    assert_int_equal(table(c)->compensate(c, NULL, &op, &err), TSR_E_INVAL); /* channel 64 */
    list[3] = 63;
    assert_int_equal(tsr_cpu_upload(c, tl.buffer, tl.offset, list, sizeof list, NULL), TSR_OK);
    assert_int_equal(table(c)->compensate(c, NULL, &op, &err), TSR_E_INVAL); /* 5 twice */
    list[6] = 6;
    assert_int_equal(tsr_cpu_upload(c, tl.buffer, tl.offset, list, sizeof list, NULL), TSR_OK);
    assert_int_equal(table(c)->compensate(c, NULL, &op, &err), TSR_OK);
    op.n = 0;
    assert_int_equal(table(c)->compensate(c, NULL, &op, &err), TSR_E_INVAL);
    op.n = 1;
    op.out[0] = &tx;
    assert_int_equal(table(c)->compensate(c, NULL, &op, &err), TSR_E_INVAL);
    struct tsr_site_op site = { .struct_size = sizeof site, .n = TSR_COMPENSATE_LINEARS + 1 };
    assert_int_equal(table(c)->site(c, NULL, &site, &err), TSR_E_INVAL);
    site.n = 0;
    assert_int_equal(table(c)->site(c, NULL, &site, &err), TSR_E_INVAL);
    table(c)->residual_free(c, h);
    table(c)->residual_free(c, NULL);
    undev(c, &tx);
    undev(c, &tl);
    undev(c, &ty);
    free(r.codes);
    free(r.scales);
    tsr_cpu_destroy(c);
    assert_int_equal(host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums), cmocka_unit_test(test_inputs),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
