/* The CPU backend's compensation against the sentences of docs/decisions/numerics.md written as loops,
 * on every instruction set, with the loops of the host backwards; and the public vectors of the selection. */
#include "cpu_fixture.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "../../kernels/weight/weight.h"
#include "compensate.h"

static const struct tsr_backend_compensate_v1 *table(struct tsr_cpu *c)
{
    const struct tsr_backend_compensate_v1 *t = tsr_cpu_extension(c, TSR_BACKEND_COMPENSATE);
    assert_non_null(t);
    return t;
}

static float f16(uint16_t h)
{
    return tsr_weight_f16(h);
}

/* Floors as the paper draws them, all in double. */
static void floors_of(double b0, double b15, float f[32])
{
    for (int i = 0; i < 16; i++)
        f[i] = (float)(i < 15 ? b0 + (b15 - b0) * i / 15 : b15);
    for (int i = 16; i < 32; i++)
        f[i] = (float)(b15 * (31 - i) / 16);
}

/* One chunk bucket by bucket; NaN is in none. */
static uint32_t brute_chunk(const float *x, uint32_t n, uint32_t base, uint32_t take,
                            const float *f, uint32_t *list)
{
    bool     taken[1024] = { 0 };
    uint32_t left = take, count = 0;
    for (int b = 0; b < 32; b++)
        for (uint32_t i = 0; i < n && left; i++) {
            float a = fabsf(x[i]);
            if (a >= f[b] && (b == 0 || a < f[b - 1])) {
                taken[i] = true;
                left--;
            }
        }
    for (uint32_t i = 0; i < n; i++)
        if (taken[i])
            list[count++] = base + i;
    return count;
}

static void brute_select(const float *x, uint32_t cols, uint32_t k, const float *f, uint32_t *list)
{
    list[0] = 0;
    for (uint32_t at = 0; at < cols; at += 1024) {
        uint32_t n = cols - at < 1024 ? cols - at : 1024;
        list[0] += brute_chunk(x + at, n, at, k * n / 1024, f, list + 1 + list[0]);
    }
}

static tsr_status select_on(struct tsr_cpu *c, const struct tsr_tensor *x,
                            const struct tsr_tensor *rows, uint32_t k, const float *floors,
                            const struct tsr_tensor *list, char text[512])
{
    struct tsr_err       err = { sizeof err, 512, text };
    struct tsr_select_op op = {
        .struct_size = sizeof op, .k = k, .x = x, .rows = rows, .floors = floors, .list = list
    };
    return table(c)->select(c, NULL, &op, &err);
}

static void test_select(void **state)
{
    static const uint32_t shapes[][2] = { { 4096, 32 }, { 1024, 1024 }, { 640, 16 },
                                          { 17, 1023 }, { 3000, 100 },  { 1, 1024 },
                                          { 2048, 1 },  { 1040, 700 },  { 5120, 8 } };
    char                  text[512] = "";
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int way = 0; way < 4; way++) {
                uint32_t cols = shapes[s][0], k = shapes[s][1], T = 3, rows[2] = { 2, 0 };
                float    floors[32], *x = rnd_new((uint64_t)T * cols, 1);
                for (uint64_t i = 0; i < (uint64_t)T * cols; i++) {
                    x[i] = x[i] * x[i] * x[i] * 4;
                    if (way == 1) /* many that are equal, to the last bit at a floor */
                        x[i] = (float)((int)(x[i] * 2)) * 0.5f;
                    if (way == 2 && rnd() % 7 == 0)
                        x[i] = rnd() % 2 ? NAN : INFINITY;
                    if (way == 3)
                        x[i] = 0;
                }
                floors_of(4, way == 3 ? 0 : 0.5, floors);
                uint64_t          room = 1 + (uint64_t)cols;
                struct tsr_tensor tx = dev(c, x, TSR_F32, T, cols, 8);
                struct tsr_tensor tr = dev(c, rows, TSR_U32, 1, 2, 0);
                struct tsr_tensor tl = dev(c, NULL, TSR_U32, 2, room, 4);
                if (select_on(c, &tx, &tr, k, floors, &tl, text) != TSR_OK)
                    fail_msg("%s", text);
                uint32_t *got = host_of(c, &tl), *want = calloc(room, 4);
                assert_non_null(want);
                for (int i = 0; i < 2; i++) {
                    brute_select(x + (uint64_t)rows[i] * cols, cols, k, floors, want);
                    assert_memory_equal(got + (uint64_t)i * room, want,
                                        ((uint64_t)want[0] + 1) * 4);
                }
                free(got);
                free(want);
                free(x);
                undev(c, &tx);
                undev(c, &tr);
                undev(c, &tl);
            }
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

