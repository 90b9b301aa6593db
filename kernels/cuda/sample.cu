/* sample.cu - the best tokens of rows of logits, in order, and the sum of a softmax over all of them.
 *
 * k_candidates_part: a block for 1024 logits of a row.  It sorts their keys and keeps the best.
 * k_candidates: a block for a row.  It finds the key that as many keys reach as are wanted, by the bits of a key from
 * the highest down; a thread has a part and knows between which two of its sorted keys the count lies.
 *
 * Reference: core/engine/sample.c, which sorts all candidates; held to it by tests/gpu/candidates.c.
 * Bytes moved: 4 for each logit, once; 8 * most for each part.
 */
#include "k_math.h"

#define CANDIDATE_THREADS K_CANDIDATES
#define CANDIDATE_EACH    (K_CANDIDATES_PART / CANDIDATE_THREADS) /* logits of a thread */

/* Ascending as the logits are; -0 is 0. */
DEV uint64_t key_of(float x, uint32_t id)
{
    const uint32_t u = __float_as_uint(x == 0.0f ? 0.0f : x);
    return (uint64_t)(u & 0x80000000u ? ~u : u | 0x80000000u) << 32 | (0xffffffffu - id);
}

DEV float logit_of(uint64_t key)
{
    const uint32_t u = (uint32_t)(key >> 32);
    return __uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u);
}

/* Over a block; every thread has the result. */
DEV uint64_t block_max(uint64_t v, uint64_t *warps)
{
    UNROLL_LOOP
    for (uint32_t m = 16; m > 0; m /= 2) {
        const uint64_t other =
            (uint64_t)shfl_xor_u(ALL_LANES, v >> 32, m) << 32 | shfl_xor_u(ALL_LANES, v, m);
        v = other > v ? other : v;
    }
    __syncthreads(); /* the last use of warps is over */
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = v;
    __syncthreads();
    v = warps[0];
    for (uint32_t w = 1; w < CANDIDATE_THREADS / WARP; w++)
        v = warps[w] > v ? warps[w] : v;
    return v;
}

DEV uint32_t block_count(uint32_t v, uint32_t *warps)
{
    UNROLL_LOOP
    for (uint32_t m = 16; m > 0; m /= 2)
        v += shfl_xor_u(ALL_LANES, v, m);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = v;
    __syncthreads();
    v = 0;
    for (uint32_t w = 0; w < CANDIDATE_THREADS / WARP; w++)
        v += warps[w];
    return v;
}

DEV float block_sum(float v, float *warps)
{
    UNROLL_LOOP
    for (uint32_t m = 16; m > 0; m /= 2)
        v = v + shfl_xor_f(ALL_LANES, v, m);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = v;
    __syncthreads();
    v = 0.0f;
    for (uint32_t w = 0; w < CANDIDATE_THREADS / WARP; w++)
        v = v + warps[w];
    return v;
}

/* n keys, a power of two, in descending order: a bitonic network. */
DEV void sort_keys(uint64_t *k, uint32_t n)
{
    for (uint32_t run = 2; run <= n; run *= 2)
        for (uint32_t step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < n / 2; i += CANDIDATE_THREADS) {
                const uint32_t lo = i / step * 2 * step + i % step, hi = lo + step;
                const uint64_t a = k[lo], b = k[hi];
                if ((a < b) == ((lo & run) == 0)) {
                    k[lo] = b;
                    k[hi] = a;
                }
            }
        }
    __syncthreads();
}

