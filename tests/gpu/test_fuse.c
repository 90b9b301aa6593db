/* Launches that join the one before them (fuse.c): every case runs twice on the emulated device, launched one by
 * one and from a queue. All bytes are equal, and the queue has launched as many kernels as the case says: fewer
 * where two operations fit together, one each where a row or a head would meet another one's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "host.h"
#include "int8_weight.h"
#include "simt/simt.h"

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

static void sum_ranks(struct rig *r, struct tsr_tensor x)
{
    if (tsr_cuda_window()->sum(r->self, &r->window, r->sums++, TSR_BF16, &x, &r->err) != TSR_OK)
        fail_msg("%s", r->text);
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

/* ---- cases ---------------------------------------------------------------------------------------- */

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

static void sum_norm(struct rig *r)
{
    add(r, H, H, Y);
    norm(r, X, H, GAIN);
}
static void sum_norm_in_place(struct rig *r)
{
    add(r, H, H, Y);
    norm(r, H, H, GAIN);
}
static void sum_norm_over_a_term(struct rig *r)
{
    add(r, H, X, Y);
    norm(r, Y, H, GAIN);
}
static void sum_norm_over_rows_of_a_term(struct rig *r)
{
    add(r, H, X, Y);
    norm(r, at(r, 2000 + N + 8, T, N), H, GAIN); /* Y from its second row on */
}
static void sum_norm_over_rows_of_the_other(struct rig *r)
{
    add(r, H, Y, X);
    norm(r, at(r, 2000 + N + 8, T, N), H, GAIN);
}
static void sum_norm_of_another_stride(struct rig *r)
{
    struct tsr_tensor x = H;
    x.row_stride += 16;
    add(r, H, H, Y);
    norm(r, X, x, GAIN);
}
static void sum_norm_over_columns_of_a_term(struct rig *r)
{
    struct tsr_tensor y = at(r, 2000, T, N / 2), x = at(r, 2000 + N / 2, T, N / 2);
    struct tsr_tensor h = at(r, 0, T, N / 2), gain = at(r, 4000, 1, N / 2);
    x.row_stride = y.row_stride = (N + 8) * 4;
    add(r, h, h, y);
    norm(r, x, h, gain);
}
static void sum_norm_of_fewer_rows(struct rig *r)
{
    add(r, H, H, Y);
    norm(r, at(r, 1000, T - 1, N), at(r, 0, T - 1, N), GAIN);
}
static void sum_norm_of_other_rows(struct rig *r)
{
    add(r, at(r, 0, 2, N), at(r, 0, 2, N), at(r, 2000, 2, N));
    norm(r, at(r, 1000, 2, N), at(r, N + 8, 2, N), GAIN);
}
static void sum_is_the_gain(struct rig *r)
{
    add(r, at(r, 4000, 1, N), at(r, 4000, 1, N), at(r, 2000, 1, N));
    norm(r, at(r, 1000, 1, N), at(r, 4000, 1, N), GAIN);
}
static void sum_norm_apart(struct rig *r)
{
    add(r, H, H, Y);
    add(r, OUT, OUT, OUT2);
    norm(r, X, H, GAIN);
}
static void sum_wait_norm(struct rig *r)
{
    add(r, H, H, Y);
    wait(r);
    norm(r, X, H, GAIN);
}
static void sum_norm_side_by_side(struct rig *r)
{
    struct tsr_tensor h = at(r, 0, T, N / 2), x = at(r, N / 2, T, N / 2);
    h.row_stride = x.row_stride = (N + 8) * 4;
    add(r, h, at(r, 1000, T, N / 2), at(r, 2000, T, N / 2));
    norm(r, x, h, at(r, 4000, 1, N / 2));
}
static void sum_norm_linear_of_fewer_rows(struct rig *r)
{
    add(r, H, H, Y);
    norm(r, X, H, GAIN);
    linear(r, at(r, 3000, 2, 40), at(r, 1000, 2, N), 0);
}
static void norm_linear(struct rig *r)
{
    norm(r, X, H, GAIN);
    linear(r, OUT, X, 0);
}
static void norm_linear_in_place(struct rig *r)
{
    norm(r, X, X, GAIN);
    linear(r, OUT, X, 0);
    linear(r, OUT2, X, 0);
}
static void norm_linear_of_fewer_rows(struct rig *r)
{
    norm(r, X, H, GAIN);
    linear(r, at(r, 3000, 2, 40), at(r, 1000, 2, N), 0);
}
static void norm_linear_of_llm_int8(struct rig *r)
{
    norm(r, X, H, GAIN);
    linear(r, OUT, X, 1);
}
static void norm_other_linear(struct rig *r)
{
    norm(r, X, H, GAIN);
    linear(r, OUT, Y, 0);
}
static void sum_norm_linears(struct rig *r)
{
    add(r, H, H, Y);
    norm(r, X, H, GAIN);
    linear(r, OUT, X, 0);
    linear(r, OUT2, X, 0);
    add(r, H, H, Y);
    norm(r, X, H, GAIN);
    linear(r, OUT2, X, 0);
}
static void sum_norm_linear_of_many_rows(struct rig *r)
{
    struct tsr_tensor h = at(r, 0, MANY, N), x = at(r, 6720, MANY, N);
    add(r, h, h, h);
    norm(r, x, h, at(r, 14000, 1, N));
    linear(r, at(r, 14200, MANY, 40), x, 0);
}
/* Y is the one with the numbers of all ranks. */
static void ranks_sum_norm_linear(struct rig *r)
{
    sum_ranks(r, Y);
    sum_norm(r);
    linear(r, OUT, X, 0);
}
static void ranks_sum_norm_of_the_other_term(struct rig *r)
{
    sum_ranks(r, Y);
    add(r, H, Y, H);
    norm(r, X, H, GAIN);
}
static void ranks_norm_linears(struct rig *r)
{
    sum_ranks(r, Y);
    norm(r, Y, Y, GAIN);
    linear(r, OUT, Y, 0);
    linear(r, OUT2, Y, 0);
}
static void ranks_sum_norm_over_the_sum(struct rig *r)
{
    sum_ranks(r, Y);
    add(r, Y, H, Y);
    norm(r, Y, Y, GAIN);
}
/* The engine's ADD of a bias to a row of the sum. */
static void bias_row(struct rig *r, uint64_t row, struct tsr_tensor bias)
{
    struct tsr_tensor y = at(r, 2000 + row * (N + 8), 1, N);
    add(r, y, y, bias);
}
static void ranks_biases(struct rig *r)
{
    sum_ranks(r, Y);
    for (uint64_t i = 0; i < T; i++)
        bias_row(r, i, GAIN);
}
static void ranks_biases_sum_norm_linear(struct rig *r)
{
    ranks_biases(r);
    sum_norm(r);
    linear(r, OUT, X, 0);
}
static void ranks_biases_of_some_rows(struct rig *r)
{
    sum_ranks(r, Y);
    bias_row(r, 0, GAIN);
    bias_row(r, 1, GAIN);
    sum_norm(r);
}
static void ranks_bias_of_a_later_row(struct rig *r)
{
    sum_ranks(r, Y);
    bias_row(r, 1, GAIN);
    sum_norm(r);
}
static void ranks_two_biases(struct rig *r)
{
    sum_ranks(r, Y);
    bias_row(r, 0, GAIN);
    bias_row(r, 1, at(r, 4200, 1, N));
    sum_norm(r);
}
static void ranks_a_bias_twice(struct rig *r)
{
    ranks_biases(r);
    bias_row(r, 2, GAIN);
}
static void ranks_twice(struct rig *r)
{
    ranks_sum_norm_linear(r);
    ranks_sum_norm_linear(r);
}
static void ranks_apart(struct rig *r)
{
    sum_ranks(r, Y);
    add(r, H, H, X);
    norm(r, X, H, GAIN);
}
static void ranks_wait(struct rig *r)
{
    sum_ranks(r, Y);
    wait(r);
    sum_norm(r);
}
static void ranks_of_more_rows(struct rig *r)
{
    sum_ranks(r, Y);
    add(r, at(r, 0, T - 1, N), at(r, 0, T - 1, N), at(r, 2000, T - 1, N));
    norm(r, at(r, 1000, T - 1, N), at(r, 0, T - 1, N), GAIN);
}
static void ranks_sum_norm_rows(struct rig *r, uint64_t rows)
{
    struct tsr_tensor h = at(r, 0, rows, N), y = at(r, 2000, rows, N);
    sum_ranks(r, y);
    add(r, h, h, y);
    norm(r, at(r, 1000, rows, N), h, GAIN);
}
static void ranks_most_rows(struct rig *r) /* a multiprocessor of the emulated device for each */
{
    ranks_sum_norm_rows(r, 4);
}
static void ranks_too_many_rows(struct rig *r)
{
    ranks_sum_norm_rows(r, 5);
}
/* gate, up, ACT and down; where ACT's output lies. */
static void mlp(struct rig *r, struct tsr_tensor out, struct tsr_tensor x, struct tsr_tensor y)
{
    linear(r, GATE, X, UP);
    linear(r, UPPER, X, UP);
    act(r, out, x, y);
    linear(r, OUT, out, DOWN);
}
static void gated(struct rig *r)
{
    mlp(r, HIDDEN, GATE, UPPER);
}
static void gated_in_place(struct rig *r)
{
    mlp(r, GATE, GATE, UPPER);
}
static void gated_the_other_way(struct rig *r)
{
    mlp(r, UPPER, UPPER, GATE);
}
static void gated_twice(struct rig *r)
{
    gated(r);
    linear(r, OUT2, HIDDEN, DOWN);
    gated(r);
}
static void gated_wait(struct rig *r)
{
    linear(r, GATE, X, UP);
    linear(r, UPPER, X, UP);
    wait(r);
    act(r, HIDDEN, GATE, UPPER);
    linear(r, OUT, HIDDEN, DOWN);
}
static void act_of_one_linear(struct rig *r)
{
    struct tsr_tensor x = GATE;
    struct tsr_op     op = { .kind = TSR_OP_ACT, .out = &x, .in = { &x }, .func = TSR_FUNC_SILU };
    linear(r, GATE, X, UP);
    run(r, &op);
    linear(r, OUT, GATE, DOWN);
}
static void act_of_one_of_two_linears(struct rig *r)
{
    struct tsr_tensor x = GATE;
    struct tsr_op     op = { .kind = TSR_OP_ACT, .out = &x, .in = { &x }, .func = TSR_FUNC_SILU };
    linear(r, GATE, X, UP);
    linear(r, UPPER, X, UP);
    run(r, &op);
    linear(r, OUT, GATE, DOWN);
}
static void act_of_other_tensors(struct rig *r)
{
    mlp(r, HIDDEN, GATE, at(r, 13000, T, WIDE));
}
static void act_over_the_input(struct rig *r)
{
    linear(r, OUT, X, INT8);
    linear(r, OUT2, X, INT8);
    act(r, at(r, 1000, T, 40), OUT, OUT2); /* in rows of X */
    linear(r, at(r, 3400, T, 40), at(r, 1000, T, 40), SMALL);
}
static void act_of_fewer_rows_of_linears(struct rig *r)
{
    linear(r, GATE, X, UP);
    linear(r, UPPER, X, UP);
    act(r, at(r, 12000, T - 1, WIDE), at(r, 10000, T - 1, WIDE), at(r, 11000, T - 1, WIDE));
    linear(r, at(r, 3000, T - 1, 40), at(r, 12000, T - 1, WIDE), DOWN);
}
/* Tiles of tokens have counters each; x is of 40 columns. */
static void gated_rows(struct rig *r, uint64_t rows)
{
    struct tsr_tensor x = at(r, 0, rows, 40), gate = at(r, 4000, rows, 40),
                      up = at(r, 8000, rows, 40);
    linear(r, gate, x, SMALL);
    linear(r, up, x, SMALL);
    act(r, gate, gate, up);
    linear(r, at(r, 12000, rows, 40), gate, SMALL);
}
static void gated_many(struct rig *r)
{
    gated_rows(r, MANY);
}
static void gated_most(struct rig *r)
{
    gated_rows(r, K_END_TOKENS);
}
static void gated_too_many(struct rig *r)
{
    gated_rows(r, K_END_TOKENS + 1);
}
static void act_linear(struct rig *r)
{
    act(r, X, X, Y);
    linear(r, OUT, X, 0);
}
static void act_linear_of_fewer_rows(struct rig *r)
{
    act(r, X, X, Y);
    linear(r, at(r, 3000, 1, 40), at(r, 1000 + N + 8, 1, N), 0);
}
static void biased(struct rig *r, struct tsr_tensor out, struct tsr_tensor bias)
{
    struct tsr_tensor x = X;
    struct tsr_op     op = { .kind = TSR_OP_LINEAR,
                             .out = &out,
                             .in = { &x, &bias },
                             .weight = r->weight[0],
                             .act = TSR_ACT_A8 };
    run(r, &op);
}
static void linears_of_one_input(struct rig *r)
{
    linear(r, OUT, X, 0);
    biased(r, OUT2, at(r, 4000, 1, 40));
    linear(r, at(r, 3400, T, 40), X, 0);
}
static void four_linears(struct rig *r)
{
    for (uint64_t i = 0; i < 4; i++)
        linear(r, at(r, 3000 + 200 * i, T, 40), X, 0);
}
static void linears_over_each_other(struct rig *r)
{
    biased(r, OUT, at(r, 4000, 1, 40));
    linear(r, OUT, X, 0);
}
static void linears_over_rows_of_each_other(struct rig *r)
{
    biased(r, OUT, at(r, 4000, 1, 40));
    linear(r, at(r, 3000 + 48, T, 40), X, 0); /* from the second row on */
}
static void linear_of_what_is_a_bias(struct rig *r)
{
    linear(r, OUT, X, 0);
    biased(r, OUT2, at(r, 3048, 1, 40)); /* the first one's second row */
}
static void linear_over_a_bias(struct rig *r)
{
    biased(r, OUT, at(r, 3200, 1, 40));
    linear(r, OUT2, X, 0);
}
static void linears_of_many_tokens(struct rig *r)
{
    for (uint64_t i = 0; i < 3; i++)
        linear(r, at(r, 8000 + 2000 * i, MANY, 40), at(r, 0, MANY, N), 0);
}

