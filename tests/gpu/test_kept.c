/* Quantized activations that stay for the next LINEAR: over the emulated device with every kernel counted, two
 * LINEARs of one input quantize it once, and whatever comes between them and may have written to it or to the
 * scratch makes it twice. The second result is that of a LINEAR that finds nothing kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"
#include "host.h"
#include "int8_weight.h"
#include "tessera/backend_codec.h"
#include "tessera/codec.h"

#define TOKENS 3u
#define COLS   96u
#define OUT    40u

/* ---- a device that counts ------------------------------------------------------------------ */

static uint64_t            ran[KERNEL_COUNT];
static tsr_status          fails_with; /* the next launch */
static struct tsr_cuda_api api;

static tsr_status launch(void *d, void *s, const struct tsr_cuda_launch *l, struct tsr_err *err)
{
    if (fails_with) {
        tsr_status st = fails_with;
        fails_with = TSR_OK;
        return tsr_fail(err, st, "planted: a launch");
    }
    ran[l->kernel]++;
    return tsr_cuda_simt.launch(d, s, l, err);
}

static uint64_t quantized(void)
{
    return ran[KERNEL_k_quantize] + ran[KERNEL_k_quantize_llm];
}

/* ---- two linears of one input --------------------------------------------------------------- */

struct rig {
    void             *self;
    struct tsr_tensor x, other, y[3], q, keys, spans, spare;
    void             *weight[3]; /* two of int8, and one of LLM.int8 */
    struct tsr_err    err;
    char              text[400];
};

static struct tsr_tensor tensor(struct rig *r, uint32_t dtype, uint64_t rows, uint64_t cols)
{
    struct tsr_tensor t = {
        .struct_size = sizeof t, .dtype = dtype, .rows = rows, .cols = cols, .row_stride = cols * 4
    };
    uint32_t data[1024];
    for (uint32_t i = 0; i < 1024; i++) {
        float f = (float)(int)(i * 37 % 101) - 50.0f;
        memcpy(&data[i], &f, 4);
        data[i] = dtype == TSR_F32 ? data[i] : i % (uint32_t)cols;
    }
    assert_in_range(rows * cols, 1, 1024);
    assert_int_equal(tsr_cuda_buffer_alloc(r->self, rows * cols * 4, &t.buffer, &r->err), TSR_OK);
    assert_int_equal(tsr_cuda_upload(r->self, t.buffer, 0, data, rows * cols * 4, &r->err), TSR_OK);
    return t;
}

static void open_with(struct rig *r, enum tsr_cuda_launching launching)
{
    struct tsr_cuda_options o = { .launching = launching, .numerics = TSR_CUDA_FAST };
    memset(r, 0, sizeof *r);
    stop = 0;
    api = tsr_cuda_simt;
    api.launch = launch;
    r->err =
        (struct tsr_err){ .struct_size = sizeof r->err, .cap = sizeof r->text, .text = r->text };
    assert_int_equal(tsr_cuda_create(&host, &api, &o, &r->self, &r->err), TSR_OK);
    r->x = tensor(r, TSR_F32, TOKENS, COLS);
    r->other = tensor(r, TSR_F32, TOKENS, COLS);
    for (int i = 0; i < 3; i++) {
        r->y[i] = tensor(r, TSR_F32, TOKENS, OUT);
        r->weight[i] = int8_weight(r->self, i, i == 2, OUT, COLS, &r->err);
    }
    r->q = tensor(r, TSR_F32, TOKENS, 8);
    r->keys = tensor(r, TSR_F32, 8, 8);
    r->spans = tensor(r, TSR_U32, TOKENS, 2);
    r->spare = tensor(r, TSR_F32, TOKENS, 8);
    memset(ran, 0, sizeof ran);
}

static void close_rig(struct rig *r)
{
    struct tsr_tensor *all[] = { &r->x, &r->other, &r->y[0],  &r->y[1], &r->y[2],
                                 &r->q, &r->keys,  &r->spans, &r->spare };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        tsr_cuda_buffer_free(r->self, all[i]->buffer);
    for (int i = 0; i < 3; i++)
        tsr_cuda_weight_free(r->self, r->weight[i]);
    tsr_cuda_destroy(r->self);
    assert_int_equal(held, 0);
}

static tsr_status linear_of(struct rig *r, const struct tsr_tensor *x, int w, int y, uint32_t act,
                            void *stream)
{
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_LINEAR,
                         .out = &r->y[y],
                         .in = { x },
                         .weight = r->weight[w],
                         .act = act };
    return tsr_cuda_run(r->self, stream, &op, &r->err);
}

