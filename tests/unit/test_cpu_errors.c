/* What the backend refuses, what it allows in place, and how it counts its memory. */
#include "../fixtures/error_is.h"
#include "cpu_fixture.h"

#include <math.h>
#include <stdio.h>

static struct tsr_cpu *c;
static char            text[512];
static struct tsr_err  err = { .struct_size = sizeof err, .cap = sizeof text, .text = text };

static int setup(void **state)
{
    (void)state;
    unsetenv("TSR_ISA");
    void *self = NULL;
    if (tsr_cpu_create(&test_host, &tsr_cpu_memory_plain, &self, &err) != TSR_OK)
        return 1;
    c = self;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tsr_cpu_destroy(c);
    return host_bytes != 0;
}

/* op is refused with TSR_E_INVAL. */
static void refused(const struct tsr_op *op, const char *about, const char *facts)
{
    text[0] = '\0';
    assert_int_equal(tsr_cpu_run(c, NULL, op, &err), TSR_E_INVAL);
    assert_true(error_is(&err, about, facts));
}

static void isa_names(void **state)
{
    (void)state;
    const struct tsr_cpu_kernels     *k = NULL;
    const struct tsr_cpu_amx_kernels *amx = NULL;
    setenv("TSR_ISA", "sse9", 1);
    assert_int_equal(tsr_cpu_pick(&k, &amx, &err), TSR_E_CONFIG);
    assert_true(error_is(&err, "", "TSR_ISA=sse9"));
    setenv("TSR_ISA", "scalar", 1);
    assert_int_equal(tsr_cpu_pick(&k, &amx, &err), TSR_OK);
    assert_string_equal(k->name, "scalar");
    assert_null(amx);
    setenv("TSR_ISA", "avx512", 1);
    if (tsr_cpu_pick(&k, &amx, NULL) == TSR_OK)
        assert_null(amx);
    setenv("TSR_ISA", "amx", 1);
    if (tsr_cpu_pick(&k, &amx, &err) == TSR_OK) {
        assert_string_equal(k->name, "avx512");
        assert_non_null(amx);
    } else {
        assert_true(error_is(&err, "", "TSR_ISA=amx"));
    }
    unsetenv("TSR_ISA");
    assert_int_equal(tsr_cpu_pick(&k, &amx, &err), TSR_OK);
}

