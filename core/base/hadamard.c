/* Sylvester's and Paley's Hadamard matrices. */
#include "base/hadamard.h"

#include "base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static bool is_prime(uint64_t q)
{
    for (uint64_t d = 2; d * d <= q; d++)
        if (q % d == 0)
            return false;
    return q > 1;
}

/* How many rows Paley's construction for base b takes its squares from: a prime, or 0. */
static uint64_t prime_of(uint64_t b, bool *twice)
{
    *twice = false;
    if (b % 4 == 0 && (b - 1) % 4 == 3 && is_prime(b - 1))
        return b - 1;
    *twice = true;
    if (b % 4 == 0 && (b / 2 - 1) % 4 == 1 && is_prime(b / 2 - 1))
        return b / 2 - 1;
    return 0;
}

/* The smallest b with n = 2^k * b that has a construction. */
uint64_t tsr_hadamard_base(uint64_t n)
{
    uint64_t odd = n;
    bool     twice;
    while (odd && odd % 2 == 0)
        odd /= 2;
    if (odd == 1)
        return 1;
    for (uint64_t b = odd; odd && n % b == 0; b *= 2)
        if (prime_of(b, &twice))
            return b;
    return 0;
}

uint64_t tsr_hadamard_divisor(uint64_t n, uint64_t most)
{
    for (uint64_t d = 1; d < n; d++) { /* n / d descends */
        uint64_t base = n % d == 0 ? tsr_hadamard_base(n / d) : 0;
        if (base && base <= most)
            return n / d;
    }
    return 1;
}

/* square[i]: 1 if i is a square modulo q and not 0, -1 if it is none, 0 for 0. */
static void squares_of(int8_t *square, uint64_t q)
{
    for (uint64_t i = 1; i < q; i++)
        square[i] = -1;
    square[0] = 0;
    for (uint64_t i = 1; i < q; i++)
        square[i * i % q] = 1;
}

/* Row i, column j of the matrix [q + 1, q + 1] with zeros on its diagonal, ones in its first row, `corner` in its first
 * column, and elsewhere whether i - j is a square. */
static int at(const int8_t *square, uint64_t q, uint64_t i, uint64_t j, int corner)
{
    if (i == j)
        return 0;
    if (i == 0)
        return 1;
    return j == 0 ? corner : square[(i + q - j) % q];
}

static void fill(struct tsr_hadamard *h, const int8_t *square, uint64_t q, bool twice)
{
    /* Paley II: a zero becomes the block (1 -1; -1 -1), a one (1 1; 1 -1) with its sign */
    static const int on[2][2] = { { 1, -1 }, { -1, -1 } }, off[2][2] = { { 1, 1 }, { 1, -1 } };
    for (uint64_t i = 0; i < h->base; i++)
        for (uint64_t j = 0; j < h->base; j++) {
            int v = twice ? at(square, q, i / 2, j / 2, 1) : at(square, q, i, j, -1);
            if (twice)
                v = i / 2 == j / 2 ? on[i % 2][j % 2] : v * off[i % 2][j % 2];
            else
                v = i == j ? 1 : v;
            h->sign[i * h->base + j] = (int8_t)v;
        }
}

tsr_status tsr_hadamard_create(struct tsr_hadamard *h, uint64_t n, struct tsr_err *err)
{
    bool twice;
    *h = (struct tsr_hadamard){ .n = n, .base = tsr_hadamard_base(n) };
    if (!h->base)
        return tsr_fail(
            err, TSR_E_INPUT,
            "no Hadamard matrix of %llu rows is known here: it takes a power of two, or "
            "one times 12, 20, 28, 36, 44, 60 or another size of Paley's",
            (unsigned long long)n);
    if (h->base == 1)
        return TSR_OK;
    uint64_t q = prime_of(h->base, &twice), cells;
    int8_t  *square = tsr_new(q, 1);
    if (!square || !tsr_mul(h->base, h->base, &cells) || !(h->sign = tsr_new(cells, 1))) {
        free(square);
        return tsr_fail_nomem(err, n, "a Hadamard matrix");
    }
    squares_of(square, q);
    fill(h, square, q, twice);
    free(square);
    return TSR_OK;
}

void tsr_hadamard_free(struct tsr_hadamard *h)
{
    free(h->sign);
    h->sign = NULL;
}

/* The fast Walsh-Hadamard transform of n = 2^k numbers, not scaled. */
static void walsh(double *x, uint64_t n)
{
    for (uint64_t half = 1; half < n; half *= 2)
        for (uint64_t i = 0; i < n; i += 2 * half)
            for (uint64_t j = i; j < i + half; j++) {
                double a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
}

void tsr_hadamard_apply(const struct tsr_hadamard *h, double *x, double *scratch)
{
    const uint64_t part = h->n / h->base; /* number b * part + i is of row b of the base */
    const double   scale = 1 / sqrt((double)h->n);
    double        *in = scratch, *out = scratch + h->base;
    for (uint64_t b = 0; b < h->base; b++)
        walsh(x + b * part, part);
    for (uint64_t i = 0; i < part && h->base > 1; i++) {
        for (uint64_t b = 0; b < h->base; b++) {
            in[b] = x[b * part + i];
            out[b] = 0;
        }
        for (uint64_t b = 0; b < h->base; b++)
            for (uint64_t c = 0; c < h->base; c++)
                out[c] += in[b] * h->sign[b * h->base + c];
        for (uint64_t b = 0; b < h->base; b++)
            x[b * part + i] = out[b];
    }
    for (uint64_t i = 0; i < h->n; i++)
        x[i] *= scale;
}
