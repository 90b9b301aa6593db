#include "base/rng.h"

#include <math.h>

void tsr_philox(uint32_t out[4], uint64_t c0, uint64_t c1, uint64_t key)
{
    uint32_t x0 = (uint32_t)c0, x1 = (uint32_t)(c0 >> 32);
    uint32_t x2 = (uint32_t)c1, x3 = (uint32_t)(c1 >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
        uint32_t y0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0, y2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)p1;
        x3 = (uint32_t)p0;
        x0 = y0;
        x2 = y2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

double tsr_uniform(uint64_t seed, uint64_t record, uint64_t token)
{
    uint32_t r[4];
    tsr_philox(r, token, record, seed);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11;
    return (double)bits * 0x1p-53;
}

double tsr_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    tsr_philox(r, index, stream, seed);
    double u = ((double)(((uint64_t)r[0] << 32 | r[1]) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(((uint64_t)r[2] << 32 | r[3]) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
