/* fuse_ranks.h - cases of test_fuse.c: a sum over ranks, and operations that follow it. */
#ifndef TSR_TEST_FUSE_RANKS_H
#define TSR_TEST_FUSE_RANKS_H

#include "fuse_rig.h"

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
static void ranks_mx_biases_sum_norm_linear(struct rig *r)
{
    sum_mx(r, Y);
    for (uint64_t i = 0; i < T; i++)
        bias_row(r, i, GAIN);
    sum_norm(r);
    linear(r, OUT, X, 0);
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

#endif