/* ---- the sums --------------------------------------------------------------------------------- */

struct res {
    struct tsr_residual_desc d;
    uint8_t                 *codes;
    uint16_t                *scales;
};

static struct res res_new(uint32_t bits, uint64_t inputs, uint64_t outputs)
{
    struct res r = { 0 };
    uint64_t   stride = ((outputs * bits + 7) / 8 + 63) / 64 * 64;
    assert_int_equal(posix_memalign((void **)&r.codes, 64, inputs * stride), 0);
    r.scales = malloc(outputs * 2);
    assert_non_null(r.scales);
    for (uint64_t i = 0; i < inputs * stride; i++)
        r.codes[i] = (uint8_t)rnd();
    for (uint64_t i = 0; bits == 16 && i < inputs * stride; i += 2)
        r.codes[i + 1] = (uint8_t)((rnd() & 0x80) | (0x10 + rnd() % 0x28)); /* finite */
    for (uint64_t i = 0; i < outputs; i++)
        r.scales[i] = (uint16_t)(0x1000 + rnd() % 0x1000);
    r.d = (struct tsr_residual_desc){ .struct_size = sizeof r.d,
                                      .bits = bits,
                                      .name = "r",
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .stride = stride,
                                      .codes = r.codes,
                                      .scales = bits == 16 ? NULL : r.scales };
    return r;
}

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
    struct tsr_err           err = { sizeof err, sizeof text, text };
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

/* What an input of 40 channels, all selected, adds to outputs of 0: compared, or not finite at all. */
static void one_input(struct tsr_cpu *c, uint32_t bits, const float *x, bool finite)
{
    uint32_t          list[41] = { 40 };
    float             y[100] = { 0 };
    struct tsr_tensor tx = dev(c, x, TSR_F32, 1, 40, 0), ty = dev(c, y, TSR_F32, 1, 100, 0);
    struct res        r = res_new(bits, 40, 100);
    void             *h = NULL;
    char              text[512] = "";
    struct tsr_err    err = { sizeof err, sizeof text, text };
    for (uint32_t i = 0; i < 40; i++)
        list[1 + i] = i;
    struct tsr_tensor tl = dev(c, list, TSR_U32, 1, 41, 0);
    assert_int_equal(table(c)->residual_load(c, &r.d, &h, &err), TSR_OK);
    struct tsr_compensate_op op = {
        .struct_size = sizeof op, .n = 1, .x = &tx, .list = &tl, .residual = { h }, .out = { &ty }
    };
    assert_int_equal(table(c)->compensate(c, NULL, &op, &err), TSR_OK);
    float *got = host_of(c, &ty);
    for (uint64_t n = 0; n < 100; n++) {
        float want = brute(&r, x, list, n, 0);
        if (finite)
            assert_memory_equal(&got[n], &want, 4);
        else
            assert_true(!(fabsf(got[n]) <= FLT_MAX));
    }
    table(c)->residual_free(c, h);
    free(got);
    free(r.codes);
    free(r.scales);
    undev(c, &tx);
    undev(c, &tl);
    undev(c, &ty);
}

/* Magnitudes at the edges of what is made whole numbers. */
static void test_inputs(void **state)
{
    static const float tops[] = { 0, 1e-45f, 0x1.fffffep-101f, 0x1p-100f, 1e-12f, 1, 1e30f };
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        for (uint32_t bits = 2; bits <= 16; bits *= 2) {
            float x[40];
            for (size_t t = 0; t < sizeof tops / sizeof *tops; t++) {
                for (int i = 0; i < 40; i++)
                    x[i] = (float)(i - 20) / 20 * tops[t];
                one_input(c, bits, x, true);
            }
            x[7] = -INFINITY;
            one_input(c, bits, x, false);
        }
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

/* ---- a site ------------------------------------------------------------------------------------ */

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

/* ---- orders of its items: the fixture's is from the last to the first ---------------------------------- */

static tsr_status one_item(uint64_t i, uint64_t n, uint64_t grain,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    return body(arg, i * grain, (i + 1) * grain < n ? (i + 1) * grain : n);
}

static tsr_status ascending(uint64_t n, uint64_t                                  grain,
                            tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    tsr_status st = TSR_OK;
    for (uint64_t i = 0; i < (n + grain - 1) / grain && st == TSR_OK; i++)
        st = one_item(i, n, grain, body, arg);
    return st;
}

static tsr_status shuffled(uint64_t n, uint64_t                                  grain,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    uint64_t   items = (n + grain - 1) / grain, *at = malloc((items + 1) * sizeof *at);
    tsr_status st = TSR_OK;
    assert_non_null(at);
    for (uint64_t i = 0; i < items; i++) { /* i goes to a place among those in front of it */
        uint64_t j = rnd() % (i + 1);
        at[i] = at[j];
        at[j] = i;
    }
    for (uint64_t i = 0; i < items && st == TSR_OK; i++)
        st = one_item(at[i], n, grain, body, arg);
    free(at);
    return st;
}

struct crew {
    uint64_t n, grain;
    tsr_status (*body)(void *, uint64_t, uint64_t);
    void            *arg;
    _Atomic uint64_t next;
};

static void *crew_works(void *arg)
{
    struct crew *c = arg;
    for (uint64_t i; (i = atomic_fetch_add(&c->next, 1)) < (c->n + c->grain - 1) / c->grain;)
        if (one_item(i, c->n, c->grain, c->body, c->arg) != TSR_OK)
            abort();
    return NULL;
}

/* Three threads that take the next item each: two of them come to pieces at about the same time. */
static tsr_status threaded(uint64_t n, uint64_t                                  grain,
                           tsr_status (*body)(void *, uint64_t, uint64_t), void *arg)
{
    struct crew c = { .n = n, .grain = grain, .body = body, .arg = arg };
    pthread_t   id[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&id[i], NULL, crew_works, &c), 0);
    (void)crew_works(&c);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(id[i], NULL), 0);
    return TSR_OK;
}