/* Positions 0..2 of the caches' first row, a head of all N columns or several. */
static void attend(struct rig *r, struct tsr_tensor out, uint32_t dim, uint32_t kv_heads)
{
    const uint32_t    spans[2 * T] = { 0, 0, 0, 1, 0, 2 };
    const uint32_t    kv_cols = kv_heads * dim;
    struct tsr_tensor q = at(r, 5000, T, N), k = at(r, 8000, 6, kv_cols),
                      v = at(r, 9400, 6, kv_cols);
    struct tsr_tensor s = r->all;
    s.dtype = TSR_U32;
    s.offset = 4 * 13000;
    s.rows = T;
    s.cols = 2;
    s.row_stride = 8;
    assert_int_equal(tsr_cuda_upload(r->self, r->all.buffer, s.offset, spans, sizeof spans,
                                     &r->err),
                     TSR_OK);
    struct tsr_op op = { .kind = TSR_OP_ATTENTION,
                         .out = &out,
                         .in = { &q, &k, &v, &s },
                         .heads = N / dim,
                         .kv_heads = kv_heads,
                         .head_dim = dim,
                         .scale = 0.125f };
    run(r, &op);
}
static void attention_linear(struct rig *r)
{
    attend(r, X, 16, 2); /* of two heads a block of activations */
    linear(r, OUT, X, 0);
}
static void attention_linear_of_wide_heads(struct rig *r)
{
    attend(r, X, N, 1);
    linear(r, OUT, X, 0);
}
static void attention_linear_of_odd_heads(struct rig *r)
{
    attend(r, X, DIM, 2);
    linear(r, OUT, X, 0);
}
static void attention_linear_of_fewer_rows(struct rig *r)
{
    attend(r, X, 16, 2);
    linear(r, at(r, 3000, 2, 40), at(r, 1000, 2, N), 0);
}
static void rotations(struct rig *r)
{
    rope(r, Q, Q);
    rope(r, K, K);
}
static void rotations_of_one(struct rig *r)
{
    rope(r, K, K);
    rope(r, K, K);
}
static void rotation_of_a_result(struct rig *r)
{
    rope(r, V, K);
    rope(r, at(r, 6500, T, 2 * DIM), V);
}
static void rotation_over_an_input(struct rig *r)
{
    rope(r, V, K);
    rope(r, K, at(r, 6500, T, 2 * DIM));
}
static void four_rotations(struct rig *r)
{
    for (uint64_t i = 0; i < 4; i++)
        rope(r, at(r, 5000 + 500 * i, T, 2 * DIM), at(r, 5000 + 500 * i, T, 2 * DIM));
}
static void keys_and_values(struct rig *r)
{
    rope(r, Q, Q);
    rope(r, K, K);
    store(r, KEYS, K);
    store(r, VALS, V);
}
static void values_first(struct rig *r)
{
    rope(r, K, K);
    store(r, VALS, V);
    rope(r, Q, Q);
    store(r, KEYS, K);
}
static void two_stores(struct rig *r)
{
    store(r, KEYS, K);
    store(r, VALS, V);
}
static void rotation_and_its_store(struct rig *r)
{
    rope(r, V, K);
    store(r, KEYS, V);
}
static void store_of_fewer_rows(struct rig *r)
{
    rope(r, K, K);
    r->rows.cols = 2;
    store(r, KEYS, at(r, 6000, 2, 2 * DIM));
    r->rows.cols = T;
}
static void store_of_other_heads(struct rig *r)
{
    rope(r, K, K);
    store_heads(r, KEYS, K, 2 * DIM);
}
static void store_over_what_was_rotated(struct rig *r)
{
    rope(r, V, K);
    store(r, at(r, 5900, 6, 2 * DIM), V);
}
static void stored_twice(struct rig *r)
{
    rope(r, K, K);
    store(r, KEYS, K);
    store(r, VALS, K);
}
static void store_into_what_is_rotated(struct rig *r)
{
    rope(r, K, K);
    store(r, at(r, 5900, 6, 2 * DIM), V); /* K lies in it */
}
static void stores_of_one_cache(struct rig *r)
{
    store(r, KEYS, K);
    store(r, KEYS, V);
}
static void stores_of_caches_side_by_side(struct rig *r)
{
    struct tsr_tensor k = KEYS, v = at(r, 8000 + 2 * DIM, 6, 2 * DIM);
    k.row_stride = v.row_stride = 4 * 4 * DIM;
    store(r, k, K);
    store(r, v, V);
}
static void store_over_an_input(struct rig *r)
{
    store(r, KEYS, K);
    store(r, at(r, 5900, 6, 2 * DIM), V);
}
static void one_row_three_times(struct rig *r)
{
    r->rows.offset = 4 * T;
    store(r, KEYS, K);
    r->rows.offset = 0;
}

