#include "tasks/random.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define N TSR_TASKS_MT
#define M 397u

/* ---- the generator ------------------------------------------------------------------ */

static void start(uint32_t *v, uint32_t seed)
{
    v[0] = seed;
    for (uint32_t i = 1; i < N; i++)
        v[i] = UINT32_C(1812433253) * (v[i - 1] ^ (v[i - 1] >> 30)) + i;
}

/* init_by_array() with the seed as the only word of the key */
void tsr_tasks_random_seed(struct tsr_tasks_random *r, uint32_t seed)
{
    uint32_t *v = r->state, i = 1;
    start(v, UINT32_C(19650218));
    for (unsigned k = N; k > 0; k--) {
        v[i] = (v[i] ^ ((v[i - 1] ^ (v[i - 1] >> 30)) * UINT32_C(1664525))) + seed;
        if (++i == N) {
            v[0] = v[N - 1];
            i = 1;
        }
    }
    for (unsigned k = N - 1; k > 0; k--) {
        v[i] = (v[i] ^ ((v[i - 1] ^ (v[i - 1] >> 30)) * UINT32_C(1566083941))) - i;
        if (++i == N) {
            v[0] = v[N - 1];
            i = 1;
        }
    }
    v[0] = UINT32_C(0x80000000);
    r->at = N;
}

static void refill(struct tsr_tasks_random *r)
{
    uint32_t *v = r->state;
    for (unsigned i = 0; i < N; i++) {
        uint32_t y = (v[i] & UINT32_C(0x80000000)) | (v[(i + 1) % N] & UINT32_C(0x7fffffff));
        v[i] = v[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? UINT32_C(0x9908b0df) : 0);
    }
    r->at = 0;
}

static uint32_t next_word(struct tsr_tasks_random *r)
{
    if (r->at >= N)
        refill(r);
    uint32_t y = r->state[r->at++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9d2c5680);
    y ^= (y << 15) & UINT32_C(0xefc60000);
    return y ^ (y >> 18);
}

double tsr_tasks_random_unit(struct tsr_tasks_random *r)
{
    uint32_t a = next_word(r) >> 5, b = next_word(r) >> 6;
    return ((double)a * 67108864.0 + (double)b) / 9007199254740992.0;
}

/* ---- sample ------------------------------------------------------------------------- */

/* _randbelow(n): as many bits as n has, again until the number is below n; n from 1 */
static uint64_t below(struct tsr_tasks_random *r, uint64_t n)
{
    unsigned bits = 0;
    while (n >> bits)
        bits++;
    for (;;) {
        uint64_t v = next_word(r) >> (32 - bits);
        if (v < n)
            return v;
    }
}

/* A list of numbers, from which the last one fills each gap. */
static tsr_status sample_pool(struct tsr_tasks_random *r, uint64_t n, uint64_t k, uint64_t *out,
                              struct tsr_err *err)
{
    uint64_t *pool = tsr_new(n, sizeof *pool);
    if (!pool)
        return tsr_fail_nomem(err, n * sizeof *pool, "a sample");
    for (uint64_t i = 0; i < n; i++)
        pool[i] = i;
    for (uint64_t i = 0; i < k; i++) {
        uint64_t j = below(r, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    free(pool);
    return TSR_OK;
}

static bool is_among(const uint64_t *v, uint64_t n, uint64_t x)
{
    for (uint64_t i = 0; i < n; i++)
        if (v[i] == x)
            return true;
    return false;
}

tsr_status tsr_tasks_random_sample(struct tsr_tasks_random *r, uint64_t n, uint64_t k,
                                   uint64_t *out, struct tsr_err *err)
{
    /* Python takes the list where it is smaller than a set of k numbers would be */
    double set = 21;
    if (k > 5)
        set += pow(4, ceil(log((double)(k * 3)) / log(4)));
    if ((double)n <= set)
        return sample_pool(r, n, k, out, err);
    for (uint64_t i = 0; i < k; i++) {
        do
            out[i] = below(r, n);
        while (is_among(out, i, out[i]));
    }
    return TSR_OK;
}
