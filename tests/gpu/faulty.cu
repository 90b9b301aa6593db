/* faulty.cu - kernels that are right, and kernels with one fault each, for test_simt.c. */
#include "faulty.h"
#include "k_mma.h"
#include "k_mma_half.h"

/* 128 numbers added up by a tree in shared memory; right. */
TSR_KERNEL(good_sum, struct faulty_args, 128)
{
    __shared__ float s[128];
    const uint32_t   t = threadIdx.x;
    s[t] = AT(const float, a.in)[blockIdx.x * 128 + t];
    for (uint32_t n = 64; n > 0; n /= 2) {
        __syncthreads();
        if (t < n)
            s[t] = s[t] + s[t + n];
    }
    if (t == 0)
        AT(float, a.out)[blockIdx.x] = s[0];
}

/* The same without the barrier. */
TSR_KERNEL(missing_barrier, struct faulty_args, 128)
{
    __shared__ float s[128];
    const uint32_t   t = threadIdx.x;
    s[t] = AT(const float, a.in)[blockIdx.x * 128 + t];
    for (uint32_t n = 64; n > 0; n /= 2)
        if (t < n)
            s[t] = s[t] + s[t + n];
    if (t == 0)
        AT(float, a.out)[blockIdx.x] = s[0];
}

/* A barrier that only the first half reaches. */
TSR_KERNEL(half_barrier, struct faulty_args, 128)
{
    if (threadIdx.x < 64)
        __syncthreads();
    AT(float, a.out)[threadIdx.x] = 1.0f;
}

/* Warp sums by shuffles; right. */
TSR_KERNEL(good_shuffle, struct faulty_args, 128)
{
    float v = AT(const float, a.in)[threadIdx.x];
    for (uint32_t l = 16; l > 0; l /= 2)
        v = v + shfl_xor_f(ALL_LANES, v, l);
    if (threadIdx.x % 32 == 0)
        AT(float, a.out)[threadIdx.x / 32] = v;
}