/* Grid: parts, rows. */
TSR_KERNEL(k_candidates_part, struct k_candidates, CANDIDATE_THREADS)
{
    __shared__ uint64_t keys[K_CANDIDATES_PART];
    __shared__ uint64_t tops[CANDIDATE_THREADS / WARP];
    __shared__ uint32_t bads[CANDIDATE_THREADS / WARP];
    __shared__ float    sums[CANDIDATE_THREADS / WARP];
    const uint64_t      row = blockIdx.y, at = row * a.parts + blockIdx.x;
    const float        *x = AT(const float, a.logits) + row * a.ld;
    uint64_t            key[CANDIDATE_EACH], best = 0;
    uint32_t            bad = 0;
    UNROLL_LOOP
    for (uint32_t i = 0; i < CANDIDATE_EACH; i++) {
        const uint32_t id = blockIdx.x * K_CANDIDATES_PART + i * CANDIDATE_THREADS + threadIdx.x;
        const float    v = id < a.vocab ? x[id] : 0.0f;
        key[i] = id < a.vocab ? key_of(v, id) : 0;
        bad += !k_finite(v);
        best = key[i] > best ? key[i] : best;
    }
    best = block_max(best, tops);
    bad = block_count(bad, bads);
    float sum = 0.0f;
    if (a.inverse[row] > 0.0f) { /* for the whole block */
        const float top = logit_of(best);
        UNROLL_LOOP
        for (uint32_t i = 0; i < CANDIDATE_EACH; i++)
            if (key[i])
                sum = sum + k_exp((logit_of(key[i]) - top) * a.inverse[row]);
        sum = block_sum(sum, sums);
    }
    if (threadIdx.x == 0)
        AT(uint64_t, a.heads)[at] = (uint64_t)bad << 32 | __float_as_uint(sum);
    if (a.most == 1) {
        if (threadIdx.x == 0)
            AT(uint64_t, a.keys)[at] = best;
        return;
    }
    UNROLL_LOOP
    for (uint32_t i = 0; i < CANDIDATE_EACH; i++)
        keys[i * CANDIDATE_THREADS + threadIdx.x] = key[i];
    sort_keys(keys, K_CANDIDATES_PART);
    if (threadIdx.x < a.most)
        AT(uint64_t, a.keys)[at * a.most + threadIdx.x] = keys[threadIdx.x];
}

/* How many of the sorted keys are at least `key`: between lo and hi. */
DEV uint32_t keys_from(const uint64_t *keys, uint64_t key, uint32_t lo, uint32_t hi)
{
    while (lo < hi) {
        const uint32_t mid = (lo + hi) / 2;
        if (keys[mid] >= key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Grid: rows. */
TSR_KERNEL(k_candidates, struct k_candidates, CANDIDATE_THREADS)
{
    __shared__ uint64_t best[CANDIDATE_THREADS];
    __shared__ uint64_t tops[CANDIDATE_THREADS / WARP];
    __shared__ uint32_t counts[CANDIDATE_THREADS], warps[CANDIDATE_THREADS / WARP];
    __shared__ float    sums[CANDIDATE_THREADS / WARP];
    const uint64_t      row = blockIdx.x, at = row * a.parts + threadIdx.x;
    const int           has = threadIdx.x < a.parts;
    const uint64_t     *keys = AT(const uint64_t, a.keys) + at * a.most;
    uint64_t           *out = AT(uint64_t, a.out) + row * (1 + a.most);
    const uint64_t      head = has ? AT(const uint64_t, a.heads)[at] : 0, own = has ? keys[0] : 0;
    const uint64_t      top = block_max(own, tops);
    const uint32_t      bad = block_count((uint32_t)(head >> 32), warps);
    float               sum = 0.0f;
    if (a.inverse[row] > 0.0f) {
        if (has)
            sum = __uint_as_float((uint32_t)head) *
                  k_exp((logit_of(own) - logit_of(top)) * a.inverse[row]);
        sum = block_sum(sum, sums);
    }
    if (threadIdx.x == 0) {
        out[0] = (uint64_t)bad << 32 | __float_as_uint(sum);
        out[1] = top;
    }
    if (a.most == 1)
        return;
    uint64_t from = 0;
    uint32_t lo = 0, hi = has ? a.most : 0, mine = hi;
    for (uint32_t bit = 64; bit-- > 0;) {
        const uint64_t key = from | (uint64_t)1 << bit;
        const uint32_t n = keys_from(keys, key, lo, hi), all = block_count(n, warps);
        if (all >= a.most) {
            from = key;
            hi = mine = n;
        } else {
            lo = n;
        }
        if (all == a.most)
            break;
    }
    counts[threadIdx.x] = mine;
    best[threadIdx.x] = 0;
    __syncthreads();
    uint32_t before = 0;
    for (uint32_t i = 0; i < threadIdx.x; i++)
        before += counts[i];
    for (uint32_t i = 0; i < mine && before + i < CANDIDATE_THREADS; i++)
        best[before + i] = keys[i];
    sort_keys(best, CANDIDATE_THREADS);
    if (threadIdx.x < a.most)
        out[1 + threadIdx.x] = best[threadIdx.x];
}
