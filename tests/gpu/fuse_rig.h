/* fuse_rig.h - for test_fuse.c: an emulated device that counts its launches, one memory, and operations on views of it. */
#ifndef TSR_TEST_FUSE_RIG_H
#define TSR_TEST_FUSE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "host.h"
#include "int8_weight.h"
#include "simt/simt.h"
#include "tessera/codec.h"

/* ---- a device that counts ------------------------------------------------------------------ */

static uint64_t            launched, graphs, fused;
static struct tsr_cuda_api api;

static int is_of_several(const struct tsr_cuda_launch *l)
{
    if (tsr_cuda_takes_some(l->kernel))
        return ((const struct k_linears *)l->args)->n > 1 ||
               ((const struct k_linears *)l->args)->end.q.q;
    return l->kernel == KERNEL_k_norm_step || l->kernel == KERNEL_k_act_step ||
           l->kernel == KERNEL_k_heads_step || l->kernel == KERNEL_k_combine_step ||
           l->kernel == KERNEL_k_window_step ||
           (l->kernel == KERNEL_k_window_sum && ((const struct k_window *)l->args)->biased);
}

static tsr_status launch(void *d, void *s, const struct tsr_cuda_launch *l, struct tsr_err *err)
{
    launched++;
    fused += (uint64_t)is_of_several(l);
    return tsr_cuda_simt.launch(d, s, l, err);
}

static tsr_status graph_run(void *d, void *graph, struct tsr_err *err)
{
    graphs++;
    return tsr_cuda_simt.graph_run(d, graph, err);
}

/* ---- one memory, and views of it --------------------------------------------------------------- */

#define FLOATS  16384u
#define T       3u
#define SCRATCH 65536u
#define N       160u
#define MANY    40u /* rows: smaller blocks */
#define WIDE                                                                                       \
    300u /* columns of an MLP: five blocks of activations of two panels, the last one short */

/* int8; LLM.int8; [WIDE, N]; [40, WIDE]; [40, 40] */
enum { INT8, LLM, UP, DOWN, SMALL, WEIGHTS };

struct rig {
    void             *self;
    struct tsr_tensor all, rows; /* rows: 1, 2, 3; then 2, 2, 2 */
    void             *weight[WEIGHTS];
    struct tsr_window window; /* of one rank */
    uint32_t          state;
    uint64_t          sums;
    struct tsr_err    err;
    char              text[400];
};

static void close_rig(struct rig *r)
{
    for (int i = 0; i < WEIGHTS; i++)
        tsr_cuda_weight_free(r->self, r->weight[i]);
    tsr_cuda_window()->forget(r->self);
    simt_free(r->window.address[0]);
    simt_free(r->window.state_address);
    tsr_cuda_buffer_free(r->self, r->all.buffer);
    tsr_cuda_buffer_free(r->self, r->rows.buffer);
    tsr_cuda_destroy(r->self);
    assert_int_equal(held, 0);
}

/* Rows from a float of the memory on, with a gap of 8 floats between them. */
static struct tsr_tensor at(const struct rig *r, uint64_t first, uint64_t rows, uint64_t cols)
{
    struct tsr_tensor t = r->all;
    t.offset = first * 4;
    t.rows = rows;
    t.cols = cols;
    t.row_stride = (cols + 8) * 4;
    return t;
}

static void run(struct rig *r, struct tsr_op *op)
{
    op->struct_size = sizeof *op;
    if (tsr_cuda_run(r->self, NULL, op, &r->err) != TSR_OK)
        fail_msg("%s", r->text);
}

static void add(struct rig *r, struct tsr_tensor out, struct tsr_tensor a, struct tsr_tensor b)
{
    struct tsr_op op = { .kind = TSR_OP_ADD, .out = &out, .in = { &a, &b } };
    run(r, &op);
}

static void norm(struct rig *r, struct tsr_tensor out, struct tsr_tensor x, struct tsr_tensor gain)
{
    struct tsr_op op = { .kind = TSR_OP_NORM,
                         .out = &out,
                         .in = { &x, &gain, &gain },
                         .norm = TSR_NORM_LAYER,
                         .eps = 1e-5f };
    run(r, &op);
}

static void sum_as(struct rig *r, struct tsr_tensor x, struct tsr_codec_wire wire)
{
    wire.struct_size = sizeof wire;
    wire.cols = x.cols;
    wire.same = 1;
    const struct tsr_window_codes       codes = { .struct_size = sizeof codes,
                                                  .cols = x.cols,
                                                  .first = &wire };
    const struct tsr_backend_window_v1 *t = tsr_cuda_window();
    void                               *sums;
    if (t->load(r->self, &r->window, &codes, &sums, &r->err) != TSR_OK ||
        t->sum(r->self, &r->window, r->sums++, sums, &x, &r->err) != TSR_OK)
        fail_msg("%s", r->text);
    t->free(r->self, sums); /* nothing of it is on the device */
}

static void sum_ranks(struct rig *r, struct tsr_tensor x)
{
    sum_as(r, x, (struct tsr_codec_wire){ .kind = TSR_WIRE_PLAIN, .dtype = TSR_BF16 });
}

static void sum_mx(struct rig *r, struct tsr_tensor x)
{
    sum_as(r, x,
           (struct tsr_codec_wire){
               .kind = TSR_WIRE_MX, .element = TSR_MX_FP4_E2M1, .scale_bits = 8, .block = 32 });
}

static void act(struct rig *r, struct tsr_tensor out, struct tsr_tensor x, struct tsr_tensor y)
{
    struct tsr_op op = {
        .kind = TSR_OP_ACT, .out = &out, .in = { &x, &y }, .func = TSR_FUNC_GELU_TANH
    };
    run(r, &op);
}

