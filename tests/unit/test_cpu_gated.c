/* Whole feed-forwards in one call, in any order of its items and for any number of threads, against their operations one
 * after the other. */
#include "loop_orders.h"
#include "tessera/draft/linears.h"
#include "tessera/threads.h"

#define MOST 6u
#define LUT  1000u

enum { GATE, UP, DOWN, PRODUCTS };

/* bits: of integers; or an MX element; or LUT of a table with outliers. */
struct shape {
    uint64_t hidden, ffn;
    uint32_t bits[PRODUCTS], func;
    int      bias;
};

static uint32_t threads; /* of the service; 0: the host has none */

static uint32_t count_threads(void *ctx)
{
    (void)ctx;
    return threads;
}

static const void *service(void *ctx, const char *id)
{
    static const struct tsr_threads_v1 table = { .struct_size = sizeof table,
                                                 .count = count_threads };
    (void)ctx;
    return threads && strcmp(id, TSR_THREADS) == 0 ? &table : NULL;
}

struct expert {
    struct wt         w[PRODUCTS];
    void             *loaded[PRODUCTS];
    struct tsr_tensor bias[PRODUCTS], gate, up, out;
    struct tsr_op     op[4]; /* gate, up, act, down */
};

/* The fixture's have scales and codes that are no numbers among them, which would be in every output. */
static void make_finite(struct wt *w)
{
    for (uint64_t i = 0; i < w->desc.rows * w->desc.code_stride; i++)
        w->codes[i] &= 0x77;
    for (uint64_t i = 0; i < w->desc.rows * w->desc.meta_stride; i++)
        w->meta[i] = (uint8_t)(123 + rnd() % 8);
}

static void make_weight(struct wt *w, uint64_t rows, uint64_t cols, uint32_t bits)
{
    if (bits == LUT) {
        wt_lut(w, rows, cols, 4, 2, TSR_F16);
    } else if (bits > 8) {
        wt_mx(w, rows, cols, bits, 32, 8);
        make_finite(w);
    } else
        wt_int(w, rows, cols, bits, 128, TSR_F16, bits == 3 ? TSR_ZERO_STORED : TSR_ZERO_MID);
}

static void make_expert(struct tsr_cpu *c, const struct shape *s, struct tsr_tensor *x,
                        struct expert *e)
{
    memset(e, 0, sizeof *e);
    e->gate = dev(c, NULL, TSR_F32, 1, s->ffn, 0);
    e->up = dev(c, NULL, TSR_F32, 1, s->ffn, 0);
    e->out = dev(c, NULL, TSR_F32, 1, s->hidden, 0);
    struct tsr_tensor *in[] = { x, x, &e->gate }, *out[] = { &e->gate, &e->up, &e->out };
    for (int i = 0; i < PRODUCTS; i++) {
        uint64_t rows = i == DOWN ? s->hidden : s->ffn, cols = i == DOWN ? s->ffn : s->hidden;
        float   *bias = rnd_new(rows, 1);
        make_weight(&e->w[i], rows, cols, s->bits[i]);
        assert_int_equal(tsr_cpu_weight_load(c, &e->w[i].desc, &e->loaded[i], NULL), TSR_OK);
        e->bias[i] = dev(c, bias, TSR_F32, 1, rows, 0);
        free(bias);
        e->op[i == DOWN ? 3 : i] = (struct tsr_op){ .struct_size = sizeof e->op[0],
                                                    .kind = TSR_OP_LINEAR,
                                                    .out = out[i],
                                                    .in = { in[i], s->bias ? &e->bias[i] : NULL },
                                                    .weight = e->loaded[i],
                                                    .act = TSR_ACT_A8 };
    }
    e->op[2] = (struct tsr_op){ .struct_size = sizeof e->op[2],
                                .kind = TSR_OP_ACT,
                                .out = &e->gate,
                                .in = { &e->gate, &e->up },
                                .func = s->func,
                                .scale = 1.702f,
                                .softcap = 7 };
}

static void free_expert(struct tsr_cpu *c, struct expert *e)
{
    for (int i = 0; i < PRODUCTS; i++) {
        tsr_cpu_weight_free(c, e->loaded[i]);
        wt_free(&e->w[i]);
        undev(c, &e->bias[i]);
    }
    undev(c, &e->gate);
    undev(c, &e->up);
    undev(c, &e->out);
}

static struct tsr_gated_op gated_of(const struct expert *e)
{
    return (struct tsr_gated_op){ .struct_size = sizeof(struct tsr_gated_op),
                                  .gate = &e->op[0],
                                  .up = &e->op[1],
                                  .act = &e->op[2],
                                  .down = &e->op[3] };
}

static void spoil(struct tsr_cpu *c, const struct tsr_tensor *t)
{
    float *nan = malloc(t->cols * 4);
    assert_non_null(nan);
    memset(nan, 0xff, t->cols * 4);
    assert_int_equal(tsr_cpu_upload(c, t->buffer, t->offset, nan, t->cols * 4, NULL), TSR_OK);
    free(nan);
}