static void buffers(void **state)
{
    (void)state;
    void *b = NULL;
    char  t[8];
    assert_int_equal(tsr_cpu_buffer_alloc(c, 100, &b, &err), TSR_OK);
    assert_int_equal(tsr_cpu_download(c, b, 92, t, 8, &err), TSR_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(t[i], 0);
    assert_int_equal(tsr_cpu_upload(c, b, 93, t, 8, &err), TSR_E_INVAL);
    assert_int_equal(tsr_cpu_upload(c, b, UINT64_MAX, t, 2, &err), TSR_E_INVAL);
    assert_int_equal(tsr_cpu_download(c, b, 100, t, 0, &err), TSR_OK);
    assert_int_equal(tsr_cpu_download(c, b, 101, t, 0, &err), TSR_E_INVAL);
    tsr_cpu_buffer_free(c, b);
    tsr_cpu_buffer_free(c, NULL);
    assert_int_equal(tsr_cpu_buffer_alloc(c, UINT64_MAX - 5, &b, &err), TSR_E_NOMEM);
    struct tsr_backend_props p = { .struct_size = sizeof p };
    assert_int_equal(tsr_cpu_properties(c, &p, &err), TSR_OK);
    assert_true(p.deterministic == 1 && p.memory_bytes >= p.free_bytes && p.device);
}

static void views(void **state)
{
    (void)state;
    struct tsr_tensor a = dev(c, NULL, TSR_F32, 3, 20, 0), b = dev(c, NULL, TSR_F32, 3, 20, 0),
                      x = b;
    struct tsr_op op = {
        .struct_size = sizeof op, .kind = TSR_OP_SCALE, .out = &a, .in = { &x }, .scale = 2
    };
    run_ok(c, &op);
    x.rows = 4;
    refused(&op, "SCALE", "in0");
    x = b, x.cols = 19;
    refused(&op, "SCALE", "in0");
    x = b, x.dtype = TSR_F16;
    refused(&op, "SCALE", "dtype");
    x = b, x.row_stride = 79;
    refused(&op, "SCALE", "in0 20 79");
    x = b, x.row_stride = 81;
    refused(&op, "SCALE", "in0");
    x = b, x.offset = 62;
    refused(&op, "SCALE", "in0");
    x = b, x.offset = 68;
    refused(&op, "SCALE", "in0 304");
    x = b, x.offset = UINT64_MAX - 3;
    refused(&op, "SCALE", "in0 304");
    x = b, x.row_stride = UINT64_MAX - 3;
    refused(&op, "SCALE", "in0 304");
    x = b, x.buffer = NULL;
    refused(&op, "SCALE", "in0");
    op.in[0] = NULL;
    refused(&op, "SCALE", "in0");
    op.in[0] = &b;
    op.kind = 99;
    assert_int_equal(tsr_cpu_run(c, NULL, &op, &err), TSR_E_UNSUPPORTED);
    undev(c, &a);
    undev(c, &b);
}

static void in_place_and_overlap(void **state)
{
    (void)state;
    float            *data = rnd_new(3 * 60, 1.0f);
    struct tsr_tensor m = dev(c, data, TSR_F32, 3, 60, 0), l = m, r = m, s = m;
    l.cols = r.cols = s.cols = 20; /* column slices of one matrix */
    r.offset += 80;
    s.offset += 40;
    struct tsr_op op = {
        .struct_size = sizeof op, .kind = TSR_OP_ADD, .out = &l, .in = { &l, &r }
    };
    run_ok(c, &op); /* in place, and beside each other */
    float *got = host_of(c, &m);
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 60; k++)
            assert_true(got[t * 60 + k] ==
                        data[t * 60 + k] + (k < 20 ? data[t * 60 + k + 20] : 0.0f));
    free(got);
    op.in[1] = &s;
    refused(&op, "ADD", NULL);
    op.kind = TSR_OP_ACT;
    op.in[1] = &l; /* out = in1 is not allowed */
    refused(&op, "ACT", NULL);
    struct tsr_tensor g = l;
    g.rows = 1;
    struct tsr_op norm = {
        .struct_size = sizeof norm, .kind = TSR_OP_NORM, .out = &l, .in = { &l, &g }, .eps = 1e-5f
    };
    refused(&norm, "NORM", NULL);
    undev(c, &m);
    free(data);
}

