/* Launches that join the one before them (fuse.c): every case runs twice on the emulated device, launched one by
 * one and from a queue. All bytes are equal, and the queue has launched as many kernels as the case says: fewer
 * where two operations fit together, one each where a row or a head would meet another one's. */
#include "fuse_ranks.h"

/* ---- cases ---------------------------------------------------------------------------------------- */

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
    CASE(ranks_mx_biases_sum_norm_linear, 8, 2),
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
