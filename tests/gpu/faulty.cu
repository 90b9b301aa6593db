/* faulty.cu - kernels that are right, and kernels with one fault each, for test_simt.c. */
#include "faulty.h"
#include "k.h"

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

/* Votes; right. */
TSR_KERNEL(good_votes, struct faulty_args, 128)
{
    uint32_t t = threadIdx.x % 32, b = __ballot_sync(ALL_LANES, t % 3 == 0);
    uint32_t any = (uint32_t)__any_sync(ALL_LANES, t == 5),
             all = (uint32_t)__all_sync(ALL_LANES, t < 31);
    uint32_t down = shfl_down_u(ALL_LANES, t, 8);
    AT(uint32_t, a.out)[threadIdx.x] = b ^ (any << 31) ^ (all << 30) ^ down;
}
