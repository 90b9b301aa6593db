/* figures bootstrap: the interval of a median of ratios, resampled again from the rounds that are printed.  The generator
 * is Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), written from the paper; which words of it a draw takes is in
 * docs/decisions/figures.md. */
#include "figures.h"

/* Ten rounds over the counter (c[0] the lowest word); the key grows by the paper's two constants. */
static void philox(uint32_t c[4], uint64_t key)
{
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = c[0] * UINT64_C(3528531795), b = c[2] * UINT64_C(3449720151);
        uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ low, (uint32_t)b,
                             (uint32_t)(a >> 32) ^ c[3] ^ high, (uint32_t)a };
        memcpy(c, next, sizeof next);
        low += 2654435769u;
        high += 3144134277u;
    }
}

/* The authors' own first known answer: counter 0 under key 0. */
static void check_generator(void)
{
    uint32_t c[4] = { 0 };
    philox(c, 0);
    if (c[0] != 0x6627e8d5u || c[1] != 0xe169c58du || c[2] != 0xbc57ac4cu || c[3] != 0x9b00dbd8u)
        die("Philox", "not the known answer");
}

static int by_value(const void *a, const void *b)
{
    real x = *(const real *)a, y = *(const real *)b;
    return x < y ? -1 : x > y;
}

static real median(real *v, uint64_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static real *read_reals(const char *path, uint64_t *n)
{
    FILE *f = fopen(path, "r");
    real *v = NULL, one;
    *n = 0;
    if (!f)
        die("cannot open", path);
    while (fscanf(f, "%Lf", &one) == 1) {
        v = grow(v, *n + 1, sizeof *v);
        v[(*n)++] = one;
    }
    (void)fclose(f);
    return v;
}

/* The smallest value that at least the share q does not exceed.  A share of the draws that is a whole number in decimals
 * is one here, too: hence the 1e-9, which is far above long double's rounding and far below one draw. */
static real percentile(const real *v, uint64_t n, real q)
{
    real rank = ceill(q * (real)n - 1e-9L);
    return v[rank < 1 ? 0 : (uint64_t)rank - 1];
}

int figures_bootstrap(uint64_t seed, const char *alpha, uint64_t draws, const char *arm,
                      const char *original)
{
    uint64_t n, m;
    real    *a = read_reals(arm, &n), *b = read_reals(original, &m);
    real    *picked = grow(NULL, n, sizeof *picked), *medians = grow(NULL, draws, sizeof *medians);
    real     level = strtold(alpha, NULL);
    check_generator();
    if (n == 0 || n != m || !(level > 0 && level < 1))
        die("rounds or alpha", arm);
    for (uint64_t i = 0; i < n; i++)
        a[i] /= b[i];
    for (uint64_t d = 0; d < draws; d++) {
        uint32_t word[4] = { 0 };
        for (uint64_t i = 0; i < n; i++) {
            if (i % 4 == 0) { /* counter: block of four, then the draw, 64 bits each */
                memcpy(word,
                       (uint32_t[4]){ (uint32_t)(i / 4), 0, (uint32_t)d, (uint32_t)(d >> 32) },
                       sizeof word);
                philox(word, seed);
            }
            picked[i] = a[(uint64_t)word[i % 4] * n >> 32];
        }
        medians[d] = median(picked, n);
    }
    qsort(medians, draws, sizeof *medians, by_value);
    (void)printf("{\"low\": %.17Lg, \"high\": %.17Lg", percentile(medians, draws, level / 2),
                 percentile(medians, draws, 1 - level / 2));
    (void)printf(", \"median\": %.17Lg}\n", median(a, n));
    free(a);
    free(b);
    free(picked);
    free(medians);
    return 0;
}