static void linear(struct rig *r, int w, int y)
{
    assert_int_equal(linear_of(r, &r->x, w, y, TSR_ACT_A8, NULL), TSR_OK);
}

static void scale(struct rig *r, const struct tsr_tensor *from, const struct tsr_tensor *to,
                  void *stream)
{
    struct tsr_op op = {
        .struct_size = sizeof op, .kind = TSR_OP_SCALE, .out = to, .in = { from }, .scale = 0.5f
    };
    assert_int_equal(tsr_cuda_run(r->self, stream, &op, &r->err), TSR_OK);
}

/* ---- what may come between ------------------------------------------------------------------- */

static void nothing(struct rig *r)
{
    (void)r;
}
static void another_tensor(struct rig *r)
{
    scale(r, &r->other, &r->other, NULL);
}
static void x_is_read(struct rig *r)
{
    scale(r, &r->x, &r->other, NULL);
}
static void first_element(struct rig *r)
{
    struct tsr_tensor t = r->x;
    t.rows = t.cols = 1;
    scale(r, &t, &t, NULL);
}
static void last_element(struct rig *r)
{
    struct tsr_tensor t = r->x;
    t.offset = ((uint64_t)TOKENS * COLS - 1) * 4;
    t.rows = t.cols = 1;
    scale(r, &t, &t, NULL);
}
static void a_column(struct rig *r)
{
    struct tsr_tensor t = r->x;
    t.offset = 20;
    t.cols = 1;
    scale(r, &t, &t, NULL);
}
static void an_upload(struct rig *r)
{
    float v = 3.0f;
    assert_int_equal(tsr_cuda_upload(r->self, r->x.buffer, 400, &v, 4, &r->err), TSR_OK);
}
static void a_wait(struct rig *r)
{
    assert_int_equal(tsr_cuda_sync(r->self, NULL, &r->err), TSR_OK);
}
static void a_freed_buffer(struct rig *r)
{
    tsr_cuda_buffer_free(r->self, r->spare.buffer);
    r->spare.buffer = NULL;
}
static void rounded(struct rig *r)
{
    assert_int_equal(linear_of(r, &r->x, 0, 2, TSR_ACT_A16, NULL), TSR_OK);
}
static void another_input(struct rig *r)
{
    assert_int_equal(linear_of(r, &r->other, 0, 2, TSR_ACT_A8, NULL), TSR_OK);
}
static void fewer_rows(struct rig *r)
{
    struct tsr_tensor x = r->x, y = r->y[2];
    x.rows = r->y[2].rows = 2;
    assert_int_equal(linear_of(r, &x, 0, 2, TSR_ACT_A8, NULL), TSR_OK);
    r->y[2] = y;
}
static void another_scheme(struct rig *r)
{
    linear(r, 2, 2); /* one scale a token, outliers apart */
}
static void attention(struct rig *r)
{
    struct tsr_op op = { .struct_size = sizeof op,
                         .kind = TSR_OP_ATTENTION,
                         .out = &r->spare,
                         .in = { &r->q, &r->keys, &r->keys, &r->spans },
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 8,
                         .scale = 1.0f };
    assert_int_equal(tsr_cuda_run(r->self, NULL, &op, &r->err), TSR_OK);
}
static void another_stream(struct rig *r)
{
    int64_t stream; /* any address is one of the emulation's */
    scale(r, &r->x, &r->other, &stream);
}
static void order_of_streams(struct rig *r)
{
    const struct tsr_backend_codec_v1 *t = tsr_cuda_extension(r->self, TSR_BACKEND_CODEC);
    int64_t                            stream;
    assert_int_equal(t->stream_behind(r->self, NULL, &stream, &r->err), TSR_OK);
}
static void message(struct rig *r, int back)
{
    const struct tsr_backend_codec_v1 *t = tsr_cuda_extension(r->self, TSR_BACKEND_CODEC);
    struct tsr_codec_wire              w = { .struct_size = sizeof w,
                                             .kind = TSR_WIRE_PLAIN,
                                             .cols = COLS,
                                             .row_bytes = COLS * UINT64_C(4),
                                             .dtype = TSR_F32 };
    void                              *wire = NULL;
    assert_int_equal(t->wire_load(r->self, &w, &wire, &r->err), TSR_OK);
    if (back)
        assert_int_equal(t->decode(r->self, NULL, wire, r->other.buffer, 0, &r->x, 1, &r->err),
                         TSR_OK);
    else
        assert_int_equal(t->encode(r->self, NULL, wire, &r->x, r->other.buffer, 0, &r->err),
                         TSR_OK);
    t->wire_free(r->self, wire);
}
static void encoded(struct rig *r)
{
    message(r, 0);
}
static void decoded(struct rig *r)
{
    message(r, 1);
}
static void linear_algebra(struct rig *r)
{
    const struct tsr_linalg_v1 *t = tsr_cuda_extension(r->self, TSR_LINALG);
    float                       x[16 * 8], h[8 * 8] = { 0 };
    for (int i = 0; i < 16 * 8; i++)
        x[i] = (float)i;
    assert_int_equal(t->hold(t->ctx, x, 16 * 8, &r->err), TSR_OK); /* no scratch is needed */
    assert_int_equal(t->hold(t->ctx, h, 8 * 8, &r->err), TSR_OK);
    assert_int_equal(t->syrk(t->ctx, 8, 16, 1.0f, x, 8, h, 8, &r->err), TSR_OK);
    assert_int_equal(t->drop(t->ctx, x, 0, &r->err), TSR_OK);
    assert_int_equal(t->drop(t->ctx, h, 0, &r->err), TSR_OK);
}
static tsr_status download(struct rig *r)
{
    float v;
    return tsr_cuda_download(r->self, r->y[0].buffer, 0, &v, 4, &r->err);
}
static void a_download(struct rig *r)
{
    assert_int_equal(download(r), TSR_OK);
}
static void a_failure(struct rig *r)
{
    a_download(r); /* no launch waits */
    fails_with = TSR_E_DEVICE;
    if (linear_of(r, &r->x, 0, 2, TSR_ACT_F32, NULL) == TSR_OK)
        assert_int_equal(download(r), TSR_E_DEVICE);
    assert_int_equal(fails_with, TSR_OK);
}