static const struct {
    const char *name;
    void (*ops)(struct rig *r);
    uint64_t single, launches; /* one by one; from a queue */
} cases[] = {
#define CASE(f, single, launches)                                                                  \
    {                                                                                              \
#f, f, single, launches                                                                    \
    }
    CASE(sum_norm, 2, 1),
    CASE(sum_norm_in_place, 2, 1),
    CASE(sum_norm_over_a_term, 2, 1),
    CASE(sum_norm_over_rows_of_a_term, 2, 2),
    CASE(sum_norm_over_rows_of_the_other, 2, 2),
    CASE(sum_norm_of_another_stride, 2, 2),
    CASE(sum_norm_over_columns_of_a_term, 2, 2),
    CASE(sum_norm_of_fewer_rows, 2, 2),
    CASE(sum_norm_of_other_rows, 2, 2),
    CASE(sum_is_the_gain, 2, 2),
    CASE(sum_norm_apart, 3, 3),
    CASE(sum_wait_norm, 2, 2),
    CASE(sum_norm_side_by_side, 2, 2),
    CASE(sum_norm_linear_of_fewer_rows, 4, 3),
    CASE(norm_linear, 3, 2),
    CASE(norm_linear_in_place, 4, 2),
    CASE(norm_linear_of_fewer_rows, 3, 3),
    CASE(norm_linear_of_llm_int8, 3, 3),
    CASE(norm_other_linear, 3, 3),
    CASE(sum_norm_linears, 9, 4),
    CASE(sum_norm_linear_of_many_rows, 4, 2),
    CASE(ranks_sum_norm_linear, 5, 2),
    CASE(ranks_sum_norm_of_the_other_term, 3, 1),
    CASE(ranks_norm_linears, 5, 2),
    CASE(ranks_sum_norm_over_the_sum, 3, 1),
    CASE(ranks_biases, 4, 1),
    CASE(ranks_biases_sum_norm_linear, 8, 2),
    CASE(ranks_biases_of_some_rows, 5, 1),
    CASE(ranks_bias_of_a_later_row, 4, 3),
    CASE(ranks_two_biases, 5, 3),
    CASE(ranks_a_bias_twice, 5, 2),
    CASE(ranks_twice, 10, 4),
    CASE(ranks_apart, 3, 2),
    CASE(ranks_wait, 3, 2),
    CASE(ranks_of_more_rows, 3, 2),
    CASE(ranks_most_rows, 3, 1),
    CASE(ranks_too_many_rows, 3, 2),
    CASE(act_linear, 3, 2),
    CASE(act_linear_of_fewer_rows, 3, 3),
    CASE(linears_of_one_input, 4, 2),
    CASE(four_linears, 5, 3),
    CASE(linears_over_each_other, 3, 3),
    CASE(linears_over_rows_of_each_other, 3, 3),
    CASE(linear_of_what_is_a_bias, 3, 3),
    CASE(linear_over_a_bias, 3, 3),
    CASE(linears_of_many_tokens, 4, 2),
    CASE(gated, 6, 3),
    CASE(gated_in_place, 6, 3),
    CASE(gated_the_other_way, 6, 3),
    CASE(gated_twice, 13, 6),
    CASE(gated_wait, 6, 4),
    CASE(act_of_one_linear, 5, 3),
    CASE(act_of_one_of_two_linears, 6, 4),
    CASE(act_of_other_tensors, 6, 4),
    CASE(act_over_the_input, 6, 4),
    CASE(act_of_fewer_rows_of_linears, 6, 4),
    CASE(gated_many, 6, 3),
    CASE(gated_most, 6, 3),
    CASE(gated_too_many, 6, 4),
    CASE(attention_linear, 5, 4),
    CASE(attention_linear_of_wide_heads, 5, 4),
    CASE(attention_linear_of_odd_heads, 5, 5),
    CASE(attention_linear_of_fewer_rows, 5, 5),
    CASE(rotations, 2, 1),
    CASE(rotations_of_one, 2, 2),
    CASE(rotation_of_a_result, 2, 2),
    CASE(rotation_over_an_input, 2, 2),
    CASE(four_rotations, 4, 2),
    CASE(keys_and_values, 4, 1),
    CASE(values_first, 4, 1),
    CASE(two_stores, 2, 1),
    CASE(rotation_and_its_store, 2, 1),
    CASE(store_of_fewer_rows, 2, 2),
    CASE(store_of_other_heads, 2, 2),
    CASE(store_over_what_was_rotated, 2, 2),
    CASE(stored_twice, 3, 2),
    CASE(store_into_what_is_rotated, 2, 2),
    CASE(stores_of_one_cache, 2, 2),
    CASE(stores_of_caches_side_by_side, 2, 2),
    CASE(store_over_an_input, 2, 2),
    CASE(one_row_three_times, 3, 3),
#undef CASE
};