static void shapes_of_operations(void **state)
{
    (void)state;
    struct tsr_tensor x = dev(c, NULL, TSR_F32, 2, 24, 0), y = dev(c, NULL, TSR_F32, 2, 24, 0);
    struct tsr_tensor cs = dev(c, NULL, TSR_F32, 2, 3, 0), sn = dev(c, NULL, TSR_F32, 2, 3, 0);
    struct tsr_op     rope = { .struct_size = sizeof rope,
                               .kind = TSR_OP_ROPE,
                               .out = &y,
                               .in = { &x, &cs, &sn },
                               .heads = 3,
                               .head_dim = 8,
                               .rotary_dim = 6 };
    run_ok(c, &rope);
    rope.rotary_dim = 5;
    refused(&rope, "", "ROPE rotary_dim");
    rope.rotary_dim = 10;
    refused(&rope, "", "ROPE rotary_dim");
    rope.rotary_dim = 8;
    refused(&rope, "ROPE", "cos");
    rope.rotary_dim = 6, rope.heads = 4;
    refused(&rope, "", "ROPE columns");
    struct tsr_op act = {
        .struct_size = sizeof act, .kind = TSR_OP_ACT, .out = &y, .in = { &x }, .func = 9
    };
    refused(&act, "", "ACT func");
    act.func = TSR_FUNC_CLAMPED;
    act.in[1] = &x;
    refused(&act, "", "ACT softcap");
    act.softcap = NAN;
    refused(&act, "", "ACT softcap");
    act.softcap = 7, act.in[1] = NULL;
    refused(&act, "ACT", "in1");
    struct tsr_op norm = {
        .struct_size = sizeof norm, .kind = TSR_OP_NORM, .out = &y, .in = { &x }, .norm = 2
    };
    refused(&norm, "", "NORM norm");
    norm.norm = 0;
    refused(&norm, "NORM", "gain");
    uint32_t          rows[2] = { 1, 2 };
    struct tsr_tensor ids = dev(c, rows, TSR_U32, 1, 2, 0);
    struct tsr_op     gather = {
            .struct_size = sizeof gather, .kind = TSR_OP_GATHER, .out = &y, .in = { &x, &ids }
    };
    refused(&gather, "", "GATHER row#2");
    struct tsr_tensor two = y, few = x;
    two.cols = few.cols = 2;
    struct tsr_op columns = {
        .struct_size = sizeof columns, .kind = TSR_OP_COLUMNS, .out = &two, .in = { &x, &ids }
    };
    run_ok(c, &columns);
    columns.in[0] = &few;
    refused(&columns, "", "COLUMNS column#2");
    struct tsr_tensor three = dev(c, NULL, TSR_F32, 3, 3, 0);
    struct tsr_op     turn = {
            .struct_size = sizeof turn, .kind = TSR_OP_HADAMARD, .out = &y, .in = { &x }, .head_dim = 8
    };
    run_ok(c, &turn);
    turn.head_dim = 16;
    refused(&turn, "", "HADAMARD columns runs");
    turn.head_dim = 12;
    refused(&turn, "", "HADAMARD head_dim");
    turn.in[1] = &three;
    run_ok(c, &turn);
    three.cols = 2;
    refused(&turn, "HADAMARD", "in1");
    undev(c, &three);
    struct tsr_op lin = {
        .struct_size = sizeof lin, .kind = TSR_OP_LINEAR, .out = &y, .in = { &x }
    };
    refused(&lin, "LINEAR", "weight");
    struct wt w;
    void     *h = NULL;
    wt_float(&w, 24, 24, TSR_F32);
    assert_int_equal(tsr_cpu_weight_load(c, &w.desc, &h, &err), TSR_OK);
    assert_true(tsr_cpu_weight_bytes(c, h) >= 24 * 24 * 4);
    lin.weight = h;
    run_ok(c, &lin);
    lin.act = 3;
    refused(&lin, "", "LINEAR act");
    tsr_cpu_weight_free(c, h);
    wt_free(&w);
    struct tsr_tensor *dead[] = { &x, &y, &cs, &sn, &ids };
    for (int i = 0; i < 5; i++)
        undev(c, dead[i]);
}