static void linear(struct rig *r, struct tsr_tensor out, struct tsr_tensor x, int weight)
{
    struct tsr_op op = { .kind = TSR_OP_LINEAR,
                         .out = &out,
                         .in = { &x },
                         .weight = r->weight[weight],
                         .act = TSR_ACT_A8 };
    run(r, &op);
}

/* Heads of 20 columns, 12 of them rotated; the angles lie at the end of the memory. */
#define DIM 20u
static void rope(struct rig *r, struct tsr_tensor out, struct tsr_tensor x)
{
    struct tsr_tensor c = at(r, FLOATS - 100, x.rows, 6), s = at(r, FLOATS - 50, x.rows, 6);
    struct tsr_op     op = { .kind = TSR_OP_ROPE,
                             .out = &out,
                             .in = { &x, &c, &s },
                             .heads = (uint32_t)x.cols / DIM,
                             .head_dim = DIM,
                             .rotary_dim = 12 };
    run(r, &op);
}

static void store_heads(struct rig *r, struct tsr_tensor cache, struct tsr_tensor x, uint32_t dim)
{
    struct tsr_op op = { .kind = TSR_OP_KV_STORE,
                         .out = &cache,
                         .in = { &x, &r->rows },
                         .kv_heads = (uint32_t)x.cols / dim,
                         .head_dim = dim };
    run(r, &op);
}

static void store(struct rig *r, struct tsr_tensor cache, struct tsr_tensor x)
{
    store_heads(r, cache, x, DIM);
}

static void wait(struct rig *r)
{
    assert_int_equal(tsr_cuda_sync(r->self, NULL, &r->err), TSR_OK);
}

static void open_with(struct rig *r, enum tsr_cuda_launching launching)
{
    static float            data[FLOATS];
    const uint32_t          rows[2 * T] = { 1, 2, 3, 2, 2, 2 };
    struct tsr_cuda_options o = { .launching = launching };
    memset(r, 0, sizeof *r);
    stop = 0;
    api = tsr_cuda_simt;
    api.launch = launch;
    api.graph_run = graph_run;
    r->err =
        (struct tsr_err){ .struct_size = sizeof r->err, .cap = sizeof r->text, .text = r->text };
    assert_int_equal(tsr_cuda_create(&host, &api, &o, &r->self, &r->err), TSR_OK);
    r->all = (struct tsr_tensor){ .struct_size = sizeof r->all, .dtype = TSR_F32 };
    r->rows = (struct tsr_tensor){ .struct_size = sizeof r->rows,
                                   .dtype = TSR_U32,
                                   .rows = 1,
                                   .cols = T,
                                   .row_stride = sizeof rows };
    for (uint32_t i = 0; i < FLOATS; i++)
        data[i] = (float)(int)(i * 7919u % 1009u) / 300.0f - 1.5f;
    assert_int_equal(tsr_cuda_buffer_alloc(r->self, sizeof data, &r->all.buffer, &r->err), TSR_OK);
    assert_int_equal(tsr_cuda_upload(r->self, r->all.buffer, 0, data, sizeof data, &r->err),
                     TSR_OK);
    assert_int_equal(tsr_cuda_buffer_alloc(r->self, sizeof rows, &r->rows.buffer, &r->err), TSR_OK);
    assert_int_equal(tsr_cuda_upload(r->self, r->rows.buffer, 0, rows, sizeof rows, &r->err),
                     TSR_OK);
    r->window = (struct tsr_window){ .struct_size = sizeof r->window,
                                     .ranks = 1,
                                     .bytes = UINT64_C(64) << 10,
                                     .address = { simt_alloc(UINT64_C(64) << 10) },
                                     .state = &r->state,
                                     .state_address = simt_adopt(&r->state, sizeof r->state) };
    assert_true(r->window.address[0] && r->window.state_address);
    static const uint64_t shapes[WEIGHTS][2] = {
        { 40, N }, { 40, N }, { WIDE, N }, { 40, WIDE }, { 40, 40 }
    };
    for (int i = 0; i < WEIGHTS; i++)
        assert_non_null(r->weight[i] = int8_weight(r->self, 3 + i / 2, i == LLM, shapes[i][0],
                                                   shapes[i][1], &r->err));
    assert_int_equal(tsr_cuda_sizes()->reserve(r->self, SCRATCH, &r->err), TSR_OK);
    /* as in an engine, the scratch is there: where it grows, the queue is emptied */
    linear(r, at(r, 14200, MANY, 40), at(r, 0, MANY, N), 0);
    wait(r);
    launched = graphs = fused = 0;
}

/* ---- the views of most cases ------------------------------------------------------------------ */

#define H      at(r, 0, T, N)
#define X      at(r, 1000, T, N)
#define Y      at(r, 2000, T, N)
#define OUT    at(r, 3000, T, 40)
#define OUT2   at(r, 3200, T, 40)
#define GAIN   at(r, 4000, 1, N)
#define Q      at(r, 5000, T, 8 * DIM)
#define K      at(r, 6000, T, 2 * DIM)
#define V      at(r, 7000, T, 2 * DIM)
#define KEYS   at(r, 8000, 6, 2 * DIM)
#define VALS   at(r, 9000, 6, 2 * DIM)
#define GATE   at(r, 10000, T, WIDE)
#define UPPER  at(r, 11000, T, WIDE)
#define HIDDEN at(r, 12000, T, WIDE)

/* The usual step of a layer. */
static void sum_norm(struct rig *r)
{
    add(r, H, H, Y);
    norm(r, X, H, GAIN);
}

#endif