static const struct {
    const char *name;
    void (*between)(struct rig *r);
    uint64_t quantized; /* by all linears */
} cases[] = {
    { "nothing", nothing, 1 },
    { "another tensor is written", another_tensor, 1 },
    { "x is read", x_is_read, 1 },
    { "a download", a_download, 1 },
    { "the first element", first_element, 2 },
    { "the last element", last_element, 2 },
    { "a column", a_column, 2 },
    { "an upload", an_upload, 2 },
    { "a wait", a_wait, 2 },
    { "a freed buffer", a_freed_buffer, 2 },
    { "act a16 takes the scratch", rounded, 2 },
    { "another input", another_input, 3 },
    { "fewer rows", fewer_rows, 3 },
    { "another scheme", another_scheme, 3 },
    { "attention takes the scratch", attention, 2 },
    { "another stream", another_stream, 2 },
    { "the order of streams", order_of_streams, 2 },
    { "a message is encoded", encoded, 2 },
    { "a message is decoded", decoded, 2 },
    { "linear algebra", linear_algebra, 2 },
    { "a launch fails", a_failure, 2 },
};

static void each_case(enum tsr_cuda_launching launching)
{
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        float      kept[TOKENS * OUT], fresh[TOKENS * OUT];
        open_with(&r, launching);
        linear(&r, 0, 0);
        cases[i].between(&r);
        linear(&r, 1, 1);
        a_wait(&r);
        if (quantized() != cases[i].quantized)
            fail_msg("%s: x is quantized %d times, not %d", cases[i].name, (int)quantized(),
                     (int)cases[i].quantized);
        linear(&r, 1, 2); /* after a wait, so that nothing is kept */
        assert_int_equal(tsr_cuda_download(r.self, r.y[1].buffer, 0, kept, sizeof kept, &r.err),
                         TSR_OK);
        assert_int_equal(tsr_cuda_download(r.self, r.y[2].buffer, 0, fresh, sizeof fresh, &r.err),
                         TSR_OK);
        if (memcmp(kept, fresh, sizeof kept) != 0)
            fail_msg("%s: the second LINEAR has other bytes", cases[i].name);
        close_rig(&r);
    }
}

static void launched_one_by_one(void **state)
{
    (void)state;
    each_case(TSR_CUDA_ONE_BY_ONE);
}

static void launched_from_a_queue(void **state)
{
    (void)state;
    each_case(TSR_CUDA_GRAPHS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launched_one_by_one),
        cmocka_unit_test(launched_from_a_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