static void cache_ranges(void **state)
{
    (void)state;
    uint32_t          rows[2] = { 3, 4 }, spans[4] = { 0, 3, 1, 2 };
    struct tsr_tensor k = dev(c, NULL, TSR_F32, 4, 16, 0), v = dev(c, NULL, TSR_F32, 4, 16, 0);
    struct tsr_tensor x = dev(c, NULL, TSR_F32, 2, 16, 0), y = dev(c, NULL, TSR_F32, 2, 32, 0);
    struct tsr_tensor q = dev(c, NULL, TSR_F32, 2, 32, 0), r = dev(c, rows, TSR_U32, 1, 2, 0);
    struct tsr_tensor s = dev(c, spans, TSR_U32, 2, 2, 0);
    struct tsr_op     st = { .struct_size = sizeof st,
                             .kind = TSR_OP_KV_STORE,
                             .out = &k,
                             .in = { &x, &r },
                             .kv_heads = 2,
                             .head_dim = 8 };
    refused(&st, "", "KV_STORE row#4");
    rows[1] = 2;
    assert_int_equal(tsr_cpu_upload(c, r.buffer, r.offset, rows, sizeof rows, NULL), TSR_OK);
    run_ok(c, &st);
    st.kv_heads = 0;
    refused(&st, "KV_STORE", "kv_heads");
    struct tsr_op at = { .struct_size = sizeof at,
                         .kind = TSR_OP_ATTENTION,
                         .out = &y,
                         .in = { &q, &k, &v, &s },
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 8,
                         .scale = 1 };
    run_ok(c, &at);
    struct tsr_tensor slopes = dev(c, NULL, TSR_F32, 3, 4, 0);
    at.in[4] = &slopes;
    refused(&at, "ATTENTION", "slopes");
    slopes.rows = 2;
    run_ok(c, &at);
    slopes.cols = 3;
    refused(&at, "ATTENTION", "slopes and sinks");
    at.in[4] = NULL;
    undev(c, &slopes);
    at.heads = 3;
    refused(&at, "", "ATTENTION KV 3");
    at.heads = 4;
    spans[3] = 3; /* row 1 + position 3: one too far */
    assert_int_equal(tsr_cpu_upload(c, s.buffer, s.offset, spans, sizeof spans, NULL), TSR_OK);
    refused(&at, "", "ATTENTION position#3");
    spans[2] = UINT32_MAX;
    assert_int_equal(tsr_cpu_upload(c, s.buffer, s.offset, spans, sizeof spans, NULL), TSR_OK);
    refused(&at, "", "ATTENTION 1 3");
    struct tsr_tensor *dead[] = { &k, &v, &x, &y, &q, &r, &s };
    for (int i = 0; i < 7; i++)
        undev(c, dead[i]);
}

static void weights_refused(void **state)
{
    (void)state;
    struct wt w;
    void     *h = NULL;
    wt_int(&w, 5, 40, 4, 16, TSR_F16, TSR_ZERO_MID);
    struct tsr_weight_desc d = w.desc;
    struct tsr_format      f = w.format;
    d.format = &f;
#define BAD(change, status, facts)                                                                 \
    do {                                                                                           \
        d = w.desc, f = w.format, d.format = &f;                                                   \
        change;                                                                                    \
        assert_int_equal(tsr_cpu_weight_load(c, &d, &h, &err), status);                            \
        assert_true(error_is(&err, "w", facts));                                                   \
    } while (0)
    BAD(f.bits = 1, TSR_E_INVAL, "bits");
    BAD(f.bits = 9, TSR_E_INVAL, "bits");
    BAD(f.zero = 7, TSR_E_INVAL, "zero");
    BAD(f.scale_dtype = TSR_BF16, TSR_E_INVAL, "scales");
    BAD(f.id = "org.example.odd/1", TSR_E_UNSUPPORTED, "org.example.odd/1");
    BAD(d.rows = 0, TSR_E_INVAL, "rows");
    BAD(d.cols = UINT64_MAX, TSR_E_INVAL, "columns");
    BAD(d.code_stride = 3, TSR_E_INVAL, "code_stride meta_stride");
    BAD(d.meta_stride = 1, TSR_E_INVAL, "code_stride meta_stride");
    BAD(d.meta = NULL, TSR_E_INVAL, "scales");
    BAD(d.codes = NULL, TSR_E_INVAL, "codes");
    wt_free(&w);
    wt_float(&w, 5, 40, TSR_F32);
    BAD(f.dtype = TSR_U8, TSR_E_INVAL, "elements");
    BAD(d.code_stride = 8, TSR_E_INVAL, "code_stride meta_stride");
    wt_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isa_names),
        cmocka_unit_test(buffers),
        cmocka_unit_test(views),
        cmocka_unit_test(in_place_and_overlap),
        cmocka_unit_test(shapes_of_operations),
        cmocka_unit_test(cache_ranges),
        cmocka_unit_test(weights_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