static void check_call(struct tsr_cpu *c, const struct tsr_backend_linears_v1 *t, struct expert *e,
                       uint32_t n, float *const *want)
{
    struct tsr_gated_op g[MOST];
    for (uint32_t j = 0; j < n; j++) {
        g[j] = gated_of(&e[j]);
        spoil(c, &e[j].gate);
        spoil(c, &e[j].up);
        spoil(c, &e[j].out);
    }
    assert_int_equal(t->gated(c, NULL, g, n, NULL), TSR_OK);
    for (uint32_t j = 0; j < n; j++) {
        float *got = host_of(c, &e[j].out);
        for (uint64_t i = 0; i < e[j].out.cols; i++)
            assert_true(got[i] == got[i]);
        assert_memory_equal(got, want[j], e[j].out.cols * 4);
        free(got);
    }
}

static void one_shape(struct tsr_cpu *c, const struct shape *s, uint32_t n)
{
    static const uint32_t                counts[] = { 0, 1, 2, 3, 64 };
    const struct tsr_backend_linears_v1 *t = tsr_cpu_extension(c, TSR_BACKEND_LINEARS);
    float                               *in = rnd_new(s->hidden, 2), *want[MOST];
    struct tsr_tensor                    x = dev(c, in, TSR_F32, 1, s->hidden, 0);
    struct expert                        e[MOST];
    for (uint32_t j = 0; j < n; j++) {
        make_expert(c, s, &x, &e[j]);
        for (int i = 0; i < 4; i++)
            run_ok(c, &e[j].op[i]);
        want[j] = host_of(c, &e[j].out);
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t order = 0; order < ORDERS; order++) {
            threads = counts[i];
            host_for_instead = loop_orders[order];
            check_call(c, t, e, n, want);
            host_for_instead = NULL;
        }
    for (uint32_t j = 0; j < n; j++) {
        free_expert(c, &e[j]);
        free(want[j]);
    }
    free(in);
    undev(c, &x);
}

static struct tsr_cpu *cpu_with_service(const char *isa)
{
    static struct tsr_host host;
    void                  *self = NULL;
    host = test_host;
    host.service = service;
    setenv("TSR_ISA", isa, 1);
    return tsr_cpu_create(&host, &tsr_cpu_memory_plain, &self, NULL) == TSR_OK ? self : NULL;
}

static void test_gated(void **state)
{
    static const struct shape shapes[] = {
        { 512, 768, { 4, 4, 4 }, TSR_FUNC_SILU, 0 },
        { 300, 130, { 8, 8, 3 }, TSR_FUNC_GELU_TANH, 1 },
        { 512, 1100, { 3, 4, 2 }, TSR_FUNC_CLAMPED, 1 }, /* gate and up need codes of their own */
        { 288, 352, { TSR_MX_FP4_E2M1, TSR_MX_FP4_E2M1, TSR_MX_FP4_E2M1 }, TSR_FUNC_CLAMPED, 1 },
        { 96, 200, { TSR_MX_FP8_E4M3, LUT, 8 }, TSR_FUNC_SILU, 0 },
    };
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        struct tsr_cpu *c = cpu_with_service(test_isas[isa]);
        if (!c)
            continue;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            one_shape(c, &shapes[i], 2);
            one_shape(c, &shapes[i], i == 0 ? MOST : 3);
        }
        tsr_cpu_destroy(c);
    }
    assert_int_equal(host_bytes, 0);
}

/* What is no feed-forward of one row is left to the caller, who runs the operations. */
static void test_declined(void **state)
{
    static const struct shape            s = { 96, 64, { 4, 4, 4 }, TSR_FUNC_SILU, 0 };
    struct tsr_cpu                      *c = cpu_with_service("scalar");
    const struct tsr_backend_linears_v1 *t = tsr_cpu_extension(c, TSR_BACKEND_LINEARS);
    float                               *in = rnd_new(s.hidden, 2);
    struct tsr_tensor                    x = dev(c, in, TSR_F32, 1, s.hidden, 0);
    struct expert                        e[2];
    struct tsr_gated_op                  g[2];
    (void)state;
    for (int j = 0; j < 2; j++) {
        make_expert(c, &s, &x, &e[j]);
        g[j] = gated_of(&e[j]);
    }
    assert_int_equal(t->gated(c, NULL, g, 2, NULL), TSR_OK);
    assert_int_equal(t->gated(c, NULL, g, 1, NULL), TSR_E_UNSUPPORTED);
    g[1].act = &e[0].op[2]; /* of another expert */
    assert_int_equal(t->gated(c, NULL, g, 2, NULL), TSR_E_UNSUPPORTED);
    g[1] = gated_of(&e[1]);
    e[1].op[3].act = TSR_ACT_F32;
    assert_int_equal(t->gated(c, NULL, g, 2, NULL), TSR_E_UNSUPPORTED);
    e[1].op[3].act = TSR_ACT_A8;
    e[1].op[2].kind = TSR_OP_ADD;
    assert_int_equal(t->gated(c, NULL, g, 2, NULL), TSR_E_UNSUPPORTED);
    e[1].op[2].kind = TSR_OP_ACT;
    assert_int_equal(t->gated(c, NULL, g, 2, NULL), TSR_OK);
    for (int j = 0; j < 2; j++)
        free_expert(c, &e[j]);
    free(in);
    undev(c, &x);
    tsr_cpu_destroy(c);
    assert_int_equal(host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_gated),
                                        cmocka_unit_test(test_declined) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