static tsr_status (*const orders[])(uint64_t, uint64_t, tsr_status (*)(void *, uint64_t, uint64_t),
                                    void *) = { NULL, ascending, shuffled, threaded };

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
    struct tsr_err       err = { sizeof err, sizeof text, text };
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
    for (size_t order = 0; order < sizeof orders / sizeof *orders; order++) {
        for (uint32_t j = 0; j < t->n; j++) {
            float *nan = rnd_new(t->T * t->rows[j], 1);
            memset(nan, 0xff, t->T * t->rows[j] * 4);
            assert_int_equal(tsr_cpu_upload(c, to[j].buffer, to[j].offset, nan,
                                            t->T * t->rows[j] * 4, &err),
                             TSR_OK);
            free(nan);
        }
        host_for_instead = orders[order];
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

/* ---- public vectors --------------------------------------------------------------------------- */

static void test_vectors(void **state)
{
    json_error_t e;
    json_t      *all = json_load_file(TEST_GOLDEN "/dec/vectors.json", 0, &e), *v;
    size_t       at;
    char         text[512] = "";
    (void)state;
    assert_non_null(all);
    assert_int_equal(json_array_size(json_object_get(all, "selection_vectors")), 4);
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_new(test_isas[isa]);
        if (!c)
            continue;
        json_array_foreach (json_object_get(all, "selection_vectors"), at, v) {
            const json_t *bits = json_object_get(v, "x_fp16_bits");
            const json_t *want = json_object_get(v, "selected_lowest_index_first");
            uint32_t      k = (uint32_t)json_integer_value(json_object_get(v, "k_chunk"));
            uint64_t      n = json_array_size(bits);
            float         x[1024], floors[32];
            for (uint64_t i = 0; i < n; i++)
                x[i] = f16((uint16_t)json_integer_value(json_array_get(bits, i)));
            floors_of(json_number_value(json_object_get(v, "b0")),
                      json_number_value(json_object_get(v, "b15")), floors);
            struct tsr_tensor tx = dev(c, x, TSR_F32, 1, n, 0);
            struct tsr_tensor tl = dev(c, NULL, TSR_U32, 1, 1 + n, 0);
            if (select_on(c, &tx, NULL, k, floors, &tl, text) != TSR_OK)
                fail_msg("%s", text);
            uint32_t *got = host_of(c, &tl);
            assert_int_equal(got[0], json_array_size(want));
            for (uint32_t i = 0; i < got[0]; i++)
                assert_int_equal(got[1 + i], json_integer_value(json_array_get(want, i)));
            free(got);
            undev(c, &tx);
            undev(c, &tl);
        }
        tsr_cpu_destroy(c);
    }
    json_decref(all);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

static void refuse_residual(struct tsr_cpu *c, const struct res *r, uint32_t bits, uint64_t stride,
                            uint64_t skew, tsr_status want)
{
    struct tsr_residual_desc d = r->d;
    void                    *h = NULL;
    char                     text[512] = "";
    struct tsr_err           err = { sizeof err, sizeof text, text };
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
    struct tsr_err    err = { sizeof err, sizeof text, text };
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select),  cmocka_unit_test(test_sums),
        cmocka_unit_test(test_inputs),  cmocka_unit_test(test_site),
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