static void bytes_of(struct rig *r, float *to)
{
    assert_int_equal(tsr_cuda_download(r->self, r->all.buffer, 0, to, FLOATS * 4, &r->err), TSR_OK);
}

static void cases_are_equal(void **state)
{
    static float bytes[2][FLOATS];
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 2; k++) {
            struct rig r;
            uint64_t   want = k ? cases[i].launches : cases[i].single;
            open_with(&r, k ? TSR_CUDA_GRAPHS : TSR_CUDA_ONE_BY_ONE);
            cases[i].ops(&r);
            bytes_of(&r, bytes[k]);
            if (launched != want || (fused > 0) != (want < cases[i].single))
                fail_msg("%s: %d launches, %d of them fused, not %d", cases[i].name, (int)launched,
                         (int)fused, (int)want);
            close_rig(&r);
        }
        for (uint32_t k = 0; k < FLOATS; k++)
            if (memcmp(&bytes[0][k], &bytes[1][k], 4) != 0)
                fail_msg("%s: float %d is %g, one by one %g", cases[i].name, (int)k,
                         (double)bytes[1][k], (double)bytes[0][k]);
    }
}

static int joins(enum tsr_cuda_kernel a, const void *first, enum tsr_cuda_kernel b,
                 const void *next, struct tsr_cuda_fused *f)
{
    struct tsr_cuda_launch one = { .kernel = a, .args = first },
                           two = { .kernel = b, .args = next };
    return tsr_cuda_fuse(&one, &two, f);
}

