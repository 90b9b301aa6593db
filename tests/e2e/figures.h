/* figures.h - what the programs that compute figures again share: numbers of tensors, by their place in a file. */
#ifndef TESTS_E2E_FIGURES_H
#define TESTS_E2E_FIGURES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef long double real;

static inline void die(const char *why, const char *what)
{
    (void)fprintf(stderr, "figures: %s: %s\n", why, what);
    exit(2);
}

static inline void *grow(void *p, size_t n, size_t size)
{
    void *q = realloc(p, (n ? n : 1) * size);
    if (!q)
        die("out of memory", "");
    return q;
}

static inline uint64_t number(const char *s)
{
    char              *end;
    unsigned long long v = strtoull(s, &end, 10);
    if (end == s || *end)
        die("not a number", s);
    return v;
}

static inline float of_half(uint32_t bits)
{
    int   exponent = (int)(bits >> 10 & 31);
    float f = (float)(bits & 1023);
    f = exponent ? ldexpf(f + 1024, exponent - 25) : ldexpf(f, -24);
    return bits >> 15 ? -f : f;
}

static inline float *read_numbers(const char *path, uint64_t at, const char *type, uint64_t n)
{
    FILE  *f = fopen(path, "rb");
    bool   f16 = strcmp(type, "F16") == 0, half = f16 || strcmp(type, "BF16") == 0;
    float *v = grow(NULL, n, sizeof *v);
    if (!half && strcmp(type, "F32") != 0)
        die("not F32, F16 or BF16", type);
    if (!f || fseek(f, (long)at, SEEK_SET) != 0)
        die("cannot read", path);
    for (uint64_t i = 0; i < n; i++) {
        unsigned char b[4] = { 0 };
        if (fread(half ? b + 2 : b, half ? 2 : 4, 1, f) != 1)
            die("too short", path);
        uint32_t bits =
            (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        memcpy(v + i, &bits, sizeof bits);
        if (f16)
            v[i] = of_half(bits >> 16);
    }
    (void)fclose(f);
    return v;
}

/* Commands of figures.c that have a file of their own. */
int figures_bootstrap(uint64_t seed, const char *alpha, uint64_t draws, const char *arm,
                      const char *original);
int figures_fits(const char *device, const char *regressions);
int figures_predict(const char *device, const char *regressions, const char *workloads);
int figures_fleet(uint64_t a, uint64_t b, uint64_t units, const char *costs);

#endif