/* A shuffle among 16 lanes that reads one of the others. */
TSR_KERNEL(wrong_lane, struct faulty_args, 128)
{
    float v = AT(const float, a.in)[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v = shfl_xor_f(0xffffu, v, 16);
    AT(float, a.out)[threadIdx.x] = v;
}

/* A shuffle of all lanes that half of them have left. */
TSR_KERNEL(lost_lanes, struct faulty_args, 128)
{
    float v = AT(const float, a.in)[threadIdx.x];
    if (threadIdx.x % 32 >= 16)
        return;
    AT(float, a.out)[threadIdx.x] = shfl_xor_f(ALL_LANES, v, 1);
}

/* All threads count, without an atomic. */
TSR_KERNEL(race, struct faulty_args, 128)
{
    AT(uint32_t, a.out)[0] = AT(uint32_t, a.out)[0] + 1;
}

TSR_KERNEL(good_count, struct faulty_args, 128)
{
    atomicAdd(AT(uint32_t, a.out), 1u);
}

/* The second block reads what the first writes. */
TSR_KERNEL(block_race, struct faulty_args, 128)
{
    if (blockIdx.x == 0)
        AT(float, a.out)[threadIdx.x] = 1.0f;
    else
        AT(float, a.out)[128 + threadIdx.x] = AT(float, a.out)[threadIdx.x];
}

/* One element too far. */
TSR_KERNEL(out_of_bounds, struct faulty_args, 128)
{
    AT(float, a.out)[a.n + threadIdx.x] = 1.0f;
}

/* A warp reads the words of shared memory that are `step` apart: 32 of them lie in one bank, 33 in one each.  In
 * global memory it reads words that are `apart` apart. */
DEV void traffic(const struct faulty_args *a, float *s, const uint32_t step, const uint32_t apart)
{
    const uint32_t lane = threadIdx.x;
    for (uint32_t i = 0; i < 33; i++)
        s[i * 32 + lane] = 1.0f;
    __syncwarp();
    const float sum = s[lane * step] + AT(const float, a->in)[lane * apart];
    AT(float, a->out)[lane] = sum;
}

/* Right: each request takes one wavefront, and whole sectors. */
TSR_KERNEL(good_traffic, struct faulty_args, 32)
{
    __shared__ float s[33 * 32];
    traffic(&a, s, 33, 1);
}

/* All lanes meet one bank. */
TSR_KERNEL(bank_conflict, struct faulty_args, 32)
{
    __shared__ float s[33 * 32];
    traffic(&a, s, 32, 1);
}

/* Each lane reads a sector of its own. */
TSR_KERNEL(lone_sectors, struct faulty_args, 32)
{
    __shared__ float s[33 * 32];
    traffic(&a, s, 33, 8);
}

/* 16 bytes a lane: four groups of eight lanes, whose rows of 32 words are the same banks; right with 36 words. */
DEV void wide_traffic(const struct faulty_args *a, uint4 *s, const uint32_t pitch)
{
    const uint32_t lane = threadIdx.x;
    for (uint32_t i = 0; i < 9; i++)
        s[i * 32 + lane] = AT(const uint4, a->in)[lane];
    __syncwarp();
    AT(uint4, a->out)[lane] = s[lane * pitch];
}

TSR_KERNEL(good_wide_traffic, struct faulty_args, 32)
{
    __shared__ uint4 s[9 * 32];
    wide_traffic(&a, s, 9);
}

TSR_KERNEL(wide_conflict, struct faulty_args, 32)
{
    __shared__ uint4 s[9 * 32];
    wide_traffic(&a, s, 8);
}

/* Votes; right. */
TSR_KERNEL(good_votes, struct faulty_args, 128)
{
    uint32_t t = threadIdx.x % 32, b = __ballot_sync(ALL_LANES, t % 3 == 0);
    uint32_t any = (uint32_t)__any_sync(ALL_LANES, t == 5),
             all = (uint32_t)__all_sync(ALL_LANES, t < 31);
    uint32_t down = shfl_down_u(ALL_LANES, t, 8);
    AT(uint32_t, a.out)[threadIdx.x] = b ^ (any << 31) ^ (all << 30) ^ down;
}

/* Fragments of in [16,32] and of a B whose rows ascend and whose columns differ, as k_mma.h has them. */
DEV void fragments(const struct faulty_args *a, uint32_t f[4], uint32_t b[2])
{
    const uint32_t *in = AT(const uint32_t, a->in); /* rows of eight words */
    const uint32_t  g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    for (uint32_t i = 0; i < 4; i++)
        f[i] = in[(g + i % 2 * 8) * 8 + t + i / 2 * 4];
    for (uint32_t i = 0; i < 2; i++)
        b[i] = (t + 4 * i + 1) * 0x01030205u ^ g * 0x11010f01u;
}

DEV void put_product(const struct faulty_args *a, const int32_t c[4])
{
    const uint32_t g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    for (uint32_t i = 0; i < 4; i++)
        AT(int32_t, a->out)[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
}

/* A product of matrices, 16 x 32 x 8; right. */
TSR_KERNEL(good_mma, struct faulty_args, 32)
{
    uint32_t f[4], b[2];
    int32_t  c[4] = { 0, 0, 0, 0 };
    fragments(&a, f, b);
    mma_s8(c, f, b);
    put_product(&a, c);
}

/* Rows and columns of one fragment are exchanged. */
TSR_KERNEL(wrong_fragment, struct faulty_args, 32)
{
    uint32_t f[4], b[2];
    int32_t  c[4] = { 0, 0, 0, 0 };
    fragments(&a, f, b);
    const uint32_t other[4] = { f[0], f[2], f[1], f[3] };
    mma_s8(c, other, b);
    put_product(&a, c);
}

/* A lane does not come to the product. */
TSR_KERNEL(lost_mma, struct faulty_args, 32)
{
    uint32_t f[4], b[2];
    int32_t  c[4] = { 0, 0, 0, 0 };
    fragments(&a, f, b);
    if (threadIdx.x != 9)
        mma_s8(c, f, b);
    put_product(&a, c);
}

/* Two numbers of in, in [1,2) and of few bits, as F16 or BF16: sums of their products are exact. */
DEV uint32_t half_pair(uint32_t word, const int bf16)
{
    return bf16 ? (word & 0x007c007cu) | 0x3f803f80u : (word & 0x03e003e0u) | 0x3c003c00u;
}

/* A of 16 rows and B of 8 columns, eight words each, as k_mma_half.h has them. */
DEV void half_product(const struct faulty_args *a, const int bf16)
{
    const uint32_t *in = AT(const uint32_t, a->in);
    const uint32_t  g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    uint32_t        f[4], b[2];
    float           c[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    for (uint32_t i = 0; i < 4; i++)
        f[i] = half_pair(in[(g + i % 2 * 8) * 8 + t + i / 2 * 4], bf16);
    for (uint32_t i = 0; i < 2; i++)
        b[i] = half_pair(in[128 + g * 8 + t + i * 4], bf16);
    mma_half(c, f, b, bf16);
    for (uint32_t i = 0; i < 4; i++)
        AT(float, a->out)[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
}

TSR_KERNEL(good_mma_f16, struct faulty_args, 32)
{
    half_product(&a, 0);
}

TSR_KERNEL(good_mma_bf16, struct faulty_args, 32)
{
    half_product(&a, 1);
}

/* Two groups of copies, and the sum of both by another lane: waits for the first group before the first
 * barrier, for the other before the second; right with wait 1 and 0. */
DEV void copies(const struct faulty_args *a, uint4 (*s)[32], const int first, const int second)
{
    const uint4   *in = AT(const uint4, a->in);
    const uint32_t t = threadIdx.x;
    for (uint32_t i = 0; i < 2; i++) {
        copy_async(&s[i][t], &in[32 * i + t]);
        copy_commit();
    }
    copy_wait(first);
    __syncwarp();
    uint32_t sum = s[0][31 - t].x;
    copy_wait(second);
    __syncwarp();
    AT(uint32_t, a->out)[t] = sum + s[1][31 - t].x;
}

TSR_KERNEL(good_copies, struct faulty_args, 32)
{
    __shared__ uint4 s[2][32];
    copies(&a, s, 1, 0);
}

/* The second group may still be under way. */
TSR_KERNEL(missing_wait, struct faulty_args, 32)
{
    __shared__ uint4 s[2][32];
    copies(&a, s, 1, 1);
}

/* Each block stores a row of 32 numbers and counts itself; the last one adds the rows up. */
DEV void last_block(const struct faulty_args *a, const int fences, const uint32_t counts)
{
    __shared__ uint32_t last;
    const uint32_t      t = threadIdx.x, blocks = gridDim.x;
    float              *rows = AT(float, a->out);
    uint32_t           *counter = AT(uint32_t, a->out) + 255;
    rows[32 * blockIdx.x + t] = AT(const float, a->in)[32 * blockIdx.x + t];
    __syncthreads();
    if (t == 0) {
        uint32_t before = 0;
        if (fences & 1)
            __threadfence();
        for (uint32_t i = 0; i < counts; i++)
            before = atomicAdd(counter, 1u);
        if (fences & 2)
            __threadfence();
        last = before == blocks - 1;
    }
    __syncthreads();
    if (!last)
        return;
    float sum = 0.0f;
    for (uint32_t i = 0; i < blocks; i++)
        sum = sum + rows[32 * i + t];
    rows[128 + t] = sum;
}

TSR_KERNEL(good_last_block, struct faulty_args, 32)
{
    last_block(&a, 3, 1);
}

/* The counter may be there before the row. */
TSR_KERNEL(missing_release, struct faulty_args, 32)
{
    last_block(&a, 2, 1);
}

/* Rows may be read before the counter. */
TSR_KERNEL(missing_acquire, struct faulty_args, 32)
{
    last_block(&a, 1, 1);
}

/* Each block counts itself twice: one that is not the last believes that all others are done. */
TSR_KERNEL(double_flag, struct faulty_args, 32)
{
    last_block(&a, 3, 2);
}

/* Begins before the launch before it has ended; right: it reads only what no launch has written. */
TSR_KERNEL_EARLY(good_early, struct faulty_args, 128)
{
    const float x = AT(const float, a.in)[threadIdx.x];
    start_next();
    wait_for_previous();
    AT(float, a.out)[threadIdx.x] = x + AT(const float, a.out)[128 + threadIdx.x];
}

/* It reads the other launch's results too early. */
TSR_KERNEL_EARLY(early_read, struct faulty_args, 128)
{
    const float x = AT(const float, a.out)[threadIdx.x];
    wait_for_previous();
    AT(float, a.out)[128 + threadIdx.x] = x;
}

/* It writes where the other launch may still read. */
TSR_KERNEL_EARLY(early_write, struct faulty_args, 128)
{
    AT(float, a.out)[128 + threadIdx.x] = 1.0f;
    wait_for_previous();
}

/* One of its threads does not wait, so that the next launch may begin before the last one has ended. */
TSR_KERNEL_EARLY(no_wait, struct faulty_args, 128)
{
    if (threadIdx.x > 0 || a.n == 0)
        wait_for_previous();
}