/* What no operation gets through to the queue. */
static void refused_by_addresses(void **state)
{
    struct tsr_cuda_fused f;
    struct k_rows         sum = { .out = 4096,
                                  .a = 4096,
                                  .b = 8192,
                                  .out_stride = 64,
                                  .a_stride = 64,
                                  .b_stride = 64,
                                  .n = 64,
                                  .rows = 2 };
    struct k_rows         x = {
                .out = 16384, .a = 4096, .b = 32768, .out_stride = 64, .a_stride = 64, .n = 64, .rows = 2
    };
    struct k_quantize q = {
        .x = 16384, .ldx = 64, .q = 65536, .tokens = 2, .cols = 64, .blocks = 1
    };
    (void)state;
    assert_true(joins(KERNEL_k_add, &sum, KERNEL_k_norm, &x, &f));
    x.c = 4096 + 256; /* the bias lies in the second row of the sum */
    assert_false(joins(KERNEL_k_add, &sum, KERNEL_k_norm, &x, &f));
    x.c = 0;
    x.b = 4096 + 511; /* its last byte */
    assert_false(joins(KERNEL_k_add, &sum, KERNEL_k_norm, &x, &f));
    x.b++;
    assert_true(joins(KERNEL_k_add, &sum, KERNEL_k_norm, &x, &f));
    struct tsr_cuda_fused twice = f;
    assert_true(joins(KERNEL_k_norm_step, &f.args, KERNEL_k_quantize, &q, &twice));
    assert_false(joins(KERNEL_k_norm_step, &twice.args, KERNEL_k_quantize, &q, &f));

    struct k_window all = { .x = 8192, .ldx = 64, .rows = 2, .cols = 64, .resident = 2 };
    assert_true(joins(KERNEL_k_window_sum, &all, KERNEL_k_norm_step, &twice.args, &f));
    assert_int_equal(f.args.window.step.q.q, q.q);
    all.resident = 1; /* blocks that wait would keep others out */
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_norm_step, &twice.args, &f));
    all.resident = 2;
    struct k_rows one = { .out = 8192, .a = 8192, .b = 4096, .n = 64, .rows = 1 };
    assert_true(joins(KERNEL_k_window_sum, &all, KERNEL_k_add, &one, &f));
    one.b = 8192 + 256; /* what is added is the second row */
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_add, &one, &f));
    one.b = 4096;
    one.out = 16384;
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_add, &one, &f));
    struct tsr_cuda_fused rest = twice;
    rest.args.norm.norm.b = 8192 + 511; /* the gain: the last byte of the sum over ranks */
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_norm_step, &rest.args, &f));
    rest = twice;
    rest.args.norm.norm.c = 8192 + 256; /* the bias */
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_norm_step, &rest.args, &f));
    rest = twice;
    rest.args.norm.norm.out = 8192 + 256; /* the norm lies in its second row */
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_norm_step, &rest.args, &f));
    rest = twice;
    rest.args.norm.add.out = rest.args.norm.norm.a = 8192 - 256; /* the sum of two in its first */
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_norm_step, &rest.args, &f));
    rest = twice;
    rest.args.norm.add.a = 8192 + 256; /* the other term */
    assert_false(joins(KERNEL_k_window_sum, &all, KERNEL_k_norm_step, &rest.args, &f));

    struct k_rows     r = { .out = 4096,
                            .a = 4096,
                            .b = 16384,
                            .c = 16640,
                            .out_stride = 64,
                            .a_stride = 64,
                            .b_stride = 16,
                            .c_stride = 16,
                            .n = 64,
                            .rows = 2,
                            .heads = 2,
                            .head_dim = 32,
                            .rotary_dim = 32 };
    struct k_kv_store s = { .cache = 32768,
                            .x = 4096,
                            .rows = 65536,
                            .cache_stride = 256,
                            .x_stride = 256,
                            .cache_bytes = 2048,
                            .tokens = 2,
                            .kv_heads = 2,
                            .head_dim = 32 };
    assert_true(joins(KERNEL_k_rope, &r, KERNEL_k_kv_store, &s, &f));
    s.rows = 4096 + 504; /* the row numbers lie in what is rotated */
    assert_false(joins(KERNEL_k_rope, &r, KERNEL_k_kv_store, &s, &f));
    s.rows = 65536;
    s.cache = 16640 - 2047; /* the last byte of the cache is the first one of the sines */
    assert_false(joins(KERNEL_k_rope, &r, KERNEL_k_kv_store, &s, &f));
}

/* A layer's operations again and again: more than a queue holds, then as a graph. */
static void queues_run_over(void **state)
{
    static float bytes[2][FLOATS];
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rig rig, *r = &rig;
        open_with(r, k ? TSR_CUDA_GRAPHS : TSR_CUDA_ONE_BY_ONE);
        for (int i = 0; i < 1100; i++) {
            keys_and_values(r);
            norm(r, H, H, GAIN);
        }
        wait(r);
        for (int i = 0; i < 4; i++) {
            sum_norm_linears(r);
            keys_and_values(r);
            act_linear(r);
            norm_linear(r);
            gated(r);
            wait(r);
        }
        bytes_of(r, bytes[k]);
        assert_int_equal(graphs, k ? 1 + 3 : 0); /* of a full queue; of the layer */
        close_rig(r);
    }
    assert_memory_equal(bytes[0], bytes[1], sizeof bytes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_are_equal),
        cmocka_unit_test(refused_by_addresses),
        cmocka_unit_test(queues_run_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
